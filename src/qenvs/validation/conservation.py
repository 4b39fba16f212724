"""Conservation laws: norm, trace, hermiticity, positivity, unitarity, and what commutes with H."""

from collections.abc import Iterator

import numpy as np

from qenvs.models.dicke import CavityBattery
from qenvs.validation.cases import EPS32, LONG, Case
from qenvs.validation.results import Check, Measure


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Of every case: what the kind of its state must keep; of the models: their own laws."""
    laws = {
        "trace is 1": (trace, lambda c: not c.is_map),
        "state is Hermitian": (hermiticity, lambda c: not c.is_map and not c.is_ket),
        "state is positive": (positivity, lambda c: not c.is_map and not c.is_ket),
        "pure states stay pure": (purity, lambda c: c.is_ket),
        "map is unitary": (unitarity, lambda c: c.is_propagator),
        "map keeps the trace": (trace_preserved, lambda c: c.is_superoperator),
        "map is completely positive": (complete_positivity, lambda c: c.is_superoperator),
        "populations add up to 1": (populations, lambda c: bool(_complete_populations(c))),
        "total spin J^2 is constant": (total_spin, _is_collective),
        "excitations are exchanged, not made": (excitations, _conserves_excitations),
        "parity of the excitations is constant": (parity, _conserves_parity),
        f"{LONG} float32 steps keep it physical": (long_run, lambda c: c.thorough),
    }
    for name, (law, holds) in laws.items():
        for case in cases.values():
            if holds(case):
                yield Check(name, case.label, "conservation", lambda c=case, f=law: f(c))


def _traces(matrices: np.ndarray) -> np.ndarray:
    return np.trace(matrices, axis1=-2, axis2=-1)


def trace(case: Case) -> Measure:
    """Tr rho, for a ket its norm."""
    return Measure(np.abs(_traces(case.play.states) - 1).max(), case.rounding())


def hermiticity(case: Case) -> Measure:
    """max |rho - rho'|."""
    states = case.play.states
    return Measure(np.abs(states - states.conj().swapaxes(-1, -2)).max(), case.rounding())


def positivity(case: Case) -> Measure:
    """The smallest eigenvalue, where negative."""
    return Measure(max(0.0, -np.linalg.eigvalsh(case.play.states).min()), case.rounding())


def purity(case: Case) -> Measure:
    """Tr rho^2."""
    states = case.play.states
    return Measure(np.abs(_traces(states @ states) - 1).max(), 2 * case.rounding())


def unitarity(case: Case) -> Measure:
    """max |U'U - 1|."""
    maps = case.play.states
    gram = maps.conj().swapaxes(-1, -2) @ maps
    return Measure(np.abs(gram - np.eye(maps.shape[-1])).max(), 2 * case.rounding())


def trace_preserved(case: Case) -> Measure:
    """Tr S(A) = Tr A for every A."""
    return Measure(_trace_error(case.play.states), case.rounding() * case.model.dims[0])


def _trace_error(maps: np.ndarray) -> float:
    d = round(maps.shape[-1] ** 0.5)
    row = np.eye(d).reshape(-1)
    return float(np.abs(row @ maps - row).max())


def complete_positivity(case: Case) -> Measure:
    """The smallest eigenvalue of the Choi matrix, where negative, and its anti-Hermitian part."""
    maps = case.play.states
    d = round(maps.shape[-1] ** 0.5)
    # S[(j i), (l k)] takes |k><l| to |i><j|; the Choi matrix has rows (k i), columns (l j)
    choi = maps.reshape(-1, d, d, d, d).transpose(0, 4, 2, 3, 1).reshape(-1, d * d, d * d)
    skew = np.abs(choi - choi.conj().swapaxes(-1, -2)).max()
    negative = -np.linalg.eigvalsh(choi).min()
    # a d^2 x d^2 matrix of entries that are off by eps has eigenvalues that are off by d^2 eps
    return Measure(max(0.0, negative, skew), d * d * case.rounding())


def _complete_populations(case: Case) -> list[str]:
    """Observables that are projectors adding up to 1."""
    terms = case.model.observable_terms()
    chosen = [n for n in terms if n[0] == "p" and n[1:].isdigit()]
    total = sum((np.asarray(terms[n][1]) for n in chosen), 0.0)
    if len(chosen) > 1 and np.allclose(total, np.eye(len(total))):  # type: ignore[arg-type]
        return chosen
    every = [*chosen, *(["leakage"] if "leakage" in terms else [])]
    total = sum((np.asarray(terms[n][1]) for n in every), np.zeros(()))
    return every if total.ndim and np.allclose(total, np.eye(len(total))) else []


def populations(case: Case) -> Measure:
    """Of the evolved initial state."""
    info = case.play.info
    names = _complete_populations(case)
    renamed = {"leakage": "state_leakage"} if case.is_map else {}
    total = sum(info[renamed.get(name, name)] for name in names)
    return Measure(np.abs(total - 1).max(), case.rounding())


def _expectations(case: Case, operator: np.ndarray) -> np.ndarray:
    return np.einsum("tij,ji->t", case.play.states, operator).real


def _is_collective(case: Case) -> bool:
    return isinstance(case.model, CavityBattery) and len(case.model.sectors()) == 1


def total_spin(case: Case) -> Measure:
    """J^2 = Jx2 + Jy2 + Jz2 stays (N/2)(N/2 + 1) whatever is collective."""
    moments = case.model.correlation_observables()
    squared = moments["Jx2"] + moments["Jy2"] + moments["Jz2"]
    j = case.model.n_cells / 2
    error = np.abs(_expectations(case, squared) - j * (j + 1)).max()
    return Measure(error, j * (j + 1) * case.rounding())


def _conserves_excitations(case: Case) -> bool:
    return _is_collective(case) and case.model.rwa and not case.is_open


def _conserves_parity(case: Case) -> bool:
    return _is_collective(case) and not case.model.rwa and not case.is_open


def _number(case: Case) -> np.ndarray:
    """Excitations of each basis state: of the cells, then of the cavity."""
    cells, cavity = (np.arange(d) for d in case.model.dims)
    return (cells[:, None] + cavity).reshape(-1)


def excitations(case: Case) -> Measure:
    """<J_z + N/2 + a'a>, from the state and from the info."""
    number = _number(case)
    error = np.abs(_expectations(case, np.diag(number)) - number[case.model.n_photons])
    error = np.maximum(error, np.abs(case.play.info["excitation"] - case.model.n_photons))
    return Measure(error.max(), number.max() * case.rounding())


def parity(case: Case) -> Measure:
    """(-1)^(excitations) of each basis state."""
    signs = (-1.0) ** _number(case)
    error = np.abs(_expectations(case, np.diag(signs)) - signs[case.model.n_photons]).max()
    return Measure(error, case.rounding())


def long_run(case: Case) -> Measure:
    """Trace or unitarity to 1e-6 in the shipped precision, whatever the number of steps.

    Each step goes back towards the physical set, so errors do not add up: a few eps of float32
    per entry of a row remain.
    """
    states = case.long_states[:: LONG // 20]
    if case.is_superoperator:
        error = _trace_error(states)
    elif case.is_propagator:
        gram = states.conj().swapaxes(-1, -2) @ states
        error = np.abs(gram - np.eye(states.shape[-1])).max()
    else:
        error = np.abs(_traces(states) - 1).max()
    return Measure(error, 4 * EPS32 * states.shape[-1])

"""Environments: the return is the gain, and every number in `info` is what it says."""

from collections.abc import Iterator

import numpy as np
import qutip

from qenvs.envs import GateControl, StateTransfer
from qenvs.models import DickeBattery
from qenvs.validation.cases import Case
from qenvs.validation.results import Check, Measure


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Rewards of every case, and its quantities against the reference."""
    named = {
        "return is the gain of the quantity": gain,
        "done after exactly the horizon": ends,
        "quantities of the reference states": quantities,
    }
    for name, measure in named.items():
        for case in cases.values():
            yield Check(name, case.label, "environment", lambda c=case, f=measure: f(c))


def gain(case: Case) -> Measure:
    """Each reward is the change of the quantity in its step, so that they add up to the gain."""
    quantity = case.play.info[case.env.quantity_name]
    steps = np.abs(case.play.rewards - np.diff(quantity)).max()
    total = abs(case.play.rewards.sum() - (quantity[-1] - quantity[0]))
    return Measure(max(steps, total), case.rounding() * max(1.0, np.abs(quantity).max()))


def ends(case: Case) -> Measure:
    """Number of steps whose `done` is wrong."""
    expected = np.arange(1, case.env.horizon + 1) >= case.env.horizon
    return Measure(int(np.sum(case.play.done != expected)), 0)


def quantities(case: Case) -> Measure:
    """Fidelity, energy, ergotropy, purity of the reference states by the textbook formulas."""
    found = [_expected(case, state) for state in case.full_states]
    errors = {
        name: np.abs(case.play.info[name] - [row[name] for row in found]).max() for name in found[0]
    }
    worst = max(errors, key=lambda name: errors[name])
    # an expectation value of an operator of norm h is off by twice h times what the state is;
    # between maps of k levels, sums over k^2 entries
    size = max(4.0, *(np.abs(case.play.info[name]).max() * 4 for name in errors))
    size *= len(case.env.computational_indices) if isinstance(case.env, GateControl) else 1
    return Measure(errors[worst], size * case.rounding(), worst)


def _expected(case: Case, state: np.ndarray) -> dict[str, float]:
    env = case.env
    if isinstance(env, GateControl):
        return gate_quality(case, state)
    if isinstance(env, StateTransfer):
        target = np.asarray(env.target)
        return {"fidelity": float(np.vdot(target, state @ target).real)}
    return charge(case, state)


def charge(case: Case, state: np.ndarray) -> dict[str, float]:
    """Energy, ergotropy and purity, from the full spectra of every cell's space."""
    system = case.system
    rho = qutip.Qobj(state, dims=system.start.dims)
    energy = float(qutip.expect(system.stored, rho))
    purity = float(np.trace(state @ state).real)
    if isinstance(case.model, DickeBattery):
        work = symmetric_ergotropy(case.model, case.compact(state))
        return {"energy": energy, "ergotropy": work, "purity": purity}
    battery = rho.ptrace(list(system.battery)).full()
    # the battery's own Hamiltonian: what is left of the stored energy with the rest traced out
    rest = state.shape[0] // len(battery)
    hamiltonian = system.stored.ptrace(list(system.battery)).full() / rest
    return {"energy": energy, "ergotropy": ergotropy(battery, hamiltonian), "purity": purity}


def symmetric_ergotropy(model: DickeBattery, compact: np.ndarray) -> float:
    """By unitaries within the symmetric subspace, levels 0, omega0, ..., N omega0."""
    levels = model.n_max + 1
    cells = np.trace(compact.reshape(-1, levels, model.n_cells + 1, levels), axis1=1, axis2=3)
    return ergotropy(cells, np.diag(float(model.omega0) * np.arange(model.n_cells + 1.0)))


def ergotropy(rho: np.ndarray, hamiltonian: np.ndarray) -> float:
    """Energy minus that of the sorted populations on the sorted levels."""
    passive = np.linalg.eigvalsh(rho)[::-1] @ np.linalg.eigvalsh(hamiltonian)
    return float(np.trace(rho @ hamiltonian).real - passive)


def gate_quality(case: Case, evolved: np.ndarray) -> dict[str, float]:
    """Average fidelity and leakage from the map of half a maximally entangled state.

    F_avg = (k F_pro + p) / (k + 1): F_pro is the overlap with what the target makes of it,
    p the probability to stay among the k levels.
    """
    env = case.env
    inside, d = list(env.computational_indices), len(env.model.drift_terms()[0][1])
    k = len(inside)
    frame = np.eye(d)
    if env.frame is not None:
        energies = np.asarray(env.frame(env.model))
        frame = np.diag(np.exp(1j * energies * float(env.duration)))
    images = {
        (i, j): frame @ _moved(evolved, np.outer(np.eye(d)[a], np.eye(d)[b]), d) @ frame.conj().T
        for i, a in enumerate(inside)
        for j, b in enumerate(inside)
    }
    target = np.zeros((d, k), complex)
    target[inside] = np.asarray(env.target)
    overlap = sum(target[:, i].conj() @ image @ target[:, j] for (i, j), image in images.items())
    stays = sum(np.trace(images[i, i][np.ix_(inside, inside)]).real for i in range(k)) / k
    process = float(np.real(overlap)) / k**2
    return {"fidelity": (k * process + stays) / (k + 1), "leakage": 1 - stays}


def _moved(evolved: np.ndarray, matrix: np.ndarray, d: int) -> np.ndarray:
    """What a propagator or a superoperator (column stacking) makes of a matrix."""
    if len(evolved) == d:
        return evolved @ matrix @ evolved.conj().T
    return (evolved @ matrix.T.reshape(-1)).reshape(d, d).T

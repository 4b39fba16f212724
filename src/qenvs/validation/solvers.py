"""Cross-checks against QuTiP's solvers, which integrate the equations adaptively."""

import itertools
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import qutip
import qutip.piqs

from qenvs.models.spin import local_jumps, sectors
from qenvs.validation.cases import Case, liouvillian
from qenvs.validation.results import Check, Measure

INTERVALS = 2
TOLERANCE = 1e-8
"""The integrators keep the local error below 1e-12 + 1e-10 |rho| in each of some hundred steps."""


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """The first intervals of every case, and the local dissipators of PIQS."""
    yield from integrated(cases)
    for n in (2, 3, 4):
        name = f"local dissipators of PIQS, {n} cells"
        yield Check(name, "DickeBatteryLocal", "QuTiP", lambda n=n: piqs(n))


def integrated(cases: dict[str, Case]) -> Iterator[Check]:
    """The first intervals of every case."""
    for case in cases.values():
        kind = "propagator" if case.is_map else "mesolve" if case.is_open else "sesolve"
        yield Check(kind, case.label, "QuTiP", lambda c=case: solved(c))


def _options(dt: float) -> dict[str, Any]:
    # without max_step an adaptive integrator can step over a pulse
    return {"method": "vern9", "atol": 1e-12, "rtol": 1e-10, "max_step": dt / 10}


def solved(case: Case) -> Measure:
    """States after the first intervals."""
    dt, system = float(case.env.dt), case.system
    state = qutip.Qobj(case.full_states[0]) if case.is_map else system.start
    errors = []
    for k in range(INTERVALS):
        state = _interval(case, system.hamiltonian(case.actions[k]), dt, state)
        errors.append(np.abs(case.compact(state.full()) - case.play.states[k + 1]).max())
    return Measure(max(errors), TOLERANCE)


def _interval(case: Case, hamiltonian: Any, dt: float, state: Any) -> Any:
    jumps, settings = case.system.jumps, _options(dt)
    if case.is_map:
        # of the generator as one superoperator, so that closed and open models go one way
        propagator = cast(Any, qutip.propagator)
        moved = propagator(hamiltonian, dt, c_ops=jumps, options=settings)
        return qutip.Qobj(moved.full() @ state.full())
    solve = cast(Any, qutip.mesolve if jumps else qutip.sesolve)
    arguments = (jumps,) if jumps else ()
    start = state if jumps or state.isket else _pure(state)
    final = solve(hamiltonian, start, [0.0, dt], *arguments, options=settings).states[-1]
    return final if jumps else final.proj() if state.isoper else final


def _pure(rho: Any) -> Any:
    """The ket of a pure density matrix."""
    return rho.eigenstates()[1][-1]


def piqs(n_cells: int) -> Measure:
    """d rho/dt of emission, dephasing and pumping of each cell, on random blocks.

    PIQS orders m downwards within a sector. Its rates are good to 1e-8.
    """
    kept, rng = sectors(n_cells), np.random.default_rng(0)
    sizes = [sector.size for sector in kept]
    ends = np.cumsum([0, *sizes])
    rho, flip = np.zeros((ends[-1],) * 2, complex), np.zeros((ends[-1],) * 2)
    for start, end in itertools.pairwise(ends):
        block = rng.normal(size=(end - start,) * 2) + 1j * rng.normal(size=(end - start,) * 2)
        rho[start:end, start:end] = block @ block.conj().T
        flip[start:end, start:end] = np.eye(end - start)[::-1]
    rho /= np.trace(rho)
    rates = {"emission": 0.3, "dephasing": 0.7, "pumping": 0.5}
    theirs = cast(Any, qutip.piqs).Dicke(n_cells, **rates).liouvillian()
    flipped = cast(Any, qutip.operator_to_vector)(qutip.Qobj(flip @ rho @ flip))
    expected = flip @ cast(Any, qutip.vector_to_operator)(theirs @ flipped).full() @ flip
    jumps = [
        qutip.Qobj(np.sqrt(rate) * jump)
        for kind, rate in rates.items()
        for jump in local_jumps(n_cells, kind)
    ]
    ours = liouvillian(qutip.Qobj(np.zeros_like(rho)), jumps).full() @ rho.T.reshape(-1)
    return Measure(np.abs(ours.reshape(rho.shape).T - expected).max(), 1e-7)

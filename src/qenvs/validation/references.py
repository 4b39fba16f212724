"""The equations of every model, written a second time with QuTiP operators.

Nothing here comes from the models but their numbers: operators are QuTiP's, and cells of a Dicke
battery are 2^N product states.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import qutip

from qenvs.models import (
    DickeBattery,
    DickeBatteryLocal,
    LambdaSystem,
    QubitBattery,
    Transmon,
    TwoLevel,
    TwoTransmon,
)

RAD_PER_GHZ = 2 * math.pi
NS_PER_US = 1000.0


class System(NamedTuple):
    """H(u) = drift + sum_k u_k controls_k and jump operators (rates included), as `Qobj`.

    Attributes:
        drift, controls, jumps, start: what the equations say; `start` is a density matrix.
        stored: energy operator of the battery, None without one.
        battery: tensor factors that are the battery.
    """

    drift: Any
    controls: list[Any]
    jumps: list[Any]
    start: Any
    stored: Any = None
    battery: tuple[int, ...] = ()

    def hamiltonian(self, controls: Sequence[float]) -> Any:
        """H(u)."""
        return sum((u * c for u, c in zip(controls, self.controls, strict=True)), self.drift)


def system(model: Any) -> System:
    """The equations of a built-in model at its own numbers."""
    return WRITERS[type(model)](model)


def _qubit(model: Any, jumps: list[Any], start: Any) -> System:
    drift = float(model.detuning) / 2 * qutip.sigmaz()
    stored = float(model.omega0) * qutip.fock_dm(2, 1)
    return System(drift, [qutip.sigmax() / 2], _present(jumps), start, stored, (0,))


def two_level(model: TwoLevel) -> System:
    """(D/2) sz + u sx/2; sqrt(gamma1)|0><1|, sqrt(gamma_phi/2) sz."""
    decay = math.sqrt(model.gamma1) * qutip.projection(2, 0, 1)
    dephasing = math.sqrt(model.gamma_phi / 2) * qutip.sigmaz()
    return _qubit(model, [decay, dephasing], qutip.fock_dm(2, int(model.initial == "excited")))


def qubit_battery(model: QubitBattery) -> System:
    """The same with emission gamma1 (n_th + 1) and absorption gamma1 n_th."""
    n = float(model.n_th)
    jumps = [
        math.sqrt(model.gamma1 * (n + 1)) * qutip.projection(2, 0, 1),
        math.sqrt(model.gamma1 * n) * qutip.projection(2, 1, 0),
        math.sqrt(model.gamma_phi / 2) * qutip.sigmaz(),
    ]
    excited = n / (2 * n + 1) if model.initial == "thermal" else 0.0
    start = (1 - excited) * qutip.fock_dm(2, 0) + excited * qutip.fock_dm(2, 1)
    return _qubit(model, jumps, start)


def lambda_system(model: LambdaSystem) -> System:
    """D|2><2| + d|3><3| + (Op/2)(|1><2| + h.c.) + (Os/2)(|3><2| + h.c.)."""
    one, two, three = (qutip.basis(3, k) for k in range(3))
    drift = float(model.delta_one_photon) * two.proj()
    drift += float(model.delta_two_photon) * three.proj()
    pump, stokes = one @ two.dag(), three @ two.dag()
    rate = math.sqrt(model.gamma / 2)
    controls = [(field + field.dag()) / 2 for field in (pump, stokes)]
    return System(drift, controls, _present([rate * pump, rate * stokes]), one.proj())


def _drives(a: Any) -> list[Any]:
    return [(a + a.dag()) / 2, 1j * (a.dag() - a) / 2]


def _duffing(a: Any, detuning_ghz: Any, anharmonicity_ghz: Any) -> Any:
    """D n + (alpha/2) n (n - 1) as D a'a + (alpha/2) a'a'aa."""
    pairs = a.dag() @ a.dag() @ a @ a
    return RAD_PER_GHZ * (float(detuning_ghz) * a.dag() @ a + float(anharmonicity_ghz) / 2 * pairs)


def _decay(a: Any, t1_us: Any, t2_us: Any) -> list[Any]:
    """sqrt(1/T1) a and sqrt(2/Tphi) n, 1/Tphi = 1/T2 - 1/(2 T1)."""
    relaxation = 1 / (NS_PER_US * float(t1_us))
    dephasing = 1 / (NS_PER_US * float(t2_us)) - relaxation / 2
    return [math.sqrt(relaxation) * a, math.sqrt(max(2 * dephasing, 0.0)) * a.dag() @ a]


def transmon(model: Transmon) -> System:
    """A Duffing oscillator with two quadratures."""
    a = qutip.destroy(model.levels)
    drift = _duffing(a, model.detuning_ghz, model.anharmonicity_ghz)
    jumps = _present(_decay(a, model.t1_us, model.t2_us))
    return System(drift, _drives(a), jumps, qutip.fock_dm(model.levels, 0))


def two_transmon(model: TwoTransmon) -> System:
    """Control x target, both in the frame at the target's frequency."""
    single, one = qutip.destroy(model.levels), qutip.qeye(model.levels)
    a, b = qutip.tensor(single, one), qutip.tensor(one, single)
    drift = _duffing(a, model.detuning_ghz, model.anharmonicity_c_ghz)
    drift += _duffing(b, 0.0, model.anharmonicity_t_ghz)
    drift += RAD_PER_GHZ * float(model.coupling_ghz) * (a.dag() @ b + a @ b.dag())
    jumps = _decay(a, model.t1_c_us, model.t2_c_us) + _decay(b, model.t1_t_us, model.t2_t_us)
    start = qutip.tensor(*[qutip.fock_dm(model.levels, 0)] * 2)
    return System(drift, _drives(a) + _drives(b), _present(jumps), start)


def on_cell(operator: Any, cell: int, n_cells: int, cavity: Any) -> Any:
    """An operator on one of n cells, times one on the cavity."""
    factors = [operator if k == cell else qutip.qeye(2) for k in range(n_cells)]
    return qutip.tensor(*factors, cavity)


def dicke(model: DickeBattery | DickeBatteryLocal) -> System:
    """N cells, each a factor of its own, and the cavity last."""
    n, levels = model.n_cells, model.n_max + 1
    cavity, lower = qutip.qeye(levels), qutip.projection(2, 0, 1)

    def collective(operator: Any) -> Any:
        return sum(on_cell(operator, k, n, cavity) for k in range(n))

    a = qutip.tensor(*[qutip.qeye(2)] * n, qutip.destroy(levels))
    j_minus, number = collective(lower), collective(qutip.fock_dm(2, 1))
    exchange = a.dag() @ j_minus if model.rwa else (a + a.dag()) @ j_minus
    stored = float(model.omega0) * number
    jumps = [
        math.sqrt(model.kappa) * a,
        math.sqrt(model.gamma) * j_minus,
        math.sqrt(model.gamma_phi) * (number - n / 2),
    ]
    local = {
        "gamma_local": lower,
        "gamma_phi_local": qutip.sigmaz() / 2,
        "pumping_local": lower.dag(),
    }
    for name, operator in local.items():
        rate = math.sqrt(getattr(model, name, 0.0))
        jumps += [rate * on_cell(operator, k, n, cavity) for k in range(n)]
    start = qutip.tensor(*[qutip.fock_dm(2, 0)] * n, qutip.fock_dm(levels, model.n_photons))
    drift = stored + float(model.omega_c) * a.dag() @ a
    battery = tuple(range(n))
    return System(drift, [exchange + exchange.dag()], _present(jumps), start, stored, battery)


WRITERS: dict[type, Callable[[Any], System]] = {
    TwoLevel: two_level,
    QubitBattery: qubit_battery,
    LambdaSystem: lambda_system,
    Transmon: transmon,
    TwoTransmon: two_transmon,
    DickeBattery: dicke,
    DickeBatteryLocal: dicke,
}


def _present(jumps: list[Any]) -> list[Any]:
    return [jump for jump in jumps if jump.norm() > 0]


@functools.cache
def sector_transitions(n_cells: int, sectors: int) -> tuple[np.ndarray, ...]:
    """For each total spin j = N/2, N/2 - 1, ...: U[m', m] = sum_a |j m' a><j m a| on 2^N states.

    Shape (2j+1, 2j+1, 2^N, 2^N), m ascending, summed over the copies a of the sector. From the
    spectrum of J^2 and the ladder J_+ |j m a> = sqrt((j - m)(j + m + 1)) |j m+1 a>.
    """
    raising = _cell_sum(qutip.projection(2, 1, 0), n_cells)
    z = _cell_sum(qutip.fock_dm(2, 1), n_cells) - n_cells / 2 * np.eye(2**n_cells)
    squared = (raising @ raising.T + raising.T @ raising) / 2 + z @ z
    values, vectors = np.linalg.eigh(squared)
    found = []
    for k in range(sectors):
        j = n_cells / 2 - k
        kept = vectors[:, np.isclose(values, j * (j + 1), atol=1e-9)]
        inside = kept @ kept.conj().T
        lowest = inside @ np.diag(np.isclose(np.diag(z), -j).astype(float))
        ladder = [lowest]
        for m in np.arange(-j, j):
            ladder.append(raising @ ladder[-1] / math.sqrt((j - m) * (j + m + 1)))
        found.append(np.array([[up @ down.conj().T for down in ladder] for up in ladder]))
    return tuple(found)


def _cell_sum(operator: Any, n_cells: int) -> np.ndarray:
    total: Any = sum(on_cell(operator, k, n_cells, qutip.qeye(1)) for k in range(n_cells))
    return np.real(total.full())


def compact_blocks(model: Any, rho: np.ndarray) -> np.ndarray:
    """The block-diagonal matrix of a Dicke battery made from the density matrix of all cells."""
    n, levels = model.n_cells, model.n_max + 1
    by_cells = rho.reshape(2**n, levels, 2**n, levels)
    transitions = sector_transitions(n, len(model.sectors()))
    sizes = [len(t) * levels for t in transitions]
    compact = np.zeros((sum(sizes), sum(sizes)), complex)
    start = 0
    for moves, size in zip(transitions, sizes, strict=True):
        # <m|sigma|m'> = Tr(rho U[m', m]) over the cells
        block = np.einsum("yxji,imjn->xmyn", moves, by_cells)
        compact[start : start + size, start : start + size] = block.reshape(size, size)
        start += size
    return compact

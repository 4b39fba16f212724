"""Cells charged together by a cavity: the Dicke battery in the symmetric subspace."""

import abc
import functools
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from qenvs import _checks
from qenvs.models.base import (
    RATE,
    SIZE,
    UNIT,
    ParameterSpec,
    Term,
    TruncatedModel,
    basis_ket,
    check_rates,
    number,
)
from qenvs.models.battery import Battery, Block, BlockModel
from qenvs.models.spin import Sector, annihilation, spin_lowering, spin_z

COLLECTIVE_RATES = ("kappa", "gamma", "gamma_phi")
COUNTER_ROTATING_LEVELS = 4
"""Fock levels above `n_photons` that the default cutoff keeps where it cannot be exact."""


class CavityOperators(NamedTuple):
    """Matrices on cells x cavity: J_z + N/2, a'a, |n_max><n_max|, a, J_-, J_z."""

    cells: np.ndarray
    photons: np.ndarray
    top: np.ndarray
    a: np.ndarray
    lowering: np.ndarray
    z: np.ndarray


@functools.lru_cache(maxsize=8)
def cavity_operators(kept: tuple[Sector, ...], n_max: int) -> CavityOperators:
    """The operators of the cells in the given sectors and a cavity of n_max + 1 levels."""
    cells, cavity = np.eye(sum(sector.size for sector in kept)), np.eye(n_max + 1)
    number = spin_z(kept) + kept[0].j * cells
    operators = CavityOperators(
        cells=np.kron(number, cavity),
        photons=np.kron(cells, np.diag(np.arange(n_max + 1.0))),
        top=np.kron(cells, np.diag(cavity[-1])),
        a=np.kron(cells, annihilation(n_max + 1)),
        lowering=np.kron(spin_lowering(kept), cavity),
        z=np.kron(spin_z(kept), cavity),
    )
    for operator in operators:
        operator.setflags(write=False)  # shared by every model of this size
    return operators


class CavityBattery(BlockModel, TruncatedModel):
    """What the Dicke batteries share: cells (index 0 = all ground) x cavity, one control g."""

    time_unit: ClassVar[str] = "1/omega0"
    amplitude_unit: ClassVar[str] = "omega0"

    n_cells: eqx.AbstractVar[int]
    n_photons: eqx.AbstractVar[Any]
    n_max: eqx.AbstractVar[Any]
    omega0: eqx.AbstractVar[Any]
    omega_c: eqx.AbstractVar[Any]
    rwa: eqx.AbstractVar[bool]
    kappa: eqx.AbstractVar[Any]
    gamma: eqx.AbstractVar[Any]
    gamma_phi: eqx.AbstractVar[Any]

    @abc.abstractmethod
    def sectors(self) -> tuple[Sector, ...]:
        """Sectors of total spin that the cells can be in, j = N/2 first."""

    @abc.abstractmethod
    def adds_excitations(self) -> bool:
        """Whether any dissipation creates excitations."""

    def __post_init__(self) -> None:
        self.n_cells = _checks.integer("n_cells", self.n_cells, minimum=1)
        photons = self.n_cells if self.n_photons is None else self.n_photons
        self.n_photons = _checks.integer("n_photons", photons, minimum=0)
        if not isinstance(self.rwa, (bool, np.bool_)):
            raise TypeError(f"`rwa` must be True or False, got {self.rwa!r}")
        if self.n_max is None:
            self.n_max = self._default_cutoff()
        self.n_max = _checks.integer("n_max", self.n_max, minimum=0)
        if self.n_max < self.n_photons:
            raise ValueError(f"`n_max` must be >= n_photons = {self.n_photons}, got {self.n_max}")

    def _default_cutoff(self) -> int:
        if self.adds_excitations():
            raise ValueError(
                "`n_max` must be given with pumping, which creates excitations without bound: "
                "choose it so that info['top_fock'] stays small"
            )
        return self.n_photons + (0 if self.rwa else COUNTER_ROTATING_LEVELS)

    @property
    def dims(self) -> tuple[int, ...]:
        return (sum(sector.size for sector in self.sectors()), self.n_max + 1)

    @property
    def control_names(self) -> tuple[str, ...]:
        return ("g",)

    def truncations(self) -> dict[str, str]:
        exact = self.rwa and not self.adds_excitations() and self.n_max >= self.n_photons
        return {} if exact else {"top_fock": "n_max"}

    def drift_terms(self) -> tuple[Term, ...]:
        operators = self._operators()
        return ((self.omega0, operators.cells), (self.omega_c, operators.photons))

    def control_operators(self) -> tuple[np.ndarray, ...]:
        kept, a = self.sectors(), annihilation(self.n_max + 1)
        lowering = spin_lowering(kept)
        if self.rwa:
            exchange = np.kron(lowering, a.T)
            return (exchange + exchange.T,)
        return (np.kron(lowering + lowering.T, a + a.T),)

    def collective_jump_terms(self) -> tuple[Term, ...]:
        """Loss of the cavity, emission and dephasing of the collective spin."""
        operators = self._operators()
        return (
            (self.kappa, operators.a),
            (self.gamma, operators.lowering),
            (self.gamma_phi, operators.z),
        )

    def initial_state(self) -> np.ndarray:
        return basis_ket(int(np.prod(self.dims)), self.n_photons)

    def battery(self) -> Battery:
        kept = self.sectors()
        number = spin_z(kept) + np.eye(self.dims[0]) * self.n_cells / 2
        copies = np.concatenate([np.full(sector.size, float(sector.copies)) for sector in kept])
        return Battery(self.omega0, number, (0,), copies)

    def blocks(self) -> tuple[Block, ...]:
        levels = self.n_max + 1
        return tuple(Block(s.size * levels, float(s.copies)) for s in self.sectors())

    def cavity_observable_terms(self) -> dict[str, Term]:
        """Energy of the cells, photon number, excitation number, weight of the top Fock level."""
        operators = self._operators()
        return {
            "energy": (self.omega0, operators.cells),
            "n_photons": (1.0, operators.photons),
            "excitation": (1.0, operators.cells + operators.photons),
            "top_fock": (1.0, operators.top),
        }

    def correlation_observables(self) -> dict[str, np.ndarray]:
        """Symmetrised second moments of the collective spin, e.g. (J_x J_y + J_y J_x)/2."""
        lowering, z = spin_lowering(self.sectors()), spin_z(self.sectors())
        x, y = (lowering + lowering.T) / 2, 1j * (lowering - lowering.T) / 2
        pairs = {
            "Jx2": (x, x),
            "Jy2": (y, y),
            "Jz2": (z, z),
            "JxJy": (x, y),
            "JyJz": (y, z),
            "JzJx": (z, x),
        }
        cavity = np.eye(self.n_max + 1)
        return {name: np.kron((a @ b + b @ a) / 2, cavity) for name, (a, b) in pairs.items()}

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {"omega_c": ParameterSpec("omega0", (0.0, np.inf), 0.05)}

    def _operators(self) -> CavityOperators:
        return cavity_operators(self.sectors(), self.n_max)


def check_cavity_battery(model: CavityBattery, rates: tuple[str, ...]) -> None:
    """ValueError unless the frequencies and rates are finite and not negative."""
    _checks.positive("omega0", model.omega0)
    _checks.non_negative("omega_c", model.omega_c)
    check_rates(model, rates)


def fixed_fields(rates: tuple[str, ...]) -> dict[str, str]:
    """Fields of a Dicke battery that cannot be randomised, each with the reason."""
    sizes = ("n_cells", "n_photons", "n_max", "rwa")
    return {**dict.fromkeys(sizes, SIZE), "omega0": UNIT, **dict.fromkeys(rates, RATE)}


class DickeBattery(CavityBattery):
    """N cells in the symmetric subspace (j = N/2) charged by a cavity; the cells are the battery.

    H = omega0 (J_z + N/2) + omega_c a'a + g (a'J_- + a J_+) with the rotating-wave approximation,
    else g (a + a')(J_+ + J_-); control g. Jump operators sqrt(kappa) a, sqrt(gamma) J_- and
    sqrt(gamma_phi) J_z, which makes the coherence of neighbouring levels decay at gamma_phi/2.
    H_B = omega0 (J_z + N/2), the cavity traced out. Starts with all cells in the ground state and
    `n_photons` photons.

    Reference: Ferraro et al., Phys. Rev. Lett. 120, 117702 (2018).

    Args:
        n_cells: N >= 1.
        n_photons: photons at the start; None is N.
        n_max: highest Fock level; None is n_photons with rwa (exact), n_photons + 4 without (not
            converged: watch `top_fock`).
        omega0: transition energy of a cell, the unit of energy; > 0.
        omega_c: cavity frequency >= 0, in units of omega0.
        rwa: whether counter-rotating terms are left out.
        kappa: loss rate of the cavity, >= 0.
        gamma: collective emission rate, >= 0.
        gamma_phi: collective dephasing rate, >= 0.

    Raises:
        ValueError: a size, frequency or rate out of range.
        TypeError: a size that is not an integer, `rwa` not a bool.
    """

    n_cells: int = eqx.field(default=3, static=True)
    n_photons: Any = eqx.field(default=None, static=True)
    n_max: Any = eqx.field(default=None, static=True)
    omega0: Any = number(1.0)
    omega_c: Any = number(1.0)
    rwa: bool = eqx.field(default=True, static=True)
    kappa: Any = number(0.0)
    gamma: Any = number(0.0)
    gamma_phi: Any = number(0.0)

    def __check_init__(self) -> None:
        check_cavity_battery(self, COLLECTIVE_RATES)

    def sectors(self) -> tuple[Sector, ...]:
        return (Sector(self.n_cells / 2, 1),)

    def adds_excitations(self) -> bool:
        return False

    def jump_terms(self) -> tuple[Term, ...]:
        return self.collective_jump_terms()

    def observable_terms(self) -> dict[str, Term]:
        return self.cavity_observable_terms()

    def fixed_parameters(self) -> dict[str, str]:
        return fixed_fields(COLLECTIVE_RATES)

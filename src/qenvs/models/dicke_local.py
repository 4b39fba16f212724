"""The Dicke battery with dissipation of every single cell, on permutation-invariant blocks."""

import functools
from typing import Any

import equinox as eqx
import numpy as np

from qenvs import _checks
from qenvs.models.base import Term, number
from qenvs.models.dicke import (
    COLLECTIVE_RATES,
    CavityBattery,
    check_cavity_battery,
    fixed_fields,
)
from qenvs.models.spin import Sector, local_jumps, sectors

LOCAL_RATES = ("gamma_local", "gamma_phi_local", "pumping_local")


@functools.lru_cache(maxsize=24)
def local_jump_operators(n_cells: int, n_max: int, kind: str) -> tuple[np.ndarray, ...]:
    """`local_jumps` of the cells on cells x cavity."""
    jumps = tuple(np.kron(jump, np.eye(n_max + 1)) for jump in local_jumps(n_cells, kind))
    for jump in jumps:
        jump.setflags(write=False)  # shared by every model of this size
    return jumps


class DickeBatteryLocal(CavityBattery):
    """Dicke battery whose cells also emit, dephase and are pumped one by one.

    As `DickeBattery`, and per cell the jump operators sqrt(gamma_local) s_-, sqrt(gamma_phi_local)
    sigma_z/2 and sqrt(pumping_local) s_+. The state is kept as compact blocks sigma_j = d_j R_j of
    total spin j = N/2, N/2 - 1, ...: R_j is what each of the d_j identical copies of sector j
    holds, and sum_j Tr sigma_j = 1. Never a 2^N matrix, so that N = 20 runs. Purity and ergotropy
    count the copies: they are those of the full 2^N-dimensional cell space.

    Reference: Shammah et al., Phys. Rev. A 98, 063815 (2018).

    Args:
        n_cells: N >= 1.
        n_photons: photons at the start; None is N.
        n_max: highest Fock level; None is n_photons with rwa (exact), n_photons + 4 without (not
            converged: watch `top_fock`). Pumping needs an explicit one.
        omega0: transition energy of a cell, the unit of energy; > 0.
        omega_c: cavity frequency >= 0, in units of omega0.
        rwa: whether counter-rotating terms are left out.
        kappa: loss rate of the cavity, >= 0.
        gamma: collective emission rate, >= 0.
        gamma_phi: collective dephasing rate, >= 0.
        gamma_local: emission rate of each cell, >= 0.
        gamma_phi_local: dephasing rate of each cell, >= 0; its coherence decays at half of it.
        pumping_local: incoherent pumping rate of each cell, >= 0.

    Raises:
        ValueError: a size, frequency or rate out of range; pumping without `n_max`.
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
    gamma_local: Any = number(0.05)
    gamma_phi_local: Any = number(0.05)
    pumping_local: Any = number(0.0)

    def __check_init__(self) -> None:
        check_cavity_battery(self, (*COLLECTIVE_RATES, *LOCAL_RATES))

    def sectors(self) -> tuple[Sector, ...]:
        return sectors(self.n_cells)

    def adds_excitations(self) -> bool:
        pumping = self.pumping_local
        return not _checks.is_concrete(pumping) or bool(np.any(np.asarray(pumping) != 0))

    def jump_terms(self) -> tuple[Term, ...]:
        kinds = ("emission", "dephasing", "pumping")
        rates = (self.gamma_local, self.gamma_phi_local, self.pumping_local)
        local = [
            (rate, jump)
            for rate, kind in zip(rates, kinds, strict=True)
            for jump in local_jump_operators(self.n_cells, self.n_max, kind)
        ]
        return (*self.collective_jump_terms(), *local)

    def observable_terms(self) -> dict[str, Term]:
        inside = np.arange(np.prod(self.dims)) < self.blocks()[0].size
        symmetric = np.diag(inside.astype(float))
        return {**self.cavity_observable_terms(), "symmetric": (1.0, symmetric)}

    def fixed_parameters(self) -> dict[str, str]:
        return fixed_fields((*COLLECTIVE_RATES, *LOCAL_RATES))

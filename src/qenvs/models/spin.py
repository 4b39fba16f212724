"""Collective spins: sectors of N two-level cells, and the cavity they share.

Cells are ordered as sectors of total spin j = N/2, N/2 - 1, ...; within one the basis is |j, m>
with m ascending, index 0 = all ground. d_j = C(N, N/2-j) - C(N, N/2-j-1) identical copies of
sector j make up the 2^N-dimensional space of the cells.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg


class Sector(NamedTuple):
    """Cells of total spin j, in `copies` identical copies."""

    j: float
    copies: int

    @property
    def size(self) -> int:
        """Number of states |j, m>."""
        return round(2 * self.j) + 1


@functools.cache
def sectors(n_cells: int) -> tuple[Sector, ...]:
    """Sectors of N cells, j = N/2 downwards."""
    counts = [math.comb(n_cells, k) for k in range(n_cells // 2 + 1)]
    return tuple(
        Sector(n_cells / 2 - k, count - (counts[k - 1] if k else 0))
        for k, count in enumerate(counts)
    )


def magnetic(j: float) -> np.ndarray:
    """m = -j ... j."""
    return np.arange(round(2 * j) + 1) - j


def spin_z(kept: Sequence[Sector]) -> np.ndarray:
    """J_z on the sectors, block diagonal."""
    return np.diag(np.concatenate([magnetic(sector.j) for sector in kept]))


def spin_lowering(kept: Sequence[Sector]) -> np.ndarray:
    """J_- on the sectors, block diagonal: <j, m-1|J_-|j, m> = sqrt((j+m)(j-m+1))."""
    return np.asarray(scipy.linalg.block_diag(*(_lowering(sector.j) for sector in kept)))


def _lowering(j: float) -> np.ndarray:
    m = magnetic(j)[1:]
    return np.diag(np.sqrt((j + m) * (j - m + 1)), k=1)


def annihilation(levels: int) -> np.ndarray:
    """a on the Fock states 0 ... levels - 1."""
    return np.diag(np.sqrt(np.arange(1, levels)), k=1)


def local_jumps(n_cells: int, kind: str) -> tuple[np.ndarray, ...]:
    """Jump operators on the compact blocks that sum to sum_n D[s_n], one per change of j.

    On a block-diagonal state in which each block holds the total weight of its copies, the sum
    over the cells n of s_n rho s_n' is the sum over delta j = 0, -1, +1 of M rho M', with M from
    the sectors j to j + delta (block diagonal in, block diagonal out).

    Reference: Chase, Geremia, Phys. Rev. A 78, 052101 (2008); Shammah et al., Phys. Rev. A 98,
    063815 (2018).

    Args:
        n_cells: N.
        kind: "emission" (s_n = |0><1|), "pumping" (|1><0|) or "dephasing" (sigma_z/2).
    """
    jumps = (_local_jump(n_cells, kind, change) for change in (0, -1, 1))
    return tuple(jump for jump in jumps if jump.any())


def _local_jump(n_cells: int, kind: str, change: int) -> np.ndarray:
    """M from every sector j to j + change, with <j + change, m + q|M|j, m> real."""
    kept = sectors(n_cells)
    offsets = np.cumsum([0, *(sector.size for sector in kept)])
    jump = np.zeros((offsets[-1], offsets[-1]))
    step = {"emission": -1, "pumping": 1, "dephasing": 0}[kind]
    for column, origin in enumerate(kept):
        row = column - change
        if not 0 <= row < len(kept):
            continue
        weight = math.sqrt(_weight(n_cells, origin, change))
        m = magnetic(origin.j)
        to = np.arange(m.size) + step + change
        inside = (to >= 0) & (to < kept[row].size)
        values = weight * _amplitude(origin.j, m, change, step)
        jump[offsets[row] + to[inside], offsets[column] + np.flatnonzero(inside)] = values[inside]
    return jump


def _weight(n_cells: int, origin: Sector, change: int) -> float:
    """What multiplies the squared amplitudes of a transition from one sector to another."""
    j, copies = origin.j, origin.copies
    here, above = (_copies_from(n_cells, j + shift) for shift in (0, 1))
    if change == 1:
        return above / (2 * copies * (j + 1))
    if j == 0:
        return 0.0
    if change == -1:
        return here / (2 * copies * j)
    return (1 + above * (2 * j + 1) / (copies * (j + 1))) / (2 * j)


def _copies_from(n_cells: int, j: float) -> int:
    """Sum of d_j' over j' >= j, which telescopes to C(N, N/2 - j)."""
    removed = round(n_cells / 2 - j)
    return math.comb(n_cells, removed) if removed >= 0 else 0


def _amplitude(j: float, m: np.ndarray, change: int, step: int) -> np.ndarray:
    """Amplitudes of Chase and Geremia from |j, m> to m + step, without their common signs."""
    up, down = j + m, j - m
    if step == 0:
        return {0: m, -1: np.sqrt(up * down), 1: np.sqrt((up + 1) * (down + 1))}[change]
    if step == -1:
        up, down = down, up
    return np.sqrt({0: down * (up + 1), -1: down * (down - 1), 1: (up + 1) * (up + 2)}[change])

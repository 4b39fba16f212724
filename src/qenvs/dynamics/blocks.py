"""Block-diagonal density matrices of large systems, on the entries that the dynamics reaches.

As `DensityCoordinates` (components in the orthonormal Hermitian basis), but nothing of the size
d^2 x d^2 is ever formed: the entries rho_ij that the initial state reaches are found first, from
which matrix elements of the operators are not zero, and the generators are built on those alone.
Each block may stand for a number of identical copies whose total weight it holds.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from qenvs.dynamics.coordinates import (
    StateCoordinates,
    apply_known,
    reachable,
    without_rounding,
)
from qenvs.dynamics.exponential import Generator
from qenvs.observables import is_ket

SQRT_TWO = 2.0**0.5


class BlockCoordinates(StateCoordinates):
    """Components of a block-diagonal rho in the orthonormal Hermitian basis.

    The coordinate with code i d + j is rho_ii for i = j, sqrt2 Re rho_ij for i < j and
    sqrt2 Im rho_ij for i > j.

    Args:
        dims: dimensions of the tensor factors.
        blocks: (size, copies) of each block, in the order of the basis.
        support: codes of the kept coordinates, ascending; None keeps all inside the blocks.
    """

    def __init__(
        self,
        dims: Sequence[int],
        blocks: Sequence[tuple[int, float]],
        support: np.ndarray | None = None,
    ) -> None:
        self.blocks = tuple((int(size), float(copies)) for size, copies in blocks)
        inside = block_codes([size for size, _ in self.blocks])
        super().__init__(dims, inside if support is None else support)

    @property
    def full_size(self) -> int:
        return sum(size * size for size, _ in self.blocks)

    @functools.cached_property
    def _identity(self) -> tuple:
        return type(self), self.dims, self.blocks, self.support.tobytes()

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """First index i of each coordinate's code."""
        return self.support // self.dimension

    @functools.cached_property
    def columns(self) -> np.ndarray:
        """Second index j of each coordinate's code."""
        return self.support % self.dimension

    @functools.cached_property
    def trace_form(self) -> np.ndarray:
        """Row t with Tr rho = t x: ones on the populations."""
        return (self.rows == self.columns).astype(float)

    @functools.cached_property
    def purity_weights(self) -> np.ndarray:
        """Row w with Tr rho^2 = sum_k w_k x_k^2: one over the copies of each block."""
        copies = np.repeat([c for _, c in self.blocks], [size for size, _ in self.blocks])
        return 1.0 / copies[self.rows]

    def generators(
        self, hamiltonians: Sequence[np.ndarray], jumps: Sequence[np.ndarray]
    ) -> list[sp.csr_array]:
        """Real generators of -iH, then of the dissipators, on the kept coordinates alone."""
        entries, basis = self.entry_basis
        maps = [_commutator(h, entries, self.dimension) for h in hamiltonians]
        maps += [_dissipator(jump, entries, self.dimension) for jump in jumps]
        return [without_rounding((basis.conj().T @ m @ basis).real) for m in maps]

    @functools.cached_property
    def entry_basis(self) -> tuple[np.ndarray, sp.csr_array]:
        """Codes of the entries rho_ij that the coordinates make up, and the entries of each."""
        mirrored = self.columns * self.dimension + self.rows
        entries = np.unique(np.concatenate([self.support, mirrored]))
        here, there = (np.searchsorted(entries, codes) for codes in (self.support, mirrored))
        kinds = np.sign(self.columns - self.rows)  # 0 population, 1 real part, -1 imaginary part
        values = np.choose(kinds + 1, [-1j / SQRT_TWO, 0.5, 1 / SQRT_TWO])
        index = np.arange(self.size)
        shape = entries.size, self.size
        basis = sp.coo_array((values, (here, index)), shape)
        return entries, sp.csr_array(basis + sp.coo_array((values.conj(), (there, index)), shape))

    def encode(self, state: Any) -> Any:
        low = np.minimum(self.rows, self.columns)
        high = np.maximum(self.rows, self.columns)
        if is_ket(state):
            ket = state.reshape(-1)
            entries = ket[low] * ket[high].conj()
        else:
            entries = state[low, high]
        re, im, _ = self._parts
        return entries.real * re + entries.imag * im

    @functools.cached_property
    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """x = re Re rho_ij + im Im rho_ij with i <= j, and the largest of these scales."""
        re = np.where(self.rows == self.columns, 1.0, SQRT_TWO * (self.rows < self.columns))
        im = SQRT_TWO * (self.rows > self.columns)
        return re, im, np.maximum(re, im)

    def decode(self, x: Array) -> Array:
        d = self.dimension
        _, im, scale = self._parts
        low = np.minimum(self.rows, self.columns)
        high = np.maximum(self.rows, self.columns)
        entries = x / jnp.asarray(scale, x.dtype)
        half = jnp.where(self.rows == self.columns, 0.5, 1.0).astype(x.dtype)
        upper = jnp.where(im > 0, 1j, 1.0) * entries * half
        zero = jnp.zeros((d, d), upper.dtype)
        return zero.at[low, high].add(upper).at[high, low].add(upper.conj())

    def real_and_imaginary(self, x: Array) -> Array:
        """Real parts of every block, row by row, then imaginary parts of every block."""
        index, scale = self._observed
        return jnp.append(x, jnp.zeros((), x.dtype))[index] * jnp.asarray(scale, x.dtype)

    @functools.cached_property
    def _observed(self) -> tuple[np.ndarray, np.ndarray]:
        """Which coordinate each observed part is, and times what; the last one is 0."""
        sizes = [size for size, _ in self.blocks]
        codes = block_codes(sizes, by_rows=True)
        i, j = codes // self.dimension, codes % self.dimension
        low, high = np.minimum(i, j), np.maximum(i, j)
        wanted = np.concatenate([low * self.dimension + high, high * self.dimension + low])
        scale = np.where(i == j, 1.0, 1 / SQRT_TWO)
        scale = np.concatenate([scale, np.sign(j - i) / SQRT_TWO])
        place = np.minimum(np.searchsorted(self.support, wanted), self.size - 1)
        found = (self.support[place] == wanted) & (scale != 0)
        return np.where(found, place, self.size), np.where(found, scale, 0.0)

    def project(self, x: Array) -> Array:
        """x / Tr rho."""
        return x / apply_known(self.trace_form[None], x)[0]

    def fidelity(self, x: Array, target: Array) -> Array:
        """<target|rho|target> with a ket (d,)."""
        return apply_known(self.encode(target)[None], x)[0]

    def expectation_form(self, operators: Sequence[np.ndarray]) -> np.ndarray:
        """Rows (K, size) of the linear forms Tr(rho O) = q x."""
        return np.stack([self.encode(np.asarray(operator)) for operator in operators])

    def expectations(self, x: Array, form: np.ndarray) -> Array:
        """Tr(rho O_k) for each operator of `form`, shape (K,)."""
        return apply_known(form, x)


def build_block_generator(
    dims: Sequence[int],
    blocks: Sequence[tuple[int, float]],
    hamiltonians: Sequence[np.ndarray],
    jumps: Sequence[np.ndarray],
    start: np.ndarray,
) -> Generator:
    """Generator of Hamiltonians, then jump operators, on what `start` reaches.

    Args:
        dims: dimensions of the tensor factors.
        blocks: (size, copies) of each block.
        hamiltonians: block diagonal.
        jumps: operators that map each block into one block.
        start: ket (d,) or block-diagonal density matrix (d, d).
    """
    entries = reachable_entries(hamiltonians, jumps, start)
    wide = BlockCoordinates(dims, blocks, entries)
    generators = wide.generators(hamiltonians, jumps)
    kept = reachable(generators, np.abs(wide.encode(start)) > 1e-14)
    operators = [g[kept][:, kept].toarray() for g in generators]
    return Generator(BlockCoordinates(dims, blocks, entries[kept]), operators)


def block_codes(sizes: Sequence[int], by_rows: bool = False) -> np.ndarray:
    """Codes i d + j of all entries inside the blocks, ascending, or block after block."""
    d, starts = sum(sizes), np.cumsum([0, *sizes[:-1]])
    inner = [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    codes = np.concatenate([(i[:, None] * d + i).reshape(-1) for i in inner])
    return codes if by_rows else np.sort(codes)


def reachable_entries(
    hamiltonians: Sequence[np.ndarray], jumps: Sequence[np.ndarray], start: np.ndarray
) -> np.ndarray:
    """Ascending codes i d + j of the entries rho_ij that the dynamics can make nonzero."""
    seen = np.abs(start) > 1e-14
    reached = sp.csr_array(np.outer(seen, seen) if is_ket(start) else seen).astype(float)
    flows = [_pattern(jump) for jump in jumps]
    one_sided = [_pattern(h) for h in hamiltonians] + [_pattern(j.conj().T @ j) for j in jumps]
    side = sp.csr_array(sum(one_sided, sp.csr_array(reached.shape)))
    while True:
        grown = reached + side @ reached + reached @ side
        grown = sp.csr_array(sum((flow @ reached @ flow.T for flow in flows), grown))
        grown.data[:] = 1.0
        if grown.nnz == reached.nnz:
            rows, columns = grown.nonzero()
            return np.sort(rows.astype(np.int64) * len(start) + columns)
        reached = grown


def _pattern(matrix: np.ndarray) -> sp.csr_array:
    """1 where a matrix is not zero (or a rounding error)."""
    magnitude = np.abs(matrix)
    return sp.csr_array((magnitude > 1e-14 * magnitude.max(initial=0.0)).astype(float))


def _commutator(hamiltonian: np.ndarray, entries: np.ndarray, d: int) -> sp.csr_array:
    """rho -> -i [H, rho] on the given entries."""
    h, one = sp.csc_array(hamiltonian), np.eye(d)
    return -1j * (_two_sided(h, one, entries, d) - _two_sided(one, h.T, entries, d))


def _dissipator(jump: np.ndarray, entries: np.ndarray, d: int) -> sp.csr_array:
    """rho -> L rho L' - {L'L, rho}/2 on the given entries."""
    left, one = sp.csc_array(jump), np.eye(d)
    rate = left.conj().T @ left
    gain = _two_sided(left, left.conj(), entries, d)
    return gain - (_two_sided(rate, one, entries, d) + _two_sided(one, rate.T, entries, d)) / 2


def _two_sided(left: Any, right: Any, entries: np.ndarray, d: int) -> sp.csr_array:
    """rho_ij <- sum_km left_ik right_jm rho_km on entries (k, m) that the map does not leave."""
    left, right = sp.csc_array(left), sp.csc_array(right)
    k, m = entries // d, entries % d
    n_left, n_right = np.diff(left.indptr)[k], np.diff(right.indptr)[m]
    counts = n_left * n_right
    origin = np.repeat(np.arange(entries.size), counts)
    place = np.arange(origin.size) - np.repeat(np.cumsum(counts) - counts, counts)
    at_left = left.indptr[k[origin]] + place // n_right[origin]
    at_right = right.indptr[m[origin]] + place % n_right[origin]
    values = left.data[at_left] * right.data[at_right]
    codes = left.indices[at_left].astype(np.int64) * d + right.indices[at_right]
    to = np.minimum(np.searchsorted(entries, codes), entries.size - 1)
    inside = entries[to] == codes
    size = entries.size, entries.size
    return sp.csr_array(sp.coo_array((values[inside], (to[inside], origin[inside])), size))

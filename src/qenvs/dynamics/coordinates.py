"""Real coordinates: the vectors that the exponential acts on.

A ket psi is its real parts, then its imaginary parts. A density matrix is its components in the
orthonormal Hermitian basis E_ii, (E_ij + E_ji)/sqrt2, i(E_ji - E_ij)/sqrt2 (i < j), so that it is
Hermitian by construction. In both, only the coordinates that the initial state can reach under
every term of the generator are kept: a structural fact, exact for all values of the parameters.
The columns of a gate are kets, the columns of a superoperator density coordinates.
"""

import abc
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from qenvs._products import product
from qenvs.observables import is_ket

SQRT_HALF = 0.7071067811865476


def real_ket_operator(operator: np.ndarray) -> sp.csr_array:
    """The real 2d x 2d form of a complex d x d operator acting on (Re psi, Im psi)."""
    re, im = sp.csr_array(np.real(operator)), sp.csr_array(np.imag(operator))
    return sp.csr_array(sp.block_array([[re, -im], [im, re]]))


@functools.lru_cache(maxsize=32)
def hermitian_basis(d: int) -> sp.csr_array:
    """Columns vec(B_a) (column stacking) of the orthonormal Hermitian basis, d^2 x d^2."""
    i, j = np.triu_indices(d, k=1)
    pairs, n, ones = d + 2 * np.arange(i.size), i.size, np.ones(i.size)
    diagonal = np.arange(d)
    rows = np.concatenate([diagonal * (d + 1), i + d * j, j + d * i, i + d * j, j + d * i])
    columns = np.concatenate([diagonal, pairs, pairs, pairs + 1, pairs + 1])
    values = np.concatenate(
        [np.ones(d), np.repeat(SQRT_HALF, 2 * n), -1j * ones * SQRT_HALF, 1j * ones * SQRT_HALF]
    )
    return sp.csr_array((values, (rows, columns)), shape=(d * d, d * d))


def real_superoperator(superoperator: Any) -> sp.csr_array:
    """The real d^2 x d^2 form of a Hermiticity-preserving map in column stacking."""
    basis = hermitian_basis(round(superoperator.shape[0] ** 0.5))
    return without_rounding((basis.conj().T @ superoperator @ basis).real)


def liouvillian(hamiltonian: np.ndarray) -> sp.csr_array:
    """rho -> -i [H, rho] in column stacking: -i (1 kron H - H^T kron 1)."""
    one, h = sp.eye_array(hamiltonian.shape[0]), sp.csr_array(hamiltonian)
    return sp.csr_array(-1j * (sp.kron(one, h) - sp.kron(h.T, one)))


def dissipator(jump: np.ndarray) -> sp.csr_array:
    """rho -> L rho L' - {L'L, rho}/2: L* kron L - (1 kron L'L + (L'L)^T kron 1)/2."""
    one, op = sp.eye_array(jump.shape[0]), sp.csr_array(jump)
    rate = sp.csr_array(op.conj().T @ op)
    return sp.csr_array(sp.kron(op.conj(), op) - (sp.kron(one, rate) + sp.kron(rate.T, one)) / 2)


def without_rounding(matrix: sp.csr_array) -> sp.csr_array:
    """Without the entries that are rounding errors, so that the sparsity is the true structure."""
    matrix = sp.csr_array(matrix)
    scale = abs(matrix.data).max(initial=0.0)
    matrix.data[abs(matrix.data) <= 1e-14 * scale] = 0.0
    matrix.eliminate_zeros()
    return matrix


def reachable(generators: Sequence[sp.csr_array], start: np.ndarray) -> np.ndarray:
    """Sorted indices of the coordinates that `start` can reach under the generators."""
    flow = sum((abs(g) for g in generators), sp.csr_array((start.size, start.size)))
    reached = start != 0
    while True:
        grown = reached | (flow @ reached.astype(float) > 0)
        if np.array_equal(grown, reached):
            return np.flatnonzero(reached)
        reached = grown


UNROLL_LIMIT = 16
"""Known matrices with at most so many nonzeros are written out as scalar products and sums:
one fused loop over the batch instead of a library call on tiny operands."""


def apply_known(matrix: np.ndarray | Array, x: Array) -> Array:
    """matrix @ x for a matrix and a vector; unrolled if the matrix is NumPy's and tiny."""
    if not isinstance(matrix, np.ndarray) or np.count_nonzero(matrix) > UNROLL_LIMIT:
        return product(jnp.asarray(matrix, x.dtype), x)
    zero = jnp.zeros((), x.dtype)
    # plain integers: an entry is sliced, where NumPy's would be gathered
    sums = [sum((float(row[j]) * x[j] for j in _nonzeros(row)), zero) for row in matrix]
    return jnp.stack(sums)


def _nonzeros(row: np.ndarray) -> list[int]:
    return np.flatnonzero(row).tolist()


def _quadratic(matrix: np.ndarray, x: Array) -> Array:
    """x^T Q x of a known symmetric matrix with few nonzeros, written out."""
    rows, columns = np.nonzero(np.triu(matrix))
    weights = np.where(rows == columns, 1.0, 2.0) * matrix[rows, columns]
    entries = zip(weights.tolist(), rows.tolist(), columns.tolist(), strict=True)
    terms = (w * (x[i] * x[j]) for w, i, j in entries)
    return sum(terms, jnp.zeros((), x.dtype))


def _namespace(array: Any) -> Any:
    """NumPy for NumPy arrays (constants while tracing), jax.numpy for JAX arrays."""
    return jnp if isinstance(array, jax.Array) else np


def squared_norm(x: Any) -> Any:
    """Sum of squares over the first axis."""
    if len(x) > UNROLL_LIMIT:
        return jnp.sum(x * x, axis=0)
    return sum(part * part for part in x)


class Coordinates(abc.ABC):
    """Real coordinates of one kind of quantum object on a space of tensor structure `dims`."""

    def __init__(self, dims: Sequence[int], support: np.ndarray | None = None) -> None:
        self.dims = tuple(int(d) for d in dims)
        self.dimension = int(np.prod(self.dims))
        self.support = np.arange(self.full_size) if support is None else np.asarray(support)

    @property
    @abc.abstractmethod
    def full_size(self) -> int:
        """Number of coordinates before the restriction to the reachable ones."""

    @property
    def size(self) -> int:
        """Number of coordinates that the generators act on."""
        return self.support.size

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Coordinates) and self._identity == other._identity

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _identity(self) -> tuple[type, tuple[int, ...], bytes]:
        return type(self), self.dims, self.support.tobytes()

    @functools.cached_property
    def _hash(self) -> int:
        return hash(self._identity)

    def restrict(self, matrix: sp.csr_array) -> np.ndarray:
        """The dense block of a full real generator on the kept coordinates."""
        return sp.csr_array(matrix)[self.support][:, self.support].toarray()

    @abc.abstractmethod
    def generators(
        self, hamiltonians: Sequence[np.ndarray], jumps: Sequence[np.ndarray]
    ) -> list[sp.csr_array]:
        """The full real generator of each Hamiltonian (-iH), then of each jump operator."""

    @abc.abstractmethod
    def encode(self, state: Any) -> Any:
        """Coordinates of a complex array, shape (size,) or (size, columns).

        NumPy in, NumPy out (a constant while tracing); JAX in, JAX out.
        """

    @abc.abstractmethod
    def decode(self, x: Array) -> Array:
        """Complex array of coordinates: ket (d,), density matrix (d, d) or map."""

    @abc.abstractmethod
    def project(self, x: Array) -> Array:
        """One gentle step back to the physical set (norm, trace, unitarity), against drift."""

    def real_and_imaginary(self, x: Array) -> Array:
        """Real parts, then imaginary parts of the decoded array, flattened row by row."""
        full = self.decode(x)
        return jnp.concatenate([full.real.reshape(-1), full.imag.reshape(-1)])


class StateCoordinates(Coordinates):
    """Coordinates of a state: it has expectation values and an overlap with a target."""

    @abc.abstractmethod
    def fidelity(self, x: Array, target: Array) -> Array:
        """Squared overlap with a target ket (d,)."""

    @abc.abstractmethod
    def expectation_form(self, operators: Sequence[np.ndarray]) -> np.ndarray:
        """What `expectations` needs of K Hermitian operators."""

    @abc.abstractmethod
    def expectations(self, x: Array, form: np.ndarray) -> Array:
        """Expectation values of the K operators of `form`, shape (K,)."""


class KetCoordinates(StateCoordinates):
    """(Re psi, Im psi), restricted to the reachable entries."""

    @property
    def full_size(self) -> int:
        return 2 * self.dimension

    def generators(
        self, hamiltonians: Sequence[np.ndarray], jumps: Sequence[np.ndarray]
    ) -> list[sp.csr_array]:
        if jumps:
            raise ValueError("a ket cannot follow jump operators, use density coordinates")
        return [real_ket_operator(-1j * h) for h in hamiltonians]

    def encode(self, state: Any) -> Any:
        ket = state.reshape(-1)
        return _namespace(state).concatenate([ket.real, ket.imag])[self.support]

    def decode(self, x: Array) -> Array:
        full = self.real_and_imaginary(x)
        return full[: self.dimension] + 1j * full[self.dimension :]

    def real_and_imaginary(self, x: Array) -> Array:
        if self.size == self.full_size:
            return x
        return jnp.zeros(self.full_size, x.dtype).at[self.support].set(x)

    def project(self, x: Array) -> Array:
        """x (3 - |x|^2) / 2: one Newton step towards norm 1."""
        return x * (1.5 - 0.5 * squared_norm(x))

    def fidelity(self, x: Array, target: Array) -> Array:
        """|<target|psi>|^2 with a ket (d,)."""
        xp = _namespace(target)
        rows = xp.stack([self.encode(target), self.encode(1j * target)])
        return squared_norm(apply_known(rows, x))

    def expectation_form(self, operators: Sequence[np.ndarray]) -> np.ndarray:
        """Matrices Q (K, size, size) of the quadratic forms <psi|O|psi> = x^T Q x."""
        forms = [self.restrict(real_ket_operator(np.asarray(o, complex))) for o in operators]
        return np.stack(forms)

    def expectations(self, x: Array, form: np.ndarray) -> Array:
        """<psi|O_k|psi> for each operator of `form`, shape (K,)."""
        k, n, _ = form.shape
        if np.count_nonzero(form) <= UNROLL_LIMIT:
            return jnp.stack([_quadratic(matrix, x) for matrix in form])
        applied = product(jnp.asarray(form.reshape(k * n, n), x.dtype), x).reshape(k, n)
        return jnp.sum(applied * x, axis=-1)


class DensityCoordinates(StateCoordinates):
    """Components of rho in the orthonormal Hermitian basis, restricted to the reachable ones."""

    @property
    def full_size(self) -> int:
        return self.dimension**2

    def generators(
        self, hamiltonians: Sequence[np.ndarray], jumps: Sequence[np.ndarray]
    ) -> list[sp.csr_array]:
        maps = [liouvillian(h) for h in hamiltonians] + [dissipator(jump) for jump in jumps]
        return [real_superoperator(m) for m in maps]

    @functools.cached_property
    def _basis(self) -> np.ndarray:
        return hermitian_basis(self.dimension)[:, self.support].toarray()

    @functools.cached_property
    def trace_form(self) -> np.ndarray:
        """Row t with Tr rho = t x: ones on the populations."""
        return (self.support < self.dimension).astype(float)

    def encode(self, state: Any) -> Any:
        if is_ket(state):
            ket = state.reshape(-1)
            state = ket[:, None] * ket.conj()
        return product(self._basis.conj().T, state.T.reshape(-1)).real

    def decode(self, x: Array) -> Array:
        d = self.dimension
        return product(jnp.asarray(self._basis), x).reshape(d, d).T

    def real_and_imaginary(self, x: Array) -> Array:
        index, scale = self._entries
        return x[index] * jnp.asarray(scale, x.dtype)

    @functools.cached_property
    def _entries(self) -> tuple[np.ndarray, np.ndarray]:
        """Which coordinate each real and imaginary part of rho is, and times what."""
        d = self.dimension
        row_major = self._basis.reshape(d, d, -1).transpose(1, 0, 2).reshape(d * d, -1)
        parts = np.concatenate([np.real(row_major), np.imag(row_major)])
        index = np.argmax(abs(parts), axis=1)
        return index, parts[np.arange(parts.shape[0]), index]

    def project(self, x: Array) -> Array:
        """x / Tr rho."""
        return x / apply_known(self.trace_form[None], x)[0]

    def fidelity(self, x: Array, target: Array) -> Array:
        """<target|rho|target> with a ket (d,)."""
        return apply_known(self.encode(target)[None], x)[0]

    def expectation_form(self, operators: Sequence[np.ndarray]) -> np.ndarray:
        """Rows (K, size) of the linear forms Tr(rho O) = q x."""
        vectors = np.stack([np.asarray(o, complex).reshape(-1) for o in operators])
        return np.real(vectors @ self._basis)

    def expectations(self, x: Array, form: np.ndarray) -> Array:
        """Tr(rho O_k) for each operator of `form`, shape (K,)."""
        return apply_known(form, x)


class PropagatorCoordinates(Coordinates):
    """The columns of a unitary as kets: shape (2d, d), real parts above imaginary parts."""

    @property
    def full_size(self) -> int:
        return 2 * self.dimension

    generators = KetCoordinates.generators

    def encode(self, state: Any) -> Any:
        return _namespace(state).concatenate([state.real, state.imag])

    def decode(self, x: Array) -> Array:
        return x[: self.dimension] + 1j * x[self.dimension :]

    def real_and_imaginary(self, x: Array) -> Array:
        return x.reshape(-1)

    def project(self, x: Array) -> Array:
        """U (3 - U'U) / 2: one Newton-Schulz step towards the nearest unitary."""
        d = self.dimension
        re, im = x[:d], x[d:]
        gram_re = product(re.T, re) + product(im.T, im)
        gram_im = product(re.T, im) - product(im.T, re)
        fix_re, fix_im = 1.5 * jnp.eye(d, dtype=x.dtype) - 0.5 * gram_re, -0.5 * gram_im
        fixed_re = product(re, fix_re) - product(im, fix_im)
        return jnp.concatenate([fixed_re, product(re, fix_im) + product(im, fix_re)])


class SuperoperatorCoordinates(Coordinates):
    """A map of density matrices, as the real d^2 x d^2 matrix in the Hermitian basis."""

    @property
    def full_size(self) -> int:
        return self.dimension**2

    generators = DensityCoordinates.generators

    @functools.cached_property
    def _basis(self) -> np.ndarray:
        return hermitian_basis(self.dimension).toarray()

    def encode(self, state: Any) -> Any:
        return product(product(self._basis.conj().T, state), self._basis).real

    def real_and_imaginary(self, x: Array) -> Array:
        (first, first_scale), (second, second_scale) = self._entries
        flat = x.reshape(-1)
        terms = flat[first] * jnp.asarray(first_scale, x.dtype)
        return terms + flat[second] * jnp.asarray(second_scale, x.dtype)

    @functools.cached_property
    def _entries(self) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """(index, scale) of the two coordinates that each part of an entry of the map adds up.

        Row r of the basis has a real entry p at column a and an imaginary entry q at column b, so
        S_rc = sum over both of them, for r and for c.
        """
        n, basis = self.full_size, hermitian_basis(self.dimension).toarray()
        a, b = abs(basis.real).argmax(axis=1), abs(basis.imag).argmax(axis=1)
        p, q = basis.real[np.arange(n), a], basis.imag[np.arange(n), b]
        first = np.stack([np.add.outer(n * a, a), np.add.outer(n * b, a)])
        second = np.stack([np.add.outer(n * b, b), np.add.outer(n * a, b)])
        scales = np.stack([np.outer(p, p), np.outer(q, p)])
        other_scales = np.stack([np.outer(q, q), -np.outer(p, q)])
        return (first.ravel(), scales.ravel()), (second.ravel(), other_scales.ravel())

    def decode(self, x: Array) -> Array:
        """The complex map in column stacking, vec(rho) -> S vec(rho)."""
        return product(product(self._basis, x), self._basis.conj().T)

    def project(self, x: Array) -> Array:
        """Spread what the trace row lacks over the populations, so that the trace is kept."""
        d = self.dimension
        populations = (jnp.arange(d * d) < d).astype(x.dtype)
        lack = populations - product(populations, x)
        return x + populations[:, None] * lack / d

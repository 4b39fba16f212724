"""States and operators as arrays, and the numbers read from them."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs._products import product


def as_array(operator: Any) -> Any:
    """The matrix of an array, dynamiqs `QArray`, QuTiP `Qobj` or SciPy sparse matrix."""
    for to_dense in ("to_jax", "full", "toarray"):
        if hasattr(operator, to_dense):
            return getattr(operator, to_dense)()
    return operator if hasattr(operator, "shape") else np.asarray(operator)


def is_ket(state: Any) -> bool:
    """Whether an array is a column of amplitudes rather than a square matrix."""
    return state.ndim == 1 or state.shape[-1] == 1


def as_density_matrix(state: Any) -> Array:
    """The density matrix of a ket (d,), a column (d, 1) or a matrix (d, d)."""
    state = jnp.asarray(as_array(state))
    if not is_ket(state):
        return state
    ket = state.reshape(-1)
    return jnp.outer(ket, ket.conj())


def expectation(state: Any, operator: Any) -> Array:
    """Re Tr(rho O) of a ket or density matrix and a Hermitian operator of the same size."""
    rho, operator = as_density_matrix(state), jnp.asarray(as_array(operator))
    if rho.shape != operator.shape:
        raise ValueError(
            f"`operator` must have the shape {rho.shape} of the state's matrix, "
            f"got {operator.shape}"
        )
    return jnp.sum(rho * operator.T).real


def fidelity(state: Any, target: Any) -> Array:
    """Squared overlap <t|rho|t> with a pure target; |0> against |+> is 0.5."""
    return expectation(state, as_density_matrix(target))


def partial_trace(state: Any, dims: Sequence[int], keep: Sequence[int]) -> Array:
    """Density matrix of the tensor factors `keep`, in that order, the others traced out.

    Args:
        state: ket (d,) or density matrix (d, d) with d = prod(dims).
        dims: dimensions of the factors.
        keep: indices of the factors that stay.
    """
    rho = as_density_matrix(state)
    d = math.prod(dims)
    if rho.shape != (d, d):
        raise ValueError(f"`state` must have dimension prod({tuple(dims)}) = {d}, got {rho.shape}")
    rest = [k for k in range(len(dims)) if k not in keep]
    order = [*keep, *rest]
    axes = [*order, *(k + len(dims) for k in order)]
    kept, traced = (math.prod(dims[k] for k in group) for group in (keep, rest))
    grouped = rho.reshape(*dims, *dims).transpose(axes).reshape(kept, traced, kept, traced)
    return jnp.trace(grouped, axis1=1, axis2=3)


def purity(state: Any) -> Array:
    """Tr rho^2: 1 if pure, 1/d if maximally mixed."""
    rho = as_density_matrix(state)
    return jnp.sum(jnp.abs(rho) ** 2)


def energy(state: Any, hamiltonian: Any) -> Array:
    """Tr(rho H)."""
    return expectation(state, hamiltonian)


def passive_state(state: Any, hamiltonian: Any) -> Array:
    """The state of least energy that unitaries reach: eigenvalues falling as the energy rises.

    sum_k p_k |e_k><e_k| with p_0 >= p_1 >= ... and energies e_0 <= e_1 <= ...

    Reference: Pusz, Woronowicz, Commun. Math. Phys. 58, 273 (1978).
    """
    weights = eigenvalues(as_density_matrix(state))[::-1]
    levels = jnp.linalg.eigh(jnp.asarray(as_array(hamiltonian)))[1]
    return product(levels * weights, levels.conj().T)


def ergotropy(state: Any, hamiltonian: Any, copies: np.ndarray | None = None) -> Array:
    """Largest work that a unitary can extract: Tr(rho H) - Tr(rho_passive H).

    Derivatives are finite everywhere, also where eigenvalues coincide, and exact almost
    everywhere.

    Args:
        state: ket (d,) or density matrix (d, d).
        hamiltonian: Hermitian matrix (d, d).
        copies: (d,) number of identical copies of each basis state, for a state in compact blocks
            that holds their total weight; None is one copy each. State and Hamiltonian have no
            entries between basis states with different numbers of copies.

    Reference: Allahverdyan, Balian, Nieuwenhuizen, Europhys. Lett. 67, 565 (2004).
    """
    rho, hamiltonian = as_density_matrix(state), jnp.asarray(as_array(hamiltonian))
    total = energy(rho, hamiltonian)
    copies = np.ones(rho.shape[0]) if copies is None else np.asarray(copies, float)
    groups = [np.flatnonzero(copies == number) for number in np.unique(copies)]
    weights, levels = (
        jnp.concatenate([eigenvalues(matrix[np.ix_(group, group)]) for group in groups])
        for matrix in (rho, hamiltonian)
    )
    ordered = np.concatenate([copies[group] for group in groups])
    return clip_below(total - passive_energy(weights, ordered, levels, ordered))


def passive_energy(
    weights: Array, copies: np.ndarray, levels: Array | np.ndarray, level_copies: np.ndarray
) -> Array:
    """Energy of the passive state from spectra: the largest probabilities fill the lowest levels.

    Probabilities weights/copies, each `copies` times, fall as the levels, each `level_copies`
    times, rise. Eigenvalues that coincide share their levels evenly, so that the derivative is
    finite and the same for every choice of eigenvectors.

    Args:
        weights: (n,) total weight of the copies of each eigenvalue.
        copies: (n,).
        levels: (m,) energies in any order.
        level_copies: (m,).
    """
    # JAX has kept a NumPy constant in float64 once it met it in double precision
    copies = np.asarray(copies, weights.dtype)
    probabilities = weights / copies
    xp = np if isinstance(levels, np.ndarray) else jnp
    levels = xp.asarray(levels, weights.dtype)
    order = xp.argsort(levels)
    ranked = levels[order]
    filled = xp.cumsum(xp.asarray(level_copies, weights.dtype)[order])[:-1]
    above = jnp.where(probabilities[:, None] < probabilities, copies, 0.0).sum(axis=1)
    equal = jnp.where(probabilities[:, None] == probabilities, copies, 0.0).sum(axis=1)
    inside = jnp.clip((filled[:, None] - above) / equal, 0.0, 1.0).astype(weights.dtype)
    mean_level = ranked[0] + product(xp.diff(ranked), 1.0 - inside)
    return jnp.sum(weights * mean_level)


@jax.custom_jvp
def clip_below(value: Array) -> Array:
    """max(value, 0) for a number that only rounding can make negative; its derivative is 1."""
    return jnp.maximum(value, 0.0)


@clip_below.defjvp
def _clip_below_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    return clip_below(*primals), tangents[0]


def eigenvalues(matrix: Array) -> Array:
    """Eigenvalues of a Hermitian matrix (d, d), ascending; finite derivatives at degeneracies."""
    if matrix.shape[-1] == 1:
        return matrix[0].real
    if matrix.shape[-1] == 2:
        off = matrix[0, 1]
        return pair_eigenvalues(matrix[0, 0].real, matrix[1, 1].real, off.real, off.imag)
    return eigensystem(matrix)[0]


def pair_eigenvalues(first: Array, second: Array, re: Array, im: Array) -> Array:
    """Eigenvalues of [[first, re + i im], [re - i im, second]], ascending, in closed form."""
    mean, half = (first + second) / 2, (first - second) / 2
    squared = half * half + re * re + im * im
    split = squared > 0
    radius = jnp.where(split, jnp.sqrt(jnp.where(split, squared, 1.0)), 0.0)
    return jnp.stack([mean - radius, mean + radius])


@jax.custom_jvp
def eigensystem(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, ascending, and eigenvectors (columns) of a Hermitian matrix (d, d).

    Derivatives of every order are finite: within a degenerate space eigenvectors do not turn.
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors


@eigensystem.defjvp
def _eigensystem_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
    values, vectors = eigensystem(*primals)
    change = product(product(vectors.conj().T, tangents[0]), vectors)
    change = (change + change.conj().T) / 2
    gaps = values - values[:, None]
    resolution = values.shape[0] * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
    apart = jnp.abs(gaps) > resolution
    inverse = jnp.where(apart, 1 / jnp.where(apart, gaps, 1.0), 0.0)
    return (values, vectors), (jnp.diagonal(change).real, product(vectors, inverse * change))

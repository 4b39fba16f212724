"""Quantum gates, and how well a map implements one.

Basis index 0 is the ground state, tensor order is control x target. A superoperator stacks columns:
vec(A X B) = (B^T kron A) vec(X). Every measure takes the indices of the computational subspace P
(k levels out of d; all levels by default); what leaves it counts as error:

    M = Ut' P U P,    F_avg = (Tr MM' + |Tr M|^2) / (k (k + 1)),    F_pro = |Tr M|^2 / k^2
"""

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs._products import product
from qenvs.observables import as_array

X = np.array([[0, 1], [1, 0]], complex)
Y = np.array([[0, -1j], [1j, 0]])
Z = np.diag([1, -1]).astype(complex)
H = np.array([[1, 1], [1, -1]], complex) / math.sqrt(2)
S = np.diag([1, 1j])
T = np.diag([1, (1 + 1j) / math.sqrt(2)])
SX = np.array([[1 + 1j, 1 - 1j], [1 - 1j, 1 + 1j]]) / 2
CNOT = np.eye(4, dtype=complex)[[0, 1, 3, 2]]
CZ = np.diag([1, 1, 1, -1]).astype(complex)
ISWAP = np.array([[1, 0, 0, 0], [0, 0, 1j, 0], [0, 1j, 0, 0], [0, 0, 0, 1]])
SQRT_ISWAP = np.eye(4, dtype=complex)
SQRT_ISWAP[1:3, 1:3] = np.array([[1, 1j], [1j, 1]]) / math.sqrt(2)
for _gate in (X, Y, Z, H, S, T, SX, CNOT, CZ, ISWAP, SQRT_ISWAP):
    _gate.setflags(write=False)  # shared by all who import it


def rotation(generator: np.ndarray, theta: Any) -> Any:
    """exp(-i theta G / 2) for an operator with G^2 = 1; a traced angle gives a JAX array."""
    xp = jnp if isinstance(theta, Array) else np
    one = np.eye(len(generator))
    return xp.cos(theta / 2) * one - 1j * xp.sin(theta / 2) * generator


def rx(theta: Any) -> Any:
    """exp(-i theta X / 2)."""
    return rotation(X, theta)


def ry(theta: Any) -> Any:
    """exp(-i theta Y / 2)."""
    return rotation(Y, theta)


def rz(theta: Any) -> Any:
    """exp(-i theta Z / 2)."""
    return rotation(Z, theta)


def zx(theta: Any) -> Any:
    """exp(-i theta (Z kron X) / 2), the gate of the cross-resonance effect."""
    return rotation(np.kron(Z, X), theta)


def unitary_to_superop(unitary: Any) -> Array:
    """U* kron U: the superoperator of rho -> U rho U', shape (d^2, d^2)."""
    unitary = jnp.asarray(as_array(unitary))
    return jnp.kron(unitary.conj(), unitary)


def apply_superop(superop: Any, rho: Any) -> Array:
    """The density matrix (d, d) that a superoperator (d^2, d^2) makes of another."""
    rho = jnp.asarray(as_array(rho))
    return product(jnp.asarray(as_array(superop)), rho.T.reshape(-1)).reshape(rho.shape).T


def average_gate_fidelity(
    unitary: Any, target: Any, subspace: Sequence[int] | None = None
) -> Array:
    """Average gate fidelity of a propagator, leakage counted as error.

    F = (Tr MM' + |Tr M|^2) / (k (k + 1)) with M = Ut' P U P.

    Args:
        unitary: propagator on the whole space, shape (d, d).
        target: gate on the subspace, shape (k, k); its global phase does not matter.
        subspace: the k indices of the computational levels, in the order of `target`.

    Raises:
        ValueError: shapes or indices that do not fit.

    Reference: Pedersen, Moller, Molmer, Phys. Lett. A 367, 47 (2007).

    >>> round(float(average_gate_fidelity(Y, X)), 6)
    0.333333
    """
    block, target = _block(unitary, target, subspace)
    k = len(target)
    stays = jnp.sum(jnp.abs(block) ** 2)
    return (stays + _overlap(block, target)) / (k * (k + 1))


def process_fidelity(unitary: Any, target: Any, subspace: Sequence[int] | None = None) -> Array:
    """Process (entanglement) fidelity |Tr M|^2 / k^2; arguments as `average_gate_fidelity`."""
    block, target = _block(unitary, target, subspace)
    return _overlap(block, target) / len(target) ** 2


def leakage(unitary: Any, subspace: Sequence[int]) -> Array:
    """Average population that leaves the subspace: L1 = 1 - Tr(P U P U') / k.

    Reference: Wood, Gambetta, PRA 97, 032306 (2018).
    """
    unitary = jnp.asarray(as_array(unitary))
    inside = _indices(subspace, len(unitary))
    return 1 - jnp.sum(jnp.abs(unitary[np.ix_(inside, inside)]) ** 2) / len(inside)


def seepage(unitary: Any, subspace: Sequence[int]) -> Array:
    """Average population that enters it from the rest: L2 = Tr(P U Q U') / (d - k), Q = 1 - P.

    0 where there is no rest. Reference: Wood, Gambetta, PRA 97, 032306 (2018).
    """
    unitary = jnp.asarray(as_array(unitary))
    inside = _indices(subspace, len(unitary))
    outside = np.setdiff1d(np.arange(len(unitary)), inside)
    return jnp.sum(jnp.abs(unitary[np.ix_(inside, outside)]) ** 2) / max(outside.size, 1)


def superop_average_gate_fidelity(
    superop: Any, target: Any, subspace: Sequence[int] | None = None
) -> Array:
    """Average gate fidelity of a superoperator (d^2, d^2), leakage counted as error.

    F = (Tr P S(P) + k^2 F_pro) / (k (k + 1)); arguments as `average_gate_fidelity`.
    """
    block, target = _superop_block(superop, target, subspace)
    k = len(target)
    stays = jnp.sum(jnp.real(block[np.ix_(_populations(k), _populations(k))]))
    return (stays + _superop_overlap(block, target)) / (k * (k + 1))


def superop_process_fidelity(
    superop: Any, target: Any, subspace: Sequence[int] | None = None
) -> Array:
    """Process fidelity Tr((Ut* kron Ut)' S_PP) / k^2 of a superoperator (d^2, d^2)."""
    block, target = _superop_block(superop, target, subspace)
    return _superop_overlap(block, target) / len(target) ** 2


def superop_leakage(superop: Any, subspace: Sequence[int]) -> Array:
    """L1 = 1 - Tr P S(P) / k of a superoperator (d^2, d^2)."""
    superop = jnp.asarray(as_array(superop))
    inside = _indices(subspace, _dimension(superop))
    return 1 - _transfer(superop, inside, inside) / len(inside)


def superop_seepage(superop: Any, subspace: Sequence[int]) -> Array:
    """L2 = Tr P S(Q) / (d - k) of a superoperator (d^2, d^2); 0 where there is no rest."""
    superop = jnp.asarray(as_array(superop))
    d = _dimension(superop)
    inside = _indices(subspace, d)
    outside = np.setdiff1d(np.arange(d), inside)
    return _transfer(superop, inside, outside) / max(outside.size, 1)


def _block(unitary: Any, target: Any, subspace: Sequence[int] | None) -> tuple[Array, Array]:
    """The block P U P, shape (k, k), and the target as an array of that shape."""
    unitary, target = jnp.asarray(as_array(unitary)), jnp.asarray(as_array(target))
    inside = _indices(subspace, len(unitary))
    _check_target(target, inside)
    return unitary[np.ix_(inside, inside)], target


def _superop_block(
    superop: Any, target: Any, subspace: Sequence[int] | None
) -> tuple[Array, Array]:
    """The block of S on vec(|i><j|) with i, j in the subspace, shape (k^2, k^2), and the target."""
    superop, target = jnp.asarray(as_array(superop)), jnp.asarray(as_array(target))
    d = _dimension(superop)
    inside = _indices(subspace, d)
    _check_target(target, inside)
    pairs = (inside[None, :] + d * inside[:, None]).reshape(-1)
    return superop[np.ix_(pairs, pairs)], target


def _overlap(block: Array, target: Array) -> Array:
    """|Tr M|^2."""
    return jnp.abs(jnp.sum(target.conj() * block)) ** 2


def _superop_overlap(block: Array, target: Array) -> Array:
    """sum_i |Tr M_i|^2 over the Kraus operators M_i of the map, with the target undone."""
    return jnp.sum(unitary_to_superop(target).conj() * block).real


def _populations(k: int) -> np.ndarray:
    """Where vec(rho) holds the populations."""
    return np.arange(k) * (k + 1)


def _transfer(superop: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
    """sum of the populations of `rows` that the populations of `columns` become."""
    step = _dimension(superop) + 1
    return jnp.sum(superop[np.ix_(rows * step, columns * step)].real)


def _dimension(superop: Array) -> int:
    """d of a (d^2, d^2) matrix."""
    d = math.isqrt(len(superop))
    if superop.shape != (d * d, d * d):
        raise ValueError(f"`superop` must have shape (d^2, d^2), got {superop.shape}")
    return d


def _indices(subspace: Sequence[int] | None, dimension: int) -> np.ndarray:
    """Indices of the subspace; ValueError unless they are distinct levels."""
    inside = np.arange(dimension) if subspace is None else np.asarray(subspace, int).reshape(-1)
    if not inside.size or len(set(inside)) < inside.size or not _within(inside, dimension):
        raise ValueError(
            f"`subspace` must hold distinct indices in 0..{dimension - 1}, got {subspace}"
        )
    return inside


def _within(indices: np.ndarray, dimension: int) -> bool:
    return bool(indices.min() >= 0 and indices.max() < dimension)


def _check_target(target: Array, inside: np.ndarray) -> None:
    if target.shape != (inside.size, inside.size):
        raise ValueError(
            f"`target` must have shape {(inside.size, inside.size)}, one row per index of "
            f"`subspace`, got {target.shape}"
        )

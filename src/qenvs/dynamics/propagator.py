"""The propagator of every lane: exp(A) of many small matrices, applied to the columns of a map.

A propagator in real coordinates is (Re U, Im U), shape (2d, d), a superoperator a square matrix.
Both are columns C with a product left(C1) C2, where left(C) = C for a superoperator and the real
form [[Re, -Im], [Im, Re]] for a propagator. exp(A) is a Taylor polynomial of A / 2^s, evaluated
from few products, and s squarings; a bound on ||A|| fixes both counts while tracing. Every product
stands in a loop of fixed length: the compiler would compute fused products again and again.

Reference: Paterson, Stockmeyer, SIAM J. Comput. 2, 60 (1973); Higham, SIAM J. Matrix Anal. Appl.
26, 1179 (2005).
"""

import math
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import while_loop
from jax import Array

from qenvs._checks import is_concrete
from qenvs.dynamics.lanes import lanes

LANE_COLUMNS = 9
"""Largest number of columns that are multiplied lane by lane; more are faster as matrices."""

MAX_SQUARINGS = 64
"""Largest number of squarings where a traced parameter hides the bound from the tracer."""


def propagate(
    operators: np.ndarray,
    weights: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    norm: Array | float,
    closed: bool,
) -> Array:
    """exp(dt sum_k w_k G_k) x, one gentle step back to unitarity (closed) or to trace 1.

    Args:
        operators: real matrices G_k, shape (n, size, size).
        weights: the n scalars w_k.
        x: columns of the map so far, shape (size, columns).
        dt: interval.
        norm: bound on the spectral norm ||dt sum_k w_k G_k||, without multiples of 1 if closed.
            Where it is traced, as many squarings are done as its value demands.
        closed: whether the G_k are real forms of -i H_k, and x of a propagator.
    """
    scales = jnp.stack([jnp.asarray(dt * w, x.dtype) for w in weights])
    known = is_concrete(norm)
    kernel = ColumnKernel(operators, closed, float(norm) if known else None)
    bound = () if known else (jax.lax.stop_gradient(jnp.asarray(norm, x.dtype)),)
    if x.shape[1] > LANE_COLUMNS:
        return kernel(x, scales, *bound)[0]
    return lanes(kernel, x, scales, *bound)[0]


class Plan(NamedTuple):
    """How exp(A) is evaluated: a polynomial of degree block * blocks, then squarings.

    Attributes:
        block: powers of A that are stored.
        blocks: steps of the Horner scheme in A^block.
        theta: norm up to which the polynomial is exact in the working precision.
        squarings: their number; None is as many as the value of the bound demands.
    """

    block: int
    blocks: int
    theta: float
    squarings: int | None


@cache
def plan(norm: float | None, precision: float) -> Plan:
    """The plan with the fewest products for ||A|| <= norm (None: any) at a machine precision."""
    plans = []
    for block in range(1, 6):
        for blocks in range(1, 6):
            degree = block * blocks
            theta = (precision / 4 * math.factorial(degree + 1)) ** (1 / (degree + 1))
            halvings = math.log2((1.0 if norm is None else norm) / theta)
            squarings = max(0, math.ceil(halvings - 1e-9))
            cost = block + blocks + (halvings if norm is None else squarings)
            plans.append((cost, squarings, Plan(block, blocks, theta, squarings)))
    best = min(plans)[2]
    return best if norm is not None else best._replace(squarings=None)


class ColumnKernel:
    """(x, scales s) -> exp(sum_k s_k G_k) x for `lanes`, and for arrays without a batch axis.

    Compared by value. A third argument, the bound on the norm, comes where `norm` is None.
    """

    def __init__(self, operators: np.ndarray, closed: bool, norm: float | None) -> None:
        self.closed, self.norm = closed, norm
        self.shifts, columns = centred(operators) if closed else (np.zeros(0), operators)
        self.columns = np.moveaxis(columns, 0, -1)
        self._identity = closed, norm, operators.shape, sha256(operators.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnKernel) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __call__(self, x: Array, scales: Array, *norm: Array) -> tuple[Array]:
        moved = self._exponential(_combined(self.columns, scales), *norm)
        if not self.closed:
            return (_trace_kept(_times(moved, x)),)
        if self.shifts.any():
            angle = _combined(self.shifts, scales)
            moved = jnp.cos(angle) * moved - jnp.sin(angle) * _times_i(moved)
        return (_orthonormalised(moved, x),)

    def _left(self, columns: Array) -> Array:
        return _complex_left(columns) if self.closed else columns

    def _exponential(self, a: Array, *norm: Array) -> Array:
        chosen = plan(self.norm, float(jnp.finfo(a.dtype).eps))
        if chosen.squarings is not None:
            polynomial = self._polynomial(a * 2.0**-chosen.squarings, chosen)
            return jax.lax.fori_loop(0, chosen.squarings, lambda _, e: self._square(e), polynomial)
        halvings = jnp.ceil(jnp.log2(jnp.max(norm[0]) / chosen.theta))
        squarings = jnp.clip(halvings, 0.0, MAX_SQUARINGS).astype(a.dtype)
        start = jnp.zeros((), a.dtype), self._polynomial(a * 2.0**-squarings, chosen)
        return while_loop(
            lambda carry: carry[0] < squarings,
            lambda carry: (carry[0] + 1, self._square(carry[1])),
            start,
            max_steps=MAX_SQUARINGS,
            kind="bounded",
            base=8,
        )[1]

    def _square(self, e: Array) -> Array:
        return _times(self._left(e), e)

    def _polynomial(self, a: Array, chosen: Plan) -> Array:
        """sum_n A^n / n! up to n = block * blocks, by powers up to A^block and Horner in A^block."""
        block, blocks = chosen.block, chosen.blocks
        left, one = self._left(a), _identity(a)

        def raise_power(power: Array, _: None) -> tuple[Array, Array]:
            power = _times(left, power)
            return power, power

        highest, higher = jax.lax.scan(raise_power, a, length=block - 1)
        powers = jnp.concatenate([a[None], higher])
        factors = [1.0 / math.factorial(n) for n in range(block * blocks + 1)]
        rows = jnp.asarray(factors[:-1], a.dtype).reshape(blocks, block)[::-1]
        step = self._left(highest)

        def partial_sum(row: Array) -> Array:
            return row[0] * one + sum(row[k] * powers[k - 1] for k in range(1, block))

        def horner(total: Array, row: Array) -> tuple[Array, None]:
            return _times(step, total) + partial_sum(row), None

        start = factors[-1] * highest + partial_sum(rows[0])
        return jax.lax.scan(horner, start, rows[1:])[0]


def centred(operators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre of the spectrum of each H_k, shape (n,), and columns of -i(H_k - centre), (n, 2d, d).

    The operators are real forms of -i H_k, shape (n, 2d, 2d).
    """
    d = operators.shape[-1] // 2
    columns = np.array(operators[..., :d])
    energies = np.linalg.eigvalsh(hamiltonians(operators))
    shifts = (energies[:, 0] + energies[:, -1]) / 2
    columns[:, d:] += shifts[:, None, None] * np.eye(d)
    return shifts, columns


def hamiltonians(operators: np.ndarray) -> np.ndarray:
    """The Hermitian H_k of the real forms of -i H_k."""
    d = operators.shape[-1] // 2
    return 1j * operators[:, :d, :d] - operators[:, d:, :d]


def centred_norms(operators: np.ndarray) -> np.ndarray:
    """||H_k - centre||, half the width of each spectrum, shape (n,)."""
    energies = np.linalg.eigvalsh(hamiltonians(operators))
    return (energies[:, -1] - energies[:, 0]) / 2


def _combined(matrices: np.ndarray, scales: Array) -> Array:
    """sum_k s_k M_k with k the last axis of the matrices and the first of the scales."""
    constant = jnp.asarray(matrices, scales.dtype)
    return jnp.tensordot(constant, scales, 1, precision=jax.lax.Precision.HIGHEST)


def _times(a: Array, b: Array) -> Array:
    """Matrix product of (m, k) and (k, n), or lane by lane of (m, k, B) and (k, n, B)."""
    if a.ndim == 2:
        return jnp.matmul(a, b, precision=jax.lax.Precision.HIGHEST)
    return sum(a[:, k, None] * b[k] for k in range(b.shape[0]))


def _times_i(columns: Array) -> Array:
    """i C in real form."""
    d = columns.shape[1]
    return jnp.concatenate([-columns[d:], columns[:d]])


def _complex_left(columns: Array) -> Array:
    """[[Re, -Im], [Im, Re]] of the columns (Re, Im)."""
    return jnp.concatenate([columns, _times_i(columns)], axis=1)


def _identity(columns: Array) -> Array:
    """The identity map, to be broadcast against the columns."""
    rows, d, *batch = columns.shape
    return jnp.eye(rows, d, dtype=columns.dtype).reshape(rows, d, *(1 for _ in batch))


def _orthonormalised(e: Array, x: Array) -> Array:
    """y (3 - y'y) / 2 of y = E x: one Newton-Schulz step towards the nearest unitary.

    The three products stand in one loop.
    """
    one = _identity(x)

    def step(k: Array, carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        left, right, y = carry
        product = _times(left, right)
        y = jnp.where(k == 0, product, y)
        left = _complex_left(y)
        left = jnp.where(k == 0, jnp.swapaxes(left, 0, 1), left)
        return left, jnp.where(k == 1, 1.5 * one - 0.5 * product, product), y

    return jax.lax.fori_loop(0, 3, step, (_complex_left(e), x, x))[1]


def _trace_kept(x: Array) -> Array:
    """What the trace row of a superoperator lacks, spread over the populations."""
    d = math.isqrt(x.shape[0])
    lack = _identity(x)[:d].sum(axis=0) - x[:d].sum(axis=0)
    return jnp.concatenate([x[:d] + lack / d, x[d:]])

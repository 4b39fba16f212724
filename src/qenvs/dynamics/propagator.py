"""The propagator of every lane: exp(A) of many small matrices, applied to the columns of a map.

A propagator in real coordinates is (Re U, Im U), shape (2d, d), a superoperator a square matrix.
Both are columns C with a product left(C1) C2, where left(C) = C for a superoperator and the real
form [[Re, -Im], [Im, Re]] for a propagator. exp(A) is a Taylor polynomial of A / 2^s, evaluated
from few products, and s squarings; a bound on ||A|| fixes both counts while tracing.

Every product stands alone in the body of a loop or in a branch: the compiler would compute it
again in every expression that it can reach.

Reference: Paterson, Stockmeyer, SIAM J. Comput. 2, 60 (1973); Higham, SIAM J. Matrix Anal. Appl.
26, 1179 (2005).
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from hashlib import sha256
from typing import Any, NamedTuple

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

HIGHEST = jax.lax.Precision.HIGHEST


def propagate(
    operators: np.ndarray,
    coefficients: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    norm: Array | float,
    closed: bool,
) -> Array:
    """exp(dt sum_k c_k G_k) x, one gentle step back to unitarity (closed) or to trace 1.

    Args:
        operators: real matrices G_k, shape (n, size, size).
        coefficients: the n scalars c_k.
        x: columns of the map so far, shape (size, columns).
        dt: interval.
        norm: bound on the spectral norm ||dt sum_k c_k G_k||, without multiples of 1 if closed.
            Where it is traced, as many squarings are done as its value demands.
        closed: whether the G_k are real forms of -i H_k, and x of a propagator.
    """
    numbers = isinstance(dt, jax.Array), *(isinstance(c, jax.Array) for c in coefficients)
    known = np.array([not (numbers[0] or traced) for traced in numbers[1:]])
    scales = [
        jnp.asarray(dt * c, x.dtype) for c, k in zip(coefficients, known, strict=True) if not k
    ]
    fixed = [float(dt * c) for c, k in zip(coefficients, known, strict=True) if k]
    constant = np.tensordot(fixed, operators[known], 1)
    bound = float(norm) if is_concrete(norm) else None
    kernel = ColumnKernel(constant, operators[~known], closed, bound)
    args = [x, jnp.stack(scales) if scales else jnp.zeros(0, x.dtype)]
    if bound is None:
        args.append(jax.lax.stop_gradient(jnp.asarray(norm, x.dtype)))
    return kernel(*args)[0] if x.shape[1] > LANE_COLUMNS else lanes(kernel, *args)[0]


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
    """(x, scales s) -> exp(G + sum_k s_k G_k) x for `lanes`, and for arrays without a batch axis.

    Compared by value. A third argument, the bound on the norm, comes where `norm` is None.
    """

    def __init__(
        self, constant: np.ndarray, operators: np.ndarray, closed: bool, norm: float | None
    ) -> None:
        self.closed, self.norm = closed, norm
        matrices = np.stack([constant, *operators])
        shifts, columns = centred(matrices) if closed else (np.zeros(len(matrices)), matrices)
        self.phase, self.constant = float(shifts[0]), columns[0]
        self.shifts, self.columns = shifts[1:], columns[1:]
        self._identity = closed, norm, matrices.shape, sha256(matrices.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnKernel) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __call__(self, x: Array, scales: Array, *norm: Array) -> tuple[Array]:
        exponent = _combined(self.constant, self.columns, scales)
        moved = self._exponential(exponent, *norm)
        if not self.closed:
            return (_mapped(moved, x),)
        if self.shifts.any():
            angle = _combined(np.array(self.phase), self.shifts, scales)
            return (_applied(moved, x, angle),)
        return (_applied(moved, x, self.phase),)

    def _left(self, columns: Array) -> Array:
        return _complex_left(columns) if self.closed else columns

    def _square(self, e: Array) -> Array:
        return _times(self._left(e), e)

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

    def _polynomial(self, a: Array, chosen: Plan) -> Array:
        """sum_n A^n / n! up to n = block * blocks: powers up to A^block, Horner in A^block."""
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
    energies = _energies(operators)
    shifts = (energies[:, 0] + energies[:, -1]) / 2
    shifts[abs(shifts) < 1e-13 * np.ptp(energies, axis=1)] = 0.0
    columns[:, d:] += shifts[:, None, None] * np.eye(d)
    return shifts, columns


def centred_norms(operators: np.ndarray) -> np.ndarray:
    """||H_k - centre||, half the width of each spectrum, shape (n,)."""
    return np.ptp(_energies(operators), axis=1) / 2


def _energies(operators: np.ndarray) -> np.ndarray:
    """Spectrum of each H_k of the real forms of -i H_k, ascending, shape (n, d)."""
    d = operators.shape[-1] // 2
    return np.linalg.eigvalsh(1j * operators[:, :d, :d] - operators[:, d:, :d])


def _combined(constant: np.ndarray, matrices: np.ndarray, scales: Array) -> Array:
    """M + sum_k s_k M_k, shape of M and a batch axis if the scales (n, B) have one."""

    def spread(matrix: np.ndarray) -> Array:
        return jnp.asarray(matrix, scales.dtype).reshape(matrix.shape + (1,) * (scales.ndim - 1))

    terms = [spread(matrix) * scales[k] for k, matrix in enumerate(matrices)]
    return reduce(jnp.add, terms, spread(constant))


def _times(a: Array, b: Array) -> Array:
    """Matrix product of (m, k) and (k, n), or lane by lane of (m, k, B) and (k, n, B)."""
    if a.ndim == 2:
        return jnp.matmul(a, b, precision=HIGHEST)
    return reduce(jnp.add, [a[:, k, None] * b[k] for k in range(b.shape[0])])


def _complex_left(columns: Array) -> Array:
    """[[Re, -Im], [Im, Re]] of the columns (Re, Im)."""
    d = columns.shape[1]
    return jnp.concatenate([columns, jnp.concatenate([-columns[d:], columns[:d]])], axis=1)


def _adjoint(columns: Array) -> Array:
    """Columns of C'."""
    re, im = jnp.split(columns, 2)
    return jnp.concatenate([jnp.swapaxes(re, 0, 1), -jnp.swapaxes(im, 0, 1)])


def _identity(columns: Array) -> Array:
    """The identity map, to be broadcast against the columns."""
    rows, d, *batch = columns.shape
    return jnp.eye(rows, d, dtype=columns.dtype).reshape(rows, d, *(1 for _ in batch))


def _applied(e: Array, x: Array, angle: Array | float) -> Array:
    """y (3 - y'y) / 2 of y = exp(-i angle) E x: one Newton-Schulz step to the nearest unitary."""
    one = _identity(x)

    def turn(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        re, im = jnp.split(carry[1], 2)
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        return carry[0], jnp.concatenate([cosine * re + sine * im, cosine * im - sine * re])

    def apply(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return carry[0], _times(_complex_left(e), carry[1])

    def overlap(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return _times(_complex_left(carry[1]), _adjoint(carry[1])), carry[1]

    def correct(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        return carry[0], _times(_complex_left(1.5 * one - 0.5 * carry[0]), carry[1])

    return _in_sequence([turn, apply, overlap, correct], (x, x))[1]


def _mapped(e: Array, x: Array) -> Array:
    """E x, what its trace row lacks spread over the populations."""
    d = math.isqrt(x.shape[0])
    trace_row = _identity(x)[:d].sum(axis=0)

    def apply(y: Array) -> Array:
        return _times(e, y)

    def keep_trace(y: Array) -> Array:
        lack = trace_row - y[:d].sum(axis=0)
        return jnp.concatenate([y[:d] + lack / d, y[d:]])

    return _in_sequence([apply, keep_trace], x)


def _in_sequence(steps: Sequence[Callable[[Any], Any]], carry: Any) -> Any:
    """The steps one after the other, each with its result in memory."""
    return jax.lax.fori_loop(0, len(steps), lambda k, c: jax.lax.switch(k, steps, c), carry)

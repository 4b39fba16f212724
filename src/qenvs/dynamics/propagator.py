"""The propagator of every lane: exp(A) of many small matrices, applied to the columns of a map.

exp(A) is a Taylor polynomial of A / 2^s, evaluated from few products, and s squarings; a bound on
||A|| fixes both counts while tracing. Two kinds of real matrices stand for the maps:

- a propagator U by its columns (Re U, Im U), shape (2d, d), see `Unitaries`;
- a superoperator by the part of it that is not known: in an orthonormal basis whose first element
  is 1/sqrt(d), a map that keeps the trace has the first row (1, 0, ..., 0), and its generator 0.
  The rest is the first column and a square matrix, see `TraceKeeping`. The trace is then exact and,
  not least, the matrices of two transmons are of size 80, whose products take 40 % less than 81.

Every product is kept apart: the compiler would compute it again in every expression that it can
reach.

Reference: Paterson, Stockmeyer, SIAM J. Comput. 2, 60 (1973); Higham, SIAM J. Matrix Anal. Appl.
26, 1179 (2005).
"""

import math
from collections.abc import Sequence
from functools import cache, reduce
from hashlib import sha256
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import while_loop
from jax import Array

from qenvs._apart import apart
from qenvs._checks import is_concrete
from qenvs._products import product
from qenvs.dynamics.lanes import lanes

LANE_COLUMNS = 9
"""Largest number of columns that are multiplied lane by lane; more are faster as matrices."""

Map = Any
"""An array or a pair of arrays, see `Unitaries` and `TraceKeeping`."""

MAX_SQUARINGS = 64
"""Largest number of squarings where a traced parameter hides the bound from the tracer."""


def propagate(
    operators: np.ndarray,
    coefficients: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    norm: Array | float,
    closed: bool,
) -> Array:
    """exp(dt sum_k c_k G_k) x, one gentle step back to unitarity (closed) or exact in the trace.

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
        self.maps = Unitaries() if closed else TraceKeeping()
        self.norm = norm
        matrices = np.stack([constant, *operators])
        self.phases, self.parts = self.maps.generators(matrices)
        self._identity = closed, norm, matrices.shape, sha256(matrices.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnKernel) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __call__(self, x: Array, scales: Array, *norm: Array) -> tuple[Array]:
        exponent = jax.tree.map(lambda matrices: _combined(matrices, scales), self.parts)
        moved = self._exponential(exponent, float(jnp.finfo(x.dtype).eps), *norm)
        angle = _combined(self.phases, scales) if self.phases[1:].any() else self.phases[0]
        return (self.maps.applied(moved, x, angle),)

    def _exponential(self, a: Map, precision: float, *norm: Array) -> Map:
        chosen = plan(self.norm, precision)
        square = apart(lambda e: self.maps.product(e, e, 1.0))
        if chosen.squarings is not None:
            e = self._polynomial(_weighted([2.0**-chosen.squarings], [a]), chosen)
            return reduce(lambda e, _: square(e), range(chosen.squarings), e)
        halvings = jnp.ceil(jnp.log2(jnp.max(norm[0]) / chosen.theta))
        squarings = jnp.clip(halvings, 0.0, MAX_SQUARINGS)
        polynomial = self._polynomial(_weighted([2.0**-squarings], [a]), chosen)
        return while_loop(
            lambda carry: carry[0] < squarings,
            lambda carry: (carry[0] + 1, square(carry[1])),
            (jnp.zeros_like(squarings), polynomial),
            max_steps=MAX_SQUARINGS,
            kind="bounded",
            base=8,
        )[1]

    def _polynomial(self, a: Map, chosen: Plan) -> Map:
        """sum_n A^n / n! up to n = block * blocks: powers up to A^block, Horner in A^block."""
        block, blocks, product = chosen.block, chosen.blocks, self.maps.product
        raised = apart(lambda power: product(a, power, 0.0))
        powers = [self.maps.identity(a), a]
        for _ in range(block - 1):
            powers.append(raised(powers[-1]))
        factors = [1.0 / math.factorial(n) for n in range(block * blocks + 1)]
        rows = [factors[n : n + block] for n in range(0, block * blocks, block)]

        def horner(total: Map, weight: float, row: Sequence[float]) -> Map:
            return _weighted([1.0, *row], [product(powers[block], total, weight), *powers[:block]])

        total = _weighted([*rows[-1], factors[-1]], powers)
        for k in reversed(range(blocks - 1)):
            total = apart(horner)(total, rows[k + 1][0], rows[k])
        return total


class Unitaries:
    """Propagators as columns (Re U, Im U), shape (2d, d)."""

    def generators(self, operators: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Centre of the spectrum of each H_k, (n,), and columns of -i(H_k - centre), (n, 2d, d).

        The operators are real forms of -i H_k, shape (n, 2d, 2d).
        """
        d = operators.shape[-1] // 2
        columns = np.array(operators[..., :d])
        energies = _energies(operators)
        shifts = (energies[:, 0] + energies[:, -1]) / 2
        shifts[abs(shifts) < 1e-13 * np.ptp(energies, axis=1)] = 0.0
        columns[:, d:] += shifts[:, None, None] * np.eye(d)
        return shifts, columns

    def identity(self, like: Array) -> Array:
        """The identity map, to be broadcast against arrays like this one."""
        return _eye(like)

    def product(self, first: Array, second: Array, weight: float) -> Array:
        """The map `first` after `second`; `weight` does not matter."""
        return _times(_complex_left(first), second)

    def applied(self, e: Array, x: Array, angle: Array | float) -> Array:
        """y (3 - y'y) / 2 of y = exp(-i angle) E x: one Newton-Schulz step to the unitaries."""
        moved = apart(self.product)(e, apart(_turned)(x, angle), 1.0)
        overlap = apart(lambda y: _times(_complex_left(y), _adjoint(y)))(moved)
        correction = apart(lambda y: 1.5 * _eye(y) - 0.5 * y)(overlap)
        return apart(self.product)(correction, moved, 1.0)


class TraceKeeping:
    """Maps with the first row (w, 0, ..., 0): the rest of the first column, and a square matrix.

    Shapes (d^2 - 1, 1) and (d^2 - 1, d^2 - 1).
    """

    def generators(self, operators: np.ndarray) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        """No phases, and both parts of n real superoperators, shape (n, d^2, d^2)."""
        mirror = np.eye(operators.shape[-1])
        d = math.isqrt(len(mirror))
        mirror[:d, :d] = _mirror(d)
        turned = mirror @ operators @ mirror
        return np.zeros(len(turned)), (turned[:, 1:, :1], turned[:, 1:, 1:])

    def identity(self, like: tuple[Array, Array]) -> tuple[Array, Array]:
        """The identity map, to be broadcast against arrays like these."""
        return jnp.zeros_like(like[0]), _eye(like[1])

    def product(
        self, first: tuple[Array, Array], second: tuple[Array, Array], weight: float
    ) -> tuple[Array, Array]:
        """The map `first` after `second`, whose entry w is `weight`."""
        column, matrix = second
        return weight * first[0] + _times(first[1], column), _times(first[1], matrix)

    def applied(self, e: tuple[Array, Array], x: Array, angle: Array | float) -> Array:
        """E x of a superoperator x in the Hermitian basis; a phase does not matter."""
        d = math.isqrt(len(x))
        mirror = jnp.asarray(_mirror(d), x.dtype)
        first = jnp.full_like(x[:1, :d], 1 / math.sqrt(d))
        first = jnp.concatenate([first, jnp.zeros_like(x[:1, d:])], axis=1)

        def below(x: Array) -> Array:
            return jnp.concatenate([product(mirror[1:], x[:d]), x[d:]])

        def whole(rows: Array) -> Array:
            populations = jnp.concatenate([first, rows[: d - 1]])
            return jnp.concatenate([product(mirror, populations), rows[d - 1 :]])

        def moved(rows: Array) -> Array:
            return _times(e[1], rows) + e[0] * first

        return apart(whole)(apart(moved)(apart(below)(x)))


def _mirror(d: int) -> np.ndarray:
    """The reflection that exchanges the first population and (1, ..., 1)/sqrt(d)."""
    normal = np.full(d, 1 / math.sqrt(d)) - np.eye(d)[0]
    return np.eye(d) - 2 * np.outer(normal, normal) / (normal @ normal)


def centred_norms(operators: np.ndarray) -> np.ndarray:
    """||H_k - centre||, half the width of each spectrum, shape (n,)."""
    return np.ptp(_energies(operators), axis=1) / 2


def _energies(operators: np.ndarray) -> np.ndarray:
    """Spectrum of each H_k of the real forms of -i H_k, ascending, shape (n, d)."""
    d = operators.shape[-1] // 2
    return np.linalg.eigvalsh(1j * operators[:, :d, :d] - operators[:, d:, :d])


def _weighted(weights: Sequence[Array | float], maps: Sequence[Map]) -> Map:
    """sum_k w_k maps_k."""

    def total(*leaves: Array) -> Array:
        return reduce(jnp.add, [w * leaf for w, leaf in zip(weights, leaves, strict=True)])

    return jax.tree.map(total, *maps)


def _combined(matrices: np.ndarray, scales: Array) -> Array:
    """M_0 + sum_k s_k M_k, shape of M_0 and a batch axis if the scales (n, B) have one."""
    spread = jnp.asarray(matrices, scales.dtype)
    spread = spread.reshape(matrices.shape + (1,) * (scales.ndim - 1))
    return reduce(jnp.add, [m * s for m, s in zip(spread[1:], scales, strict=True)], spread[0])


def _turned(columns: Array, angle: Array | float) -> Array:
    """exp(-i angle) times the columns (Re, Im)."""
    re, im = jnp.split(columns, 2)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    return jnp.concatenate([cosine * re + sine * im, cosine * im - sine * re])


def _times(a: Array, b: Array) -> Array:
    """Matrix product of (m, k) and (k, n), or lane by lane of (m, k, B) and (k, n, B)."""
    if a.ndim == 2:
        return product(a, b)
    return reduce(jnp.add, [a[:, k, None] * b[k] for k in range(b.shape[0])])


def _complex_left(columns: Array) -> Array:
    """[[Re, -Im], [Im, Re]] of the columns (Re, Im)."""
    d = columns.shape[1]
    return jnp.concatenate([columns, jnp.concatenate([-columns[d:], columns[:d]])], axis=1)


def _adjoint(columns: Array) -> Array:
    """Columns of C'."""
    re, im = jnp.split(columns, 2)
    return jnp.concatenate([jnp.swapaxes(re, 0, 1), -jnp.swapaxes(im, 0, 1)])


def _eye(like: Array) -> Array:
    """Ones on the diagonal, to be broadcast against arrays like this one."""
    rows, columns, *batch = like.shape
    one = jnp.eye(rows, columns, dtype=like.dtype)
    return one.reshape(rows, columns, *(1 for _ in batch))

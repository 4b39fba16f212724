"""The exponential of an affine generator on a state: x(t + dt) = exp(dt sum_k c_k G_k) x(t).

No adaptive loop: the number of terms of the series is fixed while tracing, from a bound on
||G dt|| that is known then. Three kernels:

- **2 x 2 unitaries**: closed form, cos|w| - i sinc|w| (w . sigma), from functions that are
  smooth at w = 0, so that every derivative is finite.
- **columns of maps**: the propagator of each lane by scaling and squaring, see
  `qenvs.dynamics.propagator`.
- **everything else**: a Taylor series in substeps of ||G h|| <= 1, as products of the shared
  operators with the state (under `vmap` one matrix product) combined with the coefficients.

Error: at most `c eps max(1, ||G dt||)` relative to the result, c = 10 (measured by the tests over
random Hamiltonians and Lindbladians of dimension 2 to 16).
"""

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256

import jax
import jax.numpy as jnp
import numpy as np
from equinox.internal import while_loop
from jax import Array

from qenvs._apart import apart
from qenvs._checks import is_concrete
from qenvs._products import product
from qenvs.dynamics.coordinates import (
    Coordinates,
    KetCoordinates,
    PropagatorCoordinates,
    SuperoperatorCoordinates,
    reachable,
)
from qenvs.dynamics.propagator import centred_norms, propagate

SUBSTEP_NORM = 1.0
"""Largest ||G h|| of one substep: small enough that the terms of the series do not cancel."""

MAX_DYNAMIC_SUBSTEPS = 64**2
"""Largest number of substeps where a traced parameter hides the bound from the tracer."""


class Generator:
    """The structure of G = sum_k c_k G_k: real operators on coordinates, compared by value.

    Args:
        coordinates: what the operators act on.
        operators: dense real matrices G_k, each of shape (size, size).
        matrices: for 2 x 2 closed systems the complex Hamiltonians H_k, for the closed form.
    """

    def __init__(
        self,
        coordinates: Coordinates,
        operators: Sequence[np.ndarray],
        matrices: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.coordinates = coordinates
        self.operators = np.stack(operators)
        self.pauli = None if matrices is None else pauli_components(matrices)
        digest = sha256(self.operators.tobytes())
        if self.pauli is not None:
            digest.update(self.pauli.tobytes())
        self._identity = coordinates, digest.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Generator) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def moves_columns(self) -> bool:
        """Whether it moves the columns of a map, each lane by its own propagator."""
        return isinstance(self.coordinates, (PropagatorCoordinates, SuperoperatorCoordinates))

    @cached_property
    def norms(self) -> np.ndarray:
        """Bounds on the spectral norm of each operator, shape (n,).

        Of a propagator's, without its multiple of 1, which is a phase.
        """
        if isinstance(self.coordinates, PropagatorCoordinates):
            return centred_norms(self.operators)
        return np.array([spectral_norm_bound(g) for g in self.operators])

    def norm_bound(self, coefficients: Sequence[Array | float]) -> Array | float:
        """sum_k |c_k| ||G_k||, a bound on ||G||; a float if every coefficient is known."""
        terms = [abs(c) * n for c, n in zip(coefficients, self.norms, strict=True)]
        return sum(terms, 0.0)


def build_generator(
    coordinates: type[Coordinates],
    dims: Sequence[int],
    hamiltonians: Sequence[np.ndarray],
    jumps: Sequence[np.ndarray],
    start: np.ndarray | None = None,
) -> Generator:
    """Generator of Hamiltonians (each as -i[H, .]) and jump operators, in that order.

    `start` (a ket or density matrix) restricts vectors to what it can reach.
    """
    full = coordinates(dims)
    _check_memory(full, len(hamiltonians) + len(jumps))
    generators = full.generators(hamiltonians, jumps)
    if start is not None:
        seen = np.asarray(full.encode(start))
        full = coordinates(dims, reachable(generators, np.abs(seen) > 1e-14))
    closed_form = full.dimension == 2 and isinstance(full, (KetCoordinates, PropagatorCoordinates))
    blocks = [full.restrict(g) for g in generators]
    return Generator(full, blocks, hamiltonians if closed_form and full.size == 4 else None)


MAX_BYTES = 2**32
"""Largest size of the dense generators of one model."""


def _check_memory(coordinates: Coordinates, operators: int) -> None:
    """ValueError where the dense generators would not fit."""
    needed = 8 * coordinates.size**2 * operators
    if needed > MAX_BYTES:
        raise ValueError(
            f"a system of dimension {coordinates.dimension} with {operators} terms takes "
            f"generators of {needed / 2**30:.0f} GiB, but {MAX_BYTES / 2**30:.0f} GiB is the limit "
            "here; keep fewer levels, switch dissipation off, or use a symmetry "
            "(DickeBatteryLocal keeps permutation-invariant blocks)"
        )


EXACT_NORM_SIZE = 128
"""Largest matrix whose spectral norm is computed, which takes a few milliseconds."""


def spectral_norm_bound(matrix: np.ndarray) -> float:
    """||A||_2, or for large matrices sqrt(||A||_1 ||A||_inf) >= ||A||_2."""
    magnitude = np.abs(matrix)
    if magnitude.size == 0:
        return 0.0
    if len(matrix) <= EXACT_NORM_SIZE:
        return float(np.linalg.norm(matrix, 2))
    return float(np.sqrt(magnitude.sum(axis=0).max() * magnitude.sum(axis=1).max()))


def length_class(norm: float) -> int:
    """Class of a bound on ||G dt||: the k with norm <= 2^(k/2), and one class to spare."""
    if not math.isfinite(norm):
        raise ValueError(f"||G dt|| must be finite, got {norm}; lower dt, a rate or the bound")
    return max(-8, math.ceil(2 * math.log2(max(norm, 1e-30)))) + 1


CLOSED_FORM_LENGTHS = (-4, 0)
"""Length classes of the closed form: ||G dt|| <= 1/4 or <= 1; any larger bound is None."""


def length_for(generator: Generator, norm: float) -> int | None:
    """Static length for ||G dt|| <= norm: a class to spare; few classes for the closed form."""
    length = length_class(norm)
    if generator.pauli is None:
        return length
    return next((known for known in CLOSED_FORM_LENGTHS if length <= known), None)


def series_shape(norm: float, dtype: np.dtype) -> tuple[int, int]:
    """(substeps, order) of the Taylor series for ||G dt|| <= norm in the precision of dtype."""
    substeps = max(1, math.ceil(norm / SUBSTEP_NORM - 1e-9))
    theta, order = norm / substeps, 1
    tolerance = float(jnp.finfo(dtype).eps) / 4
    while theta ** (order + 1) / math.factorial(order + 1) > tolerance:
        order += 1
    return substeps, order


def evolve(
    generator: Generator,
    coefficients: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    length: int | None = None,
) -> Array:
    """exp(dt sum_k c_k G_k) x, projected one gentle step back to the physical set.

    Args:
        generator: the operators G_k.
        coefficients: the n scalars c_k.
        x: coordinates, shape (size,), or (size, columns).
        dt: interval.
        length: class of a bound on ||G dt|| (`length_class`). None reads the bound from the
            coefficients, and where a traced one hides it loops over substeps as the value
            demands (a little slower, as exact).
    """
    if generator.pauli is not None:
        return _rotate(generator.pauli, coefficients, generator.coordinates.project(x), dt, length)
    if generator.moves_columns:
        return _columns(generator, coefficients, x, dt, length)
    moved = _series(generator, coefficients, x, dt, length)
    return generator.coordinates.project(moved)


def _columns(
    generator: Generator,
    coefficients: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    length: int | None,
) -> Array:
    norm = _norm(generator, coefficients, dt, length)
    closed = isinstance(generator.coordinates, PropagatorCoordinates)
    return propagate(generator.operators, coefficients, x, dt, norm, closed)


def _norm(
    generator: Generator,
    coefficients: Sequence[Array | float],
    dt: Array | float,
    length: int | None,
) -> Array | float:
    """The bound on ||G dt|| of a length class, or read from the coefficients."""
    return abs(dt) * generator.norm_bound(coefficients) if length is None else 2.0 ** (length / 2)


def pauli_components(matrices: Sequence[np.ndarray]) -> np.ndarray:
    """Rows (h0, hx, hy, hz) with H = h0 + h . sigma of each Hermitian 2 x 2 matrix."""
    rows = [
        [
            (h[0, 0] + h[1, 1]) / 2,
            (h[0, 1] + h[1, 0]) / 2,
            1j * (h[0, 1] - h[1, 0]) / 2,
            (h[0, 0] - h[1, 1]) / 2,
        ]
        for h in matrices
    ]
    return np.real(np.array(rows))


def cos_sinc(s: Array, bound: float | None) -> tuple[Array, Array]:
    """cos(w) and sin(w)/w as smooth functions of s = w^2 >= 0.

    Where w <= bound <= 1 is known, their power series; otherwise the series near 0 and the
    library functions elsewhere.
    """
    if bound is not None and bound <= 1.0:
        order = _even_order(bound, s.dtype)
        return _even_series(s, 0, order), _even_series(s, 1, order)
    order, small = _even_order(1.0, s.dtype), s < 1.0
    near, w = jnp.where(small, s, 0.0), jnp.sqrt(jnp.where(small, 1.0, s))
    cosine = jnp.where(small, _even_series(near, 0, order), jnp.cos(w))
    return cosine, jnp.where(small, _even_series(near, 1, order), jnp.sin(w) / w)


def _even_order(bound: float, dtype: np.dtype) -> int:
    """Terms after which bound^(2n) / (2n)! is lost in rounding."""
    order, tolerance = 1, float(jnp.finfo(dtype).eps) / 8
    while bound ** (2 * order + 2) / math.factorial(2 * order + 2) > tolerance:
        order += 1
    return order


def _even_series(s: Array, first: int, order: int) -> Array:
    """sum_n (-s)^n / (2n + first)! for n <= order, order >= 1."""
    total: Array | float = 1.0 / math.factorial(2 * order + first)
    for n in reversed(range(order)):
        total = total * -s + 1.0 / math.factorial(2 * n + first)
    return jnp.asarray(total)


def _rotate(
    pauli: np.ndarray,
    coefficients: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    length: int | None,
) -> Array:
    """exp(-i dt (h0 + h . sigma)) on (re0, re1, im0, im1), in closed form.

    A component that is known to vanish costs nothing.
    """
    h0, cosine, sines = apart(_half_angles)(pauli, coefficients, dt, x.dtype, length)
    r0, r1, i0, i1 = x
    turned = (i1, i0, -r1, -r0), (-r1, r0, -i1, i0), (i0, -i1, -r0, r1)  # -i sigma_k x
    moved = [cosine * entry for entry in x]
    for sine, by_sigma in zip(sines, turned, strict=True):
        if sine is not None:
            moved = [entry + sine * t for entry, t in zip(moved, by_sigma, strict=True)]
    if h0 is not None:
        (r0, r1, i0, i1), cosine, sine = moved, jnp.cos(h0), jnp.sin(h0)
        moved = [cosine * r0 + sine * i0, cosine * r1 + sine * i1]
        moved += [cosine * i0 - sine * r0, cosine * i1 - sine * r1]
    return jnp.stack(moved)


def _half_angles(
    pauli: np.ndarray,
    coefficients: Sequence[Array | float],
    dt: Array | float,
    dtype: np.dtype,
    length: int | None,
) -> tuple[Array | None, Array, list[Array | None]]:
    """dt h0, cos|dt h| and h_k sin|dt h| / |h|; None is known to be 0."""
    h0, *h = (_combine(weights, coefficients, dt, dtype) for weights in pauli.T)
    square = sum((k * k for k in h if k is not None), jnp.zeros((), dtype))
    cosine, sinc = cos_sinc(square, None if length is None else 2.0 ** (length / 2))
    return h0, cosine, [None if k is None else sinc * k for k in h]


def _combine(
    weights: np.ndarray, coefficients: Sequence[Array | float], dt: Array | float, dtype
) -> Array | None:
    """dt sum_k w_k c_k as a scalar of the given dtype, None where it is known to be 0."""
    terms = [w * c for w, c in zip(weights, coefficients, strict=True) if w]
    total = dt * sum(terms, 0.0)
    return None if is_concrete(total) and total == 0 else jnp.asarray(total, dtype)


def merge_known(
    operators: np.ndarray, coefficients: Sequence[Array | float]
) -> tuple[np.ndarray, list]:
    """Terms whose coefficient is a number while tracing, added into one operator of weight 1."""
    known = [k for k, c in enumerate(coefficients) if not isinstance(c, jax.Array)]
    if len(known) < 2:
        return operators, list(coefficients)
    traced = [k for k in range(len(coefficients)) if k not in known]
    constant = np.tensordot([float(coefficients[k]) for k in known], operators[known], axes=1)
    return np.stack([constant, *operators[traced]]), [1.0, *(coefficients[k] for k in traced)]


def _series(
    generator: Generator,
    coefficients: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    length: int | None,
) -> Array:
    operators, weights = merge_known(generator.operators, coefficients)
    n, size, _ = operators.shape
    stacked = jnp.asarray(operators.reshape(n * size, size), x.dtype)
    scales = jnp.stack([jnp.asarray(dt * w, x.dtype) for w in weights])
    scales = scales.reshape(n, *(1 for _ in x.shape))

    def substep(y: Array, h: Array | float, order: int) -> Array:
        def term(k, carry):
            power, total = carry
            products = product(stacked, power).reshape(n, *x.shape)
            power = jnp.sum(scales * products, axis=0) * (h / (k + 1).astype(x.dtype))
            return power, total + power

        return jax.lax.fori_loop(0, order, term, (y, y))[1]

    norm = _norm(generator, coefficients, dt, length)
    if is_concrete(norm):
        substeps, order = series_shape(float(norm), x.dtype)
        if substeps == 1:
            return substep(x, 1.0, order)
        return jax.lax.fori_loop(0, substeps, lambda _, y: substep(y, 1.0 / substeps, order), x)
    _, order = series_shape(SUBSTEP_NORM, x.dtype)
    return _substeps_by_value(lambda y, h: substep(y, h, order), norm, x)


def _substeps_by_value(
    substep: Callable[[Array, Array], Array], norm: Array | float, x: Array
) -> Array:
    """As many substeps as the traced bound demands; differentiable in both modes."""
    substeps = jnp.maximum(jnp.ceil(jax.lax.stop_gradient(norm) / SUBSTEP_NORM), 1.0).astype(
        x.dtype
    )

    def body(carry):
        done, y = carry
        return done + 1, substep(y, 1.0 / substeps)

    start = jnp.zeros((), x.dtype), x
    return while_loop(
        lambda carry: carry[0] < substeps,
        body,
        start,
        max_steps=MAX_DYNAMIC_SUBSTEPS,
        kind="bounded",
        base=64,
    )[1]

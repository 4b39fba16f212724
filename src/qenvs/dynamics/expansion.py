"""The exponential as a polynomial of the controls, where only the controls are unknown.

With known parameters and |u_k| <= B_k the map of one interval is an entire function of the
controls, so its Chebyshev series converges faster than geometrically:

    exp(dt (G0 + sum_k u_k G_k)) = sum_a T_a1(u_1/B_1) ... T_an(u_n/B_n) M_a

The matrices M_a are computed once, in double precision. A step is then one product of the stacked
M_a with the state (under `vmap` one matrix product for the whole batch) and a weighted sum. Every
derivative with respect to the controls is that of a polynomial.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax import Array

from qenvs._products import product
from qenvs.dynamics.exponential import Generator

MAX_TERMS = 96
"""More terms than this (many controls, long intervals) and the series is the better way."""

MAX_NODES = 400
"""More matrix exponentials than this take too long."""

MAX_BYTES = 2**28
"""Largest size of the stacked matrices in double precision."""


class Expansion(NamedTuple):
    """Chebyshev coefficients of the map of one interval.

    Attributes:
        degrees: (terms, controls) degree of each factor T_a.
        matrices: (terms * size, size) the M_a, one below the other.
    """

    degrees: np.ndarray
    matrices: np.ndarray


def expand(expansion: Expansion, scaled: Array, x: Array) -> Array:
    """The state after one interval.

    Args:
        expansion: from `control_expansion`.
        scaled: controls over their bounds, in [-1, 1], shape (controls,).
        x: coordinates, shape (size,).
    """
    polynomials = chebyshev(scaled, int(expansion.degrees.max()))
    factors = [polynomials[expansion.degrees[:, k], k] for k in range(scaled.shape[0])]
    weights = functools.reduce(jnp.multiply, factors)
    matrices = jnp.asarray(expansion.matrices, x.dtype)
    moved = product(matrices, x)
    return jnp.sum(weights[:, None] * moved.reshape(-1, x.shape[0]), axis=0)


def chebyshev(s: Array, degree: int) -> Array:
    """T_0(s) ... T_degree(s), shape (degree + 1, *s.shape)."""
    values = [jnp.ones_like(s), s]
    for _ in range(degree - 1):
        values.append(2 * s * values[-1] - values[-2])
    return jnp.stack(values[: degree + 1])


@functools.lru_cache(maxsize=32)
def control_expansion(
    generator: Generator,
    constants: tuple[float, ...],
    controls: tuple[int, ...],
    bounds: tuple[float, ...],
    dt: float,
    dtype: np.dtype,
) -> Expansion | None:
    """The expansion of exp(dt G) in the controls, or None where it does not pay.

    Args:
        generator: the operators.
        constants: value of every coefficient; those of the controls are not used.
        controls: indices of the coefficients that are controls.
        bounds: half-width of the range of each control.
        dt: interval.
        dtype: precision in which it will be applied.
    """
    operators, size = generator.operators, generator.operators.shape[1]
    tolerance = float(jnp.finfo(dtype).eps) / 8
    norms = [dt * b * generator.norms[k] for k, b in zip(controls, bounds, strict=True)]
    nodes = [node_count(norm, tolerance) for norm in norms]
    if math.prod(nodes) > MAX_NODES or 8 * math.prod(nodes) * size**2 > MAX_BYTES:
        return None
    known = [k for k in range(len(operators)) if k not in controls]
    drift = dt * np.tensordot([constants[k] for k in known], operators[known], axes=1)
    driven = [dt * b * operators[k] for k, b in zip(controls, bounds, strict=True)]
    coefficients = chebyshev_coefficients(drift, driven, nodes)
    degrees = np.array(list(itertools.product(*map(range, nodes))))
    kept = [k for k, matrix in enumerate(coefficients) if np.linalg.norm(matrix) > tolerance]
    if len(kept) > MAX_TERMS:
        return None
    return Expansion(degrees[kept], coefficients[kept].reshape(-1, size))


def node_count(norm: float, tolerance: float) -> int:
    """Number of Chebyshev terms of exp(s A), |s| <= 1, ||A|| = norm, to a relative tolerance.

    The n-th coefficient is at most 2 I_n(norm) <= 2 (norm/2)^n / n! exp((norm/2)^2 / (n + 1)).
    Counting stops above MAX_NODES.
    """
    half, n = max(norm / 2, 1e-30), 1
    while n <= MAX_NODES:
        log_bound = n * math.log(half) - math.lgamma(n + 1) + half * half / (n + 1)
        if math.log(2) + log_bound <= math.log(tolerance):
            break
        n += 1
    return n


def chebyshev_coefficients(
    drift: np.ndarray, driven: Sequence[np.ndarray], nodes: Sequence[int]
) -> np.ndarray:
    """Coefficients of exp(drift + sum_k s_k driven_k), shape (prod(nodes), size, size)."""
    angles = [(np.arange(n) + 0.5) * np.pi / n for n in nodes]
    points = itertools.product(*map(np.cos, angles))
    values = [
        scipy.linalg.expm(drift + sum(s * g for s, g in zip(point, driven, strict=True)))
        for point in points
    ]
    table = np.reshape(values, (*nodes, *drift.shape))
    for axis, (n, angle) in enumerate(zip(nodes, angles, strict=True)):
        transform = np.cos(np.outer(np.arange(n), angle)) * 2 / n
        transform[0] /= 2
        table = np.moveaxis(np.tensordot(transform, table, axes=(1, axis)), 0, axis)
    return table.reshape(-1, *drift.shape)

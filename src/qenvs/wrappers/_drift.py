"""Slow drift: a stationary process of the episode index that can be read at any episode.

The standard normal number of episode i is z(i) of the stationary Ornstein-Uhlenbeck process

    E z(i) z(j) = exp(-|i - j|/tau)

with tau the memory in episodes; in single steps it is z(i+1) = a z(i) + sqrt(1 - a^2) xi with
a = exp(-1/tau). It is built from its bridges, not step by step: halfway between two known points
the process is normal with the mean (z_l + z_r)/(2 cosh h) and the variance tanh h, where h is half
the distance over tau. From a block that is too long for its ends to be correlated, log2(20 tau)
halvings lead to any episode, and each point has a key of its own: z depends on the run key and the
index alone, as every other draw does.

Reference: Gillespie, Phys. Rev. E 54, 2084 (1996), for the process.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import erf, erfinv

from qenvs import _checks
from qenvs.distributions import NORMAL_REACH, Distribution, Normal, TruncatedNormal, Uniform

LONGEST_MEMORY = 1e6
"""Episodes; a parameter that stays put for longer is a nominal value."""

LARGEST_RANK = np.float32(1 - 2.0**-24)
"""Beyond it the inverse error function is infinite in float32."""


def check_drift(memory: Any, distributions: Mapping[str, Distribution]) -> float:
    """`memory` as a float; ValueError unless in range, TypeError for an unknown distribution."""
    number = float(_checks.positive("drift", _checks.as_parameter(memory)))
    if number > LONGEST_MEMORY:
        raise ValueError(f"`drift` must be <= {LONGEST_MEMORY:g} episodes, got {number:g}")
    for name, distribution in distributions.items():
        if not isinstance(distribution, Normal | Uniform | TruncatedNormal):
            raise TypeError(
                f"`{name}` can only drift as a Normal, Uniform or TruncatedNormal, "
                f"got {distribution!r}"
            )
    return number


def drifting_normal(key: Array, index: Array, memory: float) -> Array:
    """z(index), float32.

    Args:
        key: key of the whole process.
        index: episode, >= 0.
        memory: tau, in episodes.
    """
    halvings = max(1, math.ceil(math.log2(20 * memory)))

    def fresh(i: Array) -> Array:
        return jax.random.normal(jax.random.fold_in(key, i), (), jnp.float32)

    def halve(k: Array, block: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        start, left, right = block
        half = jnp.left_shift(1, halvings - 1 - k)
        h = half.astype(jnp.float32) / np.float32(memory)
        middle = start + half
        value = (left + right) / (2 * jnp.cosh(h)) + jnp.sqrt(jnp.tanh(h)) * fresh(middle)
        later = index >= middle
        chosen = jnp.where(later, middle, start)
        return chosen, jnp.where(later, value, left), jnp.where(later, right, value)

    start = jnp.left_shift(jnp.right_shift(index, halvings), halvings)
    block = start, fresh(start), fresh(start + 2**halvings)
    z = jax.lax.fori_loop(0, halvings, halve, block)[1]
    return jnp.clip(z, -NORMAL_REACH, NORMAL_REACH)  # what the dynamics are exact for


def offset_of_normal(distribution: Distribution, strength: float, z: Array) -> Array:
    """The offset of the rank that z has among standard normals, float32."""
    low, high = distribution.offset_range(strength)
    if low == high:
        return jnp.zeros_like(z)
    if isinstance(distribution, Normal):
        return np.float32(distribution.stddev(strength)) * z
    rank = erf(z / math.sqrt(2))  # uniform on (-1, 1)
    if isinstance(distribution, TruncatedNormal):
        width = math.sqrt(2) * distribution.std * strength
        ends = math.erf(low / width), math.erf(high / width)
        place = (sum(ends) + (ends[1] - ends[0]) * rank) / 2
        offset = width * erfinv(jnp.clip(place, -LARGEST_RANK, LARGEST_RANK))
    else:
        offset = high * rank
    inward = np.nextafter(np.array([low, high], np.float32), np.float32(0))
    return jnp.clip(offset, *inward)

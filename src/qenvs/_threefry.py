"""Threefry-2x32 with its rounds written out: the numbers of `jax.random`, sooner on a CPU.

There JAX compiles the hash as a loop of many small kernels, so that large programs compile faster.
A few numbers per lane cost less when the rounds and what follows them are one vectorised kernel.

Reference: Salmon et al., Proc. SC11 (2011), https://doi.org/10.1145/2063384.2063405
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.random import define_prng_impl

from qenvs._checks import is_concrete

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry_2x32(key: Array, x0: Array, x1: Array) -> tuple[Array, Array]:
    """The hash of two uint32 words (arrays of one shape) under a key of two words."""
    schedule = key[0], key[1], key[0] ^ key[1] ^ jnp.uint32(PARITY)
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = x0 ^ (x1 << jnp.uint32(distance) | x1 >> jnp.uint32(32 - distance))
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + jnp.uint32(group + 1)
    return x0, x1


def _seed(seed: Array) -> Array:
    return jax.random.key_data(jax.random.key(seed, impl="threefry2x32"))


def _numbered(key: Array, shape: Sequence[int]) -> tuple[Array, Array]:
    """The hashes of 0, 1, 2, ... in an array of this shape, of fewer than 2^32 entries."""
    numbers = jnp.arange(math.prod(shape), dtype=jnp.uint32).reshape(shape)
    return threefry_2x32(key, jnp.zeros_like(numbers), numbers)


def _pair(words: tuple[Array, Array]) -> Array:
    """Both words along a last axis."""
    return jnp.concatenate([word[..., None] for word in words], axis=-1)


def _split(key: Array, shape: Sequence[int]) -> Array:
    return _pair(_numbered(key, shape))


def _random_bits(key: Array, bit_width: int, shape: Sequence[int]) -> Array:
    first, second = _numbered(key, shape)
    if bit_width == 64:
        return first.astype(jnp.uint64) << jnp.uint64(32) | second.astype(jnp.uint64)
    return (first ^ second).astype(f"uint{bit_width}")


def _fold_in(key: Array, data: Array | int) -> Array:
    word = jnp.asarray(data, jnp.uint32)
    return _pair(threefry_2x32(key, jnp.zeros_like(word), word))


UNROLLED = define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="threefry2x32_unrolled",
    tag="fryu",
)


def unrolled(key: Array) -> Array:
    """A typed key that gives the same numbers where it is traced; else, a clone of the key.

    A clone is also what a key of another hash becomes, and a key that is known: JAX has compiled
    its own hash, while rounds that are written out would run one operation at a time. The result
    is meant to be used up within a function: a state or a user keeps the original.
    """
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    ours = partitionable and str(jax.random.key_impl(key)) == "threefry2x32"
    if is_concrete(key) or not ours:
        return jax.random.clone(key)
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(jax.random.key_data(key) if typed else key, impl=UNROLLED)

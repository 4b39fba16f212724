"""The written-out hash gives the numbers of `jax.random`, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from brute_force import enable_x64
from qenvs._threefry import UNROLLED, unrolled

KEYS = [jax.random.PRNGKey(2**31 + 5), jax.random.key(11)]
SHAPES = [(), (1,), (7,), (3, 5)]


def words(key):
    return np.asarray(jax.random.key_data(key))


@pytest.mark.parametrize("key", KEYS, ids=["raw", "typed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_and_floats(key, shape):
    for dtype in (jnp.uint8, jnp.uint16, jnp.uint32):
        same = jax.random.bits(unrolled(key), shape, dtype) == jax.random.bits(key, shape, dtype)
        assert np.all(same)
    with enable_x64():
        for dtype in (jnp.float32, jnp.float64):
            for draw in (jax.random.normal, jax.random.uniform):
                assert np.array_equal(draw(unrolled(key), shape, dtype), draw(key, shape, dtype))


@pytest.mark.parametrize("key", KEYS, ids=["raw", "typed"])
def test_keys_made_of_keys(key):
    quick = unrolled(key)
    for number in (0, 7, 2**31 - 1, np.uint32(2**32 - 1), jnp.int32(3)):
        folded = jax.random.fold_in(key, number)
        assert np.array_equal(words(jax.random.fold_in(quick, number)), words(folded))
    for shape in (2, 5, (2, 3)):
        expected = words(jax.random.split(key, shape))
        assert np.array_equal(words(jax.random.split(quick, shape)), expected)
    assert np.array_equal(words(jax.random.key(4, impl=UNROLLED)), words(jax.random.key(4)))


def test_lanes_are_independent_of_the_batch():
    batch = jax.random.split(KEYS[0], 16)
    lanes = jax.jit(jax.vmap(lambda k, n: jax.random.normal(jax.random.fold_in(unrolled(k), n))))
    for lane in range(0, 16, 5):
        alone = jax.random.normal(jax.random.fold_in(batch[lane], lane))
        assert lanes(batch, jnp.arange(16))[lane] == alone


def test_other_hashes_are_left_alone():
    key = jax.random.key(3, impl="rbg")
    assert unrolled(key) == key
    with jax.threefry_partitionable(False):
        assert unrolled(KEYS[1]) == KEYS[1]
        assert np.array_equal(unrolled(KEYS[0]), KEYS[0])

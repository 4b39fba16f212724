"""The written-out hash gives the numbers of `jax.random`, bit for bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from brute_force import enable_x64
from qenvs._threefry import UNROLLED, unrolled

KEYS = [jax.random.PRNGKey(2**31 + 5), jax.random.key(11)]
SHAPES = [(), (1,), (7,), (3, 5)]


@pytest.fixture(autouse=True)
def partitionable():
    """What JAX counts up to is another number without it, as it is by default before JAX 0.5."""
    with jax.threefry_partitionable(True):
        yield


def words(key):
    return np.asarray(jax.random.key_data(key))


def written_out(key):
    return jax.random.wrap_key_data(words(key), impl=UNROLLED)


@pytest.mark.parametrize("key", KEYS, ids=["raw", "typed"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_and_floats(key, shape):
    quick = written_out(key)
    for dtype in (jnp.uint8, jnp.uint16, jnp.uint32):
        same = jax.random.bits(quick, shape, dtype) == jax.random.bits(key, shape, dtype)
        assert np.all(same)
    with enable_x64():
        for dtype in (jnp.float32, jnp.float64):
            for draw in (jax.random.normal, jax.random.uniform):
                assert np.array_equal(draw(quick, shape, dtype), draw(key, shape, dtype))


@pytest.mark.parametrize("key", KEYS, ids=["raw", "typed"])
def test_keys_made_of_keys(key):
    quick = written_out(key)
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


def test_only_traced_keys_of_this_hash_are_written_out():
    for key in KEYS:
        written = written_out(key).dtype
        assert jax.eval_shape(unrolled, key).dtype == written
        assert unrolled(key).dtype == key.dtype and np.array_equal(words(unrolled(key)), words(key))
        with jax.threefry_partitionable(False):
            assert jax.eval_shape(unrolled, key).dtype == key.dtype != written
    other = jax.random.key(3, impl="rbg")
    assert jax.eval_shape(unrolled, other).dtype == other.dtype

"""A part that the compiler keeps apart computes what the function computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from compilations import compilations
from qenvs._apart import BLOCK, BLOCKS, apart, in_blocks


def wave(x, options):
    rate, shift = options
    return {"y": jnp.sin(rate * x), "z": None if shift == 0 else x + shift}


def test_numbers_run_as_they_are():
    called = []
    apart(lambda x: called.append(type(x)))(2.0)
    assert called == [float]


def test_it_changes_no_result_and_no_derivative():
    x = jnp.linspace(0.0, 1.0, 5)
    for function in (wave, apart(wave)):
        value = jax.jit(jax.vmap(lambda t, f=function: f(t, (3.0, 0))["y"]))(x)
        slope = jax.grad(lambda t, f=function: f(t, (t, 1.0))["y"] * f(t, (t, 1.0))["z"])(0.5)
        np.testing.assert_allclose(value, np.sin(3 * x), rtol=1e-6)
        exact = np.cos(0.25) * 2 * 0.5 * 1.5 + np.sin(0.25)
        np.testing.assert_allclose(slope, exact, rtol=1e-6)


def test_what_is_known_while_tracing_stays_known():
    def outcome(x):
        return apart(wave)(x, (2.0, 0))

    shapes = jax.eval_shape(outcome, jnp.zeros(()))
    assert shapes["z"] is None


def test_without_jit_nothing_is_compiled_again():
    x = jnp.linspace(0.0, 1.0, 5)

    def transformed():
        values = jax.vmap(lambda t: apart(wave)(t, (3.0, 1.0))["y"])(x)
        return values, jax.grad(lambda t: apart(wave)(t, (t, 1.0))["y"])(0.5)

    transformed()
    with compilations() as compiled:
        transformed()
    assert not compiled


def test_other_backends_are_left_alone(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    text = jax.jit(apart(jnp.sin)).lower(1.0).as_text()
    assert "inlineable" not in text and "call @" not in text


def test_the_compiler_keeps_it_apart_and_inlines_what_is_inside():
    text = jax.jit(lambda x: apart(lambda y: jnp.clip(y, 0, 1) * 2)(x) + 1).lower(1.0).as_text()
    calls = [line for line in text.splitlines() if " call @" in line]
    assert sum('inlineable = "false"' in line for line in calls) == 1
    assert sum('inlineable = "true"' in line for line in calls) >= 1


def draw(key, scale):
    return scale * jax.random.normal(key, (2,))


@pytest.mark.parametrize("size", [1, BLOCK, BLOCK + 1, 3 * BLOCK, BLOCKS * BLOCK + 1])
def test_blocks_change_no_lane(size):
    keys = jax.random.split(jax.random.PRNGKey(1), size)
    expected = jax.jit(jax.vmap(draw, (0, None)))(keys, 2.0)
    found = jax.jit(jax.vmap(in_blocks(draw), (0, None)))(keys, 2.0)
    assert np.array_equal(found, expected)
    twice = jax.jit(jax.vmap(jax.vmap(in_blocks(draw), (0, None)), (None, 0)))(keys, np.ones(2))
    assert np.array_equal(twice[1], expected / 2)


def test_blocks_stand_beside_what_has_a_derivative():
    def product(x, key):
        return x**2 * in_blocks(draw)(key, jnp.floor(x))[0]

    keys = jax.random.split(jax.random.PRNGKey(1), 2 * BLOCK)
    x = jnp.full(len(keys), 3.5)
    slope = jax.jit(jax.vmap(jax.grad(product)))(x, keys)
    drawn = jax.vmap(draw, (0, None))(keys, 3.0)[:, 0]
    np.testing.assert_allclose(slope, 7 * drawn, rtol=1e-6)


def test_a_few_blocks_are_parts_of_their_own():
    keys = jax.random.split(jax.random.PRNGKey(1), 3 * BLOCK)
    text = jax.jit(jax.vmap(in_blocks(draw), (0, None))).lower(keys, 1.0).as_text()
    assert text.count('inlineable = "false"') == 3

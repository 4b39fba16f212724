"""A part that the compiler keeps apart computes what the function computes."""

import jax
import jax.numpy as jnp
import numpy as np

from qenvs._apart import apart


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


def test_the_compiler_keeps_it_apart_and_inlines_what_is_inside():
    text = jax.jit(lambda x: apart(lambda y: jnp.clip(y, 0, 1) * 2)(x) + 1).lower(1.0).as_text()
    calls = [line for line in text.splitlines() if " call @" in line]
    assert sum('inlineable = "false"' in line for line in calls) == 1
    assert sum('inlineable = "true"' in line for line in calls) >= 1

"""The step as a polynomial of the controls, against SciPy's matrix exponential."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import iv

from brute_force import enable_x64, random_density
from qenvs.dynamics import DensityCoordinates, KetCoordinates, build_generator
from qenvs.dynamics.expansion import MAX_TERMS, control_expansion, expand, node_count
from systems import random_hermitian

BOUNDS = (0.8, 0.5)


def closed(rng, d, controls):
    hamiltonians = [random_hermitian(rng, d) for _ in range(1 + controls)]
    return build_generator(KetCoordinates, (d,), hamiltonians, [])


def opened(rng, d, controls):
    hamiltonians = [random_hermitian(rng, d) for _ in range(1 + controls)]
    jump = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    return build_generator(DensityCoordinates, (d,), hamiltonians, [jump])


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(
    ("build", "d", "controls"), [(closed, 4, 1), (closed, 3, 2), (opened, 3, 1), (opened, 2, 2)]
)
def test_a_step_is_the_exponential(build, d, controls, precision):
    rng = np.random.default_rng(0)
    generator, dt = build(rng, d, controls), 0.1
    constants = (1.3, *BOUNDS[:controls], *[0.4] * (len(generator.operators) - 1 - controls))
    indices, bounds = tuple(range(1, 1 + controls)), BOUNDS[:controls]
    start = (
        random_density(rng, d) if build is opened else np.linalg.qr(rng.normal(size=(d, d)))[0][0]
    )
    x = np.asarray(generator.coordinates.encode(start.astype(complex)))
    with enable_x64(precision == "float64"):
        expansion = control_expansion(
            generator, constants, indices, bounds, dt, jnp.zeros(()).dtype
        )
        assert expansion is not None
        for scaled in [np.zeros(controls), *rng.uniform(-1, 1, (4, controls)), -np.ones(controls)]:
            weights = np.array(constants)
            weights[list(indices)] = scaled * bounds
            want = expm(dt * np.tensordot(weights, generator.operators, axes=1)) @ x
            got = expand(expansion, jnp.asarray(scaled), jnp.asarray(x))
            np.testing.assert_allclose(got, want, atol=20 * np.finfo(precision).eps)


def test_PH_12_derivatives_in_the_controls_are_those_of_the_exponential():
    rng = np.random.default_rng(1)
    generator = opened(rng, 3, 1)
    x = generator.coordinates.encode(random_density(rng, 3)).real
    weights = np.array([1.0, 0.0, 0.3])

    def exact(u):
        weights[1] = u
        return (expm(0.2 * np.tensordot(weights, generator.operators, axes=1)) @ x)[4]

    with enable_x64():
        expansion = control_expansion(
            generator, tuple(weights), (1,), (0.7,), 0.2, np.dtype("float64")
        )

        def moved(u):
            return expand(expansion, u[None] / 0.7, jnp.asarray(x))[4]

        h = 1e-5
        for u in (0.0, 0.31, 0.7):
            slope = (exact(u + h) - exact(u - h)) / (2 * h)
            assert float(jax.grad(moved)(jnp.asarray(u))) == pytest.approx(slope, rel=1e-6)
            assert np.isfinite(float(jax.grad(jax.grad(moved))(jnp.asarray(u))))


def test_enough_terms_and_hardly_more():
    for norm in (0.01, 0.3, 2.0, 10.0):
        for tolerance in (1e-8, 1e-16):
            n = node_count(norm, tolerance)
            assert 2 * iv(n, norm) <= tolerance
            assert 2 * iv(n - 3, norm) > tolerance or n <= 3


def test_many_or_strong_controls_are_left_to_the_series():
    rng = np.random.default_rng(2)
    generator = closed(rng, 3, 3)
    constants, dtype = (1.0, 1.0, 1.0, 1.0), np.dtype("float32")
    assert control_expansion(generator, constants, (1, 2, 3), (1.0,) * 3, 0.5, dtype) is None
    assert control_expansion(generator, constants, (1,), (1e4,), 0.5, dtype) is None
    few = control_expansion(generator, constants, (1,), (1.0,), 0.5, dtype)
    assert few is not None
    assert len(few.degrees) <= MAX_TERMS

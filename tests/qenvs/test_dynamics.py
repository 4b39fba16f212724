"""The engine against SciPy's matrix exponential, closed forms, and itself where it must agree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm

from qenvs.dynamics import (
    DensityCoordinates,
    Generator,
    KetCoordinates,
    PropagatorCoordinates,
    SuperoperatorCoordinates,
    build_generator,
    evolve,
    length_for,
)
from qenvs.dynamics.coordinates import dissipator, liouvillian

ERROR_CONSTANT = 10.0  # the c of the documented bound c eps max(1, ||G dt||)
NORMS = (0.0, 1e-3, 0.3, 1.0, 5.0, 50.0)
PRECISIONS = ("float32", "float64")


def enable_x64(on: bool):
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    from jax.experimental import enable_x64

    return enable_x64(on)


@pytest.fixture(params=PRECISIONS)
def eps(request):
    """Rounding unit, with JAX in the precision of the parameter."""
    with enable_x64(request.param == "float64"):
        yield float(np.finfo(request.param).eps)


def hermitian(rng, d):
    a = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    return (a + a.conj().T) / 2


def random_ket(rng, d):
    psi = rng.normal(size=d) + 1j * rng.normal(size=d)
    return psi / np.linalg.norm(psi)


def random_density(rng, d):
    a = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    rho = a @ a.conj().T
    return rho / np.trace(rho).real


def column_stacked(rho):
    return rho.T.reshape(-1)


class System:
    """A random generator u0 H0 + u1 H1 (+ jumps), its start, and the exact answer."""

    def __init__(self, kind, d, seed=0):
        rng = np.random.default_rng([d, seed])
        self.kind, self.d, self.u = kind, d, np.array([0.7, -0.4])
        self.h = [hermitian(rng, d), hermitian(rng, d)]
        self.jumps = [rng.normal(size=(d, d)) + 0.5j * rng.normal(size=(d, d))]
        total = self.u[0] * self.h[0] + self.u[1] * self.h[1]
        is_open = kind in (DensityCoordinates, SuperoperatorCoordinates)
        self.matrix = -1j * total
        if is_open:
            self.matrix = (liouvillian(total) + 0.3 * dissipator(self.jumps[0])).toarray()
        self.start = {
            KetCoordinates: lambda: random_ket(rng, d),
            DensityCoordinates: lambda: random_density(rng, d),
            PropagatorCoordinates: lambda: np.eye(d, dtype=complex),
            SuperoperatorCoordinates: lambda: np.eye(d * d, dtype=complex),
        }[kind]()
        self.coefficients = [*self.u, 0.3] if is_open else list(self.u)
        self.generator = build_generator(kind, (d,), self.h, self.jumps if is_open else [])
        self.norm = np.linalg.norm(self.matrix, 2)

    def exact(self, dt):
        moved = expm(dt * self.matrix)
        if self.kind is DensityCoordinates:
            return (moved @ column_stacked(self.start)).reshape(self.d, self.d).T
        return moved @ self.start

    def run(self, dt, length=None, coefficients=None):
        x = jnp.asarray(self.generator.coordinates.encode(self.start), float)
        c = self.coefficients if coefficients is None else coefficients
        return self.generator.coordinates.decode(evolve(self.generator, c, x, dt, length))


CASES = [
    (KetCoordinates, 2),
    (KetCoordinates, 3),
    (KetCoordinates, 8),
    (KetCoordinates, 16),
    (PropagatorCoordinates, 2),
    (PropagatorCoordinates, 3),
    (PropagatorCoordinates, 9),
    (DensityCoordinates, 2),
    (DensityCoordinates, 5),
    (SuperoperatorCoordinates, 2),
    (SuperoperatorCoordinates, 3),
]


@pytest.mark.parametrize(("kind", "d"), CASES)
def test_error_stays_below_the_documented_bound(kind, d, eps):
    system = System(kind, d)
    run = jax.jit(lambda dt, c: system.run(dt, None, list(c)))
    for norm in NORMS:
        dt = norm / system.norm
        got = np.asarray(run(dt, jnp.asarray(system.coefficients, float)))
        exact = system.exact(dt)
        error = np.linalg.norm(got - exact) / np.linalg.norm(exact)
        assert error <= ERROR_CONSTANT * eps * max(1.0, norm), (norm, error / eps)


@pytest.mark.slow
def test_error_bound_on_a_density_matrix_of_dimension_16(eps):
    system = System(DensityCoordinates, 16)
    for norm in (0.3, 5.0):
        dt = norm / system.norm
        error = np.linalg.norm(np.asarray(system.run(dt)) - system.exact(dt))
        assert error <= ERROR_CONSTANT * eps * max(1.0, norm)


@pytest.mark.parametrize("kind", [KetCoordinates, DensityCoordinates])
@pytest.mark.parametrize("norm", [0.2, 3.0])
def test_static_length_and_traced_bound_agree(kind, norm, eps):
    system = System(kind, 3)
    dt = norm / system.norm
    bound = dt * system.generator.norm_bound(system.coefficients)
    length = length_for(system.generator, bound)
    static = np.asarray(system.run(dt, length))
    by_value = np.asarray(
        jax.jit(lambda c: system.run(dt, None, list(c)))(jnp.asarray(system.coefficients, float))
    )
    assert np.allclose(static, by_value, rtol=0, atol=ERROR_CONSTANT * eps * max(1, norm))


def test_one_length_class_to_spare():
    """A traced coefficient may grow by sqrt 2 beyond the bound that fixed the series."""
    system = System(KetCoordinates, 4)
    dt = 1.0 / system.norm
    length = length_for(system.generator, dt * system.generator.norm_bound(system.coefficients))
    grown = [c * 1.4 for c in system.coefficients]
    got = np.asarray(system.run(dt, length, grown))
    exact = expm(1.4 * dt * system.matrix) @ system.start
    assert np.linalg.norm(got - exact) < 1e-6


def test_unknown_bound_is_exact_whatever_the_value():
    """A coefficient a thousand times the nominal one needs a thousand times the substeps."""
    system = System(KetCoordinates, 3)
    dt = 1.0 / system.norm
    run = jax.jit(lambda c: system.run(dt, None, list(c)))
    huge = np.array([300.0, -200.0])
    total = huge[0] * system.h[0] + huge[1] * system.h[1]
    exact = expm(-1j * dt * total) @ system.start
    got = np.asarray(run(jnp.asarray(huge)))
    norm = dt * np.linalg.norm(total, 2)
    assert np.linalg.norm(got - exact) < ERROR_CONSTANT * np.finfo(np.float32).eps * norm


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.floats(0.0, 2.0), st.floats(0.0, 2.0))
def test_composition_unitarity_and_positivity(seed, t1, t2):
    ket, rho = System(KetCoordinates, 3, seed), System(DensityCoordinates, 3, seed)
    for system in (ket, rho):
        g = system.generator
        x = jnp.asarray(g.coordinates.encode(system.start), float)
        both = evolve(g, system.coefficients, evolve(g, system.coefficients, x, t1), t2)
        once = evolve(g, system.coefficients, x, t1 + t2)
        tolerance = 3e-6 * max(1.0, system.norm * (t1 + t2))
        assert np.allclose(both, once, atol=tolerance)
    final = np.asarray(rho.run(t1))
    assert np.trace(final).real == pytest.approx(1, abs=1e-6)
    assert np.linalg.eigvalsh(final).min() > -2e-6 * max(1.0, rho.norm * t1)
    assert np.linalg.norm(np.asarray(ket.run(t1))) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("kind", "d"),
    [(KetCoordinates, 2), (KetCoordinates, 3), (DensityCoordinates, 2), (PropagatorCoordinates, 3)],
)
def test_PH_11_no_drift_in_ten_thousand_float32_steps(kind, d):
    """Norm, trace and unitarity hold to 1e-6; the state itself is off by the sum of rounding."""
    system = System(kind, d)
    coordinates, steps, dt = system.generator.coordinates, 10_000, 0.1
    x = jnp.asarray(coordinates.encode(system.start), jnp.float32)

    def step(_, y):
        return evolve(system.generator, system.coefficients, y, dt)

    final = np.asarray(
        coordinates.decode(jax.jit(lambda y: jax.lax.fori_loop(0, steps, step, y))(x))
    )
    if kind is KetCoordinates:
        assert abs(np.linalg.norm(final) - 1) < 1e-6
    elif kind is DensityCoordinates:
        assert abs(np.trace(final) - 1) < 1e-6
    else:
        assert np.abs(final.conj().T @ final - np.eye(d)).max() < 1e-6
    error = np.linalg.norm(final - system.exact(steps * dt)) / np.linalg.norm(system.start)
    assert error < 2e-3, error


def test_trap_perfect_pi_pulses_do_not_drift():
    """1000 pi pulses in complex64 drift to F = 0.99996 when nobody looks after the norm."""
    sx = np.array([[0, 1], [1, 0]], complex)
    g = build_generator(KetCoordinates, (2,), [sx / 2], [])
    x = jnp.asarray(g.coordinates.encode(np.array([1, 0], complex)), jnp.float32)
    final = jax.lax.fori_loop(0, 1000, lambda _, y: evolve(g, [np.pi], y, 1.0), x)
    assert abs(np.sum(np.asarray(final[jnp.array([0, 2])]) ** 2) - 1) < 1e-6


@pytest.mark.claims("CM-1")
def test_CM_1_trap_column_stacking():
    """H = sx + sy, jumps s- and s+, start 0.5 ones: a mixed stacking would conjugate rho01."""
    sx, sy = np.array([[0, 1], [1, 0]], complex), np.array([[0, -1j], [1j, 0]])
    lower = np.array([[0, 1], [0, 0]], complex)
    start = 0.5 * np.ones((2, 2), complex)
    g = build_generator(DensityCoordinates, (2,), [sx + sy], [lower, lower.T], start)
    with enable_x64(True):
        x = jnp.asarray(g.coordinates.encode(start))
        rho = np.asarray(g.coordinates.decode(evolve(g, [1.0, 1.0, 1.0], x, 0.5)))
    assert rho[0, 0].real == pytest.approx(0.33302765, abs=1e-8)
    assert rho[0, 1] == pytest.approx(0.19351309 - 0.10975224j, abs=1e-8)


def test_trap_qutip_sigmam_lifts_index_1():
    """QuTiP's sigmam is [[0, 0], [1, 0]]: sqrt(0.1) of it for t = 2 pi fills index 1."""
    start = np.diag([1.0, 0.0]).astype(complex)
    g = build_generator(DensityCoordinates, (2,), [], [np.array([[0, 0], [1, 0]], complex)], start)
    x = jnp.asarray(g.coordinates.encode(start), float)
    rho = g.coordinates.decode(evolve(g, [0.1], x, 2 * np.pi))
    assert float(rho[1, 1].real) == pytest.approx(0.466512, abs=1e-6)


@pytest.mark.parametrize(("kind", "d"), CASES[:2] + CASES[4:6] + CASES[7:8])
def test_OP_10_gradients_match_central_differences(kind, d):
    with enable_x64(True):
        system = System(kind, d)
        weights = np.random.default_rng(1).normal(size=system.start.shape)

        @jax.jit
        def value(c, dt):
            return jnp.sum(weights * jnp.abs(system.run(dt, 2, list(c))) ** 2)

        c = jnp.asarray(system.coefficients)
        dt = 0.3 / system.norm
        for argument in (0, 1):
            gradient = np.atleast_1d(jax.jit(jax.grad(value, argument))(c, dt))
            numeric = central_differences(
                lambda z, a=argument: value(*((z, dt) if a == 0 else (c, z[0]))),
                c if argument == 0 else jnp.array([dt]),
            )
            assert np.allclose(gradient, numeric, rtol=1e-6, atol=1e-8)
            forward = np.atleast_1d(jax.jit(jax.jacfwd(value, argument))(c, dt))
            assert np.allclose(gradient, forward, rtol=1e-9, atol=1e-12)


def central_differences(f, z, h=1e-6):
    steps = np.eye(len(z)) * h
    return np.array([(f(z + s) - f(z - s)) / (2 * h) for s in steps])


@pytest.mark.parametrize("kind", [KetCoordinates, PropagatorCoordinates, DensityCoordinates])
@pytest.mark.parametrize("d", [2, 3])
def test_PH_12_derivatives_are_finite_at_degeneracies(kind, d):
    """u = 0, H = 0 and H ~ 1, alone and under vmap; the second derivative too."""
    one, h = np.eye(d, dtype=complex), hermitian(np.random.default_rng(0), d)
    jumps = [np.eye(d, k=1, dtype=complex)] if kind is DensityCoordinates else []
    start = one if kind is PropagatorCoordinates else np.eye(d, dtype=complex)[0]
    g = build_generator(kind, (d,), [one, h], jumps)
    x = jnp.asarray(g.coordinates.encode(start), jnp.float32)

    def value(u, length):
        return jnp.sum(evolve(g, [u[0], u[1]] + [0.1] * len(jumps), x, 0.5, length)[:2] ** 2)

    points = jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1e-6]])
    for length in (None, 1):
        gradient = jax.jit(jax.vmap(jax.grad(lambda u, n=length: value(u, n))))(points)
        assert np.isfinite(gradient).all()
    assert np.isfinite(jax.jit(jax.grad(value), static_argnums=1)(points[0], 1)).all()
    assert np.isfinite(jax.jit(jax.vmap(jax.hessian(lambda u: value(u, 1))))(points)).all()


def test_PH_12_value_of_a_derivative():
    """<psi|sz|psi> after exp(-i u sx / 2) on |0> is cos u, its derivative -sin u."""
    g = build_generator(KetCoordinates, (2,), [np.array([[0, 1], [1, 0]], complex) / 2], [])
    x = jnp.array([1.0, 0.0, 0.0, 0.0])

    def sz(u):
        y = evolve(g, [u], x, 1.0) ** 2
        return y[0] + y[2] - y[1] - y[3]

    assert float(jax.grad(sz)(0.3)) == pytest.approx(-0.295520, abs=1e-6)
    assert float(jax.vmap(jax.grad(sz))(jnp.array([0.3]))[0]) == pytest.approx(-0.295520, abs=1e-6)


def test_support_is_what_the_start_can_reach():
    """Two uncoupled qubits, one driven: the other's excited states stay out of the series."""
    x = np.array([[0, 1], [1, 0]], complex)
    drive, start = np.kron(x, np.eye(2)), np.eye(4, dtype=complex)[0]
    g = build_generator(KetCoordinates, (2, 2), [drive], [], start)
    assert g.coordinates.size == 2  # Re<00| and Im<10|: exp(-i u sx) from |00>
    exact = expm(-0.4j * drive) @ start
    y = evolve(g, [0.4], jnp.asarray(g.coordinates.encode(start), float), 1.0)
    assert np.allclose(g.coordinates.decode(y), exact, atol=1e-6)
    assert np.allclose(
        g.coordinates.real_and_imaginary(y), np.r_[exact.real, exact.imag], atol=1e-6
    )


def test_generators_compare_by_value():
    a, b = System(KetCoordinates, 3).generator, System(KetCoordinates, 3).generator
    assert a == b and hash(a) == hash(b)
    assert a != System(KetCoordinates, 3, seed=1).generator
    assert isinstance(a, Generator) and a != "something else"


def test_a_ket_refuses_jump_operators():
    with pytest.raises(ValueError, match="density coordinates"):
        build_generator(KetCoordinates, (2,), [], [np.eye(2)])


@pytest.mark.parametrize(
    "kind", [KetCoordinates, DensityCoordinates, PropagatorCoordinates, SuperoperatorCoordinates]
)
def test_encode_and_decode_are_inverse(kind):
    system = System(kind, 3)
    coordinates = system.generator.coordinates
    decoded = coordinates.decode(jnp.asarray(coordinates.encode(system.start)))
    assert np.allclose(decoded, system.start, atol=1e-6)
    parts = coordinates.real_and_imaginary(jnp.asarray(coordinates.encode(system.start)))
    flat = system.start.reshape(-1)
    assert np.allclose(parts, np.concatenate([flat.real, flat.imag]), atol=1e-6)

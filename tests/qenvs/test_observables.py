"""Energy, ergotropy, purity, reduced states against NumPy; derivatives where spectra degenerate."""

import dynamiqs as dq
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qutip
from hypothesis import given, settings
from hypothesis import strategies as st

import brute_force
from brute_force import enable_x64, random_density
from qenvs import observables
from systems import random_hermitian

SEEDS = st.integers(0, 10**6)
few = settings(max_examples=25)  # every dimension compiles anew
DIMENSIONS = st.integers(2, 6)


def test_energy_purity_and_a_superposition():
    plus = np.array([1, 1j]) / np.sqrt(2)
    hamiltonian = np.diag([0.0, 3.0])
    assert observables.energy(plus, hamiltonian) == pytest.approx(1.5)
    assert observables.purity(plus) == pytest.approx(1)
    assert observables.purity(np.eye(4) / 4) == pytest.approx(0.25)


ergotropy, passive_state = jax.jit(observables.ergotropy), jax.jit(observables.passive_state)


@few
@given(SEEDS, DIMENSIONS)
def test_ergotropy_is_what_sorting_the_spectra_gives(seed, d):
    rng = np.random.default_rng(seed)
    rho, hamiltonian = random_density(rng, d), random_hermitian(rng, d)
    with enable_x64():
        got = float(ergotropy(rho, hamiltonian))
        passive = np.asarray(passive_state(rho, hamiltonian))
        left = observables.energy(rho, hamiltonian) - observables.energy(passive, hamiltonian)
        left = float(left)
    assert got == pytest.approx(brute_force.ergotropy(rho, hamiltonian), abs=1e-12)
    assert left == pytest.approx(got, abs=1e-12)
    np.testing.assert_allclose(passive @ hamiltonian, hamiltonian @ passive, atol=1e-12)
    np.testing.assert_allclose(np.linalg.eigvalsh(passive), np.linalg.eigvalsh(rho), atol=1e-12)


def test_a_pure_state_gives_up_all_its_energy_and_a_gibbs_state_none():
    hamiltonian = np.diag([0.0, 1.0, 2.5])
    gibbs = np.diag(np.exp(-np.diag(hamiltonian)))
    assert observables.ergotropy(gibbs / np.trace(gibbs), hamiltonian) == 0
    ket = np.array([0.6, 0, 0.8j])
    assert observables.ergotropy(ket, hamiltonian) == pytest.approx(0.64 * 2.5, rel=1e-6)


@few
@given(SEEDS)
def test_copies_of_blocks_count_one_by_one(seed):
    rng = np.random.default_rng(seed)
    blocks = [(3, 1, 0.5), (2, 4, 0.3), (1, 7, 0.2)]
    rhos = [weight * random_density(rng, size) for size, _, weight in blocks]
    energies = [random_hermitian(rng, size) for size, _, _ in blocks]
    copies = np.concatenate([np.full(size, number) for size, number, _ in blocks])
    full_rho = _direct_sum(
        [r / n for r, (_, n, _) in zip(rhos, blocks, strict=True) for _ in range(n)]
    )
    full_h = _direct_sum(
        [h for h, (_, n, _) in zip(energies, blocks, strict=True) for _ in range(n)]
    )
    with enable_x64():
        got = float(observables.ergotropy(_direct_sum(rhos), _direct_sum(energies), copies))
    assert got == pytest.approx(brute_force.ergotropy(full_rho, full_h), abs=1e-12)


def _direct_sum(matrices):
    d = sum(map(len, matrices))
    total, at = np.zeros((d, d), complex), 0
    for matrix in matrices:
        end = at + len(matrix)
        total[at:end, at:end], at = matrix, end
    return total


DEGENERATE = {
    "maximally mixed qubit": np.eye(2) / 2,
    "ground qubit": np.diag([1.0, 0.0]),
    "maximally mixed": np.eye(4) / 4,
    "pure": np.diag([1.0, 0.0, 0.0, 0.0]),
    "two equal": np.diag([0.4, 0.4, 0.1, 0.1]),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_PH_12_derivatives_of_the_ergotropy_are_finite_at_degeneracies(name, precision):
    with enable_x64(precision == "float64"):
        rho = jnp.asarray(DEGENERATE[name], jnp.result_type(complex))
        hamiltonian = jnp.diag(jnp.arange(rho.shape[0], dtype=rho.real.dtype))
        tilt = jnp.asarray(random_hermitian(np.random.default_rng(0), rho.shape[0]), rho.dtype)

        def work(angle):
            return observables.ergotropy(rho + angle * tilt, hamiltonian)

        def forward(angle):
            return jax.jvp(work, (angle,), (1.0,))[1]

        for derivative in (jax.grad(work), forward, jax.hessian(work)):
            assert np.isfinite(jax.jit(derivative)(0.0))
        assert np.all(np.isfinite(jax.jit(jax.vmap(jax.grad(work)))(jnp.zeros(3))))
        in_the_state = jax.grad(lambda r: observables.ergotropy(r, hamiltonian))
        assert np.all(np.isfinite(jax.jit(in_the_state)(rho)))


@pytest.mark.parametrize("d", [2, 3, 5])
def test_derivatives_of_the_ergotropy_match_central_differences(d):
    rng = np.random.default_rng(d)
    rho, hamiltonian = random_density(rng, d), random_hermitian(rng, d)
    turn, tilt = random_hermitian(rng, d), random_hermitian(rng, d)
    with enable_x64():

        def work(t):
            moved = rho + t * turn
            return observables.ergotropy(moved, hamiltonian + t * t * tilt + 3 * t * turn)

        work, h, near = jax.jit(work), 1e-4, 1e-6
        low, middle, high = (float(work(t)) for t in (-h, 0.0, h))
        slope = (float(work(near)) - float(work(-near))) / (2 * near)
        gradient = float(jax.jit(jax.grad(work))(0.0))
        curvature = float(jax.jit(jax.grad(jax.grad(work)))(0.0))
        forward = float(jax.jit(lambda t: jax.jvp(work, (t,), (1.0,))[1])(0.0))
    assert gradient == pytest.approx(slope, rel=1e-6)
    assert forward == pytest.approx(gradient, rel=1e-12)
    assert curvature == pytest.approx((high - 2 * middle + low) / h**2, rel=1e-3)


def test_equal_eigenvalues_share_their_levels():
    """What only depends on the total weight of a group has one derivative, whatever the copies."""
    copies = np.array([1.0, 2.0])

    def passive(weights):
        return observables.passive_energy(
            weights, copies, np.array([0.0, 1.0]), np.array([3.0, 3.0])
        )

    weights = jnp.array([0.2, 0.4])  # both have probability 0.2 and fill the lower level exactly
    np.testing.assert_allclose(jax.grad(passive)(weights), [0.0, 0.0], atol=1e-7)


@few
@given(SEEDS)
def test_partial_trace_keeps_the_named_factors_in_order(seed):
    rng = np.random.default_rng(seed)
    parts = [random_density(rng, d) for d in (2, 3, 2)]
    rho = np.kron(np.kron(parts[0], parts[1]), parts[2])
    for keep in [(0,), (1,), (0, 2), (2, 0), (0, 1, 2)]:
        want = parts[keep[0]]
        for k in keep[1:]:
            want = np.kron(want, parts[k])
        np.testing.assert_allclose(observables.partial_trace(rho, (2, 3, 2), keep), want, atol=1e-6)


def test_states_of_every_library_are_accepted():
    bell = (qutip.ket("00") + qutip.ket("11")).unit()
    for state in (bell, dq.asqarray(bell), bell.full(), bell.proj()):
        reduced = observables.partial_trace(state, (2, 2), (0,))
        np.testing.assert_allclose(reduced, np.eye(2) / 2, atol=1e-6)
        assert observables.purity(state) == pytest.approx(1, abs=1e-6)
        assert observables.ergotropy(state, qutip.qeye([2, 2])) == pytest.approx(0, abs=1e-6)


def test_a_state_of_another_size_is_refused():
    with pytest.raises(ValueError, match=r"prod\(\(2, 2\)\) = 4, got \(3, 3\)"):
        observables.partial_trace(np.eye(3), (2, 2), (0,))
    with pytest.raises(ValueError, match=r"must have the shape \(3, 3\)"):
        observables.energy(np.eye(3), np.eye(2))

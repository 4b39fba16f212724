"""Gates, transmons and gate tasks against closed forms and SciPy's matrix exponential."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import expm

import qenvs
from qenvs import gates
from qenvs.dynamics.coordinates import dissipator, liouvillian
from qenvs.models import Transmon, TwoTransmon
from qenvs.registration import spec
from qenvs.tasks import cross_resonance

RNG = np.random.default_rng(0)
GATES = [gates.X, gates.Y, gates.Z, gates.H, gates.S, gates.T, gates.SX]
TWO_QUBIT = [gates.CNOT, gates.CZ, gates.ISWAP, gates.SQRT_ISWAP, gates.zx(np.pi / 2)]


def random_unitary(d):
    return np.linalg.qr(RNG.normal(size=(d, d)) + 1j * RNG.normal(size=(d, d)))[0]


def average_over_states(channel, target, k, samples=4000):
    """Monte Carlo of <psi|Ut' E(psi) Ut|psi> over Haar-random states of the first k levels."""
    psi = RNG.normal(size=(samples, k)) + 1j * RNG.normal(size=(samples, k))
    psi /= np.linalg.norm(psi, axis=1, keepdims=True)
    return np.mean([np.real(channel(p, target @ p)) for p in psi])


@pytest.mark.parametrize("gate", GATES + TWO_QUBIT)
def test_gates_are_unitary(gate):
    assert np.allclose(np.conj(gate).T @ gate, np.eye(len(gate)), atol=1e-6)


def test_gate_identities():
    assert np.allclose(gates.SX @ gates.SX, gates.X)
    assert np.allclose(gates.S @ gates.S, gates.Z) and np.allclose(gates.T @ gates.T, gates.S)
    assert np.allclose(gates.SQRT_ISWAP @ gates.SQRT_ISWAP, gates.ISWAP)
    zx = np.kron(gates.Z, gates.X)
    assert np.allclose(gates.zx(0.7), expm(-0.35j * zx), atol=1e-6)
    for rotation, axis in ((gates.rx, gates.X), (gates.ry, gates.Y), (gates.rz, gates.Z)):
        assert np.allclose(rotation(0.7), expm(-0.35j * axis), atol=1e-6)


def test_average_fidelity_counts_leakage_as_error():
    """1 <-> 2 rotated by 0.1 rad against identity: 0.995012; sigma_y against X: 1/3."""
    c, s = np.cos(0.1), np.sin(0.1)
    turned = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    f = gates.average_gate_fidelity(turned, np.eye(2), [0, 1])
    assert float(f) == pytest.approx(0.995012, abs=1e-6)
    assert float(gates.leakage(turned, [0, 1])) == pytest.approx(s**2 / 2, abs=1e-6)
    assert float(gates.seepage(turned, [0, 1])) == pytest.approx(s**2, abs=1e-6)
    assert float(gates.average_gate_fidelity(gates.Y, gates.X)) == pytest.approx(1 / 3, abs=1e-6)


def test_fidelity_ignores_global_phase_and_matches_the_average_over_states():
    u, target = random_unitary(3), random_unitary(2)
    f = float(gates.average_gate_fidelity(u, target, [0, 1]))
    turned = float(gates.average_gate_fidelity(np.exp(0.7j) * u, target, [0, 1]))
    assert f == pytest.approx(turned, abs=1e-6)
    mean = average_over_states(lambda p, q: abs(np.vdot(q, (u[:2, :2]) @ p)) ** 2, target, 2)
    assert f == pytest.approx(mean, abs=0.02)


def test_superoperators_agree_with_unitaries():
    u, target = random_unitary(3), random_unitary(2)
    superop, inside = gates.unitary_to_superop(u), [0, 1]
    pairs = [
        (gates.superop_average_gate_fidelity, gates.average_gate_fidelity, (target, inside)),
        (gates.superop_process_fidelity, gates.process_fidelity, (target, inside)),
        (gates.superop_leakage, gates.leakage, (inside,)),
        (gates.superop_seepage, gates.seepage, (inside,)),
    ]
    for on_superop, on_unitary, arguments in pairs:
        a, b = on_superop(superop, *arguments), on_unitary(u, *arguments)
        assert float(a) == pytest.approx(float(b), abs=1e-6)
    rho = np.diag([0.5, 0.3, 0.2]).astype(complex)
    assert np.allclose(gates.apply_superop(superop, rho), u @ rho @ u.conj().T, atol=1e-6)


def transmon_matrices(model):
    """D n + (alpha/2) n (n - 1) and the two drives, written out."""
    d = model.levels
    a = np.diag(np.sqrt(np.arange(1, d)), 1)
    n = a.T @ a
    drift = 2 * np.pi * float(model.detuning_ghz) * n
    drift = drift + np.pi * float(model.anharmonicity_ghz) * n @ (n - np.eye(d))
    return drift, (a + a.T) / 2, 1j * (a.T - a) / 2


@pytest.mark.parametrize("lifetimes", [{}, {"t1_us": 0.5, "t2_us": 0.3}])
def test_transmon_map_matches_expm(lifetimes):
    env = qenvs.make("transmon/XGate-v0", horizon=5, detuning_ghz=0.01, **lifetimes)
    actions = RNG.uniform(-0.3, 0.3, (5, 2))
    state, rewards = jax.jit(env.rollout)(jnp.asarray(actions, jnp.float32))
    drift, re, im = transmon_matrices(env.model)
    a = np.diag(np.sqrt(np.arange(1, 3)), 1)
    exact = np.eye(9 if lifetimes else 3, dtype=complex)
    for u in actions:
        h = drift + u[0] * re + u[1] * im
        generator = -1j * h
        if lifetimes:
            dephasing = 1 / 300 - 1 / 1000
            jumps = dissipator(a / np.sqrt(500)) + dissipator(np.sqrt(2 * dephasing) * a.T @ a)
            generator = (liouvillian(h) + jumps).toarray()
        exact = expm(float(env.dt) * generator) @ exact
    assert np.allclose(state.array, exact, atol=5e-6)
    fidelity = gates.superop_average_gate_fidelity if lifetimes else gates.average_gate_fidelity
    final = float(fidelity(exact, gates.X, [0, 1]))
    start = float(gates.average_gate_fidelity(np.eye(2), gates.X))
    assert float(env.info(state)["fidelity"]) == pytest.approx(final, abs=2e-6)
    assert float(rewards.sum()) == pytest.approx(final - start, abs=2e-6)


def test_PH_7_coherence_time():
    """T1 = 50, T2 = 30 us: Tphi = 42.857 us and |rho01|(30 us) = 0.5/e = 0.183940."""
    model = Transmon(levels=2, t1_us=50.0, t2_us=30.0)
    (relaxation, lower), (dephasing, number) = model.jump_terms()
    total = float(relaxation) * dissipator(lower) + float(dephasing) * dissipator(number)
    rho = (expm(30_000 * total.toarray()) @ np.full(4, 0.5)).reshape(2, 2).T
    assert abs(rho[0, 1]) == pytest.approx(0.183940, abs=1e-6)
    assert 1e-3 / float(dephasing) == pytest.approx(42.857, abs=1e-3)
    with pytest.raises(ValueError, match="t2_us"):
        Transmon(t1_us=1.0, t2_us=2.1)
    assert len(Transmon(t1_us=1.0, t2_us=2.0).active_jumps()) == 1


@pytest.mark.parametrize("name", ["coupling_ghz", "detuning_ghz", "anharmonicity_c_ghz"])
def test_cross_resonance_pulse_is_finite_where_perturbation_theory_is_not(name):
    env = qenvs.make("transmon/CRGate-v0", **{name: 0.0})
    first = cross_resonance.first_guess(env, ramp=0.3)
    assert np.all(np.abs(first[:2]) < float(env.action_bound))  # false for NaN


@pytest.mark.parametrize(
    ("task", "limit"), [("XGate-v0", 1e-5), ("SXGate-v0", 1e-5), ("CRGate-v0", 0.016)]
)
def test_reference_pulses(task, limit):
    env = qenvs.make(f"transmon/{task}")
    actions = spec(f"transmon/{task}").reference_pulse(env)
    assert np.abs(actions).max() <= float(env.action_bound) * (1 + 1e-6)
    state, _ = jax.jit(env.rollout)(jnp.asarray(actions))
    assert 1 - float(env.info(state)["fidelity"]) < limit


def test_cross_resonance_map_matches_expm_in_the_qubit_frames():
    env = qenvs.make("transmon/CRGate-v0", horizon=3)
    actions = RNG.uniform(-0.3, 0.3, (3, 4))
    state, _ = jax.jit(env.rollout)(jnp.asarray(actions, jnp.float32))
    a = np.diag(np.sqrt(np.arange(1, 3)), 1)
    one, n = np.eye(3), a.T @ a
    ac, at, nc, nt = np.kron(a, one), np.kron(one, a), np.kron(n, one), np.kron(one, n)
    d, alpha, j = -0.1 * 2 * np.pi, -0.34 * 2 * np.pi, 0.003 * 2 * np.pi
    drift = d * nc + j * (ac.T @ at + ac @ at.T)
    for m in (nc, nt):
        drift = drift + alpha / 2 * m @ (m - np.eye(9))
    drives = [w for b in (ac, at) for w in ((b + b.T) / 2, 1j * (b.T - b) / 2)]
    u = np.eye(9, dtype=complex)
    for row in actions:
        h = drift + sum(x * w for x, w in zip(row, drives, strict=True))
        u = expm(-5j * h) @ u
    assert np.allclose(state.array, u, atol=2e-5)
    framed = expm(1j * d * nc * 15) @ u
    exact = gates.average_gate_fidelity(framed, gates.zx(np.pi / 2), [0, 1, 3, 4])
    assert float(env.info(state)["fidelity"]) == pytest.approx(float(exact), abs=2e-5)


def test_without_coupling_two_transmons_factorise():
    model = TwoTransmon(coupling_ghz=0.0)
    total = sum(float(w) * m for w, m in model.drift_terms())
    assert np.allclose(total, np.diag(np.diag(total)))
    assert TwoTransmon(coupling_ghz=0.0).static_zz_ghz() == pytest.approx(0, abs=1e-12)


def test_one_bound_is_given_in_one_unit():
    with pytest.raises(ValueError, match="max_rabi_ghz"):
        qenvs.make("transmon/XGate-v0", action_bound=0.1, max_rabi_ghz=0.1)
    env = qenvs.make("transmon/XGate-v0", max_rabi_ghz=0.1)
    assert float(env.action_bound) == pytest.approx(0.2 * np.pi)


def test_gradients_of_a_gate_match_central_differences():
    env = qenvs.make("transmon/XGate-v0", horizon=3)
    pulse = jnp.asarray(RNG.uniform(-0.2, 0.2, (3, 2)), jnp.float32)

    def value(actions):
        return env.rollout(actions)[1].sum()

    gradient = np.asarray(jax.jit(jax.grad(value))(pulse))
    play, h = jax.jit(value), 1e-2
    numeric = np.zeros_like(gradient)
    for index in np.ndindex(*gradient.shape):
        shift = jnp.zeros_like(pulse).at[index].set(h)
        numeric[index] = (play(pulse + shift) - play(pulse - shift)) / (2 * h)
    assert np.allclose(gradient, numeric, atol=2e-3)
    batch = jax.jit(jax.vmap(jax.grad(value)))(jnp.stack([pulse, jnp.zeros_like(pulse)]))
    assert np.allclose(batch[0], gradient, atol=1e-5) and np.isfinite(batch).all()


def test_shared_operators_cannot_be_changed():
    for shared in (gates.X, gates.SQRT_ISWAP, Transmon().control_operators()[0]):
        with pytest.raises(ValueError, match="read-only"):
            shared[0, 0] = 5

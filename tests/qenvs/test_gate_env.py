"""The gate task: fidelity of the map, open maps against QuTiP, leakage, unitarity."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qutip

import qenvs
from brute_force import enable_x64, play
from qenvs import gates
from qenvs.envs import GateControl
from qenvs.models import HamiltonianModel, Transmon

RNG = np.random.default_rng(0)
PULSE = RNG.uniform(-0.3, 0.3, (3, 2))
DECAY = {"t1_us": 0.5, "t2_us": 0.3}


def transmon_map(actions, dt, levels=3, **lifetimes):
    """QuTiP's propagator of H = (alpha/2) a'a'aa + drives, with T1 and T2 in us."""
    a = qutip.destroy(levels)
    jumps = []
    if lifetimes:
        t1, t2 = 1000 * lifetimes["t1_us"], 1000 * lifetimes["t2_us"]
        rate = 2 * (1 / t2 - 1 / (2 * t1))
        jumps = [np.sqrt(1 / t1) * a, np.sqrt(rate) * a.dag() * a]
    total = np.eye(levels**2 if jumps else levels)
    for u, v in actions:
        h = np.pi * -0.34 * a.dag() * a.dag() * a * a
        h = h + u / 2 * (a + a.dag()) + v / 2 * 1j * (a.dag() - a)
        generator = qutip.liouvillian(h, jumps) if jumps else -1j * h
        total = (dt * generator).expm().full() @ total
    return total


@pytest.mark.parametrize("lifetimes", [{}, DECAY], ids=["closed", "open"])
def test_the_map_is_qutips(lifetimes):
    with enable_x64():
        env = qenvs.make("transmon/XGate-v0", horizon=3, **lifetimes)
        state, info, _ = play(env, PULSE)
        found = np.asarray(state.array)
    expected = transmon_map(PULSE, 2.0, **lifetimes)
    np.testing.assert_allclose(found, expected, atol=1e-11)
    superop = qutip.Qobj(expected) if lifetimes else qutip.to_super(qutip.Qobj(expected))
    start = np.zeros(9)
    start[0] = 1
    rho = (superop.full() @ start).reshape(3, 3).T
    for k in range(3):
        assert info[f"p{k}"][-1] == pytest.approx(rho[k, k].real, abs=1e-11)
    assert info["state_leakage"][-1] == pytest.approx(rho[2, 2].real, abs=1e-11)


def average_over_poles(evolve, target):
    """Mean of <t|E(psi)|t> over the six poles of the Bloch sphere, a 2-design."""
    poles = [np.linalg.eigh(p)[1][:, k] for p in (gates.X, gates.Y, gates.Z) for k in (0, 1)]
    overlaps = []
    for psi in poles:
        full = np.append(psi, 0)
        rho = evolve(np.outer(full, full.conj()))
        aim = np.append(target @ psi, 0)
        overlaps.append(np.vdot(aim, rho @ aim).real)
    return np.mean(overlaps)


@pytest.mark.parametrize("lifetimes", [{}, DECAY], ids=["closed", "open"])
def test_fidelity_is_the_average_over_states_with_leakage_as_error(lifetimes):
    with enable_x64():
        env = qenvs.make("transmon/SXGate-v0", horizon=3, **lifetimes)
        _, info, rewards = play(env, PULSE)
    total = transmon_map(PULSE, 2.0, **lifetimes)

    def evolve(rho):
        if lifetimes:
            return (total @ rho.T.reshape(-1)).reshape(3, 3).T
        return total @ rho @ total.conj().T

    expected = average_over_poles(evolve, gates.SX)
    assert info["fidelity"][-1] == pytest.approx(expected, abs=1e-11)
    assert rewards.sum() == pytest.approx(expected - info["fidelity"][0], abs=1e-11)
    stays = np.trace(evolve(np.diag([1.0, 1, 0]))[:2, :2]).real / 2
    assert info["leakage"][-1] == pytest.approx(1 - stays, abs=1e-11)


def test_turned_by_a_tenth_between_the_upper_levels():
    """1 <-> 2 by 0.1 rad against identity: F = 0.995012, leakage sin^2(0.1)/2 of the map."""
    turn = np.zeros((3, 3), complex)
    turn[2, 1], turn[1, 2] = 1j, -1j
    model = HamiltonianModel.from_operators(np.zeros((3, 3)), [turn], dims=(3,))
    env = GateControl(model, 1, 1.0, 1.0, target=np.eye(2), subspace=(0, 1))
    _, info, _ = play(env, np.array([[0.1]]))
    assert info["fidelity"][-1] == pytest.approx(0.995012, abs=1e-6)
    assert info["leakage"][-1] == pytest.approx(np.sin(0.1) ** 2 / 2, abs=1e-6)


def test_the_state_leaks_less_than_the_map():
    """The ground state is far from level 2; the map counts |1> too."""
    env = qenvs.make("transmon/XGate-v0", horizon=3)
    _, info, _ = play(env, PULSE)
    assert 0 < info["state_leakage"][-1] < 2 * info["leakage"][-1]
    assert info["state_leakage"][-1] == pytest.approx(info["p2"][-1], abs=1e-6)


@pytest.mark.parametrize("phase", [0.0, 0.7, np.pi])
def test_global_phase_of_the_target_does_not_matter(phase):
    target = np.exp(1j * phase) * gates.X
    env = GateControl(Transmon(2), 1, 10.0, 1.0, target=target)
    _, info, _ = play(env, np.array([[np.pi / 10, 0.0]]))
    assert info["fidelity"][-1] == pytest.approx(1, abs=1e-6)


def test_the_order_of_the_subspace_is_that_of_the_target():
    """Levels (1, 0) against a gate that is not symmetric under the exchange: T turns level 1."""
    model = Transmon(2)
    fidelity = []
    for subspace, target in (((0, 1), np.diag([1, 1j])), ((1, 0), np.diag([1j, 1]))):
        env = GateControl(model, 1, 10.0, 1.0, target=target, subspace=subspace)
        fidelity.append(play(env, np.array([[0.05, 0.1]]))[1]["fidelity"][-1])
    assert fidelity[0] == pytest.approx(fidelity[1], abs=1e-6)


def test_ten_thousand_steps_stay_unitary():
    env = qenvs.make("transmon/XGate-v0")
    many = np.resize(PULSE, (10_000, 2)).astype(np.float32)

    @jax.jit
    def final(actions):
        state, _ = env.reset(jax.random.PRNGKey(0))
        return jax.lax.scan(lambda s, a: (env.step(s, a)[0], None), state, actions)[0].array

    u = np.asarray(final(jnp.asarray(many)))
    np.testing.assert_allclose(u.conj().T @ u, np.eye(3), atol=2e-6)


def test_an_open_map_keeps_trace_and_positivity():
    with enable_x64():
        env = qenvs.make("transmon/XGate-v0", horizon=3, **DECAY)
        superop = np.asarray(play(env, PULSE)[0].array)
    channel = qutip.Qobj(superop, dims=[[[3], [3]], [[3], [3]]])
    assert channel.iscptp
    trace = np.eye(3).reshape(-1)
    np.testing.assert_allclose(trace @ superop, trace, atol=1e-12)


def test_infinite_lifetimes_give_the_closed_task():
    """Fidelity of the superoperator of a unitary is that of the unitary."""
    closed = qenvs.make("transmon/XGate-v0", horizon=3)
    nearly = qenvs.make("transmon/XGate-v0", horizon=3, t1_us=1e9, t2_us=1e9)
    assert (closed.active_jumps, len(nearly.active_jumps)) == ((), 2)
    (_, one, _), (_, other, _) = play(closed, PULSE), play(nearly, PULSE)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=5e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": np.eye(3)}, r"`target` must have shape \(2, 2\)"),
        ({"target": 2 * np.eye(2)}, "`target` must be unitary"),
        ({"target": np.ones((2, 3))}, "`target` must be a square matrix"),
        ({"target": np.eye(2), "subspace": (0, 3)}, r"distinct indices in 0..2"),
        ({"target": np.eye(2), "subspace": (1, 1)}, r"distinct indices in 0..2"),
    ],
)
def test_what_is_no_gate_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GateControl(Transmon(3), 1, 1.0, 1.0, **arguments)

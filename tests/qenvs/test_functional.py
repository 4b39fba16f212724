"""The functional environment: explicit state, transformations of JAX, rewards, observations."""

import gc
import os
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import qenvs
from compilations import compilations
from qenvs import keys
from qenvs.distributions import Normal
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.wrappers import ControlErrors, ParameterRandomization
from systems import Custom, Tallied, Walk, rabi_fidelities

KEY = jax.random.PRNGKey(0)
ACTIONS = np.random.default_rng(0).uniform(-2, 2, (20, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def env():
    return qenvs.make("qubit/StateTransfer-v0")


@pytest.fixture(scope="module")
def step(env):
    return jax.jit(env.step)


@pytest.fixture(scope="module")
def episode(env, step):
    """Time steps of one episode with ACTIONS, the first from reset, and the states."""
    state, timestep = env.reset(KEY)
    states, timesteps = [state], [timestep]
    for action in ACTIONS:
        state, timestep = step(state, action)
        states.append(state)
        timesteps.append(timestep)
    return states, timesteps


def rewards_of(episode):
    return np.array([timestep.reward for timestep in episode[1][1:]])


@pytest.mark.claims("G-IF-1", "G-TP-1", "G-NA-1", "G-NA-2")
def test_make_and_its_defaults():
    env = qenvs.make("qubit/StateTransfer-v0")
    assert (env.horizon, env.dt, env.action_bound) == (20, 0.1, 2.0)
    assert (env.action_dim, env.observation_dim, env.duration) == (1, 5, 2.0)
    longer = qenvs.make("qubit/StateTransfer-v0", horizon=30, dt=0.2, detuning=0.3)
    assert (longer.horizon, longer.dt, longer.model.detuning) == (30, 0.2, 0.3)


@pytest.mark.claims("G-IF-2")
def test_state_is_explicit_and_never_changes(env, step):
    state, _ = env.reset(KEY)
    before = jax.tree.map(np.array, state)
    first = step(state, ACTIONS[0])
    step(first[0], ACTIONS[1])
    again = step(state, ACTIONS[0])
    jax.tree.map(np.testing.assert_array_equal, state, before)
    jax.tree.map(np.testing.assert_array_equal, again, first)


@pytest.mark.claims("G-Q1")
def test_reset_and_step_return_one_structure(episode):
    states, timesteps = episode
    assert timesteps[0].reward == 0 and not timesteps[0].done
    assert timesteps[0]._fields == ("observation", "reward", "done", "info")
    for trees in (states, timesteps):
        forms = [
            (jax.tree.structure(t), [(x.shape, x.dtype) for x in jax.tree.leaves(t)]) for t in trees
        ]
        assert all(form == forms[0] for form in forms)


def test_J_1_transformations_apply_to_the_methods_themselves(env, step, episode):
    keys_of_lanes = jax.random.split(KEY, 2)
    state, _ = jax.jit(env.reset)(KEY)
    states, _ = jax.vmap(env.reset)(keys_of_lanes)
    assert states.x.shape == (2, *state.x.shape)
    final, rewards = jax.jit(env.rollout)(ACTIONS)
    np.testing.assert_allclose(rewards, rewards_of(episode), atol=1e-6)
    scanned, timesteps = jax.lax.scan(env.step, state, ACTIONS)
    np.testing.assert_allclose(timesteps.reward, rewards, atol=1e-6)
    np.testing.assert_allclose(scanned.x, final.x, atol=1e-6)
    assert jax.grad(lambda a: env.rollout(a)[1].sum())(jnp.asarray(ACTIONS)).shape == (20, 1)


@pytest.mark.claims("G-IF-3")
def test_compiled_and_eager_execution_agree(env, episode):
    state, timestep = env.reset(KEY)
    jax.tree.map(np.testing.assert_array_equal, jax.jit(env.reset)(KEY)[1], timestep)
    for k, action in enumerate(ACTIONS[:3]):
        state, timestep = env.step(state, jnp.asarray(action))
        compiled = episode[1][k + 1]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), timestep, compiled)


@pytest.mark.claims("G-IF-4")
def test_vmap_agrees_with_a_loop(env, step):
    lane_keys = jax.random.split(KEY, 4)
    states, opening = jax.vmap(env.reset)(lane_keys)
    _, timesteps = jax.jit(jax.vmap(env.step))(states, ACTIONS[:4])
    for b, lane_key in enumerate(lane_keys):
        state, first = env.reset(lane_key)
        np.testing.assert_array_equal(opening.observation[b], first.observation)
        _, single = step(state, ACTIONS[b])
        np.testing.assert_allclose(timesteps.observation[b], single.observation, atol=1e-6)
        np.testing.assert_allclose(timesteps.reward[b], single.reward, atol=1e-6)


@pytest.mark.claims("G-IF-5")
def test_gradient_of_the_return_matches_the_closed_form(env):
    gradient = jax.grad(lambda actions: env.rollout(actions)[1].sum())(jnp.asarray(ACTIONS))
    exact, eps = np.zeros(20), 1e-6
    for k in range(20):
        shift = eps * np.eye(20)[k][:, None]
        up, down = (rabi_fidelities(ACTIONS.astype(float) + s)[-1] for s in (shift, -shift))
        exact[k] = (up - down) / (2 * eps)
    np.testing.assert_allclose(gradient[:, 0], exact, atol=2e-6)


@pytest.mark.claims("G-RT-1", "G-RT-2", "G-CR-6", "G-Q7")
def test_reward_is_the_gain_of_the_fidelity(episode):
    fidelities = np.array([timestep.info["fidelity"] for timestep in episode[1]])
    np.testing.assert_allclose(fidelities, rabi_fidelities(ACTIONS), atol=2e-6)
    assert fidelities[0] == 0
    np.testing.assert_array_equal(rewards_of(episode), np.diff(fidelities))
    assert rewards_of(episode).sum() == pytest.approx(fidelities[-1], abs=1e-6)


@pytest.mark.claims("G-RT-2", "G-Q7")
def test_the_return_starts_from_the_initial_fidelity():
    env = qenvs.make("qubit/StateTransfer-v0", initial="excited")
    final, rewards = jax.jit(env.rollout)(np.full((20, 1), np.pi / 2))
    assert env.reset(KEY)[1].info["fidelity"] == 1
    assert float(rewards.sum()) == pytest.approx(float(final.value) - 1, abs=1e-6)
    assert float(rewards.sum()) == pytest.approx(-1, abs=1e-6)


@pytest.mark.claims("G-Q10")
def test_a_battery_gains_energy():
    env = qenvs.make("battery/TwoLevel-v0", omega0=3.0)
    final, rewards = jax.jit(env.rollout)(ACTIONS)
    exact = 3 * rabi_fidelities(ACTIONS)[-1]
    assert float(rewards.sum()) == pytest.approx(exact, abs=1e-5)
    assert float(env.info(final)["energy"]) == pytest.approx(exact, abs=1e-5)


@pytest.mark.claims("G-RT-5", "G-Q8", "W-Q44")
def test_the_observation_ends_with_the_fraction_of_time(episode):
    states, timesteps = episode
    fractions = [timestep.observation[-1] for timestep in timesteps]
    np.testing.assert_allclose(fractions, np.arange(21) / 20, rtol=1.2e-7)
    assert fractions[0] == 0 and fractions[-1] == 1
    np.testing.assert_allclose([state.t for state in states], 0.1 * np.arange(21), rtol=1e-6)


@pytest.mark.claims("G-Q9", "G-NA-10")
@pytest.mark.parametrize("rate", [0.0, 0.2], ids=["ket", "density"])
def test_the_observation_is_real_then_imaginary_parts_row_by_row(rate):
    env = StateTransfer(Custom(rate=rate), 4, 0.3, [1.0, 0.5], target=basis_ket(3, 2))
    (state, _), step = env.reset(KEY), jax.jit(env.step)
    for action in ([0.7, -0.5], [-1.0, 0.2]):
        state, timestep = step(state, np.array(action))
    flat = np.asarray(state.array).reshape(-1)
    assert flat.size == (9 if rate else 3)
    np.testing.assert_allclose(
        timestep.observation[:-1], np.concatenate([flat.real, flat.imag]), atol=1e-6
    )
    assert np.abs(flat).max() <= 1 + 1e-6
    assert np.abs(flat.imag).max() > 0.05


@pytest.mark.claims("G-NA-7", "G-Q6")
def test_SE_6_actions_are_clipped_to_the_bound_of_their_channel():
    step = jax.jit(Walk(action_dim=2, action_bound=np.array([0.4, 2.0])).step)
    state, _ = Walk(action_dim=2).reset(KEY)
    for given, applied in [
        ([5, 5], [0.4, 2]),
        ([-5, 1], [-0.4, 1]),
        ([0.2, -3], [0.2, -2]),
    ]:
        _, timestep = step(state, np.array(given, np.float32))
        np.testing.assert_array_equal(timestep.info["applied"], np.float32(applied))


@pytest.mark.claims("G-NA-7", "G-Q6")
def test_per_channel_bounds_reach_the_dynamics():
    bounds, low = [0.3, 1.0], [0.3, 0.4]
    env = qenvs.make("transfer/LambdaSTIRAP-v0", action_bound=bounds, horizon=2)
    step, (state, _) = jax.jit(env.step), env.reset(KEY)
    np.testing.assert_array_equal(env.action_space.high, np.float32(bounds))
    _, clipped = step(state, np.array([7.0, 0.4]))
    _, within = step(state, np.array(low))
    _, other = step(state, np.array([0.3, 0.5]))
    np.testing.assert_array_equal(clipped.observation, within.observation)
    wide = qenvs.make("transfer/LambdaSTIRAP-v0", action_bound=2.0, horizon=2)
    _, same = jax.jit(wide.step)(state, np.array(low))
    np.testing.assert_allclose(same.observation, within.observation, atol=2e-6)
    assert np.abs(other.observation - within.observation).max() > 1e-6


@pytest.mark.claims("G-NA-9", "G-Q3", "G-Q5")
def test_spaces_of_the_functional_environment(env):
    from gymnasium.spaces import Box

    assert env.action_space == Box(-2, 2, (1,), np.float32)
    assert env.observation_space == Box(-np.inf, np.inf, (5,), np.float32)


@pytest.mark.claims("G-KEY-1", "G-KEY-6", "G-Q16", "W-GE-9")
def test_keys(env):
    run_key = jax.random.PRNGKey(3)
    np.testing.assert_array_equal(keys.episode_key(run_key, 5), jax.random.fold_in(run_key, 5))
    openings = [env.reset(key)[1] for key in (run_key, KEY, jax.random.key(1))]
    for opening in openings[1:]:
        jax.tree.map(np.testing.assert_array_equal, opening, openings[0])
    raw, typed = (Walk().reset(key)[1] for key in (run_key, jax.random.key(3)))
    jax.tree.map(np.testing.assert_array_equal, raw, typed)


def uncertain():
    device = ParameterRandomization(qenvs.make("qubit/StateTransfer-v0"), {"detuning": Normal(0.1)})
    return ControlErrors(device, step_noise=Normal(0.1))


@pytest.mark.parametrize("build", [lambda: qenvs.make("qubit/StateTransfer-v0"), uncertain])
def test_rollout_is_compiled_once_and_forgotten_with_its_environment(build):
    env, actions = build(), jnp.asarray(ACTIONS)

    def rewards_and_slope(env):
        return env.rollout(actions)[1], jax.grad(lambda a: env.rollout(a)[1].sum())(actions)

    first = rewards_and_slope(env)
    with compilations() as compiled:
        second = rewards_and_slope(env)
    assert not compiled
    for left, right in zip(first, second, strict=True):
        np.testing.assert_array_equal(left, right)
    there = weakref.ref(env)
    del env
    gc.collect()
    assert there() is None


@pytest.mark.claims("W-WR-13", "W-Q41")
def test_rollout_is_deterministic_and_wants_one_action_per_step(env, episode):
    final, rewards = env.rollout(ACTIONS)
    assert rewards.shape == (20,)
    np.testing.assert_allclose(final.x, episode[0][-1].x, atol=1e-6)
    walk = Walk()
    for key, other in [(None, KEY), (jax.random.PRNGKey(1), jax.random.PRNGKey(1))]:
        ends = walk.rollout(np.ones((3, 1)), key)[0], walk.rollout(np.ones((3, 1)), other)[0]
        jax.tree.map(np.testing.assert_array_equal, *ends)
    for shape in [(19, 1), (20,), (20, 2), (1, 20, 1)]:
        with pytest.raises(ValueError, match=r"`actions` must have shape \(20, 1\), got "):
            env.rollout(np.zeros(shape))


def test_an_action_of_another_shape_is_refused(env):
    state, _ = env.reset(KEY)
    for shape in [(), (2,), (1, 1)]:
        with pytest.raises(ValueError, match=r"`action` must have shape \(1,\), got "):
            env.step(state, jnp.zeros(shape))


def test_environments_hash_and_compare_by_identity(env):
    other = qenvs.make("qubit/StateTransfer-v0")
    assert env == env and env != other and len({env, other, env}) == 2
    leaves, treedef = jax.tree.flatten(env)
    assert type(jax.tree.unflatten(treedef, leaves)) is type(env)


def trace_count(task, variants, actions, **kwargs):
    """Traces of a jitted function of an environment over task variants, and its fidelities."""
    traces = []

    @jax.jit
    def final_value(env, actions):
        traces.append(env)
        return env.rollout(actions)[0].value

    values = [final_value(qenvs.make(task, **kwargs, **other), actions) for other in variants]
    return len(traces), values


def test_other_numbers_do_not_recompile():
    variants = [
        {"detuning": 0.0},
        {"detuning": 0.3},
        {"detuning": 0.3, "action_bound": 1.9},
        {"dt": 0.099},
    ]
    count, values = trace_count("qubit/StateTransfer-v0", variants, ACTIONS)
    assert count == 1
    exact = [
        rabi_fidelities(np.clip(ACTIONS, -b, b), dt, d)[-1]
        for d, b, dt in [(0, 2, 0.1), (0.3, 2, 0.1), (0.3, 1.9, 0.1), (0, 2, 0.099)]
    ]
    np.testing.assert_allclose(values, exact, atol=3e-6)


def test_other_rates_do_not_recompile():
    variants = [{"gamma1": rate, "gamma_phi": rate / 3} for rate in (0.1, 0.2)]
    variants.append({"gamma1": 0.05, "gamma_phi": 0.2})
    count, values = trace_count(
        "qubit/StateTransfer-v0", variants, np.zeros((20, 1)), initial="excited"
    )
    assert count == 1
    np.testing.assert_allclose(values, np.exp(-2 * np.array([0.1, 0.2, 0.05])), atol=1e-6)


def test_another_length_class_keeps_the_accuracy():
    actions = np.full((20, 1), 1e9)
    variants = [{"action_bound": bound} for bound in (1.0, 50.0, 300.0)]
    count, values = trace_count("qubit/StateTransfer-v0", variants, actions, detuning=0.2)
    assert count <= 3
    exact = [rabi_fidelities(np.full(20, bound), 0.1, 0.2)[-1] for bound in (1, 50, 300)]
    np.testing.assert_allclose(values, exact, atol=1e-4)


def test_a_model_may_be_traced_inside():
    env = qenvs.make("qubit/StateTransfer-v0")

    @jax.jit
    def final_value(detuning):
        model = env.model.with_parameters(detuning=detuning)
        return env.with_model(model).rollout(ACTIONS)[0].value

    for detuning in (0.0, 0.4):
        exact = rabi_fidelities(ACTIONS, 0.1, detuning)[-1]
        assert final_value(detuning) == pytest.approx(exact, abs=3e-6)
    numeric = (
        rabi_fidelities(ACTIONS, 0.1, 0.4 + 1e-5)[-1]
        - rabi_fidelities(ACTIONS, 0.1, 0.4 - 1e-5)[-1]
    ) / 2e-5
    assert jax.grad(final_value)(0.4) == pytest.approx(numeric, abs=1e-4)


def test_RN_11_episode_parameters_live_in_the_state():
    env = Tallied(Walk())
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    speeds = set()
    for i in range(100):
        state, _ = reset(keys.episode_key(KEY, i))
        _, timestep = step(state, np.ones(1, np.float32))
        assert timestep.info["diagnostics"]["speed"] == state.base.speed
        speeds.add(float(state.base.speed))
    assert (env.tally.resets, env.tally.steps) == (1, 1)
    assert len(speeds) == 100


def test_RN_4_reset_and_step_never_reuse_a_key():
    env = qenvs.wrappers.AutoReset(qenvs.wrappers.EpisodeStatistics(Walk()))
    with jax.debug_key_reuse(True):
        state, _ = jax.jit(env.reset)(jax.random.key(0))
        for _ in range(5):
            state, _ = jax.jit(env.step)(state, jnp.ones(1))
    assert state.data["episode"] == 5 // env.horizon


def test_RN_4_leaves_of_the_key_tree_are_uncorrelated():
    def draws(key):
        leaves = [
            keys.parameter_key(key, "detuning"),
            keys.parameter_key(key, "alpha"),
            keys.calibration_key(key, keys.GAIN),
            keys.calibration_key(key, keys.OFFSET),
            *(keys.step_noise_key(key, k) for k in range(3)),
            *(keys.measurement_key(key, t, j) for t in range(3) for j in range(2)),
        ]
        return jnp.stack([jax.random.normal(leaf) for leaf in leaves])

    episodes = jax.vmap(lambda i: keys.episode_key(KEY, i))(jnp.arange(4096))
    samples = np.asarray(jax.jit(jax.vmap(draws))(episodes))
    correlations = np.corrcoef(samples.T) - np.eye(13)
    assert np.abs(correlations).max() < 5 / 64  # five sigma
    shifted = np.corrcoef(samples[1:].T, samples[:-1].T)[:13, 13:]
    assert np.abs(shifted).max() < 5 / 64  # nor with the next episode
    assert all(scipy.stats.kstest(column, "norm").pvalue > 1e-4 for column in samples.T)


QSTATE = """
import jax, numpy as np, qenvs
env, traces = qenvs.make("qubit/StateTransfer-v0"), []
@jax.jit
def step(state, action):
    traces.append(1)
    return env.step(state, action)
state, _ = step(env.reset(jax.random.PRNGKey(0))[0], np.ones(1))
qstate = state.qstate
state, _ = step(state, np.ones(1))
assert len(traces) == 1, "state.qstate made JAX trace again"
exact = [np.cos(0.05), -1j * np.sin(0.05)]
np.testing.assert_allclose(np.asarray(qstate.to_jax())[:, 0], exact, atol=1e-6)
assert qstate.dims == (2,)
"""


@pytest.mark.slow
def test_the_first_qstate_adds_no_trace():
    done = subprocess.run(
        [sys.executable, "-c", QSTATE], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr


def test_a_complex_action_is_refused(env):
    state, _ = env.reset(KEY)
    erring = ControlErrors(env, Normal(0.1))
    for wrapped, start in ((env, state), (erring, erring.reset(KEY)[0])):
        with pytest.raises(TypeError, match="`action` must be real, got complex64; use"):
            wrapped.step(start, np.array([1 + 1j]))

"""The adapter in the shape of gymnax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box

import qenvs
from qenvs import keys
from qenvs.wrappers import EpisodeStatistics, GymnaxEnv
from systems import Walk, rabi_fidelities

KEY = jax.random.PRNGKey(0)
ONE = np.ones(1, np.float32)


@pytest.fixture(scope="module")
def walk():
    return GymnaxEnv(Walk())


def test_names_and_spaces(walk):
    assert walk.default_params is walk.env and walk.num_actions == 1
    assert GymnaxEnv(EpisodeStatistics(Walk())).name == "Walk"
    for params in (None, walk.default_params):
        assert walk.action_space(params) == Box(-2, 2, (1,), np.float32)
        assert walk.observation_space(params).shape == (4,)


def test_reset_and_step_in_the_order_of_gymnax(walk):
    step = jax.jit(walk.step)
    observation, state = walk.reset(KEY)
    np.testing.assert_array_equal(observation, Walk().reset(KEY)[1].observation)
    for number in range(1, 4):
        key = jax.random.fold_in(KEY, number)
        observation, state, reward, done, info = step(key, state, ONE)
        assert reward == 1 and info["value"] == number and done == (number == 3)
    _, opening = Walk().reset(keys.episode_key(key, 0))
    np.testing.assert_array_equal(observation, opening.observation)
    assert state.step == 0


def test_step_env_does_not_reset(walk):
    step = jax.jit(walk.step_env)
    _, state = walk.reset(KEY)
    for number in range(1, 5):
        observation, state, *_ = step(KEY, state, ONE)
        assert observation[3] == state.step == number


def test_params_pass_through_jit_without_a_recompile():
    env, traces = GymnaxEnv(qenvs.make("qubit/StateTransfer-v0")), []
    actions = np.full((20, 1), 1.5, np.float32)

    @jax.jit
    def final_fidelity(params):
        traces.append(params)
        _, state = env.reset(KEY, params)

        def advance(state, action):
            _, state, *_, info = env.step_env(KEY, state, action, params)
            return state, info["fidelity"]

        return jax.lax.scan(advance, state, actions)[1][-1]

    for detuning in (0.0, 0.4):
        params = qenvs.make("qubit/StateTransfer-v0", detuning=detuning)
        exact = rabi_fidelities(actions, 0.1, detuning)[-1]
        assert float(final_fidelity(params)) == pytest.approx(exact, abs=2e-6)
    assert len(traces) == 1


def test_a_trainer_loop_over_many_environments(walk):
    def advance(carry, _):
        key, states = carry
        key, sub = jax.random.split(key)
        lane_keys = jax.random.split(sub, 5)
        _, states, reward, done, _ = jax.vmap(walk.step, (0, 0, 0, None))(
            lane_keys, states, jnp.ones((5, 1)), walk.default_params
        )
        return (key, states), (reward, done)

    _, states = jax.vmap(walk.reset, (0, None))(jax.random.split(KEY, 5), walk.default_params)
    run = jax.jit(lambda carry: jax.lax.scan(advance, carry, None, 9))
    _, (reward, done) = run((KEY, states))
    assert (reward == 1).all()
    np.testing.assert_array_equal(np.flatnonzero(done[:, 0]), [2, 5, 8])
    assert (done == done[:, :1]).all()


def test_typed_keys_under_the_check_for_reuse(walk):
    with jax.debug_key_reuse(True):
        key = jax.random.key(0)
        _, state = jax.jit(walk.reset)(key)
        step = jax.jit(walk.step)
        for number in range(4):
            step_key = jax.random.fold_in(key, number)
            _, state, *_ = step(step_key, state, ONE)

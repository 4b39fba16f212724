"""Functional wrappers: delegation, states of wrapped environments, automatic reset, statistics."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import qenvs
from qenvs import keys
from qenvs.envs.base import Environment
from qenvs.wrappers import AutoReset, EpisodeStatistics, WrappedState, Wrapper
from systems import Walk, rabi_fidelities

KEY = jax.random.PRNGKey(3)
ONE = np.ones(1, np.float32)


class Drawn(Wrapper):
    """Draws a number named `name` from the episode key."""

    name: str = eqx.field(static=True, kw_only=True)

    def reset(self, key: Array):
        inner, timestep = self.env.reset(key)
        drawn = jax.random.normal(keys.parameter_key(key, self.name), dtype=jnp.float32)
        return WrappedState(inner, key, jnp.zeros((), jnp.int32), {self.name: drawn}), timestep


class Quiet(Wrapper):
    """Overrides nothing but the observation of a step."""

    def step(self, state, action):
        state, timestep = super().step(state, action)
        return state, timestep._replace(observation=0 * timestep.observation)


@pytest.fixture(scope="module")
def qubit():
    return qenvs.make("qubit/StateTransfer-v0", detuning=0.2)


def data_of(state):
    """The episode data of every level of nesting."""
    found = {}
    while isinstance(state, WrappedState):
        found |= state.data
        state = state.inner
    return found


@pytest.mark.claims("W-WR-2", "W-WR-3", "W-WR-4")
def test_a_wrapped_environment_is_an_environment(qubit):
    nested = Wrapper(Drawn(Wrapper(qubit), name="a"))
    assert issubclass(Wrapper, Environment) and isinstance(nested, Environment)
    assert nested.unwrapped is qubit and qubit.unwrapped is qubit
    assert nested.model is qubit.model and nested.target is qubit.target
    for name in ("horizon", "dt", "action_bound", "action_dim", "observation_dim", "duration"):
        assert getattr(nested, name) == getattr(qubit, name)
    assert nested.observation_space == qubit.observation_space
    assert nested.action_space == qubit.action_space
    assert nested.name == "a"  # found on the level below


@pytest.mark.claims("W-Q43")
def test_an_attribute_that_nobody_has_is_named(qubit):
    with pytest.raises(
        AttributeError, match=r"neither Wrapper nor what it wraps has .*'detunning'"
    ):
        _ = Wrapper(qubit).detunning
    assert not hasattr(Wrapper(Wrapper(qubit)), "nothing")


@pytest.mark.claims("W-WR-5", "W-WR-14", "W-WR-13")
def test_a_bare_wrapper_delegates_everything(qubit):
    wrapped, actions = Wrapper(qubit), np.linspace(-2, 2, 20)[:, None]
    (state, opening), (bare, first) = jax.jit(wrapped.reset)(KEY), jax.jit(qubit.reset)(KEY)
    jax.tree.map(np.testing.assert_array_equal, opening, first)
    state, timestep = jax.jit(wrapped.step)(state, ONE)
    bare, step = jax.jit(qubit.step)(bare, ONE)
    jax.tree.map(np.testing.assert_array_equal, timestep, step)
    jax.tree.map(np.testing.assert_array_equal, state.inner, bare)
    for method in ("info", "diagnostics"):
        given, expected = getattr(wrapped, method)(state), getattr(qubit, method)(bare)
        jax.tree.map(np.testing.assert_array_equal, given, expected)
    final, rewards = jax.jit(wrapped.rollout)(actions, KEY)
    assert float(rewards.sum()) == pytest.approx(rabi_fidelities(actions, 0.1, 0.2)[-1], abs=2e-6)
    assert isinstance(final, WrappedState) and rewards.shape == (20,)


@pytest.mark.claims("W-WR-5")
def test_a_wrapper_overrides_only_what_it_changes():
    env = Quiet(Walk())
    state, opening = env.reset(KEY)
    state, timestep = env.step(state, ONE)
    assert opening.observation.any() and not timestep.observation.any()
    assert timestep.reward == 1 and env.info(state)["value"] == 1


@pytest.mark.claims("W-WR-6", "W-WR-7", "W-WR-8", "W-WR-9", "W-WR-10", "W-Q44")
def test_the_state_of_a_wrapped_environment():
    env = Drawn(EpisodeStatistics(Walk()), name="a")
    state, _ = env.reset(KEY)
    assert issubclass(WrappedState, eqx.Module)
    for number in range(3):
        levels = [state, state.inner]
        for level in levels:
            assert isinstance(level, WrappedState)
            np.testing.assert_array_equal(level.key, KEY)
            assert isinstance(level.step, jax.Array) and level.step == number
        assert state.base is state.inner.inner and state.base.step == number
        assert state.t == state.base.t == 0.5 * number
        assert set(state.data) == {"a"} and set(state.inner.data) == {"return"}
        assert all(isinstance(value, jax.Array) for value in data_of(state).values())
        state, _ = env.step(state, ONE)


@pytest.mark.claims("W-WR-6")
def test_a_state_with_a_key_and_a_count_of_its_own():
    inner, _ = Walk().reset(KEY)
    parts = {"inner": inner, "key": KEY + 1, "step": jnp.int32(7), "data": {"a": jnp.ones(2)}}
    state = WrappedState(**parts)
    assert state.step == 7 and np.array_equal(state.key, KEY + 1) and isinstance(state, eqx.Module)
    changed = eqx.tree_at(lambda s: s.data["a"], state, jnp.zeros(2))
    assert not changed.data["a"].any() and changed.step == 7 and state.data["a"].all()
    outer = WrappedState(state)
    assert outer.step == 7 and np.array_equal(outer.key, KEY + 1) and outer.data == {}
    assert len(jax.tree.leaves(outer)) == len(jax.tree.leaves(state))
    assert jax.tree.structure(outer.inner) == jax.tree.structure(state)
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(outer)]
    assert {".key", ".step", "[(0, 'a')]"} < set(names)
    twice = WrappedState(outer, data={"a": jnp.ones(2)})
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(twice)]
    assert len(set(paths)) == len(paths)
    for shown in (outer, jax.tree.map(jnp.shape, outer), jax.eval_shape(lambda: outer)):
        assert repr(shown).startswith("WrappedState(WalkState(") and "[{'a': " in repr(shown)
    for name in ("data", "key", "other"):
        with pytest.raises(AttributeError):
            setattr(state, name, {})


@pytest.mark.claims("W-WR-6")
def test_levels_of_a_state_move_apart():
    inner = WrappedState(Walk().reset(KEY)[0], KEY, data={"b": jnp.ones(2), "a": jnp.zeros(1)})
    outer = WrappedState.begun(inner, KEY, {"a": jnp.full(3, 5.0)})
    assert list(outer.data) == ["a"] and list(outer.inner.data) == ["a", "b"]
    moved = outer.moved(inner.moved(Walk().step(inner.inner, ONE)[0], {"a": 2, "b": 3}))
    assert moved.inner.data == {"a": 2, "b": 3} and moved.step == moved.inner.step == 1
    assert moved.data["a"] is outer.data["a"] and moved.key is KEY
    assert outer.moved(inner, {"a": 4}).data == {"a": 4} and outer.inner.data["b"].all()


@pytest.mark.slow
@pytest.mark.claims("W-WR-10", "W-Q45")
@pytest.mark.parametrize("task", ["qubit/StateTransfer-v0", "transmon/XGate-v0"])
def test_the_quantum_state_of_a_wrapped_environment(task):
    env = EpisodeStatistics(Wrapper(qenvs.make(task)))
    state, _ = env.reset(KEY)
    array = np.asarray(state.qstate.to_jax())
    np.testing.assert_allclose(array.reshape(state.base.array.shape), state.base.array, atol=1e-7)
    if task == "transmon/XGate-v0":
        np.testing.assert_allclose(array, np.eye(3), atol=1e-7)


@pytest.mark.claims("W-WR-11", "W-WR-12")
def test_a_wrapper_draws_the_same_whichever_others_are_there():
    stacks = [
        Drawn(Walk(), name="a"),
        Drawn(Drawn(Walk(), name="b"), name="a"),
        Drawn(EpisodeStatistics(Drawn(Walk(), name="a")), name="b"),
    ]
    openings = [env.reset(KEY) for env in stacks]
    values = {float(data_of(state)["a"]) for state, _ in openings}
    assert len(values) == 1
    assert data_of(openings[1][0])["b"] == data_of(openings[2][0])["b"] != values.pop()
    for _, opening in openings:
        np.testing.assert_array_equal(opening.observation, openings[0][1].observation)


WITHOUT_GYMNASIUM = """
import sys
sys.modules["gymnasium"] = None  # importing it fails from here on
import jax, numpy as np, qenvs
from qenvs.wrappers import AutoReset, EpisodeStatistics
env = AutoReset(EpisodeStatistics(qenvs.make("qubit/StateTransfer-v0", horizon=2)))
state, _ = env.reset(jax.random.PRNGKey(0))
step = jax.jit(env.step)
for _ in range(2):
    state, timestep = step(state, np.ones(1))
print(timestep.done, timestep.info["episode_length"])
"""


@pytest.mark.claims("W-WR-1")
def test_functional_wrappers_run_without_gymnasium():
    command = [sys.executable, "-c", WITHOUT_GYMNASIUM]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "2"]


def test_episode_statistics():
    env = EpisodeStatistics(Walk())
    state, timestep = env.reset(KEY)
    total = 0.0
    for number, action in enumerate([0.5, -1.5, 2.0], start=1):
        assert timestep.info["episode_return"] == total
        assert timestep.info["episode_length"] == number - 1
        state, timestep = env.step(state, np.array([action]))
        total += action
    assert (timestep.info["episode_return"], timestep.info["episode_length"]) == (1.0, 3)
    assert set(env.info(state)) == {"value", "start"}  # the statistics belong to the step


@pytest.mark.claims("G-KEY-3")
def test_auto_reset_begins_the_next_episode_in_the_ending_step():
    env = AutoReset(EpisodeStatistics(Walk()))
    step = jax.jit(env.step)

    def first(episode):
        return Walk().reset(keys.episode_key(KEY, episode))[1].observation

    state, opening = env.reset(KEY)
    np.testing.assert_array_equal(opening.observation, first(0))
    for episode in range(3):
        for number in range(1, 4):
            assert state.step == state.base.step == number - 1
            state, timestep = step(state, ONE)
            assert timestep.reward == 1 and timestep.done == (number == 3)
            assert timestep.info["episode_length"] == timestep.info["episode_return"] == number
            reached = np.array([*first(episode)[:2], number, number])
            np.testing.assert_array_equal(timestep.info["final_observation"], reached)
            shown = first(episode + 1) if number == 3 else reached
            np.testing.assert_array_equal(timestep.observation, shown)
    assert state.data["episode"] == 3
    np.testing.assert_array_equal(state.key, KEY)


def test_auto_reset_keeps_one_structure_for_scan_and_lanes_apart():
    env = AutoReset(Walk(horizon=6, goal=2.0))
    run_keys = jax.random.split(KEY, 3)
    speeds = jnp.array([[1.0], [0.5], [0.1]])

    def advance(states, _):
        return jax.vmap(env.step)(states, speeds)

    states, _ = jax.vmap(env.reset)(run_keys)
    _, timesteps = jax.jit(lambda states: jax.lax.scan(advance, states, None, 12))(states)
    finished = [np.flatnonzero(column).tolist() for column in timesteps.done.T]
    assert finished == [[1, 3, 5, 7, 9, 11], [3, 7, 11], [5, 11]]
    for b, length in enumerate((2, 4, 6)):
        _, opening = Walk().reset(keys.episode_key(run_keys[b], 1))
        np.testing.assert_array_equal(timesteps.observation[length - 1, b], opening.observation)


def test_auto_reset_takes_raw_and_typed_keys():
    env = AutoReset(EpisodeStatistics(Walk()))
    runs = []
    for key in (KEY, jax.random.wrap_key_data(KEY)):
        state, _ = env.reset(key)
        _, timesteps = jax.lax.scan(env.step, state, np.ones((7, 1), np.float32))
        runs.append(timesteps)
    jax.tree.map(np.testing.assert_array_equal, *runs)

"""The adapters keep their promises for an environment that draws, errs and measures."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv

import qenvs
from episodes import ends, leaves
from observed import QUBIT
from qenvs import keys
from qenvs.distributions import Normal
from qenvs.wrappers import ControlErrors, ObservationModel, ParameterRandomization
from qenvs.wrappers.gymnasium import GymnasiumEnv
from qenvs.wrappers.vector import GymnasiumVectorEnv
from systems import Tallied

HORIZON, LANES, SEED = 3, 4, 11


@pytest.fixture(scope="module")
def functional():
    base = Tallied(qenvs.make(QUBIT, horizon=HORIZON, dt=0.5))
    device = ParameterRandomization(base, {"detuning": Normal(0.3)}, oracle=True)
    noisy = ControlErrors(device, step_noise=Normal(0.1))
    return ObservationModel(noisy, "expectations", 20, diagnostics=True, observables=["p1"])


@pytest.fixture(scope="module")
def reset(functional):
    return jax.jit(functional.reset)


@pytest.fixture(scope="module")
def step(functional):
    return jax.jit(functional.step)


@pytest.fixture(scope="module")
def single(functional):
    return GymnasiumEnv(functional, normalize_actions=True)


@pytest.fixture(scope="module")
def vector(functional):
    return GymnasiumVectorEnv(functional, LANES, normalize_actions=True)


def normalised(calls):
    return np.random.default_rng(2).uniform(-1, 1, (calls, LANES, 1)).astype(np.float32)


def episode(reset, step, index, actions):
    """Time steps of episode `index` of the run, from the functional environment."""
    state, timestep = reset(keys.episode_key(jax.random.PRNGKey(SEED), index))
    timesteps = [timestep]
    for action in actions:
        state, timestep = step(state, jnp.asarray(2 * action))
        timesteps.append(timestep)
    return timesteps


def assert_equal(observation, info, timestep):
    """Equal up to rounding; the one drawn count of p1 may move by a shot."""
    assert set(info) - {f"_{name}" for name in info} == set(timestep.info)
    np.testing.assert_allclose(observation[1:], timestep.observation[1:], atol=1e-6)
    assert abs(observation[0] - timestep.observation[0]) < 1e-6
    exact = timestep.info["diagnostics"]
    for name, value in exact.items():
        np.testing.assert_allclose(info["diagnostics"][name], value, atol=1e-6)


@pytest.mark.claims("W-GE-11", "W-GE-10", "W-GE-8")
def test_a_single_environment_that_is_wrapped(functional, reset, step, single):
    plain = GymnasiumEnv(functional)
    assert (single.action_space.low, single.action_space.high) == (-1, 1)
    assert single.observation_space == plain.observation_space
    assert single.observation_space.shape == (3,)
    actions = normalised(HORIZON)[:, 0]
    for index in range(2):
        timesteps = episode(reset, step, index, actions)
        observation, info = single.reset(seed=SEED if index == 0 else None)
        assert_equal(observation, info, timesteps[0])
        for k, action in enumerate(actions, start=1):
            observation, reward, terminated, truncated, info = single.step(action)
            assert_equal(observation, info, timesteps[k])
            assert reward == pytest.approx(float(timesteps[k].reward), abs=1e-6)
            assert (terminated, truncated) == (k == HORIZON, False)
            assert type(info["diagnostics"]["fidelity"]) is np.ndarray


@pytest.mark.claims("W-VE-6", "W-VE-4", "W-VE-5", "W-Q8")
def test_a_vector_environment_that_is_wrapped(reset, step, vector):
    assert isinstance(vector, VectorEnv)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert vector.single_action_space.low == -1 and vector.single_action_space.high == 1
    calls = 2 * (HORIZON + 1)
    actions = normalised(calls)
    returned = [vector.reset(seed=SEED), *(vector.step(action) for action in actions)]
    assert ends(returned) == [HORIZON - 1, 2 * HORIZON]
    for lane in range(LANES):
        for j in range(2):
            first = j * (HORIZON + 1)  # the call that opens episode j
            played = actions[first : first + HORIZON, lane]
            timesteps = episode(reset, step, j * LANES + lane, played)
            for k, timestep in enumerate(timesteps):
                call = returned[first + k]
                assert_equal(call[0][lane], row(call[-1], lane), timestep)
                if k > 0:
                    assert call[1][lane] == pytest.approx(float(timestep.reward), abs=1e-6)
                elif j > 0:
                    assert (call[1][lane], call[2][lane], call[3][lane]) == (0, False, False)
    for call in returned[1:]:
        assert call[1].dtype == np.float32 and call[2].dtype == call[3].dtype == bool
        assert call[0].dtype == np.float32 and not call[3].any()


def row(infos, lane):
    """The info of one lane; every key must have a mask that is True everywhere."""
    assert all(infos[f"_{name}"].all() for name in infos if not name.startswith("_"))
    return {
        name: row(value, lane) if isinstance(value, dict) else value[lane]
        for name, value in infos.items()
        if not name.startswith("_")
    }


@pytest.mark.claims("W-VE-6")
def test_arrays_are_numpy_s_writable_and_copies(vector):
    actions = normalised(6)
    vector.reset(seed=SEED)
    untouched = [leaves(list(vector.step(action))) for action in actions]
    kept = [[leaf.copy() for leaf in call] for call in untouched]
    vector.reset(seed=SEED)
    for action, wanted in zip(actions, kept, strict=True):
        given = leaves(list(vector.step(action)))
        for leaf, expected in zip(given, wanted, strict=True):
            assert type(leaf) is np.ndarray and leaf.flags.writeable and leaf.flags.owndata
            np.testing.assert_array_equal(leaf, expected)
            leaf[...] = 1
    for call, wanted in zip(untouched, kept, strict=True):
        for leaf, expected in zip(call, wanted, strict=True):
            np.testing.assert_array_equal(leaf, expected)


@pytest.mark.claims("W-VE-6", "W-VE-1")
def test_the_signature_and_the_shape_of_actions(functional, vector):
    parameters = inspect.signature(GymnasiumVectorEnv).parameters
    kinds = {name: p.kind for name, p in parameters.items()}
    assert list(kinds)[:4] == ["env", "num_envs", "seed", "normalize_actions"]
    assert kinds["seed"] is kinds["normalize_actions"] is inspect.Parameter.KEYWORD_ONLY
    assert (parameters["seed"].default, parameters["normalize_actions"].default) == (0, False)
    vector.reset(seed=SEED)
    for shape in ((LANES,), (LANES, 2), (1, LANES, 1), ()):
        with pytest.raises(ValueError, match=r"^actions must have shape \(4, 1\)"):
            vector.step(np.zeros(shape, np.float32))


@pytest.mark.claims("W-Q5")
def test_seeds_that_are_refused_and_seeds_that_are_equal(single, vector):
    for env in (single, vector):
        with pytest.raises(ValueError, match="`seed` must be >= 0"):
            env.reset(seed=-1)
        with pytest.raises(ValueError, match=r"`seed` must be < 2\*\*32"):
            env.reset(seed=2**32)
        with pytest.raises(TypeError, match="`seed` must be an integer"):
            env.reset(seed=1.5)
        left, right = env.reset(seed=7), env.reset(seed=np.int64(7))
        for a, b in zip(leaves(list(left)), leaves(list(right)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.claims("W-VE-6")
def test_one_trace_and_no_action_on_the_call_that_resets(functional, vector):
    tally = functional.env.env.env.tally
    vector.reset(seed=SEED)
    vector.step(normalised(1)[0])
    before = tally.resets, tally.steps
    openings = []
    for action in (1.0, -1.0):
        vector.reset(seed=SEED)
        for _ in range(HORIZON):
            vector.step(np.zeros((LANES, 1), np.float32))
        openings.append(leaves(list(vector.step(np.full((LANES, 1), action, np.float32)))))
    for left, right in zip(*openings, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (tally.resets, tally.steps) == before

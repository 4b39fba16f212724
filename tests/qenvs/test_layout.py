"""Parts of an observation, observations in [-1, 1], and both through the Gymnasium adapters."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import qenvs
from qenvs.distributions import Normal
from qenvs.wrappers import (
    GymnasiumEnv,
    GymnasiumVectorEnv,
    NormalizedObservation,
    ObservationModel,
    ParameterRandomization,
    observation_layout,
)

ATOM, ATOM_DETUNING = "transfer/LambdaSTIRAP-v0", "delta_one_photon"
BATTERY = "battery/Dicke-v0"


def device(**kwargs):
    """A three-level atom with a random detuning that the policy is told, two levels measured."""
    atom = qenvs.make(ATOM, horizon=3)
    env = ParameterRandomization(atom, {ATOM_DETUNING: Normal(0.3)}, oracle=True)
    return ObservationModel(
        env, **({"observation": "expectations", "observables": ["p1", "p2"]} | kwargs)
    )


def pulse(env, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (3, env.action_dim)).astype(np.float32)


@pytest.mark.parametrize(
    ("kwargs", "sizes"),
    [
        ({}, {"measurements": 2, "time": 1, "oracle": 1}),
        ({"observables": ["p1"]}, {"measurements": 1, "time": 1, "oracle": 1}),
        ({"observation": "time", "observables": None}, {"time": 1, "oracle": 1}),
        (
            {"observation": "state", "observables": None},
            {"measurements": 6, "time": 1, "oracle": 1},
        ),
    ],
)
def test_the_layout_names_every_entry_once(kwargs, sizes):
    env = device(**kwargs)
    layout = observation_layout(env)
    assert list(layout) == list(sizes)
    for name, size in sizes.items():
        assert layout[name].stop - layout[name].start == size
    covered = np.concatenate([np.arange(env.observation_dim)[part] for part in layout.values()])
    np.testing.assert_array_equal(covered, np.arange(env.observation_dim))
    _, timestep = env.reset(jax.random.PRNGKey(0))
    assert timestep.observation[layout["time"]] == 0


def test_a_task_without_wrappers_has_no_oracle():
    assert list(observation_layout(qenvs.make(ATOM))) == ["measurements", "time"]


def test_normalized_values_are_affine_in_the_eigenvalues():
    env = ObservationModel(qenvs.make(BATTERY, horizon=3, n_cells=2, n_photons=2), "expectations")
    normal = NormalizedObservation(env)
    _, raw = env.reset(jax.random.PRNGKey(0))
    _, scaled = normal.reset(jax.random.PRNGKey(0))
    operators = env.model.observables()
    for j, name in enumerate(env.observable_names):
        levels = np.linalg.eigvalsh(np.asarray(operators[name]))
        low, high = levels.min(), levels.max()
        expected = (float(raw.observation[j]) - low) / (high - low) * 2 - 1
        assert float(scaled.observation[j]) == pytest.approx(expected, abs=1e-6), name
    assert scaled.observation[-1] == -1


@pytest.mark.parametrize("kwargs", [{}, {"shots": 3}, {"observation": "time", "observables": None}])
def test_normalized_observations_stay_inside_the_space_and_the_oracle_as_it_is(kwargs):
    env = device(**kwargs)
    normal = NormalizedObservation(env)
    space = normal.observation_space
    assert np.all(space.high[:-1] == 1) and np.isinf(space.high[-1])
    state, raw = env.reset(jax.random.PRNGKey(1))
    other, scaled = normal.reset(jax.random.PRNGKey(1))
    for action in pulse(env):
        assert space.contains(np.asarray(scaled.observation))
        assert scaled.observation[-1] == raw.observation[-1]
        state, raw = env.step(state, action)
        other, scaled = normal.step(other, action)
        assert scaled.reward == raw.reward
    assert scaled.observation[-2] == 1


@pytest.fixture(scope="module")
def flat_and_dict():
    env = device(shots=10)
    return GymnasiumEnv(env, seed=3), GymnasiumEnv(env, seed=3, dict_observation=True)


def test_dict_observations_hold_the_flat_ones_part_by_part(flat_and_dict):
    flat, parts = flat_and_dict
    assert isinstance(parts.observation_space, gymnasium.spaces.Dict)
    assert set(parts.observation_space) == {"measurements", "time", "oracle"}
    seen = [(flat.reset(seed=3)[0], parts.reset(seed=3)[0])]
    seen += [(flat.step(a)[0], parts.step(a)[0]) for a in pulse(flat.env)]
    for vector, named in seen:
        assert parts.observation_space.contains(named)
        np.testing.assert_array_equal(np.concatenate([*named.values()]), vector)
        assert all(part.flags.owndata and part.flags.writeable for part in named.values())


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_vector_environment_does_the_same_row_by_row(flat_and_dict, mode):
    single = flat_and_dict[1]
    env = single.env
    envs = GymnasiumVectorEnv(env, 1, seed=3, autoreset_mode=mode, dict_observation=True)
    single.reset(seed=3), envs.reset(seed=3)
    for k, action in enumerate(pulse(env)):
        alone = single.step(action)[0]
        seen, _, _, _, infos = envs.step(action[None])
        assert envs.observation_space.contains(seen)
        if k == 2 and mode == "SameStep":
            seen = infos["final_obs"]
        for name, part in alone.items():
            np.testing.assert_array_equal(seen[name][0], part)


def test_both_options_reach_gymnasium_make_and_pass_its_checker(recwarn):
    options = {"normalize_observation": True, "dict_observation": True, "horizon": 3}
    options |= {"observation": "expectations", "observables": ["p1", "p2"]}
    env = gymnasium.make(ATOM, **options)
    check_env(env.unwrapped, skip_render_check=True)
    assert not [w for w in recwarn if "observation" in str(w.message).lower()]
    envs = gymnasium.make_vec(ATOM, 2, **options)
    assert envs.single_observation_space == env.observation_space
    observation, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(observation)
    assert observation["time"].tolist() == [[-1], [-1]]

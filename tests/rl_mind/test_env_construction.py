"""Building a VecEnv: its arguments, its attributes, and what it says of its spaces."""

import inspect

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_mind.env import Observation, VecEnv


def acting(number: int, num_envs: int = 2) -> torch.Tensor:
    return torch.full((num_envs,), number)


def bare(observation: Observation) -> torch.Tensor:
    assert isinstance(observation, torch.Tensor)
    return observation


# --- construction and attributes ---


@pytest.mark.claims("V-VE-1")
def test_signature():
    parameters = inspect.signature(VecEnv).parameters
    positional = [
        (p.name, p.default) for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    assert positional == [
        ("env_name", inspect.Parameter.empty),
        ("num_envs", inspect.Parameter.empty),
        ("seed", None),
        ("same_step_reset", False),
        ("wrappers", ()),
    ]
    assert [*parameters][-1] == "kwargs"


@pytest.mark.claims("V-VE-2", "V-VE-3", "V-VE-4", "V-VE-6", "V-VE-7", "V-Q8")
def test_attributes_repeat_the_arguments():
    wrappers = [gymnasium.wrappers.RecordEpisodeStatistics]
    vec = VecEnv("toy/Counter-v0", 3, 5, True, wrappers, horizons=(2,))
    assert (vec.env_name, vec.num_envs, vec.same_step_reset) == ("toy/Counter-v0", 3, True)
    assert vec.wrappers == wrappers and vec.env_kwargs == {"horizons": (2,)}
    assert isinstance(vec.gym_env, SyncVectorEnv) and vec.gym_env.num_envs == 3
    assert vec.gym_env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert all(env.horizons == (2,) for env in vec.gym_unwrapped)  # pyright: ignore
    vec.reset()
    vec.step(acting(0, 3))
    assert [env.t for env in vec.gym_unwrapped] == [1, 1, 1]  # pyright: ignore


@pytest.mark.claims("V-VE-5", "V-Q7")
def test_wrappers_apply_from_left_to_right():
    def add(number):
        return lambda env: gymnasium.wrappers.TransformReward(env, lambda r: 10 * float(r) + number)

    vec = VecEnv("toy/Counter-v0", 2, wrappers=[add(2), add(3)])
    vec.reset()
    assert vec.step(acting(0)).reward.tolist() == [123, 123]


@pytest.mark.parametrize(
    "wrappers",
    [gymnasium.wrappers.RecordEpisodeStatistics, iter([]), None],
    ids=["one", "iterator", "none"],
)
def test_wrappers_are_a_sequence(wrappers):
    """An iterator would be used up by the first copy."""
    with pytest.raises(TypeError, match="`wrappers` must be a sequence of callables, got"):
        VecEnv("CartPole-v1", 2, wrappers=wrappers)


@pytest.mark.parametrize(
    ("num_envs", "error"), [(0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)]
)
def test_num_envs_must_be_a_positive_integer(num_envs, error):
    with pytest.raises(error, match="`num_envs` must be"):
        VecEnv("CartPole-v1", num_envs)
    assert VecEnv("CartPole-v1", np.int64(2)).num_envs == 2  # pyright: ignore


@pytest.mark.parametrize("name", ["transmon/NoSuchGate-v0", "NoSuchEnv-v0", "CartPole-v99"])
def test_an_unknown_name_says_what_to_import(name):
    with pytest.raises(ValueError, match=f"got '{name}'.*import.*'package:{name}'"):
        VecEnv(name, 2)


@pytest.mark.claims("V-Q5")
@pytest.mark.parametrize("same_step", [False, True])
def test_equal_seeds_give_equal_runs(same_step):
    def run(seed):
        vec = VecEnv("CartPole-v1", 3, seed=seed, same_step_reset=same_step)
        rows = [bare(vec.reset())]
        rows += [bare(vec.step(torch.ones(3).long()).obs) for _ in range(30)]
        return torch.stack([*rows, bare(vec.reset())])

    assert torch.equal(run(1), run(1))
    assert not torch.equal(run(1), run(2))


@pytest.mark.claims("V-Q5")
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_RN_7_a_seed_is_an_integer_from_zero_on(mode):
    def first(seed):
        return bare(VecEnv("CartPole-v1", 2, seed=seed, vectorization_mode=mode).reset())

    assert torch.equal(first(np.int64(7)), first(7)) and not torch.equal(first(0), first(2**32))
    for seed, error in ((-1, ValueError), (7.0, TypeError), (True, TypeError)):
        with pytest.raises(error, match=f"`seed` must be .*{seed}"):
            first(seed)


@pytest.mark.claims("V-Q5")
@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_a_second_reset_goes_on_with_the_random_stream(mode):
    vec = VecEnv("CartPole-v1", 2, seed=3, vectorization_mode=mode)
    first, second = bare(vec.reset()), bare(vec.reset())
    assert not torch.equal(first, second)
    raw = gymnasium.make_vec("CartPole-v1", 2, vectorization_mode=mode)
    assert torch.equal(first, torch.from_numpy(raw.reset(seed=3)[0]))
    assert torch.equal(second, torch.from_numpy(raw.reset()[0]))


@pytest.mark.claims("V-Q6")
@pytest.mark.parametrize("seed", [None, 0])
def test_torch_randomness_is_left_alone(seed):
    state = torch.get_rng_state()
    vec = VecEnv("CartPole-v1", 2, seed=seed)
    start = bare(vec.reset())
    vec.step(acting(1))
    assert torch.equal(torch.get_rng_state(), state)
    if seed is None:
        assert not torch.equal(start, bare(VecEnv("CartPole-v1", 2, seed=seed).reset()))


# --- properties ---


@pytest.mark.claims("V-PR-1", "V-PR-3", "V-PR-6", "V-PR-7", "V-PR-8")
def test_properties_of_continuous_and_discrete_environments():
    pendulum, cartpole = VecEnv("Pendulum-v1", 2), VecEnv("CartPole-v1", 2)
    assert cartpole.observation_space == gymnasium.make("CartPole-v1").observation_space
    assert (pendulum.observation_dim, cartpole.observation_dim) == (3, 4)
    assert (pendulum.is_continuous, cartpole.is_continuous) == (True, False)
    assert (pendulum.action_dim, cartpole.n_actions) == (1, 2)


@pytest.mark.claims("V-PR-2")
def test_gym_unwrapped_reaches_the_sub_environments():
    vec = VecEnv("toy/Counter-v0", 3, wrappers=[gymnasium.wrappers.RecordEpisodeStatistics])
    vec.reset()
    assert isinstance(vec.gym_unwrapped, tuple) and len(vec.gym_unwrapped) == 3
    assert vec.gym_unwrapped[0].describe() == "episode 0"  # pyright: ignore


@pytest.mark.claims("V-PR-2")
def test_what_renders_has_sub_environments():
    vec = VecEnv("CartPole-v1", 2, render_mode="rgb_array")
    vec.reset()
    images = [env.render() for env in vec.gym_unwrapped]
    assert vec.vectorization_mode == "sync" and all(isinstance(i, np.ndarray) for i in images)


def test_gym_unwrapped_of_a_batched_environment_says_why_not():
    with pytest.raises(TypeError, match=r"one batched environment.*vectorization_mode='sync'"):
        _ = VecEnv("toy/Batched-v0", 2).gym_unwrapped


@pytest.mark.claims("V-PR-4", "V-PR-5", "V-Q10", "V-RS-2")
def test_tabular_observations_index_a_table():
    vec = VecEnv("toy/Tabular-v0", 2)
    assert (vec.n_states, vec.n_actions) == (3, 3)
    states = bare(vec.reset())
    assert states.dtype == torch.long and states.tolist() == [0, 0]
    states = bare(vec.step(torch.tensor([1, 2])).obs)  # actions 0 and 1 of -1, 0, 1
    assert states.tolist() == [0, 1]
    table = torch.arange(9.0).reshape(vec.n_states, vec.n_actions)
    assert table[states].tolist() == [[0, 1, 2], [3, 4, 5]]
    taxi = VecEnv("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3", 2)
    assert (taxi.n_states, taxi.n_actions) == (500, 6) and bare(taxi.reset()).shape == (2,)


@pytest.mark.claims("V-Q9", "V-PR-3", "V-PR-4", "V-PR-7", "V-PR-8")
@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("toy/Tabular-v0", "observation_dim", "Discrete.*use `n_states`"),
        ("toy/Structured-v0", "observation_dim", "got Dict.*inspect"),
        ("toy/Structured-v0", "n_states", "got Dict.*inspect"),
        ("CartPole-v1", "n_states", "Box.*use `observation_dim`"),
        ("CartPole-v1", "action_dim", "Discrete.*use `n_actions`"),
        ("Pendulum-v1", "n_actions", "Box.*use `action_dim`"),
    ],
)
def test_a_property_that_does_not_fit_names_the_right_one(name, wrong, words):
    vec = VecEnv(name, 2)
    with pytest.raises(TypeError, match=f"`{wrong}` is defined for.*{words}"):
        getattr(vec, wrong)


@pytest.mark.claims("V-PR-3")
def test_an_image_has_no_flat_dimension():
    vec = VecEnv("toy/Spaces-v0", 2, observation=spaces.Box(0, 255, (4, 4, 3), np.uint8))
    assert bare(vec.reset()).shape == (2, 4, 4, 3)
    with pytest.raises(TypeError, match="flat Box"):
        _ = vec.observation_dim

"""Which vector environment `VecEnv` chooses, and that the choice can be seen."""

import pickle

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

from rl_mind._spaces import action_encoder, as_tensor, observation_decoder, struct_type
from rl_mind.core import named_leaves
from rl_mind.env import VecEnv

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "kwargs", "mode", "reason"),
    [
        ("CartPole-v1", {}, "vector_entry_point", "fits"),
        ("CartPole-v1", {"same_step_reset": True}, "sync", "NEXT_STEP mode, not SAME_STEP"),
        ("CartPole-v1", {"wrappers": [RecordEpisodeStatistics]}, "sync", "wrappers apply"),
        ("CartPole-v1", {"max_episode_steps": -1}, "sync", "max_episode_steps=-1"),
        ("CartPole-v1", {"max_episode_steps": 7}, "vector_entry_point", "fits"),
        ("CartPole-v1", {"disable_env_checker": True}, "sync", "refuses the arguments"),
        ("CartPole", {}, "vector_entry_point", "fits"),
        ("gymnasium:CartPole-v1", {}, "vector_entry_point", "fits"),
        ("Pendulum-v1", {}, "sync", "registers no vector entry point"),
        ("toy/Batched-v0", {}, "vector_entry_point", "fits"),
        ("toy/Batched-v0", {"same_step_reset": True}, "vector_entry_point", "fits"),
        ("toy/Wrapped-v0", {}, "sync", "wrappers apply"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*Using the latest versioned environment")
def test_auto_takes_the_batch_that_means_the_same(name, kwargs, mode, reason):
    vec = VecEnv(name, 2, **kwargs)
    assert vec.vectorization_mode == mode and reason in vec.vectorization_reason
    assert isinstance(vec.gym_env, SyncVectorEnv) == (mode == "sync")
    assert f"vectorization_mode='{mode}'" in repr(vec) and reason in repr(vec)
    vec.reset()


def test_asking_for_a_mode():
    batched = VecEnv("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    assert not isinstance(batched.gym_env, SyncVectorEnv)
    sync = VecEnv("CartPole-v1", 2, vectorization_mode="sync")
    assert isinstance(sync.gym_env, SyncVectorEnv)
    assert (sync.vectorization_reason, batched.vectorization_reason) == ("asked for",) * 2
    with pytest.raises(ValueError, match="'auto', 'sync' or 'vector_entry_point', got 'async'"):
        VecEnv("CartPole-v1", 2, vectorization_mode="async")  # pyright: ignore


@pytest.mark.parametrize(
    ("name", "kwargs", "words"),
    [
        ("CartPole-v1", {"same_step_reset": True}, "resets in NEXT_STEP mode, not SAME_STEP"),
        ("CartPole-v1", {"wrappers": [RecordEpisodeStatistics]}, "wrappers apply"),
        ("Pendulum-v1", {}, "registers no vector entry point"),
    ],
)
def test_an_impossible_vector_entry_point_says_why(name, kwargs, words):
    with pytest.raises(ValueError, match=f"impossible for '{name}': .*{words}"):
        VecEnv(name, 2, vectorization_mode="vector_entry_point", **kwargs)


def test_arguments_that_nobody_knows_are_an_error():
    with pytest.raises(TypeError, match="no_such_argument"):
        VecEnv("CartPole-v1", 2, no_such_argument=1)


def test_both_ways_of_running_cartpole_have_the_same_spaces_and_limits():
    for mode in ("sync", "vector_entry_point"):
        vec = VecEnv("CartPole-v1", 2, vectorization_mode=mode, max_episode_steps=5)
        vec.reset()
        steps = [vec.step(torch.tensor([0, 1])) for _ in range(12)]
        assert [bool(step.truncated.all()) for step in steps] == [t in (4, 10) for t in range(12)]
        assert [float(step.reward.mean()) for step in steps] == [
            float(t != 5 and t != 11) for t in range(12)
        ]
        assert vec.observation_space == gymnasium.make("CartPole-v1").observation_space


# --- arrays to tensors ---


def test_an_array_that_may_be_shared_is_shared():
    array = np.zeros((4, 3), np.float32)
    shared = as_tensor(array, array.dtype, CPU, copy=False)
    own = as_tensor(array, array.dtype, CPU, copy=True)
    array += 1
    assert shared.tolist() == [[1] * 3] * 4 and own.tolist() == [[0] * 3] * 4


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("copy", [False, True])
def test_PF_3_memory_that_torch_cannot_share_is_copied(copy):
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    as_tensor(frozen, frozen.dtype, CPU, copy=copy).fill_(7)
    assert frozen.tolist() == [0, 0, 0]
    backwards = np.arange(3)[::-1]
    assert as_tensor(backwards, backwards.dtype, CPU, copy=copy).tolist() == [2, 1, 0]
    assert as_tensor([1.5, 2.5], np.dtype(np.float32), CPU, copy=copy).tolist() == [1.5, 2.5]


def test_PF_4b_tensors_by_dlpack_are_copies_unless_asked():
    source = torch.zeros(3)  # any library's array with __dlpack__ that is not NumPy's
    as_tensor(source, np.dtype(np.float32), CPU, copy=True).fill_(7)
    assert source.tolist() == [0, 0, 0]
    as_tensor(source, np.dtype(np.float32), CPU, copy=False).fill_(7)
    assert source.tolist() == [7, 7, 7]


def test_PF_4_jax_flags_become_torch_bool():
    jnp = pytest.importorskip("jax.numpy")
    flags = jnp.array([True, False])
    got = as_tensor(flags, np.dtype(np.bool_), CPU, copy=True)
    assert got.dtype == torch.bool and got.tolist() == [True, False]
    got.fill_(False)
    assert flags.tolist() == [True, False]


def test_observation_structs_combine_and_pickle():
    space = spaces.Dict(a=spaces.Discrete(4, start=2), b=spaces.Box(0, 1, (2,)))
    decode = observation_decoder(space, CPU, copy=True)
    obs = decode({"a": np.array([2, 5]), "b": np.zeros((2, 2))})
    assert type(obs) is struct_type(("a", "b"))
    again = pickle.loads(pickle.dumps(obs))
    assert type(again) is type(obs) and dict(named_leaves(again))["a"].tolist() == [0, 3]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_actions_are_cast_to_the_space(dtype):
    encode = action_encoder(spaces.Box(-1, 1, (2,), np.float32), 1)
    assert encode(torch.ones(1, 2, dtype=dtype)).dtype == np.float32


def test_discrete_actions_are_shifted_to_the_start_of_the_space():
    encode = action_encoder(spaces.Discrete(3, start=-1), 3)
    actions = torch.tensor([0, 1, 2])
    assert encode(actions).tolist() == [-1, 0, 1] and actions.tolist() == [0, 1, 2]

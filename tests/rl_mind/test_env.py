"""VecEnv: what it accepts, what it hands out, and what happens when an episode ends."""

import inspect
import typing
from dataclasses import fields

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rl_mind import core, env
from rl_mind.core import named_leaves
from rl_mind.env import EnvStep, Observation, VecEnv

MODES = pytest.mark.parametrize("same_step", [False, True], ids=["next-step", "same-step"])
COUNTERS = pytest.mark.parametrize("name", ["toy/Counter-v0", "toy/Batched-v0", "toy/OnJax-v0"])


def acting(number: int, num_envs: int = 2) -> torch.Tensor:
    return torch.full((num_envs,), number)


def bare(observation: Observation) -> torch.Tensor:
    assert isinstance(observation, torch.Tensor)
    return observation


# --- observations and spaces ---


@pytest.mark.claims("V-ST-1")
def test_observation_is_a_tensor_or_a_struct():
    assert set(typing.get_args(env.Observation)) == {torch.Tensor, core.TensorStruct}


@pytest.mark.claims("V-ST-2", "V-RS-1", "V-RS-2", "V-ES-2")
@pytest.mark.parametrize("num_envs", [1, 3])
@COUNTERS
def test_flat_observations_are_plain_tensors(name, num_envs):
    vec = VecEnv(name, num_envs)
    assert list(inspect.signature(vec.reset).parameters) == []
    obs = vec.reset()
    assert type(obs) is torch.Tensor and obs.shape == (num_envs, 3)
    step = vec.step(acting(1, num_envs))
    assert bare(step.obs).shape == bare(step.next_obs).shape == (num_envs, 3)
    assert step.reward.shape == step.terminated.shape == step.truncated.shape == (num_envs,)
    assert step.done.shape == (num_envs,)


@pytest.mark.claims("V-ST-3", "V-RS-2")
def test_a_dict_space_becomes_a_struct_with_a_field_per_key():
    obs = VecEnv("toy/Structured-v0", 2).reset()
    assert isinstance(obs, core.TensorStruct) and len(obs) == 2
    found = {name: (tuple(leaf.shape), leaf.dtype) for name, leaf in named_leaves(obs)}
    assert found == {
        "clock": ((2, 1), torch.float32),
        "kart.buttons": ((2, 4), torch.int8),
        "kart.gear": ((2,), torch.long),
        "kart.image": ((2, 2, 2, 3), torch.uint8),
    }


@pytest.mark.claims("V-Q1")
@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple([spaces.Discrete(2)]),
        spaces.MultiBinary(3),
        spaces.MultiDiscrete([2, 3]),
        spaces.Sequence(spaces.Discrete(2)),
        spaces.Text(4),
        spaces.Dict({"cars": spaces.Sequence(spaces.Discrete(2))}),
    ],
    ids=lambda space: type(space).__name__,
)
def test_a_space_without_fixed_tensors_is_refused_by_name(space):
    kind = "Sequence" if isinstance(space, spaces.Dict) else type(space).__name__
    with pytest.raises(TypeError, match=f"(?s)observation space must be .* got {kind}.*pad"):
        VecEnv("toy/Spaces-v0", 2, observation=space)


@pytest.mark.claims("V-Q1")
@pytest.mark.parametrize("space", [spaces.MultiBinary(3), spaces.Dict(a=spaces.Discrete(2))])
def test_an_action_space_must_be_box_or_discrete(space):
    with pytest.raises(TypeError, match="action space must be Box or Discrete"):
        VecEnv("toy/Spaces-v0", 2, action=space)


@pytest.mark.parametrize("key", ["two words", "class", "map", "1st"])
def test_a_dict_key_that_cannot_be_a_field_is_refused(key):
    space = spaces.Dict({key: spaces.Discrete(2)})
    with pytest.raises(ValueError, match=f"key '{key}' of `obs` cannot become a field"):
        VecEnv("toy/Spaces-v0", 2, observation=space)


@pytest.mark.claims("V-Q2")
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float64, torch.float32),
        (np.float32, torch.float32),
        (np.float16, torch.float16),
        (np.uint8, torch.uint8),
        (np.int32, torch.int32),
    ],
)
def test_dtypes(dtype, expected):
    space = spaces.Box(0, 1, (3,), dtype)
    vec = VecEnv("toy/Spaces-v0", 2, observation=space)
    assert bare(vec.reset()).dtype == expected
    step = vec.step(torch.zeros(2, 2))
    assert step.reward.dtype == torch.float32
    assert step.terminated.dtype == step.truncated.dtype == step.done.dtype == torch.bool


@pytest.mark.claims("V-Q2")
@COUNTERS
def test_PF_4_flags_are_torch_bool_and_rewards_float32(name):
    vec = VecEnv(name, 2)
    vec.reset()
    step = vec.step(acting(0))
    assert (step.reward.dtype, step.terminated.dtype) == (torch.float32, torch.bool)


def test_steps_can_be_looked_up_among_others():
    vec = VecEnv("toy/Counter-v0", 2)
    vec.reset()
    steps = [vec.step(acting(action)) for action in (1, 2)]
    assert steps.index(steps[1]) == 1 and len({*steps}) == 2


# --- autoreset ---


@pytest.mark.claims("V-AR-1", "V-AR-2", "V-AR-3", "V-Q3", "V-Q4", "V-ES-3", "V-ES-4", "V-RS-7")
@COUNTERS
def test_VE_4_next_step_reset(name):
    vec = VecEnv(name, 2)
    vec.reset()
    for t in (1, 2):
        step = vec.step(acting(7))
        assert bare(step.obs).tolist() == [[0, t, 7]] * 2 and not step.done.any()
    ending = vec.step(acting(7))
    assert bare(ending.obs).tolist() == bare(ending.next_obs).tolist() == [[0, 3, 7]] * 2
    assert ending.terminated.all() and not ending.truncated.any()
    fresh = vec.step(acting(9))  # ignored
    assert bare(fresh.obs).tolist() == bare(fresh.next_obs).tolist() == [[1, 0, -1]] * 2
    assert fresh.reward.tolist() == [0, 0] and not fresh.done.any()
    assert bare(vec.step(acting(4)).obs).tolist() == [[1, 1, 4]] * 2


@pytest.mark.claims("V-AR-1", "V-AR-4", "V-AR-5", "V-Q3", "V-ES-3", "V-ES-4", "V-RS-7")
@COUNTERS
def test_VE_4_same_step_reset(name):
    vec = VecEnv(name, 2, same_step_reset=True)
    obs = vec.reset()
    for t in range(1, 10):
        step = vec.step(acting(t))
        assert step.reward.tolist() == [1, 1]
        assert bare(step.next_obs).tolist() == [[(t - 1) // 3, (t - 1) % 3 + 1, t]] * 2
        assert (bare(step.next_obs)[:, 1] == bare(obs)[:, 1] + 1).all()
        if t % 3 == 0:
            assert step.done.all() and bare(step.obs).tolist() == [[t // 3, 0, -1]] * 2
        else:
            assert not step.done.any() and torch.equal(bare(step.obs), bare(step.next_obs))
        obs = step.obs


@pytest.mark.claims("V-AR-4", "V-ES-4")
def test_VE_4_only_ended_rows_get_their_final_observation():
    vec = VecEnv("toy/Counter-v0", 8, seed=0, same_step_reset=True, horizons=(1, 5), random=True)
    obs = bare(vec.reset())
    some = 0
    for _ in range(20):
        step = vec.step(torch.arange(8))
        assert torch.equal(bare(step.next_obs)[:, 0], obs[:, 0])  # the same episode
        assert torch.equal(bare(step.next_obs)[:, 1], obs[:, 1] + 1)  # its next step
        assert bare(step.next_obs)[:, 2].tolist() == list(range(8))
        assert torch.equal(bare(step.obs)[:, 1] == 0, step.done)
        some += bool(0 < step.done.sum() < 8)
        obs = bare(step.obs)
    assert some > 5


@pytest.mark.claims("V-Q13")
@pytest.mark.parametrize(
    "name", ["toy/Counter-v0", "toy/Batched-v0", "toy/OnJax-v0", "toy/Structured-v0"]
)
@MODES
def test_PF_4b_writing_into_obs_leaves_next_obs_alone(name, same_step):
    vec = VecEnv(name, 2, same_step_reset=same_step)
    vec.reset()
    step = vec.step(torch.zeros(2, 2) if vec.is_continuous else acting(1))
    before = [leaf.clone() for _, leaf in named_leaves(step.next_obs)]
    for _, leaf in named_leaves(step.obs):
        leaf.fill_(7)
    after = [leaf for _, leaf in named_leaves(step.next_obs)]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_a_same_step_end_without_final_observation_is_an_error():
    vec = VecEnv("toy/Careless-v0", 2, same_step_reset=True, horizon=1)
    vec.reset()
    with pytest.raises(ValueError, match="`final_obs` where an episode ends"):
        vec.step(acting(0))


@MODES
@pytest.mark.parametrize("num_envs", [1, 3])
def test_final_observations_of_structs(same_step, num_envs):
    vec = VecEnv("toy/Structured-v0", num_envs, same_step_reset=same_step)
    vec.reset()
    step = [vec.step(torch.zeros(num_envs, 2)) for _ in range(3)][-1]
    final = {name: leaf[0].tolist() for name, leaf in named_leaves(step.next_obs)}
    assert final["clock"] == [3] and final["kart.gear"] == 0
    assert final["kart.buttons"] == [1, 1, 0, 0] and final["kart.image"][0][0] == [3] * 3
    clock = dict(named_leaves(step.obs))["clock"]
    assert (clock == (0 if same_step else 3)).all()


@pytest.mark.claims("V-ES-1", "V-ES-5", "V-ES-6", "V-ES-7")
@pytest.mark.parametrize(
    ("ending", "terminated", "truncated"),
    [("terminated", True, False), ("truncated", False, True), ("both", True, True)],
)
def test_the_two_ways_to_end_are_kept_apart(ending, terminated, truncated):
    names = [field.name for field in fields(EnvStep)]
    assert names == ["obs", "next_obs", "reward", "terminated", "truncated"]
    vec = VecEnv("toy/Counter-v0", 2, horizons=(1,), ending=ending)
    vec.reset()
    step = vec.step(acting(0))
    assert step.reward.tolist() == [1, 1]
    assert step.terminated.tolist() == [terminated] * 2
    assert step.truncated.tolist() == [truncated] * 2
    assert torch.equal(step.done, step.terminated | step.truncated) and step.done.all()


@MODES
def test_TB_5_a_time_limit_is_a_truncation(same_step):
    vec = VecEnv(
        "toy/Counter-v0", 2, same_step_reset=same_step, horizons=(99,), max_episode_steps=4
    )
    vec.reset()
    flags = [vec.step(acting(0)) for _ in range(4)]
    assert [step.truncated.tolist() for step in flags] == [[False] * 2] * 3 + [[True] * 2]
    assert not any(step.terminated.any() for step in flags)


# --- step ---


@pytest.mark.claims("V-RS-4", "V-Q12")
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize(("name", "rest"), [("CartPole-v1", ()), ("toy/Structured-v0", (2,))])
def test_VE_13_actions_of_another_shape_are_refused(name, rest, num_envs):
    vec = VecEnv(name, num_envs)
    vec.reset()
    right = (num_envs, *rest)
    vec.step(torch.zeros(right).long() if name == "CartPole-v1" else torch.zeros(right))
    for wrong in [(), (num_envs + 1, *rest), (*right, 1), (1, *right), rest or (9,)]:
        with pytest.raises(ValueError, match=r"`actions` must have shape .*got"):
            vec.step(torch.zeros(wrong).long())


@pytest.mark.claims("V-RS-4", "V-Q12")
def test_actions_of_another_kind_are_refused():
    vec = VecEnv("CartPole-v1", 2)
    vec.reset()
    with pytest.raises(TypeError, match=r"must be a torch\.Tensor, got ndarray"):
        vec.step(np.zeros(2, int))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"must be integers, got torch\.float32"):
        vec.step(torch.zeros(2))


@pytest.mark.claims("V-Q12", "V-RS-3")
@COUNTERS
def test_step_needs_a_reset_once(name):
    vec = VecEnv(name, 2)
    with pytest.raises(RuntimeError, match=r"`reset\(\)` must be called before"):
        vec.step(acting(0))
    vec.reset()
    assert sum(int(vec.step(acting(0)).done.sum()) for _ in range(20)) == 10


@pytest.mark.claims("V-RS-5")
def test_actions_are_detached_and_copied():
    vec = VecEnv("toy/Spaces-v0", 2)
    vec.reset()
    actions = torch.full((2, 2), 0.5, requires_grad=True)
    step = vec.step(actions)
    assert not step.reward.requires_grad and not bare(step.obs).requires_grad
    actions.data.zero_()
    assert vec.gym_unwrapped[0].last_action.tolist() == [0.5, 0.5]  # pyright: ignore


class Elsewhere(torch.Tensor):
    """Like a tensor of an accelerator: NumPy cannot see it before it is moved."""

    def numpy(self, *, force=False):
        raise TypeError("can't convert a tensor of this device to numpy")

    def to(self, *args, **kwargs):
        return torch.Tensor.to(self.as_subclass(torch.Tensor), *args, **kwargs)


@pytest.mark.claims("V-RS-6", "V-Q11")
@pytest.mark.parametrize("name", ["toy/Spaces-v0", "toy/Tabular-v0"])
def test_actions_go_to_the_cpu_and_results_come_from_there(name):
    vec = VecEnv(name, 2)
    assert bare(vec.reset()).device.type == "cpu"
    actions = torch.full((2, 2), 0.5) if vec.is_continuous else torch.tensor([0, 2])
    step = vec.step(actions.as_subclass(Elsewhere))
    taken = [env.last_action for env in vec.gym_unwrapped]  # pyright: ignore
    assert np.array_equal(taken, [[0.5, 0.5]] * 2 if vec.is_continuous else [-1, 1])
    for name in ("obs", "next_obs", "reward", "terminated", "truncated"):
        assert getattr(step, name).device.type == "cpu"


@MODES
@COUNTERS
def test_results_go_to_the_device_asked_for(name, same_step):
    """`meta` stands for an accelerator: it holds shapes and no numbers."""
    vec = VecEnv(name, 2, same_step_reset=same_step, device="meta")
    assert bare(vec.reset()).device.type == "meta"
    for _ in range(4):
        step = vec.step(acting(0))
        tensors = (step.obs, step.next_obs, step.reward, step.terminated, step.truncated)
        assert all(bare(tensor).device.type == "meta" for tensor in tensors)


@pytest.mark.claims("V-Q13")
@pytest.mark.parametrize(
    "name", ["toy/Counter-v0", "toy/Batched-v0", "toy/OnJax-v0", "toy/Structured-v0"]
)
@MODES
def test_VE_6_kept_tensors_never_change(name, same_step):
    vec = VecEnv(name, 2, same_step_reset=same_step)
    actions = torch.zeros(2, 2) if vec.is_continuous else acting(1)
    kept = [vec.reset()]
    for _ in range(5):
        step = vec.step(actions)
        kept += [step.obs, step.next_obs, step.reward, step.terminated, step.truncated]
    copies = [core.tree_map(torch.clone, tree) for tree in kept]
    for _ in range(5):
        vec.step(actions)
    for tree, copy in zip(kept, copies, strict=True):
        for (name, a), (_, b) in zip(named_leaves(tree), named_leaves(copy), strict=True):
            assert torch.equal(a, b), name


@pytest.mark.claims("V-Q13")
@COUNTERS
@MODES
def test_PF_4b_writing_into_results_changes_nothing_later(name, same_step):
    def run(spoil):
        vec = VecEnv(name, 2, same_step_reset=same_step)
        rows = [bare(vec.reset()).clone()]
        for t in range(8):
            step = vec.step(acting(t))
            rows += [bare(step.obs).clone(), bare(step.next_obs).clone(), step.reward.clone()]
            rows += [step.terminated.clone()]
            if spoil:
                bare(step.obs).mul_(0)
                step.reward.fill_(9)
                step.terminated.logical_not_()
        return rows

    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True), strict=True))


@pytest.mark.claims("V-Q14")
def test_actions_outside_the_box_are_passed_on():
    vec = VecEnv("toy/Spaces-v0", 2)
    vec.reset()
    vec.step(torch.full((2, 2), 5.0))
    assert vec.gym_unwrapped[0].last_action.tolist() == [5, 5]  # pyright: ignore
    assert vec.gym_unwrapped[0].last_action.dtype == np.float32  # pyright: ignore


def test_VE_15_an_episode_of_H_steps_takes_H_plus_one_calls():
    for calls, real in ((8, 6), (15, 12)):
        vec = VecEnv("toy/Counter-v0", 1)
        vec.reset()
        assert sum(float(vec.step(acting(0, 1)).reward) for _ in range(calls)) == real

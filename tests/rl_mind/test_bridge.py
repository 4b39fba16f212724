"""Where rl_mind meets qenvs: a Gymnasium id, its batched environment, and tensors."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rl_mind.collectors import EpisodeCollector, RolloutCollector, TransitionCollector
from rl_mind.core import Action
from rl_mind.env import Observation, VecEnv

qenvs = pytest.importorskip("qenvs")
TASK = "qubit/StateTransfer-v0"
MODES = pytest.mark.parametrize("same_step", [False, True], ids=["next-step", "same-step"])


def bare(observation: Observation) -> torch.Tensor:
    assert isinstance(observation, torch.Tensor)
    return observation


def pulse(obs: Observation) -> Action:
    """A smooth pulse that reads the elapsed time, the last entry of the observation."""
    return Action(torch.sin(5 * bare(obs)[:, -1:]))


@pytest.mark.claims("V-Q8")
@MODES
def test_a_name_finds_the_batched_environment(same_step):
    vec = VecEnv(TASK, 8, same_step_reset=same_step, normalize_actions=True)
    assert vec.vectorization_mode == "vector_entry_point"
    assert type(vec.gym_env).__name__ == "GymnasiumVectorEnv"
    wanted = AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP
    assert vec.gym_env.metadata["autoreset_mode"] is wanted
    assert bare(vec.reset()).shape == (8, vec.observation_dim)
    assert vec.action_dim == 1 and vec.is_continuous
    with pytest.raises(TypeError, match="one batched environment"):
        _ = vec.gym_unwrapped


def test_the_package_in_the_name_imports_it():
    assert bare(VecEnv(f"qenvs:{TASK}", 2).reset()).shape == (2, 5)


@MODES
def test_numbers_agree_with_the_numpy_interface(same_step):
    mode = AutoresetMode.SAME_STEP if same_step else AutoresetMode.NEXT_STEP
    raw = gymnasium.make_vec(
        TASK, 3, vectorization_mode="vector_entry_point", autoreset_mode=mode, horizon=4
    )
    vec = VecEnv(TASK, 3, seed=0, same_step_reset=same_step, horizon=4)
    assert np.array_equal(bare(vec.reset()).numpy(), raw.reset(seed=0)[0])
    generator = torch.Generator().manual_seed(0)
    for _ in range(11):
        actions = torch.rand(3, 1, generator=generator)
        step = vec.step(actions)
        obs, reward, terminated, truncated, infos = raw.step(actions.numpy())
        assert np.array_equal(bare(step.obs).numpy(), obs)
        assert np.array_equal(step.reward.numpy(), reward)
        assert np.array_equal(step.terminated.numpy(), terminated)
        assert step.terminated.dtype == torch.bool and not truncated.any()
        if same_step and terminated.any():
            assert np.array_equal(bare(step.next_obs).numpy(), infos["final_obs"])
            assert bare(step.next_obs)[:, -1].tolist() == [1, 1, 1]  # elapsed time
            assert bare(step.obs)[:, -1].tolist() == [0, 0, 0]


def test_batched_and_separate_environments_play_the_same_episodes():
    batched = VecEnv(TASK, 3, seed=0, horizon=4)
    separate = VecEnv(TASK, 3, seed=0, horizon=4, vectorization_mode="sync")
    assert isinstance(separate.gym_env, SyncVectorEnv) and len(separate.gym_unwrapped) == 3
    a, b = bare(batched.reset()), bare(separate.reset())
    for _ in range(11):
        assert torch.allclose(a, b, atol=1e-6)
        actions = torch.rand(3, 1)
        first, second = batched.step(actions), separate.step(actions)
        a, b = bare(first.obs), bare(second.obs)
        assert torch.allclose(first.reward, second.reward, atol=1e-6)
        assert torch.equal(first.terminated, second.terminated)


def test_wrappers_fall_back_to_separate_environments():
    wrappers = [lambda env: gymnasium.wrappers.TransformReward(env, lambda r: 2 * float(r))]
    vec = VecEnv(TASK, 2, wrappers=wrappers)
    assert vec.vectorization_mode == "sync" and "wrappers" in vec.vectorization_reason
    plain = VecEnv(TASK, 2)
    vec.reset()
    plain.reset()
    actions = torch.full((2, 1), 0.7)
    assert torch.allclose(vec.step(actions).reward, 2 * plain.step(actions).reward)


def test_TB_5_a_limit_on_steps_truncates_and_the_horizon_terminates():
    cut = VecEnv(TASK, 2, same_step_reset=True, horizon=5, max_episode_steps=3)
    rollout = RolloutCollector(cut, pulse).collect(5)
    assert rollout.truncated[:, 0].tolist() == [False, False, True, False, False]
    assert not rollout.terminated.any()
    whole = VecEnv(TASK, 2, same_step_reset=True, horizon=5)
    rollout = RolloutCollector(whole, pulse).collect(5)
    assert rollout.terminated[:, 0].tolist() == [False] * 4 + [True]
    assert not rollout.truncated.any()


@MODES
def test_TB_1_collectors_keep_episodes_apart(same_step):
    vec = VecEnv(TASK, 3, same_step_reset=same_step, horizon=4)
    batch = TransitionCollector(vec, pulse).collect(20)
    assert len(batch) == 3 * (20 if same_step else 16)
    elapsed = bare(batch.next_obs)[:, -1] - bare(batch.obs)[:, -1]
    assert torch.allclose(elapsed, torch.full_like(elapsed, 0.25))
    episodes = EpisodeCollector(vec, pulse).collect(4)
    assert [len(episode) for episode in episodes] == [4] * 4
    assert all(episode.terminated for episode in episodes)


@pytest.mark.claims("V-Q13")
@pytest.mark.filterwarnings("error")
@MODES
def test_PF_4b_writing_into_tensors_changes_nothing_later(same_step):
    def run(spoil):
        vec = VecEnv(TASK, 2, seed=0, same_step_reset=same_step, horizon=3)
        rows = [bare(vec.reset()).clone()]
        for _ in range(8):
            step = vec.step(torch.full((2, 1), 0.4))
            rows += [bare(step.obs).clone(), bare(step.next_obs).clone(), step.reward.clone()]
            if spoil:
                bare(step.obs).mul_(0)
                step.reward.mul_(0)
                step.terminated.fill_(True)
        return rows

    assert all(torch.equal(a, b) for a, b in zip(run(False), run(True), strict=True))


@pytest.mark.claims("V-Q13")
def test_VE_6_kept_tensors_never_change():
    vec = VecEnv(TASK, 2, same_step_reset=True, horizon=3)
    kept = [bare(vec.reset())]
    for _ in range(4):
        step = vec.step(torch.full((2, 1), 0.4))
        kept += [bare(step.obs), bare(step.next_obs), step.reward, step.terminated]
    copies = [tensor.clone() for tensor in kept]
    for _ in range(4):
        vec.step(torch.full((2, 1), -0.9))
    assert all(torch.equal(a, b) for a, b in zip(kept, copies, strict=True))


@MODES
def test_tensors_share_the_arrays_that_the_batch_gives_away(same_step, monkeypatch):
    vec = VecEnv(TASK, 4, same_step_reset=same_step)
    vec.reset()
    raw = vec.gym_env.step(np.zeros((4, 1), np.float32))
    monkeypatch.setattr(vec.gym_env, "step", lambda actions: raw)
    step = vec.step(torch.zeros(4, 1))
    for array, tensor in zip(
        raw[:4], (step.obs, step.reward, step.terminated, step.truncated), strict=True
    ):
        assert bare(tensor).data_ptr() == array.ctypes.data


@pytest.mark.claims("V-RS-5")
def test_gradients_stop_at_the_environment():
    vec = VecEnv(TASK, 2)
    vec.reset()
    assert not vec.step(torch.zeros(2, 1, requires_grad=True)).reward.requires_grad

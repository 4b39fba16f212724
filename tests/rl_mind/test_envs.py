"""Environments of our own."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import rl_mind.envs
from rl_mind.env import VecEnv

NAME = "CartPoleContinuous-v1"


def rollout(name, actions, seed=0):
    env = gymnasium.make(name)
    rows = [env.reset(seed=seed)[0]]
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        rows.append(np.array([*obs, reward, terminated, truncated]))
        if terminated or truncated:
            break
    return rows


def test_full_force_is_cartpole():
    pushes = np.random.default_rng(0).integers(0, 2, 40)
    discrete = rollout("CartPole-v1", pushes)
    continuous = rollout(NAME, [np.array([2.0 * p - 1.0], np.float32) for p in pushes])
    assert len(discrete) == len(continuous) > 8
    for a, b in zip(discrete, continuous, strict=True):
        assert np.array_equal(a, b)


def test_SE_6_the_force_is_proportional_and_clipped():
    def velocity(action):
        return rollout(NAME, [np.array([action], np.float32)])[1][1]

    base = velocity(0.0)
    assert velocity(0.5) - base == pytest.approx((velocity(1.0) - base) / 2, rel=1e-5)
    assert velocity(5.0) == velocity(1.0) and velocity(-3.0) == velocity(-1.0)


@pytest.mark.filterwarnings("ignore:.*A Box observation space m.*value is")
@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
def test_it_is_a_gymnasium_environment_with_a_time_limit():
    env = gymnasium.make(NAME)
    check_env(env, skip_render_check=True)
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
    spec = gymnasium.spec(NAME)
    assert (spec.max_episode_steps, spec.reward_threshold) == (500, 475.0)
    assert gymnasium.make(env.spec).action_space == env.action_space  # pyright: ignore


def test_TB_5_the_time_limit_truncates():
    vec = VecEnv(NAME, 2, max_episode_steps=3)
    vec.reset()
    steps = [vec.step(torch.zeros(2, 1)) for _ in range(3)]
    assert steps[-1].truncated.all() and not steps[-1].terminated.any()
    assert (vec.action_dim, vec.observation_dim, vec.vectorization_mode) == (1, 4, "sync")


def test_it_drives_cartpole_only():
    with pytest.raises(TypeError, match="`env` must be a CartPole"):
        rl_mind.envs.ContinuousForce(gymnasium.make("Pendulum-v1"))


def test_only_an_explicit_import_registers_it():
    code = (
        "import gymnasium, rl_mind, rl_mind.env\n"
        f"assert {NAME!r} not in gymnasium.registry\n"
        "import rl_mind.envs\n"
        f"assert {NAME!r} in gymnasium.registry"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""Every algorithm in examples/, at a reduced length; the slow tests train to the figures given."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rl_mind.collectors import RolloutCollector
from rl_mind.env import VecEnv

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["dqn", "reinforce"])
def test_algorithms_for_discrete_actions_run(name):
    assert load(name).train("CartPole-v1", steps=1500, seed=0) >= 8


@pytest.mark.parametrize("task", ["cartpole", "qubit"])
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_algorithms_with_tasks_run(name, task):
    if task == "qubit":
        pytest.importorskip("qenvs")
    module = load(name)
    final = module.train(replace(module.TASKS[task], steps=2600), seed=0)
    assert final >= (8 if task == "cartpole" else 0)


@pytest.mark.parametrize("name", ["dqn", "ppo", "reinforce", "sac"])
def test_an_example_is_one_short_file(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 150


@pytest.mark.parametrize("task", ["cartpole", "qubit"])
def test_TB_14_the_first_ratio_is_one(task):
    ppo = load("ppo")
    config = ppo.TASKS[task]
    env = VecEnv(config.env_name, 16, seed=0, same_step_reset=True, **config.env_kwargs)
    policy = ppo.Policy(env)
    rollout = RolloutCollector(env, policy).collect(20)
    for step in rollout:  # as many rows at once as the policy saw
        again = policy.distribution(step.obs).log_prob(step.action.value)
        assert torch.equal((again - step.action.log_prob).exp(), torch.ones(16))
    flat = rollout.flatten()
    again = policy.distribution(flat.obs).log_prob(flat.action.value)
    assert torch.allclose((again - flat.action.log_prob).exp(), torch.ones(320), atol=1e-5)


def test_SE_6_PPO_keeps_the_sample_that_its_log_probability_belongs_to():
    ppo = load("ppo")
    config = ppo.TASKS["qubit"]
    env = VecEnv(config.env_name, 64, seed=0, same_step_reset=True, **config.env_kwargs)
    policy = ppo.Policy(env)
    policy.log_std.data.fill_(1.0)
    action = RolloutCollector(env, policy).collect(3).action
    assert (action.value.abs() > 1).any()  # beyond the bound, and kept as it is


def test_the_policy_of_sac_knows_its_density():
    """Squashing by tanh: the density over the actions must integrate to 1."""
    import rl_mind.envs  # noqa: F401

    policy = load("sac").Policy(VecEnv("CartPoleContinuous-v1", 1))
    action = policy(torch.zeros(20_000, 4))
    inside = action.value[:, 0].abs() < 0.99
    # E[1 / p(a)] over |a| < 0.99 is the length of that interval.
    length = torch.where(inside, (-action.log_prob).exp(), 0.0).mean()
    assert length.item() == pytest.approx(1.98, rel=0.05)


@pytest.mark.slow
def test_PPO_solves_cartpole_on_five_seeds():
    ppo = load("ppo")
    finals = [ppo.train(ppo.TASKS["cartpole"], seed) for seed in range(5)]
    assert sum(finals) / 5 >= 475


@pytest.mark.slow
def test_PPO_flips_a_qubit():
    pytest.importorskip("qenvs")
    ppo = load("ppo")
    assert ppo.train(ppo.TASKS["qubit"], seed=0) >= 0.999

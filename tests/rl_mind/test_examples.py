"""Every algorithm in examples/, at a reduced length; the slow tests train to the figures given."""

import importlib.util
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rl_mind.collectors import RolloutCollector
from rl_mind.core import Action, Actor, Observation
from rl_mind.env import VecEnv
from rl_mind.evaluation import Evaluator

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALGORITHMS = ["dqn", "ppo", "reinforce", "sac"]


@pytest.fixture(autouse=True)
def _examples_import_each_other(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def final_return(module: ModuleType, task: str, seed: int = 0, **changes: Any) -> float:
    """Train as the command line does and return the mean return of the final evaluation."""
    torch.manual_seed(seed)
    config = replace(module.TASKS[task], **changes)
    actor = module.train(config, seed)
    return float(Evaluator(config.make(100, seed + 2000), every=1).run(actor).mean())


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("dqn", "cartpole"),
        ("reinforce", "cartpole"),
        ("ppo", "cartpole"),
        ("ppo", "qubit"),
        ("sac", "cartpole"),
        ("sac", "qubit"),
    ],
)
def test_every_algorithm_runs_on_its_tasks(name, task):
    if task == "qubit":
        pytest.importorskip("qenvs")
    final = final_return(load(name), task, steps=1100)
    assert final >= (8 if task == "cartpole" else 0)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_example_is_one_short_file(name):
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 150


class Still(Actor[Action]):
    def forward(self, obs: Observation) -> Action:
        return Action(self.act(obs))

    def act(self, obs: Observation) -> torch.Tensor:
        return torch.zeros(len(obs)).long()


def test_the_command_line_trains_each_seed_and_evaluates_anew(monkeypatch, capsys):
    common, seeds = load("common"), []

    def train(task, seed):
        seeds.append((task.env_name, seed))
        return Still()

    tasks = {
        name: common.Task(env_name="toy/Counter-v0", env_kwargs={"horizons": (length,)}, steps=1)
        for name, length in (("short", 3), ("long", 7))
    }
    for arguments, expected in (([], [3.0]), (["--task", "long", "--seeds", "2"], [7.0, 7.0])):
        monkeypatch.setattr("sys.argv", ["example", *arguments])
        seeds.clear()
        common.run(train, tasks)
        lines = capsys.readouterr().out.splitlines()
        assert seeds == [("toy/Counter-v0", seed) for seed in range(len(expected))]
        assert [float(line.split()[-1]) for line in lines] == [*expected, expected[0]]
        assert f"over {len(seeds)} seeds" in lines[-1] and "over 100 episodes" in lines[0]


@pytest.mark.parametrize("task", ["cartpole", "qubit"])
def test_TB_14_the_first_ratio_is_one(task):
    ppo = load("ppo")
    config = ppo.TASKS[task]
    env = config.make(16, seed=0, same_step_reset=True)
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
    env = config.make(64, seed=0, same_step_reset=True)
    policy = ppo.Policy(env)
    policy.log_std.data.fill_(1.0)
    action = RolloutCollector(env, policy).collect(3).action
    assert (action.value.abs() > 1).any()  # beyond the bound, and kept as it is


def test_the_policy_of_sac_knows_its_density():
    """Squashing by tanh: the density over the actions must integrate to 1."""
    import rl_mind.envs  # noqa: F401

    policy = load("sac").Policy(VecEnv("CartPoleContinuous-v1", 1), hidden=64)
    action = policy(torch.zeros(20_000, 4))
    inside = action.value[:, 0].abs() < 0.99
    # E[1 / p(a)] over |a| < 0.99 is the length of that interval.
    length = torch.where(inside, (-action.log_prob).exp(), 0.0).mean()
    assert length.item() == pytest.approx(1.98, rel=0.05)


@pytest.mark.slow
def test_PPO_solves_cartpole_on_five_seeds():
    ppo = load("ppo")
    assert sum(final_return(ppo, "cartpole", seed) for seed in range(5)) / 5 >= 475


@pytest.mark.slow
def test_PPO_flips_a_qubit():
    pytest.importorskip("qenvs")
    assert final_return(load("ppo"), "qubit") >= 0.999

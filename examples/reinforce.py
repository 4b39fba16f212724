"""REINFORCE: whole episodes, and the gradient of their log-probability times what they earned.

    python examples/reinforce.py                               # CartPole-v1, 500 at best

Williams, Simple statistical gradient-following algorithms for connectionist reinforcement learning,
1992.
"""

from dataclasses import dataclass

import torch
from common import Task, run
from torch import Tensor
from torch.distributions import Categorical

from rl_mind.collectors import EpisodeCollector
from rl_mind.core import Actor, Observation, StochasticAction
from rl_mind.data import Episode, gae
from rl_mind.env import VecEnv
from rl_mind.evaluation import Evaluator
from rl_mind.nn import build_mlp


@dataclass(frozen=True, kw_only=True)
class Config(Task):
    """A task and the hyperparameters for it."""

    num_envs: int = 16
    gamma: float = 0.99
    lr: float = 1e-2


TASKS = {"cartpole": Config(env_name="CartPole-v1", steps=120_000)}


class Policy(Actor[StochasticAction]):
    """A categorical policy."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__()
        self.net = build_mlp([env.observation_dim, 64, env.n_actions])

    def distribution(self, obs: Observation) -> Categorical:
        return Categorical(logits=self.net(obs))

    def forward(self, obs: Observation) -> StochasticAction:
        distribution = self.distribution(obs)
        value = distribution.sample()
        return StochasticAction(value, distribution.log_prob(value))

    def act(self, obs: Observation) -> Tensor:
        return self.net(obs).argmax(-1)


def returns_to_go(reward: Tensor, gamma: float) -> Tensor:
    """Return the discounted sum of each step's reward and what follows: GAE without a critic."""
    zero, never = torch.zeros_like(reward), torch.zeros_like(reward, dtype=torch.bool)
    return gae(reward, zero, zero, never, never, gamma=gamma, lam=1.0)


def loss(policy: Policy, episodes: list[Episode[StochasticAction]], gamma: float) -> Tensor:
    """Policy gradient with normalised returns, so that better than average is reinforced."""
    gain = torch.cat([returns_to_go(episode.reward, gamma) for episode in episodes])
    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
    log_prob = torch.cat([policy.distribution(e.obs).log_prob(e.action.value) for e in episodes])
    return -(gain * log_prob).mean()


def train(config: Config, seed: int) -> Policy:
    """Train a policy with REINFORCE and return the best one."""
    env = config.make(config.num_envs, seed)
    evaluator = Evaluator[Policy](config.make(10, seed + 1000), every=config.steps // 10)
    policy = Policy(env)
    optimizer = torch.optim.Adam(policy.parameters(), lr=config.lr)
    collector = EpisodeCollector(env, policy)
    while collector.steps < config.steps:
        optimizer.zero_grad()
        loss(policy, collector.collect(config.num_envs), config.gamma).backward()
        optimizer.step()
        if result := evaluator.run_if_needed(collector.steps, policy):
            print(f"seed {seed}  step {result.step:7d}  return {result.mean:.1f}")
    return evaluator.best_actor


if __name__ == "__main__":
    run(train, TASKS)

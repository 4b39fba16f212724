"""REINFORCE: whole episodes, and the gradient of their log-probability times what they earned.

    python examples/reinforce.py                               # CartPole-v1, 500 at best

Williams, Simple statistical gradient-following algorithms for connectionist reinforcement learning,
1992.
"""

import argparse

import torch
from torch import Tensor
from torch.distributions import Categorical

from rl_mind.collectors import EpisodeCollector
from rl_mind.core import Actor, Observation, StochasticAction
from rl_mind.data import Episode, gae
from rl_mind.env import VecEnv
from rl_mind.evaluation import Evaluator
from rl_mind.nn import build_mlp


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


def train(
    env_name: str,
    steps: int,
    seed: int,
    num_envs: int = 16,
    gamma: float = 0.99,
    lr: float = 1e-2,
) -> float:
    """Train one policy, print evaluations, and return the mean return of the best one."""
    torch.manual_seed(seed)
    env = VecEnv(env_name, num_envs, seed=seed)
    evaluator = Evaluator[Policy](VecEnv(env_name, 10, seed=seed + 1000), every=steps // 10)
    policy = Policy(env)
    optimizer = torch.optim.Adam(policy.parameters(), lr=lr)
    collector = EpisodeCollector(env, policy)
    while collector.steps < steps:
        optimizer.zero_grad()
        loss(policy, collector.collect(num_envs), gamma).backward()
        optimizer.step()
        if result := evaluator.run_if_needed(collector.steps, policy):
            print(f"seed {seed}  step {result.step:7d}  return {result.mean:.1f}")
    return float(evaluator.run(evaluator.best_actor).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Train REINFORCE.")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--steps", type=int, default=120_000)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    finals = [train(arguments.env, arguments.steps, seed) for seed in range(arguments.seeds)]
    print("best returns, evaluated anew:", *(f"{final:.1f}" for final in finals))


if __name__ == "__main__":
    main()

"""PPO: learn from rollouts, several passes over each, with clipped policy ratios.

    python examples/ppo.py [--task qubit]    # CartPole-v1, 500 at best; qubit: fidelity, at most 1
Schulman et al., Proximal policy optimization algorithms, 2017 (arXiv:1707.06347).
"""

from dataclasses import dataclass

import torch
from common import Task, run
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from rl_mind.collectors import RolloutCollector
from rl_mind.core import Actor, Observation, StochasticAction, TensorStruct
from rl_mind.data import Rollout, gae, minibatches
from rl_mind.env import VecEnv
from rl_mind.evaluation import Evaluator
from rl_mind.nn import build_mlp


@dataclass(frozen=True, kw_only=True)
class Config(Task):
    """A task and the hyperparameters for it."""

    num_envs: int
    n_steps: int
    batch_size: int
    gamma: float
    lam: float
    lr: float = 1e-3
    epochs: int = 8
    clip: float = 0.2
    entropy: float = 0.0


TASKS = {
    "cartpole": Config(
        env_name="CartPole-v1",
        steps=100_000,
        num_envs=16,
        n_steps=64,
        batch_size=256,
        gamma=0.98,
        lam=0.9,
        entropy=0.001,
    ),
    "qubit": Config(
        env_name="qenvs:qubit/StateTransfer-v0",
        env_kwargs={"normalize_actions": True},
        steps=150_000,
        num_envs=128,
        n_steps=20,
        batch_size=640,
        gamma=1.0,
        lam=0.95,
    ),
}


class Policy(Actor[StochasticAction]):
    """A categorical policy for discrete actions, a Gaussian one for continuous actions."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__()
        self.continuous = env.is_continuous
        outputs = env.action_dim if env.is_continuous else env.n_actions
        self.net = build_mlp([env.observation_dim, 64, 64, outputs], activation=nn.Tanh)
        self.log_std = nn.Parameter(torch.full((outputs,), -0.5))

    def distribution(self, obs: Observation) -> Distribution:
        if self.continuous:
            return Independent(Normal(self.net(obs), self.log_std.exp()), 1)
        return Categorical(logits=self.net(obs))

    def forward(self, obs: Observation) -> StochasticAction:
        distribution = self.distribution(obs)
        value = distribution.sample()  # the environment clips, the log-probability is of this
        return StochasticAction(value, distribution.log_prob(value))

    def act(self, obs: Observation) -> Tensor:
        return self.distribution(obs).mode


@dataclass(frozen=True, eq=False)
class Batch(TensorStruct):
    """What PPO's loss needs of a step."""

    obs: Observation
    action: StochasticAction
    advantage: Tensor
    target: Tensor


@torch.no_grad()
def prepare(rollout: Rollout[StochasticAction], critic: nn.Module, config: Config) -> Batch:
    """Estimate advantages and flatten a rollout."""
    flat = rollout.flatten()
    value, next_value = (
        critic(obs).squeeze(-1).reshape(rollout.reward.shape) for obs in (flat.obs, flat.next_obs)
    )
    ends = (rollout.terminated, rollout.truncated)
    advantage = gae(rollout.reward, value, next_value, *ends, gamma=config.gamma, lam=config.lam)
    return Batch(flat.obs, flat.action, advantage.flatten(), (advantage + value).flatten())


def loss(policy: Policy, critic: nn.Module, batch: Batch, config: Config) -> Tensor:
    """Clipped surrogate, critic error and entropy bonus."""
    distribution = policy.distribution(batch.obs)
    ratio = (distribution.log_prob(batch.action.value) - batch.action.log_prob).exp()
    advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
    error = nn.functional.mse_loss(critic(batch.obs).squeeze(-1), batch.target)
    entropy = distribution.entropy().mean() if config.entropy else 0.0
    return error - gain - config.entropy * entropy


def train(config: Config, seed: int) -> Policy:
    """Train a policy with PPO."""
    env = config.make(config.num_envs, seed, same_step_reset=True)
    evaluator = Evaluator[Policy](config.make(10, seed + 1000), every=config.steps // 5)
    policy, critic = Policy(env), build_mlp([env.observation_dim, 64, 64, 1], activation=nn.Tanh)
    parameters = [*policy.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=config.lr)
    collector = RolloutCollector(env, policy)
    while collector.steps < config.steps:
        optimizer.param_groups[0]["lr"] = config.lr * (1 - collector.steps / config.steps)
        batch = prepare(collector.collect(config.n_steps), critic, config)
        for _ in range(config.epochs):
            for part in minibatches(batch, config.batch_size):
                optimizer.zero_grad()
                loss(policy, critic, part, config).backward()
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
        if result := evaluator.run_if_needed(collector.steps, policy):
            print(f"seed {seed}  step {result.step:7d}  return {result.mean:.4f}")
    return policy


if __name__ == "__main__":
    run(train, TASKS)

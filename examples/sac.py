"""SAC: learn off-policy from a replay buffer, with as much randomness as the task allows.

    python examples/sac.py                                     # CartPoleContinuous-v1, 500 at best
    python examples/sac.py --task qubit                        # flip a qubit, fidelity 1 at best

Haarnoja et al., Soft actor-critic algorithms and applications, 2018 (arXiv:1812.05905).
"""

from copy import deepcopy
from dataclasses import dataclass
from math import log

import torch
from common import Task, run
from torch import Tensor, nn
from torch.distributions import Normal

import rl_mind.envs  # noqa: F401 - registers CartPoleContinuous-v1
from rl_mind.collectors import TransitionCollector
from rl_mind.core import Action, Actor, Observation, StochasticAction
from rl_mind.data import ReplayBuffer, Transitions
from rl_mind.env import VecEnv
from rl_mind.evaluation import Evaluator
from rl_mind.nn import build_mlp, soft_update


@dataclass(frozen=True, kw_only=True)
class Config(Task):
    """A task and the hyperparameters for it."""

    gamma: float
    num_envs: int = 8
    updates_per_call: int = 4
    warm_up: int = 1000
    batch_size: int = 256
    hidden: int = 128
    lr: float = 1e-3
    tau: float = 0.02
    alpha: float = 0.02  # the first weight of the entropy, which then adapts
    entropy: float = -1.0  # wanted, per dimension of the action: 0.69 is uniform over [-1, 1]
    reward_scale: float = 1.0  # such that returns are of order 1: a network learns those best


TASKS = {
    "cartpole": Config(
        env_name="CartPoleContinuous-v1", steps=20_000, gamma=0.99, entropy=0.2, reward_scale=0.05
    ),
    "qubit": Config(
        env_name="qenvs:qubit/StateTransfer-v0",
        env_kwargs={"normalize_actions": True},
        steps=30_000,
        gamma=1.0,
    ),
}


class Policy(Actor[StochasticAction]):
    """A Gaussian squashed into [-1, 1] by tanh."""

    def __init__(self, env: VecEnv, hidden: int) -> None:
        super().__init__()
        self.net = build_mlp([env.observation_dim, hidden, hidden, 2 * env.action_dim])

    def forward(self, obs: Observation) -> StochasticAction:
        mean, log_std = self.net(obs).chunk(2, dim=-1)
        gaussian = Normal(mean, log_std.clamp(-5, 1).exp())
        raw = gaussian.rsample()
        slope = 2 * (log(2) - raw - nn.functional.softplus(-2 * raw))  # log of 1 - tanh(raw)^2
        return StochasticAction(raw.tanh(), (gaussian.log_prob(raw) - slope).sum(-1))

    def act(self, obs: Observation) -> Tensor:
        return self.net(obs).chunk(2, dim=-1)[0].tanh()


class Critic(nn.Module):
    """Two estimates of Q; the lower one is used, against overestimation."""

    def __init__(self, env: VecEnv, hidden: int) -> None:
        super().__init__()
        sizes = [env.observation_dim + env.action_dim, hidden, hidden, 1]
        self.nets = nn.ModuleList([build_mlp(sizes), build_mlp(sizes)])

    def forward(self, obs: Observation, action: Tensor) -> Tensor:
        assert isinstance(obs, Tensor)
        joined = torch.cat([obs, action], dim=-1)
        return torch.stack([net(joined).squeeze(-1) for net in self.nets])


class Learner:
    """The networks, their optimisers and one gradient step of each."""

    def __init__(self, env: VecEnv, config: Config) -> None:
        self.config = config
        self.policy, self.critic = Policy(env, config.hidden), Critic(env, config.hidden)
        self.target = deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.full((1,), log(config.alpha), requires_grad=True)
        self.wanted_entropy = config.entropy * env.action_dim
        groups = (self.policy.parameters(), self.critic.parameters(), [self.log_alpha])
        self.optimizers = [torch.optim.Adam(group, lr=config.lr) for group in groups]

    def update(self, batch: Transitions[Action]) -> None:
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            after = self.policy(batch.next_obs)
            value = self.target(batch.next_obs, after.value).min(0).values - alpha * after.log_prob
            reward = self.config.reward_scale * batch.reward
            wanted = reward + self.config.gamma * value * ~batch.terminated
        error = (self.critic(batch.obs, batch.action.value) - wanted).square().sum(0).mean()
        self._descend(1, error)
        now = self.policy(batch.obs)
        q = self.critic(batch.obs, now.value).min(0).values
        self._descend(0, (alpha * now.log_prob - q).mean())
        surplus = (now.log_prob + self.wanted_entropy).detach().mean()
        self._descend(2, -self.log_alpha.exp() * surplus)
        soft_update(self.target, self.critic, self.config.tau)

    def _descend(self, which: int, loss: Tensor) -> None:
        self.optimizers[which].zero_grad()  # also of what the other losses left there
        loss.sum().backward()
        self.optimizers[which].step()


def train(config: Config, seed: int) -> Policy:
    """Train a policy with SAC and return the best one."""
    env = config.make(config.num_envs, seed)
    evaluator = Evaluator[Policy](config.make(10, seed + 1000), every=config.steps // 10)
    learner = Learner(env, config)
    collector = TransitionCollector(env, learner.policy)
    buffer = ReplayBuffer[Transitions[StochasticAction]](capacity=100_000)
    while collector.steps < config.steps:
        buffer.add(collector.collect(1))
        if len(buffer) >= config.warm_up:
            for _ in range(config.updates_per_call):
                learner.update(buffer.sample(config.batch_size))
        if result := evaluator.run_if_needed(collector.steps, learner.policy):
            print(f"seed {seed}  step {result.step:7d}  return {result.mean:.4f}")
    return evaluator.best_actor


if __name__ == "__main__":
    run(train, TASKS)

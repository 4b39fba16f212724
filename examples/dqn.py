"""Double DQN: learn the value of each discrete action from a replay buffer.

    python examples/dqn.py                                     # CartPole-v1, 500 at best

Mnih et al., Human-level control through deep reinforcement learning, 2015; van Hasselt et al., Deep
reinforcement learning with double Q-learning, 2016 (arXiv:1509.06461).
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
from common import Task, run
from torch import Tensor, nn

from rl_mind.collectors import TransitionCollector
from rl_mind.core import Action, Actor, Observation
from rl_mind.data import ReplayBuffer, Transitions
from rl_mind.env import VecEnv
from rl_mind.evaluation import Evaluator
from rl_mind.nn import build_mlp, soft_update


@dataclass(frozen=True, kw_only=True)
class Config(Task):
    """A task and the hyperparameters for it."""

    num_envs: int = 8
    updates_per_call: int = 2
    batch_size: int = 128
    warm_up: int = 1000
    gamma: float = 0.99
    lr: float = 5e-4
    tau: float = 0.01


TASKS = {"cartpole": Config(env_name="CartPole-v1", steps=60_000)}


class Greedy(Actor[Action]):
    """Takes the action of highest value, or a random one with probability `epsilon`."""

    def __init__(self, env: VecEnv) -> None:
        super().__init__()
        self.n_actions = env.n_actions
        self.values = build_mlp([env.observation_dim, 128, 128, env.n_actions])
        self.epsilon = 1.0

    def forward(self, obs: Observation) -> Action:
        best = self.act(obs)
        explore = torch.rand(len(best)) < self.epsilon
        return Action(torch.where(explore, torch.randint_like(best, self.n_actions), best))

    def act(self, obs: Observation) -> Tensor:
        return self.values(obs).argmax(-1)


def loss(actor: Greedy, target: Greedy, batch: Transitions[Action], gamma: float) -> Tensor:
    """Error of Q(s, a) against r + gamma Q'(s', argmax Q(s')); nothing follows a terminal state."""
    with torch.no_grad():
        best = actor.act(batch.next_obs)[:, None]
        following = target.values(batch.next_obs).gather(1, best).squeeze(1)
        wanted = batch.reward + gamma * following * ~batch.terminated
    value = actor.values(batch.obs).gather(1, batch.action.value[:, None]).squeeze(1)
    return nn.functional.smooth_l1_loss(value, wanted)


def train(config: Config, seed: int) -> Greedy:
    """Train an actor with double DQN and return the best one."""
    env = config.make(config.num_envs, seed)
    evaluator = Evaluator[Greedy](config.make(10, seed + 1000), every=config.steps // 10)
    actor = Greedy(env)
    target = deepcopy(actor)
    optimizer = torch.optim.Adam(actor.parameters(), lr=config.lr)
    collector = TransitionCollector(env, actor)
    buffer = ReplayBuffer[Transitions[Action]](capacity=50_000)
    while collector.steps < config.steps:
        # explores during a fifth of the time
        actor.epsilon = max(0.05, 1.0 - 5.0 * collector.steps / config.steps)
        buffer.add(collector.collect(1))
        if len(buffer) >= config.warm_up:
            for _ in range(config.updates_per_call):
                optimizer.zero_grad()
                loss(actor, target, buffer.sample(config.batch_size), config.gamma).backward()
                optimizer.step()
                soft_update(target, actor, config.tau)
        if result := evaluator.run_if_needed(collector.steps, actor):
            print(f"seed {seed}  step {result.step:7d}  return {result.mean:.1f}")
    return evaluator.best_actor


if __name__ == "__main__":
    run(train, TASKS)

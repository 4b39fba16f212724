"""What the examples share: a task to learn, and a command line that learns it on several seeds."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from rl_mind.core import Actor
from rl_mind.env import VecEnv
from rl_mind.evaluation import Evaluator

EPISODES = 100  # of the final evaluation


@dataclass(frozen=True, kw_only=True)
class Task:
    """An environment and how long to learn in it; each algorithm adds its hyperparameters.

    Args:
        env_name: Gymnasium id.
        env_kwargs: arguments of the environment.
        steps: transitions to learn from.
    """

    env_name: str
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    steps: int

    def make(self, num_envs: int, seed: int, same_step_reset: bool = False) -> VecEnv:
        return VecEnv(self.env_name, num_envs, seed, same_step_reset, **self.env_kwargs)


T = TypeVar("T", bound=Task)


def run(train: Callable[[T, int], Actor[Any]], tasks: Mapping[str, T]) -> None:
    """Train on `--task` with `--seeds` seeds and print the mean return of each final actor.

    The actor is deterministic then, and the episodes are new ones.
    """
    parser = argparse.ArgumentParser(description=train.__doc__)
    parser.add_argument("--task", choices=tasks, default=next(iter(tasks)))
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    task, finals = tasks[arguments.task], []
    for seed in range(arguments.seeds):
        torch.manual_seed(seed)
        actor = train(task, seed)
        evaluator = Evaluator[Actor[Any]](task.make(EPISODES, seed + 2000), every=1)
        finals.append(float(evaluator.run(actor).mean()))
        print(f"seed {seed}  final mean return over {EPISODES} episodes: {finals[-1]:.4f}")
    print(f"mean over {len(finals)} seeds: {sum(finals) / len(finals):.4f}")

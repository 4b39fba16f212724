"""Evaluation from time to time during training, keeping the best actor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from rl_mind._checks import positive_int
from rl_mind.collectors import EpisodeCollector
from rl_mind.core import Action, Actor
from rl_mind.env import VecEnv
from rl_mind.rendering import Frames, episode_frames

P = TypeVar("P", bound=Actor[Any])


class ScalarWriter(Protocol):
    """What an `Evaluator` writes to: TensorBoard's `SummaryWriter`, or anything like it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> None:
        """Record one number."""
        ...


@dataclass(frozen=True, eq=False)
class EvalResult:
    """One evaluation.

    Args:
        step: the number of training steps before it.
        rewards: `[n_episodes]`, the undiscounted return of each episode.
        is_best: whether its mean is above that of every evaluation before.
    """

    step: int
    rewards: Tensor
    is_best: bool

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.rewards.mean())


class Evaluator(Generic[P]):
    """Evaluates an actor's deterministic behaviour every so many steps and keeps the best one.

    Args:
        env: the environment to evaluate in, not the one that training steps.
        every: the number of training steps between evaluations.
        n_episodes: episodes per evaluation, by default one for each of the `num_envs`.
        writer: gets `eval/mean`, `eval/min` and `eval/max`, for example
            `torch.utils.tensorboard.SummaryWriter(directory)`.

    Attributes:
        history: every `EvalResult`, oldest first.
        best_reward: the best mean return, minus infinity before the first evaluation.
    """

    def __init__(
        self,
        env: VecEnv,
        every: int,
        n_episodes: int | None = None,
        writer: ScalarWriter | None = None,
    ) -> None:
        self.env = env
        self.every: int = positive_int("every", every)
        self.n_episodes: int = env.num_envs if n_episodes is None else n_episodes
        self.history: list[EvalResult] = []
        self.best_reward: float = float("-inf")
        self._best_actor: P | None = None
        self._writer = writer

    def run(self, actor: P) -> Tensor:
        """Return the returns of `n_episodes` episodes, `[n_episodes]`, and record nothing.

        The actor acts by `act`, in evaluation mode (no dropout) and without gradients.
        """
        with _evaluating(actor):
            collector = EpisodeCollector(self.env, lambda obs: Action(actor.act(obs)))
            episodes = collector.collect(self.n_episodes)
        return torch.tensor([episode.cumulated_reward for episode in episodes])

    def run_if_needed(self, steps: int, actor: P) -> EvalResult | None:
        """Evaluate and record if `every` steps have passed since the last time, or the start.

        Args:
            steps: training steps so far, such as the `steps` of a collector.
            actor: what is trained; copied if it is the best so far.

        Returns:
            The new result, None if it was not yet time.
        """
        if steps - (self.history[-1].step if self.history else 0) < self.every:
            return None
        rewards = self.run(actor)
        mean = float(rewards.mean())
        result = EvalResult(steps, rewards, is_best=mean > self.best_reward)
        self.history.append(result)
        if result.is_best:
            self.best_reward, self._best_actor = mean, deepcopy(actor)
        if self._writer is not None:
            self._writer.add_scalar("eval/mean", mean, steps)
            self._writer.add_scalar("eval/min", float(rewards.min()), steps)
            self._writer.add_scalar("eval/max", float(rewards.max()), steps)
        return result

    @property
    def best_actor(self) -> P:
        """A copy of the actor of the best evaluation; RuntimeError before the first one."""
        if self._best_actor is None:
            raise RuntimeError("no evaluation has run yet: `run_if_needed` keeps the best actor")
        return self._best_actor

    def visualize_best(self, max_frames: int = 1000) -> Frames:
        """Return the last images of an episode of the best actor; a notebook plays them."""
        return self._frames(self.best_actor, max_frames)

    def record_video(
        self, path: str | Path, actor: P | None = None, max_frames: int = 1000
    ) -> Path:
        """Write a video of an episode of `actor`, by default the best one, and return its path.

        It holds the last `max_frames` images.
        """
        chosen = self.best_actor if actor is None else actor
        return self._frames(chosen, max_frames).save(path)

    def _frames(self, actor: P, max_frames: int) -> Frames:
        with _evaluating(actor):
            return episode_frames(self.env, actor.act, max_frames)


@contextmanager
def _evaluating(actor: Actor[Any]) -> Iterator[None]:
    """Evaluation mode (no dropout), and afterwards the mode from before."""
    training = actor.training
    actor.eval()
    try:
        yield
    finally:
        actor.train(training)

"""Collectors: an environment and an actor go in, batches to learn from come out.

They keep the account of resets, so that no step they return crosses two episodes. Actors are
called without gradients. A collector starts with `env.reset()`, and starts afresh if something
else reset or stepped its environment meanwhile: its last observation would be stale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

import torch
from torch import Tensor

from rl_mind._checks import positive_int
from rl_mind.core import A_co, Action, Observation, StochasticAction, cat, field_values, stack
from rl_mind.data import Episode, Rollout, Transitions
from rl_mind.env import VecEnv

Policy = Callable[[Observation], A_co]
"""What chooses actions: an `Actor`, or any other function from observations to an `Action`."""


class TransitionCollector(Generic[A_co]):
    """Collects single transitions in either reset mode, for off-policy learning.

    Args:
        env: the environment, which this collector drives.
        actor: chooses the actions.

    Attributes:
        steps: the number of transitions returned so far.
    """

    def __init__(self, env: VecEnv, actor: Policy[A_co]) -> None:
        self.steps: int = 0
        self._stepper = _Stepper(env, actor)

    def collect(self, n_steps: int) -> Transitions[A_co]:
        """Step every environment `n_steps` times, going on where the last call ended.

        Returns:
            At most `n_steps * num_envs` transitions, in order of time: with next-step reset, the
            calls that only reset an environment are left out.
        """
        self._stepper.resume()
        rows = [self._stepper.step() for _ in range(positive_int("n_steps", n_steps))]
        batch = cat([transitions for transitions, _ in rows])
        valid = torch.cat([valid for _, valid in rows])
        batch = batch if valid.all() else batch[valid]
        self.steps += len(batch)
        return batch


class RolloutCollector(Generic[A_co]):
    """Collects rollouts of a fixed length, for on-policy learning.

    Args:
        env: the environment, made with `same_step_reset=True` so that every step is a transition.
        actor: chooses the actions.

    Attributes:
        steps: the number of transitions returned so far.

    Raises ValueError for an environment in next-step mode.
    """

    def __init__(self, env: VecEnv, actor: Policy[A_co]) -> None:
        if not env.same_step_reset:
            raise ValueError(
                "RolloutCollector needs every step to be a transition, but the environment spends "
                "a step on each reset: build it with VecEnv(..., same_step_reset=True)"
            )
        self.steps: int = 0
        self._stepper = _Stepper(env, actor)

    def collect(self, n_steps: int) -> Rollout[A_co]:
        """Step every environment `n_steps` times, going on where the last call ended.

        Returns:
            Exactly `[n_steps, num_envs]` steps. The last row of an unfinished episode has its
            successor in `next_obs`, to bootstrap from.
        """
        self._stepper.resume()
        rows = [self._stepper.step()[0] for _ in range(positive_int("n_steps", n_steps))]
        rollout: Rollout[A_co] = Rollout(**field_values(stack(rows)))
        self.steps += rollout.reward.numel()
        return rollout


class EpisodeCollector(Generic[A_co]):
    """Collects whole episodes, in either reset mode.

    Args:
        env: the environment, whose episodes must end.
        actor: chooses the actions.

    Attributes:
        steps: the number of steps in the episodes returned so far.
    """

    def __init__(self, env: VecEnv, actor: Policy[A_co]) -> None:
        self.steps: int = 0
        self._stepper = _Stepper(env, actor)

    def collect(self, n_episodes: int) -> list[Episode[A_co]]:
        """Reset every environment and play `n_episodes` episodes to their ends.

        How many each environment plays is fixed beforehand, as evenly as possible. Taking the
        first `n_episodes` to finish instead would prefer short ones.

        Returns:
            The episodes in the order in which they ended.
        """
        num_envs = self._stepper.env.num_envs
        each, rest = divmod(positive_int("n_episodes", n_episodes), num_envs)
        quota = [each + (index < rest) for index in range(num_envs)]
        rollout, valid = self._play(torch.tensor(quota))
        places = [
            (end, index, start)
            for index in range(num_envs)
            for start, end in _spans(rollout.done[:, index], valid[:, index])[: quota[index]]
        ]
        episodes = [_episode(rollout[start : end + 1, b]) for end, b, start in sorted(places)]
        self.steps += sum(len(episode) for episode in episodes)
        return episodes

    def _play(self, quota: Tensor) -> tuple[Transitions[A_co], Tensor]:
        """Step from a reset until each environment has ended its quota, `[T, B]`."""
        self._stepper.reset()
        rows: list[tuple[Transitions[A_co], Tensor]] = []
        while (quota > 0).any():
            rows.append(self._stepper.step())
            quota = quota - rows[-1][0].done.cpu().long()
        return stack([row for row, _ in rows]), torch.stack([valid for _, valid in rows])


def _spans(done: Tensor, valid: Tensor) -> list[tuple[int, int]]:
    """Return the first and last row of each ended episode of one environment, `[T]` flags."""
    ends = done.nonzero().flatten().tolist()
    starts = [0] + [end + 1 if valid[end + 1] else end + 2 for end in ends[:-1]]
    return list(zip(starts, ends, strict=True)) if ends else []


def _episode(steps: Transitions[A_co]) -> Episode[A_co]:
    own = steps.map(torch.clone)  # one episode that is kept must not keep the others in memory
    last = own[-1]
    return Episode(own.obs, own.action, own.reward, last.next_obs, bool(last.terminated))


class _Stepper(Generic[A_co]):
    """Steps an environment with a policy and knows which rows are transitions."""

    def __init__(self, env: VecEnv, policy: Policy[A_co]) -> None:
        self.env = env
        self._policy = policy
        self._calls = -1

    def reset(self) -> None:
        self._obs = self.env.reset()
        self._valid = torch.ones(self.env.num_envs, dtype=torch.bool, device=self.env.device)
        self._calls = self.env.calls

    def resume(self) -> None:
        if self._calls != self.env.calls:
            self.reset()

    @torch.no_grad()
    def step(self) -> tuple[Transitions[A_co], Tensor]:
        """Return the B steps of one call, and which of them are transitions rather than resets."""
        action = self._policy(self._obs)
        _check_action(action, self.env.num_envs)
        action = action.map(torch.clone)  # a captured CUDA graph writes every output to one place
        step = self.env.step(action.value)
        transitions = Transitions(
            self._obs, action, step.reward, step.next_obs, step.terminated, step.truncated
        )
        valid = self._valid
        if not self.env.same_step_reset:
            self._valid = ~step.done
        self._obs = step.obs
        self._calls = self.env.calls
        return transitions, valid


def _check_action(action: Action, num_envs: int) -> None:
    if not isinstance(action, Action):
        raise TypeError(f"an actor must return an Action, got {type(action).__name__}")
    if isinstance(action, StochasticAction) and action.log_prob.shape != (num_envs,):
        raise ValueError(
            f"`log_prob` must have shape ({num_envs},), one number per action, got "
            f"{tuple(action.log_prob.shape)}: sum it over the action's dimensions"
        )

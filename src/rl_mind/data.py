"""What learning works on: transitions, a replay buffer, episodes, rollouts, and returns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from rl_mind._checks import positive_int
from rl_mind.core import (
    A_co,
    Observation,
    S,
    TensorStruct,
    cat,
    field_values,
    named_leaves,
    tree_map,
)


@dataclass(frozen=True, eq=False)
class _Steps(TensorStruct, Generic[A_co]):
    obs: Observation
    action: A_co
    reward: Tensor
    next_obs: Observation
    terminated: Tensor
    truncated: Tensor

    @property
    def done(self) -> Tensor:
        """Whether the step ended its episode."""
        return self.terminated | self.truncated


@dataclass(frozen=True, eq=False)
class Transitions(_Steps[A_co]):
    """N steps (s, a, r, s') in any order, no one of them across two episodes.

    Args:
        obs: `[N, ...]`, the observation acted upon.
        action: struct of `[N, ...]`; `.action.value`, and `.action.log_prob` if it was sampled.
        reward: `[N]`.
        next_obs: `[N, ...]`, the true successor, the final observation at an episode's end.
        terminated: `[N]` bool, do not bootstrap from `next_obs`.
        truncated: `[N]` bool, the episode was cut here: bootstrap as from any other step.
    """


@dataclass(frozen=True, eq=False)
class Rollout(_Steps[A_co]):
    """T consecutive steps of B environments: the fields of `Transitions`, each `[T, B, ...]`.

    Row t + 1 of an environment follows row t, except where `done` says that a new episode begins.
    """

    def flatten(self) -> Transitions[A_co]:
        """Return the T * B transitions, those of one time step side by side."""
        flat = self.map(lambda leaf: leaf.flatten(0, 1))
        return Transitions(**field_values(flat))


@dataclass(frozen=True, eq=False)
class Episode(Generic[A_co]):
    """One whole episode of T steps.

    Args:
        obs: `[T, ...]`, the observations acted upon.
        action: struct of `[T, ...]`.
        reward: `[T]`.
        final_obs: `[...]`, the observation after the last step.
        terminated: True if it ended in a terminal state, False if it was truncated.
    """

    obs: Observation
    action: A_co
    reward: Tensor
    final_obs: Observation
    terminated: bool

    def __len__(self) -> int:
        """Return the number of steps T."""
        return len(self.reward)

    @property
    def all_obs(self) -> Observation:
        """Every observation including the final one, `[T + 1, ...]`."""
        return cat([self.obs, tree_map(lambda leaf: leaf[None], self.final_obs)])

    @property
    def cumulated_reward(self) -> float:
        """The undiscounted sum of rewards."""
        return float(self.reward.sum())


class ReplayBuffer(Generic[S]):
    """A ring of the last `capacity` rows of any struct, allocated once at the first `add`.

    Args:
        capacity: how many rows it holds, at least 1.
        device: where it keeps them, and where samples come out.

    Raises ValueError for a capacity below 1.

    >>> from rl_mind.core import Action
    >>> buffer = ReplayBuffer[Action](capacity=3)
    >>> buffer.add(Action(torch.arange(5)))
    >>> len(buffer), sorted(set(buffer.sample(100).value.tolist()))
    (3, [2, 3, 4])
    """

    def __init__(self, capacity: int, device: torch.device | str = "cpu") -> None:
        self.capacity: int = positive_int("capacity", capacity)
        self.device: torch.device = torch.device(device)
        self._rows: S | None = None
        self._next = 0
        self._len = 0

    def __len__(self) -> int:
        """Return the number of rows held, at most `capacity`."""
        return self._len

    def add(self, batch: S) -> None:
        """Append rows, the oldest give way; of a batch beyond the capacity the last rows stay.

        Raises TypeError or ValueError if they do not have the type and shapes of the first ones.
        """
        rows = batch[-self.capacity :].map(torch.Tensor.detach).to(self.device)
        if self._rows is None:
            self._rows = rows.map(lambda leaf: leaf.new_zeros(self.capacity, *leaf.shape[1:]))
        count = len(rows)
        place = torch.arange(self._next, self._next + count, device=self.device) % self.capacity
        self._rows.set_(place, rows)
        self._next = (self._next + count) % self.capacity
        self._len = min(self._len + count, self.capacity)

    def sample(self, size: int, generator: torch.Generator | None = None) -> S:
        """Draw `size` rows uniformly, with replacement.

        Raises ValueError if the buffer is empty.
        """
        if self._rows is None or self._len == 0:
            raise ValueError("the buffer must hold at least one row, got none: call `add` first")
        index = torch.randint(self._len, (size,), generator=generator, device=self.device)
        return self._rows[index]


def minibatches(data: S, size: int, generator: torch.Generator | None = None) -> Iterator[S]:
    """Yield shuffled batches of `size` rows that cover `data` once; the last may be smaller.

    Raises ValueError for a size below 1.
    """
    size = positive_int("size", size)
    device = next(leaf for _, leaf in named_leaves(data)).device
    order = torch.randperm(len(data), generator=generator, device=device)
    return (data[index] for index in order.split(size))


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    r"""Return generalised advantage estimates; targets for the critic are advantage + `value`.

    \(\delta_t = r_t + \gamma (1 - \mathrm{terminated}_t) V(s_{t+1}) - V(s_t)\) and
    \(A_t = \delta_t + \gamma \lambda (1 - \mathrm{done}_t) A_{t+1}\), with A = 0 after the last
    row: a truncated or unfinished episode bootstraps, a terminated one does not.

    Args:
        reward, value, terminated, truncated: `[T]` or `[T, B]`, all of one shape.
        next_value: the same shape, V of the true successor (`next_obs`).
        gamma: discount factor, 0 to 1.
        lam: 0 trusts the critic (one step), 1 the sampled return.

    Raises ValueError if shapes differ.

    Reference: Schulman et al., High-dimensional continuous control using generalized advantage
    estimation, 2016 (arXiv:1506.02438).
    """
    _check_same_shape(
        reward, value=value, next_value=next_value, terminated=terminated, truncated=truncated
    )
    delta = reward + gamma * next_value.masked_fill(terminated, 0.0) - value
    done = terminated | truncated
    advantage = torch.empty_like(delta)
    following = delta.new_zeros(delta.shape[1:])
    for t in reversed(range(len(delta))):
        following = delta[t] + gamma * lam * following.masked_fill(done[t], 0.0)
        advantage[t] = following
    return advantage


def n_step(
    reward: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    n: int,
) -> Tensor:
    r"""Return n-step returns \(\sum_{k<m} \gamma^k r_{t+k} + \gamma^m V(s_{t+m})\).

    m is n, or less where the episode or the data end sooner; the value is left out where the
    m-th step terminated. With n = 1 these are the TD targets, with n = T the Monte Carlo returns.

    Args:
        reward, terminated, truncated: `[T]` or `[T, B]`, all of one shape.
        next_value: the same shape, V of the true successor (`next_obs`).
        gamma: discount factor, 0 to 1.
        n: the number of rewards summed, at least 1.

    Raises ValueError if shapes differ or n < 1.
    """
    _check_same_shape(reward, next_value=next_value, terminated=terminated, truncated=truncated)
    bootstrap = gamma * next_value.masked_fill(terminated, 0.0)
    stop = terminated | truncated
    stop[-1:] = True
    returns = reward + bootstrap
    for _ in range(min(positive_int("n", n), len(reward)) - 1):
        returns = reward + torch.where(stop, bootstrap, gamma * returns.roll(-1, dims=0))
    return returns


def _check_same_shape(reward: Tensor, **others: Tensor) -> None:
    for name, tensor in others.items():
        if tensor.shape != reward.shape:
            raise ValueError(
                f"`{name}` must have the shape of `reward`, {tuple(reward.shape)}, "
                f"got {tuple(tensor.shape)}"
            )

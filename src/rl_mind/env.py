"""Vectorised environments with tensors in and tensors out.

An episode ends when `terminated` (a terminal state: its future is worth 0, do not bootstrap) or
`truncated` (cut short, as by a time limit: do bootstrap with the value of `next_obs`) is True. The
environment then resets itself, in the mode chosen at construction.

- Next-step reset (default). The ending call returns the final observation, as `obs` and as
  `next_obs`. The call after it ignores the action; its `obs` opens the new episode, with reward 0
  and both flags False.
- Same-step reset. The ending call returns the first observation of the new episode as `obs` and
  the final one of the old episode as `next_obs`, so every call is a transition.

Observations of a Dict space are a `TensorStruct` with a field per key, nested ones nest. Parts of
varying length have no fixed shape: pad them in a wrapper first. How to encode a struct into
features is the business of the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import Env, Space, spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from torch import Tensor

from rl_mind._checks import integer, positive_int
from rl_mind._spaces import action_encoder, as_tensor, observation_decoder
from rl_mind._vectorization import Recipe, VectorizationMode, WrapperFn
from rl_mind.core import Observation, tree_map

FLOAT, BOOL = np.dtype(np.float32), np.dtype(np.bool_)

__all__ = ["EnvStep", "Observation", "VecEnv"]


@dataclass(frozen=True, eq=False)
class EnvStep:
    """What one step of B environments gives; every field has leading dimension B.

    Args:
        obs: what to act upon next, `[B, ...]`.
        next_obs: the true successor of the step, `[B, ...]`; final where an episode just ended.
        reward: `[B]`, float32.
        terminated: `[B]`, bool; a terminal state was reached, do not bootstrap.
        truncated: `[B]`, bool; the episode was cut short, bootstrap.
    """

    obs: Observation
    next_obs: Observation
    reward: Tensor
    terminated: Tensor
    truncated: Tensor

    @property
    def done(self) -> Tensor:
        """Whether the episode just ended, `[B]`."""
        return self.terminated | self.truncated


class VecEnv:
    """`num_envs` copies of a Gymnasium environment that advance together.

    Args:
        env_name: a registered Gymnasium id, or "package:id" to import its package first.
        num_envs: the batch size B, at least 1.
        seed: at least 0, given to the first `reset`; later resets go on with the same random
            streams.
        same_step_reset: whether an ended episode is reset within its ending step.
        wrappers: callables applied to each sub-environment, the first one innermost.
        vectorization_mode: "sync" steps B separate environments one after the other;
            "vector_entry_point" steps the id's own batched environment; "auto" takes the latter
            where it is registered, no wrappers are asked for (or registered) and it accepts the
            arguments and the reset mode, otherwise the former.
        device: where the returned tensors live.
        **kwargs: passed to `gymnasium.make`, or to the vector entry point.

    Attributes:
        env_name, num_envs, same_step_reset, wrappers: the arguments.
        env_kwargs: the extra arguments, a dict.
        gym_env: the Gymnasium vector environment.
        vectorization_mode: the mode in use, "sync" or "vector_entry_point".
        vectorization_reason: why it is that one, in words.
        calls: how many times `reset` or `step` ran, by which collectors know a stale observation.

    Tensors that are handed out never change later. Raises ValueError for an unknown id, a mode
    that is impossible, `num_envs` < 1 or `seed` < 0, TypeError for arguments of another kind and
    for spaces that are not made of fixed-shape tensors.

    >>> env = VecEnv("CartPole-v1", num_envs=2, seed=0)
    >>> env.reset().shape, env.vectorization_mode
    (torch.Size([2, 4]), 'vector_entry_point')
    >>> env.step(torch.tensor([0, 1])).reward
    tensor([1., 1.])
    """

    def __init__(
        self,
        env_name: str,
        num_envs: int,
        seed: int | None = None,
        same_step_reset: bool = False,
        wrappers: Sequence[WrapperFn] = (),
        *,
        vectorization_mode: VectorizationMode = "auto",
        device: torch.device | str = "cpu",
        **kwargs: Any,
    ) -> None:
        num_envs = positive_int("num_envs", num_envs)
        seed = None if seed is None else integer("seed", seed, least=0)
        if not isinstance(wrappers, Sequence):
            raise TypeError(
                f"`wrappers` must be a sequence of callables, got {type(wrappers).__name__}"
            )
        autoreset = AutoresetMode.SAME_STEP if same_step_reset else AutoresetMode.NEXT_STEP
        recipe = Recipe(env_name, num_envs, autoreset, wrappers, kwargs)
        self.env_name = env_name
        self.num_envs = num_envs
        self.same_step_reset = same_step_reset
        self.wrappers = wrappers
        self.env_kwargs = kwargs
        self.device: torch.device = torch.device(device)
        self.gym_env: VectorEnv[Any, Any, Any]
        self.vectorization_reason: str
        self.gym_env, self.vectorization_mode, self.vectorization_reason = recipe.build(
            vectorization_mode
        )
        # Gymnasium's word for "what I return is yours": then sharing memory is safe.
        self._copy = getattr(self.gym_env, "copy", False) is not True
        self._seed = seed
        self.calls: int = 0
        self._ended: np.ndarray | None = None
        try:
            self._encode = action_encoder(self.gym_env.single_action_space, num_envs)
            self._decode = observation_decoder(self.observation_space, self.device, copy=self._copy)
            self._decode_copy = observation_decoder(self.observation_space, self.device, copy=True)
        except (TypeError, ValueError):
            self.close()
            raise

    def reset(self) -> Observation:
        """Start a fresh episode in every environment and return the first observations.

        Needed once, before the first `step`; the collectors call it themselves.

        Returns:
            `[B, obs_dim]` for a flat Box space, `[B]` indices (torch.long) for a Discrete one, a
            `TensorStruct` of `[B, ...]` tensors for a Dict.
        """
        obs, _ = self.gym_env.reset(seed=self._seed)
        self._seed = None
        self.calls += 1
        self._ended = np.zeros(self.num_envs, dtype=bool)
        return self._decode(obs)

    def step(self, actions: Tensor) -> EnvStep:
        """Advance every environment by one step.

        Args:
            actions: `[B, action_dim]` (continuous) or `[B]` (discrete), on any device; no
                gradient flows back, and values outside a Box are the environment's to handle.

        Raises RuntimeError before the first `reset`, ValueError for a wrong shape, TypeError for
        what is no tensor, or for floats as discrete actions.
        """
        if self._ended is None:
            raise RuntimeError("`reset()` must be called before the first `step`")
        raw, reward, terminated, truncated, infos = self.gym_env.step(self._encode(actions))
        self.calls += 1
        resetting, ended = self._ended, np.logical_or(terminated, truncated)
        self._ended = ended
        obs = self._decode(raw)
        reward = self._vector(reward, FLOAT, "reward")
        # some vector environments reward resets
        if not self.same_step_reset and np.count_nonzero(resetting):
            reward[torch.from_numpy(resetting).to(self.device)] = 0.0
        return EnvStep(
            obs=obs,
            next_obs=self._successor(raw, obs, infos, ended),
            reward=reward,
            terminated=self._vector(terminated, BOOL, "terminated"),
            truncated=self._vector(truncated, BOOL, "truncated"),
        )

    def close(self) -> None:
        """Release what the environments hold."""
        self.gym_env.close()

    def __repr__(self) -> str:
        """Show the identity and the mode in use, with its reason."""
        return (
            f"VecEnv({self.env_name!r}, num_envs={self.num_envs}, "
            f"same_step_reset={self.same_step_reset}, "
            f"vectorization_mode={self.vectorization_mode!r} ({self.vectorization_reason}))"
        )

    @property
    def observation_space(self) -> Space[Any]:
        """The observation space of a single environment."""
        return self.gym_env.single_observation_space

    @property
    def gym_unwrapped(self) -> tuple[Env[Any, Any], ...]:
        """The B sub-environments without their wrappers, for what `VecEnv` does not know about.

        Raises TypeError under a batched environment, which has no sub-environments.
        """
        if not isinstance(self.gym_env, SyncVectorEnv):
            raise TypeError(
                f"`gym_unwrapped` needs separate sub-environments, but {self.env_name!r} runs as "
                "one batched environment, vectorization_mode='vector_entry_point': build it with "
                "vectorization_mode='sync'"
            )
        return tuple(env.unwrapped for env in self.gym_env.envs)

    @property
    def observation_dim(self) -> int:
        """The dimension of a flat Box observation space; TypeError for any other space."""
        return _flat_dim(self.observation_space, "observation_dim", "n_states")

    @property
    def n_states(self) -> int:
        """The number of states of a Discrete observation space; TypeError for any other.

        Observations are then `[B]` indices (torch.long) from 0 to `n_states - 1`.
        """
        return _size(self.observation_space, "n_states", "observation_dim")

    @property
    def is_continuous(self) -> bool:
        """Whether actions are continuous, that is whether their space is a Box."""
        return isinstance(self.gym_env.single_action_space, spaces.Box)

    @property
    def action_dim(self) -> int:
        """The dimension of a continuous action space; TypeError for a discrete one."""
        return _flat_dim(self.gym_env.single_action_space, "action_dim", "n_actions")

    @property
    def n_actions(self) -> int:
        """The number of actions of a discrete action space; TypeError for a continuous one."""
        return _size(self.gym_env.single_action_space, "n_actions", "action_dim")

    def _vector(self, array: Any, dtype: np.dtype[Any], name: str) -> Tensor:
        if array.shape != (self.num_envs,):
            raise ValueError(
                f"`{name}` of {self.env_name!r} must have shape ({self.num_envs},), "
                f"got {array.shape}: its vector environment breaks Gymnasium's interface"
            )
        return as_tensor(array, dtype, self.device, copy=self._copy)

    def _successor(
        self, raw: Any, obs: Observation, infos: dict[str, Any], ended: np.ndarray
    ) -> Observation:
        """Return s_{t+1}: `obs`, with the final observation where an episode was just reset."""
        if not (self.same_step_reset and np.count_nonzero(ended)):
            return self._decode_copy(raw)
        if "final_obs" not in infos:
            raise ValueError(
                f"infos of {self.env_name!r} must hold `final_obs` where an episode ends in "
                f"same-step mode, got the keys {sorted(infos)}"
            )
        mask = torch.from_numpy(ended).to(self.device)
        final = self._decode(self._final(infos["final_obs"], ended))

        def choose(final_leaf: Tensor, leaf: Tensor) -> Tensor:
            return torch.where(mask.view(-1, *[1] * (leaf.ndim - 1)), final_leaf, leaf)

        return tree_map(choose, final, obs)

    def _final(self, final: Any, ended: np.ndarray) -> Any:
        """Return the final observations as a batch; rows that did not end mean nothing."""
        if not (isinstance(final, np.ndarray) and final.dtype == object):
            return final
        # one object per environment, None where it did not end
        space, some = self.observation_space, final[ended][0]
        rows = [row if end else some for row, end in zip(final, ended, strict=True)]
        return concatenate(space, rows, create_empty_array(space, n=self.num_envs))


def _flat_dim(space: Space[Any], asked: str, discrete: str) -> int:
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        fix = f"use `{discrete}`" if isinstance(space, spaces.Discrete) else "inspect the space"
        raise TypeError(f"`{asked}` is defined for a flat Box space only, got {space}: {fix}")
    return space.shape[0]


def _size(space: Space[Any], asked: str, flat: str) -> int:
    if not isinstance(space, spaces.Discrete):
        fix = f"use `{flat}`" if isinstance(space, spaces.Box) else "inspect the space"
        raise TypeError(f"`{asked}` is defined for a Discrete space only, got {space}: {fix}")
    return int(space.n)

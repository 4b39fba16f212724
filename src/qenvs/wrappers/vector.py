"""Many environments behind the Gymnasium `VectorEnv` interface, one jitted call per step."""

from typing import Any

import jax
import numpy as np
from gymnasium import vector
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from qenvs import _checks
from qenvs.envs.base import Environment, TimeStep
from qenvs.registration import make
from qenvs.wrappers._compiled import CompiledEnv, as_actions, box_bound, run_key

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"


class GymnasiumVectorEnv(VectorEnv):
    """`num_envs` copies of a functional environment, stepped by one jitted `vmap`.

    Episode j of sub-environment b has the index i = j * num_envs + b and the key
    `keys.episode_key(PRNGKey(seed), i)`: the vector environment plays the episodes of
    `GymnasiumEnv(env, seed)`, interleaved. Every array it returns is a writable NumPy copy that
    it never touches again. `infos` holds an array of length num_envs for every key k and a
    boolean mask `_k` beside it, nested dicts likewise. Only a step on which an episode begins
    evaluates `reset`.

    Autoreset modes (`autoreset_mode`):

    - NEXT_STEP (default): the ending call returns the final observation; the next call ignores
      that sub-environment's action and returns the new episode's first observation, reward 0. An
      episode takes horizon + 1 calls.
    - SAME_STEP: the ending call returns the new episode's first observation. Its `infos` belong to
      that *new* episode; what ended is in `infos["final_obs"]` and `infos["final_info"]`, rows
      where the mask `_final_obs` is True.
    - DISABLED: nothing resets by itself; call `reset(options={"reset_mask": mask})`.

    Why `truncated` is False unless `max_episode_steps` says otherwise: the horizon is a terminal
    state, see the guide on RL libraries.

    Args:
        env: functional environment.
        num_envs: number of sub-environments B, >= 1.
        seed: run seed until `reset(seed=...)`.
        normalize_actions: actions in [-1, 1], multiplied by `env.action_bound` (in float32).
        autoreset_mode: `gymnasium.vector.AutoresetMode` or its name or value.
        max_episode_steps: truncate episodes at this step; None lets them end by themselves.

    Raises:
        ValueError: actions of another shape than (B, action_dim), NaN or infinite actions.
        gymnasium.error.ResetNeeded: `step` before `reset`, or (DISABLED) after an end.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        env: Environment,
        num_envs: int,
        *,
        seed: int = 0,
        normalize_actions: bool = False,
        autoreset_mode: Any = NEXT_STEP,
        max_episode_steps: int | None = None,
    ) -> None:
        self.env = env
        self.num_envs = _checks.integer("num_envs", num_envs, minimum=1)
        self.normalize_actions = normalize_actions
        self._mode = _mode_value(autoreset_mode)
        self.metadata = _metadata(self._mode)
        if max_episode_steps is not None:
            max_episode_steps = _checks.integer("max_episode_steps", max_episode_steps, minimum=1)
        self._limit = max_episode_steps
        self._bound = box_bound(env)
        self.single_observation_space = env.observation_space
        box = Box(-1.0, 1.0, (env.action_dim,)) if normalize_actions else env.action_space
        self.single_action_space = box
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(box, self.num_envs)
        self._compiled = CompiledEnv(env, self.num_envs)
        self._start_run(seed)
        self._leaves: list[Any] | None = None

    def _start_run(self, seed: int) -> None:
        self._run_key = run_key(seed)
        self._episodes = np.zeros(self.num_envs, np.int32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode in every sub-environment, or where `options["reset_mask"]` is True.

        A seed starts the run again at episode 0 and cannot go with a mask. After a partial reset
        the other rows keep their observation and info, and the info masks are the reset mask.
        """
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            return self._reset_some(self._checked_mask(mask, seed))
        if seed is not None:
            self._start_run(seed)
        super().reset(seed=seed)
        everywhere = np.ones(self.num_envs, bool)
        self._leaves, self._last = self._begin(everywhere)
        self._ended = ~everywhere
        self._elapsed = np.zeros(self.num_envs, np.int64)
        return self._last.observation.copy(), _infos(self._last.info, everywhere)

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance every sub-environment by one interval; `actions` has shape (B, action_dim)."""
        actions = as_actions("actions", actions, (self.num_envs, self._bound.size))
        if self._leaves is None:
            raise ResetNeeded("no episode has begun; call reset() before step()")
        if self._mode == DISABLED and self._ended.any():
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(
                f"the episodes of sub-environments {ended} have ended; call "
                'reset(options={"reset_mask": mask}) with True there'
            )
        restarting = self._ended.copy()
        timestep, truncated = self._advance(actions, restarting)
        terminated = timestep.done.copy()
        self._ended = terminated | truncated
        everywhere = np.ones(self.num_envs, bool)
        infos = _infos(timestep.info, everywhere)
        observation, reward = timestep.observation, timestep.reward.astype(np.float32)
        if self._mode == SAME_STEP and self._ended.any():
            observation, infos = self._restart_in_step(timestep)
        return observation.copy(), reward, terminated, truncated, infos

    def close(self, **kwargs: Any) -> None:
        """Mark the environment as closed; there is nothing to release."""
        self.closed = True

    def _advance(self, actions: np.ndarray, restarting: np.ndarray) -> tuple[TimeStep, np.ndarray]:
        """Step where no episode begins, begin one where `restarting`."""
        if restarting.all():
            self._leaves, self._last = self._begin(restarting)
        else:
            applied = actions * self._bound if self.normalize_actions else actions
            self._leaves, words = self._compiled.step(self._leaves, applied)
            self._last = self._compiled.views(words)
            if restarting.any():
                self._merge(restarting, *self._begin(restarting))
        self._elapsed = np.where(restarting, 0, self._elapsed + 1)
        if self._limit is None:
            return self._last, np.zeros(self.num_envs, bool)
        return self._last, self._elapsed >= self._limit

    def _restart_in_step(self, ended: TimeStep) -> tuple[np.ndarray, dict[str, Any]]:
        """SAME_STEP: begin new episodes where `_ended`; keep what ended in the infos."""
        mask = self._ended.copy()
        self._merge(mask, *self._begin(mask))
        self._elapsed[mask] = 0
        self._ended = np.zeros_like(mask)
        infos = _infos(self._last.info, np.ones_like(mask))
        infos["final_obs"] = np.where(mask[:, None], ended.observation, np.float32(0))
        infos["_final_obs"] = mask.copy()
        infos["final_info"] = _infos(_where(mask, ended.info, None), mask)
        infos["_final_info"] = mask
        return self._last.observation, infos

    def _begin(self, mask: np.ndarray) -> tuple[list[Any], TimeStep]:
        """Reset everywhere; the episodes of the masked sub-environments count as begun."""
        index = self._episodes * self.num_envs + np.arange(self.num_envs, dtype=np.int32)
        self._episodes = self._episodes + mask.astype(np.int32)
        leaves, words = self._compiled.reset(self._run_key, index)
        return leaves, self._compiled.views(words)

    def _merge(self, mask: np.ndarray, leaves: list[Any], timestep: TimeStep) -> None:
        """Take the masked rows from a reset, the others as they are."""
        if mask.all():
            self._leaves, self._last = leaves, timestep
            return
        self._leaves = _where(mask, leaves, self._leaves)
        self._last = _where(mask, timestep, self._last)

    def _reset_some(self, mask: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
        self._merge(mask, *self._begin(mask))
        self._ended = self._ended & ~mask
        self._elapsed = np.where(mask, 0, self._elapsed)
        return self._last.observation.copy(), _infos(self._last.info, mask)

    def _checked_mask(self, mask: Any, seed: int | None) -> np.ndarray:
        array = np.asarray(mask)
        if array.dtype != bool or array.shape != (self.num_envs,) or not array.any():
            raise ValueError(
                f'options["reset_mask"] must be bool of shape ({self.num_envs},) with at least one '
                f"True, got {array.dtype} of shape {array.shape}"
            )
        if seed is not None:
            raise ValueError("a seed restarts the whole run; call reset(seed=...) without a mask")
        if self._leaves is None:
            raise ResetNeeded("no episode has begun; call reset() once before a partial reset")
        return array


def _where(mask: np.ndarray, new: Any, old: Any) -> Any:
    """Rows of `new` where the mask is True, else those of `old` (None: zeros), leaf by leaf."""

    def select(a: Any, b: Any) -> np.ndarray:
        a = np.asarray(a)
        rows = mask.reshape(-1, *(1 for _ in a.shape[1:]))
        return np.where(rows, a, np.asarray(b).astype(a.dtype))

    if old is None:
        return jax.tree.map(lambda a: select(a, 0), new)
    return jax.tree.map(select, new, old)


def _infos(info: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """Copies of the arrays, and a mask `_key` beside every key."""
    infos: dict[str, Any] = {}
    for key, value in info.items():
        infos[key] = _infos(value, mask) if isinstance(value, dict) else value.copy()
        infos[f"_{key}"] = mask.copy()
    return infos


def _mode_value(mode: Any) -> str:
    """NextStep, SameStep or Disabled, from an enum member, its name or its value."""
    text = str(getattr(mode, "value", mode)).replace("_", "").lower()
    for value in (NEXT_STEP, SAME_STEP, DISABLED):
        if text == value.lower():
            return value
    raise ValueError(f"`autoreset_mode` must be NEXT_STEP, SAME_STEP or DISABLED, got {mode!r}")


def _metadata(mode: str) -> dict[str, Any]:
    """The class's metadata and the mode, where this Gymnasium (>= 1.1) has the enum for it."""
    enum = getattr(vector, "AutoresetMode", None)
    declared = {} if enum is None else {"autoreset_mode": enum(mode)}
    return {**GymnasiumVectorEnv.metadata, **declared}


def make_vector_env(
    task: str,
    num_envs: int = 1,
    *,
    seed: int = 0,
    normalize_actions: bool = False,
    autoreset_mode: Any = NEXT_STEP,
    max_episode_steps: int | None = None,
    **kwargs: Any,
) -> GymnasiumVectorEnv:
    """The entry point behind `gymnasium.make_vec`: task kwargs go to `qenvs.make`."""
    return GymnasiumVectorEnv(
        make(task, **kwargs),
        num_envs,
        seed=seed,
        normalize_actions=normalize_actions,
        autoreset_mode=autoreset_mode,
        max_episode_steps=max_episode_steps,
    )

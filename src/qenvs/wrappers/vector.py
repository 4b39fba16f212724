"""Many environments behind the Gymnasium `VectorEnv` interface, one jitted call per step."""

from typing import Any

import numpy as np

from qenvs import _checks
from qenvs.envs.base import Environment, TimeStep
from qenvs.registration import make
from qenvs.wrappers._compiled import (
    GYMNASIUM_MISSING,
    CompiledEnv,
    box_bound,
    copier,
    run_key,
)
from qenvs.wrappers.layout import (
    NormalizedObservation,
    observation_layout,
    present,
    presented_space,
)

try:
    from gymnasium import vector
    from gymnasium.error import ResetNeeded
    from gymnasium.spaces import Box
    from gymnasium.vector import VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise ImportError(GYMNASIUM_MISSING) from error

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
        normalize_observation: observations in [-1, 1], see `NormalizedObservation`.
        dict_observation: observations as dicts with the parts of `observation_layout`, so that an
            encoder can treat "measurements", "time" and "oracle" apart.

    Raises:
        ValueError: actions of another shape than (B, action_dim), NaN or infinite actions.
        gymnasium.error.ResetNeeded: `step` before `reset`, or (DISABLED) after an end.
    """

    metadata: dict[str, Any] = {"render_modes": []}
    copy = True  # Gymnasium's word for: callers own what they get

    def __init__(
        self,
        env: Environment,
        num_envs: int,
        *,
        seed: int = 0,
        normalize_actions: bool = False,
        autoreset_mode: Any = NEXT_STEP,
        max_episode_steps: int | None = None,
        normalize_observation: bool = False,
        dict_observation: bool = False,
    ) -> None:
        self.env = env
        seen = NormalizedObservation(env) if normalize_observation else env
        self.num_envs = _checks.integer("num_envs", num_envs, minimum=1)
        self.normalize_actions = normalize_actions
        self._mode = _mode_value(autoreset_mode)
        self.metadata = _metadata(self._mode)
        self._limit = max_episode_steps
        if max_episode_steps is not None:
            self._limit = _checks.integer("max_episode_steps", max_episode_steps, minimum=1)
        self._everywhere = np.ones(self.num_envs, bool)
        self._nowhere = ~self._everywhere
        self._bound = box_bound(env)
        self._layout = observation_layout(seen) if dict_observation else None
        self.single_observation_space = presented_space(seen, self._layout)
        box = Box(-1.0, 1.0, (env.action_dim,)) if normalize_actions else env.action_space
        self.single_action_space = box
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(box, self.num_envs)
        scale = self._bound if normalize_actions else None
        self._compiled = CompiledEnv(seen, self.num_envs, scale, _returned)
        self._start_run(seed)
        self._buffer: Any = None

    def _start_run(self, seed: int) -> None:
        self._run_key = run_key(seed)
        self._next_episodes = np.arange(self.num_envs, dtype=np.int32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in every sub-environment, or where `options["reset_mask"]` is True.

        A seed starts the run again at episode 0 and cannot go with a mask. After a partial reset
        the other rows keep their observation and info, and the info masks are the reset mask.
        """
        mask = (options or {}).get("reset_mask")
        if mask is not None:
            mask = self._checked_mask(mask, seed)
            self._restart(mask)
            return self._opening(mask)
        if seed is not None:
            seed = _single_seed(seed)
            self._start_run(seed)
        super().reset(seed=seed)
        self._restart(self._everywhere)
        return self._opening(self._everywhere)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Advance every sub-environment by one interval; `actions` has shape (B, action_dim)."""
        self._compiled.set_actions(actions)
        if self._buffer is None:
            raise ResetNeeded("no episode has begun; call reset() before step()")
        if self._mode == DISABLED and self._num_ended:
            ended = np.flatnonzero(self._ended).tolist()
            raise ResetNeeded(
                f"the episodes of sub-environments {ended} have ended; call "
                'reset(options={"reset_mask": mask}) with True there'
            )
        if self._num_ended < self.num_envs:
            stepped = self._compiled.step(self._buffer)
            self._compiled.read(stepped)
            self._buffer = stepped
        else:
            self._compiled.check_finite()
        if self._limit is not None:
            self._elapsed += 1
        if self._num_ended:
            self._restart(self._ended)
            self._compiled.read(self._buffer)
        observation, reward, terminated, truncated, infos = self._compiled.copies()
        if self._limit is not None:
            truncated = self._elapsed >= self._limit
        self._set_ended(terminated if self._limit is None else terminated | truncated)
        if self._mode == SAME_STEP and self._num_ended:
            observation, infos = self._restart_in_step()
        else:
            observation = present(observation, self._layout)
        return observation, reward, terminated, truncated, infos

    def close(self, **kwargs: Any) -> None:
        """Mark the environment as closed; there is nothing to release."""
        self.closed = True

    def _set_ended(self, ended: np.ndarray) -> None:
        # a copy, since the caller's array may change later
        self._num_ended = _count(ended)
        self._ended = ended.copy() if self._num_ended else self._nowhere

    def _restart(self, mask: np.ndarray) -> None:
        """Begin the next episode where the mask, somewhere True, is True.

        All sub-environments are reset; only the masked ones use up an episode index.
        """
        fresh = self._compiled.reset(self._run_key, self._next_episodes)
        self._next_episodes = self._next_episodes + mask * np.int32(self.num_envs)
        if _count(mask) == self.num_envs:
            self._buffer, self._elapsed = fresh, np.zeros(self.num_envs, np.int64)
            self._set_ended(self._nowhere)
        else:
            self._buffer = self._compiled.select(mask, fresh, self._buffer)
            self._elapsed[mask] = 0
            self._set_ended(self._ended & ~mask)

    def _opening(self, mask: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Observation and infos after a reset of the masked sub-environments."""
        self._compiled.read(self._buffer)
        seen = self._compiled.seen
        observation, infos = copier((seen.observation, _infos(seen.info, mask)))()
        return present(observation, self._layout), infos

    def _restart_in_step(self) -> tuple[Any, dict[str, Any]]:
        """SAME_STEP: begin new episodes where `_ended`; keep what ended in the infos."""
        seen, mask = self._compiled.seen, self._ended
        final_obs = np.where(mask[:, None], seen.observation, np.float32(0))
        final = {"final_obs": present(final_obs, self._layout), "final_info": seen.info}
        final = copier(_infos(final, mask))()
        self._restart(mask)
        observation, infos = self._opening(self._everywhere)
        return observation, infos | final

    def _checked_mask(self, mask: Any, seed: int | None) -> np.ndarray:
        array = np.asarray(mask)
        if array.dtype != bool or array.shape != (self.num_envs,) or not array.any():
            raise ValueError(
                f'options["reset_mask"] must be bool of shape ({self.num_envs},) with at least one '
                f"True, got {array.dtype} of shape {array.shape}"
            )
        if seed is not None:
            raise ValueError("a seed restarts the whole run; call reset(seed=...) without a mask")
        if self._buffer is None:
            raise ResetNeeded("no episode has begun; call reset() once before a partial reset")
        return array


def _single_seed(seed: Any) -> int:
    if isinstance(seed, (list, tuple, np.ndarray)):
        raise TypeError(
            f"`seed` must be one integer, since all sub-environments share one run, got {seed!r}"
        )
    return _checks.integer("seed", seed)


def _count(mask: np.ndarray) -> int:
    """Number of True; in small arrays far faster than `np.count_nonzero`."""
    return mask.tobytes().count(1)


def _returned(seen: TimeStep) -> tuple[Any, ...]:
    """What `step` returns, of arrays that are to be copied: nothing truncated, all info valid."""
    nowhere = np.zeros(seen.done.shape, bool)
    return seen.observation, seen.reward, seen.done, nowhere, _infos(seen.info, ~nowhere)


def _infos(info: dict[str, Any], mask: np.ndarray) -> dict[str, Any]:
    """The arrays with the mask as `_key` beside every key, on every level."""
    infos: dict[str, Any] = {}
    for key, value in info.items():
        infos[key] = _infos(value, mask) if type(value) is dict else value
        infos["_" + key] = mask
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
    normalize_observation: bool = False,
    dict_observation: bool = False,
    render_mode: str | None = None,
    **kwargs: Any,
) -> GymnasiumVectorEnv:
    """The entry point behind `gymnasium.make_vec`: task kwargs go to `qenvs.make`."""
    if render_mode is not None:
        raise ValueError(
            f"a GymnasiumVectorEnv does not render, got render_mode={render_mode!r}; render one "
            "environment: gymnasium.make(..., render_mode='rgb_array')"
        )
    return GymnasiumVectorEnv(
        make(task, **kwargs),
        num_envs,
        seed=seed,
        normalize_actions=normalize_actions,
        autoreset_mode=autoreset_mode,
        max_episode_steps=max_episode_steps,
        normalize_observation=normalize_observation,
        dict_observation=dict_observation,
    )

"""One environment behind the Gymnasium `Env` interface."""

from typing import Any

import jax
import numpy as np

from qenvs import _checks
from qenvs.envs.base import Environment
from qenvs.registration import make
from qenvs.wrappers._compiled import (
    GYMNASIUM_MISSING,
    CompiledEnv,
    box_bound,
    run_key,
)
from qenvs.wrappers.layout import (
    NormalizedObservation,
    observation_layout,
    present,
    presented_space,
)

try:
    import gymnasium
    from gymnasium.error import ResetNeeded
    from gymnasium.spaces import Box
except ImportError as error:
    raise ImportError(GYMNASIUM_MISSING) from error


class GymnasiumEnv(gymnasium.Env):
    """A functional environment as a `gymnasium.Env`: NumPy in, NumPy out.

    The i-th episode since the last seeding (i = 0 at the first `reset`) uses the key
    `keys.episode_key(PRNGKey(seed), i)`, so any episode can be rebuilt with the functional
    environment; `reset(seed=...)` starts again at i = 0. Reaching the horizon is
    `terminated=True`, since the pulse duration belongs to the task; `truncated` is always False.
    Actions beyond the bound act like the bound. For batches use `GymnasiumVectorEnv`, or
    `jax.vmap` over the functional environment.

    Args:
        env: functional environment.
        seed: run seed, 0 <= seed < 2^32, until `reset(seed=...)`.
        normalize_actions: actions in [-1, 1], multiplied by `env.action_bound` (in float32)
            before the step; recommended for libraries that assume such a range.
        render_mode: None, or "rgb_array" for frames of the pulse and the state.
        normalize_observation: observations in [-1, 1], see `NormalizedObservation`.
        dict_observation: observations as dicts with the parts of `observation_layout`, so that an
            encoder can treat "measurements", "time" and "oracle" apart.

    Raises:
        ValueError: an action of the wrong shape, NaN or infinite; a seed out of range.
        gymnasium.error.ResetNeeded: `step` before `reset` or after the end of an episode.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(
        self,
        env: Environment,
        seed: int = 0,
        normalize_actions: bool = False,
        render_mode: str | None = None,
        *,
        normalize_observation: bool = False,
        dict_observation: bool = False,
    ) -> None:
        self.env = env
        seen = NormalizedObservation(env) if normalize_observation else env
        self.normalize_actions = normalize_actions
        self.render_mode = _checks.choice("render_mode", render_mode, (None, "rgb_array"))
        self.closed = False
        self._layout = observation_layout(seen) if dict_observation else None
        self.observation_space = presented_space(seen, self._layout)
        self._bound = box_bound(env)
        self.action_space = (
            Box(-1.0, 1.0, (env.action_dim,)) if normalize_actions else env.action_space
        )
        self._compiled = CompiledEnv(seen, scale=self._bound if normalize_actions else None)
        self._run_key, self._episode = run_key(seed), 0
        self._buffer: jax.Array | None = None
        self._actions: list[np.ndarray] = []
        self._history: list[jax.Array] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start the next episode; a seed starts the run again. No option is defined."""
        if seed is not None:
            seed = _checks.integer("seed", seed)
            self._run_key, self._episode = run_key(seed), 0
        super().reset(seed=seed)
        self._buffer = self._compiled.reset(self._run_key, np.int32(self._episode))
        self._episode += 1
        self._actions, self._history = [], []
        self._record(self._buffer)
        self._compiled.read(self._buffer)
        timestep = self._compiled.copies()
        return present(timestep.observation, self._layout), timestep.info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Hold `action`, shape (action_dim,), for one interval."""
        if self._buffer is None:
            raise ResetNeeded("the episode has ended or never began; call reset() before step()")
        self._compiled.set_actions(action)
        buffer = self._compiled.step(self._buffer)
        self._compiled.read(buffer)
        timestep = self._compiled.copies()
        terminated = bool(timestep.done)
        self._buffer = None if terminated else buffer
        self._record(buffer, self._compiled.actions)
        observation = present(timestep.observation, self._layout)
        return observation, float(timestep.reward), terminated, False, timestep.info

    def render(self) -> np.ndarray | None:
        """One RGB frame, uint8 (height, width, 3), of the episode so far."""
        if self.render_mode is None:
            raise ValueError('rendering is off; build the environment with render_mode="rgb_array"')
        if not self._history:
            raise ResetNeeded("there is nothing to render; call reset() first")
        from qenvs import plots

        actions = np.array(self._actions).reshape(-1, self.env.action_dim)
        return plots.frame(self.env, actions, [self._compiled.state(b) for b in self._history])

    def close(self) -> None:
        """Mark the environment as closed; there is nothing to release."""
        self.closed = True

    def _record(self, buffer: jax.Array, action: np.ndarray | None = None) -> None:
        """Remember the state reached and the action that led there, for frames."""
        if self.render_mode is None:
            return
        self._history.append(buffer)
        if action is not None:
            applied = action * self._bound if self.normalize_actions else action
            self._actions.append(np.clip(applied, -self._bound, self._bound))


def make_env(
    task: str,
    *,
    seed: int = 0,
    normalize_actions: bool = False,
    render_mode: str | None = None,
    normalize_observation: bool = False,
    dict_observation: bool = False,
    **kwargs: Any,
) -> GymnasiumEnv:
    """The entry point behind `gymnasium.make`: task kwargs go to `qenvs.make`."""
    return GymnasiumEnv(
        make(task, **kwargs),
        seed,
        normalize_actions,
        render_mode,
        normalize_observation=normalize_observation,
        dict_observation=dict_observation,
    )

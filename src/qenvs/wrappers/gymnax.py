"""The shape of gymnax environments, for trainers written against it."""

from typing import Any

from jax import Array

from qenvs import keys
from qenvs.envs.base import Environment
from qenvs.wrappers.core import select


class GymnaxEnv:
    """A functional environment as gymnax has it: `reset(key, params)`, `step(key, state, ...)`.

    `params` is the environment itself, so that a model with other numbers passes through `jit`
    and `vmap` without a recompile. `step` resets within the ending step, as gymnax does; the
    episode key of the new episode is derived from the key given to `step`.

    Args:
        env: functional environment.
    """

    def __init__(self, env: Environment) -> None:
        self.env = env

    @property
    def default_params(self) -> Environment:
        """The wrapped environment: a pytree of its physical numbers."""
        return self.env

    @property
    def name(self) -> str:
        """Name of the innermost environment class."""
        return type(self.env.unwrapped).__name__

    @property
    def num_actions(self) -> int:
        """Dimension of the continuous action."""
        return self.env.action_dim

    def reset(self, key: Array, params: Environment | None = None) -> tuple[Array, Any]:
        """(observation, state) of a new episode."""
        state, timestep = (params or self.env).reset(key)
        return timestep.observation, state

    def step(
        self, key: Array, state: Any, action: Array, params: Environment | None = None
    ) -> tuple[Array, Any, Array, Array, dict[str, Any]]:
        """(observation, state, reward, done, info); a new episode where `done`."""
        observation, stepped, reward, done, info = self.step_env(key, state, action, params)
        opening, fresh = self.reset(keys.episode_key(key, 0), params)
        observation, state = select(done, (opening, fresh), (observation, stepped))
        return observation, state, reward, done, info

    def step_env(
        self, key: Array, state: Any, action: Array, params: Environment | None = None
    ) -> tuple[Array, Any, Array, Array, dict[str, Any]]:
        """As `step`, without the reset; the key is not used, the dynamics draw nothing."""
        state, timestep = (params or self.env).step(state, action)
        return timestep.observation, state, timestep.reward, timestep.done, timestep.info

    def observation_space(self, params: Environment | None = None) -> Any:
        """Gymnasium `Box` of one observation."""
        return (params or self.env).observation_space

    def action_space(self, params: Environment | None = None) -> Any:
        """Gymnasium `Box` of one action."""
        return (params or self.env).action_space

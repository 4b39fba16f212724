"""Where the numbers of an observation come from, and observations in [-1, 1]."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs.envs.base import Environment, TimeStep
from qenvs.wrappers.core import WrappedState, Wrapper, layers
from qenvs.wrappers.observation import STATE, ObservationModel


def observation_layout(env: Environment) -> dict[str, slice]:
    """Which entries of the observation are what; parts that are empty are left out.

    - "measurements": what is seen of the quantum object: measured values, or in the "state" mode
      the entries of the state or map itself.
    - "time": t/T.
    - "oracle": what wrappers append, such as the true parameters.
    """
    model, end = _observation_model(env), env.unwrapped.observation_dim
    if model is not None and model.observation != STATE:
        end = len(model.observable_names) + 1
    parts = {
        "measurements": slice(0, end - 1),
        "time": slice(end - 1, end),
        "oracle": slice(end, env.observation_dim),
    }
    return {name: part for name, part in parts.items() if part.stop > part.start}


def _observation_model(env: Environment) -> ObservationModel | None:
    return next((layer for layer in layers(env) if isinstance(layer, ObservationModel)), None)


class NormalizedObservation(Wrapper):
    """Observations in [-1, 1]: y = (x - c) / w, clipped, with known centres and half-widths.

    A measured observable lies between its lowest and highest eigenvalue, the real and imaginary
    parts of states and maps between -1 and 1, t/T between 0 and 1. What wrappers append (an
    oracle) has no bounds and stays as it is. Put it outside all wrappers that change observations.

    Args:
        env: a task or another wrapper.
    """

    _ranges: tuple[tuple[float, float], ...] = eqx.field(static=True)

    def __init__(self, env: Environment) -> None:
        self.env, self._ranges = env, _ranges(env)

    @property
    def observation_space(self) -> Any:
        """Gymnasium `Box(-1, 1)`, unbounded where wrappers append."""
        from gymnasium.spaces import Box

        limit = np.full(self.observation_dim, np.inf, np.float32)
        limit[: len(self._ranges)] = 1
        return Box(-limit, limit, dtype=np.float32)

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        state, timestep = super().reset(key)
        return state, self._normalized(timestep)

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        state, timestep = super().step(state, action)
        return state, self._normalized(timestep)

    def _normalized(self, timestep: TimeStep) -> TimeStep:
        low, high = np.array(self._ranges, np.float32).T
        known, appended = jnp.split(timestep.observation, [len(self._ranges)])
        half_width = np.where(high > low, (high - low) / 2, 1)
        scaled = jnp.clip((known - (high + low) / 2) / half_width, -1, 1)
        return timestep._replace(observation=jnp.concatenate([scaled, appended]))


def _ranges(env: Environment) -> tuple[tuple[float, float], ...]:
    """Lowest and highest value of the entries of the observation, but for the appended ones."""
    layout, model = observation_layout(env), _observation_model(env)
    time = ((0.0, 1.0),)
    if "measurements" not in layout:
        return time
    if model is None or model.observation == STATE:
        return ((-1.0, 1.0),) * layout["time"].start + time
    return model.eigenvalue_ranges + time


Layout = dict[str, slice] | None
"""The parts of a dict observation; None for flat ones."""


def present(observation: np.ndarray, layout: Layout) -> Any:
    """An observation (the last axis) as an adapter hands it out."""
    if layout is None:
        return observation
    return {name: observation[..., part].copy() for name, part in layout.items()}


def presented_space(env: Environment, layout: Layout) -> Any:
    """The Gymnasium space of what `present` gives for one environment."""
    space = env.observation_space
    if layout is None:
        return space
    from gymnasium.spaces import Box, Dict, Space

    boxes: dict[str, Space[Any]] = {
        name: Box(space.low[part], space.high[part]) for name, part in layout.items()
    }
    return Dict(boxes)

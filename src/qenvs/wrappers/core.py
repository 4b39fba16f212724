"""Functional wrappers: environments around environments. No third-party package is needed.

A wrapper passes the key that it receives in `reset` unchanged to the inner environment and derives
its own numbers from that key through `qenvs.keys`: its samples do not depend on which other
wrappers stand above or below it.
"""

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from qenvs import keys
from qenvs._apart import apart
from qenvs.envs.base import Environment, EnvState, TimeStep


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass(frozen=True, eq=False, init=False, slots=True)
class WrappedState:
    """State of a wrapped environment, an equinox `Module`.

    Args:
        inner: state of the wrapped environment (an `EnvState` or another `WrappedState`).
        key: key received in `reset`; None if `inner` has it, as the states of wrappers do.
        step: number of steps taken in this episode; None if `inner` counts them.
        data: the wrapper's own episode data, name -> array; None is no data.

    What `inner` has is not stored again: each array costs time in every step.
    """

    inner: Any
    _key: Array | None
    _step: Array | None
    data: dict[str, Array]

    def __init__(
        self,
        inner: Any,
        key: Array | None = None,
        step: Array | None = None,
        data: dict[str, Array] | None = None,
    ) -> None:
        self._set(inner, key, step, {} if data is None else data)

    def _set(self, inner: Any, key: Any, step: Any, data: Any) -> None:
        assign = object.__setattr__
        assign(self, "inner", inner)
        assign(self, "_key", key)
        assign(self, "_step", step)
        assign(self, "data", data)

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The parts, for JAX."""
        return (self.inner, self._key, self._step, self.data), None

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], None]:
        """The parts with their names, for JAX."""
        names = map(jax.tree_util.GetAttrKey, ("inner", "key", "step", "data"))
        return tuple(zip(names, self.tree_flatten()[0], strict=True)), None

    @classmethod
    def tree_unflatten(cls, _: None, parts: Sequence[Any]) -> "WrappedState":
        """A state of these parts, whatever JAX has put in their place."""
        state = object.__new__(cls)
        state._set(*parts)
        return state

    @classmethod
    def begun(cls, inner: Any, key: Array, data: dict[str, Array] | None = None) -> "WrappedState":
        """The state that `reset(key)` of a wrapper returns."""
        kept = None if isinstance(inner, WrappedState) else key
        count = None if hasattr(inner, "step") else jnp.zeros((), jnp.int32)
        return cls(inner, kept, count, data)

    def moved(self, inner: Any, data: dict[str, Array] | None = None) -> "WrappedState":
        """The state one step later, around `inner`; `data` None keeps the data."""
        count = None if self._step is None else self._step + 1
        return WrappedState(inner, self._key, count, self.data if data is None else data)

    @property
    def key(self) -> Array:
        """Key received in `reset`, the same on every level."""
        return self.inner.key if self._key is None else self._key

    @property
    def step(self) -> Array:
        """Number of steps taken in this episode."""
        return self.inner.step if self._step is None else self._step

    @property
    def base(self) -> EnvState:
        """State of the innermost environment."""
        return self.inner.base

    @property
    def qstate(self) -> Any:
        """Quantum state of the innermost environment, a dynamiqs `QArray`."""
        return self.base.qstate

    @property
    def t(self) -> Array:
        """Physical time of the innermost environment."""
        return self.base.t


# A Module by its behaviour; registered like this it is taken apart and put together in a third of
# the time, which a small step notices.
abc.ABCMeta.register(eqx.Module, WrappedState)


class Wrapper(Environment):
    """An environment that delegates to `env`; subclasses override what they change.

    Attributes that the wrapper does not define (`model`, `target`, ...) are read from `env`.
    """

    env: Environment

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "env":
            raise AttributeError(name)
        try:
            return getattr(self.env, name)
        except AttributeError:
            message = f"neither {type(self).__name__} nor what it wraps has attribute {name!r}"
            raise AttributeError(message) from None

    @property
    def horizon(self) -> int:
        """Number of steps of an episode."""
        return self.env.horizon

    @property
    def dt(self) -> Any:
        """Length of an interval."""
        return self.env.dt

    @property
    def action_bound(self) -> Any:
        """Half-width of the control range."""
        return self.env.action_bound

    @property
    def action_dim(self) -> int:
        """Number of controls."""
        return self.env.action_dim

    @property
    def observation_dim(self) -> int:
        """Length of the observation."""
        return self.env.observation_dim

    @property
    def unwrapped(self) -> Environment:
        """The innermost environment."""
        return self.env.unwrapped

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return WrappedState.begun(inner, key), timestep

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = apart(self.env.step)(state.inner, action)
        return state.moved(inner), timestep

    def in_episode(self, run_key: Array, index: int | Array) -> "Wrapper":
        """This environment as it is in episode `index` of a run: what drifts has moved on."""
        if not isinstance(self.env, Wrapper):
            return self
        inner = self.env.in_episode(run_key, index)
        return self if inner is self.env else eqx.tree_at(lambda wrapper: wrapper.env, self, inner)

    def info(self, state: WrappedState) -> dict[str, Any]:
        """Exact values of the state, as the inner environment gives them."""
        return self.env.info(state.inner)

    def diagnostics(self, state: WrappedState) -> dict[str, Any]:
        """`info` and every exact expectation value; never an input of a policy."""
        return self.env.diagnostics(state.inner)


def begin(env: Environment, run_key: Array, index: int | Array) -> tuple[Any, TimeStep]:
    """Start episode `index` of a run: reset with `keys.episode_key(run_key, index)`.

    Parameters that drift are where they are in that episode; `reset` alone knows of no run. The
    episode then goes on with `env.step`.
    """
    moved = env.in_episode(run_key, index) if isinstance(env, Wrapper) else env
    return moved.reset(keys.episode_key(run_key, index))


def layers(env: Environment) -> Iterator[Environment]:
    """The environment and what it wraps, from the outside in, down to the innermost one."""
    yield env
    while isinstance(env, Wrapper):
        env = env.env
        yield env


class EpisodeStatistics(Wrapper):
    """Adds `episode_return` and `episode_length` so far to the info of every step."""

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        state = WrappedState.begun(inner, key, {"return": timestep.reward})
        return state, _with_statistics(state, timestep)

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = apart(self.env.step)(state.inner, action)
        state = state.moved(inner, {"return": state.data["return"] + timestep.reward})
        return state, _with_statistics(state, timestep)


def _with_statistics(state: WrappedState, timestep: TimeStep) -> TimeStep:
    statistics = {"episode_return": state.data["return"], "episode_length": state.step}
    return timestep._replace(info={**timestep.info, **statistics})


class AutoReset(Wrapper):
    """Starts the next episode within the step that ends one, for training loops under `scan`.

    `reset(key)` takes a run key: episode i of the run gets `keys.episode_key(key, i)`. On a step
    with `done` the reward, `done` and info are those of the ended episode, the observation opens
    the new one, and `info["final_observation"]` (present on every step) is the observation that
    the step itself reached. Put it outside all other wrappers.
    """

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = begin(self.env, key, 0)
        data = {"episode": jnp.zeros((), jnp.int32)}
        return WrappedState(inner, key, data=data), _with_final(timestep)

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = apart(self.env.step)(state.inner, action)
        episode = state.data["episode"] + timestep.done
        fresh, opening = begin(self.env, state.key, episode)

        begun, going_on = (fresh, opening.observation), (inner, timestep.observation)
        inner, observation = select(timestep.done, begun, going_on)
        timestep = _with_final(timestep)._replace(observation=observation)
        return WrappedState(inner, state.key, data={"episode": episode}), timestep


def select(condition: Array, chosen: Any, other: Any) -> Any:
    """The tree `chosen` where a bool scalar is True, else `other`."""

    def leaf(new: Array, old: Array) -> Array:
        if not jnp.issubdtype(new.dtype, jax.dtypes.prng_key):
            return jnp.where(condition, new, old)
        # JAX counts a typed key that goes through `where` as used up, its data not.
        data = jnp.where(condition, jax.random.key_data(new), jax.random.key_data(old))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(new))

    return jax.tree.map(leaf, chosen, other)


def _with_final(timestep: TimeStep) -> TimeStep:
    info = {**timestep.info, "final_observation": timestep.observation}
    return timestep._replace(info=info)

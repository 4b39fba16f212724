"""Functional wrappers: environments around environments. No third-party package is needed.

A wrapper passes the key that it receives in `reset` unchanged to the inner environment and derives
its own numbers from that key through `qenvs.keys`: its samples do not depend on which other
wrappers stand above or below it.
"""

import abc
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from qenvs import keys
from qenvs._apart import apart
from qenvs.envs.base import Environment, EnvState, TimeStep


@jax.tree_util.register_pytree_with_keys_class
class WrappedState:
    """State of a wrapped environment, an equinox `Module` by registration.

    `inner` and `data` are views: an array can be replaced by `equinox.tree_at`, for example
    `state.data["offset/detuning"]`; a new item in the dict `state.data` changes no state.

    Args:
        inner: state of the wrapped environment (an `EnvState` or another `WrappedState`).
        key: key received in `reset`; None if `inner` has it, as the states of wrappers do.
        step: number of steps taken in this episode; None if `inner` counts them.
        data: the wrapper's own episode data, name -> array; None is no data.

    Wrappers around wrappers that share key and count are kept in one node, in which each of them
    is a level: taking a tree of nodes apart and putting it together costs time in every step, and
    so does each array.
    """

    __slots__ = ("_levels", "_parts")

    _parts: tuple[Any, ...]
    """The state inside all levels, key, step, and the data of all levels from the inside out."""

    _levels: tuple[tuple[str, ...], ...]
    """Names of the data of each level."""

    def __init__(
        self,
        inner: Any,
        key: Array | None = None,
        step: Array | None = None,
        data: dict[str, Array] | None = None,
    ) -> None:
        names = tuple(sorted(data)) if data else ()
        values = tuple(data[name] for name in names) if data else ()
        if isinstance(inner, WrappedState) and key is None and step is None:
            parts, levels = inner._parts, inner._levels
        else:
            parts, levels = (inner, key, step), ()
        self._parts, self._levels = (*parts, *values), (*levels, names)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[tuple[str, ...], ...]]:
        """The parts, for JAX."""
        return self._parts, self._levels

    def tree_flatten_with_keys(self) -> tuple[Any, tuple[tuple[str, ...], ...]]:
        """The parts with their names, for JAX."""
        names: list[Any] = [jax.tree_util.GetAttrKey(name) for name in ("inner", "key", "step")]
        for number, level in enumerate(self._levels):
            names += [jax.tree_util.DictKey((number, name)) for name in level]
        return tuple(zip(names, self._parts, strict=True)), self._levels

    @classmethod
    def tree_unflatten(
        cls, levels: tuple[tuple[str, ...], ...], parts: tuple[Any, ...]
    ) -> "WrappedState":
        """A state of these parts, whatever JAX has put in their place."""
        state = object.__new__(cls)
        state._parts, state._levels = parts, levels
        return state

    @classmethod
    def begun(cls, inner: Any, key: Array, data: dict[str, Array] | None = None) -> "WrappedState":
        """The state that `reset(key)` of a wrapper returns."""
        if isinstance(inner, WrappedState):
            return cls(inner, data=data)
        return cls(inner, key, None if hasattr(inner, "step") else jnp.zeros((), jnp.int32), data)

    def moved(self, inner: Any, data: dict[str, Array] | None = None) -> "WrappedState":
        """The state one step later, around `inner`; `data` None keeps the data."""
        data = self.data if data is None else data
        if len(self._levels) > 1:
            return WrappedState(inner, data=data)
        _, key, step, *_ = self._parts
        return WrappedState(inner, key, None if step is None else step + 1, data)

    @property
    def inner(self) -> Any:
        """State of the wrapped environment."""
        if len(self._levels) == 1:
            return self._parts[0]
        below = len(self._parts) - len(self._levels[-1])
        return self.tree_unflatten(self._levels[:-1], self._parts[:below])

    @property
    def data(self) -> dict[str, Array]:
        """The wrapper's own episode data, name -> array."""
        names = self._levels[-1]
        return dict(zip(names, self._parts[len(self._parts) - len(names) :], strict=True))

    @property
    def key(self) -> Array:
        """Key received in `reset`, the same on every level."""
        core, key, *_ = self._parts
        return core.key if key is None else key

    @property
    def step(self) -> Array:
        """Number of steps taken in this episode."""
        core, _, step, *_ = self._parts
        return core.step if step is None else step

    def __repr__(self) -> str:
        core, key, step, *values = self._parts
        left = iter(values)
        levels = [dict(zip(names, left, strict=False)) for names in self._levels]
        return f"WrappedState({core}, key={key}, step={step}, data from the inside out: {levels})"

    @property
    def base(self) -> EnvState:
        """State of the innermost environment."""
        return self._parts[0].base

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
    """Adds `episode_return` and `episode_length` so far to the info of every step.

    The return is an exact value: around an `ObservationModel` it shows in the info what the model
    hides there, for evaluation and not for a policy.
    """

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

"""Another device every episode: model parameters drawn at `reset`."""

from collections.abc import Iterator, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from qenvs import keys
from qenvs._apart import apart, in_blocks
from qenvs._threefry import unrolled
from qenvs.distributions import Distribution, attainable_range, check_strength
from qenvs.envs.base import ControlEnvironment, Environment, TimeStep
from qenvs.models.base import Model, ParameterSpec
from qenvs.wrappers._drift import check_drift, drifting_normal, offset_of_normal
from qenvs.wrappers.core import WrappedState, Wrapper, layers


class ParameterRandomization(Wrapper):
    """Draws model parameters at `reset` and keeps them for the whole episode.

    The value of a parameter is nominal + offset, in its unit; `state.data["offset/<name>"]` and
    `state.data["value/<name>"]` hold both. The episode moves like an environment built with these
    values: they replace the parameters of the innermost model.

    The offset of `name` is drawn from `keys.parameter_key(episode_key, name)` and nothing else:
    adding, removing or changing one parameter, or any other wrapper, never moves the others.

    With `drift` a run (`AutoReset`, or `core.begin` with an index) sees one device that changes
    slowly instead of a new device in every episode: the standard normal number behind an offset
    follows an Ornstein-Uhlenbeck process of the episode index, see `qenvs.wrappers._drift`. Each
    single offset still has the declared distribution. `reset` with a bare episode key belongs to
    no run and draws as ever.

    With the oracle the policy is told what a real device would have to calibrate separately; on
    top of the "state" observation it makes the observation Markov again.

    Args:
        env: environment whose innermost model declares the parameters (`parameter_specs`).
        distributions: name -> distribution of the offset. A stated unit must be the model's.
        strength: factor >= 0 of the configured widths; 0 is exactly the nominal model.
        oracle: append (value - nominal)/w_ref to the observation for every parameter with a
            reference width w_ref > 0, in the order of `distributions`. Neither the configured
            widths nor the strength change this scale.
        drift: number of episodes, 0 < drift <= 10^6, in which the correlation of an offset with
            its first value falls to 1/e; None draws every episode anew.

    Raises:
        ValueError: a parameter that is unknown or cannot be randomised, a range that leaves its
            support, another unit than the model's, two names with one key tag, a parameter that
            an inner wrapper draws already, no parameter at all, a strength or drift out of range.
        TypeError: an environment without a `Model`, or a value that is no `Distribution` (with
            `drift`: none of those in `qenvs.distributions`).
    """

    _distributions: tuple[tuple[str, Distribution], ...] = eqx.field(static=True)
    strength: float = eqx.field(static=True)
    oracle: bool = eqx.field(static=True)
    drift: float | None = eqx.field(static=True)
    _episode: tuple[Array, Array] | None

    def __init__(
        self,
        env: Environment,
        distributions: Mapping[str, Distribution],
        strength: float = 1.0,
        oracle: bool = False,
        *,
        drift: float | None = None,
    ) -> None:
        base = getattr(env, "unwrapped", env)
        if not isinstance(getattr(base, "model", None), Model):
            raise TypeError(f"`env` must have a `model` to vary, {type(base).__name__} has none")
        if not isinstance(oracle, bool):
            raise TypeError(f"`oracle` must be True or False, got {oracle!r}")
        self._distributions = tuple(distributions.items())
        self.strength, self.oracle = check_strength(strength), oracle
        _check(env, self._distributions, self.strength)
        self.drift = None if drift is None else check_drift(drift, distributions)
        self._episode = None  # run key and index, while an episode of a run begins
        self.env = _covering(env, self._distributions, self.strength)

    @property
    def distributions(self) -> dict[str, Distribution]:
        """Name -> distribution of the offset."""
        return dict(self._distributions)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the drawn parameters, in the order of `distributions`."""
        return tuple(name for name, _ in self._distributions)

    @property
    def oracle_names(self) -> tuple[str, ...]:
        """Drawn parameters that have a reference width: those of the oracle."""
        specs = self._specs()
        return tuple(name for name in self.parameter_names if specs[name].w_ref > 0)

    @property
    def observation_dim(self) -> int:
        """Length of the observation, with the entries of the oracle."""
        return self.env.observation_dim + (len(self.oracle_names) if self.oracle else 0)

    def episode_model(self, state: WrappedState) -> Model:
        """The nominal model with the parameters of this episode, inner wrappers' included."""
        values = {
            key.removeprefix("value/"): value
            for data in _episode_data(state)
            for key, value in data.items()
            if key.startswith("value/")
        }
        return self.unwrapped.model.with_parameters(**values)

    def in_episode(self, run_key: Array, index: int | Array) -> Wrapper:
        """This environment as it is in episode `index` of a run: what drifts has moved on."""
        moved = super().in_episode(run_key, index)
        if self.drift is None:
            return moved
        episode = run_key, jnp.asarray(index, jnp.int32)
        return eqx.tree_at(lambda w: w._episode, moved, episode, is_leaf=lambda x: x is None)

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        data, nominal = {}, self.unwrapped.model.parameter_values()
        for name, distribution in self._distributions:
            offset = self._offset(name, distribution, key)
            data[f"offset/{name}"] = offset
            data[f"value/{name}"] = jnp.asarray(nominal[name], jnp.result_type(float)) + offset
        inner, timestep = self._device(data).reset(key)
        state = WrappedState.begun(inner, key, data)
        return state, self._with_oracle(state, timestep)

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = apart(self._device(state.data).step)(state.inner, action)
        state = state.moved(inner)
        return state, self._with_oracle(state, timestep)

    def info(self, state: WrappedState) -> dict[str, Any]:
        """Exact values of the state of this episode's device."""
        return self._device(state.data).info(state.inner)

    def diagnostics(self, state: WrappedState) -> dict[str, Any]:
        """`info` and every exact expectation value; never an input of a policy."""
        return self._device(state.data).diagnostics(state.inner)

    def _specs(self) -> dict[str, ParameterSpec]:
        return self.unwrapped.model.parameter_specs()

    def _offset(self, name: str, distribution: Distribution, key: Array) -> Array:
        if self.drift is None or self._episode is None:
            strength = self.strength  # a program that is kept must not keep the environment

            def draw(key: Array) -> Array:
                leaf = keys.parameter_key(key, name)
                return distribution.sample(leaf, strength, (), jnp.float32)

            return in_blocks(draw)(unrolled(key))
        run_key, index = self._episode
        latent = drifting_normal(keys.drift_key(run_key, name), index, self.drift)
        return offset_of_normal(distribution, self.strength, latent)

    def _device(self, data: Mapping[str, Array]) -> Environment:
        """The inner environment with this episode's parameters in its innermost model."""
        values = {
            name: data[f"value/{name}"]
            for name, distribution in self._distributions
            if distribution.offset_range(self.strength) != (0.0, 0.0)
        }
        if not values:
            return self.env
        model = self.unwrapped.model.with_parameters(**values)
        return eqx.tree_at(lambda env: env.unwrapped.model, self.env, model)

    def _with_oracle(self, state: WrappedState, timestep: TimeStep) -> TimeStep:
        names = self.oracle_names
        if not self.oracle or not names:
            return timestep
        specs = self._specs()
        entries = jnp.stack([state.data[f"offset/{name}"] / specs[name].w_ref for name in names])
        observation = jnp.concatenate([timestep.observation, entries.astype(jnp.float32)])
        return timestep._replace(observation=observation)


def _episode_data(state: Any) -> Iterator[dict[str, Array]]:
    """The data of a wrapper's state and of those inside it."""
    while isinstance(state, WrappedState):
        yield state.data
        state = state.inner


def _covering(
    env: Environment, distributions: tuple[tuple[str, Distribution], ...], strength: float
) -> Environment:
    """The environment, its innermost dynamics exact for every value that can be drawn."""
    base = env.unwrapped
    if not isinstance(base, ControlEnvironment):
        return env
    ranges, nominal = {}, base.model.parameter_values()
    for name, distribution in distributions:
        low, high = attainable_range(distribution, strength)
        ranges[name] = (float(nominal[name]) + low, float(nominal[name]) + high)
    covering = base.with_parameter_ranges(ranges)
    return covering if env is base else eqx.tree_at(lambda env: env.unwrapped, env, covering)


def _check(
    env: Environment, distributions: tuple[tuple[str, Distribution], ...], strength: float
) -> None:
    model = env.unwrapped.model
    if not distributions:
        raise ValueError("`distributions` must name at least one parameter, got none")
    nominal = model.parameter_values()
    model.check_parameters(**{name: nominal.get(name, 0.0) for name, _ in distributions})
    inner = [layer for layer in layers(env) if isinstance(layer, ParameterRandomization)]
    taken = {name for layer in inner for name in layer.parameter_names}
    tags = {keys.name_tag(name): name for name in taken}
    for name, distribution in distributions:
        if not isinstance(distribution, Distribution):
            raise TypeError(f"`{name}` needs a Distribution such as Normal, got {distribution!r}")
        if name in taken:
            raise ValueError(f"`{name}` is drawn by an inner ParameterRandomization already")
        other = tags.setdefault(keys.name_tag(name), name)
        if other != name:
            raise ValueError(f"`{name}` and `{other}` have the same key tag; rename one of them")
        spec = model.parameter_specs()[name]
        if distribution.unit not in ("", spec.unit):
            raise ValueError(
                f"`{name}` is in {spec.unit!r}, but the distribution states {distribution.unit!r}; "
                "convert its numbers and state the model's unit, or none"
            )
        distribution.check_support(name, nominal[name], spec.support, strength)

"""The environment contract, and control of a model by piecewise constant pulses."""

import abc
import dataclasses
import functools
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks
from qenvs._apart import apart
from qenvs.dynamics import (
    Coordinates,
    DensityCoordinates,
    Generator,
    KetCoordinates,
    StateCoordinates,
    build_generator,
    evolve,
    length_for,
)
from qenvs.dynamics.blocks import build_block_generator
from qenvs.dynamics.expansion import Expansion, control_expansion, expand
from qenvs.dynamics.integrators import as_qarray, check_method, integrate
from qenvs.envs._ranges import Ranges, largest_coefficients
from qenvs.models.base import Model
from qenvs.models.battery import BlockModel
from qenvs.observables import is_ket


class TimeStep(NamedTuple):
    """What an agent sees of one step; `reset` gives the same structure with reward 0.

    Attributes:
        observation: float32 vector.
        reward: gain of the task quantity in this step, a scalar.
        done: whether the episode has ended (a true terminal state), a bool scalar.
        info: exact values of the state reached, name -> scalar.
    """

    observation: Array
    reward: Array
    done: Array
    info: dict[str, Any]


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["numbers"], meta_fields=["coordinates"]
)
@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class EnvState:
    """State of an episode: one real vector, which costs less to hand over than its parts.

    Attributes:
        numbers: x (row by row), step, dt, value; the batch axes of a `vmap` in front.
        coordinates: what `x` means.
    """

    numbers: Array
    coordinates: Coordinates

    @classmethod
    def of(
        cls, x: Array, step: Array | int, dt: Array, value: Array, coordinates: Coordinates
    ) -> "EnvState":
        """The state with these parts, in the dtype of `x`."""
        rest = [jnp.asarray(part, x.dtype)[None] for part in (step, dt, value)]
        return cls(jnp.concatenate([x.reshape(-1), *rest]), coordinates)

    @property
    def base(self) -> "EnvState":
        """This state itself, as for the state of a wrapper."""
        return self

    @property
    def x(self) -> Array:
        """Real coordinates of the quantum object (see `qenvs.dynamics.coordinates`)."""
        flat = self.numbers[..., :-3]
        if isinstance(self.coordinates, StateCoordinates):
            return flat
        return flat.reshape(*flat.shape[:-1], self.coordinates.size, -1)

    @property
    def step(self) -> Array:
        """Number of steps taken, int32; exact up to 2^24."""
        return self.numbers[..., -3].astype(jnp.int32)

    @property
    def dt(self) -> Array:
        """Length of a step."""
        return self.numbers[..., -2]

    @property
    def value(self) -> Array:
        """The task quantity (fidelity, energy, ...) of this state."""
        return self.numbers[..., -1]

    @property
    def t(self) -> Array:
        """Physical time, step * dt."""
        return self.numbers[..., -3] * self.dt

    @property
    def array(self) -> Array:
        """The quantum object as a complex array: ket (d,), density matrix or map."""
        return self.coordinates.decode(self.x)

    @property
    def qstate(self) -> Any:
        """The quantum object as a dynamiqs `QArray` (dynamiqs is imported on first use)."""
        return as_qarray(self.array, self.coordinates)


class Environment(eqx.Module):
    """A control task as pure functions; hashable by identity, a pytree of its numbers.

    `reset(key)` and `step(state, action)` return `(state, timestep)`. `jax.jit`, `jax.vmap`,
    `jax.grad` and `jax.lax.scan` apply to them and to `rollout` directly.
    """

    if TYPE_CHECKING:  # fields in some subclasses, properties in others

        def __getattr__(self, name: str) -> Any: ...

    else:
        horizon: eqx.AbstractVar[int]
        dt: eqx.AbstractVar[Any]
        action_bound: eqx.AbstractVar[Any]
        action_dim: eqx.AbstractVar[int]
        observation_dim: eqx.AbstractVar[int]

    @abc.abstractmethod
    def reset(self, key: Array) -> tuple[Any, TimeStep]:
        """Start an episode; deterministic tasks do not use the key."""

    @abc.abstractmethod
    def step(self, state: Any, action: Array) -> tuple[Any, TimeStep]:
        """Hold the action, shape (action_dim,), for one interval; clipped to the bound."""

    @abc.abstractmethod
    def info(self, state: Any) -> dict[str, Any]:
        """Exact values of the state: for evaluation, never an input of a policy."""

    @abc.abstractmethod
    def diagnostics(self, state: Any) -> dict[str, Any]:
        """`info` and every exact expectation value; never an input of a policy."""

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    @property
    def unwrapped(self) -> "Environment":
        """The innermost environment: this one, unless it is a wrapper."""
        return self

    @property
    def duration(self) -> Any:
        """Pulse duration T = horizon * dt."""
        return self.horizon * self.dt

    def rollout(self, actions: Array, key: Array | None = None) -> tuple[Any, Array]:
        """Play `actions`, shape (horizon, action_dim), open loop.

        It is compiled on the first call and then kept for as long as the environment lives, its
        derivatives too: loops of pulses or gradients need no `jax.jit` of their own.

        Args:
            actions: one row per interval.
            key: episode key; None is `PRNGKey(0)`.

        Returns:
            The final state and the rewards, shape (horizon,).

        Raises:
            ValueError: actions of another shape.
        """
        actions = jnp.asarray(actions)
        _checks.shape("actions", actions, (self.horizon, self.action_dim))
        known = all(map(_checks.is_concrete, jax.tree.leaves(self)))
        play = _compiled_play(self) if known else self._play
        return play(actions, jax.random.PRNGKey(0) if key is None else key)

    def _play(self, actions: Array, key: Array) -> tuple[Any, Array]:
        state, _ = self.reset(key)

        def advance(state: Any, action: Array) -> tuple[Any, Array]:
            state, timestep = self.step(state, action)
            return state, timestep.reward

        return jax.lax.scan(advance, state, actions)

    @property
    def observation_space(self) -> Any:
        """Gymnasium `Box(-inf, inf)` of one observation."""
        from gymnasium.spaces import Box

        return Box(-np.inf, np.inf, (self.observation_dim,), np.float32)

    @property
    def action_space(self) -> Any:
        """Gymnasium `Box(-action_bound, action_bound)` of one action."""
        from gymnasium.spaces import Box

        bound = np.broadcast_to(np.asarray(self.action_bound, np.float32), (self.action_dim,))
        return Box(-bound, bound, dtype=np.float32)


_compiled_plays: weakref.WeakKeyDictionary[Environment, Any] = weakref.WeakKeyDictionary()


def _compiled_play(env: Environment) -> Callable[[Array, Array], tuple[Any, Array]]:
    """The environment's `_play`, compiled once."""
    if env not in _compiled_plays:
        here = weakref.ref(env)  # what the dictionary holds must not keep its key alive
        _compiled_plays[env] = jax.jit(lambda *args: cast(Environment, here())._play(*args))
    return _compiled_plays[env]


class ControlEnvironment(Environment):
    """Piecewise constant control of a model: `horizon` intervals of length `dt`.

    In one interval the state moves by exp(dt (G0 + sum_k u_k G_k)) with u = clip(action, -B, B).
    The reward is the gain of the task quantity, so the return is its final minus its initial
    value. The episode ends with `done` after exactly `horizon` steps: the duration is part of the
    task. The observation is the real parts, then the imaginary parts of the state, row by row,
    then t/T.

    Args:
        model: the physical system.
        horizon: number of intervals, >= 1.
        dt: length of an interval, > 0, in the time unit of the model.
        action_bound: half-width of the control range: a number or one per control, > 0.
        method: None for the exact exponential, or a dynamiqs `Method` to integrate with.
        parameter_ranges: (name, lowest, highest) of parameters that may be replaced by traced
            values: the series is long enough for all of them (see `with_parameter_ranges`).
    """

    model: Model
    horizon: int = eqx.field(static=True)
    dt: Any
    action_bound: Any
    method: Any = eqx.field(default=None, kw_only=True)
    parameter_ranges: Ranges = eqx.field(default=(), static=True, kw_only=True)
    active_jumps: tuple[int, ...] = eqx.field(init=False, static=True)
    generator: Generator = eqx.field(init=False, static=True)
    length: int | None = eqx.field(init=False, static=True)

    def __post_init__(self) -> None:
        self.horizon = _checks.horizon(self.horizon)
        self.dt = _checks.positive("dt", _checks.as_parameter(self.dt))
        bound = _checks.as_parameter(self.action_bound)
        self.action_bound = _checks.positive("action_bound", bound)
        if np.shape(self.action_bound) not in ((), (self.action_dim,)):
            raise ValueError(
                f"`action_bound` must be one number or {self.action_dim} (one per control), "
                f"got shape {np.shape(self.action_bound)}"
            )
        check_method(self.method)
        self.active_jumps = self.model.active_jumps()
        self.generator = self.build_generator()
        self.length = self._length()

    @abc.abstractmethod
    def build_generator(self) -> Generator:
        """The real generator of drift terms, controls and active jumps, in this order."""

    @abc.abstractmethod
    def initial_object(self) -> Any:
        """The quantum object at the start: ket, density matrix, or identity map."""

    @abc.abstractmethod
    def quantity(self, x: Array) -> Array:
        """The task quantity whose gain is the reward."""

    @property
    def quantity_name(self) -> str:
        """Name of the task quantity."""
        return "quantity"

    @property
    def action_dim(self) -> int:
        """Number of controls."""
        return len(self.model.control_operators())

    @property
    def observation_dim(self) -> int:
        """Length of the observation: 2 numbers per complex entry of the state, and t/T."""
        return jax.eval_shape(lambda: self._observation(self._initial())).shape[0]

    def with_model(self, model: Model) -> "ControlEnvironment":
        """A copy around another model of the same kind."""
        return dataclasses.replace(self, model=model)

    def with_parameter_ranges(
        self, ranges: Mapping[str, tuple[float, float]]
    ) -> "ControlEnvironment":
        """A copy that stays exact for every value of these parameters in these intervals.

        With `equinox.tree_at` its model can then be given traced values, without a recompile and
        without a loop that depends on them.
        """
        known = {name: (low, high) for name, low, high in self.parameter_ranges}
        merged = {**known, **ranges}
        triples = tuple((name, float(low), float(high)) for name, (low, high) in merged.items())
        return dataclasses.replace(self, parameter_ranges=triples)

    def reset(self, key: Array) -> tuple[EnvState, TimeStep]:
        state = self._initial()
        return state, self._timestep(state, jnp.zeros((), state.x.dtype))

    def _initial(self) -> EnvState:
        x = self.generator.coordinates.encode(self.initial_object())
        x = jnp.asarray(x, jnp.result_type(float))
        return EnvState.of(x, 0, self.dt, self.quantity(x), self.generator.coordinates)

    def step(self, state: EnvState, action: Array) -> tuple[EnvState, TimeStep]:
        action = _checks.shape("action", _checks.real("action", action), (self.action_dim,))
        dtype = state.x.dtype
        bound = jnp.asarray(self.action_bound, dtype)
        x = apart(self._advance)(state.x, jnp.clip(action.astype(dtype), -bound, bound))
        new = EnvState.of(x, state.step + 1, state.dt, self.quantity(x), state.coordinates)
        return new, apart(self._timestep)(new, new.value - state.value)

    def diagnostics(self, state: EnvState) -> dict[str, Array]:
        is_state = isinstance(state.coordinates, StateCoordinates)
        exact = observable_values(self.model, state) if is_state else {}
        return {**exact, **self.info(state)}

    def _timestep(self, state: EnvState, reward: Array) -> TimeStep:
        done = state.step >= self.horizon
        return TimeStep(self._observation(state), reward, done, self.info(state))

    def _observation(self, state: EnvState) -> Array:
        fraction = state.step.astype(jnp.float32) / self.horizon
        parts = state.coordinates.real_and_imaginary(state.x).astype(jnp.float32)
        return jnp.concatenate([parts, fraction[None]])

    def _advance(self, x: Array, controls: Array) -> Array:
        coefficients = self._coefficients(list(controls))
        expansion = self._expansion(x)
        if expansion is not None:
            scaled = controls / jnp.asarray(self.action_bound, x.dtype)
            return self.generator.coordinates.project(expand(expansion, scaled, x))
        if self.method is None:
            return evolve(self.generator, coefficients, x, self.dt, self.length)
        jumps = self.model.jump_terms()
        operators = [jumps[j][1] for j in self.active_jumps]
        coordinates = self.generator.coordinates
        matrices = self.model.hamiltonian_operators()
        return integrate(coordinates, matrices, operators, coefficients, x, self.dt, self.method)

    def _expansion(self, x: Array) -> Expansion | None:
        """The step as a polynomial of the controls, if all other numbers are known."""
        if self.method is not None or self.generator.pauli is not None or x.ndim > 1:
            return None
        coefficients = self._coefficients([0.0] * self.action_dim)
        if not all(map(_checks.is_concrete, [self.dt, self.action_bound, *coefficients])):
            return None
        bounds = np.broadcast_to(self.action_bound, (self.action_dim,))
        first = len(self.model.drift_terms())
        return control_expansion(
            self.generator,
            tuple(map(float, coefficients)),
            tuple(range(first, first + self.action_dim)),
            tuple(map(float, bounds)),
            float(self.dt),
            x.dtype,
        )

    def _coefficients(self, controls: list[Any]) -> list[Any]:
        """Coefficients of the drift terms, the controls and the active jumps."""
        drift = [weight for weight, _ in self.model.drift_terms()]
        jumps = self.model.jump_terms()
        return [*drift, *controls, *(jumps[j][0] for j in self.active_jumps)]

    def _length(self) -> int | None:
        """Length class of the series, None where a traced number hides the bound."""
        largest = largest_coefficients(self.model, self.active_jumps, self.parameter_ranges)
        if largest is None or not all(map(_checks.is_concrete, [self.dt, self.action_bound])):
            return None
        bounds = np.broadcast_to(self.action_bound, (self.action_dim,))
        coefficients = [*largest[0], *bounds, *largest[1]]
        norm = float(self.dt * self.generator.norm_bound(coefficients))
        return length_for(self.generator, norm)


def state_generator(model: Model) -> Generator:
    """Generator on the states of a model: kets, or density matrices if open or mixed."""
    start = model.initial_state()
    jumps = [model.jump_terms()[j][1] for j in model.active_jumps()]
    ket = not jumps and is_ket(start)
    known = _checks.is_concrete(start)
    if isinstance(model, BlockModel) and not ket:
        matrices = model.hamiltonian_operators()
        return build_block_generator(model.dims, model.blocks(), matrices, jumps, start)
    return build_generator(
        KetCoordinates if ket else DensityCoordinates,
        model.dims,
        model.hamiltonian_operators(),
        jumps,
        start if known else None,
    )


def observable_values(model: Model, state: EnvState) -> dict[str, Array]:
    """Exact expectation value of every observable of the model."""
    terms = model.observable_terms()
    if not terms:
        return {}
    coordinates = cast(StateCoordinates, state.coordinates)
    form = coordinates.expectation_form([matrix for _, matrix in terms.values()])
    values = coordinates.expectations(state.x, form)
    return {name: terms[name][0] * values[k] for k, name in enumerate(terms)}

"""What an experiment shows: expectation values, finite shots, or the time alone.

The tasks hand out the whole quantum state. `ObservationModel` puts in its place what a device
gives, and keeps exact values out of `info`.

**The information boundary.** The observation alone is for the policy. In the partial modes `info`
holds costs only; `diagnostics=True` adds the exact values as `info["diagnostics"]` for evaluation,
and `env.info(state)` and `env.diagnostics(state)` stay exact in every mode: the API cannot stop a
caller from feeding them to a policy. The reward stays the exact gain of the task quantity, so its
running sum tells the exact performance; an experiment would have to estimate it from measurements.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks, keys
from qenvs._apart import apart
from qenvs._threefry import unrolled
from qenvs.dynamics import PropagatorCoordinates, StateCoordinates, SuperoperatorCoordinates
from qenvs.envs.base import Environment, EnvState, TimeStep
from qenvs.models.base import Model
from qenvs.observables import as_density_matrix
from qenvs.wrappers._binomial import binomial
from qenvs.wrappers._spectra import (
    DEGENERACY_RTOL,
    DUPLICATE_TOL,
    HERMITIAN_RTOL,
    Observables,
)
from qenvs.wrappers.core import WrappedState, Wrapper, layers

__all__ = [
    "COST_INFO_KEYS",
    "DEGENERACY_RTOL",
    "DUPLICATE_TOL",
    "HERMITIAN_RTOL",
    "MAX_SHOTS",
    "ObservationModel",
    "ReadoutError",
    "observation_kind",
    "outcome_counts",
]

COST_INFO_KEYS = ("shots_used", "clip_fraction")
"""What stays in `info` in the partial modes: cost, not performance."""

MAX_SHOTS = 2**24
"""Largest number of shots: counts are floats, exact whole numbers up to here in float32."""

STATE, EXPECTATIONS, CORRELATIONS, TIME = "state", "expectations", "correlations", "time"
MEASURED = (EXPECTATIONS, CORRELATIONS)


def observation_kind(env: Environment) -> str:
    """What the "state" mode carries: "state", "propagator" or "superoperator".

    The last two are the accumulated maps of closed and open gate tasks, which an experiment only
    gets from process tomography.
    """
    coordinates = getattr(getattr(env.unwrapped, "generator", None), "coordinates", None)
    if isinstance(coordinates, PropagatorCoordinates):
        return "propagator"
    return "superoperator" if isinstance(coordinates, SuperoperatorCoordinates) else "state"


def outcome_counts(key: Array, probs: Array, shots: int | Array) -> Array:
    """How often each outcome is found: an exact multinomial draw.

    A chain of binomials: outcome m gets Binomial(shots - earlier counts, p_m / sum_{l>=m} p_l) from
    the m-th key of `split(key, M)`; the last outcome with p > 0 takes what is left. Probabilities
    0 and 1 are settled without a draw. Rounding errors below 0 or in the sum do no harm.

    Args:
        key: PRNG key, consumed.
        probs: probabilities, shape (M,).
        shots: number of measurements, 1 <= shots <= `MAX_SHOTS`.

    Returns:
        Whole numbers of the dtype of `probs`, shape (M,), which sum to `shots`.

    Raises:
        ValueError: a known number of shots out of range.
    """
    probs = jnp.asarray(probs)
    probs = probs if jnp.issubdtype(probs.dtype, jnp.floating) else probs.astype(float)
    limit = MAX_SHOTS
    if _checks.is_concrete(shots):
        limit = _checked_shots(shots)
    return _chain(jax.random.split(key, probs.shape[0]), probs, jnp.asarray(shots), limit)


def _chain(split: Array, probs: Array, shots: Array, limit: int) -> Array:
    """`outcome_counts` from the M keys of the draws, with a static bound on the shots."""
    probs = jnp.maximum(probs, 0)
    later = jnp.flip(jnp.cumsum(jnp.flip(probs)))[1:]
    # JAX counts a slice of typed keys as a use of all of them, one of their data not.
    words, impl = jax.random.key_data(split), jax.random.key_impl(split)

    def draw(left: Array, outcome: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        data, p, rest = outcome
        key = jax.random.wrap_key_data(data, impl=impl)
        drawn = binomial(key, left, jnp.where(p > 0, p, 1), rest, limit)
        count = jnp.where(rest > 0, jnp.where(p > 0, drawn, 0), jnp.where(p > 0, left, 0))
        return left - count, count

    start = shots.astype(probs.dtype)
    left, counts = jax.lax.scan(draw, start, (words[:-1], probs[:-1], later))
    return jnp.append(counts, jnp.where(probs[-1] > 0, left, 0))


@dataclasses.dataclass(frozen=True, eq=False)
class ReadoutError:
    """Outcomes that are reported wrongly, each shot by itself.

    An outcome l is reported with the probability sum_m R_lm p_m, so that the mean of the reports
    is sum_lm e_l R_lm p_m instead of <O>: biased, as on a device. For outcomes 0 and 1 it is
    R_10 + (1 - R_10 - R_01) <O>. With `shots=None` the observation is this mean. The reports are
    drawn in place of the outcomes, from the same key: no other observable moves, and the identity
    is no readout error bit for bit. `diagnostics` and rewards stay exact.

    Args:
        confusion: observable name -> matrix R, shape (M, M): R[l, m] is the probability to report
            the outcome l where m is true, outcomes by ascending eigenvalue. Columns sum to 1.
            Observables that are not named are read perfectly.

    Raises:
        ValueError: a matrix that is not square, has entries outside [0, 1], or columns that do
            not sum to 1 (to 1e-6).
        TypeError: no mapping, or entries that are no real numbers.

    >>> from qenvs.wrappers.observation import ReadoutError
    >>> readout = ReadoutError({"p1": [[0.99, 0.04], [0.01, 0.96]]})
    """

    confusion: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.confusion, Mapping):
            raise TypeError(
                f"`confusion` must map names of observables to matrices, got {self.confusion!r}"
            )
        checked = {name: _checked_confusion(name, r) for name, r in self.confusion.items()}
        object.__setattr__(self, "confusion", checked)


class ObservationModel(Wrapper):
    """Observation mode and finite-shot measurement of an environment.

    Modes:

    - "state": the observation of the wrapped environment, unchanged.
    - "expectations": <O_j> of the model's `observables()`, then t/T.
    - "correlations": the same, then the model's `correlation_observables()`, then t/T. Models
      without correlators show the same as in "expectations".
    - "time": t/T alone, for open-loop control.

    What wrapped environments append (an oracle) stays at the end. Dynamics and rewards are those
    of the wrapped environment. The operators are those of the nominal model; the state is that of
    the (possibly randomised) device.

    With `shots=n` every observable is measured n times in its own eigenbasis, each in an experiment
    of its own, on the state as it is: no back-action, no sharing of shots. Outcomes are the
    distinct eigenvalues, counts exact multinomials, and the estimate is the mean of the eigenvalues
    found, of variance (<O^2> - <O>^2)/n. Observable j at time t (0 after `reset`, k after step k)
    draws from `keys.measurement_key(episode_key, t, j)` and nothing else.

    In the "state" mode of a gate task the observation is the accumulated map, which an experiment
    only gets from process tomography: a baseline of an ideal simulator, no measurement statistics.

    Args:
        env: a task or another wrapper.
        observation: the mode.
        shots: None for exact values, or the number of measurements per observable, at most 2^24.
        diagnostics: add the exact values as `info["diagnostics"]`.
        observables: names of the `observables()` to measure, in this order; None is all.
            Correlators follow in any case.
        readout: confusion of the outcomes; None reads perfectly.

    Raises:
        ValueError: an unknown mode or name; `shots` out of range or no whole number; `shots`,
            `observables` or `readout` in a mode that does not measure; a gate task in a mode that
            does; nothing to measure; an operator that is not Hermitian or measured twice;
            `diagnostics` that is no bool; an observation model inside another.
        TypeError: `observables` as one text, a `readout` that is no `ReadoutError`.

    Attributes:
        observation: the mode.
        shots: the number of shots, or None.
        observable_names: what is measured, in the order of the observation.
    """

    observation: str = eqx.field(static=True)
    shots: int | None = eqx.field(static=True)
    _adds_diagnostics: bool = eqx.field(static=True)
    _measured: Observables = eqx.field(static=True)

    def __init__(
        self,
        env: Environment,
        observation: str = STATE,
        shots: int | None = None,
        diagnostics: bool = False,
        observables: Sequence[str] | None = None,
        *,
        readout: ReadoutError | None = None,
    ) -> None:
        if any(isinstance(layer, ObservationModel) for layer in layers(env)):
            raise ValueError("an ObservationModel inside another has no meaning; use one")
        modes = (STATE, EXPECTATIONS, CORRELATIONS, TIME)
        self.observation = _checks.choice("observation", observation, modes)
        if not isinstance(diagnostics, bool):
            raise ValueError(f"`diagnostics` must be True or False, got {diagnostics!r}")
        self.env, self._adds_diagnostics = env, diagnostics
        self.shots = None if shots is None else _checked_shots(shots)
        if observation in MEASURED:
            self._measured = _select(env, observation, observables, readout)
        else:
            options = {"shots": shots, "observables": observables, "readout": readout}
            _refuse_options(observation, options)
            self._measured = Observables({}, 0)

    @property
    def observable_names(self) -> tuple[str, ...]:
        """Names of the measured observables, in the order of the observation."""
        return self._measured.names

    @property
    def observation_kind(self) -> str:
        """What the "state" mode of this task carries: "state", "propagator", "superoperator"."""
        return observation_kind(self.env)

    @property
    def eigenvalue_ranges(self) -> tuple[tuple[float, float], ...]:
        """Lowest and highest eigenvalue of each measured observable."""
        return tuple((float(s.values[0]), float(s.values[-1])) for s in self._measured.spectra)

    @property
    def shots_per_step(self) -> int:
        """Measurements of one observation: shots times observables, 0 without shots."""
        return (self.shots or 0) * len(self.observable_names)

    @property
    def observation_dim(self) -> int:
        """Length of the observation."""
        if self.observation == STATE:
            return self.env.observation_dim
        appended = self.env.observation_dim - self.unwrapped.observation_dim
        return len(self.observable_names) + 1 + appended

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        state = WrappedState.begun(inner, key)
        return state, self._shown(state, timestep)

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = apart(self.env.step)(state.inner, action)
        state = state.moved(inner)
        return state, self._shown(state, timestep)

    def measure(self, qstate: Any, key: Array, t: int | Array) -> Array:
        """What the policy sees of the measured observables, shape (K,).

        Args:
            qstate: quantum state (ket or density matrix) of the device, as a QArray or array.
            key: episode key.
            t: observation time, 0 after `reset`, k after step k.
        """
        if self.shots is None:
            rho = as_density_matrix(qstate)
            values = [_overlap(rho, spectrum.reported) for spectrum in self._measured.spectra]
            return jnp.stack(values) if values else jnp.zeros(0)
        return self._sample(self.outcome_probabilities(qstate), key, t)

    def outcome_probabilities(self, qstate: Any) -> tuple[Array, ...]:
        """Probabilities of the outcomes, by ascending eigenvalue, one array per observable."""
        rho = as_density_matrix(qstate)
        return tuple(
            jnp.stack([_overlap(rho, effect) for effect in spectrum.effects])
            for spectrum in self._measured.spectra
        )

    def _shown(self, state: WrappedState, timestep: TimeStep) -> TimeStep:
        info = timestep.info
        if self.observation != STATE:
            time = state.step.astype(jnp.float32) / self.horizon
            appended = timestep.observation[self.unwrapped.observation_dim :]
            values = self._values(state).astype(jnp.float32)
            observation = jnp.concatenate([values, time[None], appended])
            timestep = timestep._replace(observation=observation)
            info = {name: info[name] for name in COST_INFO_KEYS if name in info}
            info["shots_used"] = jnp.asarray(self.shots_per_step, jnp.int32)
        if self._adds_diagnostics:
            info = {**info, "diagnostics": self.env.diagnostics(state.inner)}
        return timestep._replace(info=info)

    def _values(self, state: WrappedState) -> Array:
        """What is seen of the measured observables, straight from the coordinates."""
        if not self.observable_names:
            return jnp.zeros(0)
        spectra = self._measured.spectra
        if self.shots is None:
            return _expectations(state.base, [spectrum.reported for spectrum in spectra])
        effects = [effect for spectrum in spectra for effect in spectrum.effects]
        ends = np.cumsum([spectrum.values.size for spectrum in spectra])[:-1]
        probabilities = jnp.split(_expectations(state.base, effects), ends)
        return self._sample(probabilities, state.key, state.step)

    def _sample(self, probabilities: Sequence[Array], key: Array, t: int | Array) -> Array:
        """Means of the outcomes found, shape (K,); equal numbers of outcomes are drawn together."""
        limit, means, order = int(self.shots or 0), [], []
        for outcomes in self._measured.sizes:
            which = self._measured.of_size(outcomes)
            probs = jax.lax.stop_gradient(jnp.stack([probabilities[j] for j in which]))
            eigenvalues = np.stack([self._measured.spectra[j].values for j in which])

            def found(j: Array, p: Array, outcomes: int = outcomes) -> Array:
                leaf = keys.measurement_key(unrolled(key), t, j)
                return _chain(jax.random.split(leaf, outcomes), p, jnp.asarray(limit), limit)

            shares = jax.vmap(found)(jnp.array(which), probs) / limit
            means.append(jnp.sum(shares * jnp.asarray(eigenvalues, shares.dtype), axis=1))
            order += which
        return jnp.concatenate(means)[np.argsort(order)]


def _overlap(rho: Array, operator: np.ndarray) -> Array:
    """Tr(rho O)."""
    return jnp.sum(rho * jnp.asarray(operator.T)).real


def _expectations(state: EnvState, operators: Sequence[np.ndarray]) -> Array:
    coordinates = cast(StateCoordinates, state.coordinates)
    return coordinates.expectations(state.x, coordinates.expectation_form(operators))


def _checked_shots(shots: Any) -> int:
    try:
        number = _checks.integer("shots", shots, minimum=1)
    except TypeError as error:
        raise ValueError(str(error)) from None
    if number > MAX_SHOTS:
        raise ValueError(f"`shots` must be <= 2**24 = {MAX_SHOTS}, got {number}")
    return number


def _checked_confusion(name: str, matrix: Any) -> np.ndarray:
    try:
        confusion = np.array(matrix)
    except ValueError as error:
        raise ValueError(f"the confusion matrix of {name!r} must be square: {error}") from None
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1]:
        raise ValueError(
            f"the confusion matrix of {name!r} must be square, got shape {confusion.shape}"
        )
    if confusion.dtype.kind not in "iuf":
        raise TypeError(
            f"the confusion matrix of {name!r} must hold real numbers, got {confusion.dtype}"
        )
    inside = np.all((confusion >= 0) & (confusion <= 1))
    if not inside or not np.allclose(confusion.sum(axis=0), 1, rtol=0, atol=1e-6):
        raise ValueError(
            f"the confusion matrix of {name!r} must have entries in [0, 1] and columns that sum to "
            f"1 (entry [l, m]: report l where m is true), got {confusion.tolist()}"
        )
    confusion = confusion / confusion.sum(axis=0)
    confusion.setflags(write=False)
    return confusion


def _refuse_options(observation: str, options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(
                f"`{name}` goes with the modes {MEASURED[0]!r} and {MEASURED[1]!r} only, "
                f"but the mode is {observation!r}"
            )


def _select(
    env: Environment,
    observation: str,
    names: Sequence[str] | None,
    readout: ReadoutError | None,
) -> Observables:
    """The observables of a measuring mode, checked."""
    if observation_kind(env) != "state":
        raise ValueError(
            "a gate task shows no measurement statistics: "
            f"its object is a {observation_kind(env)}, "
            f"not a state; use 'state' or 'time' instead of {observation!r}"
        )
    model = getattr(env.unwrapped, "model", None)
    if not isinstance(model, Model):
        raise TypeError(f"{type(env.unwrapped).__name__} has no `model` with observables")
    operators = _named(model.observables(), names)
    if observation == CORRELATIONS:
        correlators = model.correlation_observables()
        if shared := sorted(operators.keys() & correlators.keys()):
            raise ValueError(f"correlators must have names of their own, but {shared} are taken")
        operators |= correlators
    if not operators:
        raise ValueError(f"there is nothing to measure: {type(model).__name__} has no observables")
    if readout is not None and not isinstance(readout, ReadoutError):
        raise TypeError(f"`readout` must be a ReadoutError or None, got {readout!r}")
    confusion = readout.confusion if readout is not None else {}
    for name in confusion:
        _known("the readout", name, operators)
    return Observables(operators, int(np.prod(model.dims)), confusion)


def _named(operators: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    if names is None:
        return dict(operators)
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(
            f"`observables` must be a sequence of names, got {names!r}; use [{names!r}]"
        )
    chosen = list(names)
    if not chosen:
        raise ValueError("`observables` must name at least one observable, got none")
    for name in chosen:
        _known("`observables`", name, operators)
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"`observables` must name each observable once, got {chosen}")
    return {name: operators[name] for name in chosen}


def _known(what: str, name: str, operators: Mapping[str, Any]) -> None:
    if name not in operators:
        raise ValueError(f"{what} names {name!r}; {_checks.suggest(name, operators)}")

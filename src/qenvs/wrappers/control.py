"""Control amplitudes as hardware plays them: miscalibrated, noisy and limited.

On every channel, in step k,

    u = clip((a (1 + epsilon) + o) (1 + xi_k), -B, B)

with the commanded amplitude a, a relative gain error epsilon and an absolute offset o that stay
for the episode, a relative noise xi_k, and the `action_bound` B of the wrapped environment. This
defines a simulation model; it does not claim that every device errs in this order. Relative errors
may be any real number (a gain below -1 inverts the pulse; a `TruncatedNormal` can keep it
positive). Clipped noise piles probability up at the bounds: report `clip_fraction` with results.
"""

import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from qenvs import _checks, keys
from qenvs._apart import apart, in_blocks
from qenvs._threefry import unrolled
from qenvs.distributions import Distribution, OrnsteinUhlenbeck
from qenvs.envs.base import TimeStep
from qenvs.wrappers.core import WrappedState, Wrapper, layers


def apply_control_errors(
    action: Array,
    gain: Array | None,
    offset: Array | None,
    noise: Array | None,
    bound: Any,
) -> tuple[Array, Array]:
    """u = clip((a (1 + gain) + offset) (1 + noise), -bound, bound) and the clipped fraction.

    None switches a term off: no operation at all, so that all None is clip(a) bit for bit.

    Args:
        action: commanded amplitudes a, shape (channels,).
        gain: relative errors, shape (channels,) or ().
        offset: absolute errors in the unit of the action.
        noise: relative errors.
        bound: half-width of the control range, one number or one per channel.

    Returns:
        The applied amplitudes, and the share of channels with |u| > bound before the clip.
    """
    u = jnp.asarray(action)
    u = u if jnp.issubdtype(u.dtype, jnp.floating) else u.astype(jnp.result_type(float))
    if gain is not None:
        u = u * (1 + gain)
    if offset is not None:
        u = u + offset
    if noise is not None:
        u = u * (1 + noise)
    bound = jnp.asarray(bound, u.dtype)
    return jnp.clip(u, -bound, bound), jnp.mean(jnp.abs(u) > bound, dtype=u.dtype)


class ControlErrors(Wrapper):
    """Gain error, offset and noise on the control amplitudes (see the module).

    A source that is None is off; with all off only `info["clip_fraction"]` is added, the share of
    channels clipped at the bound (0 at `reset`). Gain and offset are drawn from
    `keys.calibration_key`, the noise of step k = 0, 1, ... from `keys.step_noise_key`, the coloured
    noise from `keys.coloured_noise_key`: no source ever moves another one.

    Args:
        env: environment to wrap; its innermost layers must not contain control errors already.
        amplitude_scale: distribution of the relative gain error epsilon.
        offset: distribution of the offset o, in the unit of the action.
        step_noise: distribution of the relative noise xi_k, redrawn every step.
        correlated: one draw of each source for all channels, as from a common generator, instead
            of one draw per channel.
        coloured_noise: relative noise with a memory that is added to xi_k; drift that is slow
            against the episode for a small `theta`.

    Raises:
        ValueError: a relative error that states a unit, an offset in another unit than the
            action's, or control errors inside control errors.
        TypeError: a source that is no `Distribution`, or a `correlated` that is no bool.
    """

    amplitude_scale: Distribution | None = eqx.field(default=None, static=True)
    offset: Distribution | None = eqx.field(default=None, static=True)
    step_noise: Distribution | None = eqx.field(default=None, static=True)
    correlated: bool = eqx.field(default=False, static=True)
    coloured_noise: OrnsteinUhlenbeck | None = eqx.field(default=None, static=True, kw_only=True)

    def __check_init__(self) -> None:
        if any(isinstance(layer, ControlErrors) for layer in layers(self.env)):
            raise ValueError(
                "ControlErrors inside ControlErrors would draw the same numbers twice; "
                "put all sources into one"
            )
        if not isinstance(self.correlated, bool):
            raise TypeError(f"`correlated` must be True or False, got {self.correlated!r}")
        unit = _amplitude_unit(getattr(self.unwrapped, "model", None))
        _check_source("amplitude_scale", self.amplitude_scale, "")
        _check_source("offset", self.offset, unit)
        _check_source("step_noise", self.step_noise, "")
        noise = self.coloured_noise
        if noise is not None and not isinstance(noise, OrnsteinUhlenbeck):
            raise TypeError(f"`coloured_noise` must be an OrnsteinUhlenbeck or None, got {noise!r}")

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        data, episode = {}, unrolled(key)
        if self.amplitude_scale is not None:
            leaf = keys.calibration_key(episode, keys.GAIN)
            data["gain"] = _drawn(self.amplitude_scale, leaf, self._shape)
        if self.offset is not None:
            leaf = keys.calibration_key(episode, keys.OFFSET)
            data["offset"] = _drawn(self.offset, leaf, self._shape)
        if self.coloured_noise is not None:
            leaf = keys.coloured_noise_key(episode, 0)
            data["coloured_noise"] = self.coloured_noise.start(leaf, self._shape, jnp.float32)
        state = WrappedState.begun(inner, key, data)
        return state, _with_fraction(timestep, jnp.zeros((), jnp.float32))

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        action = _checks.shape("action", _checks.real("action", action), (self.action_dim,))
        applied, fraction = apart(self.applied_action)(state, action)
        inner, timestep = apart(self.env.step)(state.inner, applied)
        data = dict(state.data)
        if self.coloured_noise is not None:
            leaf = keys.coloured_noise_key(unrolled(state.key), state.step + 1)
            now = data["coloured_noise"]
            data["coloured_noise"] = self.coloured_noise.advance(leaf, now, self._shape, self.dt)
        return state.moved(inner, data), _with_fraction(timestep, fraction.astype(jnp.float32))

    def applied_action(self, state: WrappedState, action: Array) -> tuple[Array, Array]:
        """What the next step sends to the inner environment, and the clipped fraction."""
        data = state.data
        noise = [self.white_noise(state), data.get("coloured_noise")]
        known = [part for part in noise if part is not None]
        total = functools.reduce(jnp.add, known) if known else None
        gain, offset = data.get("gain"), data.get("offset")
        return apply_control_errors(action, gain, offset, total, self.action_bound)

    def white_noise(self, state: WrappedState) -> Array | None:
        """The relative noise xi_k of the next step, None if there is none."""
        source = self.step_noise
        if source is None:
            return None

        shape = self._shape  # a program that is kept must not keep the environment

        def draw(key: Array, step: Array) -> Array:
            return _drawn(source, keys.step_noise_key(key, step), shape)

        return in_blocks(draw)(unrolled(state.key), state.step)

    @property
    def _shape(self) -> tuple[int, ...]:
        """Shape of one draw: a number for all channels, or one per channel."""
        return () if self.correlated else (self.action_dim,)


def _drawn(source: Distribution, key: Array, shape: tuple[int, ...]) -> Array:
    return source.sample(key, 1.0, shape, jnp.float32)


def _with_fraction(timestep: TimeStep, fraction: Array) -> TimeStep:
    return timestep._replace(info={**timestep.info, "clip_fraction": fraction})


def _amplitude_unit(model: Any) -> str | None:
    """Unit of the action, None if the model does not tell."""
    return getattr(model, "amplitude_unit", "") or None


def _check_source(name: str, source: Distribution | None, unit: str | None) -> None:
    """TypeError or ValueError unless a distribution in this unit (None: unknown) or None."""
    if source is None:
        return
    if not isinstance(source, Distribution):
        raise TypeError(f"`{name}` must be a Distribution such as Normal, or None, got {source!r}")
    if unit is not None and source.unit not in ("", unit):
        fix = f"use {unit!r}" if unit else "it is relative, so state no unit"
        raise ValueError(f"`{name}` states the unit {source.unit!r}; {fix}")

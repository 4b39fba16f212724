"""Offset distributions for parameter randomisation and control errors.

A distribution draws an offset from the nominal value, in the unit of the parameter. The order of
operations is fixed: the configured width times `strength` is the effective width; the range that
it can reach is checked against the support of the parameter when a wrapper is built; then numbers
are drawn and never clipped to the support, which would change the distribution. Only rounding is
guarded: draws of `Uniform` and `TruncatedNormal` stay inside their own interval. An effective
width of 0 gives exactly 0.
"""

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import erfinv

from qenvs import _checks

NORMAL_REACH = 8.3
"""Standard deviations that no draw of `jax.random.normal` passes: 5.42 in float32, 8.30 in
float64, where its uniform argument ends."""


def check_strength(strength: Any) -> float:
    """`strength` as a float; ValueError unless it is finite and >= 0.

    TypeError for what is no number, or not known while tracing.
    """
    if not _checks.is_concrete(strength):
        raise TypeError(
            "`strength` must be known while tracing: close over it, or name it in `static_argnames`"
        )
    return float(_checks.non_negative("strength", _number("strength", strength)))


class Distribution(abc.ABC):
    """Distribution of the offset of a parameter from its nominal value.

    Subclasses are frozen dataclasses with a field `unit` ("" if not stated). Every method takes
    `strength`, the factor from the configured to the effective width.
    """

    unit: str

    @abc.abstractmethod
    def mean(self, strength: float = 1.0) -> float:
        """Exact mean of the offset."""

    @abc.abstractmethod
    def stddev(self, strength: float = 1.0) -> float:
        """Exact standard deviation of the offset."""

    @abc.abstractmethod
    def offset_range(self, strength: float = 1.0) -> tuple[float, float]:
        """Closed interval of the offsets that can occur."""

    @abc.abstractmethod
    def sample(
        self, key: Array, strength: float = 1.0, shape: Sequence[int] = (), dtype: Any = None
    ) -> Array:
        """Offsets of the given shape; `dtype` None is JAX's default float."""

    def check_support(
        self, name: str, nominal: Any, support: tuple[float, float], strength: float = 1.0
    ) -> None:
        """ValueError if nominal + offset can leave the closed interval `support`.

        Args:
            name: what to call the parameter in the message.
            nominal: its nominal value.
            support: (lowest, highest) value allowed.
            strength: factor of the configured width.
        """
        low, high = (float(nominal) + offset for offset in self.offset_range(strength))
        largest = max(abs(end) for end in (float(nominal), low, high) if math.isfinite(end))
        rounding = 4 * float(np.finfo(float).eps) * largest  # of ends that meet the support
        if low < support[0] - rounding or high > support[1] + rounding:
            raise ValueError(
                f"`{name}` must stay in [{support[0]}, {support[1]}], but {self} at strength "
                f"{strength:g} reaches [{low:.10g}, {high:.10g}]; lower the width or the strength, "
                "or use a bounded distribution"
            )


@dataclasses.dataclass(frozen=True)
class Normal(Distribution):
    """Gaussian offset N(0, (std * strength)^2), only for parameters on the whole real line.

    Args:
        std: standard deviation >= 0, in the unit of the parameter.
        unit: unit of `std`; "" is not stated.

    Raises:
        ValueError: `std` negative or not finite.
    """

    std: float
    unit: str = ""

    def __post_init__(self) -> None:
        _check_fields(self, widths=("std",))

    def mean(self, strength: float = 1.0) -> float:
        """0."""
        check_strength(strength)
        return 0.0

    def stddev(self, strength: float = 1.0) -> float:
        """std * strength."""
        return _width("std", self.std, strength)

    def offset_range(self, strength: float = 1.0) -> tuple[float, float]:
        """The real line, or [0, 0] for an effective width of 0."""
        return (-math.inf, math.inf) if self.stddev(strength) > 0 else (0.0, 0.0)

    def sample(
        self, key: Array, strength: float = 1.0, shape: Sequence[int] = (), dtype: Any = None
    ) -> Array:
        """Offsets std * strength * z with z standard normal."""
        dtype, width = _dtype(dtype), self.stddev(strength)
        if width == 0:
            return jnp.zeros(shape, dtype)
        return jnp.asarray(width, dtype) * jax.random.normal(key, shape, dtype)


@dataclasses.dataclass(frozen=True)
class Uniform(Distribution):
    """Uniform offset on [-h, h], h = half_width * strength; its standard deviation is h/sqrt(3).

    Args:
        half_width: >= 0, in the unit of the parameter.
        unit: unit of `half_width`; "" is not stated.

    Raises:
        ValueError: `half_width` negative or not finite.
    """

    half_width: float
    unit: str = ""

    def __post_init__(self) -> None:
        _check_fields(self, widths=("half_width",))

    def mean(self, strength: float = 1.0) -> float:
        """0."""
        check_strength(strength)
        return 0.0

    def stddev(self, strength: float = 1.0) -> float:
        """h/sqrt(3)."""
        return _width("half_width", self.half_width, strength) / math.sqrt(3)

    def offset_range(self, strength: float = 1.0) -> tuple[float, float]:
        """[-h, h]."""
        half = _width("half_width", self.half_width, strength)
        return (-half, half)

    def sample(
        self, key: Array, strength: float = 1.0, shape: Sequence[int] = (), dtype: Any = None
    ) -> Array:
        """Offsets h * v with v uniform on [-1, 1)."""
        dtype, (low, high) = _dtype(dtype), self.offset_range(strength)
        if high == 0:
            return jnp.zeros(shape, dtype)
        drawn = high * jax.random.uniform(key, shape, dtype, minval=-1.0, maxval=1.0)
        return jnp.clip(drawn, *_inward(low, high, dtype))


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Distribution):
    """Gaussian offset N(0, (std * strength)^2) restricted to [low, high].

    `low` and `high` are offsets and do not scale with `strength`. Where low != -high the mean is
    not 0; `mean` and `stddev` are the exact moments of the truncated distribution.

    Args:
        std: standard deviation >= 0 of the Gaussian, in the unit of the parameter; 0 gives 0.
        low, high: finite ends with low <= 0 <= high and low < high.
        unit: unit of all three; "" is not stated.

    Raises:
        ValueError: a negative or non-finite `std`, or ends that break their order.
    """

    std: float
    low: float
    high: float
    unit: str = ""

    def __post_init__(self) -> None:
        _check_fields(self, widths=("std",), ends=("low", "high"))
        if not (self.low <= 0 <= self.high and self.low < self.high):
            raise ValueError(
                "`low` and `high` must satisfy low <= 0 <= high and low < high, "
                f"got low={self.low:g}, high={self.high:g}; they are offsets from the nominal value"
            )

    def mean(self, strength: float = 1.0) -> float:
        """Exact mean of the truncated distribution."""
        width = _width("std", self.std, strength)
        return width * _truncated_mean(*self._standardised(width)) if width else 0.0

    def stddev(self, strength: float = 1.0) -> float:
        """Exact standard deviation of the truncated distribution."""
        width = _width("std", self.std, strength)
        return width * _truncated_stddev(*self._standardised(width)) if width else 0.0

    def offset_range(self, strength: float = 1.0) -> tuple[float, float]:
        """[low, high], or [0, 0] for an effective width of 0."""
        return (self.low, self.high) if _width("std", self.std, strength) > 0 else (0.0, 0.0)

    def sample(
        self, key: Array, strength: float = 1.0, shape: Sequence[int] = (), dtype: Any = None
    ) -> Array:
        """Offsets by inversion of the distribution function."""
        dtype, width = _dtype(dtype), _width("std", self.std, strength)
        if width == 0:
            return jnp.zeros(shape, dtype)
        # where the distribution function rounds to 0 or 1 its inverse is infinite
        reach = math.sqrt(2) * float(erfinv(1 - float(jnp.finfo(dtype).eps) / 2))
        low, high = np.clip(self._standardised(width), -reach, reach)
        drawn = width * jax.random.truncated_normal(key, low, high, shape, dtype)
        return jnp.clip(drawn, *_inward(self.low, self.high, dtype))

    def _standardised(self, width: float) -> tuple[float, float]:
        """Ends in standard deviations; beyond 40 the density is 0 in float64."""
        return max(self.low / width, -40.0), min(self.high / width, 40.0)


@dataclasses.dataclass(frozen=True)
class OrnsteinUhlenbeck:
    """Coloured noise dx = -theta x dt + sigma dW, started in its stationary state.

    x_{k+1} = a x_k + s sqrt(1 - a^2) z_k with a = exp(-theta dt) and s = sigma/sqrt(2 theta): exact
    for every dt. Its autocorrelation is s^2 exp(-theta |t|); theta dt >> 1 is white noise,
    theta T << 1 an error that stays put during an episode of duration T.

    Args:
        theta: rate > 0 at which the noise forgets, one over the time unit of the model.
        sigma: strength >= 0 of the driving noise, one over the square root of that unit.

    Raises:
        ValueError: `theta` or `sigma` out of range or not finite.

    Reference: Gillespie, Phys. Rev. E 54, 2084 (1996).
    """

    theta: float
    sigma: float

    def __post_init__(self) -> None:
        for name, check in (("theta", _checks.positive), ("sigma", _checks.non_negative)):
            value = check(name, _number(name, getattr(self, name)))
            object.__setattr__(self, name, float(value))

    def stddev(self) -> float:
        """Stationary standard deviation sigma/sqrt(2 theta)."""
        return self.sigma / math.sqrt(2 * self.theta)

    def start(self, key: Array, shape: Sequence[int], dtype: Any) -> Array:
        """A stationary draw."""
        return jnp.asarray(self.stddev(), dtype) * jax.random.normal(key, shape, dtype)

    def advance(self, key: Array, value: Array, shape: Sequence[int], dt: Any) -> Array:
        """The noise one interval `dt` later, broadcast to the shape of `value`.

        Args:
            key: key of the fresh number.
            value: x_k.
            shape: () for one fresh number shared by all entries, or the shape of `value`.
            dt: interval, in the time unit of the model.
        """
        rate = jnp.asarray(self.theta * dt, value.dtype)
        fresh = jax.random.normal(key, shape, value.dtype)
        spread = self.stddev() * jnp.sqrt(-jnp.expm1(-2 * rate))
        return jnp.exp(-rate) * value + spread * fresh


def attainable_range(distribution: Distribution, strength: float) -> tuple[float, float]:
    """`offset_range`, but for a `Normal` the finite interval that no draw leaves."""
    if isinstance(distribution, Normal):
        reach = NORMAL_REACH * distribution.stddev(strength)
        return (-reach, reach)
    return distribution.offset_range(strength)


def _number(name: str, value: Any) -> Any:
    """A real number; TypeError naming the field otherwise."""
    try:
        number = _checks.as_parameter(value)
    except TypeError:
        raise TypeError(f"`{name}` must be a real number, got {value!r}") from None
    if np.ndim(number):
        raise TypeError(f"`{name}` must be one number, got shape {np.shape(number)}")
    return number


def _check_fields(
    distribution: Distribution, widths: Sequence[str], ends: Sequence[str] = ()
) -> None:
    """Checked floats in place of the given fields; ValueError naming the one that is wrong."""
    if not isinstance(distribution.unit, str):
        raise TypeError(f"`unit` must be a text, got {distribution.unit!r}")
    for names, check in ((widths, _checks.non_negative), (ends, _checks.finite)):
        for name in names:
            value = check(name, _number(name, getattr(distribution, name)))
            object.__setattr__(distribution, name, float(value))


def _width(name: str, configured: float, strength: float) -> float:
    """Effective width."""
    return float(_checks.finite(f"{name} * strength", configured * check_strength(strength)))


def _dtype(dtype: Any) -> np.dtype:
    return np.dtype(jnp.result_type(float) if dtype is None else dtype)


def _inward(low: float, high: float, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The ends of [low, high] in `dtype`, rounded into the interval."""
    ends = np.asarray(low, dtype), np.asarray(high, dtype)
    inside = float(ends[0]) >= low, float(ends[1]) <= high
    return (
        ends[0] if inside[0] else np.nextafter(ends[0], dtype.type(np.inf)),
        ends[1] if inside[1] else np.nextafter(ends[1], dtype.type(-np.inf)),
    )


def _truncated_mean(a: float, b: float) -> float:
    """Mean of the standard normal on [a, b], a <= 0 <= b, without cancellation.

    (phi(a) - phi(b)) / (Phi(b) - Phi(a)), with phi of the nearer end factored out.
    """
    near, far = sorted((abs(a), abs(b)))
    if far < 1e-8:
        return (a + b) / 2  # flat to 1e-16; squares could underflow
    gap = (far - near) * (far + near) / 2
    density = math.exp(-near * near / 2) * -math.expm1(-gap) / math.sqrt(2 * math.pi)
    return math.copysign(density, b + a) / _normal_mass(a, b) if density else 0.0


def _normal_mass(a: float, b: float) -> float:
    """Phi(b) - Phi(a) for a <= 0 <= b."""
    return (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2))) / 2


def _truncated_stddev(a: float, b: float) -> float:
    """Standard deviation of the standard normal on [a, b], by Gauss-Legendre quadrature.

    All terms are positive, so that narrow intervals lose no digits.
    """
    mean = _truncated_mean(a, b)
    edges = np.linspace(a, b, math.ceil(b - a) + 1)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half) + half * nodes
    density = np.exp(-z * z / 2) * weights * half / math.sqrt(2 * math.pi)
    relative = (z - mean) / (b - a)
    return (b - a) * math.sqrt(np.sum(relative**2 * density) / _normal_mass(a, b))

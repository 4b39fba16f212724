"""Offset distributions: moments, ranges, samples, supports."""

import dataclasses
import itertools
import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import special, stats

from brute_force import enable_x64
from qenvs.distributions import (
    NORMAL_REACH,
    Distribution,
    Normal,
    OrnsteinUhlenbeck,
    TruncatedNormal,
    Uniform,
    attainable_range,
    check_strength,
)

INF = math.inf
KEY = jax.random.key(7)
EACH = [Normal(0.3), Uniform(0.3), TruncatedNormal(0.3, -0.2, 0.5)]


def truncated_moments(std, low, high):
    """Mean and standard deviation from 50 correct digits."""
    with mpmath.workdps(90):
        std, low, high = mpmath.mpf(std), mpmath.mpf(low), mpmath.mpf(high)
        a, b = low / std, high / std
        mass = mpmath.ncdf(b) - mpmath.ncdf(a)
        phi_a, phi_b = mpmath.npdf(a), mpmath.npdf(b)
        mean = (phi_a - phi_b) / mass
        variance = 1 + (a * phi_a - b * phi_b) / mass - mean**2
        return std * mean, std * mpmath.sqrt(variance)


# --- what they are ---


@pytest.mark.claims("W-DI-1")
def test_distribution_is_abstract_in_four_methods():
    assert Distribution.__abstractmethods__ == {"mean", "stddev", "offset_range", "sample"}
    with pytest.raises(TypeError):
        Distribution()


@pytest.mark.claims("W-DI-2", "W-DI-3", "W-Q40")
def test_frozen_dataclasses_with_their_fields():
    fields = {cls: [f.name for f in dataclasses.fields(cls)] for cls in map(type, EACH)}
    assert fields == {
        Normal: ["std", "unit"],
        Uniform: ["half_width", "unit"],
        TruncatedNormal: ["std", "low", "high", "unit"],
    }
    for distribution in EACH:
        assert distribution.unit == ""
        with pytest.raises(dataclasses.FrozenInstanceError):
            distribution.unit = "GHz"
        assert isinstance(distribution, Distribution)
    assert Normal(1, "GHz") == Normal(1.0, unit="GHz")
    assert hash(Normal(1)) == hash(Normal(1.0))


@pytest.mark.claims("W-DI-19", "W-Q40")
@pytest.mark.parametrize("value", [-1e-9, math.nan, INF, -INF])
def test_widths_must_be_finite_and_not_negative(value):
    for build in (Normal, lambda v: TruncatedNormal(v, -1, 1)):
        with pytest.raises(ValueError, match="`std`"):
            build(value)
    with pytest.raises(ValueError, match="`half_width`"):
        Uniform(value)


@pytest.mark.claims("W-Q40")
def test_kinds_are_refused_by_name():
    with pytest.raises(TypeError, match="`std`"):
        Normal("wide")
    with pytest.raises(TypeError, match="`half_width`"):
        Uniform(True)
    with pytest.raises(TypeError, match="one number"):
        Normal(np.ones(3))
    with pytest.raises(TypeError, match="`unit`"):
        Normal(1.0, 3)


@pytest.mark.claims("W-DI-16")
@pytest.mark.parametrize(
    ("low", "high"), [(0.1, 1), (-1, -0.1), (0, 0), (1, -1), (-INF, 1), (-1, INF), (math.nan, 1)]
)
def test_truncation_ends_must_enclose_zero(low, high):
    with pytest.raises(ValueError, match=r"`low`|`high`"):
        TruncatedNormal(1, low, high)
    TruncatedNormal(1, 0, 1), TruncatedNormal(1, -1, 0)


@pytest.mark.claims("W-DI-23", "W-PR-15")
def test_check_strength():
    assert [check_strength(s) for s in (0, 1, np.float32(0.5))] == [0.0, 1.0, 0.5]
    assert isinstance(check_strength(2), float)
    for bad in (-1e-12, math.nan, INF, -INF):
        with pytest.raises(ValueError, match="`strength`"):
            check_strength(bad)
        for distribution in EACH:
            for method in (distribution.mean, distribution.stddev, distribution.offset_range):
                with pytest.raises(ValueError, match="`strength`"):
                    method(bad)
    with pytest.raises(TypeError, match="`strength` must be known while tracing"):
        jax.jit(EACH[0].sample)(jax.random.PRNGKey(0), 0.5)
    with pytest.raises(ValueError, match=r"std \* strength"):
        Normal(1e300).stddev(1e300)


# --- moments and ranges ---


@pytest.mark.claims("W-DI-5", "W-DI-6", "W-DI-10", "W-DI-12")
def test_moments_of_normal_and_uniform():
    assert (Normal(0.3).mean(2), Normal(0.3).stddev(2)) == (0, 0.6)
    assert (Uniform(0.3).mean(2), Uniform(0.3).stddev(2)) == (0, pytest.approx(0.6 / 3**0.5))


INTERVALS = [
    (1, 0, 1e-3), (1, 0, 1e-6), (1, 0, 1e-12), (1, -1e-6, 1e-6), (1, -1, 1), (1, -1, 1 + 1e-9),
    (1, -1e-6, 5), (0.05, -0.1, 0.02), (1, -30, 60), (1, -1e6, 1e6), (1, 0, 1e5), (2, -3, 0),
    (1, -40, 0.1), (1e-3, 0, 1), (1, -5, 4.999999),
]  # fmt: skip


@pytest.mark.claims("W-DI-5", "W-DI-6", "W-DI-14", "W-DI-18")
@pytest.mark.parametrize(("std", "low", "high"), INTERVALS)
def test_moments_of_truncated_normal_against_50_digits(std, low, high):
    mean, stddev = truncated_moments(std, low, high)
    distribution = TruncatedNormal(std, low, high)
    assert abs(distribution.mean() - mean) <= 1e-13 * abs(mean)
    assert abs(distribution.stddev() - stddev) <= 1e-13 * stddev


@pytest.mark.claims("W-DI-15", "W-DI-18")
def test_strength_scales_the_gaussian_and_not_its_ends():
    distribution = TruncatedNormal(0.3, -0.2, 0.5)
    assert distribution.offset_range(10) == (-0.2, 0.5)
    assert distribution.mean(2) == TruncatedNormal(0.6, -0.2, 0.5).mean() != 0
    assert distribution.stddev(2) == TruncatedNormal(0.6, -0.2, 0.5).stddev()
    assert distribution.mean(1e6) == pytest.approx(0.15)  # flat on the interval
    assert distribution.stddev(1e300) == pytest.approx(0.7 / 12**0.5)
    assert distribution.stddev(1e-200) == pytest.approx(0.3e-200)


@pytest.mark.claims("W-DI-7", "W-DI-12", "W-Q37", "W-Q38")
def test_offset_ranges():
    assert Normal(0.3).offset_range() == (-INF, INF)
    assert Uniform(0.3).offset_range(2) == (-0.6, 0.6)
    assert TruncatedNormal(0.3, -0.2, 0.5).offset_range() == (-0.2, 0.5)
    for distribution in EACH:
        assert distribution.offset_range(0) == (0, 0)


def test_attainable_range_of_a_normal_holds_in_both_precisions():
    single, double = (2**0.5 * special.erfinv(1 - 2.0**-bits) for bits in (24, 53))
    assert 5.4 < single < double < NORMAL_REACH
    assert attainable_range(Normal(0.5), 2) == (-NORMAL_REACH, NORMAL_REACH)
    assert attainable_range(Uniform(0.5), 2) == (-1, 1)


# --- samples ---

DRAWN = [
    (Normal(0.3), 1.0),
    (Normal(0.3), 2.5),
    (Uniform(0.3), 2.0),
    (TruncatedNormal(0.3, -0.2, 0.5), 1.0),
    (TruncatedNormal(0.3, -0.2, 0.5), 3.0),
    (TruncatedNormal(1.0, 0, 1e-3), 1.0),
    (TruncatedNormal(1e-3, -1, 2), 1.0),
]


def cdf(distribution, strength):
    if isinstance(distribution, Normal):
        return stats.norm(scale=distribution.stddev(strength)).cdf
    if isinstance(distribution, Uniform):
        low, high = distribution.offset_range(strength)
        return stats.uniform(low, high - low).cdf
    std = distribution.std * strength
    normal = stats.norm(scale=std)
    low, high = normal.cdf(distribution.low), normal.cdf(distribution.high)
    return lambda x: (normal.cdf(x) - low) / (high - low)


@pytest.mark.claims("W-DI-4", "W-DI-8", "W-DI-10", "W-DI-12", "W-DI-14", "W-DI-22")
@pytest.mark.parametrize(("distribution", "strength"), DRAWN, ids=str)
def test_samples_follow_the_declared_distribution(distribution, strength):
    drawn = np.asarray(distribution.sample(KEY, strength, (20_000,)))
    assert drawn.shape == (20_000,)
    assert stats.kstest(drawn, cdf(distribution, strength)).pvalue > 1e-3
    error = distribution.stddev(strength) / 20_000**0.5
    assert abs(drawn.mean() - distribution.mean(strength)) < 4 * error
    assert drawn.std() == pytest.approx(distribution.stddev(strength), rel=0.03)
    low, high = distribution.offset_range(strength)
    assert np.all(drawn.astype(np.float64) >= low) and np.all(drawn.astype(np.float64) <= high)


@pytest.mark.claims("W-DI-22")
def test_rounding_never_leaves_the_interval():
    # 0.1 and 0.7 are no float32 numbers; the nearest ones lie outside
    for distribution in (Uniform(0.1), Uniform(0.7), TruncatedNormal(1e5, -0.1, 0.7)):
        low, high = distribution.offset_range()
        drawn = np.asarray(distribution.sample(KEY, shape=(200_000,), dtype=jnp.float32), float)
        assert low <= drawn.min() < low + 1e-4 and high - 1e-4 < drawn.max() <= high


def test_a_wide_interval_has_no_outliers_at_its_ends():
    drawn = TruncatedNormal(0.01, -1e3, 1e3).sample(KEY, shape=(2_000_000,), dtype=jnp.float32)
    assert float(jnp.abs(drawn).max()) < 0.06


@pytest.mark.claims("W-DI-20", "W-PR-14")
@pytest.mark.parametrize("distribution", [*EACH, Normal(0), Uniform(0), TruncatedNormal(0, -1, 1)])
def test_zero_width_gives_exactly_zero(distribution):
    assert not np.any(distribution.sample(KEY, 0.0, (100,)))
    assert (distribution.mean(0), distribution.stddev(0)) == (0, 0)


@pytest.mark.claims("W-DI-8", "W-Q39")
@pytest.mark.parametrize("distribution", EACH, ids=str)
def test_sample_under_jit_and_vmap_and_in_a_dtype(distribution):
    expected = distribution.sample(KEY, 2.0, (3,))
    assert expected.dtype == jnp.result_type(float)
    compiled = jax.jit(lambda k: distribution.sample(k, 2.0, (3,)))(KEY)
    np.testing.assert_allclose(compiled, expected, rtol=1e-6)
    keys = jax.random.split(KEY, 4)
    rows = jax.vmap(lambda k: distribution.sample(k, shape=(2,)))(keys)
    loop = np.stack([distribution.sample(k, shape=(2,)) for k in keys])
    np.testing.assert_allclose(rows, loop, rtol=1e-6)
    with enable_x64():
        assert distribution.sample(KEY).dtype == jnp.float64
        named = distribution.sample(KEY, 2.0, (3,), jnp.float32)
    np.testing.assert_allclose(named, expected, rtol=1e-6)


# --- supports ---


@pytest.mark.claims("W-DI-9", "W-DI-11", "W-DI-13", "W-DI-17", "W-DI-21")
@pytest.mark.parametrize(
    ("distribution", "strength", "support", "allowed"),
    [
        (Normal(0.1), 1, (-INF, INF), True),
        (Normal(0.1), 1, (0, INF), False),
        (Normal(0.1), 1, (-1e300, 1e300), False),
        (Normal(0.1), 0, (0.5, 0.5), True),
        (Uniform(0.5), 1, (0, 1), True),
        (Uniform(0.5000001), 1, (0, 2), False),
        (Uniform(0.5000001), 1, (-1, 1), False),
        (Uniform(0.25), 2, (0, 1), True),
        (Uniform(0.25), 2.01, (0, 1), False),
        (TruncatedNormal(9, -0.5, 0.5), 1, (0, 1), True),
        (TruncatedNormal(9, -0.5, 0.5), 100, (0, 1), True),
        (TruncatedNormal(9, -0.5, 0.51), 1, (0, 1), False),
        (TruncatedNormal(9, -0.51, 0.5), 1, (0, INF), False),
        (TruncatedNormal(9, -9, 9), 0, (0.5, 0.5), True),
    ],
)
def test_the_effective_range_is_checked_against_the_support(
    distribution, strength, support, allowed
):
    if allowed:
        distribution.check_support("J", 0.5, support, strength)
        return
    with pytest.raises(ValueError, match=r"`J` must stay in .* reaches"):
        distribution.check_support("J", 0.5, support, strength)


# --- coloured noise ---


def test_ornstein_uhlenbeck_fields():
    assert OrnsteinUhlenbeck(2, 0.4).stddev() == pytest.approx(0.2)
    for bad in ((0, 1), (-1, 1), (1, -1), (math.nan, 1), (1, INF)):
        with pytest.raises(ValueError, match=r"`theta`|`sigma`"):
            OrnsteinUhlenbeck(*bad)


@pytest.mark.parametrize("dt", [0.01, 0.5, 3.0])
def test_ornstein_uhlenbeck_is_exact_for_every_interval(dt):
    noise, n = OrnsteinUhlenbeck(0.8, 0.3), 40_000
    x = noise.start(jax.random.key(0), (n,), jnp.float32)
    values = [x]
    for k in range(1, 4):
        x = noise.advance(jax.random.key(k), x, (n,), dt)
        values.append(x)
    values = np.stack(values)
    for x in values:
        assert stats.kstest(x, stats.norm(scale=noise.stddev()).cdf).pvalue > 1e-3
    for i, j in itertools.combinations(range(4), 2):
        measured = np.corrcoef(values[i], values[j])[0, 1]
        assert measured == pytest.approx(math.exp(-0.8 * dt * (j - i)), abs=0.02)


@pytest.mark.claims("W-DI-13", "W-DI-17")
@pytest.mark.parametrize(
    ("nominal", "half_width", "strength", "support"),
    [
        (-0.3, 0.1, 3, (-1, 0)),
        (0.3, 0.1, 1, (0.2, 1)),
        (1.2, 0.3, 1, (0.9, 1.5)),
        (0, 1, 1, (-1, 1)),
    ],
)
def test_a_range_may_end_where_its_support_does(nominal, half_width, strength, support):
    """In float64 -0.3 + 3 * 0.1 is above 0 and 0.3 - 0.1 below 0.2."""
    Uniform(half_width).check_support("p", nominal, support, strength)
    for factor in (1 + 1e-12, 2):
        with pytest.raises(ValueError, match="`p` must stay in"):
            Uniform(half_width).check_support("p", nominal, support, strength * factor)

"""Drift between episodes: one device that changes slowly, the same marginal distribution."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import qenvs
from observed import KEY, qubit
from qenvs import keys
from qenvs.distributions import Distribution, Normal, TruncatedNormal, Uniform
from qenvs.wrappers import (
    AutoReset,
    ControlErrors,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    ObservationModel,
    ParameterRandomization,
)
from qenvs.wrappers._drift import drifting_normal, offset_of_normal
from qenvs.wrappers.core import begin
from systems import rabi_fidelities

LAMBDA = "transfer/LambdaSTIRAP-v0"
ONE, TWO = "delta_one_photon", "delta_two_photon"


@functools.cache
def base():
    return qenvs.make(LAMBDA, horizon=2)


def drifting(distribution, memory=50.0, env=None):
    return ParameterRandomization(env or base(), {ONE: distribution}, drift=memory)


def offsets(env, indices, run_keys):
    """Offsets by name in the given episodes of the given runs, shape (runs, episodes)."""

    def drawn(key, index):
        state, _ = begin(env, key, index)
        found = {}
        while hasattr(state, "data"):
            found |= {name: value for name, value in state.data.items() if "offset/" in name}
            state = state.inner
        return found

    every = jax.vmap(jax.vmap(drawn, (None, 0)), (0, None))
    return jax.tree.map(np.asarray, jax.jit(every)(run_keys, jnp.asarray(indices)))


# --- the process ---


INDICES = np.array([0, 1, 2, 3, 7, 30, 31, 1000, 1_000_000])


@functools.cache
def sampled(memory, runs=20_000):
    """z of the episodes above in many runs, shape (runs, episodes)."""
    sample = jax.vmap(lambda key: jax.vmap(lambda i: drifting_normal(key, i, memory))(INDICES))
    return jax.jit(sample)(jax.random.split(KEY, runs))


@pytest.mark.parametrize("memory", [0.3, 20.0])
def test_the_covariance_is_that_of_an_ornstein_uhlenbeck_process(memory):
    z = np.asarray(sampled(memory), float)
    runs = len(z)
    exact = np.exp(-abs(INDICES - INDICES[:, None]) / memory)
    assert np.abs(z.mean(axis=0)).max() < 4.5 / runs**0.5
    assert np.abs(np.cov(z.T) - exact).max() < 4.5 * (2 / runs) ** 0.5
    assert all(stats.kstest(column, "norm").pvalue > 1e-4 for column in z.T)
    # fresh numbers: what the step before does not explain is white, of variance 1 - a^2
    a = np.exp(-1 / memory)
    new = (z[:, 1:4] - a * z[:, 0:3]) / np.sqrt(-np.expm1(-2 / memory))
    assert np.abs(np.cov(new.T) - np.eye(3)).max() < 4.5 * (2 / runs) ** 0.5
    assert np.abs(new[:, 1:].T @ z[:, 0] / runs).max() < 4.5 / runs**0.5


def test_a_run_is_one_path_that_any_index_can_be_read_from():
    path = jax.jit(jax.vmap(lambda i: drifting_normal(KEY, i, 100.0)))(jnp.arange(5000))
    steps = np.diff(path)
    assert steps.std() == pytest.approx(np.sqrt(2 * -np.expm1(-1 / 100)), rel=0.05)
    assert abs(np.corrcoef(steps[1:], steps[:-1])[0, 1]) < 0.07
    for i in (0, 1, 2047, 2048, 4999):
        assert drifting_normal(KEY, jnp.int32(i), 100.0) == pytest.approx(float(path[i]), abs=1e-6)


# --- offsets ---


@pytest.mark.parametrize("strength", [1.0, 3.0])
@pytest.mark.parametrize(
    "distribution",
    [Normal(0.05), Uniform(0.3), TruncatedNormal(0.1, -0.05, 0.2), TruncatedNormal(0.1, 0, 4.0)],
    ids=str,
)
def test_every_offset_has_exactly_the_declared_distribution(distribution, strength):
    z = sampled(20.0)[:4000, jnp.array([0, 5])]
    found = np.asarray(offset_of_normal(distribution, strength, z))
    assert found.dtype == np.float32
    direct = np.asarray(distribution.sample(jax.random.key(1), strength, (100_000,)))
    low, high = distribution.offset_range(strength)
    for column in found.T:
        assert stats.ks_2samp(column, direct).pvalue > 1e-3
        assert np.all((column >= low) & (column <= high))
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(np.exp(-30 / 20), abs=0.07)


@pytest.mark.parametrize(
    "distribution", [Uniform(0.3), TruncatedNormal(0.1, -0.05, 0.2), TruncatedNormal(0.1, 0, 9.0)]
)
def test_offsets_rise_with_z_and_never_leave_their_interval(distribution):
    z = np.linspace(-9, 9, 2001, dtype=np.float32)
    found = np.asarray(offset_of_normal(distribution, 1.0, jnp.asarray(z)), float)
    low, high = distribution.offset_range()
    assert np.diff(found[abs(z) < 4]).min() > -1e-4 and np.all(np.isfinite(found))
    assert found.min() >= low and found.max() <= high
    assert found.max() < 0.6  # nowhere near 9, however far out z lies


@pytest.mark.parametrize(
    "distribution", [Normal(0.0), Uniform(0.0), TruncatedNormal(0.0, -1, 1)], ids=str
)
def test_no_width_is_exactly_the_nominal_model(distribution):
    assert not np.any(offset_of_normal(distribution, 1.0, jnp.linspace(-9, 9, 7)))


# --- keys and runs ---


def test_off_is_bit_identical_and_a_bare_reset_knows_no_run():
    off, on = (drifting(Normal(0.05), memory) for memory in (None, 50.0))
    plain = ParameterRandomization(base(), {ONE: Normal(0.05)})
    assert plain.drift is None and on.drift == 50.0
    key = keys.episode_key(KEY, 3)
    expected = plain.reset(key)[0].data
    assert off.reset(key)[0].data == on.reset(key)[0].data == expected
    assert begin(off, KEY, 3)[0].data == expected
    assert begin(on, KEY, 3)[0].data != expected
    opening = begin(base(), KEY, 3)[1].observation
    assert np.array_equal(opening, base().reset(key)[1].observation)


def test_auto_reset_walks_along_the_path_and_the_drifted_device_moves():
    env = ParameterRandomization(qubit(), {"detuning": Normal(1.0)}, drift=5.0)
    auto = AutoReset(ControlErrors(env))

    def advance(state, _):
        detuning = state.inner.inner.data["value/detuning"]
        state, timestep = auto.step(state, jnp.full(1, 1.7))
        return state, (detuning, timestep.reward)

    state, _ = jax.jit(auto.reset)(KEY)
    _, (detunings, rewards) = jax.jit(lambda s: jax.lax.scan(advance, s, None, 20))(state)
    walked = np.asarray(detunings).reshape(5, 4)
    expected = offsets(env, np.arange(5), KEY[None])["offset/detuning"][0]
    np.testing.assert_allclose(walked, np.repeat(expected[:, None], 4, axis=1), atol=1e-6)
    assert np.unique(expected).size == 5 and np.abs(np.diff(expected)).max() < 2
    for detuning, gains in zip(expected, np.asarray(rewards).reshape(5, 4), strict=True):
        exact = rabi_fidelities(np.full(4, 1.7), 0.5, float(detuning))
        np.testing.assert_allclose(np.cumsum(gains), exact[1:], atol=3e-6)


@pytest.fixture(scope="module")
def alone():
    return offsets(drifting(Normal(0.05)), np.arange(6), KEY[None])[f"offset/{ONE}"]


@pytest.mark.claims("W-PR-26", "W-PR-27", "W-WR-12")
def test_RN_4_another_parameter_inside_and_wrappers_outside_move_nothing(alone):
    still = ParameterRandomization(base(), {TWO: Normal(0.01)})
    env = ControlErrors(drifting(Normal(0.05), env=still), Normal(0.1))
    found = offsets(ObservationModel(env, "expectations"), np.arange(6), KEY[None])
    np.testing.assert_allclose(found[f"offset/{ONE}"], alone, rtol=1e-6)
    episodes = jax.vmap(lambda i: keys.episode_key(KEY, i))(jnp.arange(6))
    undrifted = jax.vmap(lambda key: still.reset(key)[0].data[f"offset/{TWO}"])(episodes)
    np.testing.assert_allclose(found[f"offset/{TWO}"][0], undrifted, rtol=1e-6)


@pytest.mark.claims("W-PR-26", "W-PR-27", "W-WR-12")
def test_RN_4_another_drifting_parameter_moves_nothing(alone):
    both = ParameterRandomization(base(), {TWO: Normal(0.01), ONE: Normal(0.1)}, drift=50.0)
    found = offsets(both, np.arange(6), jax.random.split(KEY, 4096).at[0].set(KEY))
    np.testing.assert_allclose(found[f"offset/{ONE}"][:1], 2 * alone, rtol=1e-6)
    one, two = (found[f"offset/{name}"][:, 4] for name in (ONE, TWO))
    assert abs(np.corrcoef(one, two)[0, 1]) < 5 / 64
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 5 / 64  # nor do runs share their path


@pytest.mark.parametrize("num_envs", [None, 3])
def test_the_gymnasium_adapters_walk_along_the_path(num_envs):
    env = ParameterRandomization(qubit(), {"detuning": Normal(1.0)}, oracle=True, drift=5.0)
    start = jax.random.PRNGKey(7)
    expected = offsets(env, np.arange(6), start[None])["offset/detuning"][0] / 0.05
    if num_envs is None:
        single = GymnasiumEnv(env, seed=7)
        seen = [single.reset()[0][-1] for _ in range(6)]
    else:  # episode j of sub-environment b has the index 3 j + b
        envs = GymnasiumVectorEnv(env, num_envs, seed=7)
        seen = np.concatenate([envs.reset()[0][:, -1] for _ in range(2)])
    np.testing.assert_allclose(seen, expected, rtol=1e-5)


# --- what is refused ---


class Coin(Distribution):
    """Heads or tails."""

    unit = ""

    def mean(self, strength=1.0):
        return 0.0

    def stddev(self, strength=1.0):
        return strength

    def offset_range(self, strength=1.0):
        return -strength, strength

    def sample(self, key, strength=1.0, shape=(), dtype=None):
        return strength * jax.random.rademacher(key, shape, dtype)


@pytest.mark.parametrize("memory", [0, -1.0, np.nan, np.inf, 2e6])
def test_a_memory_out_of_range_is_refused(memory):
    with pytest.raises(ValueError, match="`drift` must be"):
        drifting(Normal(0.05), memory)


def test_kinds_are_refused():
    with pytest.raises(TypeError, match="real number"):
        drifting(Normal(0.05), "slow")
    with pytest.raises(TypeError, match=f"`{ONE}` can only drift as a Normal"):
        drifting(Coin())
    assert ParameterRandomization(base(), {ONE: Coin()}).drift is None

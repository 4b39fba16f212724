"""Finite shots: binomial draws by inversion and exact multinomial counts."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import qenvs
from observed import QUBIT, SPINS, player, pulse, seen, spin_states, spins
from qenvs import keys
from qenvs.wrappers._binomial import binomial, quantile
from qenvs.wrappers.observation import MAX_SHOTS, outcome_counts

KEY = jax.random.PRNGKey(11)


def strata(n, depth=32):
    """Numbers in (0, 1), n in each octave 2^-k .. 2^-k+1, and the probability of each."""
    steps = (np.arange(n) + 0.5) / n
    v = np.concatenate([2.0**-k * (1 + steps) for k in range(1, depth)])
    weights = np.repeat([2.0**-k / n for k in range(1, depth)], n)
    return v.astype(np.float32), weights


@functools.cache
def compiled_inversion(limit):
    return jax.jit(jax.vmap(lambda v, n, q: quantile(v, n, q, limit), (0, None, None)))


def inverted(v, n, q):
    return np.asarray(compiled_inversion(n)(v, jnp.float32(n), jnp.float32(q))).astype(int)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 100, 1000])
@pytest.mark.parametrize("q", [1e-9, 1e-6, 1e-3, 0.03, 0.2, 0.4999, 0.5])
def test_inversion_gives_the_exact_distribution(n, q):
    """The probabilities of all outcomes, read off the inversion itself, not sampled."""
    v, weights = strata(2**14)
    counts = inverted(v, n, q)
    assert counts.min() >= 0 and counts.max() <= n
    found = np.bincount(counts, weights=weights, minlength=n + 1)
    exact = stats.binom.pmf(np.arange(n + 1), n, float(np.float32(q)))
    grain = 2.0**-14  # of the numbers v in the upper octave
    assert np.abs(found - exact).max() < 2 * grain
    k = np.arange(n + 1)
    mean, variance = found @ k, found @ (k - found @ k) ** 2
    sigma = np.sqrt(n * q * (1 - q))
    assert abs(mean - n * q) < 2e-4 * sigma
    if n * q > 1e-6:
        assert variance == pytest.approx(sigma**2, rel=2e-3)


@pytest.mark.parametrize("n", [2**20, 2**24])
@pytest.mark.parametrize("q", [3e-8, 0.01, 0.3, 0.5])
def test_millions_of_shots_are_as_exact(n, q):
    """Outcomes in the order of the inversion: the place of each v is that of the exact masses."""
    q = float(np.float32(q))
    sigma, centre = np.sqrt(n * q * (1 - q)), int(n * q)
    v = np.random.default_rng(0).uniform(1e-4, 1, 3000).astype(np.float32)
    counts = inverted(v, n, q)
    steps = np.arange(1, int(7 * sigma) + 30)
    order = np.concatenate([[centre], np.column_stack([centre + steps, centre - steps]).ravel()])
    left = stats.binom.sf(-1, n, q) - np.cumsum(stats.binom.pmf(order, n, q))
    place = np.searchsorted(-left, -v, side="right")
    found = np.where(counts > centre, 2 * (counts - centre) - 1, 2 * (centre - counts))
    assert np.abs(found - place).max() <= max(0, 0.01 * sigma)
    assert np.all(np.abs(counts - order[place])[found == place] == 0)


# --- counts ---


@pytest.mark.claims("W-OC-1", "W-OC-2", "W-OC-6", "W-OC-8")
@pytest.mark.parametrize("shots", [1, 7, 100, np.int64(1000), MAX_SHOTS])
def test_counts_are_whole_numbers_that_sum_to_the_shots(shots):
    probs = jnp.array([0.2, 0.0, 0.5, 0.3], jnp.float32)
    for number in (shots, jnp.asarray(shots)):
        counts = outcome_counts(KEY, probs, number)
        assert counts.shape == (4,) and counts.dtype == jnp.float32
        assert np.array_equal(counts, np.round(counts)) and np.all(counts >= 0)
        assert np.asarray(counts, np.float64).sum() == shots and counts[1] == 0
    assert outcome_counts(KEY, probs.astype(jnp.float16), 9).dtype == jnp.float16


@pytest.mark.claims("W-OC-5", "W-OC-6", "W-OC-7", "W-SH-6")
@pytest.mark.parametrize(
    ("probs", "expected"),
    [
        ([1.0], [10_000]),
        ([1.0, 0.0], [10_000, 0]),
        ([0.0, 1.0], [0, 10_000]),
        ([0.0, 0.0, 1.0, 0.0, 0.0], [0, 0, 10_000, 0, 0]),
    ],
)
def test_OB_1_certain_outcomes_take_every_shot(probs, expected):
    assert outcome_counts(KEY, jnp.array(probs), 10_000).tolist() == expected


@pytest.mark.claims("W-OC-5", "W-OC-7", "W-Q36")
@pytest.mark.parametrize(
    "probs",
    [[1.0000001, -5e-17], [-1e-7, 1.0], [0.5, 0.5000002], [0.3, 0.7, -1e-8], [1e-38, 1.0], [1, 0]],
)
def test_OB_1_rounding_errors_in_the_probabilities_do_no_harm(probs):
    counts = np.asarray(outcome_counts(KEY, jnp.array(probs), 10_000))
    assert np.all(np.isfinite(counts)) and counts.sum() == 10_000
    assert np.all(counts[np.array(probs) <= 0] == 0)


@pytest.mark.claims("W-OC-3", "W-OC-4")
def test_every_outcome_draws_from_its_own_key():
    """Moving the last two probabilities leaves the first draw, a binomial of (n, p_0), alone."""
    episode_keys = jax.random.split(KEY, 3000)
    first, second = (
        jax.vmap(lambda k, p=p: outcome_counts(k, jnp.array(p), 50))(episode_keys)
        for p in ([0.3, 0.3, 0.4], [0.3, 0.6, 0.1])
    )
    assert np.array_equal(first[:, 0], second[:, 0])
    assert np.any(first[:, 1] != second[:, 1])
    conditional = stats.binom(50 - np.asarray(first[:, 0]), 3 / 7)
    z = (np.asarray(first[:, 1]) - conditional.mean()) / conditional.std()
    assert abs(z.mean()) < 0.08 and z.std() == pytest.approx(1, abs=0.05)
    assert abs(np.corrcoef(first[:, 0], z)[0, 1]) < 0.08
    for position, own_key in enumerate(jax.random.split(KEY, 4)[:3]):
        drawn = binomial(own_key, jnp.float32(50), jnp.float32(0.3), jnp.float32(0.7), 50)
        probabilities = np.eye(4)[position] * 0.3 + np.eye(4)[3] * 0.7
        counts = outcome_counts(KEY, jnp.asarray(probabilities, jnp.float32), 50)
        assert (counts[position], counts[3]) == (drawn, 50 - drawn)


@pytest.mark.claims("W-SH-2", "W-OC-3")
@pytest.mark.parametrize("shots", [3, 40])
def test_counts_follow_the_multinomial_distribution(shots):
    probs = np.array([0.1, 0.25, 0.05, 0.6])
    episode_keys = jax.random.split(KEY, 20_000)
    counts = np.asarray(
        jax.jit(jax.vmap(lambda k: outcome_counts(k, jnp.asarray(probs, jnp.float32), shots)))(
            episode_keys
        )
    ).astype(int)
    exact = stats.multinomial(shots, probs)
    if shots == 3:
        outcomes, found = np.unique(counts, axis=0, return_counts=True)
        expected = len(episode_keys) * exact.pmf(outcomes)
        common = expected > 5
        statistic = np.sum((found[common] - expected[common]) ** 2 / expected[common])
        assert stats.chi2(common.sum() - 1).sf(statistic) > 1e-3
    np.testing.assert_allclose(np.cov(counts.T), exact.cov(), atol=0.05 * shots * 0.25)
    error = np.sqrt(np.diag(exact.cov()) / len(episode_keys))
    assert np.all(np.abs(counts.mean(axis=0) - shots * probs) < 4 * error)


@pytest.mark.claims("W-OA-22")
@pytest.mark.parametrize("p", [0.5, 0.1])
def test_OB_1_the_variance_at_the_most_shots(p):
    episode_keys = jax.random.split(KEY, 2000)
    draw = jax.jit(jax.vmap(lambda k: outcome_counts(k, jnp.array([p, 1 - p]), MAX_SHOTS)[0]))
    counts = np.asarray(draw(episode_keys), np.float64)
    exact = stats.binom(MAX_SHOTS, float(np.float32(p)))
    assert counts.var() == pytest.approx(exact.var(), rel=0.13)
    assert abs(counts.mean() - exact.mean()) < 4 * exact.std() / 2000**0.5


@pytest.mark.claims("W-OA-2", "W-OA-3")
@pytest.mark.parametrize("shots", [0, -1, 2.5, True, MAX_SHOTS + 1])
def test_a_number_of_shots_out_of_range_is_refused(shots):
    with pytest.raises(ValueError, match="`shots`"):
        outcome_counts(KEY, jnp.array([0.5, 0.5]), shots)


@pytest.mark.claims("W-OC-8")
def test_shots_may_be_traced():
    counts = jax.jit(lambda n: outcome_counts(KEY, jnp.array([0.4, 0.6]), n))
    for n in (1, 10, 12_345):
        traced, known = counts(n), outcome_counts(KEY, jnp.array([0.4, 0.6]), n)
        assert traced.sum() == n and np.array_equal(traced, known)
    assert counts._cache_size() == 1


# --- estimates of an environment ---


RHO = spin_states(pulse(spins()))[-1]


def estimates(env, n, key=KEY):
    """What n episode keys see of RHO, shape (n, K)."""
    measure = jax.jit(jax.vmap(lambda k: env.measure(RHO, k, 1)))
    return np.asarray(measure(jax.random.split(key, n)))


def spectral(operator):
    """Distinct eigenvalues of an observable and their probabilities in RHO, by NumPy."""
    levels, vectors = np.linalg.eigh(operator)
    weights = np.einsum("im,ij,jm->m", vectors.conj(), RHO, vectors).real
    values = np.unique(levels.round(9))
    return values, np.array([weights[abs(levels - value) < 1e-6].sum() for value in values])


@pytest.mark.claims("W-SH-1", "W-SH-2", "W-SH-3")
def test_estimates_average_the_outcomes_of_exact_multinomials():
    """Chi-square over every attainable mean of 3 shots, for observables of 2, 3 and 4 outcomes."""
    shots, n = 3, 20_000
    found = estimates(seen(spins(), "expectations", shots), n)
    for j, operator in enumerate(SPINS.values()):
        values, probabilities = spectral(operator)
        rolls = list(itertools.product(range(len(values)), repeat=shots))
        means = np.array([values[list(roll)].mean() for roll in rolls])
        chances = np.array([probabilities[list(roll)].prod() for roll in rolls])
        attainable = np.unique(means.round(6))
        nearest = np.abs(found[:, j, None] - attainable).argmin(axis=1)
        np.testing.assert_allclose(found[:, j], attainable[nearest], atol=3e-6)
        expected = n * np.array([chances[abs(means - a) < 1e-5].sum() for a in attainable])
        counts, common = np.bincount(nearest, minlength=len(attainable)), expected > 5
        statistic = np.sum((counts[common] - expected[common]) ** 2 / expected[common])
        assert stats.chi2(common.sum() - 1).sf(statistic) > 1e-3


@pytest.mark.claims("W-SH-4", "W-SH-7")
@pytest.mark.parametrize("shots", [1, 10_000])
def test_OB_5_mean_variance_and_independence_of_the_estimates(shots):
    n = 4096
    found = estimates(seen(spins(), "expectations", shots), n).astype(float)
    for j, operator in enumerate(SPINS.values()):
        mean = np.trace(RHO @ operator).real
        variance = (np.trace(RHO @ operator @ operator).real - mean**2) / shots
        assert abs(found[:, j].mean() - mean) < 4 * (variance / n) ** 0.5
        assert found[:, j].var() == pytest.approx(variance, rel=0.12)
    # "total" and "z1" commute and share outcomes, yet not their shots
    assert np.abs(np.corrcoef(found.T) - np.eye(4)).max() < 0.05


@pytest.mark.claims("W-SH-6")
@pytest.mark.parametrize("shots", [1, 10, 10_000, MAX_SHOTS])
def test_OB_1_an_eigenstate_gives_its_eigenvalue(shots):
    for initial, expected in (("ground", 0.0), ("excited", 1.0)):
        env = qenvs.make(QUBIT, observation="expectations", shots=shots, observables=["p1"])
        lowered = qenvs.make(
            "battery/TwoLevel-v0", observation="expectations", shots=shots, observables=["p1"]
        )
        ket = np.eye(2)[int(expected)]
        assert env.measure(ket, KEY, 0).tolist() == [expected]
        if initial == "ground":
            assert env.reset(KEY)[1].observation.tolist() == [0, 0]
            assert lowered.reset(KEY)[1].observation.tolist() == [0, 0]


@pytest.mark.claims("W-SH-10", "W-SH-11", "W-Q26")
def test_every_observable_and_time_draws_from_its_own_leaf():
    base, actions, shots = spins(), pulse(spins()), 20
    env = seen(base, "expectations", shots)
    timesteps, *_ = player(env)(actions, KEY)
    for t, rho in enumerate(spin_states(actions)):
        for j, probabilities in enumerate(env.outcome_probabilities(jnp.asarray(rho))):
            counts = outcome_counts(keys.measurement_key(KEY, t, j), probabilities, shots)
            values = spectral(list(SPINS.values())[j])[0]
            mean = float(counts @ values) / shots
            assert timesteps.observation[t, j] == pytest.approx(mean, abs=3e-6)
    # j is the position in `observable_names`: another selection, another leaf
    alone = seen(base, "expectations", shots, observables=("xx",))
    first, *_ = player(alone)(actions, KEY)
    moved = seen(base, "expectations", shots, observables=("xx", "any"))
    again, *_ = player(moved)(actions, KEY)
    np.testing.assert_allclose(again.observation[:, 0], first.observation[:, 0], atol=1e-6)
    assert np.any(first.observation[:, 0] != timesteps.observation[:, 2])


@pytest.mark.claims("W-SH-5")
def test_measuring_leaves_the_state_alone():
    actions = pulse(spins())
    _, with_shots, _ = player(seen(spins(), "expectations", 20))(actions, KEY)
    _, other_key, _ = player(seen(spins(), "expectations", 20))(actions, jax.random.PRNGKey(8))
    _, without, _ = player(seen(spins(), "expectations"))(actions, KEY)
    assert np.array_equal(with_shots, other_key)
    np.testing.assert_allclose(with_shots, without, atol=1e-7)

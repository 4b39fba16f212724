"""ReadoutError: outcomes that are reported wrongly."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import qenvs
from observed import KEY, SPINS, player, pulse, qubit, seen, spin_states, spins
from qenvs import keys
from qenvs.wrappers import ObservationModel, ReadoutError
from qenvs.wrappers.observation import outcome_counts

THREE = np.array([[0.9, 0.05, 0.0], [0.1, 0.8, 0.25], [0.0, 0.15, 0.75]])
TWO = np.array([[0.98, 0.07], [0.02, 0.93]])
RHO = spin_states(pulse(spins()))[-1]
LEVELS = {"total": np.array([-2.0, 0.0, 2.0]), "z1": np.array([-1.0, 1.0])}


def misread(confusion, shots=None, observables=None):
    return ObservationModel(
        spins(True), "expectations", shots, observables=observables, readout=ReadoutError(confusion)
    )


def true_probabilities(name):
    levels, vectors = np.linalg.eigh(SPINS[name])
    weights = np.einsum("im,ij,jm->m", vectors.conj(), RHO, vectors).real
    return np.array([weights[abs(levels - level) < 1e-9].sum() for level in LEVELS[name]])


def measured(env, n):
    """What n episode keys see of RHO, shape (n, K)."""
    measure = jax.jit(jax.vmap(lambda key: env.measure(RHO, key, 1)))
    return np.asarray(measure(jax.random.split(KEY, n)))


# --- what is reported ---


def test_reports_follow_the_confusion_matrix():
    env = misread({"total": THREE, "z1": TWO})
    found = dict(zip(env.observable_names, env.outcome_probabilities(RHO), strict=True))
    np.testing.assert_allclose(found["total"], THREE @ true_probabilities("total"), atol=1e-6)
    np.testing.assert_allclose(found["z1"], TWO @ true_probabilities("z1"), atol=1e-6)
    for name, probabilities in found.items():
        assert probabilities.sum() == pytest.approx(1, abs=1e-6), name


@pytest.mark.parametrize("shots", [1, 4])
def test_reports_are_exact_in_distribution(shots):
    """Chi-square of the estimates against every outcome read and misread shot by shot."""
    env = misread({"total": THREE}, shots, ["total"])
    found = np.rint(measured(env, 20_000)[:, 0] * shots / 2).astype(int)
    single = THREE @ true_probabilities("total")
    exact = functools.reduce(np.convolve, [single] * shots)
    expected = exact * found.size
    counts = np.bincount(found + shots, minlength=2 * shots + 1)
    common = expected > 5
    statistic = np.sum((counts[common] - expected[common]) ** 2 / expected[common])
    assert stats.chi2(common.sum() - 1).sf(statistic) > 1e-3
    perfect = functools.reduce(np.convolve, [true_probabilities("total")] * shots) * found.size
    assert np.sum((counts - perfect) ** 2 / np.maximum(perfect, 1)) > 100


def test_a_certain_error_turns_every_outcome_over():
    flipped = misread({"z1": [[0, 1], [1, 0]]}, 50, ["z1"])
    state = np.eye(4)[0]
    assert flipped.measure(state, KEY, 0).tolist() == [-1]
    plain = seen(spins(), "expectations", 50, observables=("z1",))
    assert plain.measure(state, KEY, 0).tolist() == [1]


@pytest.mark.parametrize("shots", [None, 10_000])
def test_the_mean_is_biased_by_what_is_reported(shots):
    """For outcomes 0 and 1 it is R_10 + (1 - R_10 - R_01) p; without shots it is seen exactly."""
    env = ObservationModel(
        qubit(),
        "expectations",
        shots,
        observables=["p1"],
        readout=ReadoutError({"p1": TWO}),
        diagnostics=True,
    )
    timesteps, *_ = player(env)(pulse(qubit()), KEY)
    p = timesteps.info["diagnostics"]["p1"]
    np.testing.assert_allclose(np.cumsum(timesteps.reward), p, atol=1e-6)  # exact, as rewards are
    error = 1e-6 if shots is None else 5 * 0.5 / shots**0.5
    np.testing.assert_allclose(
        timesteps.observation[:, 0], 0.02 + (1 - 0.02 - 0.07) * p, atol=error
    )
    assert abs(timesteps.observation[0, 0] - 0.02) <= error  # and not 0


def test_the_mean_of_several_outcomes():
    env = misread({"total": THREE}, observables=["total"])
    expected = LEVELS["total"] @ THREE @ true_probabilities("total")
    assert env.measure(RHO, KEY, 1)[0] == pytest.approx(expected, abs=1e-6)
    assert abs(expected - LEVELS["total"] @ true_probabilities("total")) > 0.02


# --- keys ---


@pytest.mark.claims("W-SH-10")
def test_no_other_observable_moves():
    names = ("xx", "total", "z1")
    expected = measured(seen(spins(True), "expectations", 12, observables=names), 60)
    for confusion in ({"total": THREE}, {"total": np.roll(THREE, 1, axis=0), "z1": TWO}):
        found = measured(misread(confusion, 12, names), 60)
        for j, name in enumerate(names):
            assert np.array_equal(found[:, j], expected[:, j]) == (name not in confusion)
    leaf = keys.measurement_key(KEY, 1, 0)
    env = misread({"total": THREE}, 12, ["total"])
    counts = outcome_counts(leaf, env.outcome_probabilities(RHO)[0], 12)
    mean = float(counts @ LEVELS["total"]) / 12
    assert env.measure(RHO, KEY, 1)[0] == pytest.approx(mean, abs=1e-6)


@pytest.mark.claims("W-SH-6")
@pytest.mark.parametrize("shots", [None, 12])
def test_no_error_and_the_identity_are_the_same_bit_for_bit(shots):
    names = ("any", "total")
    expected = measured(seen(spins(True), "expectations", shots, observables=names), 20)
    for confusion in ({}, {"any": np.eye(4), "total": np.eye(3, dtype=int)}):
        assert np.array_equal(measured(misread(confusion, shots, names), 20), expected)


# --- what is refused ---


BAD = {
    "one row": ([0.5, 0.5], ValueError, r"'p1' must be square, got shape \(2,\)"),
    "not square": (np.full((2, 3), 0.5), ValueError, r"square, got shape \(2, 3\)"),
    "ragged": ([[1.0, 0.0], [0.0]], ValueError, "'p1' must be square"),
    "negative": ([[1.1, 0.0], [-0.1, 1.0]], ValueError, r"'p1' must have entries in \[0, 1\]"),
    "rows sum to 1": ([[0.9, 0.1], [0.3, 0.7]], ValueError, "columns that sum to 1"),
    "nan": ([[np.nan, 0.0], [0.0, 1.0]], ValueError, r"entries in \[0, 1\]"),
    "text": ([["a", "b"], ["c", "d"]], TypeError, "'p1' must hold real numbers"),
    "complex": (np.eye(2) * 1j, TypeError, "'p1' must hold real numbers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_matrices_are_refused(case):
    matrix, error, message = BAD[case]
    with pytest.raises(error, match=message):
        ReadoutError({"p1": matrix})


def test_readouts_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="`confusion` must map names"):
        ReadoutError([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match=r"'total' must have shape \(3, 3\), one row and column"):
        misread({"total": TWO})
    with pytest.raises(ValueError, match="the readout names 'totl'; did you mean 'total'"):
        misread({"totl": THREE})
    with pytest.raises(ValueError, match="the readout names 'z1'"):
        misread({"z1": TWO}, observables=["total"])
    for mode in ("state", "time"):
        with pytest.raises(ValueError, match="`readout` goes with"):
            ObservationModel(spins(), mode, readout=ReadoutError({}))


def test_columns_are_normalised_and_matrices_kept_safe():
    given = np.array([[0.9, 0.2], [0.1, 0.8000005]])
    readout = ReadoutError({"p1": given})
    np.testing.assert_allclose(readout.confusion["p1"].sum(axis=0), 1, rtol=1e-15)
    given[:] = 0
    assert readout.confusion["p1"][0, 0] == 0.9
    with pytest.raises(ValueError, match="read-only"):
        readout.confusion["p1"][0, 0] = 0.5


@pytest.mark.slow
def test_correlators_are_misread_too():
    env = qenvs.make("battery/Dicke-v0", n_cells=2, horizon=2)
    readout = ReadoutError({"Jz2": [[0.9, 0.2], [0.1, 0.8]]})
    seen = ObservationModel(env, "correlations", readout=readout)
    plain = ObservationModel(env, "correlations")
    j = seen.observable_names.index("Jz2")
    left, right = (model.reset(KEY)[1].observation for model in (seen, plain))
    assert right[j] == pytest.approx(1) and left[j] == pytest.approx(0.8)
    assert jnp.array_equal(jnp.delete(left, j), jnp.delete(right, j))

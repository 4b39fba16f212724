"""Evaluation over many episodes against closed forms, and its statistics against counting."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import qenvs
from qenvs import controllers, keys, pulses, robust
from qenvs.controllers.policy import MLP
from qenvs.distributions import Normal, Uniform
from qenvs.envs import Environment, TimeStep
from qenvs.envs.base import ControlEnvironment
from qenvs.envs.state_transfer import StateTransfer
from qenvs.robust import statistics
from qenvs.wrappers import ControlErrors, ObservationModel, ParameterRandomization

TASK = "qubit/StateTransfer-v0"
BARE = qenvs.make(TASK)
ENV = ParameterRandomization(BARE, {"detuning": Normal(0.3)})
PI = np.full((20, 1), math.pi / 2, np.float32)
KEY = jax.random.PRNGKey(7)


def rabi(detuning, amplitude=math.pi / 2, duration=2.0):
    """Fidelity of a constant pulse on a detuned qubit."""
    omega = np.hypot(amplitude, detuning)
    return (amplitude / omega * np.sin(omega * duration / 2)) ** 2


def detunings(n, env=ENV, key=KEY):
    numbers = jnp.arange(n)
    states, _ = jax.vmap(lambda i: env.reset(keys.episode_key(key, i)))(numbers)
    return np.asarray(states.data["value/detuning"], float)


def evaluate(policy, n=300, env=ENV, key=KEY, **kwargs):
    return robust.evaluate(env, policy, key, n, **kwargs)


# --- statistics ---


@pytest.mark.parametrize(("n", "tail"), [(1, 1), (10, 1), (11, 2), (25, 3), (1000, 100)])
def test_statistics_are_those_of_the_sorted_values(n, tail):
    values = np.random.default_rng(n).permutation(np.arange(n, dtype=np.float32) ** 2)
    found = robust.Statistics(values)
    ordered = np.sort(values).astype(float)
    assert found.mean == pytest.approx(ordered.mean())
    assert found.cvar == pytest.approx(ordered[:tail].mean())
    assert found.minimum == ordered[0]
    assert found.quantiles[0.5] == pytest.approx(np.median(ordered))
    assert list(found.quantiles) == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert list(found.quantiles.values()) == sorted(found.quantiles.values())


def test_the_mean_of_many_float32_values_loses_nothing():
    values = np.full(10_000_019, 0.1, np.float32)
    assert robust.Statistics(values).mean == pytest.approx(float(values[0]), rel=1e-12)


@pytest.mark.parametrize("n", [200, 201])
def test_bootstrap_samples_are_draws_with_replacement(n):
    values = np.random.default_rng(0).normal(size=n)
    found = statistics.resampled(values)
    generator = np.random.default_rng(0)
    drawn = values[[generator.integers(0, n, n) for _ in range(5)]]
    np.testing.assert_allclose(found["mean"][:5], drawn.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found["median"][:5], np.median(drawn, axis=1), rtol=1e-12)
    tail = np.sort(drawn, axis=1)[:, : math.ceil(n / 10)].mean(axis=1)
    np.testing.assert_allclose(found["cvar"][:5], tail, rtol=1e-12)


def test_intervals_are_repeatable_and_refused_where_they_would_be_too_short():
    values = np.random.default_rng(1).normal(size=400)
    first, again = robust.Statistics(values), robust.Statistics(values)
    assert first.intervals == again.intervals
    assert set(first.intervals) == {"mean", "median"}
    for name, center in (("mean", values.mean()), ("median", np.median(values))):
        low, high = first.intervals[name]
        assert low < center < high
        assert high - low == pytest.approx(2 * 1.96 / 20, rel=0.4)
    assert robust.Statistics(values[:199]).intervals == {}
    many = robust.Statistics(np.random.default_rng(2).normal(size=1000))
    assert list(many.intervals) == ["mean", "median", "cvar"]
    assert many.intervals["cvar"][0] < many.cvar < many.intervals["cvar"][1]


def detuned(z):
    """Fidelity of a pi pulse at the detuning 0.05 z."""
    return rabi(0.05 * z)


def miscalibrated(z):
    """Fidelity of a resonant pulse of the area pi (1 + 0.1 z)."""
    return np.cos(0.05 * math.pi * z) ** 2


def truth_of(fidelity):
    """Exact statistics of a fidelity that falls with |z|, z standard normal."""

    def expected(least):
        """Mean over |z| > least."""
        area, _ = integrate.quad(lambda z: fidelity(z) * stats.norm.pdf(z), least, 20)
        return area / stats.norm.sf(least)

    lowest = stats.norm.isf(statistics.TAIL / 2)
    return {
        "mean": expected(0.0),
        "median": fidelity(stats.norm.isf(0.25)),
        "cvar": expected(lowest),
    }


def covered(fidelity, n, trials=400):
    """How often the bootstrap intervals of n episodes hold the truth, for every statistic."""
    truth, generator = truth_of(fidelity), np.random.default_rng(n)
    hits = dict.fromkeys(truth, 0)
    for _ in range(trials):
        drawn = statistics.resampled(fidelity(generator.normal(size=n)))
        for name, values in drawn.items():
            low, high = np.quantile(values, (0.025, 0.975))
            hits[name] += low <= truth[name] <= high
    return {name: count / trials for name, count in hits.items()}


@pytest.mark.slow
@pytest.mark.parametrize("n", [200, 1000])
@pytest.mark.parametrize("fidelity", [detuned, miscalibrated])
def test_intervals_cover_the_truth_as_often_as_they_say(fidelity, n):
    """0.95 to within four standard errors of 400 trials; CVaR is refused where it falls short."""
    for name, share in covered(fidelity, n).items():
        print(fidelity.__name__, n, name, share)
        if n >= statistics.MIN_EPISODES[name]:
            assert 0.906 < share < 0.994
        else:
            assert share < 0.93


# --- episodes ---


def test_episodes_are_those_of_their_keys_and_agree_with_the_closed_form():
    found = evaluate(PI)
    assert found.quantity == "fidelity"
    np.testing.assert_allclose(found.metric.values, rabi(detunings(300)), atol=2e-6)
    np.testing.assert_allclose(found.returns.values, found.metric.values, atol=1e-6)
    assert found.clip_fraction is None


def test_return_and_metric_are_kept_apart():
    env = qenvs.make("battery/TwoLevel-v0", horizon=4, gamma1=0.1, n_th=0.5, initial="thermal")
    found = evaluate(np.full((4, 1), 2.0), n=2, env=env)
    gibbs = 0.5 / (2 * 0.5 + 1)
    assert found.quantity == "energy"
    np.testing.assert_allclose(found.metric.values - found.returns.values, gibbs, atol=1e-6)


def test_the_first_episodes_are_the_same_bits_however_many_follow():
    few, many = evaluate(PI, n=37), evaluate(PI, n=600)
    np.testing.assert_array_equal(few.metric.values, many.metric.values[:37])
    np.testing.assert_array_equal(many.metric.values, evaluate(PI, n=600).metric.values)


def test_the_chunk_size_changes_no_episode():
    whole = evaluate(PI, n=100).metric.values
    for chunk_size in (100, 7):
        found = evaluate(PI, n=100, chunk_size=chunk_size)
        assert found.metric.values.shape == (100,)
        np.testing.assert_allclose(found.metric.values, whole, atol=1e-6)


def test_another_key_means_other_devices():
    other = evaluate(PI, key=jax.random.PRNGKey(8)).metric.values
    assert np.mean(other == evaluate(PI).metric.values) < 0.02
    typed = evaluate(PI, key=jax.random.key(7)).metric.values
    np.testing.assert_allclose(typed, evaluate(PI).metric.values, atol=1e-6)


def test_progress_counts_the_episodes():
    calls = []
    found = evaluate(PI, n=600, progress=lambda done, mean: calls.append((done, mean)))
    assert [done for done, _ in calls] == [256, 512, 600]
    assert calls[-1][1] == pytest.approx(found.metric.mean, abs=1e-6)


def test_the_metric_is_exact_where_the_policy_sees_less():
    seen = ObservationModel(ENV, "expectations", shots=10, observables=["p1"])
    found = evaluate(PI, env=seen)
    np.testing.assert_allclose(found.metric.values, rabi(detunings(300)), atol=2e-6)


def test_the_clip_fraction_is_reported():
    env = ControlErrors(BARE, offset=Uniform(0.2))
    pulse = np.concatenate([np.full((5, 1), 2.0), np.zeros((15, 1))])
    found = evaluate(pulse, env=env)
    clipped = np.asarray(found.clip_fraction)
    assert set(np.round(clipped, 6)) == {0.0, 0.25}
    assert 0.35 < (clipped > 0).mean() < 0.65


class Countdown(Environment):
    """Its episodes end by themselves after one step, two, ... and name no quantity."""

    horizon: int = 6
    dt: float = 1.0
    action_bound: float = 1.0
    action_dim: int = 1
    observation_dim: int = 1

    def reset(self, key):
        length = jax.random.randint(key, (), 1, 7)
        return (length, jnp.zeros((), jnp.int32)), self._timestep(length, 0, 0.0)

    def step(self, state, action):
        length, taken = state
        return (length, taken + 1), self._timestep(length, taken + 1, 1.0)

    def _timestep(self, length, taken, reward):
        observation = jnp.zeros(1, jnp.float32)
        return TimeStep(observation, jnp.asarray(reward), jnp.asarray(taken) >= length, {})

    def info(self, state):
        return {}

    def diagnostics(self, state):
        return {}


def test_an_episode_that_ends_early_collects_nothing_more():
    env = Countdown()
    found = evaluate(np.zeros((6, 1)), n=50, env=env)
    drawn = [int(env.reset(keys.episode_key(KEY, i))[0][0]) for i in range(50)]
    assert found.quantity == "return"
    np.testing.assert_array_equal(found.metric.values, drawn)
    np.testing.assert_array_equal(found.returns.values, drawn)


class Purity(StateTransfer):
    """A task of one's own, which gives its quantity no name or, in a subclass, one."""

    def quantity(self, x):
        return jnp.sum(x**4)

    quantity_name = ControlEnvironment.quantity_name


class Named(Purity):
    quantity_name = "inverse participation"


@pytest.mark.parametrize(("kind", "name"), [(Purity, "quantity"), (Named, "inverse participation")])
def test_the_quantity_of_a_task_of_ones_own(kind, name):
    env = kind(BARE.model, 20, 0.1, 2.0, target=np.array([0, 1]))
    found = evaluate(RAMP, n=2, env=env)
    assert found.quantity == name
    state, _ = env.rollout(RAMP)
    np.testing.assert_allclose(found.metric.values, state.value, rtol=1e-6)


# --- kinds of policies ---

RAMP = (np.arange(20, dtype=np.float32) / 20)[:, None]
"""The pulse that a policy u = t/T plays."""


def ramp(observation):
    """u = t/T of one observation or of many."""
    return observation[..., -1:]


def check_ramp(policy):
    found = evaluate(policy)
    np.testing.assert_allclose(found.metric.values, evaluate(RAMP).metric.values, atol=1e-6)


def test_a_pulse_may_be_a_list_an_array_or_a_pulse_object():
    check_ramp(RAMP.tolist())
    check_ramp(jnp.asarray(RAMP))
    check_ramp(pulses.from_actions(BARE, RAMP, "commanded"))


def test_a_function_of_one_observation_is_traced():
    check_ramp(ramp)
    check_ramp(jax.jit(ramp))
    check_ramp(lambda observation, scale=1.0: scale * ramp(observation))


def test_a_batched_function_sees_numpy_batches():
    shapes = set()

    def act(observation):
        assert type(observation) is np.ndarray
        assert observation.flags.writeable
        shapes.add((observation.shape, observation.dtype.name))
        return ramp(observation)

    check_ramp(robust.Batched(act))
    assert shapes == {((256, 5), "float32")}


def test_normalised_actions_are_scaled_by_the_bound():
    check_ramp(robust.Batched(lambda o: ramp(o) / 2.0, normalize_actions=True))


def test_torch_policies():
    torch = pytest.importorskip("torch")
    check_ramp(robust.Batched(ramp, "torch"))

    module = torch.nn.Linear(5, 1)
    with torch.no_grad():
        module.weight[:] = torch.tensor([0.0, 0, 0, 0, 1])
        module.bias[:] = 0
    check_ramp(module)


def test_a_policy_that_draws_gets_keys_of_its_own():
    noisy = evaluate(lambda observation, key: jax.random.normal(key, (1,)))
    again = evaluate(lambda observation, key: jax.random.normal(key, (1,)))
    np.testing.assert_array_equal(noisy.metric.values, again.metric.values)

    def drawn(key):
        """What the policy gives in the first step, and the mean of all of them."""
        recorded = jax.vmap(lambda k: jax.random.fold_in(own(key), k))(jnp.arange(20))
        return jax.vmap(lambda k: jax.random.normal(k, (1,)))(recorded)

    def own(key):
        return jax.random.fold_in(key, keys.name_tag("policy"))

    episode = keys.episode_key(KEY, 3)
    final, _ = ENV.rollout(drawn(episode), episode)
    assert noisy.metric.values[3] == pytest.approx(float(final.base.value), abs=1e-6)
    np.testing.assert_allclose(
        evaluate(lambda observation, key: 0 * key[:1] + ramp(observation)).metric.values,
        evaluate(RAMP).metric.values,
        atol=1e-6,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a training run whose policy plays the ramp."""
    folder = tmp_path_factory.mktemp("run")
    last = jnp.zeros((5, 1)).at[4, 0].set(0.5)
    policy = controllers.Policy(MLP((last,), (jnp.zeros(1),)), jnp.full(1, 2.0))
    controllers.save_policy(folder / "policy.eqx", policy, task=TASK)
    return folder


def test_a_trained_policy_is_read_from_its_folder(trained):
    check_ramp(trained)
    check_ramp(str(trained / "policy.eqx"))
    check_ramp(controllers.load_policy(trained / "policy.eqx")[0])


def test_a_policy_for_another_observation_is_refused(trained):
    seen = ObservationModel(BARE, "time")
    with pytest.raises(ValueError, match=r"5 observed numbers to 1 controls.*has 1 and 1"):
        evaluate(trained, env=seen)


# --- errors ---


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        (np.zeros((19, 1)), ValueError, r"`policy` must have shape \(20, 1\), got \(19, 1\)"),
        (np.full((20, 1), np.nan), ValueError, "`policy` must be finite"),
        (3.0, TypeError, "must be a pulse .* got float"),
        (lambda observation: observation, ValueError, r"must have shape \(1,\), got \(5,\)"),
        (lambda o: jnp.full(1, jnp.nan), ValueError, "300 of 300 .first: episode 0. end in NaN"),
        (lambda a, b, c: a, TypeError, r"\(observation, key\), not \(a, b, c\)"),
        (lambda o: np.asarray(o), jax.errors.TracerArrayConversionError, "Batched"),
        (robust.Batched(lambda o: o[0]), ValueError, r"must have shape \(256, 1\), got \(5,\)"),
        (robust.Batched(lambda o: o[:, :1] / 0), ValueError, "must be finite"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_policy_that_does_not_fit_is_explained(policy, error, message):
    with pytest.raises(error, match=message):
        evaluate(policy)


def test_a_pulse_plays_in_an_environment_without_a_model():
    pulse = pulses.Pulse(np.zeros((6, 1)), Countdown().dt, ("u",), "s", "V", "commanded")
    assert evaluate(pulse, n=3, env=Countdown()).quantity == "return"


def test_a_pulse_with_other_intervals_is_refused():
    pulse = pulses.from_actions(qenvs.make(TASK, dt=0.2), RAMP, "commanded")
    with pytest.raises(ValueError, match=r"intervals of 0\.2, this environment of 0\.1"):
        evaluate(pulse)


@pytest.mark.parametrize(("n", "chunk_size", "name"), [(0, 1, "n"), (1, 0, "chunk_size")])
def test_numbers_of_episodes_are_positive(n, chunk_size, name):
    with pytest.raises(ValueError, match=f"`{name}` must be >= 1, got 0"):
        evaluate(PI, n=n, chunk_size=chunk_size)


def test_batched_says_what_it_takes():
    with pytest.raises(ValueError, match="'numpy', 'torch', got 'jax'"):
        robust.Batched(ramp, "jax")
    with pytest.raises(TypeError, match="`act` must be a function"):
        robust.Batched(PI)

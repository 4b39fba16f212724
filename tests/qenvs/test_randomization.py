"""ParameterRandomization: another device every episode, the same one within an episode."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import qenvs
from brute_force import trajectory
from qenvs import keys
from qenvs.distributions import Normal, TruncatedNormal, Uniform
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import ParameterSpec
from qenvs.models.two_level import SIGMA_X, SIGMA_Z, TwoLevel
from qenvs.testing import check_env
from qenvs.wrappers import ControlErrors, EpisodeStatistics, ObservationModel, Wrapper
from qenvs.wrappers.randomization import ParameterRandomization
from systems import Custom, Tallied, Walk, rabi_fidelities

QUBIT = "qubit/StateTransfer-v0"
LAMBDA = "transfer/LambdaSTIRAP-v0"
KEY = jax.random.PRNGKey(3)
DETUNING = {"detuning": Normal(0.05)}
BOTH = {"delta_two_photon": Normal(0.01), "delta_one_photon": Uniform(0.3)}


def qubit(distributions=None, strength=1.0, oracle=False, **kwargs):
    env = qenvs.make(QUBIT, **kwargs)
    return ParameterRandomization(env, distributions or DETUNING, strength, oracle)


def draws(env, n, key=KEY):
    """`state.data` of n episodes, keys `episode_key(key, i)`."""
    episode_keys = jax.vmap(lambda i: keys.episode_key(key, i))(jnp.arange(n))
    return jax.jit(jax.vmap(lambda k: env.reset(k)[0].data))(episode_keys)


def pulses(env, n):
    shape = (n, env.horizon, env.action_dim)
    scale = np.asarray(env.action_bound)
    return (np.random.default_rng(5).uniform(-1, 1, shape) * scale).astype(np.float32)


# --- what is drawn ---


@pytest.mark.claims("W-PR-1", "W-PR-21")
def test_a_wrapper_with_its_parameters():
    env = ParameterRandomization(qenvs.make(LAMBDA), BOTH)
    assert isinstance(env, Wrapper)
    assert (env.distributions, env.strength, env.oracle) == (BOTH, 1.0, False)
    assert env.parameter_names == ("delta_two_photon", "delta_one_photon")
    named = ParameterRandomization(
        env=qenvs.make(QUBIT), distributions=DETUNING, strength=2, oracle=True
    )
    assert (named.strength, named.oracle) == (2.0, True)


@pytest.mark.claims("W-PR-3", "W-PR-4", "W-PR-7", "W-Q12")
def test_one_device_per_key_and_per_episode():
    env = qubit(detuning=0.2)
    step = jax.jit(env.step)
    state, timestep = env.reset(KEY)
    first = dict(state.data)
    assert set(first) == {"offset/detuning", "value/detuning"}
    assert first["value/detuning"] == jnp.float32(0.2) + first["offset/detuning"]
    for _ in range(3):
        state, timestep = step(state, jnp.ones(1))
        assert state.data == first
    assert set(timestep.info) == {"fidelity", "energy", "p1"}
    assert env.reset(KEY)[0].data == first
    assert env.reset(jax.random.PRNGKey(4))[0].data != first


@pytest.mark.claims("W-PR-5", "W-PR-6", "W-WR-7", "W-Q17")
def test_the_offset_comes_from_its_own_leaf_and_the_key_goes_on():
    env = qubit()
    state, _ = env.reset(KEY)
    leaf = keys.parameter_key(KEY, "detuning")
    assert state.data["offset/detuning"] == DETUNING["detuning"].sample(leaf, dtype=jnp.float32)
    outer, _ = Wrapper(env).reset(KEY)
    assert np.array_equal(outer.key, KEY) and np.array_equal(outer.inner.key, KEY)
    erring = ControlErrors(env.unwrapped, Normal(0.1))
    for around in (ParameterRandomization(erring, DETUNING), ObservationModel(erring, "time")):
        assert around.reset(KEY)[0].inner.data == erring.reset(KEY)[0].data
    assert keys.name_tag("detuning") == 0xFDDBF04F


@pytest.mark.claims("W-PR-9", "W-PR-11", "W-PR-13", "W-DI-21")
@pytest.mark.parametrize(
    ("distribution", "strength"),
    [(Normal(0.05), 2.0), (Uniform(0.1), 0.5), (TruncatedNormal(0.1, -0.05, 0.2), 2.0)],
    ids=str,
)
def test_RN_1_draws_match_the_declared_distribution(distribution, strength):
    offsets = np.asarray(
        draws(qubit({"detuning": distribution}, strength), 2000)["offset/detuning"]
    )
    direct = np.asarray(distribution.sample(jax.random.key(1), strength, (20_000,)))
    assert stats.ks_2samp(offsets, direct).pvalue > 1e-3
    low, high = distribution.offset_range(strength)
    assert np.all(offsets >= low) and np.all(offsets <= high)


@pytest.mark.claims("W-PR-11")
def test_no_value_leaves_the_support_and_none_is_clipped():
    env = qenvs.make("transmon/XGate-v0", horizon=1)
    ends = ParameterRandomization(env, {"anharmonicity_ghz": Uniform(0.34)})
    values = np.asarray(draws(ends, 4000)["value/anharmonicity_ghz"])
    assert values.max() <= 0 and np.unique(values).size > 3900
    assert stats.kstest(values, stats.uniform(-0.68, 0.68).cdf).pvalue > 1e-3


@pytest.mark.claims("W-PR-26", "W-PR-27", "W-WR-11", "W-WR-12")
def test_RN_4_no_source_moves_another():
    base = qenvs.make(LAMBDA)
    alone = ParameterRandomization(base, {"delta_one_photon": Uniform(0.3)})
    stacks = [
        ParameterRandomization(base, BOTH),
        ParameterRandomization(base, dict(reversed(BOTH.items())), oracle=True),
        ParameterRandomization(base, {**BOTH, "delta_two_photon": Uniform(3.0)}),
        ParameterRandomization(ControlErrors(base, Normal(0.1)), BOTH),
        ControlErrors(ParameterRandomization(base, BOTH), step_noise=Normal(0.1)),
        ObservationModel(ParameterRandomization(base, BOTH), "expectations", 5),
    ]
    expected = alone.reset(KEY)[0].data["offset/delta_one_photon"]
    for env in stacks:
        state, _ = jax.jit(env.reset)(KEY)
        while "offset/delta_one_photon" not in getattr(state, "data", {}):
            state = state.inner
        assert state.data["offset/delta_one_photon"] == expected
    many = draws(stacks[0], 4096)
    pair = np.corrcoef(many["offset/delta_one_photon"], many["offset/delta_two_photon"])
    assert abs(pair[0, 1]) < 0.05


# --- the episode's dynamics ---


@pytest.mark.claims("W-PR-2", "W-PR-8", "W-SH-8")
def test_the_episode_moves_like_an_environment_with_the_drawn_value():
    env = qubit(strength=10)
    play = jax.jit(lambda actions, key: env.rollout(actions, key))
    for i, actions in enumerate(pulses(env, 5)):
        state, rewards = play(actions, jax.random.PRNGKey(i))
        value = float(state.data["value/detuning"])
        exact = rabi_fidelities(actions, detuning=value)
        np.testing.assert_allclose(rewards, np.diff(exact), atol=2e-6)
        built = qenvs.make(QUBIT, detuning=value)
        np.testing.assert_allclose(built.rollout(actions)[1], rewards, atol=1e-6)


def open_fidelity(actions, detuning, gamma1, gamma_phi):
    lower = np.array([[0, 1], [0, 0]])
    jumps = [np.sqrt(gamma1) * lower, np.sqrt(gamma_phi / 2) * SIGMA_Z]
    hamiltonians = [detuning / 2 * SIGMA_Z + u * SIGMA_X / 2 for u in actions[:, 0]]
    return trajectory(np.diag([1.0, 0]), hamiltonians, jumps, 0.1)[-1][1, 1].real


def lambda_fidelity(actions, one, two):
    """Population of |3> under D |2><2| + d |3><3| + (Op/2)(|1><2| + h.c.) + (Os/2)(...)."""
    pump, stokes = np.zeros((3, 3)), np.zeros((3, 3))
    pump[0, 1] = pump[1, 0] = stokes[1, 2] = stokes[2, 1] = 0.5
    detuned = np.diag([0, one, two])
    hamiltonians = [detuned + p * pump + s * stokes for p, s in actions]
    return trajectory(np.diag([1.0, 0, 0]), hamiltonians, [], 0.2)[-1][2, 2].real


@pytest.mark.parametrize("kind", ["closed qubit", "open qubit", "lambda"])
def test_unbounded_parameters_are_exact_however_far_they_are_drawn(kind):
    """Normal offsets at strength 100: ||G dt|| is known when the wrapper is built, not drawn."""
    if kind == "lambda":
        wide = {"delta_one_photon": Normal(0.05), "delta_two_photon": Normal(0.05)}
        env = ParameterRandomization(qenvs.make(LAMBDA, horizon=10), wide, strength=100)
    else:
        rates = {"gamma1": 0.05, "gamma_phi": 0.02} if kind == "open qubit" else {}
        env = qubit(strength=100, **rates)
    actions, n = pulses(env, 40), 40
    states, _ = jax.jit(jax.vmap(env.rollout))(actions, jax.random.split(KEY, n))
    values = {k.split("/")[1]: np.asarray(v) for k, v in states.data.items() if "value" in k}
    assert max(np.abs(v).max() for v in values.values()) > 10
    for i in range(n):
        if kind == "lambda":
            one, two = values["delta_one_photon"][i], values["delta_two_photon"][i]
            exact = lambda_fidelity(actions[i], float(one), float(two))
        elif kind == "open qubit":
            exact = open_fidelity(actions[i], float(values["detuning"][i]), 0.05, 0.02)
        else:
            exact = rabi_fidelities(actions[i], detuning=float(values["detuning"][i]))[-1]
        assert float(states.base.value[i]) == pytest.approx(exact, abs=2e-5)


def test_the_series_is_long_enough_for_the_farthest_draw():
    base = qenvs.make(LAMBDA)
    env = ParameterRandomization(base, {"delta_one_photon": Normal(0.05)}, strength=100)
    assert env.unwrapped.length > base.length
    far = eqx.tree_at(
        lambda e: e.unwrapped.model, env.env, base.model.with_parameters(delta_one_photon=-41.5)
    )
    actions = pulses(env, 1)[0]
    assert float(jax.jit(far.rollout)(actions)[0].value) == pytest.approx(
        lambda_fidelity(actions, -41.5, 0.0), abs=2e-5
    )


class Curved(Custom):
    """The coefficient is not affine in the parameter, so the ends of a range do not bound it."""

    def drift_terms(self):
        return tuple((10 * jnp.cos(self.scale * 3), matrix) for _, matrix in super().drift_terms())


def test_a_curved_coefficient_falls_back_to_a_length_by_value():
    env = StateTransfer(Curved(scale=np.pi / 6), 3, 0.5, 1.0, target=np.eye(3)[1])
    wide = ParameterRandomization(env, {"scale": Uniform(np.pi / 6)})
    assert env.length is not None and wide.unwrapped.length is None
    straight = StateTransfer(Custom(), 3, 0.5, 1.0, target=np.eye(3)[1])
    assert ParameterRandomization(straight, {"scale": Uniform(5.0)}).unwrapped.length is not None


@pytest.mark.claims("W-PR-14")
@pytest.mark.parametrize(("task", "names"), [(QUBIT, DETUNING), (LAMBDA, BOTH)])
def test_strength_zero_is_the_nominal_model_bit_for_bit(task, names):
    base = qenvs.make(task)
    env = ParameterRandomization(base, names, strength=0)
    actions = pulses(base, 1)[0]
    state, rewards = jax.jit(env.rollout)(actions, KEY)
    assert all(not np.any(v) for k, v in state.data.items() if k.startswith("offset/"))
    plain, expected = jax.jit(base.rollout)(actions, KEY)
    assert np.array_equal(rewards, expected)
    assert np.array_equal(state.base.x, plain.x)


@pytest.mark.claims("W-PR-28", "W-Q13", "W-Q15", "W-PR-20")
def test_episode_model_and_nested_randomisers():
    inner = ParameterRandomization(qenvs.make(LAMBDA), {"delta_one_photon": Normal(0.5)})
    env = ParameterRandomization(ControlErrors(inner), {"delta_two_photon": Normal(0.5)})
    state, _ = env.reset(KEY)
    model = env.episode_model(state)
    assert model.delta_two_photon == state.data["value/delta_two_photon"] != 0
    assert model.delta_one_photon == state.inner.inner.data["value/delta_one_photon"] != 0
    assert inner.episode_model(state.inner.inner).delta_two_photon == 0
    assert env.model.delta_one_photon == env.model.delta_two_photon == 0
    actions = pulses(env, 1)[0]
    final, _ = jax.jit(env.rollout)(actions, KEY)
    exact = lambda_fidelity(actions, float(model.delta_one_photon), float(model.delta_two_photon))
    assert float(final.base.value) == pytest.approx(exact, abs=1e-5)
    flat = ParameterRandomization(
        qenvs.make(LAMBDA),
        {"delta_two_photon": Normal(0.5), "delta_one_photon": Normal(0.5)},
    )
    np.testing.assert_allclose(jax.jit(flat.rollout)(actions, KEY)[0].base.x, final.base.x)


@pytest.mark.claims("W-WR-14")
def test_exact_values_are_those_of_the_drawn_device():
    class Scaled(TwoLevel):
        def observable_terms(self):
            return {"shift": (self.detuning, SIGMA_Z)}

    base = StateTransfer(Scaled(), 3, 0.1, 1.0, target=np.array([0, 1]))
    env = ParameterRandomization(base, {"detuning": Normal(1.0)})
    state, timestep = env.reset(KEY)
    value = state.data["value/detuning"]
    assert env.info(state)["shift"] == timestep.info["shift"] == value
    assert env.diagnostics(state)["shift"] == value


# --- what is refused ---


class Twins(TwoLevel):
    """CRC-32 gives `plumless` and `buckeroo` the same tag."""

    def parameter_specs(self):
        spec = ParameterSpec("", (-np.inf, np.inf), 0.1)
        return {"plumless": spec, "buckeroo": spec}

    def parameter_values(self):
        return {"plumless": self.detuning, "buckeroo": self.omega0}


BAD = {
    "unknown": (QUBIT, {"detunning": Normal(1)}, {}, "did you mean 'detuning'"),
    "rate": (QUBIT, {"gamma1": Normal(1)}, {}, "dissipation rate"),
    "size": ("transmon/XGate-v0", {"levels": Uniform(1)}, {}, "structural size"),
    "unit": (QUBIT, {"detuning": Normal(1, "GHz")}, {}, "'omega0'.*'GHz'"),
    "unbounded": ("transmon/XGate-v0", {"anharmonicity_ghz": Normal(1e-6)}, {}, "must stay in"),
    "too wide": ("transmon/XGate-v0", {"anharmonicity_ghz": Uniform(0.35)}, {}, "must stay in"),
    "too strong": (
        "transmon/XGate-v0",
        {"anharmonicity_ghz": Uniform(0.3)},
        {"strength": 2.0},
        "must stay in",
    ),
    "empty": (QUBIT, {}, {}, "at least one"),
    "negative": (QUBIT, DETUNING, {"strength": -1.0}, "`strength`"),
    "nan": (QUBIT, DETUNING, {"strength": np.nan}, "`strength`"),
    "infinite": (QUBIT, DETUNING, {"strength": np.inf}, "`strength`"),
}


@pytest.mark.claims("W-PR-10", "W-PR-12", "W-PR-15", "W-PR-16", "W-PR-17", "W-Q16", "W-DI-21")
@pytest.mark.parametrize("case", BAD)
def test_bad_distributions_are_refused_at_construction(case):
    task, distributions, options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        ParameterRandomization(qenvs.make(task), distributions, **options)


@pytest.mark.claims("W-PR-12")
def test_the_model_s_own_unit_and_no_unit_pass():
    plain, stated = (qubit({"detuning": Normal(0.1, unit)}) for unit in ("", "omega0"))
    for env in (plain, stated):
        assert env.reset(KEY)[0].data["offset/detuning"] != 0


@pytest.mark.claims("W-PR-18", "W-Q14", "W-Q17")
def test_two_draws_from_one_key_are_refused():
    twins = StateTransfer(Twins(), 3, 0.1, 1.0, target=np.array([0, 1]))
    assert keys.name_tag("plumless") == keys.name_tag("buckeroo")
    with pytest.raises(ValueError, match="same key tag"):
        ParameterRandomization(twins, {"plumless": Normal(1), "buckeroo": Normal(1)})
    with pytest.raises(ValueError, match="already"):
        ParameterRandomization(EpisodeStatistics(qubit()), DETUNING)


@pytest.mark.claims("W-PR-19")
def test_kinds_are_refused():
    with pytest.raises(TypeError, match="Walk has none"):
        ParameterRandomization(Walk(), DETUNING)
    with pytest.raises(TypeError, match="Distribution"):
        qubit({"detuning": 0.1})
    with pytest.raises(TypeError, match="`oracle`"):
        qubit(oracle="yes")


# --- the oracle ---


@pytest.mark.claims("W-PR-22", "W-PR-23", "W-PR-24", "W-PR-25")
@pytest.mark.parametrize("strength", [1.0, 3.0])
def test_the_oracle_shows_offsets_in_reference_widths(strength):
    base = qenvs.make(LAMBDA)
    plain = ParameterRandomization(base, BOTH, strength)
    env = ParameterRandomization(base, BOTH, strength, oracle=True)
    assert env.oracle_names == ("delta_two_photon", "delta_one_photon")
    assert (plain.observation_dim, env.observation_dim) == (7, 9)
    state, timestep = env.reset(KEY)
    later = env.step(state, jnp.ones(2))[1]
    _, bare = plain.reset(KEY)
    assert np.array_equal(timestep.observation[:-2], bare.observation)
    for seen in (timestep, later):
        np.testing.assert_allclose(
            seen.observation[-2:],
            [
                state.data["value/delta_two_photon"] / 0.01,
                state.data["value/delta_one_photon"] / 0.05,
            ],
            rtol=1e-6,
        )


@pytest.mark.claims("W-PR-24")
def test_parameters_without_a_reference_width_stay_out_of_the_oracle():
    class Silent(TwoLevel):
        def parameter_specs(self):
            return {"detuning": ParameterSpec("omega0", (-np.inf, np.inf), 0.0)}

    base = StateTransfer(Silent(), 3, 0.1, 1.0, target=np.array([0, 1]))
    env = ParameterRandomization(base, DETUNING, oracle=True)
    assert env.oracle_names == () and env.parameter_names == ("detuning",)
    assert env.reset(KEY)[1].observation.shape == (env.observation_dim,) == (5,)


# --- in use ---


@functools.cache
def checked():
    return qubit(oracle=True, horizon=3)


def test_the_contract_holds():
    check_env(checked())


def test_RN_11_no_new_trace_over_100_resets():
    tallied = Tallied(qenvs.make(QUBIT))
    env = ParameterRandomization(tallied, DETUNING)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    for i in range(100):
        state, _ = reset(jax.random.PRNGKey(i))
        step(state, jnp.zeros(1))
    assert (tallied.tally.resets, tallied.tally.steps) == (1, 1)


def test_RN_1_RN_3_RN_12_one_seed_fixes_every_later_episode_of_a_vector_env():
    from qenvs.wrappers.vector import GymnasiumVectorEnv

    def offsets(seed):
        """Oracle of 3 episodes in 64 sub-environments."""
        seen = [envs.reset(seed=seed)[0][:, -1]]
        for _ in range(2 * 4):
            observation, *_ = envs.step(np.zeros((64, 1), np.float32))
            if np.all(observation[:, -2] == 0):
                seen.append(observation[:, -1])
        return np.array(seen)

    envs = GymnasiumVectorEnv(checked(), 64)
    first = offsets(9)
    assert first.shape == (3, 64) and np.unique(first).size == 3 * 64
    assert np.array_equal(offsets(9), first)
    assert not np.array_equal(offsets(10), first)
    expected = draws(checked(), 192, jax.random.PRNGKey(9))["offset/detuning"] / 0.05
    np.testing.assert_allclose(first.reshape(-1), expected, rtol=1e-6)

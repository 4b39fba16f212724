"""ControlErrors: u = clip((a (1 + epsilon) + o) (1 + xi_k), -B, B)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import qenvs
from qenvs import keys
from qenvs.distributions import Normal, OrnsteinUhlenbeck, TruncatedNormal, Uniform
from qenvs.testing import check_env
from qenvs.wrappers import ParameterRandomization, Wrapper
from qenvs.wrappers.control import ControlErrors, apply_control_errors
from systems import Walk

QUBIT = "qubit/StateTransfer-v0"
KEY = jax.random.PRNGKey(3)
GAIN, OFFSET, NOISE = Normal(0.1), Uniform(0.2), Normal(0.05)
COLOURED = OrnsteinUhlenbeck(theta=0.5, sigma=0.1)
CHANNELS = 3


def walk(*sources, **options):
    """Errors on three channels of an environment that reports the applied action."""
    return ControlErrors(Walk(horizon=6, action_dim=CHANNELS), *sources, **options)


def played(env, actions, key=KEY):
    """Applied actions and clip fractions of an episode."""
    state, timestep = env.reset(key)
    applied, fractions = [], [timestep.info["clip_fraction"]]
    for action in actions:
        state, timestep = env.step(state, jnp.asarray(action))
        applied.append(timestep.info["applied"])
        fractions.append(timestep.info["clip_fraction"])
    return np.array(applied), np.array(fractions)


SMALL = np.array([[0.5, -0.3, 0.1]] * 4, np.float32)


# --- the formula ---


@pytest.mark.claims("W-CE-2", "W-CE-19", "W-CE-21", "W-Q21")
def test_apply_control_errors_by_the_formula():
    action = np.array([0.5, -1.5, 1.9], np.float32)
    gain, offset = np.array([0.1, -0.2, 0.3]), np.array([0.05, 0.0, -0.1])
    noise = np.array([-0.1, 0.5, 0.2])
    u, fraction = apply_control_errors(jnp.asarray(action), gain, offset, noise, 2.0)
    raw = (action * (1 + gain) + offset) * (1 + noise)
    np.testing.assert_allclose(u, np.clip(raw, -2, 2), rtol=1e-6)
    assert fraction == pytest.approx(1 / 3)
    # clipped once, at the end: an amplitude beyond the bound may come back inside
    u, fraction = apply_control_errors(jnp.array([3.0]), jnp.array([-0.5]), None, None, 2.0)
    assert (u, fraction) == (1.5, 0.0)


@pytest.mark.claims("W-CE-20", "W-CE-21")
def test_no_error_is_the_clip_bit_for_bit():
    action = jax.random.normal(KEY, (1000,)) * 2
    u, fraction = apply_control_errors(action, None, None, None, 1.5)
    assert np.array_equal(u, jnp.clip(action, -1.5, 1.5))
    assert fraction == pytest.approx(np.mean(np.abs(action) > 1.5))
    at_the_bound = apply_control_errors(jnp.array([1.5, -1.5]), None, None, None, 1.5)
    assert at_the_bound[1] == 0
    each = apply_control_errors(jnp.array([2.0, 2.0]), None, None, None, np.array([1.0, 3.0]))
    assert each[0].tolist() == [1.0, 2.0] and each[1] == 0.5
    assert apply_control_errors(jnp.array([1, 5]), None, None, None, 2.0)[0].tolist() == [1, 2]


# --- the wrapper ---


@pytest.mark.claims("W-CE-1", "W-CE-7", "W-CE-8")
def test_all_off_only_adds_the_clip_fraction():
    base = qenvs.make(QUBIT)
    env = ControlErrors(env=base)
    assert isinstance(env, Wrapper)
    assert (env.amplitude_scale, env.offset, env.step_noise) == (None, None, None)
    assert env.correlated is False and env.coloured_noise is None
    actions = np.random.default_rng(0).uniform(-3, 3, (20, 1)).astype(np.float32)
    play = jax.jit(lambda e, a: e.rollout(a, KEY))
    (wrapped, rewards), (plain, expected) = play(env, actions), play(base, actions)
    assert np.array_equal(rewards, expected) and np.array_equal(wrapped.base.x, plain.x)
    infos = [e.reset(KEY)[1].info for e in (env, base)]
    assert set(infos[0]) - set(infos[1]) == {"clip_fraction"}
    assert env.reset(KEY)[0].data == {}


@pytest.mark.claims("W-CE-3", "W-CE-4", "W-CE-10", "W-CE-14", "W-CE-15", "W-Q19", "W-Q20", "W-Q24")
def test_draws_come_from_their_own_leaves():
    env = walk(GAIN, OFFSET, NOISE)
    shape = (CHANNELS,)
    gain = GAIN.sample(keys.calibration_key(KEY, keys.GAIN), shape=shape)
    offset = OFFSET.sample(keys.calibration_key(KEY, keys.OFFSET), shape=shape)
    applied, _ = played(env, SMALL)
    for k in range(4):
        noise = NOISE.sample(keys.step_noise_key(KEY, k), shape=shape)
        np.testing.assert_allclose(
            applied[k], (SMALL[k] * (1 + gain) + offset) * (1 + noise), rtol=1e-6
        )
    assert np.unique(gain).size == CHANNELS


@pytest.mark.claims("W-CE-9", "W-CE-17", "W-Q20")
def test_correlated_channels_share_one_draw_of_every_source():
    sources = (GAIN, OFFSET, NOISE)
    both = walk(*sources, correlated=True, coloured_noise=COLOURED)
    state, _ = both.reset(KEY)
    for name in ("gain", "offset", "coloured_noise"):
        assert state.data[name].shape == ()
    leaves = [keys.calibration_key(KEY, keys.GAIN), keys.calibration_key(KEY, keys.OFFSET)]
    assert state.data["gain"] == GAIN.sample(leaves[0])
    assert state.data["offset"] == OFFSET.sample(leaves[1])
    assert both.white_noise(state) == NOISE.sample(keys.step_noise_key(KEY, 0))
    applied, _ = played(walk(GAIN, correlated=True), SMALL)
    assert np.allclose(applied / SMALL, applied[0, 0] / SMALL[0, 0], rtol=1e-6)
    spread, _ = played(walk(GAIN), SMALL)
    assert np.ptp(spread[0] / SMALL[0]) > 1e-3


@pytest.mark.claims("W-CE-16", "W-PR-27", "W-WR-12")
def test_no_source_moves_another():
    every = walk(GAIN, OFFSET, NOISE, coloured_noise=COLOURED)
    full, _ = every.reset(KEY)
    for sources, coloured in [
        ((GAIN, None, None), None),
        ((None, OFFSET, None), None),
        ((None, None, NOISE), None),
        ((None, None, None), COLOURED),
        ((GAIN, Normal(7.0), Uniform(3.0)), COLOURED),
    ]:
        env = walk(*sources, coloured_noise=coloured)
        state, _ = env.reset(KEY)
        for name, source in zip(("gain", "offset"), sources, strict=False):
            if source in (GAIN, OFFSET):
                assert np.array_equal(state.data[name], full.data[name])
        if sources[2] == NOISE:
            assert np.array_equal(env.white_noise(state), every.white_noise(full))
        if coloured:
            assert np.array_equal(state.data["coloured_noise"], full.data["coloured_noise"])


@pytest.mark.claims("W-CE-13", "W-PR-27", "W-WR-7")
def test_the_key_goes_on_and_randomised_parameters_stay():
    base = qenvs.make(QUBIT)
    alone = ParameterRandomization(base, {"detuning": Normal(0.1)})
    state, _ = ControlErrors(alone, GAIN, OFFSET, NOISE).reset(KEY)
    assert np.array_equal(state.key, KEY) and np.array_equal(state.inner.key, KEY)
    assert state.inner.data == alone.reset(KEY)[0].data


@pytest.mark.claims("W-CE-5", "W-CE-6")
def test_the_gain_may_be_any_real_or_kept_positive():
    inverted = walk(TruncatedNormal(50.0, -3.0, 0.0))
    gains = jax.vmap(lambda k: inverted.reset(k)[0].data["gain"])(jax.random.split(KEY, 200))
    assert np.any(gains < -1)
    state, _ = inverted.reset(KEY)
    state = state.__class__(state.inner, state.key, state.step, {"gain": jnp.full(CHANNELS, -2.0)})
    assert np.array_equal(inverted.applied_action(state, jnp.array(SMALL[0]))[0], -SMALL[0])
    kept = walk(TruncatedNormal(50.0, -0.99, 5.0))
    gains = jax.vmap(lambda k: kept.reset(k)[0].data["gain"])(jax.random.split(KEY, 2000))
    assert np.all(1 + gains > 0)
    assert walk(Normal(100.0)).amplitude_scale == Normal(100.0)


@pytest.mark.claims("W-CE-2", "W-CE-11", "W-CE-12", "W-CE-21")
def test_clip_fraction_and_the_bound():
    actions = np.array([[0, 0, 0], [2, 2, 1.9], [2.5, -2.5, 2.5], [1, 1, 5]], np.float32)
    applied, fractions = played(walk(), actions)
    np.testing.assert_allclose(fractions, [0, 0, 0, 1, 1 / 3])
    assert np.array_equal(applied, np.clip(actions, -2, 2))
    wild, fractions = played(walk(Normal(10.0), None, Normal(10.0)), actions)
    assert np.all(np.abs(wild) <= 2) and fractions[0] == 0
    assert fractions[2:].max() > 0


@pytest.mark.claims("W-CE-18")
def test_applied_action_tells_what_the_next_step_sends():
    env = walk(GAIN, OFFSET, NOISE, coloured_noise=COLOURED)
    state, _ = env.reset(KEY)
    for action in (SMALL[0], 30 * SMALL[1], SMALL[2]):
        u, fraction = env.applied_action(state, jnp.asarray(action))
        state, timestep = env.step(state, jnp.asarray(action))
        np.testing.assert_allclose(timestep.info["applied"], u, rtol=1e-6)
        assert timestep.info["clip_fraction"] == fraction


@pytest.mark.claims("W-CE-3", "W-CE-4", "RN-4")
def test_RN_4_the_sources_are_uncorrelated_and_follow_their_distributions():
    env = ControlErrors(Walk(horizon=3), GAIN, OFFSET, NOISE, coloured_noise=COLOURED)
    randomised = jax.vmap(lambda k: keys.parameter_key(k, "detuning"))
    names = ["gain", "offset", "coloured_noise", "step_noise"]

    @jax.jit
    @jax.vmap
    def episode(key):
        state, _ = env.reset(key)
        later, _ = env.step(state, jnp.zeros(1))
        last, _ = env.step(later, jnp.zeros(1))
        rows = [state.data[name] for name in names[:3]]
        rows += [env.white_noise(s) for s in (state, later, last)]
        return jnp.concatenate(rows), later.data["gain"] - state.data["gain"]

    episode_keys = jax.random.split(KEY, 4096)
    rows, moved = episode(episode_keys)
    assert not np.any(moved)
    detuning = jax.vmap(jax.random.normal)(randomised(episode_keys))
    correlations = np.corrcoef(np.column_stack([rows, detuning]).T) - np.eye(rows.shape[1] + 1)
    assert np.abs(correlations).max() < 0.06
    declared = {"gain": GAIN, "step_noise": NOISE, "coloured_noise": Normal(COLOURED.stddev())}
    for name, distribution in declared.items():
        column = np.asarray(rows[:, names.index(name)])
        assert stats.kstest(column, stats.norm(scale=distribution.stddev()).cdf).pvalue > 1e-3


# --- coloured noise ---


def test_coloured_noise_is_the_exact_process_with_its_own_leaf():
    env = walk(coloured_noise=COLOURED)
    expected = COLOURED.start(keys.coloured_noise_key(KEY, 0), (CHANNELS,), jnp.float32)
    applied, _ = played(env, SMALL)
    for k in range(4):
        np.testing.assert_allclose(applied[k], SMALL[k] * (1 + expected), rtol=1e-5)
        leaf = keys.coloured_noise_key(KEY, k + 1)
        expected = COLOURED.advance(leaf, expected, (CHANNELS,), env.dt)


def test_coloured_and_white_noise_add_up():
    both, _ = played(walk(None, None, NOISE, coloured_noise=COLOURED), SMALL)
    white, _ = played(walk(None, None, NOISE), SMALL)
    coloured, _ = played(walk(coloured_noise=COLOURED), SMALL)
    np.testing.assert_allclose(both, white + coloured - SMALL, rtol=1e-5, atol=1e-6)


def test_coloured_noise_remembers_over_the_episode():
    env = ControlErrors(Walk(horizon=8), coloured_noise=COLOURED)

    @jax.jit
    @jax.vmap
    def values(key):
        state, _ = env.reset(key)
        seen = [state.data["coloured_noise"][0]]
        for _ in range(6):
            state, _ = env.step(state, jnp.zeros(1))
            seen.append(state.data["coloured_noise"][0])
        return jnp.stack(seen)

    correlations = np.corrcoef(np.asarray(values(jax.random.split(KEY, 8000))).T)
    expected = np.exp(-COLOURED.theta * 0.5 * np.abs(np.subtract.outer(range(7), range(7))))
    np.testing.assert_allclose(correlations, expected, atol=0.05)


# --- what is refused ---


@pytest.mark.claims("W-Q22")
def test_units():
    for name in ("amplitude_scale", "step_noise"):
        with pytest.raises(ValueError, match=f"`{name}` states the unit 'GHz'; it is relative"):
            walk(**{name: Normal(0.1, "GHz")})
    with pytest.raises(ValueError, match="use 'omega0'"):
        ControlErrors(qenvs.make(QUBIT), offset=Normal(0.1, "GHz"))
    ControlErrors(qenvs.make(QUBIT), offset=Normal(0.1, "omega0"))
    ControlErrors(qenvs.make("transmon/XGate-v0"), offset=Normal(0.1, "rad/ns"))


@pytest.mark.claims("W-Q23")
def test_control_errors_do_not_nest():
    inner = Wrapper(ControlErrors(qenvs.make(QUBIT)))
    with pytest.raises(ValueError, match="ControlErrors inside ControlErrors"):
        ControlErrors(inner, GAIN)


def test_kinds_are_refused():
    with pytest.raises(TypeError, match="`amplitude_scale` must be a Distribution"):
        walk(0.1)
    with pytest.raises(TypeError, match="`correlated`"):
        walk(correlated=1)
    with pytest.raises(TypeError, match="OrnsteinUhlenbeck"):
        walk(coloured_noise=Normal(0.1))
    with pytest.raises(ValueError, match=r"`action` must have shape \(3,\)"):
        walk().step(walk().reset(KEY)[0], jnp.zeros(()))


@pytest.mark.claims("W-Q42")
def test_info_of_a_state_is_the_inner_environment_s():
    env = ControlErrors(qenvs.make(QUBIT), GAIN)
    state, timestep = env.reset(KEY)
    assert set(env.info(state)) == set(timestep.info) - {"clip_fraction"}


def test_the_contract_holds():
    sources = {"step_noise": NOISE, "coloured_noise": COLOURED}
    env = ControlErrors(qenvs.make(QUBIT, horizon=3), GAIN, OFFSET, **sources)
    check_env(env, skip=("clip",))  # errors come before the clip

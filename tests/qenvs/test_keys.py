"""The key tree: one leaf for each source of randomness, and no number drawn twice."""

import inspect
import itertools
import zlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import KeyReuseError

import qenvs
from brute_force import enable_x64
from observed import QUBIT
from qenvs import keys
from qenvs.distributions import Normal, OrnsteinUhlenbeck, Uniform
from qenvs.wrappers import (
    AutoReset,
    ControlErrors,
    ObservationModel,
    ParameterRandomization,
    ReadoutError,
    Wrapper,
)

KEY = jax.random.PRNGKey(9)
TREE = {
    "episode_key": ((4,), (4,)),
    "parameter_key": (("detuning",), (keys.PARAMETER, zlib.crc32(b"detuning"))),
    "calibration_key": ((keys.OFFSET,), (keys.CALIBRATION, keys.OFFSET)),
    "step_noise_key": ((7,), (keys.STEP_NOISE, 7)),
    "measurement_key": ((7, 2), (keys.MEASUREMENT, 7, 2)),
    "coloured_noise_key": ((7,), (keys.COLOURED_NOISE, 7)),
    "drift_key": (("detuning",), (keys.DRIFT, zlib.crc32(b"detuning"))),
}
"""Function -> (arguments after the key, integers that it folds in, one after the other)."""


def data(key):
    """The words of a raw or typed key."""
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return tuple(np.asarray(jax.random.key_data(key) if typed else key).tolist())


@pytest.mark.claims("G-KEY-1")
@pytest.mark.parametrize("name", TREE)
def test_every_leaf_is_a_path_of_integers(name):
    arguments, path = TREE[name]
    for key in (KEY, jax.random.key(9)):
        expected = key
        for branch in path:
            expected = jax.random.fold_in(expected, branch)
        found = getattr(keys, name)(key, *arguments)
        assert data(found) == data(expected) and found.dtype == key.dtype
    traced = jax.jit(getattr(keys, name), static_argnums=1 if str in map(type, arguments) else ())
    assert data(traced(KEY, *arguments)) == data(expected)


def test_the_table_above_is_complete():
    own = {
        n for n, f in inspect.getmembers(keys, inspect.isfunction) if f.__module__ == "qenvs.keys"
    }
    assert {n for n in own if not n.startswith("_")} == {*TREE, "name_tag"}


def test_the_branches_are_distinct_and_stay_what_they_are():
    """An episode can be rebuilt from its seed with a later release only if these numbers stay."""
    branches = {n: v for n, v in vars(keys).items() if n.isupper()}
    assert branches == {
        "PARAMETER": 0,
        "CALIBRATION": 1,
        "STEP_NOISE": 2,
        "MEASUREMENT": 3,
        "COLOURED_NOISE": 4,
        "GAIN": 0,
        "OFFSET": 1,
        "DRIFT": 2**32 - 1,
    }


@pytest.mark.claims("W-Q17")
def test_names_become_crc_32_of_utf_8():
    assert keys.name_tag("detuning") == zlib.crc32(b"detuning") == 0xFDDBF04F
    assert keys.name_tag("δ") == zlib.crc32("δ".encode())
    assert data(keys.parameter_key(KEY, "alpha")) != data(keys.parameter_key(KEY, "alphb"))


def test_no_two_leaves_of_a_long_episode_are_equal():
    names = ["detuning", "alpha"]
    steps = jnp.arange(200)

    def leaves(key):
        grid = jax.vmap(
            lambda t: jax.vmap(lambda j: keys.measurement_key(key, t, j))(jnp.arange(12))
        )
        return jnp.concatenate(
            [
                jnp.stack([keys.parameter_key(key, name) for name in names]),
                jnp.stack([keys.calibration_key(key, tag) for tag in (keys.GAIN, keys.OFFSET)]),
                jax.vmap(lambda k: keys.step_noise_key(key, k))(steps),
                jax.vmap(lambda k: keys.coloured_noise_key(key, k))(steps),
                grid(steps).reshape(-1, 2),
            ]
        )

    episodes = jax.vmap(lambda i: keys.episode_key(KEY, i))(jnp.arange(50))
    every = np.asarray(jax.jit(jax.vmap(leaves))(episodes)).reshape(-1, 2)
    drifts = jnp.stack([keys.drift_key(KEY, name) for name in names])
    together = np.concatenate([every, np.asarray(episodes), np.asarray(drifts)])
    assert len(np.unique(together, axis=0)) == len(together) > 100_000


# --- the whole stack ---


NOISE = OrnsteinUhlenbeck(theta=0.5, sigma=0.1)
READOUT = ReadoutError({"p1": [[0.99, 0.04], [0.01, 0.96]]})


def stack(
    detuning=True,
    gain=True,
    offset=True,
    noise=True,
    coloured=True,
    readout=True,
    shots=25,
    drift=None,
):
    """Every source of randomness on a qubit, each of which can be left out."""
    env = qenvs.make(QUBIT, horizon=3, dt=0.5)
    if detuning:
        env = ParameterRandomization(env, {"detuning": Normal(0.3)}, drift=drift)
    env = ControlErrors(
        env,
        Normal(0.1) if gain else None,
        Uniform(0.2) if offset else None,
        Normal(0.1) if noise else None,
        coloured_noise=NOISE if coloured else None,
    )
    p1 = READOUT if readout else None
    return ObservationModel(env, "expectations", shots, observables=["p1"], readout=p1)


def drawn(env, n):
    """Draws of n episodes by name: those of reset, of two steps, and errors of the shots."""

    def advance(state, _):
        state, timestep = env.step(state, jnp.full(1, 0.9))
        return state, (draws_of(env, state), timestep.observation[0])

    def episode(key):
        state, opening = env.reset(key)
        first = draws_of(env, state)
        state, (later, shown) = jax.lax.scan(advance, state, None, 2)
        noise = {f"{n}, {k + 1}": later[n][k] for n in later if "noise" in n for k in range(2)}
        exact = env.diagnostics(state)["p1"]
        return {
            **first,
            **noise,
            "shots": shown[-1] - exact,
            "shots before": opening.observation[0],
        }

    episodes = jax.vmap(lambda i: keys.episode_key(KEY, i))(jnp.arange(n))
    return {k: np.asarray(v).reshape(n) for k, v in jax.jit(jax.vmap(episode))(episodes).items()}


def draws_of(env, state):
    """Random numbers in the data of every level of a state, and the noise of the next step."""
    noise = env.white_noise(state.inner)
    found = {} if noise is None else {"step_noise": noise}
    while hasattr(state, "data"):
        names = [n for n in state.data if "value" not in n]
        found |= {name: state.data[name] for name in names}
        state = state.inner
    return found


@pytest.fixture(scope="module")
def everything():
    return drawn(stack(), 4096)


def test_RN_4_sources_are_uncorrelated_also_between_steps(everything):
    assert set(everything) == {
        "offset/detuning",
        "gain",
        "offset",
        *(f"{kind}{k}" for kind in ("step_noise", "coloured_noise") for k in ("", ", 1", ", 2")),
        "shots",
        "shots before",
    }
    fresh = {n: v for n, v in everything.items() if "coloured" not in n}
    # the coloured noise remembers; what is new in it must be independent
    keep = np.exp(-NOISE.theta * 0.5)
    coloured = [everything[f"coloured_noise{k}"] for k in ("", ", 1", ", 2")]
    fresh |= {f"coloured {k}": coloured[k] - keep * coloured[k - 1] for k in (1, 2)}
    fresh["coloured 0"] = coloured[0]
    del fresh["shots before"]  # at reset nobody is excited, so it is readout error alone
    samples = np.stack(list(fresh.values()))
    correlations = np.corrcoef(samples) - np.eye(len(samples))
    assert np.abs(correlations).max() < 5 / 64  # five sigma at 4096
    assert (
        abs(np.corrcoef(samples[:, 1:], samples[:, :-1])[: len(samples), len(samples) :]).max()
        < 5 / 64
    )


@pytest.mark.claims("W-PR-26", "W-PR-27", "W-CE-16", "W-SH-10", "W-WR-12")
@pytest.mark.parametrize(
    "changed",
    [
        {"detuning": False, "noise": False, "shots": 7},
        {"gain": False, "coloured": False, "readout": False},
        {"offset": False, "shots": None},
    ],
    ids=", ".join,
)
def test_no_source_moves_another(everything, changed):
    fewer = drawn(stack(**changed), 500)
    for name in set(fewer) - {"shots", "shots before"}:
        assert np.array_equal(fewer[name], everything[name][:500])
    absent = {"detuning": "offset/detuning", "noise": "step_noise", "coloured": "coloured_noise"}
    for name, value in changed.items():
        assert value is not False or absent.get(name, name) not in fewer


def test_RN_4_no_key_is_used_twice_in_reset_and_step():
    env = AutoReset(stack(drift=3.0))
    with jax.debug_key_reuse(True):
        state, _ = jax.jit(env.reset)(jax.random.key(0))
        step = jax.jit(env.step)
        for _ in range(4):
            state, _ = step(state, jnp.ones(1))
    assert state.data["episode"] == 4 // env.horizon


class Careless(Wrapper):
    """Draws from the key of the step itself, which the inner environment has drawn from."""

    def reset(self, key):
        state, timestep = super().reset(key)
        return state, timestep._replace(reward=jax.random.normal(key) + jax.random.uniform(key))


def test_RN_4_the_check_for_reuse_can_fail():
    with jax.debug_key_reuse(True), pytest.raises(KeyReuseError):
        jax.jit(Careless(stack()).reset)(jax.random.key(0))


def test_raw_and_typed_keys_give_the_same_episode():
    env = stack()
    left, right = (jax.jit(env.reset)(k)[1] for k in (KEY, jax.random.key(9)))
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_RN_6_an_episode_is_the_same_in_double_precision():
    def episode(on):
        with enable_x64(on):
            env = stack()

            @jax.jit
            def play(key):
                state, opening = env.reset(key)
                state, later = jax.lax.scan(env.step, state, np.array([[0.9], [-0.4]], np.float32))
                return draws_of(env, state), opening.observation, later.observation, later.reward

            numbers, *shown = play(jax.random.PRNGKey(9))
            return {n: np.asarray(v, float) for n, v in numbers.items()}, list(map(np.array, shown))

    (numbers, single), (same, double) = episode(False), episode(True)
    for name, value in numbers.items():
        np.testing.assert_allclose(same[name], value, rtol=1e-6)
    for left, right in zip(single, double, strict=True):
        np.testing.assert_allclose(left, right, atol=1e-6)
    assert double[0].dtype == double[1].dtype == np.float32 and double[2].dtype == np.float64


def test_leaves_can_be_found_without_a_loop():
    """Every function of the tree takes traced indices: a batch of leaves is one call."""
    grid = list(itertools.product(range(3), range(2)))
    together = jax.vmap(lambda tj: keys.measurement_key(KEY, tj[0], tj[1]))(jnp.array(grid))
    for (t, j), leaf in zip(grid, together, strict=True):
        assert data(leaf) == data(keys.measurement_key(KEY, t, j))
    assert eqx.tree_equal(together[0], keys.measurement_key(KEY, 0, 0))

"""No exact value reaches an agent in the partial modes, whichever adapter it looks through.

Three checks of everything an agent is shown (observations and infos, nested ones and those of ended
episodes included; the reward is exact by design): its structure and the values it can take; that
hidden states with one measured record show the same bits; and that a linear probe finds no more
about the exact gain of the fidelity than shot noise allows.
"""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qenvs
from observed import KEY, QUBIT
from qenvs import keys
from qenvs.distributions import Normal
from qenvs.wrappers import (
    AutoReset,
    ControlErrors,
    GymnasiumEnv,
    GymnasiumVectorEnv,
    GymnaxEnv,
    ObservationModel,
    ParameterRandomization,
)

HORIZON, LANES, SHOTS = 4, 16, 20
TASK = {"horizon": HORIZON, "dt": 0.5}
MODES = {
    "exact": {"observation": "expectations", "observables": ["p1"]},
    "shots": {"observation": "expectations", "observables": ["p1"], "shots": SHOTS},
    "time": {"observation": "time"},
}
COMPANIONS = {"final_obs", "final_info", "final_observation"}
"""Entries that hold observations and infos of ended episodes: looked into, not exempt."""


def noisy(**options):
    """The same qubit, its detuning drawn and its controls in error."""
    device = ParameterRandomization(qenvs.make(QUBIT, **TASK), {"detuning": Normal(0.3)})
    return ObservationModel(ControlErrors(device, Normal(0.2), step_noise=Normal(0.1)), **options)


def batched(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], tree)


# --- adapters: options of the task -> (actions of shape (calls, lanes, 1) -> what is shown) ---


def functional(options):
    env = AutoReset(qenvs.make(QUBIT, **TASK, **options))
    return _functional(env)


def functional_noisy(options):
    return _functional(AutoReset(noisy(**options)))


def _functional(env):
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))

    def play(actions):
        state, timestep = reset(jax.random.split(KEY, LANES))
        yield (timestep.observation, timestep.info), timestep.reward
        for action in actions:
            state, timestep = step(state, action)
            yield (timestep.observation, timestep.info), timestep.reward

    return play


def gymnax(options):
    env = GymnaxEnv(qenvs.make(QUBIT, **TASK, **options))
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))

    def play(actions):
        observation, state = reset(jax.random.split(KEY, LANES))
        yield (observation, {}), np.zeros(LANES)
        for k, action in enumerate(actions):
            lane_keys = jax.random.split(keys.episode_key(KEY, k), LANES)
            observation, state, reward, _, info = step(lane_keys, state, action)
            yield (observation, info), reward

    return play


def single(options):
    return _single(GymnasiumEnv(qenvs.make(QUBIT, **TASK, **options)))


def made(options):
    return _single(gymnasium.make(QUBIT, **TASK, **options))


def _single(env):
    def play(actions):
        yield batched(env.reset(seed=3)), np.zeros(1)
        for action in actions[:, 0]:
            observation, reward, ended, _, info = env.step(action)
            yield batched((observation, info)), np.array([reward])
            if ended:
                yield batched(env.reset()), np.zeros(1)

    return play


def vector(mode, options):
    env = qenvs.make(QUBIT, **TASK, **options)
    return _vector(GymnasiumVectorEnv(env, LANES, autoreset_mode=mode))


def vector_noisy(options):
    return _vector(GymnasiumVectorEnv(noisy(**options), LANES, autoreset_mode="SameStep"))


def vector_of_dicts(options):
    env = qenvs.make(QUBIT, **TASK, **options)
    mode = {"autoreset_mode": "SameStep", "dict_observation": True}
    play = _vector(GymnasiumVectorEnv(env, LANES, **mode))

    def flat(parts):
        return np.concatenate([parts[n] for n in ("measurements", "time") if n in parts], axis=-1)

    def flattened(actions):
        for (observation, infos), reward in play(actions):
            assert set(observation) <= {"measurements", "time"}
            ended = {n: flat(infos[n]) for n in ("final_obs",) if n in infos}
            yield (flat(observation), infos | ended), reward

    return flattened


def made_vector(options):
    made = gymnasium.make_vec(
        QUBIT, LANES, vectorization_mode="vector_entry_point", **TASK, **options
    )
    return _vector(made)


def _vector(envs):
    disabled = "DISABLED" in str(envs.metadata.get("autoreset_mode"))

    def play(actions):
        yield envs.reset(seed=3), np.zeros(LANES)
        for action in actions:
            observation, reward, ended, _, infos = envs.step(action)
            yield (observation, infos), reward
            if disabled and ended.any():
                yield envs.reset(options={"reset_mask": ended}), np.zeros(LANES)

    return play


def tensors(same_step, options):
    pytest.importorskip("torch")
    from rl_mind.env import VecEnv

    vec = VecEnv(QUBIT, LANES, same_step_reset=same_step, **TASK, **options)

    def play(actions):
        import torch

        vec._seed = 3
        yield (vec.reset().numpy(), {}), np.zeros(LANES)
        for action in actions:
            step = vec.step(torch.from_numpy(action))
            shown = (step.obs.numpy(), {"final_obs": step.next_obs.numpy()})
            yield shown, step.reward.numpy()

    return play


VECTORS = {
    f"vector {mode}": functools.partial(vector, mode)
    for mode in ("NextStep", "SameStep", "Disabled")
}
ADAPTERS = {
    "functional": functional,
    "functional noisy": functional_noisy,
    "gymnax": gymnax,
    "GymnasiumEnv": single,
    "gymnasium.make": made,
    **VECTORS,
    "vector noisy": vector_noisy,
    "vector of dicts": vector_of_dicts,
    "gymnasium.make_vec": made_vector,
    "VecEnv": functools.partial(tensors, False),
    "VecEnv same step": functools.partial(tensors, True),
}


WITHOUT_SHOTS = [
    adapter
    if adapter in ("functional", "GymnasiumEnv", "vector SameStep")
    else pytest.param(adapter, marks=pytest.mark.slow)
    for adapter in ADAPTERS
]


@functools.cache
def player(adapter, mode):
    return ADAPTERS[adapter](MODES[mode])


def actions_of(calls=11, lanes=LANES):
    shape = (calls, lanes, 1)
    return np.random.default_rng(0).uniform(-2, 2, shape).astype(np.float32)


def copied(calls):
    return [(jax.tree.map(np.array, shown), np.array(reward)) for shown, reward in calls]


def entries(info):
    """(name, leaf) of every entry of an info that is no mask, and the observations in it."""
    observations, leaves = [], []
    for name, value in info.items():
        if name.startswith("_"):
            assert value.dtype == bool and name[1:] in info
        elif isinstance(value, dict):
            assert name in COMPANIONS
            inner = entries(value)
            observations += inner[0]
            leaves += inner[1]
        elif name in COMPANIONS:
            observations.append(value)
        else:
            leaves.append((name, value))
    return observations, leaves


# --- what is shown, and which values it can take ---


@pytest.mark.claims("W-IB-1", "W-IB-2", "W-SH-3", "W-Q28")
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_everything_shown_is_a_count_a_time_or_a_cost(adapter):
    assert_counts_times_and_costs(adapter, "shots")


@pytest.mark.claims("W-IB-1", "W-IB-2", "W-OM-10")
@pytest.mark.parametrize("adapter", WITHOUT_SHOTS)
def test_everything_shown_without_a_measurement_is_a_time_or_a_cost(adapter):
    assert_counts_times_and_costs(adapter, "time")


def assert_counts_times_and_costs(adapter, mode):
    counts = (np.arange(SHOTS + 1) / SHOTS).astype(np.float32)
    times = (np.arange(HORIZON + 1) / HORIZON).astype(np.float32)
    shots = SHOTS if mode == "shots" else 0
    for (observation, info), _ in copied(player(adapter, mode)(actions_of())):
        inner, leaves = entries(info)
        for shown in (observation, *inner):
            assert shown.shape[-1] == (2 if shots else 1)
            assert np.isin(shown[..., -1], times).all()
            if shots:
                gap = np.abs(shown[..., :1] - counts).min(axis=-1)
                assert gap.max() <= 6e-8  # the division by the number of shots rounds
        for name, value in leaves:
            if name == "shots_used":
                assert np.isin(value, [0, shots]).all()  # 0 where no episode ended
            else:
                assert name == "clip_fraction" and "noisy" in adapter
                assert np.isin(value, [0, 1]).all()


# --- the same record, the same bits ---


def bits(tree, lane):
    leaves = [np.asarray(leaf)[lane] for leaf in jax.tree.leaves(tree)]
    return [leaf.tobytes() for leaf in leaves]


@pytest.mark.claims("W-IB-1", "W-IB-2")
@pytest.mark.parametrize("adapter", WITHOUT_SHOTS)
def test_without_a_measurement_every_hidden_state_shows_the_same(adapter):
    play = player(adapter, "time")
    left, right = (copied(play(sign * actions_of() / 8)) for sign in (1, 0.5))
    differ = 0
    for (shown, reward), (again, other) in zip(left, right, strict=True):
        assert all(bits(shown, lane) == bits(again, lane) for lane in range(len(reward)))
        differ += np.count_nonzero(reward != other)
    assert differ > 0.6 * len(left)


@pytest.mark.claims("W-IB-1", "W-IB-2", "W-SH-1")
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_hidden_states_with_one_record_show_the_same(adapter):
    """Slightly different pulses: other states, mostly the same counts, then the same bits."""
    play = player(adapter, "shots")
    left, right = (copied(play(factor * actions_of() / 2)) for factor in (1, 1 + 2e-4))
    same = total = differ = 0
    for (shown, reward), (again, other) in zip(left, right, strict=True):
        for lane in range(len(reward)):
            total += 1
            observations = (entries(s[1])[0] + [s[0]] for s in (shown, again))
            if not all(
                np.array_equal(a[lane], b[lane]) for a, b in zip(*observations, strict=True)
            ):
                continue  # another count was found
            same += 1
            differ += reward[lane] != other[lane]
            assert bits(shown, lane) == bits(again, lane)
    assert same > 0.9 * total and differ > 0.5 * total


# --- a linear probe ---


def features(shown):
    """Every number of what is shown, a row for each lane."""
    leaves = [np.asarray(leaf, float) for leaf in jax.tree.leaves(shown)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def unexplained(columns, gains):
    """Mean square of what least squares leaves of the gains."""
    design = np.concatenate([*columns, np.ones((len(gains), 1))], axis=1)
    weights, *_ = np.linalg.lstsq(design, gains, rcond=None)
    return np.mean((gains - design @ weights) ** 2)


PROBED = 4096


def probed_episode(adapter, options):
    """What is shown on the calls of one episode of many lanes, the actions, and the rewards."""
    env = qenvs.make(QUBIT, **TASK, **options)
    actions = np.random.default_rng(4).uniform(-2, 2, (HORIZON, PROBED, 1)).astype(np.float32)
    if adapter == "functional":
        play = jax.jit(jax.vmap(functools.partial(_episode, env), (0, 1), 1))
        shown, rewards = play(jax.random.split(KEY, PROBED), actions)
        rows = [jax.tree.map(lambda leaf, t=t: leaf[t], shown) for t in range(HORIZON + 1)]
        return rows, actions, np.asarray(rewards)
    envs = GymnasiumVectorEnv(env, PROBED, autoreset_mode=adapter)
    calls = [(envs.reset(seed=0), np.zeros(PROBED))]
    for action in actions:
        observation, reward, _, _, infos = envs.step(action)
        calls.append(((observation, infos), reward))
    return [shown for shown, _ in calls], actions, np.array([reward for _, reward in calls])


def _episode(env, key, pulse):
    state, opening = env.reset(key)
    _, later = jax.lax.scan(env.step, state, pulse)
    timesteps = jax.tree.map(
        lambda first, rest: jnp.concatenate([jnp.asarray(first)[None], rest]), opening, later
    )
    return (timesteps.observation, timesteps.info), timesteps.reward


def shares_unexplained(adapter, options):
    """Unexplained mean square of the gain of each step over that of an honest agent.

    The honest agent knows its actions and what an independent binomial of the exact population
    shows of the states before and after the step (nothing in the time mode); mean of 10 of them.
    """
    shown, actions, rewards = probed_episode(adapter, options)
    exact = np.clip(np.cumsum(rewards, axis=0), 0, 1)
    draws = np.random.default_rng(5).binomial(SHOTS, exact, (10, *exact.shape))[..., None] / SHOTS
    shares = []
    for t in range(1, HORIZON + 1):
        known = [actions[t - 1], actions[t - 1] ** 2]
        measured = [(d[t - 1], d[t]) if "shots" in options else () for d in draws]
        honest = np.mean([unexplained([*known, *columns], rewards[t]) for columns in measured])
        seen = [features(shown[t - 1]), features(shown[t])]
        shares.append(unexplained([*known, *seen], rewards[t]) / honest)
    return np.array(shares)


@pytest.mark.claims("W-IB-1", "W-IB-6")
@pytest.mark.parametrize(
    ("adapter", "mode"),
    [
        ("functional", "shots"),
        ("SameStep", "shots"),
        *(
            pytest.param(adapter, mode, marks=pytest.mark.slow)
            for adapter, mode in (
                ("functional", "time"),
                ("SameStep", "time"),
                ("NextStep", "shots"),
                ("Disabled", "shots"),
            )
        ),
    ],
)
def test_a_linear_probe_finds_no_more_than_shot_noise_allows(adapter, mode):
    shares = shares_unexplained(adapter, MODES[mode])
    assert shares.min() > 0.92 and shares.max() < 1.08


@pytest.mark.claims("W-IB-4")
@pytest.mark.parametrize(
    "adapter", ["functional", pytest.param("SameStep", marks=pytest.mark.slow)]
)
def test_the_probe_finds_a_leak(adapter):
    """Diagnostics hold the exact population of the states before and after: nothing is left."""
    shares = shares_unexplained(adapter, {**MODES["shots"], "diagnostics": True})
    assert shares[:-1].max() < 1e-6


@pytest.mark.slow
def test_exact_expectation_values_are_no_leak_of_the_mode_that_shows_them():
    assert shares_unexplained("functional", {**MODES["exact"]}).max() < 1e-6

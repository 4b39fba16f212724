"""One table for all: every task, through the contract and through each adapter."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

import qenvs
from episodes import ends
from qenvs.distributions import Normal
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.testing import CLAUSES, ContractError, Play, check_env
from qenvs.wrappers import EpisodeStatistics, GymnasiumEnv, Wrapper
from qenvs.wrappers.control import ControlErrors
from qenvs.wrappers.observation import ObservationModel
from qenvs.wrappers.randomization import ParameterRandomization
from qenvs.wrappers.vector import GymnasiumVectorEnv
from systems import Custom, Walk, assert_physical

KEY = jax.random.PRNGKey(1)
TASKS = {name: functools.partial(qenvs.make, name) for name in sorted(qenvs.registry)}


def custom(rate):
    return StateTransfer(Custom(rate=rate), 4, 0.3, [1.0, 0.5], target=basis_ket(3, 2))


def uncertain():
    qubit = qenvs.make("qubit/StateTransfer-v0", horizon=4)
    device = ParameterRandomization(qubit, {"detuning": Normal(0.1, "omega0")}, oracle=True)
    noisy = ControlErrors(device, amplitude_scale=Normal(0.01), step_noise=Normal(0.01))
    return ObservationModel(noisy, observation="expectations", observables=["p1"])


OTHERS = {
    "open qubit": functools.partial(TASKS["qubit/StateTransfer-v0"], gamma1=0.1, horizon=4),
    "open gate": functools.partial(TASKS["transmon/XGate-v0"], t1_us=20.0, horizon=4),
    "ergotropy": functools.partial(
        TASKS["battery/TwoLevel-v0"], gamma1=0.1, n_th=0.3, reward="ergotropy", horizon=4
    ),
    "closed custom model": functools.partial(custom, 0.0),
    "open custom model": functools.partial(custom, 0.2),
    "toy": Walk,
    "wrapped toy": lambda: EpisodeStatistics(Wrapper(Walk())),
    "uncertain qubit": uncertain,
}
EXPENSIVE = ("jit", "argument", "gradient")
"""Clauses that compile much; `make test-all` checks them for every task."""


class Task:
    """A built-in task and what is compiled once for all tests of it."""

    lanes = 16

    def __init__(self, name):
        self.env = TASKS[name]()
        self.play = Play(self.env, KEY)
        self.vector = GymnasiumVectorEnv(self.env, self.lanes, normalize_actions=True)

    @functools.cached_property
    def scaled(self):
        """The actions of the play for adapters with normalised actions."""
        return (self.play.actions / np.asarray(self.env.action_bound)).astype(np.float32)


@pytest.fixture(scope="module", params=sorted(TASKS))
def task(request):
    return Task(request.param)


def assert_close(got, wanted):
    """Equal up to float32 rounding over an episode."""
    wanted = np.asarray(wanted, float)
    scale = max(1.0, np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=5e-5 * scale)


@pytest.mark.claims("G-IF-3", "G-IF-4", "G-NA-1", "G-NA-7", "G-RT-1", "G-RT-3")
def test_contract(task):
    broken = {name: clause(task.play) for name, clause in CLAUSES.items() if name not in EXPENSIVE}
    assert broken == dict.fromkeys(broken)


@pytest.mark.slow
@pytest.mark.claims("G-IF-3", "G-IF-4", "G-IF-5")
@pytest.mark.parametrize("name", [*TASKS, *OTHERS])
def test_whole_contract(name):
    # control errors act on the command before the bound does
    check_env((TASKS | OTHERS)[name](), KEY, skip=["clip"] if name == "uncertain qubit" else [])


@pytest.mark.claims("G-IF-8", "G-RT-2", "G-RT-3", "G-RT-4", "G-RT-5", "G-KEY-6")
def test_single_adapter_plays_the_same_episode(task):
    single, horizon = GymnasiumEnv(task.env, seed=99, normalize_actions=True), task.env.horizon
    returned = [single.reset(), *(single.step(action) for action in task.scaled)]
    for k, (step, timestep) in enumerate(zip(returned, task.play.timesteps, strict=True)):
        assert_close(step[0], timestep.observation)
        assert step[0][-1] == pytest.approx(k / horizon, rel=1.2e-7)
        assert set(step[-1]) == set(timestep.info)
        for name, value in timestep.info.items():
            assert_close(step[-1][name], value)
        if k > 0:
            assert step[1] == pytest.approx(float(timestep.reward), abs=5e-5)
            assert step[2:4] == (k == horizon, False)


@pytest.mark.claims("G-IF-8", "G-RT-2", "G-RT-3", "G-RT-4", "G-AR-6", "G-KEY-6")
def test_vector_adapter_plays_the_same_episode(task):
    horizon, lanes = task.env.horizon, task.lanes
    shape = (horizon + 2, lanes, task.env.action_dim)
    actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    actions[:horizon, 5] = task.scaled
    returned = [task.vector.reset(seed=7), *(task.vector.step(action) for action in actions)]
    for step, timestep in zip(returned, task.play.timesteps, strict=False):
        assert_close(step[0][5], timestep.observation)
        for name, value in timestep.info.items():
            assert_close(step[-1][name][5], value)
    rewards = [step[1][5] for step in returned[1 : horizon + 1]]
    assert_close(rewards, task.play.rewards)
    assert ends(returned) == [horizon - 1]
    assert not any(step[3].any() for step in returned[1:])
    np.testing.assert_array_equal(returned[horizon + 1][0], returned[0][0])


def assert_sane(envs, count):
    """Finite, of the declared type, and physical, for `count` calls with random actions."""
    env, rng = envs.env, np.random.default_rng(3)
    coordinates = env.reset(KEY)[0].coordinates
    spectra = {
        name: np.sort(np.linalg.eigvalsh(weight * matrix))[[0, -1]]
        for name, (weight, matrix) in env.model.observable_terms().items()
    }
    spectra |= dict.fromkeys(("fidelity", "leakage", "purity"), (0, 1))
    envs.reset(seed=0)
    for _ in range(count):
        actions = rng.uniform(-1.2, 1.2, (envs.num_envs, env.action_dim))
        observation, reward, _, _, infos = envs.step(actions)
        assert observation in envs.observation_space and np.isfinite(observation).all()
        assert reward.dtype == np.float32 and np.isfinite(reward).all()
        assert_physical(coordinates, observation)
        for name, values in infos.items():
            assert values.dtype in (np.float32, bool) and np.isfinite(values).all()
            low, high = spectra.get(name, (-np.inf, np.inf))
            slack = 1e-5 * max(1, high - low)
            assert values.min() >= low - slack and values.max() <= high + slack


def test_SE_1_random_steps_are_finite_and_physical(task):
    assert_sane(task.vector, 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASKS))
def test_SE_1_a_hundred_thousand_random_steps(name):
    assert_sane(GymnasiumVectorEnv(TASKS[name](), 512, normalize_actions=True), 200)


# --- the contract itself can fail: one broken environment for each clause ---


class Altered(Wrapper):
    """Changes what the toy returns; the state is the toy's own."""

    on_reset: object = eqx.field(static=True, default=lambda timestep: timestep)
    on_step: object = eqx.field(static=True, default=lambda timestep, action: timestep)

    def reset(self, key):
        state, timestep = self.env.reset(key)
        return state, self.on_reset(timestep)

    def step(self, state, action):
        new, timestep = self.env.step(state, action)
        return new, self.on_step(timestep, action)

    def info(self, state):
        return self.env.info(state)

    def diagnostics(self, state):
        return self.env.diagnostics(state)


class Unequal(Walk):
    __hash__ = Walk.__hash__

    def __eq__(self, other):
        return False


class Lying(Altered):
    def info(self, state):
        return {"value": state.value + 1}


class Numeric(Walk):
    def step(self, state, action):
        return super().step(state, action * float(self.action_bound) / 2)


class Kinked(Walk):
    def step(self, state, action):
        return super().step(state, jnp.sqrt(jnp.asarray(action) ** 2))


class Shuffled(Walk):
    def rollout(self, actions, key=None):
        return super().rollout(actions[::-1], key)


@custom_vmap
def coupled(step):
    return step


@coupled.def_vmap
def _(size, batched, steps):
    return jnp.full_like(steps, steps.min()), True


@custom_vmap
def doubled(reward):
    return reward


@doubled.def_vmap
def _(size, batched, rewards):
    return 2 * rewards, True


def observe(timestep, change):
    return timestep._replace(observation=timestep.observation + change)


CALLS = []


def count(_):
    CALLS.append(1)
    return np.float32(len(CALLS))


def hidden(timestep):
    return observe(timestep, io_callback(count, jax.ShapeDtypeStruct((), jnp.float32), 0))


BROKEN = {
    "timestep": Altered(Walk(), on_step=lambda t, a: t._replace(info={**t.info, "more": t.reward})),
    "attributes": Walk(action_bound=-1.0),
    "identity": Unequal(),
    "finite": Altered(Walk(), on_step=lambda t, a: observe(t, 1 / (t.reward - t.reward))),
    "horizon": Walk(goal=0.5),
    "reward": Altered(Walk(), on_step=lambda t, a: t._replace(reward=2 * t.reward)),
    "info": Lying(Walk()),
    "clip": Altered(Walk(), on_step=lambda t, a: observe(t, a[0])),
    "deterministic": Altered(Walk(), on_reset=hidden),
    "jit": Altered(
        Walk(), on_step=lambda t, a: observe(t, 0 if isinstance(a, jax.core.Tracer) else 1)
    ),
    "vmap": Altered(Walk(), on_step=lambda t, a: t._replace(reward=doubled(t.reward))),
    "siblings": Altered(
        Walk(), on_step=lambda t, a: observe(t, coupled(t.info["diagnostics"]["deep"]["step"]))
    ),
    "scan": Shuffled(),
    "argument": Numeric(),
    "gradient": Kinked(),
}


def test_every_clause_has_an_environment_that_breaks_it():
    assert set(BROKEN) == set(CLAUSES)


@pytest.mark.parametrize("clause", CLAUSES)
def test_a_broken_environment_is_told_which_clause(clause):
    with pytest.raises(ContractError, match=rf"^{clause}: ") as caught:
        check_env(BROKEN[clause], skip=set(CLAUSES) - {clause})
    assert caught.value.clause == clause and isinstance(caught.value, ValueError)


def test_skipped_clauses_and_unplayable_environments():
    check_env(BROKEN["gradient"], skip=[*EXPENSIVE, "vmap", "siblings", "scan"])
    with pytest.raises(ValueError, match=r"`skip` must be one of .*'grad'"):
        check_env(Walk(), skip=["grad"])
    with pytest.raises(ContractError, match=r"^play: ValueError: no luck"):
        check_env(
            Altered(Walk(), on_step=lambda t, a: (_ for _ in ()).throw(ValueError("no luck")))
        )


def test_the_toy_keeps_the_contract():
    check_env(Walk())

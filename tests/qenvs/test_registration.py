"""Named tasks: make, register, registry."""

import gymnasium
import jax
import numpy as np
import pytest

import qenvs
from qenvs import TaskSpec
from qenvs.wrappers import EpisodeStatistics, GymnasiumEnv
from systems import Walk


@pytest.fixture
def clean():
    """Forget what a test registers."""
    ours, theirs = dict(qenvs.registry), dict(gymnasium.registry)
    yield
    for registry, before in ((qenvs.registry, ours), (gymnasium.registry, theirs)):
        registry.clear()
        registry.update(before)


def small_walk(*, horizon=3):
    return EpisodeStatistics(Walk(horizon=horizon))


@pytest.mark.claims("G-IF-1")
def test_public_names_and_the_registry():
    spec = qenvs.registry["qubit/StateTransfer-v0"]
    assert isinstance(spec, TaskSpec) and spec.id == "qubit/StateTransfer-v0"
    assert spec.kwargs()["horizon"] == 20 and "qubit" in spec.summary
    assert {"TaskSpec", "make", "register", "registry", "Environment"} <= set(dir(qenvs))
    env = qenvs.make("qubit/StateTransfer-v0")
    assert isinstance(env, qenvs.Environment)
    state, timestep = env.reset(jax.random.PRNGKey(0))
    assert isinstance(state, qenvs.EnvState) and isinstance(timestep, qenvs.TimeStep)


@pytest.mark.parametrize("task", sorted(qenvs.registry))
def test_every_id_is_versioned_and_described(task):
    spec = qenvs.registry[task]
    namespace, _, name = task.partition("/")
    assert namespace and name[0].isupper() and name.rpartition("-v")[2].isdigit()
    assert spec.summary and not spec.summary.endswith(".")
    defaults = spec.kwargs()
    assert {"horizon", "dt", "action_bound"} <= set(defaults)
    assert task in gymnasium.registry


@pytest.mark.parametrize("task", [t for t, spec in qenvs.registry.items() if spec.reference])
def test_reference_pulses_fit_their_task(task):
    env = qenvs.make(task)
    pulse = np.asarray(qenvs.registry[task].reference_pulse(env))
    assert pulse.shape == (env.horizon, env.action_dim)
    assert (np.abs(pulse) <= np.asarray(env.action_bound) * (1 + 1e-6)).all()


def test_a_task_without_a_reference_pulse_says_so():
    spec = TaskSpec("toy/Walk-v0", small_walk)
    with pytest.raises(ValueError, match="'toy/Walk-v0' has no reference pulse"):
        spec.reference_pulse(None)


def test_unknown_tasks_list_the_near_ones():
    with pytest.raises(ValueError, match=r"'qubit/StateTransfer-v1'; did you mean 'qubit/State"):
        qenvs.make("qubit/StateTransfer-v1")
    with pytest.raises(ValueError, match=r"unknown task 'x'; known: .*qubit/StateTransfer-v0"):
        qenvs.make("x")


def test_unknown_arguments_list_the_near_ones():
    with pytest.raises(TypeError, match="no keyword argument 'detunning'; did you mean 'detuning'"):
        qenvs.make("qubit/StateTransfer-v0", detunning=0.1)
    with pytest.raises(TypeError, match="no keyword argument 'zzz'; known: action_bound, det"):
        qenvs.make("qubit/StateTransfer-v0", zzz=1)


@pytest.mark.parametrize(
    ("kwargs", "error", "match"),
    [
        ({"horizon": 0}, ValueError, "`horizon` must be >= 1, got 0"),
        (
            {"horizon": 2**24 + 1},
            ValueError,
            "`horizon` must be <= 16777216, .* got 16777217; .*dt",
        ),
        ({"horizon": 2.5}, TypeError, "`horizon` must be an integer"),
        ({"dt": 0}, ValueError, "`dt` must be > 0"),
        ({"dt": np.nan}, ValueError, "`dt` must be finite"),
        ({"action_bound": -1}, ValueError, "`action_bound` must be > 0"),
        ({"action_bound": [1.0, 2.0]}, ValueError, "`action_bound` must be one number or 1"),
        ({"gamma1": -0.1}, ValueError, "`gamma1` must be >= 0"),
        ({"detuning": np.inf}, ValueError, "`detuning` must be finite"),
        ({"detuning": "much"}, TypeError, "must be a real number"),
        ({"initial": "up"}, ValueError, "`initial` must be one of 'ground', 'excited'"),
    ],
)
def test_values_out_of_range_are_refused(kwargs, error, match):
    with pytest.raises(error, match=match):
        qenvs.make("qubit/StateTransfer-v0", **kwargs)


def test_a_task_of_ones_own(clean):
    spec = qenvs.register("toy/Walk-v0", small_walk, "walk a line")
    assert qenvs.registry["toy/Walk-v0"] == spec
    assert qenvs.make("toy/Walk-v0", horizon=5).horizon == 5
    again = qenvs.register("toy/Walk-v0", small_walk, "walk on")
    assert qenvs.registry["toy/Walk-v0"] == again and again.summary == "walk on"
    with pytest.raises(ValueError, match="'toy/Walk-v0' is registered already"):
        qenvs.register("toy/Walk-v0", lambda: small_walk())
    env = gymnasium.make("toy/Walk-v0", horizon=1)
    assert isinstance(env.unwrapped, GymnasiumEnv)
    env.reset(seed=0)
    assert env.step(np.ones(1, np.float32))[2]


def test_entry_points_as_text_load_on_first_use(clean):
    spec = qenvs.register("toy/Lazy-v0", "a_module_that_does_not_exist:make")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_does_not_exist"):
        spec.load()
    with pytest.raises(ModuleNotFoundError):
        qenvs.make("toy/Lazy-v0")

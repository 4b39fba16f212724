"""Pulse files: exact round trips, stated units and kind, resampling, the complex envelope."""

import json
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import qenvs
from qenvs import pulses
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models import HamiltonianModel
from qenvs.pulses import Pulse

TASK = "qubit/StateTransfer-v0"


def a_pulse(actions=((0.1,), (0.2,)), **changes):
    fields = {
        "actions": np.array(actions),
        "dt": 0.1,
        "control_names": ("u",),
        "time_unit": "ns",
        "amplitude_unit": "rad/ns",
        "kind": "applied",
    }
    return Pulse(**(fields | changes))


def test_PU_1_export_import_replay_is_exact(tmp_path):
    settings = {"detuning": 0.1, "gamma1": 1 / 3, "action_bound": 2.5, "horizon": 7, "dt": 0.3}
    env = qenvs.make(TASK, **settings)
    actions = np.random.default_rng(0).normal(size=(7, 1)).astype(np.float32)
    final, _ = env.rollout(actions)
    saved = pulses.from_actions(env, actions, "applied", task=TASK, task_kwargs=settings)
    pulse = pulses.load(saved.save(tmp_path / "pulse.json"))
    again, _ = pulse.environment().rollout(pulse.actions)
    assert float(again.value) == float(final.value)
    np.testing.assert_array_equal(pulse.actions, actions)
    assert (pulse.dt, pulse.bound, pulse.task_kwargs) == (0.3, (2.5,), settings)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_every_float64_survives_the_file(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("pulse") / "p.json"
    pulse = a_pulse([[v] for v in values])
    assert pulses.load(pulse.save(path)).actions.tobytes() == pulse.actions.tobytes()


def test_PU_3_the_file_states_units_and_scale(tmp_path):
    env = qenvs.make(TASK)
    path = pulses.from_actions(env, np.zeros((20, 1)), "applied").save(tmp_path / "p.json")
    record = json.loads(path.read_text())
    assert (record["format"], record["version"]) == ("qenvs-pulse", 1)
    assert (record["time_unit"], record["amplitude_unit"]) == ("1/omega0", "omega0")
    assert (record["dt"], record["bound"], record["control_names"]) == (0.1, [2.0], ["u"])


@pytest.mark.parametrize(
    ("task", "time", "amplitude"),
    [
        ("battery/Dicke-v0", "1/omega0", "omega0"),
        ("transfer/LambdaSTIRAP-v0", "1/Rabi frequency", "Rabi frequency"),
        ("transmon/XGate-v0", "ns", "rad/ns"),
        ("transmon/CRGate-v0", "ns", "rad/ns"),
    ],
)
def test_a_pulse_has_the_units_of_its_model(task, time, amplitude):
    env = qenvs.make(task)
    pulse = pulses.from_actions(env, np.zeros((env.horizon, env.action_dim)), "applied")
    assert (pulse.time_unit, pulse.amplitude_unit) == (time, amplitude)


def test_a_model_that_states_no_units_gets_none():
    model = HamiltonianModel.from_operators(
        np.zeros((2, 2)), {"u": np.array([[0, 1], [1, 0]])}, initial_state=np.array([1, 0])
    )
    env = StateTransfer(model, 4, 0.1, 1.0, target=np.array([0, 1]))
    pulse = pulses.from_actions(env, np.zeros((4, 1)), "applied")
    assert (pulse.time_unit, pulse.amplitude_unit) == ("", "")


def test_a_pulse_fits_where_interval_and_units_are_its_own():
    pulse = a_pulse(dt=0.1, time_unit="1/omega0", amplitude_unit="omega0")
    assert pulse.fitting(qenvs.make(TASK)) is pulse.actions
    with pytest.raises(ValueError, match=r"intervals of 0\.1, this environment of 0\.3"):
        pulse.fitting(qenvs.make(TASK, dt=0.3))
    for task in ("transmon/XGate-v0", "transfer/LambdaSTIRAP-v0"):
        with pytest.raises(ValueError, match="time_unit '1/omega0', this environment "):
            pulse.fitting(qenvs.make(task, dt=0.1))
    with pytest.raises(ValueError, match="amplitude_unit 'MHz', this environment 'omega0'"):
        a_pulse(amplitude_unit="MHz", time_unit="").fitting(qenvs.make(TASK))


def test_infinite_arguments_survive_the_file(tmp_path):
    given = {"t1_us": math.inf, "notes": ["-inf", -math.inf, 1.5], "name": "info"}
    path = a_pulse(task_kwargs=given).save(tmp_path / "p.json")

    def refuse(constant):
        raise AssertionError(constant)

    json.loads(path.read_text(), parse_constant=refuse)
    again = pulses.load(path).task_kwargs
    assert again == {**given, "notes": [-math.inf, -math.inf, 1.5]}


def test_PU_3_the_modulus_is_checked_on_the_complex_value():
    pulse = a_pulse([[0.6, 0.6], [0.8, 0.8]], control_names=("I", "Q"))
    np.testing.assert_allclose(pulse.envelope(2.0, "I", "Q"), [0.3 + 0.3j, 0.4 + 0.4j])
    with pytest.raises(ValueError, match=r"full_scale = 1 rad/ns, got 1.13137 in interval 1"):
        pulse.envelope(1.0, "I", "Q")
    with pytest.raises(ValueError, match="'I', 'Q'"):
        pulse.envelope(2.0, "I", "X")


def test_PU_3_padding_is_opt_in_and_reported(tmp_path):
    pulse = a_pulse(np.ones((10, 1)), metrics={"fidelity": 0.5})
    with pytest.raises(ValueError, match="pad_to=1"):
        pulse.resample(0.3)
    padded = pulse.resample(0.3, pad_to=1)
    assert padded.padding == pytest.approx(0.2)
    np.testing.assert_allclose(padded.actions[:, 0], [1, 1, 1, 1 / 3])
    assert pulses.load(padded.save(tmp_path / "p.json")).padding == padded.padding
    longer = pulse.resample(0.05, pad_to=16)
    assert longer.actions.shape == (32, 1)
    assert longer.padding == pytest.approx(0.6)
    assert longer.metrics == {}
    assert pulse.resample(0.05).padding == 0


def test_PU_5_the_file_says_commanded_or_applied(tmp_path):
    commanded = a_pulse([[3.0], [-3.0], [1.0]], kind="commanded", bound=(2.0,))
    assert pulses.load(commanded.save(tmp_path / "p.json")).kind == "commanded"
    applied = commanded.applied()
    assert applied.kind == "applied"
    assert applied.actions[:, 0].tolist() == [2.0, -2.0, 1.0]
    with pytest.raises(ValueError, match="'commanded', 'applied'"):
        a_pulse(kind="wanted")


@pytest.mark.parametrize("new", [0.05, 0.1, 0.2, 0.5, 0.25, 1 / 30])
def test_resampling_keeps_the_area_under_every_control(new):
    actions = np.random.default_rng(1).normal(size=(10, 2))
    pulse = a_pulse(actions, control_names=("I", "Q"))
    resampled = pulse.resample(new)
    assert resampled.duration == pytest.approx(pulse.duration)
    np.testing.assert_allclose(resampled.actions.sum(0) * new, actions.sum(0) * 0.1, atol=1e-12)


def test_a_finer_grid_repeats_values_exactly():
    pulse = a_pulse([[0.1], [0.7], [-0.3]])
    assert pulse.resample(0.1 / 3).actions.tolist() == np.repeat(pulse.actions, 3, 0).tolist()


def test_a_coarser_grid_takes_means():
    assert a_pulse([[1.0], [3.0], [5.0]]).resample(0.15).actions[:, 0] == pytest.approx(
        [5 / 3, 13 / 3]
    )


def test_a_resampled_pulse_replays_on_its_own_grid():
    env = qenvs.make(TASK)
    actions = np.random.default_rng(2).uniform(-2, 2, (20, 1))
    pulse = pulses.from_actions(env, actions, "applied", task=TASK)
    fine = pulse.resample(0.025)
    replayed, _ = fine.environment().rollout(fine.actions)
    assert float(replayed.value) == pytest.approx(float(env.rollout(actions)[0].value), abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"actions": [0.1, 0.2]}, ValueError, r"\(N, 1\) with N >= 1"),
        ({"actions": np.zeros((0, 1))}, ValueError, "N >= 1"),
        ({"actions": [[np.nan]]}, ValueError, "finite"),
        ({"actions": [["a"]]}, TypeError, "real number"),
        ({"actions": [[1j]]}, TypeError, "real number"),
        ({"dt": 0}, ValueError, "`dt` must be > 0"),
        ({"dt": "0.1"}, TypeError, "real number"),
        ({"bound": (1.0, 2.0)}, ValueError, "`bound` must have shape"),
        ({"bound": (-1.0,)}, ValueError, "`bound` must be > 0"),
        ({"time_unit": None}, TypeError, "time_unit"),
        ({"metrics": {"fidelity": np.inf}}, ValueError, "`fidelity` must be finite"),
        ({"padding": -1.0}, ValueError, "padding"),
    ],
)
def test_a_pulse_refuses_what_makes_no_sense(changes, error, message):
    with pytest.raises(error, match=message):
        a_pulse(**({"actions": [[0.1]]} | changes))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[1, 2]", "is not a pulse file"),
        ('{"format": "other"}', "is not a pulse file"),
        ('{"format": "qenvs-pulse", "version": 2}', "version 2, this qenvs reads 1"),
        ('{"format": "qenvs-pulse", "version": 1, "colour": 3}', "colour"),
        ('{"format": "qenvs-pulse", "version": 1, "dt": 1}', "required"),
    ],
)
def test_a_bad_file_is_named(tmp_path, text, message):
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as caught:
        pulses.load(path)
    assert "bad.json" in str(caught.value)


def test_a_file_with_nan_is_refused(tmp_path):
    path = a_pulse().save(tmp_path / "p.json")
    path.write_text(path.read_text().replace("[0.2]", "[NaN]"))
    with pytest.raises(ValueError, match="finite"):
        pulses.load(path)


def test_jax_numbers_in_the_settings_become_plain_ones(tmp_path):
    pulse = a_pulse(task=TASK, task_kwargs={"detuning": jax.numpy.float32(0.1)})
    assert pulses.load(pulse.save(tmp_path / "p.json")).task_kwargs["detuning"] == np.float32(0.1)
    with pytest.raises(TypeError, match="numbers, texts and lists"):
        a_pulse(task_kwargs={"method": object()}).save(tmp_path / "q.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.json"]


def test_without_a_task_there_is_nothing_to_rebuild():
    with pytest.raises(ValueError, match="names no task"):
        a_pulse().environment()


def test_actions_are_kept_in_double_precision():
    assert a_pulse(jax.numpy.ones((2, 1), "float32")).actions.dtype == np.float64
    assert a_pulse([[1], [2]]).actions.dtype == np.float64


def test_a_pulse_does_not_change_with_the_array_it_came_from():
    source = np.ones((2, 1))
    pulse = a_pulse(source)
    source[0] = 5
    assert pulse.actions[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        pulse.actions[0] = 3

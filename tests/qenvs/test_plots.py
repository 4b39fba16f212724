"""Figures show the numbers they are given; frames of an episode are images of one fixed size."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import qenvs
from qenvs import plots
from qenvs.envs import StateTransfer
from qenvs.envs.gate import GateControl
from qenvs.models.custom import HamiltonianModel
from qenvs.plots.sphere import ELEVATION

RNG = np.random.default_rng(0)


@pytest.fixture
def ax():
    return plots.figure()[1]


def episode(env, actions):
    state, _ = env.reset(jax.random.PRNGKey(0))
    states = [state]
    for action in actions:
        state, _ = env.step(state, action)
        states.append(state)
    return states


def test_a_pulse_is_drawn_as_held_over_whole_intervals(ax):
    actions = RNG.normal(size=(4, 2))
    same = plots.pulse(ax, actions, 0.5, names=("I", "Q"), time_unit="ns", amplitude_unit="rad/ns")
    assert same is ax
    for patch, values in zip(ax.patches, actions.T, strict=True):
        np.testing.assert_array_equal(patch.get_data().values, values)
        np.testing.assert_allclose(patch.get_data().edges, [0, 0.5, 1, 1.5, 2])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (ns)", "control (rad/ns)")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["I", "Q"]
    assert ax.get_xlim() == (0, 2)


def test_bounds_are_drawn_on_both_sides(ax):
    plots.pulse(ax, [[1.0]], 0.1, bound=2.0)
    levels = {line.get_ydata()[0] for line in ax.get_lines()}
    assert levels == {-2, 0, 2}


def test_units_are_spelled_with_symbols():
    assert plots.with_unit("time", "1/omega0") == "time (1/ω₀)"
    assert plots.with_unit("time", "") == "time"


def test_populations_of_kets_and_density_matrices_agree(ax):
    kets = RNG.normal(size=(5, 3)) + 1j * RNG.normal(size=(5, 3))
    kets /= np.linalg.norm(kets, axis=1, keepdims=True)
    matrices = kets[:, :, None] * kets[:, None, :].conj()
    plots.populations(ax, kets, 0.1)
    other = plots.populations(plots.figure()[1], matrices, 0.1)
    assert len(ax.get_lines()) == 3
    for first, second in zip(ax.get_lines(), other.get_lines(), strict=True):
        np.testing.assert_allclose(first.get_xydata(), second.get_xydata(), atol=1e-12)


def test_progress_shows_every_value(ax):
    plots.progress(ax, [0.0, 0.5, 1.0], 2.0)
    np.testing.assert_array_equal(ax.get_lines()[0].get_xydata(), [(0, 0), (2, 0.5), (4, 1)])


def test_the_learning_curve_is_the_median_within_its_bands(ax):
    values = RNG.uniform(size=(5, 4))
    plots.learning_curve(ax, [1, 2, 3, 4], values)
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), np.median(values, axis=0))
    outer = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (outer.min(), outer.max()) == pytest.approx((values.min(), values.max()))
    assert "median of 5 seeds" in [text.get_text() for text in ax.get_legend().get_texts()]


def test_one_seed_has_no_median(ax):
    plots.learning_curve(ax, [1, 2], [0.5, 0.6], label="PPO")
    assert ax.get_legend().get_texts()[-1].get_text() == "PPO, 1 seed"


@pytest.mark.parametrize(
    ("ket", "vector"),
    [
        ([1, 0], (0, 0, 1)),
        ([0, 1], (0, 0, -1)),
        ([0.5**0.5, 0.5**0.5], (1, 0, 0)),
        ([0.5**0.5, 1j * 0.5**0.5], (0, 1, 0)),
    ],
)
def test_bloch_vectors_of_the_six_directions(ket, vector):
    ket = np.array(ket)
    np.testing.assert_allclose(plots.bloch_vectors([ket])[0], vector, atol=1e-12)
    mixed = 0.5 * np.outer(ket, ket.conj()) + 0.25 * np.eye(2)
    np.testing.assert_allclose(plots.bloch_vectors([mixed])[0], np.multiply(0.5, vector), atol=1e-9)


def test_the_bloch_sphere_takes_qubits_only(ax):
    with pytest.raises(ValueError, match=r"\(N, 2\)"):
        plots.bloch(ax, np.zeros((4, 3)))


def test_the_path_ends_at_the_last_state(ax):
    plots.bloch(ax, [[1, 0], [0.5**0.5, -1j * 0.5**0.5], [0, 1]])
    tip = next(line for line in ax.get_lines() if line.get_label() == "tip")
    x, y = tip.get_xydata()[0]
    assert x == pytest.approx(0, abs=1e-12)
    assert y == pytest.approx(-np.cos(ELEVATION))


def test_a_frame_per_step_of_one_size_each_different():
    env = qenvs.make("qubit/StateTransfer-v0", horizon=4)
    actions = np.full((4, 1), 1.5)
    states = episode(env, actions)
    frames = [plots.frame(env, actions[:k], states[: k + 1]) for k in range(5)]
    assert {(f.shape, f.dtype, f.flags.writeable) for f in frames} == {
        ((480, 960, 3), np.dtype("uint8"), True)
    }
    assert len({f.tobytes() for f in frames}) == 5
    again = plots.frame(env, actions[:2], states[:3])
    np.testing.assert_array_equal(again, frames[2])


def test_a_frame_shows_the_clipped_pulse():
    env = qenvs.make("qubit/StateTransfer-v0", horizon=2)
    states = episode(env, [[9.0], [2.0]])
    np.testing.assert_array_equal(
        plots.frame(env, [[9.0], [2.0]], states), plots.frame(env, [[2.0], [2.0]], states)
    )


def test_an_open_system_is_drawn_inside_the_sphere():
    env = qenvs.make("qubit/StateTransfer-v0", horizon=2, gamma_phi=0.5)
    states = episode(env, np.ones((2, 1)))
    assert plots.frame(env, np.ones((2, 1)), states).shape == (480, 960, 3)


def test_a_wrapped_environment_gives_the_frame_of_the_inner_one():
    inner = qenvs.make("qubit/StateTransfer-v0", horizon=2)
    env = qenvs.wrappers.EpisodeStatistics(inner)
    actions = np.ones((2, 1))
    outside, inside = episode(env, actions), episode(inner, actions)
    np.testing.assert_array_equal(
        plots.frame(env, actions, outside), plots.frame(inner, actions, inside)
    )


@pytest.mark.parametrize(
    ("task", "settings"),
    [
        ("transfer/LambdaSTIRAP-v0", {}),
        ("battery/TwoLevel-v0", {"reward": "ergotropy", "gamma1": 0.1}),
        ("battery/Dicke-v0", {"n_cells": 4}),
    ],
)
def test_frames_of_every_kind_of_system(task, settings):
    env = qenvs.make(task, horizon=2, **settings)
    actions = np.full((2, env.action_dim), 0.4)
    assert plots.frame(env, actions, episode(env, actions)).shape == (480, 960, 3)


@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_gate_is_shown_by_what_it_does_to_the_initial_state(rate, mixed):
    ket = np.array([0.6, 0.8j])
    start = 0.9 * np.outer(ket, ket.conj()) + 0.05 * np.eye(2) if mixed else ket
    lowering, sigma_x = np.array([[0, 1], [0, 0]]), np.array([[0, 1], [1, 0]])
    jumps = [np.sqrt(rate) * lowering] if rate else []
    drift = np.diag([0.3, -0.3])
    model = HamiltonianModel.from_operators(drift, [sigma_x / 2], jumps, start)
    actions = np.array([[1.0], [-0.4]])
    state_env = StateTransfer(model, 2, 0.1, 2.0, target=[1, 0])
    gate_env = GateControl(model, 2, 0.1, 2.0, target=np.eye(2))
    gate = plots.state_arrays(gate_env, episode(gate_env, actions))
    state = plots.state_arrays(state_env, episode(state_env, actions))
    vectors = plots.bloch_vectors(gate), plots.bloch_vectors(state)
    np.testing.assert_allclose(*vectors, atol=1e-5)


def test_PK_3_without_matplotlib_the_extra_is_named():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from qenvs import plots\n"
        "try: plots.figure()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "'.[plots]'" in done.stdout


def test_figures_leave_the_state_of_pyplot_alone():
    code = (
        "import sys, qenvs; qenvs.plots.figure()[0].savefig('/dev/null', format='png')\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_one_update_is_a_point_and_equal_values_have_few_ticks(recwarn):
    figure, (left, right) = plots.figure(1, 2)
    plots.learning_curve(left, [100], [[0.5], [0.7]])
    plots.histogram(right, np.full(10, 0.99643917))
    figure.canvas.draw()
    assert not [w for w in recwarn if "identical" in str(w.message)]
    assert left.get_lines()[-1].get_marker() == "o" and len(right.get_xticks()) <= 7

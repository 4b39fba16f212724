"""`qenvs evaluate`: what it takes, prints and leaves on disk."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qenvs
from qenvs import controllers, plots, pulses, robust
from qenvs.cli import evaluating, uncertainty
from qenvs.controllers.policy import MLP
from qenvs.distributions import Normal, OrnsteinUhlenbeck, TruncatedNormal, Uniform
from qenvs.wrappers import ControlErrors, ObservationModel, ParameterRandomization

TASK = "qubit/StateTransfer-v0"
UNCERTAIN = ("--randomize", "detuning=normal:0.3", "--control-noise", "normal:0.1")


# --- syntax ---


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (None, {}),
        (["detuning=normal:0.05"], {"detuning": Normal(0.05)}),
        (["a=uniform:.1", "b=normal:0"], {"a": Uniform(0.1), "b": Normal(0)}),
        (["wc=truncated:0.1,-0.2,3e-1"], {"wc": TruncatedNormal(0.1, -0.2, 0.3)}),
    ],
)
def test_parameters_are_read(words, found):
    assert uncertainty.parse_parameters(words) == found


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (None, {}),
        (["normal:0.02"], {"step_noise": Normal(0.02)}),
        (["step_noise=uniform:0.02"], {"step_noise": Uniform(0.02)}),
        (
            ["amplitude_scale=normal:0.1", "offset=uniform:0.2"],
            {"amplitude_scale": Normal(0.1), "offset": Uniform(0.2)},
        ),
        (["coloured_noise=ou:2,0.1"], {"coloured_noise": OrnsteinUhlenbeck(2, 0.1)}),
    ],
)
def test_control_errors_are_read(words, found):
    assert uncertainty.parse_errors(words) == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--randomize", "detuning"], "NAME=DIST, e.g. detuning=normal:0.05, got 'detuning'"),
        (["--randomize", "=normal:1"], "NAME=DIST"),
        (["--randomize", "detuning=norml:1"], "did you mean 'normal'"),
        (["--randomize", "detuning=0.1"], "write normal:STD or uniform:HALF_WIDTH or truncated:"),
        (["--randomize", "detuning=normal"], "must read normal:STD"),
        (["--randomize", "detuning=normal:a"], "must read normal:STD: could not convert"),
        (["--randomize", "detuning=truncated:1"], "truncated:STD,LOW,HIGH: got 1 of 3 numbers"),
        (["--randomize", "detuning=normal:-1"], "`std` must be >= 0, got -1"),
        (["--randomize", "detunin=normal:1"], "did you mean 'detuning'"),
        (["--randomize", "gamma1=normal:1"], "cannot be randomised: a dissipation rate"),
        (["--randomize", "detuning=normal:1"] * 2, "'detuning' is given twice"),
        (["--control-noise", "step_nois=normal:1"], "did you mean 'step_noise'"),
        (["--control-noise", "ou:1,2"], "'ou:1,2' names no distribution"),
        (["--control-noise", "coloured_noise=normal:1"], "write ou:THETA,SIGMA"),
        (["--control-noise", "normal:1", "--control-noise", "step_noise=normal:1"], "given twice"),
        (["--correlated"], "--correlated goes with --control-noise"),
        (["--shots", "0"], "--shots"),
        (["--shots", "10"], "'energy' and 'p1' are the same operator"),
        (["--shots", "10", "--observables", "p2"], "did you mean 'p1'"),
        (["--set", "detunin=1"], "did you mean 'detuning'"),
        (["--n", "0"], "--n"),
        (["--pulse", "a.json", "--policy", "b"], "--pulse or --policy, not both"),
        (["--policy", "other"], "holds a policy for transmon/XGate-v0, not for qubit"),
    ],
)
def test_wrong_use_is_explained_with_code_2(qenvs_command, tmp_path, words, message):
    policy = controllers.Policy(MLP((jnp.zeros((5, 1)),), (jnp.zeros(1),)), jnp.ones(1))
    controllers.save_policy(tmp_path / "other", policy, task="transmon/XGate-v0")
    code, out, err = qenvs_command("evaluate", TASK, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_a_task_without_a_reference_needs_a_player(qenvs_command):
    code, _, err = qenvs_command("evaluate", "battery/Dicke-v0")
    assert code == 2
    assert "no reference pulse; give --pulse or --policy" in err


# --- what is played ---


def test_the_wrappers_stand_in_their_order():
    seen = {"observation": "expectations", "observables": ["p1"], "shots": 20}
    contest = evaluating.Contest(qenvs.make(TASK), None, "", seen)
    errors = {"offset": Normal(0.1), "correlated": True}
    env = evaluating.with_uncertainty(contest, {"detuning": Normal(0.1)}, errors)
    assert isinstance(env, ObservationModel) and (env.shots, env.observable_names) == (20, ("p1",))
    assert isinstance(env.env, ControlErrors) and env.env.correlated
    assert isinstance(env.env.env, ParameterRandomization)
    assert evaluating.with_uncertainty(
        contest._replace(settings={}), {}, {"correlated": False}
    ) is (contest.env)


def test_the_numbers_are_those_of_the_library(qenvs_command, tmp_path):
    code, out, err = qenvs_command("evaluate", TASK, *UNCERTAIN, "--n", "300", "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")

    task = qenvs.make(TASK)
    env = ParameterRandomization(task, {"detuning": Normal(0.3)})
    env = ControlErrors(env, step_noise=Normal(0.1))
    pulse = qenvs.registry[TASK].reference_pulse(task)
    found = robust.evaluate(env, pulse, jax.random.PRNGKey(0), 300)
    metric = record["metric"]
    assert metric["mean"] == found.metric.mean
    assert metric["cvar"] == found.metric.cvar
    assert metric["minimum"] == found.metric.minimum
    assert metric["quantile 0.05"] == found.metric.quantiles[0.05]
    assert metric["median"] == found.metric.quantiles[0.5]
    assert metric["intervals"]["mean"] == list(found.metric.intervals["mean"])
    assert record["returns"]["mean"] == found.returns.mean
    assert (record["quantity"], record["policy"]) == ("fidelity", "reference pulse")

    folder = tmp_path / record["folder"]
    names = {"config.json", "result.json", "histogram.png"}
    assert {path.name for path in folder.iterdir()} == names
    config = json.loads((folder / "config.json").read_text())
    assert (config["randomize"], config["n"]) == (["detuning=normal:0.3"], 300)
    written = json.loads((folder / "result.json").read_text())
    assert {name: written[name] for name in record} == record
    np.testing.assert_array_equal(written["episodes"]["metric"], found.metric.values.astype(float))
    assert len(written["episodes"]["clip_fraction"]) == len(written["episodes"]["returns"]) == 300
    worst = record["worst"]
    assert worst["episode"] == int(np.argmin(found.metric.values))
    assert abs(worst["detuning"]) > 0.3


def test_the_table_is_for_reading(qenvs_command):
    words = ("--n", "20", "--control-noise", "offset=normal:2")
    code, out, err = qenvs_command("evaluate", TASK, *words)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith(f"{TASK}, reference pulse, 20 episodes in ")
    assert lines[1].split() == ["fidelity", "return"]  # too few episodes for an interval
    rows = {line.rsplit(maxsplit=2)[0]: line.split()[-2:] for line in lines[2:10]}
    assert list(rows) == [
        *("mean", "mean of the lowest 10 %", "lowest"),
        *("quantile 0.05", "quantile 0.25", "median", "quantile 0.75", "quantile 0.95"),
    ]
    assert rows["lowest"] <= rows["median"]
    assert lines[10].startswith("Clipped at the bound: ")
    assert lines[11].startswith("The lowest: episode ")
    assert ", offset " in lines[11]
    assert lines[-1].startswith("Results: runs/qubit-StateTransfer-v0-")
    assert err.splitlines()[-1].startswith("Episodes: 100 %")


def test_a_pulse_brings_its_settings(qenvs_command, tmp_path):
    env = qenvs.make(TASK, detuning=0.2, horizon=6)
    pulse = pulses.from_actions(
        env, [[0.3 * k] for k in range(6)], "applied", task=TASK, task_kwargs={"detuning": 0.2}
    )
    pulse.save(tmp_path / "p.json")
    words = ("--pulse", "p.json", "--n", "1", "--json")
    record = json.loads(qenvs_command("evaluate", TASK, *words)[1])
    assert record["metric"]["mean"] == pytest.approx(
        float(env.rollout(pulse.actions)[0].value), abs=1e-6
    )
    words = (*words, "--shots", "5", "--observables", "p1")
    _, out, err = qenvs_command("evaluate", TASK, *words)
    assert json.loads(out)["metric"]["mean"] == pytest.approx(record["metric"]["mean"], abs=1e-6)
    assert "open loop" in err


def test_a_policy_brings_the_observation_that_it_was_trained_on(qenvs_command, tmp_path):
    (tmp_path / "run").mkdir()
    settings = {"observation": "expectations", "observables": ["p1"], "horizon": 5}
    network = MLP((jnp.array([[1.0], [0.0]]),), (jnp.full(1, 0.4),))
    policy = controllers.Policy(network, jnp.full(1, 2.0))
    path = tmp_path / "run" / "policy.eqx"
    controllers.save_policy(path, policy, task=TASK, task_kwargs=settings)

    words = ("evaluate", TASK, "--policy", "run", "--n", "50", "--json")
    exact = json.loads(qenvs_command(*words)[1])
    episode = controllers.play(qenvs.make(TASK, **settings), policy, jax.random.PRNGKey(0))
    assert exact["metric"]["minimum"] == pytest.approx(float(episode.score), abs=1e-6)
    noisy = json.loads(qenvs_command(*words, "--shots", "4")[1])
    assert exact["metric"]["minimum"] == exact["metric"]["quantile 0.95"]
    assert noisy["metric"]["minimum"] < noisy["metric"]["quantile 0.95"]
    code, _, err = qenvs_command(*words, "--observables", "p1,energy", "--set", "omega0=2")
    assert code == 1
    assert "2 observed numbers" in err and "has 3" in err


def test_a_missing_policy_is_named(qenvs_command):
    code, _, err = qenvs_command("evaluate", TASK, "--policy", "nowhere")
    assert (code, err) == (1, "qenvs: nowhere: No such file or directory\n")


def test_results_come_without_the_picture_where_matplotlib_is_missing(qenvs_command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    code, out, err = qenvs_command("evaluate", TASK, "--n", "1")
    folder = Path(out.splitlines()[-1].removeprefix("Results: "))
    assert code == 0
    assert "histogram.png left out: plots need Matplotlib" in err
    assert (folder / "result.json").exists()


# --- the picture ---


def test_the_histogram_counts_every_episode_once_and_marks_the_tail():
    values = np.random.default_rng(0).permutation(np.arange(1000) / 1000)
    _, ax = plots.figure()
    assert plots.histogram(ax, values, quantity="energy", marks={"mean": 0.5}) is ax
    bars = np.array([[patch.get_height() for patch in group] for group in ax.containers])
    low, other = bars
    assert (low.sum(), other.sum()) == (100, 900)
    assert ax.get_lines()[0].get_xdata()[0] == 0.5
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("energy", "episodes of 1,000")


def test_equal_episodes_are_one_visible_bar():
    _, ax = plots.figure()
    plots.histogram(ax, np.ones(50))
    heights = [patch.get_height() for group in ax.containers for patch in group]
    assert sorted(heights)[-2:] == [5, 45]
    assert ax.get_xlim()[0] < 1 < ax.get_xlim()[1]

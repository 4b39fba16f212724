"""The command line as a user meets it: what it prints, where, and with which exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import qenvs
from qenvs import cli, pulses

TASK = "qubit/StateTransfer-v0"
COMMANDS = "list info run train optimize evaluate validate demo doctor".split()


def in_a_process(*words: str, cwd=None, before="pass") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, after the statement `before`."""
    command = [sys.executable, "-c", f"from qenvs import cli\n{before}\ncli.main()", *words]
    env = os.environ | {"PYTHONPATH": str(Path(qenvs.__file__).parents[1])}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=300)


# --- list, info, help ---


def test_list_names_every_task_one_per_line(qenvs_command):
    code, out, err = qenvs_command("list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()[1:]] == sorted(qenvs.registry)


def test_list_as_json(qenvs_command):
    code, out, err = qenvs_command("list", "--json")
    tasks = {task["id"]: task for task in json.loads(out)}
    assert (code, err) == (0, "")
    assert tasks[TASK] == {
        "id": TASK,
        "summary": qenvs.registry[TASK].summary,
        "has_reference": True,
    }


def test_list_loads_nothing_heavy():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from qenvs import cli\n"
        "assert cli.run(['list']) == 0\n"
        "print([m for m in ('dynamiqs', 'qutip', 'matplotlib', 'optax') if m in sys.modules])"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.splitlines()[-1] == "[]"


def test_info_describes_the_task(qenvs_command):
    code, out, err = qenvs_command("info", TASK)
    text = " ".join(out.split())
    assert (code, err) == (0, "")
    for phrase in (
        "H = (detuning/2) sigma_z + u sigma_x/2",
        "u: from -2 to 2 omega0",
        "20 intervals of 0.1, together 2",
        "info keys: fidelity, energy, p1",
        "detuning = 0.0 qubit minus drive frequency",
        "any number; can be randomised",
        "horizon = 20 number of intervals, >= 1",
        "Constant resonant pulse u = pi/T",
    ):
        assert phrase in text
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("task", sorted(qenvs.registry))
def test_info_knows_what_every_argument_of_every_task_means(qenvs_command, task):
    code, out, _ = qenvs_command("info", task, "--json")
    record = json.loads(out)
    assert code == 0
    assert [a["name"] for a in record["arguments"]] == list(qenvs.registry[task].kwargs())
    assert [a["name"] for a in record["arguments"] if not a["text"]] == []
    assert record["model"]["text"]
    assert set(record["units"]) == {"time", "amplitude"}


def test_info_follows_the_settings(qenvs_command):
    record = json.loads(qenvs_command("info", TASK, "--json", "--set", "horizon=5")[1])
    assert (record["horizon"], record["duration"]) == (5, 0.5)


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_without_a_command_the_help_is_shown(qenvs_command, words):
    code, out, err = qenvs_command(*words)
    assert (code, err) == (0, "")
    for command in COMMANDS:
        assert command in out


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_json(qenvs_command, command):
    code, out, _ = qenvs_command(command, "--help")
    assert code == 0
    assert "--json" in out


def test_version(qenvs_command):
    assert qenvs_command("--version") == (0, f"qenvs {qenvs.__version__}\n", "")


# --- errors ---

USAGE_ERRORS = [
    (["lst"], "list"),
    (["list", "--bad"], "--bad"),
    (["info"], "TASK"),
    (["info", "qubit/StateTransfr-v0"], "did you mean 'qubit/StateTransfer-v0'"),
    (["run", TASK, "--set", "detunin=1"], "did you mean 'detuning'"),
    (["run", TASK, "--set", "dt=-1"], "`dt` must be > 0, got -1"),
    (["run", TASK, "--set", "detuning"], "key=value"),
    (["run", TASK, "--set", "initial=up"], "'ground', 'excited'"),
    (["run", TASK, "--set", "method=Tsit5"], "qenvs.make"),
    (["run", TASK, "--policy", "best"], "reference"),
    (["run", TASK, "--seed", "-1"], "--seed"),
    (["run", "battery/Dicke-v0"], "no reference pulse"),
]


@pytest.mark.parametrize(("words", "message"), USAGE_ERRORS)
def test_wrong_use_is_explained_on_stderr_with_code_2(qenvs_command, words, message):
    code, out, err = qenvs_command(*words)
    assert (code, out) == (2, "")
    assert err.startswith("qenvs: ")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(("words", "message"), USAGE_ERRORS)
def test_wrong_use_is_one_json_object_with_json(qenvs_command, words, message):
    code, out, err = qenvs_command(*words, "--json")
    error = json.loads(err)["error"]
    assert (code, out) == (2, "")
    assert (error["type"], error["exit_code"]) == ("usage", 2)
    assert message in error["message"]


def test_a_failure_has_code_1(qenvs_command):
    words = ("run", TASK, "--pulse", "nowhere.json")
    assert qenvs_command(*words) == (1, "", "qenvs: nowhere.json: No such file or directory\n")
    code, out, err = qenvs_command(*words, "--json")
    assert (code, out) == (1, "")
    assert json.loads(err)["error"]["type"] == "FileNotFoundError"


def test_a_fault_of_ours_shows_where_it_happened(qenvs_command, monkeypatch):
    def broken(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr("qenvs.registration.spec", broken)
    code, out, err = qenvs_command("info", TASK)
    assert (code, out) == (1, "")
    assert "Traceback" in err
    assert err.endswith("qenvs: broken\n")
    code, _, err = qenvs_command("info", TASK, "--json")
    assert code == 1
    assert json.loads(err)["error"] == {
        "type": "RuntimeError",
        "message": "broken",
        "exit_code": 1,
    }


# --- run ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0.5", 0.5),
        (".5", 0.5),
        ("-1e-3", -1e-3),
        ("true", True),
        ("False", False),
        ("none", None),
        ("ground", "ground"),
        ("[1, 2.5]", [1, 2.5]),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_settings_are_typed(text, value):
    parsed = cli.options.parse_settings([f"name={text}"])["name"]
    assert (parsed, type(parsed)) == (value, type(value))


def test_settings_survive_being_written_again():
    given = {"a": 1.5, "b": "ground", "c": True, "d": [1, 2], "e": None}
    assert cli.options.parse_settings(cli.options.as_words(given)[1::2]) == given


def test_the_reference_reaches_its_fidelity(qenvs_command):
    code, out, err = qenvs_command("run", TASK, "--policy", "reference", "--json")
    record = json.loads(out)
    assert (code, err) == (0, "")
    assert abs(record["infidelity"]) <= 1e-5
    assert record["final"]["fidelity"] == pytest.approx(record["return"])


def test_the_reference_in_double_precision():
    done = in_a_process("run", TASK, "--x64", "--json")
    assert done.returncode == 0, done.stderr
    assert abs(json.loads(done.stdout)["infidelity"]) <= 1e-12


def test_run_prints_the_fidelity_and_its_distance_from_1(qenvs_command):
    code, out, _ = qenvs_command("run", TASK, "--policy", "zero")
    assert code == 0
    rows = dict(line.rsplit(maxsplit=1) for line in out.splitlines()[1:])
    assert rows["fidelity"].strip() == "0.00000000"
    assert rows["1 - fidelity"].strip() == "1.000e+00"


def test_the_random_policy_follows_its_seed(qenvs_command):
    def final(seed):
        words = ("run", TASK, "--policy", "random", "--seed", seed, "--json")
        return json.loads(qenvs_command(*words)[1])["final"]["fidelity"]

    assert final("1") == final("1") != final("2")


def test_PU_1_a_saved_pulse_replays_in_the_task_it_was_made_for(qenvs_command, tmp_path):
    settings = {"detuning": 0.2, "horizon": 6}
    env = qenvs.make(TASK, **settings)
    actions = [[0.3 * k] for k in range(6)]
    pulse = pulses.from_actions(env, actions, "applied", task=TASK, task_kwargs=settings)
    pulse.save(tmp_path / "p.json")
    record = json.loads(qenvs_command("run", TASK, "--pulse", "p.json", "--json")[1])
    assert record["final"]["fidelity"] == float(env.rollout(actions)[0].value)
    code, _, err = qenvs_command("run", TASK, "--pulse", "p.json", "--set", "horizon=7")
    assert code == 1
    assert "(6, 1)" in err
    assert "(7, 1)" in err


# --- doctor ---


def test_doctor_plays_an_episode_and_is_content(qenvs_command):
    code, out, err = qenvs_command("doctor", "--json")
    record = json.loads(out)
    assert (code, err, record["ok"]) == (0, "", True)
    checks = {check["name"]: check for check in record["checks"]}
    assert {"python", "jax", "extra gym", "extra plots", "device", "episode"} <= set(checks)
    assert "1-F" in checks["episode"]["found"]


def test_doctor_says_what_to_do_about_what_is_missing(qenvs_command, monkeypatch):
    monkeypatch.setitem(cli.doctor.EXTRAS, "plots", ("no-such-package",))
    monkeypatch.setattr(cli.doctor, "BASE", ("no-base-package",))
    code, out, _ = qenvs_command("doctor")
    assert code == 1
    assert "pip install '.[plots]'" in out
    assert "pip install no-base-package" in out


# --- optimize ---


def test_optimize_finds_a_pulse_and_leaves_it_on_disk(qenvs_command, tmp_path):
    code, out, err = qenvs_command("optimize", TASK, "--json", "--seed", "3")
    record = json.loads(out)
    folder = tmp_path / record["folder"]
    assert (code, err) == (0, "")
    assert record["final"]["fidelity"] > 0.9999
    assert folder.name.startswith("qubit-StateTransfer-v0-")
    assert {p.name for p in folder.iterdir()} == {
        *("config.json", "pulse.json", "pulse.png", "result.json")
    }
    config = json.loads((folder / "config.json").read_text())
    assert (config["task"], config["seed"], config["task_kwargs"]) == (TASK, 3, {})
    pulse = pulses.load(folder / "pulse.json")
    assert pulse.kind == "applied"
    final, _ = pulse.environment().rollout(pulse.actions)
    assert float(final.value) == pulse.metrics["fidelity"] == record["final"]["fidelity"]


def test_optimize_ends_with_the_path_of_its_results(qenvs_command):
    code, out, _ = qenvs_command("optimize", TASK, "--max-iterations", "1", "--quiet")
    assert code == 0
    assert out.splitlines()[-1].startswith("Results: runs/qubit-StateTransfer-v0-")


def test_optimize_goes_on_from_a_pulse_file(qenvs_command):
    first = json.loads(qenvs_command("optimize", TASK, "--json")[1])
    guess = f"{first['folder']}/pulse.json"
    again = json.loads(qenvs_command("optimize", TASK, "--json", "--guess", guess)[1])
    history = json.loads(Path(again["folder"], "result.json").read_text())["history"]
    assert history[0] == first["final"]["fidelity"]
    assert again["folder"] != first["folder"]


def test_an_interrupted_search_says_how_to_go_on(qenvs_command, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.output.Progress, "update", interrupt)
    code, out, err = qenvs_command("optimize", TASK, "--set", "horizon=8")
    assert (code, out) == (130, "")
    resume = err.split("To go on: qenvs ")[1].split()
    assert resume[:2] == ["optimize", TASK]
    assert resume[4:] == "--set horizon=8 --output runs --max-iterations 1000".split()
    assert pulses.load(resume[3]).actions.shape == (8, 1)


def test_a_command_with_nothing_to_resume_says_that_it_was_interrupted(qenvs_command, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("qenvs.registration.make", interrupt)
    monkeypatch.setattr("qenvs.make", interrupt)
    assert qenvs_command("run", TASK) == (130, "", "qenvs: interrupted\n")
    error = json.loads(qenvs_command("run", TASK, "--json")[2])["error"]
    assert error == {"type": "interrupted", "message": "interrupted", "exit_code": 130}


# --- train and demo ---

SMALL = [
    word
    for setting in ("num_updates=3", "num_envs=4", "num_minibatches=2", "epochs=1", "width=8")
    for word in ("--ppo", setting)
]


def test_train_leaves_policy_pulse_curve_and_config(qenvs_command, tmp_path):
    code, out, err = qenvs_command(
        "train", TASK, "--seeds", "2", "--seed", "5", "--set", "horizon=4", *SMALL, "--json"
    )
    record = json.loads(out)
    folder = tmp_path / record["folder"]
    assert (code, err) == (0, "")
    assert (record["seeds"], record["environment_steps"]) == ([5, 6], 2 * 3 * 4 * 4)
    assert record["mean"] == pytest.approx(sum(record["scores"]) / 2)
    assert {p.name for p in folder.iterdir()} == {
        *("config.json", "checkpoint.eqx", "result.json", "policy.eqx"),
        *("pulse.json", "pulse.png", "learning_curve.png"),
    }
    config = json.loads((folder / "config.json").read_text())
    assert (config["ppo"]["num_updates"], config["ppo"]["learning_rate"]) == (3, 3e-3)
    policy, header = qenvs.controllers.load_policy(folder / "policy.eqx")
    assert (header["task"], header["task_kwargs"]) == (TASK, {"horizon": 4})
    pulse = pulses.load(folder / "pulse.json")
    episode = qenvs.controllers.play(pulse.environment(), policy, jax.random.PRNGKey(0))
    assert pulse.metrics["fidelity"] == pytest.approx(float(episode.score), abs=1e-6)
    assert max(record["scores"]) == pytest.approx(float(episode.score), abs=1e-6)


def test_a_finished_run_can_be_resumed_and_says_the_same(qenvs_command):
    first = json.loads(qenvs_command("train", TASK, "--seeds", "1", *SMALL, "--json")[1])
    policy = Path(first["folder"], "policy.eqx").read_bytes()
    again = json.loads(qenvs_command("train", "--resume", first["folder"], "--json")[1])
    assert again | {"seconds": 0} == first | {"seconds": 0}
    assert Path(first["folder"], "policy.eqx").read_bytes() == policy


def test_train_prints_a_table_and_its_progress(qenvs_command):
    code, out, err = qenvs_command("train", "battery/TwoLevel-v0", "--seeds", "2", *SMALL)
    lines = out.splitlines()
    assert code == 0
    assert "2 agents, 480 environment steps" in lines[0]
    assert [line.split()[0] for line in lines[1:-1]] == ["seed", "0", "1", "mean"]
    assert lines[1].split() == ["seed", "energy"]
    assert lines[-1].startswith("Results: runs/battery-TwoLevel-v0-")
    assert err.splitlines()[-1].startswith("Agents: 100 %")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a TASK"),
        ([TASK, "--ppo", "num_update=3"], "did you mean 'num_updates'"),
        ([TASK, "--ppo", "num_updates=0"], "`num_updates` must be >= 1"),
        ([TASK, "--ppo", "clip=a"], "`clip` must be a number"),
        ([TASK, "--seeds", "0"], "--seeds"),
        (["--resume", "here", "--seed", "1"], "leave out --seed"),
        (["battery/TwoLevel-v0", "--resume", "here"], "leave out TASK"),
    ],
)
def test_train_explains_wrong_use(qenvs_command, tmp_path, words, message):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "config.json").write_text(json.dumps({"task": TASK, "seeds": [0]}))
    code, out, err = qenvs_command("train", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_resuming_what_is_no_run_fails(qenvs_command, tmp_path):
    code, _, err = qenvs_command("train", "--resume", str(tmp_path))
    assert code == 1
    assert "config.json" in err


def signalled(name: str) -> str:
    """A statement that makes a training run send itself a signal after its first checkpoint."""
    kill = f"os.kill(os.getpid(), signal.{name})"
    return f"import os, signal; cli.output.Progress.update = lambda *_: {kill}"


@pytest.mark.slow
def test_a_killed_run_that_is_resumed_ends_with_the_same_bits(qenvs_command, tmp_path):
    words = (TASK, "--seeds", "2", "--x64", *SMALL)
    where = ("--output", "killed")
    killed = in_a_process("train", *words, *where, cwd=tmp_path, before=signalled("SIGKILL"))
    assert killed.returncode < 0
    (folder,) = (tmp_path / "killed").iterdir()
    assert not (folder / "policy.eqx").exists()
    resumed = in_a_process("train", "--resume", str(folder), "--json", cwd=tmp_path)
    whole = in_a_process("train", *words, "--json", cwd=tmp_path)
    first, second = (json.loads(done.stdout) for done in (resumed, whole))
    assert first["scores"] == second["scores"]
    for name in ("policy.eqx", "checkpoint.eqx", "pulse.json"):
        other = tmp_path / second["folder"] / name
        assert (folder / name).read_bytes() == other.read_bytes()


def test_ctrl_c_says_where_the_results_are_and_how_to_go_on(tmp_path):
    words = ("train", TASK, "--seeds", "1", *SMALL)
    done = in_a_process(*words, cwd=tmp_path, before=signalled("SIGINT"))
    (folder,) = (tmp_path / "runs").iterdir()
    assert (done.returncode, done.stdout) == (130, "")
    assert (folder / "checkpoint.eqx").exists()
    assert done.stderr.endswith(f"To go on: qenvs train --resume runs/{folder.name}\n")


def test_demo_compares_three_pulses(qenvs_command, tmp_path):
    code, out, err = qenvs_command("demo", "--seeds", "2", *SMALL)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == "pulse final fidelity 1 - fidelity seconds".split()
    rows = [line.split("  ")[0] for line in lines[1:-1]]
    assert rows == ["reference", "gradient", "best agent", "mean of 2 agents"]
    assert [float(line.split()[-3]) > 0.9999 for line in lines[1:3]] == [True, True]
    folder = tmp_path / lines[-1].removeprefix("Results: ")
    assert {p.name for p in folder.iterdir()} >= {
        *("config.json", "policy.eqx", "learning_curve.png", "pulse.json", "pulse.png"),
        *("gradient-pulse.json", "gradient-pulse.png", "table.json"),
    }
    assert "Agents: 100 %" in err


def test_an_interrupted_demo_goes_on_as_a_training_run(qenvs_command, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.output.Progress, "update", interrupt)
    code, out, err = qenvs_command("demo", "--seeds", "1", *SMALL, "--json")
    error = json.loads(err)["error"]
    assert (code, out) == (130, "")
    assert (error["type"], error["exit_code"]) == ("interrupted", 130)
    assert error["resume"] == f"qenvs train --resume {error['folder']}"


# --- output ---


def test_results_come_without_pictures_where_matplotlib_is_missing(qenvs_command, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    code, out, err = qenvs_command("optimize", TASK, "--max-iterations", "1")
    folder = Path(out.splitlines()[-1].removeprefix("Results: "))
    assert code == 0
    assert "pulse.png left out: plots need Matplotlib" in err
    assert (folder / "pulse.json").exists()
    assert not (folder / "pulse.png").exists()


def test_two_runs_in_one_second_have_folders_of_their_own(tmp_path):
    names = {cli.results.new_folder(tmp_path, TASK).name for _ in range(3)}
    assert len(names) == 3


def test_a_closed_pipe_is_no_error():
    code = "from qenvs.cli import main; main()"
    command = f'"{sys.executable}" -c "{code}" info {TASK} | head -n 1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=dict(os.environ))
    assert done.stderr == ""
    assert done.stdout.startswith(TASK)


def test_progress_is_a_line_per_tenth_when_piped(capsys):
    with cli.output.Progress("job", 200) as progress:
        for done in range(0, 201):
            progress.update(done, "note")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 11
    with cli.output.Progress("job", 200, quiet=True) as progress:
        progress.update(200)
    assert capsys.readouterr().err == ""

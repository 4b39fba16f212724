"""What the commands refuse before they run, and JSON that every reader takes."""

import json

import numpy as np

import qenvs
from qenvs import pulses

TASK = "qubit/StateTransfer-v0"


def test_contradictions_are_refused_before_anything_runs(qenvs_command, tmp_path):
    (tmp_path / "file").touch()
    pulse = pulses.from_actions(qenvs.make(TASK), np.zeros((20, 1)), "applied").save("p.json")
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps({"task": TASK, "seeds": [0]}))
    for words, expected, message in (
        (["run", TASK, "--pulse", str(pulse), "--policy", "zero"], 2, "--pulse or --policy"),
        (["train", "--resume", str(run), "--x64"], 2, "leave out --x64"),
        (["train", TASK, "--ppo", "nonsense"], 2, "--ppo must read key=value, got 'nonsense'"),
        (["evaluate", TASK, "--output", "file", "--n", "5"], 1, "Not a directory"),
        (["optimize", TASK, "--guess", str(pulse), "--set", "dt=0.2"], 1, "intervals of 0.1"),
        (["run", "transfer/LambdaSTIRAP-v0", "--pulse", str(pulse)], 1, "time_unit '1/omega0'"),
    ):
        code, out, err = qenvs_command(*words)
        assert (code, out) == (expected, "") and message in err and "Episodes" not in err


def test_json_has_no_word_for_nan_but_its_text(qenvs_command):
    code, out, _ = qenvs_command("run", TASK, "--set", "dt=1e30", "--json")

    def refuse(constant):
        raise AssertionError(constant)

    assert code == 0 and json.loads(out, parse_constant=refuse)["final"]["fidelity"] == "nan"

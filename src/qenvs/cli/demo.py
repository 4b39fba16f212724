"""`qenvs demo`: one task three ways, the textbook pulse, a gradient pulse and an agent."""

import time
from typing import Any

import typer

from qenvs.cli import options, output, results, training
from qenvs.cli.optimizing import search, write
from qenvs.cli.playing import play

TASK = "qubit/StateTransfer-v0"


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("demo")(demo)


def demo(
    seeds: training.Seeds = None,
    hyperparameters: training.Hyperparameters = None,
    seed: options.Seed = 0,
    output_root: options.OutputRoot = options.RUNS,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Flip a qubit three ways: textbook pulse, gradient search, trained agents."""
    job = training.new_job("demo", TASK, None, seeds, hyperparameters, seed, output_root)
    silent = quiet or as_json
    if not silent:
        output.note(f"{TASK}: {options.task_spec(TASK).summary}")
        output.note(f"Results go to {job.folder}")
    with results.interruptible(job.folder, job.again, as_json):
        rows = {"reference": _reference(seed), "gradient": _gradient(job, seed, silent)}
        record = training.run_job(job, silent)
    scores = record["scores"]
    agents = {"best agent": scores.max(), f"mean of {len(scores)} agents": scores.mean()}
    rows |= {name: (float(score), record["seconds"]) for name, score in agents.items()}
    table = {name: {"fidelity": f, "seconds": s} for name, (f, s) in rows.items()}
    record |= {"table": table}
    results.write_json(job.folder / "table.json", table)
    if as_json:
        output.show_json(record)
        return
    output.show_table(
        ("pulse", "final fidelity", "1 - fidelity", "seconds"),
        [(name, f"{f:.8f}", f"{1 - f:.1e}", f"{s:.1f}") for name, (f, s) in rows.items()],
    )
    output.show_text(f"Results: {job.folder}")


def _reference(seed: int) -> tuple[float, float]:
    start = time.perf_counter()
    env = options.make(TASK, {})
    actions = options.task_spec(TASK).reference_pulse(env)
    return play(env, actions, seed)["final"]["fidelity"], time.perf_counter() - start


def _gradient(job: training.Job, seed: int, quiet: bool) -> tuple[float, float]:
    env: Any = options.make(TASK, {})
    found, seconds = search(env, seed, quiet=quiet)
    final = write(job.folder, "gradient-pulse", TASK, {}, env, found)
    return final["fidelity"], seconds

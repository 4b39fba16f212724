"""`qenvs optimize`: from a task to a pulse, by gradient."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from qenvs.cli import options, output, results

Guess = Annotated[
    Path | None,
    typer.Option("--guess", metavar="FILE", help="Pulse file to start from; else random."),
]
Iterations = Annotated[int, typer.Option(min=0, help="Most iterations of the search.")]

REASONS = {
    "gradient": "the gradient has vanished",
    "precision": "the precision allows no further gain",
    "max_iterations": "stopped by --max-iterations",
    "stationary": "the task quantity does not depend on the pulse near the guess",
    "line_search": "no gain along the gradient: try another --seed, or --x64",
}


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("optimize")(optimize)


def optimize(
    task: options.TaskId,
    guess: Guess = None,
    max_iterations: Iterations = 1000,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    x64: options.DoublePrecision = False,
    output_root: options.OutputRoot = options.RUNS,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Find a pulse by gradient ascent (GRAPE)."""
    options.use_double_precision(x64)
    given = options.parse_settings(settings)
    env = options.make(task, given)
    start = None if guess is None else _read_guess(guess, env)
    folder = results.new_folder(output_root, task)
    details = {"guess": guess, "max_iterations": max_iterations}
    results.write_config(folder, "optimize", task=task, task_kwargs=given, seed=seed, **details)
    again = ["optimize", task, "--guess", str(folder / "pulse.json"), *options.as_words(given)]
    again += ["--output", str(output_root), "--max-iterations", str(max_iterations)]
    again += ["--x64"] if x64 else []
    with results.interruptible(folder, again, as_json):
        found, seconds = search(env, seed, start, max_iterations, quiet or as_json)
        final = write(folder, "pulse", task, given, env, found)
    record = {"task": task, "seed": seed, "final": final, "reason": found.reason}
    record |= {"iterations": found.iterations, "seconds": seconds, "folder": str(folder)}
    results.write_json(folder / "result.json", record | {"history": found.history})
    if as_json:
        output.show_json(record)
        return
    output.show_text(f"{task}, {found.iterations} iterations, {REASONS[found.reason]}")
    output.show_metrics(final)
    output.show_text(f"Results: {folder}")


def search(
    env: Any, seed: int, guess: Any = None, max_iterations: int = 1000, quiet: bool = False
) -> tuple[Any, float]:
    """The `PulseResult` of the gradient search, and its seconds."""
    import jax

    from qenvs import controllers

    name, start = env.quantity_name, time.perf_counter()
    with output.Progress("Gradient", None, quiet) as progress:
        found = controllers.optimize(
            env,
            guess,
            key=jax.random.PRNGKey(seed),
            max_iterations=max_iterations,
            progress=lambda done, value: progress.update(done, f"{name} {value:.6f}"),
        )
    return found, time.perf_counter() - start


def write(
    folder: Path, name: str, task: str, settings: dict[str, Any], env: Any, found: Any
) -> dict[str, float]:
    """Write what a search found, an interrupted one too, which ends here."""
    pulse = found.actions
    final = results.write_pulse(folder, name, task, settings, env, pulse, "gradient pulse")
    if found.reason == "interrupted":
        raise KeyboardInterrupt
    return final


def _read_guess(path: Path, env: Any) -> Any:
    from qenvs import pulses

    return pulses.load(path).fitting(env)

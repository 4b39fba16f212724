"""`qenvs train`: from a task to an agent, by PPO; a killed run goes on from its checkpoint."""

import dataclasses
import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from qenvs import _checks
from qenvs.cli import options, output, results

CHECKPOINT = "checkpoint.eqx"
SEEDS = 8

Seeds = Annotated[int | None, typer.Option(min=1, help="Agents to train at once; 8 if not given.")]
Hyperparameters = Annotated[
    list[str] | None,
    typer.Option(
        "--ppo", metavar="KEY=VALUE", help="Hyperparameter, e.g. num_updates=300; may be repeated."
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="DIR", help="Go on with the run in this folder."),
]
MaybeTask = Annotated[str | None, typer.Argument(metavar="TASK", help="Task id, see: qenvs list")]
MaybeSeed = Annotated[
    int | None, typer.Option(min=0, max=2**31, help="Seed of the first agent; 0 if not given.")
]


class Job(NamedTuple):
    """What a training run is made of, and where it is kept.

    Attributes:
        task, settings: how the environment is made.
        seeds: one agent each.
        ppo: hyperparameters, all of them once the run has begun.
        folder: where everything is written.
        resume: whether the folder may hold a checkpoint to go on from.
    """

    task: str
    settings: dict[str, Any]
    seeds: list[int]
    ppo: dict[str, Any]
    folder: Path
    resume: bool

    @property
    def again(self) -> list[str]:
        """The words after `qenvs` that go on with this run."""
        return ["train", "--resume", str(self.folder)]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("train")(train)


def train(
    task: MaybeTask = None,
    seeds: Seeds = None,
    hyperparameters: Hyperparameters = None,
    resume: Resume = None,
    settings: options.Settings = None,
    seed: MaybeSeed = None,
    x64: options.DoublePrecision = False,
    output_root: options.OutputRoot = options.RUNS,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Train agents by PPO, several seeds at once."""
    if resume is not None:
        fixed = {"--seeds": seeds, "--ppo": hyperparameters, "--set": settings, "--seed": seed}
        fixed["--x64"] = x64 or None
        job = read_job(resume, task, [name for name, value in fixed.items() if value is not None])
    elif task is None:
        raise options.UsageError("give a TASK (see: qenvs list) or --resume DIR")
    else:
        options.use_double_precision(x64)
        job = new_job("train", task, settings, seeds, hyperparameters, seed or 0, output_root)
    with results.interruptible(job.folder, job.again, as_json):
        record = run_job(job, quiet or as_json)
    if as_json:
        output.show_json(record)
    else:
        show(record)


def new_job(
    command: str,
    task: str,
    settings: list[str] | None,
    seeds: int | None,
    hyperparameters: list[str] | None,
    first_seed: int,
    root: Path,
) -> Job:
    """A job of its own, checked, its folder made and its configuration written there."""
    given, ppo = options.parse_settings(settings), options.parse_settings(hyperparameters, "--ppo")
    options.make(task, given)
    ppo = dataclasses.asdict(make_config(ppo))
    every = list(range(first_seed, first_seed + (seeds or SEEDS)))
    folder = results.new_folder(root, task)
    content = {"task": task, "task_kwargs": given, "seeds": every, "ppo": ppo}
    results.write_config(folder, command, **content)
    return Job(task, given, every, ppo, folder, resume=False)


def read_job(folder: Path, task: str | None, given: list[str]) -> Job:
    """The job whose configuration is in `folder`; nothing of it may be given again."""
    config = results.read_config(folder)
    if "seeds" not in config:
        raise options.UsageError(f"{folder} is no training run; --resume needs the folder of one")
    if given or task not in (None, config["task"]):
        words = ", ".join(given or ["TASK"])
        raise options.UsageError(f"--resume goes on as {folder} began; leave out {words}")
    options.use_double_precision(config["precision"] == "float64")
    return Job(
        config["task"], config["task_kwargs"], config["seeds"], config["ppo"], folder, resume=True
    )


def make_config(ppo: dict[str, Any]) -> Any:
    """The `PPOConfig` of hyperparameters; a usage error with near names for unknown ones."""
    from qenvs.controllers import PPOConfig

    known = [field.name for field in dataclasses.fields(PPOConfig)]
    for name, value in ppo.items():
        if name not in known:
            raise options.UsageError(f"PPO has no {name!r}; {_checks.suggest(name, known)}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise options.UsageError(f"`{name}` must be a number, got {value!r}")
    try:
        return PPOConfig(**ppo)
    except (TypeError, ValueError) as error:
        raise options.UsageError(str(error)) from None


def run_job(job: Job, quiet: bool) -> dict[str, Any]:
    """Train, write the results into the folder, and give the summary."""
    import jax
    import numpy as np

    from qenvs import controllers

    env, config = options.make(job.task, job.settings), make_config(job.ppo)
    name, start = env.quantity_name, time.perf_counter()
    with output.Progress("Agents", config.num_updates, quiet) as progress:
        trained = controllers.train(
            env,
            config,
            job.seeds,
            checkpoint=job.folder / CHECKPOINT,
            resume=job.resume,
            progress=lambda done, score: progress.update(done, f"{name} {score:.5f}, exploring"),
        )
    seconds = time.perf_counter() - start
    controllers.save_policy(
        job.folder / "policy.eqx", trained.best, task=job.task, task_kwargs=job.settings
    )
    episode = controllers.play(env, trained.best, jax.random.PRNGKey(0))
    title = f"best of {len(job.seeds)} agents"
    results.write_pulse(job.folder, "pulse", job.task, job.settings, env, episode.actions, title)
    steps = config.num_envs * env.horizon * np.arange(1, config.num_updates + 1)
    results.write_learning_curve(job.folder, job.task, name, steps, trained.curves)
    record = {
        **{"task": job.task, "quantity": name, "seeds": job.seeds},
        **{"scores": trained.scores, "mean": trained.scores.mean()},
        **{"best_seed": job.seeds[int(trained.scores.argmax())]},
        **{"environment_steps": int(steps[-1]) * len(job.seeds), "seconds": seconds},
        **{"folder": str(job.folder)},
    }
    results.write_json(job.folder / "result.json", record | {"curves": trained.curves})
    return record


def show(record: dict[str, Any]) -> None:
    """Print the score of every agent, their mean, and where the results are."""
    name, scores = record["quantity"], record["scores"]
    steps = f"{record['environment_steps']:,} environment steps in {record['seconds']:.1f} s"
    output.show_text(f"{record['task']}, {len(scores)} agents, {steps}")
    rows = [(str(seed), score) for seed, score in zip(record["seeds"], scores, strict=True)]
    rows.append(("mean", record["mean"]))
    if name == "fidelity":
        table = [(seed, f"{score:.8f}", f"{1 - score:.3e}") for seed, score in rows]
        output.show_table(("seed", name, "1 - fidelity"), table)
    else:
        output.show_table(("seed", name), [(seed, f"{score:.8f}") for seed, score in rows])
    output.show_text(f"Results: {record['folder']}")

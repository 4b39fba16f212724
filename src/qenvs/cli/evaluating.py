"""`qenvs evaluate`: a pulse or a policy over many devices that differ."""

import time
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from qenvs import registration
from qenvs.cli import options, output, results, uncertainty

PulseFile = Annotated[
    Path | None, typer.Option("--pulse", metavar="FILE", help="Pulse file, played open loop.")
]
PolicyFolder = Annotated[
    Path | None,
    typer.Option("--policy", metavar="DIR", help="Folder of qenvs train; its best agent plays."),
]
Shots = Annotated[
    int | None,
    typer.Option(min=1, help="Measurements per observable: the policy sees estimates."),
]
Observables = Annotated[
    str | None,
    typer.Option(metavar="NAMES", help="What is measured, e.g. p1,p2; all if left out."),
]
Episodes = Annotated[int, typer.Option("--n", min=1, help="Episodes to play.")]


class Contest(NamedTuple):
    """What is played where.

    Attributes:
        env: the task, bare.
        policy: what `qenvs.robust.evaluate` takes.
        name: what to call it.
        settings: keyword arguments of the task.
    """

    env: Any
    policy: Any
    name: str
    settings: dict[str, Any]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("evaluate")(evaluate)


def evaluate(
    task: options.TaskId,
    pulse: PulseFile = None,
    policy: PolicyFolder = None,
    randomize: uncertainty.Randomize = None,
    control_noise: uncertainty.ControlNoise = None,
    correlated: uncertainty.Correlated = False,
    shots: Shots = None,
    observables: Observables = None,
    n: Episodes = 1000,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    x64: options.DoublePrecision = False,
    output_root: options.OutputRoot = options.RUNS,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> None:
    """Play many episodes whose devices differ, and print how they end.

    Without --pulse and --policy the reference pulse of the task is played.
    """
    options.use_double_precision(x64)
    if correlated and not control_noise:
        raise options.UsageError("--correlated goes with --control-noise")
    seen = {"shots": shots, "observables": observables and observables.split(",")}
    errors = uncertainty.parse_errors(control_noise)
    parameters = uncertainty.parse_parameters(randomize)
    contest = _contest(task, pulse, policy, options.parse_settings(settings), seen)
    env = with_uncertainty(contest, parameters, errors | {"correlated": correlated})
    folder = results.new_folder(output_root, task)
    details = {"randomize": randomize, "control_noise": control_noise, "correlated": correlated}
    shared = {"task": task, "policy": contest.name, "seed": seed, "n": n}
    results.write_config(folder, "evaluate", task_kwargs=contest.settings, **shared, **details)
    found, seconds = _play(env, contest, seed, n, quiet or as_json)
    if not isinstance(contest.policy, Path):
        results.note_truncation(contest.env, getattr(contest.policy, "actions", contest.policy))
    record = shared | summary(found) | {"worst": _worst(env, found, seed)}
    record |= {"seconds": seconds, "folder": str(folder)}
    _write(folder, record, found)
    if as_json:
        output.show_json(record)
    else:
        _show(record)


def _contest(
    task: str,
    pulse: Path | None,
    policy: Path | None,
    given: dict[str, Any],
    seen: dict[str, Any],
) -> Contest:
    """Who plays in which task; a file brings the settings that it was made with."""
    if pulse is not None and policy is not None:
        raise options.UsageError("give --pulse or --policy, not both")
    player, name, own = None, "reference pulse", {}
    if pulse is not None:
        player, own = _read_pulse(pulse, task)
        name = str(pulse)
    elif policy is not None:
        player, own = policy, _settings_of(policy, task)
        name = str(policy)
    settings = {**own, **given, **{key: value for key, value in seen.items() if value is not None}}
    if any(value is not None for value in seen.values()):
        settings.setdefault("observation", "expectations")
    plain = {k: v for k, v in settings.items() if k not in registration.OBSERVATION_KWARGS}
    env = options.make(task, plain)
    if player is None:
        player = _reference(task, env)
    if policy is None and len(plain) < len(settings):
        output.note("a pulse is played open loop: what is measured does not change it")
    return Contest(env, player, name, settings)


def _read_pulse(path: Path, task: str) -> tuple[Any, dict[str, Any]]:
    from qenvs import pulses

    pulse = pulses.load(path)
    own = pulse.task_kwargs if pulse.task == task else {}
    return pulse, {**own, "horizon": len(pulse.actions), "dt": pulse.dt}


def _settings_of(folder: Path, task: str) -> dict[str, Any]:
    """The settings that a trained policy was trained with."""
    from qenvs.controllers import load_policy

    _, header = load_policy(folder / "policy.eqx" if folder.is_dir() else folder)
    if header["task"] != task:
        raise options.UsageError(f"{folder} holds a policy for {header['task']}, not for {task}")
    return header["task_kwargs"]


def _reference(task: str, env: Any) -> Any:
    spec = options.task_spec(task)
    if spec.reference is None:
        raise options.UsageError(f"task {task!r} has no reference pulse; give --pulse or --policy")
    return spec.reference_pulse(env)


def with_uncertainty(contest: Contest, parameters: dict[str, Any], errors: dict[str, Any]) -> Any:
    """The environment in its wrappers: parameters, then control errors, then measurement."""
    from qenvs.wrappers import ControlErrors, ObservationModel, ParameterRandomization

    names = registration.OBSERVATION_KWARGS
    seen = {name: value for name, value in contest.settings.items() if name in names}
    env = contest.env
    try:
        if parameters:
            env = ParameterRandomization(env, parameters)
        if len(errors) > 1:
            env = ControlErrors(env, **errors)
        return ObservationModel(env, **seen) if seen else env
    except (TypeError, ValueError) as error:
        raise options.UsageError(str(error)) from None


# --- playing, writing, showing ---


def _play(env: Any, contest: Contest, seed: int, n: int, quiet: bool) -> tuple[Any, float]:
    import jax

    from qenvs import robust

    name, start = env.quantity_name, time.perf_counter()
    with output.Progress("Episodes", n, quiet) as progress:
        found = robust.evaluate(
            env,
            contest.policy,
            jax.random.PRNGKey(seed),
            n,
            progress=lambda done, mean: progress.update(done, f"{name} {mean:.5f}"),
        )
    return found, time.perf_counter() - start


def summary(found: Any) -> dict[str, Any]:
    """The statistics of an `Evaluation` as JSON has them."""
    clipped = None if found.clip_fraction is None else found.clip_fraction.mean(dtype=float)
    metric = {**_statistics(found.metric), "intervals": found.metric.intervals}
    return {
        "quantity": found.quantity,
        "metric": metric,
        "returns": {**_statistics(found.returns), "intervals": found.returns.intervals},
        "clip_fraction": clipped,
    }


def _statistics(statistics: Any) -> dict[str, Any]:
    """Name -> number, in the order of the table."""
    names = {
        share: "median" if share == 0.5 else f"quantile {share:g}" for share in statistics.quantiles
    }
    quantiles = {names[share]: value for share, value in statistics.quantiles.items()}
    plain = {"mean": statistics.mean, "cvar": statistics.cvar, "minimum": statistics.minimum}
    return plain | quantiles


def _worst(env: Any, found: Any, seed: int) -> dict[str, Any]:
    """The episode that ends lowest, and what was drawn for it."""
    import jax

    from qenvs import keys

    number = int(found.metric.values.argmin())
    state, _ = env.reset(keys.episode_key(jax.random.PRNGKey(seed), number))
    drawn: dict[str, Any] = {"episode": number}
    while hasattr(state, "inner"):
        for name, value in state.data.items():
            if name.startswith("value/") or name in ("gain", "offset"):
                drawn[name.removeprefix("value/")] = value
        state = state.inner
    return drawn


def _write(folder: Path, record: dict[str, Any], found: Any) -> None:
    """`result.json` with the numbers of every episode, and `histogram.png`."""
    episodes = {"metric": found.metric.values, "returns": found.returns.values}
    if found.clip_fraction is not None:
        episodes["clip_fraction"] = found.clip_fraction
    results.write_json(folder / "result.json", record | {"episodes": episodes})
    with results.unless_missing("histogram.png"):
        from qenvs import plots

        metric = record["metric"]
        marks = {"mean": metric["mean"], "lowest 10 %, mean": metric["cvar"]}
        figure, ax = plots.figure(width=7, height=4)
        plots.histogram(ax, found.metric.values, quantity=found.quantity, marks=marks)
        player = "/".join(Path(record["policy"]).parts[-2:])
        title = f"{record['task']}, {record['n']:,} episodes\n{player}"
        figure.suptitle(title, x=0.01, ha="left")
        figure.savefig(folder / "histogram.png")


def _named(name: str, value: Any) -> str:
    """A number, or one per channel, with its name."""
    import numpy as np

    return f"{name} {' '.join(f'{number:.6g}' for number in np.ravel(value))}"


LABELS = {"mean": "mean", "cvar": "mean of the lowest 10 %", "minimum": "lowest"}


def _show(record: dict[str, Any]) -> None:
    """Print the statistics, the worst episode, and where the results are."""
    name, metric, returns = record["quantity"], record["metric"], record["returns"]
    text = f"{record['task']}, {record['policy']}, {record['n']:,} episodes"
    output.show_text(f"{text} in {record['seconds']:.1f} s")
    header, rows = ["", name, "95 % interval", "return"], []
    for key in returns:
        if key != "intervals":
            low, high = metric["intervals"].get(key, (None, None))
            interval = "" if low is None else f"{low:.8f} to {high:.8f}"
            label = LABELS.get(key, key)
            rows.append([label, f"{metric[key]:.8f}", interval, f"{returns[key]:.8f}"])
    if not metric["intervals"]:
        rows = [[row[0], row[1], row[3]] for row in rows]
        header.remove("95 % interval")
    output.show_table(header, rows)
    if record["clip_fraction"] is not None:
        output.show_text(f"Clipped at the bound: {record['clip_fraction']:.2%} of all amplitudes")
    drawn = ", ".join(_named(name, value) for name, value in record["worst"].items())
    output.show_text(f"The lowest: {drawn}")
    output.show_text(f"Results: {record['folder']}")

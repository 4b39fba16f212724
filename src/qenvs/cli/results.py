"""What `train`, `optimize` and `demo` leave in their folder below `runs/`."""

import contextlib
import functools
import json
import platform
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qenvs import __version__
from qenvs._strict_json import restored
from qenvs.cli import output

INTERRUPTED = 130
"""Exit code of a command that was ended by Ctrl-C, as shells have it."""


def new_folder(root: Path, task: str) -> Path:
    """A folder of its own, `<task>-<time>`, below `root`."""
    name = f"{task.replace('/', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    for suffix in ("", *(f"-{k}" for k in range(2, 1000))):
        folder = root / (name + suffix)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder
    raise FileExistsError(f"{root / name} and a thousand like it exist; remove some")


def write_json(path: Path, record: Any) -> None:
    """Write a JSON file as a whole or not at all."""
    partial = path.with_name(path.name + ".part")
    partial.write_text(output.json_text(record) + "\n", encoding="utf-8")
    partial.replace(path)


def write_config(folder: Path, command: str, **content: Any) -> None:
    """Write `config.json`: the command, what it was given, the versions it ran with."""
    import jax

    versions = {"qenvs": __version__, "jax": jax.__version__, "python": platform.python_version()}
    machine = {"platform": platform.platform(), "device": str(jax.devices()[0])}
    precision = str(jax.numpy.result_type(float))
    record = {
        "command": command,
        **content,
        "precision": precision,
        "versions": versions,
        "machine": machine,
    }
    write_json(folder / "config.json", record)


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of an earlier run; ValueError where there is none."""
    path = folder / "config.json"
    if not path.exists():
        raise ValueError(f"{folder} must be the folder of a run, but holds no config.json")
    return restored(json.loads(path.read_text(encoding="utf-8")))


def write_pulse(
    folder: Path,
    name: str,
    task: str,
    settings: dict[str, Any],
    env: Any,
    actions: Any,
    title: str,
) -> dict[str, float]:
    """Write the applied actions as `<name>.json` and `<name>.png`; the final info values."""
    import numpy as np

    from qenvs import pulses

    bound = np.broadcast_to(np.asarray(env.action_bound), (env.action_dim,))
    applied = np.clip(np.asarray(actions), -bound, bound)
    states = trajectory(env, applied)
    note_truncation(env, applied)
    final = {key: float(value) for key, value in env.info(states[-1]).items()}
    pulse = pulses.from_actions(
        env, applied, "applied", task=task, task_kwargs=settings, metrics=final
    )
    pulse.save(folder / f"{name}.json")
    with unless_missing(f"{name}.png"):
        heading = f"{task}, {title}, {env.quantity_name} {float(states[-1].base.value):.6f}"
        _draw_pulse(folder / f"{name}.png", env, pulse, states, heading)
    return final


def trajectory(env: Any, actions: Any) -> list[Any]:
    """States before the first and after every action."""
    import jax

    step = jax.jit(env.step)
    state, _ = env.reset(jax.random.PRNGKey(0))
    states = [state]
    for action in actions:
        state, _ = step(state, action)
        states.append(state)
    return states


def _draw_pulse(path: Path, env: Any, pulse: Any, states: list[Any], title: str) -> None:
    from qenvs import plots

    arrays = plots.state_arrays(env, states)
    values = [float(state.base.value) for state in states]
    figure, (left, middle, right) = plots.figure(1, 3, width=12, height=3.6)
    plots.pulse(
        left,
        pulse.actions,
        pulse.dt,
        names=pulse.control_names,
        bound=pulse.bound,
        time_unit=pulse.time_unit,
        amplitude_unit=pulse.amplitude_unit,
    )
    unit = pulse.time_unit
    plots.progress(middle, values, pulse.dt, quantity=env.quantity_name, time_unit=unit)
    if tuple(env.model.dims) == (2,):
        plots.bloch(right, arrays)
    else:
        labels = plots.state_labels(env)
        plots.populations(right, arrays, pulse.dt, time_unit=unit, labels=labels)
    figure.suptitle(title, x=0.01, ha="left")
    figure.savefig(path)


def note_truncation(env: Any, actions: Any, seed: int = 0) -> None:
    """Say so on standard error if the levels that a model keeps were too few for a pulse."""
    import jax

    from qenvs.envs import truncation

    if not truncation.truncations(env):
        return
    play = jax.jit(functools.partial(truncation.largest_edge_populations, env))
    message = truncation.truncation_message(env, play(actions, jax.random.PRNGKey(seed)))
    if message is not None:
        output.note(f"warning: {message}")


def write_learning_curve(folder: Path, task: str, quantity: str, steps: Any, curves: Any) -> None:
    """Draw `learning_curve.png`: the quantity, shape (seeds, updates), over environment steps.

    Of a fidelity its distance from 1 is drawn, on a logarithmic axis.
    """
    import numpy as np

    from qenvs import plots

    name = "learning_curve.png"
    with unless_missing(name):
        figure, ax = plots.figure(width=7, height=4)
        if quantity == "fidelity":
            curves, quantity = np.maximum(1 - np.asarray(curves, float), 1e-7), "1 - fidelity"
            ax.set_yscale("log")
        plots.learning_curve(ax, steps, curves, quantity=quantity)
        figure.suptitle(f"{task}, PPO while exploring", x=0.01, ha="left")
        figure.savefig(folder / name)


@contextlib.contextmanager
def unless_missing(name: str) -> Iterator[None]:
    """Leave a picture out, and say so, where Matplotlib is not installed."""
    try:
        yield
    except ImportError as error:
        output.note(f"{name} left out: {error}")


@contextlib.contextmanager
def interruptible(folder: Path, again: list[str], as_json: bool) -> Iterator[None]:
    """On Ctrl-C say where the results are and how to go on, and exit with code 130.

    Args:
        folder: where the results are.
        again: the words after `qenvs` that go on from them.
        as_json: say it as JSON.
    """
    try:
        yield
    except KeyboardInterrupt:
        command = shlex.join(["qenvs", *again])
        if as_json:
            fields = {"type": "interrupted", "message": "interrupted", "exit_code": INTERRUPTED}
            fields |= {"folder": str(folder), "resume": command}
            output.note(json.dumps({"error": fields}))
        else:
            output.note(f"\nInterrupted. Results so far: {folder}\nTo go on: {command}")
        raise SystemExit(INTERRUPTED) from None

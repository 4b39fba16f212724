"""`qenvs list` and `qenvs info`: what there is, read from the registry and the docstrings."""

import inspect
import pkgutil
import re
from typing import Any

import typer

from qenvs import registration
from qenvs.cli import options, output


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("list")(list_tasks)
    app.command("info")(info)


def list_tasks(as_json: options.AsJson = False) -> None:
    """List the tasks."""
    specs = sorted(registration.registry.values())
    if as_json:
        output.show_json([_summary(spec) for spec in specs])
        return
    output.show_table(("task", "what to do"), [(spec.id, spec.summary) for spec in specs])


def _summary(spec: registration.TaskSpec) -> dict[str, Any]:
    return {"id": spec.id, "summary": spec.summary, "has_reference": spec.reference is not None}


def info(
    task: options.TaskId, settings: options.Settings = None, as_json: options.AsJson = False
) -> None:
    """Describe a task: physics, units, arguments, reference."""
    spec = options.task_spec(task)
    env = options.make(task, options.parse_settings(settings))
    record = describe(spec, env)
    if as_json:
        output.show_json(record)
    else:
        _show(record)


def describe(spec: registration.TaskSpec, env: Any) -> dict[str, Any]:
    """Everything that `qenvs info` says, as one record."""
    import jax
    import numpy as np

    state, timestep = env.reset(jax.random.PRNGKey(0))
    bound = np.broadcast_to(np.asarray(env.action_bound, float), (env.action_dim,))
    return {
        **_summary(spec),
        "environment": {"name": type(env).__name__, "text": _prose(type(env))},
        "model": {"name": type(env.model).__name__, "text": _prose(type(env.model))},
        "dimensions": list(env.model.dims),
        "controls": dict(zip(env.model.control_names, bound.tolist(), strict=True)),
        "units": {"time": env.model.time_unit, "amplitude": env.model.amplitude_unit},
        "horizon": env.horizon,
        "dt": float(env.dt),
        "duration": float(env.duration),
        "observation_size": int(timestep.observation.size),
        "info_keys": list(env.info(state)),
        "arguments": _arguments(spec, env),
        "reference": _reference(spec),
    }


def _arguments(spec: registration.TaskSpec, env: Any) -> list[dict[str, Any]]:
    texts: dict[str, str] = {}
    for source in (*reversed(type(env).__mro__), type(env.model), spec.load()):
        texts |= docstring_arguments(inspect.getdoc(source) or "")
    specs = env.model.parameter_specs()
    arguments = []
    for name, default in spec.kwargs().items():
        known = specs.get(name)
        arguments.append(
            {
                "name": name,
                "default": default,
                "range": [f"{edge:g}" for edge in known.support] if known else None,
                "unit": known.unit if known else None,
                "randomisable": known is not None,
                "text": texts.get(name, ""),
            }
        )
    return arguments


def _reference(spec: registration.TaskSpec) -> str | None:
    if spec.reference is None:
        return None
    reference = spec.reference
    if isinstance(reference, str):
        reference = pkgutil.resolve_name(reference)
    return " ".join(_paragraphs(inspect.getdoc(reference) or "")[:1])


def docstring_arguments(doc: str) -> dict[str, str]:
    """Name -> text of the `Args:` section of a docstring; "a, b: text" names two."""
    section = re.search(r"^Args:\n((?:[ ]+.*\n?|\n)+)", doc, re.MULTILINE)
    if section is None:
        return {}
    texts: dict[str, str] = {}
    entries = re.split(r"^ {4}(?=\S)", section.group(1), flags=re.MULTILINE)
    for names, colon, text in (entry.partition(":") for entry in entries):
        if colon and not text.startswith(" as for "):
            texts |= {name.strip(): " ".join(text.split()) for name in names.split(",")}
    return texts


def _prose(source: Any) -> list[str]:
    """Paragraphs of a docstring before its sections."""
    return _paragraphs(inspect.getdoc(source) or "")


def _paragraphs(doc: str) -> list[str]:
    text = re.split(r"^(?:Args|Returns|Raises|Attributes):|^>>>", doc, flags=re.MULTILINE)[0]
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def _show(record: dict[str, Any]) -> None:
    output.show_text(f"{record['id']}: {record['summary']}")
    for title in ("model", "environment"):
        output.show_heading(f"{title.capitalize()} {record[title]['name']}")
        for paragraph in record[title]["text"]:
            output.show_text(paragraph, "  ")
    output.show_heading("Control")
    time_unit, amplitude_unit = record["units"]["time"], record["units"]["amplitude"]
    for name, bound in record["controls"].items():
        output.show_text(f"{name}: from {-bound:g} to {bound:g} {amplitude_unit}".rstrip(), "  ")
    unit = f" (time in {time_unit})" if time_unit else ""
    output.show_text(
        f"{record['horizon']} intervals of {record['dt']:g}, together {record['duration']:g}"
        f"{unit}; the observation has {record['observation_size']} numbers",
        "  ",
    )
    output.show_text(f"info keys: {', '.join(record['info_keys'])}", "  ")
    output.show_heading("Keyword arguments (--set name=value, or qenvs.make in Python)")
    output.show_definitions(
        [(f"{a['name']} = {a['default']}", _meaning(a)) for a in record["arguments"]]
    )
    if record["reference"]:
        output.show_heading("Reference (qenvs run TASK --policy reference)")
        output.show_text(record["reference"], "  ")


def _meaning(argument: dict[str, Any]) -> str:
    text = argument["text"].rstrip(".")
    if not argument["randomisable"]:
        return text
    low, high = argument["range"]
    edges = [f">= {low}"] * (low != "-inf") + [f"<= {high}"] * (high != "inf")
    unsaid = [edge for edge in edges or ["any number"] if edge not in text]
    return "; ".join([text, *unsaid, "can be randomised"])

"""Options that several commands share, and the environment they describe."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from qenvs import registration

SETTINGS_HELP = "Keyword argument of the task, e.g. --set detuning=0.1; may be repeated."

TaskId = Annotated[str, typer.Argument(metavar="TASK", help="Task id, see: qenvs list")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=SETTINGS_HELP)
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of every random number.")]
DoublePrecision = Annotated[
    bool, typer.Option("--x64", help="Compute in float64 (as JAX_ENABLE_X64=1 does).")
]

OutputRoot = Annotated[
    Path, typer.Option("--output", metavar="DIR", help="Where the folder of results is made.")
]
RUNS = Path("runs")


class UsageError(Exception):
    """The command line asks for something that does not exist: exit code 2."""

    def format_message(self) -> str:
        """The message, as Click's own usage errors give it."""
        return str(self)


WORDS = {"true": True, "false": False, "none": None, "null": None}


def parse_settings(settings: list[str] | None, option: str = "--set") -> dict[str, Any]:
    """`["a=1", "b=text"]` as {"a": 1, "b": "text"}: numbers, booleans, lists, else text."""
    values = {}
    for setting in settings or ():
        name, equals, text = setting.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} must read key=value, got {setting!r}")
        values[name.strip()] = _parse_value(text.strip())
    return values


def _parse_value(text: str) -> Any:
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for read in (json.loads, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def as_words(settings: dict[str, Any]) -> list[str]:
    """The settings as they stand on a command line."""
    pairs = (f"{name}={_as_text(value)}" for name, value in settings.items())
    return [word for pair in pairs for word in ("--set", pair)]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def task_spec(task: str) -> registration.TaskSpec:
    """The named task; a usage error with near names for an unknown one."""
    try:
        return registration.spec(task)
    except ValueError as error:
        raise UsageError(str(error)) from None


def make(task: str, settings: dict[str, Any]) -> Any:
    """The environment of a task; a usage error for an argument that it does not take."""
    task_spec(task)
    if settings.get("method") is not None:
        raise UsageError("`method` takes a Python object; use qenvs.make in Python")
    try:
        return registration.make(task, **settings)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from None


def use_double_precision(wanted: bool) -> None:
    """Switch JAX to float64 if wanted; without the option its own setting stays."""
    if wanted:
        import jax

        jax.config.update("jax_enable_x64", True)

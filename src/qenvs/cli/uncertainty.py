"""Options that say what differs from device to device, as the library's own objects."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from qenvs import _checks
from qenvs.cli import options

CLASSES = {
    "normal": "Normal",
    "uniform": "Uniform",
    "truncated": "TruncatedNormal",
    "ou": "OrnsteinUhlenbeck",
}
"""Name on the command line -> name in `qenvs.distributions`."""

DISTRIBUTIONS = {
    "normal": ("STD",),
    "uniform": ("HALF_WIDTH",),
    "truncated": ("STD", "LOW", "HIGH"),
}
"""Name -> the numbers that follow it."""

COLOURED = {"ou": ("THETA", "SIGMA")}

SOURCES = ("step_noise", "amplitude_scale", "offset", "coloured_noise")
"""Keyword arguments of `ControlErrors`; the first one is meant if none is named."""

Randomize = Annotated[
    list[str] | None,
    typer.Option(
        "--randomize",
        metavar="NAME=DIST",
        help="Draw a model parameter anew in every episode, e.g. detuning=normal:0.05. "
        "DIST is the offset from the nominal value: normal:STD, uniform:HALF_WIDTH or "
        "truncated:STD,LOW,HIGH. May be repeated.",
    ),
]
ControlNoise = Annotated[
    list[str] | None,
    typer.Option(
        "--control-noise",
        metavar="[SOURCE=]DIST",
        help="Error of the amplitudes. SOURCE is step_noise (relative, every step; meant if left "
        "out), amplitude_scale (relative, per episode), offset (absolute, per episode) or "
        "coloured_noise (relative, ou:THETA,SIGMA). May be repeated.",
    ),
]
Correlated = Annotated[
    bool, typer.Option("--correlated", help="One draw of each control error for all channels.")
]


def parse_parameters(words: list[str] | None) -> dict[str, Any]:
    """`["detuning=normal:0.05"]` as {"detuning": Normal(0.05)}."""
    found: dict[str, Any] = {}
    for word in words or ():
        name, equals, text = word.partition("=")
        if not equals or not name:
            example = "--randomize must read NAME=DIST, e.g. detuning=normal:0.05"
            raise options.UsageError(f"{example}, got {word!r}")
        _add(found, name, parse_distribution(word, text, DISTRIBUTIONS))
    return found


def parse_errors(words: list[str] | None) -> dict[str, Any]:
    """`["normal:0.02", "offset=uniform:0.1"]` as keyword arguments of `ControlErrors`."""
    found: dict[str, Any] = {}
    for word in words or ():
        named, _, text = word.rpartition("=")
        source = named or SOURCES[0]
        if source not in SOURCES:
            near = _checks.suggest(source, SOURCES)
            raise options.UsageError(f"--control-noise has no source {source!r}; {near}")
        known = COLOURED if source == "coloured_noise" else DISTRIBUTIONS
        _add(found, source, parse_distribution(word, text, known))
    return found


def _add(found: dict[str, Any], name: str, distribution: Any) -> None:
    if name in found:
        raise options.UsageError(f"{name!r} is given twice; one distribution is enough")
    found[name] = distribution


def parse_distribution(word: str, text: str, known: Mapping[str, tuple[str, ...]]) -> Any:
    """`"normal:0.05"` as Normal(0.05); `word` is the whole option, for messages."""
    from qenvs import distributions

    name, _, rest = text.partition(":")
    if name not in known:
        syntax = " or ".join(f"{each}:{','.join(numbers)}" for each, numbers in known.items())
        near = _checks.suggest(name, known)
        raise options.UsageError(f"{word!r} names no distribution; {near}; write {syntax}")
    try:
        numbers = [float(number) for number in rest.split(",")]
        if len(numbers) != len(known[name]):
            raise ValueError(f"got {len(numbers)} of {len(known[name])} numbers")
        return getattr(distributions, CLASSES[name])(*numbers)
    except ValueError as error:
        expected = f"{name}:{','.join(known[name])}"
        raise options.UsageError(f"{word!r} must read {expected}: {error}") from None

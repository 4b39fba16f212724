"""`qenvs doctor`: whether this installation works, and what to do if it does not."""

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import typer

from qenvs import __version__
from qenvs.cli import options, output

EXTRAS = {"gym": ("gymnasium",), "torch": ("torch", "gymnasium"), "plots": ("matplotlib", "pillow")}
BASE = ("jax", "jaxlib", "equinox", "numpy", "scipy", "optax", "dynamiqs", "typer", "rich")
TASK = "qubit/StateTransfer-v0"


class Check(NamedTuple):
    """One line of the report: `state` is "ok", "missing" (an extra) or "failed"."""

    name: str
    state: str
    found: str
    advice: str = ""


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("doctor")(doctor)


def doctor(as_json: options.AsJson = False) -> None:
    """Check versions, devices and extras, play an episode, say what to do."""
    checks = [_python(), *map(_package, BASE), *map(_extra, EXTRAS)]
    checks += [_guard("device", _device), _guard("episode", _episode), _guard("folder", _folder)]
    failed = [check for check in checks if check.state == "failed"]
    if as_json:
        output.show_json({"ok": not failed, "checks": [check._asdict() for check in checks]})
    else:
        output.show_table(("check", "state", "found"), [check[:3] for check in checks])
        for check in checks:
            if check.advice:
                output.show_text(f"{check.name}: {check.advice}", "  ")
        output.show_text(
            "Something is broken, see above." if failed else "This installation works."
        )
    if failed:
        raise typer.Exit(1)


def _python() -> Check:
    found = f"{platform.python_version()}, qenvs {__version__}, {sys.prefix}"
    return Check("python", "ok" if sys.version_info >= (3, 11) else "failed", found)


def _package(name: str) -> Check:
    try:
        return Check(name, "ok", importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "failed", "not installed", f"pip install {name}")


def _extra(name: str) -> Check:
    packages = EXTRAS[name]
    found = [_package(package) for package in packages]
    text = ", ".join(f"{check.name} {check.found}" for check in found)
    if all(check.state == "ok" for check in found):
        return Check(f"extra {name}", "ok", text)
    advice = f"optional; in the folder of this project: pip install '.[{name}]'"
    return Check(f"extra {name}", "missing", text, advice)


def _guard(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except Exception as error:
        return Check(name, "failed", f"{type(error).__name__}: {error}", "report this message")


def _device() -> Check:
    import jax

    devices = ", ".join(str(device) for device in jax.devices())
    precision = jax.numpy.result_type(float)
    idle = jax.default_backend() == "cpu" and shutil.which("nvidia-smi") is not None
    advice = "a GPU is present, but JAX does not use it: pip install 'jax[cuda12]'" if idle else ""
    return Check("device", "ok", f"{devices}, {precision}, {os.cpu_count()} cores", advice)


def _episode() -> Check:
    from qenvs.cli.playing import play

    start = time.perf_counter()
    env = options.make(TASK, {})
    infidelity = play(env, options.task_spec(TASK).reference_pulse(env), 0)["infidelity"]
    found = f"pi pulse: 1-F = {infidelity:.1e}, {time.perf_counter() - start:.1f} s with compiling"
    if abs(infidelity) <= 1e-5:
        return Check("episode", "ok", found)
    return Check("episode", "failed", found, "1-F must be <= 1e-5; report this device")


def _folder() -> Check:
    here = os.getcwd()
    if os.access(here, os.W_OK):
        return Check("folder", "ok", f"results go to {os.path.join(here, 'runs')}")
    return Check("folder", "failed", f"{here} is read-only", "use --output with a folder of yours")

"""The command line: `qenvs list | info | run | train | optimize | evaluate | validate | demo |
doctor`.

Results go to standard output, progress and errors to standard error. Exit codes: 0 done, 1 failed,
2 used wrongly, 130 interrupted. Heavy imports happen inside the commands that need them.
"""

import json
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from qenvs import __version__
from qenvs.cli import (
    demo,
    doctor,
    evaluating,
    inspection,
    optimizing,
    playing,
    results,
    training,
    validating,
)

app = typer.Typer(
    name="qenvs",
    help="Quantum control: list tasks, play pulses, train agents, optimise by gradient.",
    epilog="Start with: qenvs list, qenvs info TASK, qenvs demo",
    add_completion=False,
    rich_markup_mode="rich" if sys.stdout.isatty() else None,
)
for module in (inspection, playing, training, optimizing, evaluating, validating, demo, doctor):
    module.register(app)

EXPECTED = (ValueError, TypeError, ImportError, OSError)
"""What a user can cause (in their plain form): the message says enough without a traceback."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"qenvs {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Version.")
    ] = False,
) -> None:
    """Options that stand before the command."""


def main() -> None:
    """Run the command line of this process and end it."""
    # the matrices are small: threads of SciPy's BLAS only wait for each other on a busy machine
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run(sys.argv[1:])
    if code == results.INTERRUPTED:
        # a computation may still be running in a thread of JAX, which a tidy exit crashes into
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(words: list[str]) -> int:
    """Run the command line `words` and give its exit code."""
    words = list(words) or ["--help"]
    as_json = "--json" in words
    try:
        code = int(app(words, prog_name="qenvs", standalone_mode=False) or 0)
    except SystemExit as end:  # of a command that has said how to go on
        return int(end.code or 0)
    except typer.Abort:
        code = results.INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone; nothing is left to flush
        return 1
    except Exception as error:
        if hasattr(error, "format_message"):  # Click's and Typer's own, whichever is installed
            return _fail(as_json, "usage", _usage_message(error), 2)
        if not _is_expected(error) and not as_json:
            traceback.print_exc()
        return _fail(as_json, type(error).__name__, _describe(error), 1)
    # Typer turns Ctrl-C into this code without a word
    interrupted = code == results.INTERRUPTED
    return _fail(as_json, "interrupted", "interrupted", code) if interrupted else code


def _usage_message(error: Any) -> str:
    context = getattr(error, "ctx", None)
    message = error.format_message().strip()
    return f"{message} (see {context.command_path} --help)" if context is not None else message


def _is_expected(error: Exception) -> bool:
    return isinstance(error, EXPECTED) and type(error).__module__ == "builtins"


def _describe(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _fail(as_json: bool, kind: str, message: str, code: int) -> int:
    record = {"error": {"type": kind, "message": message, "exit_code": code}}
    print(json.dumps(record) if as_json else f"qenvs: {message}", file=sys.stderr)
    return code

"""What the commands print: rich on a terminal, plain when piped, JSON on demand."""

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from qenvs._strict_json import spelled

WIDEST = 100
"""Columns that text fills at most, however wide the terminal is."""


def width() -> int:
    """Columns to fill: those of the terminal, 80 if there is none."""
    return min(shutil.get_terminal_size((80, 24)).columns, WIDEST)


def show_json(record: Any) -> None:
    """Print one JSON document."""
    print(json_text(record))


def json_text(record: Any) -> str:
    """JSON of a record; NumPy and JAX numbers become plain ones, what is not JSON its text."""
    return json.dumps(spelled(record), indent=2, allow_nan=False, default=str)


def show_text(text: str, indent: str = "") -> None:
    """Print a paragraph, wrapped and indented."""
    print(
        textwrap.fill(
            " ".join(text.split()), width() - 1, initial_indent=indent, subsequent_indent=indent
        )
    )


def show_heading(text: str) -> None:
    """Print the title of a section, after an empty line."""
    print()
    if sys.stdout.isatty():
        _console(stderr=False).print(text, style="bold")
    else:
        print(text)


def show_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print rows under a header: aligned columns; the last one wraps on a terminal."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _show_plain_table([list(header), *cells])
        return
    from rich import box
    from rich.table import Table

    table = Table(*header, box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for row in cells:
        table.add_row(*row)
    for column in table.columns[:-1]:
        column.no_wrap = True
    _console(stderr=False).print(table)


def show_metrics(final: dict[str, float]) -> None:
    """Print the numbers at the end of an episode, and 1 - F where there is a fidelity."""
    rows = [(name, f"{value:.8f}") for name, value in final.items()]
    if "fidelity" in final:
        rows.append(("1 - fidelity", f"{1 - final['fidelity']:.3e}"))
    show_table(("at the end", "value"), rows)


def show_definitions(rows: Sequence[tuple[str, str]], indent: str = "  ") -> None:
    """Print terms and, beside them, what they mean, wrapped in a column of its own."""
    left = max(len(term) for term, _ in rows) + 2
    for term, meaning in rows:
        lines = textwrap.wrap(meaning, max(width() - 1 - len(indent) - left, 20)) or [""]
        print(f"{indent}{term:{left}}{lines[0]}".rstrip())
        for line in lines[1:]:
            print(" " * (len(indent) + left) + line)


def _show_plain_table(rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(size) for cell, size in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def note(text: str) -> None:
    """Print a remark on standard error."""
    print(text, file=sys.stderr)


def _console(stderr: bool) -> Any:
    from rich.console import Console

    columns = width()
    return Console(stderr=stderr, width=columns, markup=False, highlight=False, emoji=False)


class Progress:
    """How far a job is, on standard error: a bar on a terminal, a line per tenth elsewhere.

    Args:
        title: name of the job.
        total: number of units that `update` counts up to; None if nobody knows.
        quiet: print nothing.
    """

    def __init__(self, title: str, total: int | None, quiet: bool = False) -> None:
        self.title, self.total, self.quiet = title, total, quiet
        self._bar: Any = None
        self._tenth, self._start = -1, time.perf_counter()

    def __enter__(self) -> "Progress":
        if not self.quiet and sys.stderr.isatty():
            self._bar = self._make_bar()
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, note="compiling")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, done: int, note: str = "") -> None:
        """Say that `done` of `total` units are done, with a short remark."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done, note=note)
        elif not self.quiet and self._is_due(done):
            share = f"{done}" if self.total is None else f"{100 * done // self.total:3d} %"
            seconds = time.perf_counter() - self._start
            line = f"{self.title}: {share}  {seconds:5.1f} s  {note}"
            print(line, file=sys.stderr, flush=True)

    def _is_due(self, done: int) -> bool:
        """Whether the next line is reached: a tenth of the whole, or a hundred units."""
        tenth = done // 100 if self.total is None else 10 * done // self.total
        reached, self._tenth = tenth > self._tenth, max(tenth, self._tenth)
        return reached

    def _make_bar(self) -> Any:
        from rich import progress

        return progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("{task.fields[note]}"),
            console=_console(stderr=True),
        )

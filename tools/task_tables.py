"""Write the tables of docs/tasks.md anew, from what `qenvs info --json` says.

    python tools/task_tables.py

A table stands between `<!-- task: ID -->` and `<!-- /task -->`; everything else is left alone. A
test fails where the page and the tasks have drifted apart.
"""

import re
from pathlib import Path
from typing import Any

from qenvs import registration
from qenvs.cli import inspection

PAGE = Path(__file__).resolve().parent.parent / "docs" / "tasks.md"
BLOCK = re.compile(r"<!-- task: (\S+) -->\n.*?<!-- /task -->", re.DOTALL)


def renewed(page: str) -> str:
    """The text of the page with every table as it should be."""
    return BLOCK.sub(lambda block: table(block[1]), page)


def table(task: str) -> str:
    """The block of a task: its size and names, then its keyword arguments."""
    spec = registration.spec(task)
    record = inspection.describe(spec, spec.load()())
    rows = [*map(row, facts(record).items()), "", *arguments(record["arguments"])]
    return "\n".join([f"<!-- task: {task} -->", "", "| | |", "| --- | --- |", *rows, "", END])


END = "<!-- /task -->"


def facts(record: dict[str, Any]) -> dict[str, str]:
    """What a reader asks first."""
    time, amplitude = record["units"]["time"], record["units"]["amplitude"]
    controls = [f"`{name}` in ±{bound:.6g}" for name, bound in record["controls"].items()]
    duration = f"{record['horizon']} x {record['dt']:g}, together {record['duration']:g}"
    return {
        "controls": f"{', '.join(controls)} ({amplitude})",
        "intervals": f"{duration} ({time})",
        "dimensions": " x ".join(map(str, record["dimensions"])),
        "observation": f"{record['observation_size']} numbers",
        "info keys": ", ".join(f"`{key}`" for key in record["info_keys"]),
        "reference pulse": record["reference"] or "none",
    }


def arguments(found: list[dict[str, Any]]) -> list[str]:
    """Rows of the keyword arguments; those that can be randomised say so, with their unit."""
    rows = ["| keyword | default | meaning |", "| --- | --- | --- |"]
    for argument in found:
        meaning = argument["text"].rstrip(".")
        if argument["randomisable"]:
            unit = f" ({argument['unit']})" if argument["unit"] else ""
            meaning += f". **Can be randomised**{unit}"
        cells = f"`{argument['name']}`", f"`{argument['default']!r}`", meaning
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def row(fact: tuple[str, str]) -> str:
    """One line of a table of two columns."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in fact) + " |"


def main() -> None:
    """Renew the page in place."""
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

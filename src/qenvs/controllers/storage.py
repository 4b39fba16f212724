"""Files that hold arrays under a line of JSON, written as a whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

import equinox as eqx


def write(path: str | Path, header: dict[str, Any], tree: Any) -> None:
    """Replace the file at `path` by the header and the leaves of `tree`.

    A process killed at any moment leaves either the old file or the new one.
    """
    path = Path(path)
    partial = path.with_name(path.name + ".part")
    with partial.open("wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
        eqx.tree_serialise_leaves(file, tree)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def read_header(path: str | Path, kind: str) -> dict[str, Any]:
    """The header of a file whose "kind" is `kind`; ValueError for any other file."""
    with Path(path).open("rb") as file:
        try:
            header = json.loads(file.readline())
        except ValueError:
            header = None
    if not isinstance(header, dict) or header.get("kind") != kind:
        raise ValueError(f"{path} must be a {kind} file of qenvs, and is not")
    return header


def read_tree(path: str | Path, like: Any) -> Any:
    """The tree of a file; `like` has its structure, shapes and dtypes.

    Raises:
        ValueError: the arrays cannot be read, or are others.
    """
    with Path(path).open("rb") as file:
        file.readline()
        try:
            return eqx.tree_deserialise_leaves(file, like)
        except (EOFError, RuntimeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(
                f"{path} is damaged ({reason}); remove it, or put a copy in its place"
            ) from None

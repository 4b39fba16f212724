"""`qenvs run`: play one episode with a fixed pulse."""

import typer


def register(app: typer.Typer) -> None:
    """Add."""

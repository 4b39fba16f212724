"""Checks of arguments that several rooms share."""

from __future__ import annotations

from typing import SupportsIndex


def positive_int(name: str, value: SupportsIndex) -> int:
    """Return `value` as an int; TypeError if it is no integer, ValueError if it is below 1."""
    return integer(name, value, least=1)


def integer(name: str, value: SupportsIndex, least: int) -> int:
    """Return `value` as an int; TypeError if it is no integer, ValueError if below `least`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"`{name}` must be an integer, got {type(value).__name__} {value!r}")
    if value.__index__() < least:
        raise ValueError(f"`{name}` must be at least {least}, got {value}")
    return value.__index__()

"""Argument checks and the form of their messages: what must hold, what came, the fix."""

import difflib
import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer


def is_concrete(value: Any) -> bool:
    """Whether `value` has a number now (a traced JAX value has none)."""
    return not isinstance(value, Tracer)


def as_parameter(value: Any) -> Any:
    """A physical parameter as an array leaf: JAX arrays pass, numbers become float64 arrays."""
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, (bool, str, bytes)) or value is None:
        raise TypeError(f"a parameter must be a real number, got {value!r}")
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"a parameter must be a real number, got {value!r}")
    return array.astype(np.float64)


def real(name: str, value: Any) -> jax.Array:
    """`value` as an array; TypeError if it is complex, which would lose its imaginary part."""
    array = jax.numpy.asarray(value)
    if jax.numpy.iscomplexobj(array):
        raise TypeError(f"`{name}` must be real, got {array.dtype}; use one control per quadrature")
    return array


def finite(name: str, value: Any) -> Any:
    """`value`, if every element is finite (or not known yet); ValueError otherwise."""
    if is_concrete(value) and not np.all(np.isfinite(value)):
        raise ValueError(f"`{name}` must be finite, got {value}")
    return value


def non_negative(name: str, value: Any) -> Any:
    """`value`, if finite and >= 0 (or not known yet); ValueError otherwise."""
    finite(name, value)
    if is_concrete(value) and np.any(np.asarray(value) < 0):
        raise ValueError(f"`{name}` must be >= 0, got {value}")
    return value


def positive(name: str, value: Any) -> Any:
    """`value`, if finite and > 0 (or not known yet); ValueError otherwise."""
    finite(name, value)
    if is_concrete(value) and np.any(np.asarray(value) <= 0):
        raise ValueError(f"`{name}` must be > 0, got {value}")
    return value


def integer(name: str, value: Any, minimum: int | None = None) -> int:
    """`value` as an int; TypeError for bools and non-integers, ValueError below `minimum`."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"`{name}` must be an integer, got {value!r}")
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` must be an integer, got {value!r}") from None
    if minimum is not None and number < minimum:
        raise ValueError(f"`{name}` must be >= {minimum}, got {number}")
    return number


MAX_HORIZON = 2**24
"""Largest number of steps that a float32 counts one by one."""


def horizon(value: Any) -> int:
    """A number of steps as an int; ValueError outside 1 ... `MAX_HORIZON`."""
    steps = integer("horizon", value, minimum=1)
    if steps > MAX_HORIZON:
        raise ValueError(
            f"`horizon` must be <= {MAX_HORIZON}, up to which float32 counts steps, got {steps}; "
            "take fewer steps of a longer dt"
        )
    return steps


def shape(name: str, value: Any, expected: Sequence[int]) -> Any:
    """`value`, if it has the expected shape; ValueError naming both otherwise."""
    got = np.shape(value)
    if got != tuple(expected):
        raise ValueError(f"`{name}` must have shape {tuple(expected)}, got {got}")
    return value


def choice(name: str, value: Any, options: Iterable[Any]) -> Any:
    """`value`, if it is one of `options`; ValueError listing them otherwise."""
    known = list(options)
    if value not in known:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, known))}, got {value!r}")
    return value


def suggest(name: str, known: Iterable[str]) -> str:
    """The near ones among `known`, or all of them, as the tail of an error message."""
    names = sorted(known)
    near = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"known: {', '.join(names) or 'none'}"


def ceil_to_int(value: float) -> int:
    """The smallest int >= value, forgiving float rounding at whole numbers."""
    return math.ceil(value - 1e-9)

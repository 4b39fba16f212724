"""Operators and states from NumPy, JAX, dynamiqs, QuTiP and SciPy, checked by name."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from qenvs import _checks
from qenvs.observables import as_array

HERMITIAN_RTOL = 1e-8
STATE_TOL = 1e-6
MAX_DIMENSION = 4096
"""Operators are dense in the engine: at this dimension each takes 256 MiB in complex128."""

TIME_DEPENDENT = ("QobjEvo", "TimeQArray")


def as_operator(name: str, value: Any, dimension: int | None = None) -> np.ndarray:
    """A square complex matrix as given; errors name the operator.

    Args:
        name: what to call it in a message.
        value: NumPy or JAX array, nested list, dynamiqs QArray, QuTiP Qobj or SciPy sparse matrix.
        dimension: size it must have, if known.

    Raises:
        TypeError: not a matrix of numbers, or time-dependent.
        ValueError: not square, of another size, too large, or with NaN or infinite entries.
    """
    matrix = _as_matrix(name, value)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if dimension is not None and matrix.shape[0] != dimension:
        raise ValueError(
            f"{name} must have shape {(dimension, dimension)} like the drift, got {matrix.shape}"
        )
    return matrix


def as_hermitian(name: str, value: Any, dimension: int | None = None) -> np.ndarray:
    """A Hermitian matrix as given (relative tolerance 1e-8)."""
    matrix = as_operator(name, value, dimension)
    skew = np.abs(matrix - matrix.conj().T).max(initial=0.0)
    scale = np.abs(matrix).max(initial=0.0)
    if skew > HERMITIAN_RTOL * scale:
        raise ValueError(
            f"{name} must be Hermitian to {HERMITIAN_RTOL:g}, got max|A - A'| = {skew:.3g} at "
            f"max|A| = {scale:.3g}; use (A + A')/2 if that is rounding"
        )
    return matrix


def as_state(name: str, value: Any, dimension: int) -> np.ndarray:
    """A ket (d,) of norm 1, or a density matrix (d, d) of trace 1, positive; all to 1e-6."""
    state = _as_matrix(name, value)
    if state.shape in ((dimension,), (dimension, 1)):
        ket = state.reshape(-1)
        norm = np.linalg.norm(ket)
        if abs(norm - 1) > STATE_TOL:
            raise ValueError(f"{name} must have norm 1, got {norm:.6g}; divide it by its norm")
        return ket
    if state.shape != (dimension, dimension):
        raise ValueError(
            f"{name} must be a ket of shape ({dimension},) or ({dimension}, 1), or a density "
            f"matrix of shape ({dimension}, {dimension}) like the drift, got shape {state.shape}"
        )
    if np.abs(state - state.conj().T).max() > STATE_TOL:
        raise ValueError(f"{name} must be Hermitian to {STATE_TOL:g}, as density matrices are")
    trace, lowest = np.trace(state).real, np.linalg.eigvalsh(state)[0]
    if abs(trace - 1) > STATE_TOL:
        raise ValueError(f"{name} must have trace 1, got {trace:.6g}; divide it by its trace")
    if lowest < -STATE_TOL:
        raise ValueError(f"{name} must be positive, got the eigenvalue {lowest:.3g}")
    return state


def tensor_structure(name: str, value: Any) -> tuple[int, ...] | None:
    """Dimensions of the tensor factors that a QArray or Qobj states; None for plain arrays.

    A QuTiP ket may state its columns as [1] or as [1, 1, ...].
    """
    dims = getattr(value, "dims", None)
    if dims is None or not hasattr(dims, "__len__"):
        return None
    rows = dims[0] if isinstance(dims[0], (list, tuple)) else dims
    if any(isinstance(factor, (list, tuple)) for factor in rows):
        raise TypeError(f"{name} must be an operator or state, got a superoperator, dims {dims}")
    return tuple(int(factor) for factor in rows)


def _as_matrix(name: str, value: Any) -> np.ndarray:
    _refuse_time_dependence(name, value)
    if not _checks.is_concrete(value):
        raise TypeError(f"{name} must be a known matrix, got a traced JAX value")
    size = max(getattr(value, "shape", ()), default=0)
    if size > MAX_DIMENSION:
        raise ValueError(
            f"{name} has dimension {size}, dense {16 * size**2 / 2**30:.1f} GiB per operator; "
            f"at most {MAX_DIMENSION} is supported"
        )
    matrix = _as_numbers(name, as_array(value) if hasattr(value, "shape") else value)
    if matrix.dtype.kind not in "iufc":
        raise TypeError(f"{name} must be a matrix of numbers, got dtype {matrix.dtype}")
    if not np.all(np.isfinite(matrix)):
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    return matrix.astype(complex)


def _as_numbers(name: str, value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except ValueError:
        raise TypeError(f"{name} must be a matrix of numbers, got {value!r:.60}") from None


def _refuse_time_dependence(name: str, value: Any) -> None:
    parts = list(_flattened(value))
    kinds = {kind.__name__ for part in parts for kind in type(part).__mro__}
    functions = any(callable(part) and not hasattr(part, "shape") for part in parts)
    if functions or kinds.intersection(TIME_DEPENDENT):
        raise TypeError(
            f"{name} must not depend on time, got {type(value).__name__}: what varies in time "
            "belongs to `controls`, whose amplitudes are the actions; else pass its value at one "
            "time"
        )


def _flattened(value: Any) -> Iterator[Any]:
    """The value, or the elements of nested lists (QuTiP's [H0, [H1, f(t)]])."""
    if not isinstance(value, (list, tuple)):
        yield value
        return
    for part in value:
        yield from _flattened(part)

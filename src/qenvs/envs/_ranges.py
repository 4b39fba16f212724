"""How large the coefficients of a model become while its parameters vary."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from qenvs import _checks
from qenvs.models.base import Model

Ranges = tuple[tuple[str, float, float], ...]
"""Parameters with the lowest and the highest value that they may take."""


def largest_coefficients(
    model: Model, jumps: Sequence[int], ranges: Ranges
) -> tuple[list[float], list[float]] | None:
    """Largest |coefficient| of the drift terms and of the given jump terms over a box.

    None where a number is not known yet, where an interval is unbounded, or where a coefficient is
    not affine in the parameters, so that the ends of the intervals do not bound it.
    """
    weights = _coefficients(model, jumps)
    if not all(map(_checks.is_concrete, weights)):
        return None
    if not np.all(np.isfinite([ends for _, *ends in ranges])):
        return None
    nominal = np.array(weights, float)
    highest, lowest = nominal.copy(), nominal.copy()
    slopes = {}
    for name, low, high in ranges:
        changes = [_at(model, jumps, {name: end}) - nominal for end in (low, high)]
        highest += np.maximum(*changes)
        lowest += np.minimum(*changes)
        slopes[name] = (changes[1] - changes[0]) / ((high - low) or 1.0)
    largest = np.maximum(abs(highest), abs(lowest))
    if not _affine(model, jumps, ranges, nominal, slopes, largest):
        return None
    terms = len(model.drift_terms())
    return largest[:terms].tolist(), largest[terms:].tolist()


def _coefficients(model: Model, jumps: Sequence[int]) -> list[Any]:
    rates = model.jump_terms()
    return [weight for weight, _ in (*model.drift_terms(), *(rates[j] for j in jumps))]


def _at(model: Model, jumps: Sequence[int], values: dict[str, float]) -> np.ndarray:
    return np.array(_coefficients(model.with_parameters(**values), jumps), float)


def _affine(
    model: Model,
    jumps: Sequence[int],
    ranges: Ranges,
    nominal: np.ndarray,
    slopes: dict[str, np.ndarray],
    largest: np.ndarray,
) -> bool:
    """Whether the plane through the ends meets the coefficients at points inside the box."""
    centre = model.parameter_values()
    for point in np.random.default_rng(0).uniform(size=(4 if ranges else 0, len(ranges))):
        values = {
            name: low + (high - low) * float(u)
            for (name, low, high), u in zip(ranges, point, strict=True)
        }
        plane = nominal + sum(slopes[n] * (v - float(centre[n])) for n, v in values.items())
        if np.any(abs(_at(model, jumps, values) - plane) > 1e-9 * largest):
            return False
    return True

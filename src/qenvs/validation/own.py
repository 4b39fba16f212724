"""Checks of a user's model: what must hold for any model, and agreement with a reference."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from qenvs.models.base import Model
from qenvs.validation.results import Check, Measure


def model_checks(model: Any, reference: Any = None) -> list[Check]:
    """The checks of a model, and of its agreement with a reference; nothing is computed yet.

    Raises:
        TypeError: not a model.
    """
    if not isinstance(model, Model):
        raise TypeError(
            f"the model must be a qenvs.models.base.Model, got {type(model).__name__}; "
            "HamiltonianModel.from_operators makes one from matrices"
        )
    from qenvs.validation.suite import in_order

    return in_order(structure(model))


def structure(model: Model) -> Iterator[Check]:
    """What the terms of a model must be."""
    label = type(model).__name__
    yield Check("Hamiltonian terms are Hermitian", label, "structure", lambda: hermitian(model))


def hermitian(model: Model) -> Measure:
    """max |A - A'| over the terms, relative to max |A|."""
    errors = [
        np.abs(a - a.conj().T).max() / max(np.abs(a).max(), 1e-300)
        for a in model.hamiltonian_operators()
    ]
    return Measure(max(errors), 1e-8)

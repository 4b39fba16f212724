"""Brute force: the engine against SciPy's exponential of equations written a second time."""

from collections.abc import Iterator

import numpy as np

from qenvs.validation.cases import Case
from qenvs.validation.results import Check, Measure


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Every state and every info entry of every case."""
    for case in cases.values():
        yield Check("state after every step", case.label, "brute force", lambda c=case: states(c))


def states(case: Case) -> Measure:
    """Largest entry of the difference between the states, over the episode."""
    difference = np.abs(case.play.states - case.reference_states)
    return Measure(difference.max(), case.rounding())

"""What a check is, and what it finds: an error against a tolerance."""

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax


class Measure(NamedTuple):
    """What a check measured.

    Attributes:
        error: distance from what must hold, >= 0.
        tolerance: largest error that rounding, or the method, explains.
        detail: what a reader of a failure needs to know.
    """

    error: float
    tolerance: float
    detail: str = ""


class CheckResult(NamedTuple):
    """One line of a validation.

    Attributes:
        name: what must hold.
        model: what it was checked on.
        category: kind of the check, one of `CATEGORIES`.
        error: measured distance from what must hold; infinite where the check itself failed.
        tolerance: largest error that passes.
        passed: error <= tolerance.
        detail: remark, mostly on a failure.
    """

    name: str
    model: str
    category: str
    error: float
    tolerance: float
    passed: bool
    detail: str = ""

    @property
    def ratio(self) -> float:
        """error / tolerance, at most 1 where the check passed."""
        if self.tolerance == 0:
            return 0.0 if self.passed else math.inf
        return self.error / self.tolerance


class Check(NamedTuple):
    """A statement about a model that can be measured.

    Attributes:
        name, model, category: as in `CheckResult`.
        measure: computes the error; its exceptions are failures.
    """

    name: str
    model: str
    category: str
    measure: Callable[[], Measure]

    @property
    def id(self) -> str:
        """Name of the check in a report of tests."""
        return f"{self.category}: {self.model}: {self.name}"

    def run(self) -> CheckResult:
        """Measure in double precision; JAX's own setting is left as it was."""
        try:
            with double_precision():
                error, tolerance, detail = self.measure()
        except Exception as problem:
            error, tolerance = math.inf, 0.0
            detail = f"{type(problem).__name__}: {problem}"
        error, tolerance = float(error), float(tolerance)
        # NaN compares as false, so it fails
        passed = error <= tolerance
        return CheckResult(self.name, self.model, self.category, error, tolerance, passed, detail)


class Collection:
    """Checks written as functions: `@check("TwoLevel", "what must hold")`, gathered in order."""

    def __init__(self, category: str) -> None:
        self.category = category
        self.found: list[Check] = []

    def __call__(
        self, model: str, name: str
    ) -> Callable[[Callable[[], Measure]], Callable[[], Measure]]:
        """Add the decorated function as a check."""

        def add(measure: Callable[[], Measure]) -> Callable[[], Measure]:
            self.found.append(Check(name, model, self.category, measure))
            return measure

        return add


CATEGORIES = (
    "closed forms",
    "brute force",
    "QuTiP",
    "conservation",
    "thermodynamics",
    "convergence",
    "environment",
    "gradients",
    "transformations",
    "parameters",
    "structure",
    "reference",
)
"""Kinds of checks, in the order of a report."""


def double_precision(on: bool = True) -> Any:
    """Context in which JAX computes in float64 (or float32), whatever its setting is."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    # where the older versions have it
    return importlib.import_module("jax.experimental").enable_x64(on)

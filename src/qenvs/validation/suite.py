"""Run checks: the built-in ones, or those of a user's model."""

import importlib
from collections.abc import Callable, Iterable
from typing import Any

from qenvs.validation.results import CATEGORIES, Check, CheckResult

BUILT_IN = (
    "closed_forms",
    "closed_forms_hardware",
    "evolution",
    "solvers",
    "conservation",
    "thermodynamics",
    "convergence",
    "environments",
    "gradients",
    "transformations",
    "parameters",
)
"""Modules with checks of the built-in models."""

Progress = Callable[[int, str], None]
"""Told the number of checks done and what comes next."""


def built_in_checks() -> list[Check]:
    """The checks of every built-in model and task; nothing is computed yet.

    Checks of one call share what they compute, such as the episodes of each task.
    """
    from qenvs.validation.cases import built_in_cases

    cases = built_in_cases()
    modules = (importlib.import_module(f"qenvs.validation.{name}") for name in BUILT_IN)
    return in_order(check for module in modules for check in module.checks(cases))


def in_order(checks: Iterable[Check]) -> list[Check]:
    """The checks by category, as a report shows them."""
    return sorted(checks, key=lambda check: CATEGORIES.index(check.category))


def run_checks(checks: Iterable[Check], progress: Progress | None = None) -> list[CheckResult]:
    """Run checks one after the other.

    Args:
        checks: from `built_in_checks` or `model_checks`.
        progress: called with (number done, what comes next) before each check and at the end.
    """
    results: list[CheckResult] = []
    for check in checks:
        if progress is not None:
            progress(len(results), f"{check.category}: {check.model}")
        results.append(check.run())
    if progress is not None:
        progress(len(results), "")
    return results


def validate(
    model: Any = None, reference: Any = None, progress: Progress | None = None
) -> list[CheckResult]:
    """Check the physics of the built-in models and tasks, or of your own model.

    Everything is computed in float64 unless a check is about float32; JAX's setting stays.

    Args:
        model: your `Model`; None checks everything that is built in.
        reference: what `model` must agree with: a `Model`, or a function of the control amplitudes
            (n,) that gives the Hamiltonian matrix. Terms are compared one by one, and a difference
            is named: a wrong sign, a swapped control, a conjugated jump operator.
        progress: called with (number done, what comes next).

    Returns:
        A `CheckResult` for each check: name, model, category, error, tolerance, passed.

    Raises:
        ValueError: a reference without a model.
        TypeError: a model that is not a `qenvs.models.base.Model`.
    """
    if model is None:
        if reference is not None:
            raise ValueError("`reference` needs a `model` to compare with it")
        return run_checks(built_in_checks(), progress)
    from qenvs.validation.own import model_checks

    return run_checks(model_checks(model, reference), progress)

"""What "physically validated" means, as checks that can fail: `qenvs validate`.

Every check measures an error and holds it against a tolerance that rounding or the method
explains. `validate()` runs those of the built-in models, `validate(model, reference)` those of
your own. QuTiP is imported by the checks that need it.
"""

from qenvs.validation.loading import load
from qenvs.validation.results import CATEGORIES, Check, CheckResult, Measure
from qenvs.validation.suite import built_in_checks, run_checks, validate

__all__ = [
    "CATEGORIES",
    "Check",
    "CheckResult",
    "Measure",
    "built_in_checks",
    "load",
    "run_checks",
    "validate",
]

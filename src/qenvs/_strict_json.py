"""JSON that every reader takes: infinity and NaN, which it does not know, stand as texts."""

import math
from typing import Any

NOT_FINITE = ("inf", "-inf", "nan")


def spelled(value: Any) -> Any:
    """The value with "inf", "-inf", "nan" for such numbers, arrays as lists; at any depth."""
    if hasattr(value, "tolist"):
        return spelled(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return _mapped(spelled, value)


def restored(value: Any) -> Any:
    """The value with numbers in place of these texts."""
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    return _mapped(restored, value)


def _mapped(function: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: function(item) for key, item in value.items()}
    return [function(item) for item in value] if isinstance(value, (list, tuple)) else value

"""Wrappers change what is sampled or seen; adapters translate to other interfaces.

The functional wrappers need nothing beyond JAX; the Gymnasium adapters load on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from qenvs.wrappers.control import ControlErrors, apply_control_errors
from qenvs.wrappers.core import AutoReset, EpisodeStatistics, WrappedState, Wrapper
from qenvs.wrappers.layout import NormalizedObservation, observation_layout
from qenvs.wrappers.observation import (
    ObservationModel,
    ReadoutError,
    observation_kind,
    outcome_counts,
)
from qenvs.wrappers.randomization import ParameterRandomization

if TYPE_CHECKING:
    from qenvs.wrappers.gymnasium import GymnasiumEnv
    from qenvs.wrappers.gymnax import GymnaxEnv
    from qenvs.wrappers.vector import GymnasiumVectorEnv

_HOMES = {
    "GymnasiumEnv": "qenvs.wrappers.gymnasium",
    "GymnasiumVectorEnv": "qenvs.wrappers.vector",
    "GymnaxEnv": "qenvs.wrappers.gymnax",
}

__all__ = [
    "AutoReset",
    "ControlErrors",
    "EpisodeStatistics",
    "GymnasiumEnv",
    "GymnasiumVectorEnv",
    "GymnaxEnv",
    "NormalizedObservation",
    "ObservationModel",
    "ParameterRandomization",
    "ReadoutError",
    "WrappedState",
    "Wrapper",
    "apply_control_errors",
    "observation_kind",
    "observation_layout",
    "outcome_counts",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'qenvs.wrappers' has no attribute {name!r}")

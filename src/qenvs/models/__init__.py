"""Physical models: Hamiltonians, jump operators, parameters and observables as tested objects."""

from qenvs.models.base import Model, ParameterSpec
from qenvs.models.two_level import TwoLevel

__all__ = ["Model", "ParameterSpec", "TwoLevel"]

"""Physical models: Hamiltonians, jump operators, parameters and observables as tested objects."""

from qenvs.models.base import Model, ParameterSpec
from qenvs.models.transmon import Transmon
from qenvs.models.two_level import TwoLevel
from qenvs.models.two_transmon import TwoTransmon

__all__ = ["Model", "ParameterSpec", "Transmon", "TwoLevel", "TwoTransmon"]

"""Physical models: Hamiltonians, jump operators, parameters and observables as tested objects."""

from qenvs.models.base import Model, ParameterSpec, TruncatedModel
from qenvs.models.battery import BatteryModel
from qenvs.models.custom import HamiltonianModel
from qenvs.models.dicke import DickeBattery
from qenvs.models.dicke_local import DickeBatteryLocal
from qenvs.models.lambda_system import LambdaSystem
from qenvs.models.qubit_battery import QubitBattery
from qenvs.models.transmon import Transmon
from qenvs.models.two_level import TwoLevel
from qenvs.models.two_transmon import TwoTransmon

__all__ = [
    "BatteryModel",
    "DickeBattery",
    "DickeBatteryLocal",
    "HamiltonianModel",
    "LambdaSystem",
    "Model",
    "ParameterSpec",
    "QubitBattery",
    "Transmon",
    "TruncatedModel",
    "TwoLevel",
    "TwoTransmon",
]

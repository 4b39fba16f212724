"""Functional environments: state in, state out; jit, vmap and grad apply to them directly."""

from qenvs.envs.base import ControlEnvironment, Environment, EnvState, TimeStep
from qenvs.envs.battery import BatteryCharging
from qenvs.envs.gate import GateControl
from qenvs.envs.state_transfer import StateTransfer
from qenvs.envs.truncation import TruncationWarning

__all__ = [
    "BatteryCharging",
    "ControlEnvironment",
    "EnvState",
    "Environment",
    "GateControl",
    "StateTransfer",
    "TimeStep",
    "TruncationWarning",
]

"""From an environment to a pulse (`optimize`) or to a policy (`train`)."""

from qenvs.controllers.grape import PulseResult, optimize

__all__ = ["PulseResult", "optimize"]

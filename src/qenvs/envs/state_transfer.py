"""Steer a state to a target ket."""

from typing import Any, cast

import equinox as eqx
import numpy as np
from jax import Array

from qenvs import _checks
from qenvs.dynamics import Generator, StateCoordinates
from qenvs.envs.base import ControlEnvironment, EnvState, observable_values, state_generator
from qenvs.observables import as_array


def as_target(ket: Any) -> Any:
    """A ket as a complex vector; ValueError unless it is finite and its norm is 1 (to 1e-6)."""
    vector = as_array(ket)
    vector = np.asarray(vector, complex).reshape(-1) if _checks.is_concrete(vector) else vector
    if _checks.is_concrete(vector):
        norm = np.linalg.norm(_checks.finite("target", vector))
        if abs(norm - 1) > 1e-6:
            raise ValueError(f"`target` must have norm 1, got {norm:.6g}; divide it by its norm")
    return vector


class StateTransfer(ControlEnvironment):
    """Fidelity F = <target|rho|target> with a target ket; the reward is its gain.

    Args:
        model, horizon, dt, action_bound, method: as for `ControlEnvironment`.
        target: ket, shape (d,), norm 1.

    Raises:
        ValueError: a target of the wrong size or norm.
    """

    target: Any = eqx.field(converter=as_target, kw_only=True)

    def __check_init__(self) -> None:
        _checks.shape("target", self.target, (int(np.prod(self.model.dims)),))

    def build_generator(self) -> Generator:
        return state_generator(self.model)

    def initial_object(self) -> Any:
        return self.model.initial_state()

    @property
    def quantity_name(self) -> str:
        """Name of the task quantity."""
        return "fidelity"

    def quantity(self, x: Array) -> Array:
        coordinates = cast(StateCoordinates, self.generator.coordinates)
        return coordinates.fidelity(x, self.target)

    def info(self, state: EnvState) -> dict[str, Array]:
        return {"fidelity": state.value, **observable_values(self.model, state)}

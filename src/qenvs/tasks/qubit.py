"""Tasks on a single driven qubit."""

from typing import Any

import numpy as np

from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.models.two_level import TwoLevel


def state_transfer(
    *,
    omega0: Any = 1.0,
    detuning: Any = 0.0,
    gamma1: Any = 0.0,
    gamma_phi: Any = 0.0,
    initial: str = "ground",
    horizon: int = 20,
    dt: Any = 0.1,
    action_bound: Any = 2.0,
    method: Any = None,
) -> StateTransfer:
    """Flip a qubit: fidelity to |1> of H = (detuning/2) sigma_z + u sigma_x/2, |u| <= 2.

    A pi pulse, u = pi/T for the whole duration T = 2, reaches F = 1 on resonance.
    """
    model = TwoLevel(omega0, detuning, gamma1, gamma_phi, initial)
    return StateTransfer(model, horizon, dt, action_bound, target=basis_ket(2, 1), method=method)


def pi_pulse(env: StateTransfer) -> np.ndarray:
    """Constant resonant pulse u = pi/T, actions of shape (horizon, 1)."""
    return np.full((env.horizon, 1), np.pi / env.duration)

"""Tasks that transfer population between the levels of one system."""

from typing import Any

import numpy as np

from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.models.lambda_system import LambdaSystem


def lambda_stirap(
    *,
    delta_one_photon: Any = 0.0,
    delta_two_photon: Any = 0.0,
    gamma: Any = 0.0,
    horizon: int = 100,
    dt: Any = 0.2,
    action_bound: Any = 1.0,
    method: Any = None,
) -> StateTransfer:
    """Carry |1> to |3> of a Lambda system past its lossy level |2>; controls pump and Stokes.

    H = D |2><2| + d |3><3| + (Omega_p/2)(|1><2| + h.c.) + (Omega_s/2)(|3><2| + h.c.), both
    |Omega| <= 1. Stokes before pump (STIRAP) reaches F = 0.9964.
    """
    model = LambdaSystem(delta_one_photon, delta_two_photon, gamma)
    return StateTransfer(model, horizon, dt, action_bound, target=basis_ket(3, 2), method=method)


def stirap_pair(env: StateTransfer) -> np.ndarray:
    """Gaussian pump and Stokes pulses in the counter-intuitive order, Stokes first.

    exp(-((t - t_c)/w)^2) times the bound at the interval midpoints, w = 0.3 T, centres
    T/2 + 0.15 T (pump) and T/2 - 0.15 T (Stokes). Actions of shape (horizon, 2).
    """
    fraction = (np.arange(env.horizon) + 0.5) / env.horizon
    centres = np.array([0.65, 0.35])
    shape = np.exp(-(((fraction[:, None] - centres) / 0.3) ** 2))
    return shape * np.asarray(env.action_bound)

"""Tasks that charge a quantum battery."""

from typing import Any

import numpy as np

from qenvs.envs.battery import BatteryCharging
from qenvs.models.dicke import DickeBattery
from qenvs.models.dicke_local import DickeBatteryLocal
from qenvs.models.qubit_battery import QubitBattery


def two_level(
    *,
    omega0: Any = 1.0,
    detuning: Any = 0.0,
    gamma1: Any = 0.0,
    n_th: Any = 0.0,
    gamma_phi: Any = 0.0,
    initial: str = "ground",
    reward: str = "energy",
    horizon: int = 20,
    dt: Any = 0.1,
    action_bound: Any = 2.0,
    method: Any = None,
) -> BatteryCharging:
    """Charge a driven qubit that may touch a thermal bath.

    H = (detuning/2) sigma_z + u sigma_x/2, |u| <= 2, H_B = omega0 |1><1|. A pi pulse, u = pi/T for
    the whole duration T = 2, stores omega0.
    """
    model = QubitBattery(omega0, detuning, gamma1, n_th, gamma_phi, initial)
    return BatteryCharging(model, horizon, dt, action_bound, reward=reward, method=method)


def dicke(
    *,
    n_cells: int = 3,
    n_photons: int | None = None,
    n_max: int | None = None,
    omega0: Any = 1.0,
    omega_c: Any = 1.0,
    rwa: bool = True,
    kappa: Any = 0.0,
    gamma: Any = 0.0,
    gamma_phi: Any = 0.0,
    reward: str = "energy",
    horizon: int = 20,
    dt: Any = 0.2,
    action_bound: Any = 0.5,
    method: Any = None,
) -> BatteryCharging:
    """Charge N cells, the symmetric subspace alone, from a cavity with N photons.

    H = omega0 (J_z + N/2) + omega_c a'a + g (a'J_- + a J_+), |g| <= 0.5,
    H_B = omega0 (J_z + N/2) with the cavity traced out.
    """
    model = DickeBattery(n_cells, n_photons, n_max, omega0, omega_c, rwa, kappa, gamma, gamma_phi)
    return BatteryCharging(model, horizon, dt, action_bound, reward=reward, method=method)


def dicke_local(
    *,
    n_cells: int = 3,
    n_photons: int | None = None,
    n_max: int | None = None,
    omega0: Any = 1.0,
    omega_c: Any = 1.0,
    rwa: bool = True,
    kappa: Any = 0.0,
    gamma: Any = 0.0,
    gamma_phi: Any = 0.0,
    gamma_local: Any = 0.05,
    gamma_phi_local: Any = 0.05,
    pumping_local: Any = 0.0,
    reward: str = "energy",
    horizon: int = 20,
    dt: Any = 0.2,
    action_bound: Any = 0.5,
    method: Any = None,
) -> BatteryCharging:
    """Charge N cells from a cavity while each cell emits and dephases on its own.

    As battery/Dicke-v0, on the permutation-invariant blocks of total spin.
    """
    model = DickeBatteryLocal(
        n_cells, n_photons, n_max, omega0, omega_c, rwa, kappa, gamma, gamma_phi,
        gamma_local, gamma_phi_local, pumping_local,
    )  # fmt: skip
    return BatteryCharging(model, horizon, dt, action_bound, reward=reward, method=method)


def pi_pulse(env: BatteryCharging) -> np.ndarray:
    """Constant resonant pulse u = pi/T, actions of shape (horizon, 1)."""
    return np.full((env.horizon, 1), np.pi / env.duration)

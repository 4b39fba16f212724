"""A driven qubit."""

from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from qenvs import _checks
from qenvs.models.base import (
    RATE,
    REAL_LINE,
    START,
    UNIT,
    ParameterSpec,
    Term,
    basis_ket,
    check_rates,
    number,
)
from qenvs.models.battery import Battery, BatteryModel

SIGMA_X = np.array([[0, 1], [1, 0]], complex)
SIGMA_Z = np.diag([1.0, -1.0]).astype(complex)
LOWERING = np.array([[0, 1], [0, 0]], complex)
EXCITED = np.diag([0.0, 1.0]).astype(complex)


class TwoLevel(BatteryModel):
    """Qubit in the frame of its drive, with relaxation and dephasing.

    H = (detuning/2) sigma_z + u sigma_x/2, jump operators sqrt(gamma1) |0><1| and
    sqrt(gamma_phi/2) sigma_z. On resonance a constant u gives P1 = sin^2(u t/2).

    Args:
        omega0: transition energy, the unit of energy of `observables()["energy"]`; > 0.
        detuning: qubit minus drive frequency, in units of omega0.
        gamma1: relaxation rate 1/T1 >= 0; P1 decays as exp(-gamma1 t).
        gamma_phi: pure dephasing rate >= 0, at which the coherence decays.
        initial: "ground" or "excited".

    Raises:
        ValueError: a negative or non-finite rate, a non-finite number, an unknown `initial`.
    """

    time_unit: ClassVar[str] = "1/omega0"
    amplitude_unit: ClassVar[str] = "omega0"

    omega0: Any = number(1.0)
    detuning: Any = number(0.0)
    gamma1: Any = number(0.0)
    gamma_phi: Any = number(0.0)
    initial: str = eqx.field(default="ground", static=True)

    def __check_init__(self) -> None:
        _checks.positive("omega0", self.omega0)
        _checks.finite("detuning", self.detuning)
        check_rates(self, ("gamma1", "gamma_phi"))
        _checks.choice("initial", self.initial, ("ground", "excited"))

    @property
    def dims(self) -> tuple[int, ...]:
        return (2,)

    @property
    def control_names(self) -> tuple[str, ...]:
        return ("u",)

    def drift_terms(self) -> tuple[Term, ...]:
        return ((self.detuning, SIGMA_Z / 2),)

    def control_operators(self) -> tuple[np.ndarray, ...]:
        return (SIGMA_X / 2,)

    def jump_terms(self) -> tuple[Term, ...]:
        return ((self.gamma1, LOWERING), (self.gamma_phi, SIGMA_Z / np.sqrt(2)))

    def initial_state(self) -> np.ndarray:
        return basis_ket(2, 1 if self.initial == "excited" else 0)

    def observable_terms(self) -> dict[str, Term]:
        return {"energy": (self.omega0, EXCITED), "p1": (1.0, EXCITED)}

    def correlation_observables(self) -> dict[str, np.ndarray]:
        return {}

    def battery(self) -> Battery:
        return Battery(self.omega0, EXCITED, (0,), np.ones(2))

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {"detuning": ParameterSpec("omega0", REAL_LINE, 0.05)}

    def fixed_parameters(self) -> dict[str, str]:
        return {"omega0": UNIT, "gamma1": RATE, "gamma_phi": RATE, "initial": START}

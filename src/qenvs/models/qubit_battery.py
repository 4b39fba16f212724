"""A qubit that is charged by a drive, in contact with a thermal bath."""

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
from qenvs.models.two_level import EXCITED, LOWERING, SIGMA_X, SIGMA_Z


class QubitBattery(BatteryModel):
    """Driven qubit with a thermal bath; the qubit is the battery, H_B = omega0 |1><1|.

    H = (detuning/2) sigma_z + u sigma_x/2, jump operators sqrt(gamma1 (n_th+1)) |0><1| (emission),
    sqrt(gamma1 n_th) |1><0| (absorption), sqrt(gamma_phi/2) sigma_z (dephasing). Without drive
    P1 relaxes to n_th/(2 n_th + 1) at the rate gamma1 (2 n_th + 1). |dE/dt| <= omega0 |u|/2 from
    the drive alone.

    Args:
        omega0: transition energy, the unit of energy; > 0.
        detuning: qubit minus drive frequency, in units of omega0.
        gamma1: spontaneous emission rate >= 0.
        n_th: mean number of thermal quanta of the bath, >= 0.
        gamma_phi: pure dephasing rate >= 0, at which the coherence decays.
        initial: "ground", or "thermal" for the Gibbs state P1 = n_th/(2 n_th + 1).

    Raises:
        ValueError: a negative rate or n_th, a non-finite number, an unknown `initial`, or a mixed
            thermal start without any dissipation (it would need a density matrix).
    """

    time_unit: ClassVar[str] = "1/omega0"
    amplitude_unit: ClassVar[str] = "omega0"

    omega0: Any = number(1.0)
    detuning: Any = number(0.0)
    gamma1: Any = number(0.0)
    n_th: Any = number(0.0)
    gamma_phi: Any = number(0.0)
    initial: str = eqx.field(default="ground", static=True)

    def __check_init__(self) -> None:
        _checks.positive("omega0", self.omega0)
        _checks.finite("detuning", self.detuning)
        check_rates(self, ("gamma1", "n_th", "gamma_phi"))
        _checks.choice("initial", self.initial, ("ground", "thermal"))
        pure = _checks.is_concrete(self.n_th) and not np.any(self.n_th)
        if self.initial == "thermal" and not self.active_jumps() and not pure:
            raise ValueError(
                "`initial='thermal'` is a mixed state and needs an open model: "
                "set `gamma1` or `gamma_phi` > 0, or start from 'ground'"
            )

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
        return (
            (self.gamma1 * (self.n_th + 1), LOWERING),
            (self.gamma1 * self.n_th, LOWERING.T),
            (self.gamma_phi, SIGMA_Z / np.sqrt(2)),
        )

    def initial_state(self) -> Any:
        if self.initial == "ground" or not self.active_jumps():
            return basis_ket(2, 0)
        excited = self.n_th / (2 * self.n_th + 1)
        return (1 - excited) * (np.eye(2) - EXCITED) + excited * EXCITED

    def observable_terms(self) -> dict[str, Term]:
        return {"energy": (self.omega0, EXCITED), "p1": (1.0, EXCITED)}

    def correlation_observables(self) -> dict[str, np.ndarray]:
        return {}

    def battery(self) -> Battery:
        return Battery(self.omega0, EXCITED, (0,), np.ones(2))

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {"detuning": ParameterSpec("omega0", REAL_LINE, 0.05)}

    def fixed_parameters(self) -> dict[str, str]:
        rates = dict.fromkeys(("gamma1", "n_th", "gamma_phi"), RATE)
        return {"omega0": UNIT, **rates, "initial": START}

"""Three levels in Lambda configuration, driven by pump and Stokes fields."""

from typing import Any, ClassVar

import numpy as np

from qenvs import _checks
from qenvs.models.base import (
    RATE,
    REAL_LINE,
    Model,
    ParameterSpec,
    Term,
    basis_ket,
    check_rates,
    number,
)


def _transition(to: int, origin: int) -> np.ndarray:
    return np.outer(basis_ket(3, to), basis_ket(3, origin))


class LambdaSystem(Model):
    """Lambda system in the rotating frame; index 0 = |1>, 1 = |2> (lossy), 2 = |3>.

    H = D |2><2| + d |3><3| + (Omega_p/2)(|1><2| + h.c.) + (Omega_s/2)(|3><2| + h.c.), controls
    (Omega_p, Omega_s), jump operators sqrt(gamma/2) |1><2| and sqrt(gamma/2) |3><2|. At d = 0 the
    dark state Omega_s |1> - Omega_p |3> has no share of |2>. Starts in |1>.

    Reference: Bergmann, Theuer, Shore, Rev. Mod. Phys. 70, 1003 (1998).

    Args:
        delta_one_photon: detuning D of |2>, in units of the Rabi frequency.
        delta_two_photon: detuning d of |3>.
        gamma: total emission rate of |2>, >= 0, split equally between |1> and |3>.

    Raises:
        ValueError: a negative rate or a non-finite number.
    """

    time_unit: ClassVar[str] = "1/Rabi frequency"
    amplitude_unit: ClassVar[str] = "Rabi frequency"

    delta_one_photon: Any = number(0.0)
    delta_two_photon: Any = number(0.0)
    gamma: Any = number(0.0)

    def __check_init__(self) -> None:
        _checks.finite("delta_one_photon", self.delta_one_photon)
        _checks.finite("delta_two_photon", self.delta_two_photon)
        check_rates(self, ("gamma",))

    @property
    def dims(self) -> tuple[int, ...]:
        return (3,)

    @property
    def control_names(self) -> tuple[str, ...]:
        return ("omega_p", "omega_s")

    def drift_terms(self) -> tuple[Term, ...]:
        return (
            (self.delta_one_photon, _transition(1, 1)),
            (self.delta_two_photon, _transition(2, 2)),
        )

    def control_operators(self) -> tuple[np.ndarray, ...]:
        pump, stokes = _transition(0, 1) / 2, _transition(2, 1) / 2
        return (pump + pump.T, stokes + stokes.T)

    def jump_terms(self) -> tuple[Term, ...]:
        return ((self.gamma / 2, _transition(0, 1)), (self.gamma / 2, _transition(2, 1)))

    def initial_state(self) -> np.ndarray:
        return basis_ket(3, 0)

    def observable_terms(self) -> dict[str, Term]:
        return {f"p{k + 1}": (1.0, _transition(k, k)) for k in range(3)}

    def correlation_observables(self) -> dict[str, np.ndarray]:
        return {}

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {
            "delta_one_photon": ParameterSpec("Rabi frequency", REAL_LINE, 0.05),
            "delta_two_photon": ParameterSpec("Rabi frequency", REAL_LINE, 0.01),
        }

    def fixed_parameters(self) -> dict[str, str]:
        return {"gamma": RATE}

"""Two coupled transmons: control and target of a cross-resonance gate."""

import math
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from qenvs.models.base import (
    RATE,
    REAL_LINE,
    SIZE,
    Model,
    ParameterSpec,
    Term,
    basis_ket,
    number,
)
from qenvs.models.transmon import (
    GHZ,
    anharmonic,
    as_levels,
    check_lifetimes,
    decay_rates,
    lifetime,
    lowering,
    occupation,
    quadratures,
)


class TwoTransmon(Model):
    """Control and target transmon, both in the frame at the bare frequency of the target.

    H = D nc + (ac/2) nc (nc - 1) + (at/2) nt (nt - 1) + J (a'b + a b')
        + (cI/2)(a + a') + (cQ/2) i(a' - a) + (tI/2)(b + b') + (tQ/2) i(b' - b)

    controls (cI, cQ, tI, tQ), jump operators of each qubit as for `Transmon`, time in ns, angular
    frequency in rad/ns. A drive on the control at this frequency turns the target one way or the
    other, as the control is in |0> or |1>: the cross-resonance effect. Starts in |00>.

    Reference: Magesan, Gambetta, PRA 101, 052308 (2020).

    Args:
        levels: number of levels of each transmon, >= 2.
        detuning_ghz: control minus target frequency, D/2pi in GHz.
        anharmonicity_c_ghz: of the control, ac/2pi in GHz, <= 0.
        anharmonicity_t_ghz: of the target, at/2pi in GHz, <= 0.
        coupling_ghz: J/2pi in GHz, >= 0.
        t1_c_us: relaxation time of the control in us; None or infinity for no relaxation.
        t2_c_us: coherence time of the control, <= 2 T1; None or infinity for no dephasing.
        t1_t_us: relaxation time of the target.
        t2_t_us: coherence time of the target.

    Raises:
        ValueError: T2 > 2 T1, a lifetime <= 0, a number outside its range, less than 2 levels.
    """

    time_unit: ClassVar[str] = "ns"
    amplitude_unit: ClassVar[str] = "rad/ns"

    levels: int = eqx.field(default=3, static=True, converter=as_levels)
    detuning_ghz: Any = number(-0.1)
    anharmonicity_c_ghz: Any = number(-0.34)
    anharmonicity_t_ghz: Any = number(-0.34)
    coupling_ghz: Any = number(0.003)
    t1_c_us: Any = lifetime()
    t2_c_us: Any = lifetime()
    t1_t_us: Any = lifetime()
    t2_t_us: Any = lifetime()

    def __check_init__(self) -> None:
        self.check_parameters(**self.parameter_values())
        check_lifetimes(self, "t1_c_us", "t2_c_us")
        check_lifetimes(self, "t1_t_us", "t2_t_us")

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.levels, self.levels)

    @property
    def control_names(self) -> tuple[str, ...]:
        return ("control_i", "control_q", "target_i", "target_q")

    @property
    def computational_indices(self) -> tuple[int, ...]:
        """Indices of |00>, |01>, |10>, |11>."""
        return (0, 1, self.levels, self.levels + 1)

    def _control(self, operator: np.ndarray) -> np.ndarray:
        return np.kron(operator, np.eye(self.levels))

    def _target(self, operator: np.ndarray) -> np.ndarray:
        return np.kron(np.eye(self.levels), operator)

    def drift_terms(self) -> tuple[Term, ...]:
        kerr, a = anharmonic(self.levels), lowering(self.levels)
        exchange = np.kron(a.T, a)
        return (
            (GHZ * self.detuning_ghz, self._control(occupation(self.levels))),
            (GHZ * self.anharmonicity_c_ghz, self._control(kerr)),
            (GHZ * self.anharmonicity_t_ghz, self._target(kerr)),
            (GHZ * self.coupling_ghz, exchange + exchange.T),
        )

    def control_operators(self) -> tuple[np.ndarray, ...]:
        in_phase, quadrature = quadratures(self.levels)
        return (
            self._control(in_phase),
            self._control(quadrature),
            self._target(in_phase),
            self._target(quadrature),
        )

    def jump_terms(self) -> tuple[Term, ...]:
        a, n = lowering(self.levels), math.sqrt(2) * occupation(self.levels)
        relaxation_c, dephasing_c = decay_rates(self.t1_c_us, self.t2_c_us)
        relaxation_t, dephasing_t = decay_rates(self.t1_t_us, self.t2_t_us)
        return (
            (relaxation_c, self._control(a)),
            (dephasing_c, self._control(n)),
            (relaxation_t, self._target(a)),
            (dephasing_t, self._target(n)),
        )

    def frame_energies(self) -> Any:
        """Diagonal of D nc in rad/ns, (levels^2,): exp(+i D nc T) U is in the qubit frames."""
        return GHZ * self.detuning_ghz * np.repeat(np.arange(float(self.levels)), self.levels)

    def static_zz_ghz(self) -> float:
        """E11 - E10 - E01 + E00 of the undriven system, in GHz, by exact diagonalisation.

        To second order in J it is 2 J^2 (1/(D - at) - 1/(D + ac)).

        Reference: Magesan, Gambetta, PRA 101, 052308 (2020).
        """
        drift = np.sum([weight * matrix for weight, matrix in self.drift_terms()], axis=0)
        energies, states = np.linalg.eigh(drift)
        e00, e01, e10, e11 = (
            energies[np.argmax(np.abs(states[index]))] for index in self.computational_indices
        )
        return float(e11 - e10 - e01 + e00) / GHZ

    def initial_state(self) -> np.ndarray:
        return basis_ket(self.levels**2, 0)

    def observable_terms(self) -> dict[str, Term]:
        inside = self.computational_indices
        operators = {
            name: np.diag(basis_ket(self.levels**2, index))
            for name, index in zip(("p00", "p01", "p10", "p11"), inside, strict=True)
        }
        operators["leakage"] = np.eye(self.levels**2, dtype=complex) - sum(operators.values())
        return {name: (1.0, operator) for name, operator in operators.items()}

    def correlation_observables(self) -> dict[str, np.ndarray]:
        return {}

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {
            "detuning_ghz": ParameterSpec("GHz", REAL_LINE, 0.002),
            "anharmonicity_c_ghz": ParameterSpec("GHz", (-math.inf, 0.0), 0.005),
            "anharmonicity_t_ghz": ParameterSpec("GHz", (-math.inf, 0.0), 0.005),
            "coupling_ghz": ParameterSpec("GHz", (0.0, math.inf), 0.0003),
        }

    def fixed_parameters(self) -> dict[str, str]:
        names = ("t1_c_us", "t2_c_us", "t1_t_us", "t2_t_us")
        return {"levels": SIZE} | dict.fromkeys(names, RATE)

"""A transmon: an anharmonic oscillator with a few levels, driven in both quadratures."""

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from qenvs import _checks
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

GHZ = 2 * math.pi
"""Angular frequency in rad/ns of 1 GHz."""

NS_PER_US = 1000.0


@cache
def lowering(levels: int) -> np.ndarray:
    """a: sqrt(n) |n-1><n| on the lowest levels."""
    return _shared(np.diag(np.sqrt(np.arange(1.0, levels)), k=1).astype(complex))


@cache
def occupation(levels: int) -> np.ndarray:
    """n = a'a."""
    return _shared(np.diag(np.arange(levels)).astype(complex))


@cache
def anharmonic(levels: int) -> np.ndarray:
    """n (n - 1) / 2."""
    n = np.arange(levels)
    return _shared(np.diag(n * (n - 1) / 2).astype(complex))


@cache
def quadratures(levels: int) -> tuple[np.ndarray, np.ndarray]:
    """(a + a')/2 and i(a' - a)/2: sigma_x/2 and sigma_y/2 on the lowest two levels."""
    a = lowering(levels)
    return _shared((a + a.T) / 2), _shared(1j * (a.T - a) / 2)


def _shared(operator: np.ndarray) -> np.ndarray:
    operator.setflags(write=False)  # every model with so many levels has this one
    return operator


def as_levels(levels: Any) -> int:
    """Number of levels, at least 2."""
    return _checks.integer("levels", levels, minimum=2)


def as_lifetime(value: Any) -> Any:
    """A lifetime as an array leaf; None is infinity, no decay."""
    return _checks.as_parameter(math.inf if value is None else value)


def lifetime() -> Any:
    """A model field that holds T1 or T2 in us."""
    return eqx.field(default=None, converter=as_lifetime)


def check_lifetimes(model: Model, t1: str, t2: str) -> None:
    """ValueError unless 0 < T1, 0 < T2 and T2 <= 2 T1 (an infinite T2 is no dephasing)."""
    values = {name: getattr(model, name) for name in (t1, t2)}
    if not all(map(_checks.is_concrete, values.values())):
        return
    for name, value in values.items():
        if not np.all(value > 0):
            raise ValueError(f"`{name}` must be > 0 or None, got {value}")
    limit = 2 * values[t1]
    if np.any(np.isfinite(values[t2]) & (values[t2] > limit * (1 + 1e-12))):
        raise ValueError(
            f"`{t2}` must be <= 2 * `{t1}` = {limit:g}, got {values[t2]:g}; at the limit, or with "
            "None, there is no dephasing"
        )


def decay_rates(t1_us: Any, t2_us: Any) -> tuple[Any, Any]:
    """1/T1 and 1/Tphi = 1/T2 - 1/(2 T1) >= 0, in 1/ns."""
    relaxation, coherence = 1 / (NS_PER_US * t1_us), 1 / (NS_PER_US * t2_us)
    dephasing = coherence - relaxation / 2
    xp = np if _checks.is_concrete(dephasing) else jnp
    return relaxation, xp.where(dephasing > 1e-12 * coherence, dephasing, 0.0)


SI_KEYS = {
    "t1": ("t1_us", 1e6),
    "t2": ("t2_us", 1e6),
    "frequency": ("frequency_ghz", 1e-9),
    "anharmonicity": ("anharmonicity_ghz", 1e-9),
}
"""Property of a device in seconds or hertz -> our name, and our unit per SI unit."""

UNIT_KEYS = tuple(name for name, _ in SI_KEYS.values())


def device_fields(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties of a qubit by our names; SI entries converted. ValueError for unknown ones."""
    fields: dict[str, Any] = {}
    for key, value in properties.items():
        name, scale = (key, 1.0) if key in UNIT_KEYS else SI_KEYS.get(key.lower(), (None, 1.0))
        if name is None:
            near = _checks.suggest(key, [*UNIT_KEYS, *SI_KEYS])
            raise ValueError(f"a qubit has no property {key!r}; {near}")
        if name in fields:
            raise ValueError(f"`{name}` must be given once, got it in two units")
        fields[name] = None if value is None else value * scale
    return fields


class Transmon(Model):
    """Transmon in the frame of its drive: time in ns, angular frequency in rad/ns.

    H = D n + (alpha/2) n (n - 1) + (OI/2)(a + a') + (OQ/2) i(a' - a), controls (OI, OQ), jump
    operators sqrt(1/T1) a and sqrt(2/Tphi) n with 1/Tphi = 1/T2 - 1/(2 T1). D and alpha are
    2 pi times the frequencies given in GHz. Starts in the ground state.

    Reference: Koch et al., PRA 76, 042319 (2007).

    Args:
        levels: number of levels, >= 2.
        anharmonicity_ghz: alpha/2pi in GHz, <= 0; level 2 lies that far below twice level 1.
        detuning_ghz: qubit minus drive frequency, D/2pi in GHz.
        t1_us: relaxation time T1 in us; None or infinity for no relaxation.
        t2_us: coherence time T2 <= 2 T1 in us; None, infinity or 2 T1 for no dephasing.

    Raises:
        ValueError: T2 > 2 T1, a lifetime <= 0, anharmonicity > 0, less than 2 levels.
    """

    time_unit: ClassVar[str] = "ns"
    amplitude_unit: ClassVar[str] = "rad/ns"

    levels: int = eqx.field(default=3, static=True, converter=as_levels)
    anharmonicity_ghz: Any = number(-0.34)
    detuning_ghz: Any = number(0.0)
    t1_us: Any = lifetime()
    t2_us: Any = lifetime()

    def __check_init__(self) -> None:
        self.check_parameters(**self.parameter_values())
        check_lifetimes(self, "t1_us", "t2_us")

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, Any], *, levels: int = 3, drive_ghz: float | None = None
    ) -> "Transmon":
        """A transmon from the table of a device.

        Args:
            properties: in SI units `T1`, `T2` (s), `frequency`, `anharmonicity` (Hz), or in ours
                `t1_us`, `t2_us`, `frequency_ghz`, `anharmonicity_ghz`; whatever is known.
            levels: number of levels.
            drive_ghz: frequency of the drive; None is the qubit's own.

        Raises:
            ValueError: an unknown property, a property in two units, `drive_ghz` without a
                frequency, or numbers that `Transmon` refuses.

        >>> device = {"T1": 52e-6, "T2": 31e-6, "frequency": 4.97e9, "anharmonicity": -0.34e9}
        >>> model = Transmon.from_properties(device, drive_ghz=4.965)
        >>> round(float(model.t2_us), 6), round(float(model.detuning_ghz), 6)
        (31.0, 0.005)
        """
        fields = device_fields(properties)
        frequency = fields.pop("frequency_ghz", None)
        if drive_ghz is None:
            return cls(levels=levels, **fields)
        if frequency is None:
            raise ValueError("`drive_ghz` needs the frequency of the qubit in `properties`")
        return cls(levels=levels, detuning_ghz=frequency - drive_ghz, **fields)

    @property
    def dims(self) -> tuple[int, ...]:
        return (self.levels,)

    @property
    def control_names(self) -> tuple[str, ...]:
        return ("omega_i", "omega_q")

    @property
    def computational_indices(self) -> tuple[int, ...]:
        """Indices of the qubit states."""
        return (0, 1)

    def drift_terms(self) -> tuple[Term, ...]:
        return (
            (GHZ * self.detuning_ghz, occupation(self.levels)),
            (GHZ * self.anharmonicity_ghz, anharmonic(self.levels)),
        )

    def control_operators(self) -> tuple[np.ndarray, ...]:
        return quadratures(self.levels)

    def jump_terms(self) -> tuple[Term, ...]:
        relaxation, dephasing = decay_rates(self.t1_us, self.t2_us)
        return (
            (relaxation, lowering(self.levels)),
            (dephasing, math.sqrt(2) * occupation(self.levels)),
        )

    def initial_state(self) -> np.ndarray:
        return basis_ket(self.levels, 0)

    def observable_terms(self) -> dict[str, Term]:
        levels = np.arange(self.levels)
        names = {f"p{k}": np.diag(levels == k) for k in levels} | {"leakage": np.diag(levels > 1)}
        return {name: (1.0, matrix.astype(complex)) for name, matrix in names.items()}

    def correlation_observables(self) -> dict[str, np.ndarray]:
        return {}

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {
            "detuning_ghz": ParameterSpec("GHz", REAL_LINE, 0.002),
            "anharmonicity_ghz": ParameterSpec("GHz", (-math.inf, 0.0), 0.005),
        }

    def fixed_parameters(self) -> dict[str, str]:
        return {"levels": SIZE, "t1_us": RATE, "t2_us": RATE}

"""Gates on transmons, in hardware units: ns, rad/ns, GHz, us."""

from typing import Any, cast

import numpy as np

from qenvs import gates
from qenvs.envs.gate import GateControl
from qenvs.models.transmon import GHZ, Transmon
from qenvs.models.two_transmon import TwoTransmon


def bound_from(action_bound: Any, max_rabi_ghz: Any, default_ghz: float) -> Any:
    """The action bound in rad/ns from one of its two forms; ValueError if both are given."""
    if action_bound is None:
        return GHZ * (default_ghz if max_rabi_ghz is None else max_rabi_ghz)
    if max_rabi_ghz is not None:
        raise ValueError(
            f"give `action_bound` or `max_rabi_ghz`, not both; got {action_bound} rad/ns and "
            f"{max_rabi_ghz} GHz"
        )
    return action_bound


def x_gate(
    *,
    levels: int = 3,
    anharmonicity_ghz: Any = -0.34,
    detuning_ghz: Any = 0.0,
    t1_us: Any = None,
    t2_us: Any = None,
    horizon: int = 16,
    dt: Any = 2.0,
    action_bound: Any = None,
    max_rabi_ghz: Any = None,
    method: Any = None,
) -> GateControl:
    """X on a transmon in 16 intervals of 2 ns, both quadratures, |Omega|/2pi <= 0.05 GHz.

    Args:
        action_bound: bound of each quadrature in rad/ns, 2 pi 0.05 by default.
        max_rabi_ghz: the same bound in GHz; give one of the two.
    """
    model = Transmon(levels, anharmonicity_ghz, detuning_ghz, t1_us, t2_us)
    bound = bound_from(action_bound, max_rabi_ghz, 0.05)
    return GateControl(model, horizon, dt, bound, target=gates.X, method=method)


def sx_gate(
    *,
    levels: int = 3,
    anharmonicity_ghz: Any = -0.34,
    detuning_ghz: Any = 0.0,
    t1_us: Any = None,
    t2_us: Any = None,
    horizon: int = 16,
    dt: Any = 2.0,
    action_bound: Any = None,
    max_rabi_ghz: Any = None,
    method: Any = None,
) -> GateControl:
    """sqrt(X) on a transmon in 16 intervals of 2 ns, both quadratures, |Omega|/2pi <= 0.05 GHz.

    Args:
        action_bound: bound of each quadrature in rad/ns, 2 pi 0.05 by default.
        max_rabi_ghz: the same bound in GHz; give one of the two.
    """
    model = Transmon(levels, anharmonicity_ghz, detuning_ghz, t1_us, t2_us)
    bound = bound_from(action_bound, max_rabi_ghz, 0.05)
    return GateControl(model, horizon, dt, bound, target=gates.SX, method=method)


def cr_gate(
    *,
    levels: int = 3,
    detuning_ghz: Any = -0.1,
    anharmonicity_c_ghz: Any = -0.34,
    anharmonicity_t_ghz: Any = -0.34,
    coupling_ghz: Any = 0.003,
    t1_c_us: Any = None,
    t2_c_us: Any = None,
    t1_t_us: Any = None,
    t2_t_us: Any = None,
    horizon: int = 64,
    dt: Any = 5.0,
    action_bound: Any = None,
    max_rabi_ghz: Any = None,
    method: Any = None,
) -> GateControl:
    """ZX(pi/2) on two transmons by cross resonance, in the frames of both qubits.

    64 intervals of 5 ns, two quadratures on each qubit, |Omega|/2pi <= 0.06 GHz.

    Args:
        action_bound: bound of each quadrature in rad/ns, 2 pi 0.06 by default.
        max_rabi_ghz: the same bound in GHz; give one of the two.
    """
    model = TwoTransmon(
        levels,
        detuning_ghz,
        anharmonicity_c_ghz,
        anharmonicity_t_ghz,
        coupling_ghz,
        t1_c_us,
        t2_c_us,
        t1_t_us,
        t2_t_us,
    )
    return GateControl(
        model,
        horizon,
        dt,
        bound_from(action_bound, max_rabi_ghz, 0.06),
        target=gates.zx(np.pi / 2),
        frame=TwoTransmon.frame_energies,
        method=method,
    )


def drag_x(env: GateControl) -> np.ndarray:
    """Gaussian DRAG pulse of rotation angle pi, actions (horizon, 2)."""
    return drag_pulse(env, np.pi)


def drag_sx(env: GateControl) -> np.ndarray:
    """Gaussian DRAG pulse of rotation angle pi/2, actions (horizon, 2)."""
    return drag_pulse(env, np.pi / 2)


def drag_pulse(env: GateControl, angle: float) -> np.ndarray:
    """Gaussian with derivative quadrature, actions (horizon, 2).

    OI(t) ~ exp(-(t - T/2)^2 / (2 sigma^2)) - exp(-(T/2)^2 / (2 sigma^2)) with sigma = T/4 and area
    `angle`, OQ = beta dOI/dt with beta = -1/(2 alpha), which minimises the phase error.

    Reference: Motzoi et al., PRL 103, 110501 (2009); Gambetta et al., PRA 83, 012308 (2011).
    """
    duration, sigma = float(env.duration), float(env.duration) / 4
    offset = (np.arange(env.horizon) + 0.5) * float(env.dt) - duration / 2
    gaussian, edge = np.exp(-((offset / sigma) ** 2) / 2), np.exp(-2.0)
    scale = angle / (np.sum(gaussian - edge) * float(env.dt))
    model = cast(Transmon, env.model)
    beta = -1 / (2 * GHZ * float(model.anharmonicity_ghz))
    slope = -offset / sigma**2 * gaussian
    return scale * np.stack([gaussian - edge, beta * slope], axis=1)

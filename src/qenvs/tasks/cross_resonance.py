"""The reference pulse of the cross-resonance gate, calibrated on the closed model."""

from typing import NamedTuple, cast

import numpy as np
from scipy.optimize import least_squares

from qenvs.envs.gate import GateControl
from qenvs.models.transmon import GHZ
from qenvs.models.two_transmon import TwoTransmon

RAMPS = (0.3, 0.2, 0.4)
"""Lengths of the ramp, over the duration, from which the calibration starts."""

GOOD_ENOUGH = 1e-3
"""Infidelity at which no further start is tried."""


class FlatTop(NamedTuple):
    """Parameters of the pulse; s = t/T - 1/2 and g is a flat top with ramps.

    cI + i cQ = amplitude g exp(i chirp s),  tI + i tQ = g (cancellation + i slope s)

    Attributes:
        amplitude: of the drive on the control qubit, in rad/ns.
        cancellation: of the tone on the target that undoes its rotation by IX, in rad/ns.
        ramp: length of each raised-cosine ramp over the duration; the Stark shift of the control
            depends on it, so that it returns to its own frame at the end.
        chirp: phase over the pulse in rad; against IZ, the Lamb and Stark shifts of the target.
        slope: out-of-phase tone on the target in rad/ns, odd in time; against static ZZ.
    """

    amplitude: float
    cancellation: float
    ramp: float
    chirp: float
    slope: float


def flat_top(pulse: FlatTop, horizon: int) -> np.ndarray:
    """The pulse at the midpoints of the intervals: (cI, cQ, tI, tQ), shape (horizon, 4)."""
    s = (np.arange(horizon) + 0.5) / horizon - 0.5
    edge = np.clip((0.5 - np.abs(s)) / pulse.ramp, 0.0, 1.0)
    top = (1 - np.cos(np.pi * edge)) / 2
    control = pulse.amplitude * top * np.exp(1j * pulse.chirp * s)
    target = top * (pulse.cancellation + 1j * pulse.slope * s)
    return np.stack([control.real, control.imag, target.real, target.imag], axis=1)


def calibrated_flat_top(env: GateControl) -> np.ndarray:
    """Flat-top drive on the control with a cancellation tone on the target, (horizon, 4).

    Perturbation theory gives the first amplitude A = theta/(rate T) from the ZX rate
    -J alpha/(D (alpha + D)) per unit drive, and the cancellation A J/(D + alpha). Least squares
    on the entries of Ut' P U P - 1, by exact propagation of the closed model, then calibrates
    the five numbers of `FlatTop`; 1 - F of the default task is 4.4e-4.

    Reference: Sheldon et al., PRA 93, 060302 (2016); Magesan, Gambetta, PRA 101, 052308 (2020).
    """
    gate = ClosedGate(env)
    tries = []
    for ramp in RAMPS:
        tries.append(_calibrate(env, gate, ramp))
        if tries[-1][0] < GOOD_ENOUGH:
            break
    return flat_top(min(tries)[1], env.horizon)


class ClosedGate:
    """The error of a gate under a pulse, in double precision."""

    def __init__(self, env: GateControl) -> None:
        drift = [weight * matrix for weight, matrix in env.model.drift_terms()]
        self.drift, self.dt = np.sum(drift, axis=0), float(env.dt)
        self.controls = np.array(env.model.control_operators())
        inside = env.computational_indices
        self.block = np.ix_(inside, inside)
        self.target = env.judged_target()

    def error(self, actions: np.ndarray) -> np.ndarray:
        """Ut' P U P - 1 without its global phase, shape (k, k)."""
        hamiltonians = self.drift + np.tensordot(actions, self.controls, 1)
        energies, states = np.linalg.eigh(hamiltonians)
        phases = np.exp(-1j * self.dt * energies)
        unitary = np.eye(len(self.drift), dtype=complex)
        for phase, basis in zip(phases, states, strict=True):
            unitary = (basis * phase) @ (basis.conj().T @ unitary)
        overlap = self.target.conj().T @ unitary[self.block]
        return overlap * np.exp(-1j * np.angle(np.trace(overlap))) - np.eye(len(overlap))


def _calibrate(env: GateControl, gate: ClosedGate, ramp: float) -> tuple[float, FlatTop]:
    """(infidelity, pulse) of the best pulse near the perturbative one with this ramp."""
    first = first_guess(env, ramp)
    bound = float(np.min(env.action_bound))
    scale = np.array([abs(first.amplitude), bound / 100, 0.1, 1.0, bound / 100])

    def residuals(scaled: np.ndarray) -> np.ndarray:
        entries = gate.error(flat_top(FlatTop(*scaled * scale), env.horizon)).reshape(-1)
        return np.concatenate([np.real(entries), np.imag(entries)])

    limits = np.array([bound, bound, 0.5, 20.0, bound])
    lowest = np.array([-bound, -bound, 1e-3, -20.0, -bound])
    found = least_squares(
        residuals, first / scale, bounds=(lowest / scale, limits / scale), diff_step=1e-5
    )
    k = len(gate.target)
    overlap = k + np.sum(residuals(found.x)[: k * k : k + 1])
    return 1 - (overlap / k) ** 2, FlatTop(*map(float, found.x * scale))


def first_guess(env: GateControl, ramp: float) -> FlatTop:
    """The pulse of perturbation theory: first-order ZX rate and IX cancellation."""
    model, bound = cast(TwoTransmon, env.model), float(np.min(env.action_bound))
    coupling, detuning, alpha = (
        GHZ * float(value)
        for value in (model.coupling_ghz, model.detuning_ghz, model.anharmonicity_c_ghz)
    )
    rate = -coupling * alpha * _inverse(detuning * (alpha + detuning))
    amplitude = np.pi / 2 * _inverse(rate * (1 - ramp) * float(env.duration))
    amplitude = float(np.clip(amplitude or bound, -0.99 * bound, 0.99 * bound))
    cancellation = amplitude * coupling * _inverse(detuning + alpha)
    return FlatTop(amplitude, float(np.clip(cancellation, -bound / 2, bound / 2)), ramp, 0.0, 0.0)


def _inverse(value: float) -> float:
    """1/value, and 0 at resonance, where perturbation theory has no answer."""
    return 1 / value if value else 0.0

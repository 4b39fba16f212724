"""Closed forms and perturbation theory: transmons and Dicke batteries."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qenvs import registration
from qenvs.dynamics import PropagatorCoordinates, build_generator, evolve
from qenvs.envs import BatteryCharging, GateControl
from qenvs.models import DickeBattery, DickeBatteryLocal, Transmon, TwoTransmon
from qenvs.validation.cases import EPS, Case, record, recorder, rounding
from qenvs.validation.closed_forms import (
    compare,
    constant,
    rate_tolerance,
    times,
    trajectory,
)
from qenvs.validation.results import Check, Collection, Measure

check = Collection("closed forms")
GHZ = 2 * math.pi


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Every check of this module."""
    yield from check.found


def unitary(model: Any, controls: tuple[float, ...], time: float) -> np.ndarray:
    """The engine's propagator of one interval."""
    generator = build_generator(
        PropagatorCoordinates, model.dims, model.hamiltonian_operators(), []
    )
    coefficients = [*(float(weight) for weight, _ in model.drift_terms()), *controls]
    d = math.prod(model.dims)
    x = jnp.asarray(generator.coordinates.encode(np.eye(d, dtype=complex)))
    moved = jax.jit(
        lambda x: generator.coordinates.decode(evolve(generator, coefficients, x, time))
    )
    return np.asarray(moved(x))


def drift_of(model: Any) -> np.ndarray:
    """H without control."""
    return np.sum([float(weight) * matrix for weight, matrix in model.drift_terms()], axis=0)


def reference_infidelity(task: str) -> tuple[float, Any]:
    """1 - F of the reference pulse of a task, and its environment."""
    env = registration.make(task)
    pulse = np.asarray(registration.spec(task).reference_pulse(env))
    return float(1 - record(env, pulse, "fidelity")[0, -1]), env


# --- Transmon ---


@check("Transmon", "in-phase drive turns about x, quadrature about y")
def drives() -> Measure:
    """On two levels, exp(-i O t (cos p X + sin p Y)/2) for the drive O (cos p, sin p)."""
    angle, phase, time = 1.1, 0.6, 10.0
    amplitude = angle / time
    controls = (amplitude * math.cos(phase), amplitude * math.sin(phase))
    found = unitary(Transmon(2), controls, time)
    c, s = math.cos(angle / 2), math.sin(angle / 2)
    off = -1j * s * np.exp(-1j * phase)
    return compare(found, [[c, off], [-off.conj(), c]], rate_tolerance(1, 2.0))


@check("Transmon", "level n lies at D n + alpha n (n - 1)/2")
def levels() -> Measure:
    """Phases of a free evolution of 4 levels."""
    time, n = 3.0, np.arange(4)
    found = unitary(Transmon(4, -0.3, 0.02), (0.0, 0.0), time)
    energies = GHZ * (0.02 * n - 0.3 * n * (n - 1) / 2)
    return compare(found, np.diag(np.exp(-1j * energies * time)), rate_tolerance(1, 20.0))


@check("Transmon", "T1 = 50, T2 = 30 us: |rho01|(30 us) = 0.183940, P1(50 us) = 0.367879")
def lifetimes() -> Measure:
    """exp(-t/T2)/2 and exp(-t/T1) at all times."""
    model, steps, dt = Transmon(2, t1_us=50.0, t2_us=30.0), 10, 5000.0
    t = dt * np.arange(steps + 1) / 1000
    plus = trajectory(model, np.full((2, 2), 0.5), (0.0, 0.0), dt, steps)
    excited = trajectory(model, np.diag([0.0, 1.0]), (0.0, 0.0), dt, steps)
    errors = [
        np.abs(np.abs(plus[:, 0, 1]) - np.exp(-t / 30) / 2).max(),
        np.abs(excited[:, 1, 1] - np.exp(-t / 50)).max(),
    ]
    return Measure(max(errors), rate_tolerance(steps))


@check("Transmon", "level n decays at n/T1 and dephases with n^2/Tphi")
def higher_levels() -> Measure:
    """Population of level 2 at exp(-2 t/T1); rho02 at (2/T1)/2 + 4/Tphi with T2 = 0.3 us."""
    model, steps, dt = Transmon(3, 0.0, t1_us=0.5, t2_us=0.3), 8, 20.0
    t = dt * np.arange(steps + 1) / 1000
    phi = 1 / 0.3 - 1 / (2 * 0.5)
    mixed = np.array([[0.5, 0, 0.5], [0, 0, 0], [0.5, 0, 0.5]])
    found = trajectory(model, mixed, (0.0, 0.0), dt, steps)
    errors = [
        np.abs(found[:, 2, 2] - np.exp(-2 * t / 0.5) / 2).max(),
        np.abs(found[:, 0, 2] - np.exp(-t * (1 / 0.5 + 4 * phi)) / 2).max(),
    ]
    return Measure(max(errors), rate_tolerance(steps))


@check("Transmon", "the DRAG pulse of the X task: 1 - F = 4.85e-6")
def drag_x() -> Measure:
    """To the three digits of the published number."""
    infidelity, _ = reference_infidelity("transmon/XGate-v0")
    return Measure(abs(infidelity - 4.85e-6), 5e-9)


@check("Transmon", "the DRAG pulse of the SX task: 1 - F <= 1e-5")
def drag_sx() -> Measure:
    """What the task promises; never below 0 but for rounding."""
    infidelity, env = reference_infidelity("transmon/SXGate-v0")
    return Measure(abs(infidelity), 1e-5 if infidelity > -rounding(env) else 0.0)


@check("Transmon", "twice the derivative quadrature: 1 - F = 9e-4")
def drag_of_first_order() -> Measure:
    """beta = -1/alpha cancels leakage to first order and leaves a phase error."""
    env = registration.make("transmon/XGate-v0")
    pulse = np.array(registration.spec("transmon/XGate-v0").reference_pulse(env))
    pulse[:, 1] *= 2
    (fidelity,) = record(env, pulse, "fidelity")
    return Measure(abs(1 - fidelity[-1] - 9e-4), 5e-5)


@check("Transmon", "a gate against itself in another phase: F = 1; sigma_y against X: F = 1/3")
def gate_quality() -> Measure:
    """Of the task's own fidelity, by pulses about x and y on two levels."""
    target = np.exp(0.7j) * np.array([[0, 1], [1, 0]])
    env = GateControl(Transmon(2), 1, 10.0, 1.0, target=target)
    fidelity = recorder(env, "fidelity")
    x, y = (fidelity(pulse)[0, -1] for pulse in math.pi / 10 * np.eye(2)[:, None])
    return Measure(max(abs(x - 1), abs(y - 1 / 3)), 4 * rounding(env))


# --- TwoTransmon ---


@check("TwoTransmon", "without coupling it is two transmons")
def decoupled() -> Measure:
    """U = U_c kron U_t, each driven on its own."""
    u, time = (0.1, -0.05, 0.07, 0.02), 5.0
    both = unitary(TwoTransmon(coupling_ghz=0.0), u, time)
    first = unitary(Transmon(detuning_ghz=-0.1), u[:2], time)
    second = unitary(Transmon(), u[2:], time)
    return compare(both, np.kron(first, second), rate_tolerance(3, 10.0))


@check("TwoTransmon", "resonant exchange: P = sin^2(J t)")
def exchange() -> Measure:
    """|10> to |01> of equal qubits."""
    coupling, time = 0.003, 60.0
    found = unitary(TwoTransmon(2, detuning_ghz=0.0, coupling_ghz=coupling), (0.0,) * 4, time)
    expected = math.sin(GHZ * coupling * time) ** 2
    return Measure(abs(abs(found[1, 2]) ** 2 - expected), 2 * rate_tolerance(1, 2.0))


@check("TwoTransmon", "static ZZ = 2 J^2 (1/(D - at) - 1/(D + ac)) to second order")
def static_zz() -> Measure:
    """The rest is of fourth order, (J/gap)^2 of it with gaps of 0.1 GHz and more."""
    j, d, a_c, a_t = 0.0005, -0.1, -0.34, -0.3
    model = TwoTransmon(4, d, a_c, a_t, j)
    energies, states = np.linalg.eigh(drift_of(model))
    order = [np.argmax(np.abs(states[i])) for i in (0, 1, 4, 5)]
    e00, e01, e10, e11 = energies[order] / GHZ
    expected = 2 * j**2 * (1 / (d - a_t) - 1 / (d + a_c))
    # differences of energies of order 1 GHz
    limit = 20 * (j / 0.1) ** 2 + 100 * EPS / abs(expected)
    return Measure(abs((e11 - e10 - e01 + e00) / expected - 1), limit)


@check("TwoTransmon", "ZX rate -J O alpha/(D (alpha + D)) to first order of the drive")
def zx_rate() -> Measure:
    """Half the difference of the target's drive with the control in |0> and in |1>, dressed."""
    j, d, alpha = 0.0002, -0.1, -0.34
    model = TwoTransmon(4, coupling_ghz=j)
    _, states = np.linalg.eigh(drift_of(model))
    rows = [0, 1, 4, 5]
    dressed = states[:, [np.argmax(np.abs(states[i])) for i in rows]]
    dressed = dressed * np.sign(dressed[rows, range(4)])
    drive = dressed.conj().T @ model.control_operators()[0] @ dressed
    rate = (drive[0, 1] - drive[2, 3]).real
    expected = -j * alpha / (d * (alpha + d))
    return Measure(abs(rate / expected - 1), 20 * (j / 0.1) ** 2 + 1e-9)


@check("TwoTransmon", "the cross-resonance pulse: F >= 0.984")
def cross_resonance() -> Measure:
    """What the analytic calibration alone is known to give."""
    infidelity, _ = reference_infidelity("transmon/CRGate-v0")
    return Measure(abs(infidelity), 0.016)


# --- DickeBattery ---


def charging(model: Any, horizon: int = 8, dt: float = 0.3) -> Any:
    """The battery task on a model."""
    return BatteryCharging(model, horizon, dt, 0.5)


@check("DickeBattery", "one cell, n photons: P1 = sin^2(g sqrt(n) t)")
def jaynes_cummings() -> Measure:
    """With 4 photons."""
    env, g = charging(DickeBattery(1, 4)), 0.3
    (found,) = record(env, constant(env, g), "energy")
    return compare(found, np.sin(2 * g * times(env)) ** 2, rounding(env))


@check("DickeBattery", "one cell, detuned: contrast 4 g^2 n/(4 g^2 n + D^2)")
def detuned_jaynes_cummings() -> Measure:
    """omega_c - omega0 = 0.6."""
    env, g, n = charging(DickeBattery(1, 2, omega_c=1.6)), 0.3, 2
    rabi = math.sqrt(4 * g**2 * n + 0.36)
    expected = 4 * g**2 * n / rabi**2 * np.sin(rabi * times(env) / 2) ** 2
    (found,) = record(env, constant(env, g), "energy")
    return compare(found, expected, rounding(env))


@check("DickeBattery", "N cells share one photon at g sqrt(N)")
def collective_enhancement() -> Measure:
    """E = sin^2(g sqrt(N) t): the collective speed-up."""
    env, g = charging(DickeBattery(4, 1)), 0.3
    (found,) = record(env, constant(env, g), "energy")
    return compare(found, np.sin(2 * g * times(env)) ** 2, rounding(env))


@check("DickeBattery", "at first E = omega0 N n (g t)^2")
def short_time() -> Measure:
    """Relative; the next order is a few (g t)^2 N."""
    t, g, n = 0.002, 0.4, 3
    env = charging(DickeBattery(n, n), 1, t)
    found = record(env, constant(env, g), "energy")[0, -1]
    return Measure(abs(found / (n * n * (g * t) ** 2) - 1), 2 * n * (g * t) ** 2 + 1e-9)


@check("DickeBattery", "a cavity loses photons at kappa")
def cavity_loss() -> Measure:
    """<a'a> = n exp(-kappa t)."""
    env = charging(DickeBattery(2, 2, kappa=0.7))
    (found,) = record(env, constant(env, 0.0), "n_photons")
    return compare(found, 2 * np.exp(-0.7 * times(env)), 2 * rounding(env))


@check("DickeBattery", "two excited cells emit together: P2 = exp(-2 g t), P1 = 2 g t exp(-2 g t)")
def superradiance() -> Measure:
    """Collective emission of the symmetric subspace, each step at rate 2 gamma."""
    gamma, dt, steps = 0.4, 0.5, 6
    start = np.diag([0.0, 0.0, 1.0])
    found = trajectory(DickeBattery(2, 0, gamma=gamma), start, (0.0,), dt, steps)
    t = dt * np.arange(steps + 1)
    decay = np.exp(-2 * gamma * t)
    errors = [found[:, 2, 2] - decay, found[:, 1, 1] - 2 * gamma * t * decay]
    return Measure(np.abs(errors).max(), rate_tolerance(steps))


@check("DickeBattery", "coherence of neighbouring levels decays at gamma_phi/2")
def collective_dephasing() -> Measure:
    """And at omega0 it turns."""
    model, dt, steps = DickeBattery(1, 0, gamma_phi=0.8), 0.5, 6
    found = trajectory(model, np.full((2, 2), 0.5), (0.0,), dt, steps)[:, 1, 0]
    expected = np.exp((-0.4 - 1j) * dt * np.arange(steps + 1)) / 2
    return compare(found, expected, rate_tolerance(steps))


@check("DickeBatteryLocal", "without local rates it is the collective battery")
def collective_limit() -> Measure:
    """Energy, photons and purity; every weight stays in j = N/2."""
    rates: dict[str, Any] = {"kappa": 0.3, "gamma": 0.2, "gamma_phi": 0.3}
    none: dict[str, Any] = {"gamma_local": 0.0, "gamma_phi_local": 0.0}
    local = charging(DickeBatteryLocal(n_cells=2, **rates, **none), 5)
    collective = charging(DickeBattery(n_cells=2, **rates), 5)
    names = ("energy", "n_photons", "purity")
    *found, symmetric = record(local, constant(local, 0.5), *names, "symmetric")
    expected = record(collective, constant(collective, 0.5), *names)
    errors = [np.abs(found - expected).max(), np.abs(symmetric - 1).max()]
    return Measure(max(errors), 2 * rounding(local))


@check("DickeBatteryLocal", "each cell emits alone: energy decays at gamma_local")
def independent_emission() -> Measure:
    """From all cells excited, and the weight of j = N/2 falls."""
    model, n = DickeBatteryLocal(3, 0, 0, gamma_local=0.5, gamma_phi_local=0.0), 3
    d = model.dims[0]
    start = np.zeros((d, d))
    start[n, n] = 1.0  # |j = N/2, m = N/2>
    found = trajectory(model, start, (0.0,), 0.4, 6)
    number = np.real(np.diag(model.battery_hamiltonian()))
    energy = np.einsum("tii,i->t", np.real(found), number)
    return compare(energy, n * np.exp(-0.5 * 0.4 * np.arange(7)), n * rate_tolerance(6, 2.0))

"""Closed forms: qubits, the Lambda system, models from operators, gate measures."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import qutip

from qenvs import gates, registration
from qenvs.dynamics import DensityCoordinates, build_generator, evolve
from qenvs.envs import StateTransfer
from qenvs.models import HamiltonianModel, LambdaSystem, QubitBattery, TwoLevel
from qenvs.validation.cases import EPS, EPS32, Case, record, recorder, rounding
from qenvs.validation.results import Check, Collection, Measure, double_precision

check = Collection("closed forms")


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Every check of this module."""
    yield from check.found


def constant(env: Any, *amplitudes: float) -> np.ndarray:
    """The same amplitudes in every interval."""
    return np.tile(np.array(amplitudes, float), (env.horizon, 1))


def times(env: Any) -> np.ndarray:
    """0, dt, ..., T."""
    return float(env.dt) * np.arange(env.horizon + 1)


def compare(found: Any, expected: Any, tolerance: float) -> Measure:
    """Largest difference, the shapes included."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return Measure(math.inf, tolerance, f"shape {found.shape} instead of {expected.shape}")
    return Measure(float(np.abs(found - expected).max()), tolerance)


def trajectory(
    model: Any, start: Any, controls: tuple[float, ...], dt: float, steps: int
) -> np.ndarray:
    """Density matrices at 0, dt, ... of the engine from any start, the controls held."""
    coefficients = [
        *(weight for weight, _ in model.drift_terms()),
        *controls,
        *(model.jump_terms()[j][0] for j in model.active_jumps()),
    ]
    jumps = [model.jump_terms()[j][1] for j in model.active_jumps()]
    start = np.asarray(start, complex)
    generator = build_generator(
        DensityCoordinates, model.dims, model.hamiltonian_operators(), jumps, start
    )

    def advance(x: Any, _: None) -> tuple[Any, Any]:
        x = evolve(generator, [float(c) for c in coefficients], x, dt)
        return x, generator.coordinates.decode(x)

    x = jnp.asarray(generator.coordinates.encode(start))
    later = jax.jit(lambda x: jax.lax.scan(advance, x, length=steps)[1])(x)
    return np.concatenate([start[None], np.asarray(later)])


def rate_tolerance(steps: int, norm: float = 1.0) -> float:
    """Rounding of `trajectory` where ||G dt|| <= norm in each step."""
    return 20 * EPS * steps * max(1.0, norm)


def qubit(**kwargs: Any) -> Any:
    """The state transfer task with these arguments."""
    return registration.make("qubit/StateTransfer-v0", **kwargs)


# --- TwoLevel ---


@check("TwoLevel", "resonant Rabi: P1 = sin^2(u t/2)")
def resonant_rabi() -> Measure:
    """At every time of an episode."""
    env, u = qubit(), 1.3
    (found,) = record(env, constant(env, u), "p1")
    return compare(found, np.sin(u * times(env) / 2) ** 2, rounding(env))


@check("TwoLevel", "detuned Rabi: P1 = u^2/(u^2+D^2) sin^2(sqrt(u^2+D^2) t/2)")
def detuned_rabi() -> Measure:
    """At every time, and for D = u at t = pi/u the number 0.316564."""
    u = 1.4
    env = qubit(detuning=u, dt=math.pi / u / 20)
    (found,) = record(env, constant(env, u), "p1")
    expected = np.sin(math.sqrt(2) * u * times(env) / 2) ** 2 / 2
    known = abs(expected[-1] - 0.316564)
    measure = compare(found, expected, rounding(env))
    return measure if known < 5e-7 else Measure(known, 5e-7, "the closed form itself")


@check("TwoLevel", "u t = pi inverts")
def pi_pulse() -> Measure:
    """The reference pulse of the task."""
    env = qubit()
    pulse = registration.spec("qubit/StateTransfer-v0").reference_pulse(env)
    (fidelity,) = record(env, pulse, "fidelity")
    return Measure(abs(1 - fidelity[-1]), rounding(env))


@check("TwoLevel", "u t = pi inverts, in float32")
def pi_pulse_in_single_precision() -> Measure:
    """1 - F <= 1e-5 is what the task promises in the precision that JAX starts with."""
    env = qubit()
    pulse = registration.spec("qubit/StateTransfer-v0").reference_pulse(env)
    with double_precision(False):
        (fidelity,) = record(env, pulse, "fidelity")
    return Measure(abs(1 - fidelity[-1]), rounding(env, EPS32))


@check("TwoLevel", "decay: P1 = exp(-gamma1 t)")
def population_decay() -> Measure:
    """1/e = 0.367879 at t = T1."""
    env = qubit(gamma1=0.5, initial="excited")
    (found,) = record(env, constant(env, 0.0), "p1")
    return compare(found, np.exp(-0.5 * times(env)), rounding(env))


@check("TwoLevel", "coherence decays at gamma1/2 + gamma_phi")
def coherence_decay() -> Measure:
    """From |+>, with the phase that the detuning turns."""
    model, dt, steps = TwoLevel(detuning=0.7, gamma1=0.4, gamma_phi=0.3), 0.25, 8
    found = trajectory(model, np.full((2, 2), 0.5), (0.0,), dt, steps)[:, 0, 1]
    expected = 0.5 * np.exp((-0.2 - 0.3 - 0.7j) * dt * np.arange(steps + 1))
    return compare(found, expected, rate_tolerance(steps))


@check("TwoLevel", "driven and damped: P1 -> u^2/(2 u^2 + gamma1^2)")
def resonance_fluorescence() -> Measure:
    """Steady state on resonance; at t = 60/gamma1 its transients exp(-gamma1 t/2) are below eps."""
    gamma, u = 1.0, 0.8
    found = trajectory(TwoLevel(gamma1=gamma), np.diag([1.0, 0]), (u,), 5.0, 16)[-1, 1, 1]
    return compare(found, u**2 / (2 * u**2 + gamma**2), rate_tolerance(16, 10.0))


# --- QubitBattery ---


@check("QubitBattery", "relaxation to P1 = n/(2 n + 1) at gamma1 (2 n + 1)")
def thermal_relaxation() -> Measure:
    """From the ground state."""
    n, gamma = 0.4, 0.5
    model = QubitBattery(gamma1=gamma, n_th=n)
    found = trajectory(model, np.diag([1.0, 0.0]), (0.0,), 0.3, 10)[:, 1, 1]
    rate, steady = gamma * (2 * n + 1), n / (2 * n + 1)
    expected = steady * -np.expm1(-rate * 0.3 * np.arange(11))
    return compare(found, expected, rate_tolerance(10))


# --- LambdaSystem ---


@check("LambdaSystem", "equal resonant fields: P3 = sin^4(sqrt(2) Omega t/4)")
def raman() -> Measure:
    """The bright half of |1> turns at sqrt(Op^2 + Os^2)/2, the dark half stays."""
    env = registration.make("transfer/LambdaSTIRAP-v0", horizon=20)
    (found,) = record(env, constant(env, 0.9, 0.9), "p3")
    return compare(found, np.sin(math.sqrt(2) * 0.9 * times(env) / 4) ** 4, rounding(env))


@check("LambdaSystem", "the dark state Os|1> - Op|3> is stationary at d = 0")
def dark_state() -> Measure:
    """Also with loss from |2> and a one-photon detuning."""
    pump, stokes = 0.7, 0.4
    dark = np.array([stokes, 0.0, -pump]) / math.hypot(pump, stokes)
    start = np.outer(dark, dark)
    model = LambdaSystem(delta_one_photon=0.6, gamma=0.5)
    states = trajectory(model, start, (pump, stokes), 0.8, 10)
    return Measure(np.abs(states - start).max(), rate_tolerance(10))


@check("LambdaSystem", "|2> decays at gamma, half to |1> and half to |3>")
def emission() -> Measure:
    """P2 = exp(-gamma t)."""
    gamma, dt, steps = 0.7, 0.4, 8
    states = trajectory(LambdaSystem(gamma=gamma), np.diag([0.0, 1, 0]), (0.0, 0.0), dt, steps)
    left = np.exp(-gamma * dt * np.arange(steps + 1))
    found = np.einsum("tii->ti", np.real(states))
    expected = np.stack([(1 - left) / 2, left, (1 - left) / 2], axis=1)
    return compare(found, expected, rate_tolerance(steps))


@check("LambdaSystem", "STIRAP of the task: F = 0.9964, and fails in the intuitive order")
def stirap() -> Measure:
    """To the four digits of the published number."""
    env = registration.make("transfer/LambdaSTIRAP-v0")
    pulse = np.asarray(registration.spec("transfer/LambdaSTIRAP-v0").reference_pulse(env))
    fidelity = recorder(env, "fidelity")
    found, intuitive = (fidelity(actions)[0, -1] for actions in (pulse, pulse[:, ::-1]))
    detail = f"F = {found:.6f}, in the other order {intuitive:.6f}"
    return Measure(abs(found - 0.9964) if intuitive < 0.95 else 1.0, 5e-5, detail)


# --- HamiltonianModel ---


def hold(model: Any, controls: tuple[float, ...], time: float) -> np.ndarray:
    """The state of a model from operators after one interval."""
    start = np.asarray(model.initial_state(), complex)
    rho = start if start.ndim == 2 else np.outer(start, start.conj())
    return trajectory(model, rho, controls, time, 1)[-1]


@check("HamiltonianModel", "H = sx + sy, jumps s- and s+: operators as given, columns stacked")
def as_given() -> Measure:
    """Populations alone would not tell rho01 from its conjugate; to the 8 published digits."""
    lower = np.array([[0, 1], [0, 0]])
    model = HamiltonianModel.from_operators(
        gates.X + gates.Y, [gates.Z], [lower, lower.T], np.full((2, 2), 0.5)
    )
    found = hold(model, (0.0,), 0.5)
    errors = [found[0, 0] - 0.33302765, found[0, 1] - (0.19351309 - 0.10975224j)]
    return Measure(np.abs(errors).max(), 1e-8)


@check("HamiltonianModel", "QuTiP's sigmam() lifts index 0 to index 1")
def qutip_lowers_upwards() -> Measure:
    """1 - exp(-0.1 t) = 0.466512 at t = 2 pi."""
    model = HamiltonianModel.from_operators(
        0 * qutip.sigmaz(), [qutip.sigmax()], [math.sqrt(0.1) * qutip.sigmam()], qutip.basis(2, 0)
    )
    found = hold(model, (0.0,), 2 * math.pi)[1, 1].real
    return Measure(abs(found + math.expm1(-0.2 * math.pi)), rate_tolerance(1))


@check("HamiltonianModel", "-10 sx for 0.1 of an episode of 2: <sz> = 0.4161468")
def short_pulse() -> Measure:
    """From index 1, -cos(2) in 20 intervals: no interval is stepped over."""
    model = HamiltonianModel.from_operators(
        np.zeros((2, 2)), [gates.X], initial_state=[0, 1], observables={"z": gates.Z}
    )
    env = StateTransfer(model, 20, 0.1, 10.0, target=np.array([1, 0]))
    actions = np.zeros((20, 1))
    actions[10] = -10.0
    (z,) = record(env, actions, "z")
    return Measure(abs(z[-1] + math.cos(2)), 2 * rounding(env))


# --- gates ---


@check("gates", "1 <-> 2 turned by 0.1 rad against identity: F = 0.995012")
def leakage_counts() -> Measure:
    """k = 2 of 3 levels: ((1 + c^2) + (1 + c)^2)/6 with c = cos 0.1; leakage sin^2(0.1)/2."""
    c, s = math.cos(0.1), math.sin(0.1)
    turned = np.array([[1, 0, 0], [0, c, -s], [0, s, c]])

    @jax.jit
    def quality(u: Any) -> Any:
        return gates.average_gate_fidelity(u, np.eye(2), [0, 1]), gates.leakage(u, [0, 1])

    found, leaked = map(float, quality(turned))
    errors = [found - ((1 + c * c) + (1 + c) ** 2) / 6, leaked - s * s / 2]
    known = abs(found - 0.995012)
    return Measure(np.abs(errors).max() if known < 5e-7 else known, 8 * EPS)


@check("gates", "depolarising: F_avg = 1 - p/2, F_pro = 1 - 3 p/4")
def depolarising() -> Measure:
    """rho -> (1 - p) rho + p 1/2."""
    p, one = 0.2, np.eye(2).reshape(-1)
    superop = (1 - p) * np.eye(4) + p / 2 * np.outer(one, one)
    average = float(jax.jit(gates.superop_average_gate_fidelity)(superop, np.eye(2)))
    process = float(jax.jit(gates.superop_process_fidelity)(superop, np.eye(2)))
    return Measure(max(abs(average - 0.9), abs(process - 0.85)), 8 * EPS)


@check("gates", "average over the six poles of the Bloch sphere")
def six_states() -> Measure:
    """A 2-design: the mean of <psi|Ut' E(psi) Ut|psi> is the average fidelity."""
    rng = np.random.default_rng(0)
    u, target = (random_unitary(rng, 2) for _ in range(2))
    poles = [
        np.linalg.eigh(pauli)[1][:, k] for pauli in (gates.X, gates.Y, gates.Z) for k in (0, 1)
    ]
    mean = np.mean([abs(np.vdot(target @ psi, u @ psi)) ** 2 for psi in poles])
    found = float(jax.jit(gates.average_gate_fidelity)(u, target))
    return Measure(float(abs(found - mean)), 20 * EPS)


def random_unitary(rng: np.random.Generator, d: int) -> np.ndarray:
    """Any unitary (d, d)."""
    return np.linalg.qr(rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d)))[0]

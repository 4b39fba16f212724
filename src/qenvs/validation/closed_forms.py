"""Closed forms: qubits, the Lambda system, models from operators, gate measures."""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qenvs import registration
from qenvs.dynamics import DensityCoordinates, build_generator, evolve
from qenvs.models import TwoLevel
from qenvs.validation.cases import EPS, EPS32, Case, play, rounding
from qenvs.validation.results import Check, Collection, Measure

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
    found = play(env, constant(env, u)).info["p1"]
    return compare(found, np.sin(u * times(env) / 2) ** 2, rounding(env))


@check("TwoLevel", "detuned Rabi: P1 = u^2/(u^2+D^2) sin^2(sqrt(u^2+D^2) t/2)")
def detuned_rabi() -> Measure:
    """At every time, and for D = u at t = pi/u the number 0.316564."""
    u = 1.4
    env = qubit(detuning=u, dt=math.pi / u / 20)
    found = play(env, constant(env, u)).info["p1"]
    expected = np.sin(math.sqrt(2) * u * times(env) / 2) ** 2 / 2
    known = abs(expected[-1] - 0.316564)
    measure = compare(found, expected, rounding(env))
    return measure if known < 5e-7 else Measure(known, 5e-7, "the closed form itself")


@check("TwoLevel", "u t = pi inverts")
def pi_pulse() -> Measure:
    """The reference pulse of the task."""
    env = qubit()
    pulse = registration.spec("qubit/StateTransfer-v0").reference_pulse(env)
    return Measure(abs(1 - play(env, pulse).info["fidelity"][-1]), rounding(env))


@check("TwoLevel", "u t = pi inverts, in float32")
def pi_pulse_in_single_precision() -> Measure:
    """1 - F <= 1e-5 is what the task promises in the precision that JAX starts with."""
    env = qubit()
    pulse = registration.spec("qubit/StateTransfer-v0").reference_pulse(env)
    return Measure(
        abs(1 - play(env, pulse, double=False).info["fidelity"][-1]), rounding(env, EPS32)
    )


@check("TwoLevel", "decay: P1 = exp(-gamma1 t)")
def population_decay() -> Measure:
    """1/e = 0.367879 at t = T1."""
    env = qubit(gamma1=0.5, initial="excited")
    return compare(
        play(env, constant(env, 0.0)).info["p1"], np.exp(-0.5 * times(env)), rounding(env)
    )


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

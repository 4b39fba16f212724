"""Thermodynamics: work, passivity, bounds on power, the second law."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from qenvs import observables
from qenvs.envs import BatteryCharging
from qenvs.models import DickeBattery, DickeBatteryLocal, QubitBattery, TwoLevel
from qenvs.validation.cases import EPS, Case, record, rounding
from qenvs.validation.closed_forms import random_unitary, rate_tolerance, trajectory
from qenvs.validation.results import Check, Collection, Measure

check = Collection("thermodynamics")
RATES: dict[str, Any] = {"gamma1": 0.3, "n_th": 0.4}


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Bounds on every battery case, then statements about single models."""
    yield from bounds(cases)
    yield from check.found


def bounds(cases: dict[str, Case]) -> Iterator[Check]:
    """What holds for every battery."""
    named = {
        "0 <= ergotropy <= energy above the lowest level": ergotropy_bounds,
        "energy within the spectrum": energy_bounds,
        "power is energy over time": power,
    }
    for name, bound in named.items():
        for case in cases.values():
            if isinstance(case.env, BatteryCharging):
                yield Check(name, case.label, "thermodynamics", lambda c=case, f=bound: f(c))


def _levels(case: Case) -> np.ndarray:
    return np.linalg.eigvalsh(np.asarray(case.model.battery_hamiltonian()))


def ergotropy_bounds(case: Case) -> Measure:
    """How far it is outside."""
    info, levels = case.play.info, _levels(case)
    stored = info["energy"] - levels[0]
    outside = np.maximum(-info["ergotropy"], info["ergotropy"] - stored)
    return Measure(max(0.0, outside.max()), np.abs(levels).max() * case.rounding())


def energy_bounds(case: Case) -> Measure:
    """How far it is outside of the lowest and highest level of H_B."""
    energy, levels = case.play.info["energy"], _levels(case)
    outside = np.maximum(levels[0] - energy, energy - levels[-1]).max()
    return Measure(max(0.0, outside), np.abs(levels).max() * case.rounding())


def power(case: Case) -> Measure:
    """E/t, and 0 at t = 0."""
    info, t = case.play.info, float(case.env.dt) * np.arange(case.env.horizon + 1)
    expected = np.append(0.0, info["energy"][1:] / t[1:])
    scale = np.abs(_levels(case)).max() / float(case.env.dt)
    return Measure(np.abs(info["power"] - expected).max(), scale * case.rounding())


def _battery(model: Any, horizon: int = 20, dt: float = 0.1, bound: float = 2.0) -> Any:
    return BatteryCharging(model, horizon, dt, bound, reward="ergotropy")


def _random_actions(env: Any) -> np.ndarray:
    bound = float(env.action_bound)
    return np.random.default_rng(4).uniform(-bound, bound, (env.horizon, env.action_dim))


@check("QubitBattery", "a pure qubit gives all its energy")
def pure_qubit() -> Measure:
    """Its passive state is the ground state."""
    env = _battery(QubitBattery(omega0=1.3, detuning=0.2))
    ergotropy, energy = record(env, _random_actions(env), "ergotropy", "energy")
    return Measure(np.abs(ergotropy - energy).max(), 4 * rounding(env))


@check("QubitBattery", "|dE/dt| <= omega0 |u|/2 without a bath")
def power_bound() -> Measure:
    """dE/dt = -i <[H_B, H]> = omega0 u <sigma_y>/2, in every interval."""
    env = _battery(QubitBattery(omega0=1.3, detuning=0.2))
    actions = _random_actions(env)
    (energy,) = record(env, actions, "energy")
    excess = np.abs(np.diff(energy)) - 1.3 * np.abs(actions[:, 0]) / 2 * float(env.dt)
    return Measure(max(0.0, excess.max()), 4 * rounding(env))


@check("QubitBattery", "the bound on the power is reached on the equator")
def power_bound_is_tight() -> Measure:
    """From |-y> or |+y| the energy moves at omega0 u/2 up to third order of the time."""
    u, dt = 1.0, 1e-4
    plus_y = np.array([[1, -1j], [1j, 1]]) / 2
    later = trajectory(QubitBattery(), plus_y, (u,), dt, 1)[-1]
    rate = abs(later[1, 1].real - 0.5) / dt
    # sin(u dt)/(2 dt) = u/2 (1 - (u dt)^2/6), and rounding of 1/2 over dt
    return Measure(abs(rate - u / 2), u * (u * dt) ** 2 / 6 + 4 * EPS / dt)


@check("QubitBattery", "the Gibbs state is passive")
def gibbs_is_passive() -> Measure:
    """Ergotropy of the thermal start, and of what the bath makes of it."""
    env = _battery(QubitBattery(initial="thermal", **RATES))
    (ergotropy,) = record(env, np.zeros((env.horizon, 1)), "ergotropy")
    return Measure(np.abs(ergotropy).max(), rounding(env))


@check("QubitBattery", "the Gibbs state is stationary")
def gibbs_is_stationary() -> Measure:
    """P1 = n_th/(2 n_th + 1) at all times."""
    env = _battery(QubitBattery(initial="thermal", **RATES))
    (excited,) = record(env, np.zeros((env.horizon, 1)), "p1")
    return Measure(np.abs(excited - 0.4 / 1.8).max(), rounding(env))


@check("QubitBattery", "any state relaxes to P1 = n_th/(2 n_th + 1)")
def thermalisation() -> Measure:
    """After 60 relaxation times exp(-30) is all that is left of a coherence, 1e-13."""
    model, steps, dt = QubitBattery(**RATES), 20, 60 / (0.3 * 1.8) / 20
    final = trajectory(model, np.full((2, 2), 0.5), (0.0,), dt, steps)[-1]
    expected = np.diag([1.4, 0.4]) / 1.8
    return Measure(np.abs(final - expected).max(), 1e-13 + rate_tolerance(steps, 4.0))


@check("QubitBattery", "the second law: relative entropy to the Gibbs state never grows")
def second_law() -> Measure:
    """S(rho||gibbs) = Tr rho (ln rho - ln gibbs) falls along an undriven evolution (Spohn 1978)."""
    rho = np.array([[0.3, 0.4j], [-0.4j, 0.7]])
    states = trajectory(QubitBattery(detuning=0.5, **RATES), rho, (0.0,), 0.4, 20)
    gibbs = np.diag(np.log(np.array([1.4, 0.4]) / 1.8))
    values = [np.trace(s @ (_log(s) - gibbs)).real for s in states]
    growth = np.diff(values)
    # it starts near 1 and ends near 0, so that a constant would fail
    stuck = values[-1] / values[0] > 0.1
    return Measure(1.0 if stuck else max(0.0, growth.max()), rate_tolerance(20))


def _log(rho: np.ndarray) -> np.ndarray:
    weights, vectors = np.linalg.eigh(rho)
    return (vectors * np.log(weights)) @ vectors.conj().T


@check("TwoLevel", "dephasing and driving never lower the entropy")
def unital_entropy() -> Measure:
    """A unital map makes every state more mixed."""
    rho = np.array([[0.8, 0.3], [0.3, 0.2]])
    states = trajectory(TwoLevel(detuning=0.4, gamma_phi=0.5), rho, (1.1,), 0.3, 12)
    entropies = np.array([-np.trace(s @ _log(s)).real for s in states])
    rise = entropies[-1] - entropies[0]
    falls = np.maximum(0.0, -np.diff(entropies)).max()
    return Measure(falls if rise > 0.05 else 1.0, rate_tolerance(12))


def _random_state(d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    h = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    return a @ a.conj().T / np.linalg.norm(a) ** 2, (h + h.conj().T) / 2, rng


def _ergotropy(rho: Any, hamiltonian: Any) -> float:
    return float(jax.jit(observables.ergotropy)(rho, hamiltonian))


@check("observables", "no unitary extracts more than the ergotropy")
def ergotropy_is_a_bound() -> Measure:
    """Tr rho H - Tr U rho U' H over random U, and equality for the one that sorts."""
    rho, h, rng = _random_state(4, 0)
    energy, most = np.trace(rho @ h).real, _ergotropy(rho, h)
    extracted = []
    for _ in range(200):
        u = random_unitary(rng, 4)
        extracted.append(energy - np.trace(u @ rho @ u.conj().T @ h).real)
    _, levels = np.linalg.eigh(h)
    _, populations = np.linalg.eigh(rho)
    u = levels @ populations[:, ::-1].conj().T
    best = energy - np.trace(u @ rho @ u.conj().T @ h).real
    excess = max(extracted) - most
    return Measure(max(0.0, excess, abs(best - most)), 100 * EPS * float(np.linalg.norm(h, 2)))


@check("observables", "ergotropy is convex")
def ergotropy_is_convex() -> Measure:
    """Mixing loses work: W(p a + (1 - p) b) <= p W(a) + (1 - p) W(b)."""
    excess = []
    for seed in range(5):
        (a, h, _), (b, _, _) = _random_state(4, seed), _random_state(4, 50 + seed)
        mixed = _ergotropy(0.3 * a + 0.7 * b, h)
        excess.append(mixed - 0.3 * _ergotropy(a, h) - 0.7 * _ergotropy(b, h))
    return Measure(max(0.0, *excess), 1000 * EPS)


@check("observables", "the passive state gives nothing")
def passive_state() -> Measure:
    """Of a random state and Hamiltonian; its spectrum is that of the state."""
    rho, h, _ = _random_state(5, 3)
    passive = np.asarray(jax.jit(observables.passive_state)(rho, h))
    spectra = np.linalg.eigvalsh(passive) - np.linalg.eigvalsh(rho)
    return Measure(max(_ergotropy(passive, h), np.abs(spectra).max()), 1000 * EPS)


@check("DickeBattery", "no more energy than the photons give")
def energy_of_the_photons() -> Measure:
    """E <= omega0 n_photons with the rotating-wave approximation, with 2 photons for 3 cells."""
    env = _battery(DickeBattery(3, 2, omega0=1.2), bound=0.5, dt=0.4)
    (energy,) = record(env, np.full((env.horizon, 1), 0.5), "energy")
    charged = energy.max() > 1.2  # more than half of it arrives, or the bound means nothing
    excess = max(0.0, energy.max() - 2.4)
    return Measure(excess if charged else 1.0, 2.4 * rounding(env))


@check("DickeBatteryLocal", "pumped cells: energy, ergotropy and purity of independent qubits")
def pumped_cells() -> Measure:
    """P1 = p/(p+g) (1 - exp(-(p+g) t)) in each cell; passive until it is inverted."""
    n, pump, loss = 4, 1.5, 0.5
    model = DickeBatteryLocal(n, 0, 0, pumping_local=pump, gamma_local=loss)
    env = _battery(model, horizon=6, dt=0.4)
    names = ("energy", "ergotropy", "purity")
    energy, ergotropy, purity = record(env, np.zeros((6, 1)), *names)
    t = 0.4 * np.arange(7)
    excited = pump / (pump + loss) * -np.expm1(-(pump + loss) * t)
    errors = [
        energy - n * excited,
        ergotropy - n * np.maximum(2 * excited - 1, 0),
        purity - (excited**2 + (1 - excited) ** 2) ** n,
    ]
    return Measure(np.abs(errors).max(), n * rounding(env))

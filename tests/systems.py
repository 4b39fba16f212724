"""Toy environments whose every number is known, and exact answers of small physical systems."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import keys
from qenvs.dynamics.blocks import BlockCoordinates
from qenvs.dynamics.coordinates import (
    Coordinates,
    DensityCoordinates,
    KetCoordinates,
    PropagatorCoordinates,
)
from qenvs.envs.base import Environment, TimeStep
from qenvs.models.base import REAL_LINE, Model, ParameterSpec, Term, basis_ket, number
from qenvs.wrappers import WrappedState, Wrapper


class WalkState(eqx.Module):
    """Where a walker is; `start` and `speed` are this episode's draws."""

    start: Array
    speed: Array
    value: Array
    step: Array

    @property
    def base(self) -> "WalkState":
        return self

    @property
    def t(self) -> Array:
        return 0.5 * self.step


class Walk(Environment):
    """A walker on a line: u is added to its value in every step, and is its reward.

    The observation is (start, speed, value, step index); start and speed are drawn from U(0, 1)
    at reset. An episode ends after `horizon` steps, or before that once |value| reaches `goal`.
    """

    horizon: int = eqx.field(static=True, default=3)
    action_bound: Any = 2.0
    action_dim: int = eqx.field(static=True, default=1)
    goal: float = eqx.field(static=True, default=float("inf"))
    dt: Any = 0.5
    observation_dim: int = eqx.field(static=True, default=4)

    def reset(self, key: Array) -> tuple[WalkState, TimeStep]:
        start, speed = (
            jax.random.uniform(keys.parameter_key(key, name), dtype=jnp.float32)
            for name in ("start", "speed")
        )
        state = WalkState(start, speed, jnp.zeros(()), jnp.zeros((), jnp.int32))
        return state, self._timestep(state, jnp.zeros(()), jnp.zeros(self.action_dim))

    def step(self, state: WalkState, action: Array) -> tuple[WalkState, TimeStep]:
        bound = jnp.asarray(self.action_bound, jnp.result_type(float))
        applied = jnp.clip(jnp.asarray(action), -bound, bound)
        reward = jnp.sum(applied)
        new = WalkState(state.start, state.speed, state.value + reward, state.step + 1)
        return new, self._timestep(new, reward, applied)

    def info(self, state: WalkState) -> dict[str, Any]:
        return {"value": state.value, "start": state.start}

    def diagnostics(self, state: WalkState) -> dict[str, Any]:
        return {**self.info(state), "speed": state.speed}

    def _timestep(self, state: WalkState, reward: Array, applied: Array) -> TimeStep:
        done = (state.step >= self.horizon) | (jnp.abs(state.value) >= self.goal)
        parts = [state.start, state.speed, state.value, state.step]
        deep = {"step": state.step, "done": done}
        nested = {"diagnostics": {"speed": state.speed, "deep": deep}}
        info = {**self.info(state), "applied": applied, **nested}
        return TimeStep(jnp.stack(parts).astype(jnp.float32), reward, done, info)


class Tally:
    """How often Python ran a function, that is how often JAX traced it."""

    def __init__(self) -> None:
        self.resets = self.steps = 0


class Tallied(Wrapper):
    """Counts the traces of the environment that it wraps."""

    tally: Tally = eqx.field(static=True, default_factory=Tally)

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        self.tally.resets += 1
        return super().reset(key)

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        self.tally.steps += 1
        return super().step(state, action)


def random_hermitian(rng: np.random.Generator, d: int) -> np.ndarray:
    """Hermitian d x d matrix in complex128 with entries of order 1."""
    matrix = rng.normal(size=(d, d)) + 1j * rng.normal(size=(d, d))
    return (matrix + matrix.conj().T) / 2


class Custom(Model):
    """A user's model: H = scale H0 + u0 C0 + u1 C1 with fixed random matrices, d = 3."""

    scale: Any = number(1.0)
    rate: Any = number(0.0)

    @property
    def dims(self) -> tuple[int, ...]:
        return (3,)

    @property
    def control_names(self) -> tuple[str, ...]:
        return ("u0", "u1")

    def drift_terms(self) -> tuple[Term, ...]:
        return ((self.scale, random_hermitian(np.random.default_rng(0), 3)),)

    def control_operators(self) -> tuple[np.ndarray, ...]:
        return tuple(random_hermitian(np.random.default_rng(seed), 3) for seed in (1, 2))

    def jump_terms(self) -> tuple[Term, ...]:
        return ((self.rate, np.diag([1, np.sqrt(2)], k=1).astype(complex)),)

    def initial_state(self) -> np.ndarray:
        return basis_ket(3, 0)

    def observable_terms(self) -> dict[str, Term]:
        return {"spin": (0.5, random_hermitian(np.random.default_rng(3), 3))}

    def correlation_observables(self) -> dict[str, np.ndarray]:
        return {}

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {"scale": ParameterSpec("", REAL_LINE, 0.1)}

    def fixed_parameters(self) -> dict[str, str]:
        return {}


def rabi_fidelities(actions: Any, dt: float = 0.1, detuning: float = 0.0) -> np.ndarray:
    """Population of |1> after 0, 1, 2, ... intervals of H = (detuning sigma_z + u sigma_x)/2.

    One interval is cos(w dt/2) - i sin(w dt/2) (detuning sigma_z + u sigma_x)/w with
    w^2 = u^2 + detuning^2; complex128, from |0>.
    """
    psi, populations = np.array([1, 0], complex), [0.0]
    for u in np.asarray(actions, float).reshape(-1):
        half, half_angle = np.array([[detuning, u], [u, -detuning]]) / 2, np.hypot(u, detuning) / 2
        turn = np.sinc(half_angle * dt / np.pi) * dt  # sin(half_angle dt) / half_angle
        psi = np.cos(half_angle * dt) * psi - 1j * turn * (half @ psi)
        populations.append(abs(psi[1]) ** 2)
    return np.array(populations)


def assert_physical(coordinates: Coordinates, observations: np.ndarray) -> None:
    """What is observed is a ket, a density matrix, a unitary or a channel, to float32 rounding."""
    half = (observations.shape[-1] - 1) // 2
    flat = observations[:, :half] + 1j * observations[:, half : 2 * half].astype(complex)
    if isinstance(coordinates, KetCoordinates):
        np.testing.assert_allclose(np.linalg.norm(flat, axis=1), 1, atol=1e-5)
    elif isinstance(coordinates, DensityCoordinates):
        _assert_weights(_blocks(flat, [coordinates.dimension]))
    elif isinstance(coordinates, BlockCoordinates):
        _assert_weights(_blocks(flat, [size for size, _ in coordinates.blocks]))
    elif isinstance(coordinates, PropagatorCoordinates):
        (maps,) = _blocks(flat, [coordinates.dimension])
        gram = maps.conj().transpose(0, 2, 1) @ maps
        np.testing.assert_allclose(
            gram, np.broadcast_to(np.eye(maps.shape[-1]), gram.shape), atol=1e-5
        )
    else:
        _assert_channels(*_blocks(flat, [coordinates.dimension**2]))


def _blocks(flat: np.ndarray, sizes: list[int]) -> list[np.ndarray]:
    """Square matrices of these sizes, row by row one after the other, in each row of `flat`."""
    ends = np.cumsum([size**2 for size in sizes])
    assert ends[-1] == flat.shape[1]
    parts = np.split(flat, ends[:-1], axis=1)
    return [part.reshape(-1, n, n) for part, n in zip(parts, sizes, strict=True)]


def _assert_weights(blocks: list[np.ndarray]) -> None:
    trace = sum(np.trace(block, axis1=1, axis2=2) for block in blocks)
    np.testing.assert_allclose(trace, 1, atol=1e-5)
    for block in blocks:
        np.testing.assert_allclose(block, block.conj().transpose(0, 2, 1), atol=1e-6)
        weights = np.linalg.eigvalsh(block)
        assert weights.min() > -1e-5 and weights.max() < 1 + 1e-5


def _assert_channels(maps: np.ndarray) -> None:
    """Trace preserving and completely positive, vec stacking columns."""
    d = round(maps.shape[-1] ** 0.5)
    trace = np.eye(d).reshape(-1)
    np.testing.assert_allclose(trace @ maps, np.broadcast_to(trace, maps.shape[:2]), atol=1e-5)
    choi = maps.reshape(-1, d, d, d, d).transpose(0, 4, 2, 3, 1).reshape(maps.shape)
    assert np.linalg.eigvalsh(choi).min() > -1e-4

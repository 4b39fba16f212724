"""The built-in tasks, closed and open, each played once beside an independent reference."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm
from scipy.sparse.linalg import expm_multiply

from qenvs import registration
from qenvs.dynamics import (
    KetCoordinates,
    PropagatorCoordinates,
    StateCoordinates,
    SuperoperatorCoordinates,
)
from qenvs.models.dicke import CavityBattery
from qenvs.validation.results import double_precision

EPS = float(np.finfo(float).eps)
EPS32 = float(np.finfo(np.float32).eps)

DENSE = 81
"""Largest Liouvillian that is exponentiated as a matrix; larger ones act on the state alone."""


LONG = 2000
"""Steps of a long float32 episode."""


class Play(NamedTuple):
    """One episode; the first axis of `states` and `info` are the times 0 ... horizon.

    Attributes:
        states: density matrices, propagators or superoperators.
        info: what `TimeStep.info` says.
        rewards, done: of every step.
    """

    states: np.ndarray
    info: dict[str, np.ndarray]
    rewards: np.ndarray
    done: np.ndarray


def player(env: Any) -> Callable[[Any], Any]:
    """Function of actions (n, action_dim): states, info, rewards and done of an episode.

    Also the state and info at its start; JAX traces it.
    """

    def run(actions: Any) -> Any:
        state, first = env.reset(jax.random.PRNGKey(0))

        def advance(state: Any, action: Any) -> Any:
            state, timestep = env.step(state, action)
            return state, (state.array, timestep.info, timestep.reward, timestep.done)

        return state.array, first.info, jax.lax.scan(advance, state, actions)[1]

    return run


def as_play(found: Any) -> Play:
    """What a `player` returned, as NumPy arrays."""
    start, first, (states, info, rewards, done) = found
    info = {k: np.append(np.asarray(first[k]), np.asarray(v)) for k, v in info.items()}
    return Play(with_start(start, states), info, np.asarray(rewards), np.asarray(done))


def with_start(start: Any, later: Any) -> np.ndarray:
    """Density matrices or maps at the times 0 ... n."""
    return as_matrices(np.concatenate([np.asarray(start)[None], np.asarray(later)]))


def states(env: Any, actions: np.ndarray) -> np.ndarray:
    """Density matrices or maps at the times 0 ... n of an episode; nothing else is compiled."""

    def run(actions: Any) -> Any:
        start, _, later = player(env)(actions)
        return start, later[0]

    return with_start(*jax.jit(run)(jnp.asarray(actions, float)))


def recorder(env: Any, *names: str) -> Callable[[np.ndarray], np.ndarray]:
    """Function of actions (n, action_dim): these entries of `info` at the times 0 ... n.

    One row per name. Nothing else is compiled, which takes half as long as a whole episode.
    """

    def run(actions: Any) -> Any:
        _, first, (_, info, _, _) = player(env)(actions)
        return [jnp.concatenate([first[name][None], info[name]]) for name in names]

    compiled = jax.jit(run)
    return lambda actions: np.array(compiled(jnp.asarray(actions, float)))


def record(env: Any, actions: np.ndarray, *names: str) -> np.ndarray:
    """As a `recorder` of these names does, once."""
    return recorder(env, *names)(actions)


def as_matrices(states: np.ndarray) -> np.ndarray:
    """Kets (n, d) as density matrices (n, d, d); matrices as they are."""
    return states[:, :, None] * states[:, None, :].conj() if states.ndim == 2 else states


class Case:
    """A task with random actions, from one fixed seed.

    Everything is computed on first use and kept, so that many checks share one compilation.

    Args:
        label: what a report calls it.
        make: builds the environment.
        thorough: whether the checks that compile again, such as those of gradients, are done.
        system: the equations of a model, as a `references.System`; None are the built-in ones.
    """

    def __init__(
        self,
        label: str,
        make: Callable[[], Any],
        thorough: bool = True,
        system: Callable[[Any], Any] | None = None,
    ) -> None:
        self.label, self.make, self.thorough = label, make, thorough
        self.write_system = system

    @functools.cached_property
    def env(self) -> Any:
        """The functional environment."""
        return self.make()

    @property
    def model(self) -> Any:
        """Its model."""
        return self.env.model

    @functools.cached_property
    def actions(self) -> np.ndarray:
        """(horizon, action_dim), within the bound; the first two intervals hold one control."""
        shape = (self.env.horizon, self.env.action_dim)
        drawn = np.random.default_rng(7).uniform(-1, 1, shape) * np.asarray(self.env.action_bound)
        drawn[1] = drawn[0]
        return drawn

    @functools.cached_property
    def play(self) -> Play:
        """The episode in float64."""
        return self.replay(self.actions)

    def replay(self, actions: np.ndarray) -> Play:
        """An episode of other actions, by the same compiled function."""
        with double_precision():
            return as_play(self._run(jnp.asarray(actions)))

    @functools.cached_property
    def _run(self) -> Any:
        return jax.jit(player(self.env))

    @functools.cached_property
    def gradient(self) -> Any:
        """The compiled gradient of the return."""
        return jax.jit(jax.grad(lambda actions: jnp.sum(self.env.rollout(actions)[1])))

    @functools.cached_property
    def long_states(self) -> np.ndarray:
        """States of the actions over and over in float32, which takes no notice of the horizon.

        In an environment of its own: JAX 0.10 keeps the integers of a NumPy index array as they
        were in the precision that met the array first.
        """
        env = self.make()
        with double_precision(False):
            return states(env, np.resize(self.actions, (LONG, env.action_dim)))

    @functools.cached_property
    def system(self) -> Any:
        """The equations of the model, written with QuTiP."""
        if self.write_system is not None:
            return self.write_system(self.model)
        from qenvs.validation import references

        return references.system(self.model)

    @property
    def is_map(self) -> bool:
        """Whether the state of the environment is a propagator or a superoperator."""
        return not isinstance(self.env.generator.coordinates, StateCoordinates)

    @property
    def is_open(self) -> bool:
        """Whether there is any dissipation."""
        return bool(self.env.active_jumps)

    @property
    def is_ket(self) -> bool:
        """Whether the engine evolves a ket."""
        return isinstance(self.env.generator.coordinates, KetCoordinates)

    @property
    def is_propagator(self) -> bool:
        """Whether the engine evolves a unitary."""
        return isinstance(self.env.generator.coordinates, PropagatorCoordinates)

    @property
    def is_superoperator(self) -> bool:
        """Whether the engine evolves a superoperator."""
        return isinstance(self.env.generator.coordinates, SuperoperatorCoordinates)

    @functools.cached_property
    def full_states(self) -> np.ndarray:
        """States of the reference at the times 0 ... horizon, in the reference's own space."""
        system, dt = self.system, float(self.env.dt)
        d = system.drift.shape[0]
        if self.is_map:
            start = np.eye(d * d if self.is_open else d, dtype=complex)
        else:
            start = system.start.full()
        states = [start]
        for controls in self.actions:
            states.append(exact_step(system, controls, dt, states[-1]))
        return np.array(states)

    @functools.cached_property
    def reference_states(self) -> np.ndarray:
        """`full_states` in the basis of the model."""
        return np.array([self.compact(state) for state in self.full_states])

    def compact(self, rho: np.ndarray) -> np.ndarray:
        """A state of the reference in the basis of the model."""
        if self.write_system is not None or not isinstance(self.model, CavityBattery):
            return rho
        from qenvs.validation import references

        return references.compact_blocks(self.model, rho)

    def rounding(self, eps: float = EPS) -> float:
        """What rounding may add up to in the episode."""
        return rounding(self.env, eps)


def strength(env: Any) -> float:
    """Bound on ||G dt|| of one step."""
    drift = [abs(float(weight)) for weight, _ in env.model.drift_terms()]
    bounds = np.broadcast_to(np.asarray(env.action_bound, float), (env.action_dim,))
    rates = env.model.jump_terms()
    jumps = [abs(float(rates[j][0])) for j in env.active_jumps]
    return float(env.dt * env.generator.norm_bound([*drift, *bounds, *jumps]))


def rounding(env: Any, eps: float = EPS) -> float:
    """What rounding may add up to in an episode.

    The engine is off by at most 10 eps max(1, ||G dt||) in a step, and SciPy's exponential by
    about as much; errors of steps add up, since the evolution does not stretch them.
    """
    return 20 * eps * env.horizon * max(1.0, strength(env))


def exact_step(system: Any, controls: Any, dt: float, state: np.ndarray) -> np.ndarray:
    """The state (a density matrix or a map) after one interval, by SciPy's exponential."""
    hamiltonian = system.hamiltonian(controls)
    d = hamiltonian.shape[0]
    if not system.jumps:
        unitary = expm(-1j * dt * hamiltonian.full())
        is_map = np.allclose(state.conj().T @ state, np.eye(d))
        return unitary @ state if is_map else unitary @ state @ unitary.conj().T
    generator = dt * liouvillian(hamiltonian, system.jumps)
    if state.shape[0] == d * d:
        return expm(generator.full()) @ state
    vector = state.T.reshape(-1)
    if d * d <= DENSE:
        moved = expm(generator.full()) @ vector
    else:
        moved = expm_multiply(generator.data.as_scipy(), vector)
    return moved.reshape(d, d).T


def liouvillian(hamiltonian: Any, jumps: Sequence[Any]) -> Any:
    """QuTiP's, which stacks columns, as a `Qobj`."""
    import qutip

    return cast(Any, qutip.liouvillian)(hamiltonian, list(jumps))


def _task(label: str, task: str, thorough: bool = False, **kwargs: Any) -> Case:
    arguments = {"horizon": 8, **kwargs}
    return Case(label, lambda: registration.make(task, **arguments), thorough)


def built_in_cases() -> dict[str, Case]:
    """Every task, with its closed and open variants, at numbers that hide nothing."""
    qubit, battery = "qubit/StateTransfer-v0", "battery/TwoLevel-v0"
    stirap, gate, cr = "transfer/LambdaSTIRAP-v0", "transmon/XGate-v0", "transmon/CRGate-v0"
    dicke, local = "battery/Dicke-v0", "battery/DickeLocal-v0"
    collective: dict[str, Any] = {"kappa": 0.2, "gamma": 0.15, "gamma_phi": 0.25}
    each: dict[str, Any] = {"gamma_local": 0.3, "gamma_phi_local": 0.4}
    small: dict[str, Any] = {"n_cells": 2, "n_photons": 1, "n_max": 2}
    cases = [
        _task("TwoLevel", qubit, True, detuning=0.4),
        _task("TwoLevel open", qubit, detuning=-0.4, gamma1=0.3, gamma_phi=0.2, initial="excited"),
        _task("QubitBattery", battery, detuning=0.3),
        _task("QubitBattery open", battery, detuning=0.3, gamma1=0.3, n_th=0.4, gamma_phi=0.2,
             initial="thermal", reward="ergotropy"),
        _task("LambdaSystem", stirap, delta_one_photon=0.5, delta_two_photon=0.2, dt=1.5),
        _task("LambdaSystem open", stirap, True, delta_one_photon=0.5, delta_two_photon=0.2,
             gamma=0.7, dt=1.5),
        _task("Transmon X", gate, True, detuning_ghz=0.01),
        _task("Transmon SX, 4 levels", "transmon/SXGate-v0", levels=4, anharmonicity_ghz=-0.3),
        _task("Transmon X open", gate, detuning_ghz=0.01, t1_us=0.5, t2_us=0.3),
        _task("TwoTransmon", cr, horizon=4),
        _task("TwoTransmon open", cr, levels=2, horizon=4, t1_c_us=0.5, t2_c_us=0.3, t1_t_us=0.4,
             t2_t_us=0.7),
        _task("DickeBattery", dicke, omega_c=1.2),
        _task("DickeBattery open", dicke, omega0=1.1, omega_c=0.9, **collective),
        _task("DickeBattery without RWA", dicke, rwa=False, **small),
        _task("DickeBatteryLocal", local, True, omega_c=0.9, **collective, **each),
        _task("DickeBatteryLocal pumped", local, omega0=1.1, pumping_local=0.5, rwa=False,
             **small, **each),
    ]  # fmt: skip
    return {case.label: case for case in cases}

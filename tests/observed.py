"""Environments for the tests of what is observed, and episodes of them compiled once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import qenvs
from brute_force import trajectory
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.models.custom import HamiltonianModel
from qenvs.wrappers import ObservationModel
from systems import Custom, random_hermitian

KEY = jax.random.PRNGKey(5)
QUBIT = "qubit/StateTransfer-v0"

ONE, X, Z = np.eye(2), np.array([[0, 1], [1, 0]]), np.diag([1, -1])
SPINS = {
    "any": random_hermitian(np.random.default_rng(1), 4),
    "total": np.kron(Z, ONE) + np.kron(ONE, Z),
    "xx": np.kron(X, X),
    "z1": np.kron(Z, ONE),
}
"""Observables of two spins: four outcomes, three (one twofold), two (twofold), two (twofold)."""

DRIFT = 0.5 * np.kron(Z, ONE) + 0.3 * np.kron(ONE, Z) + 0.7 * np.kron(Z, Z)
CONTROLS = [np.kron(X, ONE), np.kron(ONE, X)]
JUMP = 0.3 * np.kron(Z, ONE)
SPIN_DT = 0.4


@functools.cache
def spins(dephased=False, horizon=3):
    """Two coupled spins, from |00> to |11>."""
    model = HamiltonianModel.from_operators(
        DRIFT, CONTROLS, [JUMP] if dephased else [], observables=SPINS, dims=(2, 2)
    )
    return StateTransfer(model, horizon, SPIN_DT, 1.0, target=np.eye(4)[3])


def spin_states(actions, dephased=False):
    """Density matrices of an episode of `spins`, the start included, by SciPy in complex128."""
    hamiltonians = [DRIFT + np.tensordot(u, CONTROLS, 1) for u in np.asarray(actions, float)]
    jumps = [JUMP] if dephased else []
    return trajectory(np.diag([1.0, 0, 0, 0]), hamiltonians, jumps, SPIN_DT)


@functools.cache
def qubit(horizon=4):
    return qenvs.make(QUBIT, horizon=horizon, dt=0.5)


@functools.cache
def spinless():
    """A qubit whose energy and excited population are two operators."""
    return qenvs.make(QUBIT, omega0=2.0, horizon=4)


@functools.cache
def seen(env, *args, **options):
    """One `ObservationModel` for each set of arguments, so that it is compiled once."""
    options = {name: list(v) if name == "observables" else v for name, v in options.items()}
    return ObservationModel(env, *args, **options)


def measured(operators):
    """A three-level environment with these observables."""

    class Measured(Custom):
        def observable_terms(self):
            return {name: (1.0, np.asarray(operator)) for name, operator in operators.items()}

    return StateTransfer(Measured(), 2, 0.3, 1.0, target=basis_ket(3, 2))


def rotated(levels):
    """A Hermitian matrix with these eigenvalues that is diagonal in no basis at hand."""
    rng = np.random.default_rng(2)
    basis, _ = np.linalg.qr(rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3)))
    matrix = (basis * np.asarray(levels, float)) @ basis.conj().T
    return (matrix + matrix.conj().T) / 2


def info_names(env):
    """Names in the info of reset and step, which must be the same."""
    state, opening = jax.eval_shape(env.reset, KEY)
    _, later = jax.eval_shape(env.step, state, jnp.ones(env.action_dim))
    assert jax.tree.structure(opening.info) == jax.tree.structure(later.info)
    return set(later.info)


def _play(env, actions, key):
    state, opening = env.reset(key)

    def advance(state, action):
        state, timestep = env.step(state, action)
        return state, (timestep, state.base.x)

    last, later = jax.lax.scan(advance, state, actions)
    first = opening, state.base.x
    timesteps, x = jax.tree.map(
        lambda a, b: jnp.concatenate([jnp.asarray(a)[None], b]), first, later
    )
    return timesteps, x, last


@functools.cache
def player(env):
    """Compiled (actions, key) -> time steps and coordinates of an episode, reset's first, and
    the last state."""
    return jax.jit(functools.partial(_play, env))


@functools.cache
def players(env):
    """The same for a batch of keys."""
    return jax.jit(jax.vmap(functools.partial(_play, env), (None, 0)))


def pulse(env, scale=1.0, seed=0):
    """Random actions of one episode within the bound."""
    shape = (env.horizon, env.action_dim)
    unit = np.random.default_rng(seed).uniform(-1, 1, shape)
    return (scale * unit * np.asarray(env.action_bound)).astype(np.float32)

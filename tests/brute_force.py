"""Independent references in complex128: Liouvillians in row stacking and SciPy's expm."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.linalg import expm

LOWER = np.array([[0, 1], [0, 0]], complex)
SIGMA_Z = np.diag([1.0, -1.0])


def liouvillian(hamiltonian: np.ndarray, jumps: Sequence[np.ndarray]) -> np.ndarray:
    """Row stacking: vec(A X B) = (A kron B^T) vec(X)."""
    one = np.eye(len(hamiltonian))
    total = -1j * (np.kron(hamiltonian, one) - np.kron(one, hamiltonian.T))
    for jump in jumps:
        rate = jump.conj().T @ jump
        total += np.kron(jump, jump.conj()) - (np.kron(rate, one) + np.kron(one, rate.T)) / 2
    return total


def trajectory(
    rho: np.ndarray, hamiltonians: Sequence[np.ndarray], jumps: Sequence[np.ndarray], dt: float
) -> list[np.ndarray]:
    """Density matrices after each interval, the start included."""
    states = [np.asarray(rho, complex)]
    for hamiltonian in hamiltonians:
        step = expm(dt * liouvillian(hamiltonian, jumps))
        states.append((step @ states[-1].reshape(-1)).reshape(rho.shape))
    return states


def on_cell(operator: np.ndarray, cell: int, n_cells: int) -> np.ndarray:
    """Operator on one of n cells, 2^n x 2^n."""
    return reduce(np.kron, [operator if k == cell else np.eye(2) for k in range(n_cells)])


def cell_sum(operator: np.ndarray, n_cells: int) -> np.ndarray:
    """Sum of an operator over the cells."""
    return sum(on_cell(operator, k, n_cells) for k in range(n_cells))


def cells_of(rho: np.ndarray, n_cells: int) -> np.ndarray:
    """The cavity of cells x cavity traced out."""
    d = 2**n_cells
    return np.trace(rho.reshape(d, len(rho) // d, d, -1), axis1=1, axis2=3)


def ergotropy(rho: np.ndarray, hamiltonian: np.ndarray) -> float:
    """By sorting the full spectra."""
    passive = np.linalg.eigvalsh(rho)[::-1] @ np.linalg.eigvalsh(hamiltonian)
    return float(np.trace(rho @ hamiltonian).real - passive)


def random_density(rng: np.random.Generator, d: int, rank: int | None = None) -> np.ndarray:
    """Positive matrix of trace 1, full rank unless told."""
    a = rng.normal(size=(d, rank or d)) + 1j * rng.normal(size=(d, rank or d))
    return a @ a.conj().T / np.linalg.norm(a) ** 2


def play(env: Any, actions: np.ndarray) -> tuple[Any, dict[str, np.ndarray], np.ndarray]:
    """Final state, info of every time 0 ... horizon, and rewards, compiled."""

    @jax.jit
    def run(actions):
        state, first = env.reset(jax.random.PRNGKey(0))

        def advance(state, action):
            state, timestep = env.step(state, action)
            return state, (timestep.info, timestep.reward)

        state, (infos, rewards) = jax.lax.scan(advance, state, actions)
        joined = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), first.info, infos)
        return state, joined, rewards

    state, infos, rewards = run(jnp.asarray(actions, float))
    return state, {name: np.asarray(values) for name, values in infos.items()}, np.asarray(rewards)


def enable_x64(on: bool = True) -> Any:
    """Context of double precision, in every supported version of JAX."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    from jax.experimental import enable_x64

    return enable_x64(on)

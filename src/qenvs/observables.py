"""States and operators as arrays, and the numbers read from them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array


def as_array(operator: Any) -> Any:
    """The matrix of an array, dynamiqs `QArray`, QuTiP `Qobj` or SciPy sparse matrix."""
    for to_dense in ("to_jax", "full", "toarray"):
        if hasattr(operator, to_dense):
            return getattr(operator, to_dense)()
    return operator if hasattr(operator, "shape") else np.asarray(operator)


def is_ket(state: Any) -> bool:
    """Whether an array is a column of amplitudes rather than a square matrix."""
    return state.ndim == 1 or state.shape[-1] == 1


def as_density_matrix(state: Any) -> Array:
    """The density matrix of a ket (d,), a column (d, 1) or a matrix (d, d)."""
    state = jnp.asarray(as_array(state))
    if not is_ket(state):
        return state
    ket = state.reshape(-1)
    return jnp.outer(ket, ket.conj())


def expectation(state: Any, operator: Any) -> Array:
    """Re Tr(rho O) of a ket or density matrix and a Hermitian operator of the same size."""
    rho, operator = as_density_matrix(state), jnp.asarray(as_array(operator))
    if rho.shape != operator.shape:
        raise ValueError(
            f"`operator` must have the shape of the state's matrix {rho.shape}, got {operator.shape}"
        )
    return jnp.sum(rho * operator.T).real


def fidelity(state: Any, target: Any) -> Array:
    """Squared overlap <t|rho|t> with a pure target; |0> against |+> is 0.5."""
    return expectation(state, as_density_matrix(target))

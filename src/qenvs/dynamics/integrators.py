"""dynamiqs as an alternative to the exact exponential, and as the format of quantum states.

dynamiqs is imported on first use: it takes seconds and brings QuTiP and matplotlib along.
"""

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs._products import product
from qenvs.dynamics.coordinates import (
    Coordinates,
    KetCoordinates,
    PropagatorCoordinates,
    StateCoordinates,
)


@functools.cache
def load_dynamiqs() -> ModuleType:
    """The dynamiqs module; JAX's settings are left as they were before the import."""
    precision = getattr(jax.config, "jax_default_matmul_precision")  # noqa: B009
    import dynamiqs

    jax.config.update("jax_default_matmul_precision", precision)
    return dynamiqs


def check_method(method: Any) -> None:
    """TypeError unless `method` is None or a dynamiqs `Method`."""
    if method is not None and not isinstance(method, load_dynamiqs().method.Method):
        raise TypeError(
            "`method` must be None (the exact exponential) or a dynamiqs method such as "
            f"dynamiqs.method.Tsit5(), got {method!r}"
        )


def as_qarray(state: Array, coordinates: Coordinates) -> Any:
    """A dynamiqs `QArray` of a ket (d,) or an operator on d or d^2, with its tensor structure."""
    dims = coordinates.dims
    if isinstance(coordinates, KetCoordinates):
        return load_dynamiqs().asqarray(state.reshape(-1, 1), dims=dims)
    if state.shape[-1] != coordinates.dimension:
        dims = (*dims, *dims)
    return load_dynamiqs().asqarray(state, dims=dims)


def integrate(
    coordinates: Coordinates,
    matrices: Sequence[np.ndarray],
    jumps: Sequence[np.ndarray],
    coefficients: Sequence[Array | float],
    x: Array,
    dt: Array | float,
    method: Any,
) -> Array:
    """x(t + dt) by the dynamiqs `method`, for the coefficients of Hamiltonians, then of jumps."""
    dq = load_dynamiqs()
    complex_dtype = jnp.result_type(x.dtype, jnp.complex64)
    n = len(matrices)
    weighted = zip(coefficients[:n], matrices, strict=True)
    hamiltonian = sum(c * jnp.asarray(h, complex_dtype) for c, h in weighted)
    rates = zip(coefficients[n:], jumps, strict=True)
    jump_ops = [dq.asqarray(jnp.sqrt(r) * jnp.asarray(j, complex_dtype)) for r, j in rates]
    settings = {
        "tsave": jnp.stack([jnp.zeros((), x.dtype), jnp.asarray(dt, x.dtype)]),
        "method": method,
        "progress_meter": False,
    }
    state, h = coordinates.decode(x), dq.asqarray(hamiltonian)
    if isinstance(coordinates, KetCoordinates):
        final = dq.sesolve(h, state.reshape(-1, 1), **settings).final_state.to_jax()
    elif isinstance(coordinates, StateCoordinates):
        final = dq.mesolve(h, jump_ops, state, **settings).final_state.to_jax()
    elif isinstance(coordinates, PropagatorCoordinates):
        final = product(dq.sepropagator(h, **settings).final_propagator.to_jax(), state)
    else:
        final = product(dq.mepropagator(h, jump_ops, **settings).final_propagator.to_jax(), state)
    return coordinates.project(coordinates.encode(final))

"""Tell when a truncated Hilbert space was too small for what was played in it."""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs.envs.base import Environment
from qenvs.models.base import TruncatedModel

MAX_POPULATION = 1e-3
"""Population of the highest level kept above which results are not converged."""


class TruncationWarning(UserWarning):
    """The highest level that a model keeps was populated: its results are not converged."""


def truncations(env: Environment) -> dict[str, str]:
    """Diagnostic that must stay small -> the task kwarg to raise; empty if all are exact."""
    model = getattr(env.unwrapped, "model", None)
    return model.truncations() if isinstance(model, TruncatedModel) else {}


def edge_populations(env: Environment, state: Any) -> dict[str, Array]:
    """The diagnostics of `truncations(env)`, exact whatever the policy may see."""
    names = truncations(env)
    exact = env.diagnostics(state) if names else {}
    return {name: exact[name] for name in names}


def largest_edge_populations(env: Environment, actions: Array, key: Array) -> dict[str, Array]:
    """The largest `edge_populations` of an episode played open loop."""

    def advance(state: Any, action: Array) -> tuple[Any, dict[str, Array]]:
        state, _ = env.step(state, action)
        return state, edge_populations(env, state)

    state, _ = env.reset(key)
    seen = jax.lax.scan(advance, state, jnp.asarray(actions))[1]
    return {name: values.max() for name, values in seen.items()}


def truncation_message(env: Environment, populations: Mapping[str, Any]) -> str | None:
    """What to say about these populations, None if all of them are small."""
    for name, field in truncations(env).items():
        largest = np.max(populations[name])
        if largest > MAX_POPULATION:
            now = getattr(env.unwrapped.model, field)
            return (
                f"`{name}` reached {float(largest):.2g} > {MAX_POPULATION:g}: the highest level "
                f"kept is populated and the results are not converged; raise `{field}` (now {now})"
            )
    return None


def warn_if_truncated(env: Environment, populations: Mapping[str, Any], stacklevel: int) -> bool:
    """Warn if a population is too large; whether it was."""
    message = truncation_message(env, populations)
    if message is not None:
        warnings.warn(message, TruncationWarning, stacklevel + 1)
    return message is not None

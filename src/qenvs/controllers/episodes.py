"""What every controller asks of an episode: its score, and playing it with a policy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from qenvs.envs.base import Environment, EnvState


def score(state: Any, episode_return: Array) -> Array:
    """The task quantity of the last state; the return, where a custom state has no quantity."""
    base = getattr(state, "base", None)
    return base.value if isinstance(base, EnvState) else episode_return


class Episode(NamedTuple):
    """One episode in closed loop.

    Attributes:
        state: the last state.
        actions: what the policy gave, shape (horizon, action_dim); 0 after an early end.
        score: the task quantity of the last state (`score`).
    """

    state: Any
    actions: Array
    score: Array


def play(env: Environment, policy: Callable[[Array], Array], key: Array) -> Episode:
    """Play the episode of `key` with a policy; jit and vmap (over keys) apply to it.

    Args:
        env: any environment, wrapped or not.
        policy: observation (observation_dim,) -> action (action_dim,) in the units of `env`.
        key: episode key.
    """
    state, timestep = env.reset(key)

    def advance(carry: tuple[Any, Array, Array], _: None) -> tuple[Any, tuple[Array, Array]]:
        state, observation, done = carry
        action = jnp.where(done, 0.0, policy(observation))
        new, timestep = env.step(state, action)
        carry = hold(done, carry, (new, timestep.observation, done | timestep.done))
        return carry, (action, jnp.where(done, 0.0, timestep.reward))

    start = state, timestep.observation, timestep.done
    (state, _, _), (actions, rewards) = jax.lax.scan(advance, start, None, env.horizon)
    return Episode(state, actions, score(state, rewards.sum()))


def hold(done: Array, old: Any, new: Any) -> Any:
    """`old` where the episode is over already, `new` elsewhere."""
    return jax.tree.map(lambda o, n: jnp.where(done, o, n), old, new)

"""What every controller asks of an episode: its score, a step, and playing it with a policy."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from qenvs.envs.base import Environment, EnvState


class Progress(NamedTuple):
    """Where an episode is.

    Attributes:
        state: state of the environment.
        observation: what a policy sees of it.
        done: whether the episode is over; nothing moves from then on.
    """

    state: Any
    observation: Array
    done: Array


class Episode(NamedTuple):
    """One episode in closed loop.

    Attributes:
        state: the last state.
        actions: what the policy gave, shape (horizon, action_dim); 0 after an early end.
        score: the task quantity of the last state (see `score`).
    """

    state: Any
    actions: Array
    score: Array


def score(state: Any, episode_return: Array) -> Array:
    """The task quantity of the last state; the return, where a custom state has no quantity."""
    base = getattr(state, "base", None)
    return base.value if isinstance(base, EnvState) else episode_return


def begin(env: Environment, key: Array) -> Progress:
    """The start of the episode of `key`."""
    state, timestep = env.reset(key)
    return Progress(state, timestep.observation, timestep.done)


def advance(env: Environment, progress: Progress, action: Array) -> tuple[Progress, Array, Array]:
    """One step, or none once the episode is over.

    Returns:
        Where the episode is then, the reward, and whether this step ended it.
    """
    state, timestep = env.step(progress.state, action)
    new = Progress(state, timestep.observation, timestep.done)
    kept = jax.tree.map(lambda old, new: jnp.where(progress.done, old, new), progress, new)
    reward = jnp.where(progress.done, 0.0, timestep.reward)
    return kept, reward, timestep.done & ~progress.done


def play(env: Environment, policy: Callable[[Array], Array], key: Array) -> Episode:
    """Play the episode of `key` with a policy; jit and vmap (over keys) apply to it.

    Args:
        env: any environment, wrapped or not.
        policy: observation (observation_dim,) -> action (action_dim,) in the units of `env`.
        key: episode key.
    """

    def step(progress: Progress, _: Any) -> tuple[Progress, tuple[Array, Array]]:
        action = jnp.where(progress.done, 0.0, policy(progress.observation))
        progress, reward, _ended = advance(env, progress, action)
        return progress, (action, reward)

    end, (actions, rewards) = jax.lax.scan(step, begin(env, key), None, env.horizon)
    return Episode(end.state, actions, score(end.state, rewards.sum()))

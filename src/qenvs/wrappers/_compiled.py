"""An environment compiled for NumPy callers: flat state leaves, one packed output per call.

The whole time step leaves the device as one vector of 32-bit words, so a call costs one transfer
however many observations, flags and infos there are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks, keys
from qenvs.envs.base import Environment, TimeStep

Leaves = list[Array]


def run_key(seed: int) -> Array:
    """`PRNGKey(seed)`, for 0 <= seed < 2^32 (beyond, keys would repeat)."""
    number = _checks.integer("seed", seed, minimum=0)
    if number >= 2**32:
        raise ValueError(f"`seed` must be < 2**32, got {number}; larger seeds would repeat keys")
    return jax.random.PRNGKey(number)


class Packing:
    """Which words of a packed buffer hold which leaf of a time step."""

    def __init__(self, example: Any) -> None:
        self._shapes, self._treedef = jax.tree.flatten(example)
        for path, leaf in jax.tree_util.tree_flatten_with_path(example)[0]:
            if leaf.dtype != bool and leaf.dtype.kind not in "iuf" or leaf.dtype.itemsize == 2:
                name = jax.tree_util.keystr(path)
                raise TypeError(
                    f"{name} must be bool, int or float of 32 or 64 bits, got {leaf.dtype}"
                )

    def pack(self, tree: Any) -> Array:
        """One uint32 vector that holds every leaf, bit for bit."""
        return jnp.concatenate([_words(leaf) for leaf in jax.tree.leaves(tree)])

    def views(self, words: np.ndarray) -> Any:
        """The tree of read-only arrays on a packed buffer."""
        leaves, start = [], 0
        for leaf in self._shapes:
            width = max(leaf.dtype.itemsize // 4, 1)
            stop = start + leaf.size * width
            part = words[start:stop]
            flat = part.astype(bool) if leaf.dtype == bool else part.view(leaf.dtype)
            leaves.append(flat.reshape(leaf.shape))
            start = stop
        return jax.tree.unflatten(self._treedef, leaves)


def _words(leaf: Array) -> Array:
    flat = leaf.reshape(-1)
    if flat.dtype == bool:
        return flat.astype(jnp.uint32)
    return jax.lax.bitcast_convert_type(flat, jnp.uint32).reshape(-1)


class CompiledEnv:
    """`reset` and `step` of an environment, one jitted call each.

    Args:
        env: functional environment.
        num_envs: None for one environment, else the number that advance through one `vmap`.
    """

    def __init__(self, env: Environment, num_envs: int | None = None) -> None:
        self._env = env
        batched = jax.vmap if num_envs is not None else lambda f: f
        self._reset = batched(env.reset)
        self._step = batched(env.step)
        indices = jax.ShapeDtypeStruct(() if num_envs is None else (num_envs,), jnp.int32)
        state, example = jax.eval_shape(self._reset_episodes, jax.random.PRNGKey(0), indices)
        self.treedef = jax.tree.structure(state)
        self._packing = Packing(example)
        self.reset: Callable[[Array, Any], tuple[Leaves, Array]] = jax.jit(self._packed_reset)
        self.step: Callable[[Leaves, Any], tuple[Leaves, Array]] = jax.jit(self._packed_step)

    def views(self, words: Array) -> TimeStep:
        """The time step of a packed output as read-only NumPy arrays."""
        return self._packing.views(np.asarray(words))

    def state(self, leaves: Leaves) -> Any:
        """The functional environment's state (batched if this is)."""
        return jax.tree.unflatten(self.treedef, leaves)

    def _reset_episodes(self, run_key: Array, index: Array) -> Any:
        fold = keys.episode_key if index.ndim == 0 else jax.vmap(keys.episode_key, (None, 0))
        return self._reset(fold(run_key, index))

    def _packed_reset(self, run_key: Array, index: Array) -> tuple[Leaves, Array]:
        state, timestep = self._reset_episodes(run_key, index)
        return jax.tree.leaves(state), self._packing.pack(timestep)

    def _packed_step(self, leaves: Leaves, action: Array) -> tuple[Leaves, Array]:
        state, timestep = self._step(self.state(leaves), action)
        return jax.tree.leaves(state), self._packing.pack(timestep)


def as_actions(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Actions as float32 of exactly this shape; ValueError otherwise, or where not finite."""
    actions = np.asarray(value, np.float32)
    if actions.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {actions.shape}")
    if not np.isfinite(actions).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity; look at the policy's output")
    return actions


def box_bound(env: Environment) -> np.ndarray:
    """`action_bound` as float32 per channel."""
    return np.broadcast_to(np.asarray(env.action_bound, np.float32), (env.action_dim,)).copy()

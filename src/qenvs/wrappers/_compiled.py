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
from qenvs.envs.base import Environment

GYMNASIUM_MISSING = "the Gymnasium adapters need the extra qenvs[gym]: pip install 'gymnasium>=1.0'"


def run_key(seed: int) -> Array:
    """`PRNGKey(seed)`, for 0 <= seed < 2^32 (beyond, keys would repeat)."""
    number = _checks.integer("seed", seed, minimum=0)
    if number >= 2**32:
        raise ValueError(f"`seed` must be < 2**32, got {number}; larger seeds would repeat keys")
    return jax.random.PRNGKey(number)


class Packing:
    """Which 32-bit words of a flat buffer hold which leaf of a tree.

    Args:
        example: tree of arrays or `jax.ShapeDtypeStruct`.
        start: words before the first leaf.

    Raises:
        TypeError: a leaf that is neither bool nor int nor float of 32 or 64 bits.
    """

    def __init__(self, example: Any, start: int = 0) -> None:
        self._slots: list[tuple[slice, np.dtype, tuple[int, ...]]] = []
        leaves, self._treedef = jax.tree_util.tree_flatten_with_path(example)
        for path, leaf in leaves:
            words = _words_per_item(leaf.dtype, jax.tree_util.keystr(path)) * leaf.size
            self._slots.append((slice(start, start + words), np.dtype(leaf.dtype), leaf.shape))
            start += words
        self._readers = [_reader(*slot) for slot in self._slots]
        self.parts = [part for part, _, _ in self._slots]
        self.stop = start

    def unpack(self, buffer: Array) -> Any:
        """The tree in a buffer, while tracing."""
        leaves = [_from_words(buffer[part], dtype, shape) for part, dtype, shape in self._slots]
        return jax.tree.unflatten(self._treedef, leaves)

    def read(self, buffer: np.ndarray) -> Any:
        """The tree in a buffer, as new NumPy arrays."""
        floats = buffer.view(np.float32)
        return self._treedef.unflatten([read(buffer, floats) for read in self._readers])


def _words_per_item(dtype: np.dtype, name: str) -> int:
    if dtype.kind == "b":
        return 1
    if dtype.kind in "iuf" and dtype.itemsize in (4, 8):
        return dtype.itemsize // 4
    raise TypeError(f"{name} must be bool, int or float of 32 or 64 bits, got {dtype}")


def pack(tree: Any) -> Array:
    """Every leaf of a tree, bit for bit, as one vector of uint32 words."""
    return jnp.concatenate([_to_words(leaf) for leaf in jax.tree.leaves(tree)])


def _to_words(leaf: Array) -> Array:
    if leaf.dtype == bool:
        return leaf.astype(jnp.uint32).reshape(-1)
    return jax.lax.bitcast_convert_type(leaf, jnp.uint32).reshape(-1)


def _from_words(words: Array, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    if dtype.kind == "b":
        return words.astype(bool).reshape(shape)
    pair = (2,) if dtype.itemsize == 8 else ()
    return jax.lax.bitcast_convert_type(words.reshape(shape + pair), dtype)


Reader = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _reader(part: slice, dtype: np.dtype, shape: tuple[int, ...]) -> Reader:
    """How to copy one leaf out of a buffer, given as words and as float32.

    Flat leaves, the frequent ones, take as few NumPy calls as they can.
    """
    if len(shape) == 1 and dtype == np.float32:
        return lambda words, floats: floats[part].copy()
    if len(shape) == 1 and dtype.kind == "b":
        return lambda words, floats: words[part].astype(bool)
    if dtype.kind == "b":
        return lambda words, floats: words[part].reshape(shape).astype(bool)
    return lambda words, floats: words[part].view(dtype).reshape(shape).copy()


class CompiledEnv:
    """`reset` and `step` of an environment: one jitted call, one packed buffer in and out.

    The buffer holds the state, with the batch axis last, so that the dynamics run over contiguous
    lanes, then the time step, with the batch axis first, as callers want it.

    Args:
        env: functional environment.
        num_envs: None for one environment, else the number that advance through one `vmap`.
    """

    def __init__(self, env: Environment, num_envs: int | None = None) -> None:
        def begin(run_key: Array, index: Array) -> Any:
            return env.reset(keys.episode_key(run_key, index))

        batch = () if num_envs is None else (num_envs,)
        self._begin, self._step = begin, env.step
        if num_envs is not None:
            self._begin = jax.vmap(begin, (None, 0), (-1, 0))
            self._step = jax.vmap(env.step, (-1, 0), (-1, 0))
        run_key = jax.ShapeDtypeStruct((2,), jnp.uint32)
        index = jax.ShapeDtypeStruct(batch, jnp.int32)
        state, timestep = jax.eval_shape(self._begin, run_key, index)
        self._state = Packing(state)
        self._timestep = Packing(timestep, start=self._state.stop)
        self.reset: Callable[[Array, Any], Array] = jax.jit(self._packed_reset)
        self.step: Callable[[Any, Any], Array] = jax.jit(self._packed_step)

    def timestep(self, buffer: Any) -> Any:
        """The `TimeStep` in a buffer, as new NumPy arrays."""
        return self._timestep.read(np.asarray(buffer))

    def state(self, buffer: Any) -> Any:
        """The state in a buffer, as new NumPy arrays (the batch axis, if any, last)."""
        return self._state.read(np.asarray(buffer))

    def select(self, mask: np.ndarray, new: Any, old: Any) -> np.ndarray:
        """The batch buffer with the lanes of `new` where the mask is True, of `old` elsewhere."""
        merged, new = np.array(old), np.asarray(new)
        for part in self._state.parts:
            merged[part].reshape(-1, mask.size)[:, mask] = new[part].reshape(-1, mask.size)[:, mask]
        for part in self._timestep.parts:
            merged[part].reshape(mask.size, -1)[mask] = new[part].reshape(mask.size, -1)[mask]
        return merged

    def _packed_reset(self, run_key: Array, index: Array) -> Array:
        return pack(self._begin(run_key, index))

    def _packed_step(self, buffer: Array, action: Array) -> Array:
        return pack(self._step(self._state.unpack(buffer), action))


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

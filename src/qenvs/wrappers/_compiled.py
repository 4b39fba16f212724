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
    """Which 32-bit words of one environment's buffer hold which leaf of a tree.

    On the host a buffer has shape (words,), or (words, B) for a batch.

    Args:
        example: tree of arrays or `jax.ShapeDtypeStruct` of one environment.
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
        self.stop = start

    def unpack(self, buffer: Array) -> Any:
        """The tree in a buffer, while tracing, with the batch axis last."""
        leaves = [_from_words(buffer[part], dtype, shape) for part, dtype, shape in self._slots]
        return jax.tree.unflatten(self._treedef, leaves)

    def read(self, buffer: np.ndarray) -> Any:
        """The tree in a buffer, as new NumPy arrays with the batch axis first."""
        floats = buffer.view(np.float32)
        return self._treedef.unflatten([read(buffer, floats) for read in self._readers])


def _words_per_item(dtype: np.dtype, name: str) -> int:
    if dtype.kind == "b":
        return 1
    if dtype.kind in "iuf" and dtype.itemsize in (4, 8):
        return dtype.itemsize // 4
    raise TypeError(f"{name} must be bool, int or float of 32 or 64 bits, got {dtype}")


def pack(tree: Any, batch: tuple[int, ...]) -> Array:
    """Every leaf of a tree with trailing batch shape, bit for bit, as rows of uint32 words."""
    return jnp.concatenate([_to_words(leaf, batch) for leaf in jax.tree.leaves(tree)])


def _to_words(leaf: Array, batch: tuple[int, ...]) -> Array:
    if leaf.dtype == bool:
        words = leaf.astype(jnp.uint32)
    else:
        words = jax.lax.bitcast_convert_type(leaf, jnp.uint32)
    if words.ndim > leaf.ndim:  # 64 bits: two words, next to the item that they belong to
        words = jnp.moveaxis(words, -1, leaf.ndim - len(batch))
    return words.reshape(-1, *batch)


def _from_words(words: Array, dtype: np.dtype, shape: tuple[int, ...]) -> Array:
    batch = words.shape[1:]
    if dtype.kind == "b":
        return words.astype(bool).reshape(*shape, *batch)
    if dtype.itemsize == 8:
        words = jnp.moveaxis(words.reshape(-1, 2, *batch), 1, -1)
    return jax.lax.bitcast_convert_type(words, dtype).reshape(*shape, *batch)


Reader = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _reader(part: slice, dtype: np.dtype, shape: tuple[int, ...]) -> Reader:
    """How to copy one leaf, (*batch, *shape), out of a buffer of shape (words, *batch).

    Readers get the buffer as words and as float32; the frequent leaves, float32 scalars and
    vectors and flags, take as few NumPy calls as they can. (`row, ...` is an array where `row`
    alone would be a NumPy scalar.)
    """
    if dtype == np.float32 and shape == ():
        return lambda words, floats: floats[part.start, ...].copy()
    if dtype == np.float32 and len(shape) == 1:
        return lambda words, floats: floats[part].T.copy()
    if dtype.kind == "b" and shape == ():
        return lambda words, floats: words[part.start, ...].astype(bool)

    def read(words: np.ndarray, floats: np.ndarray) -> np.ndarray:
        lanes = words[part].T.copy()
        items = lanes.astype(bool) if dtype.kind == "b" else lanes.view(dtype)
        return items.reshape(words.shape[1:] + shape).copy()

    return read


class CompiledEnv:
    """`reset` and `step` of an environment: one jitted call, one packed buffer in and out.

    The buffer holds the state and the time step as words, the batch axis last, so that all
    arithmetic runs over contiguous lanes; `state` and `timestep` read it.

    Args:
        env: functional environment.
        num_envs: None for one environment, else the number that advance through one `vmap`.
    """

    def __init__(self, env: Environment, num_envs: int | None = None) -> None:
        self._env = env
        state, timestep = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
        self._state = Packing(state)
        self._timestep = Packing(timestep, start=self._state.stop)
        self._batch = () if num_envs is None else (num_envs,)
        self.reset: Callable[[Array, Any], Array] = jax.jit(self._packed_reset)
        self.step: Callable[[Any, Any], Array] = jax.jit(self._packed_step)

    def timestep(self, buffer: Any) -> Any:
        """The `TimeStep` in a buffer, as new NumPy arrays."""
        return self._timestep.read(np.asarray(buffer))

    def state(self, buffer: Any) -> Any:
        """The functional environment's state in a buffer, as new NumPy arrays."""
        return self._state.read(np.asarray(buffer))

    def _packed_reset(self, run_key: Array, index: Array) -> Array:
        def reset(i: Array) -> Any:
            return self._env.reset(keys.episode_key(run_key, i))

        batched = jax.vmap(reset, out_axes=-1) if self._batch else reset
        return pack(batched(index), self._batch)

    def _packed_step(self, buffer: Array, action: Array) -> Array:
        step = self._env.step
        if self._batch:
            step = jax.vmap(step, in_axes=(-1, 0), out_axes=-1)
        return pack(step(self._state.unpack(buffer), action), self._batch)


def select(mask: np.ndarray, new: Any, old: Any) -> np.ndarray:
    """The batch buffer with the lanes of `new` where the mask is True, of `old` elsewhere."""
    return np.where(mask, np.asarray(new), np.asarray(old))


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

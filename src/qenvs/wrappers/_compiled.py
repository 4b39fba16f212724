"""An environment compiled for NumPy callers: flat state leaves, one packed output per call.

The whole time step leaves the device as one vector of 32-bit words, so a call costs one transfer
however many observations, flags and infos there are.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.dlpack
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks
from qenvs.envs import truncation
from qenvs.envs.base import Environment, TimeStep
from qenvs.wrappers import core

FLOAT32 = np.dtype(np.float32)
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
        example: tree of arrays or `jax.ShapeDtypeStruct`, the batch axis (if any) last.
        batch: () or (num_envs,).
        start: words before the first leaf.

    Raises:
        TypeError: a leaf that is neither bool nor int nor float of 32 or 64 bits.
    """

    def __init__(self, example: Any, batch: tuple[int, ...], start: int = 0) -> None:
        self._slots: list[tuple[slice, np.dtype, tuple[int, ...]]] = []
        self._batch = batch
        leaves, self._treedef = jax.tree_util.tree_flatten_with_path(example)
        for path, leaf in leaves:
            words = _words_per_item(leaf.dtype, jax.tree_util.keystr(path)) * leaf.size
            self._slots.append((slice(start, start + words), np.dtype(leaf.dtype), leaf.shape))
            start += words
        self.stop = start

    def unpack(self, buffer: Array) -> Any:
        """The tree in a buffer, while tracing, the batch axis last."""
        leaves = [_from_words(buffer[part], dtype, shape) for part, dtype, shape in self._slots]
        return jax.tree.unflatten(self._treedef, leaves)

    def views(self, words: np.ndarray) -> list[np.ndarray]:
        """The leaves in a NumPy buffer, in place, the batch axis first."""
        leaves = [_view(words[part], dtype, shape) for part, dtype, shape in self._slots]
        return [np.moveaxis(leaf, -1, 0) for leaf in leaves] if self._batch else leaves

    def tree(self, words: np.ndarray) -> Any:
        """The tree in a NumPy buffer, in place, the batch axis first."""
        return jax.tree.unflatten(self._treedef, self.views(words))


def copier(tree: Any) -> Callable[[], Any]:
    """What gives copies of a tree of NumPy arrays, one call per array: each takes a microsecond."""
    leaves, treedef = jax.tree.flatten(tree)
    return lambda: treedef.unflatten(map(np.ndarray.copy, leaves))


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


def _view(words: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Words as what they hold; of a bool, 0 or 1, the lowest byte."""
    if dtype.kind == "b":
        return words.view(bool)[::4].reshape(shape)
    return words.view(dtype).reshape(shape)


class CompiledEnv:
    """`reset` and `step` of an environment: one jitted call, one packed buffer in and out.

    The buffer holds the state, then the time step, with the batch axis last: the dynamics run over
    contiguous lanes. Its last word is 1 if all actions that led to it were finite: the device
    looks through them in no time, NumPy takes a tenth of a small step.

    Args:
        env: functional environment.
        num_envs: None for one environment, else the number that advance through one `vmap`.
        scale: multiplied with every action (in float32), one number per channel.
        arrange: what `copies` are made of, a tree with the arrays of a `TimeStep` and others.

    Attributes:
        actions: float32, shape (*batch, action_dim), that `step` applies.
        seen: the `TimeStep` that was read last, in place, the batch axis (if any) first.
        copies: makes new NumPy arrays of it.
    """

    def __init__(
        self,
        env: Environment,
        num_envs: int | None = None,
        scale: np.ndarray | None = None,
        arrange: Callable[[TimeStep], Any] = TimeStep._make,
    ) -> None:
        def begin(run_key: Array, index: Array) -> Any:
            return outcome(*core.begin(env, run_key, index))

        def step(state: Any, action: Array) -> Any:
            return outcome(*env.step(state, action if scale is None else action * scale))

        def outcome(state: Any, timestep: Any) -> Any:
            if num_envs is not None:  # Gymnasium's vector environments promise float32
                timestep = timestep._replace(reward=timestep.reward.astype(jnp.float32))
            return state, (timestep, truncation.edge_populations(env, state))

        self._name = "action" if num_envs is None else "actions"
        self._batch = () if num_envs is None else (num_envs,)
        self._begin, self._step = begin, step
        if num_envs is not None:
            self._begin = jax.vmap(begin, (None, 0), -1)
            self._step = jax.vmap(step, (-1, 0), -1)
        run_key = jax.ShapeDtypeStruct((2,), jnp.uint32)
        index = jax.ShapeDtypeStruct(self._batch, jnp.int32)
        state, seen = jax.eval_shape(self._begin, run_key, index)
        self._state = Packing(state, self._batch)
        self._seen = Packing(seen, self._batch, self._state.stop)
        self._arguments = env, num_envs, scale, arrange
        self._env, self._warned = env, False
        self.reset: Callable[[Array, Any], Array] = jax.jit(self._packed_reset)
        self._jitted_step: Callable[[Any, Any], Array] = jax.jit(self._packed_step)
        self.actions, self._shared_actions = shared_array((*self._batch, env.action_dim))
        self._shape = self.actions.shape
        self._words = np.zeros(self._seen.stop + 1, np.uint32)
        self.seen, self._populations = self._seen.tree(self._words)
        self.copies = copier(arrange(self.seen))

    def __reduce__(self) -> tuple[type["CompiledEnv"], tuple[Any, ...]]:
        # memory that is shared here would not be in a copy made attribute by attribute
        return CompiledEnv, self._arguments

    def set_actions(self, actions: Any) -> None:
        """Copy the actions for the next `step` into `actions`.

        Raises:
            ValueError: actions of another shape than (*batch, action_dim).
            TypeError: actions that are not real numbers.
        """
        if getattr(actions, "dtype", None) is FLOAT32 and actions.shape == self._shape:
            self.actions[...] = actions  # twice as fast as a checked copy
            return
        actions = np.asarray(actions)
        if actions.shape != self._shape:
            raise ValueError(f"{self._name} must have shape {self._shape}, got {actions.shape}")
        if not np.can_cast(actions.dtype, FLOAT32, "same_kind"):
            raise TypeError(
                f"{self._name} must be real numbers, got the dtype {actions.dtype}; "
                "use one control per quadrature, and no text or None"
            )
        self.actions[...] = actions

    def check_finite(self) -> None:
        """ValueError if an action that is set is NaN or infinite."""
        if not np.isfinite(self.actions).all():
            raise ValueError(
                f"{self._name} must be finite, got NaN or infinity; look at the policy's output"
            )

    def step(self, buffer: Any) -> Array:
        """The buffer one interval later, with the actions set before.

        Other actions may be set once `read` has waited for it.
        """
        return self._jitted_step(buffer, self._shared_actions)

    def read(self, buffer: Any) -> None:
        """Let `seen` and `copies` be of this buffer.

        Warns, once, if the highest level that a model keeps is populated.

        Raises:
            ValueError: a step with an action that is NaN or infinite led to it.
        """
        self._words[...] = buffer
        if not self._words.item(-1):
            self.check_finite()
        if self._populations and not self._warned:
            self._warned = truncation.warn_if_truncated(self._env, self._populations, stacklevel=3)

    def state(self, buffer: Any) -> Any:
        """The state in a buffer, as new NumPy arrays, the batch axis (if any) first."""
        return copier(self._state.tree(np.array(buffer)))()

    def select(self, mask: np.ndarray, new: Any, old: Any) -> np.ndarray:
        """The batch buffer with the lanes of `new` where the mask is True, of `old` elsewhere."""
        merged, new = np.array(old), np.array(new)
        for packing in (self._state, self._seen):
            for into, leaf in zip(packing.views(merged), packing.views(new), strict=True):
                into[mask] = leaf[mask]
        return merged

    def _packed_reset(self, run_key: Array, index: Array) -> Array:
        return pack((*self._begin(run_key, index), jnp.ones((), bool)))

    def _packed_step(self, buffer: Array, action: Array) -> Array:
        reached = self._step(self._state.unpack(buffer), action)
        return pack((*reached, jnp.isfinite(action).all()))


def shared_array(shape: tuple[int, ...]) -> tuple[np.ndarray, Any]:
    """A float32 NumPy array to write to, and what to hand to a jitted function in its place.

    That is a JAX array over the same memory, which saves a third of the cost of a small call; or
    the NumPy array itself where they cannot share (a GPU).
    """
    if jax.default_backend() != "cpu":
        memory = np.zeros(shape, np.float32)
        return memory, memory
    size, lane = math.prod(shape), 16  # XLA wants 64 bytes
    spare = np.zeros(size + lane, np.float32)
    first = -spare.ctypes.data // spare.itemsize % lane
    memory = spare[first : first + size].reshape(shape)
    shared = jax.dlpack.from_dlpack(memory)
    aliased = shared.unsafe_buffer_pointer() == memory.ctypes.data
    return memory, shared if aliased else memory


def box_bound(env: Environment) -> np.ndarray:
    """`action_bound` as float32 per channel."""
    return np.broadcast_to(np.asarray(env.action_bound, np.float32), (env.action_dim,)).copy()

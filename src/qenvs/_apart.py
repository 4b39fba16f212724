"""Parts of a program that the compiler keeps apart."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.xla_metadata import set_xla_metadata

from qenvs._checks import is_concrete

BLOCK = 352
"""Lanes of one block: about 550 operations each, as a normal number needs, are not yet split."""

BLOCKS = 8
"""Blocks up to which they are computed one after the other."""


def _on_cpu() -> bool:
    return jax.default_backend() == "cpu"


def _in_a_program() -> bool:
    """Whether operations become part of a program: under `jit`, not under `vmap` alone."""
    return not is_concrete(jnp.zeros(()) + 1)


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a part of its own of a program; called without `jit` it just runs.

    XLA fuses what it inlines: it may compute a result again in every kernel that uses it. And on
    a CPU it hands the kernels of a part with more than 8 of them to several threads, whose
    wake-ups take longer than small kernels. The attribute changes no number; numbers that are
    known while tracing stay known inside. Other backends inline everything.
    """

    def outside(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        traced = [i for i, leaf in enumerate(leaves) if not is_concrete(leaf)]
        if not traced or not _on_cpu() or not _in_a_program():
            return function(*args)

        def inside(values: Sequence[Any]) -> Any:
            given = dict(zip(traced, values, strict=True))
            filled = [given.get(i, leaf) for i, leaf in enumerate(leaves)]
            with set_xla_metadata(inlineable="true"):  # the attribute would pass on to calls here
                return function(*jax.tree.unflatten(tree, filled))

        with set_xla_metadata(inlineable="false"):
            return jax.jit(inside)([leaves[i] for i in traced])

    return outside


def in_blocks(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which computes a few thousand lanes of a `vmap` block by block.

    On a CPU, XLA splits an array of numbers that take many operations each, such as random ones,
    among threads, whose wake-ups take longer than a thousand lanes; blocks are too small to be
    split. The arguments are arrays without derivative.
    """

    @custom_vmap
    def blockwise(*args: Any) -> Any:
        return function(*args)

    @blockwise.def_vmap
    def rule(size: int, batched: Sequence[bool], *args: Any) -> tuple[Any, Any]:
        axes = [0 if one else None for one in batched]

        def block(start: int, end: int) -> Any:
            def some(*args: Any) -> Any:
                lanes = [a[start:end] if one else a for a, one in zip(args, batched, strict=True)]
                return jax.vmap(function, axes, axis_size=end - start)(*lanes)

            return apart(some)(*args)

        few = _on_cpu() and BLOCK < size <= BLOCKS * BLOCK
        ends = [*range(0, size, BLOCK if few else size), size]
        outs = [block(start, end) for start, end in itertools.pairwise(ends)]
        whole = jax.tree.map(lambda *parts: jnp.concatenate(parts), *outs)
        return whole, jax.tree.map(lambda _: True, whole)

    return blockwise

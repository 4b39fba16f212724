"""Parts of a program that the compiler keeps apart."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

from qenvs._checks import is_concrete


def apart(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a part of its own where it is traced; called with numbers it just runs.

    XLA fuses what it inlines: it may compute a result again in every kernel that uses it. And on
    a CPU it hands the kernels of a part with more than 8 of them to several threads, whose
    wake-ups take longer than small kernels. The attribute changes no number; numbers that are
    known while tracing stay known inside.
    """

    def outside(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        traced = [i for i, leaf in enumerate(leaves) if not is_concrete(leaf)]
        if not traced:
            return function(*args)

        def inside(values: Sequence[Any]) -> Any:
            given = dict(zip(traced, values, strict=True))
            filled = [given.get(i, leaf) for i, leaf in enumerate(leaves)]
            with set_xla_metadata(inlineable="true"):  # the attribute would pass on to calls here
                return function(*jax.tree.unflatten(tree, filled))

        with set_xla_metadata(inlineable="false"):
            return jax.jit(inside)([leaves[i] for i in traced])

    return outside

"""Functions of small arrays whose batch axis comes last, whatever `vmap` is put around them.

A CPU multiplies many tiny matrices fastest lane by lane, with entry (i, j) of all lanes side by
side in memory; `jax.vmap` puts the batch first. `lanes` moves the batch axes of surrounding
`vmap`s to the end and hands the kernel one flat batch axis. It is a pair of primitives, a value
and a map that is linear in some arguments. The derivative of both is such a linear map, and so is
its transpose: jvp, grad, hessian, scan and nested vmap apply in any order.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Kernel = Callable[..., tuple[Array, ...]]


def lanes(kernel: Kernel, *args: Array) -> tuple[Array, ...]:
    """kernel(*args), evaluated with the batch axes of surrounding `vmap`s as one last axis.

    Args:
        kernel: hashable; of arrays (..., B), whose last axis are independent lanes, or (...)
            without a batch, it makes a tuple of such arrays. Equal kernels share compiled code.
        *args: floating point arrays of one dtype.
    """
    return tuple(value_p.bind(*args, kernel=kernel, depth=0))


class Tangent:
    """(primals, tangents) -> tangents of what a kernel makes of the primals."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tangent) and self.kernel == other.kernel

    def __hash__(self) -> int:
        return hash((Tangent, self.kernel))

    def __call__(self, *args: Array) -> tuple[Array, ...]:
        n = len(args) // 2
        return tuple(jax.jvp(self.kernel, args[:n], args[n:])[1])

    def transposed(self, primals: int) -> "Cotangent":
        """The transpose of the map of the tangents."""
        return Cotangent(self.kernel, primals)


class Cotangent:
    """(primals, cotangents of what a kernel makes of them) -> cotangents of the primals."""

    def __init__(self, kernel: Kernel, primals: int) -> None:
        self.kernel, self.primals = kernel, primals

    def __eq__(self, other: object) -> bool:
        same_kind = isinstance(other, Cotangent)
        return same_kind and (self.kernel, self.primals) == (other.kernel, other.primals)

    def __hash__(self) -> int:
        return hash((Cotangent, self.kernel, self.primals))

    def __call__(self, *args: Array) -> tuple[Array, ...]:
        pullback = jax.vjp(self.kernel, *args[: self.primals])[1]
        return tuple(pullback(tuple(args[self.primals :])))

    def transposed(self, primals: int) -> Tangent:
        """The transpose of the map of the cotangents."""
        return Tangent(self.kernel)


def _evaluate(*args: Array, kernel: Kernel, depth: int, **_: int) -> tuple[Array, ...]:
    """The kernel with the last `depth` axes of every array as one."""
    if depth == 0:
        return kernel(*args)
    batch = args[0].shape[args[0].ndim - depth :]
    flat = [a.reshape(*a.shape[: a.ndim - depth], math.prod(batch)) for a in args]
    return tuple(out.reshape(*out.shape[:-1], *batch) for out in kernel(*flat))


def _shapes(*avals: Any, **settings: Any) -> list[Any]:
    structs = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals]
    outs = jax.eval_shape(partial(_evaluate, **settings), *structs)
    return [ShapedArray(out.shape, out.dtype) for out in outs]


def _batch_rule(primitive: Primitive) -> Callable[..., tuple[list[Array], list[int]]]:
    def batch(
        args: Sequence[Array], dims: Sequence[int | None], *, depth: int, **settings: Any
    ) -> tuple[list[Array], list[int]]:
        size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
        last = [_batch_last(a, d, size) for a, d in zip(args, dims, strict=True)]
        outs = primitive.bind(*last, depth=depth + 1, **settings)
        return outs, [out.ndim - 1 for out in outs]

    return batch


def _batch_last(array: Array, dim: int | None, size: int) -> Array:
    if dim is None:
        return jnp.broadcast_to(array[..., None], (*array.shape, size))
    return jnp.moveaxis(array, dim, -1)


def _tangent(primals: Sequence[Array], tangents: Sequence[Any], kernel: Kernel, depth: int) -> Any:
    tangents = [ad.instantiate_zeros(t) for t in tangents]
    settings = {"kernel": Tangent(kernel), "depth": depth, "primals": len(primals)}
    return linear_p.bind(*primals, *tangents, **settings)


def _value_jvp(primals: Any, tangents: Any, *, kernel: Kernel, depth: int) -> tuple[Any, Any]:
    outs = value_p.bind(*primals, kernel=kernel, depth=depth)
    return outs, _tangent(primals, tangents, kernel, depth)


def _linear_jvp(
    args: Any, tangents: Any, *, kernel: Any, depth: int, primals: int
) -> tuple[Any, Any]:
    outs = linear_p.bind(*args, kernel=kernel, depth=depth, primals=primals)
    return outs, _tangent(args, tangents, kernel, depth)


def _linear_transpose(
    cotangents: Any, *args: Any, kernel: Any, depth: int, primals: int
) -> list[Any]:
    cotangents = [ad.instantiate_zeros(ct) for ct in cotangents]
    settings = {"kernel": kernel.transposed(primals), "depth": depth, "primals": primals}
    outs = linear_p.bind(*args[:primals], *cotangents, **settings)
    undefined = [ad.is_undefined_primal(a) for a in args[primals:]]
    return [None] * primals + [out if u else None for out, u in zip(outs, undefined, strict=True)]


def _primitive(name: str, jvp: Callable[..., tuple[Any, Any]]) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_abstract_eval(_shapes)
    primitive.def_impl(jax.jit(_evaluate, static_argnames=("kernel", "depth", "primals")))
    mlir.register_lowering(primitive, mlir.lower_fun(_evaluate, multiple_results=True))
    batching.primitive_batchers[primitive] = _batch_rule(primitive)
    ad.primitive_jvps[primitive] = jvp
    return primitive


value_p = _primitive("lanes", _value_jvp)
linear_p = _primitive("lanes_linear", _linear_jvp)
ad.primitive_transposes[linear_p] = _linear_transpose

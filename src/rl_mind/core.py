"""Structures of tensors, actions, and the actor that makes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, nn

S = TypeVar("S", bound="TensorStruct")
T = TypeVar("T", bound="Tensor | TensorStruct")


@dataclass(frozen=True, eq=False)
class TensorStruct:
    """Named tensors that share their leading dimension, handled as one tensor.

    Subclass it with `@dataclass(frozen=True, eq=False)` and annotate fields that are tensors or
    other structs; every operation recurses into the latter. A field that lacks the common leading
    dimension raises ValueError, a field that is no tensor TypeError.

    >>> @dataclass(frozen=True, eq=False)
    ... class Point(TensorStruct):
    ...     x: Tensor
    ...     y: Tensor
    >>> points = Point(x=torch.zeros(4, 2), y=torch.arange(4))
    >>> len(points), points[points.y > 1].y
    (4, tensor([2, 3]))
    """

    def __post_init__(self) -> None:
        sizes = {name: leaf.shape[:1] for name, leaf in named_leaves(self)}
        if not sizes:
            raise ValueError(f"{type(self).__name__} must have at least one field, got none")
        if len(set(sizes.values())) > 1:
            found = ", ".join(f"`{name}` {list(size)}" for name, size in sizes.items())
            raise ValueError(
                f"the fields of {type(self).__name__} must share their leading dimension, "
                f"got leading sizes {found}"
            )

    def __len__(self) -> int:
        """Return the size of the common leading dimension."""
        return len(next(leaf for _, leaf in named_leaves(self)))

    def __getitem__(self, index: Any) -> Self:
        """Apply `index` (whatever a tensor takes) to every tensor: an int drops the dimension."""
        return self.map(lambda leaf: leaf[index])

    def map(self, fn: Callable[[Tensor], Tensor]) -> Self:
        """Return the struct of `fn(tensor)` for every tensor; its shapes are the caller's care."""
        return tree_map(fn, self)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast every tensor: the arguments are those of `torch.Tensor.to`."""
        return self.map(lambda leaf: leaf.to(*args, **kwargs))

    def set_(self, index: Any, value: Self) -> None:
        """Write `value` in place at `index`, which must select exactly its shape and dtypes.

        Raises TypeError if `value` is of another struct or dtype, ValueError if a shape differs:
        nothing is broadcast, and nothing is written then.
        """
        assign_(self, index, value)

    @staticmethod
    def cat(structs: Sequence[S]) -> S:
        """Concatenate structs of one type along the leading dimension.

        Raises ValueError for an empty sequence or trailing shapes that differ, TypeError for
        types that differ.
        """
        return cat(structs)

    @staticmethod
    def stack(structs: Sequence[S]) -> S:
        """Stack structs of one type and shape along a new leading dimension.

        Raises ValueError for an empty sequence or shapes that differ, TypeError for types that
        differ.
        """
        return stack(structs)


Observation: TypeAlias = Tensor | TensorStruct
"""What an environment shows: a tensor, or a `TensorStruct` of named tensors for a Dict space."""


@cache
def _field_names(kind: type[TensorStruct]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def field_values(struct: TensorStruct) -> dict[str, Any]:
    """Return the fields of one struct, not recursing."""
    return {name: getattr(struct, name) for name in _field_names(type(struct))}


def named_leaves(tree: Observation, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a tensor or struct with its dotted name (empty for a bare tensor)."""
    if isinstance(tree, Tensor):
        yield name, tree
    elif isinstance(tree, TensorStruct):
        for field, value in field_values(tree).items():
            yield from named_leaves(value, f"{name}.{field}" if name else field)
    else:
        raise TypeError(
            f"`{name}` must be a torch.Tensor or a TensorStruct, got {type(tree).__name__}: "
            "convert it, for example with torch.as_tensor"
        )


def tree_map(fn: Callable[..., Tensor], tree: T, *others: T) -> T:
    """Return the tree of `fn(leaf, *other_leaves)`, for trees already known to match."""
    if isinstance(tree, Tensor):
        return cast("T", fn(tree, *others))
    mapped = object.__new__(type(tree))
    for name in _field_names(type(tree)):
        leaf = tree_map(fn, getattr(tree, name), *(getattr(other, name) for other in others))
        object.__setattr__(mapped, name, leaf)
    return mapped


def cat(trees: Sequence[T]) -> T:
    """Concatenate tensors, or structs of one type, along the leading dimension."""
    for name, leaves in _zip_leaves(trees):
        for leaf in leaves[1:]:
            _check_like(name, leaves[0], leaf, from_dim=1)
    return tree_map(lambda *leaves: torch.cat(leaves), *trees)


def stack(trees: Sequence[T]) -> T:
    """Stack tensors, or structs of one type, along a new leading dimension."""
    for name, leaves in _zip_leaves(trees):
        for leaf in leaves[1:]:
            _check_like(name, leaves[0], leaf)
    return tree_map(lambda *leaves: torch.stack(leaves), *trees)


def assign_(tree: T, index: Any, value: T) -> None:
    """Write `value` into a tensor or struct in place, as `TensorStruct.set_` does."""
    pairs = list(_zip_leaves((tree_map(lambda leaf: leaf[index], tree), value)))
    for name, (place, new) in pairs:
        _check_like(name, place, new)
    for (_, leaf), (_, (_, new)) in zip(named_leaves(tree), pairs, strict=True):
        leaf[index] = new


def _zip_leaves(trees: Sequence[Observation]) -> Iterator[tuple[str, tuple[Tensor, ...]]]:
    """Yield the corresponding tensors of trees that must have one structure."""
    if len(trees) == 0:
        raise ValueError("at least one tensor or struct is needed, got an empty sequence")
    _check_types(trees)
    for named in zip(*(named_leaves(tree) for tree in trees), strict=True):
        yield named[0][0], tuple(leaf for _, leaf in named)


def _check_types(trees: Sequence[Observation], name: str = "") -> None:
    types = {Tensor if isinstance(tree, Tensor) else type(tree) for tree in trees}
    if len(types) > 1:
        found = ", ".join(sorted(kind.__name__ for kind in types))
        where = f" in field `{name}`" if name else ""
        raise TypeError(f"structs of one type can be combined, got {found}{where}")
    if isinstance(trees[0], TensorStruct):
        for field in _field_names(type(trees[0])):
            children = [getattr(tree, field) for tree in trees]
            _check_types(children, f"{name}.{field}" if name else field)


def _check_like(name: str, expected: Tensor, got: Tensor, from_dim: int = 0) -> None:
    what = f"`{name}`" if name else "the tensor"
    shape, found = expected.shape[from_dim:], got.shape[from_dim:]
    if shape != found or expected.ndim != got.ndim:
        rows = "rows of " if from_dim else ""
        raise ValueError(f"{what} must have {rows}shape {list(shape)}, got {list(found)}")
    if expected.dtype != got.dtype:
        raise TypeError(f"{what} must have dtype {expected.dtype}, got {got.dtype}")


@dataclass(frozen=True, eq=False)
class Action(TensorStruct):
    """A batch of actions: `value` is `[B, action_dim]` (continuous) or `[B]` (discrete)."""

    value: Tensor


@dataclass(frozen=True, eq=False)
class StochasticAction(Action):
    """A batch of sampled actions with `log_prob` `[B]`, the log-density of each whole action."""

    log_prob: Tensor


A_co = TypeVar("A_co", bound=Action, covariant=True)


class Actor(nn.Module, ABC, Generic[A_co]):
    """A policy network. `Actor[StochasticAction]` makes batches whose `.action` has `.log_prob`.

    >>> class Zero(Actor[Action]):
    ...     def forward(self, obs: Observation) -> Action:
    ...         return Action(self.act(obs))
    ...     def act(self, obs: Observation) -> Tensor:
    ...         return torch.zeros(len(obs), 1)
    >>> Zero()(torch.ones(3, 4)).value.shape
    torch.Size([3, 1])
    """

    @abstractmethod
    def forward(self, obs: Observation) -> A_co:
        """Choose actions the way training does: sampling, or with exploration noise."""

    @abstractmethod
    def act(self, obs: Observation) -> Tensor:
        """Choose the deterministic actions, `[B, action_dim]` or `[B]`, used in evaluation."""

    if TYPE_CHECKING:  # nn.Module types its call as Any, which would end the flow of the generics

        def __call__(self, obs: Observation) -> A_co: ...

"""Translation between Gymnasium spaces and tensors, decided once per environment."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from dataclasses import make_dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rl_mind.core import Observation, TensorStruct

CPU = torch.device("cpu")
Decoder = Callable[[Any], Observation]
Encoder = Callable[[Tensor], np.ndarray]


def as_tensor(array: Any, dtype: np.dtype[Any], device: torch.device, *, copy: bool) -> Tensor:
    """Turn an array, NumPy's or any other that speaks DLPack, into a tensor of `dtype`.

    Without `copy` the tensor shares the array's memory wherever dtype, layout and device allow.
    """
    if not isinstance(array, np.ndarray):
        if hasattr(array, "__dlpack__"):
            return torch.from_dlpack(array).to(device, _torch_dtype(dtype), copy=copy)
        array = np.asarray(array)
    # Never DLPack for NumPy: torch aborts the process on a negative stride. And a tensor cannot
    # be read-only, so such memory is copied too.
    if copy or not array.flags.carray or array.dtype != dtype:
        array = np.array(array, dtype, order="C")
    tensor = torch.from_numpy(array)
    return tensor if device == CPU else tensor.to(device)


def observation_decoder(space: Space[Any], device: torch.device, *, copy: bool) -> Decoder:
    """Return the function from a batch of `space` to tensors, or to structs for a Dict space.

    Box keeps its dtype (float64 becomes float32), Discrete becomes indices from 0 (torch.long).

    Raises TypeError for any other space at the top, ValueError for a Dict key that cannot be the
    name of a field.
    """
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.Dict):
        raise _unsupported(space, "observation")
    return _decoder(space, device, copy, name="obs")


def _decoder(space: Space[Any], device: torch.device, copy: bool, name: str) -> Decoder:
    match space:
        case spaces.Box() | spaces.MultiBinary():
            dtype = np.dtype(np.float32 if space.dtype == np.float64 else space.dtype)
            return lambda array: as_tensor(array, dtype, device, copy=copy)
        case spaces.Discrete():
            start = int(space.start)
            return lambda array: as_tensor(array, np.dtype(np.int64), device, copy=copy) - start
        case spaces.Dict():
            struct = struct_type(tuple(_field(key, name) for key in space.spaces))
            decoders = {
                key: _decoder(child, device, copy, f"{name}.{key}")
                for key, child in space.spaces.items()
            }
            return lambda batch: struct(**{key: fn(batch[key]) for key, fn in decoders.items()})
    raise _unsupported(space, f"part `{name}` of the observation")


def action_encoder(space: Space[Any], num_envs: int) -> Encoder:
    """Return the function from a `[B]` or `[B, action_dim]` tensor to the actions of `space`.

    They are a detached CPU copy in the space's dtype; Discrete indices get `space.start` added.

    Raises TypeError if the space is neither Box nor Discrete. The function raises TypeError for
    what is no tensor or has no integers for a Discrete space, ValueError for a wrong shape.
    """
    if not isinstance(space, spaces.Box | spaces.Discrete):
        raise TypeError(
            f"the action space must be Box or Discrete, got {space}: translate it with "
            "gymnasium.wrappers.TransformAction"
        )
    discrete = isinstance(space, spaces.Discrete)
    shape = (num_envs, *(space.shape or ()))
    dtype = np.dtype(np.int64 if discrete else space.dtype)
    start = int(space.start) if isinstance(space, spaces.Discrete) else 0

    def encode(actions: Tensor) -> np.ndarray:
        if not isinstance(actions, Tensor):
            raise TypeError(f"`actions` must be a torch.Tensor, got {type(actions).__name__}")
        if discrete and (actions.is_floating_point() or actions.is_complex()):
            raise TypeError(f"`actions` of {space} must be integers, got {actions.dtype}")
        try:
            array = actions.detach().numpy()
        except TypeError:  # on another device, or of a kind that NumPy does not have
            array = actions.detach().to("cpu", torch.long if discrete else torch.float32).numpy()
        if array.shape != shape:
            raise ValueError(
                f"`actions` must have shape {shape}, one action per environment, got {array.shape}"
            )
        return np.array(array, dtype) + start if start else np.array(array, dtype)

    return encode


@cache
def struct_type(names: tuple[str, ...]) -> type[TensorStruct]:
    """Return the struct class with these fields: one class per tuple, so that batches combine."""
    return make_dataclass(
        "NamedObservation",
        [(name, Tensor | TensorStruct) for name in names],
        bases=(TensorStruct,),
        frozen=True,
        eq=False,
        namespace={
            "__reduce__": lambda self: (_rebuild, (names, [getattr(self, n) for n in names]))
        },
    )


def _rebuild(names: tuple[str, ...], values: list[Any]) -> TensorStruct:
    """Unpickle an observation struct, whose class has no importable name."""
    return struct_type(names)(*values)


def _field(key: Any, name: str) -> str:
    taken = isinstance(key, str) and hasattr(TensorStruct, key)
    if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key) or taken:
        why = "a TensorStruct has a method of that name" if taken else "it is no Python name"
        raise ValueError(
            f"key {key!r} of `{name}` cannot become a field of a TensorStruct, since {why}: "
            "rename it with gymnasium.wrappers.TransformObservation"
        )
    return key


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype


def _unsupported(space: Space[Any], what: str) -> TypeError:
    return TypeError(
        f"the {what} space must be Box, Discrete, or a Dict of these and MultiBinary, got {space}: "
        "pad what varies in size, and gymnasium.wrappers.FlattenObservation makes a Box of the rest"
    )

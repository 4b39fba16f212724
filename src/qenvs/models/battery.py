"""Models that store energy: a battery Hamiltonian on some of their tensor factors."""

import abc
import math
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from qenvs.models.base import Model
from qenvs.observables import partial_trace


class Battery(NamedTuple):
    """What stores the energy: scale * hamiltonian on some tensor factors, the others traced out.

    Attributes:
        scale: positive number or array, the unit of energy.
        hamiltonian: Hermitian matrix (d_B, d_B) on those factors.
        factors: their indices in `dims`.
        copies: (d_B,) how many identical copies of a basis state there are: 1, except in the
            compact blocks of a permutation-invariant model.
    """

    scale: Any
    hamiltonian: np.ndarray
    factors: tuple[int, ...]
    copies: np.ndarray


class BatteryModel(Model):
    """A model some of whose tensor factors are a battery."""

    @abc.abstractmethod
    def battery(self) -> Battery:
        """What stores the energy."""

    def battery_hamiltonian(self) -> Any:
        """H_B on the factors of the battery, shape (d_B, d_B)."""
        battery = self.battery()
        return battery.scale * battery.hamiltonian

    def battery_reduced(self, state: Any) -> Array:
        """Density matrix of the battery alone, shape (d_B, d_B), the rest traced out.

        Args:
            state: ket (d,) or density matrix (d, d), as an array, QArray or Qobj.
        """
        return partial_trace(state, self.dims, self.battery().factors)


class Block(NamedTuple):
    """One sector of a direct sum: contiguous basis states, in `copies` identical copies."""

    size: int
    copies: float


class BlockModel(BatteryModel):
    """A battery model whose state has no coherence between the blocks of a direct sum.

    A density matrix holds the total weight of the copies of each block, so its trace is 1.
    """

    @abc.abstractmethod
    def blocks(self) -> tuple[Block, ...]:
        """Blocks in the order of the basis; their sizes add up to the dimension."""


def embed(operator: np.ndarray, dims: tuple[int, ...], factors: tuple[int, ...]) -> np.ndarray:
    """The operator on some tensor factors, times the identity on the others."""
    rest = tuple(k for k in range(len(dims)) if k not in factors)
    order = (*factors, *rest)
    kept, traced = (math.prod(dims[k] for k in group) for group in (factors, rest))
    grouped = np.kron(operator, np.eye(traced)).reshape([dims[k] for k in order] * 2)
    back = np.argsort(order)
    axes = (*back, *(back + len(dims)))
    return grouped.transpose(axes).reshape(kept * traced, kept * traced)

"""Helpers for networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn


def build_mlp(
    sizes: Sequence[int],
    activation: Callable[[], nn.Module] = nn.ReLU,
    output_activation: Callable[[], nn.Module] = nn.Identity,
) -> nn.Sequential:
    """Return a multilayer perceptron, linear layers with `activation` between them.

    Args:
        sizes: width of the input, of each hidden layer and of the output, at least two numbers.
        activation: makes the nonlinearity after each hidden layer.
        output_activation: makes the one after the last layer, none by default.

    Raises ValueError for fewer than two sizes.

    >>> build_mlp([4, 32, 2])(torch.zeros(5, 4)).shape
    torch.Size([5, 2])
    """
    if len(sizes) < 2:
        raise ValueError(f"`sizes` must name an input and an output width, got {list(sizes)}")
    layers: list[nn.Module] = []
    for width, next_width in pairwise(sizes):
        layers += [nn.Linear(width, next_width), activation()]
    return nn.Sequential(*layers[:-1], output_activation())


@torch.no_grad()
def soft_update(target: nn.Module, source: nn.Module, tau: float) -> None:
    r"""Move a target network towards its source, in place.

    \(\theta' \leftarrow \theta' + \tau (\theta - \theta')\)

    Args:
        target: the network that lags behind; its buffers are copied outright.
        source: the trained network, of the same architecture.
        tau: the step, 0 to 1; 1 copies.

    Raises ValueError for `tau` outside [0, 1] and for networks whose parameters differ in shape.
    """
    if not 0.0 <= tau <= 1.0:
        raise ValueError(f"`tau` must be in [0, 1], got {tau}")
    parameters = list(zip(target.parameters(), source.parameters(), strict=True))
    for old, new in parameters:
        if old.shape != new.shape:
            raise ValueError(
                f"`source` must have parameters of shape {tuple(old.shape)}, got {tuple(new.shape)}"
            )
    for old, new in parameters:
        old.lerp_(new, tau)
    for old, new in zip(target.buffers(), source.buffers(), strict=True):
        old.copy_(new)

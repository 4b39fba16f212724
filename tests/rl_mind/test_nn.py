"""Network helpers."""

import pytest
import torch
from torch import nn

from rl_mind.nn import build_mlp, soft_update


def test_build_mlp_puts_an_activation_between_the_layers_only():
    net = build_mlp([4, 8, 3, 2], activation=nn.Tanh, output_activation=nn.Sigmoid)
    kinds = [type(layer).__name__ for layer in net]
    assert kinds == ["Linear", "Tanh", "Linear", "Tanh", "Linear", "Sigmoid"]
    assert net(torch.zeros(5, 4)).shape == (5, 2)
    assert type(build_mlp([4, 2])[-1]) is nn.Identity
    with pytest.raises(ValueError, match=r"input and an output width, got \[4\]"):
        build_mlp([4])


@pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
def test_soft_update_moves_a_fraction_of_the_way(tau):
    target, source = (nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(2))
    source[1].running_mean.fill_(5.0)  # pyright: ignore
    source[1].num_batches_tracked.fill_(7)  # pyright: ignore
    before = [p.detach().clone() for p in target.parameters()]
    soft_update(target, source, tau)
    for old, new, other in zip(before, target.parameters(), source.parameters(), strict=True):
        assert torch.allclose(new, (1 - tau) * old + tau * other) and new.requires_grad
    assert all(torch.equal(a, b) for a, b in zip(target.buffers(), source.buffers(), strict=True))


def test_soft_update_refuses_what_is_no_fraction_or_another_network():
    with pytest.raises(ValueError, match=r"`tau` must be in \[0, 1\], got 1.5"):
        soft_update(nn.Linear(1, 1), nn.Linear(1, 1), 1.5)
    with pytest.raises(ValueError, match="shorter"):
        soft_update(nn.Linear(1, 1), nn.Linear(1, 1, bias=False), 0.5)
    target = nn.Linear(1, 3)
    with pytest.raises(ValueError, match=r"parameters of shape \(3, 1\), got \(1, 1\)"):
        soft_update(target, nn.Linear(1, 1), 1.0)  # would broadcast
    assert len(set(target.weight.flatten().tolist())) == 3

"""Structures of tensors, actions and actors."""

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from rl_mind.core import Action, Actor, Observation, StochasticAction, TensorStruct, named_leaves


@dataclass(frozen=True, eq=False)
class Inner(TensorStruct):
    position: Tensor
    gear: Tensor


@dataclass(frozen=True, eq=False)
class Outer(TensorStruct):
    clock: Tensor
    inner: Inner


def outer(n: int = 4, offset: int = 0) -> Outer:
    gear = torch.arange(offset, offset + n)
    return Outer(gear.float(), Inner(gear[:, None].float().expand(n, 2), gear))


def values(struct: TensorStruct) -> dict[str, list]:
    return {name: leaf.tolist() for name, leaf in named_leaves(struct)}


@pytest.mark.claims("V-ST-4")
@pytest.mark.parametrize(
    "index",
    [
        slice(1, 3),
        slice(None, None, 2),
        2,
        -1,
        None,
        ...,
        torch.tensor([3, 0, 3]),
        torch.tensor([True, False, True, False]),
        [0, 2],
        torch.tensor(1),
    ],
    ids=str,
)
def test_indexing_takes_what_a_tensor_takes_and_recurses(index):
    struct = outer()
    picked = struct[index]
    assert type(picked) is Outer and type(picked.inner) is Inner
    for (name, leaf), (_, got) in zip(named_leaves(struct), named_leaves(picked), strict=True):
        assert torch.equal(got, leaf[index]), name


@pytest.mark.claims("V-ST-4")
def test_length_map_to_cat_and_stack_recurse():
    a, b = outer(2), outer(3, offset=10)
    assert len(a) == 2
    assert values(a.map(lambda leaf: leaf + 1))["inner.gear"] == [1, 2]
    assert a.to(torch.float64).inner.gear.dtype == torch.float64
    assert a.to("cpu").clock.device == torch.device("cpu")
    joined = TensorStruct.cat([a, b])
    assert type(joined) is Outer and joined.inner.gear.tolist() == [0, 1, 10, 11, 12]
    stacked = Outer.stack([a, a, a])
    assert stacked.inner.position.shape == (3, 2, 2) and len(stacked) == 3


def test_iterating_gives_the_rows():
    assert [int(row.inner.gear) for row in outer(3)] == [0, 1, 2]


@pytest.mark.claims("V-ST-4")
@pytest.mark.parametrize(
    "index", [slice(1, 3), torch.tensor([3, 0]), torch.tensor([True, False, False, True])], ids=str
)
def test_set_writes_in_place_and_recurses(index):
    struct, new = outer(), outer(2, offset=50).map(torch.clone)
    struct = struct.map(torch.clone)  # an expanded tensor cannot be written to
    before = struct.inner.gear
    struct.set_(index, new)
    assert struct.inner.gear is before
    assert before[index].tolist() == [50, 51] and len({*before.tolist()} - {50, 51}) == 2


@dataclass(frozen=True, eq=False)
class Scaled(TensorStruct):
    value: Tensor
    unit: ClassVar[float] = 0.5


def test_a_constant_of_the_class_is_no_field():
    both = Scaled.cat([Scaled(torch.zeros(2)), Scaled(torch.ones(1))])
    both.set_(0, Scaled(torch.ones(2))[1])
    assert values(both) == {"value": [1, 0, 1]} and both.to(torch.long).unit == 0.5


def test_structs_are_frozen():
    with pytest.raises(AttributeError):
        outer().clock = torch.zeros(4)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(
    ("combine", "error", "words"),
    [
        (lambda: TensorStruct.cat([]), ValueError, "empty sequence"),
        (lambda: TensorStruct.stack([]), ValueError, "empty sequence"),
        (lambda: TensorStruct.cat([outer(), outer().inner]), TypeError, "got Inner, Outer"),
        (lambda: outer().set_(0, outer(1)), ValueError, r"`clock` must have shape \[\], got \[1\]"),
        (lambda: TensorStruct.stack([outer(2), outer(3)]), ValueError, r"shape \[2\], got \[3\]"),
        (
            lambda: TensorStruct.cat([outer(), outer().map(lambda x: x[..., None])]),
            ValueError,
            r"`clock` must have rows of shape \[\], got \[1\]",
        ),
        (
            lambda: TensorStruct.cat([outer(), outer().to(torch.float64)]),
            TypeError,
            "`clock` must have dtype torch.float32, got torch.float64",
        ),
        (
            lambda: TensorStruct.cat(
                [outer(2), replace(outer(2), inner=torch.zeros(2))]  # pyright: ignore
            ),
            TypeError,
            "in field `inner`",
        ),
        (
            lambda: Outer(torch.zeros(3), outer(4).inner),
            ValueError,
            r"share their leading dimension, got .*`clock` \[3\], `inner.position` \[4\]",
        ),
        (
            lambda: Action([1, 2]),  # pyright: ignore[reportArgumentType]
            TypeError,
            "`value` must be a torch.Tensor or a TensorStruct, got list",
        ),
        (lambda: TensorStruct(), ValueError, "at least one field"),
    ],
)
def test_what_does_not_fit_is_named(combine, error, words):
    with pytest.raises(error, match=words):
        combine()


def test_a_failed_set_writes_nothing():
    struct = outer().map(torch.clone)
    wrong = Outer(torch.full((2,), 9.0), Inner(torch.zeros(2, 3), torch.zeros(2).long()))
    with pytest.raises(ValueError, match=r"inner.position"):
        struct.set_(slice(0, 2), wrong)
    assert values(struct) == values(outer())


def test_set_never_broadcasts():
    struct = outer().map(torch.clone)
    with pytest.raises(ValueError, match=r"`clock` must have shape \[4\], got \[1\]"):
        struct.set_(slice(None), outer(1))


class Guess(Actor[StochasticAction]):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, obs: Observation) -> StochasticAction:
        return StochasticAction(self.act(obs), torch.zeros(len(obs)))

    def act(self, obs: Observation) -> Tensor:
        return self.scale * torch.ones(len(obs), 1)


def test_an_actor_is_a_module_that_must_say_how_to_explore_and_to_act():
    guess = Guess()
    assert [*guess.state_dict()] == ["scale"]
    assert guess(torch.zeros(5, 2)).log_prob.shape == (5,)
    with pytest.raises(TypeError, match="abstract"):
        Actor()  # pyright: ignore[reportAbstractUsage]


def test_a_stochastic_action_is_an_action():
    action = StochasticAction(torch.zeros(3, 2), torch.zeros(3))
    assert isinstance(action, Action) and [*values(action)] == ["value", "log_prob"]

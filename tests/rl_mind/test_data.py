"""Transitions, the replay buffer, episodes, rollouts, minibatches and returns."""

from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rl_mind._spaces import struct_type
from rl_mind.core import Action, StochasticAction, TensorStruct, named_leaves
from rl_mind.data import Episode, ReplayBuffer, Rollout, Transitions, gae, minibatches, n_step


def transitions(n: int, start: int = 0, structured: bool = False) -> Transitions[Action]:
    """Steps numbered from `start`: s = k, s' = k + 1, every fifth one truncated."""
    k = torch.arange(start, start + n).float()[:, None]
    obs, next_obs = k, k + 1
    if structured:
        named: Any = struct_type(("inner", "level"))
        obs, next_obs = (named(inner=named(inner=x, level=x), level=x.long()) for x in (k, k + 1))
    flags = k[:, 0] % 5 == 4
    return Transitions(obs, Action(k[:, 0].long()), k[:, 0], next_obs, torch.zeros(n) > 0, flags)


def rollout(t: int, b: int) -> Rollout[StochasticAction]:
    k = torch.arange(float(t * b)).reshape(t, b)
    flags = k < 0
    action = StochasticAction(k[..., None], k)
    return Rollout(k[..., None], action, k, k[..., None] + 1, flags, k == 3)


def level(obs: Tensor | TensorStruct) -> Tensor:
    return obs if isinstance(obs, Tensor) else dict(named_leaves(obs))["inner.level"]


# --- transitions, episodes and rollouts ---


def test_fields():
    expected = ["obs", "action", "reward", "next_obs", "terminated", "truncated"]
    assert [field.name for field in fields(Transitions)] == expected
    assert [field.name for field in fields(Rollout)] == expected
    assert [f.name for f in fields(Episode)] == [
        "obs",
        "action",
        "reward",
        "final_obs",
        "terminated",
    ]


def test_done_is_either_end():
    batch = transitions(6)
    assert batch.done.tolist() == [False] * 4 + [True, False]
    assert rollout(2, 3).done.tolist() == [[False] * 3, [True, False, False]]


def test_TB_8_fields_of_one_batch_must_have_as_many_rows():
    one = transitions(3)
    with pytest.raises(ValueError, match="share their leading dimension"):
        Transitions(one.obs, one.action, one.reward[:2], one.next_obs, one.done, one.done)


@pytest.mark.parametrize("num_envs", [1, 3])
def test_flatten_keeps_the_rows_of_one_time_together(num_envs):
    flat = rollout(2, num_envs).flatten()
    assert type(flat) is Transitions and type(flat.action) is StochasticAction
    assert flat.reward.tolist() == list(range(2 * num_envs))
    assert flat.action.value.shape == (2 * num_envs, 1)
    assert flat.action.log_prob.shape == flat.done.shape == (2 * num_envs,)


@pytest.mark.claims("V-ST-5")
@pytest.mark.parametrize("structured", [False, True])
def test_an_episode_knows_all_its_observations_and_its_return(structured):
    steps = transitions(4, start=2, structured=structured)
    last = steps[-1]
    episode = Episode(steps.obs, steps.action, steps.reward, last.next_obs, True)
    assert len(episode) == 4 and episode.cumulated_reward == 2 + 3 + 4 + 5
    assert level(episode.all_obs).flatten().tolist() == [2, 3, 4, 5, 6]
    assert type(episode.all_obs) is type(episode.obs)


@pytest.mark.claims("V-ST-5")
def test_structured_observations_pass_through_transitions_and_rollouts():
    steps = transitions(6, structured=True)
    assert level(steps[2:4].next_obs).flatten().tolist() == [3, 4]
    grid = steps.map(lambda leaf: leaf.reshape(3, 2, *leaf.shape[1:]))
    again = Rollout(
        grid.obs, grid.action, grid.reward, grid.next_obs, grid.terminated, grid.truncated
    ).flatten()
    assert type(again.obs) is type(steps.obs)
    assert torch.equal(level(again.obs), level(steps.obs))


# --- replay ---


@pytest.mark.claims("V-ST-6")
@pytest.mark.parametrize("structured", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [[3], [3, 3], [3, 3, 3], [3, 3, 3, 3], [7], [20], [3, 20], [3, 20, 3, 7], [8], [3, 0, 8]],
    ids=str,
)
def test_TB_6_samples_are_stored_rows_across_the_wrap_around(sizes, structured):
    buffer = ReplayBuffer[Transitions[Action]](capacity=8)
    total = 0
    for size in sizes:
        buffer.add(transitions(size, start=total, structured=structured))
        total += size
    held = min(total, 8)
    assert len(buffer) == held
    batch = buffer.sample(500)
    rewards = batch.reward.long()
    assert sorted(set(rewards.tolist())) == list(range(total - held, total))
    assert torch.equal(level(batch.obs)[:, 0].long(), rewards)
    assert torch.equal(level(batch.next_obs)[:, 0].long(), rewards + 1)  # the true successor
    assert torch.equal(batch.action.value, rewards)
    assert torch.equal(batch.truncated, rewards % 5 == 4) and not batch.terminated.any()


def test_sampling_is_uniform():
    buffer = ReplayBuffer[Transitions[Action]](capacity=4)
    buffer.add(transitions(6))
    counts = torch.bincount(buffer.sample(40_000).reward.long(), minlength=6)[2:]
    assert (counts - 10_000).abs().max() < 5 * 10_000**0.5


def test_a_generator_makes_samples_reproducible():
    buffer = ReplayBuffer[Action](capacity=100)
    buffer.add(Action(torch.arange(100)))
    first = buffer.sample(10, torch.Generator().manual_seed(1)).value
    assert torch.equal(first, buffer.sample(10, torch.Generator().manual_seed(1)).value)


def test_a_buffer_allocates_once_and_copies():
    buffer = ReplayBuffer[Action](capacity=4)
    source = torch.arange(2.0)
    buffer.add(Action(source))
    memory = buffer._rows.value.data_ptr()  # pyright: ignore
    source.fill_(9)
    assert set(buffer.sample(50).value.tolist()) == {0, 1}
    buffer.sample(1).value.fill_(9)
    buffer.add(Action(torch.arange(2.0, 6.0)))
    assert buffer._rows.value.data_ptr() == memory  # pyright: ignore
    assert set(buffer.sample(99).value.tolist()) == {2, 3, 4, 5}


def test_a_buffer_detaches_and_has_a_device():
    buffer = ReplayBuffer[Action](capacity=4, device="meta")
    buffer.add(Action(torch.ones(2, requires_grad=True)))
    sample = buffer.sample(3).value
    assert sample.device.type == "meta" and not sample.requires_grad


def test_a_buffer_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="`capacity` must be at least 1, got 0"):
        ReplayBuffer(0)
    buffer = ReplayBuffer[Action](capacity=4)
    with pytest.raises(ValueError, match="at least one row, got none: call `add`"):
        buffer.sample(1)
    buffer.add(Action(torch.zeros(2)))
    with pytest.raises(ValueError, match=r"`value` must have shape \[2\], got \[2, 1\]"):
        buffer.add(Action(torch.zeros(2, 1)))
    with pytest.raises(TypeError, match=r"`value` must have dtype torch\.float32"):
        buffer.add(Action(torch.zeros(2).long()))


# --- minibatches ---


@given(rows=st.integers(1, 40), size=st.integers(1, 50))
def test_minibatches_visit_each_row_once(rows, size):
    batches = list(minibatches(transitions(rows), size))
    assert all(len(batch) == size for batch in batches[:-1])
    seen = torch.cat([batch.reward for batch in batches])
    assert sorted(seen.tolist()) == list(range(rows))
    for batch in batches:
        assert torch.equal(level(batch.obs)[:, 0], batch.reward)


def test_minibatches_shuffle_anew_and_reproducibly():
    data = Action(torch.arange(64))

    def order(generator=None):
        return torch.cat([batch.value for batch in minibatches(data, 16, generator)]).tolist()

    assert order() != order() != list(range(64))
    assert order(torch.Generator().manual_seed(3)) == order(torch.Generator().manual_seed(3))
    with pytest.raises(ValueError, match="`size` must be at least 1"):
        minibatches(data, 0)


# --- returns ---


def flags(*rows: int) -> Tensor:
    return torch.tensor(rows, dtype=torch.bool)


def test_TB_2_a_truncated_constant_value_has_no_advantage():
    ones, value = torch.ones(3), torch.full((3,), 100.0)
    end, never = flags(0, 0, 1), flags(0, 0, 0)
    advantage = gae(ones, value, value, never, end, gamma=0.99, lam=0.95)
    assert torch.allclose(advantage, torch.zeros(3), atol=1e-5)
    advantage = gae(ones, value, value, end, never, gamma=0.99, lam=0.95)
    assert torch.allclose(advantage, torch.tensor([-87.5695, -93.1095, -99.0]), atol=1e-4)


@pytest.mark.claims("V-AR-8")
@pytest.mark.parametrize(
    ("terminated", "truncated", "target"), [(0, 0, 50.5), (1, 0, 1), (0, 1, 50.5), (1, 1, 1)]
)
def test_TB_3_only_termination_stops_the_bootstrap(terminated, truncated, target):
    reward, value = torch.ones(1), torch.full((1,), 50.0)
    ends = {"terminated": flags(terminated), "truncated": flags(truncated)}
    assert n_step(reward, value, **ends, gamma=0.99, n=1).tolist() == [target]
    advantage = gae(reward, torch.zeros(1), value, **ends, gamma=0.99, lam=0.95)
    assert advantage.tolist() == [target]


def reference_gae(reward, value, next_value, terminated, truncated, gamma, lam):
    """The definition, A_t as the sum over k of (gamma lam)^k delta_{t+k} within the episode."""
    delta = reward + gamma * next_value * (1 - terminated.double()) - value
    result = []
    for t in range(len(reward)):
        total, weight = 0.0, 1.0
        for k in range(t, len(reward)):
            total, weight = total + weight * delta[k], weight * gamma * lam
            if terminated[k] or truncated[k]:
                break
        result.append(total)
    return torch.stack(result)


def reference_n_step(reward, next_value, terminated, truncated, gamma, n):
    result = []
    for t in range(len(reward)):
        total, k = 0.0, t
        while True:
            total = total + gamma ** (k - t) * reward[k]
            if terminated[k] or truncated[k] or k == len(reward) - 1 or k == t + n - 1:
                break
            k += 1
        if not terminated[k]:
            total = total + gamma ** (k - t + 1) * next_value[k]
        result.append(total)
    return torch.stack(result)


@given(length=st.integers(1, 12), n=st.integers(1, 14), seed=st.integers(0, 2**16))
def test_returns_follow_their_definitions(length, n, seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (length, 3)

    def normal():
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    reward, value, next_value = normal(), normal(), normal()
    ends = [torch.rand(shape, generator=generator) < 0.2 for _ in range(2)]
    columns = [(reward[:, b], next_value[:, b], ends[0][:, b], ends[1][:, b]) for b in range(3)]
    got = gae(reward, value, next_value, *ends, gamma=0.9, lam=0.8)
    want = [
        reference_gae(r, value[:, b], v, term, trunc, 0.9, 0.8)
        for b, (r, v, term, trunc) in enumerate(columns)
    ]
    assert torch.allclose(got, torch.stack(want, dim=1))
    got = n_step(reward, next_value, *ends, gamma=0.9, n=n)
    want = [reference_n_step(*column, 0.9, n) for column in columns]
    assert torch.allclose(got, torch.stack(want, dim=1))


def test_returns_with_lambda_one_are_the_n_step_returns_of_the_whole_data():
    reward, value, next_value = torch.randn(3, 10, 2)
    ends = {"terminated": torch.rand(10, 2) < 0.2, "truncated": torch.rand(10, 2) < 0.2}
    whole = n_step(reward, next_value, **ends, gamma=0.9, n=10)
    first = gae(reward, value, next_value, **ends, gamma=0.9, lam=0.0)
    assert torch.allclose(first + value, n_step(reward, next_value, **ends, gamma=0.9, n=1))
    value_free = gae(reward, torch.zeros(10, 2), next_value, **ends, gamma=0.9, lam=1.0)
    assert value_free.shape == whole.shape


def test_a_terminal_successor_may_have_no_value_at_all():
    reward, nan = torch.ones(2), torch.tensor([1.0, float("nan")])
    ends = {"terminated": flags(0, 1), "truncated": flags(0, 0)}
    assert n_step(reward, nan, **ends, gamma=0.5, n=1).tolist() == [1.5, 1]
    assert gae(reward, torch.zeros(2), nan, **ends, gamma=0.5, lam=0.0).tolist() == [1.5, 1]


@pytest.mark.parametrize("wrong", ["next_value", "terminated", "truncated", "value"])
def test_TB_8_returns_never_broadcast(wrong):
    tensors = {"reward": torch.ones(4), "next_value": torch.ones(4), "value": torch.ones(4)}
    tensors |= {"terminated": flags(0, 0, 0, 0), "truncated": flags(0, 0, 0, 0)}
    tensors[wrong] = tensors[wrong][:, None]
    with pytest.raises(ValueError, match=rf"`{wrong}` must have the shape of `reward`.*\(4, 1\)"):
        gae(**tensors, gamma=0.9, lam=0.9)
    value = tensors.pop("value")
    if value.ndim == 1:
        with pytest.raises(ValueError, match=rf"`{wrong}` must have the shape"):
            n_step(**tensors, gamma=0.9, n=2)


def test_n_must_be_positive():
    with pytest.raises(ValueError, match="`n` must be at least 1, got 0"):
        n_step(torch.ones(1), torch.ones(1), flags(0), flags(0), gamma=0.9, n=0)

"""Collectors: no step across episodes, whole episodes, rollouts of an exact size."""

import pytest
import torch

from rl_mind.collectors import EpisodeCollector, RolloutCollector, TransitionCollector
from rl_mind.core import Action, Actor, Observation, StochasticAction, named_leaves
from rl_mind.data import ReplayBuffer, Rollout, Transitions, gae, n_step
from rl_mind.env import VecEnv

MODES = pytest.mark.parametrize("same_step", [False, True], ids=["next-step", "same-step"])
COUNTERS = pytest.mark.parametrize("name", ["toy/Counter-v0", "toy/Batched-v0"])


def counting(obs: Observation) -> Action:
    """Act with the number of the step to take, so that data can be checked row by row."""
    assert isinstance(obs, torch.Tensor)
    return Action(obs[:, 1].long() + 1)


def tensor(observation: Observation) -> torch.Tensor:
    assert isinstance(observation, torch.Tensor)
    return observation


def check_steps(batch: Transitions[Action]) -> None:
    """Each row is one step of the counter, within one episode, with the action it was given."""
    obs, next_obs = tensor(batch.obs), tensor(batch.next_obs)
    assert torch.equal(next_obs[..., 0], obs[..., 0])  # the same episode
    assert torch.equal(next_obs[..., 1], obs[..., 1] + 1)  # its next step
    assert torch.equal(next_obs[..., 2].long(), batch.action.value)
    assert (batch.reward == 1).all()


# --- transitions ---


@pytest.mark.claims("V-AR-7", "V-RS-3")
@COUNTERS
def test_TB_1_no_transition_crosses_an_episode(name):
    collector = TransitionCollector(VecEnv(name, 2), counting)
    batch = collector.collect(8)
    assert len(batch) == collector.steps == 12
    check_steps(batch)
    assert batch.terminated.tolist() == ([False] * 4 + [True] * 2) * 2


@pytest.mark.claims("V-AR-5", "V-AR-7")
@COUNTERS
def test_TB_1_same_step_reset_wastes_no_call(name):
    collector = TransitionCollector(VecEnv(name, 2, same_step_reset=True), counting)
    batch = collector.collect(8)
    assert len(batch) == collector.steps == 16
    check_steps(batch)
    assert batch.terminated.reshape(8, 2)[:, 0].tolist() == [t % 3 == 2 for t in range(8)]


@pytest.mark.claims("V-AR-7")
@MODES
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("chunk", [1, 2, 5, 13])
def test_TB_1_staggered_episodes_in_any_chunks(same_step, num_envs, chunk):
    vec = VecEnv(
        "toy/Counter-v0",
        num_envs,
        seed=1,
        same_step_reset=same_step,
        horizons=(1, 2, 4, 7),
        random=True,
        ending="truncated",
    )
    collector = TransitionCollector(vec, counting)
    batches = [collector.collect(chunk) for _ in range(60 // chunk)]
    for batch in batches:
        check_steps(batch)
    whole = Transitions.cat(batches)
    assert len(whole) == collector.steps and whole.truncated.any() and not whole.terminated.any()
    ends = whole.truncated.sum()
    if not same_step:  # each end but the latest cost its environment one call
        assert (
            num_envs * (60 // chunk) * chunk - ends <= len(whole) <= num_envs * 60 - ends + num_envs
        )


@MODES
def test_TB_6_next_obs_of_a_truncated_step_is_the_terminal_one_through_a_buffer(same_step):
    vec = VecEnv("toy/Counter-v0", 2, same_step_reset=same_step, ending="truncated")
    collector = TransitionCollector(vec, counting)
    buffer = ReplayBuffer[Transitions[Action]](capacity=50)
    for calls in (4, 100):
        for _ in range(calls):
            buffer.add(collector.collect(1))
        batch = buffer.sample(200)
        check_steps(batch)
        assert batch.truncated.any()
        assert (tensor(batch.next_obs)[batch.truncated, 1] == 3).all()


def test_the_call_after_an_end_may_yield_nothing():
    collector = TransitionCollector(VecEnv("toy/Counter-v0", 1, horizons=(1,)), counting)
    buffer = ReplayBuffer[Transitions[Action]](capacity=5)
    sizes = []
    for _ in range(4):
        batch = collector.collect(1)
        buffer.add(batch)
        sizes.append(len(batch))
    assert sizes == [1, 0, 1, 0] and len(buffer) == collector.steps == 2


# --- rollouts ---


@pytest.mark.claims("V-AR-6", "V-AR-7")
@COUNTERS
@pytest.mark.parametrize("num_envs", [1, 2])
def test_rollouts_have_an_exact_size(name, num_envs):
    collector = RolloutCollector(VecEnv(name, num_envs, same_step_reset=True), counting)
    rollout = collector.collect(7)
    assert type(rollout) is Rollout and len(rollout) == 7
    assert {tuple(leaf.shape[:2]) for _, leaf in named_leaves(rollout)} == {(7, num_envs)}
    assert rollout.reward.shape == rollout.done.shape == rollout.terminated.shape == (7, num_envs)
    check_steps(rollout.flatten())
    assert collector.steps == 7 * num_envs


@pytest.mark.claims("V-AR-6")
def test_rollouts_need_same_step_reset():
    with pytest.raises(ValueError, match="same_step_reset=True"):
        RolloutCollector(VecEnv("toy/Counter-v0", 2), counting)


@COUNTERS
def test_TB_9_a_rollout_cut_in_mid_episode_goes_on_in_the_next(name):
    collector = RolloutCollector(VecEnv(name, 2, same_step_reset=True, **H5[name]), counting)
    first, second = collector.collect(3), collector.collect(3)
    assert tensor(first.next_obs)[-1].tolist() == tensor(second.obs)[0].tolist() == [[0, 3, 3]] * 2
    assert not first.done.any() and second.done.tolist() == [[False] * 2, [True] * 2, [False] * 2]
    # V = 10 times the step: the cut at step 3 bootstraps from V(3) = 30, the end from nothing.
    value, next_value = (10 * tensor(x)[..., 1] for x in (first.obs, first.next_obs))
    ends = (first.terminated, first.truncated)
    target = n_step(first.reward, next_value, *ends, gamma=1.0, n=3)
    assert target[:, 0].tolist() == [33, 32, 31]
    advantage = gae(first.reward, value, next_value, *ends, gamma=1.0, lam=1.0)
    assert (advantage + value)[:, 0].tolist() == [33, 32, 31]


H5 = {"toy/Counter-v0": {"horizons": (5,)}, "toy/Batched-v0": {"horizon": 5}}


def test_TB_4_a_target_uses_the_value_of_the_final_observation():
    vec = VecEnv("toy/Counter-v0", 1, same_step_reset=True, ending="truncated")
    rollout = RolloutCollector(vec, counting).collect(3)
    value = torch.where(tensor(rollout.next_obs)[..., 1] == 3, 100.0, 0.0)  # V(reset) = 0
    ends = (rollout.terminated, rollout.truncated)
    assert n_step(rollout.reward, value, *ends, gamma=0.5, n=1)[-1].tolist() == [51]


def test_TB_5_a_time_limit_is_a_truncation_in_every_batch():
    kwargs = {"horizons": (99,), "max_episode_steps": 4}
    for same_step in (False, True):
        vec = VecEnv("toy/Counter-v0", 2, same_step_reset=same_step, **kwargs)
        batch = TransitionCollector(vec, counting).collect(4)
        assert batch.truncated.reshape(4, 2)[:, 1].tolist() == [False, False, False, True]
        assert not batch.terminated.any()
        (episode,) = EpisodeCollector(vec, counting).collect(1)
        assert len(episode) == 4 and episode.terminated is False
    rollout = RolloutCollector(vec, counting).collect(4)
    assert rollout.truncated[:, 0].tolist() == [False, False, False, True]
    buffer = ReplayBuffer[Transitions[Action]](capacity=8)
    buffer.add(rollout.flatten())
    sample = buffer.sample(100)
    assert torch.equal(sample.truncated, tensor(sample.next_obs)[:, 1] == 4)


# --- episodes ---


@pytest.mark.claims("V-AR-7")
@MODES
@pytest.mark.parametrize(("num_envs", "n_episodes"), [(1, 1), (1, 3), (2, 3), (3, 2), (4, 12)])
@pytest.mark.parametrize("ending", ["terminated", "truncated", "both"])
def test_episodes_are_whole(same_step, num_envs, n_episodes, ending):
    vec = VecEnv(
        "toy/Counter-v0", num_envs, same_step_reset=same_step, ending=ending, horizons=(2, 4)
    )
    collector = EpisodeCollector(vec, counting)
    for _ in range(2):  # the second call starts afresh
        episodes = collector.collect(n_episodes)
        assert len(episodes) == n_episodes
        for episode in episodes:
            steps = len(episode)
            assert steps in (2, 4) and episode.cumulated_reward == steps
            assert tensor(episode.obs)[:, 1].tolist() == list(range(steps))
            assert tensor(episode.all_obs)[:, 1].tolist() == list(range(steps + 1))
            assert tensor(episode.final_obs).shape == (3,) and tensor(episode.final_obs)[1] == steps
            assert episode.action.value.tolist() == list(range(1, steps + 1))
            assert len(set(tensor(episode.all_obs)[:, 0].tolist())) == 1
            assert episode.terminated is (ending != "truncated")


@MODES
def test_steps_counts_what_was_returned(same_step):
    vec = VecEnv("toy/Counter-v0", 2, same_step_reset=same_step, horizons=(2, 4))
    collector = EpisodeCollector(vec, counting)
    total = sum(len(episode) for _ in range(3) for episode in collector.collect(3))
    assert collector.steps == total


@MODES
def test_episodes_are_not_biased_to_short_ones(same_step):
    """Taking the first to finish would give 1-step episodes nearly always."""
    vec = VecEnv(
        "toy/Counter-v0", 8, seed=0, same_step_reset=same_step, horizons=(1, 30), random=True
    )
    collector = EpisodeCollector(vec, counting)
    lengths = [len(episode) for _ in range(50) for episode in collector.collect(8)]
    long = sum(length == 30 for length in lengths)
    assert abs(long - 200) < 5 * 10  # 400 fair draws


def test_kept_episodes_do_not_share_memory():
    first, second = EpisodeCollector(VecEnv("toy/Counter-v0", 2), counting).collect(2)
    first.reward.fill_(7)
    assert second.cumulated_reward == 3
    assert first.reward.untyped_storage().nbytes() == 3 * 4


# --- all of them ---

COLLECTORS = pytest.mark.parametrize(
    "collector", [TransitionCollector, RolloutCollector, EpisodeCollector]
)


@COLLECTORS
def test_a_collector_takes_positive_integers(collector):
    collector = collector(VecEnv("toy/Counter-v0", 2, same_step_reset=True), counting)
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        collector.collect(0)


@COLLECTORS
def test_a_collector_starts_afresh_if_something_else_used_its_environment(collector):
    vec = VecEnv("toy/Counter-v0", 2, same_step_reset=True, horizons=(9,))
    collector = collector(vec, counting)
    collector.collect(2)
    vec.step(torch.zeros(2).long())
    again = collector.collect(2)
    obs = tensor(again.obs if not isinstance(again, list) else again[0].obs)
    assert obs.reshape(-1, 3)[0, 1] == 0


@COLLECTORS
def test_actors_are_called_without_gradients(collector):
    weight = torch.ones(1, requires_grad=True)

    def act(obs):
        return StochasticAction(counting(obs).value, weight * torch.ones(len(obs)))

    vec = VecEnv("toy/Counter-v0", 2, same_step_reset=True)
    batch = collector(vec, act).collect(2)
    action = batch[0].action if isinstance(batch, list) else batch.action
    assert not action.log_prob.requires_grad and action.log_prob.numel() > 0


@COLLECTORS
def test_TB_8_a_log_probability_is_one_number_per_action(collector):
    vec = VecEnv("toy/Counter-v0", 1, same_step_reset=True)
    wrong = collector(
        vec, lambda obs: StochasticAction(counting(obs).value, torch.zeros(len(obs), 1))
    )
    with pytest.raises(ValueError, match=r"`log_prob` must have shape \(1,\).*got \(1, 1\): sum"):
        wrong.collect(1)


@COLLECTORS
def test_an_actor_must_return_an_action(collector):
    wrong = collector(
        VecEnv("toy/Counter-v0", 2, same_step_reset=True), lambda obs: counting(obs).value
    )
    with pytest.raises(TypeError, match="must return an Action, got Tensor"):
        wrong.collect(1)


@COLLECTORS
def test_batches_are_copies(collector):
    vec = VecEnv("toy/Counter-v0", 2, same_step_reset=True)
    memory = torch.ones(2).long()
    collector = collector(vec, lambda obs: Action(memory.add_(1)))  # one that reuses its tensor
    for start in (2, 5):
        batch = collector.collect(3 if not isinstance(collector, EpisodeCollector) else 1)
        action = batch[0].action if isinstance(batch, list) else batch.action
        assert sorted(set(action.value.flatten().tolist())) == [start, start + 1, start + 2]


class Steering(Actor[StochasticAction]):
    """Reads a nested observation, as an encoder of a racing game would."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(1 + 4, 2)

    def forward(self, obs: Observation) -> StochasticAction:
        return StochasticAction(self.act(obs), torch.zeros(len(obs)))

    def act(self, obs: Observation) -> torch.Tensor:
        leaves = dict(named_leaves(obs))
        return self.net(torch.cat([leaves["clock"], leaves["kart.buttons"].float()], dim=-1)).tanh()


@pytest.mark.claims("V-ST-5", "V-ST-6")
@MODES
def test_structured_observations_pass_through_everything(same_step):
    vec = VecEnv("toy/Structured-v0", 2, same_step_reset=same_step)
    actor = Steering()
    transitions = TransitionCollector(vec, actor).collect(9)
    buffer = ReplayBuffer[Transitions[StochasticAction]](capacity=10)
    buffer.add(transitions)
    batches = [transitions, buffer.sample(6)]
    if same_step:
        batches.append(RolloutCollector(vec, actor).collect(5).flatten())
    for batch in batches:
        before, after = (dict(named_leaves(tree)) for tree in (batch.obs, batch.next_obs))
        t = before["clock"][:, 0]
        assert torch.equal(after["clock"][:, 0], t + 1) and batch.action.log_prob.shape == t.shape
        assert torch.equal(after["kart.gear"], (t.long() + 1) % 3)
        assert torch.equal(after["kart.image"][:, 0, 0, 0], (t + 1).to(torch.uint8))
        assert after["kart.image"].dtype == torch.uint8 and batch.action.value.shape == (len(t), 2)
    (episode,) = EpisodeCollector(vec, actor).collect(1)
    assert dict(named_leaves(episode.all_obs))["clock"].flatten().tolist() == [0, 1, 2, 3]
    assert dict(named_leaves(episode.final_obs))["kart.buttons"].tolist() == [1, 1, 0, 0]

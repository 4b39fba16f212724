"""Evaluation from time to time, the best actor, its history and its video."""

import pytest
import torch
from torch import Tensor, nn

from rl_mind.core import Action, Actor, Observation
from rl_mind.env import VecEnv
from rl_mind.evaluation import EvalResult, Evaluator


class Push(Actor[Action]):
    """Pushes towards the pole with a `skill`; at skill 0 always to the left."""

    def __init__(self, skill: float = 1.0) -> None:
        super().__init__()
        self.skill = nn.Parameter(torch.tensor(skill))
        self.drop = nn.Dropout(0.99)
        self.modes: list[bool] = []

    def forward(self, obs: Observation) -> Action:
        raise AssertionError("evaluation must use `act`")

    def act(self, obs: Observation) -> Tensor:
        assert isinstance(obs, Tensor)
        self.modes.append(self.training)
        assert not (self.skill * 1).requires_grad
        return (self.drop(obs[:, 2] + obs[:, 3]) * self.skill > 0).long()


@pytest.fixture
def env() -> VecEnv:
    return VecEnv("CartPole-v1", 4, seed=0, max_episode_steps=50)


def test_it_runs_when_enough_steps_have_passed(env):
    evaluator, actor = Evaluator[Push](env, every=100), Push()
    due = [
        s
        for s in (0, 50, 99, 100, 130, 199, 200, 350, 449, 450)
        if evaluator.run_if_needed(s, actor)
    ]
    assert due == [100, 200, 350, 450] == [result.step for result in evaluator.history]


def test_results_and_the_best_actor(env):
    evaluator = Evaluator[Push](env, every=1)
    assert evaluator.best_reward == float("-inf")
    with pytest.raises(RuntimeError, match="no evaluation has run yet"):
        _ = evaluator.best_actor
    results = [
        evaluator.run_if_needed(s, Push(skill)) for s, skill in ((1, 0.0), (2, 1.0), (3, 0.0))
    ]
    assert all(isinstance(result, EvalResult) for result in results)
    assert results == evaluator.history
    assert [result.is_best for result in evaluator.history] == [True, True, False]
    bad, good, _ = evaluator.history
    assert bad.rewards.shape == (4,) and bad.mean == float(bad.rewards.mean()) < 12
    assert good.mean == evaluator.best_reward > 40
    assert evaluator.best_actor.skill.item() == 1.0


def test_an_equal_result_is_not_better():
    evaluator = Evaluator(VecEnv("toy/Counter-v0", 2), every=1)
    results = [evaluator.run_if_needed(steps, Still()) for steps in (1, 2)]
    assert [result.is_best for result in results if result] == [True, False]


def test_the_best_actor_is_a_copy(env):
    evaluator, actor = Evaluator[Push](env, every=1), Push()
    evaluator.run_if_needed(1, actor)
    actor.skill.data.fill_(0.0)
    assert evaluator.best_actor.skill.item() == 1.0


def test_evaluation_is_deterministic_and_leaves_the_actor_as_it_was(env):
    actor = Push()
    for training in (True, False):
        actor.train(training)
        state = torch.get_rng_state()
        assert Evaluator[Push](env, every=1).run(actor).min() > 30  # with dropout it would fall
        assert actor.training is training and not any(actor.modes)
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("same_step", [False, True])
@pytest.mark.parametrize(("n_episodes", "expected"), [(None, 2), (5, 5), (1, 1)])
def test_how_many_episodes(same_step, n_episodes, expected):
    env = VecEnv("toy/Counter-v0", 2, same_step_reset=same_step)
    rewards = Evaluator(env, every=1, n_episodes=n_episodes).run(Still())
    assert rewards.tolist() == [3.0] * expected


class Still(Actor[Action]):
    def __init__(self) -> None:
        super().__init__()
        self.modes: list[bool] = []

    def forward(self, obs: Observation) -> Action:
        return Action(self.act(obs))

    def act(self, obs: Observation) -> Tensor:
        self.modes.append(self.training)
        return torch.zeros(len(obs)).long()


class Log:
    def __init__(self) -> None:
        self.rows: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int, /) -> None:
        self.rows.append((tag, scalar_value, global_step))


def test_a_writer_gets_every_evaluation():
    log = Log()
    evaluator = Evaluator(VecEnv("toy/Counter-v0", 2), every=10, writer=log)
    evaluator.run(Still())
    evaluator.run_if_needed(10, Still())
    assert log.rows == [("eval/mean", 3.0, 10), ("eval/min", 3.0, 10), ("eval/max", 3.0, 10)]


def test_tensorboard_is_such_a_writer(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        Evaluator(VecEnv("toy/Counter-v0", 2), every=10, writer=writer).run_if_needed(10, Still())
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reading.EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("eval/mean")] == [(10, 3.0)]


def test_video_of_the_best_actor_or_of_another(tmp_path):
    image = pytest.importorskip("PIL.Image")
    evaluator = Evaluator(VecEnv("toy/Counter-v0", 2, horizons=(5,)), every=1)
    evaluator.run_if_needed(1, Still())
    evaluator.best_actor.train()
    assert len(evaluator.visualize_best()) == 6  # the first image and one per step
    assert evaluator.best_actor.training and not any(evaluator.best_actor.modes)
    assert len(evaluator.visualize_best(max_frames=2)) == 2
    for actor in (None, Still()):
        path = evaluator.record_video(tmp_path / "new" / "episode.gif", actor)
        with image.open(path) as video:
            assert video.n_frames == 6 and video.size == (12, 8)
            assert video.info["duration"] == 40  # 25 images per second
    with image.open(evaluator.record_video(path, max_frames=2)) as video:
        assert video.n_frames == 2


def test_every_must_be_positive():
    with pytest.raises(ValueError, match="`every` must be at least 1, got 0"):
        Evaluator(VecEnv("toy/Counter-v0", 1), every=0)

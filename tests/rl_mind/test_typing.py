"""The types of actors flow into batches: right uses pass the type checker, wrong ones do not."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"

# Each line that ends in "# wrong" must be flagged, no other may be.
CODE = """
from dataclasses import dataclass
from typing import assert_type

import torch
from torch import Tensor

from rl_mind.collectors import EpisodeCollector, RolloutCollector, TransitionCollector
from rl_mind.core import Action, Actor, Observation, StochasticAction, TensorStruct
from rl_mind.data import Episode, ReplayBuffer, Rollout, Transitions, gae, minibatches
from rl_mind.env import EnvStep, VecEnv
from rl_mind.evaluation import Evaluator


class Greedy(Actor[Action]):
    def forward(self, obs: Observation) -> Action:
        return Action(self.act(obs))

    def act(self, obs: Observation) -> Tensor:
        return torch.zeros(len(obs))


class Sampled(Actor[StochasticAction]):
    temperature = 1.0

    def forward(self, obs: Observation) -> StochasticAction:
        return StochasticAction(self.act(obs), torch.zeros(len(obs)))

    def act(self, obs: Observation) -> Tensor:
        return torch.zeros(len(obs))


class Mixed(Actor[StochasticAction]):
    def forward(self, obs: Observation) -> Action:  # wrong
        return Action(torch.zeros(len(obs)))

    def act(self, obs: Observation) -> Action:  # wrong
        return Action(torch.zeros(len(obs)))


def batches(env: VecEnv) -> None:
    transitions = TransitionCollector(env, Sampled()).collect(1)
    assert_type(transitions, Transitions[StochasticAction])
    assert_type(transitions.action.log_prob, Tensor)
    rollout = RolloutCollector(env, Sampled()).collect(1)
    assert_type(rollout, Rollout[StochasticAction])
    assert_type(rollout.flatten()[3:5].to("cpu").action, StochasticAction)
    episodes = EpisodeCollector(env, Sampled()).collect(1)
    assert_type(episodes, list[Episode[StochasticAction]])
    assert_type(episodes[0].action.log_prob, Tensor)
    for batch in minibatches(rollout.flatten(), 64):
        assert_type(batch.action.log_prob, Tensor)


def wrong_batches(env: VecEnv) -> None:
    TransitionCollector(env, Greedy()).collect(1).action.log_prob  # wrong
    RolloutCollector(env, Greedy()).collect(1).flatten().action.log_prob  # wrong
    EpisodeCollector(env, Greedy()).collect(1)[0].action.log_prob  # wrong
    Greedy()(env.reset()).log_prob  # wrong
    TransitionCollector(env, lambda obs: obs)  # wrong
    RolloutCollector(env, Greedy()).collect("10")  # wrong


def replay(env: VecEnv) -> None:
    buffer = ReplayBuffer[Transitions[Action]](capacity=10)
    buffer.add(TransitionCollector(env, Greedy()).collect(1))
    buffer.add(TransitionCollector(env, Sampled()).collect(1))  # a StochasticAction is an Action
    buffer.add(Action(torch.zeros(1)))  # wrong
    buffer.sample(3).action.log_prob  # wrong
    stochastic = ReplayBuffer[Transitions[StochasticAction]](capacity=10)
    stochastic.add(TransitionCollector(env, Greedy()).collect(1))  # wrong
    assert_type(stochastic.sample(3).action.log_prob, Tensor)


@dataclass(frozen=True, eq=False)
class Own(TensorStruct):
    x: Tensor


def structs(own: Own, env: VecEnv) -> None:
    assert_type(own[0], Own)
    assert_type(Own.cat([own, own]), Own)
    assert_type(TensorStruct.stack([own]).map(torch.abs), Own)
    own.x = torch.zeros(1)  # wrong
    own.set_(0, Action(torch.zeros(1)))  # wrong
    Own(x=[1.0])  # wrong
    own.y  # wrong
    step = env.step(torch.zeros(1))
    assert_type(step, EnvStep)
    env.step(Action(torch.zeros(1)))  # wrong
    VecEnv("CartPole-v1", 2, vectorization_mode="async")  # wrong
    gae(step.reward, step.reward, step.reward, step.done, step.done, 0.9, 0.9)  # wrong


def evaluation(env: VecEnv) -> None:
    evaluator = Evaluator[Sampled](env, every=10)
    evaluator.run_if_needed(1, Greedy())  # wrong
    assert_type(evaluator.best_actor.temperature, float)
"""


@pytest.fixture(scope="module")
def flagged(tmp_path_factory) -> dict[int, list[str]]:
    """What the type checker says about CODE, by line."""
    pytest.importorskip("pyright")
    folder = tmp_path_factory.mktemp("typed")
    (folder / "code.py").write_text(CODE)
    (folder / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(SRC)], "typeCheckingMode": "standard"})
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(folder)]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable], capture_output=True, text=True
    )
    found: dict[int, list[str]] = {}
    for report in json.loads(done.stdout)["generalDiagnostics"]:
        found.setdefault(report["range"]["start"]["line"], []).append(report["message"])
    return found


def test_nothing_public_is_left_to_inference(tmp_path):
    pytest.importorskip("pyright")
    command = [sys.executable, "-m", "pyright", "--verifytypes", "rl_mind", "--ignoreexternal"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command, "--outputjson"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
    )
    found = json.loads(done.stdout)["typeCompleteness"]
    vague = [symbol["name"] for symbol in found["symbols"] if not symbol["isTypeKnown"]]
    assert vague == [] and len(found["symbols"]) > 150 and found["completenessScore"] == 1


def test_right_uses_are_accepted_and_wrong_ones_flagged(flagged):
    lines = CODE.splitlines()
    expected = {number for number, line in enumerate(lines) if line.endswith("# wrong")}
    missed = [lines[number] for number in sorted(expected - set(flagged))]
    surprising = {lines[number]: flagged[number] for number in sorted(set(flagged) - expected)}
    assert missed == [] and surprising == {}
    assert len(expected) == len(re.findall("# wrong", CODE)) > 15

"""From an environment to a pulse (`optimize`) or to a policy (`train`)."""

from qenvs.controllers.episodes import Episode, play
from qenvs.controllers.grape import PulseResult, optimize
from qenvs.controllers.policy import Policy, load_policy, save_policy
from qenvs.controllers.ppo import PPOConfig
from qenvs.controllers.training import TrainResult, train

__all__ = [
    "Episode",
    "PPOConfig",
    "Policy",
    "PulseResult",
    "TrainResult",
    "load_policy",
    "optimize",
    "play",
    "save_policy",
    "train",
]

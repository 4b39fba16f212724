"""Environments of our own; importing this module registers them with Gymnasium.

- `CartPoleContinuous-v1`: CartPole-v1 with a continuous force. The action is `[-1, 1]` of
  CartPole's 10 N, values beyond are clipped; observation, reward, ends and the limit of 500 steps
  are those of CartPole-v1.

>>> from rl_mind.env import VecEnv
>>> VecEnv("CartPoleContinuous-v1", num_envs=2).action_dim
1
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.utils import RecordConstructorArgs


class ContinuousForce(gymnasium.ActionWrapper[Any, np.ndarray, int], RecordConstructorArgs):
    """Drive CartPole with a fraction of its force instead of a direction.

    Args:
        env: a CartPole, whose `force_mag` becomes the force of the current step.
    """

    def __init__(self, env: gymnasium.Env[Any, int]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.ActionWrapper.__init__(self, env)
        cartpole = env.unwrapped
        if not isinstance(cartpole, CartPoleEnv):
            raise TypeError(f"`env` must be a CartPole, got {cartpole}")
        self._cartpole = cartpole
        self._max_force = cartpole.force_mag
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action(self, action: np.ndarray) -> int:
        """Set the force of this step and return CartPole's push to the right."""
        self._cartpole.force_mag = self._max_force * float(np.clip(action[0], -1.0, 1.0))
        return 1


gymnasium.register(
    "CartPoleContinuous-v1",
    entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    max_episode_steps=500,
    reward_threshold=475.0,
    additional_wrappers=(ContinuousForce.wrapper_spec(),),
)

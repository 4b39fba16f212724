"""Toy environments whose observations say where they are, registered as `toy/...`."""

from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

torch.set_num_threads(1)


class Counter(gymnasium.Env):
    """Observes (episode, step, last action), episodes counted from 0; every reward is 1.

    `horizons` are the lengths of successive episodes, over and over; `ending` says which flags an
    end raises. With `random=True` a length is drawn from `horizons`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}

    def __init__(self, horizons=(3,), ending="terminated", random=False, render_mode=None):
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.action_space = spaces.Discrete(10)
        self.horizons, self.ending, self.random = horizons, ending, random
        self.render_mode = render_mode
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.t, self.action = 0, -1
        index = self.np_random.integers(len(self.horizons)) if self.random else self.episode
        self.horizon = self.horizons[int(index) % len(self.horizons)]
        return self.observe(), {}

    def observe(self) -> np.ndarray:
        return np.array([self.episode, self.t, self.action], np.float64)

    def step(self, action):
        self.t, self.action = self.t + 1, int(action)
        end = self.t == self.horizon
        terminated = end and self.ending in ("terminated", "both")
        truncated = end and self.ending in ("truncated", "both")
        return self.observe(), 1.0, terminated, truncated, {}

    def render(self) -> Any:
        return np.full((8, 12, 3), min(self.t * 10, 255), np.uint8)

    def describe(self) -> str:
        return f"episode {self.episode}"


class Blind(Counter):
    """A Counter that draws nothing."""

    def render(self):
        return None


class Structured(gymnasium.Env):
    """Counter with a nested Dict observation, as racing games have."""

    def __init__(self, horizon=3, leaf=None):
        self.observation_space = spaces.Dict(
            {
                "clock": spaces.Box(0, np.inf, (1,), np.float32),
                "kart": spaces.Dict(
                    {
                        "buttons": leaf or spaces.MultiBinary(4),
                        "gear": spaces.Discrete(3, start=1),
                        "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
                    }
                ),
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.horizon = horizon

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observe(), {}

    def observe(self) -> dict[str, Any]:
        return {
            "clock": np.array([self.t], np.float32),
            "kart": {
                "buttons": np.array([self.t >> bit & 1 for bit in range(4)], np.int8),
                "gear": np.int64(1 + self.t % 3),
                "image": np.full((2, 2, 3), self.t, np.uint8),
            },
        }

    def step(self, action):
        self.t += 1
        return self.observe(), 1.0, self.t == self.horizon, False, {}


class Tabular(gymnasium.Env):
    """A walk on states 5, 6, 7 with actions -1, 0, 1."""

    def __init__(self):
        self.observation_space = spaces.Discrete(3, start=5)
        self.action_space = spaces.Discrete(3, start=-1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 5
        return self.state, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.last_action = action
        self.state = int(np.clip(self.state + action, 5, 7))
        return self.state, 0.0, self.state == 7, False, {}


class Spaces(gymnasium.Env):
    """An environment that only has spaces."""

    def __init__(self, observation=None, action=None):
        self.observation_space = observation or spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = action or spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.last_action = action
        return self.observation_space.sample(), 0.0, False, False, {}


class BatchedCounter(VectorEnv):
    """Counter as one batch, with the habits of careless vector environments.

    It reuses its arrays from call to call, rewards the resetting call, returns float64 rewards,
    and reports final observations as a dense array.
    """

    def __init__(self, num_envs, autoreset_mode=AutoresetMode.NEXT_STEP, horizon=3, **kwargs):
        if kwargs:
            raise TypeError(f"unexpected {sorted(kwargs)}")
        self.num_envs, self.horizon = num_envs, horizon
        self.metadata = {"autoreset_mode": AutoresetMode(autoreset_mode)}
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = spaces.Discrete(10)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.obs = np.zeros((num_envs, 3), np.float32)
        self.reward = np.ones(num_envs)
        self.terminated = np.zeros(num_envs, bool)
        self.truncated = np.zeros(num_envs, bool)

    def reset(self, *, seed=None, options=None) -> Any:
        super().reset(seed=seed)
        self.obs[:] = (0, 0, -1)
        self.terminated[:] = False
        return self.obs, {}

    def step(self, actions) -> Any:
        assert actions.shape == (self.num_envs,)
        resetting = self.terminated.copy()
        self.obs[:, 1] += 1
        self.obs[:, 2] = actions
        self._begin(resetting)
        self.terminated[:] = self.obs[:, 1] == self.horizon
        infos = {}
        if self.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and self.terminated.any():
            infos = {"final_obs": self.obs.copy(), "_final_obs": self.terminated.copy()}
            self._begin(self.terminated)
            ended, self.terminated = self.terminated, np.zeros(self.num_envs, bool)
            return self.obs, self.reward, ended, self.truncated, infos
        return self.obs, self.reward, self.terminated, self.truncated, infos

    def _begin(self, mask):
        self.obs[mask, 0] += 1
        self.obs[mask, 1:] = (0, -1)


class OnJax(BatchedCounter):
    """The same with arrays of JAX, and the observations it hands out are its own state."""

    def reset(self, *, seed=None, options=None) -> Any:
        obs, infos = super().reset(seed=seed)
        self.held = jnp.array(obs)
        return self.held, infos

    def step(self, actions) -> Any:
        self.obs = np.array(self.held)
        obs, *rest, infos = super().step(actions)
        self.held = jnp.array(obs)
        return self.held, *map(jnp.array, rest), {key: jnp.array(infos[key]) for key in infos}


class WithoutFinal(BatchedCounter):
    """A batched environment that forgets to report final observations."""

    def step(self, actions):
        return (*super().step(actions)[:4], {})


WRAPPER = gymnasium.wrappers.RecordEpisodeStatistics.wrapper_spec()
TOYS: dict[str, dict[str, Any]] = {
    "Counter": {"entry_point": Counter},
    "Blind": {"entry_point": Blind},
    "Structured": {"entry_point": Structured},
    "Tabular": {"entry_point": Tabular},
    "Spaces": {"entry_point": Spaces},
    "Batched": {"entry_point": Counter, "vector_entry_point": BatchedCounter},
    "OnJax": {"entry_point": Counter, "vector_entry_point": OnJax},
    "Careless": {"entry_point": Counter, "vector_entry_point": WithoutFinal},
    "Wrapped": {
        "entry_point": Counter,
        "vector_entry_point": BatchedCounter,
        "additional_wrappers": (WRAPPER,),
    },
}
for name, spec in TOYS.items():
    gymnasium.register(f"toy/{name}-v0", **spec)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)

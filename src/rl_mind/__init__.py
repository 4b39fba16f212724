"""A small typed toolkit for reinforcement learning in PyTorch.

| room | what it holds |
| --- | --- |
| `rl_mind.core` | `TensorStruct`, `Action`, `StochasticAction`, `Actor` |
| `rl_mind.env` | `VecEnv`: B environments with tensors in and out |
| `rl_mind.data` | transitions, replay, episodes, rollouts, returns |
| `rl_mind.collectors` | an environment and an actor in, one of those batches out |
| `rl_mind.evaluation` | evaluation from time to time, keeping the best actor |
| `rl_mind.nn` | network helpers |
| `rl_mind.rendering`, `rl_mind.notebook` | images of an episode, and a player for them |
| `rl_mind.envs` | environments of our own, registered by importing it |
"""

from importlib.util import find_spec

for _needed in ("torch", "gymnasium"):
    if find_spec(_needed) is None:
        raise ImportError(f"rl_mind needs {_needed}: pip install 'qenvs[torch]'")

"""What `evaluate` takes for a policy, in one of two forms: traced by JAX, or batched in Python."""

import dataclasses
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks
from qenvs.controllers.policy import Policy, load_policy
from qenvs.envs.base import Environment
from qenvs.pulses import Pulse


@dataclasses.dataclass(frozen=True)
class Batched:
    """A policy in Python that takes many observations at once.

    It is called once per step with the observations of all episodes under way; whatever it draws
    at random is its own business, and so is then the repeatability of the evaluation.

    Args:
        act: observations, float32 (B, observation_dim), -> actions (B, action_dim).
        library: what `act` takes, NumPy arrays or PyTorch tensors (on the CPU, no gradients).
        normalize_actions: the actions are in [-1, 1] and get multiplied by `env.action_bound`, as
            in the Gymnasium adapters.

    Raises:
        ValueError: another library.
        TypeError: `act` that cannot be called.
    """

    act: Callable[[Any], Any]
    library: Literal["numpy", "torch"] = "numpy"
    normalize_actions: bool = False

    def __post_init__(self) -> None:
        _checks.choice("library", self.library, ("numpy", "torch"))
        if not callable(self.act):
            raise TypeError(f"`act` must be a function of observations, got {self.act!r}")

    def actions(self, observation: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """The actions in the units of the environment, checked, shape (B, action_dim)."""
        given = self._from_torch(observation) if self.library == "torch" else self.act(observation)
        actions = np.asarray(given, np.float32)
        _checks.shape("the actions of the policy", actions, (len(observation), bound.size))
        _checks.finite("the actions of the policy", actions)
        return actions * bound if self.normalize_actions else actions

    def _from_torch(self, observation: np.ndarray) -> Any:
        import torch

        with torch.no_grad():
            return torch.as_tensor(self.act(torch.from_numpy(observation))).cpu().numpy()


UNMARKED = (
    "A policy is traced by JAX; one of NumPy or PyTorch must say so: "
    "qenvs.robust.Batched(policy, 'numpy' or 'torch')"
)


class OpenLoop(eqx.Module):
    """A pulse: the action of a step whatever is observed.

    Attributes:
        actions: shape (horizon, action_dim).
    """

    actions: Array

    def __call__(self, observation: Array, key: Array, step: Array) -> Array:
        return self.actions[step]


class ClosedLoop(eqx.Module):
    """A function of the observation, and of a key where it draws at random.

    Attributes:
        policy: the function.
        takes_key: whether it needs the key.
        action_dim: number of controls.
    """

    policy: Callable[..., Any]
    takes_key: bool = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)

    def __call__(self, observation: Array, key: Array, step: Array) -> Array:
        given = (observation, key) if self.takes_key else (observation,)
        try:
            action = jnp.asarray(self.policy(*given))
        except Exception as error:
            error.add_note(UNMARKED)
            raise
        return _checks.shape("the action of the policy", action, (self.action_dim,))


Traced = OpenLoop | ClosedLoop
"""Called as policy(observation, key, step) while an episode is traced."""


def as_policy(env: Environment, policy: Any) -> Batched | Traced:
    """A pulse, a function, a network or a file, as what an episode can ask for its actions."""
    if isinstance(policy, (str, Path)):
        policy = _loaded(Path(policy), env)
    if _is_torch_module(policy):
        return Batched(policy, "torch")
    if isinstance(policy, Batched):
        return policy
    if isinstance(policy, Pulse):
        return _open_loop(env, policy.fitting(env))
    if callable(policy):
        return ClosedLoop(policy, _takes_key(policy), env.action_dim)
    if isinstance(policy, (jax.Array, np.ndarray, list, tuple)):
        return _open_loop(env, policy)
    raise TypeError(
        "`policy` must be a pulse (horizon, action_dim), a function of the observation, a Batched "
        f"policy or the folder of a training run, got {type(policy).__name__}"
    )


def _open_loop(env: Environment, actions: Any) -> OpenLoop:
    actions = _checks.finite("policy", jnp.asarray(actions, jnp.result_type(float)))
    return OpenLoop(_checks.shape("policy", actions, (env.horizon, env.action_dim)))


def _takes_key(policy: Callable[..., Any]) -> bool:
    """Whether a policy needs a second argument."""
    needed = [
        parameter
        for parameter in inspect.signature(policy).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) > 2:
        names = ", ".join(parameter.name for parameter in needed)
        raise TypeError(f"`policy` must take (observation) or (observation, key), not ({names})")
    return len(needed) == 2


def _loaded(path: Path, env: Environment) -> Policy:
    """The policy of a training run; ValueError unless it fits the environment."""
    policy, _ = load_policy(path / "policy.eqx" if path.is_dir() else path)
    sizes = policy.network.sizes
    if (sizes[0], sizes[-1]) != (env.observation_dim, env.action_dim):
        raise ValueError(
            f"{path} holds a policy from {sizes[0]} observed numbers to {sizes[-1]} controls, but "
            f"this environment has {env.observation_dim} and {env.action_dim}; build it as in "
            "training (task, `observation`, `observables`)"
        )
    return policy


def _is_torch_module(policy: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(policy, torch.nn.Module)

"""`evaluate`: many episodes, chunk by chunk."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks, keys
from qenvs.controllers.episodes import Progress, advance, begin, score
from qenvs.envs.base import Environment, TimeStep
from qenvs.robust.policies import Batched, Traced, as_policy
from qenvs.robust.statistics import Statistics
from qenvs.wrappers.core import WrappedState, Wrapper

CHUNK = 256
"""Episodes that are played at a time."""


@dataclasses.dataclass(frozen=True, eq=False)
class Evaluation:
    """What `evaluate` found.

    Attributes:
        quantity: name of the physical quantity that the task is about ("fidelity", "energy",
            "ergotropy"); "return" for an environment that names none.
        metric: this quantity at the end of each episode, exact whatever the policy could see.
        returns: the sum of the rewards of each episode: final minus initial value.
        clip_fraction: mean share of clipped control channels of each episode, shape (n,); None
            without `ControlErrors`. Report it: clipped noise is no longer the noise you asked for.
    """

    quantity: str
    metric: Statistics
    returns: Statistics
    clip_fraction: np.ndarray | None


def evaluate(
    env: Environment,
    policy: Any,
    key: Array,
    n: int,
    *,
    chunk_size: int = CHUNK,
    progress: Callable[[int, float], Any] | None = None,
) -> Evaluation:
    """Play n episodes and sum up how they end.

    Args:
        env: any environment, wrapped or not. Without a wrapper that draws something all episodes
            are the same.
        policy: one of

            - a pulse, played open loop as what the controller commands: an array
              (horizon, action_dim), or a `qenvs.pulses.Pulse` with the interval `env.dt`;
            - a function of JAX, observation -> action, or (observation, key) -> action for a
              policy that draws at random: one observation (observation_dim,), traced;
            - the folder of `qenvs train`, or the policy file in it;
            - a function in Python over NumPy or PyTorch batches, marked as `Batched`; a bare
              `torch.nn.Module` counts as `Batched(module, "torch")`.
        key: PRNG key of the evaluation; episode i has the key `keys.episode_key(key, i)`. The
            episodes are independent draws, also of parameters that drift in the episodes of a run.
        n: number of episodes, >= 1.
        chunk_size: episodes that are played at a time, which bounds the memory. It does not change
            which episodes are played, and the numbers in the last bits only; without changing it
            the first m of n episodes are the same bits for every n.
        progress: called as progress(episodes done, mean so far) after each chunk.

    Returns:
        The statistics of the physical quantity at the end and, apart, of the return.

    Raises:
        TypeError: a policy of none of these kinds, or one that JAX cannot trace.
        ValueError: a pulse, an action or a network of another shape than the environment's; an
            episode that ends in NaN; `n` or `chunk_size` below 1.

    Reference: Rockafellar, Uryasev, J. Risk 2, 21 (2000) (CVaR); Efron, Tibshirani, An
    Introduction to the Bootstrap (1993).

    >>> import jax, qenvs
    >>> from qenvs.distributions import Normal
    >>> from qenvs.wrappers import ParameterRandomization
    >>> task = qenvs.make("qubit/StateTransfer-v0")
    >>> env = ParameterRandomization(task, {"detuning": Normal(0.2)})
    >>> pulse = qenvs.registry["qubit/StateTransfer-v0"].reference_pulse(task)
    >>> found = qenvs.robust.evaluate(env, pulse, jax.random.PRNGKey(0), 500)
    >>> found.quantity, found.metric.minimum < found.metric.cvar < found.metric.mean
    ('fidelity', True)
    """
    n = _checks.integer("n", n, minimum=1)
    chunk_size = _checks.integer("chunk_size", chunk_size, minimum=1)
    play = _player(env, as_policy(env, policy))
    parts: list[list[np.ndarray]] = []
    for start in range(0, n, chunk_size):
        numbers = np.arange(start, start + chunk_size, dtype=np.uint32)
        parts.append([np.asarray(part)[: n - start] for part in play(key, numbers)])
        if progress is not None:
            done = min(start + chunk_size, n)
            progress(done, float(np.concatenate([part[0] for part in parts]).mean()))
    scores, returns, *clipped = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    _check_numbers(scores)
    return Evaluation(
        getattr(env, "quantity_name", "return"),
        Statistics(scores),
        Statistics(returns),
        clipped[0] if clipped else None,
    )


def _check_numbers(scores: np.ndarray) -> None:
    broken = np.flatnonzero(~np.isfinite(scores))
    if broken.size:
        raise ValueError(
            f"every episode must end in a number, but {broken.size} of {scores.size} (first: "
            f"episode {broken[0]}) end in NaN or infinity; look at the policy's actions there"
        )


Player = Callable[[Array, np.ndarray], tuple[Any, ...]]
"""Key and episode numbers -> final quantities, returns and, if there are errors, clip fractions."""


class _Tally(Wrapper):
    """Keeps what an episode sums up to in its state."""

    def reset(self, key: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        data = {"return": jnp.zeros_like(timestep.reward)}
        if "clip_fraction" in timestep.info:
            data["clipped"] = jnp.zeros((), jnp.float32)
        return WrappedState.begun(inner, key, data), timestep

    def step(self, state: WrappedState, action: Array) -> tuple[WrappedState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action)
        data = {"return": state.data["return"] + timestep.reward}
        if "clipped" in state.data:
            data["clipped"] = state.data["clipped"] + timestep.info["clip_fraction"]
        return state.moved(inner, data), timestep


def _outcome(state: WrappedState) -> tuple[Array, ...]:
    """Final quantity, return and, if there are control errors, the mean clip fraction."""
    total = state.data["return"]
    clipped = (state.data["clipped"] / state.step,) if "clipped" in state.data else ()
    return score(state, total), total, *clipped


def _player(env: Environment, policy: Batched | Traced) -> Player:
    if isinstance(policy, Batched):
        return functools.partial(_play_batched, env, policy)
    return functools.partial(_compiled_episodes(env), policy)


@functools.lru_cache(maxsize=8)
def _compiled_episodes(env: Environment) -> Callable[..., Any]:
    """Policy, run key, episode numbers -> outcomes; compiled once per kind of policy."""
    tallied = _Tally(env)

    def episode(policy: Traced, run_key: Array, number: Array) -> tuple[Array, ...]:
        key = keys.episode_key(run_key, number)
        # not a leaf of the environment's key tree, whose first branches are small numbers
        own_key = jax.random.fold_in(key, keys.name_tag("policy"))

        def step(progress: Progress, k: Array) -> tuple[Progress, None]:
            action = policy(progress.observation, jax.random.fold_in(own_key, k), k)
            return advance(tallied, progress, action)[0], None

        end, _ = jax.lax.scan(step, begin(tallied, key), jnp.arange(env.horizon))
        return _outcome(end.state)

    def episodes(policy: Traced, run_key: Array, numbers: Array) -> tuple[Array, ...]:
        return jax.vmap(lambda number: episode(policy, run_key, number))(numbers)

    return eqx.filter_jit(episodes)


def _play_batched(
    env: Environment, policy: Batched, run_key: Array, numbers: np.ndarray
) -> tuple[Any, ...]:
    start, step, outcome = _compiled_steps(env)
    bound = np.broadcast_to(np.asarray(env.action_bound, np.float32), (env.action_dim,))
    progress = start(run_key, numbers)
    for _ in range(env.horizon):
        actions = policy.actions(np.array(progress.observation), bound)
        progress = step(progress, actions)
    return outcome(progress.state)


@functools.lru_cache(maxsize=8)
def _compiled_steps(env: Environment) -> tuple[Callable[..., Any], ...]:
    """Beginning, step and outcome of many episodes."""
    tallied = _Tally(env)

    def start(run_key: Array, number: Array) -> Progress:
        return begin(tallied, keys.episode_key(run_key, number))

    def step(progress: Progress, action: Array) -> Progress:
        return advance(tallied, progress, action)[0]

    many = (jax.vmap(start, (None, 0)), jax.vmap(step), jax.vmap(_outcome))
    return tuple(map(jax.jit, many))

"""Training runs: many seeds at once, progress, checkpoints that survive a kill."""

import dataclasses
import functools
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks, keys
from qenvs._version import __version__
from qenvs.controllers import storage
from qenvs.controllers.episodes import play
from qenvs.controllers.policy import Policy
from qenvs.controllers.ppo import Learner, PPOConfig, initialise, policy_of, update
from qenvs.envs.base import Environment

KIND = "checkpoint"
CHUNK_SECONDS = 1.0
"""Time between checkpoints and calls of `progress`: what a kill can cost."""
EVALUATION_EPISODES = 32


@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What a training run found.

    Attributes:
        policies: one deterministic policy per seed.
        scores: mean final task quantity of each policy over fresh episodes, shape (seeds,).
        curves: mean final task quantity of the episodes of each update, exploration included,
            shape (seeds, num_updates).
        seeds: the seeds.
    """

    policies: list[Policy]
    scores: np.ndarray
    curves: np.ndarray
    seeds: tuple[int, ...]

    @property
    def best(self) -> Policy:
        """The policy of the highest score."""
        return self.policies[int(np.argmax(self.scores))]


def train(
    env: Environment,
    config: PPOConfig | None = None,
    seeds: Sequence[int] = (0,),
    *,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: Callable[[int, float], Any] | None = None,
) -> TrainResult:
    """Train one policy per seed by PPO, all seeds in one compiled program.

    A pure function of `env`, `config` and `seeds`: the same numbers on the same machine, with the
    same versions. The seeds are independent draws, but not independent of their number to the
    last bit: XLA rounds a batch of 8 otherwise than a batch of 1. A run that is killed and resumed
    from its checkpoint ends with the same bits as an unbroken one.

    Args:
        env: any environment, wrapped or not.
        config: hyperparameters.
        seeds: one policy for each, integers in [0, 2^32).
        checkpoint: file to keep the run in, renewed about once a second.
        resume: go on from the checkpoint if there is one; otherwise it is overwritten.
        progress: called as progress(updates done, mean score of the last one) about as often.

    Raises:
        ValueError: no or bad seeds, or a checkpoint of another run: other environment, config,
            seeds, precision or versions.
    """
    config = PPOConfig() if config is None else config
    seeds = tuple(_checks.integer("seeds", seed, minimum=0) for seed in seeds)
    if not seeds or max(seeds) >= 2**32:
        raise ValueError(f"`seeds` must be integers in [0, 2^32), at least one, got {seeds}")
    header = _header(env, config, seeds)
    run = _start(env, config, np.array(seeds, np.uint32))
    if resume and checkpoint is not None and Path(checkpoint).exists():
        run = _resumed(checkpoint, header, run)
    done, chunk = int(run.done), 1
    while done < config.num_updates:
        began = time.perf_counter()
        stop = jnp.asarray(min(done + chunk, config.num_updates), jnp.int32)
        run = _advance((env, config), run, stop)
        done = int(run.done)
        if checkpoint is not None:
            storage.write(checkpoint, header, run)
        if progress is not None:
            progress(done, float(run.curves[:, done - 1].mean()))
        chunk = max(1, round(chunk * CHUNK_SECONDS / (time.perf_counter() - began)))
    policies, scores = _evaluate(env, run.learners)
    each = [jax.tree.map(lambda leaf, k=k: leaf[k], policies) for k in range(len(seeds))]
    return TrainResult(each, np.asarray(scores), np.asarray(run.curves), seeds)


class _Run(eqx.Module):
    """The state of a run between updates: all that a checkpoint holds."""

    learners: Learner
    curves: Array
    done: Array


@eqx.filter_jit
def _start(env: Environment, config: PPOConfig, seeds: np.ndarray) -> _Run:
    start = functools.partial(initialise, env, config)
    learners = jax.vmap(lambda seed: start(jax.random.PRNGKey(seed)))(seeds)
    curves = jnp.zeros((seeds.size, config.num_updates), jnp.float32)
    return _Run(learners, curves, jnp.zeros((), jnp.int32))


@eqx.filter_jit(donate="all-except-first")
def _advance(task: tuple[Environment, PPOConfig], run: _Run, stop: Array) -> _Run:
    """Update until `stop` updates are done: one program however many that are, so that the bits
    of the result do not depend on where a run was interrupted."""
    one = functools.partial(update, *task)

    def body(run: _Run) -> _Run:
        learners, scores = jax.vmap(one)(run.learners)
        curves = run.curves.at[:, run.done].set(scores.astype(jnp.float32))
        return _Run(learners, curves, run.done + 1)

    return jax.lax.while_loop(lambda run: run.done < stop, body, run)


@eqx.filter_jit
def _evaluate(env: Environment, learners: Learner) -> tuple[Policy, Array]:
    """The policies, and the mean score of each over the same fresh episodes."""
    run_key = jax.random.fold_in(jax.random.PRNGKey(0), keys.name_tag("evaluation"))
    episodes = jax.random.split(run_key, EVALUATION_EPISODES)

    def mean_score(policy: Policy) -> Array:
        return jax.vmap(lambda key: play(env, policy, key).score)(episodes).mean()

    policies = jax.vmap(functools.partial(policy_of, env))(learners)
    return policies, jax.vmap(mean_score)(policies)


def _header(env: Environment, config: PPOConfig, seeds: Sequence[int]) -> dict[str, Any]:
    """What a checkpoint must agree in with the run that goes on from it."""
    return {
        "kind": KIND,
        "qenvs": __version__,
        "jax": jax.__version__,
        "precision": str(jnp.result_type(float)),
        "environment": _fingerprint(env),
        "seeds": list(seeds),
        **dataclasses.asdict(config),
    }


def _fingerprint(env: Environment) -> str:
    """Digest of the structure and the numbers of an environment, the same in every process."""
    numbers, rest = eqx.partition(env, eqx.is_array_like)
    text = f"{rest} {jax.tree.structure(env)}"
    digest = hashlib.sha256(re.sub(r"0x[0-9a-f]+", "", text).encode())  # without addresses
    for leaf in jax.tree.leaves(numbers):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def _resumed(checkpoint: str | Path, header: dict[str, Any], like: _Run) -> _Run:
    found = storage.read_header(checkpoint, KIND)
    other = [
        f"{name} {found.get(name)!r} there and {header.get(name)!r} here"
        for name in {**header, **found}
        if found.get(name) != header.get(name)
    ]
    if other:
        raise ValueError(
            f"{checkpoint} must come from the same run, but has {', '.join(other)}; "
            "start without resume, or with another checkpoint file"
        )
    return storage.read_tree(checkpoint, like)

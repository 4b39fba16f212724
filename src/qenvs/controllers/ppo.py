"""Proximal policy optimisation as pure functions: `initialise`, then `update` again and again.

An update plays whole episodes with a Gaussian policy a = mean(o) + std * noise, in units of the
action bound (the environment clips; the log-probability is that of the unclipped sample), and
climbs the clipped objective

    E[min(r A, clip(r, 1 - e, 1 + e) A)],    r = pi(a|o) / pi_old(a|o)

with advantages A of generalised advantage estimation. Only a true end of the episode stops the
bootstrap; an environment that goes on beyond its horizon is cut there and bootstraps from its last
observation. References: Schulman et al., arXiv:1707.06347 and arXiv:1506.02438.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from qenvs import _checks
from qenvs.controllers.episodes import Progress, advance, begin, score
from qenvs.controllers.policy import MLP, Policy, random_mlp
from qenvs.envs.base import Environment


@dataclass(frozen=True)
class PPOConfig:
    """Hyperparameters of PPO; the defaults are tuned on the built-in tasks."""

    num_updates: int = 150
    """Number of updates, >= 1: more is better and slower; also the length of the annealing."""
    num_envs: int = 64
    """Episodes per update, >= 1: more lower the noise of the gradient at proportional cost."""
    epochs: int = 4
    """Passes over the data of an update, >= 1: 3 to 10 (Schulman et al.); many overfit it."""
    num_minibatches: int = 4
    """Gradient steps per pass, a divisor of `num_envs`: 4 to 32 (Schulman et al.)."""
    learning_rate: float = 3e-3
    """Step size of Adam, > 0; falls linearly to 0. 1e-4 to 1e-2: small networks and noiseless
    rewards bear more than the 3e-4 of Schulman et al."""
    discount: float = 1.0
    """Weight of the next reward against this one, in [0, 1]. The return of an episode of fixed
    length needs no discount; 0.99 where episodes are long and rewards dense."""
    gae_lambda: float = 0.95
    """Between one-step (0, biased) and whole-episode (1, noisy) advantages: 0.9 to 1."""
    clip: float = 0.2
    """Change of the probability ratio at which the objective stops to pay, > 0: 0.1 to 0.3."""
    value_coefficient: float = 0.5
    """Weight of the squared error of the value network, >= 0; the networks share no weights."""
    entropy_coefficient: float = 0.0
    """Reward of a wide policy, >= 0: up to 0.01 where the search ends too early."""
    max_grad_norm: float = 0.5
    """Longest gradient step before Adam, > 0 (Andrychowicz et al., arXiv:2006.05990)."""
    initial_std: float = 0.5
    """Exploration at the start in units of the action bound, > 0; learnt from then on."""
    width: int = 64
    """Units of each hidden layer, >= 1."""
    depth: int = 2
    """Hidden layers of the policy and of the value network, >= 0."""

    def __post_init__(self) -> None:
        for name in ("num_updates", "num_envs", "epochs", "num_minibatches", "width"):
            _checks.integer(name, getattr(self, name), minimum=1)
        _checks.integer("depth", self.depth, minimum=0)
        for name in ("learning_rate", "clip", "max_grad_norm", "initial_std"):
            _checks.positive(name, getattr(self, name))
        for name in ("value_coefficient", "entropy_coefficient"):
            _checks.non_negative(name, getattr(self, name))
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"`{name}` must lie in [0, 1], got {getattr(self, name)}")
        if self.num_envs % self.num_minibatches:
            raise ValueError(
                f"`num_minibatches` must divide `num_envs`, got {self.num_minibatches} and "
                f"{self.num_envs}"
            )

    def optimizer(self) -> optax.GradientTransformation:
        """Adam on clipped gradients, its rate falling to 0 over all updates."""
        steps = self.num_updates * self.epochs * self.num_minibatches
        adam = optax.adam(optax.linear_schedule(self.learning_rate, 0.0, steps), eps=1e-5)
        # as one vector: a dozen small arrays take longer to compile and to run
        return optax.flatten(optax.chain(optax.clip_by_global_norm(self.max_grad_norm), adam))


class Networks(eqx.Module):
    """What PPO learns.

    Attributes:
        actor: observation -> mean action in units of the bound.
        critic: observation -> value, shape (1,).
        log_std: logarithm of the standard deviation of each action component.
    """

    actor: MLP
    critic: MLP
    log_std: Array

    def value(self, observation: Array) -> Array:
        """Expected return from here, shape of the batch."""
        return self.critic(observation)[..., 0]

    def log_prob(self, observation: Array, sample: Array) -> Array:
        """Log-density of the (unclipped) sample, shape of the batch."""
        z = (sample - self.actor(observation)) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * z**2 - self.log_std - 0.5 * math.log(2 * math.pi), axis=-1)


class Learner(NamedTuple):
    """Everything that PPO carries from one update to the next."""

    networks: Networks
    optimizer: Any
    key: Array


class Batch(NamedTuple):
    """Transitions to learn from; leading axes are those of `weight`.

    Attributes:
        observation: what the policy saw.
        sample: what it drew, in units of the bound, unclipped.
        log_prob: log-density of the sample under the policy that drew it.
        advantage: how much better than expected the sample turned out.
        target: what the value network should have said.
        weight: 1, or 0 for a step after the end of an episode.
    """

    observation: Array
    sample: Array
    log_prob: Array
    advantage: Array
    target: Array
    weight: Array


def initialise(env: Environment, config: PPOConfig, key: Array) -> Learner:
    """Untrained networks whose mean action is close to 0."""
    actor_key, critic_key, key = jax.random.split(key, 3)
    inside = (env.observation_dim, *[config.width] * config.depth)
    networks: Any = Networks(
        random_mlp(actor_key, (*inside, env.action_dim), last_scale=0.01),
        random_mlp(critic_key, (*inside, 1)),
        jnp.full(env.action_dim, np.log(config.initial_std), jnp.float32),
    )
    return Learner(networks, config.optimizer().init(networks), key)


def policy_of(env: Environment, learner: Learner) -> Policy:
    """The mean action of a learner, in the units of the environment."""
    bound = jnp.broadcast_to(jnp.asarray(env.action_bound, jnp.float32), (env.action_dim,))
    return Policy(learner.networks.actor, bound)


def update(env: Environment, config: PPOConfig, learner: Learner) -> tuple[Learner, Array]:
    """Play `num_envs` episodes and learn from them; jit and vmap (over learners) apply to it.

    Returns:
        The learner afterwards, and the mean score of the episodes (see `episodes.score`).
    """
    keys = jax.random.split(learner.key, 2 + config.epochs + config.num_envs)
    noise_key, epoch_keys = keys[1], keys[2 : 2 + config.epochs]
    batch, scores = collect(env, config, learner.networks, noise_key, keys[2 + config.epochs :])
    batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

    def descend(carry: tuple[Any, Any], rows: Array) -> tuple[tuple[Any, Any], None]:
        networks, state = carry
        gradient: Any = jax.grad(loss)(networks, config, jax.tree.map(lambda x: x[rows], batch))
        change, state = config.optimizer().update(gradient, state)
        return (eqx.apply_updates(networks, change), state), None

    def epoch(carry: tuple[Any, Any], key: Array) -> tuple[tuple[Any, Any], None]:
        order = jax.random.permutation(key, batch.weight.size)
        return jax.lax.scan(descend, carry, order.reshape(config.num_minibatches, -1))

    (networks, state), _ = jax.lax.scan(epoch, (learner.networks, learner.optimizer), epoch_keys)
    return Learner(networks, state, keys[0]), scores.mean()


def collect(
    env: Environment, config: PPOConfig, networks: Networks, noise_key: Array, keys: Array
) -> tuple[Batch, Array]:
    """Play one episode per key, all in step; a batch (horizon, episodes) and the scores."""
    shape = (env.horizon, keys.shape[0], env.action_dim)
    noise = jax.random.normal(noise_key, shape, jnp.float32)
    bound = jnp.asarray(env.action_bound, jnp.float32)

    def step(now: Progress, noise: Array) -> tuple[Progress, Any]:
        sample = networks.actor(now.observation) + jnp.exp(networks.log_std) * noise
        after, reward, ended = jax.vmap(partial(advance, env))(now, sample * bound)
        return after, (now.observation, sample, reward.astype(jnp.float32), ended, ~now.done)

    start = jax.vmap(partial(begin, env))(keys)
    end, (observation, sample, reward, ended, alive) = jax.lax.scan(step, start, noise)
    value = networks.value(jnp.concatenate([observation, end.observation[None]]))
    advantage = gae(reward, value, ended, config.discount, config.gae_lambda)
    log_prob, target = networks.log_prob(observation, sample), advantage + value[:-1]
    batch = Batch(observation, sample, log_prob, advantage, target, alive.astype(jnp.float32))
    return batch, jax.vmap(score)(end.state, reward.sum(axis=0))


def gae(
    reward: Array, value: Array, terminated: Array, discount: float, gae_lambda: float
) -> Array:
    """Generalised advantage estimates A_t = d_t + g l (1 - end_t) A_{t+1}.

    d_t = r_t + g (1 - end_t) V_{t+1} - V_t: only a true end stops the bootstrap.

    Args:
        reward: shape (T, ...).
        value: of every observation and the one after the last step, shape (T + 1, ...).
        terminated: whether the step truly ended the episode, shape (T, ...).
        discount: g. gae_lambda: l.
    """
    go_on = discount * (1.0 - terminated.astype(value.dtype))
    error = reward + go_on * value[1:] - value[:-1]

    def backwards(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        error, go_on = now
        advantage = error + gae_lambda * go_on * after
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(value[0]), (error, go_on), reverse=True)[1]


def loss(networks: Networks, config: PPOConfig, batch: Batch) -> Array:
    """Minus the clipped objective, plus the error of the value, minus the entropy."""
    total = jnp.maximum(batch.weight.sum(), 1.0)

    def mean(x: Array) -> Array:
        return jnp.sum(batch.weight * x) / total

    centred = batch.advantage - mean(batch.advantage)
    advantage = centred / (jnp.sqrt(mean(centred**2)) + 1e-8)
    ratio = jnp.exp(networks.log_prob(batch.observation, batch.sample) - batch.log_prob)
    bounded = jnp.clip(ratio, 1 - config.clip, 1 + config.clip)
    gain = mean(jnp.minimum(ratio * advantage, bounded * advantage))
    error = mean((networks.value(batch.observation) - batch.target) ** 2)
    entropy = networks.log_std.sum()
    return -gain + config.value_coefficient * error - config.entropy_coefficient * entropy

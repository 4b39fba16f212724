"""The contract of an environment as a check that can fail: `check_env`.

Every built-in task and wrapper passes it; run it on your own environment before you train on it.
Each clause looks at the same short play and says what broke, or None.
"""

import functools
import math
import operator
from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks
from qenvs.envs.base import Environment, TimeStep

LANES = 3


class ContractError(ValueError):
    """An environment breaks the contract.

    Attributes:
        clause: name of the broken clause, a key of `CLAUSES`.
    """

    def __init__(self, clause: str, problem: str) -> None:
        super().__init__(f"{clause}: {problem}")
        self.clause = clause


def check_env(env: Environment, key: Array | None = None, *, skip: Collection[str] = ()) -> None:
    """Check that an environment keeps the contract that trainers and adapters rely on.

    Every clause of `CLAUSES` is checked on one episode of random actions. `AutoReset` is not an
    environment in this sense (its `reset` takes a run key and its episodes never stop), so check
    what it wraps.

    Args:
        env: functional environment, wrapped or not.
        key: raw or typed key of the episode; None is `PRNGKey(0)`.
        skip: clauses to leave out: "gradient" for dynamics without derivatives, "clip" for
            `ControlErrors`, which act on the command before the bound does.

    Raises:
        ContractError: naming the first clause that is broken, or "play" if no episode could be
            played with the compiled `reset` and `step`.
        ValueError: an unknown name in `skip`.

    >>> import qenvs
    >>> from qenvs.testing import check_env
    >>> check_env(qenvs.make("qubit/StateTransfer-v0", horizon=3))
    """
    for name in skip:
        _checks.choice("skip", name, CLAUSES)
    play = _run("play", Play, env, jax.random.PRNGKey(0) if key is None else key)
    for name, clause in CLAUSES.items():
        problem = None if name in skip else _run(name, clause, play)
        if problem is not None:
            raise ContractError(name, problem)


def _run(clause: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:
        raise ContractError(clause, f"{type(error).__name__}: {error}") from error


class Play:
    """One episode of random actions, stepped by the compiled environment.

    Attributes:
        env, key: what was played.
        actions: (horizon, action_dim), some of them beyond the bound.
        states, timesteps: horizon + 1 of each, the first from `reset`.
        reset, step: the compiled functions.
    """

    def __init__(self, env: Environment, key: Array) -> None:
        self.env, self.key = env, key
        shape = (env.horizon, env.action_dim)
        draws = np.random.default_rng(0).uniform(-1.2, 1.2, shape)
        self.actions = (draws * np.asarray(env.action_bound)).astype(np.float32)
        self.reset, self.step = jax.jit(env.reset), jax.jit(env.step)
        state, timestep = self.reset(key)
        self.states, self.timesteps = [state], [timestep]
        for action in self.actions:
            state, timestep = self.step(state, action)
            self.states.append(state)
            self.timesteps.append(timestep)

    @functools.cached_property
    def lanes(self) -> tuple[list[Any], Any, Callable[..., Any]]:
        """The single openings of some keys, the same in a batch, and the batched step."""
        lane_keys = jax.random.split(self.key, LANES)
        batch = jax.jit(jax.vmap(self.env.reset))(lane_keys)
        return list(map(self.reset, lane_keys)), batch, jax.jit(jax.vmap(self.env.step))

    @property
    def lane_actions(self) -> np.ndarray:
        """One action per lane, shape (LANES, action_dim)."""
        return np.resize(self.actions, (LANES, self.env.action_dim))

    @property
    def rewards(self) -> np.ndarray:
        """Rewards of the steps, shape (horizon,)."""
        return np.array([timestep.reward for timestep in self.timesteps[1:]])


def _attributes(play: Play) -> str | None:
    env = play.env
    for name in ("horizon", "action_dim", "observation_dim"):
        if operator.index(getattr(env, name)) < 1:
            return f"`{name}` must be >= 1, got {getattr(env, name)}"
    bound = np.asarray(env.action_bound)
    if bound.shape not in ((), (env.action_dim,)) or not (bound > 0).all():
        return f"`action_bound` must be one positive number or one per control, got {bound}"
    if not np.isclose(env.duration, env.horizon * env.dt):
        return f"`duration` must be horizon * dt = {env.horizon * env.dt}, got {env.duration}"
    return None


def _identity(play: Play) -> str | None:
    env = play.env
    leaves, treedef = jax.tree.flatten(env)
    if hash(env) != hash(env) or env != env:
        return "an environment must equal itself and have a constant hash"
    if type(jax.tree.unflatten(treedef, leaves)) is not type(env):
        return "an environment must be a pytree of its numbers, so that `jit` takes it as argument"
    return None


def _timestep(play: Play) -> str | None:
    first, others = play.timesteps[0], play.timesteps[1:]
    if not isinstance(first, TimeStep):
        return f"`reset` must return (state, TimeStep), got {type(first).__name__}"
    expected = [
        ("observation", jnp.float32, (play.env.observation_dim,)),
        ("reward", jnp.result_type(float), ()),
        ("done", jnp.bool_, ()),
    ]
    for name, dtype, shape in expected:
        leaf = getattr(first, name)
        if leaf.dtype != dtype or leaf.shape != shape:
            wanted = f"{jnp.dtype(dtype)} of shape {shape}"
            return f"`{name}` must be {wanted}, got {leaf.dtype} of shape {leaf.shape}"
    if any(_form(other) != _form(first) for other in others):
        return "`step` must return a time step of the same tree, dtypes and shapes as `reset`"
    if any(_form(state) != _form(play.states[0]) for state in play.states):
        return "the state must keep its tree, dtypes and shapes, or `lax.scan` cannot carry it"
    if first.reward != 0 or first.done:
        return f"`reset` must give reward 0 and done False, got {first.reward} and {first.done}"
    return None


def _finite(play: Play) -> str | None:
    for number, timestep in enumerate(play.timesteps):
        for path, leaf in jax.tree_util.tree_leaves_with_path(timestep):
            if not np.isfinite(leaf).all():
                name = jax.tree_util.keystr(path)
                return (
                    f"finite actions must give finite numbers, but {name} of step {number} is not"
                )
    return None


def _deterministic(play: Play) -> str | None:
    again, _ = play.reset(play.key)
    if difference := _difference(again, play.states[0], 0.0):
        return f"`reset` with the same key must give the same bits; {difference}"
    stepped = play.step(play.states[0], play.actions[0])
    if difference := _difference(stepped, (play.states[1], play.timesteps[1]), 0.0):
        return f"`step` from the same state must give the same bits; {difference}"
    typed = jax.random.wrap_key_data(play.key) if play.key.dtype == jnp.uint32 else play.key
    _, opening = jax.jit(play.env.reset)(typed)
    if difference := _difference(opening, play.timesteps[0], 0.0):
        return f"raw and typed keys must start the same episode; {difference}"
    return None


def _clip(play: Play) -> str | None:
    bound = np.broadcast_to(np.asarray(play.env.action_bound, np.float32), play.actions[0].shape)
    for sign in (1, -1):
        beyond, at = (play.step(play.states[0], sign * factor * bound)[1] for factor in (3, 1))
        if difference := _difference(beyond.observation, at.observation, 0.0):
            return f"an action beyond the bound must act like the bound; {difference}"
    return None


def _reward(play: Play) -> str | None:
    values = np.array([state.base.value for state in play.states])
    gains = np.diff(values)
    if difference := _difference(play.rewards, gains):
        return f"the reward must be the gain of `state.base.value` in the step; {difference}"
    return None


def _horizon(play: Play) -> str | None:
    done = [number for number, timestep in enumerate(play.timesteps) if timestep.done]
    if done != [play.env.horizon]:
        return f"`done` must be True on step {play.env.horizon} alone, got it on steps {done}"
    return None


def _info(play: Play) -> str | None:
    state, timestep = play.states[-1], play.timesteps[-1]
    info, diagnostics = jax.jit(play.env.info)(state), jax.jit(play.env.diagnostics)(state)
    if not set(info) <= set(diagnostics):
        return "`diagnostics(state)` must hold whatever `info(state)` holds"
    shared = set(info) & set(timestep.info)
    given, computed = ({name: tree[name] for name in shared} for tree in (timestep.info, info))
    if difference := _difference(given, computed):
        return f"the info of a step must be that of its state; {difference}"
    return None


def _jit(play: Play) -> str | None:
    state, opening = play.env.reset(play.key)
    stepped = play.env.step(state, jnp.asarray(play.actions[0]))
    if difference := _difference((opening, stepped[1]), tuple(play.timesteps[:2])):
        return f"compiled and eager execution must agree; {difference}"
    return None


def _vmap(play: Play) -> str | None:
    singles, (states, timesteps), step = play.lanes
    if difference := _difference(timesteps, _stack([opening for _, opening in singles])):
        return f"`vmap(reset)` must agree with a loop; {difference}"
    _, batched = step(states, play.lane_actions)
    pairs = zip(singles, play.lane_actions, strict=True)
    loop = [play.step(state, action)[1] for (state, _), action in pairs]
    if difference := _difference(batched, _stack(loop)):
        return f"`vmap(step)` must agree with a loop; {difference}"
    return None


def _siblings(play: Play) -> str | None:
    _, (opening, _), step = play.lanes
    states, _ = step(opening, play.lane_actions)
    mixed = jax.tree.map(lambda new, old: jnp.concatenate([new[:1], old[1:]]), opening, states)
    _, alone = step(states, play.lane_actions)
    _, beside = step(mixed, play.lane_actions)
    rest = slice(1, None)
    if difference := _difference(_lanes(beside, rest), _lanes(alone, rest), 0.0):
        return f"a lane that begins again must not change the others; {difference}"
    return None


def _scan(play: Play) -> str | None:
    _, rewards = jax.jit(play.env.rollout)(play.actions, play.key)
    if difference := _difference(rewards, play.rewards):
        return f"`rollout` must give the rewards of a loop over `step`; {difference}"
    return None


def _argument(play: Play) -> str | None:
    @jax.jit
    def advance(env: Environment, state: Any, action: Array) -> TimeStep:
        return env.step(state, action)[1]

    timestep = advance(play.env, play.states[0], play.actions[0])
    if difference := _difference(timestep, play.timesteps[1]):
        return f"an environment given to `jit` as argument must act the same; {difference}"
    return None


def _gradient(play: Play) -> str | None:
    def episode_return(actions: Array) -> Array:
        return jnp.sum(play.env.rollout(actions, play.key)[1])

    gradient = jax.jit(jax.grad(episode_return))
    for actions in (jnp.asarray(play.actions), jnp.zeros_like(play.actions)):
        slopes = np.asarray(gradient(actions))
        if not np.isfinite(slopes).all():
            return "the gradient of the return with respect to the actions must be finite"
    return None


CLAUSES: dict[str, Callable[[Play], str | None]] = {
    "timestep": _timestep,
    "attributes": _attributes,
    "identity": _identity,
    "finite": _finite,
    "horizon": _horizon,
    "reward": _reward,
    "info": _info,
    "clip": _clip,
    "deterministic": _deterministic,
    "jit": _jit,
    "vmap": _vmap,
    "siblings": _siblings,
    "scan": _scan,
    "argument": _argument,
    "gradient": _gradient,
}
"""The clauses, name -> function of a play that says what broke, or None."""


def _form(tree: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, [(jnp.result_type(leaf), jnp.shape(leaf)) for leaf in leaves]


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _lanes(tree: Any, which: slice) -> Any:
    return jax.tree.map(lambda leaf: leaf[which], tree)


def _difference(got: Any, wanted: Any, tolerance: float | None = None) -> str | None:
    """Where two trees differ by more than rounding (or the given tolerance); None if nowhere."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(wanted), strict=True)
    for (path, left), right in pairs:
        if jnp.issubdtype(jnp.result_type(left), jax.dtypes.prng_key):
            left, right = jax.random.key_data(left), jax.random.key_data(right)
        left, right = np.asarray(left), np.asarray(right)
        precision = np.finfo(left.dtype).eps if left.dtype.kind == "f" else 0.0
        allowed = math.sqrt(precision) / 4 if tolerance is None else tolerance
        far = np.abs(left.astype(complex) - right.astype(complex)).max(initial=0.0)
        if not far <= allowed * max(1.0, np.abs(right.astype(complex)).max(initial=0.0)):
            return f"{jax.tree_util.keystr(path) or 'it'} differs by {far:.1e}"
    return None

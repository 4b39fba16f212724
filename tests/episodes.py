"""Playing Gymnasium environments and looking at what they return."""

import jax
import numpy as np

from qenvs import keys


def play(env, actions, **kwargs):
    """What `reset` and then `step` of a single environment return, up to the end of the episode."""
    returned = [env.reset(**kwargs)]
    for action in actions:
        returned.append(env.step(action))
        if returned[-1][2] or returned[-1][3]:
            break
    return returned


def calls(envs, count, seed=0, actions=None):
    """What reset and `count` steps of a vector environment return."""
    shape = (count, *envs.action_space.shape)
    draws = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    given = draws if actions is None else np.broadcast_to(actions, shape)
    return [envs.reset(seed=seed), *(envs.step(action) for action in given)]


def ends(returned):
    """Calls (from 0) on which sub-environment 0 ended."""
    return [k for k, step in enumerate(returned[1:]) if step[2][0] or step[3][0]]


def opening(functional, seed, i):
    """First observation of episode i of a run, from the functional environment."""
    _, timestep = functional.reset(keys.episode_key(jax.random.PRNGKey(seed), i))
    return np.asarray(timestep.observation)


def leaves(tree):
    """The leaves of nested dicts, lists and tuples, in order."""
    if not isinstance(tree, (dict, list, tuple)):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree
    return [leaf for value in values for leaf in leaves(value)]


def assert_same(left, right):
    """Bit for bit, types and the order of infos included."""
    assert type(left) is type(right)
    if isinstance(left, dict):
        assert list(left) == list(right)
    for a, b in zip(leaves(left), leaves(right), strict=True):
        assert type(a) is type(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)

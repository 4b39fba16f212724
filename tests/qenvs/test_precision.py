"""Both precisions in one process: what one leaves behind must not disturb the other."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qenvs
from brute_force import enable_x64

TASKS = {
    "qubit": ("qubit/StateTransfer-v0", {}),
    "open battery": ("battery/TwoLevel-v0", {"gamma1": 0.1, "reward": "ergotropy"}),
    "Dicke": ("battery/Dicke-v0", {"n_cells": 2, "reward": "ergotropy"}),
    "open Dicke": ("battery/Dicke-v0", {"n_cells": 2, "kappa": 0.1}),
    "local Dicke": ("battery/DickeLocal-v0", {"n_cells": 2}),
    "open lambda": ("transfer/LambdaSTIRAP-v0", {"gamma": 0.5}),
    "gate": ("transmon/XGate-v0", {}),
    "open gate": ("transmon/XGate-v0", {"t1_us": 10.0}),
}


def episode(env):
    """The last observation and info of an episode under a constant pulse."""

    def play(actions):
        def advance(state, action):
            state, timestep = env.step(state, action)
            return state, (timestep.observation, timestep.info)

        start = env.reset(jax.random.PRNGKey(0))
        return start[1].info, jax.lax.scan(advance, start[0], actions)[1]

    bound = jnp.broadcast_to(jnp.asarray(env.action_bound), (env.action_dim,))
    return jax.tree.map(np.asarray, jax.jit(play)(jnp.tile(bound / 2, (3, 1)))[1])


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("shared", [False, True], ids=["two environments", "one environment"])
def test_float32_after_float64_and_back(name, shared):
    task, settings = TASKS[name]
    env, found = qenvs.make(task, **settings), []
    for double in (True, False, True):
        with enable_x64() if double else contextlib.nullcontext():
            found.append(episode(env if shared else qenvs.make(task, **settings)))
    for exact, single in zip(*map(jax.tree.leaves, found[:2]), strict=True):
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, exact, atol=1e-5)
    for first, again in zip(*map(jax.tree.leaves, found[::2]), strict=True):
        np.testing.assert_array_equal(first, again)

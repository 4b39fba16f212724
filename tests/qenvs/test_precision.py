"""Both precisions in one process: what one leaves behind must not disturb the other."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qenvs
from brute_force import enable_x64
from qenvs import gates, observables
from qenvs.distributions import Uniform
from qenvs.wrappers import ObservationModel, ParameterRandomization

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


RANDOM = {
    "random lambda": ("transfer/LambdaSTIRAP-v0", {}, "delta_one_photon", 0.05),
    "random gate": ("transmon/XGate-v0", {"t1_us": 10.0}, "detuning_ghz", 1e-4),
    "random Dicke": ("battery/Dicke-v0", {"n_cells": 2, "kappa": 0.1}, "omega_c", 0.01),
}


def rough_products(function, *args):
    """Matrix products of the program that are not in full precision."""
    with jax.default_matmul_precision("default"):  # dynamiqs sets "highest" where it is imported
        text = jax.jit(function).lower(*args).as_text()
    products = [line for line in text.splitlines() if "dot_general" in line]
    return [line for line in products if "HIGHEST" not in line]


def exercised(env, measured):
    """Everything that computes with a state: reset, step, exact values, derivatives."""

    def exercise(key, action):
        state, opening = env.reset(key)

        def outcome(action):
            reached, timestep = env.step(state, action)
            return timestep.reward, (timestep, env.diagnostics(reached))

        return opening, jax.value_and_grad(outcome, has_aux=True)(action)

    if measured:  # "energy" and "p1" of a qubit are one operator
        names = [name for name in env.unwrapped.model.observable_terms() if name != "energy"]
        env = ObservationModel(env, "expectations", shots=10, observables=names)
    return rough_products(exercise, jax.random.PRNGKey(0), jnp.zeros(env.action_dim))


@pytest.mark.parametrize("name", TASKS)
def test_products_do_not_lose_digits_where_hardware_would_round(name):
    """On a CPU the precision asked for changes nothing; on a GPU the default keeps 10 bits."""
    task, kwargs = TASKS[name]
    assert exercised(qenvs.make(task, **kwargs), "gate" not in name) == []


@pytest.mark.parametrize("name", RANDOM)
def test_products_of_a_random_device_do_not_lose_digits(name):
    task, kwargs, parameter, width = RANDOM[name]
    device = {parameter: Uniform(width)}
    env = ParameterRandomization(qenvs.make(task, **kwargs), device)
    assert exercised(env, "gate" not in name) == []


def test_products_of_gates_and_observables_do_not_lose_digits():
    rho, hamiltonian = jnp.eye(4) / 4, jnp.diag(jnp.arange(4.0))

    def judged(rho):
        turned = gates.apply_superop(gates.unitary_to_superop(jnp.eye(4)), rho)
        return observables.passive_state(turned, hamiltonian), observables.ergotropy(
            turned, hamiltonian
        )

    assert rough_products(judged, rho) == []
    assert rough_products(lambda a, b: a @ b, rho, rho) != []

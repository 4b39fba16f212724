"""Warnings where a cavity keeps too few levels: who warns, when, about what, and who is silent."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import qenvs
from qenvs.cli import app
from qenvs.envs import TruncationWarning, truncation
from qenvs.wrappers import GymnasiumEnv, GymnasiumVectorEnv, ObservationModel

DICKE = "battery/Dicke-v0"
SMALL = {"n_cells": 2, "n_photons": 1, "rwa": False, "n_max": 2, "horizon": 4}


@pytest.fixture(scope="module")
def small():
    return qenvs.make(DICKE, **SMALL)


def strong(env, batch=()):
    return np.full((*batch, env.action_dim), env.action_bound, np.float32)


def play(gym_env, action):
    """One episode; the warnings of each call and the infos."""
    caught, infos = [], [gym_env.reset(seed=0)[1]]
    for _ in range(SMALL["horizon"]):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            infos.append(gym_env.step(action)[-1])
        caught += [w for w in found if issubclass(w.category, TruncationWarning)]
    return caught, infos


def test_default_tasks_have_exact_cutoffs():
    for task in qenvs.registry:
        assert truncation.truncations(qenvs.make(task)) == {}, task


def test_populations_are_those_of_the_highest_level(small):
    state, _ = small.reset(jax.random.PRNGKey(0))
    for _ in range(2):
        state, _ = small.step(state, strong(small))
    weights = np.abs(np.asarray(state.array).reshape(-1, SMALL["n_max"] + 1)[:, -1]) ** 2
    seen = truncation.edge_populations(small, state)
    assert seen["top_fock"] == pytest.approx(weights.sum(), abs=1e-6)
    actions = jnp.asarray(np.tile(strong(small), (SMALL["horizon"], 1)))
    largest = truncation.largest_edge_populations(small, actions, jax.random.PRNGKey(0))
    assert largest["top_fock"] >= seen["top_fock"] > 1e-3


@pytest.mark.parametrize("mode", ["state", "expectations", "time"])
def test_the_single_adapter_warns_once_and_shows_the_policy_nothing(small, mode):
    env = ObservationModel(small, mode, observables=["energy"] if mode == "expectations" else None)
    adapter = GymnasiumEnv(env)
    caught, infos = play(adapter, strong(small))
    again, _ = play(adapter, strong(small))
    assert len(caught) == 1 and not again
    text = str(caught[0].message)
    assert "`top_fock`" in text and "raise `n_max` (now 2)" in text and "0.001" in text
    assert caught[0].filename == __file__
    if mode != "state":
        assert all(set(info) == {"shots_used"} for info in infos)


def test_the_vector_adapter_warns_if_one_lane_is_affected(small):
    quiet, loud = np.zeros((2, small.action_dim), np.float32), strong(small, (2,))
    assert not play(GymnasiumVectorEnv(small, 2), quiet)[0]
    loud[0] = 0
    assert len(play(GymnasiumVectorEnv(small, 2), loud)[0]) == 1


def test_enough_levels_are_silent():
    env = qenvs.make(DICKE, **SMALL | {"n_max": 20})
    assert not play(GymnasiumEnv(env), strong(env) / 4)[0]


def test_the_command_line_warns_on_standard_error_only():
    words = ["run", DICKE, "--policy", "random", "--json"]
    words += [w for name, value in SMALL.items() for w in ("--set", f"{name}={value}")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0
    assert "warning: `top_fock`" in result.stderr and "n_max" in result.stderr
    assert "warning" not in result.stdout
    exact = CliRunner().invoke(app, ["run", DICKE, "--policy", "random", "--json"])
    assert exact.exit_code == 0 and exact.stderr == ""

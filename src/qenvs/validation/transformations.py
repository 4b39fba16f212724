"""The same numbers whatever JAX does with a step: compiled, batched, in float32."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from qenvs.validation.cases import EPS32, Case, as_matrices, player
from qenvs.validation.results import Check, Measure

LANES = range(3)


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Of every thorough case."""
    named = {
        "jit = eager": eager,
        "vmap = loop": batched,
        "float32 = float64 to its rounding": single_precision,
    }
    for name, measure in named.items():
        for case in cases.values():
            if case.thorough:
                label = case.label
                yield Check(name, label, "transformations", lambda c=case, f=measure: f(c))


def eager(case: Case) -> Measure:
    """The first step without compilation."""
    state, _ = case.env.reset(jax.random.PRNGKey(0))
    state, timestep = case.env.step(state, jnp.asarray(case.actions[0]))
    errors = [
        np.abs(np.asarray(timestep.info[name]) - case.play.info[name][1]).max()
        for name in case.play.info
    ]
    size = max(1.0, *(np.abs(values).max() for values in case.play.info.values()))
    return Measure(max(errors), size * case.rounding())


def batched(case: Case) -> Measure:
    """A batch of episodes against each of them alone."""
    batch = np.stack([np.roll(case.actions, lane, axis=0) * (1 - 0.1 * lane) for lane in LANES])
    states = jax.jit(jax.vmap(lambda actions: player(case.env)(actions)[2][0]))(jnp.asarray(batch))
    errors = [
        np.abs(as_matrices(np.asarray(found)) - case.replay(actions).states[1:]).max()
        for found, actions in zip(states, batch, strict=True)
    ]
    return Measure(max(errors), case.rounding())


def single_precision(case: Case) -> Measure:
    """The episode in the precision that JAX starts with."""
    found = case.long_states[: case.env.horizon + 1]
    return Measure(np.abs(found - case.play.states).max(), case.rounding(EPS32))

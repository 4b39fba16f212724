"""Convergence: the exact step against refined integrations by dynamiqs, and against itself."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from qenvs.dynamics.integrators import load_dynamiqs
from qenvs.validation.cases import Case, states
from qenvs.validation.results import Check, Measure

INTEGRATED = ("TwoLevel", "LambdaSystem open")
"""A ket and a density matrix; each integrator compiles for five seconds."""


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Other step lengths in every thorough case, integrators on some."""
    for case in cases.values():
        if case.thorough:
            yield Check(
                "three steps of 2 t/3 = two steps of t",
                case.label,
                "convergence",
                lambda c=case: composition(c),
            )
    for label in INTEGRATED:
        if label in cases:
            case = cases[label]
            yield Check(
                "Tsit5 of dynamiqs, refined", label, "convergence", lambda c=case: refined(c)
            )
    if "TwoLevel open" in cases:
        case = cases["TwoLevel open"]
        name = "Euler of dynamiqs, first order"
        yield Check(name, case.label, "convergence", lambda: order(case))


def _short(case: Case, **changes: Any) -> Any:
    return dataclasses.replace(case.env, horizon=1, **changes)


def composition(case: Case) -> Measure:
    """U(2t/3)^3 = U(t)^2 under a constant control.

    Two thirds, since the series is cut into substeps: those of 2 t and of t would be the same.
    """
    env = dataclasses.replace(case.env, horizon=3, dt=case.env.dt * 2 / 3)
    found = states(env, np.tile(case.actions[:1], (3, 1)))[-1]
    return Measure(np.abs(found - case.play.states[2]).max(), case.rounding())


def refined(case: Case) -> Measure:
    """An adaptive solver at relative tolerance 1e-10: its global error is some hundred times it."""
    method = load_dynamiqs().method.Tsit5(rtol=1e-10, atol=1e-12)
    found = states(_short(case, method=method), case.actions[:1])[-1]
    return Measure(np.abs(found - case.play.states[1]).max(), 1e-8)


def order(case: Case) -> Measure:
    """Halving the step of a first-order method halves its distance from the exact step.

    The ratio of the distances is 2 up to the next order of the step, dt ||G||/n = 1 % or less.
    """
    euler, dt = load_dynamiqs().method.Euler, float(case.env.dt)
    coarse, fine = (
        states(_short(case, method=euler(dt / n)), case.actions[:1])[-1] for n in (100, 200)
    )
    exact = case.play.states[1]
    ratio = np.abs(coarse - exact).max() / np.abs(fine - exact).max()
    return Measure(abs(ratio - 2), 0.05, f"ratio {ratio:.4f}")

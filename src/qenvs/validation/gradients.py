"""Gradients of the return against central differences, and finite where eigenvalues coincide."""

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from qenvs.validation.cases import EPS, Case
from qenvs.validation.results import Check, Measure

STEP = EPS ** (1 / 5)
"""Best step of the fourth-order central difference, relative to the scale of the control."""


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Of every thorough case."""
    for case in cases.values():
        if case.thorough:
            label = case.label
            yield Check("gradient of the return", label, "gradients", lambda c=case: differences(c))
            yield Check(
                "gradient at zero control is finite", label, "gradients", lambda c=case: at_zero(c)
            )


def differences(case: Case) -> Measure:
    """Along three random directions: the directional derivative, relative to its size.

    The fourth-order difference (8 (f(h) - f(-h)) - f(2h) + f(-2h)) / (12 h) is off by
    h^4 f^(5)/30 + 1.5 eps/h, both about 1e-12 at h = eps^(1/5) of the bound.
    """
    actions = 0.8 * case.actions  # well inside the bound, where the return is smooth
    exact = np.asarray(case.gradient(jnp.asarray(actions)))
    scale = np.broadcast_to(np.asarray(case.env.action_bound), (case.env.action_dim,))
    errors = []
    for seed in range(3):
        direction = np.random.default_rng(seed).choice([-1.0, 1.0], actions.shape) * scale
        up, down, up2, down2 = (
            case.replay(actions + STEP * k * direction).rewards.sum() for k in (1, -1, 2, -2)
        )
        numeric = (8 * (up - down) - (up2 - down2)) / (12 * STEP)
        errors.append(abs(np.sum(direction * exact) - numeric))
    return Measure(max(errors) / max(np.abs(scale * exact).sum(), 1e-300), 1e-9)


def at_zero(case: Case) -> Measure:
    """Number of entries that are NaN or infinite, where H may be degenerate."""
    found = np.asarray(case.gradient(jnp.zeros_like(jnp.asarray(case.actions))))
    return Measure(int(np.sum(~np.isfinite(found))), 0)

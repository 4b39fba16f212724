"""Checks of a user's model: what must hold for any model, and agreement with a reference."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from qenvs.envs import BatteryCharging, StateTransfer
from qenvs.models.base import Model
from qenvs.models.battery import BatteryModel
from qenvs.observables import as_density_matrix
from qenvs.validation import (
    conservation,
    convergence,
    environments,
    evolution,
    gradients,
    parameters,
    solvers,
    terms,
    thermodynamics,
    transformations,
)
from qenvs.validation.cases import EPS, Case
from qenvs.validation.comparison import comparison
from qenvs.validation.results import Check, Measure

DYNAMIC = (
    evolution.checks,
    solvers.integrated,
    conservation.checks,
    environments.checks,
    gradients.checks,
    transformations.checks,
    convergence.checks,
)
"""Kinds of checks that make sense for every model."""

HORIZON = 6


def model_checks(model: Any, reference: Any = None) -> list[Check]:
    """The checks of a model, and of its agreement with a reference; little is computed yet.

    Raises:
        TypeError: not a model, or a reference that is neither a model nor a function.
    """
    if not isinstance(model, Model):
        raise TypeError(
            f"the model must be a qenvs.models.base.Model, got {type(model).__name__}; "
            "HamiltonianModel.from_operators makes one from matrices"
        )
    from qenvs.validation.suite import in_order

    checks = [*structure(model), *parameters.model_checks(model)]
    if sound(model):
        label = type(model).__name__

        def make(battery: bool = False) -> Any:
            # JAX may keep an array in the precision that met it first: none is shared
            return probe(copy.deepcopy(model), battery)

        cases = {label: Case(label, make, system=own_system)}
        for kind in DYNAMIC:
            checks += kind(cases)
        if has_battery(model):
            charging = {label: Case(label, lambda: make(battery=True), system=own_system)}
            checks += thermodynamics.bounds(charging)
    if reference is not None:
        checks += comparison(model, reference)
    return in_order(checks)


def sound(model: Model) -> bool:
    """Whether the structure allows to evolve anything."""
    return all(check.run().passed for check in structure(model))


def has_battery(model: Model) -> bool:
    """Whether it names something that stores energy."""
    try:
        return isinstance(model, BatteryModel) and model.battery() is not None
    except ValueError:
        return False


def probe(model: Model, battery: bool = False) -> Any:
    """An environment of a few strong steps: ||H dt|| is about 1, as much from the controls."""
    found = terms.terms_of(model)
    drift = np.linalg.norm(found.drift, 2)
    rates = sum(np.linalg.norm(jump, 2) ** 2 for jump in found.jumps or [])
    scale = float(drift + rates) or 1.0
    norms = [float(np.linalg.norm(control, 2)) or 1.0 for control in found.controls]
    bounds = np.array([scale / norm for norm in norms])
    dt = 1.0 / (scale * (1 + len(bounds)))
    if battery:
        return BatteryCharging(model, HORIZON, dt, bounds)
    rng = np.random.default_rng(1)
    ket = rng.normal(size=found.dimension) + 1j * rng.normal(size=found.dimension)
    return StateTransfer(model, HORIZON, dt, bounds, target=ket / np.linalg.norm(ket))


def own_system(model: Model) -> Any:
    """The terms of the model as QuTiP operators: a second solver, not second equations."""
    import qutip

    from qenvs.validation.references import System

    found = terms.terms_of(model)
    start = np.asarray(as_density_matrix(np.asarray(model.initial_state(), complex)))
    return System(
        qutip.Qobj(found.drift),
        [qutip.Qobj(control) for control in found.controls],
        [qutip.Qobj(jump) for jump in found.jumps or []],
        qutip.Qobj(start),
    )


def structure(model: Model) -> Iterator[Check]:
    """What the terms of a model must be."""
    label = type(model).__name__
    named: dict[str, Callable[[Model], Measure]] = {
        "operators are finite matrices of one size": sizes,
        "Hamiltonian terms are Hermitian": hermitian,
        "observables are Hermitian": hermitian_observables,
        "coefficients are real, rates not negative": coefficients,
        "one name per control": names,
        "initial state is a state": start,
        "terms are the same at every call": repeatable,
    }
    for name, measure in named.items():
        yield Check(name, label, "structure", lambda f=measure: f(model))


def _operators(model: Model) -> dict[str, np.ndarray]:
    """Every operator by a name for messages."""
    groups = {
        "drift term": [matrix for _, matrix in model.drift_terms()],
        "control": list(model.control_operators()),
        "jump": [matrix for _, matrix in model.jump_terms()],
    }
    found = {f"{group} {k}": m for group, ms in groups.items() for k, m in enumerate(ms)}
    seen = {f"observable {n}": m for n, (_, m) in model.observable_terms().items()}
    return {name: np.asarray(matrix) for name, matrix in (found | seen).items()}


def sizes(model: Model) -> Measure:
    """Number of operators that are not finite d x d matrices."""
    d = math.prod(model.dims)
    wrong = [
        f"{name} has shape {matrix.shape}" if matrix.shape != (d, d) else f"{name} is not finite"
        for name, matrix in _operators(model).items()
        if matrix.shape != (d, d) or not np.all(np.isfinite(matrix))
    ]
    detail = f"dims {model.dims} make d = {d}; {'; '.join(wrong)}" if wrong else ""
    return Measure(len(wrong), 0, detail)


def _most_skew(operators: dict[str, np.ndarray]) -> Measure:
    """max |A - A'| relative to max |A|: written down, so only a few roundings."""
    errors = {
        name: np.abs(a - a.conj().T).max() / (np.abs(a).max() or 1.0)
        for name, a in operators.items()
    }
    if not errors:
        return Measure(0.0, 0.0)
    worst = max(errors, key=lambda name: errors[name])
    limit = 64 * max(terms.precision(a) for a in operators.values())
    return Measure(errors[worst], limit, worst if errors[worst] > limit else "")


def hermitian(model: Model) -> Measure:
    """Drift terms and control operators."""
    found = _operators(model).items()
    return _most_skew({n: a for n, a in found if n.startswith(("drift", "control"))})


def hermitian_observables(model: Model) -> Measure:
    """What a device could measure."""
    return _most_skew({n: a for n, a in _operators(model).items() if n.startswith("observable")})


def coefficients(model: Model) -> Measure:
    """Number of coefficients that are no finite real number, or negative rates."""
    drift = [np.asarray(weight) for weight, _ in model.drift_terms()]
    rates = [np.asarray(rate) for rate, _ in model.jump_terms()]
    wrong = [
        f"coefficient {value}"
        for value in [*drift, *rates]
        if value.ndim or np.iscomplexobj(value) or not np.isfinite(value)
    ]
    wrong += [f"rate {rate}" for rate in rates if not rate.ndim and rate < 0]
    return Measure(len(wrong), 0, ", ".join(wrong))


def names(model: Model) -> Measure:
    """Difference between the numbers of names, distinct, and of controls."""
    named, controls = len(set(model.control_names)), len(model.control_operators())
    return Measure(abs(named - controls), 0, f"{named} distinct names, {controls} controls")


def start(model: Model) -> Measure:
    """Trace, hermiticity and positivity of the initial state."""
    state = np.asarray(model.initial_state(), complex)
    d = math.prod(model.dims)
    if state.shape not in ((d,), (d, 1), (d, d)):
        return Measure(math.inf, 0, f"shape {state.shape} for d = {d}")
    rho = np.asarray(as_density_matrix(state))
    skew = np.abs(rho - rho.conj().T).max()
    errors = [abs(np.trace(rho) - 1), skew, max(0.0, -np.linalg.eigvalsh(rho)[0])]
    return Measure(max(errors), 64 * EPS * d)


def repeatable(model: Model) -> Measure:
    """Number of operators that differ between two calls: a model must not draw or change them."""
    first, second = _operators(model), _operators(model)
    wrong = [n for n, a in first.items() if not np.array_equal(a, second[n], equal_nan=True)]
    return Measure(len(wrong), 0, ", ".join(wrong))

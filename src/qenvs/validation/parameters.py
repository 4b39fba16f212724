"""The parameter contract: what can be randomised, what is refused, and that nothing is changed."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from qenvs.models.base import Model
from qenvs.validation.cases import EPS, Case
from qenvs.validation.results import Check, Measure

CATEGORY = "parameters"


def checks(cases: dict[str, Case]) -> Iterator[Check]:
    """Of one case per kind of model."""
    seen: set[type] = set()
    for case in cases.values():
        kind = type(case.model)
        if kind not in seen:
            seen.add(kind)
            yield from model_checks(case.model)


def model_checks(model: Model) -> Iterator[Check]:
    """What `parameter_specs`, `with_parameters` and `check_parameters` promise."""
    label = type(model).__name__

    def check(name: str, measure: Callable[[], Measure]) -> Check:
        return Check(name, label, CATEGORY, measure)

    yield check("values lie in their supports", lambda: supports(model))
    yield check("what is no parameter is refused", lambda: refusals(model))
    for name in model.parameter_specs():
        yield check(f"{name}: replaced, the original kept", lambda n=name: replaced(model, n))
        yield check(f"{name}: traced = known", lambda n=name: traced(model, n))


def another(model: Model, name: str) -> float:
    """A value of the parameter that differs from its own."""
    spec, value = model.parameter_specs()[name], float(model.parameter_values()[name])
    step = 3 * spec.w_ref or 0.1 * abs(value) or 0.1
    low, high = spec.support
    return value + step if value + step <= high else max(value - step, low)


def supports(model: Model) -> Measure:
    """Number of specs that are not (text, low <= value <= high, w_ref >= 0)."""
    values, wrong = model.parameter_values(), []
    for name, (unit, (low, high), w_ref) in model.parameter_specs().items():
        value = float(values[name])
        sound = isinstance(unit, str) and low <= value <= high and 0 <= w_ref < math.inf
        wrong += [] if sound else [name]
    if set(values) != set(model.parameter_specs()):
        wrong.append("names of values and specs")
    return Measure(len(wrong), 0, ", ".join(wrong))


def refusals(model: Model) -> Measure:
    """Number of calls that should raise ValueError and did not."""
    wrong = [{"no_such_parameter": 1.0}, *({name: 1.0} for name in model.fixed_parameters())]
    for name, spec in model.parameter_specs().items():
        wrong.append({name: math.nan})
        wrong += [{name: edge + side} for edge, side in _outside(spec.support)]
    accepted = [str(values) for values in wrong if not _refused(model, values)]
    return Measure(len(accepted), 0, f"accepted: {', '.join(accepted)}" if accepted else "")


def _outside(support: tuple[float, float]) -> Iterator[tuple[float, float]]:
    return (
        (edge, side) for edge, side in zip(support, (-1, 1), strict=True) if math.isfinite(edge)
    )


def _refused(model: Model, values: dict[str, float]) -> bool:
    try:
        model.with_parameters(**values)
    except ValueError:
        return True
    return False


def _hamiltonian(model: Model) -> Any:
    """Sum of the drift terms, traceable."""
    terms = [jnp.asarray(weight) * jnp.asarray(matrix) for weight, matrix in model.drift_terms()]
    return sum(terms, jnp.zeros((), complex))


def replaced(model: Model, name: str) -> Measure:
    """The copy has the value and another Hamiltonian; the original and the rest are as before."""
    before = {n: float(v) for n, v in model.parameter_values().items()}
    drift, new = np.asarray(_hamiltonian(model)), another(model, name)
    copy = model.with_parameters(**{name: new})
    found = {n: float(v) for n, v in copy.parameter_values().items()}
    errors = [abs(found[n] - (new if n == name else before[n])) for n in before]
    errors += [abs(float(v) - before[n]) for n, v in model.parameter_values().items()]
    errors.append(float(np.abs(np.asarray(_hamiltonian(model)) - drift).max()))
    moved = np.abs(np.asarray(_hamiltonian(copy)) - drift).max()
    if not moved and not _changes_jumps(model, copy):
        return Measure(1.0, 0.0, "the parameter changes nothing")
    return Measure(max(errors), EPS * max(abs(new), 1.0))


def _changes_jumps(model: Model, copy: Model) -> bool:
    pairs = zip(model.jump_terms(), copy.jump_terms(), strict=True)
    return any(float(first) != float(second) for (first, _), (second, _) in pairs)


def traced(model: Model, name: str) -> Measure:
    """The Hamiltonian under jit and vmap, the parameter traced, against known numbers."""
    values = np.array([another(model, name), float(model.parameter_values()[name])])

    def drift(value: Any) -> Any:
        return _hamiltonian(model.with_parameters(**{name: value}))

    found = np.asarray(jax.jit(jax.vmap(drift))(jnp.asarray(values)))
    expected = np.stack([np.asarray(drift(float(value))) for value in values])
    size = max(1.0, float(np.abs(expected).max()))
    # each entry is a sum of a few products
    return Measure(float(np.abs(found - expected).max()), 8 * EPS * size)

"""Agreement of a model with a reference, term by term."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from qenvs.models.base import Model
from qenvs.observables import as_density_matrix
from qenvs.validation import diagnosis
from qenvs.validation.diagnosis import distance
from qenvs.validation.results import Check, Measure
from qenvs.validation.terms import (
    Terms,
    dissipator,
    matrix_of,
    probes,
    terms_of,
    terms_of_hamiltonian,
)

CATEGORY = "reference"


def comparison(model: Model, reference: Any) -> Iterator[Check]:
    """The checks that a model agrees with a reference.

    Args:
        model: whose terms are looked at.
        reference: a `Model`, or a function of the control amplitudes (n,) that gives H.

    Raises:
        TypeError: a reference of another kind.
    """
    label = type(model).__name__

    def check(name: str, measure: Callable[[], Measure]) -> Check:
        return Check(name, label, CATEGORY, measure)

    ours, theirs = both_terms(model, reference)
    yield check("size", lambda: same_size(ours, theirs))
    if same_size(ours, theirs).error:
        return  # nothing else can be compared
    yield check("drift", lambda: same_drift(ours, theirs))
    for k, name in enumerate(ours.names):
        yield check(f"control {k} ({name})", lambda k=k: same_control(ours, theirs, k))
    yield check("equation of motion at random controls", lambda: same_motion(ours, theirs))
    if not isinstance(reference, Model):
        yield check("reference is affine in the controls", lambda: affine(reference, theirs))
        return
    for k in range(len(ours.jumps or [])):
        yield check(f"jump {k}", lambda k=k: same_jump(ours, theirs, k))
    yield check("every jump of the reference", lambda: no_jump_missing(ours, theirs))
    yield check("initial state", lambda: same_start(model, reference))
    for name in set(model.parameter_specs()) & set(reference.parameter_specs()):
        yield check(f"drift with another {name}", lambda n=name: moved(model, reference, n))


def both_terms(model: Model, reference: Any) -> tuple[Terms, Terms]:
    """Terms of both; jump operators that are off in both are taken at rate 1."""
    if isinstance(reference, Model):
        dormant = _dormant(model, reference)
        return terms_of(model, dormant), terms_of(reference, dormant)
    if not callable(reference):
        raise TypeError(
            "the reference must be a qenvs.models.base.Model or a function of the control "
            f"amplitudes that gives the Hamiltonian, got {type(reference).__name__}"
        )
    ours = terms_of(model)
    return ours, terms_of_hamiltonian(reference, len(ours.controls), ours.names)


def _dormant(model: Model, reference: Model) -> list[int]:
    first, second = ([float(rate) for rate, _ in m.jump_terms()] for m in (model, reference))
    if len(first) != len(second):
        return []
    return [k for k, rates in enumerate(zip(first, second, strict=True)) if not any(rates)]


def tolerance(ours: Terms, theirs: Terms) -> float:
    """Terms are written down, not computed: a few roundings of the coarser precision."""
    return 64 * max(ours.eps, theirs.eps)


def same_size(ours: Terms, theirs: Terms) -> Measure:
    """Equal dimensions and number of controls: 0, else the number of differences."""
    sizes = {
        "the dimension": (ours.dimension, theirs.dimension),
        "the number of controls": (len(ours.controls), len(theirs.controls)),
    }
    wrong = [f"{n} is {a}, the reference has {b}" for n, (a, b) in sizes.items() if a != b]
    return Measure(len(wrong), 0, "; ".join(wrong))


def same_drift(ours: Terms, theirs: Terms) -> Measure:
    """H without control, up to a multiple of 1."""
    error, limit = distance(ours.drift, theirs.drift), tolerance(ours, theirs)
    return Measure(error, limit, diagnosis.drift(ours, theirs) if error > limit else "")


def same_control(ours: Terms, theirs: Terms, k: int) -> Measure:
    """A control operator, up to a multiple of 1."""
    error, limit = distance(ours.controls[k], theirs.controls[k]), tolerance(ours, theirs)
    return Measure(error, limit, diagnosis.control(ours, theirs, k) if error > limit else "")


def same_jump(ours: Terms, theirs: Terms, k: int) -> Measure:
    """The dissipator of a jump operator is that of one of the reference, or all together agree."""
    mine, others = ours.jumps or [], theirs.jumps or []
    limit = tolerance(ours, theirs)
    pairs = diagnosis.matched(mine, others)
    if k in pairs:
        return Measure(distance(dissipator(mine[k]), dissipator(others[pairs[k]])), limit)
    total = distance(all_jumps(ours), all_jumps(theirs))
    if total <= limit:
        return Measure(total, limit, "mixed with other jump operators, the same dissipation")
    free = [j for j in range(len(others)) if j not in pairs.values()]
    nearest = min((distance(dissipator(mine[k]), dissipator(others[j])) for j in free), default=1.0)
    return Measure(nearest, limit, diagnosis.jump(ours, others, free, mine[k]))


def no_jump_missing(ours: Terms, theirs: Terms) -> Measure:
    """All dissipators together; names the jump operators of the reference that have no partner."""
    mine, others = ours.jumps or [], theirs.jumps or []
    error, limit = distance(all_jumps(ours), all_jumps(theirs)), tolerance(ours, theirs)
    pairs = diagnosis.matched(mine, others)
    free = [str(j) for j in range(len(others)) if j not in pairs.values()]
    missing = f"no partner of jump {', '.join(free)} of the reference" if free else ""
    return Measure(error, limit, missing if error > limit else "")


def all_jumps(terms: Terms) -> np.ndarray:
    """Sum of the dissipators, on the probes."""
    shape = probes(terms.dimension).shape
    return sum(map(dissipator, terms.jumps or []), np.zeros(shape, complex))


def same_motion(ours: Terms, theirs: Terms) -> Measure:
    """d rho/dt at random controls of order 1: all terms together."""
    rng = np.random.default_rng(5)
    unknown = theirs.jumps is None
    first = ours._replace(jumps=None) if unknown else ours
    errors = []
    for rho in probes(ours.dimension):
        controls = rng.uniform(-1, 1, len(ours.controls))
        errors.append(distance(first.derivative(controls, rho), theirs.derivative(controls, rho)))
    # products of sums of all terms: more roundings than in one of them
    return Measure(max(errors), ours.dimension * tolerance(ours, theirs))


def affine(reference: Callable[[Any], Any], theirs: Terms) -> Measure:
    """H(u) = H(0) + sum_k u_k (H(e_k) - H(0)): otherwise its terms are not what they seem."""
    controls = np.random.default_rng(3).uniform(-1, 1, len(theirs.controls))
    given = matrix_of(reference(controls))
    centred = given - np.trace(given) / len(given) * np.eye(len(given))
    return Measure(distance(centred, theirs.hamiltonian(controls)), 64 * theirs.eps)


def same_start(model: Model, reference: Model) -> Measure:
    """Density matrices of the initial states."""
    first, second = (
        np.asarray(as_density_matrix(np.asarray(m.initial_state(), complex)))
        for m in (model, reference)
    )
    error, limit = distance(first, second), 64 * float(np.finfo(float).eps)
    return Measure(error, limit, diagnosis.largest_entry(first, second) if error > limit else "")


def moved(model: Model, reference: Model, name: str) -> Measure:
    """The drift at another value of a parameter, which may be 0 at first and hide its term."""
    spec, value = model.parameter_specs()[name], float(model.parameter_values()[name])
    step = spec.w_ref or 0.1 * abs(value) or 0.1
    low, high = spec.support
    new = value + step if value + step <= high else max(value - step, low)
    return same_drift(*both_terms(*(m.with_parameters(**{name: new}) for m in (model, reference))))

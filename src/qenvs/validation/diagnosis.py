"""What a difference between two models looks like: a sign, a swap, an adjoint, a factor."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from qenvs.validation.terms import Terms, dissipator

ALIKE = 1e-6
"""Relative difference up to which two matrices are called the same in a diagnosis."""


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Largest entry of a - b over the largest entry of both."""
    scale = max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))
    return float(np.abs(a - b).max(initial=0.0) / scale) if scale else 0.0


def alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal as far as a diagnosis needs it."""
    return distance(a, b) < ALIKE


def factor(a: np.ndarray, b: np.ndarray) -> float | None:
    """The real c != 0 with a = c b, if there is one."""
    norm = np.vdot(b, b).real
    c = float(np.vdot(b, a).real / norm) if norm else 0.0
    return c if c and alike(a, c * b) else None


def described(c: float) -> str:
    """A factor in words."""
    if abs(c + 1) < ALIKE:
        return "wrong sign"
    known = {2 * np.pi: "2 pi", 1 / (2 * np.pi): "1/(2 pi)", np.pi: "pi", 2**0.5: "sqrt 2"}
    name = next((n for value, n in known.items() if abs(abs(c) / value - 1) < ALIKE), None)
    signed = ("-" if c < 0 else "") + name if name else f"{c:.6g}"
    return f"{signed} times the reference"


def other_bases(dims: Sequence[int] | None, d: int) -> Iterator[tuple[str, np.ndarray]]:
    """Orders of the basis that are easily mixed up, as permutations of the indices."""
    yield "basis states in the reverse order", np.arange(d)[::-1]
    if dims is not None and len(dims) > 1:
        index = np.arange(d).reshape(dims)
        yield "tensor factors in the reverse order", index.transpose().reshape(-1)
        within = index[tuple(slice(None, None, -1) for _ in dims[:-1])]
        yield "levels of all factors but the last reversed", within.reshape(-1)


def matrix_hint(a: np.ndarray, b: np.ndarray, dims: Sequence[int] | None) -> str | None:
    """How the operator `a` is related to the reference `b`, if in a simple way."""
    c = factor(a, b)
    if c is not None:
        return described(c)
    if alike(a.conj(), b):
        return "complex conjugate of the reference"
    for text, order in other_bases(dims, len(a)):
        if alike(a[np.ix_(order, order)], b):
            return text
    return None


def largest_entry(a: np.ndarray, b: np.ndarray) -> str:
    """Where they differ most."""
    i, j = np.unravel_index(np.argmax(np.abs(a - b)), a.shape)
    return f"entry ({i}, {j}) is {_number(a[i, j])}, the reference has {_number(b[i, j])}"


def _number(value: complex) -> str:
    return f"{value:.6g}" if np.imag(value) else f"{np.real(value):.6g}"


def hamiltonian_entry(a: np.ndarray, b: np.ndarray) -> str:
    """Where two Hamiltonians differ, with the energies counted from the first level."""
    a, b = (h - h[0, 0] * np.eye(len(h)) for h in (a, b))
    different = np.abs(a - b) > ALIKE * np.abs(b).max(initial=0.0)
    if alike(a[different], -b[different]):
        places = [f"({i}, {j})" for i, j in np.argwhere(different)]
        return f"wrong sign of the entries {', '.join(places[:6])}{' ...' * (len(places) > 6)}"
    return f"{largest_entry(a, b)} (energies from level 0)"


def drift(ours: Terms, theirs: Terms) -> str:
    """Why the drifts differ, term by term where that explains it."""
    return (
        _wrong_terms(ours.parts, theirs.drift - ours.drift)
        or matrix_hint(ours.drift, theirs.drift, ours.dims)
        or _other_terms(theirs.parts, ours.drift)
        or hamiltonian_entry(ours.drift, theirs.drift)
    )


def _other_terms(parts: Sequence[np.ndarray], drift: np.ndarray) -> str | None:
    """The factors of the drift terms of the reference, if the drift is made of those alone."""
    present = [k for k, part in enumerate(parts) if part.any()]
    factors = _combination([parts[k] for k in present], drift) if present else None
    if factors is None:
        return None
    wrong = {k: c for k, c in zip(present, factors, strict=True) if abs(c - 1) > ALIKE}
    return "; ".join(f"drift term {k} of the reference: {_amount(c)}" for k, c in wrong.items())


def _amount(c: float) -> str:
    return "missing" if abs(c) < ALIKE else described(c).removesuffix(" the reference")


def _combination(parts: Sequence[np.ndarray], matrix: np.ndarray) -> np.ndarray | None:
    """Real c with matrix = sum_k c_k parts_k, if there are such."""
    columns = np.stack([part.reshape(-1) for part in parts], axis=1)
    flat = matrix.reshape(-1)
    real = np.concatenate([np.real(columns), np.imag(columns)])
    found = np.linalg.lstsq(real, np.concatenate([np.real(flat), np.imag(flat)]), rcond=None)[0]
    return found if alike(columns @ found, flat) else None


def _wrong_terms(parts: Sequence[np.ndarray], missing: np.ndarray) -> str | None:
    """The factors that the drift terms lack, if those alone explain the difference."""
    if not parts:
        return None
    change = _combination(parts, missing)
    if change is None:
        return None
    wrong = {k: 1 + delta for k, delta in enumerate(change) if abs(delta) > ALIKE}
    return "; ".join(_wrong_term(k, wanted) for k, wanted in wrong.items())


def _wrong_term(k: int, wanted: float) -> str:
    if abs(wanted) < ALIKE:
        return f"drift term {k} is not in the reference"
    if abs(wanted + 1) < ALIKE:
        return f"wrong sign of drift term {k}"
    return f"drift term {k} is {described(1 / wanted)}"


def control(ours: Terms, theirs: Terms, k: int) -> str:
    """Why a control operator differs: often it is another one of the reference."""
    operator, expected = ours.controls[k], theirs.controls[k]
    if factor(operator, expected) is None:
        for j, other in enumerate(theirs.controls):
            c = factor(operator, other)
            if c is not None:
                return _other_control(ours, theirs, k, j, c)
    return matrix_hint(operator, expected, ours.dims) or hamiltonian_entry(operator, expected)


def _other_control(ours: Terms, theirs: Terms, k: int, j: int, c: float) -> str:
    both = factor(ours.controls[j], theirs.controls[k]) is not None
    text = f"control {k} ({ours.names[k]}) is control {j} ({theirs.names[j]}) of the reference"
    if both:
        text = f"swapped controls {k} and {j}: {text}"
    return text if abs(c - 1) < ALIKE else f"{text}, {described(c)}"


def matched(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> dict[int, int]:
    """Pairs of jump operators with the same dissipator, each used once."""
    pairs: dict[int, int] = {}
    targets = [dissipator(jump) for jump in theirs]
    for i, jump in enumerate(ours):
        found = dissipator(jump)
        free = (j for j in range(len(theirs)) if j not in pairs.values())
        j = next((j for j in free if alike(found, targets[j])), None)
        if j is not None:
            pairs[i] = j
    return pairs


FORMS: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
    ("", lambda jump: jump),
    ("conjugated jump operator: the adjoint of", lambda jump: jump.conj().T),
    ("the complex conjugate of", np.conj),
    ("the transpose of", np.transpose),
)


def jump(
    ours: Terms, theirs: Sequence[np.ndarray], free: Sequence[int], operator: np.ndarray
) -> str:
    """What an unmatched jump operator is, compared with the unmatched ones of the reference."""
    orders = [("", np.arange(ours.dimension)), *other_bases(ours.dims, ours.dimension)]
    for basis, order in orders:
        for form, change in FORMS:
            found = dissipator(change(operator[np.ix_(order, order)]))
            for j in free:
                c = factor(found, dissipator(theirs[j]))
                if c is not None:
                    rate = "" if abs(c - 1) < ALIKE else f"its rate is {described(c)}"
                    name = f"{form} jump {j} of the reference" if form else f"jump {j} otherwise"
                    return ", ".join(filter(None, [name.strip(), basis, rate]))
    if not free:
        return "the reference has no jump operator left that it could be"
    return f"like none of the {len(free)} jump operators of the reference that are left"

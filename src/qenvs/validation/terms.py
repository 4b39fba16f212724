"""The terms of a model as plain matrices, in the one form that is physical.

A Hamiltonian plus a multiple of 1, a jump operator with another phase, jump operators mixed by a
unitary, or shifted by a multiple of 1 with the Hamiltonian that makes up for it: all of these are
the same dynamics. Traceless Hamiltonians, traceless jump operators and their dissipators, as maps,
are unique.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from qenvs.models.base import Model
from qenvs.observables import as_array

PROBES = 3
"""Random Hermitian matrices on which maps are compared: one would tell any two maps apart."""


class Terms(NamedTuple):
    """What moves the state of a model.

    Attributes:
        dims: tensor factors; None where unknown.
        drift: Hamiltonian without control, traceless.
        parts: the drift terms, coefficients included, traceless.
        controls: control operators, traceless.
        names: names of the controls.
        jumps: traceless jump operators, sqrt(rate) included; None where unknown.
        eps: machine precision of the coarsest number in it.
    """

    dims: tuple[int, ...] | None
    drift: np.ndarray
    parts: list[np.ndarray]
    controls: list[np.ndarray]
    names: tuple[str, ...]
    jumps: list[np.ndarray] | None
    eps: float

    @property
    def dimension(self) -> int:
        """Size of the operators."""
        return len(self.drift)

    def hamiltonian(self, controls: Any) -> np.ndarray:
        """H(u)."""
        return self.drift + np.tensordot(controls, np.array(self.controls), 1)

    def derivative(self, controls: Any, rho: np.ndarray) -> np.ndarray:
        """d rho/dt."""
        h = self.hamiltonian(controls)
        return -1j * (h @ rho - rho @ h) + sum(dissipated(j, rho) for j in self.jumps or [])


def terms_of(model: Model, switched_on: Sequence[int] = ()) -> Terms:
    """Terms of a model; jump operators of rate 0 are left out, or taken at rate 1."""
    coefficients = [weight for weight, _ in (*model.drift_terms(), *model.jump_terms())]
    matrices = [matrix for _, matrix in (*model.drift_terms(), *model.jump_terms())]
    matrices += model.control_operators()
    drift = [float(weight) * matrix_of(matrix) for weight, matrix in model.drift_terms()]
    jumps = [
        math.sqrt(1.0 if k in switched_on else float(rate)) * matrix_of(matrix)
        for k, (rate, matrix) in enumerate(model.jump_terms())
        if float(rate) or k in switched_on
    ]
    shifts = [_shift(jump) for jump in jumps]
    d = math.prod(model.dims)
    return Terms(
        tuple(model.dims),
        traceless(sum([*drift, *shifts], np.zeros((d, d), complex))),
        [traceless(part) for part in drift],
        [traceless(matrix_of(matrix)) for matrix in model.control_operators()],
        tuple(model.control_names),
        [traceless(jump) for jump in jumps],
        max(precision(value) for value in [*coefficients, *matrices]),
    )


def terms_of_hamiltonian(
    hamiltonian: Callable[[Any], Any], n_controls: int, names: tuple[str, ...]
) -> Terms:
    """Terms of a function that gives H at control amplitudes (n,), which must be affine in them.

    Raises:
        ValueError: the function raises, or gives no square matrix.
    """
    given = [_value(hamiltonian, u) for u in (np.zeros(n_controls), *np.eye(n_controls))]
    drift, *driven = map(matrix_of, given)
    controls = [traceless(h - drift) for h in driven]
    eps = max(map(precision, given))
    return Terms(None, traceless(drift), [traceless(drift)], controls, names, None, eps)


def _value(hamiltonian: Callable[[Any], Any], controls: np.ndarray) -> Any:
    """H at these amplitudes."""
    try:
        found = hamiltonian(controls)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise ValueError(f"the reference raised {problem} at controls {controls}") from error
    shape = np.shape(as_array(found))
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"the reference must give a square matrix H(controls), got shape {shape}")
    return found


def matrix_of(operator: Any) -> np.ndarray:
    """A matrix in complex128."""
    return np.asarray(as_array(operator)).astype(complex)


def precision(value: Any) -> float:
    """Machine precision of a number or matrix; exact kinds count as float64."""
    dtype = np.asarray(as_array(value)).dtype
    return float(np.finfo(dtype if dtype.kind in "fc" else float).eps)


def traceless(matrix: np.ndarray) -> np.ndarray:
    """A - 1 Tr A / d."""
    return matrix - np.trace(matrix) / len(matrix) * np.eye(len(matrix))


def _shift(jump: np.ndarray) -> np.ndarray:
    """H with D[L] = D[L0] - i[H, .], L = L0 + c: (c* L0 - c L0')/(2i)."""
    c, centred = np.trace(jump) / len(jump), traceless(jump)
    return (np.conj(c) * centred - c * centred.conj().T) / 2j


def dissipated(jump: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """L rho L' - {L'L, rho}/2."""
    rate = jump.conj().T @ jump
    return jump @ rho @ jump.conj().T - (rate @ rho + rho @ rate) / 2


def probes(dimension: int) -> np.ndarray:
    """Random Hermitian matrices of trace 1."""
    rng = np.random.default_rng(11)
    shape = (PROBES, dimension, dimension)
    a = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    return (a + a.conj().swapaxes(1, 2)) / (2 * dimension) + np.eye(dimension) / dimension


def dissipator(jump: np.ndarray) -> np.ndarray:
    """D[L] on the probes, shape (PROBES, d, d): what there is to a jump operator."""
    return np.array([dissipated(jump, rho) for rho in probes(len(jump))])

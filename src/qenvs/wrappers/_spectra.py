"""What can be found when observables are measured: outcomes and their probabilities.

An observable O = sum_m e_m P_m with distinct eigenvalues e_m gives the outcome m with the
probability Tr(rho P_m). A readout with the confusion matrix R reports outcome l instead with the
probability R_lm, so that E_l = sum_m R_lm P_m takes the place of P_l. Operators are judged in
complex128 when the observables are built, whatever the precision of the simulation.
"""

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from qenvs.observables import as_array

DEGENERACY_RTOL = 1e-10
"""Eigenvalues closer than DEGENERACY_RTOL * max(1, max|O|) are one outcome."""

DUPLICATE_TOL = 1e-12
"""Observables closer than this in operator norm are duplicates."""

HERMITIAN_RTOL = 1e-10
"""Largest max|O - O^dag| / max(1, max|O|) of an observable."""


class Spectrum:
    """Eigenvalues and eigenspaces of one observable.

    Attributes:
        operator: Hermitian, complex128, shape (d, d).
        values: distinct eigenvalues e_m, ascending, shape (M,).
        vectors: eigenvectors as columns; None if the operator is diagonal.
        outcome: index of the outcome of each eigenvector, shape (d,).
        confusion: R, shape (M, M); None for a perfect readout.
    """

    def __init__(self, name: str, operator: Any, dimension: int) -> None:
        self.operator = _checked(name, operator, dimension)
        levels, self.vectors = _eigensystem(self.operator)
        width = DEGENERACY_RTOL * max(1.0, np.abs(self.operator).max())
        order = np.argsort(levels)
        rank = np.concatenate([[0], np.cumsum(np.diff(levels[order]) > width)])
        self.outcome = np.empty(dimension, int)
        self.outcome[order] = rank
        self.values = np.bincount(self.outcome, weights=levels) / np.bincount(self.outcome)
        self.confusion: np.ndarray | None = None

    def read_with(self, name: str, confusion: np.ndarray) -> None:
        """Report outcomes through a confusion matrix; ValueError unless its size fits.

        The identity is left out, so that it is no readout error bit for bit.
        """
        if confusion.shape != (self.values.size,) * 2:
            raise ValueError(
                f"the confusion matrix of {name!r} must have shape {(self.values.size,) * 2}, one "
                f"row and column per distinct eigenvalue, got {confusion.shape}"
            )
        if not np.array_equal(confusion, np.eye(len(confusion))):
            self.confusion = confusion

    @functools.cached_property
    def effects(self) -> list[np.ndarray]:
        """E_m with outcome probabilities Tr(rho E_m), one (d, d) matrix per outcome."""
        projectors = [self._projector(m) for m in range(self.values.size)]
        if self.confusion is None:
            return projectors
        return list(np.tensordot(self.confusion, np.stack(projectors), axes=1))

    @property
    def reported(self) -> np.ndarray:
        """sum_m e_m E_m, whose expectation value is the mean of what is reported."""
        if self.confusion is None:
            return self.operator
        return np.tensordot(self.values, np.stack(self.effects), axes=1)

    def _projector(self, outcome: int) -> np.ndarray:
        inside = self.outcome == outcome
        if self.vectors is None:
            return np.diag(inside.astype(complex))
        return self.vectors[:, inside] @ self.vectors[:, inside].conj().T


class Observables:
    """Observables that are measured one by one; compared by value.

    Attributes:
        names: in the order of the observation.
        spectra: one for each name.
        sizes: the distinct numbers of outcomes.
    """

    def __init__(
        self,
        operators: Mapping[str, Any],
        dimension: int,
        confusion: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        self.names = tuple(operators)
        self.spectra = tuple(Spectrum(n, o, dimension) for n, o in operators.items())
        _refuse_duplicates(self.names, self.spectra)
        for name, matrix in (confusion or {}).items():
            self.spectra[self.names.index(name)].read_with(name, matrix)
        digest = hashlib.sha256()
        for spectrum in self.spectra:
            digest.update(spectrum.reported.tobytes())
            digest.update(b"" if spectrum.confusion is None else spectrum.confusion.tobytes())
        self._identity = self.names, digest.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Observables) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    @property
    def sizes(self) -> list[int]:
        """Distinct numbers of outcomes, ascending."""
        return sorted({spectrum.values.size for spectrum in self.spectra})

    def of_size(self, outcomes: int) -> list[int]:
        """Positions of the observables with this number of outcomes."""
        return [j for j, s in enumerate(self.spectra) if s.values.size == outcomes]


def _checked(name: str, operator: Any, dimension: int) -> np.ndarray:
    """The operator as complex128; ValueError unless finite, Hermitian and of the model's size."""
    matrix = np.asarray(as_array(operator), np.complex128)
    if matrix.shape != (dimension, dimension):
        raise ValueError(
            f"observable {name!r} must have shape {(dimension, dimension)}, got {matrix.shape}"
        )
    error, size = np.abs(matrix - matrix.conj().T).max(), max(1.0, np.abs(matrix).max())
    if not error <= HERMITIAN_RTOL * size:
        raise ValueError(
            f"observable {name!r} must be Hermitian, but max|O - O^dag| is {error:.3g}; "
            "measure its Hermitian and anti-Hermitian parts instead"
        )
    return matrix


def _eigensystem(operator: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    diagonal = np.diag(operator)
    if np.count_nonzero(operator) == np.count_nonzero(diagonal):
        return np.real(diagonal), None
    return np.linalg.eigh(operator)


def _refuse_duplicates(names: Sequence[str], spectra: Sequence[Spectrum]) -> None:
    for j, spectrum in enumerate(spectra):
        for i in range(j):
            gap = spectrum.operator - spectra[i].operator
            if np.abs(gap).max() <= DUPLICATE_TOL and np.linalg.norm(gap, 2) <= DUPLICATE_TOL:
                chosen = [name for name in names if name != names[i]]
                raise ValueError(
                    f"observables {names[i]!r} and {names[j]!r} are the same operator and would be "
                    f"measured twice; choose, for example observables={chosen} (on the command "
                    f"line --observables {','.join(chosen)})"
                )

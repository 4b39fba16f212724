"""What a physical model is: terms, jump operators, an initial state, observables, parameters.

    H(u) = sum_i h_i H_i + sum_k u_k C_k        drift terms (h_i, H_i), control operators C_k
    d rho/dt = -i [H, rho] + sum_j r_j D[L_j] rho        jump terms (r_j, L_j)

The coefficients h_i and rates r_j depend on the parameters of the model (array leaves, may be
traced); the operators are fixed NumPy matrices that depend on its sizes only. hbar = 1; a higher
basis index is a more excited level.
"""

import abc
import math
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from qenvs import _checks

Term = tuple[Any, np.ndarray]
"""A coefficient (number or array) and the operator it multiplies."""

REAL_LINE = (-math.inf, math.inf)


class ParameterSpec(NamedTuple):
    """What a randomisable parameter is.

    Attributes:
        unit: its unit, as a distribution may state it.
        support: closed interval of allowed values.
        w_ref: reference width, the scale of oracle observations (0: not observed).
    """

    unit: str
    support: tuple[float, float]
    w_ref: float


class Model(eqx.Module):
    """A physical system under piecewise constant control."""

    time_unit: ClassVar[str] = ""
    """Unit of time, such as "ns" or "1/omega0"; "" if the model states none."""

    amplitude_unit: ClassVar[str] = ""
    """Unit of the controls; "" if the model states none."""

    @property
    @abc.abstractmethod
    def dims(self) -> tuple[int, ...]:
        """Dimensions of the tensor factors, in the order of the operators."""

    @property
    @abc.abstractmethod
    def control_names(self) -> tuple[str, ...]:
        """Names of the controls, in the order of the action."""

    @abc.abstractmethod
    def drift_terms(self) -> tuple[Term, ...]:
        """(coefficient, Hermitian operator) of every term that is always on."""

    @abc.abstractmethod
    def control_operators(self) -> tuple[np.ndarray, ...]:
        """Hermitian operator that each control multiplies."""

    @abc.abstractmethod
    def jump_terms(self) -> tuple[Term, ...]:
        """(rate, jump operator): rate times the dissipator D[L]; rate 0 switches it off."""

    @abc.abstractmethod
    def initial_state(self) -> Any:
        """Ket (d,) or density matrix (d, d) at the start of an episode."""

    @abc.abstractmethod
    def observable_terms(self) -> dict[str, Term]:
        """Name -> (coefficient, Hermitian operator) of what a device could measure."""

    @abc.abstractmethod
    def correlation_observables(self) -> dict[str, np.ndarray]:
        """Named second-order correlators; none for most models."""

    @abc.abstractmethod
    def parameter_specs(self) -> dict[str, ParameterSpec]:
        """The parameters that can be randomised."""

    @abc.abstractmethod
    def fixed_parameters(self) -> dict[str, str]:
        """Fields that cannot be randomised, each with the reason."""

    def observables(self) -> dict[str, Any]:
        """Name -> Hermitian operator of what a device could measure."""
        return {name: weight * matrix for name, (weight, matrix) in self.observable_terms().items()}

    def parameter_values(self) -> dict[str, Any]:
        """The value of every randomisable parameter."""
        return {name: getattr(self, name) for name in self.parameter_specs()}

    def with_parameters(self, **values: Any) -> "Model":
        """A copy with some randomisable parameters replaced; values may be traced.

        Raises:
            ValueError: unknown or fixed parameter, or a known number outside its support.
        """
        self.check_parameters(**values)
        names = list(values)
        return eqx.tree_at(
            lambda model: [getattr(model, name) for name in names],
            self,
            [_checks.as_parameter(values[name]) for name in names],
        )

    def check_parameters(self, **values: Any) -> None:
        """ValueError unless every name is randomisable and every known number in its support."""
        specs = self.parameter_specs()
        for name, value in values.items():
            if name not in specs:
                raise ValueError(self._unknown_parameter(name))
            low, high = specs[name].support
            if _checks.is_concrete(value):
                _checks.finite(name, value)
                if np.any(np.asarray(value) < low) or np.any(np.asarray(value) > high):
                    raise ValueError(f"`{name}` must lie in [{low}, {high}], got {value}")

    def _unknown_parameter(self, name: str) -> str:
        reason = self.fixed_parameters().get(name)
        if reason is not None:
            return f"`{name}` of {type(self).__name__} cannot be randomised: {reason}"
        near = _checks.suggest(name, self.parameter_specs())
        return f"{type(self).__name__} has no parameter {name!r}; {near}"

    def hamiltonian_operators(self) -> list[np.ndarray]:
        """Operators of the drift terms, then of the controls."""
        return [matrix for _, matrix in self.drift_terms()] + list(self.control_operators())

    def active_jumps(self) -> tuple[int, ...]:
        """Indices of the jump terms that are on; a traced rate counts as on."""
        rates = [rate for rate, _ in self.jump_terms()]
        return tuple(
            j
            for j, rate in enumerate(rates)
            if not _checks.is_concrete(rate) or np.any(np.asarray(rate) != 0)
        )


class TruncatedModel(Model):
    """A model that keeps finitely many levels of an infinite ladder."""

    @abc.abstractmethod
    def truncations(self) -> dict[str, str]:
        """Observable that must stay small -> the field to raise; empty if the cutoff is exact."""


RATE = "a dissipation rate decides whether the system is open, which fixes the form of the state"
SIZE = "a structural size fixes the shape of every operator"
UNIT = "it only sets the unit of energy"
START = "it chooses the initial state"


def check_rates(model: Model, names: Iterable[str]) -> None:
    """ValueError unless every named rate of the model is finite and >= 0."""
    for name in names:
        _checks.non_negative(name, getattr(model, name))


def number(default: float) -> Any:
    """A model field that holds a physical parameter as an array leaf."""
    return eqx.field(default=default, converter=_checks.as_parameter)


def basis_ket(dimension: int, index: int) -> np.ndarray:
    """|index>, shape (dimension,)."""
    return np.eye(dimension, dtype=complex)[index]

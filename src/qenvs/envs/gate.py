"""Implement a gate: average gate fidelity of the map so far."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks
from qenvs._products import product
from qenvs.dynamics import (
    DensityCoordinates,
    Generator,
    KetCoordinates,
    PropagatorCoordinates,
    SuperoperatorCoordinates,
    build_generator,
)
from qenvs.dynamics.coordinates import hermitian_basis
from qenvs.envs.base import ControlEnvironment, EnvState
from qenvs.observables import as_array, is_ket


def as_gate(matrix: Any) -> Any:
    """A gate as a complex matrix; ValueError unless it is finite and unitary (to 1e-6)."""
    gate = as_array(matrix)
    if not _checks.is_concrete(gate):
        return gate
    gate = _checks.finite("target", np.asarray(gate, complex))
    if gate.ndim != 2 or gate.shape[0] != gate.shape[1]:
        raise ValueError(f"`target` must be a square matrix, got shape {gate.shape}")
    error = np.abs(gate.conj().T @ gate - np.eye(len(gate))).max()
    if error > 1e-6:
        raise ValueError(f"`target` must be unitary to 1e-6, max |U'U - 1| is {error:.3g}")
    return gate


def as_subspace(indices: Any) -> tuple[int, ...] | None:
    """Indices of levels as ints."""
    return None if indices is None else tuple(_checks.integer("subspace", i) for i in indices)


class GateControl(ControlEnvironment):
    """Average gate fidelity of the map so far, leakage counted as error; the reward is its gain.

    F = (Tr MM' + |Tr M|^2) / (k (k + 1)) with M = Ut' P U P on the k computational levels. The
    state is the map: the propagator U, or the superoperator (column stacking) of an open model;
    it starts as the identity. `info["leakage"]` belongs to the map, 1 - Tr(P U P U')/k, the other
    entries to the state that the model's initial state has become.

    Reference: Pedersen, Moller, Molmer, Phys. Lett. A 367, 47 (2007); Wood, Gambetta, PRA 97,
    032306 (2018).

    Args:
        model, horizon, dt, action_bound, method: as for `ControlEnvironment`.
        target: gate, unitary (k, k); its global phase does not matter.
        subspace: indices of the computational levels, in the order of `target`; None takes those
            that the model names, or all.
        frame: function model -> energies E (d,) of a rotating frame in which the gate is judged:
            exp(+i E T) U stands for U, with T the duration of the whole pulse.

    Raises:
        ValueError: a target that is not unitary or does not fit the subspace, indices that are not
            distinct levels.
    """

    target: Any = eqx.field(converter=as_gate, kw_only=True)
    subspace: tuple[int, ...] | None = eqx.field(
        default=None, converter=as_subspace, static=True, kw_only=True
    )
    frame: Callable[[Any], Any] | None = eqx.field(default=None, static=True, kw_only=True)

    def __check_init__(self) -> None:
        d, inside = int(np.prod(self.model.dims)), self.computational_indices
        if len(set(inside)) < len(inside) or not all(0 <= i < d for i in inside):
            raise ValueError(f"`subspace` must hold distinct indices in 0..{d - 1}, got {inside}")
        _checks.shape("target", self.target, (len(inside), len(inside)))

    @property
    def computational_indices(self) -> tuple[int, ...]:
        """Indices of the computational levels, in the order of `target`."""
        if self.subspace is not None:
            return self.subspace
        every = tuple(range(int(np.prod(self.model.dims))))
        return getattr(self.model, "computational_indices", every)

    def build_generator(self) -> Generator:
        jumps = [self.model.jump_terms()[j][1] for j in self.active_jumps]
        kind = SuperoperatorCoordinates if jumps else PropagatorCoordinates
        return build_generator(kind, self.model.dims, self.model.hamiltonian_operators(), jumps)

    def initial_object(self) -> Any:
        d = self.generator.coordinates.dimension
        return np.eye(d * d if self.active_jumps else d, dtype=complex)

    @property
    def quantity_name(self) -> str:
        """Name of the task quantity."""
        return "fidelity"

    def quantity(self, x: Array) -> Array:
        k = len(self.computational_indices)
        return (self._stays(x) + self._overlap(x)) / (k * (k + 1))

    def info(self, state: EnvState) -> dict[str, Array]:
        exact = {
            "fidelity": state.value,
            "leakage": 1.0 - self._stays(state.x) / len(self.computational_indices),
        }
        values = self._expectations(state.x)
        return exact | {f"state_{n}" if n in exact else n: v for n, v in values.items()}

    def judged_target(self) -> Any:
        """exp(-i E T) times the target: what the block P U P itself has to be."""
        if self.frame is None:
            return self.target
        angles = (self.frame(self.model) * self.duration)[np.array(self.computational_indices)]
        xp = np if _checks.is_concrete(angles) else jnp
        return xp.exp(-1j * angles)[:, None] * self.target

    def _stays(self, x: Array) -> Array:
        """Tr(P U P U'): k times the probability to stay in the computational subspace."""
        d, inside = self.generator.coordinates.dimension, np.array(self.computational_indices)
        if self.active_jumps:
            within = np.isin(np.arange(d * d), inside).astype(float)
            return jnp.sum(jnp.asarray(np.outer(within, within), x.dtype) * x)
        within = np.isin(np.arange(d), inside).astype(float)
        return jnp.sum(jnp.asarray(np.outer(np.tile(within, 2), within), x.dtype) * x * x)

    def _overlap(self, x: Array) -> Array:
        """|Tr M|^2, summed over the Kraus operators of an open model."""
        isometry = np.eye(self.generator.coordinates.dimension)[:, self.computational_indices]
        target = self.judged_target()
        if self.active_jumps:
            return jnp.sum(transfer_form(target, isometry).astype(x.dtype) * x)
        full = product(product(isometry, target), isometry.T)
        encode = self.generator.coordinates.encode
        forms = jnp.stack([encode(full), encode(1j * full)]).astype(x.dtype)
        return jnp.sum(product(forms.reshape(2, -1), x.reshape(-1)) ** 2)

    def _expectations(self, x: Array) -> dict[str, Array]:
        """Observables of the model in the state that its initial state has become."""
        terms = self.model.observable_terms()
        if not terms:
            return {}
        matrices = [matrix for _, matrix in terms.values()]
        start, dims = np.asarray(self.model.initial_state()), self.model.dims
        if self.active_jumps:
            coordinates = DensityCoordinates(dims)
            evolved = product(x, coordinates.encode(start).astype(x.dtype))
            values = coordinates.expectations(evolved, coordinates.expectation_form(matrices))
        else:
            coordinates = KetCoordinates(dims)
            form = coordinates.expectation_form(matrices)
            parts = [
                weight * coordinates.expectations(apply_columns(x, ket), form)
                for weight, ket in pure_components(start)
            ]
            values = functools.reduce(jnp.add, parts)
        return {name: terms[name][0] * values[k] for k, name in enumerate(terms)}


def transfer_form(target: Any, isometry: np.ndarray) -> Any:
    """W with sum(W x) = sum_i |Tr(Ut' K_i)|^2 for a map in the real coordinates x.

    The transfer matrix of the target in the Hermitian basis of its k levels, embedded in d levels.
    """
    d, k = isometry.shape
    small, large = hermitian_basis(k).toarray(), hermitian_basis(d)
    xp = np if isinstance(target, np.ndarray) else jnp
    doubled = xp.kron(xp.conj(target), target)
    transfer = product(product(small.conj().T, doubled), small).real
    embedding = (large.conj().T @ (np.kron(isometry, isometry) @ small)).real
    return product(product(embedding, transfer), embedding.T)


def apply_columns(x: Array, ket: np.ndarray) -> Array:
    """(Re, Im) of U ket for the columns x of U."""
    d = len(ket)
    re, im = jnp.asarray(np.real(ket), x.dtype), jnp.asarray(np.imag(ket), x.dtype)
    if not np.imag(ket).any():
        return product(x, re)
    return product(x, re) + product(jnp.concatenate([-x[d:], x[:d]]), im)


def pure_components(state: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """(weight, ket) of the pure states that a state mixes."""
    if is_ket(state):
        return [(1.0, state.reshape(-1))]
    weights, kets = np.linalg.eigh(state)
    return [(float(p), ket) for p, ket in zip(weights, kets.T, strict=True) if p > 1e-12]

"""A model from your own operators."""

import math
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from qenvs import _checks
from qenvs.models._operators import as_hermitian, as_operator, as_state, tensor_structure
from qenvs.models.base import REAL_LINE, ParameterSpec, Term
from qenvs.models.battery import Battery, BatteryModel


class Structure:
    """Everything of a custom model that is fixed; compared by value.

    Args:
        dims: dimensions of the tensor factors.
        drift: Hermitian matrix.
        controls: name -> Hermitian matrix.
        jumps: jump operators, rates included.
        initial_state: ket or density matrix.
        observables: name -> Hermitian matrix.
        parameters: name -> (Hermitian matrix, spec) of every randomisable term.
        battery: what stores the energy, or None.
    """

    def __init__(
        self,
        dims: tuple[int, ...],
        drift: np.ndarray,
        controls: dict[str, np.ndarray],
        jumps: tuple[np.ndarray, ...],
        initial_state: np.ndarray,
        observables: dict[str, np.ndarray],
        parameters: dict[str, tuple[np.ndarray, ParameterSpec]],
        battery: Battery | None,
    ) -> None:
        self.dims, self.drift, self.controls, self.jumps = dims, drift, controls, jumps
        self.initial_state, self.observables = initial_state, observables
        self.parameters, self.battery = parameters, battery
        terms = [matrix for matrix, _ in parameters.values()]
        stored = [] if battery is None else [battery.hamiltonian]
        matrices = [drift, *controls.values(), *jumps, initial_state, *observables.values()]
        digest = sha256(b"".join(m.tobytes() for m in [*matrices, *terms, *stored]))
        specs = tuple((name, spec) for name, (_, spec) in parameters.items())
        factors = None if battery is None else battery.factors
        self._identity = (
            dims, tuple(controls), len(jumps), tuple(observables), specs, factors, digest.digest()
        )  # fmt: skip

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Structure) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


class HamiltonianModel(BatteryModel):
    """H(u) = drift + sum_p value_p H_p + sum_k u_k C_k with jump operators L_j, all yours.

    Build it with `HamiltonianModel.from_operators`. Each parameter p is an attribute.
    """

    structure: Structure = eqx.field(static=True)
    values: dict[str, Any]

    @classmethod
    def from_operators(
        cls,
        drift: Any,
        controls: Sequence[Any] | Mapping[str, Any],
        jump_ops: Sequence[Any] = (),
        initial_state: Any = None,
        observables: Mapping[str, Any] | None = None,
        dims: Sequence[int] | None = None,
        parameters: Mapping[str, Sequence[Any]] | None = None,
        battery_hamiltonian: Any = None,
        battery_subsystems: int | Sequence[int] | None = None,
    ) -> "HamiltonianModel":
        """A model from operators of NumPy, JAX, dynamiqs, QuTiP or SciPy sparse, or nested lists.

        Matrices are taken as given: no basis is reordered, so index 0 is whatever index 0 is in
        them (QuTiP's `sigmam()` takes index 0 to index 1). Integers count as numbers. The state
        becomes a density matrix if there are jump operators or the initial state is one.

        Args:
            drift: Hermitian, d x d; what is always on.
            controls: Hermitian operator of each control, in the order of the action, or a mapping
                name -> operator; at least one.
            jump_ops: jump operators of any form, rates included: sqrt(rate) L.
            initial_state: ket of norm 1 or density matrix; None is index 0.
            observables: name -> Hermitian operator.
            dims: dimensions of the tensor factors; None is what the operators state, else (d,).
            parameters: name -> (nominal, operator) or (nominal, operator, unit, support, w_ref):
                a randomisable term nominal * operator of the Hamiltonian. `support` is a closed
                interval (low, high), None the real line; `w_ref` the scale of oracle observations.
            battery_hamiltonian: Hermitian operator on the battery subsystems, for
                `BatteryCharging`.
            battery_subsystems: indices of the tensor factors that are the battery; None is all.

        Raises:
            ValueError: an operator that is not square, of another size or tensor structure, with
                NaN or infinite entries, not Hermitian (relative 1e-8), too large; a state whose
                norm, trace or positivity is off by more than 1e-6; a nominal value outside its
                support. The message names the operator.
            TypeError: a time-dependent operator, a superoperator, or something that is no matrix.
        """
        matrix = as_hermitian("`drift`", drift)
        d = matrix.shape[0]
        named = _named("controls", controls, as_hermitian, d)
        if not named:
            raise ValueError("`controls` must hold at least one operator, got none")
        jumps = _named("jump_ops", jump_ops, as_operator, d)
        seen = _named("observables", observables or {}, as_hermitian, d)
        terms, values = _parameters(parameters or {}, d)
        start = as_state(
            "`initial_state`", np.eye(d)[0] if initial_state is None else initial_state, d
        )
        stated = {"`drift`": drift, "`initial_state`": initial_state}
        groups = {"controls": controls, "jump_ops": jump_ops, "observables": observables or {}}
        for group, operators in groups.items():
            stated |= _labelled(group, operators)
        stated |= {
            f"`parameters[{name!r}]`": entry[1] for name, entry in (parameters or {}).items()
        }
        factors = _common_dims(d, dims, stated)
        structure = Structure(
            factors,
            matrix,
            named,
            tuple(jumps.values()),
            start,
            seen,
            terms,
            _battery(battery_hamiltonian, battery_subsystems, factors),
        )
        return cls(structure, values)

    def __getattr__(self, name: str) -> Any:
        if name != "values" and name in self.values:
            return self.values[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    @property
    def dims(self) -> tuple[int, ...]:
        return self.structure.dims

    @property
    def control_names(self) -> tuple[str, ...]:
        return tuple(self.structure.controls)

    def drift_terms(self) -> tuple[Term, ...]:
        terms = self.structure.parameters
        return ((1.0, self.structure.drift), *((self.values[p], terms[p][0]) for p in terms))

    def control_operators(self) -> tuple[np.ndarray, ...]:
        return tuple(self.structure.controls.values())

    def jump_terms(self) -> tuple[Term, ...]:
        return tuple((1.0, jump) for jump in self.structure.jumps)

    def initial_state(self) -> np.ndarray:
        return self.structure.initial_state

    def observable_terms(self) -> dict[str, Term]:
        return {name: (1.0, matrix) for name, matrix in self.structure.observables.items()}

    def correlation_observables(self) -> dict[str, np.ndarray]:
        return {}

    def parameter_specs(self) -> dict[str, ParameterSpec]:
        return {name: spec for name, (_, spec) in self.structure.parameters.items()}

    def fixed_parameters(self) -> dict[str, str]:
        return {}

    def battery(self) -> Battery:
        if self.structure.battery is None:
            raise ValueError(
                "this model has no battery; give `battery_hamiltonian` to "
                "HamiltonianModel.from_operators"
            )
        return self.structure.battery


class _Parameter(NamedTuple):
    nominal: Any
    operator: Any
    unit: str = ""
    support: Sequence[float] | None = None
    w_ref: float = 0.0


def _labelled(group: str, operators: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    """Message label -> operator of a list or mapping of operators."""
    if isinstance(operators, Mapping):
        return {f"`{group}[{name!r}]`": operator for name, operator in operators.items()}
    return {f"`{group}[{k}]`": operator for k, operator in enumerate(operators)}


def _named(group: str, operators: Any, check: Any, dimension: int) -> dict[str, np.ndarray]:
    """Name -> checked matrix; a list names its operators "u0", "u1", ..."""
    is_stack = getattr(operators, "ndim", None) == 3
    if not (is_stack or isinstance(operators, (Mapping, Sequence))):
        raise TypeError(
            f"`{group}` must be a list or mapping of operators, got {type(operators).__name__}"
        )
    names = (
        operators if isinstance(operators, Mapping) else (f"u{k}" for k in range(len(operators)))
    )
    labelled = _labelled(group, operators).items()
    return {
        str(name): check(label, operator, dimension)
        for name, (label, operator) in zip(names, labelled, strict=True)
    }


def _parameters(
    parameters: Mapping[str, Sequence[Any]], dimension: int
) -> tuple[dict[str, tuple[np.ndarray, ParameterSpec]], dict[str, Any]]:
    """Operators and specs of the randomisable terms, and their nominal values."""
    terms, values = {}, {}
    for name, entry in parameters.items():
        label = f"`parameters[{name!r}]`"
        if not isinstance(entry, (tuple, list)) or not 2 <= len(entry) <= 5:
            raise TypeError(f"{label} must be (nominal, operator, unit, support, w_ref)")
        if not name.isidentifier() or hasattr(HamiltonianModel, name) or name in FIELDS:
            raise ValueError(f"{label} must be a free Python name, got {name!r}")
        given = _Parameter(*entry)
        spec = ParameterSpec(given.unit, _support(label, given.support), float(given.w_ref))
        if not (math.isfinite(spec.w_ref) and spec.w_ref >= 0):
            raise ValueError(f"{label} must have w_ref >= 0, got {spec.w_ref}")
        nominal = _checks.finite(label, _checks.as_parameter(given.nominal))
        _checks.shape(f"{label}[0]", nominal, ())
        low, high = spec.support
        if _checks.is_concrete(nominal) and not low <= nominal <= high:
            raise ValueError(
                f"{label} must have its nominal value in {spec.support}, got {nominal}"
            )
        terms[name] = as_hermitian(label, given.operator, dimension), spec
        values[name] = nominal
    return terms, values


FIELDS = ("structure", "values")


def _support(label: str, support: Sequence[float] | None) -> tuple[float, float]:
    low, high = map(float, REAL_LINE if support is None else support)
    if not low < high:
        raise ValueError(f"{label} must have a support (low, high) with low < high, got {support}")
    return low, high


def _common_dims(
    dimension: int, dims: Sequence[int] | None, stated: Mapping[str, Any]
) -> tuple[int, ...]:
    """The one tensor structure that all operators agree on."""
    source, common = "`dims`", None
    if dims is not None:
        common = tuple(_checks.integer("dims", factor, minimum=1) for factor in dims)
        if math.prod(common) != dimension:
            raise ValueError(
                f"`dims` must multiply to the dimension {dimension} of the drift, got {common}"
            )
    for label, operator in stated.items():
        structure = tensor_structure(label, operator)
        if structure is None:
            continue
        if common is None:
            source, common = label, structure
        elif structure != common:
            raise ValueError(
                f"{label} has tensor structure {structure}, but {source} has {common}; "
                "give both the same"
            )
    return (dimension,) if common is None else common


def _battery(
    hamiltonian: Any, subsystems: int | Sequence[int] | None, dims: tuple[int, ...]
) -> Battery | None:
    if hamiltonian is None:
        if subsystems is not None:
            raise ValueError("`battery_subsystems` needs `battery_hamiltonian`")
        return None
    chosen = np.atleast_1d(range(len(dims)) if subsystems is None else subsystems)
    factors = tuple(_checks.integer("battery_subsystems", k, minimum=0) for k in chosen)
    if not factors or len(set(factors)) < len(factors) or max(factors) >= len(dims):
        raise ValueError(
            f"`battery_subsystems` must be different indices below {len(dims)}, got {factors}"
        )
    size = math.prod(dims[k] for k in factors)
    matrix = as_hermitian("`battery_hamiltonian`", hamiltonian)
    if matrix.shape[0] != size:
        raise ValueError(
            f"`battery_hamiltonian` must have shape {(size, size)}, the size of the subsystems "
            f"{factors} of {dims}, got {matrix.shape}"
        )
    return Battery(1.0, matrix, factors, np.ones(size))

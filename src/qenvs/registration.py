"""Named tasks: `make`, `register`, `registry`."""

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from qenvs import _checks

Factory = Callable[..., Any]


class TaskSpec(NamedTuple):
    """A named task.

    Attributes:
        id: name of the form `namespace/Name-v0`.
        entry_point: a callable that builds the environment, or "module:name" of one.
        summary: one line on what the task is.
        reference: a callable env -> actions (horizon, action_dim) with the textbook pulse, or
            "module:name" of one; None if there is none.
    """

    id: str
    entry_point: str | Factory
    summary: str = ""
    reference: str | Factory | None = None

    def load(self) -> Factory:
        """The callable that builds the environment."""
        return _load(self.entry_point)

    def reference_pulse(self, env: Any) -> Any:
        """Actions (horizon, action_dim) of the reference; ValueError if the task has none."""
        if self.reference is None:
            raise ValueError(f"task {self.id!r} has no reference pulse")
        return _load(self.reference)(env)

    def kwargs(self) -> dict[str, Any]:
        """Keyword arguments of the task and their defaults."""
        return {p.name: p.default for p in inspect.signature(self.load()).parameters.values()}


def _load(entry_point: str | Factory) -> Factory:
    if callable(entry_point):
        return entry_point
    module, _, name = entry_point.partition(":")
    return getattr(importlib.import_module(module), name)


registry: dict[str, TaskSpec] = {}
"""Every named task, id -> TaskSpec."""


def register(
    id: str,
    entry_point: str | Factory,
    summary: str = "",
    reference: str | Factory | None = None,
) -> TaskSpec:
    """Name a task; the same entry point may be registered again, with another summary.

    Args:
        id: name of the form `namespace/Name-v0`.
        entry_point: callable with keyword arguments that returns an `Environment`, or
            "module:name" of one (imported on first use).
        summary: one line for `qenvs list`.
        reference: callable env -> actions with the textbook pulse, or "module:name" of one.

    Raises:
        ValueError: the id is taken by another entry point.
    """
    spec = TaskSpec(id, entry_point, summary, reference)
    if id in registry and registry[id].entry_point != entry_point:
        raise ValueError(f"task {id!r} is registered already; choose another id or version")
    registry[id] = spec
    _register_with_gymnasium(id)
    return spec


def _register_with_gymnasium(id: str) -> None:
    """Make the task known to `gymnasium.make` and `make_vec`, where Gymnasium is installed."""
    if importlib.util.find_spec("gymnasium") is None:
        return
    import gymnasium

    if id not in gymnasium.registry:
        gymnasium.register(
            id,
            entry_point="qenvs.wrappers.gymnasium:make_env",
            vector_entry_point="qenvs.wrappers.vector:make_vector_env",
            kwargs={"task": id},
        )


def spec(id: str) -> TaskSpec:
    """The named task; ValueError with near names for an unknown id."""
    if id not in registry:
        raise ValueError(f"unknown task {id!r}; {_checks.suggest(id, registry)}")
    return registry[id]


OBSERVATION_MODEL = "qenvs.wrappers.observation:ObservationModel"
"""By name: wrappers lie above this module."""

OBSERVATION_KWARGS = ("observation", "shots", "diagnostics", "observables", "readout")
"""Keyword arguments of `make` that go to the observation model."""


def make(id: str, **kwargs: Any) -> Any:
    """Build the functional environment of a named task.

    Args:
        id: one of `qenvs.registry`, e.g. "qubit/StateTransfer-v0".
        **kwargs: fields of the model, `horizon`, `dt`, `action_bound`, `method`; with any of
            `observation`, `shots`, `diagnostics`, `observables`, `readout` the task is wrapped in
            an `ObservationModel` that takes them.

    Raises:
        ValueError: unknown id, or a value that is out of range.
        TypeError: unknown keyword argument; the message names the near ones.

    >>> import qenvs
    >>> env = qenvs.make("qubit/StateTransfer-v0", detuning=0.1)
    >>> env.horizon, float(env.dt)
    (20, 0.1)
    >>> seen = {"observation": "expectations", "shots": 100, "observables": ["p1"]}
    >>> qenvs.make("qubit/StateTransfer-v0", **seen).observable_names
    ('p1',)
    """
    task = spec(id)
    known = task.kwargs()
    shown = {n: v for n, v in kwargs.items() if n in OBSERVATION_KWARGS and n not in known}
    own = {name: value for name, value in kwargs.items() if name not in shown}
    for name in own:
        if name not in known:
            near = _checks.suggest(name, [*known, *OBSERVATION_KWARGS])
            raise TypeError(f"task {id!r} has no keyword argument {name!r}; {near}")
    env = task.load()(**own)
    return _load(OBSERVATION_MODEL)(env, **shown) if shown else env

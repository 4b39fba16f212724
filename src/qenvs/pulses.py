"""Pulses as files: what was played, in which units, and how to play it again.

A pulse is piecewise constant: row k of `actions` is held from k*dt to (k+1)*dt, so that N actions
are N intervals. Files are JSON whose numbers are exact (the shortest decimal that reads back as
the same float64), so that a pulse read from a file replays to the same bits.
"""

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from qenvs import _checks
from qenvs._strict_json import restored, spelled
from qenvs.registration import make

FORMAT, VERSION = "qenvs-pulse", 1
TOLERANCE = 1e-9
"""Relative error up to which two durations count as equal."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pulse:
    """A piecewise constant pulse, u_k(t) = actions[n, k] for n dt <= t < (n+1) dt.

    Args:
        actions: controls, shape (N, K), in `amplitude_unit`; kept as read-only float64.
        dt: length of an interval, > 0, in `time_unit`.
        control_names: one name per control, in the order of the columns.
        time_unit, amplitude_unit: e.g. "ns" and "rad/ns"; "1/omega0" and "omega0".
        kind: "commanded", what the controller asked for, before clipping and control errors, or
            "applied", what acted on the system.
        bound: half-width of the control range, one per control; None if there is none.
        task, task_kwargs: the task that it was made for, as for `qenvs.make`; None if none.
        metrics: name -> number reached with this pulse, e.g. {"fidelity": 0.9999}.
        padding: time without drive that was added at the end, in `time_unit`.

    Raises:
        TypeError: actions that are not real numbers.
        ValueError: a wrong shape, a number that is not finite, an unknown kind.
    """

    actions: np.ndarray
    dt: float
    control_names: tuple[str, ...]
    time_unit: str
    amplitude_unit: str
    kind: Literal["commanded", "applied"]
    bound: tuple[float, ...] | None = None
    task: str | None = None
    task_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    padding: float = 0.0

    def __post_init__(self) -> None:
        actions = np.array(_checks.as_parameter(self.actions), float)
        names = tuple(self.control_names)
        if actions.ndim != 2 or actions.shape[1] != len(names) or not len(actions):
            raise ValueError(
                f"`actions` must have shape (N, {len(names)}) with N >= 1 intervals and one "
                f"column per control name, got {actions.shape}"
            )
        _checks.finite("actions", actions).setflags(write=False)
        _checks.choice("kind", self.kind, ("commanded", "applied"))
        if not isinstance(self.time_unit, str) or not isinstance(self.amplitude_unit, str):
            raise TypeError("`time_unit` and `amplitude_unit` must be texts, e.g. 'ns', 'rad/ns'")
        fields: dict[str, Any] = {"actions": actions, "control_names": names}
        fields["dt"] = float(_checks.positive("dt", _checks.as_parameter(self.dt)))
        fields["padding"] = float(_checks.non_negative("padding", self.padding))
        fields["metrics"] = {k: float(_checks.finite(k, v)) for k, v in self.metrics.items()}
        if self.bound is not None:
            bound = _checks.as_parameter(self.bound)
            _checks.positive("bound", _checks.shape("bound", bound, (len(names),)))
            fields["bound"] = tuple(bound.tolist())
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def duration(self) -> float:
        """Length of the pulse, N dt, padding included."""
        return len(self.actions) * self.dt

    def applied(self) -> "Pulse":
        """What acts on an ideal system: the actions clipped to the bound, kind "applied"."""
        limit = np.inf if self.bound is None else np.array(self.bound)
        actions = np.clip(self.actions, -limit, limit)
        return dataclasses.replace(self, actions=actions, kind="applied")

    def fitting(self, env: Any) -> np.ndarray:
        """The actions, for an environment with the units and the intervals of the pulse.

        Raises:
            ValueError: another interval, or another unit where both state one.
        """
        for name in ("time_unit", "amplitude_unit"):
            own, other = getattr(self, name), getattr(getattr(env, "model", None), name, "")
            if own and other and own != other:
                raise ValueError(
                    f"the pulse has the {name} {own!r}, this environment {other!r}; convert its "
                    f"numbers, or play it in the task that it was made for: {self.task}"
                )
        if not math.isclose(self.dt, float(env.dt), rel_tol=TOLERANCE):
            raise ValueError(
                f"the pulse has intervals of {self.dt:g}, this environment of {float(env.dt):g}; "
                "build the environment with that `dt`, or use pulse.resample"
            )
        return self.actions

    def environment(self) -> Any:
        """The task that the pulse was made for, with its horizon and dt set to the pulse's.

        Raises:
            ValueError: the pulse names no task, or one that is not known.
        """
        if self.task is None:
            raise ValueError("this pulse names no task; build an environment and play it there")
        grid = {"horizon": len(self.actions), "dt": self.dt}
        return make(self.task, **{**self.task_kwargs, **grid})

    def resample(self, dt: float, pad_to: int | None = None) -> "Pulse":
        """The pulse on intervals of another length: each new value is the mean over its interval.

        The area under every control is kept, and a dt that divides the old one only repeats
        values. The `metrics` are dropped, since another pulse has other ones: replay it.

        Args:
            dt: the new interval, in `time_unit`.
            pad_to: None refuses a duration that is not a whole number of new intervals; an
                integer m fills with zeros to a multiple of m intervals and adds the time to
                `padding`.

        Raises:
            ValueError: the duration does not fit and `pad_to` is None.
        """
        dt = float(_checks.positive("dt", dt))
        exact = self.duration / dt
        count = _checks.ceil_to_int(exact * (1 - TOLERANCE))
        if pad_to is None and not math.isclose(count, exact, rel_tol=TOLERANCE):
            raise ValueError(
                f"`dt` must divide the duration {self.duration:g} {self.time_unit} into whole "
                f"intervals, got {dt:g} ({exact:.6g} of them); choose another or set pad_to=1"
            )
        if pad_to is not None:
            multiple = _checks.integer("pad_to", pad_to, minimum=1)
            count = -(-count // multiple) * multiple
        added = max(0.0, count * dt - self.duration) if count > exact * (1 + TOLERANCE) else 0.0
        actions = _means(self.actions, self.dt, dt, count)
        padding = self.padding + added
        return dataclasses.replace(self, actions=actions, dt=dt, metrics={}, padding=padding)

    def envelope(self, full_scale: float, i: str, q: str) -> np.ndarray:
        """Complex samples (I + iQ)/full_scale of two controls, for hardware that wants |.| <= 1.

        Args:
            full_scale: amplitude, in `amplitude_unit`, that the hardware plays as 1.
            i, q: names of the in-phase and the quadrature control.

        Returns:
            Complex array of shape (N,).

        Raises:
            ValueError: a control of another name, or a sample whose modulus is above 1; its real
                and imaginary part may each be below 1.
        """
        for name in (i, q):
            _checks.choice("i, q", name, self.control_names)
        _checks.positive("full_scale", full_scale)
        columns = [self.actions[:, self.control_names.index(name)] for name in (i, q)]
        samples = (columns[0] + 1j * columns[1]) / full_scale
        worst = int(np.argmax(abs(samples)))
        if abs(samples[worst]) > 1 + TOLERANCE:
            raise ValueError(
                f"|{i} + i {q}| must be <= full_scale = {full_scale:g} {self.amplitude_unit}, got "
                f"{abs(samples[worst]) * full_scale:.6g} in interval {worst}; scale the pulse down"
            )
        return samples

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the pulse as JSON; a reader never sees half a file."""
        record = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        rows = ",\n    ".join(map(_json, record.pop("actions").tolist()))
        lines = [f'"{key}": {_json(value)}' for key, value in record.items()]
        head = f'"format": "{FORMAT}",\n  "version": {VERSION}'
        text = ",\n  ".join([head, *lines, f'"actions": [\n    {rows}\n  ]'])
        target = Path(path)
        partial = target.with_name(target.name + ".part")
        partial.write_text(f"{{\n  {text}\n}}\n", encoding="utf-8")
        partial.replace(target)
        return target


def load(path: str | os.PathLike[str]) -> Pulse:
    """Read a pulse file.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not a pulse file, one of a later version, or one with wrong content.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise ValueError(f'{path} is not a pulse file: it needs "format": "{FORMAT}"')
    version = record.pop("version", None)
    if version != VERSION:
        raise ValueError(f"{path} has version {version!r}, this qenvs reads {VERSION}; update it")
    try:
        record["task_kwargs"] = restored(record.get("task_kwargs", {}))
        return Pulse(**record)
    except (TypeError, ValueError) as error:
        message = str(error).replace("Pulse.__init__()", "a pulse")
        raise ValueError(f"{path} does not hold a pulse: {message}") from None


def from_actions(
    env: Any,
    actions: Any,
    kind: Literal["commanded", "applied"],
    *,
    task: str | None = None,
    task_kwargs: dict[str, Any] | None = None,
    metrics: dict[str, float] | None = None,
) -> Pulse:
    """The pulse of an environment's actions, with the units of its model.

    Args:
        env: environment whose dt, bound, control names and units the pulse takes.
        actions: shape (N, K).
        kind: "commanded" or "applied", see `Pulse`.
        task, task_kwargs: how `qenvs.make` builds the environment, to replay the pulse later.
        metrics: name -> number reached with this pulse.
    """
    bound = np.broadcast_to(np.asarray(env.action_bound, float), (env.action_dim,))
    return Pulse(
        actions=np.asarray(actions),
        dt=float(env.dt),
        control_names=env.model.control_names,
        time_unit=env.model.time_unit,
        amplitude_unit=env.model.amplitude_unit,
        kind=kind,
        bound=tuple(bound.tolist()),
        task=task,
        task_kwargs=dict(task_kwargs or {}),
        metrics={name: float(value) for name, value in (metrics or {}).items()},
    )


def _means(actions: np.ndarray, old: float, new: float, count: int) -> np.ndarray:
    """Means over `count` intervals of length `new`; zero where the pulse has ended."""
    ratio = old / new
    repeats = round(ratio)
    if repeats >= 1 and math.isclose(ratio, repeats, rel_tol=TOLERANCE):
        held = np.repeat(actions, repeats, axis=0)
        return np.concatenate([held, np.zeros((count - len(held), held.shape[1]))])
    edges = old * np.arange(len(actions) + 1)
    area = np.concatenate([np.zeros((1, actions.shape[1])), np.cumsum(actions, axis=0) * old])
    wanted = new * np.arange(count + 1)
    return np.stack([np.diff(np.interp(wanted, edges, a)) for a in area.T], axis=1) / new


def _json(value: Any) -> str:
    return json.dumps(spelled(value), allow_nan=False, default=_refused)


def _refused(value: Any) -> Any:
    raise TypeError(f"a pulse file holds numbers, texts and lists, got {value!r}")

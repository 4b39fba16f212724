"""Figures of pulses, states and learning; each function draws on an Axes and returns it.

Matplotlib is imported on first use, through its Agg canvas: no window, no global state.
"""

import functools
import importlib.util
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#2b6cb0", "#dd6b20", "#2c9a7a", "#b83280", "#805ad5", "#718096", "#b7791f", "#3182ce")
INK, FAINT, GRID = "#1f2933", "#9aa5b1", "#e4e7eb"
AZIMUTH, ELEVATION = math.radians(-35), math.radians(16)
"""Where the Bloch sphere is seen from, in radians."""
DASHED = (0, (4, 3))


def figure(rows: int = 1, columns: int = 1, width: float = 7.0, height: float = 3.2) -> Any:
    """A Figure and its Axes, free of pyplot's global state.

    Args:
        rows, columns: the grid of Axes.
        width, height: size of the figure in inches.

    Returns:
        The Figure, and one Axes or an array of Axes.

    Raises:
        ImportError: Matplotlib is not installed.
    """
    figure = _new_figure(width, height, dpi=150, layout="constrained")
    return figure, figure.subplots(rows, columns)


def _new_figure(width: float, height: float, dpi: int, layout: Any = None) -> "Figure":
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "plots need Matplotlib, the extra qenvs[plots]; in this project: pip install '.[plots]'"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout=layout)
    FigureCanvasAgg(figure)
    return figure


def units(env: Any) -> tuple[str, str]:
    """Units of time and of the controls in an environment's model."""
    time_unit = getattr(env.model, "time_unit", "1/omega0")
    return time_unit, getattr(env.model, "amplitude_unit", "omega0")


def with_unit(quantity: str, unit: str) -> str:
    """An axis label: the quantity and, if there is one, its unit in brackets."""
    return f"{quantity} ({unit.replace('omega0', 'ω₀')})" if unit else quantity


def pulse(
    ax: "Axes",
    actions: ArrayLike,
    dt: float,
    *,
    names: Sequence[str] = (),
    bound: ArrayLike | None = None,
    time_unit: str = "",
    amplitude_unit: str = "",
) -> "Axes":
    """Draw a piecewise constant pulse: each action is held over its whole interval.

    Args:
        ax: where to draw.
        actions: controls, shape (N, K): N intervals, never N points.
        dt: length of an interval, in `time_unit`.
        names: one name per control.
        bound: half-width of the control range, drawn as dashed lines; a number or one per control.
        time_unit, amplitude_unit: units written on the axes; "" for none.
    """
    actions = np.atleast_2d(np.asarray(actions, float))
    edges = dt * np.arange(len(actions) + 1)
    names = names or [f"u{k + 1}" for k in range(actions.shape[1])]
    for k, (name, values) in enumerate(zip(names, actions.T, strict=True)):
        _held(ax, values, edges, COLORS[k % len(COLORS)], name, fill=len(names) == 1)
    _pulse_axes(ax, names, () if bound is None else np.atleast_1d(bound))
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(with_unit("time", time_unit))
    ax.set_ylabel(with_unit(ax.get_ylabel(), amplitude_unit))
    return ax


def _pulse_axes(ax: "Axes", names: Sequence[str], bounds: Any) -> None:
    """Lines at zero and at the bounds, the vertical label, the legend."""
    _style(ax)
    ax.axhline(0, color=FAINT, linewidth=0.8, zorder=1)
    for level in np.unique(bounds):
        for sign in (-1, 1):
            ax.axhline(sign * level, color=FAINT, linestyle=DASHED, linewidth=1, zorder=1)
    ax.set_ylabel(names[0] if len(names) == 1 else "control")
    if len(names) > 1:
        _legend(ax)


def _held(ax: "Axes", values: Any, edges: Any, color: str, label: str, fill: bool) -> list[Any]:
    """The patches of one control held over its intervals."""
    held = [ax.stairs(values, edges, baseline=None, color=color, linewidth=1.8, label=label)]
    if fill:
        held.append(ax.stairs(values, edges, fill=True, color=color, alpha=0.15, linewidth=0))
    return held


def populations(
    ax: "Axes", states: ArrayLike, dt: float, *, time_unit: str = "", labels: Sequence[str] = ()
) -> "Axes":
    """Draw the population of every basis state at the ends of the intervals.

    Args:
        ax: where to draw.
        states: kets (N+1, d) or density matrices (N+1, d, d), the initial state first.
        dt: length of an interval, in `time_unit`.
        time_unit: unit written on the axis.
        labels: one per basis state; by default |0>, |1>, ...
    """
    _style(ax)
    values = _populations(states)
    times = dt * np.arange(len(values))
    labels = labels or [f"|{k}⟩" for k in range(values.shape[1])]
    for k, label in enumerate(labels):
        ax.plot(times, values[:, k], color=COLORS[k % len(COLORS)], linewidth=1.8, label=label)
    _unit_interval(ax, times[-1])
    ax.set_xlabel(with_unit("time", time_unit))
    ax.set_ylabel("population")
    _legend(ax)
    return ax


def progress(
    ax: "Axes", values: ArrayLike, dt: float, *, quantity: str = "fidelity", time_unit: str = ""
) -> "Axes":
    """Draw a task quantity at the ends of the intervals, `values` of shape (N+1,)."""
    _style(ax)
    values = np.asarray(values, float)
    times = dt * np.arange(len(values))
    ax.plot(times, values, color=COLORS[2], linewidth=1.8, marker="o", markersize=3)
    ax.set_xlim(0, times[-1])
    if quantity == "fidelity":
        _unit_interval(ax, times[-1])
    ax.set_xlabel(with_unit("time", time_unit))
    ax.set_ylabel(quantity)
    return ax


def learning_curve(
    ax: "Axes", steps: ArrayLike, values: ArrayLike, *, quantity: str = "fidelity", label: str = ""
) -> "Axes":
    """Draw the median over seeds, the quartiles as a band and the extremes as a lighter one.

    Args:
        ax: where to draw; `ax.set_yscale("log")` suits an infidelity.
        steps: environment steps at each update, shape (updates,).
        values: the quantity, shape (seeds, updates).
        quantity: name of the vertical axis.
        label: name of the curve, for several in one Axes.
    """
    from matplotlib.ticker import EngFormatter

    _style(ax)
    values = np.atleast_2d(np.asarray(values, float))
    color = COLORS[len(ax.get_lines()) % len(COLORS)]
    low, first, median, third, high = np.quantile(values, (0, 0.25, 0.5, 0.75, 1), axis=0)
    seeds = f"median of {len(values)} seeds" if len(values) > 1 else "1 seed"
    label = f"{label}, {seeds}" if label else seeds
    ax.fill_between(steps, low, high, color=color, alpha=0.12, linewidth=0, label="all seeds")
    ax.fill_between(steps, first, third, color=color, alpha=0.28, linewidth=0, label="middle half")
    ax.plot(steps, median, color=color, linewidth=1.8, label=label)
    ax.set_xlim(np.min(steps), np.max(steps))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel("environment steps")
    ax.set_ylabel(quantity)
    _legend(ax)
    return ax


def bloch(ax: "Axes", states: ArrayLike) -> "Axes":
    """Draw the path of a qubit on the Bloch sphere, seen from outside (parallel projection).

    Args:
        ax: where to draw; its axes are hidden and its aspect becomes equal.
        states: kets (N+1, 2) or density matrices (N+1, 2, 2), the initial state first.

    Raises:
        ValueError: states of another dimension.
    """
    _sphere(ax)
    for artist in _path(ax):
        _place(artist, bloch_vectors(states))
    return ax


def bloch_vectors(states: ArrayLike) -> np.ndarray:
    """(<sigma_x>, <sigma_y>, <sigma_z>) of qubit states, shape (N, 3)."""
    states = np.asarray(states, complex)
    if states.shape[1:] not in ((2,), (2, 2)):
        raise ValueError(
            f"`states` must be qubit kets (N, 2) or density matrices (N, 2, 2), got {states.shape}"
        )
    rho: Any = states if states.ndim == 3 else states[:, :, None] * states[:, None, :].conj()
    coherence = 2 * rho[:, 1, 0]
    inversion = rho[:, 0, 0] - rho[:, 1, 1]
    return np.stack([coherence.real, coherence.imag, inversion.real], axis=1)


def _populations(states: ArrayLike) -> np.ndarray:
    """Diagonal of the density matrices, shape (N, d), of kets (N, d) or matrices (N, d, d)."""
    states = np.asarray(states)
    return abs(states) ** 2 if states.ndim == 2 else np.einsum("nii->ni", states).real


def _style(ax: "Axes") -> None:
    """Light axes: two spines, a faint grid under the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.set_axisbelow(True)
    ax.grid(color=GRID, linewidth=0.8)
    ax.tick_params(which="both", color=FAINT, labelcolor=INK)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)


def _legend(ax: "Axes") -> None:
    """A legend in the line above the Axes, where no curve can run under it."""
    columns = min(len(ax.get_legend_handles_labels()[1]), 5)
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.99)}
    ax.legend(
        **place, ncols=columns, frameon=False, fontsize=9, columnspacing=1.4, handlelength=1.6
    )


def _unit_interval(ax: "Axes", duration: float) -> None:
    ax.set_xlim(0, duration)
    ax.set_ylim(-0.03, 1.05)


def _project(points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Positions (N, 2) on the page of points (N, 3), and their heights above it."""
    cos_a, sin_a = math.cos(AZIMUTH), math.sin(AZIMUTH)
    cos_e, sin_e = math.cos(ELEVATION), math.sin(ELEVATION)
    right = np.array([-sin_a, cos_a, 0])
    up = np.array([-sin_e * cos_a, -sin_e * sin_a, cos_e])
    viewer = np.array([cos_e * cos_a, cos_e * sin_a, sin_e])
    points = np.asarray(points, float)
    return np.stack([points @ right, points @ up], axis=-1), points @ viewer


def _sphere(ax: "Axes") -> None:
    """The sphere without a state: outline, equator, prime meridian, axes."""
    from matplotlib.patches import Circle

    ax.set_axis_off()
    ax.set_aspect("equal")
    ax.set_xlim(-1.3, 1.3)
    ax.set_ylim(-1.3, 1.3)
    ax.add_patch(Circle((0, 0), 1, facecolor="#f5f8fc", edgecolor=FAINT, linewidth=1.2))
    angle = np.linspace(0, 2 * np.pi, 181)
    zero = np.zeros_like(angle)
    for circle in (
        np.stack([np.cos(angle), np.sin(angle), zero], 1),
        np.stack([zero, np.sin(angle), np.cos(angle)], 1),
        np.stack([np.sin(angle), zero, np.cos(angle)], 1),
    ):
        page, height = _project(circle)
        for visible, style in ((height >= 0, "-"), (height < 0, (0, (2, 3)))):
            line = np.where(visible[:, None], page, np.nan)
            ax.plot(*line.T, color="#cbd2d9", linewidth=0.9, linestyle=style)
    for name, axis in (("x", (1, 0, 0)), ("y", (0, 1, 0)), ("|0⟩", (0, 0, 1)), ("|1⟩", (0, 0, -1))):
        tip = _project([axis])[0][0]
        ax.plot([0, tip[0]], [0, tip[1]], color=FAINT, linewidth=0.9)
        ax.text(
            1.16 * tip[0], 1.16 * tip[1], name, ha="center", va="center", fontsize=12, color=INK
        )


def _path(ax: "Axes") -> list[Any]:
    """Empty artists of a path: its trail, the vector from the centre, and its two ends."""
    from matplotlib.collections import LineCollection

    trail = LineCollection([], linewidths=2.8, capstyle="round", label="trail")
    ax.add_collection(trail, autolim=False)
    (vector,) = ax.plot([], [], color=INK, linewidth=1.8, label="vector")
    (start,) = ax.plot([], [], "o", ms=6, mfc="white", mec=COLORS[0], mew=1.5, label="start")
    (tip,) = ax.plot([], [], "o", ms=9, mfc=COLORS[1], mec="white", mew=1.2, label="tip")
    return [trail, vector, start, tip]


def _place(artist: Any, vectors: np.ndarray) -> None:
    """Put one artist of `_path` where the path (N, 3) wants it; what lies behind is paler."""
    page, height = _project(vectors)
    if artist.get_label() == "trail":
        artist.set_segments(np.stack([page[:-1], page[1:]], axis=1))
        middle = (height[:-1] + height[1:]) / 2
        depth = np.clip(0.75 + 0.6 * middle, 0.35, 1.0)[:, None]
        artist.set_color(depth * _rgb(COLORS[0]) + (1 - depth))
        return
    points = {"vector": np.stack([np.zeros(2), page[-1]]), "start": page[:1], "tip": page[-1:]}
    artist.set_data(*points[artist.get_label()].T)


def _rgb(color: str) -> np.ndarray:
    return np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def frame(env: Any, actions: ArrayLike, states: Sequence[Any]) -> np.ndarray:
    """The image of an episode after k steps: the pulse so far, the task quantity, the state.

    A qubit is drawn on the Bloch sphere, a larger system by its populations. The figure is kept
    for the next frames of the same environment, and only what moved is drawn again.

    Args:
        env: the environment, wrapped or not.
        actions: the k actions taken, shape (k, K); drawn as clipped to the bound.
        states: the k+1 states of the environment, the initial one first.

    Returns:
        uint8 array of shape (480, 960, 3).

    Raises:
        ImportError: Matplotlib is not installed.

    >>> import jax, qenvs
    >>> env = qenvs.make("qubit/StateTransfer-v0")
    >>> state, _ = env.reset(jax.random.PRNGKey(0))
    >>> qenvs.plots.frame(env, [], [state]).shape
    (480, 960, 3)
    """
    return _frames(env)(actions, states)


class _Frames:
    """The figure behind `frame`: a still background and the artists that move."""

    def __init__(self, env: Any) -> None:
        self.env, self.horizon, self.dt = env, int(env.horizon), float(env.dt)
        self.names = tuple(env.model.control_names)
        self.bound = np.broadcast_to(np.asarray(env.action_bound, float), (len(self.names),))
        self.is_qubit = tuple(env.model.dims) == (2,)
        self.quantity, self.decode = "", None
        self._figure = _new_figure(9.6, 4.8, dpi=100)
        self._canvas: Any = self._figure.canvas
        self._controls = self._pulse_panel()
        self._curve = self._value_panel()
        self._state = self._bloch_panel() if self.is_qubit else self._population_panel()
        self._texts = [self._figure.text(x, 0.925, "", fontsize=14) for x in (0.075, 0.64)]
        self._moving = [*itertools.chain(*self._controls), *self._curve, *self._state, *self._texts]
        for artist in self._moving:
            artist.set_animated(True)
        self._background: Any = None

    def __call__(self, actions: ArrayLike, states: Sequence[Any]) -> np.ndarray:
        actions = np.reshape(np.asarray(actions, float), (-1, len(self.names)))
        self._update_pulse(np.clip(actions, -self.bound, self.bound))
        self._update_values(states)
        self._update_state(self._arrays([state.base for state in states]))
        if self._background is None:
            self._canvas.draw()
            self._background = self._canvas.copy_from_bbox(self._figure.bbox)
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            (artist.axes or self._figure).draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    def _arrays(self, states: list[Any]) -> np.ndarray:
        """The states as complex arrays, decoded by one compiled call of fixed shape."""
        if self.decode is None:
            self.decode = jax.jit(jax.vmap(states[0].coordinates.decode))
        x = np.stack([np.asarray(state.x) for state in states])
        padded = np.concatenate([x, np.zeros((self.horizon + 1 - len(x), x.shape[1]), x.dtype)])
        return np.asarray(self.decode(padded))[: len(x)]

    def _pulse_panel(self) -> list[list[Any]]:
        ax = self._figure.add_axes((0.075, 0.52, 0.5, 0.32))
        edges, empty = self._times(), np.full(self.horizon, np.nan)
        held = [
            _held(ax, empty, edges, COLORS[k % len(COLORS)], name, fill=len(self.names) == 1)
            for k, name in enumerate(self.names)
        ]
        _pulse_axes(ax, self.names, self.bound)
        limit = 1.15 * self.bound.max()
        ax.set(xlim=(0, edges[-1]), ylim=(-limit, limit))
        ax.tick_params(labelbottom=False)
        return held

    def _value_panel(self) -> list[Any]:
        ax = self._figure.add_axes((0.075, 0.125, 0.5, 0.32))
        _unit_interval(ax, self._times()[-1])
        ax.set_xlabel("time")
        _style(ax)
        style: dict[str, Any] = {"color": COLORS[2], "clip_on": False}
        return [
            ax.plot([], [], linewidth=2, **style)[0],
            ax.plot([], [], "o", ms=7, mec="white", **style)[0],
        ]

    def _bloch_panel(self) -> list[Any]:
        ax = self._figure.add_axes((0.6, 0.02, 0.4, 0.86))
        _sphere(ax)
        return _path(ax)

    def _population_panel(self) -> list[Any]:
        ax = self._figure.add_axes((0.65, 0.125, 0.325, 0.715))
        _unit_interval(ax, self._times()[-1])
        ax.set(xlabel="time", ylabel="population")
        _style(ax)
        labels = [f"|{k}⟩" for k in range(math.prod(self.env.model.dims))]
        lines = [
            ax.plot([], [], linewidth=2, color=COLORS[k % len(COLORS)], label=label)[0]
            for k, label in enumerate(labels)
        ]
        _legend(ax)
        return lines

    def _times(self) -> np.ndarray:
        return self.dt * np.arange(self.horizon + 1)

    def _update_pulse(self, actions: np.ndarray) -> None:
        for k, patches in enumerate(self._controls):
            held = np.full(self.horizon, np.nan)
            held[: len(actions)] = actions[:, k]
            for patch in patches:
                patch.set_data(held)
        step = len(actions)
        self._texts[0].set_text(f"step {step} of {self.horizon},  t = {step * self.dt:.4g}")

    def _update_values(self, states: Sequence[Any]) -> None:
        values = np.array([float(state.base.value) for state in states])
        times = self._times()[: len(values)]
        self._curve[0].set_data(times, values)
        self._curve[1].set_data(times[-1:], values[-1:])
        if not self.quantity:
            info = self.env.info(states[0])
            self.quantity = "fidelity" if "fidelity" in info else next(iter(info))
            self._curve[0].axes.set_ylabel(self.quantity)
        self._texts[1].set_text(f"{self.quantity} {values[-1]:.5f}")
        self._widen(values)

    def _widen(self, values: np.ndarray) -> None:
        """Make room for a quantity that leaves the range drawn so far."""
        ax = self._curve[0].axes
        low, high = ax.get_ylim()
        if values.min() < low or values.max() > high:
            ax.set_ylim(min(low, 1.2 * values.min()), max(high, 1.2 * values.max()))
            self._background = None

    def _update_state(self, states: np.ndarray) -> None:
        if self.is_qubit:
            vectors = bloch_vectors(states)
            for artist in self._state:
                _place(artist, vectors)
            return
        for line, population in zip(self._state, _populations(states).T, strict=True):
            line.set_data(self._times()[: len(population)], population)


@functools.lru_cache(maxsize=8)
def _frames(env: Any) -> _Frames:
    return _Frames(env)

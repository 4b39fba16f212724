"""Curves: pulses, populations, progress, learning; and the style that they share."""

import importlib.util
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#2b6cb0", "#dd6b20", "#2c9a7a", "#b83280", "#805ad5", "#718096", "#b7791f", "#3182ce")
INK, FAINT, GRID = "#1f2933", "#9aa5b1", "#e4e7eb"
DASHED = (0, (4, 3))
LEGEND_COLUMNS = 5
VISIBLE = 0.01
"""Population from which a state appears in the legend."""


def color(k: int) -> str:
    """Color of the k-th curve."""
    return COLORS[k % len(COLORS)]


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
    figure = new_figure(width, height, dpi=150, layout="constrained")
    return figure, figure.subplots(rows, columns)


def new_figure(width: float, height: float, dpi: int, layout: Any = None) -> "Figure":
    """A Figure with an Agg canvas and no Axes; ImportError without Matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ImportError(
            "plots need Matplotlib, the extra qenvs[plots]; in this project: pip install '.[plots]'"
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=dpi, layout=layout)
    FigureCanvasAgg(figure)
    return figure


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
        held(ax, values, edges, color(k), name, fill=len(names) == 1)
    pulse_axes(ax, names, () if bound is None else np.atleast_1d(bound), amplitude_unit)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_xlabel(with_unit("time", time_unit))
    return ax


def pulse_axes(ax: "Axes", names: Sequence[str], bounds: Any, unit: str) -> None:
    """Lines at zero and at the bounds, the vertical label, the legend."""
    style(ax)
    ax.axhline(0, color=FAINT, linewidth=0.8, zorder=0.8)
    for level in np.unique(bounds):
        for sign in (-1, 1):
            ax.axhline(sign * level, color=FAINT, linestyle=DASHED, linewidth=1, zorder=0.8)
    ax.set_ylabel(with_unit(names[0] if len(names) == 1 else "control", unit))
    if len(names) > 1:
        legend(ax)


def held(ax: "Axes", values: Any, edges: Any, color: str, label: str, fill: bool) -> list[Any]:
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
        labels: one per basis state, shown for those that reach 1 %; by default |0>, |1>, ...
    """
    style(ax)
    values = state_populations(states)
    times = dt * np.arange(len(values))
    labels = labels or [f"|{k}⟩" for k in range(values.shape[1])]
    for k, label in enumerate(labels):
        shown = label if values[:, k].max() > VISIBLE else None
        ax.plot(times, values[:, k], color=color(k), linewidth=1.8, label=shown)
    unit_interval(ax, times[-1])
    ax.set_xlabel(with_unit("time", time_unit))
    ax.set_ylabel("population")
    legend(ax)
    return ax


def progress(
    ax: "Axes", values: ArrayLike, dt: float, *, quantity: str = "fidelity", time_unit: str = ""
) -> "Axes":
    """Draw a task quantity at the ends of the intervals, `values` of shape (N+1,)."""
    style(ax)
    values = np.asarray(values, float)
    times = dt * np.arange(len(values))
    ax.plot(times, values, color=COLORS[2], linewidth=1.8, marker="o", markersize=3)
    ax.set_xlim(0, times[-1])
    if quantity == "fidelity":
        unit_interval(ax, times[-1])
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

    style(ax)
    values = np.atleast_2d(np.asarray(values, float))
    tint = color(len(ax.get_lines()))
    low, first, median, third, high = np.quantile(values, (0, 0.25, 0.5, 0.75, 1), axis=0)
    seeds = f"median of {len(values)} seeds" if len(values) > 1 else "1 seed"
    label = f"{label}, {seeds}" if label else seeds
    ax.fill_between(steps, low, high, color=tint, alpha=0.12, linewidth=0, label="all seeds")
    ax.fill_between(steps, first, third, color=tint, alpha=0.28, linewidth=0, label="middle half")
    marker = "o" if np.size(steps) == 1 else None
    ax.plot(steps, median, color=tint, linewidth=1.8, label=label, marker=marker)
    if np.size(steps) > 1:
        ax.set_xlim(np.min(steps), np.max(steps))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.set_xlabel("environment steps of a seed")
    ax.set_ylabel(quantity)
    legend(ax)
    return ax


def state_populations(states: ArrayLike) -> np.ndarray:
    """Diagonal of the density matrices, shape (N, d), of kets (N, d) or matrices (N, d, d)."""
    states = np.asarray(states)
    return abs(states) ** 2 if states.ndim == 2 else np.einsum("nii->ni", states).real


def style(ax: "Axes") -> None:
    """Light axes: two spines, a faint grid under the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.set_axisbelow(True)
    ax.grid(color=GRID, linewidth=0.8)
    ax.tick_params(which="both", color=FAINT, labelcolor=INK)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)


def legend(ax: "Axes") -> None:
    """A legend in the line above the Axes, where no curve can run under it."""
    columns = min(len(ax.get_legend_handles_labels()[1]), LEGEND_COLUMNS)
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (-0.02, 0.99)}
    ax.legend(
        **place, ncols=columns, frameon=False, fontsize=9, columnspacing=1.4, handlelength=1.6
    )


def unit_interval(ax: "Axes", duration: float) -> None:
    """Limits for a number in [0, 1] over the whole pulse."""
    ax.set_xlim(0, duration)
    ax.set_ylim(-0.03, 1.05)

"""How one number is distributed over many episodes."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from qenvs.plots.axes import COLORS, FAINT, INK, legend, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 60


def histogram(
    ax: "Axes",
    values: ArrayLike,
    *,
    quantity: str = "fidelity",
    tail: float = 0.1,
    marks: Mapping[str, float] | None = None,
) -> "Axes":
    """Draw how often each value occurs, the lowest ones in another color.

    Args:
        ax: where to draw.
        values: one number per episode, shape (n,).
        quantity: name of the horizontal axis.
        tail: share of the episodes that counts as the lowest.
        marks: label -> number at which a vertical line stands, e.g. {"mean": 0.99}.
    """
    style(ax)
    ordered = np.sort(np.asarray(values, float))
    lowest = int(np.ceil(tail * ordered.size - 1e-9))
    edges = _edges(ordered)
    parts = [ordered[:lowest], ordered[lowest:]]
    labels = [f"lowest {100 * tail:g} %", "other episodes"]
    ax.hist(parts, edges, stacked=True, color=[COLORS[1], COLORS[0]], label=labels)
    strokes = ("-", (0, (4, 3)), (0, (1, 2)))
    for k, (label, value) in enumerate((marks or {}).items()):
        ax.axvline(value, color=INK, linestyle=strokes[k % 3], linewidth=1.4, label=label)
    ax.set_xlim(edges[0], edges[-1])
    ax.locator_params(axis="x", nbins=5)
    ax.ticklabel_format(axis="x", useOffset=False)
    ax.set_xlabel(quantity)
    ax.set_ylabel(f"episodes of {ordered.size:,}")
    ax.axhline(0, color=FAINT, linewidth=0.8)
    legend(ax)
    return ax


def _edges(ordered: np.ndarray) -> list[float]:
    """Edges of the bins; all episodes alike take one bin of a visible width."""
    low, high = ordered[0], ordered[-1]
    least = 1e-6 * max(1.0, abs(low), abs(high))
    if high - low < least:
        low, high = low - least, high + least
    return np.linspace(low, high, BINS + 1).tolist()

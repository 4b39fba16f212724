"""Figures of pulses, states and learning; each function draws on an Axes and returns it.

Matplotlib is imported on first use, through its Agg canvas: no window, no global state.
"""

from qenvs.plots.axes import (
    figure,
    learning_curve,
    populations,
    progress,
    pulse,
    with_unit,
)
from qenvs.plots.frames import frame, state_arrays, state_labels
from qenvs.plots.histogram import histogram
from qenvs.plots.sphere import bloch, bloch_vectors

__all__ = [
    "bloch",
    "bloch_vectors",
    "figure",
    "frame",
    "histogram",
    "learning_curve",
    "populations",
    "progress",
    "pulse",
    "state_arrays",
    "state_labels",
    "with_unit",
]

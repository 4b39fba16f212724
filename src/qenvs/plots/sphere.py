"""The Bloch sphere in parallel projection."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from qenvs.plots.axes import COLORS, FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AZIMUTH, ELEVATION = math.radians(-35), math.radians(16)
"""Where the sphere is seen from, in radians."""


def bloch(ax: "Axes", states: ArrayLike) -> "Axes":
    """Draw the path of a qubit on the Bloch sphere, seen from outside (parallel projection).

    Args:
        ax: where to draw; its axes are hidden and its aspect becomes equal.
        states: kets (N+1, 2) or density matrices (N+1, 2, 2), the initial state first.

    Raises:
        ValueError: states of another dimension.
    """
    sphere(ax)
    for artist in path(ax):
        place(artist, bloch_vectors(states))
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


def _project(points: Any) -> tuple[np.ndarray, np.ndarray]:
    """Positions (N, 2) on the page of points (N, 3), and their heights above it."""
    cos_a, sin_a = math.cos(AZIMUTH), math.sin(AZIMUTH)
    cos_e, sin_e = math.cos(ELEVATION), math.sin(ELEVATION)
    right = np.array([-sin_a, cos_a, 0])
    up = np.array([-sin_e * cos_a, -sin_e * sin_a, cos_e])
    viewer = np.array([cos_e * cos_a, cos_e * sin_a, sin_e])
    points = np.asarray(points, float)
    return np.stack([points @ right, points @ up], axis=-1), points @ viewer


def sphere(ax: "Axes") -> None:
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
            1.19 * tip[0], 1.19 * tip[1], name, ha="center", va="center", fontsize=12, color=INK
        )


def path(ax: "Axes") -> list[Any]:
    """Empty artists of a path: its trail, the vector from the centre, and its two ends."""
    from matplotlib.collections import LineCollection

    trail = LineCollection([], linewidths=2.8, capstyle="round", label="trail")
    ax.add_collection(trail, autolim=False)
    (vector,) = ax.plot([], [], color=INK, linewidth=1.8, label="vector")
    (start,) = ax.plot([], [], "o", ms=6, mfc="white", mec=COLORS[0], mew=1.5, label="start")
    (tip,) = ax.plot([], [], "o", ms=9, mfc=COLORS[1], mec="white", mew=1.2, label="tip")
    return [trail, vector, start, tip]


def place(artist: Any, vectors: np.ndarray) -> None:
    """Put one artist of `path` where the path (N, 3) wants it; what lies behind is paler."""
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

"""Images of an episode, for `render` and for videos."""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from qenvs.dynamics import Coordinates, PropagatorCoordinates, SuperoperatorCoordinates
from qenvs.observables import as_density_matrix
from qenvs.plots import axes, sphere

LABEL = (-0.125, 0.5)
"""Where the vertical labels stand, beside their Axes: one column."""


def state_arrays(env: Any, states: Sequence[Any]) -> np.ndarray:
    """Environment states as kets (n, d) or density matrices (n, d, d).

    Where the environment follows a map (a gate), these are the states that the map makes of the
    initial state of its model.
    """
    inner = [state.base for state in states]
    x = np.stack([np.asarray(state.x) for state in inner])
    rows = max(env.horizon + 1, len(x))  # one shape for all lengths: one compilation
    padded = np.concatenate([x, np.zeros((rows - len(x), *x.shape[1:]), x.dtype)])
    return np.asarray(_decoder(env, inner[0].coordinates)(padded))[: len(x)]


@functools.lru_cache(maxsize=8)
def _decoder(env: Any, coordinates: Coordinates) -> Any:
    start = jnp.asarray(env.model.initial_state())

    def decode(x: Array) -> Array:
        array = coordinates.decode(x)
        if isinstance(coordinates, SuperoperatorCoordinates):
            rho = as_density_matrix(start)
            return (array @ rho.T.reshape(-1)).reshape(rho.shape).T
        if isinstance(coordinates, PropagatorCoordinates):
            return array @ start if start.ndim == 1 else array @ start @ array.conj().T
        return array

    return jax.jit(jax.vmap(decode))


def state_labels(env: Any) -> list[str]:
    """One label per basis state: the level of every tensor factor."""
    return [f"|{','.join(map(str, index))}⟩" for index in np.ndindex(*env.model.dims)]


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
        self.quantity = env.quantity_name
        self._time_label = axes.with_unit("time", env.model.time_unit)
        self._figure = axes.new_figure(9.6, 4.8, dpi=100)
        self._canvas: Any = self._figure.canvas
        self._controls = self._pulse_panel()
        self._curve = self._value_panel()
        self._state = self._bloch_panel() if self.is_qubit else self._population_panel()
        self._texts = [self._figure.text(x, 0.925, "", fontsize=14) for x in (0.09, 0.65)]
        self._moving = [*itertools.chain(*self._controls), *self._curve, *self._state, *self._texts]
        for artist in self._moving:
            artist.set_animated(True)
        self._background: Any = None

    def __call__(self, actions: ArrayLike, states: Sequence[Any]) -> np.ndarray:
        actions = np.reshape(np.asarray(actions, float), (-1, len(self.names)))
        self._update_pulse(np.clip(actions, -self.bound, self.bound))
        self._update_values(states)
        self._update_state(state_arrays(self.env, states))
        if self._background is None:
            self._canvas.draw()
            self._background = self._canvas.copy_from_bbox(self._figure.bbox)
        self._canvas.restore_region(self._background)
        for artist in self._moving:
            (artist.axes or self._figure).draw_artist(artist)
        return np.asarray(self._canvas.buffer_rgba())[:, :, :3].copy()

    def _pulse_panel(self) -> list[list[Any]]:
        ax = self._figure.add_axes((0.09, 0.52, 0.485, 0.32))
        edges, empty = self._times(), np.full(self.horizon, np.nan)
        fill = len(self.names) == 1
        held = [
            axes.held(ax, empty, edges, axes.color(k), name, fill)
            for k, name in enumerate(self.names)
        ]
        axes.pulse_axes(ax, self.names, self.bound, self.env.model.amplitude_unit)
        limit = 1.15 * self.bound.max()
        ax.set(xlim=(0, edges[-1]), ylim=(-limit, limit))
        ax.tick_params(labelbottom=False)
        ax.yaxis.set_label_coords(*LABEL)
        return held

    def _value_panel(self) -> list[Any]:
        ax = self._figure.add_axes((0.09, 0.125, 0.485, 0.32))
        axes.unit_interval(ax, self._times()[-1])
        ax.set(xlabel=self._time_label, ylabel=self.quantity)
        ax.yaxis.set_label_coords(*LABEL)
        axes.style(ax)
        style: dict[str, Any] = {"color": axes.color(2), "clip_on": False}
        return [
            ax.plot([], [], linewidth=2, **style)[0],
            ax.plot([], [], "o", ms=7, mec="white", **style)[0],
        ]

    def _bloch_panel(self) -> list[Any]:
        ax = self._figure.add_axes((0.6, 0.02, 0.4, 0.86))
        sphere.sphere(ax)
        return sphere.path(ax)

    def _population_panel(self) -> list[Any]:
        ax = self._figure.add_axes((0.65, 0.125, 0.325, 0.715))
        axes.unit_interval(ax, self._times()[-1])
        labels = state_labels(self.env)
        ax.set(xlabel=self._time_label, ylabel=f"populations of {len(labels)} states")
        axes.style(ax)
        lines = [
            ax.plot([], [], linewidth=2, color=axes.color(k), label=label)[0]
            for k, label in enumerate(labels)
        ]
        if len(labels) <= axes.LEGEND_COLUMNS:
            axes.legend(ax)
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
            vectors = sphere.bloch_vectors(states)
            for artist in self._state:
                sphere.place(artist, vectors)
            return
        for line, population in zip(self._state, axes.state_populations(states).T, strict=True):
            line.set_data(self._times()[: len(population)], population)


@functools.lru_cache(maxsize=8)
def _frames(env: Any) -> _Frames:
    return _Frames(env)

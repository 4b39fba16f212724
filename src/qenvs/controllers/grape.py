"""Gradient-ascent pulse engineering: the pulse that maximises the task quantity.

    maximise F(u) over the amplitudes u of all intervals, |u| <= action_bound

F and its exact gradient come out of one compiled function, reverse mode through `env.rollout`
(memory: the state after each interval). L-BFGS-B takes the steps, on amplitudes in units of the
bound. References: Khaneja et al., J. Magn. Reson. 172, 296 (2005); de Fouquieres et al.,
J. Magn. Reson. 212, 412 (2011); Byrd et al., SIAM J. Sci. Comput. 16, 1190 (1995).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize

from qenvs import _checks, keys
from qenvs.controllers.episodes import score
from qenvs.envs.base import Environment

Progress = Callable[[int, float], Any]
"""Called as progress(iteration, value) after each iteration."""

GUESS_SPREAD = 0.3
"""Largest amplitude of the default guess, in units of the bound."""

NUDGE = 0.05
"""Largest change of an amplitude, in units of the bound, that moves a search off a stationary
start: large enough for float32 to see the curvature, small enough to stay near the guess."""


@dataclass(frozen=True)
class PulseResult:
    """A pulse and how the search for it went.

    Attributes:
        actions: the best pulse, shape (horizon, action_dim), in the units of the environment;
            `env.rollout(actions, key)` ends at `value`.
        value: its task quantity F (fidelity, energy, ...).
        history: F of the guess, then F after each iteration.
        reason: why the search stopped:
            "gradient": the gradient vanished to within the tolerance;
            "precision": the floating point type resolves no further gain;
            "max_iterations": the limit was reached;
            "stationary": the guess has no gradient, and moving off it changes nothing;
            "line_search": no gain along the gradient although there should be one;
            "interrupted": Ctrl-C; the pulse is the best one until then.
        message: the same in the words of SciPy.
        iterations: number of iterations.
        evaluations: number of evaluations of F and its gradient.
        gradient_norm: largest |dF/d(u/bound)| at the pulse, bounded amplitudes excepted.
        perturbed: whether the guess was stationary and the search began beside it.
    """

    actions: np.ndarray
    value: float
    history: np.ndarray
    reason: str
    message: str
    iterations: int
    evaluations: int
    gradient_norm: float
    perturbed: bool

    @property
    def converged(self) -> bool:
        """Whether the pulse is a maximum as far as the arithmetic can tell (maybe a local one)."""
        return self.reason in ("gradient", "precision")


def optimize(
    env: Environment,
    guess: Any = None,
    *,
    key: Array | None = None,
    max_iterations: int = 1000,
    tolerance: float | None = None,
    progress: Progress | None = None,
) -> PulseResult:
    """Find a pulse of maximal task quantity by gradient ascent within the action bound.

    A guess beyond the bound is clipped, as the environment clips actions. A stationary guess
    (u = 0 often is one: the gradient is 0 by symmetry) is no success: the search then starts
    beside it, and the guess comes back only if nothing better is found.

    Args:
        env: any environment, also a wrapped one; the pulse is open loop.
        guess: amplitudes, shape (horizon, action_dim), unchanged by the search. By default
            uniform random ones within 0.3 of the bound, drawn from the key.
        key: episode key, as in `env.rollout`; the draws above have branches of their own.
        max_iterations: limit on the iterations; 0 only evaluates the guess.
        tolerance: stop where |dF/d(u/bound)| is at most this; by default eps^(2/3) of the
            floating point type: 2e-5 in float32, 4e-11 in float64.
        progress: called as progress(iteration, value) after each iteration.

    Raises:
        ValueError: a guess of the wrong shape or with NaN, a task quantity whose value or
            gradient at the guess is not finite, a negative limit or tolerance.

    >>> import qenvs
    >>> from qenvs.controllers import optimize
    >>> result = optimize(qenvs.make("qubit/StateTransfer-v0"))
    >>> result.converged, round(result.value, 4), result.actions.shape
    (True, 1.0, (20, 1))
    """
    max_iterations = _checks.integer("max_iterations", max_iterations, minimum=0)
    search = _Search(env, jax.random.PRNGKey(0) if key is None else key, progress)
    if tolerance is None:
        tolerance = float(search.eps ** (2 / 3))
    _checks.non_negative("tolerance", tolerance)
    start = search.evaluate(search.default_guess() if guess is None else search.clipped(guess))
    if not (np.isfinite(start.value) and np.all(np.isfinite(start.slope))):
        raise ValueError(f"the task quantity must be finite with its gradient, got {start}")
    if max_iterations == 0:
        return search.result(start, "max_iterations", "no iteration was asked for", False)
    perturbed = start.norm <= tolerance
    beside = search.evaluate(search.nudged(start.actions)) if perturbed else start
    found, status, message = search.run(beside, max_iterations, tolerance)
    if perturbed and found.value <= start.value + search.resolution(start.value):
        flat = abs(beside.value - start.value) <= search.resolution(start.value)
        reason = "stationary" if flat else search.reason(start, status, tolerance)
        return search.result(start, reason, message, perturbed)
    return search.result(found, search.reason(found, status, tolerance), message, perturbed)


class _Point(NamedTuple):
    """A pulse, its F, dF/d(u/bound), and the largest slope that the bounds let the search use."""

    actions: np.ndarray
    value: float
    slope: np.ndarray
    norm: float


class _Search:
    """The state of one search: its environment, what was evaluated, the best so far."""

    def __init__(self, env: Environment, key: Array, progress: Progress | None) -> None:
        self.env, self.key, self.progress = env, key, progress
        self.dtype = np.dtype(jnp.result_type(float))
        self.eps = float(np.finfo(self.dtype).eps)
        self.shape = (env.horizon, env.action_dim)
        exact = np.broadcast_to(np.asarray(env.action_bound, float), self.shape)
        # the largest numbers of the dtype that do not exceed the bound
        bound = exact.astype(self.dtype)
        self.bound = np.where(bound > exact, np.nextafter(bound, self.dtype.type(0)), bound)
        self.history: list[float] = []
        self.evaluations = 0

    def clipped(self, guess: Any) -> np.ndarray:
        """The guess within the bound, as a new array."""
        guess = np.asarray(_checks.finite("guess", guess), self.dtype)
        _checks.shape("guess", guess, self.shape)
        return np.clip(guess, -self.bound, self.bound)

    def default_guess(self) -> np.ndarray:
        return self.bound * self._draw("guess", GUESS_SPREAD)

    def nudged(self, actions: np.ndarray) -> np.ndarray:
        moved = actions + self.bound * self._draw("nudge", NUDGE)
        return np.clip(moved, -self.bound, self.bound)

    def _draw(self, name: str, spread: float) -> np.ndarray:
        """Uniform numbers in [-spread, spread], the same ones in either precision."""
        key = jax.random.fold_in(self.key, keys.name_tag(name))
        draw = jax.random.uniform(key, self.shape, jnp.float32, -spread, spread)
        return np.asarray(draw, self.dtype)

    def evaluate(self, actions: np.ndarray) -> _Point:
        value, gradient = _value_and_gradient(self.env, self.key, jnp.asarray(actions))
        value, slope = float(value), np.asarray(gradient, float) * self.bound
        blocked = np.abs(actions) >= self.bound
        usable = np.where(blocked & (slope * actions > 0), 0.0, slope)
        point = _Point(actions, value, slope, float(np.abs(usable).max()))
        self.evaluations += 1
        if self.evaluations == 1:
            self.history.append(value)
        if self.evaluations == 1 or value > self.best.value:
            self.best = point
        return point

    def run(self, start: _Point, max_iterations: int, tolerance: float) -> tuple[_Point, int, str]:
        """Ascend from a point; where it ended, SciPy's status (-1: interrupted) and message."""

        def at(x: np.ndarray) -> _Point:
            return self.evaluate((x.reshape(self.shape) * self.bound).astype(self.dtype))

        def descent(x: np.ndarray) -> tuple[float, np.ndarray]:
            point = at(x)
            return -point.value, -point.slope.reshape(-1)

        def note(intermediate_result: Any) -> None:
            self.history.append(-float(intermediate_result.fun))
            if self.progress is not None:
                self.progress(len(self.history) - 1, self.history[-1])

        x = np.clip(start.actions / self.bound.astype(float), -1.0, 1.0).reshape(-1)
        limits = {"maxiter": max_iterations, "maxfun": 100 * max_iterations, "maxcor": 20}
        limits |= {"ftol": self.eps, "gtol": tolerance}
        bounds = np.broadcast_to((-1.0, 1.0), (x.size, 2))
        try:
            found = minimize(
                descent,
                x,
                jac=True,
                bounds=bounds,
                method="L-BFGS-B",
                callback=note,
                options=limits,
            )
        except KeyboardInterrupt:
            return self.best, -1, "interrupted from the keyboard"
        return at(found.x), found.status, str(found.message)

    def resolution(self, value: float) -> float:
        """Differences of F near `value` that the arithmetic cannot tell from rounding."""
        return 4 * self.eps * max(1.0, abs(value))

    def reason(self, end: _Point, status: int, tolerance: float) -> str:
        """Why the search stopped, one of the words of `PulseResult`."""
        if status == -1:
            return "interrupted"
        if end.norm <= tolerance:
            return "gradient"
        if status == 1:
            return "max_iterations"
        # at a maximum a slope of sqrt(eps) belongs to a gain of about eps
        return "precision" if status == 0 or end.norm <= 10 * self.eps**0.5 else "line_search"

    def result(self, point: _Point, reason: str, message: str, perturbed: bool) -> PulseResult:
        history = np.array(self.history)
        return PulseResult(
            actions=point.actions,
            value=point.value,
            history=history,
            reason=reason,
            message=message,
            iterations=history.size - 1,
            evaluations=self.evaluations,
            gradient_norm=point.norm,
            perturbed=perturbed,
        )


@eqx.filter_jit
def _value_and_gradient(env: Environment, key: Array, actions: Array) -> tuple[Array, Array]:
    """F and dF/du. The environment is an argument: a changed number needs no new compilation."""

    def quantity(actions: Array) -> Array:
        state, rewards = env.rollout(actions, key)
        return score(state, rewards.sum())

    return jax.value_and_grad(quantity)(actions)

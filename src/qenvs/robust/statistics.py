"""Mean, tail, minimum and quantiles of one number per episode, and how sure the first two are."""

import dataclasses
import functools

import numpy as np

from qenvs import _checks

TAIL = 0.1
"""Share of the episodes that CVaR averages: the lowest ones."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)

LEVEL = 0.95
"""Nominal coverage of the intervals."""

MIN_EPISODES = {"mean": 200, "median": 200, "cvar": 1000}
"""Episodes from which a statistic has an interval: with fewer the coverage falls short of `LEVEL`.
Measured over fidelities of detuned and of miscalibrated pulses, 400 to 1000 trials each: mean and
median 0.91 to 0.96 from 200 on; CVaR 0.90 to 0.93 at 200, 0.91 to 0.95 at 1000, 0.94 to 0.95 at
10,000."""

RESAMPLES = 1000
"""Bootstrap samples behind an interval."""


@dataclasses.dataclass(frozen=True, eq=False)
class Statistics:
    """One number per episode, and what sums it up.

    Attributes:
        values: the numbers, shape (n,), episode i at index i.
    """

    values: np.ndarray

    @property
    def mean(self) -> float:
        """Mean over the episodes."""
        return float(self.values.mean(dtype=float))

    @property
    def cvar(self) -> float:
        """Lower-tail conditional value at risk: the mean of the lowest ceil(n/10) values."""
        tail = _tail_size(self.values.size)
        return float(np.partition(self.values, tail - 1)[:tail].mean(dtype=float))

    @property
    def minimum(self) -> float:
        """The lowest value; it says as much about n as about the device, so it has no interval."""
        return float(self.values.min())

    @property
    def quantiles(self) -> dict[float, float]:
        """Share p -> value below which it lies, for p in `QUANTILES`; 0.5 is the median."""
        found = np.quantile(self.values.astype(float), QUANTILES)
        return dict(zip(QUANTILES, found.tolist(), strict=True))

    @functools.cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Percentile bootstrap intervals of "mean", "median" and "cvar" at `LEVEL`.

        Each only from its number of episodes in `MIN_EPISODES` on, where the measured coverage
        agrees with the nominal one. The resamples are the same in every call.
        """
        names = [name for name, least in MIN_EPISODES.items() if self.values.size >= least]
        if not names:
            return {}
        ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
        drawn = resampled(self.values)
        found = {name: np.quantile(drawn[name], ends) for name in names}
        return {name: (float(low), float(high)) for name, (low, high) in found.items()}


def _tail_size(n: int) -> int:
    return _checks.ceil_to_int(TAIL * n)


def resampled(values: np.ndarray) -> dict[str, np.ndarray]:
    """Mean, median and CVaR of `RESAMPLES` bootstrap samples of the values.

    The draws are of episodes, not of ranks: the same draws of ranks in every evaluation would turn
    their Monte Carlo error into a bias of the intervals.
    """
    order, n = np.argsort(values), values.size
    ordered, tail = values[order].astype(float), _tail_size(values.size)
    generator, middle = np.random.default_rng(0), np.array([(n - 1) // 2, n // 2])
    found = np.empty((RESAMPLES, 3))
    for row in found:
        drawn = np.bincount(generator.integers(0, n, n), minlength=n)[order]
        # what stands at a rank of the sample is where the running count passes that rank
        count = np.cumsum(drawn)
        lowest = np.diff(np.minimum(count, tail), prepend=0)
        median = ordered[np.searchsorted(count, middle, side="right")].mean()
        row[:] = drawn @ ordered / n, median, lowest @ ordered / tail
    return dict(zip(("mean", "median", "cvar"), found.T, strict=True))

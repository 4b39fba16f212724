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

MIN_EPISODES = 200
"""Fewer episodes give no interval: below, the coverage falls short of `LEVEL`."""

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
        """Percentile bootstrap intervals of the "mean" and the "median" at `LEVEL`.

        Only these two, and only from `MIN_EPISODES` episodes on (else empty): there the measured
        coverage agrees with the nominal one. The resamples are the same in every call.
        """
        if self.values.size < MIN_EPISODES:
            return {}
        ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
        drawn = resampled(self.values)
        found = {name: np.quantile(values, ends) for name, values in drawn.items()}
        return {name: (float(low), float(high)) for name, (low, high) in found.items()}


def _tail_size(n: int) -> int:
    return _checks.ceil_to_int(TAIL * n)


def resampled(values: np.ndarray) -> dict[str, np.ndarray]:
    """Mean and median of `RESAMPLES` bootstrap samples of the values."""
    ordered, n = np.sort(values.astype(float)), values.size
    generator, middle = np.random.default_rng(0), np.array([(n - 1) // 2, n // 2])
    means, medians = np.empty(RESAMPLES), np.empty(RESAMPLES)
    for k in range(RESAMPLES):
        drawn = np.bincount(generator.integers(0, n, n), minlength=n)
        means[k] = drawn @ ordered / n
        # what stands at a rank of the sample is where the running count passes that rank
        places = np.searchsorted(np.cumsum(drawn), middle, side="right")
        medians[k] = ordered[places].mean()
    return {"mean": means, "median": medians}

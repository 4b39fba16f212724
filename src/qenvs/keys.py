"""The key tree of an episode: every random number hangs from one episode key.

A run starts from `PRNGKey(seed)`; episode i of the run has the key `episode_key(run_key, i)`.
Each source of randomness folds its own path of integers into that key, so that adding,
removing or changing one source never moves the samples of another:

    episode_key -> PARAMETER, crc32(name)           one model parameter
                -> CALIBRATION, GAIN | OFFSET       one calibration error
                -> STEP_NOISE, k                    control noise of step k
                -> MEASUREMENT, t, j                observable j at observation time t
                -> COLOURED_NOISE, k                fresh number in the coloured noise of step k

What outlives an episode hangs from the run key, on a branch that no episode index reaches:

    run_key -> DRIFT, crc32(name)                   drift of one model parameter over the run

Raw keys (`jax.random.PRNGKey`) and typed keys (`jax.random.key`) are both accepted.
"""

import zlib

import jax
from jax import Array

PARAMETER, CALIBRATION, STEP_NOISE, MEASUREMENT, COLOURED_NOISE = range(5)
GAIN, OFFSET = range(2)
DRIFT = 2**32 - 1


def _leaf(key: Array, *path: int | Array) -> Array:
    for branch in path:
        key = jax.random.fold_in(key, branch)
    return key


def episode_key(run_key: Array, index: int | Array) -> Array:
    """Key of episode `index` of a run: `fold_in(run_key, index)`."""
    return _leaf(run_key, index)


def name_tag(name: str) -> int:
    """Key tag of a parameter name: CRC-32 of its UTF-8 bytes, the same in every release."""
    return zlib.crc32(name.encode())


def parameter_key(episode_key: Array, name: str) -> Array:
    """Key from which the model parameter `name` of this episode is drawn."""
    return _leaf(episode_key, PARAMETER, name_tag(name))


def calibration_key(episode_key: Array, tag: int) -> Array:
    """Key of an episode-fixed control error; `tag` is `GAIN` or `OFFSET`."""
    return _leaf(episode_key, CALIBRATION, tag)


def step_noise_key(episode_key: Array, step: int | Array) -> Array:
    """Key of the control noise of step `step` (counted from 0)."""
    return _leaf(episode_key, STEP_NOISE, step)


def measurement_key(episode_key: Array, time: int | Array, observable: int | Array) -> Array:
    """Key of the shots of `observable` at observation `time` (0 at reset, k after step k)."""
    return _leaf(episode_key, MEASUREMENT, time, observable)


def coloured_noise_key(episode_key: Array, step: int | Array) -> Array:
    """Key of the fresh number in the coloured control noise of step `step` (counted from 0)."""
    return _leaf(episode_key, COLOURED_NOISE, step)


def drift_key(run_key: Array, name: str) -> Array:
    """Key of the drift of the model parameter `name` from one episode of a run to the next."""
    return _leaf(run_key, DRIFT, name_tag(name))

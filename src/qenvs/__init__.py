"""Quantum control environments in JAX: exact dynamics, functional API, Gymnasium adapters.

Public names load on first use, so that `import qenvs` starts no JAX backend and loads neither
dynamiqs, torch nor matplotlib. Where Gymnasium is installed the tasks are registered with it.
"""

import contextlib
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import jax

from qenvs._version import __version__
from qenvs.registration import TaskSpec, make, register, registry
from qenvs.tasks import register_tasks

# On a CPU a step takes microseconds; JAX would hand it to a thread that must first wake up, for
# up to 150 us. Once a JAX client runs, this changes nothing.
with contextlib.suppress(AttributeError):
    jax.config.update("jax_cpu_enable_async_dispatch", False)

if TYPE_CHECKING:
    from qenvs.envs import Environment, EnvState, TimeStep


_HOMES = {"Environment": "qenvs.envs", "EnvState": "qenvs.envs", "TimeStep": "qenvs.envs"}
_MODULES = (
    "controllers distributions dynamics envs gates keys models observables plots pulses robust "
    "testing validation wrappers"
).split()

__all__ = [
    "EnvState",
    "Environment",
    "TaskSpec",
    "TimeStep",
    "__version__",
    "make",
    "register",
    "registry",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"qenvs.{name}")
    raise AttributeError(f"module 'qenvs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})


register_tasks()

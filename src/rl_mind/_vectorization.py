"""The choice of how B environments become one vector environment, and its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal, NamedTuple

import gymnasium
from gymnasium.envs.registration import (
    EnvSpec,
    find_highest_version,
    get_env_id,
    parse_env_id,
)
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

VectorizationMode = Literal["auto", "sync", "vector_entry_point"]
WrapperFn = Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]


class Vectorized(NamedTuple):
    """A vector environment, the mode it runs in and why `auto` chose that one."""

    env: VectorEnv
    mode: Literal["sync", "vector_entry_point"]
    reason: str


@dataclass(frozen=True)
class Recipe:
    """What is asked for, the arguments of `VecEnv` that decide how it is built."""

    env_name: str
    num_envs: int
    autoreset: AutoresetMode
    wrappers: Sequence[WrapperFn]
    env_kwargs: dict[str, Any]

    def build(self, mode: VectorizationMode) -> Vectorized:
        """Build in `mode`; `auto` is the vector entry point if that means the same environment and
        nothing is to be rendered.

        Raises ValueError for an unknown id or mode, or a vector entry point that cannot do what
        is asked.
        """
        if mode not in ("auto", "sync", "vector_entry_point"):
            raise ValueError(
                f"`vectorization_mode` must be 'auto', 'sync' or 'vector_entry_point', got {mode!r}"
            )
        spec = find_spec(self.env_name)
        if mode == "sync":
            return Vectorized(self._sync(), "sync", "asked for")
        renders = self.env_kwargs.get("render_mode") is not None
        if mode == "auto" and renders:
            return Vectorized(self._sync(), "sync", "separate environments render")
        native = self._native(spec)
        if isinstance(native, VectorEnv):
            reason = "asked for" if mode == "vector_entry_point" else "its vector entry point fits"
            return Vectorized(native, "vector_entry_point", reason)
        if mode == "vector_entry_point":
            raise ValueError(
                f"vectorization_mode='vector_entry_point' is impossible for {self.env_name!r}: "
                f"{native}. Use 'auto' or 'sync'"
            )
        return Vectorized(self._sync(), "sync", native)

    def _sync(self) -> SyncVectorEnv:
        # VecEnv knows itself that `reset` comes first; a layer costs 3 % of CartPole's step.
        spec = replace(find_spec(self.env_name), order_enforce=False)

        def make(index: int) -> gymnasium.Env[Any, Any]:
            # Gymnasium's passive checker looks at one copy: they are all alike.
            checker = {"disable_env_checker": True} if index else {}
            env = gymnasium.make(spec, **(checker | self.env_kwargs))
            for wrapper in self.wrappers:
                env = wrapper(env)
            return env

        copies = [lambda index=index: make(index) for index in range(self.num_envs)]
        return SyncVectorEnv(copies, autoreset_mode=self.autoreset)

    def _native(self, spec: EnvSpec) -> VectorEnv | str:
        """Return the environment of the vector entry point, or why it would not be the same."""
        if spec.vector_entry_point is None:
            return "it registers no vector entry point"
        if self.wrappers or spec.additional_wrappers:
            return "wrappers apply to single environments"
        if self.env_kwargs.get("max_episode_steps") == -1:
            return "max_episode_steps=-1 is a word of gymnasium.make only"
        try:
            env = self._entry_point({"autoreset_mode": self.autoreset})
        except TypeError:  # it does not know the word: does it happen to reset as asked?
            try:
                env = self._entry_point({})
            except TypeError as error:
                return f"its vector entry point refuses the arguments ({error})"
        offered = env.metadata.get("autoreset_mode")
        if offered == self.autoreset:
            return env
        env.close()
        offered = offered.name if isinstance(offered, AutoresetMode) else "an undeclared"
        return f"its vector entry point resets in {offered} mode, not {self.autoreset.name}"

    def _entry_point(self, extra: dict[str, Any]) -> VectorEnv:
        return gymnasium.make_vec(
            self.env_name,
            self.num_envs,
            vectorization_mode="vector_entry_point",
            **self.env_kwargs,
            **extra,
        )


def find_spec(env_name: str) -> EnvSpec:
    """Return the registered spec, importing the module of a "module:id" name first.

    Raises ValueError if nothing is registered under that name.
    """
    module, _, name = env_name.rpartition(":")
    if module:
        import_module(module)
    try:
        namespace, base, version = parse_env_id(name)
        latest = find_highest_version(namespace, base) if version is None else version
        return gymnasium.spec(get_env_id(namespace, base, latest))
    except gymnasium.error.Error as error:
        raise ValueError(
            f"`env_name` must be a registered Gymnasium id, got {env_name!r} ({error}). Import "
            f"the package that registers it first (`import qenvs` for the quantum tasks, `import "
            f"rl_mind.envs` for ours), or name it in the id: 'package:{name}'"
        ) from error

"""Find an object by its import path, `pkg.mod:ATTR`."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from qenvs import _checks


def load(path: str) -> Any:
    """The object that "pkg.mod:ATTR" names; ATTR may be dotted.

    The current directory counts as importable.

    Raises:
        ValueError: not of this form, or no such module or attribute; the message names near ones.
        ImportError: the module itself fails to import.
    """
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        raise ValueError(
            f"an import path must read pkg.mod:ATTR, such as my_lab:model, got {path!r}"
        )
    if module_name.endswith(".py"):
        stem = Path(module_name).stem
        raise ValueError(
            f"an import path names a module, not a file, got {path!r}; "
            f"from the folder of that file it is {stem}:{attribute}"
        )
    with _here_importable():
        module = _module(module_name)
    found: Any = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            known = [n for n in dir(found) if not n.startswith("_")]
            owner = module_name if found is module else type(found).__name__
            raise ValueError(f"{owner!r} has no {name!r}; {_checks.suggest(name, known)}")
        found = getattr(found, name)
    return found


def load_model(path: str) -> Any:
    """The object at a path; a class or a function without arguments is called.

    Raises:
        ValueError: as `load`, for one that needs arguments, or for one that raises.
        ImportError: as `load`.
    """
    found = load(path)
    if not callable(found):
        return found
    needed = _required(found)
    if needed:
        raise ValueError(
            f"{path!r} must be a model, or a class or function that makes one without arguments; "
            f"it needs {', '.join(needed)}"
        )
    try:
        return found()
    except Exception as error:
        raise ValueError(f"{path!r} raised {type(error).__name__}: {error}") from error


def load_reference(path: str) -> Any:
    """As `load_model`; a function of one argument is a Hamiltonian H(controls), left as it is."""
    found = load(path)
    is_hamiltonian = not inspect.isclass(found) and callable(found) and len(_required(found)) == 1
    return found if is_hamiltonian else load_model(path)


def _required(function: Any) -> list[str]:
    """Names of the arguments that have no default."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in kinds]


@contextmanager
def _here_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _module(name: str) -> ModuleType:
    parent: ModuleType | None = None
    parts = name.split(".")
    for k, part in enumerate(parts):
        dotted = ".".join(parts[: k + 1])
        try:
            parent = importlib.import_module(dotted)
        except ModuleNotFoundError as error:
            if error.name != dotted:
                raise ImportError(f"{dotted!r} needs {error.name!r}, not installed") from error
            raise ValueError(f"there is no module {dotted!r}; {_near(part, parent)}") from None
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise ImportError(f"{dotted!r} fails to import: {problem}") from error
    assert parent is not None
    return parent


def _near(name: str, parent: ModuleType | None) -> str:
    """Near names among the modules of a package, or of the current directory."""
    paths = [str(Path.cwd())] if parent is None else getattr(parent, "__path__", [])
    return _checks.suggest(name, [module.name for module in pkgutil.iter_modules(paths)])

"""The house rules that a reader can see in the tree: arrows, sizes, docstrings, clean imports."""

import ast
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
TREES = ("src", "tests", "tools", "examples", "benchmarks")
MAX_FILE, MEDIAN_FILE, MAX_FUNCTION, MEDIAN_FUNCTION = 500, 200, 60, 10

# From the ground up. A room imports its own floor and those below.
FLOORS = (
    {"_apart", "_checks", "_products", "_strict_json", "_threefry", "_version", "registration"},
    {"keys", "distributions", "gates", "observables"},
    {"dynamics"},
    {"models"},
    {"envs"},
    {"plots"},  # below the wrappers, since `render` draws with it
    {"tasks", "wrappers"},
    {"controllers", "robust", "validation", "pulses", "testing"},
    {"qenvs"},  # the package itself, which hands out the public names
    {"cli"},
)
FLOOR = {room: height for height, rooms in enumerate(FLOORS) for room in rooms}


def python_files(*trees: str) -> list[Path]:
    return sorted(path for tree in trees for path in (ROOT / tree).rglob("*.py"))


def imports(source: str, package: str) -> Iterator[str]:
    """Dotted names that `source`, a module of `package`, imports anywhere in its text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: 1 - node.level or None] if node.level else []
            base = ".".join([*parts, *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(SRC).parent.parts)


def room(dotted: str) -> str:
    """Room of a dotted name below qenvs; "qenvs" for names of the package itself."""
    second = dotted.split(".")[1:2]
    is_module = second and any(
        (SRC / "qenvs" / name).exists() for name in (second[0], second[0] + ".py")
    )
    return second[0] if is_module else "qenvs"


def upward_arrows(source: str, package: str, own_room: str) -> list[str]:
    """Imports of a module of `own_room` that point to a higher floor."""
    rooms = {room(name) for name in imports(source, package) if name.split(".")[0] == "qenvs"}
    return sorted(f"{own_room} -> {r}" for r in rooms if FLOOR[r] > FLOOR[own_room])


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, without the docstring: explaining must not cost."""
    assert function.end_lineno is not None
    total = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return total
    doc = function.body[0]
    assert doc.end_lineno is not None
    return total - (doc.end_lineno - doc.lineno + 1)


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)]


def in_fresh_python(code: str, **env: str) -> str:
    """Standard output of `code` in an interpreter of its own, with these variables added."""
    path = os.pathsep.join(filter(None, [str(SRC), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": path} | env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- arrows ---


def test_every_room_of_qenvs_has_a_floor():
    names = {p.stem for p in (SRC / "qenvs").iterdir() if p.suffix == ".py" or p.is_dir()}
    assert names - {"__init__", "__pycache__"} <= set(FLOOR), "give the new room a floor"


def test_arrows_point_down():
    modules = [p for p in python_files("src/qenvs") if p != SRC / "qenvs/__init__.py"]
    arrows = {
        str(path.relative_to(SRC)): found
        for path in modules
        if (
            found := upward_arrows(
                path.read_text(),
                package_of(path),
                path.relative_to(SRC / "qenvs").parts[0].removesuffix(".py"),
            )
        )
    }
    assert modules
    assert arrows == {}


@pytest.mark.parametrize(
    ("source", "package", "own_room"),
    [
        ("from qenvs.envs.base import Environment", "qenvs.dynamics", "dynamics"),
        ("def f():\n    import qenvs.envs", "qenvs.models", "models"),
        ("from ..tasks import qubit", "qenvs.envs", "envs"),
        ("from qenvs import make", "qenvs.wrappers", "wrappers"),
    ],
)
def test_an_arrow_that_points_up_is_seen(source, package, own_room):
    assert upward_arrows(source, package, own_room)
    assert not upward_arrows("from qenvs import keys\nfrom . import core", package, own_room)


@pytest.mark.parametrize(("package", "other"), [("qenvs", "rl_mind"), ("rl_mind", "qenvs")])
def test_the_two_packages_never_import_each_other(package, other):
    for path in python_files(f"src/{package}"):
        names = {name.split(".")[0] for name in imports(path.read_text(), package_of(path))}
        assert other not in names, path


# --- what an import brings along ---

LOADED = "import sys, json; print(json.dumps([m for m in {watched} if m in sys.modules]))"


@pytest.mark.claims("W-WR-1")
@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import qenvs", ["dynamiqs", "qutip", "torch", "matplotlib", "typer", "rl_mind"]),
        ("import qenvs.wrappers", ["dynamiqs", "torch", "matplotlib"]),
        ("import qenvs.cli", ["dynamiqs", "torch", "matplotlib"]),
        ("import rl_mind", ["jax", "jaxlib", "qenvs", "matplotlib"]),
    ],
)
def test_an_import_loads_no_more_than_it_must(statement, unwanted):
    loaded = json.loads(in_fresh_python(f"{statement}\n{LOADED.format(watched=unwanted)}"))
    assert loaded == []


def test_PK_1_import_starts_no_backend():
    # A backend that does not exist fails as soon as anything asks JAX for a device.
    code = (
        "import qenvs, qenvs.wrappers, jax\ntry: jax.devices()\nexcept RuntimeError: print('asked')"
    )
    assert in_fresh_python(code, JAX_PLATFORMS="no_such_platform").strip() == "asked"


@pytest.mark.parametrize("value", [False, True])
def test_PK_2_import_leaves_x64_alone(value):
    code = "import qenvs, qenvs.wrappers, jax; print(jax.config.jax_enable_x64)"
    assert in_fresh_python(code, JAX_ENABLE_X64=str(int(value))).strip() == str(value)


WITHOUT = """
import sys
sys.modules[{missing!r}] = None
try:
    {statement}
except ImportError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("missing", "statement", "extra"),
    [
        ("gymnasium", "from qenvs.wrappers import GymnasiumEnv", "qenvs[gym]"),
        ("gymnasium", "from qenvs.wrappers.vector import GymnasiumVectorEnv", "qenvs[gym]"),
        ("torch", "from rl_mind.core import TensorStruct", "qenvs[torch]"),
    ],
)
def test_PK_3_a_missing_extra_is_named(missing, statement, extra):
    assert extra in in_fresh_python(WITHOUT.format(missing=missing, statement=statement))


@pytest.mark.claims("W-WR-1")
def test_functional_wrappers_run_without_gymnasium():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "import jax, qenvs\n"
        "from qenvs.wrappers import Wrapper\n"
        "env = Wrapper(qenvs.make('qubit/StateTransfer-v0'))\n"
        "print(env.reset(jax.random.PRNGKey(0))[1].observation.shape)"
    )
    assert in_fresh_python(code).strip() == "(5,)"


PRIVATE_ARRAY = re.compile(
    r"(import|from) jaxlib|jax\._src|ArrayImpl|DeviceArray|(jnp|jax\.numpy)\.ndarray"
)


def test_PK_5_arrays_are_recognised_by_their_public_type_alone():
    for path in python_files("src/qenvs"):
        assert not PRIVATE_ARRAY.search(path.read_text()), path


# --- sizes ---


def test_files_stay_short():
    sizes = {path: len(path.read_text().splitlines()) for path in python_files(*TREES)}
    assert {str(p.relative_to(ROOT)): n for p, n in sizes.items() if n > MAX_FILE} == {}
    assert statistics.median(n for p, n in sizes.items() if SRC in p.parents) <= MEDIAN_FILE


def test_functions_stay_short():
    sizes = {
        f"{path.relative_to(ROOT)}:{function.lineno} {function.name}": lines_of_code(function)
        for path in python_files(*TREES)
        for function in functions(path)
    }
    assert {name: n for name, n in sizes.items() if n > MAX_FUNCTION} == {}
    assert (
        statistics.median(n for n_, n in sizes.items() if n_.startswith("src")) <= MEDIAN_FUNCTION
    )


def test_a_docstring_does_not_count_as_code():
    source = 'def f(x):\n    """One.\n\n    Two.\n    """\n    y = x\n    return y\n'
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef) and lines_of_code(function) == 3


# --- docstrings ---


def public_without_docstring(source: str) -> list[str]:
    """Public functions, classes and methods at module or class level that say nothing.

    Methods that Python or a base class defines (`__init__`, an `@override`) may stay silent.
    """

    def walk(owner: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
                continue
            inherits = isinstance(owner, ast.ClassDef) and owner.bases
            if ast.get_docstring(node) is None and not inherits:
                yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from walk(node, f"{prefix}{node.name}.")

    return list(walk(ast.parse(source), ""))


def test_no_public_function_without_docstring():
    silent = {
        str(path.relative_to(SRC)): names
        for path in python_files("src")
        if (names := public_without_docstring(path.read_text()))
    }
    assert silent == {}


def test_a_silent_public_function_is_seen():
    assert public_without_docstring("class A:\n    '''A.'''\n    def f(self): ...") == ["A.f"]
    assert public_without_docstring("def f(): ...\ndef _g(): ...") == ["f"]

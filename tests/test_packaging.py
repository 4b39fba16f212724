"""What a user installs: both packages, the extras, the command, pins that keep their word."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pins(name: str) -> dict[str, str]:
    """Distribution -> version of a constraints file."""
    lines = (ROOT / name).read_text().splitlines()
    return {
        key.lower(): version
        for key, _, version in (line.partition("==") for line in lines if not line.startswith("#"))
    }


def requirements(*extras: str) -> list[Requirement]:
    """Requirements of the base install and these extras, without references to ourselves."""
    listed = [*PROJECT["dependencies"], *(line for extra in extras for line in EXTRAS[extra])]
    return [r for r in map(Requirement, listed) if r.name != "qenvs"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    return zipfile.ZipFile(next(folder.glob("qenvs-*.whl")))


@pytest.mark.parametrize("package", ["qenvs", "rl_mind"])
def test_the_wheel_holds_both_packages_typed(wheel, package):
    inside = set(wheel.namelist())
    assert {f"{package}/__init__.py", f"{package}/py.typed"} <= inside
    assert {
        str(path.relative_to(ROOT / "src")) for path in (ROOT / "src" / package).rglob("*.py")
    } <= inside


@pytest.mark.claims("G-IF-11")
def test_the_wheel_declares_extras_and_command(wheel):
    info = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = wheel.read(info).decode()
    assert "Requires-Dist: gymnasium>=1.0; extra == 'gym'" in metadata
    assert set(re.findall("Provides-Extra: (.+)", metadata)) >= {
        *("gym", "torch", "plots", "docs", "dev", "all")
    }
    commands = wheel.read(info.replace("METADATA", "entry_points.txt")).decode()
    assert "qenvs = qenvs.cli:main" in commands


def test_one_version_everywhere():
    import qenvs

    version = PROJECT["version"]
    assert qenvs.__version__ == version
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[?{re.escape(version)}\]?", (ROOT / "CHANGELOG.md").read_text(), re.M)


@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("constraints.txt", ["gym", "torch", "plots", "docs", "test", "dev"]),
        ("constraints-lowest.txt", ["gym", "plots", "test"]),
    ],
)
def test_pins_cover_the_requirements(name, extras):
    pinned = pins(name)
    for requirement in requirements(*extras):
        version = pinned[requirement.name.lower()]
        assert requirement.specifier.contains(version), f"{requirement} against {version}"


@pytest.mark.claims("G-AR-9")
def test_the_lowest_pins_are_the_declared_bounds():
    pinned = pins("constraints-lowest.txt")
    for requirement in requirements("gym", "plots"):
        (bound,) = (spec.version for spec in requirement.specifier if spec.operator == ">=")
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", pinned[requirement.name.lower()])

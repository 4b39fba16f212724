"""Settings that every test shares."""

import os
from pathlib import Path

import hypothesis
import pytest

os.environ.setdefault("MPLBACKEND", "Agg")  # plots are drawn without a screen

# Most of the time goes into compiling, often the same functions: keep what was compiled.
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

# No deadline: the first example of a property compiles. CI must not fail by the luck of a draw.
hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture
def qenvs_command(capsys, monkeypatch, tmp_path):
    """Runs the command in a folder of its own: (exit code, standard output, standard error)."""
    from qenvs import cli

    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = cli.run(list(words))
        return code, *capsys.readouterr()

    return run

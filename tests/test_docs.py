"""Every example that a reader meets runs: README, docs and docstrings.

In a page, ```python blocks share one namespace and ```console blocks run their `$ qenvs ...` lines.
`<!-- skip: next "why" -->` in front of a block leaves it out. Sybil reads the pages.
"""

import doctest
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import SkipTest

import pytest
from sybil import Document, Example, Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = [p for p in sorted((ROOT / "src").rglob("*.py")) if ">>> " in p.read_text()]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run_console(example: Example) -> str | None:
    """Run the lines `$ qenvs ...` of a block; what went wrong, or None."""
    for line in str(example.parsed).splitlines():
        if line.startswith("$ qenvs "):
            command = [sys.executable, "-c", "from qenvs.cli import main; main()"]
            done = subprocess.run(
                [*command, *shlex.split(line[8:])], capture_output=True, text=True
            )
            if done.returncode:
                return f"{line}\nleft with {done.returncode}\n{done.stdout}{done.stderr}"
    return None


PAGE = Sybil([PythonCodeBlockParser(), CodeBlockParser("console", run_console), SkipParser()])
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
DOCSTRINGS = Sybil([DocTestParser(FLAGS)], document_types={".py": PythonDocStringDocument})


def run_examples(document: Document) -> int:
    """Run a document from top to bottom; the number of its blocks."""
    examples = list(document.examples())
    for example in examples:
        try:
            example.evaluate()
        except SkipTest:
            continue  # a block that the page itself leaves out
    return len(examples)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_examples(PAGE.parse(page))


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_docstrings(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_examples(DOCSTRINGS.parse(module))


@pytest.mark.parametrize(
    "block", ["```python\nassert x == 2\n```\n", "```console\n$ qenvs no-such-command\n```\n"]
)
def test_a_broken_block_is_seen_unless_skipped(block, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n" + block)
    with pytest.raises(AssertionError):
        run_examples(PAGE.parse(page))
    page.write_text('<!-- skip: next "shown, not run" -->\n\n' + block)
    run_examples(PAGE.parse(page))

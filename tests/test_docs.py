"""Every example that a reader meets runs: README, docs and docstrings.

In a page, ```python blocks share one namespace and ```console blocks run their `$ qenvs ...` lines.
`<!-- skip: next "why" -->` in front of a block leaves it out. Sybil reads the pages.
"""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import SkipTest

import pytest
import task_tables
from sybil import Document, Example, Sybil
from sybil.document import PythonDocStringDocument
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

from qenvs import registration

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^[ \t>]*(?:```|~~~)(?:python|console)\b", re.MULTILINE)
LABELS = re.compile(r"^[ \t>]*(?:```|~~~)(\w+)", re.MULTILINE)
BARE = re.compile(r"^[ \t>]*(?:```|~~~)[ \t]*$", re.MULTILINE)
BUILT_IN = list(registration.registry)
MODULES = [p for p in sorted((ROOT / "src").rglob("*.py")) if ">>> " in p.read_text()]


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run_console(example: Example) -> str | None:
    """Run the lines `$ qenvs ...` of a block; what went wrong, or None."""
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    for line in str(example.parsed).splitlines():
        if line.startswith("$ qenvs "):
            command = [sys.executable, "-c", "from qenvs.cli import main; main()"]
            words, env = [*command, *shlex.split(line[8:])], os.environ | {"PYTHONPATH": path}
            done = subprocess.run(words, capture_output=True, text=True, env=env)
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


def check_page(page: Path) -> None:
    """Run a page; AssertionError for a block that fails, or that nothing would run."""
    text = page.read_text(encoding="utf-8")
    languages = LABELS.findall(text)
    assert set(languages) <= {"python", "console", "text"}, "a block that nothing runs is `text`"
    assert len(languages) == len(BARE.findall(text)), "every block names its language"
    run_examples(PAGE.parse(page))


@pytest.fixture
def sandbox(tmp_path, monkeypatch):
    """A folder of its own; tasks that a page registers are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    known = dict(registration.registry)
    yield tmp_path
    registration.registry.clear()
    registration.registry.update(known)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page(page, sandbox):
    check_page(page)


@pytest.mark.parametrize("module", MODULES, ids=name)
def test_docstrings(module, sandbox):
    assert run_examples(DOCSTRINGS.parse(module))


BROKEN = ["```python\nassert x == 2\n```\n", "```console\n$ qenvs no-such-command\n```\n"]


@pytest.mark.parametrize("block", BROKEN)
def test_a_broken_block_is_seen_unless_skipped(block, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\n```\n\n" + block)
    with pytest.raises(AssertionError):
        check_page(page)
    page.write_text('<!-- skip: next "shown, not run" -->\n\n' + block)
    check_page(page)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```py\nassert False\n```\n", "is `text`"),
        ("```\nassert False\n```\n", "names its language"),
    ],
)
def test_a_block_that_nothing_would_run_is_seen(block, message, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(block)
    with pytest.raises(AssertionError, match=message):
        check_page(page)


@pytest.mark.parametrize("page", [p for p in PAGES if FENCE.search(p.read_text())], ids=name)
def test_every_page_fails_where_its_last_block_is_broken(page, sandbox):
    """The blocks in front are skipped: this is about the page being read to its end."""
    text = page.read_text(encoding="utf-8")
    broken = '<!-- skip: end -->\n\n```python\nraise ValueError("broken")\n```\n'
    copy = sandbox / page.name
    text = re.sub("<!-- skip: .*-->", "", text)
    copy.write_text(f"<!-- skip: start -->\n\n{text}\n\n{broken}")
    with pytest.raises(ValueError, match="broken"):
        check_page(copy)


# --- tables and navigation ---


def test_the_tables_of_the_tasks_are_those_of_qenvs_info():
    page = task_tables.PAGE.read_text(encoding="utf-8")
    assert task_tables.BLOCK.findall(page) == BUILT_IN
    assert task_tables.renewed(page) == page, "run: python tools/task_tables.py"


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"^ +- .*?: (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert set(listed) == pages
    assert len(listed) == len(set(listed))

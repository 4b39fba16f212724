"""List what the specification promises (tests/claims.txt) and no test names yet.

    python tools/claims.py

A claim is named by `@pytest.mark.claims("G-IF-1", ...)` on a test, a case by the name of a test
(`test_VE_1_...`), and a claim that only documentation can satisfy also by a comment in a page
(`<!-- claims: G-IF-12 -->`). Always exits with 0: it informs, it does not judge.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMENT = re.compile(r"<!--\s*claims:\s*(.*?)\s*-->", re.DOTALL)
CASE = re.compile(r"_([A-Z]{1,2})_(\d+b?)(?=_|$)")


@dataclass
class Section:
    """A heading of the list and the ids under it, by kind: "test", "doc", "open" or "cases"."""

    title: str
    ids: dict[str, list[str]]


def read_sections(text: str) -> list[Section]:
    """The sections of the list, in order; a line without a kind in front holds claims to test."""
    sections: list[Section] = []
    kind = "test"
    for line in text.splitlines():
        if line.startswith("## "):
            sections.append(Section(line[3:], {}))
            kind = "test"
        elif line and not line.startswith("#"):
            head, colon, rest = line.partition(": ")
            kind, line = (head, rest) if colon else (kind, line)
            sections[-1].ids.setdefault(kind, []).extend(line.split())
    return sections


def named_by_tests(sources: Iterable[str]) -> Iterator[str]:
    """Ids in the `claims` markers and in the names of the tests of these sources."""
    for node in (node for source in sources for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "claims":
                yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield from (f"{letters}-{number}" for letters, number in CASE.findall(node.name))


def named_by_pages(pages: Iterable[str]) -> Iterator[str]:
    """Ids in the `claims:` comments of these Markdown pages."""
    for comment in (found for page in pages for found in COMMENT.findall(page)):
        yield from re.split(r"[\s,]+", comment)


def collect(root: Path) -> tuple[list[Section], set[str], set[str]]:
    """Sections of the list, ids named by the tests, ids named by README and docs."""
    sections = read_sections((root / "tests/claims.txt").read_text())
    tests = set(named_by_tests(p.read_text() for p in root.glob("tests/**/*.py")))
    pages = [root / "README.md", *root.glob("docs/**/*.md")]
    return sections, tests, set(named_by_pages(p.read_text() for p in pages))


def main() -> None:
    """Print a line per section and the ids that nothing names."""
    sections, tests, pages = collect(ROOT)
    total = named = 0
    for section in sections:
        missing = {
            kind: [i for i in ids if i not in tests and not (kind == "doc" and i in pages)]
            for kind, ids in section.ids.items()
        }
        size = sum(map(len, section.ids.values()))
        done = size - sum(map(len, missing.values()))
        total, named = total + size, named + done
        print(f"{done:3d} of {size:3d}  {section.title}")
        for kind, ids in missing.items():
            if ids:
                print(f"            {'' if kind == 'test' else kind + ': '}{' '.join(ids)}")
    print(f"{named:3d} of {total:3d}  in all")


if __name__ == "__main__":
    main()

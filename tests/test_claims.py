"""The list of claims and the tool that compares it with the tests."""

from pathlib import Path

import claims

ROOT = Path(__file__).resolve().parent.parent


def test_tests_and_pages_name_listed_ids_only():
    sections, tests, pages = claims.collect(ROOT)
    listed = {i for section in sections for ids in section.ids.values() for i in ids}
    assert (tests | pages) - listed == set()


def test_every_id_is_listed_once():
    sections = claims.read_sections((ROOT / "tests" / "claims.txt").read_text())
    kinds = {"test": 0, "doc": 0, "open": 0, "cases": 0}
    every = []
    for section in sections:
        for kind, ids in section.ids.items():
            kinds[kind] += len(ids)
            every += ids
    assert len(set(every)) == len(every)
    assert kinds["test"] + kinds["doc"] == 308


def test_ids_are_read_from_markers_names_and_comments():
    source = (
        "pytestmark = pytest.mark.claims('A-1')\n"
        "@pytest.mark.claims('A-2', 'A-3')\n"
        "def test_VE_11_PF_4b_two_cases(): ...\n"
        "def helper_VE_9_is_no_test(): ...\n"
    )
    assert set(claims.named_by_tests([source])) == {"A-1", "A-2", "A-3", "VE-11", "PF-4b"}
    page = "text <!-- claims: G-IF-12, G-RT-6\nG-RT-7 --> text <!-- other -->"
    assert list(claims.named_by_pages([page])) == ["G-IF-12", "G-RT-6", "G-RT-7"]

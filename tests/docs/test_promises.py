"""The page of promises names the tests of every promise, and each link leads to a test file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_links import links

PAGE = ROOT / "docs" / "reference" / "promises.md"

# Each test file in these places proves a promise, so the page has a row for it.
PLACES = (
    "tests/crash/**/test_*.py",
    "tests/properties/test_*.py",
    "tests/runtime/runs/test_*.py",
    "tests/store/contract/test_*.py",
    "tests/switching/test_*.py",
    "tests/context/test_cut_results.py",
    "tests/providers/test_no_public_connection.py",
    "tests/recorded/test_losses.py",
    "tests/recorded/test_there_and_back.py",
    "tests/surfaces/test_cli_typed_ahead.py",
)


def rows(page: str) -> list[list[str]]:
    """The cells of each row of the page's tables, without headings and rulers."""
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] != "situation"]


def linked(page: str) -> list[Path]:
    """The files to which the page's rows link."""
    return [(PAGE.parent / target).resolve() for row in rows(page) for target in links(row[-1])]


def promised() -> set[Path]:
    """The test files that prove promises."""
    return {path for place in PLACES for path in ROOT.glob(place)}


@pytest.fixture(scope="module")
def page() -> str:
    """The text of the page."""
    return PAGE.read_text(encoding="utf-8")


def test_each_row_has_a_situation_a_promise_and_a_test(page: str) -> None:
    """Situation and promise are sentences, and the last cell links to at least one test."""
    wrong = [
        row for row in rows(page) if len(row) != 3 or not links(row[2]) or not row[0][-1] == row[1][-1] == "."
    ]

    assert rows(page)
    assert wrong == []


def test_each_link_of_a_row_leads_to_a_test_file(page: str) -> None:
    """A row links to files that pytest collects, and to nothing else."""
    assert [path for path in linked(page) if not path.is_file() or not path.name.startswith("test_")] == []


def test_every_test_of_a_promise_has_a_row(page: str) -> None:
    """A new test file in one of the places needs a row, and no file has two."""
    found = linked(page)

    assert sorted(promised() - set(found)) == []
    assert sorted({path for path in found if found.count(path) > 1}) == []


@pytest.mark.parametrize("place", PLACES)
def test_each_place_has_tests(place: str) -> None:
    """A pattern that matches nothing would check nothing."""
    assert list(ROOT.glob(place))


def test_a_missing_row_is_found(page: str) -> None:
    """Control: without its last row the page lacks a test of a promise."""
    last = next(line for line in reversed(page.splitlines()) if line.startswith("| "))

    assert promised() - set(linked(page.replace(last, "")))


def test_a_link_to_a_missing_test_is_found() -> None:
    """Control: a row may name a file that does not exist."""
    (path,) = linked("| It rains. | The store stays dry. | [rain](../../tests/crash/test_rain.py) |")

    assert path == ROOT / "tests" / "crash" / "test_rain.py"
    assert not path.is_file()

"""The reference page of the git projection says what the code does."""

from __future__ import annotations

from pathlib import Path

from perdure.projections.git import state_file
from perdure.store import git_export
from tests.docs.tables import codes, page
from tests.store.git_export.looking import git, opened, tree


def rows(title: str) -> list[list[str]]:
    """The rows of the first table of a section of the page."""
    return next(section.tables[0].rows for section in page("reference/git.md") if section.title == title)


def test_the_names_on_the_page_are_the_names_in_git(tmp_path: Path) -> None:
    """Each example, in a real repository."""
    for number, (there, here) in enumerate(rows("Names")):
        with opened(tmp_path / f"{number}.db") as store:
            thread = store.thread("names", agent="a")
            for path in codes(there):
                thread.put(path, 1)
            git_export.export(thread, tmp_path / f"{number}.git")
        assert tree(tmp_path / f"{number}.git") == codes(here)


def test_the_trailers_on_the_page_are_those_that_are_written(tmp_path: Path) -> None:
    """In their order."""
    (told,) = [codes(here) for there, here in rows("Commits") if there == "trailers"]
    with opened(tmp_path / "store.db") as store:
        thread = store.thread("t", agent="a")
        with thread.change("by hand", run="r-1") as change:
            change.put("/a", 1)
        git_export.export(thread, tmp_path / "g")

    log = git(tmp_path / "g", "log", "--format=%(trailers:only,keyonly,separator=%x20)")

    assert log.split() == told


def test_the_marks_on_the_page_are_no_names() -> None:
    """A path that looks like one is written with a code."""
    for mark in ("%_", "%value", "%forgotten.md", "%h"):
        assert state_file(f"/{mark}", above=False) == f"state/%25{mark[1:]}"

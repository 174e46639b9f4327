"""A restore that is killed at any step leaves a store at the path, and nothing is lost when it is run again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from perdure.errors import Unsupported
from perdure.store.upkeep import restore
from tests.crash.processes import exit_code_of


def killed_at(number: int, *, has_links: bool = True) -> None:
    """End this process before one of the steps that change names."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken == number:
            os._exit(9)

    def around(act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*args: Any, **options: Any) -> Any:
            step()
            return act(*args, **options)

        return acted

    os.replace, os.rename, Path.unlink = around(os.replace), around(os.rename), around(Path.unlink)
    os.link = around(os.link) if has_links else refused


def refused(*args: object) -> None:
    """What a file system does that has no second names."""
    raise OSError("no links here")


def restore_and_die(path: str, number: int, has_links: bool) -> None:
    """Restore the backup beside a store in its place, and end at a step after it was copied."""
    put_in_place = restore._put_in_place

    def put_and_die(*args: Any, **options: Any) -> tuple[list[str], int]:
        killed_at(number, has_links=has_links)
        return put_in_place(*args, **options)

    restore._put_in_place = put_and_die
    perdure.restore(Path(path).with_name("backup.db"), path, replace=True)


def look_of(path: Path) -> str:
    """How the path looks to a program that opens it: `whole`, `refused` or `missing`."""
    if not path.exists():
        return "missing"
    try:
        with perdure.open(path) as store:
            assert [thread.id for thread in store.threads()] == ["t"]
    except Unsupported:
        return "refused"
    return "whole"


def lives(directory: Path, *, has_links: bool = True) -> list[str]:
    """What is at the path after a kill at each step; each restore is run again, and everything is there."""
    found: list[str] = []
    code: int | None = 9
    while code == 9:
        path = directory / f"{len(found)}" / "store.db"
        path.parent.mkdir()
        with perdure.open(path) as store:
            store.thread("t", agent="a").put("/n", 1)
            store.backup(path.with_name("backup.db"))
        code = exit_code_of(restore_and_die, str(path), len(found) + 1, has_links)
        found.append(look_of(path))
        perdure.restore(path.with_name("backup.db"), path, replace=True)
        asides = [each for each in path.parent.glob("*.set-aside-*") if each.suffix[-1].isdigit()]
        for each in (path, *asides):
            with perdure.open(each) as store:
                assert store.thread("t").get("/n") == 1
                assert store.verify().ok
    assert code == 0
    return found


def test_a_killed_restore_leaves_a_store_or_a_refusal(tmp_path: Path) -> None:
    """Never nothing: a program that opens the path would begin there with an empty store, and do everything again."""
    found = lives(tmp_path)

    assert set(found) == {"whole", "refused"}
    assert len(found) > 3


def test_control_renaming_leaves_nothing_for_a_moment(tmp_path: Path) -> None:
    """Where the file system has no second names, a kill between two renamings leaves no store; the restore goes on."""
    assert "missing" in lives(tmp_path, has_links=False)

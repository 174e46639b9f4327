"""The disk of a new store or a backup is full: the error names the new file, and nothing is left of it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure.errors import Unavailable
from perdure.store.copy import remove_if_disk_full
from tests.coded import raises
from tests.store.test_damaged_pages import damaged, pages_of


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(place)]
    if (
        sys.platform != "linux"
        or shutil.which("mount") is None
        or subprocess.run(command, check=False).returncode
    ):
        pytest.skip("a file system of its own cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A store that is larger than the disk."""
    with perdure.open(tmp_path / "large.db", durability="process_crash") as store:
        thread = store.thread("t", agent="planner")
        for number in range(12):
            thread.put(f"/{number}.json", "".join(f"{number * at:x}" for at in range(20_000)))
        store.backup(tmp_path / "backup.db")
    return tmp_path / "backup.db"


def _back_up(source: Path, target: Path) -> object:
    with perdure.open(source, read_only=True) as store:
        return store.backup(target)


def _copy(source: Path, target: Path) -> object:
    with perdure.open(source, read_only=True) as store:
        return store.copy_to(target)


@pytest.mark.parametrize("make", [_back_up, _copy, perdure.restore])
def test_a_full_disk_is_that_of_the_new_file(
    small_disk: Path, large: Path, make: Callable[[Path, Path], object]
) -> None:
    """The disk of the source is not full, and what was begun is removed again."""
    with pytest.raises(Unavailable) as full:
        make(large, small_disk / "n.db")

    assert full.value.code == "disk_full"
    assert str(full.value.facts["path"]).startswith(str(small_disk / "n.db"))
    assert list(small_disk.iterdir()) == []


_READ = """
import sys

import perdure

with perdure.open(sys.argv[1], read_only=True) as store:
    try:
        list(store.thread("t").log())
    except perdure.errors.Corrupt as error:
        print(error.code, *getattr(error, "__notes__", ["no note"]))
"""


def test_damage_is_not_reported_as_a_full_disk(small_disk: Path, tmp_path: Path) -> None:
    """Where temporary files have no room for what is left of a damaged store, the damage is what is wrong with it."""
    with perdure.open(tmp_path / "large.db", durability="process_crash") as store:
        thread = store.thread("t", agent="planner")
        for number in range(30):
            thread.put(f"/{number}.json", random.Random(number).randbytes(150_000).hex())
        store.backup(tmp_path / "backup.db")
    place = damaged(tmp_path / "backup.db", tmp_path, pages_of(tmp_path / "backup.db", "heads")[0])

    found = subprocess.run(
        [sys.executable, "-c", _READ, str(place)],
        env={**os.environ, "SQLITE_TMPDIR": str(small_disk)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.startswith("file_damaged What is left of it was not read: temporary files")


@pytest.mark.parametrize(
    ("was_there", "code", "left"),
    [(False, "disk_full", []), (True, "disk_full", ["n.db"]), (False, "commit_failed", ["n.db"])],
)
def test_only_a_new_file_on_a_full_disk_is_removed(
    tmp_path: Path, was_there: bool, code: str, left: list[str]
) -> None:
    """Another process's store stays, and so does what a copy that failed for another reason goes on with."""
    file = tmp_path / "n.db"
    if was_there:
        perdure.open(file).close()

    with raises(Unavailable, code), remove_if_disk_full(file):
        perdure.open(file).close()
        raise Unavailable("it failed", code=code)

    assert [each.name for each in tmp_path.iterdir() if each.name == "n.db"] == left

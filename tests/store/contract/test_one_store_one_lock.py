"""One store has one lock, one log and one index, however it is named; a file with several names is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.engines.registry import open_sql
from perdure.engines.sqlite.file_system import check_one_name
from perdure.errors import Unsupported, WrongStore
from tests.coded import raises


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a thread in it, alone in its directory."""
    (tmp_path / "real").mkdir()
    path = tmp_path / "real" / "store.db"
    with perdure.open(path) as store:
        store.thread("t", agent="a").put("/n", 1)
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """Another directory."""
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


def names(directory: Path) -> list[str]:
    """What lies in a directory."""
    return sorted(each.name for each in directory.iterdir())


@pytest.mark.parametrize("way", ["file", "relative", "chain", "directory"])
def test_a_store_opened_through_a_link_has_the_lock_of_its_file(
    path: Path, elsewhere: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made beside the link, and both names see every write at once."""
    monkeypatch.chdir(elsewhere)
    link = linked(path, elsewhere, way)
    before = names(elsewhere)

    with perdure.open(path) as one, perdure.open(link) as other:
        a, b = one.thread("t"), other.thread("t")
        for number in range(5):
            a.put("/n", number)
            assert b.get("/n") == number
            b.put("/m", number)
            assert a.get("/m") == number
        other.memory("ada").add("she drinks green tea")
        assert one.memory("ada").search("tea")

        assert names(elsewhere) == before
        assert one.verify().ok
        assert other.verify().ok


def linked(path: Path, elsewhere: Path, way: str) -> Path:
    """Another way to the file at `path`."""
    if way == "directory":
        (elsewhere / "way").symlink_to(path.parent)
        return elsewhere / "way" / "store.db"
    if way == "relative":
        Path("link.db").symlink_to(os.path.relpath(path, elsewhere))
        return Path("link.db")
    (elsewhere / "link.db").symlink_to(path)
    if way == "chain":
        (elsewhere / "second.db").symlink_to("link.db")
        return elsewhere / "second.db"
    return elsewhere / "link.db"


def test_a_link_that_leads_nowhere_yet_makes_the_store_where_it_leads(path: Path, elsewhere: Path) -> None:
    """With its lock."""
    (elsewhere / "link.db").symlink_to(path.with_name("new.db"))

    with perdure.open(elsewhere / "link.db") as store:
        store.thread("t", agent="a").put("/n", 1)

    assert names(elsewhere) == ["link.db"]
    assert {"new.db", "new.db-lock"} <= set(names(path.parent))


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_with_several_names_is_refused(path: Path, elsewhere: Path, read_only: bool) -> None:
    """Each hard link would get a log of its own; nothing is made beside either."""
    (elsewhere / "hard.db").hardlink_to(path)
    before = names(elsewhere), names(path.parent)

    for name in (path, elsewhere / "hard.db"):
        with raises(Unsupported, "hard_links", path=str(name)):
            perdure.open(name, read_only=read_only)
        with raises(Unsupported, "hard_links", path=str(name)):
            open_sql(str(name), entries=lambda nodes, root: ())

    assert (names(elsewhere), names(path.parent)) == before


def test_once_the_other_name_is_gone_the_store_opens_again(path: Path, elsewhere: Path) -> None:
    """Nothing was harmed."""
    (elsewhere / "hard.db").hardlink_to(path)
    with pytest.raises(Unsupported):
        perdure.open(path)

    (elsewhere / "hard.db").unlink()

    with perdure.open(path) as store:
        assert store.thread("t").get("/n") == 1


def test_a_file_that_is_mounted_by_itself_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log and lock would lie in another directory than those of the file that is mounted."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n40 22 8:1 /x.db {path} rw - ext4 /dev/sda1 rw\n")
    monkeypatch.setattr(check_one_name, "__defaults__", (mounts,))
    before = names(path.parent)

    with raises(Unsupported, "mounted_alone", path=str(path)):
        perdure.open(path)

    assert names(path.parent) == before


def test_a_path_that_leads_in_a_circle_is_refused(tmp_path: Path) -> None:
    """Nothing is created beside it, and an agent may name it as another store."""
    circle = tmp_path / "circle.db"
    circle.symlink_to(circle)

    with pytest.raises(Unsupported):
        perdure.open(circle)
    with perdure.open("memory:") as store, pytest.raises(WrongStore):
        store.thread("t", agent=Agent("a", object_storage=str(circle)))

    assert list(tmp_path.iterdir()) == [circle]


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """Opening it would wait for a writer that never comes."""
    pipe = tmp_path / "pipe.db"
    os.mkfifo(pipe)

    with pytest.raises(Unsupported):
        perdure.open(pipe)

    assert list(tmp_path.iterdir()) == [pipe]

"""Long lists through the store: threads, agents, SQL, git, copies, and writers that meet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure import Store
from perdure.engines.registry import open_sql
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.history.tree import Tree
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, Object
from perdure.store import git_export
from tests.store.git_export.looking import show

ITEMS: list[Json] = [{"n": number, "text": f"message {number} " * 20} for number in range(400)]


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a store with a thread whose list has grown."""
    path = tmp_path_factory.mktemp("grown") / "store.db"
    with perdure.open(str(path)) as store:
        thread = store.thread("talk", agent="desk")
        thread.put("/m", ITEMS[:300])
        for item in ITEMS[300:]:
            with thread.change("more") as change:
                change.append("/m", item)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path, grown: bytes) -> Path:
    """Where the store is."""
    path = tmp_path / "store.db"
    path.write_bytes(grown)
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """That store, opened."""
    with perdure.open(str(path)) as store:
        yield store


def test_a_thread_reads_any_version(store: Store) -> None:
    """The list at each commit is what it was."""
    thread = store.thread("talk")

    versions = [thread.at(entry).get("/m") for entry in thread.log()]

    assert versions == [ITEMS[:count] for count in range(400, 299, -1)]
    assert store.verify().ok


def test_sql_shows_a_list_as_one_value(store: Store, path: Path) -> None:
    """Under the hash that the snapshot names."""
    root = store.thread("talk").log()[0].root
    sql = open_sql(
        str(path), entries=lambda nodes, at: ((e.path, e.value) for e in Tree(nodes, at).entries())
    )
    with closing(sql):
        ((entries,),) = sql.query(f"SELECT entries FROM state_snapshots WHERE hash = '{root}'")[1]
        value = json.loads(str(entries))["/m"]
        ((content,),) = sql.query(f"SELECT content FROM state_values WHERE hash = '{value}'")[1]

    assert json.loads(str(content)) == ITEMS


def test_git_has_a_list_as_one_file(store: Store, tmp_path: Path) -> None:
    """As it has any other value."""
    git_export.export(store.thread("talk"), tmp_path / "g")

    assert json.loads(show(tmp_path / "g", "state/m")) == ITEMS


def test_a_copy_has_the_same_lists(store: Store, tmp_path: Path) -> None:
    """With the same digests."""
    store.copy_to(tmp_path / "copy.db")

    with perdure.open(str(tmp_path / "copy.db")) as copy:
        assert copy.thread("talk").get("/m") == ITEMS
        assert copy.thread("talk").head.commit == store.thread("talk").head.commit
        assert copy.verify().ok


def test_an_agents_list_is_put_and_grows(store: Store) -> None:
    """The thread records the change first, and the agent's map takes it over."""
    thread = store.thread("talk")
    with thread.change("put") as change:
        change.agent.put("/ours", ITEMS)
    for number in range(3):
        with thread.change("more") as change:
            change.agent.append("/ours", number)
            change.agent.append("/ours", -number)

    assert store.agent("desk").get("/ours") == [*ITEMS, 0, 0, 1, -1, 2, -2]
    assert store.verify().ok


@pytest.mark.parametrize("same", [False, True])
def test_writers_that_meet_both_have_their_elements(store: Store, *, same: bool) -> None:
    """A change that is written on top of another's appends to the list that is there now."""
    thread = store.thread("talk")
    with thread.change("slow", on_conflict="rebase") as change:
        change.put("/put", ITEMS[:50])
        change.append("/put", "edited in the same change")
        thread.put("/m" if same else "/elsewhere", [*ITEMS, "meanwhile"])
        change.put("/last", ITEMS[:60])

    assert thread.get("/put") == [*ITEMS[:50], "edited in the same change"]
    assert thread.get("/m" if same else "/elsewhere") == [*ITEMS, "meanwhile"]
    assert store.verify().ok


def test_the_next_append_reads_nothing_of_the_list(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that made it longer remembers its end; another one, the control, reads the last node of each level."""
    objects, read = SqliteEngine.objects, list[Object]()

    def counted(self: SqliteEngine, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        found = objects(self, space, digests)
        read.extend(each for each in found if each.kind is Kind.LIST)
        return found

    with store.thread("talk").change("one more") as change:
        change.append("/m", "before")
    monkeypatch.setattr(SqliteEngine, "objects", counted)
    with store.thread("talk").change("more") as change:
        change.append("/m", "here")
    assert read == []
    with perdure.open(str(path)) as other, other.thread("talk").change("more") as change:
        change.append("/m", "there")
    assert read != []
    assert store.thread("talk").get("/m") == [*ITEMS, "before", "here", "there"]

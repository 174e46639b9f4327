"""The store: opening and beginning threads, listing, removing, and what a race leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Limits, Store
from perdure.engines import loops
from perdure.engines.contract import CellWrite, Write
from perdure.errors import Conflict, Invalid, NotFound, Unavailable
from perdure.model.digest import Kind, digest_of
from perdure.store.plumbing import directory
from tests.coded import raises


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store in memory."""
    with perdure.open("memory:") as opened:
        yield opened


class TestOpening:
    """`store.thread` opens, or begins if it is told whose the thread is."""

    def test_without_an_agent_nothing_is_begun(self, store: Store) -> None:
        """A typo never creates anything, and is told what is close."""
        store.thread("trip-42", agent="planner")

        with raises(NotFound, "thread_not_found", thread="trip-24", near=("trip-42",)):
            store.thread("trip-24")
        assert [thread.id for thread in store.threads()] == ["trip-42"]

    def test_a_new_thread_has_nothing_committed(self, store: Store) -> None:
        """Its head is version 0, and so is a thread's that was only looked at."""
        thread = store.thread("trip-42", agent=Agent("planner"), owner="ann")

        assert thread.head == perdure.Head("main", 0, None)
        assert (thread.id, thread.agent, thread.owner) == ("trip-42", "planner", "ann")
        assert (thread.paths(), thread.log(), thread.turns(), thread.transcript()) == ([], [], [], [])
        assert [hold.head.timeline for hold in thread.timelines()] == ["main"]

    def test_opening_again_gives_the_same_thread(self, store: Store) -> None:
        """Whoever comes second finds what the first began."""
        one = store.thread("trip-42", agent="planner", owner="ann")
        two = store.thread("trip-42", agent="planner")
        one.put("/n.json", 1)

        assert two.get("/n.json") == 1
        assert two.owner == "ann"
        assert two.begun_at == one.begun_at

    def test_an_owner_is_not_changed_by_asking(self, store: Store) -> None:
        """A thread that was begun without an owner has none, whoever asks."""
        store.thread("trip-42", agent="planner")

        with raises(Conflict, "thread_of_another_owner", owner="ann"):
            store.thread("trip-42", agent="planner", owner="ann")

    def test_a_timeline_can_be_named(self, store: Store) -> None:
        """Opening on one that does not exist is `NotFound`."""
        store.thread("trip-42", agent="planner").fork("what-if").put("/n.json", 1)

        assert store.thread("trip-42", timeline="what-if").get("/n.json") == 1
        with raises(NotFound, "timeline_not_found", timeline="what-else", thread="trip-42"):
            store.thread("trip-42", timeline="what-else")

    def test_the_loser_of_a_race_opens_the_winners(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two begin the same id at once: both hold the same thread."""
        winner: list[perdure.Thread] = []
        written = directory._write

        def late(*args: object) -> bool:
            with monkeypatch.context() as patch:
                patch.setattr(directory, "_write", written)
                if not winner:
                    winner.append(store.thread("trip-42", agent="planner"))
            return written(*args)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(directory, "_write", late)
        loser = store.thread("trip-42", agent="planner")

        winner[0].put("/n.json", 1)
        assert loser.get("/n.json") == 1


class TestListing:
    """`store.threads` is read as it is asked for."""

    def test_it_goes_over_pages(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """By id, all of them, and filtered."""
        monkeypatch.setattr(loops, "_PAGE_MIN", 3)
        for number in range(10):
            owner = "ann" if number % 2 else None
            store.thread(f"t-{number}", agent="a" if number < 5 else "b", owner=owner)

        assert [thread.id for thread in store.threads()] == [f"t-{number}" for number in range(10)]
        assert [thread.id for thread in store.threads(owner="ann", agent="b")] == ["t-5", "t-7", "t-9"]
        assert list(store.agents()) == ["a", "b"]

    def test_it_is_lazy(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """The first of many costs one page."""
        monkeypatch.setattr(loops, "_PAGE_MIN", 2)
        for number in range(10):
            store.thread(f"t-{number}", agent="a")
        engine = store._resources.engine
        asked: list[str] = []
        cells = type(engine).cells

        def counted(self: object, space: str, **options: object) -> object:
            asked.append(space)
            return cells(self, space, **options)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(type(engine), "cells", counted)
        assert next(store.threads()).id == "t-0"

        assert len(asked) == 1


class TestRemoving:
    """`thread.rm` takes two writes, and can be finished by anybody."""

    def test_what_is_removed_is_gone_and_its_id_is_free(self, store: Store) -> None:
        """Begun again it is another thread."""
        old = store.thread("trip-42", agent="planner", owner="ann")
        old.put("/n.json", 1)
        old.rm()

        assert list(store.threads()) == []
        with pytest.raises(NotFound):
            old.rm()
        new = store.thread("trip-42", agent="another")
        assert (new.paths(), new.owner) == ([], None)

    def test_a_process_that_dies_in_between_leaves_no_thread(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The space is closed and the record still there: that counts as none, and the id is free."""
        old = store.thread("trip-42", agent="planner")
        written = directory._write

        def dies(space: object, op_id: str, cell: CellWrite) -> bool:
            if op_id.startswith("remove:") and cell.name != "alive":
                raise Unavailable("this process has died")
            return written(space, op_id, cell)  # pyright: ignore[reportArgumentType]

        with monkeypatch.context() as patch:
            patch.setattr(directory, "_write", dies)
            with pytest.raises(Unavailable):
                old.rm()

        assert list(store.threads()) == []
        with pytest.raises(NotFound):
            store.thread("trip-42")
        assert store.thread("trip-42", agent="planner").put("/n.json", 1).version == 1

    def test_removing_is_finished_by_doing_it_again(self, store: Store) -> None:
        """The first write may have been made by somebody who died."""
        thread = store.thread("trip-42", agent="planner")
        cell = CellWrite(name="alive", expected=0, value=b"{}")
        intent = digest_of(Kind.BODY, b"")
        write = Write(space=thread._space.name, op_id="x", intent=intent, cells=(cell,))
        store._resources.engine.apply(write)

        directory.remove(store._resources.store, thread._space, "trip-42")

        found = store._resources.engine.cell(directory.STORE, "thread/trip-42")
        assert found is not None
        assert found.value is None

    def test_removing_never_touches_the_next_thread(self, store: Store) -> None:
        """A late second write of an old removal finds another record and leaves it."""
        old = store.thread("trip-42", agent="planner")
        old.rm()
        new = store.thread("trip-42", agent="planner")

        directory.remove(store._resources.store, old._space, "trip-42")

        assert store.thread("trip-42").head == new.head


class TestHolding:
    """Stores are opened, closed, read only, and kept by several handles."""

    def test_a_closed_store_says_so(self, store: Store) -> None:
        """Whatever is asked of it, or of its threads; closing again is no error."""
        thread = store.thread("trip-42", agent="planner")
        store.close()
        store.close()

        with raises(Unavailable, "store_closed"):
            store.thread("trip-42")
        with raises(Unavailable, "store_closed"):
            thread.put("/n.json", 1)

    def test_read_only_must_exist_and_cannot_write(self, tmp_path: Path) -> None:
        """Nothing is created, and every write is refused."""
        path = tmp_path / "agents.db"
        with raises(NotFound, "store_not_found"):
            perdure.open(path, read_only=True)
        with raises(NotFound, "store_not_found"):
            perdure.open(path, create=False)
        assert not path.exists()
        with perdure.open(path) as store:
            store.thread("trip-42", agent="planner", owner="ann").put("/n.json", 1)

        with perdure.open(path, read_only=True) as reading:
            thread = reading.thread("trip-42", agent="planner", owner="ann")
            assert thread.get("/n.json") == 1
            for write in (lambda: thread.put("/n.json", 2), thread.undo, thread.rm, lambda: thread.fork("f")):
                with raises(Unavailable, "opened_read_only"):
                    write()
            with raises(NotFound, "thread_not_found", thread="new"):
                reading.thread("new", agent="planner")
            with raises(Conflict, "thread_of_another_agent", thread="trip-42", agent="another"):
                reading.thread("trip-42", agent="another")

    def test_limits_can_be_set(self) -> None:
        """Downward, when the store is opened."""
        with perdure.open("memory:", limits=Limits(write_events_max=1)) as store:
            thread = store.thread("trip-42", agent="planner")
            with raises(Invalid, "too_many_events", events=2, limit=1), thread.change("two") as change:
                change.say("user", "one")
                change.say("user", "two")

            assert thread.head.version == 0
        for field, limit in (("value_bytes_max", 2**21), ("write_events_max", 0)):
            with raises(Invalid, "limit_invalid", field=field, limit=limit):
                perdure.open("memory:", limits=Limits(**{field: limit}))

    def test_a_handle_survives_a_fork_of_the_process(self, tmp_path: Path) -> None:
        """Parent and child write through the same object, one after the other, and no id is made twice."""
        with perdure.open(tmp_path / "agents.db") as store:
            thread = store.thread("trip-42", agent="planner")
            thread.put("/parent.json", 1)
            child = os.fork()
            if not child:
                code = 1
                try:
                    with thread.change("child", on_conflict="rebase") as change:
                        change.put("/child.json", store._resources.ids())
                    code = 0
                finally:
                    os._exit(code)
            _, status = os.waitpid(child, 0)
            thread.put("/later.json", store._resources.ids())

            assert status == 0
            assert thread.paths() == ["/child.json", "/later.json", "/parent.json"]
            assert thread.get("/child.json") != thread.get("/later.json")

    def test_a_backup_is_a_store(self, tmp_path: Path) -> None:
        """It opens, verifies, and has what was there."""
        with perdure.open(tmp_path / "agents.db") as store:
            store.thread("trip-42", agent="planner").put("/n.json", 1)
            store.backup(tmp_path / "copy.db")
            with pytest.raises(Conflict):
                store.backup(tmp_path / "copy.db")

        with perdure.open(tmp_path / "copy.db") as copy:
            assert copy.thread("trip-42").get("/n.json") == 1
            assert copy.verify().ok

    def test_facts_say_what_it_is(self, store: Store) -> None:
        """For people who look into a store's settings."""
        assert "memory" in store.facts().values()
        assert "memory:" in repr(store)

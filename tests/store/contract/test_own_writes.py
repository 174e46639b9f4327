"""A block sees its own puts; others see the last head; a held commit never changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import Head, Store, Thread
from perdure.errors import StaleHead
from tests.forked import commands


def test_a_block_sees_its_own_writes_and_nobody_else_does(thread: Thread, other: Store) -> None:
    """Until the block is left, everybody else sees the last head."""
    thread.put("/todos.json", ["milk"])
    elsewhere = other.thread("trip-42")

    with thread.change("more") as change:
        change.append("/todos.json", "eggs")
        change.put("/new.json", 1)
        change.delete("/new.json")
        change.put("/newer.json", {"a": [1]})
        change.set("/newer.json", 2, at=["a", 0])
        assert change.get("/todos.json") == ["milk", "eggs"]
        assert change.get("/newer.json") == {"a": [2]}
        assert change.paths() == ["/newer.json", "/todos.json"]
        for reader in (thread, elsewhere, other.thread("trip-42")):
            assert reader.get("/todos.json") == ["milk"]
            assert reader.paths() == ["/todos.json"]

    assert elsewhere.get("/todos.json") == ["milk", "eggs"]
    assert elsewhere.paths() == ["/newer.json", "/todos.json"]


def test_a_large_value_is_seen_in_its_own_block(thread: Thread) -> None:
    """Also one that is kept as an artifact, whose content is not all written yet."""
    with thread.change("large") as change:
        change.put("/large.json", ["x" * 1_500_000])
        change.append("/large.json", "y")
        assert change.get("/large.json")[-1] == "y"

    assert thread.get("/large.json")[1] == "y"
    assert thread.entry("/large.json").size > 1_500_000


def test_what_a_block_was_given_is_not_its_own_to_change(thread: Thread) -> None:
    """Altering an object after putting it, or after getting it, changes nothing that is stored."""
    todos = ["milk"]
    with thread.change("put") as change:
        change.put("/todos.json", todos)
        todos.append("poison")
        change.get("/todos.json").append("poison")

    assert thread.get("/todos.json") == ["milk"]


def test_a_reader_that_holds_a_commit_sees_no_change(thread: Thread, other: Store) -> None:
    """Whatever happens to the thread, a view stays where it was taken."""
    with thread.change("first") as change:
        change.say("user", "hello")
        change.put("/n.json", 1)
    view = thread.at()
    seen = view.digest, view.head, view.root, view.paths(), view.log(), view.transcript(), view.turns()
    elsewhere = other.thread("trip-42")

    elsewhere.put("/n.json", 2)
    elsewhere.undo(2)
    elsewhere.fork("what-if").put("/m.json", 3)
    elsewhere.promote("what-if")

    assert view.get("/n.json") == 1
    assert seen == (
        view.digest, view.head, view.root, view.paths(), view.log(), view.transcript(), view.turns()
    )  # fmt: skip
    assert thread.paths() == ["/m.json"]


def test_a_stale_block_writes_nothing_and_the_handle_goes_on(thread: Thread, other: Store) -> None:
    """After `StaleHead` the next read sees the new head, and the next write is based on it."""
    thread.put("/n.json", 1)

    with pytest.raises(StaleHead) as caught, thread.change("mine") as change:
        other.thread("trip-42").put("/n.json", 2)
        change.put("/n.json", change.get("/n.json") + 10)

    assert caught.value.actual == thread.head
    assert thread.get("/n.json") == 2
    with thread.change("again") as change:
        change.put("/n.json", change.get("/n.json") + 10)
    assert thread.get("/n.json") == 12


class TestRebase:
    """`on_conflict="rebase"`: a block is put on top of what others wrote to other paths."""

    def test_other_paths_do_not_meet(self, thread: Thread, other: Store) -> None:
        """Both writes are in the state, in the order in which they were committed."""
        with thread.change("mine", on_conflict="rebase", op_id="op-1") as change:
            change.put("/mine.json", change.get("/seen.json", default=1))
            for number in range(5):
                other.thread("trip-42").put(f"/theirs/{number}.json", number)

        assert thread.get("/mine.json") == 1
        assert len(thread.paths()) == 6
        assert [entry.reason for entry in thread.log()] == ["mine", *["put"] * 5]
        assert change.head == thread.head

    def test_a_rebased_write_keeps_its_op_id(self, thread: Thread, other: Store) -> None:
        """Repeating it gives the receipt of the rebased commit."""
        heads: list[Head | None] = []
        for _ in range(2):
            with thread.change("mine", on_conflict="rebase", op_id="op-1") as change:
                change.put("/mine.json", 1)
                other.thread("trip-42").put("/theirs.json", 1)
            heads.append(change.head)

        assert [entry.reason for entry in thread.log()] == ["put", "mine", "put"]
        assert heads[0] == heads[1]

    @pytest.mark.parametrize(
        ("mine", "theirs"),
        [
            ("put", "put"),
            ("get", "put"),
            ("paths", "put"),
            ("clear", "put"),
            ("put", "clear"),
            ("put", "replace"),
            ("replace", "other"),
            ("say", "say"),
        ],
        ids="/".join,
    )
    def test_the_same_paths_meet(self, thread: Thread, other: Store, mine: str, theirs: str) -> None:
        """What the block wrote or read was touched in between: nothing is written."""
        thread.put("/a/b.json", 0)
        before = thread.head.version

        with pytest.raises(StaleHead), thread.change("mine", on_conflict="rebase") as change:
            act(change, mine)
            with other.thread("trip-42").change("theirs") as their:
                act(their, theirs)

        assert thread.head.version == before + 1

    @pytest.mark.parametrize("declared", [True, False], ids=["declared", "control: not declared"])
    def test_only_declared_reads_protect_a_rebase(self, thread: Thread, other: Store, declared: bool) -> None:
        """Control: a block that reads past its change loses the update that came between."""
        thread.put("/price.json", 100)

        def block() -> None:
            with thread.change("total", on_conflict="rebase") as change:
                price = (change if declared else thread).get("/price.json")
                other.thread("trip-42").put("/price.json", 500)
                change.put("/total.json", 2 * price)

        if declared:
            with pytest.raises(StaleHead):
                block()
            assert thread.paths() == ["/price.json"]
        else:
            block()
            assert thread.get("/total.json") == 200 != 2 * thread.get("/price.json")

    def test_words_and_paths_do_not_meet(self, thread: Thread, other: Store) -> None:
        """A title set by a web handler does not disturb somebody who speaks."""
        with thread.change("speak", on_conflict="rebase") as change:
            change.say("user", "hello")
            other.thread("trip-42").put("/title.json", "Oslo")

        assert [entry.text for entry in thread.transcript()] == ["hello"]
        assert thread.get("/title.json") == "Oslo"


def act(change: perdure.Change, what: str) -> None:
    """One thing that a block may do."""
    match what:
        case "put":
            change.put("/a/b.json", what)
        case "other":
            change.put("/other.json", what)
        case "get":
            change.put("/elsewhere.json", change.get("/a/b.json"))
        case "paths":
            change.put("/elsewhere.json", list(change.paths("/a")))
        case "clear":
            change.clear("/a")
        case "replace":
            change.replace({"/only.json": 1})
        case _:
            change.say("user", what)


def test_another_process_sees_the_last_head(tmp_path: Path) -> None:
    """While a block is open in one process, the others read what was committed before it."""
    path = tmp_path / "agents.db"
    program = "import sys, perdure; print(perdure.open(sys.argv[1]).thread('t').get('/n.json'))"
    with perdure.open(path) as store:
        thread = store.thread("t", agent="a")
        thread.put("/n.json", "before")
        with thread.change("open") as change:
            change.put("/n.json", "inside")
            run = commands().run(["-c", program, str(path)], check=True)

    assert run.stdout == "before\n"

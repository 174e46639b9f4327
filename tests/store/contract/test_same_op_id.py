"""A write is repeated with its op_id, because the caller saw an error.  Nothing is doubled."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import Store, Thread
from perdure.errors import InDoubt, OpReused
from tests.coded import raises
from tests.forked import commands


def add_milk(thread: Thread, op_id: str, *, item: str = "milk") -> perdure.Change:
    """The block that is repeated: what it writes depends on what it reads."""
    with thread.change("shopping", op_id=op_id) as change:
        todos = change.get("/todos.json", type=list[str], default=[])
        change.put("/todos.json", [*todos, item])
        change.say("user", f"buy {item}")
    return change


def test_the_repetition_gets_the_original_receipt(thread: Thread) -> None:
    """The same block with the same op_id is written once."""
    first = add_milk(thread, "op-1")

    again = add_milk(thread, "op-1")

    assert again.receipt == first.receipt
    assert again.head == first.head == thread.head
    assert thread.get("/todos.json") == ["milk"]
    assert len(thread.transcript()) == 1


def test_it_is_so_after_others_have_written(thread: Thread, other: Store) -> None:
    """The block reads as of the first one's parent, so it means the same whatever came after."""
    add_milk(thread, "op-0", item="bread")
    first = add_milk(thread, "op-1")
    other.thread("trip-42").put("/todos.json", ["everything else"])

    again = add_milk(thread, "op-1")

    assert again.receipt == first.receipt
    assert thread.get("/todos.json") == ["everything else"]


def test_it_is_so_through_another_handle(thread: Thread, other: Store) -> None:
    """The op_id is the space's, not the handle's."""
    first = add_milk(thread, "op-1")

    again = add_milk(other.thread("trip-42"), "op-1")

    assert again.receipt == first.receipt


def test_a_repeated_message_keeps_its_id(thread: Thread) -> None:
    """An id that we made up the first time is given back, not made up again."""
    with thread.change("hello", op_id="op-1") as change:
        first = change.say("user", "hello")

    with thread.change("hello", op_id="op-1") as change:
        again = change.say("user", "hello")

    assert again == first == thread.transcript()[0].id


@pytest.mark.parametrize("item", ["eggs", "milk "])
def test_another_intent_is_refused(thread: Thread, item: str) -> None:
    """The same op_id for something else is an error, and nothing is written."""
    add_milk(thread, "op-1")
    before = thread.head

    with raises(OpReused, "op_reused", op_id="op-1"):
        add_milk(thread, "op-1", item=item)

    assert thread.head == before


def test_an_op_id_of_another_kind_of_write_is_refused(thread: Thread) -> None:
    """An undo is another intent than a change, and so is a change on another timeline."""
    add_milk(thread, "op-1")
    thread.undo(op_id="op-2")

    with pytest.raises(OpReused):
        add_milk(thread, "op-2")
    with pytest.raises(OpReused):
        thread.undo(op_id="op-1")
    with pytest.raises(OpReused):
        add_milk(thread.fork("what-if", at="version:1"), "op-1")


def test_a_block_that_now_does_nothing_is_refused(thread: Thread) -> None:
    """Doing nothing is another intent as well."""
    add_milk(thread, "op-1")

    with pytest.raises(OpReused), thread.change("shopping", op_id="op-1"):
        pass


def test_without_an_op_id_it_would_be_doubled(thread: Thread) -> None:
    """Control: the same block without an op_id is two writes."""
    for _ in range(2):
        with thread.change("shopping") as change:
            change.put("/todos.json", [*change.get("/todos.json", default=[]), "milk"])

    assert thread.get("/todos.json") == ["milk", "milk"]


@pytest.mark.parametrize("move", ["undo", "redo", "seal"])
def test_moves_are_repeated_safely_too(thread: Thread, move: str) -> None:
    """Undo, redo and seal with the same op_id happen once, whatever the head is by then."""
    for number in range(3):
        thread.put("/n.json", number)
    thread.undo()
    first = getattr(thread, move)(op_id="op-1")

    again = getattr(thread, move)(op_id="op-1")

    assert again == first == thread.head


def test_fork_and_promote_are_repeated_safely(thread: Thread) -> None:
    """A fork of now stays the fork of then."""
    thread.put("/n.json", 1)
    begun = thread.fork("what-if", op_id="op-1").head
    thread.put("/n.json", 2)
    promoted = thread.promote("what-if", op_id="op-2")

    assert thread.fork("what-if", op_id="op-1").head == begun
    assert thread.promote("what-if", op_id="op-2") == promoted == thread.head


def test_a_write_in_doubt_is_settled_once(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine says that it does not know, it is asked once, and the receipt is what counts."""
    engine = thread._resources.engine
    applied = engine.apply

    def forgetful(write: object) -> object:
        applied(write)  # pyright: ignore[reportArgumentType]
        raise InDoubt("op-1", "the disk did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(type(engine), "apply", lambda self, write: forgetful(write))
        written = add_milk(thread, "op-1")

    assert written.head == thread.head
    assert thread.get("/todos.json") == ["milk"]


def test_what_cannot_be_settled_stays_in_doubt(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """If it is not recorded either, the caller is told so, and the repetition writes it."""

    def lost(self: object, write: object) -> object:
        raise InDoubt("op-1", "the disk did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(type(thread._resources.engine), "apply", lost)
        with raises(InDoubt, "in_doubt", op_id="op-1"):
            add_milk(thread, "op-1")

    assert thread.head.version == 0
    add_milk(thread, "op-1")
    assert thread.get("/todos.json") == ["milk"]


def test_it_is_so_from_another_process(tmp_path: Path) -> None:
    """The repetition may come from a process that knows nothing of the first one."""
    path = tmp_path / "agents.db"
    program = (
        "import sys, perdure\n"
        "store = perdure.open(sys.argv[1])\n"
        "thread = store.thread('t', agent='a')\n"
        "with thread.change('shopping', op_id='op-1') as change:\n"
        "    change.put('/todos.json', [*change.get('/todos.json', default=[]), 'milk'])\n"
        "print(change.head.commit, change.head.version)\n"
    )
    runs = [commands().run(["-c", program, str(path)], check=True) for _ in range(3)]

    with perdure.open(path) as store:
        assert store.thread("t").get("/todos.json") == ["milk"]
    assert len({run.stdout for run in runs}) == 1

"""Changes: what a block may do, what it refuses, and what stands after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Image, Message, Text, Thread, ToolCall
from perdure.errors import Conflict, Invalid, NotFound
from tests.coded import raises


@pytest.fixture
def thread() -> Iterator[Thread]:
    """A thread in memory."""
    with perdure.open("memory:") as store:
        yield store.thread("trip-42", agent="planner")


def test_every_edit_reaches_the_document(thread: Thread) -> None:
    """The verbs of DESIGN §5, as methods."""
    with thread.change("edit") as change:
        change.put("/d.json", {"list": [1, 2], "n": 1, "o": {}})
        change.set("/d.json", "x", at=["list", 0])
        change.unset("/d.json", at=["list", 1])
        change.append("/d.json", "y", at=["list"])
        change.insert("/d.json", "w", at=["list", 0])
        change.remove("/d.json", "x", at=["list"])
        change.merge("/d.json", {"k": None}, at=["o"])
        change.increment("/d.json", 0.5, at=("n",))

    assert thread.get("/d.json") == {"list": ["w", "y"], "n": 1.5, "o": {"k": None}}


def test_values_come_back_as_the_type_that_is_asked_for(thread: Thread) -> None:
    """Checked, and converted where the type says so."""

    class Todo(msgspec.Struct):
        title: str
        done: bool = False

    with thread.change("put") as change:
        change.put("/todos.json", [{"title": "milk"}])
        change.put("/blob", b"\x00", media_type="image/png")
        assert change.get("/todos.json", type=list[Todo]) == [Todo("milk")]

    assert thread.get("/todos.json", type=list[Todo]) == [Todo("milk")]
    assert thread.get("/blob", type=bytes) == b"\x00"
    assert thread.entry("/blob").media_type == "image/png"
    assert thread.get("/none.json", type=list[str], default=[]) == []
    for path, wanted in (("/todos.json", list[int]), ("/todos.json", bytes), ("/blob", str)):
        with raises(Invalid, "value_has_other_type"):
            thread.get(path, type=wanted)


def test_a_message_has_blocks_calls_and_an_author(thread: Thread) -> None:
    """Whatever a party said, in the canonical form."""
    with thread.change("talk", author="ann") as change:
        change.say("user", [Text("look: "), Image("artifact://sha256/x", "image/png")], id="m-1")
        change.say(
            "assistant", "ok", tool_calls=[ToolCall("c", "t", "{}")], provider="openai", model="gpt-5.6"
        )
        change.add(Message("system", (Text("be brief"),)))

    first, second, third = thread.transcript()

    assert first.id == "m-1"
    assert first.message.content == (Text("look: "), Image("artifact://sha256/x", "image/png"))
    assert (second.provider, second.model, second.message.tool_calls[0].name) == ("openai", "gpt-5.6", "t")
    assert third.role == "system"
    assert thread.log()[0].author == "ann"
    assert {entry.commit for entry in thread.transcript()} == {thread.head.commit}


def test_a_message_id_is_used_once_on_a_line(thread: Thread) -> None:
    """So that it names one moment; another line may use it again."""
    with thread.change("talk") as change:
        change.say("user", "hello", id="m-1")
        with raises(Conflict, "message_exists", message_id="m-1"):
            change.say("user", "again", id="m-1")
    fork = thread.fork("what-if", at=None)

    with raises(Conflict, "message_exists", message_id="m-1"), thread.change("talk") as change:
        change.say("user", "again", id="m-1")
    with fork.change("talk") as change:
        change.say("user", "elsewhere", id="m-1")
    assert fork.at("m-1").digest == fork.head.commit
    assert thread.at("m-1").digest == thread.head.commit


@pytest.mark.parametrize("reason", ["user_message", "run_finished"])
def test_reasons_of_runs_are_reserved(thread: Thread, reason: str) -> None:
    """A change by hand gives a label of its own; a step of a run may use them."""
    with raises(Invalid, "reason_reserved", reason=reason):
        thread.change(reason)
    with thread.change(reason, run="run-1") as change:
        change.put("/n.json", 1)
    assert thread.log()[0].run == "run-1"


RESERVED = ("/__run/state.json", "/__kernel", "/__tool_call_scope/call-1/n.json")


@pytest.mark.parametrize("path", RESERVED)
def test_reserved_paths_are_written_by_runs_only(thread: Thread, path: str) -> None:
    """By hand they can be read and not written, in the thread's map and in the agent's; a step of a run may."""
    with thread.change("step", run="run-1") as change:
        for edits in (change, change.agent):
            edits.put(path, [1])
            edits.append(path, 2)
    with thread.change("by hand") as change:
        for edits in (change, change.agent):
            for write in (
                lambda edits=edits: edits.put(path, 0),
                lambda edits=edits: edits.delete(path),
                lambda edits=edits: edits.append(path, 3),
                lambda edits=edits: edits.clear(path),
            ):
                with raises(Invalid, "path_reserved", path=path):
                    write()
            with raises(Invalid, "path_kept_by_replace", path=path):
                edits.replace({path: 0})
            assert edits.get(path) == [1, 2]
    with raises(Invalid, "path_reserved", path=path):
        thread.put(path, 0)

    assert thread.head.version == 1
    with thread.change("step", run="run-1") as change:
        change.delete(path)
    assert thread.paths() == []


def test_clearing_everything_by_hand_spares_what_is_reserved(thread: Thread) -> None:
    """As `replace` does; a step of a run clears it too, and what only looks alike is nobody's."""
    thread.put("/__running.json", 1)
    with thread.change("step", run="run-1") as change:
        change.put("/__run/n.json", 1)
    with thread.change("clear") as change:
        change.put("/n.json", 1)
        change.clear("/")
        assert change.paths() == ["/__run/n.json"]
    assert thread.paths() == ["/__run/n.json"]

    with thread.change("step", run="run-2") as change:
        change.clear("/")

    assert thread.paths() == []
    thread.put("/n.json", 1)
    with thread.change("clear") as change:
        change.clear("/")
    assert [type(op).__name__ for op in thread.log()[0].patch.ops] == ["Clear"]


def test_commits_of_one_run_are_one_turn(thread: Thread) -> None:
    """Undo steps over the whole of it."""
    thread.put("/n.json", 0)
    for number in range(3):
        with thread.change(f"step {number}", run="run-1") as change:
            change.put("/n.json", number + 1)

    assert [(turn.kind, turn.run) for turn in thread.turns()] == [("edit", None), ("edit", "run-1")]
    assert thread.undo().commit == thread.turns()[0].after
    assert thread.get("/n.json") == 0


@pytest.mark.parametrize(
    "misuse",
    [
        lambda thread: thread.change("x").put("/n.json", 1),
        lambda thread: thread.change("x").get("/n.json", default=None),
        lambda thread: thread.change("x").agent,
        lambda thread: thread.change("x", on_conflict="overwrite"),
        lambda thread: thread.at(5),
        lambda thread: thread.put("/n.json", {"a": 1}, media_type="image/png"),
        lambda thread: thread.put("/n", b"x", media_type="not a type"),
        lambda thread: thread.undo(0),
        lambda thread: thread.undo("HEAD~1"),
        lambda thread: thread.artifacts.put("text"),
        lambda thread: thread.artifacts.put(["text"]),
        lambda thread: thread.artifacts.put(5),
        lambda thread: thread.put("/n.json", 1, op_id="from:elsewhere"),
        lambda thread: thread.fork("what-if", op_id="begin:x"),
    ],
    ids=[
        "put",
        "get",
        "agent",
        "on_conflict",
        "moment",
        "media type",
        "no media type",
        "undo",
        "undo to",
        "text",
        "pieces of text",
        "no content",
        "op_id",
        "own",
    ],
)
def test_misuse_is_told(thread: Thread, misuse: Any) -> None:
    """A block is used inside its `with`; options are what they say."""
    with pytest.raises(Invalid):
        misuse(thread)
    assert thread.head.version == 0


def test_a_block_is_over_when_it_is_left(thread: Thread) -> None:
    """What it read and wrote cannot be added to afterwards; its head and receipt stay."""
    with thread.change("once") as change:
        change.put("/n.json", 1)

    with raises(Invalid, "change_not_open"):
        change.put("/n.json", 2)
    with raises(Invalid, "change_used"), change:
        pass
    assert change.head == thread.head
    assert change.receipt is not None
    assert change.receipt.heads == (thread.head,)


def test_a_head_that_was_read_earlier_can_be_written_on(thread: Thread) -> None:
    """A form that was shown before is saved only if nobody else has saved meanwhile."""
    thread.put("/n.json", 1)
    shown = thread.head
    with thread.change("save", head=shown) as change:
        change.put("/n.json", 2)

    with pytest.raises(Conflict), thread.change("save", head=shown) as change:
        change.put("/n.json", 3)
    assert thread.get("/n.json") == 2


def test_the_op_id_comes_before_the_head(thread: Thread) -> None:
    """A repetition with the head of the first try gets the receipt, although that head is long gone."""
    shown = thread.head
    for _ in range(2):
        with thread.change("save", head=shown, op_id="op-1") as change:
            change.put("/n.json", 1)

    assert change.head == thread.head  # pyright: ignore[reportPossiblyUnboundVariable]
    assert thread.head.version == 1


def test_a_head_of_another_timeline_is_refused(thread: Thread) -> None:
    """Also where the op_id is recorded already: the mistake is told, not hidden by the first one's receipt."""
    thread.put("/n.json", 1)
    fork = thread.fork("what-if")
    with fork.change("save", op_id="op-1", head=fork.head) as change:
        change.put("/n.json", 2)

    for op_id in (None, "op-1"):
        with raises(Invalid, "head_of_another_timeline", head_timeline="main", timeline="what-if"):
            fork.change("save", op_id=op_id, head=thread.head)
    with raises(Invalid, "not_a_head"):
        fork.change("save", head="HEAD")  # pyright: ignore[reportArgumentType]
    assert fork.head.version == 1


class TestViews:
    """A view reads like a thread, at its moment."""

    def test_moments_can_be_handed_in_as_they_come(self, thread: Thread) -> None:
        """A name, a head, a turn, a commit, a transcript entry, nothing at all."""
        with thread.change("first") as change:
            change.say("user", "hello")
            change.put("/n.json", 1)
        first = thread.head
        thread.put("/n.json", 2)
        moments = [first, first.commit, thread.turns()[0], thread.log()[1], thread.transcript()[0], "turn:1"]

        assert [thread.at(moment).get("/n.json") for moment in moments] == [1] * 6
        assert thread.at().get("/n.json") == 2
        assert thread.at(None).paths() == []
        assert thread.at("HEAD").at("HEAD~1").digest == first.commit

    def test_bisect_finds_the_first_commit(self, thread: Thread) -> None:
        """The predicate is asked about views."""
        for price in (2_000, 1_500, 999, 800):
            thread.put("/price.json", price)

        found = thread.bisect(lambda view: view.get("/price.json") < 1_000)

        assert thread.at(found).get("/price.json") == 999

    def test_blame_and_diff_read_at_their_moment(self, thread: Thread) -> None:
        """Both take any moment."""
        first = thread.put("/n.json", 1)
        thread.put("/m.json", 2)

        assert thread.blame("/n.json").commit == first.commit
        assert [change.path for change in thread.diff(first).state] == ["/m.json"]
        assert thread.diff(None, first).state[0].what == "added"
        with pytest.raises(NotFound):
            thread.at(None).blame("/n.json")

    def test_merge_and_pick_take_lines_and_commits(self, thread: Thread) -> None:
        """By name or by handle."""
        thread.put("/base.json", 0)
        fork = thread.fork("what-if")
        picked = fork.put("/picked.json", 1)
        fork.put("/merged.json", 2)
        thread.put("/main.json", 3)

        assert thread.cherry_pick(picked).paths == 1
        assert thread.merge(fork).paths == 1
        assert thread.merge("what-if").commit is None
        assert thread.paths() == ["/base.json", "/main.json", "/merged.json", "/picked.json"]
        assert thread.merge(thread.fork("empty", at=None)).commit is None
        with pytest.raises(Invalid):
            thread.cherry_pick(None)

    def test_artifacts_go_in_and_out(self, thread: Thread) -> None:
        """In pieces of any size."""
        digest = thread.artifacts.put((b"x" * 700_000 for _ in range(3)), name="big", media_type="text/plain")

        assert b"".join(thread.artifacts.get(digest)) == b"x" * 2_100_000
        assert [(listed.digest, listed.name) for listed in thread.artifacts.ls()] == [(digest, "big")]
        assert thread.artifacts.show(digest).size == 2_100_000
        small = thread.artifacts.put(b"small")
        assert small != digest
        for same in (bytearray(b"small"), memoryview(b"small"), [memoryview(b"sm"), bytearray(b"all")]):
            assert thread.artifacts.put(same) == small

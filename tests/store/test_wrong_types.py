"""What is handed in by a program without a type checker: refused as `Invalid`, saying what was expected."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import perdure
from perdure import Agent, Call, RetentionPolicy, Thread
from perdure.errors import Invalid, NotFound
from perdure.model.message import Text
from tests.coded import raises

WRONG: dict[str, Callable[[Any], object]] = {
    "undo text": lambda thread: thread.undo("1"),
    "undo nothing": lambda thread: thread.undo(None),
    "undo yes": lambda thread: thread.undo(True),
    "log": lambda thread: thread.log(limit="a"),
    "transcript": lambda thread: thread.transcript(limit=1.5),
    "turns": lambda thread: thread.turns(limit=True),
    "on": lambda thread: thread.on(5),
    "promote": lambda thread: thread.promote(None),
    "merge": lambda thread: thread.merge(None),
    "media type": lambda thread: thread.put("/b", b"x", media_type=5),
    "artifact of text": lambda thread: thread.artifacts.put("abc"),
    "artifact of nothing": lambda thread: thread.artifacts.put(None),
    "artifact of numbers": lambda thread: thread.artifacts.put([1]),
    "show": lambda thread: thread.artifacts.show(5),
    "type": lambda thread: thread.get("/a.json", type=5),
    "replace": lambda thread: replaced(thread, [1]),
}


@pytest.fixture
def thread() -> Thread:
    """A thread with something in it."""
    thread = perdure.open("memory:").thread("t", agent="a")
    thread.put("/a.json", 1)
    return thread


def replaced(thread: Thread, entries: Any) -> None:
    """Replace everything by `entries`."""
    with thread.change("replace") as change:
        change.replace(entries)


@pytest.mark.parametrize(
    ("wrong", "error", "meant"),
    [
        (lambda: cast("Any", Agent)("a", model="openai:gpt-5.4"), TypeError, "Did you mean 'backend'?"),
        (lambda: cast("Any", Agent)("a", instruction="Be kind."), TypeError, "Did you mean 'instructions'?"),
        (lambda: open_thread().say("Hello"), AttributeError, "Did you mean 'run'"),
        (lambda: open_thread().transcripts(), AttributeError, "Did you mean 'transcript'?"),
    ],
)
def test_a_name_that_there_is_not_is_answered_with_the_one_that_is_meant(
    wrong: Callable[[], object], error: type[Exception], meant: str
) -> None:
    """It is the error that Python raises for it, and its words say what to type."""
    with pytest.raises(error) as raised:
        wrong()

    assert meant in str(raised.value)


def test_the_options_of_an_agent_are_in_its_signature() -> None:
    """`help(Agent)` and editors show them; a class of the program's own may take others."""

    class Mine(Agent):
        def __init__(self, name: str, *, model: str) -> None:
            super().__init__(name, instructions=model)

    assert {"name", "backend", "tools"} <= set(inspect.signature(Agent).parameters)
    assert Mine("a", model="m").instructions == "m"


def open_thread() -> Any:
    """A thread of a new store, as a program without types sees it."""
    return perdure.open("memory:").thread("t", agent="a")


def test_a_default_may_be_given_as_for_a_dictionary() -> None:
    """`get(path, default)` reads as `dict.get` does, from a thread, a change and a call."""

    @perdure.tool(effect="read_only")
    def look(call: Call) -> int:
        """Look."""
        return call.get("/absent.json", 3)

    with perdure.open("memory:") as store:
        thread = store.thread("t", agent=Agent("a", tools=[look]))
        with thread.change("try") as change:
            assert change.get("/absent.json", 2) == 2
            change.put("/there.json", 4)

        assert (thread.get("/absent.json", 1), thread.get("/there.json", 1)) == (1, 4)
        looked = thread.call(look, {}, id="c1").result
        assert looked is not None
        assert looked.content == (Text("3"),)


@pytest.mark.parametrize(
    ("verb", "value", "first"), [("append", 1, "[]"), ("increment", 1, "0"), ("merge", {}, "{}")]
)
def test_an_edit_of_nothing_says_what_to_begin_with(verb: str, value: Any, first: str) -> None:
    """Two writers that begin a document apart would not merge, so it is begun on purpose."""
    with perdure.open("memory:") as store:
        thread = store.thread("t", agent="a")
        with (
            raises(NotFound, "document_not_found", path="/x.json") as refused,
            thread.change("try") as change,
        ):
            getattr(change, verb)("/x.json", value)

    assert f"put('/x.json', {first})" in refused.value.advice


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_type_is_refused(thread: Thread, which: str) -> None:
    """And nothing is written or moved."""
    before = thread.head

    with pytest.raises(Invalid):
        WRONG[which](thread)

    assert thread.head == before


def test_what_is_carried_out_is_a_plan_and_no_policy() -> None:
    """A policy alone does not say what would go, so the caller has not seen it."""
    with perdure.open("memory:") as store, raises(Invalid, "not_a_plan"):
        store.gc(cast("Any", RetentionPolicy(removed_threads=True)))


def test_a_timeline_is_asked_for_by_name() -> None:
    """The same holds where a thread is opened."""
    store: Any = perdure.open("memory:")
    store.thread("t", agent="a")

    with raises(Invalid, "not_a_timeline"):
        store.thread("t", timeline=5)


@pytest.mark.parametrize("url", [None, 5, b"agents.db", ["agents.db"]])
def test_a_store_is_opened_by_text_or_a_path(url: Any) -> None:
    """Not by anything else; bytes are not a path here."""
    with raises(Invalid, "url_not_text"):
        perdure.open(url)


def test_a_path_is_as_good_as_its_text(tmp_path: Path) -> None:
    """Both name one store."""
    with perdure.open(tmp_path / "agents.db") as store:
        store.thread("t", agent="a")
    with perdure.open(str(tmp_path / "agents.db")) as store:
        assert store.thread("t").agent == "a"


@pytest.mark.parametrize(
    "content", [b"abc", bytearray(b"abc"), memoryview(b"abc"), [b"a", bytearray(b"b"), memoryview(b"c")]]
)
def test_an_artifact_is_bytes_of_any_kind_or_pieces(thread: Thread, content: Any) -> None:
    """All of these hold the same content."""
    assert b"".join(thread.artifacts.get(thread.artifacts.put(content))) == b"abc"

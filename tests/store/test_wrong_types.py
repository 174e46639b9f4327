"""What is handed in by a program without a type checker: refused as `Invalid`, saying what was expected."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import perdure
from perdure import RetentionPolicy, Thread
from perdure.errors import Invalid
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

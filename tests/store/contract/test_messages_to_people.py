"""What errors say: what was not done is what was asked for, and what to do now can be done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure import Store, Thread
from perdure.errors import Invalid, NotFound, PerdureError, StaleHead, Unavailable

CLOSED: dict[str, Callable[[Thread], object]] = {
    "put": lambda thread: thread.put("/n.json", 1),
    "get": lambda thread: thread.get("/n.json"),
    "fork": lambda thread: thread.fork("what-if"),
    "log": lambda thread: thread.log(),
}


@pytest.mark.parametrize("call", CLOSED.values(), ids=CLOSED.keys())
def test_a_closed_store_says_that_nothing_was_done(
    store: Store, thread: Thread, call: Callable[[Thread], object]
) -> None:
    """Whether it was to be read or written."""
    store.close()

    with pytest.raises(Unavailable, match=r"closed; nothing was (done|written)") as caught:
        call(thread)
    assert "nothing was read" not in str(caught.value)
    assert "Open it again" in str(caught.value)


@pytest.mark.parametrize("path", ["title", "", "/a\x00", "/" + "x" * 600, "/a" * 33])
def test_reading_a_bad_path_does_not_speak_of_writing(thread: Thread, path: str) -> None:
    """The same rule is told in words that fit both."""
    for read in (thread.get, thread.entry, thread.blame, thread.paths):
        with pytest.raises(Invalid, match="nothing was done") as caught:
            read(path)
        assert "written" not in str(caught.value)


def test_a_handle_on_a_removed_thread_is_told_to_open_it_again(store: Store, thread: Thread) -> None:
    """Reading the head again would not help: there is none any more."""
    thread.put("/n.json", 1)
    store.thread("trip-42").rm()

    with pytest.raises(
        StaleHead, match=r"was removed; nothing was written\. Open the thread again"
    ) as caught:
        thread.put("/n.json", 2)
    assert "Read it again" not in str(caught.value)


ADVICE: dict[str, tuple[type[PerdureError], Callable[[Thread], object], str]] = {
    "undo": (Invalid, lambda thread: thread.undo("HEAD~1"), r"use undo\(to="),  # pyright: ignore[reportArgumentType]
    "artifact": (Invalid, lambda thread: thread.artifacts.put("x"), "Encode text first"),  # pyright: ignore[reportArgumentType]
    "type": (Invalid, lambda thread: thread.get("/n.json", type=str), "nothing was returned. Ask for it"),
    "bytes": (Invalid, lambda thread: thread.get("/n.json", type=bytes), "nothing was returned. Ask for it"),
    "never true": (
        Invalid,
        lambda thread: thread.bisect(lambda view: False),
        "nothing was searched. Ask the",
    ),
    "always true": (
        Invalid,
        lambda thread: thread.bisect(lambda view: True, good="HEAD~1"),
        "nothing was searched. Name an older",
    ),
    "no line": (
        Invalid,
        lambda thread: thread.bisect(lambda view: True, good="HEAD"),
        "nothing was searched. Name a commit",
    ),
    "nothing there": (
        Invalid,
        lambda thread: thread.at(None).bisect(lambda view: True),
        "nothing was searched. Name another",
    ),
    "timeline": (NotFound, lambda thread: thread.on("nope"), "See what there is with timelines"),
}


@pytest.mark.parametrize(("kind", "call", "told"), ADVICE.values(), ids=ADVICE.keys())
def test_an_error_says_what_to_do_now(
    thread: Thread, kind: type[PerdureError], call: Callable[[Thread], object], told: str
) -> None:
    """Every refusal has a way on."""
    thread.put("/n.json", 1)
    thread.put("/n.json", 2)

    with pytest.raises(kind, match=told):
        call(thread)
    assert thread.head.version == 2

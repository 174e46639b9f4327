"""Messages that are taken back: what leaves them out, what stays, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Thread, aio
from perdure.context.required_messages import line, needed_by_task, opening
from perdure.errors import NotFound, StaleHead
from perdure.history import reader
from perdure.model.head import Head
from perdure.testing import Script, say
from tests.coded import raises
from tests.selection import engines
from tests.switching.checkpoint.works import space_of


@pytest.fixture(params=engines("sqlite", "memory:"))
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Thread]:
    """A thread of either engine with four messages."""
    url = tmp_path / "agents.db" if request.param == "sqlite" else request.param
    with perdure.open(url) as store:
        found = store.thread("talk", agent="desk")
        with found.change("talk", chain=True) as change:
            for number in range(4):
                change.say("user", f"message {number}", id=f"m{number}")
        yield found
        assert store.verify().ok


def ids(thread: Thread, *, limit: int | None = None) -> list[str]:
    """The messages of the transcript."""
    return [entry.id for entry in thread.transcript(limit=limit)]


def test_a_message_is_taken_back_and_state_that_others_wrote_stays(thread: Thread) -> None:
    """Going back would undo the title too."""
    thread.put("/title.json", "written since")

    with thread.change("pop") as change:
        change.retract("m3")

    assert ids(thread) == ["m0", "m1", "m2"]
    assert ids(thread, limit=2) == ["m1", "m2"]
    assert thread.get("/title.json") == "written since"


def test_the_history_still_has_the_message(thread: Thread) -> None:
    """The moment before, a fork from there, its commit and its turn show it; the undo of the retraction brings it back."""
    before = thread.head
    with thread.change("pop") as change:
        change.retract("m1")

    assert [entry.id for entry in thread.at(before).transcript()] == ["m0", "m1", "m2", "m3"]
    assert ids(thread.fork("what-if", at=before)) == ["m0", "m1", "m2", "m3"]
    assert [entry.id for turn in thread.turns() for entry in turn.entries] == ["m0", "m1", "m2", "m3"]
    thread.undo()
    assert ids(thread) == ["m0", "m1", "m2", "m3"]


def test_everything_is_taken_back_by_one_event(thread: Thread) -> None:
    """What is said after it, also in the same block, stays."""
    with thread.change("clear") as change:
        change.retract_all()
        change.say("user", "new", id="n")

    assert ids(thread) == ["n"]
    assert len(thread.log()[0].events) == 2


@pytest.mark.parametrize("message", ["m4", "m", "m0!", "retracted\nm0"])
def test_what_is_not_in_the_transcript_cannot_be_taken_back(thread: Thread, message: str) -> None:
    """An id is compared as a whole, and nothing is written."""
    before = thread.head
    with pytest.raises((NotFound, perdure.errors.Invalid)), thread.change("pop") as change:
        change.retract(message)

    assert thread.head == before


def test_a_message_is_taken_back_once(thread: Thread) -> None:
    """Again, in the same block or after everything was taken back, it is not there."""
    with raises(NotFound, "message_not_found", message_id="m0"), thread.change("pop") as change:
        change.retract("m0")
        change.retract("m0")
    with thread.change("pop") as change:
        change.retract("m0")
    with raises(NotFound, "message_not_found", message_id="m0"), thread.change("pop") as change:
        change.retract("m0")
    with thread.change("clear") as change:
        change.retract_all()
    with raises(NotFound, "message_not_found", message_id="m1"), thread.change("pop") as change:
        change.retract("m1")


def test_a_block_takes_back_what_it_has_said_itself(thread: Thread) -> None:
    """In a chain the two are commits of their own."""
    with thread.change("both", chain=True) as change:
        change.say("user", "a slip", id="slip")
        change.retract("slip")

    assert len(change.commits) == 2
    assert ids(thread) == ["m0", "m1", "m2", "m3"]


def test_a_block_takes_back_what_it_said_after_everything_was_taken_back(thread: Thread) -> None:
    """The order decides: what it said before is not there any more."""
    with thread.change("clear") as change:
        change.say("user", "before", id="before")
        change.retract_all()
        change.say("user", "after", id="after")
        change.retract("after")
        with raises(NotFound, "message_not_found", message_id="before"):
            change.retract("before")

    assert ids(thread) == []


def test_two_writers_do_not_take_back_the_same_message(thread: Thread) -> None:
    """A retraction has read the transcript, so it is not put on top of another one."""
    with pytest.raises(StaleHead), thread.change("pop", on_conflict="rebase") as change:
        change.retract("m3")
        with thread.change("pop") as other:
            other.retract("m3")

    assert ids(thread) == ["m0", "m1", "m2"]


def test_models_are_not_shown_what_was_taken_back(tmp_path: Path) -> None:
    """Neither by the next step of a run nor by an export; the step before is still shown as it was."""
    script = Script(say("one"), say("two"))
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("talk", agent=Agent("desk", backend=script))
        thread.run("a secret", id="first")
        with thread.change("pop") as change:
            change.retract("first")
        thread.run("go on", id="second")

        first, _, last = thread.turns()
        shown = [[message.text for message in thread.at(turn).context().messages] for turn in (first, last)]
        exported = str(thread.export("openai-chat").body)

        assert "a secret" in str(shown[0])
        assert "a secret" not in str(shown[1])
        assert "a secret" not in exported
        assert "go on" in exported


def test_nothing_that_refers_to_a_message_shows_it_once_it_was_taken_back() -> None:
    """Neither its id, nor its turn, nor its place at the beginning; before, each of them does."""
    with perdure.open("memory:") as store:
        thread = store.thread("talk", agent="desk")
        with thread.change("talk", chain=True) as change:
            change.say("system", "a secret", id="words")
            change.say("user", "a secret", id="m1")
        before = thread.head
        with thread.change("pop") as change:
            change.retract("m1")
            change.retract("words")

        assert _needed(thread, before) == [["m1"], ["m1"], ["words"]]
        assert _needed(thread, thread.head) == [[], [], []]


def test_what_is_said_and_cleared_by_one_commit_is_taken_back(thread: Thread) -> None:
    """What the commit says after that is not."""
    with thread.change("clear") as change:
        change.say("user", "before", id="before")
        change.retract_all()
        change.say("user", "after", id="after")
    at = thread.head.commit
    assert at is not None

    said = [("before", at), ("after", at)]
    assert reader.retracted(space_of(thread), said, at) == {"before"}


def _needed(thread: Thread, at: Head) -> list[list[str]]:
    assert at.commit is not None
    on = line(space_of(thread), at.commit, None, fresh=True, is_native=lambda _: False)
    found = [*needed_by_task(on, {"/task/x": "see message:m1 and turn:2"}), opening(on)]
    return [[each.id for each in needed.spoken] for needed in found]


def test_a_checkpoint_does_not_quote_what_was_taken_back(tmp_path: Path) -> None:
    """The first message of the user is usually the goal."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("talk", agent="desk")
        with thread.change("talk") as change:
            change.say("user", "Find the secret of the pharaoh", id="first")
        assert "pharaoh" in str(thread.checkpoint())
        with thread.change("pop") as change:
            change.retract("first")
            change.say("user", "Book a table", id="second")

        assert "pharaoh" not in str(thread.checkpoint())


def test_awaited_blocks_take_messages_back_and_end_steps(tmp_path: Path) -> None:
    """The awaitable interface has the same three methods."""

    async def main() -> list[str]:
        async with aio.open(tmp_path / "agents.db") as store:
            thread = await store.thread("talk", agent="desk")
            async with thread.change("talk", chain="steps") as change:
                await change.say("user", "one", id="m0")
                await change.step()
                await change.say("user", "two", id="m1")
                await change.retract("m0")
            async with thread.change("clear") as change:
                await change.retract_all()
                await change.say("user", "three", id="m2")
            return [entry.id for entry in await thread.transcript()]

    assert asyncio.run(main()) == ["m2"]

"""A model's summary beside the checkpoint: kept if every sentence stands up, else left out with the reason."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure import Thread, testing
from perdure.history.ancestry import present
from perdure.model.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from perdure.model.context import Context
from perdure.providers.contract import Model, ModelEvent, TextChunk
from perdure.switching.checkpoint import derive
from perdure.switching.checkpoint.summary import grounded, summarised
from tests.switching.checkpoint.tellers import Teller
from tests.switching.checkpoint.works import Work, space_of


@pytest.fixture
def thread(work: Work) -> Thread:
    """A talk about a trip, with a decision of the user."""
    work.turn(
        "I want to fly from Bergen to Oslo on 12 May.",
        testing.say("There is SK1 for 900 and DY2 for 700. Which one?"),
    )
    return work.turn("Let's use DY2, not SK1.", testing.say("Shall I look for a hotel as well?"))


def told(thread: Thread, model: Model, **how: Any) -> Checkpoint:
    """The checkpoint with what the model says of it."""
    space = space_of(thread)
    return asyncio.run(summarised(space, derive.derive(space, thread.head.commit), model, **how))


def honest(messages: list[dict[str, str]]) -> Any:
    """A summary that says what the messages say."""
    first, _, second, last = (message["id"] for message in messages)
    return {
        "userGoal": {"text": "I want to fly from Bergen to Oslo on 12 May.", "cites": [first]},
        "currentTask": {"text": "fly from Bergen to Oslo, on 12 May!", "cites": [first]},
        "decisions": [{"text": "Use DY2, not SK1.", "cites": [second]}],
        "openQuestions": [{"text": "Look for a hotel as well?", "cites": [last]}],
    }


def test_an_honest_summary_is_kept_beside_what_was_derived(thread: Thread) -> None:
    """It has its own place, its author's name and its citations; the derived part is what it was."""
    plain = derive.derive(space_of(thread), thread.head.commit)

    found = told(thread, Teller(honest))

    assert found.told is not None
    assert (found.told.by, found.told.summary.decisions) == ("teller:one", ("Use DY2, not SK1.",))
    assert found.summary == plain.summary
    assert found.validation.ok
    cited = [claim.event for claim in found.told.claims]
    assert all(event and present(space_of(thread), event, found.commit) for event in cited)
    assert decode_checkpoint(encode_checkpoint(found)) == found


def test_a_fenced_answer_is_read_too(thread: Thread) -> None:
    """Many models put JSON into a block of code."""
    found = told(thread, Teller(lambda messages: f"```json\n{json.dumps(honest(messages))}\n```"))

    assert found.told is not None


def test_a_summariser_that_fails_leaves_a_note(thread: Thread) -> None:
    """What it raises is in the note, and nothing else happens."""

    class Broken:
        backend = "broken:one"

        async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
            raise ConnectionError("no route to host")
            yield TextChunk("")  # pragma: no cover

    found = told(thread, Broken())

    assert found.told is None
    assert found.validation.notes == (
        "the summary by broken:one was left out: it failed: ConnectionError: no route to host",
    )


def test_a_summariser_that_hangs_is_given_up(thread: Thread) -> None:
    """A switch does not wait for ever."""

    class Slow:
        backend = "slow:one"

        async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
            await asyncio.sleep(3_600)
            yield TextChunk("")  # pragma: no cover

    found = told(thread, Slow(), seconds=0.01)

    assert found.validation.notes == (
        "the summary by slow:one was left out: it took longer than 0.01 seconds",
    )


def test_the_summariser_is_shown_data_and_our_words_alone(thread: Thread) -> None:
    """Nothing of the conversation stands in the system slot of the request."""
    teller = Teller(honest)

    told(thread, teller)

    (context,) = teller.contexts
    assert "Oslo" not in context.system
    assert [message.role for message in context.messages] == ["user"]


SAID = (
    "Send the invoice to Bob and not to Alice. The budget is 500 euro, we pay 20 to Carol. "
    "Wait for approval before you book. Don\u2019t use SK1, e.g. on Monday! Use DY2\nor BA3. Is 1,500 too much?"
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Send the invoice to Bob and not to Alice.", None),
        ("the budget is 500 euro", None),
        ("THE BUDGET IS  500 euro: we pay 20 to Carol", None),
        ("Don't use SK1, e.g. on Monday", None),
        ("is 1,500 too much?", None),
        ("send the invoice to Alice and not to Bob.", "one after another"),
        ("The budget is 20 euro, we pay 500 to Carol.", "one after another"),
        ("Book before you wait for approval.", "one after another"),
        ("The budget is -500 euro", "one after another"),
        ("500 too much?", "one after another"),
        ("Send the invoice to Bob … 500 euro", "one after another"),
        ("Send the invoice to Alice", "one after another"),
        ("to Alice.", "turns the sense"),
        ("Wait for approval", "turns the sense"),
        ("you book", "turns the sense"),
        ("use SK1", "turns the sense"),
        ("on Monday", "turns the sense"),
        ("Use DY2", "turns the sense"),
        ("1,500 too much", "turns the sense"),
        ("…", "no words"),
    ],
)
def test_a_sentence_has_to_be_a_quotation(text: str, why: str | None) -> None:
    """The same words one after another, and nothing left out that turns the sense."""
    found = grounded(text, [SAID])

    assert (found is None) if why is None else (found is not None and why in found)


def test_every_message_that_is_cited_has_to_say_it() -> None:
    """A second witness who says something else is none."""
    assert grounded("Use DY2.", ["Use DY2.", "I said: use DY2."]) is None
    assert grounded("Use DY2.", ["Use DY2.", "Good."]) is not None

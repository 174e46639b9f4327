"""A call ends after another turn was taken: a note says so, and the request does not end with the model's words."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.context.render.notes import SYSTEM
from perdure.errors import RunFailed
from perdure.model.context import Context
from perdure.testing import Script, fail, say, use
from perdure.testing.script import ScriptStep
from tests.context.lines import BACKENDS, check_pairs, check_valid

MADE = 'Earlier in the task, the agent called `pay` with {"to": "ann"}.'
PAID = f'{MADE} It succeeded. Its result stands where the call was made; it begins: "paid ann".'


@perdure.tool(effect="financial", ask=True)
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@perdure.tool(effect="read_only")
def look() -> str:
    """Look."""
    return "looked"


def asked(store: Store, *later: ScriptStep) -> tuple[Thread, Script, str]:
    """A thread with a payment that waits and a turn after it, its model, and the payment."""
    script = Script(use("pay", to="ann"), say("It is noon."), *later)
    thread = store.thread("rent", agent=Agent("clerk", backend=script, tools=[pay, look]))
    (ticket,) = thread.run("Pay").approvals
    thread.run("What time is it?")
    return thread, script, ticket.call


def notes_in(context: Context) -> list[str]:
    """What the notes of a context say, without their first line."""
    return [
        message.text.partition("\n")[2]
        for message in context.messages
        if message.role == "user" and message.text.startswith("[Perdure note]")
    ]


def test_the_request_ends_with_what_came_of_the_call(store: Store) -> None:
    """The result is also where the call was made, and the system words vouch for the note."""
    thread, script, call = asked(store, say("Ann is paid."))
    thread.decide(call, "approve", by="me")

    thread.resume()

    context = script.contexts[-1]
    assert (context.messages[-1].role, notes_in(context)) == ("user", [PAID])
    assert context.messages[2].tool_results[0].status == "success"
    assert SYSTEM in context.system
    check_pairs(context.messages)


def test_a_denied_call_is_told_as_well(store: Store) -> None:
    """With the reason that the person gave."""
    thread, script, call = asked(store, say("Ann is not paid."))
    thread.decide(call, "deny", by="me", why="too much")

    thread.resume()

    (note,) = notes_in(script.contexts[-1])
    assert script.contexts[-1].messages[-1].text.endswith(note)
    assert note.startswith(f"{MADE} It did not succeed.")
    assert "too much" in note


def test_a_call_that_is_decided_at_once_needs_no_note(store: Store) -> None:
    """Control: the request ends with the result itself, and the recipe is as it always was."""
    script = Script(use("pay", to="ann"), say("Ann is paid."))
    thread = store.thread("rent", agent=Agent("clerk", backend=script, tools=[pay]))
    (ticket,) = thread.run("Pay").approvals
    thread.decide(ticket.call, "approve", by="me")

    thread.resume()

    assert script.contexts[-1].messages[-1].role == "tool"
    assert notes_in(script.contexts[-1]) == []


def test_the_note_stays_where_the_call_ended(store: Store) -> None:
    """So the prompt of a later step begins with all of the one before."""
    thread, script, call = asked(store, use("look"), say("Ann is paid."), say("Bye."))
    thread.decide(call, "approve", by="me")
    thread.resume()

    thread.run("Thanks")

    for before, after in zip(script.contexts[2:], script.contexts[3:], strict=False):
        assert list(after.messages)[: len(before.messages)] == list(before.messages)
        assert notes_in(after) == [PAID]


def test_what_the_steps_were_shown_is_rebuilt(store: Store) -> None:
    """A history that is read anew gives the same prompt: before the call ended, when it ended, and later."""
    thread, script, call = asked(store, say("Ann is paid."), say("Bye."))
    thread.decide(call, "approve", by="me")
    thread.resume()
    thread.run("Thanks")
    again = Script(then=say("Yes."))
    store.thread("rent", agent=Agent("clerk", backend=again, tools=[pay, look])).run("Sure?")

    for turn, context in ((2, script.contexts[1]), (3, script.contexts[3])):
        assert list(thread.shown(at=f"turn:{turn}").plan.context.messages) == list(context.messages)
    shown = store.thread("rent").shown().plan.context
    assert (notes_in(shown), list(shown.messages)) == ([PAID], list(again.contexts[-1].messages))
    assert store.verify().ok


@pytest.mark.parametrize("to", BACKENDS)
@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_the_request_is_valid_for_every_provider(
    store: Store, to: str, verdict: Literal["approve", "deny"]
) -> None:
    """As it is before the model answers; it does not ask the model to go on with its own words."""
    thread, script, call = asked(store, fail())
    thread.decide(call, verdict, by="me")
    with pytest.raises(RunFailed):
        thread.resume()
    assert len(script.contexts) == 3

    check_valid(thread, to)

    body = str(thread.render(to).body)
    assert MADE.replace('"', "") in body.replace("\\", "").replace('"', "")
    assert "prefix" not in body


def test_another_backend_is_told_what_came_of_it(store: Store) -> None:
    """It took over while the call waited."""
    thread, _, call = asked(store)
    other = Script(say("It is one."), say("Ann is paid."), backend="script:other")
    thread.switch(other, approved_by="me")
    thread.run("And now?")
    thread.decide(call, "approve", by="me")

    thread.resume()

    context = other.contexts[-1]
    assert context.messages[-1].role == "user"
    assert PAID in notes_in(context)[-1]
    assert list(thread.shown().plan.context.messages) == list(context.messages)


def test_a_prompt_that_another_program_outran_has_the_note(tmp_path: Path) -> None:
    """The other program resumes the run; this one adds what was said there to the prompt that it has cached."""
    with perdure.open(tmp_path / "a.db") as here, perdure.open(tmp_path / "a.db") as there:
        thread, script, call = asked(here, say("Paid."), say("Bye."))
        away = there.thread(
            "rent", agent=Agent("clerk", backend=Script(then=say("Paid.")), tools=[pay, look])
        )
        away.decide(call, "approve", by="me")
        away.resume()

        thread.run("Thanks")

        assert notes_in(script.contexts[-1]) == [PAID]
        assert list(thread.shown().plan.context.messages) == list(script.contexts[-1].messages)

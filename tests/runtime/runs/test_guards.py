"""Guards refuse inputs, answers and arguments with a reason that is in the history, and fail no run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent, Call, Guard, Message, Thread
from perdure.errors import Invalid, RunFailed
from perdure.model.event import GuardRefused
from perdure.testing import Script, say, use
from tests.coded import raises


class Answer(msgspec.Struct):
    """What a run is asked for."""

    price: int


def no_secrets(message: Message) -> str | None:
    """Refuse a message with the word."""
    return "it tells a secret" if "secret" in message.text else None


async def not_too_much(call: Call) -> str | None:
    """Refuse a large amount."""
    return "more than 100" if call.arguments["amount"] > 100 else None


@perdure.tool(effect="external_write")
def pay(amount: int) -> str:
    """Pay."""
    paid.append(amount)
    return "paid"


paid: list[int] = []


def refusals(thread: Thread) -> list[tuple[str, str, str]]:
    """Return what the history says that guards refused, oldest first."""
    events = [event for entry in reversed(thread.log()) for event in entry.events]
    return [(each.guard, each.subject, each.why) for each in events if isinstance(each, GuardRefused)]


def opened(tmp_path: Path, agent: Agent) -> Thread:
    """Return a thread of a new store."""
    paid.clear()
    return perdure.open(tmp_path / "agents.db").thread("t", agent=agent)


def test_a_refused_input_stops_the_run_before_the_model_is_asked(tmp_path: Path) -> None:
    """The run is stopped with the reason, and no step is taken."""
    script = Script(say("Never."))
    thread = opened(tmp_path, Agent("a", backend=script, guards=[Guard("secrets", input=no_secrets)]))

    result = thread.run("a secret", id="m1")

    assert (result.status, result.steps, script.contexts) == ("stopped", 0, [])
    assert result.stop is not None
    assert (result.stop.reason, result.stop.word) == ("guard", "secrets")
    assert refusals(thread) == [("secrets", "input", "it tells a secret")]
    assert thread.run("a secret", id="m1") == result


@pytest.mark.parametrize(
    ("words", "status", "steps"), [("a secret", "stopped", 1), ("hurry", "succeeded", 2)]
)
def test_a_message_that_is_queued_in_mid_run_is_checked_too(
    tmp_path: Path, words: str, status: str, steps: int
) -> None:
    """The model is not asked after a refused one; an accepted one, the control, reaches it."""
    script = Script(use("look"), say("Done."))

    @perdure.tool(effect="none")
    def look() -> str:
        """Have the user add to the input while the run is under way."""
        thread.steer(words)
        return "nothing"

    agent = Agent("a", backend=script, tools=[look], guards=[Guard("secrets", input=no_secrets)])
    thread = opened(tmp_path, agent)

    result = thread.run("go")

    assert (result.status, len(script.contexts)) == (status, steps)
    assert len(refusals(thread)) == (status == "stopped")
    assert [each.message.text for each in thread.transcript() if each.message.role == "user"] == ["go", words]


def test_an_accepted_input_is_answered(tmp_path: Path) -> None:
    """Control: the same guard accepts other words."""
    thread = opened(
        tmp_path, Agent("a", backend=Script(say("Hi.")), guards=[Guard("secrets", input=no_secrets)])
    )

    assert thread.run("hello").text == "Hi."
    assert refusals(thread) == []


def test_a_refused_answer_is_asked_for_again(tmp_path: Path) -> None:
    """The model is told why, and its next answer is the result."""
    script = Script(say("The secret is 7."), say("I cannot say."))
    agent = Agent("a", backend=script, guards=[Guard("secrets", output=no_secrets)], answer_retries=1)
    thread = opened(tmp_path, agent)

    result = thread.run("what is it?")

    assert (result.status, result.text, result.steps) == ("succeeded", "I cannot say.", 2)
    assert refusals(thread) == [("secrets", "output", "it tells a secret")]
    assert "it tells a secret" in script.contexts[1].messages[-1].text
    assert len(thread.turns()) == 1


def test_an_answer_that_is_refused_too_often_stops_the_run(tmp_path: Path) -> None:
    """The result says why and has no words, now and when it is read again."""
    script = Script(say("secret 1"), say("secret 2"), say("never asked"))
    agent = Agent("a", backend=script, guards=[Guard("secrets", output=no_secrets)], answer_retries=1)
    thread = opened(tmp_path, agent)

    result = thread.run("what is it?", id="m1")

    assert (result.status, result.text, result.steps, len(script.contexts)) == ("stopped", "", 2, 2)
    assert len(refusals(thread)) == 2
    assert thread.run("what is it?", id="m1").text == ""


def test_refused_arguments_are_not_run_and_the_model_is_told(tmp_path: Path) -> None:
    """The call is denied with the reason; a smaller amount is paid."""
    script = Script(use("pay", amount=500), use("pay", amount=50), say("Done."))
    agent = Agent("a", backend=script, tools=[pay], guards=[Guard("limit", arguments=not_too_much)])
    thread = opened(tmp_path, agent)

    result = thread.run("pay")

    assert (result.status, paid) == ("succeeded", [50])
    assert [(call.state, call.why) for call in thread.calls()] == [
        ("denied", "more than 100"),
        ("succeeded", None),
    ]
    assert refusals(thread) == [("limit", "arguments", "more than 100")]


def test_output_that_does_not_fit_its_type_is_asked_for_again(tmp_path: Path) -> None:
    """The model is told what is wrong, and the second answer is decoded."""
    script = Script(say("about ten"), say('{"price": 10}'))
    thread = opened(tmp_path, Agent("a", backend=script, answer_retries=2))

    result = thread.run("how much?", output=Answer)

    assert result.output == Answer(10)
    assert [each[:2] for each in refusals(thread)] == [("output_type", "output")]


def test_output_that_never_fits_ends_the_run_as_it_is(tmp_path: Path) -> None:
    """The run succeeds, as without retries, and reading the output raises."""
    thread = opened(tmp_path, Agent("a", backend=Script(say("ten"), say("eleven")), answer_retries=1))

    result = thread.run("how much?", output=Answer)

    assert (result.status, result.text) == ("succeeded", "eleven")
    with raises(Invalid, "output_mismatch"):
        _ = result.output


def test_a_resumed_run_does_not_count_its_refusals_from_the_start(tmp_path: Path) -> None:
    """The count is in the history: a failure and a retry in between give no more tries."""
    first = Script(say("secret 1"))
    guards = [Guard("secrets", output=no_secrets)]
    thread = opened(tmp_path, Agent("a", backend=first, guards=guards, answer_retries=1))
    with pytest.raises(RunFailed):  # the script has ended when it is asked again
        thread.run("what is it?", id="m1")

    again = Agent("a", backend=Script(say("secret 2"), say("never")), guards=guards, answer_retries=1)
    with perdure.open(tmp_path / "agents.db") as store:
        result = store.thread("t", agent=again).run("what is it?", id="m1")

    assert (result.status, len(refusals(thread))) == ("stopped", 2)


def test_a_guard_that_raises_fails_the_run(tmp_path: Path) -> None:
    """A check that cannot decide lets nothing through."""

    def broken(message: Message) -> str | None:
        raise OSError("no list of secrets")

    thread = opened(tmp_path, Agent("a", backend=Script(say("Hi.")), guards=[Guard("broken", output=broken)]))

    with pytest.raises(RunFailed):
        thread.run("hello")


def test_a_guard_that_checks_nothing_is_refused() -> None:
    """A mistake in a declaration is found where it is made."""
    with raises(Invalid, "guard_invalid", guard="empty"):
        Guard("empty")
    with raises(Invalid, "agent_field_invalid", field="guards"):
        Agent("a", guards=[no_secrets])  # pyright: ignore[reportArgumentType]
    with raises(Invalid, "agent_field_invalid", field="answer_retries"):
        Agent("a", answer_retries=-1)

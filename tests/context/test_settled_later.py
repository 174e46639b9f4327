"""A call ends with an unknown outcome and is settled later: from then on a model is shown what settled it."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, ContextLimits, Outcome, Policy, Store, Thread
from perdure.testing import Script, say, use
from perdure.testing.script import ScriptStep

B = "script:other"
SAYS = "A person says that it was done: bank shows it."
UNKNOWN = "the outcome of this call to pay is unknown"


class Bank:
    """Takes payments without an answer, and can be asked later."""

    def __init__(self) -> None:
        self.is_up = False
        self.asked = 0

    @property
    def pay(self) -> perdure.Tool:
        """A tool that pays, and whose hook asks the bank."""

        @perdure.tool(effect="financial")
        def pay(to: str) -> str:
            """Pay."""
            self.asked += 1
            raise TimeoutError("no answer")

        @pay.reconcile
        def find(call: Call) -> Outcome:
            return call.done("paid ann") if self.is_up else call.dont_know("the bank is down")

        return pay


@pytest.fixture
def bank() -> Bank:
    """What the agent pays with."""
    return Bank()


def uncertain(store: Store, bank: Bank, *then: str) -> tuple[Thread, Script]:
    """A thread whose payment has an unknown outcome, and its model."""
    script = Script(use("pay", to="ann"), say("I do not know."), *[say(each) for each in then])
    agent = Agent("clerk", backend=script, tools=[bank.pay], policy=Policy(unfinished="approve"))
    thread = store.thread("rent", agent=agent)
    thread.run("Pay")
    return thread, script


def result_in(script: Script) -> tuple[str, str]:
    """The status and the words of the payment in what the model was shown last."""
    (result,) = [each for message in script.contexts[-1].messages for each in message.tool_results]
    return result.status, "\n".join(getattr(block, "text", "") for block in result.content)


def test_the_next_step_is_shown_what_a_person_said(store: Store, bank: Bank) -> None:
    """With the value; until then, which is the control, the model reads that the outcome is unknown."""
    thread, script = uncertain(store, bank, "?", "Yes.")
    (call,) = thread.calls()
    thread.run("Was Ann paid?")
    assert UNKNOWN in result_in(script)[1]

    thread.resolve(call.id, "done", value="receipt 7", by="me", why="bank shows it")
    thread.run("And now?")

    assert result_in(script) == ("success", f"{SAYS}\nreceipt 7")


def test_a_program_that_reads_the_history_anew_shows_the_same(store: Store, bank: Bank) -> None:
    """Without the prompt that the first process has cached."""
    thread, _ = uncertain(store, bank)
    thread.resolve(thread.calls()[0].id, "not_done", by="me", why="no trace")
    later = Script(say("No."))

    store.thread("rent", agent=Agent("clerk", backend=later, tools=[bank.pay])).run("Was Ann paid?")

    assert result_in(later) == ("error", "A person says that it was not done: no trace.")


def test_what_the_hook_found_later_is_shown(store: Store, bank: Bank) -> None:
    """It says that it was found later: the model's own answer in between was given without it."""
    thread, script = uncertain(store, bank, "Yes.")
    bank.is_up = True
    thread.reconcile(thread.calls()[0].id, by="me")

    thread.run("Was Ann paid?")

    status, words = result_in(script)
    assert (status, words.endswith("\npaid ann")) == ("success", True)
    assert "Its tool found later that it was done" in words
    assert bank.asked == 1


def test_a_call_that_is_settled_while_its_run_goes_on_is_shown_at_the_next_step(
    store: Store, bank: Bank
) -> None:
    """A person may be quicker than a long run."""

    @perdure.tool(effect="read_only")
    def look() -> str:
        """Look; a person settles the payment meanwhile."""
        thread = store.thread("rent")
        thread.resolve(thread.calls()[0].id, "done", by="me", why="bank shows it")
        return "looked"

    script = Script(use("pay", to="ann"), use("look"), say("Paid."))
    store.thread("rent", agent=Agent("clerk", backend=script, tools=[bank.pay, look])).run("Pay")

    assert [UNKNOWN in str(list(context.messages)) for context in script.contexts] == [False, True, False]
    assert SAYS in str(list(script.contexts[-1].messages))


def test_what_a_step_was_shown_stays_what_it_was_shown(store: Store, bank: Bank) -> None:
    """Of the turn before the settlement, and of the turn after it."""
    thread, script = uncertain(store, bank, "?", "Yes.")
    thread.run("Was Ann paid?")
    thread.resolve(thread.calls()[0].id, "done", by="me", why="bank shows it")
    thread.run("And now?")

    before, after = thread.shown(at="turn:2"), thread.shown(at="turn:3")

    assert [list(before.plan.context.messages), list(after.plan.context.messages)] == [
        list(each.messages) for each in script.contexts[-2:]
    ]
    assert UNKNOWN in str(list(before.plan.context.messages))
    assert SAYS in str(list(after.plan.context.messages))
    assert store.verify().ok


def test_another_backend_is_told_that_it_was_done(store: Store, bank: Bank) -> None:
    """In words, as calls of another backend are told, with what the person said."""
    thread, _ = uncertain(store, bank)
    thread.resolve(thread.calls()[0].id, "done", value="receipt 7", by="me", why="bank shows it")

    other = Script(say("x"), backend=B)
    thread.switch(other)
    thread.run("Was Ann paid?")

    told = str(list(other.contexts[-1].messages))
    assert "It succeeded. Already done: do not repeat it." in told
    assert "receipt 7" in told
    assert UNKNOWN not in told


def test_another_backend_is_told_that_nobody_knows(store: Store, bank: Bank) -> None:
    """Control: it is not told that the payment did not succeed, and once it is settled, it is told that too."""
    thread, _ = uncertain(store, bank)
    other = Script(say("x"), say("Yes."), backend=B)
    thread.switch(other, approved_by="me")
    thread.run("Was Ann paid?")
    told = str(list(other.contexts[-1].messages))
    assert "It is not known whether it was done. Do not simply repeat it" in told
    assert "did not succeed" not in told

    thread.resolve(thread.calls()[0].id, "done", by="me", why="bank shows it")
    thread.run("And now?")

    told = str(list(other.contexts[-1].messages))
    assert SAYS in told
    assert "unknown" not in told
    assert list(thread.shown().plan.context.messages) == list(other.contexts[-1].messages)


def test_a_backend_that_took_over_before_the_call_ended_is_told_that_nobody_knows(store: Store) -> None:
    """The call waits for an approval, another backend takes over, and then the payment ends without an answer."""

    @perdure.tool(effect="financial", ask=True)
    def pay(to: str) -> str:
        """Pay."""
        raise TimeoutError("no answer")

    other = Script(say("I do not know."), say("Still not."), backend=B)
    thread = store.thread("rent", agent=Agent("clerk", backend=Script(use("pay", to="cy")), tools=[pay]))
    (asked,) = thread.run("Pay").approvals
    thread.switch(other)
    thread.decide(asked.call, "approve", by="me")
    thread.resume()
    thread.run("And now?")

    for context in other.contexts:
        told = str(list(context.messages))
        assert "It is not known whether it was done." in told
        assert "did not succeed" not in told
    assert list(thread.shown().plan.context.messages) == list(other.contexts[-1].messages)
    assert store.verify().ok


def test_who_asks_to_pay_again_is_told_who_said_that_it_was_done(store: Store, bank: Bank) -> None:
    """The ticket names the person and the reason: the call is in this conversation."""
    thread, _ = uncertain(store, bank)
    thread.resolve(thread.calls()[0].id, "done", by="ann", why="bank shows it")
    again = Script(use("pay", to="ann"))

    thread = store.thread("rent", agent=Agent("clerk", backend=again, tools=[bank.pay]))
    (ticket,) = thread.run("Pay again").approvals

    assert ticket.action == "repeat"
    assert ticket.message.endswith(", was done, as ann says: bank shows it")


def test_a_note_of_an_older_call_is_written_again_once_it_is_settled(store: Store, bank: Bank) -> None:
    """Its turn is not shown any more; before that, which is the control, the note says that the outcome is unknown."""
    first = Script(use("pay", to="ann"), *[say(f"{number}.") for number in range(4)])
    other = Script(say("x"), say("y"), backend=B)
    limits, policy = ContextLimits(turns=2), Policy(unfinished="approve")
    agent = Agent("clerk", backend=first, tools=[bank.pay], context=limits, policy=policy)
    thread = store.thread("rent", agent=agent)
    for text in ("Pay", "1", "2", "3"):
        thread.run(text)
    thread.switch(other, approved_by="me")
    thread.run("4")
    assert "Its outcome: needs_human (financial): do not repeat it." in other.contexts[-1].messages[0].text

    thread.resolve(thread.calls()[0].id, "done", by="me")
    thread.run("5")

    assert "It is done (financial): do not repeat it." in other.contexts[-1].messages[0].text
    assert list(thread.shown().plan.context.messages) == list(other.contexts[-1].messages)


@pytest.mark.parametrize(
    "to", ["openai-chat:gpt-5.6", "anthropic:claude-sonnet-5-5", "gemini:gemini-2.5-pro"]
)
def test_every_format_says_so(store: Store, bank: Bank, to: str) -> None:
    """The request of a vendor has the words of the person and not the old ones."""
    thread, _ = uncertain(store, bank)
    thread.resolve(thread.calls()[0].id, "done", by="me", why="bank shows it")

    body = str(thread.render(to).body)

    assert SAYS in body
    assert UNKNOWN not in body


def test_a_prompt_that_another_program_outran_says_that_nobody_knows(tmp_path: Path) -> None:
    """The other program makes the payment; this one adds what was said there to the prompt that it has cached."""

    @perdure.tool(effect="financial", ask=True)
    def pay(to: str) -> str:
        """Pay."""
        raise TimeoutError("no answer")

    def clerk(*replies: ScriptStep, backend: str = "script") -> tuple[Agent, Script]:
        script = Script(*replies, backend=backend)
        return Agent("clerk", backend=script, tools=[pay], policy=Policy(unfinished="approve")), script

    with perdure.open(tmp_path / "a.db") as here, perdure.open(tmp_path / "a.db") as there:
        thread = here.thread("rent", agent=clerk(use("pay", to="cy"))[0])
        (asked,) = thread.run("Pay").approvals
        ours = Script(*[say("I do not know.")] * 4, backend=B)
        thread.switch(ours)
        thread.run("Is it done?")
        away = there.thread("rent", agent=clerk(say("No answer."), say("No answer."), backend=B)[0])
        away.decide(asked.call, "approve", by="me")
        away.resume()
        thread.run("And now?")

        told = str(list(ours.contexts[-1].messages))
        assert "It is not known whether it was done." in told
        assert "did not succeed" not in told
        assert list(thread.shown().plan.context.messages) == list(ours.contexts[-1].messages)

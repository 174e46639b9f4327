"""A run that refuses an answer asks its model for another; what the model did before is not done again unasked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Call, Guard, Message, Store, Text, Thread, ToolCall
from perdure.errors import NotDone, RunFailed
from perdure.history.space import Space
from perdure.ledger import repeat_guard
from perdure.model.call import CallRecord
from perdure.model.context import Context
from perdure.providers.contract import Finished, ModelEvent
from perdure.testing import Script, fail, say, use

paid: list[int] = []


class Answer(msgspec.Struct):
    """What a run is asked for."""

    price: int


def no_secrets(message: Message) -> str | None:
    """Refuse a message with the word."""
    return "it tells a secret" if "secret" in message.text else None


def paying(**options: Any) -> perdure.Tool:
    """Return the tool that pays."""

    @perdure.tool(effect="external_write", **options)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    return pay


PAY = paying()
AGAIN = (use("pay", amount=3), say("A secret."), use("pay", amount=3), say("Fine."))


def clerk(*steps: Any, tool: perdure.Tool = PAY, retries: int = 1) -> Agent:
    """Return an agent whose answers are guarded."""
    guards = [Guard("secrets", output=no_secrets)]
    return Agent("clerk", backend=Script(*steps), tools=[tool], guards=guards, answer_retries=retries)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store, before any payment."""
    paid.clear()
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


def question(thread: Thread) -> tuple[str, str]:
    """Return what waits for a person: the action, and the case of the repeat."""
    (asked,) = thread.approvals()
    return asked.action, json.loads(asked.parameters or "{}")["case"]


def test_a_payment_that_the_model_requests_again_waits_for_a_person(store: Store) -> None:
    """The run asked for another answer, and the user asked for no second payment."""
    thread = store.thread("t", agent=clerk(*AGAIN))

    result = thread.run("Pay three.")

    assert (result.status, paid) == ("waiting", [3])
    assert question(thread) == ("repeat", "again")


@pytest.mark.parametrize(("verdict", "left"), [("approve", [3, 3]), ("deny", [3])])
def test_the_person_decides_whether_it_is_made_again(store: Store, verdict: Any, left: list[int]) -> None:
    """An approval lets it be made once more, a denial does not; the run ends with the next answer."""
    thread = store.thread("t", agent=clerk(*AGAIN))
    thread.run("Pay three.")
    thread.decide(thread.approvals()[0].call, verdict, by="ann")

    result = thread.resume()

    assert (result.status, result.text, paid) == ("succeeded", "Fine.", left)


def test_an_answer_that_does_not_fit_its_type_counts_too(store: Store) -> None:
    """The run refuses it without a guard."""
    script = Script(use("pay", amount=3), say("three"), use("pay", amount=3), say('{"price": 3}'))
    thread = store.thread("t", agent=Agent("clerk", backend=script, tools=[PAY], answer_retries=1))

    result = thread.run("Pay three.", output=Answer)

    assert (result.status, paid, question(thread)) == ("waiting", [3], ("repeat", "again"))


def test_it_counts_after_a_failure_and_a_retry(store: Store) -> None:
    """The refusal is in the history, so another process that goes on with the run knows of it."""
    with pytest.raises(RunFailed):
        store.thread("t", agent=clerk(use("pay", amount=3), say("A secret."), fail())).run(
            "Pay three.", id="m"
        )

    thread = store.thread("t", agent=clerk(use("pay", amount=3), say("Fine.")))
    result = thread.run("Pay three.", id="m")

    assert (result.status, paid, question(thread)) == ("waiting", [3], ("repeat", "again"))


def test_a_key_gives_the_first_result_without_a_question(store: Store) -> None:
    """A key says that both are the same payment, which is made once."""
    thread = store.thread("t", agent=clerk(*AGAIN, tool=paying(key="pay-{amount}")))

    result = thread.run("Pay three.")

    assert (result.status, result.text, paid) == ("succeeded", "Fine.", [3])


@pytest.mark.parametrize(("policy", "left"), [("deny", [3]), ("allow", [3, 3])])
def test_the_tool_declares_what_happens_instead(store: Store, policy: str, left: list[int]) -> None:
    """A tool may deny repeats, or allow them."""
    thread = store.thread("t", agent=clerk(*AGAIN, tool=paying(repeat_guard=policy)))

    assert (thread.run("Pay three.").status, paid) == ("succeeded", left)


def test_another_payment_and_one_of_the_next_input_are_made(store: Store) -> None:
    """Only what this run has done before the refusal is held back."""
    steps = (use("pay", amount=3), say("A secret."), use("pay", amount=4), say("Fine."))
    thread = store.thread("t", agent=clerk(*steps, use("pay", amount=3), say("Once more.")))
    thread.run("Pay three.")

    result = thread.run("Pay three once more.")

    assert (result.status, paid) == ("succeeded", [3, 4, 3])


def test_a_child_run_that_is_started_again_does_not_pay_again(store: Store) -> None:
    """The run that asked for another answer is the parent's, and the payment its child's."""
    child = Agent("child", backend=Script(use("pay", amount=3), say("Paid.")), tools=[PAY])

    @perdure.tool(effect="none")
    def delegate(task: str, call: Call) -> str:
        """Let another agent do it."""
        return call.run(child.on(Script(use("pay", amount=3), say("Paid."))), task).text

    steps = (use("delegate", task="go"), say("A secret."), use("delegate", task="go"), say("Fine."))
    thread = store.thread("t", agent=clerk(*steps, tool=delegate))

    result = thread.run("Pay three.")

    assert (result.status, paid) == ("waiting", [3])


def nested(first: str, second: str) -> Agent:
    """Return an agent whose child answers twice, and uses one tool before each answer; `delegate` runs its own child."""
    payer = Agent("payer", backend=Script(), tools=[PAY])

    @perdure.tool(effect="none")
    def delegate(amount: int, call: Call) -> str:
        """Let another agent do it."""
        return call.run(payer.on(Script(use("pay", amount=amount), say("Paid."))), "Pay.").text

    @perdure.tool(effect="none")
    def manage(task: str, call: Call) -> str:
        """Let an agent do it that lets another do it."""
        steps = (use(first, amount=3), say("A secret."), use(second, amount=3), say("Fine."))
        guards = [Guard("secrets", output=no_secrets)]
        manager = Agent(
            "manager", backend=Script(*steps), tools=[delegate, PAY], guards=guards, answer_retries=1
        )
        return call.run(manager, task).text

    return clerk(use("manage", task="go"), say("Done."), tool=manage)


NESTED = [("delegate", "delegate"), ("pay", "delegate"), ("delegate", "pay")]


@pytest.mark.parametrize(("first", "second"), NESTED)
def test_a_child_that_answers_again_does_not_have_it_paid_again(
    store: Store, first: str, second: str
) -> None:
    """The run that refused an answer is between the payment and the root, or made the payment itself."""
    thread = store.thread("t", agent=nested(first, second))

    assert (thread.run("Pay three.").status, paid) == ("waiting", [3])


@pytest.mark.parametrize(("first", "second"), NESTED)
def test_control_without_the_runs_between_it_is_paid_twice(
    store: Store, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds it back is the look at the runs between the payment and the root: the root refused nothing."""
    callers = repeat_guard._callers  # pyright: ignore[reportPrivateUsage]

    def of_root(space: Space, record: CallRecord, root: Space) -> Iterator[tuple[Space, CallRecord]]:
        return (each for each in callers(space, record, root) if each[0].name == root.name)

    monkeypatch.setattr(repeat_guard, "_callers", of_root)
    thread = store.thread("t", agent=nested(first, second))

    assert (thread.run("Pay three.").status, paid) == ("succeeded", [3, 3])


@perdure.tool(effect="external_write", name="pay")
def pay_once(amount: int) -> str:
    """Pay, if nothing was paid before."""
    if len(paid) == 1 and amount not in declined:
        declined.append(amount)
        raise NotDone("declined")
    paid.append(amount)
    return "paid"


declined: list[int] = []
DECLINED = (use("pay", amount=3), *AGAIN)  # the second payment is declined


def test_a_call_in_between_that_failed_hides_nothing(store: Store) -> None:
    """Its start found the payment in order, before the answer was refused; the guard looks at the payment again."""
    declined.clear()
    thread = store.thread("t", agent=clerk(*DECLINED, tool=pay_once))

    assert (thread.run("Pay three.").status, paid, question(thread)) == ("waiting", [3], ("repeat", "again"))


def test_control_with_the_mark_of_the_gate_alone_it_is_paid_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the gate recorded before the refusal would be believed after it."""
    declined.clear()
    real = repeat_guard._is_asked_again  # pyright: ignore[reportPrivateUsage]

    def believed(*args: Any, is_any: bool = False) -> bool:
        return not is_any and real(*args)

    monkeypatch.setattr(repeat_guard, "_is_asked_again", believed)
    thread = store.thread("t", agent=clerk(*DECLINED, tool=pay_once))

    assert (thread.run("Pay three.").status, paid) == ("succeeded", [3, 3])


class Counting:
    """A model that takes these steps by how many it sees, on whatever timeline."""

    backend = "script:counting"

    def __init__(self, *steps: ToolCall | str) -> None:
        self._steps = steps

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Take the next step."""
        taken = self._steps[sum(each.role == "assistant" for each in context.messages)]
        words, calls = ((Text(taken),), ()) if isinstance(taken, str) else ((), (taken,))
        yield Finished(message=Message("assistant", words, calls))


def decided_on_a_fork(store: Store) -> Thread:
    """Return the fork on which a run went on that had paid and was asked for another answer on `main`."""
    pay, ask = ToolCall("c", "pay", '{"amount": 3}'), ToolCall("c", "ask", "{}")
    guards = [Guard("secrets", output=no_secrets)]
    model = Counting(pay, "A secret.", ask, pay, "Fine.")
    agent = Agent("clerk", backend=model, tools=[PAY, asked], guards=guards, answer_retries=1)
    assert store.thread("t", agent=agent).run("Pay three.").status == "waiting"
    store.thread("t").fork("fork")
    fork = store.thread("t", agent=agent, timeline="fork")
    fork.decide(fork.approvals()[0].call, "approve", by="ann")
    return fork


@perdure.tool(name="ask", effect="external_write", ask=True)
def asked() -> str:
    """Ask a person first."""
    return "asked"


def test_the_run_that_goes_on_with_it_on_a_fork_does_not_pay_again(store: Store) -> None:
    """It has another id, and its model may take all steps again as well."""
    fork = decided_on_a_fork(store)

    assert (fork.resume().status, paid, question(fork)) == ("waiting", [3], ("repeat", "again"))


def test_control_without_the_run_before_it_a_fork_pays_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds the second payment back there is the look at the run that it continues."""
    monkeypatch.setattr(repeat_guard, "_continued_by", lambda _, run: {run})

    assert (decided_on_a_fork(store).resume().status, paid) == ("succeeded", [3, 3])


def test_control_without_a_refusal_the_model_may_pay_twice(store: Store) -> None:
    """A model that sees its own payment and requests another means another."""
    thread = store.thread("t", agent=clerk(use("pay", amount=3), use("pay", amount=3), say("Fine.")))

    assert (thread.run("Pay three, twice.").status, paid) == ("succeeded", [3, 3])


def test_control_without_the_rule_it_is_paid_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds the second payment back is the look at the refusal, and nothing else."""
    monkeypatch.setattr(repeat_guard, "_has_refused", lambda *_: False)
    thread = store.thread("t", agent=clerk(*AGAIN))

    assert (thread.run("Pay three.").status, paid) == ("succeeded", [3, 3])

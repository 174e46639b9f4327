"""The primary fails before, during and after a tool call.

Failover is recorded with its reason, the turn goes on where it stands, and no effect is repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import perdure
from perdure import Agent, Policy, Result, Route, Store, Thread, aio
from perdure.errors import RunFailed, Unavailable
from perdure.model.context import Context
from perdure.model.event import BackendSwitched, CheckpointCreated
from perdure.model.run import Usage
from perdure.providers.contract import CallDelta, ModelEvent, PendingReply, TextChunk
from perdure.providers.transport.errors import (
    BackendUnavailable,
    ContentRefused,
    ContextTooLong,
    CutOff,
    RateLimited,
    RequestRejected,
)
from perdure.runtime.events import Happened, RunEnded
from perdure.runtime.run.finish import RunFinisher
from perdure.switching.route import Trigger
from perdure.testing import Script, fail, say, step, use
from tests.switching.scenes import PICTURE, Counting, committed

A, B, C = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5", "google:gemini-2.5-pro"


class BreaksOff:
    """A model that breaks off in the middle of asking for a tool."""

    backend = A

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Say half of it."""
        yield TextChunk("I will pay")
        yield CallDelta(0, "pay", '{"to": "an')
        raise CutOff("the answer broke off")


def failed_with(kind: str) -> Callable[[RunFailed], bool]:
    """True for a failed run whose result names an error of that kind."""
    return lambda error: isinstance(error.run, Result) and error.run.kind == kind


def switches(thread: Thread) -> list[BackendSwitched]:
    """The switches of a line, oldest first."""
    events = [event for commit in reversed(thread.log()) for event in commit.events]
    return [event for event in events if isinstance(event, BackendSwitched)]


MOMENTS = {
    "before": lambda: Script(fail(), backend=A),
    "during": BreaksOff,
    "after": lambda: Script(use("pay", to="ann"), fail(), backend=A),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_next_backend_finishes_the_turn_and_nothing_is_paid_twice(
    store: Store, world: Counting, moment: str
) -> None:
    """Whenever the primary fails, Ann is paid once, and the history says who took over and why."""
    wants = [] if moment == "after" else [use("pay", to="ann")]
    spare = Script(*wants, say("Ann has her rent."), backend=B)
    agent = Agent("payer", backend=MOMENTS[moment](), tools=[world.tool()], route=Route([spare]))
    thread = store.thread("rent", agent=agent)

    result = thread.run("Pay Ann")

    assert (result.status, result.text) == ("succeeded", "Ann has her rent.")
    assert world.done == {"ann": 1}
    (switch,) = switches(thread)
    assert (switch.from_backend, switch.to_backend) == (A, B)
    assert (switch.why or "").startswith("failover, error: ")
    assert thread.backend == B


def test_after_an_effect_the_checkpoint_lists_it(store: Store, world: Counting) -> None:
    """The new backend is told what the turn has done; the report says that nothing is replayed."""
    spare = Script(say("Ann has her rent."), backend=B)
    primary = Script(use("pay", to="ann"), fail(), backend=A)
    agent = Agent("payer", backend=primary, tools=[world.tool()], route=Route([spare]))
    thread = store.thread("rent", agent=agent)

    thread.run("Pay Ann")

    made = next(each for each in thread.log() if any(isinstance(e, CheckpointCreated) for e in each.events))
    report = committed(thread, made.digest)
    assert any("nothing is replayed" in note for note in report.notes)
    (kept,) = thread.checkpoints()
    assert [(done.tool, done.is_written) for done in kept.checkpoint.calls] == [("pay", True)]
    assert "do not repeat" in "".join(message.text for message in spare.contexts[0].messages).lower()


def test_a_new_backend_that_repeats_the_call_is_stopped(store: Store, world: Counting) -> None:
    """The guard asks, whatever the new model believes."""
    spare = Script(use("pay", to="ann"), say("Paid."), backend=B)
    primary = Script(use("pay", to="ann"), fail(), backend=A)
    agent = Agent("payer", backend=primary, tools=[world.tool()], route=Route([spare]))

    result = store.thread("rent", agent=agent).run("Pay Ann")

    assert result.status == "waiting"
    assert world.done == {"ann": 1}


def test_asking_the_next_backend_from_the_start_pays_twice(store: Store, world: Counting) -> None:
    """Control: a failover that replays the turn, without the ledger's rule, repeats the payment."""
    tool = world.tool(guard="allow")
    primary = Agent("payer", backend=Script(use("pay", to="ann"), fail(), backend=A), tools=[tool])
    with pytest.raises(RunFailed):
        store.thread("rent", agent=primary).run("Pay Ann")

    spare = primary.on(Script(use("pay", to="ann"), say("Paid."), backend=B))
    store.thread("rent-again", agent=spare).run("Pay Ann")

    assert world.done == {"ann": 2}


def test_a_policy_can_have_the_run_fail_after_an_effect(store: Store, world: Counting) -> None:
    """Then nobody takes over, and what was done stands in the ledger; before an effect the route is taken."""
    policy, spare = Policy(after_effect="fail"), Script(say("Hello."), backend=B)
    primary = Script(use("pay", to="ann"), fail(), backend=A)
    agent = Agent("payer", backend=primary, tools=[world.tool()], route=Route([spare]), policy=policy)
    thread = store.thread("rent", agent=agent)

    with pytest.raises(RunFailed, check=failed_with("ConnectionError")):
        thread.run("Pay Ann")

    assert (switches(thread), world.done) == ([], {"ann": 1})
    bare = Agent("payer", backend=Script(fail(), backend=A), route=Route([spare]), policy=policy)
    assert store.thread("other", agent=bare).run("Hello").text == "Hello."


@pytest.mark.parametrize(
    ("error", "trigger"),
    [
        (RateLimited("slow down", retry_after=1.0), "rate_limit"),
        (BackendUnavailable("overloaded"), "error"),
        (ContextTooLong("too long"), "context"),
        (RequestRejected("no tools here"), "capability"),
        (ConnectionError("reset"), "error"),
    ],
)
def test_each_trigger_is_recorded_by_its_name(store: Store, error: Exception, trigger: Trigger) -> None:
    """And only those that the route names: without it the run fails with the backend's own error."""
    script = Script(fail(error), backend=A, window=1_000)
    spare = Script(say("Hello."), backend=B)
    named, other = (
        Route([spare], triggers=[trigger]),
        Route([spare], triggers=["budget"], budget_tokens=10**9),
    )

    thread = store.thread("named", agent=Agent("payer", backend=script, route=named))
    thread.run("Hello")

    assert (switches(thread)[0].why or "").startswith(f"failover, {trigger}: ")
    with pytest.raises(RunFailed, check=failed_with(type(error).__name__)):
        store.thread("other", agent=Agent("payer", backend=script, route=other)).run("Hello")


LONG = "Answer every question with the greatest care. " * 400  # some 4,000 tokens that no tier can shorten


def test_who_has_no_room_is_not_asked(store: Store) -> None:
    """Where not even the least fits the window, the first of the route takes over that has room."""
    small = Script(say("What?"), backend="script:small", window=2_000)
    also_small = Script(say("What?"), backend="script:also-small", window=3_000)
    large = Script(say("Hello."), backend="script:large", window=50_000)
    route = Route([also_small, large])
    thread = store.thread("long", agent=Agent("payer", backend=small, instructions=LONG, route=route))

    result = thread.run("Hello")

    assert result.text == "Hello."
    assert (small.contexts, also_small.contexts) == ([], [])
    (switch,) = switches(thread)
    assert (switch.why or "").startswith("failover, context: ")
    (report,) = thread.switches(run=result.run)
    assert any("passed over script:also-small: 3k context insufficient" in note for note in report.notes)


@pytest.mark.parametrize(
    ("window", "spare", "route"),
    [
        (None, 50_000, {}),  # what is not known is not held against it
        (2_000, None, {}),  # nor is it known that it fits there
        (2_000, 3_000, {}),  # it does not fit there either
        (2_000, 50_000, {"triggers": ["error"]}),  # nobody asked for it
        (50_000, 90_000, {}),  # there is room
    ],
)
def test_without_a_known_window_that_is_too_small_and_one_that_is_not_nothing_changes(
    store: Store, window: int | None, spare: int | None, route: dict[str, Any]
) -> None:
    """The control: whose turn it is takes it."""
    first = Script(say("Hello."), backend="script:first", window=window)
    other = Script(say("What?"), backend="script:other", window=spare)
    agent = Agent("payer", backend=first, instructions=LONG, route=Route([other], **route))
    thread = store.thread("long", agent=agent)

    result = thread.run("Hello")

    assert result.text == "Hello."
    assert switches(thread) == []


def test_who_was_passed_over_before_can_take_over_when_the_backend_refuses(store: Store) -> None:
    """Looking ahead for room tries nobody: the error is what the route acts on, as it ever was."""
    small = Script(fail(ContextTooLong("too long")), backend="script:small", window=2_000)
    unknown = Script(say("Hello."), backend="script:unknown")
    agent = Agent("payer", backend=small, instructions=LONG, route=Route([unknown]))
    thread = store.thread("long", agent=agent)

    assert thread.run("Hello").text == "Hello."
    assert [len(script.contexts) for script in (small, unknown)] == [1, 1]


def test_who_has_room_is_told_what_was_paid_before(store: Store, world: Counting) -> None:
    """The instructions have become too long for the first: the next one knows of the payment, which is made once."""
    first = Script(use("pay", to="ann"), say("Paid."), backend="script:first", window=6_000)
    large = Script(say("Ann has her rent."), backend="script:large", window=50_000)
    agent = Agent("payer", backend=first, tools=[world.tool()], route=Route([large]))
    store.thread("rent", agent=agent).run("Pay Ann")

    longer = Agent("payer", backend=first, instructions=LONG * 2, tools=[world.tool()], route=Route([large]))
    result = store.thread("rent", agent=longer).run("Is it paid?")

    assert result.text == "Ann has her rent."
    assert world.done == {"ann": 1}
    assert "`pay`" in "".join(message.text for message in large.contexts[0].messages)


def test_a_content_policy_is_no_reason_to_ask_somebody_else(store: Store) -> None:
    """Another backend is no way around it."""
    spare = Script(say("Hello."), backend=B)
    agent = Agent("payer", backend=Script(fail(ContentRefused("no")), backend=A), route=Route([spare]))

    with pytest.raises(RunFailed, check=failed_with("ContentRefused")):
        store.thread("rent", agent=agent).run("Hello")

    assert spare.contexts == []


def test_who_cannot_be_shown_a_picture_is_not_asked(store: Store) -> None:
    """A backend without vision hands over before it is asked, to the first that can see."""
    blind = Script(say("What picture?"), backend="script:blind", lacks=["images"])
    also_blind = Script(say("What picture?"), backend="script:also-blind", lacks=["images"])
    sees = Script(say("A dot."), backend=B)
    agent = Agent("viewer", backend=blind, route=Route([also_blind, sees]))
    thread = store.thread("photo", agent=agent)

    result = thread.run(perdure.Message("user", (PICTURE,)))

    assert result.text == "A dot."
    assert (blind.contexts, also_blind.contexts) == ([], [])
    assert (switches(thread)[0].why or "").startswith("failover, capability: it does not do images")


def test_who_lacks_a_requirement_is_passed_over(store: Store) -> None:
    """The report says who, and why."""
    lacking = Script(say("No."), backend="script:lacking", lacks=["structured_output"])
    fine = Script(say("Yes."), backend=B)
    route = Route([lacking, fine], requires=["structured_output"])
    thread = store.thread("form", agent=Agent("clerk", backend=Script(fail(), backend=A), route=route))

    result = thread.run("Fill it in")

    assert result.text == "Yes."
    made = next(each for each in thread.log() if any(isinstance(e, BackendSwitched) for e in each.events))
    assert any("script:lacking" in note for note in committed(thread, made.digest).notes)


def test_a_budget_moves_a_run_on(store: Store, world: Counting) -> None:
    """Once a run has taken so many tokens on one backend the next one goes on with it."""
    costly = step(use("pay", to="ann"), say("Paying.", usage=Usage(input_tokens=900, output_tokens=200)))
    spare = Script(say("Ann has her rent."), backend=B)
    route = Route([spare], triggers=["budget"], budget_tokens=1_000)
    agent = Agent("payer", backend=Script(costly, backend=A), tools=[world.tool()], route=route)
    thread = store.thread("rent", agent=agent)

    result = thread.run("Pay Ann")

    assert (result.text, world.done) == ("Ann has her rent.", {"ann": 1})
    assert "1,100 tokens" in (switches(thread)[0].why or "")


def test_a_route_is_gone_along_until_somebody_answers(store: Store) -> None:
    """Each one that fails is left for the next; when all have failed the last error stands."""
    third = Script(say("Hello."), backend=C)
    agent = Agent("a", backend=Script(fail(), backend=A), route=Route([Script(fail(), backend=B), third]))
    thread = store.thread("one", agent=agent)
    nobody = Agent("a", backend=Script(fail(), backend=A), route=Route([Script(fail(), backend=B)]))

    assert thread.run("Hello").text == "Hello."

    assert [event.to_backend for event in switches(thread)] == [B, C]
    with pytest.raises(RunFailed, check=failed_with("ConnectionError")):
        store.thread("two", agent=nobody).run("Hello")


def test_the_line_stays_with_whom_it_came_to(store: Store) -> None:
    """The next run begins there; a switch moves it back."""
    primary = Script(fail(), say("I am back."), backend=A)
    spare = Script(say("Hello."), say("Still me."), backend=B)
    thread = store.thread("one", agent=Agent("a", backend=primary, route=Route([spare])))
    thread.run("Hello")

    assert thread.run("Who is it?").text == "Still me."
    thread.switch(Script(say("I am back."), backend=A))

    assert thread.run("And now?").text == "I am back."


def test_what_a_policy_refuses_is_passed_over_too(store: Store) -> None:
    """Nobody takes over who would lose what the policy does not let go."""
    blind = Script(say("What picture?"), backend="script:blind", lacks=["images"])
    primary = Script(fail(), backend=A)
    agent = Agent("v", backend=primary, route=Route([blind]), policy=Policy(block=["images"]))

    with pytest.raises(RunFailed, check=failed_with("ConnectionError")):
        store.thread("photo", agent=agent).run(perdure.Message("user", (PICTURE,)))

    assert blind.contexts == []


def test_whoever_watches_sees_the_switch_in_its_place(store: Store) -> None:
    """Half of the first answer, then the switch as a durable event, then the whole of the second."""
    spare = Script(say("Ann has her rent."), backend=B)
    thread = store.thread("rent", agent=Agent("payer", backend=BreaksOff(), route=Route([spare])))

    seen = list(thread.stream("Pay Ann"))

    kinds = [type(each.event).__name__ for each in seen if isinstance(each, Happened)]
    assert kinds.index("BackendSwitched") < len(kinds) - 1
    assert kinds[-1] == "RunFinished"
    (last,) = [each for each in seen if isinstance(each, RunEnded)]
    assert last.result.text == "Ann has her rent."


def test_the_awaitable_face_fails_over_too(world: Counting) -> None:
    """On a loop that never waits for a disk, with the same history."""

    async def story() -> tuple[str, str | None, int]:
        spare = Script(say("Ann has her rent."), backend=B)
        primary = Script(use("pay", to="ann"), fail(), backend=A)
        agent = Agent("payer", backend=primary, tools=[world.tool()], route=Route([spare]))
        async with aio.open("memory:") as opened:
            thread = await opened.thread("rent", agent=agent)
            result = await thread.run("Pay Ann")
            return result.text, await thread.backend, len(await thread.switches(run=result.run))

    assert asyncio.run(story()) == ("Ann has her rent.", B, 1)
    assert world.done == {"ann": 1}


def test_under_on_success_a_failover_comes_with_the_rest(store: Store, world: Counting) -> None:
    """The run's own line is switched, and main when it joins; a run that fails leaves main where it was."""
    spare = Script(say("Ann has her rent."), backend=B)
    primary = Script(use("pay", to="ann"), fail(), backend=A)
    agent = Agent("payer", backend=primary, tools=[world.tool()], route=Route([spare]))
    thread = store.thread("rent", agent=agent)
    lost = Agent("payer", backend=Script(fail(), backend=A), route=Route([Script(fail(), backend=B)]))
    other = store.thread("other", agent=lost)

    thread.run("Pay Ann", head_policy="on_success")
    with pytest.raises(RunFailed):
        other.run("Hello", head_policy="on_success")

    assert (thread.backend, world.done) == (B, {"ann": 1})
    assert other.backend == A


def test_a_run_that_fails_says_who_was_passed_over(store: Store) -> None:
    """Nobody took over, and the error names each of them with the reason."""
    blind = Script(say("Hello."), backend="script:blind", lacks=["tools"])
    first = Script(fail(), backend="script:first")
    agent = Agent("planner", backend=first, route=Route([blind], requires=["tools"]))
    thread = store.thread("t", agent=agent)

    with pytest.raises(RunFailed) as caught:
        thread.run("Hello")

    (note,) = getattr(caught.value.__cause__, "__notes__", [])
    assert "script:blind" in note
    assert "tools" in note


class WorksOnIt:
    """A model that gives the id of an answer that it still works on."""

    backend = A

    def __init__(self) -> None:
        self.is_closed = False

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Give the id, and notice whether the stream is closed."""
        try:
            yield PendingReply("answer-1")
            yield TextChunk("never read")
        finally:
            self.is_closed = True


def test_an_error_of_the_store_leads_to_no_other_backend(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend works on its answer: another one would be asked the same beside it."""

    def is_full(*_: object, **__: object) -> None:
        raise Unavailable("the disk is full", code="disk_full")

    monkeypatch.setattr(RunFinisher, "note", is_full)
    working, other = WorksOnIt(), Script(say("Hello."), backend=B)
    thread = store.thread("trip", agent=Agent("planner", backend=working, route=Route(fallbacks=[other])))

    with pytest.raises(RunFailed) as failed:
        thread.run("Hi")

    assert isinstance(failed.value.__cause__, Unavailable)
    assert other.contexts == []
    assert working.is_closed
    assert thread.backend == A

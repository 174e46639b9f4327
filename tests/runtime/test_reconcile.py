"""Reconciling from outside a run: the rules of recovery, asked for by hand."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Outcome, Thread, aio
from perdure.errors import Busy, Conflict, Invalid, Unsupported
from perdure.testing import Script, crash, say, use
from tests.coded import raises

Answer = Callable[[Call], Outcome]


def done(call: Call) -> Outcome:
    """It happened."""
    return call.done({"receipt": call.key})


def not_done(call: Call) -> Outcome:
    """It did not."""
    return call.not_done()


def dont_know(call: Call) -> Outcome:
    """Nobody can say."""
    return call.dont_know("the bank is closed")


def payer(sent: list[int], answer: list[Answer], *script: object, fences: bool = False) -> Agent:
    """An agent that pays once; its tool raises after the effect, and its hook gives the answer of the moment."""

    @perdure.tool(effect="financial")
    def pay(amount: int) -> str:
        sent.append(amount)
        raise ConnectionError("reset by peer")

    @pay.reconcile(fences=fences)
    def find(call: Call) -> Outcome:
        return answer[0](call)

    return Agent("payer", backend=Script(use("pay", amount=3), say("Done."), *script), tools=[pay])  # pyright: ignore[reportArgumentType]


def unclear(answer: list[Answer], *, fences: bool = False) -> Thread:
    """A thread whose run is over, with one call that needs a person."""
    agent = payer([], answer, fences=fences)
    thread = perdure.open("memory:").thread("t", agent=agent)
    thread.run("pay")
    assert thread.calls()[0].state == "needs_human"
    return thread


def killed(path: Path, answer: list[Answer]) -> Thread:
    """A thread whose run was killed after its tool began."""
    child = os.fork()
    if child == 0:
        with perdure.open(path) as store:
            store.thread("t", agent=payer([], answer, crash("after_effect"))).run("pay")
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    return perdure.open(path).thread("t", agent=payer([], answer))


def test_done_settles_the_call_with_its_result() -> None:
    """What the hook gives back is the result, and the ledger shows the way there."""
    answer: list[Answer] = [dont_know]
    thread = unclear(answer)
    answer[0] = done

    settled = thread.reconcile(thread.calls()[0].id)

    traced = thread.trace(settled.id)
    assert settled.state == "succeeded"
    assert traced.result is not None
    assert traced.result.status == "success"
    assert [state for each in traced.passed for state in each.states][-2:] == ["needs_human", "succeeded"]


def test_not_done_is_not_believed_while_the_process_lives() -> None:
    """What raised here may still be under way: the call stays with a person."""
    answer: list[Answer] = [dont_know]
    thread = unclear(answer)
    answer[0] = not_done

    settled = thread.reconcile(thread.calls()[0].id)

    assert settled.state == "needs_human"


def test_not_done_is_believed_of_a_hook_that_fences() -> None:
    """Nobody goes on with a run that is over, so the call has failed."""
    answer: list[Answer] = [dont_know]
    thread = unclear(answer, fences=True)
    answer[0] = not_done

    settled = thread.reconcile(thread.calls()[0].id)

    assert settled.state == "failed"


def test_nobody_knowing_again_changes_nothing() -> None:
    """A call that needs a person still does, and no entry is written."""
    thread = unclear([dont_know])
    before = thread.calls()[0]

    settled = thread.reconcile(before.id)

    assert settled == before


def test_a_call_that_was_cut_off_is_settled_before_its_run_goes_on(tmp_path: Path) -> None:
    """The run that is resumed finds the result."""
    answer: list[Answer] = [done]
    thread = killed(tmp_path / "s.db", answer)

    settled = thread.reconcile(thread.calls()[0].id)
    result = thread.resume()

    assert (settled.state, settled.attempt) == ("succeeded", 1)
    assert result.status == "succeeded"
    assert thread.calls()[0] == settled


def test_a_call_proven_not_done_starts_again_when_its_run_goes_on(tmp_path: Path) -> None:
    """Its process is gone, so it is requested anew, with the same key; resuming attempts it."""
    answer: list[Answer] = [not_done]
    thread = killed(tmp_path / "s.db", answer)

    settled = thread.reconcile(thread.calls()[0].id)
    answer[0] = done
    thread.resume()

    assert settled.state == "requested"
    assert (thread.calls()[0].state, thread.calls()[0].attempt) == ("succeeded", 2)
    assert thread.calls()[0].key == settled.key


def test_a_run_whose_call_needed_a_person_already_goes_on(tmp_path: Path) -> None:
    """Asked again on resuming, a hook that still does not know fails nothing."""
    thread = killed(tmp_path / "s.db", [dont_know])

    thread.reconcile(thread.calls()[0].id)
    result = thread.resume()

    assert result.status == "succeeded"
    assert thread.calls()[0].state == "needs_human"


def test_what_is_known_is_not_asked_about() -> None:
    """A settled call is a conflict, and the hook is left alone."""
    answer: list[Answer] = [done]
    agent = payer([], answer)
    thread = perdure.open("memory:").thread("t", agent=agent)
    thread.run("pay")

    with raises(Conflict, "outcome_known", state="succeeded"):
        thread.reconcile(thread.calls()[0].id)


def test_a_call_under_way_is_left_to_its_holder() -> None:
    """While its process lives, only the run itself, or taking it over, settles a started call."""
    seen: list[BaseException] = []

    @perdure.tool(effect="financial")
    def pay(call: Call) -> str:
        with pytest.raises(Busy) as busy:
            thread.reconcile(call.id)
        seen.append(busy.value)
        return "paid"

    @pay.reconcile
    def find(call: Call) -> Outcome:
        return call.not_done()

    agent = Agent("payer", backend=Script(use("pay"), say("Done.")), tools=[pay])
    thread = perdure.open("memory:").thread("t", agent=agent)
    thread.run("pay")

    assert len(seen) == 1
    assert thread.calls()[0].state == "succeeded"


def test_without_a_hook_or_the_tool_nothing_is_asked() -> None:
    """It says which of the two is missing."""

    @perdure.tool(effect="financial")
    def pay() -> str:
        raise ConnectionError

    agent = Agent("payer", backend=Script(use("pay"), say("Hm.")), tools=[pay])
    store = perdure.open("memory:")
    thread = store.thread("t", agent=agent)
    thread.run("pay")
    call = thread.calls()[0].id

    with raises(Unsupported, "reconcile_hook_missing", tool="pay", call=call):
        thread.reconcile(call)
    with raises(Invalid, "tool_not_declared", tool="pay"):
        store.thread("t").reconcile(call)


def test_a_person_resolves_what_nobody_knows() -> None:
    """By their word, once: the same again is nothing new, and the opposite a conflict."""
    thread = unclear([dont_know])
    call = thread.calls()[0].id

    resolved = thread.resolve(call, "done", value={"receipt": 7}, by="ann", why="the bank said so")

    traced = thread.trace(call)
    assert (resolved.state, resolved.outcome, resolved.status) == ("resolved", "done", "success")
    assert traced.passed[-1].by == "ann"
    assert thread.resolve(call, "done", by="ann") == resolved
    with pytest.raises(Conflict):
        thread.resolve(call, "not_done", by="ann")


def test_a_started_call_is_not_resolved(tmp_path: Path) -> None:
    """Its run says first what became of it, or that nobody knows."""
    thread = killed(tmp_path / "s.db", [dont_know])

    with raises(Conflict, "call_started"):
        thread.resolve(thread.calls()[0].id, "done", by="ann")


def test_the_awaitable_face_does_the_same() -> None:
    """Reconcile, trace and resolve, awaited."""
    answer: list[Answer] = [dont_know]

    async def settle() -> tuple[str, str | None, str]:
        async with aio.open("memory:") as store:
            thread = await store.thread("t", agent=payer([], answer))
            run = await thread.run("pay")
            (call,) = await thread.calls()
            asked = await thread.reconcile(call.id)
            resolved = await thread.resolve(call.id, "not_done", by="ann", why="nobody was paid")
            traced = await thread.trace(call.id, history=False)
            assert not await thread.interrupted(run.run)
            return asked.state, resolved.outcome, traced.record.state

    assert asyncio.run(settle()) == ("needs_human", "not_done", "resolved")

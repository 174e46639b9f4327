"""One attempt: whatever a tool does, it comes out as data."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, NoReturn

import pytest

from perdure.errors import Invalid, NotDone
from perdure.runtime.tools import execution as module
from perdure.runtime.tools.call import Call, CallStateView, Outcome
from perdure.runtime.tools.execution import ToolOutcome, ask_reconcile, attempt
from perdure.runtime.tools.tool import Tool, tool
from tests.history.hand import Hand

HOW = ["crew", "inline", "loop"]


@pytest.fixture
def tool_threads() -> Iterator[Executor]:
    """Two workers."""
    with ThreadPoolExecutor(2) as tool_threads:
        yield tool_threads


def acting(how: str, act: Any, **options: Any) -> Tool:
    """A tool that does `act`, plain or async."""
    if how != "loop":
        return tool(name="act", **options)(act)

    async def later(**given: Any) -> Any:
        return act(**given)

    return tool(name="act", **options)(functools.wraps(act)(later))


def tried(
    one: Tool, tool_threads: Executor, *, how: str = "crew", raw: str = "", call: Call | None = None
) -> ToolOutcome:
    """What comes of one attempt, in a loop of its own."""
    handle = call or Call(id="c", tool=one.name)
    return asyncio.run(
        attempt(one, one.validated(raw), handle, tool_threads=tool_threads, inline=how == "inline")
    )


def raising(error: BaseException) -> Any:
    """A function that raises."""

    def act() -> NoReturn:
        raise error

    return act


@pytest.mark.parametrize("how", HOW)
def test_what_a_tool_returns_is_returned(tool_threads: Executor, how: str) -> None:
    """With its arguments by name, and the call where it asks for one."""

    def act(n: int, call: Call) -> str:
        return f"{n} {call.id}"

    done = tried(acting(how, act), tool_threads, how=how, raw='{"n": 3}')

    assert (done.kind, done.value, done.over, done.later, done.interrupt) == (
        "returned",
        "3 c",
        True,
        None,
        None,
    )


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("error", "kind", "why"),
    [
        (NotDone("the card was declined"), "not_done", "the card was declined"),
        (ValueError("bad"), "raised", "ValueError: bad"),
        (KeyError(), "raised", "KeyError"),
        (BaseException("odd"), "raised", "BaseException: odd"),
        (MemoryError(), "raised", "MemoryError"),
        (asyncio.CancelledError(), "cancelled", "it was cancelled"),
        (TimeoutError("slow"), "raised", "TimeoutError: slow"),
        (GeneratorExit(), "raised", "GeneratorExit"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_no_error_of_a_tool_escapes(
    tool_threads: Executor, how: str, error: BaseException, kind: str, why: str
) -> None:
    """It is the outcome, with the words for it."""
    done = tried(acting(how, raising(error)), tool_threads, how=how)

    assert (done.kind, done.why, done.over) == (kind, why, True)
    assert done.error is error
    assert done.interrupt is None


@pytest.mark.parametrize("how", ["crew", "inline"])
def test_an_iteration_that_ends_inside_a_tool_does_not_hang(tool_threads: Executor, how: str) -> None:
    """A future cannot hold a StopIteration; an attempt can."""
    done = tried(acting(how, raising(StopIteration())), tool_threads, how=how)

    assert (done.kind, done.why) == ("raised", "StopIteration")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["interrupt", "exit"])
def test_an_interrupt_is_reported_and_kept_for_raising_again(
    tool_threads: Executor, error: BaseException
) -> None:
    """Where it hits our own thread it is meant for the program; in a worker it is the tool's own doing."""
    for how in ("inline", "loop"):
        done = tried(acting(how, raising(error)), tool_threads, how=how)
        assert (done.kind, done.interrupt) == ("cancelled", error)

    done = tried(acting("crew", raising(error)), tool_threads)
    assert (done.kind, done.interrupt) == ("raised", None)


def test_an_error_that_cannot_be_shown_is_still_an_outcome(tool_threads: Executor) -> None:
    """Its kind is said, and that it does not say more."""

    class BrokenError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    done = tried(acting("crew", raising(BrokenError())), tool_threads)

    assert (done.kind, done.why) == ("raised", "BrokenError: (it cannot be shown: RuntimeError)")


@pytest.mark.parametrize("how", HOW)
def test_a_suspension_is_an_outcome(tool_threads: Executor, how: str) -> None:
    """With what the ticket will say."""

    def act(call: Call) -> None:
        call.suspend("Really?", action="confirm")

    done = tried(acting(how, act), tool_threads, how=how)

    assert done.kind == "suspended"
    assert done.suspension is not None
    assert (done.suspension.message, done.suspension.action) == ("Really?", "confirm")


@pytest.mark.parametrize("how", HOW)
def test_context_reaches_the_tool_and_does_not_come_back(tool_threads: Executor, how: str) -> None:
    """Traces and the like work inside tools; what a tool on a worker or a task sets stays there."""
    variable = contextvars.ContextVar("variable", default="none")
    variable.set("outer")

    def act() -> str:
        seen = variable.get()
        if how != "inline":
            variable.set("inner")
        return seen

    assert tried(acting(how, act), tool_threads, how=how).value == "outer"
    assert variable.get() == "outer"


def test_a_plain_tool_runs_in_a_worker_unless_it_is_to_run_here(tool_threads: Executor) -> None:
    """With a timeout it always does, for nobody could stop waiting otherwise."""

    def act() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert not tried(acting("crew", act), tool_threads).value
    assert tried(acting("inline", act), tool_threads, how="inline").value
    assert not tried(acting("inline", act, timeout=60), tool_threads, how="inline").value


@pytest.mark.parametrize("how", ["crew", "inline"])
def test_a_plain_function_that_gives_something_to_await_is_awaited(tool_threads: Executor, how: str) -> None:
    """On the loop, where it belongs."""

    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    def act() -> object:
        return work()

    assert tried(acting(how, act), tool_threads, how=how).value == "done"


def test_a_worker_that_takes_too_long_is_left_behind_and_heard_later(tool_threads: Executor) -> None:
    """Nobody can stop a thread: the attempt ends, its code does not, and its result is not lost."""
    go_on = threading.Event()

    def act() -> str:
        go_on.wait(10)
        return "at last"

    done = tried(acting("crew", act, timeout=0.02), tool_threads)

    assert (done.kind, done.over, done.why) == ("timed_out", False, "it did not end within 0.02 s")
    assert done.later is not None
    go_on.set()
    assert done.later.result(60).value == "at last"


def test_a_straggler_can_change_nothing_any_more(tool_threads: Executor) -> None:
    """Its call was closed when the attempt was over."""
    hand, go_on = Hand(), threading.Event()
    hand.write({"/a": 1})
    state_view = CallStateView("c", hand.space, hand.space.root_at(hand.head().commit))

    def act(call: Call) -> None:
        go_on.wait(10)
        call.put("/late", 1)

    done = tried(
        acting("crew", act, timeout=0.02), tool_threads, call=Call(id="c", tool="act", state_view=state_view)
    )
    go_on.set()

    assert done.later is not None
    late = done.later.result(60)
    assert isinstance(late.error, Invalid)
    assert state_view.finish(keep_scratch=False) == (None, None)


def test_an_async_tool_that_takes_too_long_is_stopped(tool_threads: Executor) -> None:
    """Then it is over, and nothing comes later."""
    stopped: list[str] = []

    async def act() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            stopped.append("yes")

    done = tried(tool(name="act", timeout=0.02)(act), tool_threads)

    assert (done.kind, done.over, done.later, stopped) == ("timed_out", True, None, ["yes"])


def test_an_async_tool_that_ends_although_it_was_stopped_is_heard_later(tool_threads: Executor) -> None:
    """It timed out all the same, and what it gave is there for the record."""

    async def act() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "sent anyway"
        return ""

    done = tried(tool(name="act", timeout=0.02)(act), tool_threads)

    assert (done.kind, done.over) == ("timed_out", True)
    assert done.later is not None
    assert done.later.result(0).value == "sent anyway"


def test_proof_that_nothing_happened_counts_after_a_timeout_too(tool_threads: Executor) -> None:
    """A tool that was stopped before it sent anything can say so."""

    async def act() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            raise NotDone("stopped before sending") from None

    done = tried(tool(name="act", timeout=0.02)(act), tool_threads)

    assert (done.kind, done.why) == ("not_done", "stopped before sending")


def test_an_async_tool_that_will_not_stop_is_left_running(
    tool_threads: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a moment of grace; what it comes to is still heard."""
    monkeypatch.setattr(module, "GRACE_S", 0.02)

    async def act() -> str:
        for _ in range(2):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return "stubborn"

    async def run() -> tuple[ToolOutcome, ToolOutcome]:
        one = tool(name="act", timeout=0.02)(act)
        done = await attempt(one, one.validated(""), Call(id="c", tool="act"), tool_threads=tool_threads)
        assert done.later is not None
        return done, await asyncio.wrap_future(done.later)

    done, late = asyncio.run(run())
    assert (done.kind, done.over) == ("timed_out", False)
    assert late.value == "stubborn"


def test_a_call_for_which_no_worker_was_free_did_not_happen() -> None:
    """That is proof: its first line was never run."""
    free, ran = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as tool_threads:
        tool_threads.submit(free.wait, 10)
        done = tried(acting("crew", ran.set, timeout=0.02), tool_threads)
        free.set()

    assert (done.kind, done.over) == ("not_done", True)
    assert "never begun: no worker was free for 0.02 s" in done.why
    assert not ran.is_set()


def test_a_crew_that_has_gone_home_begins_nothing() -> None:
    """And says so, instead of raising."""
    tool_threads = ThreadPoolExecutor(1)
    tool_threads.shutdown()

    done = tried(acting("crew", lambda: 1), tool_threads)

    assert done.kind == "not_done"
    assert "never begun" in done.why


@pytest.mark.parametrize("how", ["crew", "loop"])
def test_a_cancelled_attempt_is_reported_and_its_cancellation_kept(tool_threads: Executor, how: str) -> None:
    """The runtime records what it knows, and then raises it again."""
    begun, go_on = threading.Event(), threading.Event()

    def block() -> str:
        begun.set()
        go_on.wait(10)
        return "late"

    async def sleep() -> None:
        begun.set()
        await asyncio.sleep(10)

    async def run() -> ToolOutcome:
        one: Tool = tool(name="act")(block if how == "crew" else sleep)
        trying = asyncio.create_task(
            attempt(one, one.validated(""), Call(id="c", tool="act"), tool_threads=tool_threads)
        )
        while not begun.is_set():
            await asyncio.sleep(0.001)
        trying.cancel()
        return await trying

    done = asyncio.run(run())
    go_on.set()

    assert (done.kind, done.over) == ("cancelled", how == "loop")
    assert isinstance(done.interrupt, asyncio.CancelledError)
    if how == "crew":
        assert done.later is not None
        assert done.later.result(60).value == "late"


def test_waiting_for_a_worker_does_not_hold_up_the_loop(tool_threads: Executor) -> None:
    """Two calls run side by side: each waits for the other inside its tool."""
    both = threading.Barrier(2, timeout=60)

    def act() -> None:
        both.wait()

    async def run() -> list[ToolOutcome]:
        one = acting("crew", act)
        calls = [
            attempt(one, one.validated(""), Call(id=str(n), tool="act"), tool_threads=tool_threads)
            for n in range(2)
        ]
        return await asyncio.gather(*calls)

    assert [done.kind for done in asyncio.run(run())] == ["returned", "returned"]


def asked(one: Tool, tool_threads: Executor) -> Outcome:
    """What the hook says."""
    return asyncio.run(ask_reconcile(one, Call(id="c", tool=one.name), tool_threads=tool_threads))


@pytest.mark.parametrize("how", ["plain", "async"])
def test_a_hook_s_answer_is_the_outcome(tool_threads: Executor, how: str) -> None:
    """Plain or async."""
    one = acting("crew", lambda: 1)

    async def later(call: Call) -> Outcome:
        return call.done("x")

    one.reconcile(later if how == "async" else lambda call: call.done("x"))

    assert asked(one, tool_threads) == Outcome("done", "x")


@pytest.mark.parametrize(
    ("hook", "seconds", "why"),
    [
        (None, 60, "act has no reconcile hook"),
        (lambda _: None, 60, "returned a NoneType, not an Outcome"),
        (lambda _: True, 60, "returned a bool, not an Outcome"),
        (lambda _: 1 / 0, 60, "did not answer: ZeroDivisionError: division by zero"),
        (lambda call: call.suspend("?"), 60, "did not answer"),
        (lambda _: time.sleep(0.3), 0.05, "did not answer: it did not end within 0.05 s"),
    ],
)
def test_a_hook_that_does_not_answer_does_not_know(
    tool_threads: Executor, hook: Any, seconds: float, why: str
) -> None:
    """An error while looking is no proof of anything, and the reason is kept."""
    one = acting("crew", lambda: 1, timeout=seconds)
    if hook is not None:
        one.reconcile(hook)

    outcome = asked(one, tool_threads)

    assert outcome.kind == "dont_know"
    assert why in (outcome.why or "")


def test_not_done_raised_in_a_hook_is_no_answer(tool_threads: Executor) -> None:
    """It could as well mean that the look-up was not done."""
    one = acting("crew", lambda: 1)
    one.reconcile(raising_hook)

    assert asked(one, tool_threads).kind == "dont_know"


def raising_hook(call: Call) -> Outcome:
    """A hook that raises what tools raise."""
    raise NotDone("who knows")

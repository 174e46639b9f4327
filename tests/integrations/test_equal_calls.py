"""Equal calls that are asked for at once: each is made once, none waits for itself, and none overtakes."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import aio
from perdure.integrations.door import Workers
from perdure.integrations.guard import CallGuard, EqualCallQueue, GuardedCall, GuardOutcome

Made = list[str]
SECONDS_MAX = 20.0


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[perdure.Thread]:
    """A thread whose ledger the calls go through."""
    with perdure.open(tmp_path / "agents.db") as store:
        yield store.thread("t", agent="pays")


def asked(id: str) -> GuardedCall:
    """One of two equal calls."""
    return GuardedCall(id=id, tool="pay", arguments={"euro": 5})


def blocking(guard: CallGuard, thread: perdure.Thread, made: Made) -> list[GuardOutcome[str]]:
    """Make two equal calls on two threads."""
    outcomes: list[GuardOutcome[str]] = []

    def pay() -> str:
        time.sleep(0.1)  # longer than the other thread takes to ask
        made.append("paid")
        return "paid"

    def ask(id: str) -> None:
        outcomes.append(guard.call(thread, asked(id), pay, store=str))

    threads = [threading.Thread(target=ask, args=(id,), daemon=True) for id in ("c1", "c2")]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS_MAX)
    return outcomes


def awaited(guard: CallGuard, thread: perdure.Thread, made: Made) -> list[GuardOutcome[str]]:
    """Make two equal calls on one event loop."""

    async def pay() -> str:
        await asyncio.sleep(0.1)
        made.append("paid")
        return "paid"

    async def main() -> list[GuardOutcome[str]]:
        handle = aio.Thread(Workers().workers, thread)
        both = (guard.acall(handle, asked(id), pay, store=str) for id in ("c1", "c2"))
        return await asyncio.wait_for(asyncio.gather(*both), SECONDS_MAX)

    return asyncio.run(main())


@pytest.mark.parametrize("ask", [blocking, awaited])
def test_two_equal_calls_at_once_are_each_made_once(
    thread: perdure.Thread, ask: Callable[..., list[GuardOutcome[str]]]
) -> None:
    """The model asked for both; the second one waits for the first, whose outcome is unknown until then."""
    made: Made = []
    outcomes = ask(CallGuard(), thread, made)

    assert [(each.ran, each.value) for each in outcomes] == [(True, "paid")] * 2
    assert made == ["paid", "paid"]
    assert [call.state for call in thread.calls()] == ["succeeded", "succeeded"]


def test_the_second_of_two_equal_calls_is_not_made_if_the_first_is_unknown(thread: perdure.Thread) -> None:
    """The control: waiting does not weaken the guard."""
    made: Made = []

    async def pay() -> str:
        await asyncio.sleep(0.1)
        made.append("paid")
        raise ConnectionError("reset")

    async def main() -> list[Any]:
        handle, guard = aio.Thread(Workers().workers, thread), CallGuard()
        both = (guard.acall(handle, asked(id), pay, store=str) for id in ("c1", "c2"))
        return await asyncio.gather(*both, return_exceptions=True)

    outcomes = asyncio.run(main())
    assert made == ["paid"]
    assert sorted(type(each).__name__ for each in outcomes) == ["ConnectionError", "GuardOutcome"]
    assert sorted(call.state for call in thread.calls()) == ["denied", "unknown"]


def test_equal_calls_that_only_read_are_made_at_once(thread: perdure.Thread) -> None:
    """Each one waits until both are under way."""
    under_way = list[str]()

    async def read() -> str:
        under_way.append("read")
        while len(under_way) < 2:
            await asyncio.sleep(0.01)
        return "read"

    async def main() -> None:
        handle, guard = aio.Thread(Workers().workers, thread), CallGuard({"pay": "read_only"})
        both = (guard.acall(handle, asked(id), read, store=str) for id in ("c1", "c2"))
        await asyncio.wait_for(asyncio.gather(*both), SECONDS_MAX)

    asyncio.run(main())


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_call_that_another_guard_is_making_is_waited_for(thread: perdure.Thread, is_awaited: bool) -> None:
    """The same call by two guards, as in two processes: told that nothing was done, the model would ask for it again."""
    made, begun = list[str](), threading.Event()

    def pay() -> str:
        begun.set()
        time.sleep(0.2)
        made.append("paid")
        return "paid"

    async def never() -> str:
        made.append("paid again")
        return "paid again"

    first = threading.Thread(
        target=lambda: CallGuard().call(thread, asked("c1"), pay, store=str), daemon=True
    )
    first.start()
    assert begun.wait(SECONDS_MAX)
    if is_awaited:
        handle = aio.Thread(Workers().workers, thread)
        outcome = asyncio.run(CallGuard().acall(handle, asked("c1"), never, store=str))
    else:
        outcome = CallGuard().call(thread, asked("c1"), pay, store=str)
    first.join(SECONDS_MAX)

    assert (outcome.state, outcome.stored, made) == ("succeeded", "paid", ["paid"])


def test_a_call_inside_an_equal_call_is_refused_and_does_not_wait_for_it(thread: perdure.Thread) -> None:
    """A tool that asks for itself would wait forever."""
    guard = CallGuard()

    def inner() -> str:
        return "paid"

    def outer() -> str:
        return guard.call(thread, asked("inner"), inner, store=str).state

    assert guard.call(thread, asked("outer"), outer, store=str).value == "denied"


def test_a_call_that_is_cancelled_while_it_waits_lets_nothing_overtake() -> None:
    """The third call still waits for the first."""
    order: list[str] = []

    async def take(calls: EqualCallQueue, name: str, seconds: float) -> None:
        async with calls.aturn("key"):
            order.append(f"{name} begins")
            await asyncio.sleep(seconds)
            order.append(f"{name} ends")

    async def main() -> None:
        calls = EqualCallQueue()
        first, second, third = (
            asyncio.create_task(take(calls, each, 0.05)) for each in ("one", "two", "three")
        )
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.wait_for(asyncio.gather(first, third), SECONDS_MAX)

    asyncio.run(main())
    assert order == ["one begins", "one ends", "three begins", "three ends"]


def test_a_blocking_call_does_not_wait_for_an_awaited_one() -> None:
    """It may block the event loop of the awaited call, which could then never end."""
    calls, order = EqualCallQueue(), list[str]()

    def enter() -> None:
        with calls.turn("key"):
            order.append("entered")

    async def main() -> None:
        async with calls.aturn("key"):
            other = threading.Thread(target=enter, daemon=True)  # in a context of its own
            other.start()
            other.join(SECONDS_MAX)

    asyncio.run(main())
    assert order == ["entered"]


def test_a_blocking_call_waits_for_no_turn_behind_an_awaited_one() -> None:
    """The turn of a blocking call ends after the awaited one before it, whose event loop the next one may be blocking."""
    calls, ended = EqualCallQueue(), threading.Event()

    async def one_after_another() -> None:
        async with calls.aturn("k"):
            for _ in range(2):
                contextvars.Context().run(blocked)  # as by a caller that is not inside the awaited call
        ended.set()

    def blocked() -> None:
        with calls.turn("k"):
            pass

    threading.Thread(target=asyncio.run, args=(one_after_another(),), daemon=True).start()

    assert ended.wait(SECONDS_MAX)

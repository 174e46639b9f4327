"""A caller that is cancelled, by a deploy or a timeout: its run can be gone on with, and repeats nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import perdure
from perdure import Agent, Call, Outcome, aio, errors
from perdure.runtime.tools.tool import Tool
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.runtime.runs.world import World

Hook = Callable[[Call], Outcome]


class Place:
    """Where a tool stands, for as long as it takes."""

    def __init__(self) -> None:
        """Nobody is there yet."""
        self.inside, self.hangs = asyncio.Event(), True

    async def stand(self) -> None:
        """Wait until the task is cancelled, the first time."""
        self.inside.set()
        if self.hangs:
            self.hangs = False
            await asyncio.sleep(600)


def assistant(tool: Tool) -> Agent:
    """An agent that uses one tool and answers."""
    return Agent("assistant", backend=Script(use(tool.name), say("Done.")), tools=[tool])


def looker(place: Place) -> Agent:
    """An agent whose tool only reads."""

    @perdure.tool(effect="read_only")
    async def look() -> str:
        await place.stand()
        return "seen"

    return assistant(look)


def payer(place: Place, world: World, hook: Hook | None = None) -> Agent:
    """An agent that pays, and is cut off once the payment has been made."""

    @perdure.tool(effect="financial")
    async def pay(call: Call) -> str:
        world.do("pay", call.key, call.attempt)
        await place.stand()
        return "paid"

    if hook is not None:
        pay.reconcile(hook)
    return assistant(pay)


async def cut_off(thread: aio.Thread, place: Place) -> None:
    """Cancel the task that awaits a run of input 'm1' while the run is inside its tool."""
    task = asyncio.create_task(thread.run("go", id="m1"))
    await place.inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_id(thread: aio.Thread) -> perdure.Result:
    """Give the same input again."""
    return await thread.run("go", id="m1")


async def by_run(thread: aio.Thread) -> perdure.Result:
    """Resume the run by its id."""
    return await thread.resume((await thread.runs())[0].id, retry=True)


@pytest.mark.parametrize("again", [by_id, by_run])
def test_a_run_whose_caller_was_cancelled_is_gone_on_with(
    store_url: str, again: Callable[[aio.Thread], Awaitable[perdure.Result]]
) -> None:
    """It has failed and says why; by its input or its id, in another process too, it succeeds as the same run."""

    async def main() -> None:
        place = Place()
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=looker(place))
            await cut_off(thread, place)
            (record,) = await thread.runs()
            assert (record.state, record.why) == ("failed", "the caller was cancelled")
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=looker(place))
            result = await again(thread)
            assert (result.run, result.status, result.text) == (record.id, "succeeded", "Done.")
            assert [entry.role for entry in await thread.transcript()] == [
                "user",
                "assistant",
                "tool",
                "assistant",
            ]

    asyncio.run(main())


@pytest.mark.parametrize("caller_too", [True, False])
def test_a_run_that_was_itself_cancelled_stays_so(store_url: str, caller_too: bool) -> None:
    """A control: of a request to stop nothing is gone on with, also if its caller is cancelled at the same time."""

    async def main() -> None:
        place = Place()
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=looker(place))
            task = asyncio.create_task(thread.run("go", id="m1"))
            await place.inside.wait()
            await thread.cancel(why="enough")
            if caller_too:
                task.cancel()
            await asyncio.wait((task,))
            again = await thread.run("go", id="m1")
            assert (again.status, again.why) == ("cancelled", "enough")
            assert (await thread.resume(again.run, retry=True)).status == "cancelled"

    asyncio.run(main())


def test_an_external_write_under_way_is_not_repeated(store_url: str, world: World) -> None:
    """Its outcome is unknown: the same id is refused until the call is settled, and pays no second time."""

    async def main() -> None:
        place = Place()
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=payer(place, world))
            await cut_off(thread, place)
            with raises(errors.Conflict, "failed_run_call_unclear"):
                await thread.run("go", id="m1")
            (call,) = await thread.calls()
            await thread.resolve(call.id, "done", by="ann")
            assert (await thread.run("go", id="m1")).status == "succeeded"
            assert world.counted() == {"pay": 1}

    asyncio.run(main())


def test_the_hook_of_an_external_write_is_asked_first(store_url: str, world: World) -> None:
    """The tool knows that it paid, so the same id goes on at once; control: without a hook it is refused, above."""

    async def main() -> None:
        place = Place()
        async with aio.open(store_url) as store:
            agent = payer(place, world, hook=lambda call: call.done("paid before"))
            thread = await store.thread("trip", agent=agent)
            await cut_off(thread, place)
            for _ in range(2):  # as the run goes on, and as its result is read later
                result = await thread.run("go", id="m1")
                assert (result.status, result.unclear_calls) == ("succeeded", ())
            assert [(call.state, call.attempt) for call in await thread.calls()] == [("succeeded", 1)]
            assert world.counted() == {"pay": 1}

    asyncio.run(main())


def test_a_hook_that_does_not_know_leaves_the_call_to_a_person(store_url: str, world: World) -> None:
    """A control of the one above: it is the answer of the hook that lets the run go on."""

    async def main() -> None:
        place = Place()
        async with aio.open(store_url) as store:
            agent = payer(place, world, hook=lambda call: call.dont_know())
            thread = await store.thread("trip", agent=agent)
            await cut_off(thread, place)
            with raises(errors.Conflict, "failed_run_call_unclear"):
                await thread.run("go", id="m1")
            assert world.counted() == {"pay": 1}

    asyncio.run(main())


@pytest.mark.parametrize("retry", [True, False])
def test_a_second_caller_of_the_same_input_goes_on_with_it(store_url: str, retry: bool) -> None:
    """Only the first was cancelled; control: `retry=False` gets the failure."""

    async def main() -> None:
        place = Place()
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=looker(place))
            first = asyncio.create_task(thread.run("go", id="m1"))
            await place.inside.wait()
            second = asyncio.create_task(thread.run("go", id="m1", retry=retry))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait((first, second))
            assert first.cancelled()
            if retry:
                assert second.result().status == "succeeded"
            else:
                assert isinstance(second.exception(), errors.RunFailed)

    asyncio.run(main())


def test_a_timeout_is_such_a_cancellation(store_url: str) -> None:
    """`asyncio.timeout` around a run stops it; the next message on the thread does not wait for it."""

    async def main() -> None:
        place = Place()
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=looker(place))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(None) as limit:
                    run = asyncio.ensure_future(thread.run("go", id="m1"))
                    await place.inside.wait()
                    limit.reschedule(0)
                    await run
            other = await store.thread("trip", agent=Agent("assistant", backend=Script(say("Hi."))))
            assert (await other.run("next", id="m2")).text == "Hi."
            with raises(errors.Conflict, "failed_run_followed"):
                await thread.run("go", id="m1")

    asyncio.run(main())


def test_a_caller_that_finishes_the_run_of_another_leaves_it_interrupted(store_url: str) -> None:
    """Nobody else would give its input again; control: the run of a caller's own input fails, above."""

    async def main() -> None:
        place = Place()
        agent = looker(place)

        async def cut() -> None:
            async with aio.open(store_url) as store:
                thread = await store.thread("trip", agent=agent)
                task = asyncio.create_task(thread.run("go", id="m1"))
                await place.inside.wait()
                await store.close()
                task.cancel()
                with pytest.raises(errors.RunFailed):  # its end could not be recorded
                    await task

        await cut()
        place.inside.clear()
        place.hangs = True
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=agent)
            (record,) = await thread.runs()
            assert record.state == "running"
            other = asyncio.create_task(thread.run("and this", id="m2"))
            await place.inside.wait()
            other.cancel()
            await asyncio.wait((other,))
            assert other.cancelled()
            assert [run.state for run in await thread.runs()] == ["running"]
            (result,) = await store.resume(agent)
            assert (result.run, result.status) == (record.id, "succeeded")

    asyncio.run(main())

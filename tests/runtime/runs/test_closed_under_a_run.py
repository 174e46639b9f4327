"""A store that is closed under a run: the run is told what that leaves, and goes on when it is opened again."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from pathlib import Path

import pytest

import perdure
from perdure import Agent, aio, errors
from perdure.runtime.events import CallProgress
from perdure.testing import Script, say, use


def test_closing_under_an_awaited_run_is_told_clearly(tmp_path: Path) -> None:
    """Neither lost nor failed: it counts as interrupted, the error says so, and resuming finishes it."""
    path = tmp_path / "agents.db"
    sent: list[str] = []

    async def main() -> errors.RunFailed:
        inside, go_on = asyncio.Event(), asyncio.Event()

        @perdure.tool(effect="local_write", idempotent=True)
        async def send() -> str:
            sent.append("sent")
            inside.set()
            await go_on.wait()
            return "sent"

        agent = Agent("planner", backend=Script(use("send"), say("Done.")), tools=[send])
        store = await aio.open(path)
        thread = await store.thread("trip", agent=agent)
        running = asyncio.create_task(thread.run("go"))
        await inside.wait()
        await store.close()
        go_on.set()
        with pytest.raises(errors.RunFailed) as failed:
            await running
        return failed.value

    failed = asyncio.run(main())

    assert (failed.code, failed.advice) == (
        "failure_not_recorded",
        "resume() goes on with it, cancel() ends it.",
    )
    assert "this store was closed" in failed.message

    @perdure.tool(effect="local_write", idempotent=True)
    def send() -> str:
        sent.append("again")
        return "sent"

    agent = Agent("planner", backend=Script(say("Done."), say("Done.")), tools=[send])
    with perdure.open(path) as store:
        assert [run.state for run in store.thread("trip").runs()] == ["running"]
        assert [result.status for result in store.resume(agent)] == ["succeeded"]
    assert sent == ["sent", "again"]


@pytest.mark.parametrize("left_by", ["its end", "an exception"])
def test_a_block_waits_for_the_runs_whose_readers_have_left(tmp_path: Path, left_by: str) -> None:
    """A payment under way is not made unknown by a shutdown; after an exception nothing is waited for."""
    path = tmp_path / "agents.db"

    async def main() -> None:
        goes_on = asyncio.Event()

        @perdure.tool(effect="financial")
        async def pay() -> str:
            await goes_on.wait()
            return "paid"

        agent = Agent("planner", backend=Script(use("pay"), say("Done.")), tools=[pay])
        async with aio.open(path) as store:
            thread = await store.thread("trip", agent=agent)
            async for event in thread.stream("go"):
                if isinstance(event, CallProgress) and event.state == "started":
                    break
            if left_by == "an exception":
                raise LookupError
            asyncio.get_running_loop().call_soon(goes_on.set)

    with pytest.raises(LookupError) if left_by == "an exception" else nullcontext():
        asyncio.run(main())

    with perdure.open(path) as store:
        thread = store.thread("trip")
        assert [run.state for run in thread.runs()] == [
            "running" if left_by == "an exception" else "succeeded"
        ]

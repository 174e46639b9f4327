"""Runs say who began them and how they ended, in the history itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure import Agent, aio
from perdure.errors import RunFailed
from perdure.testing import Script, say, use


def test_the_log_tells_origin_and_termination(tmp_path: Path) -> None:
    """The first commit of a run names its origin, the last one how it ended."""
    agent = Agent("a", backend=Script(say("Hello.")), version="7")
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        thread.run("hi")

        metas = [entry.run_meta for entry in thread.log() if entry.run_meta]
        first, last = metas[-1], metas[0]

    assert (first.origin, first.backend, first.agent_version) == ("input", "script:test", "7")
    assert (last.termination, last.agent_version) == ("succeeded", "7")


def test_a_failed_run_says_so_in_its_last_commit(tmp_path: Path) -> None:
    """Whatever ends a run, its closing commit names it."""
    agent = Agent("a", backend=Script())
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        with pytest.raises(RunFailed):
            thread.run("hi")

        meta = thread.log()[0].run_meta

    assert meta is not None
    assert meta.termination == "failed"


def test_a_run_that_a_tool_starts_names_its_parent(tmp_path: Path) -> None:
    """Plainly called, streamed, or on a worker thread: the parent is the run whose tool it is."""
    child = Agent("child", backend=Script(say("One."), say("Two.")))

    @perdure.tool(effect="none")
    def delegate() -> str:
        """Ask another agent."""
        inner = store.thread("inner", agent=child)
        inner.run("first")
        return str(list(inner.stream("second")))

    parent = Agent("parent", backend=Script(use("delegate"), say("Done.")), tools=[delegate])
    with perdure.open(tmp_path / "agents.db") as store:
        result = store.thread("outer", agent=parent).run("go")

        log = store.thread("inner").log()
        assert {entry.parent_run for entry in log} == {result.run}
        assert {entry.run_meta.origin for entry in log if entry.run_meta} == {"tool", None}
        assert {record.parent_run for record in store.thread("inner").runs()} == {result.run}


def test_a_run_beside_a_tool_has_no_parent(tmp_path: Path) -> None:
    """Control: after the tool is over, and outside of it, nothing is a child."""
    agent = Agent("a", backend=Script(use("noop"), say("Done."), say("Again.")), tools=[noop])
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        thread.run("go")
        thread.run("again")

        assert {entry.parent_run for entry in thread.log()} == {None}


def test_an_async_tool_is_a_parent_too(tmp_path: Path) -> None:
    """The awaitable face starts runs on workers, and still knows which tool asked."""
    child = Agent("child", backend=Script(say("One.")))

    async def main() -> tuple[str, set[str | None]]:
        async with aio.open(tmp_path / "agents.db") as store:

            @perdure.tool(effect="none")
            async def delegate() -> str:
                """Ask another agent."""
                inner = await store.thread("inner", agent=child)
                return (await inner.run("first")).text

            parent = Agent("parent", backend=Script(use("delegate"), say("Done.")), tools=[delegate])
            outer = await store.thread("outer", agent=parent)
            result = await outer.run("go")
            inner = await store.thread("inner")
            return result.run, {entry.parent_run for entry in await inner.log()}

    run, parents = asyncio.run(main())

    assert parents == {run}


@perdure.tool(effect="none")
def noop() -> str:
    """Do nothing."""
    return "done"

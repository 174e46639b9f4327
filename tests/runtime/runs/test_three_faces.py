"""Run, async run and stream on one script make the same commits: reasons, order, roots, and digests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, aio, errors
from perdure.model.run import HeadPolicy
from perdure.runtime.agent.plugin import Moment, Plugin
from perdure.testing import Script, fail, say, step, use
from perdure.testing.script import Item
from tests.runtime.runs.injecting import Nameless, engine, opened
from tests.selection import engines

POLICIES: list[HeadPolicy] = ["each_step", "on_success"]
FACES = ["run", "stream", "aio.run", "aio.stream"]

Commits = list[tuple[str, str, str]]  # digest, reason and root, oldest first


@perdure.tool(effect="external_write")
def book(flight: str, call: Call) -> str:
    """Book a flight."""
    call.put(f"/booked/{flight}.json", True)
    call.agent.put("/count.json", call.agent.get("/count.json", default=0) + 1)
    return f"booked {flight}"


@perdure.tool(effect="read_only")
async def look(q: str) -> dict[str, str]:
    """Look something up."""
    await asyncio.sleep(0)
    return {"q": q}


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay, if somebody agrees."""
    return f"paid {amount}"


@perdure.tool(effect="external_write")
def broken() -> str:
    """Raise."""
    raise ValueError("broken")


SCRIPTS: dict[str, Callable[[], tuple[Item, ...]]] = {
    "words": lambda: (say("Hello."),),
    "a tool": lambda: (use("book", flight="A"), say("Done.")),
    "tools one after another": lambda: (use("book", flight="A"), use("look", q="x"), say("Done.")),
    "a broken tool": lambda: (use("broken"), say("Oh.")),
    "no such tool": lambda: (use("nope"), say("Oh.")),
    "waiting": lambda: (use("pay", amount=3), say("Done.")),
    "failing": lambda: (use("book", flight="A"), fail(), say("Done.")),
}


def agent(name: str, **options: Any) -> Agent:
    """An agent that takes the steps of one script."""
    script = Script(*SCRIPTS[name]())
    return Agent("planner", backend=script, tools=[book, look, pay, broken], **options)


def plain_store(url: str) -> Store:
    """A store with a clock, ids and a holder's name that are the same each time."""
    ticks, numbers = count(1_700_000_000_000_000, 1_000), count(1)
    wire = Nameless(engine(url))
    return opened(wire, url, clock=lambda: next(ticks), ids=lambda: f"id-{next(numbers):06}")


def awaitable_store(url: str) -> aio.Store:
    """The same, awaitable."""
    return aio.Store(ThreadPoolExecutor(4), plain_store(url))


def commits(thread: Thread) -> Commits:
    """What the thread's line holds, and what its agent's map does."""
    return [(entry.digest, entry.reason, entry.root) for entry in reversed(thread.log())]


def sync_face(url: str, planner: Agent, policy: HeadPolicy, *, streamed: bool) -> Commits:
    """Run by the plain face."""
    with plain_store(url) as store:
        thread = store.thread("trip", agent=planner)
        try:
            if streamed:
                list(thread.stream("go", head_policy=policy))
            else:
                thread.run("go", head_policy=policy)
        except errors.RunFailed:
            pass
        return commits(thread)


def async_face(url: str, planner: Agent, policy: HeadPolicy, *, streamed: bool) -> Commits:
    """Run by the awaitable face."""

    async def main() -> Commits:
        async with awaitable_store(url) as store:
            thread = await store.thread("trip", agent=planner)
            try:
                if streamed:
                    _ = [event async for event in thread.stream("go", head_policy=policy)]
                else:
                    await thread.run("go", head_policy=policy)
            except errors.RunFailed:
                pass
            return [(entry.digest, entry.reason, entry.root) for entry in reversed(await thread.log())]

    return asyncio.run(main())


def made(tmp_path: Path, engine: str, face: str, planner: Agent, policy: HeadPolicy = "each_step") -> Commits:
    """The commits that one face makes in a store of its own."""
    url = "memory:" if engine == "memory" else str(tmp_path / f"{face}.db")
    by = async_face if face.startswith("aio") else sync_face
    return by(url, planner, policy, streamed=face.endswith("stream"))


@pytest.mark.parametrize("engine", engines("sqlite", "memory"))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_face_makes_the_same_commits(
    tmp_path: Path, engine: str, name: str, policy: HeadPolicy
) -> None:
    """With the same clock and ids even the digests are equal."""
    first, *others = [made(tmp_path, engine, face, agent(name), policy) for face in FACES]

    assert first
    for other in others:
        assert [each[1:] for each in other] == [each[1:] for each in first]
        assert other == first


@pytest.mark.parametrize("engine", engines("sqlite", "memory"))
def test_every_face_makes_the_same_commits_with_plugins(tmp_path: Path, engine: str) -> None:
    """Hooks at every phase, plain and async, write in the same order."""

    def hook(moment: Moment) -> None:
        moment.put(f"/phases/{len(moment.paths('/phases'))}.json", moment.phase)

    async def later(moment: Moment) -> None:
        await asyncio.sleep(0)
        hook(moment)

    plugins = [
        Plugin(
            "plain", run_start=hook, before_inference=hook, after_inference=hook, step_end=hook, run_end=hook
        ),
        Plugin("async", run_start=later, before_inference=later, step_end=later, run_end=later),
    ]

    first, *others = [made(tmp_path, engine, face, agent("a tool", plugins=plugins)) for face in FACES]

    assert all(other == first for other in others)


@pytest.mark.parametrize("engine", engines("sqlite", "memory"))
def test_calls_side_by_side_leave_the_same_state(tmp_path: Path, engine: str) -> None:
    """Which of them ends first is chance; what they leave, in which order, is not."""
    parts = [use("book", flight=flight) for flight in "ABC"]
    SCRIPTS["side by side"] = lambda: (step(*parts), say("Done."))

    first, *others = [made(tmp_path, engine, face, agent("side by side")) for face in FACES]

    for other in others:
        assert [each[1:] for each in other] == [each[1:] for each in first]


def test_another_script_makes_other_commits(tmp_path: Path) -> None:
    """A control: the comparison can fail."""
    one = made(tmp_path, "memory", "run", agent("a tool"))
    two = made(tmp_path, "memory", "run", agent("tools one after another"))

    assert [each[1:] for each in one] != [each[1:] for each in two]


@pytest.mark.parametrize("engine", engines("sqlite", "memory"))
def test_resuming_and_deciding_make_the_same_commits(tmp_path: Path, engine: str) -> None:
    """Approved and resumed: by either face, in stores of their own."""

    def plain(url: str) -> Commits:
        with plain_store(url) as store:
            thread = store.thread("trip", agent=agent("waiting"))
            waiting = thread.run("go")
            thread.decide(waiting.approvals[0].call, "approve", by="ann")
            assert thread.resume().text == "Done."
            return commits(thread)

    async def awaited(url: str) -> Commits:
        async with awaitable_store(url) as store:
            thread = await store.thread("trip", agent=agent("waiting"))
            waiting = await thread.run("go")
            await thread.decide(waiting.approvals[0].call, "approve", by="ann")
            assert (await thread.resume()).text == "Done."
            return [(entry.digest, entry.reason, entry.root) for entry in reversed(await thread.log())]

    urls = [f"{tmp_path}/{name}.db" if engine == "sqlite" else "memory:" for name in ("plain", "awaited")]
    assert plain(urls[0]) == asyncio.run(awaited(urls[1]))


@pytest.mark.parametrize("engine", engines("sqlite", "memory"))
def test_calls_by_hand_and_cancelling_make_the_same_commits(tmp_path: Path, engine: str) -> None:
    """One call without an agent, then a waiting run that is cancelled: by either face."""

    def plain(url: str) -> Commits:
        with plain_store(url) as store:
            thread = store.thread("trip", agent=agent("waiting"))
            assert thread.call(book, {"flight": "A"}, id="c1").ok
            thread.run("go")
            assert thread.cancel(why="enough").state == "cancelled"
            return commits(thread)

    async def awaited(url: str) -> Commits:
        async with awaitable_store(url) as store:
            thread = await store.thread("trip", agent=agent("waiting"))
            assert (await thread.call(book, {"flight": "A"}, id="c1")).ok
            await thread.run("go")
            assert (await thread.cancel(why="enough")).state == "cancelled"
            return [(entry.digest, entry.reason, entry.root) for entry in reversed(await thread.log())]

    urls = [f"{tmp_path}/{name}.db" if engine == "sqlite" else "memory:" for name in ("plain", "awaited")]
    assert plain(urls[0]) == asyncio.run(awaited(urls[1]))

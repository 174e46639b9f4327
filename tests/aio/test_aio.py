"""The awaitable face: the same names, and a commit that cancelling does not stop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, aio, errors
from perdure.engines.contract import Write
from perdure.errors import Invalid, NotFound, StaleHead, Unavailable
from perdure.history.changes import patch_builder
from perdure.history.tree import EMPTY
from perdure.model.context import Context
from perdure.providers.contract import ModelEvent, TextChunk
from perdure.runtime.events import Happening, RunEnded, TextDelta
from perdure.runtime.session.environment import WorkerPool
from perdure.store import agents, artifacts, change, memory, store, thread, view
from perdure.testing import Script, say, use
from tests.coded import raises

TWINS = [
    (store.Store, aio.Store),
    (thread.Thread, aio.Thread),
    (view.View, aio.View),
    (agents.AgentMap, aio.AgentMap),
    (change.Change, aio.Change),
    (change.AgentChange, aio.AgentChange),
    (artifacts.Artifacts, aio.Artifacts),
    (memory.Memory, aio.Memory),
    (agents.Definitions, aio.Definitions),
]

MACHINERY = {"crew", "target", "off_loop"}


def names(kind: type) -> set[str]:
    """The public names of a class and of what it is made of."""
    return {name for name in dir(kind) if not name.startswith("_")}


def signature(method: Callable[..., object]) -> list[tuple[str, object, object]]:
    """Names, kinds and defaults of the parameters."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()]


def run(story: Callable[[aio.Store], Coroutine[Any, Any, None]], url: str = "memory:") -> None:
    """Open a store on a loop of its own and run a story on it."""

    async def main() -> None:
        async with aio.open(url) as opened:
            await story(opened)

    asyncio.run(main())


@pytest.mark.parametrize(("blocking", "awaitable"), TWINS, ids=[twin.__name__ for _, twin in TWINS])
def test_both_faces_have_the_same_names(blocking: type, awaitable: type) -> None:
    """No method exists in one face only."""
    inside = {"head", "receipt", "agent"} if blocking is change.Change else set[str]()

    assert names(blocking) | inside == (names(awaitable) - MACHINERY) | inside


@pytest.mark.parametrize(("blocking", "awaitable"), TWINS, ids=[twin.__name__ for _, twin in TWINS])
def test_both_faces_are_called_alike(blocking: type, awaitable: type) -> None:
    """Every method takes the same parameters, with the same defaults."""
    for name in sorted(names(blocking) & names(awaitable)):
        plain = inspect.getattr_static(blocking, name)
        if not callable(plain):  # a property or an attribute
            continue
        twin = inspect.getattr_static(awaitable, name)
        # A descriptor stands for the method itself; the few that are written out are compared.
        stood_for = getattr(twin, "_method", twin)
        assert signature(stood_for) == signature(plain), name


def test_a_different_signature_would_be_seen() -> None:
    """Control: another default, name or kind of parameter is a difference."""

    def one(self: object, path: str, *, default: int = 1) -> None: ...
    def two(self: object, path: str, *, default: int = 2) -> None: ...
    def three(self: object, path: str, default: int = 1) -> None: ...

    assert signature(one) != signature(two)
    assert signature(one) != signature(three)


def test_handles_have_the_same_attributes() -> None:
    """What a handle says without reading is said by its twin."""

    async def story(opened: aio.Store) -> None:
        held = await opened.thread("trip-42", agent="planner", owner="ann")
        for twin, plain in ((held, held._held), (opened, opened._held)):
            public = {name: value for name, value in vars(plain).items() if not name.startswith("_")}
            for face in ("artifacts", "definitions"):
                public.pop(face, None)
            assert public == {name: getattr(twin, name) for name in public}
        assert isinstance(held.artifacts, aio.Artifacts)
        assert isinstance(opened.definitions, aio.Definitions)

    run(story)


def test_a_story_from_end_to_end(tmp_path: Path) -> None:
    """Reading, writing, visiting: each awaited."""

    async def story(opened: aio.Store) -> None:
        held = await opened.thread("trip-42", agent="planner")
        async with held.change("first") as block:
            await block.say("user", "hello", id="m-1")
            await block.put("/todos.json", ["milk"])
            await block.append("/todos.json", "eggs")
            await block.agent.put("/prefs.json", 1)
            assert await block.get("/todos.json", type=list[str]) == ["milk", "eggs"]
        assert block.head == await held.head
        assert block.receipt is not None
        fork = await held.fork("what-if")
        await fork.put("/todos.json", ["bread"])
        assert (await held.promote(fork)).version == 2
        assert [entry.id for entry in await held.transcript()] == ["m-1"]
        assert await (await held.at("m-1")).get("/todos.json") == ["milk", "eggs"]
        assert [each.id async for each in opened.threads()] == ["trip-42"]
        assert [entry.path async for entry in held.entries()] == ["/todos.json"]
        assert await (await opened.agent("planner")).get("/prefs.json") == 1
        assert (await held.bisect(lambda seen: seen.get("/todos.json") == ["bread"])).reason == "put"
        digest = await held.artifacts.put(b"x" * 500_000)
        assert b"".join([piece async for piece in held.artifacts.get(digest)]) == b"x" * 500_000
        assert (await opened.verify()).ok

    run(story, str(tmp_path / "agents.db"))


def test_errors_are_the_same() -> None:
    """What is raised by one face is raised by the other."""

    async def story(opened: aio.Store) -> None:
        held = await opened.thread("trip-42", agent="planner")
        with raises(NotFound, "path_not_found", path="/absent.json"):
            await held.get("/absent.json")
        with pytest.raises(StaleHead):
            async with held.change("late") as block:
                await block.put("/n.json", 1)
                await held.put("/n.json", 2)
        with pytest.raises(RuntimeError, match="boom"):
            async with held.change("boom") as block:
                await block.put("/n.json", 3)
                raise RuntimeError("boom")
        assert await held.get("/n.json") == 2
        with raises(Invalid, "change_not_open"):
            await held.change("never entered").put("/n.json", 4)

    run(story)


def test_opening_can_be_awaited() -> None:
    """Without a block the caller closes."""

    async def main() -> None:
        opened = await aio.open("memory:")
        await opened.close()
        await opened.close()
        with raises(Unavailable, "store_closed"):
            await opened.thread("trip-42", agent="planner")
        with raises(NotFound, "store_not_found", path="/nowhere/agents.db"):
            await aio.open("/nowhere/agents.db", create=False)

    asyncio.run(main())


def test_a_commit_once_handed_over_is_not_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task that waits is cancelled; the commit is finished all the same."""

    async def story(opened: aio.Store) -> None:
        held = await opened.thread("trip-42", agent="planner")
        engine = held._held._resources.engine
        applied, begun, go_on = type(engine).apply, asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def slow(self: object, write: object) -> object:
            loop.call_soon_threadsafe(begun.set)
            assert go_on.wait(10)
            return applied(self, write)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(type(engine), "apply", slow)
        writing = asyncio.create_task(held.put("/n.json", 1))
        await begun.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        go_on.set()
        while (await held.head).version == 0:
            await asyncio.sleep(0.001)
        assert await held.get("/n.json") == 1

    run(story)


def test_a_change_is_entered_once() -> None:
    """As with the blocking twin: what a block did cannot be added to by entering it again."""

    async def story(opened: aio.Store) -> None:
        held = await opened.thread("trip-42", agent="planner")
        block = held.change("once")
        async with block:
            await block.put("/n.json", 1)
            with raises(Invalid, "change_used"):
                await block.__aenter__()
        with raises(Invalid, "change_used"):
            async with block:
                await block.put("/n.json", 2)
        with raises(Invalid, "change_not_open"):
            await block.put("/n.json", 3)
        assert await held.get("/n.json") == 1
        assert (await held.head).version == 1

    run(story)


def test_what_is_asked_of_one_change_at_once_is_done_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers never edit one block at the same time, so `gather` loses nothing and repeats exactly."""
    edited, inside = patch_builder.Ops.edit, threading.Lock()

    def slow(self: object, *args: object) -> None:
        assert inside.acquire(blocking=False), "two at once"
        time.sleep(0.001)
        try:
            edited(self, *args)  # pyright: ignore[reportArgumentType]
        finally:
            inside.release()

    async def story(opened: aio.Store) -> None:
        held = await opened.thread("trip-42", agent="planner")
        monkeypatch.setattr(patch_builder.Ops, "edit", slow)
        for _ in range(2):
            async with held.change("many", op_id="op-1") as block:
                await asyncio.gather(block.put("/list.json", []), block.agent.put("/ours.json", []))
                edits = (block.append("/list.json", number) for number in range(50))
                ours = (block.agent.append("/ours.json", number) for number in range(50))
                await asyncio.gather(*edits, *ours)
        assert await held.get("/list.json") == list(range(50))
        assert await (await held.agent_map()).get("/ours.json") == list(range(50))
        assert (await held.head).version == 1

    run(story)


async def beats_during(work: Awaitable[object]) -> int:
    """How often the loop comes round while `work` is done."""
    beats, done = 0, asyncio.ensure_future(work)
    while not done.done():
        await asyncio.sleep(0.001)
        beats += 1
    await done
    return beats


def test_the_loop_goes_on_while_a_worker_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk does not stop the heart of the loop; control: the same call made on the loop itself does."""

    async def story(opened: aio.Store) -> None:
        held = await opened.thread("trip-42", agent="planner")
        engine = type(held._held._resources.engine)
        applied = engine.apply

        def slow(self: object, write: object) -> object:
            time.sleep(0.2)
            return applied(self, write)  # pyright: ignore[reportArgumentType]

        async def blocking() -> None:
            held._held._resources.engine.apply(write)

        monkeypatch.setattr(engine, "apply", slow)
        write = Write(space="thread:x", op_id="op-1", intent=EMPTY)

        assert await beats_during(held.put("/n.json", 1)) > 10
        assert await beats_during(blocking()) <= 2

    run(story)


def test_many_writes_share_the_workers() -> None:
    """More threads of work than workers: all of it is done."""

    async def story(opened: aio.Store) -> None:
        threads = [await opened.thread(f"t-{number}", agent="planner") for number in range(20)]
        await asyncio.gather(*(each.put("/n.json", number) for number, each in enumerate(threads)))
        assert [await each.get("/n.json") for each in threads] == list(range(20))

    run(story)


@pytest.mark.filterwarnings("error")
def test_a_forgotten_await_in_a_block_is_told_and_writes_nothing() -> None:
    """Half of a block is not committed because the other half was never awaited."""

    async def forgetful() -> list[str]:
        async with aio.open("memory:") as store:
            thread = await store.thread("t", agent="a")
            with raises(Invalid, "not_awaited", count=2, calls=("put", "increment")):
                async with thread.change("half") as change:
                    await change.put("/a.json", 1)
                    change.put("/b.json", 2)  # pyright: ignore[reportUnusedCoroutine]
                    change.agent.increment("/n.json")  # pyright: ignore[reportUnusedCoroutine]
            async with thread.change("whole") as change:
                await change.put("/c.json", 3)
            return await thread.paths()

    assert asyncio.run(forgetful()) == ["/c.json"]


@pytest.mark.parametrize("name", ["run", "stream", "follow", "resume", "cancel", "reconcile", "call"])
def test_what_a_run_raises_is_said_where_it_is_awaited(name: str) -> None:
    """Each docstring of the awaitable face names the errors that its caller may meet."""
    told = inspect.getdoc(getattr(aio.Thread, name)) or ""

    named = [each for each in errors.__all__ if f"`{each}`" in told]

    assert "Raises" in told
    assert named or "`run` raises" in told


class LockstepModel(Script):
    """A model that says its next word when the one before has been read."""

    read = asyncio.Semaphore(0)

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Say the words of the next answer, one by one."""
        async for event in super().step(context):
            if isinstance(event, TextChunk):
                await self.read.acquire()
            yield event


@pytest.mark.parametrize("how", ["stream", "follow"])
def test_a_word_is_read_without_a_worker(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Ten times as many words take no more work off the loop: only a commit sends a reader to the store."""
    submit, handed_over = WorkerPool.submit, Counter[int]()
    words = 20

    def counted(self: WorkerPool, work: Any, /, *args: Any, **options: Any) -> Any:
        handed_over[words] += 1
        return submit(self, work, *args, **options)

    async def read(events: AsyncIterator[Happening]) -> int:
        found = 0
        LockstepModel.read.release()
        async for event in events:
            if isinstance(event, TextDelta):
                found += 1
                LockstepModel.read.release()
            if isinstance(event, RunEnded) or getattr(event, "type", "") == "run.finished":
                break
        return found

    async def story(opened: aio.Store) -> None:
        nonlocal words
        monkeypatch.setattr(WorkerPool, "submit", counted)
        for words in (20, 200):
            LockstepModel.read = asyncio.Semaphore(0)
            model = LockstepModel(say(" ".join(["word"] * words)), pieces=words)
            thread = await opened.thread(f"chat-{words}", agent=Agent("writer", backend=model))
            if how == "stream":
                assert await read(thread.stream("Speak")) >= words
                continue
            following = thread.follow(wait=True)
            await following.begin()
            reading = asyncio.create_task(read(following))
            await thread.run("Speak")
            assert await reading >= words

    run(story)
    assert handed_over[200] < handed_over[20] + 60, handed_over


def test_cancelling_the_resuming_of_a_store_lets_its_run_end() -> None:
    """Nobody would give the input of that run again; control: a caller's own run fails when it is cancelled."""

    async def main() -> None:
        inside, go_on = asyncio.Event(), asyncio.Event()

        @perdure.tool(effect="external_write", ask=True)
        async def pay() -> str:
            inside.set()
            await go_on.wait()
            return "paid"

        agent = Agent("payer", backend=Script(use("pay"), say("Paid.")), tools=[pay])
        async with aio.open("memory:") as store:
            thread = await store.thread("trip", agent=agent)
            (ticket,) = (await thread.run("go")).approvals
            await thread.decide(ticket.call, "approve", by="ann")
            resuming = asyncio.create_task(store.resume(agent))
            await inside.wait()
            resuming.cancel()
            asyncio.get_running_loop().call_soon(go_on.set)
            await asyncio.wait((resuming,))
            assert resuming.cancelled()
            assert (await thread.runs())[0].state == "succeeded"

    asyncio.run(main())

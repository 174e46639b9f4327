"""Readers that leave and return see each durable event exactly once, in order, and the whole text."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Message, Store, Text, Thread, aio
from perdure.model.context import Context
from perdure.model.event import MessageAppended, RunFinished
from perdure.model.run import HeadPolicy
from perdure.providers.contract import Finished, ModelEvent, TextChunk
from perdure.runtime.events import Committed, Happened, Happening, RunEnded, TextDelta, TextSoFar
from perdure.runtime.failpoints import Point
from perdure.testing import Script, crash, say, step, use
from tests.crash.campaign import sized
from tests.crash.processes import Pipe, running

WORDS = "Let me look at the weather, and then at the trains."


@perdure.tool(effect="read_only")
def look(q: str) -> str:
    """Look something up."""
    return f"saw {q}"


def planner(*, points: tuple[Point, ...] = ()) -> Agent:
    """An agent that speaks, looks, and speaks again."""
    steps = (step(say(WORDS), use("look", q="a"), use("look", q="b")), use("look", q="c"), say("It rains."))
    return Agent("planner", backend=Script(*(crash(point) for point in points), *steps), tools=[look])


def durable(events: list[Happening]) -> list[Happened | Committed]:
    """Those of them that are kept."""
    return [event for event in events if isinstance(event, Happened | Committed)]


def everything(thread: Thread, first: Happened | Committed) -> list[Happened | Committed]:
    """All durable events from `first` on, as somebody reads them who comes when all is over."""
    return [first, *durable(list(thread.follow(after=first.cursor)))]


def check_words(events: list[Happening]) -> None:
    """What is told of a message, if anything, stands before it and is all of its words."""
    told = ""
    for event in events:
        if isinstance(event, TextSoFar):
            assert told == ""
            told = event.text
        elif isinstance(event, TextDelta):
            told += event.text
        elif (
            isinstance(event, Happened)
            and isinstance(event.event, MessageAppended)
            and event.event.role == "assistant"
        ):
            assert told in ("", event.text)
            told = ""
    assert told == ""


def ended(thread: Thread) -> None:
    """Wait until no run goes on."""
    while any(run.state == "running" for run in thread.runs()):
        time.sleep(0.005)


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_a_reader_that_leaves_at_any_event_misses_nothing(store: Store, policy: HeadPolicy) -> None:
    """Leaving never stops the run (each third event is tried, in a deep run each); with the cursor of the last event the rest comes, each once, in order."""
    total = len(list(store.thread("whole", agent=planner()).stream("go", head_policy=policy)))

    for left_after in range(1, total + 1, sized(3, 1)):
        thread = store.thread(f"trip-{left_after}", agent=planner())
        events: list[Happening] = []
        for event in thread.stream("go", head_policy=policy):
            events.append(event)
            if len(events) == left_after:
                break
        cursor = events[-1].cursor
        events += list(thread.follow(after=cursor)) if cursor else list(_from_start(thread))

        seen = durable(events)
        assert seen == everything(thread, seen[0])
        assert isinstance(seen[-2], Happened)
        assert isinstance(seen[-2].event, RunFinished)


def _from_start(thread: Thread) -> Iterator[Happening]:
    """What somebody gets who was there before anything was durable, and comes back."""
    return thread.follow()


def test_a_reader_that_returns_after_every_single_event_misses_nothing(store: Store) -> None:
    """One event at a time, each from a new place in the stream."""
    thread = store.thread("trip", agent=planner())
    first = next(iter(thread.stream("go")))
    events: list[Happening] = [first]
    ended(thread)

    while (event := next(thread.follow(after=events[-1].cursor), None)) is not None:
        events.append(event)

    assert isinstance(first, Happened)
    assert durable(events) == everything(thread, first)


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_words_never_come_after_the_message_that_they_are_part_of(store: Store, policy: HeadPolicy) -> None:
    """Also for a reader that only begins to read when all is over."""
    thread = store.thread("trip", agent=planner())
    stream = thread.stream("go", head_policy=policy)
    first = next(stream)
    ended(thread)

    events = [first, *stream]

    check_words(events)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == WORDS + "It rains."


class Pausing:
    """A model that stops in the middle of a word until it is told to go on."""

    backend = "script:pausing"

    def __init__(self) -> None:
        """Begin with nobody waiting."""
        self.inside, self.go_on = threading.Event(), threading.Event()

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Say hello, in three parts."""
        yield TextChunk("He")
        yield TextChunk("ll")
        self.inside.set()
        await asyncio.to_thread(self.go_on.wait)
        yield TextChunk("o.")
        yield Finished(message=Message("assistant", (Text("Hello."),)))


def test_whoever_comes_in_the_middle_of_a_message_gets_its_words_so_far(store: Store) -> None:
    """One `TextSoFar`, then what is written after that, then the message."""
    model = Pausing()
    thread = store.thread("trip", agent=Agent("planner", backend=model))
    first = next(iter(thread.stream("go")))
    model.inside.wait()
    late = thread.follow(after=first.cursor)
    events: list[Happening] = []
    while not any(isinstance(event, TextSoFar) for event in events):
        events.append(next(late))

    model.go_on.set()
    events += late

    assert [event.text for event in events if isinstance(event, TextSoFar)] == ["Hell"]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["o."]
    check_words(events)


def test_leaving_again_and_again_in_the_middle_of_a_message_loses_no_word(store: Store) -> None:
    """Each time the words so far come once more, and in the end the whole message."""
    model = Pausing()
    thread = store.thread("trip", agent=Agent("planner", backend=model))
    first = next(iter(thread.stream("go")))
    model.inside.wait()

    for _ in range(5):
        so_far = next(event for event in thread.follow(after=first.cursor) if isinstance(event, TextSoFar))
        assert so_far.text == "Hell"
    model.go_on.set()
    ended(thread)

    assert [event.text for event in thread.follow(after=first.cursor) if isinstance(event, Happened)][
        -2:
    ] == [
        "Hello.",
        "",
    ]


def test_many_readers_at_once_see_the_same(store: Store) -> None:
    """Each in a thread of its own, each leaving and returning as it likes."""
    model = Pausing()
    thread = store.thread("trip", agent=Agent("planner", backend=model))
    first = next(iter(thread.stream("go")))
    assert isinstance(first, Happened)
    model.inside.wait()
    found: list[list[Happening]] = [[first] for _ in range(8)]

    def read(events: list[Happening]) -> None:
        while not any(isinstance(event, Happened) and event.ends for event in events):
            for event in thread.follow(after=events[-1].cursor):
                events.append(event)
                if isinstance(event, TextSoFar):
                    break

    readers = [threading.Thread(target=read, args=(events,)) for events in found]
    for reader in readers:
        reader.start()
    model.go_on.set()
    for reader in readers:
        reader.join()
    ended(thread)

    expected = everything(thread, first)
    for events in found:
        seen = durable(events)
        assert seen == expected[: len(seen)]
        assert len(expected) - len(seen) <= 1  # the commit of the end, for one who leaves with the end itself


def test_an_async_reader_leaves_and_returns(store_url: str) -> None:
    """The awaitable face gives the same events."""

    async def main() -> None:
        async with aio.open(store_url) as store:
            thread = await store.thread("trip", agent=planner())
            events: list[Happening] = []
            async for event in thread.stream("go"):
                events.append(event)
                if len(events) == 7:
                    break
            events += [event async for event in thread.follow(after=events[-1].cursor)]
            again = [event async for event in thread.follow(after=events[0].cursor)]
            assert durable(events)[1:] == durable(again)
            assert any(isinstance(event, Happened) and event.ends for event in events)

    asyncio.run(main())


def _own(pipe: Pipe, path: str, points: tuple[Point, ...]) -> None:
    """Run the agent slowly in this process, and be killed at a point if there is one."""

    @perdure.tool(effect="read_only", name="look")
    def look(q: str) -> str:
        time.sleep(0.02)
        return f"saw {q}"

    agent = planner(points=points)
    with perdure.open(path, durability="process_crash") as store:
        thread = store.thread("trip", agent=Agent("planner", backend=agent.backend, tools=[look]))
        pipe.send("ready")
        pipe.recv()
        thread.run("go")
        pipe.send("done")


def _follow_one_by_one(path: str, cursor: str | None) -> Happening | None:
    """The next event, read by somebody who opens the store for it alone."""
    with perdure.open(path, durability="process_crash") as store:
        return next(store.thread("trip").follow(after=cursor), None)


def test_a_reader_in_another_process_returns_after_every_event(tmp_path: Path) -> None:
    """It opens the store anew for each event while the owner runs: each durable event once, in order."""
    path = str(tmp_path / "agents.db")
    with perdure.open(path) as store:
        start = store.thread("trip", agent=planner()).put("/begun.json", True)
    cursor = f"0.1.{start.commit}"
    events: list[Happening] = []

    with running(_own, path, ()) as owner:
        assert owner.answer() == "ready"
        owner.tell("go")
        while not any(isinstance(event, Happened) and event.ends for event in events):
            event = _follow_one_by_one(path, events[-1].cursor if events else cursor)
            events += [event] if event else []
        assert owner.answer() == "done"

    with perdure.open(path) as store:
        assert durable(events) == durable(list(store.thread("trip").follow(after=cursor)))[: len(events)]
        assert [event for event in events if isinstance(event, RunEnded | TextDelta)] == []


@pytest.mark.parametrize(
    "point", ["after_intent", "after_effect", "after_turn", "before_finish", "after_finish"]
)
def test_a_reader_goes_on_after_the_owner_was_killed(tmp_path: Path, point: Point) -> None:
    """The stream ends with the owner; when the run is resumed by another process the rest comes, each once."""
    path = str(tmp_path / "agents.db")
    with perdure.open(path) as store:
        start = store.thread("trip", agent=planner()).put("/begun.json", True)
    cursor = f"0.1.{start.commit}"
    with running(_own, path, (point,)) as owner:
        assert owner.answer() == "ready"
        owner.tell("go")
        owner.process.join()
    with perdure.open(path) as reading, perdure.open(path) as resuming:
        events: list[Happening] = list(reading.thread("trip").follow(after=cursor))

        resuming.resume(planner())
        events += reading.thread("trip").follow(after=events[-1].cursor)

        seen = durable(events)
        assert seen == durable(list(reading.thread("trip").follow(after=cursor)))
        assert len([event for event in seen if isinstance(event, Happened) and event.ends]) == 1
        assert [event.text for event in seen if isinstance(event, Happened) and event.text][-1] == "It rains."


def test_a_cursor_of_another_thread_is_refused(store: Store) -> None:
    """A control: a place is looked up, not guessed."""
    one, two = store.thread("one", agent=planner()), store.thread("two", agent=planner())
    cursor = next(iter(one.stream("go"))).cursor
    ended(one)

    with pytest.raises(perdure.errors.NotFound):
        list(two.follow(after=cursor))
    with pytest.raises(perdure.errors.Invalid):
        list(two.follow(after="nonsense"))


def test_the_same_input_again_joins_the_live_run(store: Store) -> None:
    """Its stream begins with the input, has the words so far, and goes on; control: before, only the end came."""
    model = Pausing()
    thread = store.thread("trip", agent=Agent("planner", backend=model))
    first = thread.stream("go", id="m1")
    next(first)
    model.inside.wait()
    second = store.thread("trip", agent=Agent("planner", backend=Script())).stream("go", id="m1")
    events: list[Happening] = []
    while not any(isinstance(event, TextSoFar) for event in events):
        events.append(next(second))
    first_event = events[0]
    assert isinstance(first_event, Happened)
    assert first_event.text == "go"

    model.go_on.set()
    events += second

    assert [event.text for event in events if isinstance(event, TextSoFar)] == ["Hell"]
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["o."]
    check_joined(events, everything(thread, first_event))


def check_joined(events: list[Happening], expected: list[Happened | Committed]) -> None:
    """Words while they are written, each durable event once, and the result."""
    assert any(isinstance(event, TextSoFar | TextDelta) for event in events)
    assert durable(events) == expected
    check_words(events)
    assert isinstance(events[-1], RunEnded)


class Talking(Pausing):
    """A model that says one word after another until it is told to end."""

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Talk."""
        said = ""
        while not self.go_on.is_set():
            said += "so "
            yield TextChunk("so ")
            self.inside.set()
            await asyncio.sleep(0.005)
        yield Finished(message=Message("assistant", (Text(said),)))


def _speak(pipe: Pipe, path: str) -> None:
    """Run the agent of input 'm1', and talk until it is told to end."""
    model = Talking()

    def answer() -> None:
        model.inside.wait()
        pipe.send("inside")
        pipe.recv()
        model.go_on.set()

    threading.Thread(target=answer, daemon=True).start()
    with perdure.open(path) as store:
        store.thread("trip", agent=Agent("planner", backend=model)).run("go", id="m1")


@pytest.mark.parametrize("where", ["here", "in another process"])
def test_an_async_stream_joins_too(tmp_path: Path, where: str) -> None:
    """In the process of the run and in another one."""
    path = str(tmp_path / "store.db")

    async def read(store: aio.Store, go_on: Callable[[], None]) -> list[Happening]:
        thread = await store.thread("trip", agent=Agent("planner", backend=Script()))
        events: list[Happening] = []
        async for event in thread.stream("go", id="m1"):
            events.append(event)
            if isinstance(event, TextSoFar | TextDelta):
                go_on()
        return events

    async def here() -> list[Happening]:
        model = Talking()
        async with aio.open(path) as store:
            thread = await store.thread("trip", agent=Agent("planner", backend=model))
            first = asyncio.create_task(thread.run("go", id="m1"))
            await asyncio.to_thread(model.inside.wait)
            events = await read(store, model.go_on.set)
            await first
            return events

    async def elsewhere() -> list[Happening]:
        with running(_speak, path) as other:
            assert other.answer() == "inside"
            async with aio.open(path) as store:
                return await read(store, lambda: other.tell("go on"))

    events = asyncio.run(here() if where == "here" else elsewhere())

    with perdure.open(path) as store:
        assert isinstance(events[0], Happened)
        check_joined(events, everything(store.thread("trip"), events[0]))


def test_a_stream_that_joined_goes_on_with_a_run_whose_process_is_killed(tmp_path: Path) -> None:
    """What it was told stays true, and the run ends here."""
    path = str(tmp_path / "store.db")
    with running(_speak, path) as other, perdure.open(path) as store:
        assert other.answer() == "inside"
        model = Pausing()
        model.go_on.set()
        thread = store.thread("trip", agent=Agent("planner", backend=model))
        events: list[Happening] = []
        is_killed = False
        for event in thread.stream("go", id="m1"):
            events.append(event)
            if isinstance(event, TextSoFar | TextDelta) and not is_killed:
                is_killed = True
                other.kill()

        assert isinstance(events[0], Happened)
        assert durable(events) == everything(thread, events[0])
        assert isinstance(events[-1], RunEnded)
        assert events[-1].result.text == "Hello."

"""Watching a line: followers that wait for the next run, decisions in mid-run, and what cannot be watched."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, Call, Retry, Store, Thread, errors
from perdure.engines.contract import Receipt, Write
from perdure.model.digest import Digest
from perdure.runtime.events import (
    CallProgress,
    Committed,
    Happened,
    Happening,
    ReasoningDelta,
    RunEnded,
    TextDelta,
    TextSoFar,
)
from perdure.runtime.session.broadcast import Feeds, NewsThread, Watcher
from perdure.runtime.streaming import Follower, Following, cursor_at
from perdure.testing import Script, say, step, think, use
from perdure.testing.script import Item
from tests.runtime.failing import run_fails
from tests.runtime.runs.injecting import Injecting, Wire, unavailable


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay, if somebody agrees."""
    return f"paid {amount}"


def thread_of(store: Store, *items: Item, tools: tuple[perdure.Tool, ...] = (pay,)) -> Thread:
    """The thread, for an agent that takes these steps."""
    return store.thread("trip", agent=Agent("planner", backend=Script(*items), tools=tools))


def cursor_of(thread: Thread) -> str:
    """The cursor behind everything that the thread has."""
    return f"{len(thread.log()) - 1}.99.{thread.head.commit}"


def kinds(events: list[Happening]) -> list[str]:
    """The names of events, words and progress left out."""
    return [event.type for event in events if not isinstance(event, TextDelta | CallProgress)]


def test_a_stream_is_one_ordered_sequence_of_typed_events(store: Store) -> None:
    """From the input to the end: each commit closes what it holds."""
    events = list(thread_of(store, use("nope"), say("Done.")).stream("go"))

    assert kinds(events) == [
        *("message.appended", "run.started", "committed"),
        *("message.appended", "tool.call.requested", "committed"),
        *("message.appended", "tool.call.completed", "committed"),
        *("message.appended", "committed"),
        *("run.finished", "committed"),
        "run.ended",
    ]


def test_words_name_the_message_that_they_become(store: Store) -> None:
    """Text and reasoning have the id of the message from the first piece on, in each step another one, and the run's."""
    thread = thread_of(store, step(think("Hm."), say("One."), use("nope")), say("Two."))

    events = list(thread.stream("go"))

    words = [each for each in events if isinstance(each, TextDelta | ReasoningDelta)]
    spoken = [entry.id for entry in thread.transcript() if entry.role == "assistant"]
    assert list(dict.fromkeys(each.message for each in words)) == spoken
    assert {each.run for each in words} == {thread.runs()[0].id}


def test_a_run_is_found_by_its_input_and_followed_from_its_first_event(store: Store) -> None:
    """The same input names the same run, other words under its id none; what came before the run is not told."""
    thread = thread_of(store, say("One."), say("Two."))
    thread.run("first", id="m1")
    thread.run("second", id="m2")

    record = thread.given("second", id="m2")

    assert thread.given("third", id="m3") is None
    assert record is not None
    assert thread.find_run(record.id) == record
    events = list(thread.follow(after=thread.cursor_before(record.id)))
    assert {each.run for each in events if isinstance(each, Happened | Committed)} == {record.id}
    assert isinstance(events[0], Happened)
    assert events[0].text == "second"
    with pytest.raises(errors.Conflict) as refused:
        thread.given("other words", id="m2")
    assert refused.value.code == "input_id_reused"


def test_a_run_that_has_not_begun_has_no_first_event(store: Store) -> None:
    """A queued input has a run, and no cursor before it."""
    thread = thread_of(store, say("One."))
    run = thread.start("later", id="m1")

    assert thread.given("later", id="m1") == thread.find_run(run)
    assert thread.cursor_before(run) is None
    with pytest.raises(errors.NotFound):
        thread.find_run("another")


def test_a_stream_that_waits_tells_what_for(store: Store) -> None:
    """The suspension is durable; the end says what has to be decided; there is no finish."""
    events = list(thread_of(store, use("pay", amount=3), say("Done.")).stream("go"))

    assert "tool.call.suspended" in kinds(events)
    assert "run.finished" not in kinds(events)
    last = events[-1]
    assert isinstance(last, RunEnded)
    assert (last.result.status, len(last.result.approvals)) == ("waiting", 1)


def test_a_stream_on_a_line_that_is_taken_is_busy(store: Store) -> None:
    """The error comes where the stream is read."""
    seen: list[BaseException] = []

    @perdure.tool(effect="read_only")
    def visit() -> str:
        try:
            list(thread_of(store, say("Me too.")).stream("go"))
        except errors.PerdureError as error:
            seen.append(error)
        return "visited"

    thread_of(store, use("visit"), say("Done."), tools=(visit,)).run("go")

    assert [type(error) for error in seen] == [errors.Busy]


def test_a_stream_of_an_input_given_before_ends_with_its_result(store: Store) -> None:
    """Nothing happens again, so nothing is told but its last words, as words that were said before, and the end."""
    thread = thread_of(store, say("Done."))
    first = thread.run("go", id="m1")

    events = list(thread_of(store, say("Never.")).stream("go", id="m1"))

    words, end = events
    assert isinstance(words, TextSoFar)
    assert (words.text, words.run) == ("Done.", first.run)
    assert words.message == thread.transcript()[-1].id  # so they replace what a reader had of that message
    assert isinstance(end, RunEnded)
    assert end.result == first


def test_a_stream_that_joins_a_run_has_its_words_once(store: Store) -> None:
    """They come as the message that is committed meanwhile, so they do not come again as words that were said before."""
    asked, may_answer = threading.Event(), threading.Event()

    @perdure.tool(effect="read_only")
    def look() -> str:
        """Look, as long as it takes."""
        asked.set()
        assert may_answer.wait(60)
        return "seen"

    thread = thread_of(store, use("look"), say("Done."), tools=(look,))
    first = threading.Thread(target=thread.run, args=("go",), kwargs={"id": "m1"})
    first.start()
    assert asked.wait(60)
    joined = iter(thread_of(store, say("Never."), tools=(look,)).stream("go", id="m1"))
    threading.Timer(0.2, may_answer.set).start()
    events = list(joined)
    first.join()

    assert isinstance(events[-1], RunEnded)
    assert events[-1].result.text == "Done."
    assert "message.appended" in kinds(events)
    assert "text.so_far" not in kinds(events)


def test_a_follower_that_waits_sees_one_run_after_another(store: Store) -> None:
    """Between them it stays; each event comes once."""
    thread = thread_of(store, say("One."))
    thread.run("go")
    seen: list[Happening] = []
    ready = threading.Event()

    def follow() -> None:
        for event in _until_ended(thread, ready, times=2):
            seen.append(event)  # noqa: PERF402  # what was seen so far counts

    follower = threading.Thread(target=follow)
    follower.start()
    ready.wait()
    for words in ("Two.", "Three."):
        thread_of(store, say(words)).run("go on")
    follower.join()

    durable = [event for event in seen if isinstance(event, Happened | Committed)]
    assert [event.text for event in durable if isinstance(event, Happened) and event.text] == [
        *("go on", "Two."),
        *("go on", "Three."),
    ]
    assert len({event.cursor for event in durable}) == len(durable)


def _until_ended(thread: Thread, ready: threading.Event, *, times: int) -> Iterator[Happening]:
    """What a follower that waits sees, until so many runs have ended."""
    stream = thread.follow(after=cursor_of(thread), wait=True)
    ready.set()
    for event in stream:
        yield event
        times -= isinstance(event, Happened) and event.ends
        if not times:
            return


@pytest.mark.parametrize("is_read", [True, False], ids=["read", "not read"])
def test_a_follower_elsewhere_hears_that_a_call_has_begun(
    store: Store, store_url: str, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that a person approved begins without a commit; where it is not read from the ledger, its end comes first."""
    goes_on, seen = threading.Event(), list[str]()

    @perdure.tool(effect="external_write", ask=True)
    def order() -> str:
        """Order, which takes as long as the follower needs."""
        assert goes_on.wait(60)
        return "ordered"

    thread = thread_of(store, use("order"), say("Done."), tools=(order,))
    result = thread.run("go")
    if not is_read:
        monkeypatch.setattr(Following, "_begun_calls", lambda *_: [])
        monkeypatch.setattr(Feeds, "listen", lambda *_: None)  # nor heard from the run itself
    with perdure.open(store_url) as other:
        stream = other.thread("trip").follow(after=cursor_of(thread), wait=True)
        thread.decide(result.approvals[0].call, "approve", by="ben")
        running = threading.Thread(target=thread.resume)
        running.start()
        if not is_read:
            goes_on.set()
        for event in stream:
            seen.append(event.type if not isinstance(event, CallProgress) else event.state)
            goes_on.set()
            if seen[-1] == "run.finished":
                break
        running.join()

    assert (seen[0] == "started") is is_read
    assert seen.count("started") == is_read


def test_a_follower_here_hears_of_each_attempt_at_a_call(store: Store) -> None:
    """The call begins, fails and begins again, in the process of the follower."""
    ready, attempts = threading.Event(), list[int]()

    @perdure.tool(effect="read_only")
    def gate() -> str:
        """Wait until the run is followed."""
        space = thread._space  # pyright: ignore[reportPrivateUsage]
        feeds = thread._env().store_runtime.feeds  # pyright: ignore[reportPrivateUsage]
        while (feed := feeds.find(space.name, thread.timeline)) is None or not feed.watched:
            time.sleep(0.001)
        return "open"

    @perdure.tool(effect="read_only", retry=Retry(attempts=2, delay=0.0))
    def look() -> str:
        """Find it at the second attempt; each ends once the follower has heard that it began."""
        attempts.append(1)
        ends_at = time.monotonic() + 60
        while states().count("started") < len(attempts) and time.monotonic() < ends_at:
            time.sleep(0.001)
        if len(attempts) == 1:
            raise LookupError("not yet")
        return "found"

    thread_of(store, say("Hello.")).run("Hello")
    thread = thread_of(store, use("gate"), use("look"), say("Done."), tools=(gate, look))
    seen: list[Happening] = []

    def states() -> list[str]:
        return [each.state for each in seen if isinstance(each, CallProgress) and each.tool == "look"]

    follower = threading.Thread(target=lambda: seen.extend(_until_ended(thread, ready, times=1)))
    follower.start()
    assert ready.wait(60)
    thread.run("go")
    follower.join(60)

    assert states().count("started") == 2


def test_after_an_undo_a_follower_goes_on_from_what_both_lines_share(store: Store) -> None:
    """What was undone is not told again, and what comes instead is told once."""
    thread = thread_of(store, say("One."))
    thread.run("first")
    first = list(thread_of(store, say("Two.")).stream("second"))
    thread.undo()
    thread_of(store, say("Instead.")).run("third")

    events = list(thread.follow(after=first[-1].cursor))

    assert [event.text for event in events if isinstance(event, Happened) and event.text] == [
        "third",
        "Instead.",
    ]


def test_what_was_undone_before_a_follower_read_it_is_told_once_and_in_order(store: Store) -> None:
    """It was true for a while.  Lines that the timeline was on before are not told again, though it comes back to them."""
    thread = thread_of(store)
    thread.put("/n.json", 0)
    follower = Follower(thread._space, "main", cursor_at(thread._space, thread.head.commit))
    wanted: list[str] = []

    def put(value: int) -> None:
        thread.put("/n.json", value)
        wanted.append(str(thread.head.commit))

    def told() -> list[str]:
        return [event.commit for event in follower.read() if isinstance(event, Committed)]

    assert told() == []
    for act in (1, 2, thread.undo, 3, thread.undo, thread.undo, 4):
        put(act) if isinstance(act, int) else act()
    assert told() == wanted
    for act in (
        5,
        thread.undo,
        thread.redo,
        6,
        lambda: thread.fork("b"),
        thread.undo,
        lambda: thread.promote("b"),
        7,
    ):
        put(act) if isinstance(act, int) else act()
    assert told() == wanted[4:]
    assert told() == []

    resumed = Follower(thread._space, "main", cursor_at(thread._space, Digest(wanted[1])))
    assert [event.commit for event in resumed.read() if isinstance(event, Committed)] == wanted[2:]


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_a_decision_while_the_run_goes_on_is_used_by_the_same_run(store: Store, verdict: str) -> None:
    """Only the suspended call waits; decided before its siblings have ended, nobody has to resume."""

    @perdure.tool(effect="read_only")
    def decide() -> str:
        thread = store.thread("trip", agent=Agent("planner", tools=[pay]))
        while not thread.approvals():
            threading.Event().wait(0.005)
        thread.decide(thread.approvals()[0].call, verdict, by="ann")  # pyright: ignore[reportArgumentType]
        return "decided"

    thread = thread_of(store, step(use("pay", amount=3), use("decide")), say("Done."), tools=(pay, decide))

    result = thread.run("go")

    states = {call.tool: call.state for call in thread.calls()}
    assert result.status == "succeeded"
    assert states == {"pay": "succeeded" if verdict == "approve" else "denied", "decide": "succeeded"}


def test_a_run_that_waits_goes_on_with_its_siblings_results(store: Store) -> None:
    """Of two calls one waits: the other's result is durable, and its state is applied at once."""

    @perdure.tool(effect="local_write", idempotent=True)
    def note(call: Call) -> str:
        call.put("/noted.json", True)
        return "noted"

    thread = thread_of(store, step(use("pay", amount=3), use("note")), say("Done."), tools=(pay, note))

    waiting = thread.run("go")

    assert waiting.status == "waiting"
    assert thread.get("/noted.json") is True
    thread.decide(waiting.approvals[0].call, "answer", value="paid in cash")
    assert thread.resume().text == "Done."
    assert "paid in cash" in str([entry.message.tool_results for entry in thread.transcript()])


def test_a_run_that_cannot_even_end_is_not_tried_for_ever(store_url: str) -> None:
    """The next run tells the error instead of going round in circles."""
    injecting = Injecting(store_url)
    with injecting.store as store:

        @perdure.tool(effect="read_only")
        def cut() -> str:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            thread_of(store, use("cut"), say("Done."), tools=(cut,)).run("go")

        def only_leases(wire: Wire, write: Write) -> Receipt:
            if write.moves or write.entries:
                raise errors.Unavailable("the disk is full; nothing was written.")
            return wire.inner.apply(write)

        injecting.wire.arm(only_leases, nth=1, times=1_000_000)

        with run_fails("Unavailable"):
            thread_of(store, say("Next."), tools=(cut,)).run("again")


@pytest.mark.parametrize("calls", [1, 2])
def test_a_call_is_said_to_have_succeeded_once_that_is_durable(store_url: str, calls: int) -> None:
    """Not a moment before: whoever acts on it finds it in the ledger."""
    injecting = Injecting(store_url)
    order: list[str] = []
    watchers: list[Watcher] = []

    def wake() -> None:
        taken = watchers[0].take(0) if watchers else []
        order.extend(item.state for item in taken if isinstance(item, CallProgress))

    def look_on(wire: Wire, write: Write) -> Receipt:
        receipt = wire.inner.apply(write)
        order.extend("durable" for entry in write.entries if b'"to":"succeeded"' in entry)
        return receipt

    @perdure.tool(effect="read_only")
    def watch() -> str:
        if not watchers:
            feed = injecting.store._resources.store_runtime.feeds.find(thread._space.name, "main")  # pyright: ignore[reportPrivateUsage]
            assert feed is not None
            watchers.append(feed.watch(wake))
        return "watched"

    thread = thread_of(injecting.store, step(*[use("watch")] * calls), say("Done."), tools=(watch,))
    injecting.wire.arm(look_on, nth=1, times=100)

    thread.run("go")

    told = [state for state in order if state in ("durable", "succeeded")]
    assert told == ["durable", "succeeded"] * calls


def test_a_result_that_could_not_be_written_is_not_said_to_have_succeeded(store_url: str) -> None:
    """The tool returned, and nothing more could be written: nobody is told of a success."""
    injecting = Injecting(store_url)

    @perdure.tool(effect="read_only")
    def fill() -> str:
        injecting.wire.arm(unavailable, nth=1, times=100)
        return "filled"

    seen: list[Happening] = []
    with pytest.raises(errors.RunFailed):
        seen.extend(thread_of(injecting.store, use("fill"), say("Done."), tools=(fill,)).stream("go"))

    assert "succeeded" not in [event.state for event in seen if isinstance(event, CallProgress)]


def test_a_wait_for_news_that_is_cancelled_as_news_comes_is_cancelled() -> None:
    """Otherwise a stream that its server ends would go on until its next event."""

    async def cancelled_with_news(thread: Thread) -> bool:
        news = asyncio.Event()
        waits = asyncio.ensure_future(NewsThread().wait(thread._space, 10**9, 60.0, event=news))
        await asyncio.sleep(0.05)
        news.set()
        waits.cancel()
        await asyncio.wait([waits])
        return waits.cancelled()

    with perdure.open("memory:") as store:
        assert asyncio.run(cancelled_with_news(store.thread("t", agent="a")))

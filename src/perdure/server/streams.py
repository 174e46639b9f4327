"""Server-sent events that resume: what happens on a timeline, what happens in a run, and what changed anywhere.

A durable event has an `id:`, its cursor; a client that was cut off sends the last one as `Last-Event-ID` and goes on
after it, each event once and in order, in whichever process.  Text that is being written has no id: a client that
comes back gets one `text.so_far` and then deltas.  Leaving a stream never stops a run.

An idle stream sends a comment now and then, so that proxies keep it and a client that is gone is noticed.  A client that
does not read is cut off after a while; it can come back.

uvicorn waits for responses to end when it is to exit, and tells the application nothing.  A stream that would never end
looks itself whether the server is to exit, also in another program's application.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure import aio
from perdure.aio.proxy import EventIterator
from perdure.errors import NotFound
from perdure.runtime.events import Committed, Happened, Happening, HeadMoved, RunEnded
from perdure.runtime.session.result import Result
from perdure.server.problems import FOR_APPLICATIONS, FOR_HTTP, problem_of, problem_response
from perdure.shapes.ledger import EventShape, TicketShape
from perdure.shapes.threads import HeadShape
from perdure.store.store import Store

__all__ = ["EventStream", "Inbox", "events", "frame", "frame_of", "frames", "watched"]

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]

IDLE_SECONDS = 15.0
SLOW_SECONDS = 30.0
CHECK_SECONDS = (
    1.0  # after which a stream that sends something asks whether its client is still allowed to read
)

CONNECTION = (
    "perdure.connection"  # the extension of ASGI by which `perdure serve` lends the connection of a request
)

_CLOSE_SECONDS = 1.0
_EXIT_SECONDS = 0.5  # after which open streams look again whether the server is to exit
_IDLE = b": idle\n\n"
_FRAMES_MAX = 1_000  # that wait for one reader of the inbox
_NEWS_SECONDS = 10.0
_NEWS_PAUSE_SECONDS = 0.25


def frame(kind: str, data: object, *, id: str | None = None) -> bytes:
    """Return one server-sent event; `data` is JSON on one line."""
    head = b"" if id is None else b"id: " + id.encode() + b"\n"
    return head + b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


def frame_of(event: Happening, ended: Callable[[Any], object] | None = None) -> bytes:
    """Return an event of a stream as a server-sent event; `ended` makes the shape of a run's result."""
    if isinstance(event, Happened | Committed | HeadMoved):
        return frame(event.type, EventShape.of(event), id=event.cursor)
    if isinstance(event, RunEnded):
        result = {
            "status": event.result.status,
            "text": event.result.text,
            "run": event.result.run,
            "approvals": [TicketShape.waiting(each) for each in event.waiting],
        }
        return frame(event.type, {"type": event.type, "result": ended(event.result) if ended else result})
    fields = {name: value for name, value in msgspec.structs.asdict(event).items() if name != "cursor"}
    return frame(event.type, {"type": event.type, **fields})


async def frames(
    happenings: AsyncIterator[Happening],
    ended: Callable[[Any], Awaitable[object]] | None = None,
    *,
    place: str,
    advice: Mapping[str, str] = FOR_HTTP,
    show: Callable[[Happening], object | None] | None = None,
) -> AsyncIterator[bytes]:
    """Yield the events of a stream as server-sent events; an error is the last, and does not tell the store's `place`.

    `show` makes the data of an event, None leaves it out.
    """
    try:
        async for event in happenings:
            if show is not None:
                if (data := show(event)) is not None:
                    durable = isinstance(event, Happened | Committed | HeadMoved)
                    yield frame(event.type, data, id=event.cursor if durable else None)
            elif ended is not None and isinstance(event, RunEnded):
                shape = await ended(event.result)
                yield frame(event.type, {"type": event.type, "result": shape})
            else:
                yield frame_of(event)
    except Exception as error:  # noqa: BLE001  # the edge: every error is a problem document
        yield frame("error", problem_of(error, place=place, advice=advice)[0])


async def watched(happenings: AsyncIterator[Happening], begun: asyncio.Future[None]) -> Result:
    """Read the events of a run to its end, and return its result."""
    async for event in happenings:
        if not begun.done():
            begun.set_result(None)
        if isinstance(event, RunEnded):
            return event.result
    raise AssertionError("a stream of a run ends with its result, or raises")


class EventStream(Response):
    """A response that sends frames as they come, until they end, the client leaves, or the server drains."""

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        *,
        drained: asyncio.Event | None = None,
        is_allowed: Callable[[], Awaitable[bool]] | None = None,
        headers: Iterable[tuple[bytes, bytes]] = (),
        begin: Callable[[], Awaitable[None]] | None = None,
        ends_by_itself: bool = False,
        when_cut: bytes | None = None,
        idle_seconds: float = IDLE_SECONDS,
        slow_seconds: float = SLOW_SECONDS,
        check_seconds: float = CHECK_SECONDS,
    ) -> None:
        """Send `frames`; `drained` ends the stream, `is_allowed` is asked now and then whether it may go on.

        `begin` is awaited first: what it raises is answered with a problem document and its status.
        A stream that `ends_by_itself` goes on while the server waits to exit; any other ends then.
        `when_cut`: a stream that is ended before its frames has no end, the connection is closed instead; a server that
        does not lend its connection sends this frame before the end.  None: the end is as good as any.
        """
        super().__init__()
        self.raw_headers = [*HEADERS, *headers]
        self._begin = begin
        self._frames, self._drained, self._is_allowed = frames, drained, is_allowed
        self._ends_by_itself, self._when_cut = ends_by_itself, when_cut
        self._idle, self._slow, self._check = idle_seconds, slow_seconds, check_seconds
        self._checked_at = time.monotonic()

    def without_frames(self) -> Response:
        """Return what HEAD is answered with: a stream that its client does not read would be held open for it."""
        response = Response()
        response.raw_headers = self.raw_headers
        return response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; a client that reads nothing for too long is cut off."""
        if self._begin is not None:
            try:
                await self._begin()
            except Exception as error:  # noqa: BLE001  # the edge: every error is a problem document
                await problem_response(error, place="", advice=FOR_APPLICATIONS)(scope, receive, send)
                return
        with _until_exit() as exiting:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            leaving = asyncio.ensure_future(_gone(receive))
            ends = [self._drained, None if self._ends_by_itself else exiting]
            endings = [asyncio.ensure_future(each.wait()) for each in ends if each is not None]
            try:
                if not await self._send(send, leaving, endings, can_close=_connection(scope) is not None):
                    await _disconnect(scope, leaving)
            except (TimeoutError, OSError):
                await _disconnect(scope, leaving)
            finally:
                for task in (leaving, *endings):
                    task.cancel()
                with suppress(Exception):
                    await self._frames.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        if self.background is not None:
            await self.background()

    async def _send(
        self,
        send: Send,
        leaving: asyncio.Future[None],
        endings: Sequence[asyncio.Future[Any]],
        *,
        can_close: bool,
    ) -> bool:
        """Send frames; false if the stream was cut short, so that the connection has to be closed without an end."""
        others = {leaving, *endings}
        coming: asyncio.Task[bytes] | None = None
        is_whole = False
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(self._frames))  # pyright: ignore[reportArgumentType]
                done, _ = await asyncio.wait(
                    {coming, *others}, timeout=self._idle, return_when=asyncio.FIRST_COMPLETED
                )
                if leaving in done:
                    return True
                if coming in done:
                    try:
                        body = coming.result()
                    except StopAsyncIteration:
                        is_whole = True
                        break
                    coming = None
                    if not await self._may_go_on(self._check):
                        break
                    await self._part(send, body)
                    continue
                if not done.isdisjoint(endings):
                    break
                if not await self._may_go_on(0):
                    break
                await self._part(send, _IDLE)
            last = b"" if is_whole or self._when_cut is None else self._when_cut
            if last and can_close:
                return False
            await send({"type": "http.response.body", "body": last, "more_body": False})
            return True
        finally:
            if coming is not None:
                coming.cancel()
                with suppress(BaseException):
                    await coming

    async def _may_go_on(self, after: float) -> bool:
        """Ask whether the client is still allowed to read, if the last answer is older than `after` seconds."""
        if self._is_allowed is None or time.monotonic() - self._checked_at < after:
            return True
        is_allowed = await self._is_allowed()
        self._checked_at = time.monotonic()
        return is_allowed

    async def _part(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(self._slow):
            await send({"type": "http.response.body", "body": body, "more_body": True})


async def _disconnect(scope: Scope, leaving: asyncio.Future[None]) -> None:
    """Close the connection without an end, so that the client comes back.

    A server that does not lend its connection closes it when the application returns, and logs that as an error: so it
    is with a client that does not read, to which nothing can be sent.
    """
    transport = _connection(scope)
    if transport is None:
        return
    transport.close()
    await asyncio.wait({leaving}, timeout=_CLOSE_SECONDS)
    transport.abort()  # a client that does not read keeps what was sent from leaving
    await asyncio.wait({leaving}, timeout=_CLOSE_SECONDS)


def _connection(scope: Scope) -> asyncio.Transport | None:
    """Return the connection of a request, if the server lends it."""
    return scope.get("extensions", {}).get(CONNECTION)


class _ExitWatch:
    """What the streams of one event loop wait for: that their server is to exit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.event, self.streams = asyncio.Event(), 0
        self._loop = loop
        self.look()

    def look(self) -> None:
        """Look whether the server is to exit, and again after a while."""
        if _is_exiting():
            self.event.set()
        self.timer = self._loop.call_later(_EXIT_SECONDS, self.look)


_watches: dict[asyncio.AbstractEventLoop, _ExitWatch] = {}


@contextmanager
def _until_exit() -> Generator[asyncio.Event]:
    """Give an event that is set once the server is to exit; the streams of a loop share one look at it."""
    loop = asyncio.get_running_loop()
    watch = _watches.get(loop) or _watches.setdefault(loop, _ExitWatch(loop))
    watch.streams += 1
    try:
        yield watch.event
    finally:
        watch.streams -= 1
        if not watch.streams:
            watch.timer.cancel()
            del _watches[loop]


def _is_exiting() -> bool:
    """True if uvicorn has been told to exit: its server handles the signals, and says there whether one came."""
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    return any(getattr(getattr(each, "__self__", None), "should_exit", False) is True for each in handlers)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def events(
    stream: AsyncIterator[Happening], *, show: Callable[[Happening], object | None] | None = None
) -> EventStream:
    """Return any stream of `perdure.aio` as a response of server-sent events, for one's own ASGI application.

    Events have all that is known of what happened, such as the key and the arguments of a call and the address of a
    model's server.  `show` makes what the client gets of an event instead, any JSON; None leaves the event out.

    What keeps it from beginning, such as a text that is no cursor or other words under a known id, is answered with a
    problem document and its status; later errors are the last event.
    """
    # The application's store is not known here, and neither are the requests that it answers.
    shown = frames(stream, place="", advice=FOR_APPLICATIONS, show=show)
    if not isinstance(stream, EventIterator):
        return EventStream(shown)
    return EventStream(shown, begin=stream.begin, ends_by_itself=not stream.is_endless)


class Subscriber:
    """One reader of the inbox: what it may see, and the frames that wait for it."""

    def __init__(self, sees: Callable[[str, str, str | None], bool]) -> None:
        """Show the threads that `sees` lets pass, by id, agent and owner."""
        self.sees = sees
        self.waiting = -1  # open approvals, as they were told last
        self.frames: asyncio.Queue[bytes] = asyncio.Queue(_FRAMES_MAX)

    def give(self, body: bytes) -> None:
        """Add a frame; a reader that is too far behind is told to read its lists again instead."""
        if self.frames.full():
            while not self.frames.empty():
                self.frames.get_nowait()
            body = frame("hello", {"type": "hello", "approvals": self.waiting, "missed": True})
        self.frames.put_nowait(body)


class Inbox:
    """Tells any number of readers which threads have changed, by one wait for the whole store."""

    def __init__(self, store: aio.Store) -> None:
        """Watch `store` while there is a reader."""
        self._store = store
        self._subscribers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None
        self._woken = threading.Event()

    async def frames(self, sees: Callable[[str, str, str | None], bool]) -> AsyncIterator[bytes]:
        """Yield what a reader is told, for ever: first how many approvals wait."""
        reader = Subscriber(sees)
        self._subscribers.add(reader)
        try:
            threads, approvals = await self._store.off_loop(self._now)
            reader.waiting = _visible(reader, threads, approvals).total()
            yield frame("hello", {"type": "hello", "approvals": reader.waiting, "missed": False})
            if self._task is None or self._task.done():
                self._woken.clear()
                self._task = asyncio.create_task(self._watch())
            while True:
                yield await reader.frames.get()
        finally:
            self._subscribers.discard(reader)
            if not self._subscribers:
                self._woken.set()

    async def close(self) -> None:
        """Stop watching."""
        self._woken.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _watch(self) -> None:
        seen = await self._store.news({}, 0)
        while self._subscribers:
            changed = await self._store.news(seen, _NEWS_SECONDS, woken=self._woken)
            seen |= changed
            threads, approvals = await self._store.off_loop(self._now)
            heads = await self._store.off_loop(partial(_heads_of, self._store.target(), tuple(changed)))
            for reader in tuple(self._subscribers):
                self._tell(reader, threads, approvals, heads)
            await asyncio.sleep(_NEWS_PAUSE_SECONDS)  # so that a busy store is not read all the time

    def _tell(
        self,
        reader: Subscriber,
        threads: dict[str, tuple[str, str | None]],
        approvals: list[OpenQuestion],
        heads: dict[str, HeadShape],
    ) -> None:
        seen = _visible(reader, threads, approvals)
        for id, head in heads.items():
            if id in threads and reader.sees(id, *threads[id]):
                told = {"type": "thread", "thread": id, "head": head, "approvals": seen[id]}
                reader.give(frame("thread", told))
        waiting = seen.total()
        if waiting != reader.waiting:
            reader.waiting = waiting
            reader.give(frame("approvals", {"type": "approvals", "waiting": waiting}))

    def _now(self) -> tuple[dict[str, tuple[str, str | None]], list[OpenQuestion]]:
        """Return the agent and owner of each thread, and the approvals that wait."""
        store = self._store.target()
        threads = {each.id: (each.agent, each.owner) for each in store.threads()}
        return threads, [
            each
            for id in dict.fromkeys(each.thread for each in store.approvals())
            for each in _questions(store, id)
        ]


class OpenQuestion(NamedTuple):
    """An approval that waits, and the agents of the timelines on which it can be decided."""

    thread: str
    agents: frozenset[str]


def _questions(store: Store, id: str) -> list[OpenQuestion]:
    """Return the approvals of a thread as its timelines see them; none if it was removed."""
    agents: dict[str, set[str]] = {}
    with suppress(NotFound):
        thread = store.thread(id)
        for hold in thread.timelines():
            line = thread.on(hold.head.timeline)
            for ticket in line.approvals():
                agents.setdefault(ticket.id, set()).add(line.agent)
    return [OpenQuestion(id, frozenset(each)) for each in agents.values()]


def _visible(
    reader: Subscriber, threads: dict[str, tuple[str, str | None]], approvals: list[OpenQuestion]
) -> Counter[str]:
    """Return how many approvals of each thread a reader may see: of the thread, and of a timeline that has them."""
    return Counter(
        each.thread
        for each in approvals
        if each.thread in threads
        and reader.sees(each.thread, *threads[each.thread])
        and any(reader.sees(each.thread, agent, threads[each.thread][1]) for agent in each.agents)
    )


def _heads_of(store: Store, ids: tuple[str, ...]) -> dict[str, HeadShape]:
    """Return the heads of threads; one that was removed in the meantime has none."""
    found: dict[str, HeadShape] = {}
    for id in ids:
        with suppress(NotFound):
            found[id] = HeadShape.of(store.thread(id).head)
    return found

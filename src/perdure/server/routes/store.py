"""Reading what spans threads: approvals, open runs, unknown calls, agents, memory, artifacts, search, and the whole store."""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import islice
from typing import Literal, Self
from urllib.parse import quote

import msgspec
from starlette.responses import Response, StreamingResponse

from perdure.errors import Conflict, Corrupt, Invalid, NotFound, PerdureError
from perdure.history.artifacts import Listed
from perdure.history.verify.report import Progress
from perdure.model.head import MAIN
from perdure.model.run import ENDED, Cost, RunRecord, RunState, Usage
from perdure.model.ticket import Ticket
from perdure.providers import catalog
from perdure.server.keys import SERVER
from perdure.server.problems import last_part, problem_of
from perdure.server.routes.threads import OfThread
from perdure.server.routing import HttpCall, Paged, PageQuery, route
from perdure.server.streams import frame
from perdure.server.thread_list import ThreadList
from perdure.shapes.conversation import turns_of
from perdure.shapes.ledger import ApprovalPage, CallPage, CallRecordShape, CostShape, RunShape, TicketShape
from perdure.shapes.lookup import held_from, interrupted_calls
from perdure.shapes.search import FoundMessage, FoundTitle, SearchPage, found_in, search_back, words_in
from perdure.shapes.store import (
    AgentDetail,
    ArtifactPage,
    ArtifactShape,
    CostPage,
    NamedAgent,
    VerifyShape,
    VersionShape,
)
from perdure.shapes.text import now, stamp
from perdure.store.thread import Thread

__all__ = ["BackendPage", "BackendShape", "SearchPage", "SessionShape", "waiting_tickets"]

_VERSIONS_SHOWN = 10
_PROGRESS_SECONDS = 0.2  # between two reports of a check
_MESSAGES_SCANNED_MAX = 5_000  # that one page of a search reads
_SEARCH_SECONDS = 0.5  # that one page of a search takes; other requests wait meanwhile
_COSTS_SECONDS = 2.0  # for which one page of costs reads histories
_RUNS_SECONDS = 0.5  # for which one page of runs looks for those that are wanted
_RUNS_AT_ONCE = 64  # of one thread
_THREAD_MESSAGES_MAX = 1_000  # of each thread that a search of many reads, the newest ones
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def waiting_tickets(call: HttpCall) -> list[tuple[Thread, Ticket]]:
    """Return the approvals that can still be decided and that the credential may see, oldest first."""
    found: list[tuple[Thread, Ticket]] = []
    for id in dict.fromkeys(each.thread for each in call.store.approvals()):
        with suppress(NotFound):  # the thread was removed, or is not for this credential
            thread = call.thread(id=id)
            tickets: dict[str, Ticket] = {}
            for hold in thread.timelines():
                with suppress(NotFound):  # a timeline that was removed, or is another agent's since
                    tickets |= {each.id: each for each in thread.on(hold.head.timeline).approvals()}
            found += ((thread, ticket) for ticket in tickets.values())
    return sorted(found, key=lambda each: each[1].asked_at)


class ServedApprovals(ApprovalPage, frozen=True, kw_only=True):
    """What waits for a decision, oldest first."""

    held: list[str]  # the threads of these that came from another store and were not released


@route("GET", "/v1/approvals", "read")
def list_approvals(call: HttpCall, query: PageQuery) -> Paged[ServedApprovals]:
    """List the calls that wait for a decision, oldest first."""
    tickets = waiting_tickets(call)
    if query.after is not None:
        tickets = [each for each in tickets if _place(each[1]) > query.after]
    kept, at_now = tickets[: query.size], now()
    page = ServedApprovals(
        thread=None,
        approvals=[TicketShape.of(thread, ticket, at_now=at_now) for thread, ticket in kept],
        held=sorted(
            id for id, thread in {on.id: on for on, _ in kept}.items() if held_from(thread) is not None
        ),
        more=len(kept) < len(tickets),
    )
    return Paged(page, _place(kept[-1][1]) if page.more else None)


def _place(ticket: Ticket) -> str:
    return _cursor(ticket.asked_at, ticket.id)


def _cursor(at: int, *names: str) -> str:
    """Return what sorts as a list does that is sorted by time."""
    return ".".join((f"{at:020}", *names))


@route("GET", "/v1/calls", "read")
def list_unknown_calls(call: HttpCall, query: PageQuery) -> Paged[CallPage]:
    """List the calls whose outcome is unknown, oldest first, over all threads.

    Those that are `started` come first: they were under way when the process of their run ended.
    """
    found: list[tuple[str, CallRecordShape]] = []
    listed = (interrupted_calls(call.store), call.store.unclear_calls())
    places = [
        (f"{rank}.{_cursor(record.at, record.id, id)}", id, record)
        for rank, records in enumerate(listed)
        for id, record in records
    ]
    for place, id, record in sorted(places, key=lambda each: each[0]):
        if len(found) > query.size:
            break
        if query.after is None or place > query.after:
            with suppress(NotFound):
                found.append((place, CallRecordShape.traced(call.thread(id=id), record)))
    kept = found[: query.size]
    page = CallPage(thread=None, calls=[shape for _, shape in kept], more=len(found) > len(kept))
    return Paged(page, kept[-1][0] if page.more else None)


class StoreRunsQuery(PageQuery, frozen=True, kw_only=True):
    """Which runs: those in a state, `open` or null: that have not ended, `ended`: that have; of one thread, null: of all.

    Runs that have not ended come oldest first, with `newest` the newest first.  Runs that have ended always come newest
    first, in the order in which their inputs came; of all threads they are refused beyond 10,000 threads.
    With `cost` each has what its steps cost.
    """

    state: RunState | Literal["open", "ended"] | None = None
    thread: str | None = None
    newest: bool = False
    cost: bool = False


class ServedRun(RunShape, frozen=True, kw_only=True):
    """One run, and what its steps cost, without those of its children."""

    cost: CostShape | None  # null: it was not asked for, or its history is gone
    usage: Usage | None

    @classmethod
    def seen(cls, thread: Thread, record: RunRecord, *, cost: bool) -> Self:
        """Return the run as it is now; with its `cost`, if it is to be read."""
        spent: tuple[CostShape, Usage] | tuple[None, None] = None, None
        if cost:
            with suppress(Conflict, Corrupt, NotFound):
                ((_, dollars, usage),) = thread.costs(run=record.id)
                spent = CostShape.of(dollars), usage
        shape = RunShape.now(thread, record)
        return cls(**msgspec.structs.asdict(shape), cost=spent[0], usage=spent[1])


class ServedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of all threads, or of one."""

    thread: str | None
    runs: list[ServedRun]
    damaged: list[str]  # threads whose runs cannot be read, so that they are not listed
    more: bool  # whether there are others beyond the limit


@route("GET", "/v1/runs", "read")
def list_store_runs(call: HttpCall, query: StoreRunsQuery) -> Paged[ServedRuns]:
    """List the runs of all threads, or of one: those that have not ended, that have, or that are in a state.

    A page of runs that have ended reads the last run of each thread, and looks at others for a bounded time.
    """
    if query.state == "ended" or query.state in ENDED:
        return _ended_runs(call, query)
    found: list[tuple[str, ServedRun]] = []
    if query.thread is not None:
        call.thread(id=query.thread)
    places = [
        (_cursor(record.begun_at, record.id, id), id, record)
        for id, record in call.store.open_runs()
        if query.thread in (None, id)
    ]
    for place, id, record in sorted(places, key=lambda each: each[0], reverse=query.newest):
        if len(found) > query.size:
            break
        is_after = query.after is None or (place < query.after if query.newest else place > query.after)
        if query.state in (None, "open", record.state) and is_after:
            with suppress(NotFound):
                thread = call.thread(id=id)
                shape = ServedRun.seen(thread, thread.find_run(record.id), cost=query.cost)
                found.append((place, shape))
    kept = [shape for _, shape in found[: query.size]]
    page = ServedRuns(thread=query.thread, runs=kept, damaged=[], more=len(found) > len(kept))
    return Paged(page, found[query.size - 1][0] if page.more else None)


def _ended_runs(call: HttpCall, query: StoreRunsQuery) -> Paged[ServedRuns]:
    """List runs that have ended, newest first; `next` leads on from the last one that was looked at."""
    if query.thread is None:
        threads = ThreadList(call).all(
            advice="Name a `thread`, or leave `state` out: runs that have not ended are listed."
        )
    else:
        threads = [call.thread(id=query.thread)]
    found, damaged = list[ServedRun](), set[str]()
    last: str | None = None
    end = 0.0
    lines = [_runs_back(thread, query.after, damaged) for thread in threads]
    for thread, record in heapq.merge(*lines, key=lambda each: each[1].id, reverse=True):
        if last is None:
            end = (
                time.monotonic() + _RUNS_SECONDS
            )  # from the first on: what it costs to find that is no choice
        elif len(found) == query.size or time.monotonic() > end:
            break
        last = record.id
        if record.state in ENDED and query.state in ("ended", record.state):
            found.append(ServedRun.seen(thread, record, cost=query.cost))
    else:
        last = None
    page = ServedRuns(thread=query.thread, runs=found, damaged=sorted(damaged), more=last is not None)
    return Paged(page, last)


def _runs_back(thread: Thread, before: str | None, damaged: set[str]) -> Iterator[tuple[Thread, RunRecord]]:
    """Yield the runs of a thread from the newest on, or from the one before a run; a thread that is `damaged` is noted."""
    size = 1
    try:
        while page := sorted(thread.runs(limit=size, before=before), key=lambda each: each.id, reverse=True):
            yield from ((thread, each) for each in page)
            if len(page) < size:
                return
            before, size = page[-1].id, min(4 * size, _RUNS_AT_ONCE)
    except Corrupt:
        damaged.add(thread.id)
    except NotFound:  # the thread was removed
        return


class ServedAgent(NamedAgent, frozen=True, kw_only=True):
    """One agent, and whether this server can run it."""

    served: bool


class ServedAgents(msgspec.Struct, frozen=True, kw_only=True):
    """The agents of a store, by name."""

    agents: list[ServedAgent]
    more: bool  # whether there are others beyond the limit


@route("GET", "/v1/agents", "read")
def list_agents(call: HttpCall, query: PageQuery) -> Paged[ServedAgents]:
    """List agents by name, with their backends and versions."""
    found = list(islice(_agents(call, query.after), query.size + 1))
    kept = found[: query.size]
    page = ServedAgents(
        agents=[ServedAgent.of(call.store, name, served=call.server.can_run(name)) for name in kept],
        more=len(found) > len(kept),
    )
    return Paged(page, kept[-1] if page.more else None)


def _agents(call: HttpCall, after: str | None) -> Iterator[str]:
    """Yield the agents after a name that the credential may see, by name; others are not looked at."""
    if call.access.agents is None:
        listed = call.store.agents(after=after) if call.access.sees_agent("") else iter(())
        yield from (name for name in listed if name != SERVER)
        return
    for name in sorted(call.access.agents):
        if (after is None or name > after) and call.access.sees_agent(name) and _is_agent(call, name):
            yield name


def _is_agent(call: HttpCall, name: str) -> bool:
    """True if a store has the agent: the first name that begins with the whole of it is the name itself."""
    return name != SERVER and next(call.store.agents(prefix=name), None) == name


@route("GET", "/v1/agents/{agent}", "read")
def show_agent(call: HttpCall, query: PageQuery) -> Paged[AgentDetail]:
    """Show one agent: its definition, the last versions of it, and a page of its threads, by id."""
    name = call.segments["agent"]
    if not call.access.sees_agent(name) or not _is_agent(call, name):
        raise NotFound(f"there is no agent '{name}'; nothing was read.", code="agent_not_found", agent=name)
    versions = islice(call.store.definitions.versions(name), _VERSIONS_SHOWN)
    listed = ThreadList(call, agent=name, after=query.after)
    found = [each.id for each in islice(listed, query.size + 1)]
    threads = found[: query.size]
    page = AgentDetail(name=name, threads=threads, versions=[VersionShape.of(each) for each in versions])
    return Paged(page, listed.cursor(threads[-1]) if len(found) > len(threads) else listed.next)


class BackendShape(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalog, and what it costs for a million tokens; null: unknown."""

    name: str
    window: int | None
    input_usd: float | None
    output_usd: float | None


class BackendPage(msgspec.Struct, frozen=True, kw_only=True):
    """The models that a switch can name."""

    backends: list[BackendShape]


@route("GET", "/v1/backends", "read")
def list_backends(call: HttpCall) -> BackendPage:
    """List the models of the catalog."""
    cards = catalog.shipped().cards()
    return BackendPage(
        backends=[
            BackendShape(
                name=card.backend,
                window=card.context_window,
                input_usd=card.prices.input if card.prices else None,
                output_usd=card.prices.output if card.prices else None,
            )
            for card in cards
        ]
    )


class ArtifactsQuery(PageQuery, frozen=True, kw_only=True):
    """Which artifacts: with `calls` also the results of calls."""

    calls: bool = False
    timeline: str = "main"


@route("GET", "/v1/threads/{thread}/artifacts", "read")
def list_artifacts(call: HttpCall, query: ArtifactsQuery) -> Paged[ArtifactPage]:
    """List the artifacts of a thread."""
    thread = call.thread(query.timeline)
    listed = iter(thread.artifacts.ls(calls=query.calls))
    if query.after is not None:
        for each in listed:
            if _row(each) == query.after:
                break
        else:
            raise Invalid(
                "the artifact with which the page before this one ended is not listed; nothing was read.",
                code="cursor_invalid",
                advice="Begin the list again.",
                cursor=query.after,
            )
    found = list(islice(listed, query.size + 1))
    kept = found[: query.size]
    page = ArtifactPage(
        thread=thread.id,
        artifacts=[ArtifactShape.of(each) for each in kept],
        more=len(found) > len(kept),
    )
    return Paged(page, _row(kept[-1]) if page.more else None)


def _row(listed: Listed) -> str:
    """Return what names one row: results of several calls may have one digest, which may be listed, too."""
    return f"{listed.digest}.{listed.call or ''}.{'' if listed.at is None else listed.at}"


@route("GET", "/v1/artifacts/{digest}", "read", media="application/octet-stream")
def get_artifact(call: HttpCall, query: OfThread) -> Response:
    """Read the content of an artifact of a thread, as an attachment."""
    artifacts = call.thread(query.timeline, id=query.thread).artifacts
    known = artifacts.show(call.segments["digest"])
    call.is_by_digest = True
    pieces = artifacts.get(known.digest)
    first = next(pieces, None)  # here, so that content that is not there is a problem and no half answer
    essence = known.media_type.partition(";")[0].strip().lower()
    name = (known.name or known.digest).rpartition("/")[2][:100]
    return StreamingResponse(
        _sent(call, first, pieces),
        media_type=essence if essence in _IMAGES else "application/octet-stream",
        headers={
            "Content-Length": str(known.size),
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
            "Content-Security-Policy": "sandbox; default-src 'none'",
        },
    )


async def _sent(call: HttpCall, first: bytes | None, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the pieces of an artifact as the client takes them; only one is in memory."""
    piece = first
    while piece is not None:
        yield piece
        piece = await call.server.store.off_loop(lambda: next(pieces, None))


class SearchQuery(PageQuery, frozen=True, kw_only=True):
    """Which words, in the newest messages of which threads, or in all messages of a `timeline` of one `thread`."""

    q: str
    thread: str | None = None
    timeline: str = MAIN  # of `thread`
    owner: str | None = None
    agent: str | None = None
    limit: int = 20


@route("GET", "/v1/search", "read")
def search(call: HttpCall, query: SearchQuery) -> Paged[SearchPage]:
    """Search the newest messages of threads for words, or all messages of one; a page reads for a bounded time.

    Calls with their arguments, results and reasoning are searched, too; a hit says where it was found.  Titles that the
    words are in come beside the messages.
    """
    words = words_in(query.q)
    if query.thread is not None:
        return _search_timeline(call.thread(query.timeline, id=query.thread), query, words)
    titles: list[FoundTitle] = []
    found: list[FoundMessage] = []
    scanned, last, end = 0, None, time.monotonic() + _SEARCH_SECONDS
    threads = ThreadList(call, owner=query.owner, agent=query.agent, after=query.after)
    for thread in threads:
        is_over = time.monotonic() > end or scanned >= _MESSAGES_SCANNED_MAX or len(found) >= query.size
        if last is not None and is_over:  # a page reads one thread at least
            page = SearchPage(query=query.q, titles=titles, found=found, scanned=scanned, more=True)
            return Paged(page, threads.cursor(last))
        last = thread.id
        titles += FoundTitle.every(thread, words)
        turns = turns_of(thread, limit=_THREAD_MESSAGES_MAX // 4)
        scanned += sum(len(turn.entries) for turn in turns)
        found += islice(found_in(thread, turns, words), 2 * query.size - len(found))
    after = threads.next
    page = SearchPage(query=query.q, titles=titles, found=found, scanned=scanned, more=after is not None)
    return Paged(page, after)


def _search_timeline(thread: Thread, query: SearchQuery, words: list[str]) -> Paged[SearchPage]:
    """Search the turns of one timeline from its end, or from the moment `after`, as far back as a page reads."""
    found: list[FoundMessage] = []
    scanned, before, end = 0, query.after, time.monotonic() + _SEARCH_SECONDS
    for some, read, begun in search_back(thread, words, query.after):
        found += some
        scanned += read
        before = begun
        if time.monotonic() > end or len(found) >= query.size:
            break
    titles = FoundTitle.every(thread, words) if query.after is None else []
    page = SearchPage(query=query.q, titles=titles, found=found, scanned=scanned, more=before is not None)
    return Paged(page, before)


class CostsQuery(PageQuery, frozen=True, kw_only=True):
    """What to add up: the costs of one thread, or of `limit` threads."""

    by: Literal["thread", "owner", "agent", "model"] = "thread"
    thread: str | None = None


@route("GET", "/v1/costs", "read")
def show_costs(call: HttpCall, query: CostsQuery) -> Paged[CostPage]:
    """Show what models cost, thread by thread in the order of their ids.

    A page adds up the next `limit` threads, or fewer if that takes long, and its total is of those alone: an owner,
    an agent or a model may be on several pages, whose costs are to be added.
    """
    if query.thread is not None:
        return Paged(CostPage.of(query.by, _spent(call.thread(id=query.thread), query.by)), None)
    spent: list[tuple[str | None, Cost, Usage]] = []
    size, end = query.size, time.monotonic() + _COSTS_SECONDS
    last, listed = None, ThreadList(call, after=query.after)
    for number, thread in enumerate(listed):
        if number == size or (
            last is not None and time.monotonic() > end
        ):  # a page reads one thread at least
            return Paged(CostPage.of(query.by, spent), listed.cursor(last or ""))
        last = thread.id
        spent += _spent(thread, query.by)
    return Paged(CostPage.of(query.by, spent), listed.next)


def _spent(thread: Thread, by: str) -> list[tuple[str | None, Cost, Usage]]:
    whose = {"thread": thread.id, "owner": thread.owner, "agent": thread.agent}
    spent = thread.costs("model" if by == "model" else "run")
    return [(whose.get(by, name), cost, usage) for name, cost, usage in spent]


class VerifiedStore(VerifyShape, frozen=True, kw_only=True):
    """What was checked, from the first commit to what was stored when the check began, and what is wrong."""

    began_at: str
    ended_at: str


@route("GET", "/v1/verify", "administer", whole_store=True)
async def verify(call: HttpCall) -> VerifiedStore:
    """Verify everything that is stored.

    With `Accept: text/event-stream` the answer is `verify.progress` events with how much is `done` of a `total`, and
    then `verify.finished` with the result; the check stops if the client leaves.
    """
    if "text/event-stream" in call.headers.get("accept", ""):
        return call.server.stream(call, _verifying(call))  # pyright: ignore[reportReturnType]
    return await call.server.in_own_thread(lambda: _verified(call))


def _verified(call: HttpCall, progress: Progress | None = None) -> VerifiedStore:
    began_at = stamp(now())
    shape = VerifyShape.of(call.store.url, call.store.verify(progress=progress))
    return VerifiedStore(**msgspec.structs.asdict(shape), began_at=began_at, ended_at=stamp(now()))


class _ReaderLeft(Exception):
    """Stops a check that has no reader any more."""


async def _verifying(call: HttpCall) -> AsyncIterator[bytes]:
    """Yield how far a check is, whenever that has changed, and then its result."""
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    seen: list[tuple[int, int]] = []
    has_left = False

    def progress(_: str, done: int, total: int) -> None:
        if has_left:
            raise _ReaderLeft
        seen[:] = [(done, total)]
        loop.call_soon_threadsafe(changed.set)

    async def check() -> VerifiedStore:
        try:
            return await call.server.in_own_thread(lambda: _verified(call, progress))
        finally:
            changed.set()

    checking = call.server.keep(check())
    try:
        while not checking.done():
            await changed.wait()
            changed.clear()
            for done, total in seen:
                yield frame("verify.progress", {"type": "verify.progress", "done": done, "total": total})
            await asyncio.wait({checking}, timeout=_PROGRESS_SECONDS)
        yield frame("verify.finished", {"type": "verify.finished", "result": checking.result()})
    except PerdureError as error:
        yield frame("error", problem_of(error, place=call.server.place)[0])
    finally:
        has_left = True


class SessionShape(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, and what there is to ask about."""

    name: str
    roles: list[str]
    agents: list[str] | None
    owners: list[str] | None
    threads: list[str] | None
    version: str
    store: str  # the address for admins, for others only its last part
    read_only: bool
    served: list[str]  # agents that this server can run

    @classmethod
    def of(cls, call: HttpCall) -> SessionShape:
        """Return what a credential may do here."""
        access, server, url = call.access, call.server, call.store.url
        return cls(
            name=access.name,
            roles=list(access.roles),
            agents=None if access.agents is None else list(access.agents),
            owners=None if access.owners is None else list(access.owners),
            threads=None if access.threads is None else list(access.threads),
            version=server.version,
            store=url if access.may("administer") else last_part(url),
            read_only=call.store.read_only,
            served=call.served,
        )


@route("GET", "/v1/session", "read")
def show_session(call: HttpCall) -> SessionShape:
    """Show who asks, and what that credential may do."""
    return SessionShape.of(call)

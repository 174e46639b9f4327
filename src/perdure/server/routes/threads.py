"""Reading threads: lists, one thread, its history, state, calls and runs.  Every answer is a shape of `--json`."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable
from itertools import chain, islice
from typing import Literal

import msgspec

from perdure.errors import Corrupt, Forgotten, NotFound
from perdure.history.changes.json_edits import parse_place
from perdure.ledger.repeat_guard import is_told
from perdure.model.call import CallRecord, CallState
from perdure.model.digest import Digest
from perdure.model.effect import Effect
from perdure.model.head import MAIN
from perdure.model.run import RunRecord, RunState
from perdure.model.ticket import Ticket
from perdure.server.limited import LimitedThread
from perdure.server.problems import last_part
from perdure.server.routing import (
    BaseQuery,
    HttpCall,
    LineQuery,
    MomentQuery,
    Paged,
    PageQuery,
    WindowQuery,
    no_thread,
    page_size,
    read_cursor,
    route,
)
from perdure.server.thread_list import ThreadList
from perdure.shapes.comparison import Comparison
from perdure.shapes.conversation import (
    DAMAGED,
    WORDS_MAX,
    CommitLog,
    GraphPage,
    TranscriptPage,
    TurnPage,
    transcript_of,
)
from perdure.shapes.imported import titled
from perdure.shapes.ledger import (
    ApprovalDetail,
    CallDetail,
    CallPage,
    CallRecordShape,
    CostShape,
    RunDetail,
    RunPage,
    RunShape,
)
from perdure.shapes.lookup import (
    call_seen_from,
    held_from,
    interrupted_calls,
    interrupted_runs,
    lately,
    run_of,
)
from perdure.shapes.path_log import PathLog
from perdure.shapes.store import BlameShape, EntryShape, StatePage, StateValue, whose
from perdure.shapes.text import now, shortened, stamp
from perdure.shapes.threads import (
    ContextShape,
    HeadShape,
    MovePage,
    MoveShape,
    ThreadDetail,
    ThreadShape,
    TimelineShape,
)
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["ObjectShape", "ThreadRow", "ThreadRows", "TimelinePage"]

_SAID_LAST = 4  # messages among which an overview looks for words: a message that only calls a tool has none
_LIST_SECONDS = 2.0  # for which one page of a filtered list looks at threads
_DAY = 86_400 * 1_000_000  # µs


class ThreadsQuery(PageQuery, frozen=True, kw_only=True):
    """Which threads: words of their ids, titles, agents and owners, one owner or agent, a state.

    The state is that of a run that is `running` or `waiting`, or the last run `failed`, or the outcome of a call is
    `unknown`.

    The server's own thread is listed only where `agent` names it.
    `backend` is a part of the name of the backend that takes the next turn, the cost is that of all runs in US dollars,
    and the age is the time since the newest commit of main.  These three, and words, read the histories of threads: a
    page that takes long has fewer threads, and `next` leads on.  With `cost` each row has what its runs cost.
    With `newest` those come first whose main was committed to last, imported ones by what was said last; that is refused
    beyond 10,000 threads.
    """

    q: str | None = None
    owner: str | None = None
    agent: str | None = None
    state: Literal["running", "waiting", "failed", "unknown"] | None = None
    backend: str | None = None
    cost_usd_min: float | None = None
    cost_usd_max: float | None = None
    age_days_min: float | None = None
    age_days_max: float | None = None
    cost: bool = False
    newest: bool = False

    def fits(self, thread: Thread) -> bool:
        """True if a thread has the words, and what its history says is within the bounds."""
        if self.state == "failed" and [each.state for each in thread.runs(limit=1)] != ["failed"]:
            return False
        named = f"{thread.id} {thread.agent} {thread.owner or ''}".casefold()
        words = [word for word in (self.q or "").casefold().split() if word not in named]
        if words and titled(thread, words) is None:
            return False
        if self.backend is not None and self.backend.casefold() not in (thread.at().backend or "").casefold():
            return False
        bounds = (
            (self.age_days_min, self.age_days_max, _age_days),
            (self.cost_usd_min, self.cost_usd_max, _cost_usd),
        )
        return all(
            _is_within(measured(thread), least, most)
            for least, most, measured in bounds
            if (least, most) != (None, None)
        )


def _is_within(number: float, least: float | None, most: float | None) -> bool:
    return (least is None or number >= least) and (most is None or number <= most)


def _age_days(thread: Thread) -> float:
    newest = next(iter(thread.at().log(limit=1)), None)
    return (now() - (newest.at if newest else thread.begun_at)) / _DAY


def _cost_usd(thread: Thread) -> float:
    return thread.cost().usd


class ThreadRow(ThreadShape, frozen=True, kw_only=True):
    """One thread of a list, with what an overview shows of it."""

    backend: str | None  # that takes the next turn
    damaged: bool  # what the row shows of it cannot be read: `last` is empty, and so may be the rest
    last: str  # the beginning of the newest message of main that has words
    approvals: int  # calls that wait for a person
    running: bool  # a run is under way
    interrupted: bool  # the process of a run ended before it did: it can be resumed
    held: bool  # its open runs and approvals came from another store, and wait until an admin releases them
    unknown: int  # calls whose outcome is unknown, also because they were under way when their process ended
    state: str | None  # of its newest run; null: it has none
    cost: CostShape | None  # of all its runs, over all timelines; null: the query did not ask for it


class ThreadRows(msgspec.Struct, frozen=True, kw_only=True):
    """The threads of a store, by id."""

    threads: list[ThreadRow]
    more: bool  # whether there are others beyond the limit
    near: list[str]  # always empty here: names that may have been meant


@route("GET", "/v1/threads", "read")
def list_threads(call: HttpCall, query: ThreadsQuery) -> Paged[ThreadRows]:
    """List threads by id, or the newest first."""
    kept, after = _page_of_threads(call, query)
    work = OpenWork(call.store)
    rows = [_row(each, work, has_cost=query.cost) for each in kept]
    return Paged(ThreadRows(threads=rows, more=after is not None, near=[]), after)


class OpenWork:
    """What waits, runs or is unclear in the threads of a store, with the id of its thread."""

    def __init__(self, store: Store) -> None:
        """Read it once for a whole list."""
        cut_off = interrupted_runs(store)
        interrupted = {(thread.id, record.id) for thread, record in cut_off}
        self.approvals = [(each.thread, each.ticket) for each in store.approvals()]
        self.unknown = [*interrupted_calls(store, cut_off), *store.unclear_calls()]
        self.interrupted = [(thread.id, record) for thread, record in cut_off]
        self.runs = list(store.open_runs())
        self.running = [
            (thread, record)
            for thread, record in self.runs
            if record.state == "running" and (thread, record.id) not in interrupted
        ]


def _seen_of(thread: Thread, work: Iterable[tuple[str, RunRecord | CallRecord | Ticket]]) -> int:
    """Return how much of some work is in a thread, as far as the credential may see it."""
    own = [record for id, record in work if id == thread.id]
    return sum(not isinstance(thread, LimitedThread) or thread.sight.sees_work(each) for each in own)


def _row(thread: Thread, work: OpenWork, *, has_cost: bool) -> ThreadRow:
    try:
        return _whole_row(thread, work, has_cost=has_cost)
    except Corrupt:
        return _damaged_row(thread, work)


def _damaged_row(thread: Thread, work: OpenWork) -> ThreadRow:
    """Return what is known of a thread without reading it: one that is damaged does not keep a list from its readers."""
    return ThreadRow(
        id=thread.id,
        agent=thread.agent,
        owner=thread.owner,
        begun_at=stamp(thread.begun_at),
        title=None,
        last_at=None,
        said_at=None,
        turns=0,
        timelines=0,
        head=HeadShape(timeline=MAIN, version=0, commit=None),
        backend=None,
        damaged=True,
        last="",
        approvals=sum(id == thread.id for id, _ in work.approvals),
        running=False,
        interrupted=False,
        held=False,
        unknown=sum(id == thread.id for id, _ in work.unknown),
        state=None,
        cost=None,
    )


def _whole_row(thread: Thread, work: OpenWork, *, has_cost: bool) -> ThreadRow:
    seen = thread.at()
    last = transcript_of(seen, limit=_SAID_LAST)
    said = [DAMAGED if entry.is_damaged else entry.text for entry in last]
    return ThreadRow(
        **msgspec.structs.asdict(ThreadShape.of(thread)),
        backend=seen.backend,
        damaged=any(entry.is_damaged for entry in last),
        last=shortened(next((text for text in reversed(said) if text), ""), WORDS_MAX),
        approvals=_seen_of(thread, work.approvals),
        running=_seen_of(thread, work.running) > 0,
        interrupted=_seen_of(thread, work.interrupted) > 0,
        held=_seen_of(thread, [*work.runs, *work.approvals]) > 0 and held_from(thread) is not None,
        unknown=_seen_of(thread, work.unknown),
        state=next((record.state for record in thread.runs(limit=1)), None),
        cost=CostShape.of(thread.cost()) if has_cost else None,
    )


def _page_of_threads(call: HttpCall, query: ThreadsQuery) -> tuple[list[Thread], str | None]:
    """Return the threads of a page, and the cursor of the next one; None: there is no other."""
    kept: list[Thread] = []
    last, until = None, time.monotonic() + _LIST_SECONDS
    state = query.state if query.state in ("running", "waiting") else None
    listed = ThreadList(
        call, owner=query.owner, agent=query.agent, state=state, after=query.after, newest=query.newest
    )
    unclear: list[tuple[str, CallRecord]] = []
    if query.state == "unknown":
        unclear = [*interrupted_calls(call.store), *call.store.unclear_calls()]
    for thread in listed:
        if last is not None and time.monotonic() > until:
            return kept, listed.cursor(last)
        if (query.state != "unknown" or _seen_of(thread, unclear)) and _fits(query, thread):
            if len(kept) == query.size:
                return kept, listed.cursor(kept[-1].id)
            kept.append(thread)
        last = thread.id
    return kept, listed.next


class ServedThread(ThreadDetail, frozen=True, kw_only=True):
    """One thread at a moment, and whether its open runs and approvals are held."""

    held: bool  # they came from another store, and wait until an admin releases the thread
    held_from: str | None  # the file or database that they came from; null: they are not held


@route("GET", "/v1/threads/{thread}", "read")
def show_thread(call: HttpCall, query: MomentQuery) -> ServedThread:
    """Show one thread: its timelines, the size of its state, and its last messages."""
    thread, seen = call.seen(query)
    call.is_by_digest = False  # its timelines and its cost change
    source = held_from(thread)
    if source is not None and not _has_open_work(call.store, thread):
        source = None
    return ServedThread(
        **msgspec.structs.asdict(ThreadDetail.of(thread, seen)),
        held=source is not None,
        held_from=None if source is None else last_part(source),
    )


def _has_open_work(store: Store, thread: Thread) -> bool:
    """True if a run of a thread has not ended, or an approval waits, as far as the credential may see it."""
    asked = ((each.thread, each.ticket) for each in store.approvals())
    return _seen_of(thread, chain(store.open_runs(), asked)) > 0


def _fits(query: ThreadsQuery, thread: Thread) -> bool:
    try:
        return query.fits(thread)
    except Corrupt:
        return True  # it may fit, and its row says that it is damaged


@route("GET", "/v1/threads/{thread}/turns", "read")
def list_turns(call: HttpCall, query: WindowQuery) -> Paged[TurnPage]:
    """List the turns of a timeline up to a moment, oldest first."""
    thread, seen = _window(call, query)
    call.is_by_digest = False  # the state of a run that has not ended changes
    page = TurnPage.of(thread, seen, limit=query.size)
    return Paged(page, page.turns[0].before if page.more else None)


@route("GET", "/v1/threads/{thread}/log", "read")
def list_commits(call: HttpCall, query: WindowQuery) -> Paged[CommitLog]:
    """List the commits of a timeline up to a moment, newest first."""
    thread, seen = _window(call, query)
    call.is_by_digest = False  # the heads that it names move
    page = CommitLog.of(thread, seen, limit=query.size)
    return Paged(page, page.commits[-1].parents[0] if page.more else None)


@route("GET", "/v1/threads/{thread}/transcript", "read")
def list_messages(call: HttpCall, query: WindowQuery) -> Paged[TranscriptPage]:
    """List the messages of a timeline up to a moment, oldest first."""
    thread, seen = _window(call, query)
    page = TranscriptPage.of(thread, seen, limit=query.size)
    if not page.more:
        return Paged(page, None)
    # A page begins with a whole commit, so that the next one goes on before it.
    first = page.messages[0].commit
    return Paged(page, next(iter(thread.at(first).log(limit=1))).parents[0])


def _window(call: HttpCall, query: WindowQuery) -> tuple[Thread, View]:
    at = query.at if query.after is None else query.after
    return call.seen(MomentQuery(timeline=query.timeline, at=at))


class GraphQuery(BaseQuery, frozen=True, kw_only=True):
    """How many turns of the graph; with `brief` only the beginning of what was said in them.

    With `dropped` the graph has the timelines that were dropped, too.
    """

    limit: int = 50
    brief: bool = False
    dropped: bool = False


@route("GET", "/v1/threads/{thread}/graph", "read")
def show_graph(call: HttpCall, query: GraphQuery) -> GraphPage:
    """Show the newest turns of all timelines, each after those that follow it; `turns` leads to older ones."""
    limit = page_size(query.limit)
    return GraphPage.of(call.thread(), limit=limit, brief=query.brief, dropped=query.dropped)


class TimelinePage(msgspec.Struct, frozen=True, kw_only=True):
    """The timelines of a thread, `main` first."""

    thread: str
    timelines: list[TimelineShape]


@route("GET", "/v1/threads/{thread}/timelines", "read")
def list_timelines(call: HttpCall) -> TimelinePage:
    """List the timelines of a thread."""
    thread = call.thread()
    return TimelinePage(thread=thread.id, timelines=TimelineShape.every(thread, thread.at()))


class MovesQuery(LineQuery, frozen=True, kw_only=True):
    """Which moves: those before a version, which `after` names."""

    limit: int = 50
    after: str | None = None


@route("GET", "/v1/threads/{thread}/moves", "read")
def list_moves(call: HttpCall, query: MovesQuery) -> Paged[MovePage]:
    """List the moves of a timeline's head, newest first."""
    thread = call.thread(query.timeline)
    before = None if query.after is None else read_cursor(query.after)
    size = page_size(query.limit)
    found = thread.moves(before=before, limit=size + 1)
    kept = found[:size]
    call.head = thread.head
    page = MovePage(
        thread=thread.id,
        timeline=thread.timeline,
        moves=[MoveShape.of(thread, each) for each in kept],
        more=len(found) > len(kept),
    )
    return Paged(page, str(kept[-1].version) if page.more else None)


class StateQuery(WindowQuery, frozen=True, kw_only=True):
    """Which paths of which moment."""

    prefix: str = "/"
    limit: int = 200


@route("GET", "/v1/threads/{thread}/state", "read")
def list_state(call: HttpCall, query: StateQuery) -> Paged[StatePage]:
    """List the paths of a state and their values."""
    thread, seen = call.seen(query)
    later = (entry for entry in seen.entries(query.prefix) if query.after is None or entry.path > query.after)
    found = list(islice(later, query.size + 1))
    kept = found[: query.size]
    page = StatePage(
        **whose(thread),
        commit=seen.digest,
        prefix=query.prefix,
        paths=[EntryShape.of(seen, entry) for entry in kept],
        more=len(found) > len(kept),
    )
    return Paged(page, kept[-1].path if page.more else None)


@route("GET", "/v1/threads/{thread}/state/{path}", "read")
def get_state(call: HttpCall, query: MomentQuery) -> StateValue:
    """Read the value at a path."""
    thread, seen = call.seen(query)
    return StateValue.of(thread, seen, "/" + call.segments["path"])


class BlameQuery(MomentQuery, frozen=True, kw_only=True):
    """Which path of which moment; `place` inside the document: one key, or a JSON list of keys and indexes."""

    path: str
    place: str | None = None


@route("GET", "/v1/threads/{thread}/blame", "read")
def blame(call: HttpCall, query: BlameQuery) -> BlameShape:
    """Find which commit, turn, message and backend wrote a value."""
    thread, seen = call.seen(query)
    place = () if query.place is None else parse_place(query.place)
    return BlameShape.of(thread, seen, query.path, place)


class StateLogQuery(WindowQuery, frozen=True, kw_only=True):
    """Which path up to which moment; `place` inside the document: one key, or a JSON list of keys and indexes."""

    path: str
    place: str | None = None
    limit: int = 20


@route("GET", "/v1/threads/{thread}/state-log", "read")
def list_path_versions(call: HttpCall, query: StateLogQuery) -> Paged[PathLog]:
    """List the commits that changed a path, newest first, with what it held then.

    A page that takes long has fewer, or none, and `next` leads on.
    """
    thread, seen = _window(call, query)
    call.is_by_digest = False  # how far a page goes depends on the time that it takes
    until = time.monotonic() + _LIST_SECONDS
    page, next = PathLog.of(
        thread,
        seen,
        query.path,
        () if query.place is None else parse_place(query.place),
        limit=query.size,
        is_late=lambda: time.monotonic() > until,
        has_values=True,
    )
    return Paged(page, next)


class DiffQuery(LineQuery, frozen=True, kw_only=True):
    """Which two moments; `a` null: before the first commit; `b` null: now."""

    a: str | None = None
    b: str | None = None
    prefix: str = "/"


@route("GET", "/v1/threads/{thread}/diff", "read")
def diff(call: HttpCall, query: DiffQuery) -> Comparison:
    """Compare two moments: state, messages and tool calls."""
    thread = call.thread(query.timeline)
    one = thread.at(query.a).digest
    other = thread.at().digest if query.b is None else thread.at(query.b).digest
    call.is_by_digest = (query.a, query.b) == (one, other)
    names = ("before the first commit" if query.a is None else query.a, query.b or query.timeline)
    return Comparison.of(thread, *names, thread.diff(one, other, prefix=query.prefix))


class ContextQuery(MomentQuery, frozen=True, kw_only=True):
    """Which moment, for which backend; `to` null: the one that took or takes the step."""

    to: str | None = None


@route("GET", "/v1/threads/{thread}/context", "read")
def context(call: HttpCall, query: ContextQuery) -> ContextShape:
    """Show the context that a backend gets, or got: each item, its tokens, and why it is in or out."""
    thread = call.server.declared(call.thread(query.timeline), only_reads=True)
    at = None if query.at is None else thread.at(query.at).digest
    if query.at is not None and query.to is None:
        shown = thread.shown(at)
        return ContextShape.of(thread, shown.plan, shown)
    plan = thread.plan(query.to) if query.at is None else thread.plan(query.to, at=at)
    return ContextShape.of(thread, plan, None)


class CallsQuery(PageQuery, frozen=True, kw_only=True):
    """Which calls of a thread.

    With `guarded_at` only external writes that were started and that the conversation at that moment does not have:
    made after it, on other timelines, or undone.  On a fork from there the repeat guard stops the same call.
    """

    run: str | None = None
    state: CallState | None = None
    effect: Effect | None = None
    timeline: str | None = None
    guarded_at: str | None = None


@route("GET", "/v1/threads/{thread}/calls", "read")
def list_calls(call: HttpCall, query: CallsQuery) -> Paged[CallPage]:
    """List the last tool calls of a thread, oldest first, over all its timelines; `after` leads to older ones."""
    thread = call.thread()
    point = None if query.guarded_at is None else thread.at(query.guarded_at).digest

    def wanted(each: CallRecord) -> bool:
        return (
            (query.after is None or each.id < query.after)
            and query.state in (None, each.state)
            and query.effect in (None, each.effect)
            and query.timeline in (None, each.timeline)
            and (query.guarded_at is None or _is_guarded(thread, each, point))
        )

    found = lately(lambda last: thread.calls(run=query.run, limit=last), wanted, query.size)
    kept = found[-query.size :]  # sorted by id
    page = CallPage(
        thread=thread.id,
        calls=[CallRecordShape.traced(thread, each) for each in kept],
        more=len(kept) < len(found),
    )
    return Paged(page, kept[0].id if page.more else None)


def _is_guarded(thread: Thread, each: CallRecord, point: Digest | None) -> bool:
    """True if a call was started, and the repeat guard stops an equal one on a fork from `point`."""
    if not (each.attempt and each.reach.guarded):
        return False
    return not is_told(thread._space, each, "", point)  # pyright: ignore[reportPrivateUsage]  # a fork has a new name


class ServedCall(CallDetail, frozen=True, kw_only=True):
    """One tool call, and whether its tool can be asked here."""

    reconcilable: bool  # this server has the tool, and it has a hook that finds out what happened


@route("GET", "/v1/threads/{thread}/calls/{call}", "read")
def show_call(call: HttpCall) -> ServedCall:
    """Show one call: its arguments, its result and its changes of state."""
    thread = call.thread()
    traced = thread.trace(call.segments["call"])
    detail = CallDetail.of(thread, traced)
    agent = call.server.agents.get(thread.agent)
    tool = None if agent is None else agent.toolbox.get(traced.record.tool)
    can_ask = tool is not None and tool.reconciler is not None
    return ServedCall(**msgspec.structs.asdict(detail), reconcilable=can_ask)


class ServedApproval(ApprovalDetail, frozen=True, kw_only=True):
    """One approval, and whether it is held."""

    held: bool  # its thread came from another store and was not released, so that nothing can be decided
    held_from: str | None  # the file or database that it came from; null: it is not held


@route("GET", "/v1/threads/{thread}/approvals/{call}", "read")
def show_approval(call: HttpCall) -> ServedApproval:
    """Show one approval: the call, the question and the deadline."""
    thread = call.thread()
    source = held_from(thread)
    detail = ApprovalDetail.of(thread, call_seen_from(thread, call.segments["call"], None))
    return ServedApproval(
        **msgspec.structs.asdict(detail),
        held=source is not None,
        held_from=None if source is None else last_part(source),
    )


class RunsQuery(PageQuery, frozen=True, kw_only=True):
    """Which runs."""

    state: RunState | None = None
    timeline: str | None = None


@route("GET", "/v1/threads/{thread}/runs", "read")
def list_runs(call: HttpCall, query: RunsQuery) -> Paged[RunPage]:
    """List the last runs of a thread, oldest first; `after` leads to older ones."""
    thread = call.thread()

    def wanted(each: RunRecord) -> bool:
        return query.state in (None, each.state) and query.timeline in (None, each.timeline)

    found = lately(lambda last: thread.runs(limit=last, before=query.after), wanted, query.size)
    kept = sorted(found, key=lambda each: each.id)[-query.size :]  # the last were read by id, too
    page = RunPage(
        thread=thread.id,
        runs=[RunShape.now(thread, each) for each in sorted(kept, key=lambda each: each.begun_at)],
        more=len(kept) < len(found),
    )
    return Paged(page, kept[0].id if page.more else None)


@route("GET", "/v1/threads/{thread}/runs/{run}", "read")
def show_run(call: HttpCall) -> RunDetail:
    """Show one run: its state, its messages and its calls."""
    thread, wanted = call.thread(), call.segments["run"]
    record = run_of(thread, wanted, None)
    if record is None:
        raise NotFound(
            f"'{thread.id}' has no run '{wanted}'; nothing was read.", code="run_not_found", run=wanted
        )
    return RunDetail.of(thread, record)


class ObjectShape(msgspec.Struct, frozen=True, kw_only=True):
    """A stored object: its bytes, as text if they are UTF-8."""

    thread: str
    digest: str
    kind: str
    size: int
    text: str | None
    base64: str | None


class OfThread(LineQuery, frozen=True, kw_only=True):
    """Whose content: objects and artifacts belong to a thread."""

    thread: str


@route("GET", "/v1/objects/{digest}", "read")
def show_object(call: HttpCall, query: OfThread) -> ObjectShape:
    """Read a stored object of a thread."""
    thread = call.thread(id=query.thread)
    try:
        found = thread.stored(call.segments["digest"])
    except Forgotten:
        raise
    except NotFound as error:
        raise error if error.code == "object_not_found" else no_thread(query.thread) from error
    call.is_by_digest = True
    try:
        text, coded = found.body.decode(), None
    except UnicodeDecodeError:
        text, coded = None, base64.b64encode(found.body).decode()
    return ObjectShape(
        thread=thread.id,
        digest=found.digest,
        kind=str(found.kind),
        size=len(found.body),
        text=text,
        base64=coded,
    )

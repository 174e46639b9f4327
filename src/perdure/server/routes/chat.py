"""Chat clients that exist: the AI SDK's `useChat`, and AG-UI.  A thread answers both under addresses of its own.

The newest message of the user is the input of a run, under the client's id of the message: sent again, it starts nothing.
What else the client has in its list is not written to the thread, whose history is the record.  Answers to questions
about calls are decisions under the name of the credential, which must be allowed to decide.  Leaving a stream never stops
the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import msgspec
from starlette.responses import Response

from perdure import aio
from perdure.context.render.media import taken_out
from perdure.errors import (
    Busy,
    Conflict,
    Invalid,
    Moved,
    NotFound,
    PerdureError,
    RunFailed,
    Unsupported,
)
from perdure.model.message import File, Image, Message
from perdure.model.run import ENDED, RunRecord
from perdure.model.ticket import Ticket
from perdure.runtime.events import Cursor
from perdure.runtime.session.records import RUN
from perdure.server.limited_handle import opened
from perdure.server.problems import HttpProblem, problem_of
from perdure.server.protocols import ag_ui, ai_sdk
from perdure.server.protocols.ag_ui import AgUiMessage, EventWriter, Position, RunAgentInput
from perdure.server.protocols.ai_sdk import AiSdkBody, ChunkWriter
from perdure.server.protocols.client_content import MediaLinks, ToolAnswer
from perdure.server.protocols.run_parts import (
    CommittedParts,
    Part,
    RunParts,
    history,
)
from perdure.server.routes.actions import can_go_on, is_misnamed, not_served, runner
from perdure.server.routing import HttpCall, LineQuery, page_size, route
from perdure.server.streams import EventStream, watched
from perdure.shapes.lookup import lately, run_of
from perdure.store.thread import Thread

__all__ = ["ClientMessages"]

_SNAPSHOT_MAX = 1_000  # messages
_CUT = "The server ended this stream before the answer. The run goes on: ask for the stream again."
_AGAIN = "/again/"  # between the client's id of a message and the run whose answer is replaced
_RUNS_MAX = 200  # of a thread, among which the run of a message is looked for
_LOOK_SECONDS = 0.1  # while another request may begin the same run


class HistoryQuery(LineQuery, frozen=True, kw_only=True):
    """How many of the last messages of our own are read."""

    limit: int = 200


class ClientMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The last messages of a timeline as a client holds them, oldest first."""

    thread: str
    timeline: str
    messages: list[dict[str, Any]]


# ---- the AI SDK


@route("GET", "/v1/threads/{thread}/ai-sdk", "read")
def ai_sdk_messages(call: HttpCall, query: HistoryQuery) -> ClientMessages:
    """Return the messages of a timeline as UI messages, for the `messages` of `useChat`.

    Messages that no run wrote are one UI message from one message of the user to the next.
    """
    thread = call.thread(query.timeline)
    links = MediaLinks(thread.id, call.root)
    found: list[dict[str, Any]] = []
    writer: ChunkWriter | None = None
    run, chunks = None, list[dict[str, Any]]()
    for entry, parts in history(thread, page_size(query.limit)):
        is_input = entry.role in ("user", "system")
        if entry.run != run or (is_input and run is None):
            run, writer = entry.run, None
        if is_input and writer is None:
            found.append(ai_sdk.user_message(links, entry.id, entry.role, entry.words))
            continue
        if writer is None:
            chunks, writer = [], ChunkWriter(links, run or entry.id)
            found.append({})
        chunks += writer.take(CommittedParts("", parts))
        found[-1] = ai_sdk.ui_message(chunks)
    messages = [each for each in found if each["parts"] or each["role"] != "assistant"]
    return ClientMessages(thread=thread.id, timeline=thread.timeline, messages=messages)


@route("POST", "/v1/threads/{thread}/ai-sdk", "operate", media="text/event-stream", if_match=False)
async def ai_sdk_chat(call: HttpCall, query: LineQuery, body: AiSdkBody) -> EventStream:
    """Run the agent with the newest message of `useChat`, or go on after approvals, as a UI message stream."""
    message = ai_sdk.newest(body)
    if message.role == "assistant":
        handle, run, tickets = await _answered(call, query.timeline, ai_sdk.answers_in(message))
        return _chunks(call, handle, run, after=tickets)
    handle = await opened(call, query.timeline)
    given = ai_sdk.input_in(message)
    id = await handle.off_loop(partial(_input_id, call, handle.target(), query.timeline, body, given))
    thread = await runner(call, query.timeline)
    record = await _begin(call, thread, query.timeline, given, id)
    return _chunks(call, thread or handle, record.id)


def _input_id(call: HttpCall, thread: Thread, timeline: str, body: AiSdkBody, given: Message) -> str:
    """Return the id under which a message of `useChat` is run: its own, or one for its next answer.

    A message that is edited, or whose answer is to be replaced, is undone first, with everything after it; calls that
    were made stay made, and the repeat guard knows them.  The next answer's id names the run that it replaces, so that
    the same request again replaces nothing.
    """
    message, is_again = ai_sdk.newest(body), body.trigger == "regenerate-message"
    own = message.id.partition(_AGAIN)[0]
    with suppress(Conflict):  # other words came under that id
        if thread.given(given, id=message.id) is None:
            return message.id
    runs = [each for each in thread.runs(limit=_RUNS_MAX) if each.timeline == thread.timeline]
    of_message = [each for each in runs if each.input and each.input[0].partition(_AGAIN)[0] == own]
    if not of_message:
        return message.id
    last = of_message[-1]
    id = last.input[0]
    try:
        thread.given(given, id=id)
    except Conflict as other:
        is_edited = (body.message_id or "").partition(_AGAIN)[0] == own
        if other.code != "input_id_reused" or not (is_edited or is_again):
            raise
    else:
        is_done = body.message_id is not None and id == f"{own}{_AGAIN}{body.message_id}"
        if not is_again or is_done or last.state in ("failed", "created", "running"):
            return id
    if last.state in ("created", "waiting"):
        raise Unsupported(
            f"the run of that message {'waits' if last.state == 'waiting' else 'has not begun'}, and is not replaced; "
            "nothing was undone.",
            code="regenerate_unsupported",
            advice="Answer its question, or cancel the run, first.",
            run=last.id,
        )
    # A run that waited may have a second turn, after others: the message is in the first.
    asked = lately(
        lambda limit: thread.turns(limit=limit),
        lambda each: each.run == last.id and each.kind == "message",
        1,
        others=False,
    )
    if asked:
        call.target(timeline).undo(to=asked[-1].before, op_id=f"again/{last.id}", author=call.access.name)
    return f"{own}{_AGAIN}{last.id}"


class StreamQuery(LineQuery, frozen=True, kw_only=True):
    """Which message of the assistant to read again; null: the one that is not complete yet."""

    message: str | None = None


@route("GET", "/v1/threads/{thread}/ai-sdk/{chat}/stream", "read", media="text/event-stream")
async def ai_sdk_resume(call: HttpCall, query: StreamQuery) -> Response:
    """Read the newest answer from its beginning, if it is not complete yet; else nothing (204).

    With `message`, the id of a UI message, read that one, complete or not.
    """
    handle = await opened(call, query.timeline)
    wanted = query.message

    def found() -> str | None:
        thread = handle.target()
        if wanted is not None:
            return thread.find_run(wanted).id
        record = run_of(thread, None, thread.timeline)
        return None if record is None or record.state in ENDED else record.id

    run = await handle.off_loop(found)
    return Response(status_code=204) if run is None else _chunks(call, handle, run)


def _chunks(call: HttpCall, handle: aio.Thread, run: str, *, after: Iterable[str] = ()) -> EventStream:
    """Answer with the chunks of a run."""
    writer = ChunkWriter(MediaLinks(handle.id, call.root), run, after=after)

    async def frames() -> AsyncIterator[bytes]:
        async for part in _guarded(call, RunParts(handle, run)):
            if isinstance(part, PerdureError):
                yield _data({"type": "error", "errorText": part.message})
            else:
                for chunk in writer.take(part):
                    yield _data(chunk)
        yield ai_sdk.DONE

    return call.server.stream(
        call, frames(), headers=ai_sdk.HEADERS, when_cut=_data({"type": "error", "errorText": _CUT})
    )


# ---- AG-UI


@route("GET", "/v1/threads/{thread}/ag-ui", "read")
def ag_ui_messages(call: HttpCall, query: HistoryQuery) -> ClientMessages:
    """Return the messages of a timeline as AG-UI has them, for the `initialMessages` of an agent."""
    thread = call.thread(query.timeline)
    messages = _ag_ui_messages(call, thread, page_size(query.limit))
    return ClientMessages(thread=thread.id, timeline=thread.timeline, messages=messages)


@route("POST", "/v1/threads/{thread}/ag-ui", "operate", media="text/event-stream", if_match=False)
async def ag_ui_run(call: HttpCall, query: LineQuery, body: RunAgentInput) -> EventStream:
    """Run the agent with the newest message of an AG-UI client, or go on after interrupts, as AG-UI events.

    With `Last-Event-ID` the events go on after that one.
    """
    body.check()
    last = call.headers.get("last-event-id")
    position = None if not last else Position.read(last)
    answers = await _resumed(call, query.timeline, body)
    if answers:
        handle, run, _ = await _answered(call, query.timeline, answers)
    else:
        thread = await runner(call, query.timeline)
        try:
            record = await _begin(call, thread, query.timeline, ag_ui.input_of(body.input), body.input.id)
        except (Conflict, Invalid) as error:
            reader = await opened(call, query.timeline)
            given = await reader.off_loop(partial(_as_recorded, call, reader.target(), body.input, error))
            record = await _begin(call, thread, query.timeline, given, body.input.id)
        handle, run = thread or await opened(call, query.timeline), record.id
    return _events(call, handle, run, body, position)


def _as_recorded(call: HttpCall, thread: Thread, message: AgUiMessage, error: Conflict | Invalid) -> Message:
    """Return the input of that id as it was given first; raises `error` unless it says the same.

    A client that got the list of messages from here has one text where several parts were sent, and addresses of this
    server in the place of the content of pictures and files.
    """
    if error.code not in ("input_id_reused", "message_part_unsupported"):
        raise error
    entries = thread.transcript(limit=_SNAPSHOT_MAX)
    words = next((each.words for each in entries if each.id == message.id and each.role == "user"), None)
    if words is None:
        raise error
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    given, links = taken_out(space, words), MediaLinks(thread.id, call.root)
    known = {
        links.to(named.uri): whole.uri
        for named, whole in zip(words.content, given.content, strict=True)
        if isinstance(named, Image | File) and isinstance(whole, Image | File)
    }
    if not ag_ui.says_the_same(given, ag_ui.input_of(message, known)):
        raise error
    return given


def _events(
    call: HttpCall, handle: aio.Thread, run: str, body: RunAgentInput, position: Position | None
) -> EventStream:
    """Answer with the events of a run: all, or those after a position."""

    async def frames() -> AsyncIterator[bytes]:
        at = position or Position(await _first_cursor(handle, run))
        if at.phase == "end":
            return
        known, is_stale = await handle.off_loop(partial(_compared, call, handle.target(), body))
        writer = EventWriter(body, at, known=known)
        if position is None:
            for event, id in writer.begin(is_stale=is_stale):
                yield await _event(call, handle, event, id)
        async for part in _guarded(call, RunParts(handle, run, at.cursor or None)):
            if isinstance(part, PerdureError):
                yield await _event(call, handle, *writer.fail(part.message, part.code))
            else:
                for event, id in writer.take(part):
                    yield await _event(call, handle, event, id)

    cut = {"type": "RUN_ERROR", "message": _CUT, "code": "stream_cut"}
    return call.server.stream(call, frames(), when_cut=_data(cut))


async def _first_cursor(handle: aio.Thread, run: str) -> str:
    """Return the cursor before the first event of a run, once it has begun; empty if it ended before."""
    while (found := await handle.cursor_before(run)) is None:
        if (await handle.find_run(run)).state in ENDED:
            return ""
        await asyncio.sleep(_LOOK_SECONDS)
    return found


async def _event(call: HttpCall, handle: aio.Thread, event: dict[str, Any], id: str) -> bytes:
    if event["type"] == ag_ui.SNAPSHOT:
        messages = await handle.off_loop(partial(_at_cursor, call, handle.target(), event["at"]))
        event = {"type": ag_ui.SNAPSHOT, "messages": messages}
    return _data(event, id=id or None)


def _at_cursor(call: HttpCall, thread: Thread, cursor: str) -> list[dict[str, Any]]:
    """Return the messages of a timeline as it was at a cursor."""
    return _ag_ui_messages(call, thread, _SNAPSHOT_MAX, at=Cursor.read(cursor).commit)


def _ag_ui_messages(
    call: HttpCall, thread: Thread, limit: int, *, at: str | None = None
) -> list[dict[str, Any]]:
    links = MediaLinks(thread.id, call.root)
    return [
        message
        for entry, parts in history(thread, limit, at=at)
        for message in ag_ui.messages_of(links, entry.id, entry.role, parts, entry.words)
    ]


def _compared(call: HttpCall, thread: Thread, body: RunAgentInput) -> tuple[set[str], bool]:
    """Return which messages after the input are the thread's, and whether those up to it are other than the thread's.

    A client may have fewer old messages than the thread.
    """
    roles = ("user", "assistant", "tool")
    before = [each.id for each in body.before if each.role in roles] if body.messages else []
    recorded = _ag_ui_messages(call, thread, min(_SNAPSHOT_MAX, 2 * len(body.messages) + 100))
    ids = [each["id"] for each in recorded if each["role"] in roles]
    upto = ids.index(before[-1]) + 1 if before and before[-1] in ids else 0
    is_stale = before != ids[max(0, upto - len(before)) : upto]
    return {each["id"] for each in recorded}, is_stale


async def _resumed(call: HttpCall, timeline: str, body: RunAgentInput) -> list[ToolAnswer]:
    """Return the decisions in a request: answers to interrupts, and results of calls that wait for one."""
    if not body.resume:
        return []
    handle = await opened(call, timeline)
    tickets = await handle.off_loop(
        lambda: [_ticket(handle.target(), each.interrupt_id) for each in body.resume]
    )
    return [ag_ui.answer_to(ticket, entry) for ticket, entry in zip(tickets, body.resume, strict=True)]


# ---- both


async def _guarded(call: HttpCall, parts: RunParts) -> AsyncIterator[Part | PerdureError]:
    """Yield the parts of a run; an error is the last of them."""
    try:
        async with aclosing(parts.read()) as read:
            async for part in read:
                yield part
    except Exception as error:  # noqa: BLE001  # the edge: every error is told
        problem = problem_of(error, place=call.server.place)[0]
        yield PerdureError(problem.detail, code=problem.code)


def _data(value: object, *, id: str | None = None) -> bytes:
    head = b"" if id is None else b"id: " + id.encode() + b"\n"
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


async def _answered(
    call: HttpCall, timeline: str, answers: Sequence[ToolAnswer]
) -> tuple[aio.Thread, str, list[str]]:
    """Decide what the client answered, and go on with the run that waits; return the thread, the run and the tickets."""
    if not call.access.may("decide"):
        raise HttpProblem(
            403,
            "role_insufficient",
            f"the roles of '{call.access.name}' do not allow to decide; nothing was done.",
        )
    thread = await runner(call, timeline)
    handle = thread or await opened(call, timeline)
    run, tickets, refused = await handle.off_loop(
        partial(_decide, handle.target(), answers, call.access.name)
    )
    await _go_on(call, thread, run)
    if refused is not None:
        raise refused
    return handle, run, tickets


def _decide(thread: Thread, answers: Sequence[ToolAnswer], by: str) -> tuple[str, list[str], Conflict | None]:
    """Record the decisions; return the run that they are about, the tickets, and the first refusal.

    A question that another person decided otherwise keeps that decision, an output that names only the call decides no
    later question about it, and the rest are decided all the same.
    Raises `Invalid` if there are none.
    """
    asked = [(ticket, answer) for answer in answers if (ticket := _asked(thread, answer)) is not None]
    run = asked[-1][0].run if asked else None
    refused: Conflict | None = None
    for ticket, answer in asked:
        try:
            thread.decide(
                answer.ticket or ticket.call, answer.verdict, value=answer.value, by=by, why=answer.why
            )
        except Conflict as error:
            if error.code not in ("decided", "question_not_named"):
                raise
            refused = refused or error
    if run is None:
        raise Invalid(
            "the last message is the assistant's, and answers no question about a call; nothing was run.",
            code="message_missing",
            advice="Send a message of the user. Tools that the client runs are not taken.",
        )
    return run, [ticket.id for ticket, _ in asked], refused


def _asked(thread: Thread, answer: ToolAnswer) -> Ticket | None:
    """Return the question that the client answers; None if the output is not the client's."""
    if answer.ticket is not None:
        return _ticket(thread, answer.ticket)
    try:
        found = thread.trace(answer.call, history=False).ticket
    except NotFound:
        return None
    is_own = found is not None and (found.decision is None or found.decision.verdict == answer.verdict)
    return found if is_own else None


def _ticket(thread: Thread, id: str) -> Ticket:
    found = thread.trace(id, history=False).ticket
    if found is None or found.id != id:
        raise NotFound(
            f"there is no question '{id}' here; nothing was decided.", code="ticket_not_found", ticket=id
        )
    return found


async def _begin(
    call: HttpCall, thread: aio.Thread | None, timeline: str, message: Message, id: str
) -> RunRecord:
    """Return the run of an input: the one that it started before, else a new one, which has begun or is queued.

    `thread` is None if this server cannot run the agent: then a worker begins the run.  A run that failed is tried
    again, one that was interrupted goes on.  Raises what `thread.run` raises before the run has begun, and `Invalid` if
    no worker can have the agent, because its name is a misspelled one.
    """
    if thread is None:
        return await call.server.store.off_loop(partial(_queued, call, timeline, message, id))
    found = await thread.given(message, id=id)
    if found is not None and not await thread.off_loop(partial(can_go_on, thread.target(), found)):
        return found
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = call.server.keep(watched(thread.stream(message, id=id), begun))
    while True:
        await asyncio.wait({task, begun}, timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        error = task.exception() if task.done() else None
        found = await thread.given(message, id=id)
        is_taken = found is not None and _is_taken(error, found.id)
        if error is not None and not isinstance(error, RunFailed) and not is_taken:
            raise error
        if found is not None and (task.done() or begun.done() or not await thread.interrupted(found.id)):
            return found


def _queued(call: HttpCall, timeline: str, message: Message, id: str) -> RunRecord:
    reader = call.target(timeline)
    if is_misnamed(call, reader):
        raise not_served(call)
    return reader.find_run(reader.start(message, id=id))


async def _go_on(call: HttpCall, thread: aio.Thread | None, run: str) -> None:
    """Go on with a run whose calls were decided, if this server can; else a worker does.

    A worker beside this server may be first: then the run goes on there.
    """
    while thread is not None and await thread.decided(run):
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = call.server.keep(watched(thread.resume_stream(run), begun))
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        error = task.exception() if task.done() else None
        if error is None or isinstance(error, RunFailed):
            return
        if not _is_taken(error, run):
            raise error
        if isinstance(error, Busy):
            return


def _is_taken(error: BaseException | None, run: str) -> bool:
    """True if a run was not carried on here because another process, or another request, carries it on."""
    match error:
        case Busy(holder=holder):
            return holder == run
        case Moved(cell=cell):
            return cell == RUN + run
        case _:
            return False

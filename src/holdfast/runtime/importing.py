"""Importing: a conversation in a vendor's format becomes part of a thread.

A request, a reply or a bare list of messages is read by its adapter.  Calls get ids of ours, each
with its own result, and enter the ledger as settled, or unknown where there is no result: nobody
here ran them.  One commit holds all of it; the same op_id again changes nothing.  A call under a name
that the vendor was told in the place of a tool's own goes by the tool's own, as it does in runs.

A thread keeps what was said.  Tools and options are the agent's: those of the request that the agent
does not have in the same way are reported as losses, as is whatever of the request could not be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import Conflict, Invalid, Moved
from holdfast.history import artifacts, reader
from holdfast.ledger import brought, settling
from holdfast.ledger.calls import Posting
from holdfast.ledger.guard import TWIN
from holdfast.model.call import CallRecord
from holdfast.model.canonical import encode_struct
from holdfast.model.context import Context, ToolSpec
from holdfast.model.digest import Digest, Kind, digest_of
from holdfast.model.effect import Reach
from holdfast.model.head import Head
from holdfast.model.message import Message, Text, ToolCall, ToolResult
from holdfast.providers import registry
from holdfast.providers.contract import Adapter, Asked, Loss, losses_of
from holdfast.runtime.desk import args_body
from holdfast.runtime.feed import Feed
from holdfast.runtime.ground import Ground
from holdfast.runtime.journal import Journal
from holdfast.runtime.meaning import by_spelling, fingerprint_here
from holdfast.runtime.media import brought_in
from holdfast.runtime.result import keep
from holdfast.runtime.slot import encode_result
from holdfast.runtime.tool import Tool

__all__ = ["Added", "add", "read"]

# By what a body of each kind is told: a request, or a reply.
_REQUESTS = ("messages", "contents", "input")
_REPLIES = ("choices", "output", "candidates")
_TRIES_MAX = 16
_NOTES = ("endpoint", "system")  # of a reader: whose server it was, and the form of words that are kept


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What was added to a thread."""

    head: Head
    messages: int
    calls: int
    losses: tuple[Loss, ...] = ()


def read(given: object, api: str) -> tuple[Context, tuple[Loss, ...]]:
    """What a request, a reply or a list of messages in that format says; raises `Invalid` if it is none."""
    adapter = registry.adapter(api)
    if isinstance(given, Mapping):
        body: Mapping[str, Any] = given  # pyright: ignore[reportUnknownVariableType]
        return _read_body(adapter, body)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return _asked(adapter.read_request({_field(api): list(given)}))  # pyright: ignore[reportUnknownArgumentType]
    raise Invalid(
        f"{api} is read from a request, a reply or a list of messages, not from {type(given).__name__}."
    )


def add(ground: Ground, given: object, *, api: str, op_id: str | None = None) -> Added:
    """Add what `given` says to the line; raises `Invalid`, having written nothing, if it cannot be read."""
    context, unread = read(given, api)
    called = by_spelling(ground.agent.toolbox, api)
    losses = losses_of(
        [loss for loss in unread if loss.where != "options.cache"],
        _tools(context, ground, called),
        _options(context, ground),
    )
    messages = [*_system(context), *context.messages]
    if not messages:
        raise Invalid("there is nothing to add: no message was found; nothing was written.")
    space = ground.space
    head = reader.head_to_move(space, ground.timeline)
    journal = Journal(ground, f"import:{space.ids()}", head, Feed("import"))
    draft = journal.draft("import")
    ours = _Ours(ground, called)
    for message in messages:
        said, staged = brought_in(space, ours.renamed(message))
        draft.hold(staged)
        draft.say(said, id=space.ids(), backend=None)
    postings = ours.postings(journal.run)
    journal.stage(draft)
    intent = (
        digest_of(Kind.BODY, b"\n".join(encode_struct(message) for message in messages)) if op_id else None
    )
    _write(journal, op_id, intent, postings)
    return Added(head=journal.head, messages=len(messages), calls=len(postings), losses=losses)


def _write(journal: Journal, op_id: str | None, intent: Digest | None, postings: list[Posting]) -> None:
    """Write what is staged, and have the repeat guard know the calls."""
    records = [posting.record for posting in postings]
    for _ in range(_TRIES_MAX):
        cells = brought.entering(journal.space, records)
        try:
            journal.write(op_id=op_id, intent=intent, cells=cells, postings=postings)
        except Moved as moved:
            if not moved.cell.startswith(TWIN):
                raise
        else:
            return
    raise Conflict("the same calls are started here all the time; nothing was added. Try again.")


def _read_body(adapter: Adapter, body: Mapping[str, Any]) -> tuple[Context, tuple[Loss, ...]]:
    if any(field in body for field in _REPLIES) or ("content" in body and "messages" not in body):
        reply = adapter.parse(body)
        return Context(messages=(reply.message,)), reply.losses
    return _asked(adapter.read_request(body))


def _asked(context: Context) -> tuple[Context, tuple[Loss, ...]]:
    return context, context.losses if isinstance(context, Asked) else ()


def _field(api: str) -> str:
    return {"openai-responses": "input", "gemini-generate": "contents"}.get(api, "messages")


def _system(context: Context) -> list[Message]:
    return [Message("system", (Text(context.system),))] if context.system else []


def _tools(context: Context, ground: Ground, called: Mapping[str, Tool]) -> list[Loss]:
    """The tools of a request that the agent does not declare in the same way."""
    toolbox = {**called, **ground.agent.toolbox}
    mine = {name: tool.spec for name, tool in toolbox.items()}
    losses: list[Loss] = []
    for at, spec in enumerate(context.tools):
        where = f"tools[{at}]"
        if spec.name not in mine:
            why = "a thread keeps no tools; the agent would have to declare it"
            losses.append(Loss(kind="dropped", where=where, what=f"tool '{spec.name}'", why=why))
        elif not _is_same(spec, mine[spec.name]):
            why = "the agent declares a tool of that name in another way, which stands"
            losses.append(Loss(kind="converted", where=where, what=f"tool '{spec.name}'", why=why))
    return losses


def _is_same(one: ToolSpec, other: ToolSpec) -> bool:
    return (one.description, one.parameters) == (other.description, other.parameters)


def _options(context: Context, ground: Ground) -> list[Loss]:
    """The options of a request that are not the agent's."""
    why = "a thread keeps no options; give it to the agent or to the backend"
    vendor = context.options.get("vendor")
    fields = [
        (f"vendor.{api}.{name}", name)
        for api, held in (vendor.items() if isinstance(vendor, Mapping) else ())
        for name in (held if isinstance(held, Mapping) else ())
        if name not in _NOTES
    ]
    named = [(name, name) for name in context.options if name != "vendor"]
    mine = ground.agent.options
    return [
        Loss(kind="dropped", where=f"options.{where}", what=name, why=why)
        for where, name in (*named, *fields)
        if where not in mine or mine[where] != context.options[where]
    ]


class _Ours:
    """Calls that get ids of ours as they come, and the results that belong to them."""

    def __init__(self, ground: Ground, called: Mapping[str, Tool]) -> None:
        self._ground = ground
        self._called = called  # tools by names that the vendor was told in the place of their own
        self._open: dict[str, list[str]] = {}  # by the vendor's id: our ids that have no result yet
        self._calls: dict[
            str, tuple[ToolCall, str]
        ] = {}  # by our id: the call, and what the vendor called it
        self._results: dict[str, ToolResult] = {}

    def renamed(self, message: Message) -> Message:
        """The message with ids of ours."""
        made = tuple(self._call(call) for call in message.tool_calls)
        results = tuple(self._result(result) for result in message.tool_results)
        return msgspec.structs.replace(message, tool_calls=made, tool_results=results)

    def postings(self, label: str) -> list[Posting]:
        """What enters the ledger."""
        return [self._posting(id, label) for id in self._calls]

    def _call(self, call: ToolCall) -> ToolCall:
        id = self._ground.space.ids()
        tool = self._called.get(call.name)
        made = ToolCall(id, tool.name if tool else call.name, call.args)
        self._open.setdefault(call.id, []).append(id)
        self._calls[id] = (made, call.id)
        return made

    def _result(self, result: ToolResult) -> ToolResult:
        waiting = self._open.get(result.call_id)
        if not waiting:
            return result  # it answers nothing here: it is kept, and never shown to a model
        mine = ToolResult(waiting.pop(0), result.status, result.content)
        self._results[mine.call_id] = mine
        return mine

    def _posting(self, id: str, label: str) -> Posting:
        space = self._ground.space
        call, vendor_id = self._calls[id]
        body = args_body(call.args)
        tool = self._ground.agent.toolbox.get(call.name)
        reach = tool.reach if tool else Reach()
        record = CallRecord(
            id=id,
            tool=call.name,
            state="proposed",
            args=body.digest,
            args_size=len(body.body),
            at=space.clock(),
            fingerprint=fingerprint_here(tool, call.args) if tool else "",
            version=tool.version if tool else None,
            timeline=self._ground.timeline,
            run=None,
            label=label,
            vendor_id=vendor_id,
            result_label=label,
        )
        result = self._results.get(id)
        if result is None:
            posting = settling.imported(record, reach=reach, why="no result came with it")
            return posting.also(objects=(body,))
        kept = keep(result)
        staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
        posting = settling.imported(
            record, staged=staged, preview=encode_result(result), status=result.status, reach=reach
        )
        return posting.also(objects=(body,))

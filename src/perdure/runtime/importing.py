"""Importing: a conversation in a vendor's format becomes part of a thread.

A request, a reply or a bare list of messages is read by its adapter.  Calls get ids of ours, each
with its own result, and enter the ledger as settled, or unknown where there is no result: nobody
here ran them.  A result finds its call also where that was imported before.  One commit holds all of
it; the same op_id again changes nothing, nor does a message whose id is on the line.  A call under a name
that the vendor was told in the place of a tool's own goes by the tool's own, as it does in runs.

A thread keeps what was said.  Tools and options are the agent's: those of the request that the agent
does not have in the same way are reported as losses, as is whatever of the request could not be read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from perdure.engines.contract import CellWrite
from perdure.errors import Conflict, Invalid, Moved, StaleHead
from perdure.history import artifacts, reader, writer
from perdure.history.space import removed
from perdure.ledger import brought, settling
from perdure.ledger.calls import Held, Posting
from perdure.ledger.guard import TWIN
from perdure.model import names
from perdure.model.call import CallRecord
from perdure.model.canonical import encode_struct
from perdure.model.context import Context, ToolSpec
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.effect import Reach
from perdure.model.event import Event, ToolCallCompleted
from perdure.model.head import Head
from perdure.model.message import Message, Text, ToolCall, ToolResult
from perdure.providers import registry
from perdure.providers.contract import Adapter, Asked, Loss, losses_of
from perdure.providers.wire.native import made_by, tool_of_id
from perdure.runtime.desk import args_body
from perdure.runtime.earlier_imports import Left, OpenImports, cells_for, items_of, left_of, matched, without
from perdure.runtime.feed import Feed
from perdure.runtime.ground import Ground
from perdure.runtime.journal import Journal
from perdure.runtime.meaning import by_spelling, fingerprint_here
from perdure.runtime.media import brought_in
from perdure.runtime.result import keep
from perdure.runtime.slot import encode_result
from perdure.runtime.tool import Tool

__all__ = ["Added", "add", "read"]

# By what a body of each kind is told: a request, or a reply.
_REQUESTS = ("messages", "contents", "input")
_REPLIES = ("choices", "output", "candidates", "steps")
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
        context = adapter.read_request({_field(api): list(given)})  # pyright: ignore[reportUnknownArgumentType]
        return _asked(
            msgspec.structs.replace(context, options={})
        )  # a list gives none; a reader knows defaults
    raise Invalid(
        f"{api} is read from a request, a reply or a list of messages, not from {type(given).__name__}."
    )


def add(
    ground: Ground,
    given: object,
    *,
    api: str,
    op_id: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    whole: bool = False,
) -> Added:
    """Add what `given` says to the line; raises `Invalid`, having written nothing, if it cannot be read.

    Messages whose ids were added to the line before are left out.  `provider` and `model` are who spoke as
    the assistant.  With `whole`, what is given begins with the whole transcript of the line, and only the
    rest is added; raises `Conflict` if it does not.
    """
    for what, label in (("provider", provider), ("model", model)):
        if label is not None:
            names.check_label(what, label)
    names.check_flag("whole", whole)
    context, unread = read(given, api)
    said = [*_system(context), *context.messages]
    intent = digest_of(Kind.BODY, b"\n".join(encode_struct(message) for message in said))
    losses = losses_of(
        [loss for loss in unread if loss.where != "options.cache"],
        _tools(context, ground, by_spelling(ground.agent.toolbox, api)),
        _options(context, ground),
    )
    found = writer.once(ground.space, op_id, intent) if op_id else None
    if found is not None:
        made = sum(len(message.tool_calls) for message in said)
        return Added(head=found.heads[0], messages=len(said), calls=made, losses=losses)
    adding = _Adding(ground, api, f"{provider or ''}:{model or ''}" if provider or model else None, model)
    for _ in range(_TRIES_MAX):
        try:
            added = adding.once(given, said, op_id, intent, whole=whole)
        except (Moved, StaleHead) as refused:  # another writer was first: look again at what is there
            if removed(ground.space) or adding.is_fenced_off(refused):
                raise
        else:
            return msgspec.structs.replace(added, losses=losses_of(losses, added.losses))
    raise Conflict(
        f"could not add messages to '{ground.timeline}' after {_TRIES_MAX} attempts, because others write there "
        "all the time; nothing was added. Try again."
    )


class _Adding:
    """How one conversation is added to a line."""

    def __init__(self, ground: Ground, api: str, backend: str | None, model: str | None) -> None:
        self._ground, self._api, self._backend, self._model = ground, api, backend, model

    def is_fenced_off(self, refused: Conflict) -> bool:
        """Whether a run has begun on the line, which trying again does not change."""
        fences = {fence.cell for fence in self._ground.space.fences}
        return isinstance(refused, Moved) and refused.cell in fences

    def once(
        self, given: object, said: Sequence[Message], op_id: str | None, intent: Digest, *, whole: bool
    ) -> Added:
        """Add it to the head as it is now; raises `Moved` or `StaleHead` if others write there meanwhile."""
        space = self._ground.space
        head = reader.head_to_move(space, self._ground.timeline)
        journal = Journal(self._ground, f"import:{space.ids()}", head, Feed("import"))
        items = items_of(given, _field(self._api))
        if whole:
            messages, left = self._rest(said, head), Left(new=items)
        else:
            left = left_of(space, head, items)
            messages = list(said) if not left.known else self._without(given, left)
        if not messages:
            if left.known or whole:
                return Added(head=head, messages=0, calls=0, losses=left.losses)
            raise Invalid("there is nothing to add: no message was found; nothing was written.")
        draft = journal.draft("import")
        ours = _Ours(self._ground, by_spelling(self._ground.agent.toolbox, self._api), head)
        for at, message in enumerate(messages):
            if self._model is not None and message.role == "assistant":
                message = made_by(message, self._model)  # whose signatures and sealed thoughts it has
            kept, staged = brought_in(space, ours.renamed(message, at))
            draft.hold(staged)
            draft.say(kept, id=space.ids(), backend=self._backend if kept.role == "assistant" else None)
        postings = [*ours.postings(journal.run, self._backend), *ours.answers(journal.run)]
        draft.extend(ours.completed(postings))
        journal.stage(draft)
        _write(journal, op_id, intent, postings, cells_for(space, left.new, journal.run))
        losses = (*left.losses, *ours.losses)
        return Added(head=journal.head, messages=len(messages), calls=len(ours.made), losses=losses)

    def _without(self, given: object, left: Left) -> list[Message]:
        """What the items say that are not there yet."""
        kept = without(given, _field(self._api), left)
        if kept is None:
            return []
        context, _ = read(kept, self._api)
        return list(context.messages)

    def _rest(self, said: Sequence[Message], head: Head) -> list[Message]:
        """What follows the transcript; raises `Conflict` if what was given does not begin with it."""
        space = self._ground.space
        there = [entry.message for entry in reader.transcript(space, head.commit)]
        called = by_spelling(self._ground.agent.toolbox, self._api)
        here = [brought_in(space, message)[0] for message in said]
        count = matched(there, here, {name: tool.name for name, tool in called.items()})
        if count is None:
            raise Conflict(
                f"what was given does not begin with the {len(there)} messages of '{self._ground.timeline}'; "
                "nothing was added. Give the whole conversation, or add it without comparing it."
            )
        return list(said[count:])


def _write(
    journal: Journal,
    op_id: str | None,
    intent: Digest,
    postings: list[Posting],
    marks: Sequence[CellWrite],
) -> None:
    """Write what is staged, and have the repeat guard know the calls."""
    records = [posting.record for posting in postings if posting.cells[0].expected == 0]
    for _ in range(_TRIES_MAX):
        cells = (*brought.entering(journal.space, records), *marks)
        try:
            journal.write(
                op_id=op_id,
                intent=intent if op_id else None,
                cells=cells,
                postings=postings,
                on_conflict="raise",
            )
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
    return {"openai-responses": "input", "gemini-interactions": "input", "gemini-generate": "contents"}.get(
        api, "messages"
    )


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
    """Calls that get ids of ours as they come, and the results that belong to them.

    A result belongs to the newest message with an open call of its id: of what is added, else of what was
    imported to this line before.  A call that a run or `thread.call` made is never settled by it.
    """

    def __init__(self, ground: Ground, called: Mapping[str, Tool], head: Head) -> None:
        self._ground = ground
        self._called = called  # tools by names that the vendor was told in the place of their own
        self._open: dict[str, list[list[str]]] = {}  # by the vendor's id: our open calls, message by message
        self._before = OpenImports(ground.space, head.commit)
        self.made: dict[str, tuple[ToolCall, str]] = {}  # by our id: the call, and what the vendor called it
        self._results: dict[str, ToolResult] = {}
        self._answered: list[tuple[Held, ToolResult]] = []  # calls that were imported before
        self.losses: list[Loss] = []

    def renamed(self, message: Message, at: int) -> Message:
        """The message with ids of ours; it is the one of that index."""
        made = [self._call(call) for call in message.tool_calls]
        for vendor_id in dict.fromkeys(call.id for call in message.tool_calls):
            group = [
                ours.id for ours, call in zip(made, message.tool_calls, strict=True) if call.id == vendor_id
            ]
            self._open.setdefault(vendor_id, []).append(group)
        results = [
            self._result(result, f"messages[{at}].tool_results[{index}]")
            for index, result in enumerate(message.tool_results)
        ]
        return msgspec.structs.replace(message, tool_calls=tuple(made), tool_results=tuple(results))

    def postings(self, label: str, backend: str | None) -> list[Posting]:
        """What enters the ledger."""
        return [self._posting(id, label, backend) for id in self.made]

    def answers(self, label: str) -> list[Posting]:
        """What settles calls that were imported before."""
        space, found = self._ground.space, list[Posting]()
        for held, result in self._answered:
            kept = keep(result)
            staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
            found.append(
                settling.answered(
                    held,
                    at=space.clock(),
                    staged=staged,
                    preview=encode_result(result),
                    status=result.status,
                    result_label=label,
                )
            )
        return found

    def completed(self, postings: Sequence[Posting]) -> list[Event]:
        """What the history says of calls with a result; how far one reaches only where its tool is known here."""
        toolbox = self._ground.agent.toolbox
        return [
            ToolCallCompleted(
                id=self._ground.space.ids(),
                call=posting.record.id,
                status=posting.record.state,
                result_ref=posting.record.result,
                side_effects=posting.record.effect if posting.record.tool in toolbox else None,
            )
            for posting in postings
            if posting.record.result is not None
        ]

    def _call(self, call: ToolCall) -> ToolCall:
        id = self._ground.space.ids()
        tool = self._called.get(call.name)
        made = ToolCall(id, tool.name if tool else call.name, call.args)
        self.made[id] = (made, call.id)
        return made

    def _result(self, result: ToolResult, where: str) -> ToolResult:
        groups = self._open.get(result.call_id)
        if groups:
            mine = ToolResult(groups[-1].pop(0), result.status, result.content)
            if not groups[-1]:
                groups.pop()
            self._results[mine.call_id] = mine
            return mine
        held = self._before.take(result.call_id) or self._by_tool(result.call_id)
        if held is None:
            why = (
                "no open imported call of this timeline goes by its id; it is kept, and not shown to a model"
            )
            self.losses.append(Loss(kind="dropped", where=where, what="tool result", why=why))
            # A call of the line that goes by this id must not look answered.
            is_taken = result.call_id in self._before.seen
            return msgspec.structs.replace(result, call_id=self._ground.space.ids()) if is_taken else result
        mine = ToolResult(held.record.id, result.status, result.content)
        if held.record.state == "unknown" and held.record.result is None:
            self._answered.append((held, mine))
        return mine

    def _by_tool(self, call_id: str) -> Held | None:
        """The open call of a result that names its tool alone; None if the result names its call."""
        name = tool_of_id(call_id)
        if name is None:
            return None
        tool = self._called.get(name)
        return self._before.take_of(tool.name if tool else name)

    def _posting(self, id: str, label: str, backend: str | None) -> Posting:
        space = self._ground.space
        call, vendor_id = self.made[id]
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
            backend=backend,
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

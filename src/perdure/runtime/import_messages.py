"""Imports a conversation in a vendor's format into a thread.

The adapter reads a request, a reply or a bare list of messages.  Calls get our ids, each
with its own result, and enter the ledger as settled, or as unknown if there is no result: no run here made
them.  A result finds its call also if that was imported before.  One commit holds all of
it; the same op_id again changes nothing, nor does a message whose id the timeline has.  A call under the name
that a vendor makes of a tool's name is stored under the tool's own name, as in runs.

A thread stores messages.  Tools and options are the agent's: those of the request that the agent
does not declare in the same way are reported as losses, as is everything that could not be read.

A message with an id is imported once: a cell names the commit in which it was imported, and that commit must
be in the history of the timeline, so that after an undo it can be imported again.  A conversation without ids
is compared with the transcript, message by message.  A result may answer a call that was imported before:
open imported calls are found by reading the timeline backwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec

from perdure.context.render.media import brought_in
from perdure.engines.contract import CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, Moved, StaleHead
from perdure.history import artifacts, reader, writer
from perdure.history.ancestry import stands_on
from perdure.history.space import (
    Space,
    read_record,
    removed,
)
from perdure.ledger import calls, repeat_guard, settlement
from perdure.ledger.calls import CallTransition, VersionedCall
from perdure.ledger.repeat_guard import TWIN
from perdure.model import canonical, names
from perdure.model.call import CallRecord
from perdure.model.canonical import encode_struct
from perdure.model.context import Context, ToolSpec
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.effect import Reach
from perdure.model.event import Event, MessageAppended, ToolCallCompleted
from perdure.model.head import Head
from perdure.model.message import Block, Message, ReasoningSummary, Text, ToolCall, ToolResult, decode_message
from perdure.providers import registry
from perdure.providers.contract import Adapter, Asked, Loss, losses_of
from perdure.providers.wire.fields.vendor_metadata import made_by, tool_of_id
from perdure.runtime.calls.pending_call import encode_result
from perdure.runtime.calls.plan import by_spelling, fingerprint_here
from perdure.runtime.calls.round import args_body
from perdure.runtime.session.broadcast import Feed
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.journal import Journal
from perdure.runtime.tools.result import keep
from perdure.runtime.tools.tool import Tool

__all__ = [
    "Added",
    "add",
    "read",
    "IMPORTED",
    "ImportedItem",
    "ImportSplit",
    "OpenImports",
    "cells_for",
    "items_of",
    "left_of",
    "matched",
    "without",
]


IMPORTED = "imported/"  # cells: the commit that a message was imported in, by the SHA-256 of its vendor's id

_LOOK_BACK_MAX = 20_000  # messages that are searched for the call of a result
_REPLY = -1  # the place of a reply as a whole


class ImportedItem(msgspec.Struct, frozen=True):
    """One message, or part of one, with its vendor's id."""

    place: int  # in the list
    id: str
    body: Digest  # of its content


class ImportSplit(msgspec.Struct, frozen=True, kw_only=True):
    """Which items are new, and which the timeline has."""

    new: tuple[ImportedItem, ...] = ()
    known: frozenset[int] = frozenset()  # their places
    losses: tuple[Loss, ...] = ()


class _Imported(msgspec.Struct, frozen=True):
    """The value of a cell."""

    label: str  # an id that names the commit
    body: Digest


_values = msgspec.json.Decoder(_Imported)


def items_of(given: object, field: str) -> tuple[ImportedItem, ...]:
    """Return the items with ids of a request, a list or a reply; `field` holds the messages of a request."""
    if isinstance(given, Mapping):
        body = cast("Mapping[str, Any]", given)
        if field not in body:
            id = body.get("id") or body.get("responseId")
            return (_item(_REPLY, id, body),) if isinstance(id, str) else ()
        given = body[field]
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return ()
    found: list[ImportedItem] = []
    for place, each in enumerate(cast("Sequence[Any]", given)):
        if isinstance(each, Mapping):
            item = cast("Mapping[str, Any]", each)
            id = item.get("id")
            if isinstance(id, str) and id and item.get("type") != "item_reference":
                found.append(_item(place, id, item))
    return tuple(found)


def left_of(space: Space, head: Head, items: Sequence[ImportedItem]) -> ImportSplit:
    """Split `items` into those that the timeline at `head` has, and new ones."""
    new: dict[str, ImportedItem] = {}
    known: set[int] = set()
    losses: list[Loss] = []
    for item in items:
        cell = space.engine.cell(space.name, _name(item))
        there = None if cell is None or cell.value is None else read_record(cell, _values)
        if there is not None and not stands_on(space, there.label, head.commit):
            there = None
        first = there.body if there is not None else new[item.id].body if item.id in new else None
        if first is None:
            new[item.id] = item
            continue
        known.add(item.place)
        if first != item.body:
            why = "a message of that id was added before and says something else; the first one stands"
            where = f"messages[{item.place}]" if item.place != _REPLY else "messages"
            losses.append(Loss(kind="dropped", where=where, what=f"message '{item.id}'", why=why))
    return ImportSplit(new=tuple(new.values()), known=frozenset(known), losses=tuple(losses))


def without(given: object, field: str, left: ImportSplit) -> object | None:
    """Return `given` without the items that the timeline has; None if nothing is left."""
    if _REPLY in left.known:
        return None
    body = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else None
    items = cast("Sequence[Any]", given if body is None else body[field])
    kept = [item for place, item in enumerate(items) if place not in left.known]
    if not kept:
        return None
    return kept if body is None else {**body, field: kept}


def cells_for(space: Space, items: Sequence[ImportedItem], label: str) -> list[CellWrite]:
    """Return the cells of the write that imports `items` with the commit that `label` names."""
    written: list[CellWrite] = []
    for item in {item.id: item for item in items}.values():
        before = space.engine.cell(space.name, _name(item))
        value = canonical.encode_struct(_Imported(label, item.body))
        expected = before.revision if before else 0
        written.append(CellWrite(name=_name(item), expected=expected, value=value))
    return written


class OpenImports:
    """Finds imported calls without a result on a timeline: by the vendor's ids, by ours, and by tool."""

    def __init__(self, space: Space, at: Digest | None) -> None:
        """Search back from `at`, as far as callers need."""
        self._space = space
        self._messages = self._back(at)
        self._answered: set[str] = set()
        self._taken: set[str] = set()  # by our ids
        self._by_id: dict[str, list[VersionedCall]] = {}  # those of the newest message first, in order
        self._by_tool: dict[str, list[VersionedCall]] = {}
        self.seen: set[str] = (
            set()
        )  # our ids of all calls so far; of the whole timeline once nothing was found

    def take(self, id: str) -> VersionedCall | None:
        """Return the first open call of an id, the vendor's or ours, in the newest message with one; each only once."""
        return self._next(self._by_id, id)

    def take_of(self, tool: str) -> VersionedCall | None:
        """Do the same by the name of the tool."""
        return self._next(self._by_tool, tool)

    def _next(self, found: dict[str, list[VersionedCall]], key: str) -> VersionedCall | None:
        while True:
            held = next((each for each in found.get(key, ()) if each.record.id not in self._taken), None)
            if held is not None:
                self._taken.add(held.record.id)
                return held
            if not self._read_on():
                return None

    def _read_on(self) -> bool:
        """Read one more message; False if there is none."""
        message = next(self._messages, None)
        if message is None:
            return False
        self._answered |= {result.call_id for result in message.tool_results}
        for call in message.tool_calls:
            self.seen.add(call.id)
            held = None if call.id in self._answered else calls.find(self._space, call.id)
            if held is not None and held.record.origin == "import" and held.record.vendor_id is not None:
                for id in {held.record.vendor_id, call.id}:
                    self._by_id.setdefault(id, []).append(held)
                self._by_tool.setdefault(held.record.tool, []).append(held)
        return True

    def _back(self, at: Digest | None) -> Iterator[Message]:
        """Yield the messages that may hold calls or results, newest first."""
        left = _LOOK_BACK_MAX
        for step in reader.recent(self._space, at):
            for event in reversed(step.changeset.events):
                if isinstance(event, MessageAppended) and event.role != "system":
                    left -= 1
                    yield decode_message(self._space.body(event.body))
            if left <= 0:
                return


def matched(there: Sequence[Message], here: Sequence[Message], names: Mapping[str, str]) -> int | None:
    """Count the messages of `here` that equal all of `there`; None if `here` does not begin with `there`.

    Ids of calls, reasoning and vendor metadata are not compared; nor is whether results
    are in one message or in several.  `names` maps the vendor's names of tools to ours.
    """
    first, second = list(_units(there, names)), list(_units(here, names))
    if len(second) < len(first) or any(one[1] != other[1] for one, other in zip(first, second, strict=False)):
        return None
    if len(second) == len(first):
        return len(here)
    place = second[len(first)][0]
    return place if not first or second[len(first) - 1][0] < place else None


def _units(messages: Sequence[Message], names: Mapping[str, str]) -> Iterator[tuple[int, object]]:
    """Yield the parts to compare, each with the index of its message: text with calls, and each result."""
    numbers: dict[str, int] = {}
    for at, message in enumerate(messages):
        for result in message.tool_results:
            yield at, (numbers.get(result.call_id), result.status, _blocks(result.content))
        if message.tool_results and not message.content and not message.tool_calls:
            continue
        made: list[object] = []
        for call in message.tool_calls:
            numbers[call.id] = len(numbers)
            made.append((names.get(call.name, call.name), _arguments(call.args)))
        yield at, (message.role, _blocks(message.content), made)


def _blocks(content: Sequence[Block]) -> list[Block]:
    return [block for block in content if not isinstance(block, ReasoningSummary)]


def _arguments(args: str) -> object:
    try:
        return json.loads(args)
    except ValueError:
        return args


def _item(place: int, id: str, says: Mapping[str, Any]) -> ImportedItem:
    body = json.dumps(says, sort_keys=True, default=repr).encode("utf-8", "replace")
    return ImportedItem(place, id, digest_of(Kind.BODY, body))


def _name(item: ImportedItem) -> str:
    return IMPORTED + sha256(item.id.encode("utf-8", "surrogatepass")).hexdigest()


# Fields by which a request, or a reply, is recognised.
_REQUESTS = ("messages", "contents", "input")
_REPLIES = ("choices", "output", "candidates", "steps")
_NOTES = ("endpoint", "system")  # an adapter's notes on the server, and on the form of the system prompt


class Added(msgspec.Struct, frozen=True, kw_only=True):
    """What an import added to a thread."""

    head: Head
    messages: int
    calls: int
    losses: tuple[Loss, ...] = ()


def read(given: object, api: str) -> tuple[Context, tuple[Loss, ...]]:
    """Read a request, a reply or a list of messages in a format; raise `Invalid` if it is none."""
    adapter = registry.adapter(api)
    if isinstance(given, Mapping):
        body: Mapping[str, Any] = given  # pyright: ignore[reportUnknownVariableType]
        return _read_body(adapter, body)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        context = adapter.read_request({_field(api): list(given)})  # pyright: ignore[reportUnknownArgumentType]
        # A list has no options; those of the context are the adapter's defaults.
        return _asked(msgspec.structs.replace(context, options={}))
    raise Invalid(
        f"{api} is read from a request, a reply or a list of messages, not from {type(given).__name__}.",
        code="import_invalid",
        api=api,
    )


def add(
    env: RunEnvironment,
    given: object,
    *,
    api: str,
    op_id: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    whole: bool = False,
) -> Added:
    """Add the messages of `given` to the timeline; raise `Invalid`, having written nothing, if it cannot be read.

    Messages whose ids were added to the timeline before are left out.  `provider` and `model` wrote the
    assistant's messages.  With `whole`, `given` begins with the whole transcript of the timeline, and only the
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
        _tools(context, env, by_spelling(env.agent.toolbox, api)),
        _options(context, env),
    )
    found = writer.once(env.space, op_id, intent) if op_id else None
    if found is not None:
        made = sum(len(message.tool_calls) for message in said)
        return Added(head=found.heads[0], messages=len(said), calls=made, losses=losses)
    adding = _Adding(env, api, f"{provider or ''}:{model or ''}" if provider or model else None, model)
    attempts = Attempts(f"timeline '{env.timeline}'", f"no message was added to '{env.timeline}'")
    while True:
        attempts.begin()
        try:
            added = adding.once(given, said, op_id, intent, whole=whole)
        except (Moved, StaleHead) as refused:  # another writer was first: read the timeline again
            if removed(env.space) or adding.is_fenced_off(refused):
                raise
        else:
            return msgspec.structs.replace(added, losses=losses_of(losses, added.losses))


class _Adding:
    """Adds one conversation to a timeline."""

    def __init__(self, env: RunEnvironment, api: str, backend: str | None, model: str | None) -> None:
        self._env, self._api, self._backend, self._model = env, api, backend, model

    def is_fenced_off(self, refused: Conflict) -> bool:
        """True if a run has begun on the timeline, which another attempt does not change."""
        fences = {fence.cell for fence in self._env.space.fences}
        return isinstance(refused, Moved) and refused.cell in fences

    def once(
        self, given: object, said: Sequence[Message], op_id: str | None, intent: Digest, *, whole: bool
    ) -> Added:
        """Add it to the head as it is now; raise `Moved` or `StaleHead` if another writer was first."""
        space = self._env.space
        head = reader.head_to_move(space, self._env.timeline)
        journal = Journal(self._env, f"import:{space.ids()}", head, Feed("import"))
        items = items_of(given, _field(self._api))
        if whole:
            messages, left = self._rest(said, head), ImportSplit(new=items)
        else:
            left = left_of(space, head, items)
            messages = list(said) if not left.known else self._without(given, left)
        if not messages:
            if left.known or whole:
                return Added(head=head, messages=0, calls=0, losses=left.losses)
            raise Invalid(
                "there is nothing to add: no message was found; nothing was written.",
                code="nothing_to_import",
            )
        draft = journal.draft("import")
        ours = _Ours(self._env, by_spelling(self._env.agent.toolbox, self._api), head)
        for at, message in enumerate(messages):
            if self._model is not None and message.role == "assistant":
                message = made_by(
                    message, self._model
                )  # its signatures and sealed reasoning are that model's
            kept, staged = brought_in(space, ours.renamed(message, at))
            draft.hold(staged)
            draft.say(kept, id=space.ids(), backend=self._backend if kept.role == "assistant" else None)
        transitions = [*ours.transitions(journal.run, self._backend), *ours.answers(journal.run)]
        draft.extend(ours.completed(transitions))
        journal.stage(draft)
        _write(journal, op_id, intent, transitions, cells_for(space, left.new, journal.run))
        losses = (*left.losses, *ours.losses)
        return Added(head=journal.head, messages=len(messages), calls=len(ours.made), losses=losses)

    def _without(self, given: object, left: ImportSplit) -> list[Message]:
        """Return the messages of the items that the timeline does not have."""
        kept = without(given, _field(self._api), left)
        if kept is None:
            return []
        context, _ = read(kept, self._api)
        return list(context.messages)

    def _rest(self, said: Sequence[Message], head: Head) -> list[Message]:
        """Return the messages after the transcript; raise `Conflict` if `said` does not begin with it."""
        space = self._env.space
        there = [entry.message for entry in reader.transcript(space, head.commit)]
        called = by_spelling(self._env.agent.toolbox, self._api)
        here = [brought_in(space, message)[0] for message in said]
        count = matched(there, here, {name: tool.name for name, tool in called.items()})
        if count is None:
            raise Conflict(
                f"what was given does not begin with the {len(there)} messages of '{self._env.timeline}'; "
                "nothing was added.",
                code="import_not_a_continuation",
                advice="Give the whole conversation, or add it without comparing it.",
                timeline=self._env.timeline,
                messages=len(there),
            )
        return list(said[count:])


def _write(
    journal: Journal,
    op_id: str | None,
    intent: Digest,
    transitions: list[CallTransition],
    marks: Sequence[CellWrite],
) -> None:
    """Write what is staged, and enter the calls into the repeat guard."""
    records = [transition.record for transition in transitions if transition.cells[0].expected == 0]
    attempts = Attempts("the record of equal calls", "no message was added")
    while True:
        attempts.begin()
        cells = (*repeat_guard.entering(journal.space, records), *marks)
        try:
            journal.write(
                op_id=op_id,
                intent=intent if op_id else None,
                cells=cells,
                transitions=transitions,
                on_conflict="raise",
            )
        except Moved as moved:
            if not moved.cell.startswith(TWIN):
                raise
        else:
            return


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


def _tools(context: Context, env: RunEnvironment, called: Mapping[str, Tool]) -> list[Loss]:
    """Return losses for the tools of a request that the agent does not declare in the same way."""
    toolbox = {**called, **env.agent.toolbox}
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


def _options(context: Context, env: RunEnvironment) -> list[Loss]:
    """Return losses for the options of a request that are not the agent's."""
    why = "a thread keeps no options; give it to the agent or to the backend"
    vendor = context.options.get("vendor")
    fields = [
        (f"vendor.{api}.{name}", name)
        for api, held in (vendor.items() if isinstance(vendor, Mapping) else ())
        for name in (held if isinstance(held, Mapping) else ())
        if name not in _NOTES
    ]
    named = [(name, name) for name in context.options if name != "vendor"]
    mine = env.agent.options
    return [
        Loss(kind="dropped", where=f"options.{where}", what=name, why=why)
        for where, name in (*named, *fields)
        if where not in mine or mine[where] != context.options[where]
    ]


class _Ours:
    """Gives calls our ids, message by message, and finds the call of each result.

    A result belongs to the newest message with an open call of its id: among the messages that are added, else
    among those that were imported to this timeline before.  It never settles a call of a run or of `thread.call`.
    """

    def __init__(self, env: RunEnvironment, called: Mapping[str, Tool], head: Head) -> None:
        self._env = env
        self._called = called  # tools by the names that the vendor makes of theirs
        self._open: dict[str, list[list[str]]] = {}  # by the vendor's id: our open calls, message by message
        self._before = OpenImports(env.space, head.commit)
        self.made: dict[str, tuple[ToolCall, str]] = {}  # by our id: the call, and the vendor's id
        self._results: dict[str, ToolResult] = {}
        self._answered: list[tuple[VersionedCall, ToolResult]] = []  # calls that were imported before
        self.losses: list[Loss] = []

    def renamed(self, message: Message, at: int) -> Message:
        """Return the message with our ids; `at` is its index."""
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

    def transitions(self, label: str, backend: str | None) -> list[CallTransition]:
        """Return the transitions that enter the new calls into the ledger."""
        return [self._transition(id, label, backend) for id in self.made]

    def answers(self, label: str) -> list[CallTransition]:
        """Return the transitions that settle calls which were imported before."""
        space, found = self._env.space, list[CallTransition]()
        for held, result in self._answered:
            kept = keep(result)
            staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
            found.append(
                settlement.answered(
                    held,
                    at=space.clock(),
                    staged=staged,
                    preview=encode_result(result),
                    status=result.status,
                    result_label=label,
                )
            )
        return found

    def completed(self, transitions: Sequence[CallTransition]) -> list[Event]:
        """Return the events of calls with a result; the effect is recorded only if the agent declares the tool."""
        toolbox = self._env.agent.toolbox
        return [
            ToolCallCompleted(
                id=self._env.space.ids(),
                call=transition.record.id,
                status=transition.record.state,
                result_ref=transition.record.result,
                side_effects=transition.record.effect if transition.record.tool in toolbox else None,
            )
            for transition in transitions
            if transition.record.result is not None
        ]

    def _call(self, call: ToolCall) -> ToolCall:
        id = self._env.space.ids()
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
            # A call of the timeline with this id must not look answered.
            is_taken = result.call_id in self._before.seen
            return msgspec.structs.replace(result, call_id=self._env.space.ids()) if is_taken else result
        mine = ToolResult(held.record.id, result.status, result.content)
        if held.record.state == "unknown" and held.record.result is None:
            self._answered.append((held, mine))
        return mine

    def _by_tool(self, call_id: str) -> VersionedCall | None:
        """Return the open call of a result that names only its tool; None if the result names its call."""
        name = tool_of_id(call_id)
        if name is None:
            return None
        tool = self._called.get(name)
        return self._before.take_of(tool.name if tool else name)

    def _transition(self, id: str, label: str, backend: str | None) -> CallTransition:
        space = self._env.space
        call, vendor_id = self.made[id]
        body = args_body(call.args)
        tool = self._env.agent.toolbox.get(call.name)
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
            timeline=self._env.timeline,
            run=None,
            label=label,
            backend=backend,
            vendor_id=vendor_id,
            result_label=label,
        )
        result = self._results.get(id)
        if result is None:
            transition = settlement.imported(record, reach=reach, why="no result came with it")
            return transition.also(objects=(body,))
        kept = keep(result)
        staged = artifacts.stage(space, (kept.content,), media_type=kept.media_type)
        transition = settlement.imported(
            record, staged=staged, preview=encode_result(result), status=result.status, reach=reach
        )
        return transition.also(objects=(body,))

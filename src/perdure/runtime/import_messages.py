"""Imports a conversation in a vendor's format into a thread.

The adapter reads a request, a reply or a bare list of messages, and `import_commit` writes them: each turn is a commit,
and one write has them all.  A list with ids of its vendor is one commit, which each id names.  The same op_id again
changes nothing, nor does a message whose id the timeline has.  A call under the name that a vendor makes of a tool's
name is stored under the tool's own name, as in runs.

A thread stores messages.  Tools and options are the agent's: those of the request that the agent
does not declare in the same way are reported as losses, as is everything that could not be read.

A message with an id is imported once: a cell names the commit in which it was imported, and that commit must
be in the history of the timeline, so that after an undo it can be imported again.  A conversation without ids
is compared with the transcript, message by message, if the caller asks for it (`import_overlap`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec

from perdure.context.render.media import brought_in
from perdure.engines.contract import CellWrite
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Invalid, Moved, StaleHead
from perdure.history import reader, writer
from perdure.history.ancestry import stands_on
from perdure.history.space import (
    Space,
    read_record,
    removed,
)
from perdure.model import canonical, names
from perdure.model.canonical import encode_struct
from perdure.model.context import Context, ToolSpec
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.head import Head
from perdure.model.message import Message, Text, ToolCall, ToolResult, encode_message
from perdure.model.run import IMPORT
from perdure.projections.transcript import TranscriptEntry
from perdure.providers import registry
from perdure.providers.contract import Adapter, Asked, Loss, losses_of
from perdure.providers.conversation_input import PreparedInput, prepared
from perdure.providers.wire.fields.vendor_items import items_of as list_of
from perdure.providers.wire.fields.vendor_items import object_of
from perdure.providers.wire.fields.vendor_metadata import made_by, parsed_metadata
from perdure.runtime import import_commit
from perdure.runtime.calls.plan import by_spelling
from perdure.runtime.import_commit import ImportStep, import_of
from perdure.runtime.import_overlap import Overlap, compared, continued
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.tools.result import tells_no_outcome
from perdure.runtime.tools.tool import Tool

__all__ = [
    "Added",
    "add",
    "format_of",
    "read",
    "IMPORTED",
    "SYSTEM_WORDS",
    "ImportedItem",
    "ImportSplit",
    "cells_for",
    "items_of",
    "left_of",
    "without",
]


IMPORTED = "imported/"  # cells: the commit that a message was imported in, by the SHA-256 of its vendor's id

SYSTEM_WORDS = "words of the system"  # what a loss names that says that a timeline keeps its own

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


def _unlisted(given: object, field: str, said: Sequence[Message]) -> int:
    """Return how many messages are before the list: the words of the system, where they have a field of their own."""
    listed = cast("Mapping[str, Any]", given).get(field) if isinstance(given, Mapping) else given
    is_separate = isinstance(listed, list) and len(said) == len(cast("list[Any]", listed)) + 1
    return int(is_separate and said[0].role == "system")


def _has_unnamed(given: object, field: str, items: Sequence[ImportedItem]) -> bool:
    """True if a message has no id by which it could be known."""
    if any(item.place == _REPLY for item in items):
        return False
    listed = cast("Mapping[str, Any]", given).get(field) if isinstance(given, Mapping) else given
    return len({item.place for item in items}) < len(cast("Sequence[Any]", listed or ())) or not items


def _item(place: int, id: str, says: Mapping[str, Any]) -> ImportedItem:
    body = json.dumps(says, sort_keys=True, default=repr).encode("utf-8", "replace")
    return ImportedItem(place, id, digest_of(Kind.BODY, body))


def _name(item: ImportedItem) -> str:
    return IMPORTED + sha256(item.id.encode("utf-8", "surrogatepass")).hexdigest()


# Fields by which a reply is recognised.
_REPLIES = ("choices", "output", "candidates", "steps")
# Fields of a request by which its server knows the conversation before it.
_ON_SERVER = ("previous_response_id", "conversation", "previous_interaction_id")
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


def format_of(given: PreparedInput) -> str:
    """Return the format of a request, a reply or a list of messages; raise `Invalid` if its content does not decide it.

    If it can be read in none of the formats that it may have, the error is that of the nearest.
    """
    if len(given.formats) == 1:
        return given.formats[0]
    if not given.formats:
        raise Invalid(
            "this is no saved conversation; nothing was added.",
            code="not_a_conversation",
            advice="Give a request, a reply or a list of messages of an API.",
        )
    readable: list[str] = []
    has_messages = False
    refused: Invalid | None = None
    for api in given.formats:
        try:
            context, _ = read(given.value, api)
        except Invalid as error:
            refused = refused or error
        else:
            readable.append(api)
            has_messages |= bool(_system(context) or context.messages)
    if refused is not None and not readable:
        raise refused
    if not has_messages:
        raise _nothing_to_add()
    if len(readable) == 1:
        return readable[0]
    raise Invalid(
        "the format of the conversation was not named, and its content does not decide it; nothing was added.",
        code="format_missing",
        advice=f"Name it with `api`: {', '.join(readable)}.",
        candidates=readable,
    )


def _nothing_to_add() -> Invalid:
    return Invalid(
        "there is nothing to add: no message was found; nothing was written.", code="nothing_to_import"
    )


def add(
    env: RunEnvironment,
    given: object,
    *,
    api: str | None = None,
    op_id: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    whole: bool = False,
    once: bool = False,
) -> Added:
    """Add the messages of `given` to the timeline; raise `Invalid`, having written nothing, if it cannot be read.

    `given` may hold objects of vendors' SDKs.  `api` is its format; None: the one that its content decides.
    Messages whose ids were added to the timeline before are left out.  `provider` and `model` wrote the
    assistant's messages.  With `whole`, `given` begins with the whole transcript of the timeline, and only the
    rest is added; raises `Conflict` if it does not.  With `once`, what the timeline has is left out; raises
    `Conflict` if the two have messages in common and part.
    """
    for what, label in (("provider", provider), ("model", model)):
        if label is not None:
            names.check_label(what, label)
    names.check_flag("whole", whole)
    names.check_flag("once", once)
    ready = prepared(given)
    api = format_of(ready) if api is None else api
    given = ready.value
    context, unread = read(given, api)
    said = [*_system(context), *context.messages]
    intent = digest_of(Kind.BODY, b"\n".join(encode_struct(message) for message in said))
    losses = losses_of(
        ready.losses,
        [loss for loss in unread if loss.where != "options.cache"],
        _tools(context, env, by_spelling(env.agent.toolbox, api)),
        _options(context, env),
        [] if model is not None else _signed_by_none(said),
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
            added = adding.once(given, said, op_id, intent, whole=whole, is_compared=once)
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
        self,
        given: object,
        said: Sequence[Message],
        op_id: str | None,
        intent: Digest,
        *,
        whole: bool,
        is_compared: bool,
    ) -> Added:
        """Add it to the head as it is now; raise `Moved` or `StaleHead` if another writer was first."""
        space = self._env.space
        head = reader.head_to_move(space, self._env.timeline)
        items = items_of(given, _field(self._api))
        found: Overlap | None = None
        left = ImportSplit(new=items) if whole else left_of(space, head, items)
        messages = self._without(given, left) if left.known else list(said)
        if whole:
            found = self._rest(said, head)
        elif is_compared and messages and _has_unnamed(given, _field(self._api), items):
            found = self._new(said, head)
        if found is not None:
            messages = list(said[found.rest :])
        lost = (*left.losses, *_other_system(found, _unlisted(given, _field(self._api), said)))
        if not messages:
            if left.known or whole or (is_compared and said):
                return Added(head=head, messages=0, calls=0, losses=lost)
            raise _nothing_to_add()
        if self._model is not None:  # its signatures and sealed reasoning are that model's
            model = self._model
            messages = [made_by(each, model) if each.role == "assistant" else each for each in messages]
        turns = [tuple(messages)] if left.new else _turns(messages)
        done = import_commit.commit_steps(
            self._env,
            head,
            [ImportStep(messages=turn, backend=self._backend) for turn in turns],
            called=by_spelling(self._env.agent.toolbox, self._api),
            op_id=op_id,
            intent=intent,
            marks=lambda label: cells_for(space, left.new, label),
            first_message=0
            if left.known
            else len(said) - len(messages) - _unlisted(given, _field(self._api), said),
        )
        losses = (*lost, *done.losses)
        return Added(head=done.head, messages=done.messages, calls=done.calls, losses=losses)

    def _without(self, given: object, left: ImportSplit) -> list[Message]:
        """Return the messages of the items that the timeline does not have."""
        kept = without(given, _field(self._api), left)
        if kept is None:
            return []
        context, _ = read(kept, self._api)
        return list(context.messages)

    def _new(self, said: Sequence[Message], head: Head) -> Overlap:
        """Return what the timeline has; raise `Conflict` if that cannot be told."""
        entries = reader.transcript(self._env.space, head.commit)
        here, spelled = self._comparable(said, entries)
        starts = [at for at in range(len(entries)) if at == 0 or _begins_import(entries[at - 1], entries[at])]
        found = compared([entry.words for entry in entries], here, spelled, starts=starts if entries else ())
        if found.rest is None:
            after = _last_whole(entries, found.after)
            forked = f"Add it to a fork of '{after}', " if after else "Add it "
            raise Conflict(
                f"'{self._env.timeline}' has {found.alike} of these {len(said)} messages already; the first that "
                f"differs is number {found.differs + 1}, of the {said[found.differs].role}; nothing was added.",
                code="import_overlaps" if after else "import_overlaps_from_start",
                advice=f"{forked}to another thread, or without `once`, which adds all of it once more.",
                after=after,
                **self._facts(found, said),
            )
        return found

    def _rest(self, said: Sequence[Message], head: Head) -> Overlap:
        """Return what comes after the transcript; raise `Conflict` if `said` does not begin with it."""
        entries = reader.transcript(self._env.space, head.commit)
        here, spelled = self._comparable(said, entries)
        found = continued([entry.words for entry in entries], here, spelled)
        if found.rest is None:
            parts = f"what was given differs from them in number {found.differs + 1}, of the {said[found.differs].role}"
            ends = f"what was given ends after {len(said)} of them"
            raise Conflict(
                f"'{self._env.timeline}' has {len(entries)} messages, and "
                f"{ends if found.alike == len(said) else parts}; nothing was added.",
                code="import_not_a_continuation",
                advice="Give the whole conversation, or add it without comparing it.",
                **self._facts(found, said),
            )
        return found

    def _comparable(
        self, said: Sequence[Message], entries: Sequence[TranscriptEntry]
    ) -> tuple[list[Message], dict[str, str]]:
        """Return messages as they would be stored, and the agent's names of tools by the vendor's.

        One that was redacted in the transcript is as there.
        """
        called = by_spelling(self._env.agent.toolbox, self._api)
        here = [brought_in(self._env.space, message)[0] for message in said]
        redacted = [each for each in entries if each.redaction is not None]
        if redacted:
            here = [next(filter(None, (_as_redacted(each, one) for one in redacted)), each) for each in here]
        return here, {name: tool.name for name, tool in called.items()}

    def _facts(self, found: Overlap, said: Sequence[Message]) -> dict[str, object]:
        """Return where a list parts from the transcript; messages are counted from 1, those of the system too."""
        return {
            "timeline": self._env.timeline,
            "messages": len(said),
            "alike": found.alike,
            "differs": found.differs + 1,
            "role": said[found.differs].role,
        }


def _other_system(found: Overlap | None, unlisted: int) -> list[Loss]:
    """Return losses for words of the system that are not those of the timeline."""
    why = "the timeline has other words of the system, or none there; it keeps what it has"
    return [
        Loss(
            kind="dropped",
            where="system" if at < unlisted else f"messages[{at - unlisted}]",
            what=SYSTEM_WORDS,
            why=why,
        )
        for at in (() if found is None else found.system)
    ]


def _as_redacted(message: Message, entry: TranscriptEntry) -> Message | None:
    """Return what stands in the place of a message, with its ids of calls; None: the message is another one."""
    words = entry.words
    if words is None or (message.role, len(message.tool_calls), len(message.tool_results)) != (
        words.role,
        len(words.tool_calls),
        len(words.tool_results),
    ):
        return None
    calls = tuple(zip(message.tool_calls, words.tool_calls, strict=True))
    answers = tuple(zip(message.tool_results, words.tool_results, strict=True))
    stored = msgspec.structs.replace(
        message,
        tool_calls=tuple(ToolCall(ours.id, ours.name, call.args) for call, ours in calls),
        tool_results=tuple(ToolResult(ours.call_id, one.status, one.content) for one, ours in answers),
    )
    if digest_of(Kind.BODY, encode_message(stored)) != entry.redacted:
        return None
    return msgspec.structs.replace(
        words,
        tool_calls=tuple(ToolCall(call.id, ours.name, ours.args) for call, ours in calls),
        tool_results=tuple(ToolResult(one.call_id, ours.status, ours.content) for one, ours in answers),
    )


def _turns(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Return the messages turn by turn: each begins with words of the user, or of the system before them."""
    found: list[list[Message]] = []
    for message in messages:
        is_asked = message.role in ("user", "system")
        if not found or (is_asked and found[-1][-1].role not in ("user", "system")):
            found.append([])
        found[-1].append(message)
    return [tuple(each) for each in found]


def _last_whole(entries: Sequence[TranscriptEntry], last: int | None) -> str | None:
    """Return the last message up to `last` with which a commit ends; None if there is none."""
    for at in range(-1 if last is None else last, -1, -1):
        if at + 1 == len(entries) or entries[at + 1].commit != entries[at].commit:
            return entries[at].id
    return None


def _begins_import(before: TranscriptEntry, entry: TranscriptEntry) -> bool:
    """True if the message is the first one of an import."""
    is_imported = entry.run is not None and entry.run.startswith(IMPORT)
    return is_imported and import_of(before.run) != import_of(entry.run)


def _read_body(adapter: Adapter, body: Mapping[str, Any]) -> tuple[Context, tuple[Loss, ...]]:
    if any(field in body for field in _REPLIES) or ("content" in body and "messages" not in body):
        reply = adapter.parse(body)
        return Context(messages=(reply.message,)), reply.losses
    return _asked(adapter.read_request(body))


def _asked(context: Context) -> tuple[Context, tuple[Loss, ...]]:
    losses = list(context.losses) if isinstance(context, Asked) else []
    messages = [_answered(message, f"messages[{at}]", losses) for at, message in enumerate(context.messages)]
    kept = [message for message in messages if message is not None]
    return msgspec.structs.replace(context, messages=kept), tuple(losses)


def _answered(message: Message, where: str, losses: list[Loss]) -> Message | None:
    """Return a message without results that Perdure wrote for calls of unknown outcome; None if nothing is left."""
    if not any(map(tells_no_outcome, message.tool_results)):
        return message
    results: list[ToolResult] = []
    for at, result in enumerate(message.tool_results):
        if not tells_no_outcome(result):
            results.append(result)
            continue
        why = "Perdure wrote it for a call without a result; the outcome of the call stays unknown"
        losses.append(
            Loss(kind="converted", where=f"{where}.tool_results[{at}]", what="tool result", why=why)
        )
    if not results and not message.content and not message.tool_calls:
        return None
    return msgspec.structs.replace(message, tool_results=tuple(results), vendor_metadata=None)


def _signed_by_none(said: Sequence[Message]) -> list[Loss]:
    """Return losses for signed reasoning of which nothing says what model signed it: no model takes it back."""
    why = "no model is named, so it cannot be sent back; give `provider` and `model` (--provider, --model)"
    losses: list[Loss] = []
    for at, message in enumerate(each for each in said if each.role != "system"):
        told = object_of(parsed_metadata(message))
        for vendor in ("anthropic", "bedrock"):
            facts = object_of(told.get(vendor))
            native = [object_of(object_of(block).get("native")) for block in list_of(facts.get("blocks"))]
            if facts.get("model") is None and any(map(_is_signed, native)):
                losses.append(Loss(kind="dropped", where=f"messages[{at}]", what="signed reasoning", why=why))
    return losses


def _is_signed(native: Mapping[str, Any]) -> bool:
    """True for a block of reasoning that only the model that made it takes back."""
    return native.get("type") in ("thinking", "redacted_thinking") or "reasoningContent" in native


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
    before = "what was said before is kept by the server, and is not in what was given"
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
        Loss(
            kind="dropped",
            where=f"options.{where}",
            what="earlier conversation" if name in _ON_SERVER else name,
            why=before if name in _ON_SERVER else why,
        )
        for where, name in (*named, *fields)
        if where not in mine or mine[where] != context.options[where]
    ]

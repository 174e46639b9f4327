"""Redacts one message, one call or one artifact of a thread: its words go for every moment and every timeline.

A message names its words by digest, and so does the record of a call.  So the objects that hold the words are
forgotten, as retention forgets objects, and the history still verifies.  Before that one write puts a stand-in beside
each: a message with the same calls and results, which says that it was redacted.  Readers and models get the stand-in.

The write has a cell for each object, which says when, by whom and why.  It also moves the lease of every timeline, so
that no process goes on with a prompt that it has in memory.

An artifact stays if anything else of the thread holds it: the state, another artifact, or media of another message.
If the act is interrupted after its write, repeating it finishes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, cast

import msgspec

from perdure.engines import loops
from perdure.engines.contract import CellWrite, Write
from perdure.errors import Conflict, Corrupt, Forgotten, Invalid, NotFound
from perdure.history import stored_objects
from perdure.history.retention.planner import space_of
from perdure.history.space import Space, words_for
from perdure.history.tree import refs
from perdure.ledger import calls
from perdure.model import canonical, names
from perdure.model.artifact import REFERENCE, decode_artifact, parse_reference, reference
from perdure.model.commit import Changeset, decode_changeset
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import (
    BackendSwitched,
    CheckpointCreated,
    MessageAppended,
    ToolCallRequested,
)
from perdure.model.lists import decode_node
from perdure.model.memory import MEMORY, items_of
from perdure.model.message import File, Image, Message, ToolResult, decode_message, encode_message
from perdure.model.patch import Put
from perdure.model.recipe import decode_recipe, needs
from perdure.model.redaction import (
    REDACTED,
    CallPart,
    Redaction,
    redacted_arguments,
    redacted_message,
    redacted_result,
    without_parts,
)
from perdure.model.run import LEASE
from perdure.projections.calls import decode_transition
from perdure.runtime.session import lease as leases
from perdure.store.plumbing.run_fence import UNSETTLED
from perdure.store.upkeep.retention import as_words

__all__ = ["Elsewhere", "RedactionReport", "redact"]

_results = msgspec.json.Decoder(ToolResult)

_ATTEMPTS_MAX = 5  # each reads the whole thread
_SHORT_MAX = 2_000  # characters: a longer text is searched for as a whole
_TEXT_MIN = 6  # characters: shorter ones are everywhere
_TELLING = re.compile(r"[0-9@]")
_CONTENT = ("result", "evidence")  # fields of a call that name artifacts
_NONE: set[Digest] = set()
_AROUND = ".,;:!?()[]{}<>\"'`"

Subject: TypeAlias = Literal["message", "call", "artifact"]
Holder: TypeAlias = Literal[
    "message", "call", "context", "checkpoint", "artifact", "state", "memory", "history", "record"
]


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A place that holds the same words and is not redacted with them."""

    space: str
    place: str  # what people call the space: thread 'trip', the memory of 'ann'
    what: Holder  # record: of a call, a run or a question; history: the reason of a commit or of an event
    id: str  # of a message, a call or an item; a path, the reference of an artifact; empty: it has none


class RedactionReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a redaction removed, or would remove, and where the same words are besides."""

    thread: str
    id: str
    subject: Subject
    messages: tuple[str, ...]  # that say now that they were redacted, or a part of them was
    count: int  # objects that go
    bytes: int  # that they hold, before compression
    freed: int  # bytes set free at rest; 0 where nothing was done
    kept: tuple[str, ...]  # artifacts of it that stay because something else of the thread holds them
    elsewhere: tuple[Elsewhere, ...]
    dry_run: bool


def redact(
    space: Space,
    id: str,
    *,
    why: str,
    part: CallPart | None = None,
    author: str | None = None,
    words: Sequence[str] = (),
    dry_run: bool = False,
) -> RedactionReport:
    """Redact what `id` names in the thread of that space, and report it; with `dry_run` nothing is changed."""
    names.check_label("why", why)
    if author is not None:
        names.check_label("author", author)
    asked = _asked(space, id, part)
    removal = _Removal(space, asked)
    _check_settled(space, asked, removal)
    report = removal.report(asked, tuple(_elsewhere(space, removal, words or removal.texts)), dry_run=dry_run)
    if dry_run or not removal.gone:
        return report
    redaction = Redaction(subject=id, at=space.clock(), why=why, by=author)
    _write(space, removal, redaction)
    for _ in range(_ATTEMPTS_MAX):
        standing = space.engine.standing(space.name)
        removal = _Removal(space, asked)  # again: what was written since may hold an artifact of it
        digests = [*removal.gone, *(each for parts in removal.parts.values() for each in parts)]
        with suppress(Conflict):
            freed = space.engine.forget(space.name, digests, why=redaction.reason, standing=standing)
            space.cache.clear()
            return msgspec.structs.replace(report, freed=freed)
    raise Conflict(
        f"thread '{space.label}' was written during each of {_ATTEMPTS_MAX} attempts; the words are still there.",
        code="redaction_not_finished",
        advice="Redact it again: that finishes it.",
        thread=space.label,
        id=id,
    )


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants to be redacted."""

    id: str
    subject: Subject
    bodies: frozenset[Digest] = frozenset()  # of whole messages
    arguments: frozenset[str] = frozenset()  # of these calls
    results: frozenset[str] = frozenset()
    artifacts: frozenset[Digest] = frozenset()

    @property
    def calls(self) -> frozenset[str]:
        """The calls of which a part is wanted."""
        return self.arguments | self.results


def _asked(space: Space, id: str, part: CallPart | None) -> _Asked:
    """Return what an id names: a message, a call or an artifact; raises `NotFound`, or `Invalid` for another part."""
    if part not in (None, "arguments", "result"):
        raise Invalid(
            f"a part of a call is 'arguments' or 'result', not {part!r}; nothing was redacted.",
            code="part_unknown",
        )
    names.check_id("id", id)
    if id.startswith(REFERENCE):
        digest = parse_reference(id)
        if not space.engine.missing(space.name, (digest,)):
            return _Asked(id=id, subject="artifact", artifacts=frozenset({digest}))
    elif calls.find(space, id) is not None:
        own, none = frozenset({id}), frozenset[str]()
        return _Asked(
            id=id,
            subject="call",
            arguments=none if part == "result" else own,
            results=none if part == "arguments" else own,
        )
    elif part is None and (bodies := _bodies_of(space, id)):
        said = [decode_message(body) for digest in bodies if (body := _read(space, digest)) is not None]
        return _Asked(
            id=id,
            subject="message",
            bodies=frozenset(bodies),
            arguments=frozenset(call.id for each in said for call in each.tool_calls),
            results=frozenset(result.call_id for each in said for result in each.tool_results),
        )
    raise NotFound(
        f"'{space.label}' has no {'call' if part else 'message, call or artifact'} '{id}'; nothing was redacted.",
        code="redaction_not_found",
        advice="Ids of messages are in the transcript, those of calls in the list of calls.",
        thread=space.label,
        id=id,
    )


def _bodies_of(space: Space, id: str) -> list[Digest]:
    """Return the bodies of the message of that id, each as what stands in its place if a part of it is redacted."""
    events = [
        event
        for commit in space.engine.labelled(space.name, id)
        for event in space.step(commit).changeset.events
        if isinstance(event, MessageAppended) and event.id == id
    ]
    found: dict[Digest, None] = {}
    for event in events:
        found[event.body] = None
        redaction = space.redaction(event.body)
        if redaction is not None and redaction.stand_in is not None:
            found[redaction.stand_in] = None
    return list(found)


def _read(space: Space, digest: Digest) -> bytes | None:
    try:
        return space.nodes((digest,))[0]
    except Forgotten:
        return None


class _Removal:
    """What goes with a redaction, found by reading all that the thread's space holds."""

    def __init__(self, space: Space, asked: _Asked) -> None:
        self._space, self._asked = space, asked
        self.gone: dict[Digest, Object | None] = {}  # and what stands in the place of each
        self.parts: dict[Digest, tuple[Digest, ...]] = {}  # of the artifacts among them: their chunks
        self.messages: dict[str, None] = {}  # ids
        self.bytes = 0
        self._artifacts = set(asked.artifacts)
        self._texts: dict[str, None] = {}
        for kind, body in self._of_calls():
            self._take_body(kind, body)
        self._take_messages()
        self._take_vendors()
        self.kept = self._take_artifacts()

    @property
    def texts(self) -> list[str]:
        """What the redacted parts say: each text, and of a short one its lines, and words as of names and passwords."""
        found: dict[str, None] = {}
        for text in self._texts:
            is_short = len(text) <= _SHORT_MAX
            lines = text.splitlines() if is_short else ()
            telling = (
                [word.strip(_AROUND) for word in text.split() if _TELLING.search(word)] if is_short else ()
            )
            found |= {
                each.strip(): None for each in (text, *lines, *telling) if len(each.strip()) >= _TEXT_MIN
            }
        return list(found)

    def report(self, asked: _Asked, elsewhere: tuple[Elsewhere, ...], *, dry_run: bool) -> RedactionReport:
        """Return what goes as the caller reads it."""
        return RedactionReport(
            thread=self._space.label,
            id=asked.id,
            subject=asked.subject,
            messages=tuple(self.messages),
            count=len(self.gone) + sum(map(len, self.parts.values())),
            bytes=self.bytes,
            freed=0,
            kept=tuple(map(reference, sorted(self.kept))),
            elsewhere=elsewhere,
            dry_run=dry_run,
        )

    def _of_calls(self) -> Iterator[tuple[CallPart, Digest]]:
        """Yield the bodies that the ledger names as arguments or results of the calls; note their artifacts."""
        for entry in loops.entries(self._space.engine, self._space.name) if self._asked.calls else ():
            step = decode_transition(entry.body)
            record: dict[str, Any] = msgspec.json.decode(step.record) if step.record else {}
            ticket: dict[str, Any] = msgspec.json.decode(step.ticket) if step.ticket else {}
            fields: dict[str, Any] = {**record, **step.set}
            value = None if step.decision is None else step.decision.value
            answers = step.decision is not None and step.decision.verdict == "answer"
            edited, answer = (None, value) if answers else (value, None)
            if step.call in self._asked.arguments:
                for each in (fields.get("args"), fields.get("approved"), ticket.get("args"), edited):
                    if each is not None:
                        yield "arguments", Digest(each)
            if step.call in self._asked.results:
                for each in (fields.get("preview"), answer):
                    if each is not None:
                        yield "result", Digest(each)
                self._artifacts |= {parse_reference(each) for key in _CONTENT if (each := fields.get(key))}

    def _take_body(self, part: CallPart, digest: Digest) -> None:
        body = _read(self._space, digest)
        if body is None:
            return
        text = body.decode("utf-8", "surrogatepass")
        if part == "arguments":
            after = redacted_arguments(text).encode("utf-8", "surrogatepass")
            self._note_arguments(text)
        else:
            after = _without_result(body)
        if after != body:
            self._go(digest, body, after)

    def _take_messages(self) -> None:
        """Take the messages that are wanted, and every one that has a part of the calls."""
        ids = re.compile(
            b"|".join(re.escape(each.encode()) for each in sorted(self._asked.calls)) or rb"(?!)"
        )
        for fact in self._facts(Kind.BODY):
            if fact.digest not in self._asked.bodies and not ids.search(fact.body):
                continue
            message = _message(fact.body)
            if message is None:
                continue
            if fact.digest in self._asked.bodies:
                after = redacted_message(message)
                self._note_texts(message.content)
            else:
                after = without_parts(message, self._asked.arguments, self._asked.results)
            if after != message:
                self._note_parts(message)
                self._go(fact.digest, fact.body, encode_message(after))

    def _take_vendors(self) -> None:
        """Take what vendors sent with the messages that go, and note the ids of these messages."""
        for changeset in self._changesets():
            for event in changeset.events:
                if isinstance(event, MessageAppended) and event.body in self.gone:
                    self.messages[event.id] = None
                    body = None if event.vendor is None else _read(self._space, event.vendor)
                    if event.vendor is not None and body is not None:
                        self._go(event.vendor, body, None)

    def _take_artifacts(self) -> set[Digest]:
        """Take the artifacts that nothing else of the thread holds; return the others."""
        found = {each: body for each in self._artifacts if (body := _read(self._space, each)) is not None}
        chunks = {each: decode_artifact(body).chunks for each, body in found.items()}
        held, shared = self._held({*chunks, *_flat(chunks.values())}) if chunks else (_NONE, _NONE)
        kept = {each for each, parts in chunks.items() if each in held or not held.isdisjoint(parts)}
        for each in chunks.keys() - kept:
            parts = tuple(part for part in dict.fromkeys(chunks[each]) if part not in shared)
            content = [part.body for part in self._space.objects_there(parts) if part is not None]
            self.gone[each], self.parts[each] = None, parts
            self.bytes += len(found[each]) + sum(map(len, content))
            with suppress(UnicodeDecodeError):
                self._texts |= {one.decode(): None for one in content}
        return kept

    def _held(self, digests: set[Digest]) -> tuple[set[Digest], set[Digest]]:
        """Return those of the digests that the state or media of another message hold, and those of other artifacts."""
        held, shared = set[Digest](), set[Digest]()
        for fact in self._facts(Kind.NODE, Kind.LIST, Kind.ARTIFACT, Kind.BODY):
            if fact.digest in self._artifacts or fact.digest in self.gone:
                continue
            match fact.kind:
                case Kind.NODE:
                    held.update(digests.intersection(refs(fact.body)[1]))
                case Kind.LIST:
                    held.update(
                        digests.intersection(child.digest for child in decode_node(fact.body).children)
                    )
                case Kind.ARTIFACT:
                    shared.update(digests.intersection(decode_artifact(fact.body).chunks))
                case _ if REFERENCE.encode() in fact.body and (message := _message(fact.body)) is not None:
                    held.update(digests.intersection(_media(message)))
                case _:
                    pass
        return held, shared

    def _go(self, digest: Digest, body: bytes, after: bytes | None) -> None:
        self.gone[digest] = None if after is None else Object.of(Kind.BODY, after)
        self.bytes += len(body)

    def _note_parts(self, message: Message) -> None:
        """Note the words and the media of the parts of a message that go."""
        for call in message.tool_calls:
            if call.id in self._asked.arguments:
                self._note_arguments(call.args)
        for result in message.tool_results:
            if result.call_id in self._asked.results:
                self._note_texts(result.content)

    def _note_texts(self, content: Iterable[object]) -> None:
        for block in content:
            if isinstance(block, Image | File):
                self._artifacts |= _referred(block.uri)
            elif isinstance(text := getattr(block, "text", None), str):
                self._texts[text] = None

    def _note_arguments(self, args: str) -> None:
        with suppress(ValueError, RecursionError):
            self._texts |= dict.fromkeys(_leaves(json.loads(args)))

    def _facts(self, *kinds: Kind) -> Iterator[Object]:
        for page in stored_objects.whole_pages(self._space.engine, self._space.name):
            for fact in page:
                if fact.object is not None and fact.object.kind in kinds:
                    yield fact.object

    def _changesets(self) -> Iterator[Changeset]:
        return (decode_changeset(fact.body) for fact in self._facts(Kind.CHANGESET))


def _without_result(body: bytes) -> bytes:
    """Return what stands in the place of the part of a result that a model is shown, or of a decision's value."""
    try:
        return canonical.encode_struct(redacted_result(_results.decode(body)))
    except msgspec.DecodeError:
        return b"null"


def _message(body: bytes) -> Message | None:
    try:
        return decode_message(body)
    except Corrupt:
        return None


def _media(message: Message) -> set[Digest]:
    blocks = [*message.content, *(block for result in message.tool_results for block in result.content)]
    return {each for block in blocks if isinstance(block, Image | File) for each in _referred(block.uri)}


def _referred(uri: str) -> set[Digest]:
    with suppress(Invalid):
        return {parse_reference(uri)}
    return set()


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts and numbers of a JSON value, without the keys."""
    if isinstance(value, dict):
        value = list(cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _leaves(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _check_settled(space: Space, asked: _Asked, removal: _Removal) -> None:
    """Raise `Conflict` if a call that still needs its arguments would lose them."""
    for each in calls.every(space):
        record = each.record
        if record.state not in UNSETTLED:
            continue
        if record.id in asked.calls or removal.gone.keys() & {record.args, record.approved}:
            raise Conflict(
                f"call '{record.id}' to {record.tool} is {record.state} and still needs its arguments; nothing was redacted.",
                code="call_not_settled",
                advice="Decide, cancel or resolve it first.",
                call=record.id,
                state=record.state,
            )


def _write(space: Space, removal: _Removal, redaction: Redaction) -> None:
    """Write the stand-ins and who had them put there; raise `Busy` while a run is on a timeline."""
    redactions: list[CellWrite] = []
    for digest, after in removal.gone.items():
        stand_in = None if after is None else after.digest
        parts = removal.parts.get(digest, ())
        told = msgspec.structs.replace(redaction, stand_in=stand_in, parts=parts)
        redactions.append(_cell(space, REDACTED + digest, canonical.encode_struct(told)))
    op_id = space.ids()
    write = Write(
        space=space.name,
        op_id=op_id,
        intent=digest_of(Kind.BODY, f"redact:{op_id}".encode()),
        fences=space.fences,
        objects=tuple(dict.fromkeys(after for after in removal.gone.values() if after is not None)),
        cells=(*redactions, *_moved_leases(space)),
        is_new=True,
    )
    space.engine.apply(write)


def _moved_leases(space: Space) -> Iterator[CellWrite]:
    """Yield the writes after which no run goes on with what it has read; raises `Busy` if one is on a timeline."""
    lines = {hold.head.timeline for hold in loops.holds(space.engine, space.name) if not hold.sealed}
    lines |= {cell.name.removeprefix(LEASE) for cell in loops.cells(space.engine, space.name, prefix=LEASE)}
    for line in sorted(lines):
        fence = leases.check_free(space, line, "redacting")
        yield CellWrite(name=fence.cell, expected=fence.revision, value=None)


def _cell(space: Space, name: str, value: bytes) -> CellWrite:
    cell = space.engine.cell(space.name, name)
    return CellWrite(name=name, expected=cell.revision if cell else 0, value=value)


def _elsewhere(space: Space, removal: _Removal, words: Sequence[str]) -> Iterator[Elsewhere]:
    """Yield the places of the whole store that hold the words and do not go, each once."""
    if not words:
        return
    pattern, engine = _pattern(words), space.engine
    for name in loops.spaces(engine):
        going = set[Digest]() if name != space.name else {*removal.gone, *_flat(removal.parts.values())}
        place = words_for(engine, name)
        found = dict.fromkeys(_places_in(space_of(engine, name), pattern, going))
        for what, id in sorted(found):
            yield Elsewhere(space=name, place=place, what=what, id=id)


def _flat(parts: Iterable[Sequence[Digest]]) -> Iterator[Digest]:
    return (each for some in parts for each in some)


def _pattern(words: Sequence[str]) -> re.Pattern[bytes]:
    """Return a pattern of words as they are, in JSON, and in JSON that is a text of JSON, as arguments are."""
    forms: dict[bytes, None] = {}
    for each in words:
        text = each.encode("utf-8", "replace").decode()
        once = canonical.encode(text)[1:-1].decode()
        plain = () if once == text else (re.escape(text.encode()),)
        forms |= dict.fromkeys((as_words(text), as_words(once), *plain))
    return re.compile(b"|".join(forms))


def _places_in(space: Space, pattern: re.Pattern[bytes], going: set[Digest]) -> Iterator[tuple[Holder, str]]:
    """Yield what of a space holds the words."""
    engine, name = space.engine, space.name
    hits: dict[Digest, Kind] = {}
    for page in stored_objects.pages(engine, name):
        for fact in page:
            if fact.object is not None and fact.digest not in going and pattern.search(fact.object.body):
                hits[fact.object.digest] = fact.object.kind
    if hits:
        yield from _HitNames(space, hits).places()
    for cell in loops.cells(engine, name):
        if not cell.name.startswith(REDACTED) and pattern.search(cell.value or b""):
            yield "record", cell.name.partition("/")[2]
    for entry in loops.entries(engine, name):
        if pattern.search(entry.body):
            yield "record", decode_transition(entry.body).call


class _HitNames:
    """Finds what the objects are that hold words: a message, a path, an artifact."""

    def __init__(self, space: Space, hits: Mapping[Digest, Kind]) -> None:
        self._space, self._hits = space, hits
        self._left = dict(hits)
        self._contexts: dict[Digest, str] = {}  # recipes, each with the first message that it was used for

    def places(self) -> Iterator[tuple[Holder, str]]:
        """Yield each place; objects that no commit names come last, by their kind."""
        chunks: dict[Digest, list[Digest]] = {}  # the artifacts that have a chunk
        for page in stored_objects.pages(self._space.engine, self._space.name):
            for fact in page:
                if fact.object is None:
                    continue
                if fact.object.kind is Kind.CHANGESET:
                    yield from self._in_changeset(decode_changeset(fact.object.body))
                elif fact.object.kind is Kind.ARTIFACT:
                    for chunk in decode_artifact(fact.object.body).chunks:
                        chunks.setdefault(chunk, []).append(fact.object.digest)
        for chunk in self._hits.keys() & chunks.keys():
            self._left.pop(chunk, None)
            for each in chunks[chunk]:
                yield "artifact", reference(each)
        for digest, message in self._contexts.items():
            with suppress(Forgotten):
                if self._take(digest, *needs(decode_recipe(self._space.body(digest)))):
                    yield "context", message
        for kind in self._left.values():
            yield _KINDS.get(kind, "record"), ""

    def _in_changeset(self, changeset: Changeset) -> Iterator[tuple[Holder, str]]:
        for event in changeset.events:
            match event:
                case MessageAppended():
                    if self._take(event.body, event.vendor):
                        yield "message", event.id
                    if event.context is not None:
                        self._contexts.setdefault(event.context, event.id)
                case ToolCallRequested():
                    if self._take(event.args):
                        yield "call", event.call
                case CheckpointCreated(checkpoint=checkpoint) | BackendSwitched(checkpoint=checkpoint):
                    if self._take(checkpoint):
                        yield "checkpoint", str(checkpoint)
                case _:
                    pass
        for op in changeset.patch.ops:
            if isinstance(op, Put) and self._take(op.value):
                if self._space.name.startswith(MEMORY):
                    yield "memory", next(iter(items_of(changeset.patch)), op.path)
                else:
                    yield "state", op.path

    def _take(self, *digests: Digest | None) -> list[Digest]:
        """Return those of the digests that hold words, which have a name from now on."""
        found = [each for each in digests if each is not None and each in self._hits]
        for each in found:
            self._left.pop(each, None)
        return found


_KINDS: Mapping[Kind, Holder] = {
    Kind.VALUE: "state",
    Kind.NODE: "state",
    Kind.LIST: "state",
    Kind.CHECKPOINT: "checkpoint",
    Kind.COMMIT: "history",
    Kind.CHANGESET: "history",
    Kind.MOVE: "history",
}

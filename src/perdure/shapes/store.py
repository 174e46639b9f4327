"""The shapes of what a store holds beside conversations: state, agents, memory, artifacts, costs, and its verification."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from perdure.errors import NotFound
from perdure.history.artifacts import Listed
from perdure.history.changes.json_edits import Place, read
from perdure.history.tree import Entry
from perdure.history.verify import VerifyReport
from perdure.memory import Found
from perdure.model.memory import Remembered, Source
from perdure.model.names import SERVER_THREAD
from perdure.model.run import Cost, Usage
from perdure.shapes.conversation import MessageShape, input_at, transcript_of
from perdure.shapes.ledger import CostShape
from perdure.shapes.text import in_short, preview, stamp
from perdure.store.agents import AgentMap, Kept
from perdure.store.memory import Memory
from perdure.store.plumbing.revisions import Wanted
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = [
    "StateOf",
    "EntryShape",
    "StatePage",
    "StateValue",
    "BlameShape",
    "NamedAgent",
    "AgentShape",
    "AgentPage",
    "VersionShape",
    "AgentDetail",
    "MemoryAdded",
    "MemoryShape",
    "FoundShape",
    "MemoryPage",
    "MemoryOwners",
    "MemorySearch",
    "ArtifactShape",
    "ArtifactPage",
    "CostPage",
    "FaultShape",
    "VerifyShape",
    "whose",
]

_SCHEME = "artifact://sha256/"


class StateOf(msgspec.Struct, frozen=True, kw_only=True):
    """An answer about one state: a thread's, or an agent's own map; the other one is null."""

    thread: str | None
    agent: str | None

    @property
    def whose(self) -> str:
        """Return its name for a sentence."""
        return f"agent {self.agent}" if self.thread is None else self.thread


def whose(line: Thread | AgentMap) -> dict[str, str | None]:
    """Return the fields of `StateOf`."""
    is_thread = isinstance(line, Thread)
    return {"thread": line.id if is_thread else None, "agent": None if is_thread else line.name}


class EntryShape(msgspec.Struct, frozen=True, kw_only=True):
    """One path, and what it holds: form (json or bytes), media type, size and digest."""

    path: str
    form: str
    media_type: str
    size: int
    digest: str
    preview: str  # the value on one line, for people

    @classmethod
    def of(cls, view: View, entry: Entry) -> EntryShape:
        """Return the entry in the shape of --json."""
        return cls(
            path=entry.path,
            form=entry.form,
            media_type=entry.media_type,
            size=entry.size,
            digest=entry.value,
            preview=preview(view, entry),
        )


class StatePage(StateOf, frozen=True, kw_only=True):
    """The paths of a state, sorted."""

    commit: str | None
    prefix: str
    paths: list[EntryShape]
    more: bool  # whether there are others beyond the limit


class StateValue(StateOf, frozen=True, kw_only=True):
    """The value at a path: `value` for a JSON document, `base64` for bytes."""

    path: str
    commit: str | None  # the moment it was read at
    form: str
    media_type: str
    size: int
    digest: str
    value: Any = UNSET
    base64: str | UnsetType = UNSET

    @classmethod
    def of(cls, line: Thread | AgentMap, seen: View, path: str) -> Self:
        """Read the value at a path of `line`, at the moment of `seen`; raises `NotFound`."""
        entry, value = seen.entry(path), seen.get(path)
        return cls(
            **whose(line),
            path=path,
            commit=seen.digest,
            form=entry.form,
            media_type=entry.media_type,
            size=entry.size,
            digest=entry.value,
            value=UNSET if isinstance(value, bytes) else value,
            base64=base64.b64encode(value).decode() if isinstance(value, bytes) else UNSET,
        )


class BlameShape(StateOf, frozen=True, kw_only=True):
    """The commit that wrote the value at a path, and what stood behind it."""

    path: str
    place: list[str | int]  # inside the document; empty: the document as a whole
    preview: str
    commit: str
    turn: int
    apart: bool  # it belongs to no message: an edit, a switch, a merge or a cherry-pick, after that turn
    reason: str
    input: str  # what the user said in its turn; empty: it belongs to no message
    at: str
    author: str | None
    run: str | None
    backend: str | None
    message: MessageShape | None  # the last one of the same turn, up to that commit
    merged_from: str | None  # the timeline that wrote it, where a merge brought it, and whose turn it is
    beside_run: str | None  # the run that was under way in that turn while a program wrote it
    before: str | None  # the commit before that turn, on its own timeline; null: none

    @classmethod
    def of(cls, line: Thread | AgentMap, seen: View, path: str, place: Place = ()) -> Self:
        """Find what wrote the value at a path of `line`, at the moment of `seen`; raises `NotFound`."""
        found = seen.blame(path, place=place)
        then = seen.at(found.commit)
        last = transcript_of(then, limit=1) if found.message is not None else ()
        entry = then.log(limit=1)[0]
        turn = then.turns(limit=1, passes_damage=True)[-1]
        return cls(
            **whose(line),
            path=path,
            place=list(place),
            preview=in_short(read(seen.get(path), place)) if place else preview(seen, seen.entry(path)),
            commit=found.commit,
            turn=entry.turn,
            apart=entry.is_apart,
            reason=found.reason,
            input="" if found.beside_run else input_at(then),
            at=stamp(found.at),
            author=found.author,
            run=found.run,
            backend=found.backend,
            message=next((MessageShape.of(entry) for entry in last if entry.id == found.message), None),
            merged_from=found.merged_from,
            beside_run=found.beside_run,
            before=turn.before,
        )


class NamedAgent(msgspec.Struct, frozen=True, kw_only=True):
    """One agent, and what is kept of its definition."""

    name: str
    backend: str | None  # null: it is declared in code, or only keeps state
    tools: list[str]
    applied_at: str | None  # null: no definition is kept
    version: str | None

    @classmethod
    def of(cls, store: Store, name: str, **more: Any) -> Self:
        """Read what is kept of an agent's definition, and add what else the shape has."""
        kept = store.definitions.find(name)
        return cls(
            name=name,
            backend=kept.definition.backend if kept else None,
            tools=list(kept.definition.tools) if kept else [],
            applied_at=stamp(kept.at) if kept else None,
            version=kept.digest if kept else None,
            **more,
        )


class AgentShape(NamedAgent, frozen=True, kw_only=True):
    """One agent, what is kept of its definition, and how many threads it has."""

    threads: int


class AgentPage(msgspec.Struct, frozen=True, kw_only=True):
    """The agents of a store, by name."""

    agents: list[AgentShape]

    @classmethod
    def of(cls, store: Store) -> Self:
        """Return every agent that has a thread, a map or a definition; the server's own thread has no agent that runs."""
        threads = Counter(thread.agent for thread in store.threads())
        names = sorted({*store.agents(), *threads} - {SERVER_THREAD})
        return cls(agents=[AgentShape.of(store, name, threads=threads[name]) for name in names])


class VersionShape(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an agent's definition."""

    digest: str
    commit: str  # of the agent's own map
    at: str
    definition: dict[str, Any]

    @classmethod
    def of(cls, kept: Kept) -> VersionShape:
        """Return the version in the shape of --json."""
        return cls(
            digest=kept.digest, commit=kept.commit, at=stamp(kept.at), definition=kept.definition.fields
        )


class AgentDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One agent: its definition, the last versions of it, and its threads."""

    name: str
    threads: list[str]
    versions: list[VersionShape]  # newest first; none: it is declared in code alone


class SourceShape(msgspec.Struct, frozen=True, kw_only=True):
    """Where an item comes from."""

    thread: str
    commit: str
    run: str | None
    call: str | None
    agent: str | None

    @classmethod
    def of(cls, source: Source) -> SourceShape:
        """Return the origin in the shape of --json."""
        return cls(
            thread=source.thread,
            commit=source.commit,
            run=source.run,
            call=source.call,
            agent=source.agent,
        )


class MemoryShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is remembered."""

    id: str
    owner: str
    text: str
    kind: str
    scope: str
    trust: str  # who said it
    at: str
    expires_at: str | None  # null: it is kept until it is forgotten
    reference: str
    source: SourceShape | None  # null: it was added by hand
    pinned: bool  # every run of the owner is shown it, whatever its input says

    @classmethod
    def of(cls, item: Remembered) -> MemoryShape:
        """Return the item in the shape of --json."""
        return cls(
            id=item.id,
            owner=item.owner,
            text=item.text,
            kind=item.kind,
            scope=item.scope,
            trust=item.trust,
            at=stamp(item.at),
            expires_at=None if item.expires_at is None else stamp(item.expires_at),
            reference=item.reference,
            source=SourceShape.of(item.source) if item.source else None,
            pinned=item.pinned,
        )


class MemoryAdded(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is remembered now."""

    item: MemoryShape
    known: bool  # there was an item already that says the same; no other one was added
    confirmed: (
        str | None
    )  # whose words they were, where such an item has a stronger source now; null: they stay theirs
    replaced: (
        str | None
    )  # the text that the item of the id had before; null: there was none, or no id was given

    @classmethod
    def of(cls, memory: Memory, id: str | None, add: Callable[[], Remembered]) -> Self:
        """Add an item by `add`, under an `id` or none, and return it with what there was before."""
        head = memory.head
        old = None if id is None else _item_at(memory, id, UNSET)
        item = add()
        was = _item_at(memory, item.id, head) if id is None else None
        return cls(
            item=MemoryShape.of(item),
            known=was is not None,
            confirmed=None if was is None or was.trust == item.trust else was.trust,
            replaced=None if old is None else old.text,
        )


def _item_at(memory: Memory, id: str, at: Wanted) -> Remembered | None:
    with suppress(NotFound):
        return memory.get(id, at=at)
    return None


class FoundShape(msgspec.Struct, frozen=True, kw_only=True):
    """An item that a search found."""

    item: MemoryShape
    score: float  # above 0, and 1 for an item that every leg found first
    similarity: float | None  # the cosine of its vector and the query's; null: one of them has no vector
    legs: list[str]  # text, vector: which found it

    @classmethod
    def of(cls, found: Found) -> FoundShape:
        """Return the find in the shape of --json."""
        return cls(
            item=MemoryShape.of(found.item),
            score=found.score,
            similarity=found.similarity,
            legs=list(found.legs),
        )


class MemoryPage(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered for an owner, by id."""

    owner: str
    items: list[MemoryShape]
    more: bool  # whether there are others beyond the limit
    near: list[str]  # where there is nothing: owners or scopes that may have been meant


class MemoryOwners(msgspec.Struct, frozen=True, kw_only=True):
    """Those who have a memory, by name."""

    owners: list[str]
    more: bool  # whether there are others beyond the limit


class MemorySearch(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found, the best first."""

    owner: str
    query: str
    legs: list[str]  # text, vector: how it was searched
    found: list[FoundShape]
    near: list[str]  # where there is nothing: owners or scopes that may have been meant
    missing: str | None  # why words alone were searched, and how meaning is too; null: nothing is missing


class ArtifactShape(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an artifact without reading its content."""

    digest: str
    reference: str
    name: str | None
    media_type: str
    size: int
    sha256: str  # of the plain content, as sha256sum prints it
    at: str | None  # when it was listed; null: it never was
    named: str | None = None  # artifact://<collection>/<name>, where it has such a name
    call: str | None = None  # the call whose result it is
    run: str | None = None
    commit: str | None = None  # that named it, or has the call

    @classmethod
    def of(cls, listed: Listed) -> ArtifactShape:
        """Return the artifact in the shape of --json."""
        return cls(
            digest=listed.digest,
            reference=_SCHEME + listed.digest,
            name=listed.name,
            media_type=listed.media_type,
            size=listed.size,
            sha256=listed.sha256,
            at=None if listed.at is None else stamp(listed.at),
            named=f"artifact://{listed.name}" if listed.name and listed.commit else None,
            call=listed.call,
            run=listed.run,
            commit=listed.commit,
        )


class ArtifactPage(msgspec.Struct, frozen=True, kw_only=True):
    """The artifacts that a thread lists, by digest."""

    thread: str
    artifacts: list[ArtifactShape]
    more: bool  # whether there are others beyond the limit


class SpentShape(msgspec.Struct, frozen=True, kw_only=True):
    """What one run, turn, thread, owner or agent cost."""

    of: str | None  # null: threads without an owner
    cost: CostShape
    usage: Usage


class CostPage(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent on models."""

    by: str
    costs: list[SpentShape]
    total: SpentShape

    @classmethod
    def of(cls, by: str, spent: Iterable[tuple[str | None, Cost, Usage]]) -> Self:
        """Add up what was spent, under the name of each."""
        found: dict[str | None, tuple[Cost, Usage]] = {}
        for of, cost, usage in spent:
            before = found.get(of, (Cost(), Usage()))
            found[of] = before[0] + cost, before[1] + usage
        shapes = [_spent(of, cost, usage) for of, (cost, usage) in found.items() if cost.steps]
        whole = sum((cost for cost, _ in found.values()), Cost())
        total = _spent(None, whole, sum((usage for _, usage in found.values()), Usage()))
        return cls(by=by, costs=shapes, total=total)


def _spent(of: str | None, cost: Cost, usage: Usage) -> SpentShape:
    return SpentShape(of=of, cost=CostShape.of(cost), usage=usage)


class FaultShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written, or not as the rules want it."""

    space: str
    kind: str
    what: str
    digest: str | None
    name: str | None
    place: str | None  # what people call the space, such as thread 'trip'


class VerifyShape(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked, and what is wrong."""

    store: str
    ok: bool
    faults: list[FaultShape]
    checked: dict[str, int]  # by kind
    forgotten: int  # objects of which only digests are left, by a policy: no content of theirs was checked
    redacted: int  # the same, because a person had them redacted
    unchecked: int  # commits whose state could not be computed again, as a part was forgotten or damaged
    unnamed: int  # faults beyond the first ten thousand
    written: int  # spaces that others wrote to during the check: what they wrote then was not checked
    partial: int  # spaces of which only what was written since the given point was checked

    @classmethod
    def of(cls, store: str, report: VerifyReport) -> Self:
        """Return the report in the shape of --json."""
        return cls(
            store=store,
            ok=report.ok,
            faults=[FaultShape(**msgspec.structs.asdict(fault)) for fault in report.faults],
            checked=report.checked,
            forgotten=report.forgotten,
            redacted=report.redacted,
            unchecked=report.unchecked,
            unnamed=report.unnamed,
            written=report.written,
            partial=report.partial,
        )

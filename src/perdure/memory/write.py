"""Writes to a memory: directly, or what a thread's commit remembered.

Either is one commit of the owner's memory.  A direct write replaces all versions of an item, or is put beside them, and
always counts; the memory's own undo reverts it.  A thread's write adds one version, which names the thread's
commit and counts as long as that commit is reachable; earlier versions stay.

A writer that finds a newer head applies its change on top of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from msgspec import UNSET, UnsetType

from perdure.engines.contract import Step
from perdure.engines.loops import ATTEMPTS_MAX, Attempts, delayed
from perdure.errors import Invalid, StaleHead
from perdure.history import writer
from perdure.history.changes.patch_builder import Ops, Patched
from perdure.history.space import Space
from perdure.history.writer import CommitOutcome, Proposal
from perdure.model import canonical
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MemoryWritten
from perdure.model.head import MAIN, Head
from perdure.model.memory import (
    ItemKind,
    MemoryChange,
    MemoryItem,
    Source,
    Trust,
    Version,
    decode_item,
    item_prefix,
    version_path,
)

__all__ = ["End", "NewVersion", "deliver", "events_of", "given_fields", "remove", "until", "write"]

End: TypeAlias = "datetime | timedelta | UnsetType | None"
"""When an item ends, or how long it stays; None: it does not end, unset: the caller does not say."""

NewVersion: TypeAlias = Callable[[Digest | None], Version]
"""Returns the version to write on top of a commit of the memory, None before the first; it may raise."""


def write(
    space: Space,
    id: str,
    version: Version | NewVersion | None,
    *,
    reason: str,
    op_id: str | None = None,
    author: str | None = None,
    meant: Sequence[str | None] | None = None,
    beside: bool = False,
) -> CommitOutcome:
    """Replace all versions of an item by `version`; None removes the item.  With `beside` they stay, before it.

    `version` may depend on what is there: it is then made once more for each commit that the change comes on top of.
    `meant` is what the caller asked for, which a write under the same op_id must ask for again; None: the version.
    Raises `Conflict`, having written nothing, if other writers are first at each attempt.
    """
    if meant is None:
        item = version.item if isinstance(version, Version) else None
        # not the time: it differs each time
        meant = [item.text, item.kind, item.scope, item.trust] if item else []
    intent = digest_of(Kind.BODY, canonical.encode([reason, id, list(meant)]))
    before = writer.once(space, op_id, intent) if op_id is not None and callable(version) else None
    if before is not None:
        return CommitOutcome(receipt=before, head=before.heads[0], step=None)

    def change(head: Head, ops: Ops) -> None:
        new = version(head.commit) if callable(version) else version
        # A removal names its item also where nothing is left to remove, as an erasure of what was forgotten before.
        if not beside and (new is None or ops.paths(item_prefix(id))):
            ops.clear(item_prefix(id))
        if new is not None:
            _put(ops, version_path(id, _depth(space, head), 0), new)

    return _on_newest(space, change, reason=reason, op_id=op_id, intent=intent, author=author)


def remove(
    space: Space,
    ids: Callable[[Digest | None], Sequence[str]],
    *,
    reason: str,
    op_id: str | None = None,
    author: str | None = None,
) -> Head:
    """Remove all versions of the items that `ids` names for a commit of the memory, by one commit; return the head.

    Without any nothing is written.  Raises `Conflict`, having written nothing, if other writers are first at each
    attempt.
    """
    intent = digest_of(Kind.BODY, canonical.encode([reason, "all"]))
    before = None if op_id is None else writer.once(space, op_id, intent)
    if before is not None:
        return before.heads[0]
    head = _head(space)
    if not ids(head.commit):
        return head

    def change(head: Head, ops: Ops) -> None:
        for id in ids(head.commit):
            ops.clear(item_prefix(id))

    return _on_newest(space, change, reason=reason, op_id=op_id, intent=intent, author=author).head


def _on_newest(
    space: Space,
    change: Callable[[Head, Ops], None],
    *,
    reason: str,
    op_id: str | None,
    intent: Digest,
    author: str | None,
) -> CommitOutcome:
    """Commit a change of the memory on top of its newest head; if that has moved, the change is made once more."""
    attempts = Attempts(f"'{space.label}'", f"nothing was written to '{space.label}'")
    while True:
        attempts.begin()
        head = _head(space)
        ops = Ops(space, space.root_at(head.commit))
        change(head, ops)
        done = _committed(
            space,
            head,
            ops.finish(),
            reason=reason,
            op_id=op_id or space.ids(),
            intent=intent,
            author=author,
        )
        if done is not None:
            return done


def deliver(thread: Space, memory: Space, step: Step, owner: str, *, agent: str | None, op_id: str) -> None:
    """Apply what the thread's commit `step` wrote to that owner's memory, once.

    Raises `Unavailable` if other writers are first at each attempt; a later call finishes it.
    """
    intent = digest_of(Kind.BODY, canonical.encode(["memory.written", step.digest]))
    events = [
        event for event in step.changeset.events if isinstance(event, MemoryWritten) and event.owner == owner
    ]
    for _ in range(ATTEMPTS_MAX):
        if writer.once(memory, op_id, intent) is not None:
            return
        head = _head(memory)
        ops = Ops(memory, memory.root_at(head.commit))
        for place, event in enumerate(events):
            version = Version(item=_read(thread, event), source=_source(thread, step, event, agent))
            _put(ops, version_path(event.item, _depth(memory, head), place), version)
        done = _committed(
            memory,
            head,
            ops.finish(),
            reason=step.commit.reason,
            op_id=op_id,
            intent=intent,
            run=step.commit.run,
            author=step.commit.thread,
        )
        if done is not None:
            return
    raise delayed(f"the memory of '{owner}'")


def events_of(
    space: Space, owner: str, written: Sequence[MemoryChange], call: str | None
) -> tuple[list[MemoryWritten], list[Object]]:
    """Return the events for what a call wrote to memory, and the bodies with the items."""
    events: list[MemoryWritten] = []
    bodies: list[Object] = []
    for each in written:
        body = None if each.item is None else Object.of(Kind.BODY, canonical.encode_struct(each.item))
        events.append(
            MemoryWritten(
                id=space.ids(),
                owner=owner,
                item=each.id,
                body=body.digest if body else None,
                size=len(body.body) if body else 0,
                scope=each.item.scope if each.item else None,
                call=call,
            )
        )
        bodies += (body,) if body else ()
    return events, bodies


def given_fields(
    now: int,
    *,
    text: str | None,
    trust: Trust | UnsetType,
    kind: ItemKind | UnsetType,
    scope: str | UnsetType,
    expires: End,
    pinned: bool | UnsetType,
) -> dict[str, Any]:
    """Return the fields of an item that a caller gave, at the time `now`; a `text` of None is not given.

    Raises `Invalid` for an end that is not in the future.
    """
    end = expires if isinstance(expires, UnsetType) else until(expires, now)
    fields = {
        "text": UNSET if text is None else text,
        "trust": trust,
        "kind": kind,
        "scope": scope,
        "expires_at": end,
        "pinned": pinned,
    }
    return {name: value for name, value in fields.items() if value is not UNSET}


def until(expires: datetime | timedelta | None, now: int) -> int | None:
    """Return the time of expiry, in µs since 1970, UTC; raises `Invalid` if it is not in the future."""
    if expires is None:
        return None
    if isinstance(expires, timedelta):
        until = now + round(expires.total_seconds() * 1_000_000)
    elif isinstance(expires, datetime) and expires.tzinfo is not None:  # pyright: ignore[reportUnnecessaryIsInstance]
        until = round(expires.timestamp() * 1_000_000)
    else:
        raise Invalid(
            f"expires is a duration, or a time with its zone, not {expires!r}; nothing was remembered.",
            code="expiry_invalid",
        )
    if until <= now:
        raise Invalid("expires is in the past; nothing was remembered.", code="expiry_in_past")
    if until > canonical.INT_MAX:  # such a number of µs is in no JSON value
        raise Invalid(
            "expires is after June 2255, and no such time can be stored; nothing was remembered.",
            code="expiry_invalid",
            advice="Leave it out: the item then stays until it is forgotten.",
        )
    return until


def _head(space: Space) -> Head:
    hold = space.engine.hold(space.name, MAIN)
    return hold.head if hold else Head(MAIN, 0, None)


def _depth(space: Space, head: Head) -> int:
    """Return the depth of the commit that comes on top of `head`."""
    return 0 if head.commit is None else space.step(head.commit).commit.depth + 1


def _put(ops: Ops, path: str, version: Version) -> None:
    ops.put(path, canonical.decode(canonical.encode_struct(version)))


def _read(thread: Space, event: MemoryWritten) -> MemoryItem | None:
    return None if event.body is None else decode_item(thread.body(event.body))


def _source(thread: Space, step: Step, event: MemoryWritten, agent: str | None) -> Source:
    return Source(
        space=thread.name,
        thread=step.commit.thread,
        commit=step.digest,
        run=step.commit.run,
        call=event.call,
        agent=agent,
    )


def _committed(
    space: Space,
    head: Head,
    patched: Patched,
    *,
    reason: str,
    op_id: str,
    intent: Digest,
    run: str | None = None,
    author: str | None = None,
) -> CommitOutcome | None:
    """Commit on top of `head`; None if it has moved."""
    proposal = Proposal(
        reason=reason,
        root=patched.root,
        patch=patched.patch,
        objects=patched.objects,
        cells=patched.cells,
        run=run,
        author=author,
    )
    try:
        return writer.commit(space, head, proposal, op_id=op_id, intent=intent)
    except StaleHead:
        return None

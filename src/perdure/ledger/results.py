"""What a model is shown of a call: kept with the call, or in the message that tells it.

A result that is settled by the very write that tells the conversation is not kept twice: the call
names the message, by `result_label`, and its words are there.  Everything else has a body of its own.

Results of calls as artifacts: `artifact://tool-results/<call>`, and where an artifact comes from.

A call's result is part of a line's history once the commit that tells of it is; before that, and on lines
that do not hold that commit, the name leads nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from perdure.errors import Forgotten, NotFound
from perdure.history import artifact_names, reader
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.model.artifact import parse_reference
from perdure.model.call import CallRecord
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.model.message import ToolResult, decode_message

__all__ = ["shown", "TOOL_RESULTS", "Provenance", "in_history", "of_call", "provenance", "resolve", "results"]


_results = msgspec.json.Decoder(ToolResult)


def shown(space: Space, record: CallRecord) -> ToolResult | None:
    """What a model is shown of what the call came to; None: nothing was kept, or it was forgotten."""
    try:
        if record.preview is not None:
            return _results.decode(space.body(record.preview))
        return _told(space, record) if record.result_label else None
    except Forgotten:
        return None


def _told(space: Space, record: CallRecord) -> ToolResult | None:
    """The same from the message; a copy goes by the name of the call that it was made from."""
    named, label = {record.id}, record.result_label or ""
    while record.copied_from is not None:
        record = calls.read(space, record.copied_from).record
        named.add(record.id)
    for commit in space.engine.labelled(space.name, label):
        for event in space.step(commit).changeset.events:
            if isinstance(event, MessageAppended) and event.id == label:
                results = decode_message(space.body(event.body)).tool_results
                return next((each for each in results if each.call_id in named), None)
    return None


TOOL_RESULTS = "artifact://tool-results/"
_SCHEME = "artifact://"

_PAGE = 200


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an artifact comes from, as far as anybody knows."""

    call: str | None = None
    run: str | None = None
    commit: Digest | None = None


def resolve(space: Space, reference: str, *, at: Digest | None) -> Digest:
    """The digest that a reference leads to as of a commit, results of calls included.

    Raises as `naming.resolve` does; nothing of another thread or agent is ever found.
    """
    if not reference.startswith(TOOL_RESULTS):
        return artifact_names.resolve(space, reference, at=at)
    call = reference.removeprefix(TOOL_RESULTS)
    held = calls.find(space, call) if call else None
    if held is None or held.record.result is None or not _is_told(space, held.record, at):
        where = f"at {at[:12]}" if at else "before the first commit"
        raise NotFound(f"there is no result {reference[:300]} {where} in '{space.label}'; nothing was read.")
    return parse_reference(held.record.result)


def in_history(space: Space, reference: str, *, at: Digest | None) -> Digest:
    """The digest of an artifact that the history up to a commit holds: the result of a call, or under a name.

    Raises `NotFound` for any other, also for one of another line of the thread.
    """
    digest = resolve(space, reference, at=at)
    if not reference.startswith(f"{_SCHEME}sha256/"):
        return digest
    is_result = any(found == digest and _is_told(space, record, at) for record, found in results(space))
    if is_result or any(named.artifact == digest for _, named in artifact_names.known_names(space, at=at)):
        return digest
    raise NotFound(f"there is no artifact {reference[:300]} in the history of this line; nothing was read.")


def results(space: Space) -> Iterator[tuple[CallRecord, Digest]]:
    """The calls of a thread that have a result, by id, and its digest."""
    after = ""
    while page := calls.listing(space, after=after, limit=_PAGE):
        after = page[-1].record.id
        for held in page:
            if held.record.result is not None:
                yield held.record, parse_reference(held.record.result)


def of_call(space: Space, record: CallRecord) -> Provenance:
    """Where the result of a call comes from."""
    commits = _commits(space, record)
    return Provenance(call=record.id, run=record.run, commit=commits[0] if commits else None)


def provenance(space: Space, digest: Digest) -> Provenance | None:
    """The first call of the thread whose result is that artifact; None if none's is."""
    return next((of_call(space, record) for record, found in results(space) if found == digest), None)


def _is_told(space: Space, record: CallRecord, at: Digest | None) -> bool:
    return at is not None and any(reader.is_ancestor(space, each, at) for each in _commits(space, record))


def _commits(space: Space, record: CallRecord) -> list[Digest]:
    """The commits that hold a call's result."""
    label = record.result_label or record.label
    return list(space.engine.labelled(space.name, label)) if label else []

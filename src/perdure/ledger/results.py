"""Reads the results of calls: what a model is shown of them, and the artifacts `artifact://tool-results/<call>`.

The part that a model is shown is stored with the call, or in the message that has the result: a result that one write
settles and appends to the conversation is not stored twice; the call then names the message by `result_label`.

The artifact of a result is part of a timeline's history once the commit with its message is.  Before that commit, and
on timelines without it, the name is not found.
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

__all__ = ["shown", "in_history", "of_call", "provenance", "resolve", "results"]


_results = msgspec.json.Decoder(ToolResult)


def shown(space: Space, record: CallRecord) -> ToolResult | None:
    """Read the part of a call's result that a model is shown; None: there is none, or it was forgotten."""
    try:
        if record.preview is not None:
            return _results.decode(space.body(record.preview))
        return _from_message(space, record) if record.result_label else None
    except Forgotten:
        return None


def _from_message(space: Space, record: CallRecord) -> ToolResult | None:
    """Read it from the message, which names a copied call by the id of the call that it was copied from."""
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


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an artifact comes from, as far as the ledger says."""

    call: str | None = None
    run: str | None = None
    commit: Digest | None = None


def resolve(space: Space, reference: str, *, at: Digest | None) -> Digest:
    """Return the digest that a reference names as of a commit, results of calls included.

    Raises as `artifact_names.resolve` does; artifacts of other threads and agents are not found.
    """
    if not reference.startswith(TOOL_RESULTS):
        return artifact_names.resolve(space, reference, at=at)
    call = reference.removeprefix(TOOL_RESULTS)
    current = calls.find(space, call) if call else None
    if current is None or current.record.result is None or not _is_in_history(space, current.record, at):
        where = f"at {at[:12]}" if at else "before the first commit"
        raise NotFound(
            f"there is no result {reference[:300]} {where} in '{space.label}'; nothing was read.",
            code="result_not_found",
            reference=reference,
            thread=space.label,
        )
    return parse_reference(current.record.result)


def in_history(space: Space, reference: str, *, at: Digest | None) -> Digest:
    """Return the digest of an artifact in the history up to a commit: the result of a call, or a named artifact.

    Raises `NotFound` for any other artifact, also for one of another timeline of the thread.
    """
    digest = resolve(space, reference, at=at)
    if not reference.startswith(f"{_SCHEME}sha256/"):
        return digest
    is_result = any(found == digest and _is_in_history(space, record, at) for record, found in results(space))
    if is_result or any(named.artifact == digest for _, named in artifact_names.known_names(space, at=at)):
        return digest
    raise NotFound(
        f"there is no artifact {reference[:300]} in the history of this timeline; nothing was read.",
        code="artifact_not_found",
        reference=reference,
    )


def results(space: Space) -> Iterator[tuple[CallRecord, Digest]]:
    """Yield the calls of a thread that have a result, sorted by id, each with the digest of its result."""
    for current in calls.every(space):
        if current.record.result is not None:
            yield current.record, parse_reference(current.record.result)


def of_call(space: Space, record: CallRecord) -> Provenance:
    """Return where the result of a call comes from."""
    commits = _commits(space, record)
    return Provenance(call=record.id, run=record.run, commit=commits[0] if commits else None)


def provenance(space: Space, digest: Digest) -> Provenance | None:
    """Return where an artifact comes from: the first call with that result; None if no call has it."""
    return next((of_call(space, record) for record, found in results(space) if found == digest), None)


def _is_in_history(space: Space, record: CallRecord, at: Digest | None) -> bool:
    return at is not None and any(reader.is_ancestor(space, each, at) for each in _commits(space, record))


def _commits(space: Space, record: CallRecord) -> list[Digest]:
    """Return the commits that have a call's result."""
    label = record.result_label or record.label
    return list(space.engine.labelled(space.name, label)) if label else []

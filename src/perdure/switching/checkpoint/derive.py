"""Derives a checkpoint from one commit and the ledger up to a position, by stated rules and without a model.

Explicit state (`/task/…`) comes first, then rules over messages; every sentence names its source.  The amount read is
bounded for any length of the conversation.  The same commit and position give the same bytes, in any process and on
any store with that history.

A checkpoint lists every external write of the last ledger entries: also one of another timeline of the thread, or one
that was undone since, because the outside world has no timelines.  Earlier writes are counted by tool, and none is left
out.  Of other calls the last few of this timeline are listed.

References to the owner's memory are found by a query of goal and task.  A reference names the commit of the memory, so
its meaning never changes; but which references are found depends on the memory at that time and on the search.  So a
checkpoint records the references, and deriving it again takes them from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from perdure.errors import Forgotten, Unavailable
from perdure.history.space import Space
from perdure.ledger.decisions import took_in
from perdure.ledger.snapshot import CallAtPosition, outcome_of
from perdure.ledger.tickets import as_of_now
from perdure.memory import OwnerMemory, relevant
from perdure.model.call import CallRecord
from perdure.model.checkpoint import (
    NO_VALIDATION,
    Checkpoint,
    Claim,
    Done,
    Many,
    Part,
    Pending,
    Summary,
    Validation,
)
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest
from perdure.model.head import MAIN
from perdure.model.ticket import Ticket
from perdure.projections.transcript import TranscriptEntry
from perdure.projections.working_memory import CURRENT, DECISIONS, GOAL, GOALS, QUESTIONS
from perdure.switching.checkpoint import heuristics
from perdure.switching.checkpoint.effects import COUNTING, EXTRACTOR
from perdure.switching.checkpoint.heuristics import RuleMatch, Utterance, clean, shortened
from perdure.switching.checkpoint.references import is_there
from perdure.switching.checkpoint.sources import Window, is_behind, is_said, window

__all__ = ["derive", "derive_again", "made_again", "MEMORY_MAX", "recalling", "ARGS_MAX", "CALLS_MAX"]


Recall: TypeAlias = Callable[[str], Sequence[str]]
"""Returns references to memory items that match a query."""

MEMORY_MAX = 8
QUERY_MAX = 500  # characters


def recalling(memory: OwnerMemory | None, space: str, commit: Digest | None) -> Recall | None:
    """Return a function that searches the owner's memory as seen from a commit; None: the thread has no owner."""
    if memory is None:
        return None

    def recall(query: str) -> Sequence[str]:
        if not query.strip():
            return ()
        try:
            found = relevant(memory, shortened(query, QUERY_MAX), limit=MEMORY_MAX, line=(space, commit))
        except Unavailable:
            return ()  # the embedding function fails: a checkpoint without memory is better than none
        return tuple(each.reference for each in found)

    return recall


CALLS_MAX = 16  # other calls that are listed, the newest
ARGS_MAX = 400  # characters of the arguments of one call
MESSAGE_MAX = 400
_COMMITS_A_CALL = 8  # commits that are followed to find the request of one call; a run with one call has five

_FORGOTTEN = "(forgotten)"


def digest_of_calls(space: Space, seen: Window, commit: Digest | None) -> tuple[tuple[Done, ...], int]:
    """Return the calls to list, oldest first, and how many of the calls that were read are left out."""
    writes = [known for known in seen.stand.calls if known.record.reach.guarded]
    others = [known for known in seen.stand.calls if not known.record.reach.guarded]
    here = _last_here(space, seen, others, commit)
    listed = sorted((*writes, *here), key=lambda known: known.position)
    names, read = _last_requests(space, seen, listed, commit)
    args = _bodies(space, [known.record.args for known in listed], read)
    done = tuple(
        _done(
            known.record,
            args[known.record.args],
            elsewhere=known.record.label not in names
            and not is_behind(space, seen, known.record.label, commit),
        )
        for known in listed
    )
    return done, len(seen.stand.calls) - len(done)


def counted(space: Space, seen: Window, commit: Digest | None) -> tuple[Many, ...]:
    """Return the external writes before the listed ones, counted by tool and outcome."""
    records = [record for group in seen.earlier.groups for record in group.named]
    args = _bodies(space, [record.args for record in records])
    return tuple(
        Many(
            tool=group.tool,
            count=group.count,
            calls=tuple(
                _done(
                    record,
                    args[record.args],
                    elsewhere=not is_behind(space, seen, record.label, commit),
                )
                for record in group.named
            ),
        )
        for group in seen.earlier.groups
    )


def pending(space: Space, seen: Window, commit: Digest | None, timeline: str) -> tuple[Pending, ...]:
    """Return every approval that is visible from the commit and not decided on that timeline.

    A direct call waits before anything of it is committed, so it is visible from everywhere.  A ticket that was
    decided on another timeline still waits here, unless the decision is in this history, or a copy of the call was
    decided here.
    """
    copied = {known.record.copied_from for known in seen.stand.calls if known.record.timeline == timeline}
    waiting = [
        ticket
        for ticket in seen.stand.waiting
        if ticket.label is None or _by_hand(ticket) or is_said(space, seen, ticket.label, commit)
    ]
    waiting += [
        ticket
        for ticket in seen.stand.decided
        if ticket.call not in copied
        and is_said(space, seen, ticket.label, commit)
        and not took_in(space, ticket, commit)
    ]
    args = _bodies(space, [ticket.args for ticket in waiting])
    return tuple(
        Pending(
            ticket=ticket.id,
            call=ticket.call,
            tool=ticket.tool,
            message=shortened(as_of_now(space, ticket).message, MESSAGE_MAX),
            args=args[ticket.args],
        )
        for ticket in waiting
    )


def _by_hand(ticket: Ticket) -> bool:
    return ticket.run is not None and ticket.label == ticket.run


def _last_here(
    space: Space, seen: Window, others: Sequence[CallAtPosition], commit: Digest | None
) -> list[CallAtPosition]:
    found: list[CallAtPosition] = []
    for known in reversed(others):
        if len(found) == CALLS_MAX:
            break
        if _is_here(space, seen, known, commit):
            found.append(known)
    return found


def _last_requests(
    space: Space, seen: Window, listed: Sequence[CallAtPosition], commit: Digest | None
) -> tuple[Set[str], Mapping[Digest, bytes]]:
    """Return the names of the calls that the last commits of the line request, and the arguments that these hold.

    Calls of one line were requested a few commits after one another, so following these costs less than looking for
    the commit of each call.  A call that is not found here may still be in the history.
    """
    left = {known.record.label for known in listed if known.record.label} - seen.names
    if commit is None or not left:
        return set(), {}
    names: set[str] = set()
    read: dict[Digest, bytes] = {}
    for step in space.back(commit, limit=_COMMITS_A_CALL * len(left), bodies=True, labels=left):
        names.update(event.id for event in step.changeset.events)
        if step.commit.run is not None:
            names.add(step.commit.run)
        read.update(step.bodies)
    return names, read


def _is_here(space: Space, seen: Window, known: CallAtPosition, commit: Digest | None) -> bool:
    return is_behind(space, seen, known.record.label, commit)


def _done(record: CallRecord, args: str, *, elsewhere: bool) -> Done:
    return Done(
        call=record.id,
        tool=record.tool,
        args=args,
        effect=record.effect,
        idempotent=record.idempotent,
        state=record.state,
        outcome=outcome_of(record),
        result_ref=record.result or record.evidence,
        idempotency_key=record.key if record.reach.writes else None,
        backend=record.backend,
        elsewhere=elsewhere,
    )


def _bodies(
    space: Space, digests: Iterable[Digest], read: Mapping[Digest, bytes] = MappingProxyType({})
) -> dict[Digest, str]:
    """Return the arguments of calls, each shortened if it is long; those in `read` are not read again."""
    found: dict[Digest, bytes | None] = {digest: read.get(digest) for digest in digests}
    missing = [digest for digest, body in found.items() if body is None]
    try:
        found.update(zip(missing, space.nodes(missing), strict=True))
    except Forgotten:
        found.update({digest: _body(space, digest) for digest in missing})
    return {digest: _shown(body) for digest, body in found.items()}


def _body(space: Space, digest: Digest) -> bytes | None:
    try:
        return space.body(digest)
    except Forgotten:
        return None


def _shown(body: bytes | None) -> str:
    return _FORGOTTEN if body is None else shortened(body.decode("utf-8", "replace"), ARGS_MAX)


ARTIFACTS_MAX = 24  # the newest
TEXT_MAX = 2_000  # characters of one text of the state
TEXTS_MAX = 48  # texts of one list of the state, the last ones


def derive(
    space: Space,
    commit: Digest | None,
    *,
    to_backend: str | None = None,
    from_backend: str | None = None,
    ledger: LedgerRead | None = None,
    timeline: str = MAIN,
    memory: Sequence[str] = (),
    recall: Recall | None = None,
    extractor: str = EXTRACTOR,
) -> Checkpoint:
    """Derive the checkpoint of the conversation that ends at `commit`; None is before the first commit.

    None for `from_backend` takes the timeline's own.  `ledger` says how far the ledger is read; None: as far as the
    commit itself had read it.  `timeline` is where the conversation continues: decisions on other timelines do not
    count there.  `memory` are references that were found before; `recall` finds them by goal and task.  `extractor`
    names the rules, of which the first read no more than the last ledger entries.  Raises `Corrupt` if the ledger is not the
    one that was read there.
    """
    upto = _read_by(space, commit) if ledger is None else ledger
    is_whole = extractor in COUNTING
    seen = window(space, commit, upto, timeline, extractor=extractor)
    parts = [_SummaryPart(part, texts) for part, texts in _sources(seen, newest=extractor == EXTRACTOR)]
    calls, calls_before = digest_of_calls(space, seen, commit)
    artifacts = [each for each in seen.artifacts[-ARTIFACTS_MAX:] if is_there(space, each)]
    return Checkpoint(
        conversation=space.label,
        timeline=MAIN
        if timeline == MAIN
        else timeline,  # only the default itself is left out when it is encoded
        from_backend=seen.backend if from_backend is None else from_backend,
        to_backend=to_backend,
        summary=_summary(parts),
        active_goals=_texts(parts, "active_goal"),
        active_artifacts=tuple(artifacts),
        relevant_memory_refs=tuple(recall(_question(parts)) if recall else memory),
        commit=commit,
        ledger=upto,
        extractor=extractor,
        claims=tuple(claim for part in parts for claim in part.claims()),
        calls=calls,
        calls_before=calls_before,
        entries_before=0 if is_whole else seen.stand.before,
        earlier=counted(space, seen, commit),
        earlier_others=seen.earlier.others,
        pending_approvals=pending(space, seen, commit, timeline),
        validation=Validation(notes=seen.working.faults) if seen.working.faults else NO_VALIDATION,
    )


def _read_by(space: Space, commit: Digest | None) -> LedgerRead:
    return NO_LEDGER if commit is None else space.step(commit).commit.ledger


def derive_again(space: Space, checkpoint: Checkpoint) -> Checkpoint:
    """Derive a checkpoint again from the history that it names, without the summary of a model."""
    return derive(
        space,
        checkpoint.commit,
        to_backend=checkpoint.to_backend,
        from_backend=checkpoint.from_backend,
        ledger=checkpoint.ledger,
        timeline=checkpoint.timeline,
        memory=checkpoint.relevant_memory_refs,
        extractor=checkpoint.extractor,
    )


def made_again(space: Space, checkpoint: Checkpoint) -> Checkpoint:
    """Derive a checkpoint again, with the stored summary of a model, or the stored reason why it was left out."""
    again = derive_again(space, checkpoint)
    stored, notes = checkpoint.validation, again.validation.notes
    is_more = stored.notes[: len(notes)] == notes and len(stored.notes) > len(notes)
    return msgspec.structs.replace(
        again, told=checkpoint.told, validation=stored if is_more else again.validation
    )


class _Source(msgspec.Struct, frozen=True):
    """One sentence of a summary, and its source."""

    text: str
    rule: str
    event: str | None = None
    path: str | None = None


class _SummaryPart(msgspec.Struct, frozen=True):
    """One part of a summary."""

    part: Part
    sources: tuple[_Source, ...]

    def claims(self) -> Iterator[Claim]:
        """Yield the source of each sentence."""
        for index, each in enumerate(self.sources):
            yield Claim(part=self.part, index=index, event=each.event, path=each.path, rule=each.rule)


def _sources(seen: Window, *, newest: bool) -> Iterator[tuple[Part, tuple[_Source, ...]]]:
    """Yield each part with its sources: the state, or else what the rules find, by the newest rules or older ones."""
    state, said = seen.working, _spoken(seen.said)
    first = next(iter(_spoken((seen.first,) if seen.first else ())), None)
    one, several = _of_text, _of_texts
    yield (
        "user_goal",
        one(state.goal, GOAL) or _found(heuristics.goal(first, said, whole=seen.is_whole)),
    )
    yield "current_task", one(state.current, CURRENT) or _found(heuristics.task(said, newest=newest))
    yield "decision", several(state.decisions, DECISIONS, heuristics.decisions(said))
    yield "open_question", several(state.questions, QUESTIONS, heuristics.questions(said))
    yield "active_goal", several(state.goals, GOALS, ())


def _spoken(said: Iterable[TranscriptEntry]) -> list[Utterance]:
    return [
        Utterance(entry.id, entry.role, entry.words.text, bool(entry.words.tool_calls))
        for entry in said
        if entry.words is not None
    ]


def _of_text(text: str | None, path: str) -> tuple[_Source, ...]:
    cleaned = clean(text or "")
    return (_Source(shortened(cleaned, TEXT_MAX), "state", path=path),) if cleaned else ()


def _of_texts(texts: Sequence[str] | None, path: str, found: Sequence[RuleMatch]) -> tuple[_Source, ...]:
    """Return the texts of a list of the state, also if it is empty; None: what the rules found."""
    if texts is None:
        return tuple(source for each in found for source in _found(each))
    return tuple(source for text in texts[-TEXTS_MAX:] for source in _of_text(text, path))


def _found(found: RuleMatch | None) -> tuple[_Source, ...]:
    return () if found is None else (_Source(clean(found.text), found.rule, event=found.event),)


def _texts(parts: Iterable[_SummaryPart], part: Part) -> tuple[str, ...]:
    return tuple(source.text for each in parts if each.part == part for source in each.sources)


def _question(parts: Sequence[_SummaryPart]) -> str:
    """Return the query for the owner's memory: goals and current task."""
    return " ".join(_texts(parts, "user_goal") + _texts(parts, "current_task") + _texts(parts, "active_goal"))


def _summary(parts: Sequence[_SummaryPart]) -> Summary:
    return Summary(
        user_goal=next(iter(_texts(parts, "user_goal")), ""),
        current_task=next(iter(_texts(parts, "current_task")), ""),
        decisions=_texts(parts, "decision"),
        open_questions=_texts(parts, "open_question"),
    )

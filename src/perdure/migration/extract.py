"""Extraction: a checkpoint from one commit and the ledger up to a position, by stated rules and no model.

Explicit state first (`/task/…`), then rules over messages; every sentence names where it comes from.
What is read is bounded, whatever the length of the conversation.  The same commit and position give
the same bytes, in any process and on any store that holds that history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perdure.history.space import Space
from perdure.migration import rules
from perdure.migration.calling import counted, digest_of_calls, pending
from perdure.migration.earlier import EXTRACTOR
from perdure.migration.recalling import Recall
from perdure.migration.references import is_there
from perdure.migration.rules import Found, Words, clean, shortened
from perdure.migration.window import Window, window
from perdure.model.checkpoint import NO_VALIDATION, Checkpoint, Claim, Part, Summary, Validation
from perdure.model.commit import NO_LEDGER, LedgerRead
from perdure.model.digest import Digest
from perdure.model.head import MAIN
from perdure.projections.transcript import TranscriptEntry
from perdure.projections.working import CURRENT, DECISIONS, GOAL, GOALS, QUESTIONS

__all__ = ["EXTRACTOR", "derive", "derive_again", "made_again"]

ARTIFACTS_MAX = 24  # the newest
TEXT_MAX = 2_000  # characters of one text that the state holds
TEXTS_MAX = 48  # of one list that the state holds, the last ones


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
    """The checkpoint of the conversation that ends at `commit`; None is before the first, where nothing was said.

    `from_backend` is the line's own where it is not given.  `ledger` says how far the log of calls is
    read; None: as far as the commit itself had read it.  `timeline` is where it is to be gone on with:
    what was decided on others does not count there.  `memory` are references that were found relevant
    before; `recall` finds them by goal and task.  `extractor` names the rules: by older ones the ledger was looked
    at no further than its last entries.  Raises `Corrupt` if the ledger is not the one that was read there.
    """
    upto = _read_by(space, commit) if ledger is None else ledger
    is_whole = extractor == EXTRACTOR
    seen = window(space, commit, upto, timeline, extractor=extractor)
    parts = [_Part(part, texts) for part, texts in _sources(seen)]
    calls, calls_before = digest_of_calls(space, seen, commit)
    artifacts = [each for each in seen.artifacts[-ARTIFACTS_MAX:] if is_there(space, each)]
    return Checkpoint(
        conversation=space.label,
        timeline=timeline,
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
    """The same once more, from the history that the checkpoint names; a model's summary is not derived, and left out."""
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
    """The same once more, with what cannot be derived as it was kept: a model's summary, or why it was left out."""
    again = derive_again(space, checkpoint)
    kept, notes = checkpoint.validation, again.validation.notes
    is_more = kept.notes[: len(notes)] == notes and len(kept.notes) > len(notes)
    return msgspec.structs.replace(
        again, told=checkpoint.told, validation=kept if is_more else again.validation
    )


class _Source(msgspec.Struct, frozen=True):
    """One sentence of a summary, and where it comes from."""

    text: str
    rule: str
    event: str | None = None
    path: str | None = None


class _Part(msgspec.Struct, frozen=True):
    """One part of a summary."""

    part: Part
    sources: tuple[_Source, ...]

    def claims(self) -> Iterator[Claim]:
        """What each of its sentences rests on."""
        for index, each in enumerate(self.sources):
            yield Claim(part=self.part, index=index, event=each.event, path=each.path, rule=each.rule)


def _sources(seen: Window) -> Iterator[tuple[Part, tuple[_Source, ...]]]:
    """Where each part comes from: what the state says, or else what the rules find."""
    held, said = seen.working, _spoken(seen.said)
    first = next(iter(_spoken((seen.first,) if seen.first else ())), None)
    one, several = _of_text, _of_texts
    yield "user_goal", one(held.goal, GOAL) or _found(rules.goal(first, said, whole=seen.is_whole))
    yield "current_task", one(held.current, CURRENT) or _found(rules.task(said))
    yield "decision", several(held.decisions, DECISIONS, rules.decisions(said))
    yield "open_question", several(held.questions, QUESTIONS, rules.questions(said))
    yield "active_goal", several(held.goals, GOALS, ())


def _spoken(said: Iterable[TranscriptEntry]) -> list[Words]:
    return [
        Words(entry.id, entry.role, entry.words.text, bool(entry.words.tool_calls))
        for entry in said
        if entry.words is not None
    ]


def _of_text(text: str | None, path: str) -> tuple[_Source, ...]:
    told = clean(text or "")
    return (_Source(shortened(told, TEXT_MAX), "state", path=path),) if told else ()


def _of_texts(texts: Sequence[str] | None, path: str, found: Sequence[Found]) -> tuple[_Source, ...]:
    """What a list of the state says, even if it is empty: then there is nothing of the kind."""
    if texts is None:
        return tuple(source for each in found for source in _found(each))
    return tuple(source for text in texts[-TEXTS_MAX:] for source in _of_text(text, path))


def _found(found: Found | None) -> tuple[_Source, ...]:
    return () if found is None else (_Source(clean(found.text), found.rule, event=found.event),)


def _texts(parts: Iterable[_Part], part: Part) -> tuple[str, ...]:
    return tuple(source.text for each in parts if each.part == part for source in each.sources)


def _question(parts: Sequence[_Part]) -> str:
    """What the owner's memory is asked: where the work is to lead, and what is being done."""
    return " ".join(_texts(parts, "user_goal") + _texts(parts, "current_task") + _texts(parts, "active_goal"))


def _summary(parts: Sequence[_Part]) -> Summary:
    return Summary(
        user_goal=next(iter(_texts(parts, "user_goal")), ""),
        current_task=next(iter(_texts(parts, "current_task")), ""),
        decisions=_texts(parts, "decision"),
        open_questions=_texts(parts, "open_question"),
    )

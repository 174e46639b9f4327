"""Validation: what a checkpoint may say, and what a model's summary has to show before any of it is kept.

A model's word is never enough.  Its summary is dropped as a whole, with the reason, unless

    it is one JSON object of the stated shape, within the stated lengths;
    every sentence cites messages that it was shown, a goal or a decision at least one of the user's;
    it is a quotation of each message that it cites: the same words one after another;
    every reference in it resolves, and is one that the conversation has;
    nothing in it is shaped like an instruction to a model.

This keeps out what a conversation does not say.  It cannot tell whether the conversation is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from perdure.history.space import Space
from perdure.ledger.presence import present
from perdure.migration.grounding import grounded
from perdure.migration.references import is_there, references_in
from perdure.migration.rules import clean
from perdure.model.checkpoint import Checkpoint, Claim, Part, Summary, Told
from perdure.projections.transcript import TranscriptEntry

__all__ = ["ANSWER_MAX", "NOTE_MAX", "Dropped", "faults", "judged"]

ANSWER_MAX = 32 * 1024  # characters of an answer
SENTENCE_MAX = 400
SENTENCES_MAX = 12  # decisions, and questions
CITES_MAX = 8
NOTE_MAX = 500

_FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n```\s*\Z", re.DOTALL)
_INSTRUCTS = re.compile(
    r"\b(?:ignore|disregard|forget|override) (?:all |any |the |your |every )*(?:previous|prior|above|earlier|other|system)\b"
    r"|\b(?:system|developer) (?:prompt|message|instruction)s?\b|\byou (?:are|must|will) now\b|\bnew instructions?\b"
    r"|<\|[^|>]{1,40}\|>|</?(?:system|assistant|user|tool|instructions?)\b[^>]*>|\[/?INST\]|^\s*(?:system|assistant|developer)\s*:",
    re.IGNORECASE | re.MULTILINE,
)


class Dropped(Exception):
    """A summary is not kept; the words say why."""


class _Sentence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One sentence of an answer, and the messages that it cites."""

    text: str
    cites: tuple[str, ...]


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a summariser answers."""

    user_goal: _Sentence | None = None
    current_task: _Sentence | None = None
    decisions: tuple[_Sentence, ...] = ()
    open_questions: tuple[_Sentence, ...] = ()


_Placed: TypeAlias = tuple[Part, int, _Sentence]


def judged(
    space: Space, checkpoint: Checkpoint, text: str, *, by: str, shown: Sequence[TranscriptEntry]
) -> Told:
    """The summary that `text` holds, checked against the messages that its model was shown; raises `Dropped`."""
    answer = _read(text)
    messages = {entry.id: entry for entry in shown}
    placed = list(_placed(answer))
    if not placed:
        raise Dropped("it says nothing")
    for part, index, sentence in placed:
        _check(space, checkpoint, (part, index, sentence), messages)
    return Told(by=by, summary=_summary(answer), claims=tuple(_claims(placed)))


def faults(space: Space, checkpoint: Checkpoint) -> list[str]:
    """What a checkpoint names that is not there; nothing if all of it is."""
    claims = (*checkpoint.claims, *(checkpoint.told.claims if checkpoint.told else ()))
    return [
        *(fault for claim in claims for fault in _unfounded(space, checkpoint, claim)),
        *(f"{each} does not resolve" for each in checkpoint.active_artifacts if not is_there(space, each)),
    ]


def _unfounded(space: Space, checkpoint: Checkpoint, claim: Claim) -> Iterator[str]:
    where = f"{claim.part} {claim.index}"
    if claim.event is None and claim.path is None:
        yield f"{where} names no source"
    if claim.event is not None and not present(space, claim.event, checkpoint.commit):
        yield f"{where} cites '{claim.event}', which is not in this history"
    if claim.path is not None and space.tree_at(checkpoint.commit).get(claim.path) is None:
        yield f"{where} cites {claim.path}, which is not in this state"


def _read(text: str) -> _Answer:
    if len(text) > ANSWER_MAX:
        raise Dropped(f"it is longer than {ANSWER_MAX} characters")
    fenced = _FENCE.match(text)
    try:
        value = json.loads(fenced[1] if fenced else text, object_pairs_hook=_without_duplicates)
        return msgspec.convert(value, _Answer)
    except msgspec.ValidationError as error:
        raise Dropped("it has another shape than was asked for") from error
    except (ValueError, RecursionError) as error:
        raise Dropped("it is no JSON") from error


def _placed(answer: _Answer) -> Iterator[_Placed]:
    if answer.user_goal is not None:
        yield "user_goal", 0, answer.user_goal
    if answer.current_task is not None:
        yield "current_task", 0, answer.current_task
    if max(len(answer.decisions), len(answer.open_questions)) > SENTENCES_MAX:
        raise Dropped(f"it has more than {SENTENCES_MAX} sentences of one kind")
    for index, sentence in enumerate(answer.decisions):
        yield "decision", index, sentence
    for index, sentence in enumerate(answer.open_questions):
        yield "open_question", index, sentence


def _check(
    space: Space, checkpoint: Checkpoint, placed: _Placed, messages: Mapping[str, TranscriptEntry]
) -> None:
    """Raise `Dropped` unless the sentence stands up.  The reason does not quote it: none of its words are kept."""
    part, index, sentence = placed
    text, said = sentence.text, f"{part} {index + 1}"
    if not text.strip() or len(text) > SENTENCE_MAX or text != clean(text):
        raise Dropped(f"{said} is empty, longer than {SENTENCE_MAX} characters, or not one plain line")
    if _INSTRUCTS.search(text):
        raise Dropped(f"{said} is shaped like an instruction")
    if not 0 < len(sentence.cites) <= CITES_MAX:
        raise Dropped(f"{said} cites no message, or more than {CITES_MAX}")
    cited = [messages[cite] for cite in sentence.cites if cite in messages]
    if len(cited) < len(sentence.cites):
        raise Dropped(f"{said} cites what is not among the messages that were shown")
    if part in ("user_goal", "decision") and not any(entry.role == "user" for entry in cited):
        raise Dropped(f"{said} cites no words of the user")
    for reference in references_in(text):
        if not any(reference in entry.text for entry in cited) and reference not in _known(checkpoint):
            raise Dropped(f"{said} names a reference that the conversation does not")
        if not is_there(space, reference):
            raise Dropped(f"{said} names a reference that does not resolve")
    lacking = grounded(text, [entry.text for entry in cited])
    if lacking is not None:
        raise Dropped(f"{said} is not what it cites says: {lacking}")


def _known(checkpoint: Checkpoint) -> set[str]:
    results = {done.result_ref for done in checkpoint.calls if done.result_ref}
    return {*checkpoint.active_artifacts, *checkpoint.relevant_memory_refs, *results}


def _summary(answer: _Answer) -> Summary:
    return Summary(
        user_goal=answer.user_goal.text if answer.user_goal else "",
        current_task=answer.current_task.text if answer.current_task else "",
        decisions=tuple(each.text for each in answer.decisions),
        open_questions=tuple(each.text for each in answer.open_questions),
    )


def _claims(placed: Sequence[_Placed]) -> Iterator[Claim]:
    for part, index, sentence in placed:
        yield from (Claim(part=part, index=index, event=cite, rule="model") for cite in sentence.cites)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return value

"""The small questions of the contract: one by one, several in one statement, and what is asked after a head.

One statement is one round trip and sees one moment, as several in a transaction do, but the server begins, runs and ends
it once.  The statement for some questions depends on their kinds alone, so a session prepares it once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from threading import local
from typing import NamedTuple

from perdure.engines.contract import Answer, CellOf, HeadOf, LabelOf, LedgerOf, OpOf, Question
from perdure.engines.postgres import reads
from perdure.engines.postgres.connections import Row
from perdure.engines.postgres.reads import StoreQuestion

__all__ = ["AskedBeside", "question_of", "questions_together"]

_TOGETHER_MAX = 8  # questions in one statement; more would be statements of many sizes, each planned again
_HEADS_MAX = 1_024


@lru_cache(maxsize=1_024)
def question_of(tenant: str, question: Question) -> StoreQuestion[Answer]:
    """Return the statement for one question."""
    match question:
        case HeadOf(space, timeline):
            return reads.hold(tenant, space, timeline)
        case CellOf(space, name):
            return reads.cell(tenant, space, name)
        case LedgerOf(space):
            return reads.ledger(tenant, space)
        case OpOf(space, op_id):
            return reads.recorded(tenant, space, op_id)
        case LabelOf(space, label):
            return reads.labelled(tenant, space, label)


@lru_cache(maxsize=1_024)  # a block of changes asks the same questions each time
def questions_together(tenant: str, questions: tuple[Question, ...]) -> StoreQuestion[list[Answer]] | None:
    """Return one statement for several questions; None if they are too many, or one has many rows for an answer.

    One statement sees one moment, as several in a transaction do, but the server begins, runs and ends it once.
    """
    if len(questions) > _TOGETHER_MAX or any([isinstance(each, LabelOf) for each in questions]):
        return None
    asked = [question_of(tenant, each) for each in questions]
    parameters = [asked[0].parameters[0]]
    for each in asked:
        parameters += each.parameters[1:]
    sql = _together(tuple([each.sql for each in asked]))
    return StoreQuestion(sql, parameters, lambda rows: _read_together(asked, rows[0]))


def _read_together(asked: Sequence[StoreQuestion[Answer]], row: Row) -> list[Answer]:
    """Read the answers from a row that has a column for each of them that says whether there is one."""
    return [each.read(rows) for each, rows in zip(asked, _split(asked, row), strict=True)]


def _split(asked: Sequence[StoreQuestion[Answer]], row: Row) -> list[list[Row]]:
    """Return the rows of each question: one, or none."""
    found: list[list[Row]] = []
    at = 0
    for each in asked:
        end = at + 1 + each.columns
        found.append([row[at + 1 : end]] if row[at] else [])
        at = end
    return found


@lru_cache(maxsize=256)
def _together(statements: tuple[str, ...]) -> str:
    """Return the statement that has the row of each, after a column that says whether there is one."""
    joined: list[str] = []
    used = 1  # the tenant, which is the first parameter of each
    for at, sql in enumerate(statements):
        numbers = sorted({int(number) for number in re.findall(r"\$(\d+)", sql)} - {1})
        places = {1: 1, **{number: used + place for place, number in enumerate(numbers, 1)}}
        used += len(numbers)
        renumbered = re.sub(r"\$(\d+)", lambda found, places=places: f"${places[int(found[1])]}", sql)
        joined.append(f"LEFT JOIN LATERAL (SELECT true AS is_there, x.* FROM ({renumbered}) x) q{at} ON true")
    columns = ", ".join([f"q{at}.*" for at in range(len(statements))])
    return f"SELECT {columns} FROM (VALUES (1)) one {' '.join(joined)}"


class _KeptAnswers(NamedTuple):
    """What was read beside a head, and what this process had written to its spaces by then."""

    questions: tuple[Question, ...]
    marks: tuple[int, ...]
    asked: list[StoreQuestion[Answer]]
    row: Row


class AskedBeside:
    """What a program asks after a head, so that both are read in one round trip.

    A block of changes asks for the head when it is entered.  When it is left it asks for what its commit depends on
    beside the head, as of any moment since then: the fences of its write notice what others have changed.  So the
    rows are kept for the thread that asked, until it asks for a head again or this process writes to their spaces.
    They are read when they are wanted: damage in one of them is no fault of the head.
    """

    def __init__(self) -> None:
        self._after: dict[Question, tuple[Question, ...]] = {}
        self._writes: dict[str, int] = {}
        self._epoch = 0  # of what may have changed any space
        self._mine = local()

    def asked_after(self, question: Question) -> tuple[Question, ...]:
        """Return what is asked after this question, as a rule; empty if it is not about a head, or nothing is."""
        if not isinstance(question, HeadOf):
            return ()
        mine = self._mine
        if (
            getattr(mine, "kept", None) is not None
        ):  # nothing came after the last head: do not read more again
            self._after.pop(mine.head, None)
        mine.kept, mine.head = None, question
        return self._after.get(question, ())

    def marks(self, questions: Sequence[Question]) -> tuple[int, ...]:
        """Return how often this process has written to the spaces of some questions."""
        return self._epoch, *[self._writes.get(each.space, 0) for each in questions]

    def keep(
        self,
        questions: tuple[Question, ...],
        marks: tuple[int, ...],
        asked: list[StoreQuestion[Answer]],
        row: Row,
    ) -> None:
        """Keep what was read beside a head, for this thread."""
        self._mine.kept = _KeptAnswers(questions, marks, asked, row)

    def answers(self, questions: Sequence[Question]) -> list[Answer] | None:
        """Return the answers that were read with the last head; None if there are none, or they may have changed.

        Some of them may be asked for before all of them are, and stay kept.
        """
        mine, wanted = self._mine, tuple(questions)
        kept: _KeptAnswers | None = getattr(mine, "kept", None)
        if kept is not None and kept.marks == self.marks(kept.questions):
            if kept.questions == wanted:
                mine.kept = None
                return _read_together(kept.asked, kept.row)
            if wanted and set(wanted) < set(kept.questions):
                rows, places = _split(kept.asked, kept.row), map(kept.questions.index, wanted)
                return [kept.asked[at].read(rows[at]) for at in places]
        mine.kept = None
        head: Question | None = getattr(mine, "head", None)
        if head is not None and 0 < len(wanted) < _TOGETHER_MAX:
            if len(self._after) >= _HEADS_MAX:
                self._after.clear()
            self._after[head] = wanted
        return None

    def written(self, space: str | None) -> None:
        """Note that this process has written to a space; None: to any."""
        if space is None or len(self._writes) > _HEADS_MAX:
            self._epoch += 1
            self._writes.clear()
        if space is not None:
            self._writes[space] = self._writes.get(space, 0) + 1

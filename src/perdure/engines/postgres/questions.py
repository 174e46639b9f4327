"""The small questions of the contract: one by one, several in one statement, and what is asked after a head.

One statement is one round trip and sees one moment, as several in a transaction do, but the server begins, runs and ends
it once.  The statement for some questions depends on their kinds alone, so a session prepares it once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from threading import local
from typing import Any, NamedTuple, TypeVar, cast

from perdure.engines.contract import Answer, CellOf, HeadOf, Hold, LabelOf, LedgerOf, OpOf, Question
from perdure.engines.postgres import reads
from perdure.engines.postgres.commit.write import SpaceMark
from perdure.engines.postgres.connections import Numeric, Parameter, Row, Short
from perdure.engines.postgres.pack import bytes_of
from perdure.engines.postgres.reads import StoreQuestion

__all__ = ["AskedBeside", "BesideHead", "question_of", "questions_together"]

_T = TypeVar("_T")

_TOGETHER_MAX = 8  # questions in one statement; more would be statements of many sizes, each planned again
_HEADS_MAX = 1_024
_RESTS = 16  # readings of a head in full after a look found that others write too


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
    return in_one_statement([question_of(tenant, each) for each in questions])


def in_one_statement(asked: Sequence[StoreQuestion[_T]]) -> StoreQuestion[list[_T]]:
    """Return one statement for several, of which each has one row or none."""
    parameters = [asked[0].parameters[0]]
    for each in asked:
        parameters += each.parameters[1:]
    sql = _together(tuple([each.sql for each in asked]))
    return StoreQuestion(sql, parameters, lambda rows: _read_together(asked, rows[0]))


def _read_together(asked: Sequence[StoreQuestion[_T]], row: Row) -> list[_T]:
    """Read the answers from a row that has a column for each of them that says whether there is one."""
    return [each.read(rows) for each, rows in zip(asked, _split(asked, row), strict=True)]


def _split(asked: Sequence[StoreQuestion[_T]], row: Row) -> list[list[Row]]:
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


def space_mark(tenant: str, space: str) -> StoreQuestion[SpaceMark | None]:
    """Ask for what every change of a space changes."""
    sql = "SELECT rows, generation, seal::text AS seal, link FROM perdure.spaces WHERE tenant = $1 AND name = $2"
    return StoreQuestion(sql, (tenant, bytes_of(space)), lambda rows: _mark_of(rows[0]) if rows else None, 4)


def _mark_of(row: Row) -> SpaceMark:
    """Return the mark of a space."""
    rows, generation, seal, link = row
    return SpaceMark(int(str(rows)), int(str(generation)), int(str(seal)), cast("bytes", link))


def unchanged(tenant: str, marks: Sequence[tuple[str, SpaceMark | None]]) -> StoreQuestion[bool]:
    """Ask whether each of some spaces has its mark still, or is missing still."""
    parameters: list[Parameter] = [tenant]
    tests: list[str] = []
    for space, known in marks:
        at = len(parameters) + 1
        row = f"SELECT FROM perdure.spaces s WHERE s.tenant = $1 AND s.name = ${at}"
        parameters.append(bytes_of(space))
        if known is None:
            tests.append(f"NOT EXISTS ({row} OFFSET 0)")
            continue
        row += f" AND s.rows = ${at + 1} AND s.generation = ${at + 2} AND s.seal = ${at + 3} AND s.link = ${at + 4}"
        parameters += Short(known.rows), known.generation, Numeric(known.seal), known.link
        tests.append(f"EXISTS ({row} OFFSET 0)")
    return StoreQuestion(f"SELECT {' AND '.join(tests)}", parameters, lambda rows: bool(rows[0][0]))


class BesideHead:
    """What is asked beside a head, with the marks of all spaces that the answers speak of.

    The marks say later whether the same answers still hold: a look at one row of each space, where the answers
    themselves are a row of several tables each.
    """

    def __init__(self, tenant: str, head: HeadOf, beside: tuple[Question, ...]) -> None:
        """Make the statement."""
        self.head, self.beside, self._tenant = head, beside, tenant
        self.own, *self.asked = [question_of(tenant, each) for each in (head, *beside)]
        self.elsewhere = tuple([each for each in beside if each.space != head.space])
        self._spaces = tuple(dict.fromkeys([each.space for each in (head, *beside)]))
        marks = [space_mark(tenant, space) for space in self._spaces]
        every: list[StoreQuestion[Any]] = [self.own, *self.asked, *marks]
        self.question = in_one_statement(every)
        self._columns = 1 + self.own.columns, sum([1 + each.columns for each in (self.own, *self.asked)])

    def seen(self, row: Row, counts: tuple[int, ...]) -> SeenBesideHead:
        """Return what a row of the statement says beside the head; `counts` are of the questions about other spaces."""
        start, end = self._columns
        head = self.own.read([row[1:start]] if row[0] else [])
        marks = [_mark_of(row[at + 1 : at + 5]) if row[at] else None for at in range(end, len(row), 5)]
        # Only cells and ledgers of its own space stay as they are when this process moves the head.
        stays = not any(
            [type(each) not in (CellOf, LedgerOf) for each in self.beside if each.space == self.head.space]
        )
        return SeenBesideHead(head, row[start:end], marks[0] if stays else None, tuple(marks[1:]), counts)

    def unchanged(self, own: SpaceMark, others: Sequence[SpaceMark | None]) -> StoreQuestion[bool]:
        """Ask whether the spaces have these marks still."""
        return unchanged(self._tenant, list(zip(self._spaces, (own, *others), strict=True)))


class SeenBesideHead(NamedTuple):
    """A head, what was read beside it, and the marks that the spaces had then.

    `own` is the mark of the head's space, and after this process has moved the head the new one; None: not to be used again.
    """

    head: Answer
    row: Row
    own: SpaceMark | None
    others: tuple[SpaceMark | None, ...]
    counts: tuple[int, ...]  # of what this process had written to the other spaces


class AskedBeside:
    """What a program asks after a head, so that both are read in one round trip.

    A block of changes asks for the head when it is entered.  When it is left it asks for what its commit depends on
    beside the head, as of any moment since then: the fences of its write notice what others have changed.  So the
    rows are kept for the thread that asked, until it asks for a head again or this process writes to their spaces.
    They are read when they are wanted: damage in one of them is no fault of the head.
    """

    def __init__(self) -> None:
        self._after: dict[Question, tuple[Question, ...]] = {}
        self._statements: dict[Question, BesideHead] = {}
        self._seen: dict[Question, SeenBesideHead] = {}
        self._rests: dict[Question, int] = {}
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

    def statement(self, tenant: str, head: HeadOf, beside: tuple[Question, ...]) -> BesideHead:
        """Return the statement for a head and what is asked beside it."""
        made = self._statements.get(head)
        if made is None or made.beside != beside:
            if len(self._statements) >= _HEADS_MAX:
                self._statements.clear()
            made = self._statements[head] = BesideHead(tenant, head, beside)
            self._seen.pop(head, None)
        return made

    def seen(self, head: HeadOf) -> SeenBesideHead | None:
        """Return what was read beside a head, if it may still be so."""
        return self._seen.get(head)

    def see(self, head: HeadOf, seen: SeenBesideHead, *, rests: bool = False) -> None:
        """Note what was read beside a head; `rests`: not for some time, since others change it."""
        left = _RESTS if rests else self._rests.pop(head, 0)
        if left or seen.own is None:
            self._seen.pop(head, None)
        else:
            self._seen[head] = seen
        if left > 1:
            self._rests[head] = left - 1
        for each in (self._seen, self._rests):
            if len(each) > _HEADS_MAX:
                each.clear()

    def moved(self, head: HeadOf, to: Hold, before: SpaceMark | None, after: SpaceMark) -> None:
        """Note that this process has moved a head, and changed nothing else of its space, from one mark to another."""
        seen = self._seen.get(head)
        if seen is not None and seen.own == before:
            self._seen[head] = seen._replace(head=to, own=after)

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
        if (
            head is not None
            and 0 < len(wanted) < _TOGETHER_MAX
            and not any([isinstance(each, LabelOf) for each in wanted])
        ):
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

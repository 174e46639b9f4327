"""`perdure threads bisect`.

A question about the value at one path, as bisect asks it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TypeAlias, cast

from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.completion import in_store
from perdure.cli.input.lookup import resolve, view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere, PlaceInside, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, suggest_fork
from perdure.cli.output.formatting import moment
from perdure.cli.output.screen import Screen
from perdure.errors import Forgotten, Invalid, NotFound
from perdure.history.changes.json_edits import Place, nested_place, parse_place, read, spell_place
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.head import MAIN
from perdure.shapes.conversation import CommitShape, input_at, place_name
from perdure.shapes.text import shortened
from perdure.store.view import View

__all__ = ["Turned", "bisect", "Question"]


_Test: TypeAlias = Callable[[Json], bool]
_WORDS_MAX = 60  # characters of the user's words
_FLAG = Parameter(negative=(), show_default=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing that is true of a path, or not."""

    path: Annotated[str, Parameter(metavar="PATH", completer=in_store, help="The path of the value")]
    place: PlaceInside = None
    exists: Annotated[bool, _FLAG, Parameter(help="The path has a value")] = False
    absent: Annotated[bool, _FLAG, Parameter(help="The path has no value")] = False
    equals: Annotated[str | None, Parameter(metavar="JSON", help="Its value equals this")] = None
    contains: Annotated[
        str | None,
        Parameter(
            metavar="JSON",
            help="Its value is a list with this item, an object with this key, or a text with this in it",
        ),
    ] = None
    below: Annotated[float | None, Parameter(metavar="N", help="Its value is a number below this")] = None
    above: Annotated[float | None, Parameter(metavar="N", help="Its value is a number above this")] = None

    @property
    def words(self) -> str:
        """Return the condition in words; raises `Invalid` unless there is exactly one."""
        given = [
            *(["existed"] if self.exists else []),
            *(["was absent"] if self.absent else []),
            *([f"was {self.equals}"] if self.equals is not None else []),
            *([f"contained {self.contains}"] if self.contains is not None else []),
            *([f"was below {self.below:g}"] if self.below is not None else []),
            *([f"was above {self.above:g}"] if self.above is not None else []),
        ]
        if len(given) != 1:
            raise Invalid(
                f"{len(given)} questions were asked about {self.where}, so nothing was searched.",
                code="one_condition",
                advice="Ask one of --exists, --absent, --equals, --contains, --below, --above.",
                path=self.path,
            )
        return given[0]

    def asked_of(self) -> Callable[[View], bool]:
        """Return the condition as a test of a view."""
        test, place = self._test(), self.inside
        if self.absent:
            return lambda view: not _holds(view, self.path, place)
        if self.exists:
            return lambda view: _holds(view, self.path, place)
        return lambda view: (
            _holds(view, self.path, place) and test(cast("Json", read(view.get(self.path), place)))
        )

    @property
    def inside(self) -> Place:
        """Return the place inside the document; empty: the document as a whole."""
        return () if self.place is None else parse_place(self.place)

    @property
    def where(self) -> str:
        """Return the path and the place in words."""
        return f"{self.path} at {spell_place(self.inside)}" if self.inside else self.path

    @property
    def nested(self) -> str:
        """Return how the place is written if it is spelled as in another notation, else nothing."""
        meant = nested_place(self.inside)
        return f" A nested place is a list: --place '{spell_place(meant)}'." if meant else ""

    def _test(self) -> _Test:
        if self.equals is not None:
            wanted = canonical.encode(_given(self.equals, "--equals"))
            return lambda value: not isinstance(value, bytes) and canonical.encode(value) == wanted
        if self.contains is not None:
            part = _given(self.contains, "--contains")
            return lambda value: _contains(value, part)
        below, above = self.below, self.above
        if below is not None:
            return lambda value: _number(value, default=below) < below
        if above is not None:
            return lambda value: _number(value, default=above) > above
        return lambda _value: True


def _given(text: str, option: str) -> Json:
    try:
        return canonical.loads(text)
    except Invalid as error:
        raise Invalid(f"{option}: {error.message}; nothing was searched.", code=error.code) from error
    except (ValueError, RecursionError) as error:
        raise Invalid(
            f"{option} is not JSON: {error}; nothing was searched.",
            code="not_json",
            advice=f"Text is written with quotes: {option} {shlex.quote(json.dumps(text))}.",
            option=option,
        ) from error


def _holds(view: View, path: str, place: Place) -> bool:
    try:
        view.entry(path)
    except Forgotten:
        raise
    except NotFound:
        return False
    return not place or read(view.get(path), place) is not UNSET


def _contains(value: Json, part: Json) -> bool:
    match value:
        case list():
            wanted = canonical.encode(part)
            return any(canonical.encode(item) == wanted for item in value)
        case dict() | str():
            return isinstance(part, str) and part in value
        case _:
            return False


def _number(value: Json, *, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


class Turned(Answer, frozen=True, kw_only=True):
    """The first commit at which it is true."""

    thread: str
    timeline: str
    path: str
    place: list[str | int]  # inside the document; empty: the document as a whole
    question: str
    commit: CommitShape
    input: str  # what the user said in its turn; empty: it belongs to no message

    def show(self, screen: Screen) -> None:
        """Print which turn it was, and how to look at it."""
        found = self.commit
        turn = place_name(found.turn, is_apart=found.apart)
        where = f" first {self.question} {turn}{', ' if turn else 'at '}'{self._words}', {moment(found.at)}, "
        inside = f" at {spell_place(tuple(self.place))}" if self.place else ""
        screen.sentence((f"{self.path}{inside}", "name"), where, digest(found.digest))
        before = found.parents[0][:12] if found.parents else "version:0"
        screen.suggest("See it:         ", "threads", "diff", self.thread, before, found.digest[:12])
        at = before if found.apart else f"turn:{found.turn}~1"
        suggest_fork(screen, self.thread, self.timeline, at)

    @property
    def _words(self) -> str:
        return shortened(" ".join(self.input.split()), _WORDS_MAX) if self.input else self.commit.reason


def bisect(
    thread: ThreadId,
    /,
    *,
    question: Question,
    good: Annotated[
        str | None,
        Parameter(
            metavar="REF",
            completer=in_store,
            help="A commit at which it was not true yet; before the first commit if left out",
        ),
    ] = None,
    bad: Annotated[
        str | None,
        Parameter(
            name=("--bad", "--at"),
            metavar="REF",
            completer=in_store,
            help="A commit at which it is true; the head of the timeline if left out",
        ),
    ] = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Turned:
    """Find the first commit at which a condition on a value became true

    Give one condition on the value at one path, or at one --place inside its document. It must be false at the old
    end and true at the new end; a timeline of n commits takes about log2(n) tests. Where the value has changed again
    since, name a commit at which it was still so with --bad: `perdure state log` shows every value that the path has
    had.
    """
    words, asked = question.words, question.asked_of()
    with reading(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        old = None if good is None else resolve(found, good)
        seen = view_at(found, bad)
        if not question.absent and not _holds(seen, question.path, question.inside):
            raise Invalid(
                f"{question.where} has no value at {_end(bad, timeline)}, so nothing was searched.",
                code="path_absent_at_end",
                advice=f"Name a commit that has it with --bad, or ask with --absent when it was removed.{question.nested}",
                path=question.path,
            )
        with _naming_the_path(found.id, question, timeline, good=good, bad=bad):
            first = seen.bisect(asked, good=old)
        return Turned(
            thread=found.id,
            timeline=timeline,
            path=question.path,
            place=list(question.inside),
            question=words,
            commit=CommitShape.of(first),
            input=input_at(found.at(first)),
        )


def _end(bad: str | None, timeline: str) -> str:
    return f"the head of '{timeline}'" if bad is None else f"--bad {bad}"


@contextmanager
def _naming_the_path(
    thread: str, question: Question, timeline: str, *, good: str | None, bad: str | None
) -> Generator[None]:
    """Let the errors for a condition that does not become true name it, and the command that shows the path's values."""
    try:
        yield
    except Invalid as error:
        if error.code not in ("predicate_false_at_end", "predicate_true_at_start"):
            raise
        log = ["perdure", "state", "log", thread, question.path]
        log += ["--place", question.place] if question.place is not None else []
        log += ["--timeline", timeline] if timeline != MAIN else []
        asked = f"whether {question.where} {question.words}"
        if error.code == "predicate_true_at_start":
            raise Invalid(
                f"{asked}: it did at --good {good} already; nothing was searched.",
                code=error.code,
                advice=f"Name an older one with --good: `{shlex.join(log)}` shows every value that was there.",
                **error.facts,
            ) from error
        raise Invalid(
            f"{asked}: it did not at {_end(bad, timeline)}; nothing was searched.",
            code=error.code,
            advice=f"If it did once, name such a commit with --bad: `{shlex.join(log)}` shows every value that was "
            "there. Else ask the opposite.",
            **error.facts,
        ) from error

"""`perdure state put`.

`perdure state rm`.

What writing to a state leads to: a commit, and a sentence about it.
"""

from __future__ import annotations

import sys
from typing import Annotated, Self, TypeAlias

from cyclopts import Parameter

from perdure.cli.commands.state.target import line_of, words
from perdure.cli.input.json_input import read_bytes
from perdure.cli.input.stores import writing
from perdure.cli.input.suggestions import guessing, paths_like
from perdure.cli.options import (
    EVERYWHERE,
    AgentName,
    Everywhere,
    OpId,
    Reason,
    Rebase,
    StatePath,
    ThreadOrPath,
    Timeline,
)
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid
from perdure.history.changes.values import Value
from perdure.model import canonical
from perdure.model.head import MAIN, Head
from perdure.shapes.store import StateOf, whose
from perdure.shapes.threads import HeadShape
from perdure.store.agents import AgentMap
from perdure.store.thread import Thread

__all__ = ["StatePutAnswer", "put", "Deleted", "rm", "WriteAnswer"]


class WriteAnswer(StateOf, Answer, frozen=True, kw_only=True):
    """The head of a timeline after a path was written."""

    path: str
    head: HeadShape

    @classmethod
    def at(cls, line: Thread | AgentMap, path: str, head: Head) -> Self:
        """Return the answer of a write that ended at `head`."""
        return cls(**whose(line), path=path, head=HeadShape.of(head))

    @property
    def summary(self) -> str:
        """Return what happened to the path."""
        raise NotImplementedError

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.sentence(
            f"{self.summary} ",
            (self.path, "name"),
            f" of {self.whose}: ",
            (self.head.timeline, "line"),
            f" is at version {self.head.version}, ",
            digest(self.head.commit),
        )


_Value: TypeAlias = Annotated[
    str | None,
    Parameter(
        name="VALUE",
        help="The value as JSON text; - reads it from the input",
        allow_leading_hyphen=True,
        show_default=False,
    ),
]
_File: TypeAlias = Annotated[
    str | None,
    Parameter(metavar="FILE", help="Read the value from a file; - is the input", allow_leading_hyphen=True),
]
_MediaType: TypeAlias = Annotated[
    str | None, Parameter(metavar="TYPE", help="Store the value as bytes of this media type instead of JSON")
]


class StatePutAnswer(WriteAnswer, frozen=True, kw_only=True):
    """A path that holds a value now."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Wrote"


def put(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    value: _Value = None,
    /,
    *,
    file: _File = None,
    media_type: _MediaType = None,
    agent: AgentName = None,
    reason: Reason = None,
    rebase: Rebase = False,
    op_id: OpId = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> StatePutAnswer:
    """Write a value to a path, in a commit of its own"""
    thread, path, value = words("put", agent, thread, path, value, needed=1)
    assert path is not None
    content = _value(_given(value, file), media_type)
    with writing(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        head = line.put(
            path,
            content,
            media_type=media_type,
            reason=reason or "put",
            on_conflict="rebase" if rebase else "raise",
            op_id=op_id,
        )
        return StatePutAnswer.at(line, path, head)


def _given(value: str | None, file: str | None) -> bytes:
    """Return the bytes of the value: from the argument, a file or the input."""
    match value, file:
        case None, None:
            raise Invalid(
                "no value was given; nothing was written.",
                code="value_not_given",
                advice="Give VALUE, --file FILE, or - for the input.",
            )
        case None | "-", None | "-":
            return sys.stdin.buffer.read()
        case None, str():
            return read_bytes(file, undone="nothing was written")
        case str(), None:
            return value.encode("utf-8", "surrogateescape")
        case _:
            raise Invalid(
                "VALUE and --file were both given; nothing was written.",
                code="options_conflict",
                advice="Give one of them.",
            )


def _value(content: bytes, media_type: str | None) -> Value:
    if media_type is not None and media_type != "application/json":
        return content
    try:
        return canonical.parse(content.decode())
    except UnicodeDecodeError as error:
        raise Invalid(
            f"the value is not text ({error}); nothing was written.",
            code="not_utf8",
            advice="Name its --media-type.",
        ) from error
    except Invalid as error:
        if error.code != "not_json":
            raise
        advice = "Text is written with quotes, as '\"milk\"', or kept as it is with --media-type text/plain."
        raise Invalid(error.message, code=error.code, advice=advice) from error


class Deleted(WriteAnswer, frozen=True, kw_only=True):
    """A path that holds nothing now."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Deleted"


def rm(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    /,
    *,
    agent: AgentName = None,
    reason: Reason = None,
    rebase: Rebase = False,
    op_id: OpId = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Deleted:
    """Delete the value at a path, in a commit of its own; its history stays"""
    thread, path = words("rm", agent, thread, path, needed=1)
    assert path is not None
    with writing(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        on_conflict = "rebase" if rebase else "raise"
        with guessing(path, lambda: paths_like(line.at(), path)):
            head = line.delete(path, reason=reason or "delete", on_conflict=on_conflict, op_id=op_id)
        return Deleted.at(line, path, head)

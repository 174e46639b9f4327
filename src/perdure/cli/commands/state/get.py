"""`perdure state get`."""

from __future__ import annotations

import base64
import sys
from typing import Annotated

from cyclopts import Parameter
from msgspec import UnsetType

from perdure.cli.commands.state.target import line_of, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import guessing, paths_like
from perdure.cli.options import EVERYWHERE, AgentName, At, Everywhere, StatePath, ThreadOrPath, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Screen
from perdure.errors import Invalid
from perdure.model import canonical
from perdure.model.head import MAIN
from perdure.shapes.store import StateValue
from perdure.shapes.text import safe_json, size, spelled

__all__ = ["Got", "get"]


class Got(StateValue, Answer, frozen=True, kw_only=True):
    """The value at a path: `value` for a JSON document, `base64` for bytes."""

    def show(self, screen: Screen) -> None:
        """Print a document as JSON, bytes as text if they are text."""
        if isinstance(self.base64, UnsetType):
            screen.say(safe_json(self.value))
            return
        try:
            screen.say(base64.b64decode(self.base64).decode())
        except UnicodeDecodeError:
            screen.say(f"{size(self.size)} of {self.media_type}; --raw writes them to a file or a pipe.")


def get(
    thread: ThreadOrPath = None,
    path: StatePath = None,
    /,
    *,
    agent: AgentName = None,
    raw: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Write the stored bytes as they are, and nothing else"
        ),
    ] = False,
    timeline: Timeline = MAIN,
    at: At = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Got | None:
    """Print the value at a path"""
    thread, path = words("get", agent, thread, path, needed=1)
    assert path is not None
    with reading(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        seen = view_at(line, at)
        with guessing(path, lambda: paths_like(seen, path)):
            found = Got.of(line, seen, path)
        if raw:
            is_bytes = not isinstance(found.base64, UnsetType)
            return _write(seen.get(path) if is_bytes else canonical.encode(found.value))
        return found


def _write(content: bytes) -> None:
    """Write bytes to the output; raises `Invalid` if that is a terminal, which could obey them."""
    text = content.decode("utf-8", "surrogateescape")
    if sys.stdout.isatty() and spelled(text.replace("\n", "")) != text.replace("\n", ""):
        raise Invalid(
            "these bytes could command your terminal; nothing was written.",
            code="output_is_terminal",
            advice="Send them to a file or a pipe.",
        )
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()

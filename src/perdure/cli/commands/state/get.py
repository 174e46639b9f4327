"""`perdure state get`."""

from __future__ import annotations

import base64
import sys
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec import UNSET, UnsetType

from perdure.cli.commands.state.target import About, line_of, whose, words
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.input.suggestions import guessing, paths_like
from perdure.cli.options import EVERYWHERE, AgentName, At, Everywhere, StatePath, ThreadOrPath, Timeline
from perdure.cli.output.formatting import size
from perdure.cli.output.screen import Screen, safe_json, spelled
from perdure.errors import Invalid
from perdure.model import canonical
from perdure.model.head import MAIN

__all__ = ["Got", "get"]


class Got(About, frozen=True, kw_only=True):
    """The value at a path: `value` for a JSON document, `base64` for bytes."""

    path: str
    commit: str | None  # the moment it was read at
    form: str
    media_type: str
    size: int
    digest: str
    value: Any = UNSET
    base64: str | UnsetType = UNSET

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
    thread, path = words(agent, thread, path, needed=1)
    assert path is not None
    with reading(everywhere) as store:
        line = line_of(store, agent, thread, timeline)
        seen = view_at(line, at)
        with guessing(path, lambda: paths_like(seen, path)):
            entry, value = seen.entry(path), seen.get(path)
        if raw:
            return _write(value if isinstance(value, bytes) else canonical.encode(value))
        return Got(
            **whose(line),
            path=path,
            commit=seen.digest,
            form=entry.form,
            media_type=entry.media_type,
            size=entry.size,
            digest=entry.value,
            value=UNSET if isinstance(value, bytes) else value,
            base64=base64.b64encode(value).decode() if isinstance(value, bytes) else UNSET,
        )


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

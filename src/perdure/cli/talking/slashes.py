"""Words that begin with a slash: commands about the conversation, each a command of the shell in short.

/switch anthropic:claude-sonnet-5-5        perdure threads switch THREAD --to anthropic:…
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

__all__ = ["SLASHES", "Slash", "read"]


class Slash(NamedTuple):
    """One of them: what it does, and the words of the shell that it stands for."""

    line: str
    words: Callable[[str, Sequence[str]], list[str]]  # from the thread's id and what follows
    takes: str = ""
    takes_code: bool = False  # whether it looks at the agent's tools


def _switch(thread: str, rest: Sequence[str]) -> list[str]:
    backend, *more = rest or [""]
    return ["threads", "switch", thread, "--to", backend, *more]


def _state(thread: str, rest: Sequence[str]) -> list[str]:
    exact = bool(rest) and not rest[0].endswith("/") and not rest[0].startswith("-")
    return ["state", "get" if exact else "ls", thread, *rest]


def _named(noun: str, verb: str, *before: str) -> Callable[[str, Sequence[str]], list[str]]:
    return lambda thread, rest: [noun, verb, thread, *before, *rest]


def _back(thread: str, rest: Sequence[str]) -> list[str]:
    return ["threads", "undo", thread, *(("--turns", rest[0]) if rest else ()), *rest[1:]]


def _log(thread: str, rest: Sequence[str]) -> list[str]:
    return ["threads", "log", thread, *(rest or ("--limit", "5"))]


def _context(thread: str, rest: Sequence[str]) -> list[str]:
    aimed = bool(rest) and not rest[0].startswith("-")
    return ["threads", "context", thread, *(("--to", *rest) if aimed else rest)]


SLASHES: Mapping[str, Slash] = {
    "switch": Slash(
        "Go on with another backend; --dry-run only checks", _switch, "BACKEND [--dry-run]", takes_code=True
    ),
    "fork": Slash(
        "Try something else on a timeline of its own, from here", _named("threads", "fork"), "NAME"
    ),
    "undo": Slash("Step back over the last turn, or several", _back, "[N]"),
    "redo": Slash("Take back the last undo", _named("threads", "redo")),
    "context": Slash(
        "Show what the model is shown, and what is left out", _context, "[BACKEND]", takes_code=True
    ),
    "state": Slash("Show what is known, or one path of it", _state, "[PATH]"),
    "log": Slash("Show the last turns", _log),
    "calls": Slash("Show the tool calls", _named("calls", "ls")),
    "approvals": Slash("Show what waits for a decision", _named("approvals", "ls")),
}


def read(said: str) -> tuple[str, list[str]]:
    """The name of a slash command and the words after it; raises `ValueError` for quotes without an end."""
    name, *rest = shlex.split(said.removeprefix("/")) or [""]
    return name.lower(), rest

"""What a thread says of the session of another tool that it was imported from: its title, and when it was said last."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from perdure.errors import Forgotten
from perdure.shapes.text import shortened

if TYPE_CHECKING:
    from perdure.store.plumbing.revisions import LogEntry
    from perdure.store.thread import Thread
    from perdure.store.view import View

__all__ = ["SESSION_PATH", "ImportFacts", "import_facts", "newest_at", "titled"]

SESSION_PATH = "/import/session"  # in the state: what was imported, and the originals by digest
_TITLE_MAX = 200  # characters


class ImportFacts(NamedTuple):
    """What the newest import wrote of a session; None where it was not imported, or the tool does not say it."""

    title: str | None = None
    said_at: str | None = (
        None  # the last message, in the shape of `stamp`; None also if something was added here since
    )


def import_facts(seen: View, newest: LogEntry | None) -> ImportFacts:
    """Read what a moment, whose newest commit is given, says of its session."""
    described = _described(seen)
    said_at = described.get("said_at")
    is_last = newest is not None and newest.reason == "import" and newest.is_apart
    return ImportFacts(
        title=_title_in(described), said_at=said_at if is_last and isinstance(said_at, str) else None
    )


def _described(seen: View) -> dict[str, Any]:
    """Return the description that the newest import wrote; empty if there is none, or it is forgotten."""
    stored: Any = None
    with suppress(Forgotten):
        stored = seen.get(SESSION_PATH, default=None) if seen.digest is not None else None
    return cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}


def _title_in(described: dict[str, Any]) -> str | None:
    facts: Any = described.get("facts")
    title: Any = cast("dict[str, Any]", facts).get("title") if isinstance(facts, dict) else None
    return shortened(title, _TITLE_MAX) if isinstance(title, str) and title.strip() else None


def newest_at(seen: View, newest: LogEntry | None, begun_at: int) -> int:
    """Return when a thread was said last, in µs since 1970: where it was imported, not the time of the import."""
    if newest is None:
        return begun_at
    if newest.reason == "import" and (said := import_facts(seen, newest).said_at) is not None:
        with suppress(ValueError, OverflowError):
            return int(datetime.fromisoformat(said).timestamp() * 1_000_000)
    return newest.at


def titled(thread: Thread, words: list[str]) -> str | None:
    """Return the title of a thread if it has all the words, which are in lower case; None if it does not."""
    title = _title_in(_described(thread.at()))
    return title if title is not None and all(word in title.casefold() for word in words) else None

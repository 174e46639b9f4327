"""A document with the conversations of a person: a JSON list, in which each one is read, or refused by its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from perdure.errors import Invalid
from perdure.integrations.importers.session import ForeignSession, Json, as_list, as_object, as_text

__all__ = ["conversations_in", "read_each", "unreadable"]

_NAMES = ("conversation_id", "uuid", "id", "title", "name")


def conversations_in(content: bytes) -> list[object]:
    """Return what may be conversations: the items of a list, or a single one; none if it is no JSON."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return []
    return as_list(value) or [value]


def read_each(
    place: str,
    found: Sequence[object],
    read: Callable[[Json], ForeignSession],
    *,
    has_messages: Callable[[object], bool],
) -> Iterator[ForeignSession | Invalid]:
    """Yield each conversation as `read` returns it, or why it cannot be read, with its number and name."""
    for number, conversation in enumerate(found, 1):
        whole = as_object(conversation)
        name = next((name for field in _NAMES if (name := as_text(whole.get(field)))), None)
        shown = f"conversation {number}" + (f" ('{name[:80]}')" if name else "")
        if not has_messages(conversation):
            yield unreadable(place, f"{shown} in {place} has no messages")
            continue
        try:
            session = read(whole)
        except Invalid as error:
            yield error
            continue
        is_lost = not session.paths and session.losses
        yield unreadable(place, f"no message of {shown} in {place} can be read") if is_lost else session


def unreadable(place: str, why: str) -> Invalid:
    """Return the error for a conversation that is not imported."""
    return Invalid(f"{why}; nothing was imported from it.", code="import_unreadable", source=place)

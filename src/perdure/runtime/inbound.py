"""What comes in at the start of a run: messages, and perhaps a whole new state.

Each input has an id.  The same id again is the same input: its write carries an op_id that
derives from the id, so whoever comes second, from any process, finds what the first one led to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from perdure.errors import Conflict, Invalid
from perdure.history.reader import is_ancestor
from perdure.history.space import Space
from perdure.history.values import Given
from perdure.model import canonical, names
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import MessageAppended
from perdure.model.message import Message, Text, check_message, encode_message

__all__ = ["Inbound", "Input", "inbound", "is_known"]

Input: TypeAlias = str | Message | Sequence[Message] | None

_ROLES = ("user", "system")


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """Messages with their ids, and a whole new state if there is one."""

    messages: tuple[tuple[str, Message], ...]
    state: Mapping[str, Any] | None = None
    op_id: str | None = None  # None: nobody will give this input again

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the messages."""
        return tuple(id for id, _ in self.messages)

    def intent(self, timeline: str) -> Digest:
        """What it means, however often it is given."""
        said = [encode_message(message).decode("utf-8", "replace") for _, message in self.messages]
        replaced = None if self.state is None else {path: _plain(each) for path, each in self.state.items()}
        return digest_of(Kind.BODY, canonical.encode([timeline, *said, replaced]))


def inbound(
    space: Space, timeline: str, given: Input, *, id: str | None, state: Mapping[str, Given] | None
) -> Inbound:
    """What was given, checked; raises `Invalid`, having written nothing."""
    messages = _messages(given)
    if id is not None:
        names.check_id("message id", id)
    if id is not None and not messages:
        raise Invalid("an id names an input, and there is none; nothing was run. Leave it out.")
    first = id or (space.ids() if messages else "")
    ids = [first, *(f"{first}.{number}" for number in range(2, len(messages) + 1))]
    return Inbound(
        messages=tuple(zip(ids, messages, strict=False)),
        state=state,
        op_id=None if id is None else "input:" + sha256(f"{timeline}\n{id}".encode()).hexdigest(),
    )


def is_known(space: Space, at: Digest | None, id: str, message: Message) -> bool:
    """Whether the line that ends at `at` has this message; raises `Conflict` if that id says something else there."""
    for commit in space.engine.labelled(space.name, id):
        if not is_ancestor(space, commit, at):
            continue
        for event in space.step(commit).changeset.events:
            if isinstance(event, MessageAppended) and event.id == id:
                if event.body == digest_of(Kind.BODY, encode_message(message)):
                    return True
                raise Conflict(
                    f"message '{id}' says something else on this line; nothing was run. Give it another id."
                )
    return False


def _messages(given: Input) -> tuple[Message, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        return (Message("user", (Text(given),)),)
    if not isinstance(given, Message | Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(f"an input is text, a message or several, not {given!r}; nothing was run.")
    several = (given,) if isinstance(given, Message) else tuple(given)
    for message in several:
        check_message(message)
        if message.role not in _ROLES or message.tool_calls or message.tool_results:
            raise Invalid(
                f"an input is said by a user, not by {message.role}, and holds no calls; nothing was run. "
                "Add other messages by hand, with change()."
            )
    return several


def _plain(value: object) -> Any:
    return sha256(value).hexdigest() if isinstance(value, bytes) else value

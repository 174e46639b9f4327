"""What is said to an agent, under an id that names it once on a timeline, and the run that it led to.

An input begins a run, is queued for one, or steers one that lives.  Whichever it is, its write has the op_id that
derives from the timeline and the caller's id, and an intent that derives from its words.  So the same id again is
the same input, from any process and by any of the three ways, and other words under it are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from perdure.engines.contract import CellWrite, OpOf, Recorded
from perdure.errors import Conflict, Invalid
from perdure.history.changes.values import Given
from perdure.history.space import Space, read_record
from perdure.model import canonical, names
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.message import Message, Text, check_message, encode_message

__all__ = ["INPUT", "Inbound", "Input", "check_input", "given_before_as", "inbound", "naming", "other_words"]

Input: TypeAlias = str | Message | Sequence[Message] | None

INPUT = "queued/"  # cells of inputs that were queued, or steered a run, by op_id: the run of each

_ROLES = ("user", "system")

_runs = msgspec.json.Decoder(str)


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """Messages with their ids, and a whole new state if there is one."""

    messages: tuple[tuple[str, Message], ...]
    state: Mapping[str, Any] | None = None
    op_id: str | None = (
        None  # None: the caller gave no id, or its run was queued, so that no write is repeated
    )
    is_named: bool = False  # the caller gave the id, so the history may have the messages

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple([id for id, _ in self.messages])

    def intent(self, timeline: str) -> Digest:
        """Return the digest of its content, the same however often it is given."""
        texts = [encode_message(message).decode("utf-8", "replace") for _, message in self.messages]
        replaced = None if self.state is None else {path: _plain(each) for path, each in self.state.items()}
        return digest_of(Kind.BODY, canonical.encode([timeline, *texts, replaced]))


def inbound(
    space: Space, timeline: str, given: Input, *, id: str | None, state: Mapping[str, Given] | None
) -> Inbound:
    """Check an input and give its messages ids; raise `Invalid`, having written nothing."""
    messages = check_input(given, id=id)
    first = id or (space.ids() if messages else "")
    ids = [first]
    if len(messages) > 1:
        ids += [f"{first}.{number}" for number in range(2, len(messages) + 1)]
    return Inbound(
        messages=tuple(zip(ids, messages, strict=False)),
        state=state,
        op_id=None if id is None else "input:" + sha256(f"{timeline}\n{id}".encode()).hexdigest(),
        is_named=id is not None,
    )


def check_input(given: Input, *, id: str | None) -> tuple[Message, ...]:
    """Return the messages of an input; raise `Invalid` for what no thread takes."""
    messages = _messages(given)
    if id is not None:
        names.check_id("message id", id)
    if id is not None and not messages:
        raise Invalid(
            "an id names an input, and there is none; nothing was run.",
            code="id_without_input",
            advice="Leave it out.",
        )
    return messages


def _messages(given: Input) -> tuple[Message, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        if not given.strip():
            raise Invalid(
                "the text is empty; nothing was run.", code="input_empty", advice="Give what the user says."
            )
        return (Message("user", (Text(given),)),)
    if not isinstance(given, Message | Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"an input is text, a message or several, not {given!r}; nothing was run.", code="input_invalid"
        )
    several = (given,) if isinstance(given, Message) else tuple(given)
    for message in several:
        check_message(message)
        if message.role not in _ROLES or message.tool_calls or message.tool_results:
            raise Invalid(
                f"an input is a user's message without calls, not one by {message.role}; nothing was run.",
                code="input_role_invalid",
                advice="Add other messages by hand, with change().",
                role=message.role,
            )
    return several


def _plain(value: object) -> Any:
    return sha256(value).hexdigest() if isinstance(value, bytes) else value


def given_before_as(space: Space, timeline: str, inbound: Inbound, known: Space | None = None) -> str | None:
    """Return the id of the run that the same input started, was queued for or steered; None if it is new.

    `known` has the answer that was just read; None: it is read here.  Raises `Conflict` if the id had other words.
    """
    if inbound.op_id is None:
        return None
    found: Recorded | None = (known or space).ask(OpOf(space.name, inbound.op_id))[0]
    if found is None:
        return None
    if found.intent != inbound.intent(timeline):
        raise other_words(inbound)
    if not found.receipt.heads:
        cell = space.engine.cell(space.name, INPUT + inbound.op_id)
        assert cell is not None, "one write queues the input and names its run"
        return read_record(cell, _runs)
    commit = found.receipt.heads[0].commit
    assert commit is not None, "an input's write moves the head to its commit"
    run = space.step(commit).commit.run
    assert run is not None, "an input's commit belongs to a run"
    return run


def naming(inbound: Inbound, run: str) -> tuple[CellWrite, ...]:
    """Return the write that names the run of an input which begins none itself; none for an input without an id."""
    if inbound.op_id is None:
        return ()
    return (CellWrite(name=INPUT + inbound.op_id, expected=0, value=canonical.encode(run)),)


def other_words(inbound: Inbound) -> Conflict:
    """Return the error for an id that was given before with another input."""
    return Conflict(
        f"input '{inbound.ids[0]}' was given before with other words; nothing was run.",
        code="input_id_reused",
        advice="Give it another id.",
        id=inbound.ids[0],
    )

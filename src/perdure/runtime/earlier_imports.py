"""What a line has already of a conversation that is about to be imported.

Messages with ids are known by these: a cell says in which commit one was imported, and that commit must be
in the history of the line, so that after an undo it can be imported again.  A conversation without ids
is compared with the transcript, message by message.  And a result may answer a call that came before it:
open imported calls are found by reading the line backwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec

from perdure.engines.contract import CellWrite
from perdure.history import cells, reader
from perdure.history.space import Space
from perdure.ledger import calls
from perdure.ledger.calls import Held
from perdure.ledger.presence import stands_on
from perdure.model import canonical
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.event import MessageAppended
from perdure.model.head import Head
from perdure.model.message import Block, Message, ReasoningSummary, decode_message
from perdure.providers.contract import Loss

__all__ = [
    "IMPORTED",
    "Item",
    "Left",
    "OpenImports",
    "cells_for",
    "items_of",
    "left_of",
    "matched",
    "without",
]

IMPORTED = "imported/"  # cells: the commit that a message was imported in, by the SHA-256 of its vendor's id

_LOOK_BACK_MAX = 20_000  # messages, in which the call of a result is looked for
_REPLY = -1  # the place of a reply as a whole


class Item(msgspec.Struct, frozen=True):
    """One message, or part of one, that has an id of its vendor's."""

    place: int  # in the list
    id: str
    body: Digest  # of what it says


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """Which items are new, and which are there."""

    new: tuple[Item, ...] = ()
    known: frozenset[int] = frozenset()  # their places
    losses: tuple[Loss, ...] = ()


class _Imported(msgspec.Struct, frozen=True):
    """The value of a cell."""

    label: str  # what names the commit
    body: Digest


_values = msgspec.json.Decoder(_Imported)


def items_of(given: object, field: str) -> tuple[Item, ...]:
    """The items of a request, a list or a reply that have ids; `field` holds the messages of a request."""
    if isinstance(given, Mapping):
        body = cast("Mapping[str, Any]", given)
        if field not in body:
            id = body.get("id") or body.get("responseId")
            return (_item(_REPLY, id, body),) if isinstance(id, str) else ()
        given = body[field]
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return ()
    found: list[Item] = []
    for place, each in enumerate(cast("Sequence[Any]", given)):
        if isinstance(each, Mapping):
            item = cast("Mapping[str, Any]", each)
            id = item.get("id")
            if isinstance(id, str) and id and item.get("type") != "item_reference":
                found.append(_item(place, id, item))
    return tuple(found)


def left_of(space: Space, head: Head, items: Sequence[Item]) -> Left:
    """Which of `items` the line that stands at `head` does not have yet."""
    new: dict[str, Item] = {}
    known: set[int] = set()
    losses: list[Loss] = []
    for item in items:
        cell = space.engine.cell(space.name, _name(item))
        there = None if cell is None or cell.value is None else cells.read(cell, _values)
        if there is not None and not stands_on(space, there.label, head.commit):
            there = None
        first = there.body if there is not None else new[item.id].body if item.id in new else None
        if first is None:
            new[item.id] = item
            continue
        known.add(item.place)
        if first != item.body:
            why = "a message of that id was added before and says something else; the first one stands"
            where = f"messages[{item.place}]" if item.place != _REPLY else "messages"
            losses.append(Loss(kind="dropped", where=where, what=f"message '{item.id}'", why=why))
    return Left(new=tuple(new.values()), known=frozenset(known), losses=tuple(losses))


def without(given: object, field: str, left: Left) -> object | None:
    """What was given, without the items that are there; None if nothing is left."""
    if _REPLY in left.known:
        return None
    body = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else None
    items = cast("Sequence[Any]", given if body is None else body[field])
    kept = [item for place, item in enumerate(items) if place not in left.known]
    if not kept:
        return None
    return kept if body is None else {**body, field: kept}


def cells_for(space: Space, items: Sequence[Item], label: str) -> list[CellWrite]:
    """What the write must hold that imports `items` with the commit that `label` names."""
    written: list[CellWrite] = []
    for item in {item.id: item for item in items}.values():
        before = space.engine.cell(space.name, _name(item))
        value = canonical.encode_struct(_Imported(label, item.body))
        expected = before.revision if before else 0
        written.append(CellWrite(name=_name(item), expected=expected, value=value))
    return written


class OpenImports:
    """Imported calls of a line that have no result there, by what their vendor called them, by our ids and by tool."""

    def __init__(self, space: Space, at: Digest | None) -> None:
        """Look back from `at`, as far as it is asked for."""
        self._space = space
        self._messages = self._back(at)
        self._answered: set[str] = set()
        self._taken: set[str] = set()  # by our ids
        self._by_id: dict[str, list[Held]] = {}  # those of the newest message first, in order
        self._by_tool: dict[str, list[Held]] = {}
        self.seen: set[str] = set()  # our ids of all calls so far; all of the line once nothing was found

    def take(self, id: str) -> Held | None:
        """The first open call of that id, the vendor's or ours, in the newest message that has one; each is given once."""
        return self._next(self._by_id, id)

    def take_of(self, tool: str) -> Held | None:
        """The same by the name of the tool."""
        return self._next(self._by_tool, tool)

    def _next(self, found: dict[str, list[Held]], key: str) -> Held | None:
        while True:
            held = next((each for each in found.get(key, ()) if each.record.id not in self._taken), None)
            if held is not None:
                self._taken.add(held.record.id)
                return held
            if not self._read_on():
                return None

    def _read_on(self) -> bool:
        """Look at one message more; False if there is none."""
        message = next(self._messages, None)
        if message is None:
            return False
        self._answered |= {result.call_id for result in message.tool_results}
        for call in message.tool_calls:
            self.seen.add(call.id)
            held = None if call.id in self._answered else calls.find(self._space, call.id)
            if held is not None and held.record.origin == "import" and held.record.vendor_id is not None:
                for id in {held.record.vendor_id, call.id}:
                    self._by_id.setdefault(id, []).append(held)
                self._by_tool.setdefault(held.record.tool, []).append(held)
        return True

    def _back(self, at: Digest | None) -> Iterator[Message]:
        """The messages that hold calls or results, newest first."""
        left = _LOOK_BACK_MAX
        for step in reader.recent(self._space, at):
            for event in reversed(step.changeset.events):
                if isinstance(event, MessageAppended) and event.role != "system":
                    left -= 1
                    yield decode_message(self._space.body(event.body))
            if left <= 0:
                return


def matched(there: Sequence[Message], here: Sequence[Message], names: Mapping[str, str]) -> int | None:
    """How many messages of `here` say what all of `there` say; None if `here` does not begin with `there`.

    Ids of calls, thoughts and what only a vendor can read do not count; neither does whether results
    stand in one message or in several.  `names` are tools by what the vendor calls them.
    """
    first, second = list(_units(there, names)), list(_units(here, names))
    if len(second) < len(first) or any(one[1] != other[1] for one, other in zip(first, second, strict=False)):
        return None
    if len(second) == len(first):
        return len(here)
    place = second[len(first)][0]
    return place if not first or second[len(first) - 1][0] < place else None


def _units(messages: Sequence[Message], names: Mapping[str, str]) -> Iterator[tuple[int, object]]:
    """What is said, each with the index of its message: words with calls, and each result by itself."""
    numbers: dict[str, int] = {}
    for at, message in enumerate(messages):
        for result in message.tool_results:
            yield at, (numbers.get(result.call_id), result.status, _blocks(result.content))
        if message.tool_results and not message.content and not message.tool_calls:
            continue
        made: list[object] = []
        for call in message.tool_calls:
            numbers[call.id] = len(numbers)
            made.append((names.get(call.name, call.name), _arguments(call.args)))
        yield at, (message.role, _blocks(message.content), made)


def _blocks(content: Sequence[Block]) -> list[Block]:
    return [block for block in content if not isinstance(block, ReasoningSummary)]


def _arguments(args: str) -> object:
    try:
        return json.loads(args)
    except ValueError:
        return args


def _item(place: int, id: str, says: Mapping[str, Any]) -> Item:
    body = json.dumps(says, sort_keys=True, default=repr).encode("utf-8", "replace")
    return Item(place, id, digest_of(Kind.BODY, body))


def _name(item: Item) -> str:
    return IMPORTED + sha256(item.id.encode("utf-8", "surrogatepass")).hexdigest()

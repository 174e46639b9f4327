"""A session of the OpenAI Agents SDK: its items are the messages of a thread.

Each message that the session adds names the items that it was made from, exactly as they came, so they come back deep-equal.
The items of one reply are one message where the wire format allows it, and each of them can still be popped alone: the
message is taken back, and what is left of it is said again in the same commit.  All items of one `add_items` are one
durable write.  Messages that others wrote to the thread, a run of Perdure or another framework, are items too: they are
written as the Responses API has them.

What is no message of the conversation, such as a message of the developer, is stored in a list of the state with the
message that it follows and why it is there; it comes back at its place.

Taking items back is a commit like any other: the history still has them, and state that others wrote stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit

from perdure import aio
from perdure.context.render.media import taken_out
from perdure.errors import Invalid
from perdure.history.reader import TranscriptEntry
from perdure.integrations import records
from perdure.integrations.door import Workers
from perdure.integrations.importers import convert, openai_agents, session
from perdure.integrations.importers.session import SessionEntry, SourcePart
from perdure.model.canonical import Json
from perdure.model.message import Message, ToolCall
from perdure.providers.openai_responses.portable_items import ItemWriter
from perdure.providers.wire.fields.vendor_metadata import parsed_metadata
from perdure.store.change import Change
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["UNMAPPED", "Session", "thread_of"]

UNMAPPED = "/openai-agents/unmapped.json"  # in the state: the items that are no message, oldest first
_AFTER, _WHY = "after", "why"
_PAGE = 4

_Item = dict[str, Any]


class Session:
    """Stores the items of a session as messages of a thread; for `Runner.run(…, session=…)`."""

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        thread: Thread | aio.Thread,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
    ) -> None:
        """Use a thread, of either interface; its timeline is the one of the handle."""
        self._thread = thread_of(thread)
        self._workers = Workers()
        self.session_id = self._thread.id
        self.session_settings = coerce_session_settings(session_settings or {})

    @property
    def thread(self) -> Thread:
        """The thread that has the items."""
        return self._thread

    def items(self) -> list[_Item]:
        """Return the items, oldest first, without awaiting them."""
        return self._get(None)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items, oldest first; with a `limit`, or one in the settings, the last ones."""
        most = resolve_session_limit(limit, self.session_settings)
        return cast("Any", await self._workers.acall(partial(self._get, most)))

    async def add_items(self, items: Sequence[TResponseInputItem]) -> None:
        """Add items in one durable write; raises `Invalid`, having written nothing, if one is no JSON object."""
        await self._workers.acall(partial(self._add, cast("Any", items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item back and return it; None if there is none."""
        return await self._workers.acall(partial(self._again, "no item was popped", self._pop))

    async def clear_session(self) -> None:
        """Take all items back."""
        await self._workers.acall(partial(self._again, "the session was not cleared", self._clear))

    def _again(self, undone: str, write: Any) -> Any:
        return records.until_written(self.session_id, undone, write)

    # Reading.

    def _get(self, limit: int | None) -> list[_Item]:
        view = self._thread.at()
        if limit == 0:
            return []
        unmapped = _unmapped(view)
        if limit is None or limit < 0:
            return self._items(view.transcript(), unmapped, is_whole=True)
        size = limit
        while True:
            entries = view.transcript(limit=size)
            is_whole = len(entries) < size
            found = self._items(entries, unmapped, is_whole=is_whole)
            if len(found) >= limit or is_whole:
                return found[-limit:]
            size *= 4

    def _items(
        self, entries: Sequence[TranscriptEntry], unmapped: Sequence[Mapping[str, Any]], *, is_whole: bool
    ) -> list[_Item]:
        """Return the items of messages, with those that are no message behind the message that they follow.

        An item whose message was taken back by others stays behind the one before it; if the messages are not
        the `is_whole` conversation, it is left out.
        """
        follow: dict[str, list[_Item]] = {"": []}
        follow |= {entry.id: [] for entry in entries}
        place = "" if is_whole else None
        for each in unmapped:
            after = str(each.get(_AFTER))
            if after in follow and (after or is_whole):
                place = after
            if place is not None:
                follow[place].append(records.restored(each))
        found = follow[""]
        for entry in entries:
            found += self._items_of(entry) or []
            found += follow[entry.id]
        return found

    def _items_of(self, entry: TranscriptEntry) -> list[_Item]:
        """Return the items of a message: those that it was made from, else those that the API would have for it."""
        if entry.words is None:  # its words were forgotten
            return []
        exact = _exact(entry.words)
        if exact is not None:
            return exact
        space = self._thread._space  # pyright: ignore[reportPrivateUsage]
        words, writer = taken_out(space, entry.words), ItemWriter([])
        results = [writer.result(ToolCall(each.call_id, "", ""), each, "") for each in words.tool_results]
        return [*results, *writer.message(words, ""), *writer.moved(words, "")]

    # Writing.

    def _add(self, items: Sequence[Any]) -> None:
        planned = list(_planned(items))
        if planned:
            self._again("no item was added", partial(self._write, planned))

    def _write(self, planned: Sequence[Message | dict[str, Json]]) -> None:
        thread = self._thread
        with thread.change("add_items", chain="steps") as change:
            last = ""
            if isinstance(planned[0], dict):
                said = (
                    thread.at(change.head).transcript(limit=1) if change.head and change.head.commit else []
                )
                last = said[-1].id if said else ""
            _say(change, planned, last)

    def _pop(self) -> _Item | None:
        thread = self._thread
        head = thread.head
        view = thread.at(head)
        unmapped = _unmapped(view)
        entries = _newest_first(view)
        for entry in entries:
            if unmapped and unmapped[-1].get(_AFTER) == entry.id:
                break
            items = self._items_of(entry)
            if not items:
                continue
            before = next(entries, None)
            with thread.change("pop_item", head=head, chain="steps") as change:
                change.retract(entry.id)
                _say(change, list(_planned(items[:-1])), before.id if before else "")
            return items[-1]
        if not unmapped:
            return None
        with thread.change("pop_item", head=head) as change:
            change.unset(UNMAPPED, at=[len(change.get(UNMAPPED)) - 1])
        return records.restored(unmapped[-1])

    def _clear(self) -> None:
        head = self._thread.head
        view = self._thread.at(head)
        unmapped = view.get(UNMAPPED, default=None)
        if not view.transcript(limit=1) and not unmapped:
            return
        with self._thread.change("clear_session", head=head) as change:
            change.retract_all()
            if unmapped is not None:
                change.delete(UNMAPPED)


def thread_of(thread: Thread | aio.Thread) -> Thread:
    """Return the blocking handle of a thread; raises `Invalid` for anything else."""
    held = thread.target() if isinstance(thread, aio.Thread) else thread
    if not isinstance(held, Thread):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"a session is stored in a thread, not in {held!r}; nothing was done.",
            code="not_a_thread",
            advice="Take one from store.thread(…).",
        )
    return held


def _unmapped(view: View) -> list[Mapping[str, Any]]:
    """Return the stored items that are no message; raises `Corrupt` if others wrote something else there."""
    found: Any = view.get(UNMAPPED, default=[])
    every = cast("list[Any]", found) if isinstance(found, list) else [found]
    if not all(records.is_stored(each) for each in every):
        raise records.damaged(UNMAPPED, "the items of a session")
    return every


def _exact(message: Message) -> list[_Item] | None:
    """Return the items that a message was made from; None if the session did not make it."""
    told = parsed_metadata(message)
    made = cast("Mapping[str, Any]", told).get(openai_agents.FORMAT) if isinstance(told, dict) else None
    if not isinstance(made, list):
        return None
    parts = cast("list[Any]", made)
    if not parts or not all(records.is_stored(each) for each in parts):
        return None
    return [records.restored(each) for each in parts]


def _newest_first(view: View) -> Iterator[TranscriptEntry]:
    size, done = _PAGE, 0
    while True:
        entries = view.transcript(limit=size)
        yield from reversed(entries[: len(entries) - done])
        if len(entries) < size:
            return
        done, size = len(entries), 4 * size


def _say(change: Change, planned: Sequence[Message | dict[str, Json]], last: str) -> None:
    """Add messages, and items that are none behind the message `last` or the one before them, a commit each."""
    for each in planned:
        if isinstance(each, Message):
            last = change.add(each)
        else:
            if change.get(UNMAPPED, default=None) is None:
                change.put(UNMAPPED, [])
            change.append(UNMAPPED, {**each, _AFTER: last})
        change.step()


def _planned(items: Sequence[Any]) -> Iterator[Message | dict[str, Json]]:
    """Yield the messages of items, and the stored form of those that are no message."""
    group: list[tuple[str, SourcePart]] = []
    ids: set[str] = set()
    for at, item in enumerate(items):
        exact = records.stored(item, f"item {at}")
        shown, _ = openai_agents.accepted(
            records.restored(exact), ids
        )  # the exact item is beside the message
        read = openai_agents.read_item(shown, name="", where=f"item {at}", facts=exact)
        if read is not None:
            group.append(read)
            continue
        yield from _messages(group)
        group = []
        yield {**exact, _WHY: f"message of the {item.get('role')}"[:200]}
    yield from _messages(group)


def _messages(group: Sequence[tuple[str, SourcePart]]) -> Iterator[Message | dict[str, Json]]:
    """Yield one message for each entry, else one for each item with the reasoning that led to it."""
    for entry in openai_agents.grouped(group):
        message, _ = _one_message(entry, entry.parts)
        if message is not None:
            yield message
            continue
        chunk: list[SourcePart] = []
        for part in entry.parts:
            chunk.append(part)
            if cast("_Item", part.item).get("type") != "reasoning" or part is entry.parts[-1]:
                yield from _chunk(entry, chunk)
                chunk = []


def _chunk(entry: SessionEntry, parts: Sequence[SourcePart]) -> Iterator[Message | dict[str, Json]]:
    message, why = _one_message(entry, parts)
    if message is not None:
        yield message
    elif len(parts) > 1:
        for part in parts:
            yield from _chunk(entry, (part,))
    else:
        yield {**dict(parts[0].facts), _WHY: why}


def _one_message(entry: SessionEntry, parts: Sequence[SourcePart]) -> tuple[Message | None, str]:
    """Return the message that items are together; None, and why, if they are not one."""
    source = session.ForeignSession(
        format=openai_agents.FORMAT, id="", thread="", source="session", api=openai_agents.API
    )
    found, losses = convert.converted(source, parts, entry)
    if len(found) == 1 and len(_exact(found[0]) or ()) == len(parts):
        return found[0], ""
    return None, losses[0].why if losses and not found else "it is not one message"

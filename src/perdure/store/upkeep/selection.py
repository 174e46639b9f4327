"""Decides what of a store can be copied: verifies it, and leaves out what is damaged if the caller wishes.

A thread needs its own space and the maps of its agents.  The directory names threads whose own records are damaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Engine
from perdure.errors import Corrupt, PerdureError
from perdure.history.retention.planner import space_of
from perdure.history.space import AGENTS, ALIVE, STORE, THREAD, THREADS, words_for
from perdure.history.verify import Fault, Progress
from perdure.history.verify.records import readable_cells
from perdure.ledger import verify
from perdure.ledger.held import COPIES
from perdure.model.memory import MEMORY
from perdure.model.names import shown_address
from perdure.store.plumbing import directory

__all__ = ["Selection", "select", "source_damaged"]

_NAMED = 3  # damaged spaces in a message


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """What of a source is copied.  It was verified."""

    threads: tuple[str, ...] | None = None  # None: everything
    memories: tuple[str, ...] = ()  # spaces that are copied beside threads
    left_out: tuple[str, ...] = ()  # what is damaged, in words


def select(
    source: Engine, address: str, threads: Sequence[str] | None, *, sound: bool, progress: Progress | None
) -> Selection:
    """Verify the source, or these threads of it, and return what can be copied: all of it, or with `sound` the rest.

    Raises `Corrupt` if something is damaged and not left out, or nothing is left.
    """
    records, lost = _records(source)
    needed = {
        id: (record.space, *(AGENTS + each for each in record.agents or (record.agent,)))
        for id, record in records.items()
        if threads is None or id in threads
    }
    wanted = None if threads is None else {STORE, *(each for of in needed.values() for each in of)}
    report = verify.verify(source, spaces=wanted and sorted(wanted), progress=progress)
    spaces = {id: record.space for id, record in records.items()}
    # A fault of the file alone costs nothing that is stored: what it has cost is found in the spaces.
    faults = [fault for fault in report.faults if fault.kind != "file"]
    damaged = dict.fromkeys(_damaged_space(fault, spaces) for fault in faults)
    damaged = {each: None for each in damaged if each != COPIES and (wanted is None or each in wanted)}
    if threads is not None and damaged.keys() == {STORE} and not lost & {*threads}:
        damaged = {}  # the records of these threads are sound
    if not damaged:
        return Selection(threads=None if threads is None else tuple(threads))
    if not sound:
        raise source_damaged(source, address, list(damaged))
    kept = tuple(id for id, of in needed.items() if not damaged.keys() & set(of))
    without_map = [id for id, of in needed.items() if id not in kept and of[0] not in damaged]
    spaces_there = () if threads is not None else list(loops.spaces(source))
    unlisted = [each for each in spaces_there if _is_unlisted(source, each, spaces) and each not in damaged]
    memories = tuple(each for each in spaces_there if each.startswith(MEMORY) and each not in damaged)
    if not kept and not memories:
        raise _nothing_sound(source, address, list(damaged))
    named = _in_words(source, [*damaged, *unlisted])
    return Selection(
        threads=kept,
        memories=memories,
        left_out=tuple(dict.fromkeys((*named, *(f"thread '{id}'" for id in (*without_map, *sorted(lost)))))),
    )


def _records(source: Engine) -> tuple[dict[str, directory.Record], set[str]]:
    """Return the records of threads by id, as far as the directory can be read, and the ids of those that are damaged."""
    store, found, lost = space_of(source, STORE), dict[str, directory.Record](), set[str]()
    for cell in readable_cells(store, THREAD):
        name = cell.cell if isinstance(cell, Corrupt) else cell.name
        try:
            record = None if isinstance(cell, Corrupt) else directory.read(store, cell)
        except PerdureError:
            record = None
        else:
            if record is None and not isinstance(cell, Corrupt):
                continue  # the thread was removed
        if record is not None and name is not None:
            found[name.removeprefix(THREAD)] = record
        elif name is not None:
            lost.add(name.removeprefix(THREAD))
    return found, lost


def _is_unlisted(source: Engine, space: str, spaces: Mapping[str, str]) -> bool:
    """True if a space is that of a thread whose record is lost."""
    if not space.startswith(THREADS) or space in spaces.values():
        return False
    with suppress(Corrupt):
        return source.cell(space, ALIVE) is None
    return True


def source_damaged(source: Engine, address: str, spaces: Sequence[str], what: str = "") -> Corrupt:
    """Return the error for a source of which these spaces are damaged; with `what`, after the copy had begun."""
    named = _in_words(source, spaces)
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    are = "is" if len(named) == 1 else "are"
    left = f": {what}; the copy stopped there" if what else "; nothing was copied"
    return Corrupt(
        f"{', '.join(named[:_NAMED])}{more} in {shown_address(address)} {are} damaged{left}.",
        code="source_damaged",
        advice="Restore a backup of the source."
        if what
        else "See what is wrong with `perdure verify` on the source. Restore a backup of it, or copy the rest with "
        "`perdure copy SOURCE TARGET --sound`.",
        spaces=tuple(spaces),
        threads=tuple(id for id, space in _threads(source).items() if space in spaces),
    )


def _nothing_sound(source: Engine, address: str, spaces: Sequence[str]) -> Corrupt:
    """Return the error for a source of which nothing could be copied."""
    return Corrupt(
        f"everything that would be copied of {shown_address(address)} is damaged: "
        f"{', '.join(_in_words(source, spaces)[:_NAMED])}; nothing was copied.",
        code="nothing_sound",
        advice="Restore a backup. Without one, `perdure verify` on the source names the turns, and `perdure export THREAD "
        "--format NAME --at turn:N` still takes out a conversation as it was before them.",
        spaces=tuple(spaces),
    )


def _damaged_space(fault: Fault, spaces: Mapping[str, str]) -> str:
    """Return the space that a fault is in: the directory's entry of a thread counts to the thread."""
    if fault.space == STORE and fault.name is not None and fault.name.startswith(THREAD):
        return spaces.get(fault.name.removeprefix(THREAD), STORE)
    return fault.space


def _in_words(source: Engine, spaces: Sequence[str]) -> list[str]:
    """Return what people call these spaces."""
    threads = {space: f"thread '{id}'" for id, space in _threads(source).items()}
    return [threads.get(space) or words_for(source, space) for space in spaces]


def _threads(source: Engine) -> dict[str, str]:
    """Return the spaces of all threads by id, as far as the directory can be read."""
    return {id: record.space for id, record in _records(source)[0].items()}

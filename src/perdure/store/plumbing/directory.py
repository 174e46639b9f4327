"""The directory: the threads and agents of a store, as cells of the store's own space.

A thread's id leads to its record: its agent, its owner and its space.  The space has a name of its own, so a thread
that is removed and begun again under the same id is another thread, and handles on the old one cannot touch it.

Removing a thread takes two writes: the first closes the thread's space to all writers, the second empties its record.
A crash between the two leaves the record of a closed space, which counts as no thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from perdure.engines import loops
from perdure.engines.contract import Cell, CellOf, CellWrite, Engine, Question, Write
from perdure.engines.loops import Attempts
from perdure.errors import Conflict, Corrupt, NotFound
from perdure.history.reader import agent_at, agents_in, agents_question, other_agent
from perdure.history.space import (
    ALIVE,
    STORE,
    THREAD,
    THREADS,
    Space,
    label_of,
    read_record,
)
from perdure.model import canonical, names
from perdure.model.digest import Kind, digest_of
from perdure.model.head import MAIN
from perdure.model.names import near
from perdure.switching.policy import Policy

if TYPE_CHECKING:
    from perdure.runtime.agent.agent import Agent

__all__ = [
    "AGENT",
    "STORE",
    "Record",
    "agent_question",
    "agents",
    "begin",
    "check_record",
    "find",
    "ids_of",
    "knowing",
    "other_owner",
    "policy_of",
    "read",
    "record_agent",
    "remove",
    "rules_of",
    "threads",
    "was_there",
]

AGENT = "agent/"  # cells of agents, by name

_COMPARED = 500  # ids with the same beginning


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the directory says about a thread."""

    agent: str
    space: str
    begun_at: int  # µs since 1970, UTC
    owner: str | None = None  # None: it has no owner
    agents: tuple[
        str, ...
    ] = ()  # that it has had, if it was handed off; read from its own space, never stored here


class AgentRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the directory says about an agent."""

    name: str
    begun_at: int  # µs since 1970, UTC
    merge: dict[str, str] = {}  # from path prefix to rule
    policy: Policy = Policy()  # what may be lost when a backend changes, as last declared


_records = msgspec.json.Decoder(Record)
_agents = msgspec.json.Decoder(AgentRecord)


def knowing(store: Space, id: str, agent: str | None) -> Space:
    """Return the store's space with what the opening of a thread reads of it, by two calls; `agent` None: the thread's."""
    questions: list[Question] = [CellOf(STORE, THREAD + names.check_id("thread id", id))]
    if agent is not None:
        questions.append(CellOf(STORE, AGENT + agent))
    store = store.knowing(*questions)
    cell: Cell | None = store.known[questions[0]]
    if cell is None or cell.value is None:
        return store
    record = read_record(cell, _records)
    more = {
        CellOf(record.space, ALIVE),
        agents_question(record.space),
        CellOf(STORE, AGENT + record.agent),
    } - store.known.keys()
    return msgspec.structs.replace(store, known={**store.known, **store.knowing(*more).known})


def was_there(store: Space, record: Record) -> bool:
    """True if the thread existed when `knowing` looked; False if it was begun since."""
    return CellOf(record.space, ALIVE) in store.known


def find(
    store: Space,
    id: str,
    timeline: str = MAIN,
    *,
    undone: str = "nothing was done",
    advice: str = "Name its agent= to begin one.",
) -> Record:
    """Read the record of a thread, with the agent that `timeline` has now.

    Raises `NotFound`, naming ids that are close, with what was not done and `advice`.
    """
    record = _live(store, _cell_of(store, THREAD + names.check_id("thread id", id)))
    if record is None:
        raise _no_thread(store, id, undone, advice)
    return handed(store, id, record, timeline)


def read(store: Space, cell: Cell) -> Record | None:
    """Read the record in a cell, with the agent that `main` has now; None if the thread was removed."""
    record = _live(store, cell)
    return None if record is None else handed(store, cell.name.removeprefix(THREAD), record, MAIN)


def handed(store: Space, id: str, record: Record, timeline: str) -> Record:
    """Return the record with the agent that a timeline has now: another one if the thread was handed off."""
    agents = agents_in(*store.ask(agents_question(record.space)))
    if not agents:
        return record
    space = store.beside(record.space, id)
    hold = space.engine.hold(space.name, timeline)
    commit = None if hold is None else hold.head.commit
    return msgspec.structs.replace(record, agent=agent_at(space, commit, agents[0]), agents=agents)


def begin(store: Space, id: str, agent: Agent, owner: str | None) -> Record:
    """Return the record of a thread, and begin the thread if there is none.

    Of two processes that begin it at the same time, the second finds the record of the first.  Raises `Conflict` if
    the thread belongs to another agent or owner.
    """
    names.check_id("thread id", id)
    if owner is not None:
        names.check_id("owner", owner)
    attempts = Attempts(f"thread '{id}'", f"thread '{id}' was not opened")
    while True:
        attempts.begin()
        cell = _cell_of(store, THREAD + id)
        record = _live(store, cell)
        if record is not None:
            record = handed(store, id, record, MAIN)
            check_record(record, id, agent.name, owner)
            return record
        record = Record(
            agent=agent.name, owner=owner, space=f"{THREADS}{store.ids()}", begun_at=store.clock()
        )
        if _write(store, f"begin:{record.space}", _cell(THREAD + id, cell, canonical.encode_struct(record))):
            return record
        store = msgspec.structs.replace(store, known={})


def check_record(record: Record, id: str, agent: str | None, owner: str | None) -> None:
    """Raise `Conflict` if the thread belongs to another owner or agent; None accepts any."""
    if owner is not None and record.owner != owner:
        raise other_owner(id, owner)  # first: whose agent it has is nothing for another owner
    if agent is not None and record.agent != agent:
        raise other_agent(id, agent, record.agent)


def other_owner(id: str, owner: str | None) -> Conflict:
    """Return the error for a thread that belongs to another owner."""
    than = f" than '{owner}'" if owner is not None else ""
    return Conflict(
        f"thread '{id}' has another owner{than}; it was not opened.",
        code="thread_of_another_owner",
        advice="Choose another id.",
        thread=id,
        owner=owner,
    )


def record_agent(store: Space, agent: Agent, *, declared: bool) -> AgentRecord:
    """Return the record of an agent, and write one if there is none.

    If the program `declared` the agent, its merge rules and its policy are written to the record.
    """
    attempts = Attempts(f"agent '{agent.name}'", f"the record of agent '{agent.name}' was not changed")
    while True:
        attempts.begin()
        cell = _cell_of(store, AGENT + agent.name)
        known = read_record(cell, _agents) if cell is not None and cell.value is not None else None
        if known is not None and (
            not declared or (known.merge == agent.rules and known.policy == agent.policy)
        ):
            return known
        begun_at = known.begun_at if known else store.clock()
        record = AgentRecord(name=agent.name, begun_at=begun_at, merge=agent.rules, policy=agent.policy)
        if _write(
            store, f"agent:{store.ids()}", _cell(AGENT + agent.name, cell, canonical.encode_struct(record))
        ):
            return record
        store = msgspec.structs.replace(store, known={})


def agent_question(agent: str) -> Question:
    """Return what `rules_of` and `policy_of` ask, for a caller that asks more in the same call."""
    return CellOf(STORE, AGENT + agent)


def rules_of(store: Space, agent: str) -> dict[str, str]:
    """Read the merge rules of an agent, as last declared."""
    cell = _cell_of(store, AGENT + agent)
    return read_record(cell, _agents).merge if cell is not None and cell.value is not None else {}


def policy_of(store: Space, agent: str) -> Policy:
    """Read the policy of an agent for changes of its backend, as last declared."""
    cell = _cell_of(store, AGENT + agent)
    return read_record(cell, _agents).policy if cell is not None and cell.value is not None else Policy()


def remove(store: Space, thread: Space, id: str) -> None:
    """Close the thread's space to all writers, then empty its record.  A repeated call finishes an interrupted one."""
    attempts = Attempts(f"thread '{id}'", f"thread '{id}' was not removed")
    while True:
        attempts.begin()
        if _closed(store, thread) and _emptied(store, thread, id):
            return


def threads(store: Space, *, after: str | None = None) -> Iterator[tuple[str, Record, Policy]]:
    """Yield all threads, sorted by id, each with the policy of its agent; those after an id, if it is given."""
    policies: dict[str, Policy] = {}
    read = partial(_page_of_threads, store, policies)
    for cell, record in loops.pages(
        read, "" if after is None else THREAD + after, lambda each: each[0].name, fills=True
    ):
        if record is not None:
            yield cell.name.removeprefix(THREAD), record, policies[record.agent]


def ids_of(store: Space, spaces: Iterable[str]) -> list[str]:
    """Return the ids of the threads of these spaces, sorted; the name of a space whose thread was removed or is damaged."""
    return sorted(ids_by_space(store, spaces).values())


def ids_by_space(store: Space, spaces: Iterable[str]) -> dict[str, str]:
    """Return the ids of the threads of these spaces, as `ids_of` does, by the name of the space."""
    ids: dict[str, str] = {}
    for space in spaces:
        ids[space] = space
        with suppress(Corrupt):
            ids[space] = label_of(store.engine, space)
    unnamed = {
        space for space, id in ids.items() if id == space
    }  # without commits: the directory alone names it
    for id, record, _ in threads(store) if unnamed else ():
        if record.space in unnamed:
            ids[record.space] = id
    return ids


def _page_of_threads(
    store: Space, policies: dict[str, Policy], after: str, limit: int
) -> list[tuple[Cell, Record | None]]:
    """Read the next cells of threads with their records, None where `_live` finds no thread, and new `policies`."""
    cells = store.engine.cells(STORE, prefix=THREAD, after=after, limit=limit)
    found = [(cell, read_record(cell, _records)) for cell in cells]
    agents = dict.fromkeys(record.agent for _, record in found if record.agent not in policies)
    questions: list[Question] = [CellOf(record.space, ALIVE) for _, record in found]
    if found:
        asked = (CellOf(STORE, AGENT + agent) for agent in agents)
        store = store.knowing(*questions, *(agents_question(record.space) for _, record in found), *asked)
    policies.update((agent, policy_of(store, agent)) for agent in agents)
    live = [
        (
            cell,
            handed(store, cell.name.removeprefix(THREAD), record, MAIN)
            if store.known[alive] is None
            else None,
        )
        for (cell, record), alive in zip(found, questions, strict=True)
    ]
    others = {record.agent for _, record in live if record is not None} - policies.keys()
    policies.update((agent, policy_of(store, agent)) for agent in others)
    return live


def agents(store: Space, *, prefix: str = "", after: str | None = None) -> Iterator[AgentRecord]:
    """Yield the agents whose names begin with `prefix`, sorted; those after a name, if it is given."""
    found = loops.cells(
        store.engine, STORE, prefix=AGENT + prefix, after="" if after is None else AGENT + after
    )
    yield from (read_record(cell, _agents) for cell in found)


def _closed(store: Space, thread: Space) -> bool:
    """Close the thread's space to all writers; False if another writer has closed it.

    Raises `Moved`, having closed nothing, if a cell that the space is fenced by has changed.
    """
    if thread.engine.cell(thread.name, ALIVE) is not None:
        return True
    inside = msgspec.structs.replace(store, name=thread.name, fences=thread.fences)
    gone = CellWrite(name=ALIVE, expected=0, value=canonical.encode({"removed_at": store.clock()}))
    try:
        _apply(inside, f"remove:{store.ids()}", gone)
    except Conflict:
        if thread.engine.cell(thread.name, ALIVE) is None:
            raise
        return False
    return True


def _emptied(store: Space, thread: Space, id: str) -> bool:
    """Empty the record of the thread, unless its id has a new thread; False if another writer was first."""
    cell = store.engine.cell(STORE, THREAD + id)
    if cell is None or cell.value is None or read_record(cell, _records).space != thread.name:
        return True
    return _write(store, f"remove:{store.ids()}", _cell(THREAD + id, cell, None))


def _live(store: Space, cell: Cell | None) -> Record | None:
    """Read the record in the cell; None if it is empty, or the removal of the thread was interrupted."""
    if cell is None or cell.value is None:
        return None
    record = read_record(cell, _records)
    return record if store.ask(CellOf(record.space, ALIVE))[0] is None else None


def _cell_of(store: Space, name: str) -> Cell | None:
    return store.ask(CellOf(STORE, name))[0]


def _cell(name: str, before: Cell | None, value: bytes | None) -> CellWrite:
    return CellWrite(name=name, expected=before.revision if before else 0, value=value)


def _write(space: Space, op_id: str, cell: CellWrite) -> bool:
    """Write one cell; False if another writer changed it first."""
    try:
        _apply(space, op_id, cell)
    except Conflict:
        return False
    return True


def _apply(space: Space, op_id: str, cell: CellWrite) -> None:
    intent = digest_of(Kind.BODY, canonical.encode([op_id, cell.name]))
    space.engine.apply(
        Write(space=space.name, op_id=op_id, intent=intent, fences=space.fences, cells=(cell,))
    )


def _no_thread(store: Space, id: str, undone: str, advice: str) -> NotFound:
    close = [each for each in near(id, _like(store.engine, id)) if _is_there(store, each)]
    hint = f"Did you mean {' or '.join(repr(name) for name in close)}? " if close else ""
    return NotFound(
        f"there is no thread '{id}'; {undone}. {hint}".rstrip(),
        code="thread_not_found",
        advice=advice,
        thread=id,
        near=tuple(close),
    )


def _like(engine: Engine, id: str) -> Iterator[str]:
    """Yield ids that may be close to one: a bounded number with the same beginning, then the first ids."""
    for length in sorted({max(len(id) - 1, 1), max(len(id) - 2, 1), len(id) // 2, 0}, reverse=True):
        for cell in islice(loops.cells(engine, STORE, prefix=THREAD + id[:length]), _COMPARED):
            yield cell.name.removeprefix(THREAD)


def _is_there(store: Space, id: str) -> bool:
    return _live(store, store.engine.cell(STORE, THREAD + id)) is not None

"""A day in the life of a store: every kind of durable work, done through the face, one acknowledged step at a time.

Each step can be done again: it names its writes.  It answers with *facts*, which must hold
from then on, whatever happens to the process or to the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from perdure import Head, Store, Thread, View
from perdure.errors import NotFound

__all__ = [
    "ArtifactKept",
    "Fact",
    "Gone",
    "Held",
    "InAgentMap",
    "Moved",
    "Step",
    "clock",
    "day",
    "ids",
    "portrait",
]

Step: TypeAlias = Callable[[Store], "list[Fact]"]

PLANNER, CLERK = "planner", "clerk"
NOTE = "carrots, " * 120  # about as long as a tool's answer
PICTURE = bytes(range(256)) * 150  # large enough for a row of its own


@dataclass(frozen=True)
class Moved:
    """The timeline stood at this commit at this version."""

    thread: str
    head: Head

    def check(self, store: Store) -> None:
        """Raise if it did not."""
        line = store.thread(self.thread, timeline=self.head.timeline)
        assert line.head.version >= self.head.version, f"{line.head} has fallen behind {self}"
        assert line.at(f"version:{self.head.version}").digest == self.head.commit, f"lost {self}"


@dataclass(frozen=True)
class Held:
    """The state at this commit had these values."""

    thread: str
    commit: str
    values: tuple[tuple[str, object], ...]

    def check(self, store: Store) -> None:
        """Raise if it had others."""
        view = store.thread(self.thread).at(self.commit)
        for path, value in self.values:
            assert view.get(path, default=None) == value, f"lost {path} of {self}"


@dataclass(frozen=True)
class InAgentMap:
    """The agent's own map has this value; if need be, because opening the store finished what was begun."""

    agent: str
    path: str
    value: object

    def check(self, store: Store) -> None:
        """Raise if it has not."""
        assert store.agent(self.agent).get(self.path, default=None) == self.value, f"lost {self}"


@dataclass(frozen=True)
class ArtifactKept:
    """The thread keeps this content."""

    thread: str
    digest: str
    content: bytes

    def check(self, store: Store) -> None:
        """Raise if it does not."""
        assert b"".join(store.thread(self.thread).artifacts.get(self.digest)) == self.content, (
            "lost an artifact"
        )


@dataclass(frozen=True)
class Gone:
    """There is no such thread any more."""

    thread: str

    def check(self, store: Store) -> None:
        """Raise if there is."""
        try:
            store.thread(self.thread)
        except NotFound:
            return
        raise AssertionError(f"thread '{self.thread}' came back")


Fact: TypeAlias = Moved | Held | InAgentMap | ArtifactKept | Gone


def day(*, turns: int) -> Iterator[tuple[str, Step]]:
    """The steps of a day with so many turns on its first thread, by name."""
    for number in range(turns):
        yield f"turn {number}", _turn("trip-42", number)
        yield from _diversions.get(number, ())
    yield from _diversions[-1]


def portrait(store: Store) -> dict[str, object]:
    """Return the outcome, without generated names: versions, states, words, the agents' maps."""
    found: dict[str, object] = {}
    for thread in store.threads():
        for hold in thread.timelines():
            line = thread.on(hold.head.timeline)
            found[f"{thread.id} {line.timeline}"] = (hold.head.version, hold.sealed, _content(line))
    for name in store.agents():
        agent = store.agent(name)
        found[f"agent {name}"] = (agent.head.version, _content(agent))
    return found


def _content(view: View) -> tuple[dict[str, object], list[str], list[str]]:
    words = [str(entry.message.content) for entry in view.transcript()]
    return {path: view.get(path) for path in view.paths()}, words, [entry.reason for entry in view.log()]


def clock() -> Callable[[], int]:
    """A clock that ticks once a look."""
    ticks = count(1_700_000_000_000_000, 1_000)
    return lambda: next(ticks)


def ids(prefix: str = "id") -> Callable[[], str]:
    """Ids that count."""
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers):06}"


def _turn(id: str, number: int) -> Step:
    def turn(store: Store) -> list[Fact]:
        thread = store.thread(id, agent=PLANNER, owner="user-7")
        values = {"/todos.json": list(range(number)), f"/notes/{number}": f"{number} {NOTE}"}
        with thread.change(f"turn {number}", op_id=f"turn-{number}") as change:
            change.say("user", f"and number {number}", id=f"message-{number}")
            for path, value in values.items():
                change.put(path, value)
            change.agent.put(f"/seen/{id}/{number}", number)
        assert change.head is not None
        return [*_stands(thread, change.head, values), InAgentMap(PLANNER, f"/seen/{id}/{number}", number)]

    return turn


def _stands(thread: Thread, head: Head, values: Mapping[str, object] | None = None) -> list[Fact]:
    facts: list[Fact] = [Moved(thread.id, head)]
    if values and head.commit is not None:
        facts.append(Held(thread.id, head.commit, tuple(values.items())))
    return facts


def _fork(store: Store) -> list[Fact]:
    thread = store.thread("trip-42")
    return _stands(thread, thread.fork("what-if", at="turn:1", op_id="fork").at("version:0").head)


def _on_fork(store: Store) -> list[Fact]:
    line = store.thread("trip-42", timeline="what-if")
    with line.change("try it", op_id="on-fork") as change:
        change.put("/tried.json", {"number": 1})
        change.agent.put("/tried", 1)
    assert change.head is not None
    return _stands(line, change.head, {"/tried.json": {"number": 1}})


def _undo(store: Store) -> list[Fact]:
    thread = store.thread("trip-42")
    return _stands(thread, thread.undo(op_id="undo"))


def _redo(store: Store) -> list[Fact]:
    thread = store.thread("trip-42")
    return _stands(thread, thread.redo(op_id="redo"))


def _edit(store: Store) -> list[Fact]:
    thread = store.thread("trip-42")
    with thread.change("tidy up", op_id="edit") as change:
        change.delete("/notes/0")
        change.append("/todos.json", "last")
    assert change.head is not None
    return _stands(thread, change.head, {"/notes/0": None})


def _merge(store: Store) -> list[Fact]:
    thread = store.thread("trip-42")
    return _stands(thread, thread.merge("what-if", op_id="merge").head, {"/tried.json": {"number": 1}})


def _promote(store: Store) -> list[Fact]:
    thread = store.thread("trip-42")
    head = thread.promote("what-if", op_id="promote")
    return [*_stands(thread, head), InAgentMap(PLANNER, "/tried", 1)]


def _artifact(store: Store) -> list[Fact]:
    thread = store.thread("trip-42")
    return [ArtifactKept("trip-42", thread.artifacts.put(PICTURE, media_type="image/x-test"), PICTURE)]


def _other_thread(store: Store) -> list[Fact]:
    thread = store.thread("invoice-7", agent=CLERK)
    return _stands(thread, thread.put("/total.json", 12, op_id="total"), {"/total.json": 12})


def _agent(store: Store) -> list[Fact]:
    store.agent(CLERK).put("/rate.json", 19, op_id="rate")
    return [InAgentMap(CLERK, "/rate.json", 19)]


def _begin_and_remove(store: Store) -> list[Fact]:
    try:
        store.thread("draft", agent=CLERK).put("/x.json", 1, op_id="x")
        store.thread("draft").rm()
    except NotFound:
        pass
    return [Gone("draft")]


def _seal(store: Store) -> list[Fact]:
    line = store.thread("trip-42", timeline="what-if")
    return _stands(line, line.seal(op_id="seal"))


_diversions: dict[int, list[tuple[str, Step]]] = {
    0: [("other thread", _other_thread)],
    1: [("fork", _fork), ("on fork", _on_fork)],
    2: [("undo", _undo), ("redo", _redo), ("agent", _agent)],
    3: [("artifact", _artifact), ("edit", _edit)],
    -1: [
        ("merge", _merge),
        ("promote", _promote),
        ("seal", _seal),
        ("begin and remove", _begin_and_remove),
    ],
}

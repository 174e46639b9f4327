"""What one write costs in a state of many keys, counted in nodes and bytes and not in seconds.

It is the same for the first and the ten-thousandth write, grows with the logarithm of the
state, and no choice of keys changes that.  The root depends on the content alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from perdure import Store, Thread
from perdure.engines.contract import Engine, Receipt, Write
from perdure.engines.memory import MemoryEngine
from perdure.engines.sqlite import SqliteEngine
from perdure.history import writer
from perdure.history.tree import EMPTY, NodeCache, build
from perdure.history.writer import Proposal
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.store.plumbing.handles import StoreResources
from tests.crash import day
from tests.crash.campaign import SEED, sized
from tests.history.tree import maps
from tests.selection import engines

OTHER = pytest.mark.other_engine
MANY = sized(50_000, 100_000)
LARGE = sized(10_000, 100_000)
WRITES = sized(500, 10_000)
WRITES_HOSTILE = sized(100, 2_000)
CHUNK = 2_000

Keys = Callable[[int], list[str]]


@dataclass
class Cost:
    """What one write took."""

    nodes_read: int = 0
    nodes_written: int = 0
    node_bytes: int = 0
    bytes_written: int = 0  # values, changeset and commit included


@dataclass
class Meter:
    """An engine that counts what goes through it."""

    engine: Engine
    cost: Cost = field(default_factory=Cost)
    read: set[Digest] = field(default_factory=set[Digest])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        """Read, and count nodes, each once: what is read twice for one write a cache would give."""
        found = self.engine.objects(space, digests)
        self.read.update(each.digest for each in found if each.kind is Kind.NODE)
        return found

    def apply(self, write: Write) -> Receipt:
        """Write, and count nodes and bytes."""
        nodes = [each for each in write.objects if each.kind is Kind.NODE]
        self.cost.nodes_written += len(nodes)
        self.cost.node_bytes += sum(len(each.body) for each in nodes)
        self.cost.bytes_written += sum(len(each.body) for each in write.objects)
        return self.engine.apply(write)

    def spent(self) -> Cost:
        """What was counted since the last time."""
        cost, self.cost = self.cost, Cost()
        cost.nodes_read = len(self.read)
        self.read.clear()
        return cost


@contextmanager
def metered(kind: str, directory: Path) -> Generator[tuple[Store, Meter]]:
    """An empty store of either kind that counts; no node is kept in memory between writes."""
    sqlite = kind == "sqlite"
    engine = SqliteEngine(directory / "store.db", durable=False) if sqlite else MemoryEngine()
    meter = Meter(engine)
    resources = StoreResources(engine=meter, clock=day.clock(), ids=day.ids(), cache=NodeCache(0))  # pyright: ignore[reportArgumentType]
    with Store(resources, kind, read_only=False) as store:
        yield store, meter


def stocked(store: Store, paths: list[str]) -> Thread:
    """A thread whose state has these paths, laid down in one go."""
    thread = store.thread("trip-42", agent="planner")
    root, nodes = build(maps.entry(path) for path in paths)
    space = thread._space
    for at in range(0, len(nodes), CHUNK):
        op_id, chunk = f"stock {at}", nodes[at : at + CHUNK]
        intent = digest_of(Kind.BODY, op_id.encode())
        space.engine.apply(Write(space=space.name, op_id=op_id, intent=intent, objects=chunk))
    writer.commit(space, thread.head, Proposal(reason="stock", root=root), op_id="stock")
    return thread


def costs(thread: Thread, meter: Meter, paths: list[str], writes: int) -> list[Cost]:
    """What each of so many single-key writes takes: values that change and keys that come."""
    chance, found = random.Random(SEED), list[Cost]()
    meter.spent()
    for number in range(writes):
        path = chance.choice(paths)
        thread.put(path if number % 2 else f"{path[:-1]}{number % 10}", {"number": number})
        found.append(meter.spent())
    return found


def average(some: list[Cost], what: str) -> float:
    """The mean of one count."""
    return mean(getattr(each, what) for each in some)


@pytest.mark.parametrize("kind", engines("sqlite", "memory"))
def test_writes_into_many_keys_cost_the_same(kind: str, tmp_path: Path) -> None:
    """The last tenth costs what the first tenth did, and none costs more than a short way down the tree."""
    paths = maps.ordinary(MANY)
    with metered(kind, tmp_path) as (store, meter):
        found = costs(stocked(store, paths), meter, paths, WRITES)

    first, last = found[: WRITES // 10], found[-WRITES // 10 :]
    for what in ("nodes_read", "nodes_written", "node_bytes", "bytes_written"):
        assert average(last, what) <= 1.1 * average(first, what), what
    assert max(each.nodes_read for each in found) <= 12
    assert max(each.nodes_written for each in found) <= 12
    assert average(found, "node_bytes") <= 4_096


@pytest.mark.parametrize("kind", engines("sqlite", "memory"))
def test_the_cost_grows_with_the_logarithm_of_the_state(kind: str, tmp_path: Path) -> None:
    """A hundred times the keys, in a deep run a thousand, cost some more nodes, and nothing near that."""
    found: dict[int, list[Cost]] = {}
    for count in (100, LARGE):
        paths = maps.ordinary(count)
        (tmp_path / str(count)).mkdir()
        with metered(kind, tmp_path / str(count)) as (store, meter):
            found[count] = costs(stocked(store, paths), meter, paths, WRITES_HOSTILE)

    small, large = found[100], found[LARGE]
    assert average(large, "nodes_read") <= average(small, "nodes_read") + 6
    assert average(large, "node_bytes") <= 4 * average(small, "node_bytes")
    assert average(large, "bytes_written") <= 3 * average(small, "bytes_written")


@pytest.mark.parametrize(
    ("kind", "keys", "nodes_max", "bytes_max"),
    [
        pytest.param("memory", maps.long_prefix, 8, 8_192, id="memory, long common prefixes"),
        pytest.param(
            "memory", maps.last_byte, 12, 8_192, id="memory, all but the last byte shared", marks=OTHER
        ),
        pytest.param("sqlite", maps.last_byte, 12, 8_192, id="sqlite, all but the last byte shared"),
        pytest.param("memory", maps.nested, 40, 8_192, id="memory, paths nested 32 deep", marks=OTHER),
        pytest.param("sqlite", maps.nested, 40, 8_192, id="sqlite, paths nested 32 deep"),
        pytest.param("memory", maps.prefixes, 40, 8_192, id="memory, paths that begin other paths"),
    ],
)
def test_hostile_keys_do_not_make_a_write_dear(
    kind: str, keys: Keys, nodes_max: int, bytes_max: int, tmp_path: Path
) -> None:
    """Many keys chosen to unbalance the tree: a write still takes a bounded number of small nodes."""
    paths = keys(LARGE)
    with metered(kind, tmp_path) as (store, meter):
        found = costs(stocked(store, paths), meter, paths, WRITES_HOSTILE)

    assert max(max(each.nodes_read, each.nodes_written) for each in found) <= nodes_max
    assert max(each.node_bytes for each in found) <= bytes_max


def test_what_sqlite_keeps_of_a_write_does_not_grow(tmp_path: Path) -> None:
    """The bytes that a write adds to the file are the same for the first half and for the second."""
    paths = maps.ordinary(LARGE)
    with metered("sqlite", tmp_path) as (store, meter):
        thread = stocked(store, paths)
        sizes = [stored_bytes(meter)]
        for _ in range(2):
            costs(thread, meter, paths, WRITES // 2)
            sizes.append(stored_bytes(meter))

    first, second = sizes[1] - sizes[0], sizes[2] - sizes[1]
    assert second <= 1.15 * first
    assert second / (WRITES // 2) <= 4_096


def stored_bytes(meter: Meter) -> int:
    """What the log of the store holds."""
    assert isinstance(meter.engine, SqliteEngine)
    sql = "SELECT sum(length(pack) + length(keys) + coalesce(length(changeset), 0)) FROM log"
    return int(str(meter.engine._connections.writer.execute(sql).get))


@pytest.mark.parametrize("kind", engines("sqlite", "memory"))
def test_clearing_a_tenth_of_many_keys_touches_a_handful_of_nodes(kind: str, tmp_path: Path) -> None:
    """What goes is dropped by its branch, and not read."""
    paths = [f"/part-{number % 10}/{number:06}" for number in range(LARGE)]
    with metered(kind, tmp_path) as (store, meter):
        thread = stocked(store, paths)
        meter.spent()
        with thread.change("clear") as change:
            change.clear("/part-3/")
        cost = meter.spent()

        assert cost.nodes_read <= 6
        assert cost.nodes_written <= 3
        assert cost.bytes_written <= 4_096
        assert thread._tree().count() == LARGE - LARGE // 10


@pytest.mark.parametrize("kind", engines("sqlite", "memory"))
def test_any_course_of_writes_comes_to_the_root_of_its_content(kind: str, tmp_path: Path) -> None:
    """Puts, deletes and clears in any order leave the root that the same content has when it is built in one go."""
    with metered(kind, tmp_path) as (store, _):
        for seed in range(SEED, SEED + sized(6, 200)):
            thread = store.thread(f"course {seed}", agent="planner")
            state = wandered(thread, random.Random(seed))
            whole = store.thread(f"whole {seed}", agent="planner")
            with whole.change("at once") as change:
                change.replace(state)

            assert thread.root == whole.root != EMPTY, f"seed {seed}"


def wandered(thread: Thread, chance: random.Random) -> dict[str, int]:
    """Change a thread at random, a few ops a commit; what it holds then."""
    state: dict[str, int] = {}
    for turn in range(sized(25, 60)):
        with thread.change(f"turn {turn}") as change:
            for _ in range(chance.randint(1, 30)):
                part, path = f"/p{chance.randrange(5)}", f"/p{chance.randrange(5)}/{chance.randrange(300)}"
                match chance.choices(["put", "delete", "clear"], [20, 6, 1])[0]:
                    case "put":
                        state[path] = chance.randrange(9)
                        change.put(path, state[path])
                    case "delete" if path in state:
                        del state[path]
                        change.delete(path)
                    case "clear":
                        state = {
                            each: kept for each, kept in state.items() if not each.startswith(part + "/")
                        }
                        change.clear(part)
                    case _:
                        pass
            change.put("/always", turn)
            state["/always"] = turn
    return state


def test_control_one_large_document_is_found_dear(tmp_path: Path) -> None:
    """The same meter on a state kept as one document: each write costs what the whole document weighs."""
    with metered("memory", tmp_path) as (store, meter):
        thread = store.thread("trip-42", agent="planner")
        found: list[Cost] = []
        for count in (100, 1_000, 10_000):
            thread.put("/all.json", {f"key {number}": number for number in range(count)})
            meter.spent()
            with thread.change("one key") as change:
                change.set("/all.json", -1, at=["key 7"])
            found.append(meter.spent())

    assert found[2].bytes_written > 20 * found[0].bytes_written
    assert found[2].bytes_written > 10 * 4_096

"""The memory engine keeps the engine contract."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perdure.engines.contract import Engine
from perdure.engines.memory import MemoryEngine, MemoryStore
from perdure.errors import Corrupt
from perdure.model.digest import Object
from perdure.testing import EngineSuite
from perdure.testing.engines.builders import SPACE, START, Pen, moved, value, write
from perdure.testing.engines.subject import StoredEdit
from tests.coded import raises


class TestMemoryEngine(EngineSuite):
    persistent = False
    shared_between_processes = False
    file = None

    def open(self, path: Path) -> Engine:
        return MemoryEngine()

    def tamper(self, engine: Engine, edit: StoredEdit) -> Engine:
        return tampered(engine, edit)


def tampered(engine: Engine, edit: StoredEdit) -> Engine:
    """Return a new opening of a memory store after an edit."""
    assert isinstance(engine, MemoryEngine)
    store = engine._store
    space = store.spaces[edit.space]
    match edit.what:
        case "entry body":
            entry = space.entries[int(edit.name)]
            space.entries[entry.position] = msgspec.structs.replace(entry, body=edit.to.encode())
        case "entry gone":
            del space.entries[int(edit.name)]
        case "head gone":
            del space.holds[edit.name]
        case "cell gone":
            del space.cells[edit.name]
        case "cell moved":
            filed = space.cells.pop(edit.name)
            cell = msgspec.structs.replace(filed.cell, name=edit.to)
            space.cells[edit.to] = msgspec.structs.replace(filed, cell=cell)
        case _:
            filed = space.cells[edit.name]
            value = edit.to.encode() if edit.what == "cell value" else int(edit.to)
            field = {"cell value": "value", "cell revision": "revision"}[edit.what]
            cell = msgspec.structs.replace(filed.cell, **{field: value})
            space.cells[edit.name] = msgspec.structs.replace(filed, cell=cell)
    return MemoryEngine(store)


@pytest.fixture
def store() -> MemoryStore:
    """A store whose dictionaries can be damaged."""
    return MemoryStore()


@pytest.fixture
def engine(store: MemoryStore) -> MemoryEngine:
    """An engine on that store."""
    return MemoryEngine(store)


def test_a_head_that_is_not_where_its_last_move_left_it_is_not_used(
    store: MemoryStore, engine: MemoryEngine
) -> None:
    """A head is checked against its last move, and a write on it is refused too."""
    pen = Pen(engine)
    pen.commit("milk")
    holds = store.spaces[SPACE].holds
    holds["main"] = msgspec.structs.replace(holds["main"], head=START)

    with raises(Corrupt, "head_damaged", timeline="main"):
        engine.hold(SPACE, "main")
    with raises(Corrupt, "head_damaged", timeline="main"):
        engine.apply(write("op", moved(START, None)))


def test_an_object_with_a_flipped_byte_is_not_returned(store: MemoryStore, engine: MemoryEngine) -> None:
    """Every read checks the digest of what it read; a scan says what is wrong."""
    milk = value("milk")
    engine.apply(write("op", milk))
    store.spaces[SPACE].objects[milk.digest] = Object(milk.kind, milk.digest, b"mIlk")

    with raises(Corrupt, "digest_mismatch", object=milk.digest):
        engine.objects(SPACE, [milk.digest])
    (fact,), _ = engine.scan(SPACE, limit=9)
    assert fact.object is None
    assert fact.fault is not None


def test_an_entry_that_does_not_fit_the_chain_is_not_returned(
    store: MemoryStore, engine: MemoryEngine
) -> None:
    """A ledger entry is checked against the chain before it."""
    engine.apply(write("op", b"1", b"2"))
    entries = store.spaces[SPACE].entries
    entries[1] = msgspec.structs.replace(entries[1], body=b"3")

    with raises(Corrupt, "ledger_chain_broken", position=1):
        engine.entries(SPACE, limit=9)

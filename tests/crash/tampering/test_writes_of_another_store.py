"""A row that completes a write is bound to the write before it, so the row of another store does not pass for it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent
from perdure.engines.sqlite.format.pack import decode_framed, encode_pack
from perdure.engines.sqlite.maintenance import scan
from perdure.testing import Script, say, use
from tests.crash.tampering.test_moves_of_another_store import exchanged


@perdure.tool(effect="external_write", ask=True)
def pay(to: str) -> str:
    """Pay a person."""
    return f"paid {to}"


def build(path: Path, to: str) -> None:
    """A store with a run that asked, a call by hand and a change: some of its writes have no commit."""
    script = Script(use("pay", to=to), say("Done."))
    with perdure.open(path) as store:
        thread = store.thread("t", agent=Agent("a", backend=script, tools=[pay]))
        asked = thread.run("Pay", id="input")
        thread.decide(asked.approvals[0].call, "approve", by="ann")
        thread.resume()
        thread.put("/a.json", to)


def rows_of(path: Path, *, with_commit: bool) -> list[int]:
    """The rows of the log that have a commit, or those that have none."""
    with closing(sqlite3.connect(path)) as db:
        found = db.execute("SELECT id, digest IS NOT NULL FROM log ORDER BY id")
        return [row for row, has_commit in found if bool(has_commit) == with_commit]


def sound(path: Path) -> bool:
    """Whether the store verifies."""
    with perdure.open(path, read_only=True) as store:
        return store.verify().ok


def unlinked(path: Path) -> None:
    """Take the links out of all writes."""
    with closing(sqlite3.connect(path)) as db:
        for row, pack in db.execute("SELECT id, pack FROM log").fetchall():
            found = decode_framed(pack)
            assert not found.frame, "this store has nothing long enough to be compressed"
            op = None if found.op is None else msgspec.structs.replace(found.op, link=b"")
            items = [msgspec.structs.astuple(item) for item in found.items]
            db.execute("UPDATE log SET pack=? WHERE id=?", (encode_pack(items, op), row))
        db.commit()


@pytest.fixture
def stores(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Two stores, and the place for an edited copy of the first."""
    mine, other = tmp_path / "mine.db", tmp_path / "other.db"
    build(mine, "ann")
    build(other, "bob")
    return mine, other, tmp_path / "edited.db"


def test_a_write_of_another_store_is_found_whether_it_has_a_commit_or_not(
    stores: tuple[Path, Path, Path],
) -> None:
    """Each row is exchanged whole, in turn."""
    mine, other, edited = stores
    bare = rows_of(mine, with_commit=False)
    assert len(bare) >= 3

    for row in (*bare, *rows_of(mine, with_commit=True)):
        shutil.copyfile(mine, edited)
        exchanged(edited, other, row)
        assert not sound(edited), f"row {row}"


def test_what_a_write_will_answer_cannot_be_edited_with_its_checksum(
    stores: tuple[Path, Path, Path],
) -> None:
    """The intent of a write is bound, so an edit cannot make its op_id stand for another write."""
    mine, _, edited = stores
    for row in (*rows_of(mine, with_commit=False), *rows_of(mine, with_commit=True)):
        shutil.copyfile(mine, edited)
        with closing(sqlite3.connect(edited)) as db:
            found = decode_framed(db.execute("SELECT pack FROM log WHERE id=?", (row,)).fetchone()[0])
            if found.op is None:
                continue
            op = msgspec.structs.replace(found.op, intent=bytes(32))
            items = [msgspec.structs.astuple(item) for item in found.items]
            db.execute("UPDATE log SET pack=? WHERE id=?", (encode_pack(items, op), row))
            db.commit()
        assert not sound(edited), f"row {row}"


def test_links_cannot_be_left_out(stores: tuple[Path, Path, Path]) -> None:
    """A store whose writes were all robbed of their links does not verify."""
    mine, _, _ = stores
    unlinked(mine)
    assert not sound(mine)


def test_without_links_an_exchange_passes(
    stores: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: it is the link that finds the row of another store."""
    mine, other, edited = stores
    monkeypatch.setattr(scan, "linked", lambda *_: b"")
    for path in (mine, other):
        unlinked(path)
        assert sound(path)

    passed = 0
    for row in rows_of(mine, with_commit=False):
        shutil.copyfile(mine, edited)
        exchanged(edited, other, row)
        passed += sound(edited)

    assert passed

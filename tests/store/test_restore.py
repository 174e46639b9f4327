"""Restoring a backup over, beside and under a newer store: nothing newer is lost, and what is restored is verified."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Store
from perdure.errors import Conflict, Corrupt, Held, Invalid
from perdure.ledger import held as holding
from perdure.store.upkeep import restore as restoring
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.store.copies import engine_of, equal


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "agents.db"


@pytest.fixture
def backup(tmp_path: Path, place: Path) -> Path:
    """A backup of a store with one turn."""
    with perdure.open(place) as store:
        store.thread("t", agent="planner").put("/n.json", 1)
        store.backup(tmp_path / "backup.db")
    return tmp_path / "backup.db"


def read(place: Path) -> object:
    """The value that tells the stores apart."""
    with perdure.open(place, read_only=True) as store:
        assert store.verify().ok
        return store.thread("t").get("/n.json")


def write(store: Store, number: int) -> None:
    """Write the value that tells the stores apart."""
    store.thread("t").put("/n.json", number)


def fingerprint(folder: Path) -> dict[str, str]:
    """The bytes of every store in a folder, and of every log beside one."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.iterdir())
        if ".db" in file.name and not file.name.endswith(("-shm", "-lock", "-closed")) and file.stat().st_size
    }


@pytest.mark.parametrize("replace", [False, True])
def test_over_a_newer_store_nothing_is_restored(place: Path, backup: Path, *, replace: bool) -> None:
    """Also with `replace`: no byte of either file changes, and the error names what would be lost."""
    with perdure.open(place) as store:
        write(store, 2)
    before = fingerprint(place.parent)

    with raises(Conflict, "target_newer", store=str(place), threads=("t",)):
        perdure.restore(backup, place, replace=replace)

    assert fingerprint(place.parent) == before
    assert read(place) == 2


def test_a_newer_store_is_set_aside_on_request_and_loses_nothing(place: Path, backup: Path) -> None:
    """The report says how many writes it has that the backup lacks; under its new name it is the store that it was."""
    with perdure.open(place) as store:
        write(store, 2)
        write(store, 3)

    report = perdure.restore(backup, place, set_aside_newer=True)

    assert (report.newer, read(place), read(Path(report.set_aside[0]))) == (2, 1, 3)


def test_a_newer_store_that_is_in_use_is_not_set_aside(place: Path, backup: Path) -> None:
    """Its writers would go on in a file that has another name."""
    with perdure.open(place) as store:
        write(store, 2)

        with raises(Conflict, "target_in_use"):
            perdure.restore(backup, place, set_aside_newer=True)

        write(store, 3)
    assert read(place) == 3


def test_a_store_that_was_restored_and_written_since_names_the_thread(place: Path, backup: Path) -> None:
    """What a restore and a release leave in the records of the store does not count, and the thread does."""
    perdure.restore(backup, place, replace=True)
    with perdure.open(place) as store:
        store.release()
        write(store, 3)

    with raises(Conflict, "target_newer", threads=("t",)) as refused:
        perdure.restore(backup, place)

    assert "copies" not in refused.value.facts["spaces"]  # pyright: ignore[reportOperatorIssue]
    assert "thread 't'" in refused.value.message


def test_over_a_newer_store_whose_newest_writes_are_in_its_log_alone(place: Path, backup: Path) -> None:
    """The log of a process that was killed counts as part of the store."""
    with perdure.open(place) as store:
        write(store, 2)
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{place}{suffix}", f"{place.parent / 'killed.db'}{suffix}")

    with raises(Conflict, "target_newer"):
        perdure.restore(backup, place.parent / "killed.db", replace=True)

    assert read(place.parent / "killed.db") == 2


def test_beside_a_newer_store_both_are_whole(place: Path, backup: Path) -> None:
    """The restored store equals the backup, and the newer one is as it was."""
    with perdure.open(place) as store:
        write(store, 2)
    before = fingerprint(place.parent)

    report = perdure.restore(backup, place.parent / "beside.db")

    after = fingerprint(place.parent)
    assert {name: after[name] for name in before} == before
    assert (read(place.parent / "beside.db"), read(place), report.set_aside) == (1, 2, ())
    with perdure.open(place.parent / "beside.db") as restored, perdure.open(backup, read_only=True) as source:
        assert equal(engine_of(restored), engine_of(source))


def test_under_the_log_of_a_newer_store_the_log_is_set_aside(place: Path, backup: Path) -> None:
    """Somebody removed the file and left its log: it is not replayed into the restored store, and is kept."""
    stale = _with_stale_log(place, backup)
    log = stale.with_name(f"{stale.name}-wal").read_bytes()
    stale.unlink()

    report = perdure.restore(backup, stale)

    kept = [name for name in report.set_aside if name.endswith("-wal")]
    assert read(stale) == 1
    assert [Path(name).read_bytes() for name in kept] == [log]


def test_a_backup_that_is_copied_by_hand_under_a_stale_log_is_not_the_backup(
    place: Path, backup: Path
) -> None:
    """The control: SQLite takes the log for the file's own, so the store is the newer one, or damaged."""
    stale = _with_stale_log(place, backup)
    shutil.copyfile(backup, stale)

    try:
        found = read(stale)
    except (Corrupt, AssertionError):
        found = None

    assert found != 1


def _with_stale_log(place: Path, backup: Path) -> Path:
    """A newer store whose last write is only in its log, as after a kill."""
    stale = place.parent / "stale.db"
    shutil.copyfile(backup, stale)
    with perdure.open(stale) as store:
        write(store, 2)
        for suffix in ("", "-wal"):
            shutil.copyfile(f"{stale}{suffix}", f"{place.parent / 'kept'}{suffix}")
    for suffix in ("", "-wal"):
        os.replace(f"{place.parent / 'kept'}{suffix}", f"{stale}{suffix}")
    return stale


def test_an_older_store_is_set_aside_only_on_request(place: Path, backup: Path, tmp_path: Path) -> None:
    """It is a store under its new name; without `replace` nothing moves."""
    with perdure.open(place) as store:
        write(store, 2)
        store.backup(tmp_path / "newer.db")
    shutil.copyfile(backup, tmp_path / "older.db")

    with raises(Conflict, "target_exists"):
        perdure.restore(tmp_path / "newer.db", tmp_path / "older.db")
    report = perdure.restore(tmp_path / "newer.db", tmp_path / "older.db", replace=True)

    (aside,) = report.set_aside
    assert (read(tmp_path / "older.db"), read(Path(aside))) == (2, 1)


def test_a_restored_store_has_the_mode_of_the_one_that_it_replaces(place: Path, backup: Path) -> None:
    """A group that its owner has let in can still work."""
    place.chmod(0o660)

    perdure.restore(backup, place, replace=True)

    assert stat.S_IMODE(place.stat().st_mode) == 0o660


def test_a_store_that_another_opening_uses_is_not_set_aside(
    place: Path, backup: Path, tmp_path: Path
) -> None:
    """Its writer would go on writing into a file that nobody finds."""
    shutil.copyfile(backup, tmp_path / "used.db")
    with perdure.open(tmp_path / "used.db") as used:
        used.thread("t").get("/n.json")

        with raises(Conflict, "target_in_use"):
            perdure.restore(backup, tmp_path / "used.db", replace=True)

        write(used, 3)
    assert read(tmp_path / "used.db") == 3


def test_a_write_during_the_restore_keeps_the_store(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was as old as the backup when the restore began, and is newer before the last step: it stays."""
    older = tmp_path / "older.db"
    shutil.copyfile(backup, older)
    copied = restoring.copy

    def copy_and_write(*args: Any, **options: Any) -> Any:
        done = copied(*args, **options)
        with perdure.open(older) as store:
            write(store, 3)
        return done

    monkeypatch.setattr(restoring, "copy", copy_and_write)
    with raises(Conflict, "target_newer"):
        perdure.restore(backup, older, replace=True)

    assert read(older) == 3
    assert [file.name for file in tmp_path.iterdir() if "restoring" in file.name] == []


def test_no_write_comes_between_the_last_check_and_the_replacement(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that opens the store in that moment waits, and then writes to the restored store."""
    older = tmp_path / "older.db"
    shutil.copyfile(backup, older)
    set_aside = restoring._set_aside
    done = threading.Event()

    def write_to_it() -> None:
        with perdure.open(older) as store:
            write(store, 3)
        done.set()

    writer = threading.Thread(target=write_to_it)

    def set_aside_late(path: Path) -> list[str]:
        writer.start()
        assert not done.wait(0.5)
        return set_aside(path)

    monkeypatch.setattr(restoring, "_set_aside", set_aside_late)
    report = perdure.restore(backup, older, replace=True)
    writer.join()

    (aside,) = report.set_aside
    assert (read(older), read(Path(aside))) == (3, 1)


def test_a_restore_that_was_interrupted_goes_on(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is at the target before it is complete; the second call takes the file that the first one left."""
    target = tmp_path / "new.db"

    def interrupted(*args: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(restoring, "_put_in_place", interrupted)
        perdure.restore(backup, target)
    assert not target.exists()
    report = perdure.restore(backup, target)

    assert (read(target), report.copy.resumed) == (1, True)
    assert [file.name for file in tmp_path.iterdir() if "restoring" in file.name] == []


def test_a_restored_store_is_replaced_by_the_same_backup(place: Path, backup: Path) -> None:
    """The record of the first restore is nothing that the backup lacks; a later write is."""
    place.unlink()
    perdure.restore(backup, place)

    report = perdure.restore(backup, place, replace=True)

    assert len(report.set_aside) >= 1
    assert read(place) == 1
    with perdure.open(place) as store:
        store.release()
        write(store, 2)
    with raises(Conflict, "target_newer", threads=("t",)):
        perdure.restore(backup, place, replace=True)


def test_a_store_with_a_removed_thread_is_replaced_by_its_backup(place: Path, backup: Path) -> None:
    """What both have forgotten is alike in both; what the store alone has written is not."""
    later = place.with_name("later.db")
    with perdure.open(place) as store:
        store.thread("scratch", agent="planner").put("/n.json", 5)
        store.thread("scratch").rm()
        store.gc(store.gc_plan(perdure.RetentionPolicy(removed_threads=True)))
        store.backup(later)

    report = perdure.restore(later, place, replace=True)

    assert len(report.set_aside) >= 1
    assert read(place) == 1
    with perdure.open(place) as store, pytest.raises(perdure.errors.NotFound):
        store.thread("scratch")
    with raises(Conflict, "target_newer"):
        perdure.restore(backup, place, replace=True)


def test_a_damaged_store_is_set_aside_and_kept(place: Path, backup: Path) -> None:
    """Its bytes are still there for a look."""
    place.write_bytes(b"not a store" * 1000)

    with raises(Conflict, "target_exists"):
        perdure.restore(backup, place)
    report = perdure.restore(backup, place, replace=True)

    assert read(place) == 1
    assert Path(report.set_aside[0]).read_bytes() == b"not a store" * 1000


def test_a_damaged_backup_is_not_restored(place: Path, backup: Path, tmp_path: Path) -> None:
    """It is checked before anything is made."""
    content = bytearray(backup.read_bytes())
    middle = content.find(b"planner")
    content[middle : middle + 7] = b"plunder"
    backup.write_bytes(content)

    with raises(Corrupt, "backup_damaged", backup=str(backup)) as refused:
        perdure.restore(backup, tmp_path / "new.db")

    assert not (tmp_path / "new.db").exists()
    assert f"perdure verify --store {backup}`" in refused.value.advice
    assert "verify" not in refused.value.message


def test_a_file_that_is_no_backup_is_named(tmp_path: Path) -> None:
    """A file of another kind, or of another program, is no damaged backup."""
    backup, other = tmp_path / "odd.db", tmp_path / "other.db"
    backup.write_bytes(b"not a store" * 1000)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE t(x)")
    database.close()

    for file in (backup, other):
        with raises(Invalid, "not_a_backup", backup=str(file)):
            perdure.restore(file, tmp_path / "new.db")


def test_a_restored_store_holds_its_runs_and_says_where_it_came_from(tmp_path: Path) -> None:
    """An approval waits until somebody releases it, and the ledger of arrivals has the restore."""

    @perdure.tool(effect="financial", ask=True)
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    agent = Agent("clerk", backend=Script(use("pay", amount=5), say("Paid.")), tools=[pay])
    with perdure.open(tmp_path / "agents.db") as store:
        (asked,) = store.thread("t", agent=agent).run("Pay").approvals
        store.backup(tmp_path / "backup.db")

    report = perdure.restore(tmp_path / "backup.db", tmp_path / "restored.db")

    with perdure.open(tmp_path / "restored.db") as store:
        (arrival,) = holding.arrivals(engine_of(store))
        assert (arrival.kind, arrival.state, arrival.source) == (
            "restore",
            "complete",
            str(tmp_path / "backup.db"),
        )
        assert store.held() == list(report.copy.threads) == ["t"]
        thread = store.thread("t", agent=agent)
        with pytest.raises(Held):
            thread.decide(asked.call, "approve", by="ben")
        store.release(by="ben")
        thread.decide(asked.call, "approve", by="ben")
        assert thread.resume().text == "Paid."


def test_a_backup_is_not_restored_onto_itself(backup: Path) -> None:
    """Nor does anything happen to it."""
    with raises(Invalid, "copy_onto_itself"):
        perdure.restore(backup, backup)


def test_a_restore_is_awaitable(backup: Path, tmp_path: Path) -> None:
    """In an event loop it works on another thread."""
    asyncio.run(perdure.aio.restore(backup, tmp_path / "new.db"))

    assert read(tmp_path / "new.db") == 1

"""A write-ahead log beside a file that it was not written on is refused, and both files stay as they are.

SQLite replays any log that it finds beside a database, and closing the database merges it for good.  A person who puts a
copy in the place of a store whose process was killed leaves such a log there.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Store
from perdure.engines.sqlite import connections
from perdure.errors import Corrupt
from tests.coded import raises
from tests.crash.processes import exit_code_of


def write(path: Path, *texts: str) -> None:
    """Write texts to a store, one commit each, and close it, which leaves no log."""
    with perdure.open(path) as store:
        write_on(store, *texts)


def write_and_die(path: str, *texts: str) -> None:
    """Write texts to a store, and end the process, which leaves a log."""
    write_on(perdure.open(path), *texts)
    os._exit(9)


def write_on(store: Store, *texts: str) -> None:
    """Write texts to a store, one commit each."""
    thread = store.thread("t", agent="a")
    for text in texts:
        thread.put(f"/{text}", text * 300)


def left(path: Path, *texts: str) -> Path:
    """The log that a process left which wrote these texts."""
    assert exit_code_of(write_and_die, str(path), *texts) == 9
    return log_of(path)


def log_of(path: Path) -> Path:
    """The log of the store at `path`."""
    return path.with_name(f"{path.name}-wal")


def another_store(path: Path) -> None:
    """The file of another store takes the place of this one."""
    other = path.with_name("other.db")
    write(other, "theirs")
    left(path, "a", "b")
    shutil.copy(other, path)


def an_older_log(path: Path) -> None:
    """The store went on; then its old log comes back."""
    kept = shutil.copy(left(path, "a", "b"), path.with_name("kept"))
    write(path, *(f"later{at}" for at in range(9)))
    shutil.copy(kept, log_of(path))


def an_older_file(path: Path) -> None:
    """A copy of the file comes back, and the store had gone on for two logs since."""
    kept = shutil.copy(path, path.with_name("kept"))
    write(path, "later")
    left(path, "a", "b")
    shutil.copy(kept, path)


def a_backup(path: Path) -> None:
    """A backup that was made in the middle of the log takes the place of the file."""
    assert exit_code_of(back_up_and_die, str(path)) == 9
    shutil.copy(path.with_name("backup.db"), path)


def back_up_and_die(path: str) -> None:
    """Write, make a backup, write on, and end the process."""
    store = perdure.open(path)
    store.thread("t", agent="a").put("/before", "it")
    store.backup(Path(path).with_name("backup.db"))
    write_on(store, "a", "b")
    os._exit(9)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that was closed."""
    found = tmp_path / "store.db"
    write(found, "first")
    return found


@pytest.mark.parametrize("replace", [another_store, an_older_log, an_older_file, a_backup])
@pytest.mark.parametrize("read_only", [False, True])
def test_it_is_refused_and_nothing_is_changed(
    path: Path, replace: Callable[[Path], None], *, read_only: bool
) -> None:
    """Neither the file nor the log is touched, so that either can be put right."""
    replace(path)
    before = path.read_bytes(), log_of(path).read_bytes()

    with raises(Corrupt, "log_of_another_file") as refused:
        perdure.open(path, read_only=read_only)

    assert (path.read_bytes(), log_of(path).read_bytes()) == before
    assert refused.value.facts["log"] == str(log_of(path))


def test_the_file_is_whole_without_the_log(path: Path) -> None:
    """As the error says, moving the log away gives the store that was put there."""
    another_store(path)
    log_of(path).unlink()

    with perdure.open(path) as store:
        assert store.thread("t").get("/theirs") is not None
        assert store.verify().ok


def test_the_file_that_a_log_was_begun_on_may_come_back(path: Path) -> None:
    """A copy that was made just before the log was begun and the log are the store, whole."""
    kept = shutil.copy(path, path.with_name("kept"))
    left(path, "a", "b")
    shutil.copy(kept, path)

    with perdure.open(path) as store:
        assert store.thread("t").get("/b") == "b" * 300
        assert store.verify().ok


def test_a_log_is_merged_by_a_store_that_goes_on(path: Path) -> None:
    """Processes that die one after another, each in a log of the one before, lose nothing."""
    for text in "abcdef":
        left(path, text, f"{text}{text}")

    with perdure.open(path) as store:
        assert all(store.thread("t").get(f"/{text}{text}") for text in "abcdef")
        assert store.verify().ok


def test_a_file_that_a_power_loss_took_back_is_accepted(path: Path) -> None:
    """A checkpoint was cut off after it had changed the file; another process wrote on, and the power went off."""
    before = path.read_bytes()
    left(path, "a", "b")
    log = log_of(path).read_bytes()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        db.execute("SELECT 1")
        merged = path.read_bytes()
    path.write_bytes(merged)
    log_of(path).write_bytes(log)
    left(path, "c", "d")
    path.write_bytes(before)

    with perdure.open(path) as store:
        assert store.thread("t").get("/d") == "d" * 300
        assert store.verify().ok


def test_files_that_several_partial_checkpoints_changed_may_come_back(path: Path) -> None:
    """A reader holds pages back, so no checkpoint moves the whole log and syncs the file; then the power goes off."""
    before = path.read_bytes()
    assert exit_code_of(write_behind_a_reader, str(path)) == 9
    assert path.read_bytes() != before
    path.write_bytes(before)

    with perdure.open(path) as store:
        assert store.thread("t").get("/last") == "last" * 300
        assert store.verify().ok


def write_behind_a_reader(path: str) -> None:
    """Write several times what fills a log while a reader that lags behind sees an older state, and end the process."""
    store = perdure.open(path)
    reader = apsw.Connection(path)
    for at in range(60):
        if at % 3 == 0:  # it moves on, and is always behind
            if reader.in_transaction:
                reader.execute("COMMIT")
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM meta").fetchall()
        write_on(store, *(f"{at}-{number}" for number in range(20)))
    write_on(store, "last")
    os._exit(9)


def test_control_an_unchecked_log_is_merged_into_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left is neither store."""
    monkeypatch.setattr(connections, "check_log", lambda path: None)
    another_store(path)
    before = path.read_bytes()

    with pytest.raises(Corrupt), perdure.open(path) as store:
        assert store.thread("t").get("/theirs") is not None

    assert path.read_bytes() != before

"""Opening: many processes at once, half-made stores, files of other programs, and places where it must not be done."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import ExitStack, closing
from itertools import count
from multiprocessing.synchronize import Barrier
from pathlib import Path

import apsw
import pytest

import perdure
from perdure.engines.sqlite import SqliteEngine, schema
from perdure.engines.sqlite.file_system import check_local, file_system_of
from perdure.errors import Corrupt, Invalid, NotFound, Unavailable, Unsupported
from perdure.testing.engines.builders import SPACE, Pen, value, write
from tests.coded import raises
from tests.crash.campaign import sized
from tests.crash.jobs import GATE_SECONDS
from tests.crash.processes import Pipe, context, running

PROCESSES = 8
ROUNDS = sized(5, 100)


def open_together(pipe: Pipe, directory: str, gate: Barrier, name: str, rounds: int) -> None:
    """Open a store that does not exist, together with others, and write to it; again and again."""
    for number in range(rounds):
        gate.wait(GATE_SECONDS)
        with perdure.open(Path(directory) / f"{number}.db") as store:
            store.thread("trip-42", agent="planner").put(f"/{name}", number, on_conflict="rebase")
    pipe.send("done")


def die_while_opening(pipe: Pipe, path: str, statement: int) -> None:
    """Open a new store and die before the n-th statement that lays its schema."""
    left = [statement]

    class Dying:
        def __init__(self, database: object) -> None:
            self._database = database

        def __getattr__(self, name: str) -> object:
            return getattr(self._database, name)

        def execute(self, *args: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return getattr(self._database, "execute")(*args)  # noqa: B009

    lay = schema.lay
    schema.lay = lambda connection, place, *, may_write: lay(Dying(connection), place, may_write=may_write)  # pyright: ignore[reportArgumentType]
    SqliteEngine(Path(path))
    pipe.send("opened")


class TestTogether:
    def test_eight_processes_create_one_store(self, tmp_path: Path) -> None:
        """All open it, all write to it, and no write of any of them is missing."""
        gate = context.Barrier(PROCESSES)
        with ExitStack() as stack:
            others = [
                stack.enter_context(running(open_together, str(tmp_path), gate, f"p{number}", ROUNDS))
                for number in range(PROCESSES)
            ]
            assert [other.answer() for other in others] == ["done"] * PROCESSES

        for number in range(ROUNDS):
            with perdure.open(tmp_path / f"{number}.db") as store:
                assert store.thread("trip-42").paths() == [f"/p{each}" for each in range(PROCESSES)]
                assert store.verify().faults == ()

    def test_a_process_that_dies_while_creating_leaves_nothing_in_the_way(self, tmp_path: Path) -> None:
        """Before whichever statement it is killed, the next process opens the store as if it were new."""
        deaths = 0
        for statement in count(1):
            path = tmp_path / f"{statement}.db"
            with running(die_while_opening, str(path), statement) as other:
                answers = other.rest()

            with closing(SqliteEngine(path)) as engine:
                Pen(engine).commit("milk")
            if answers == ["opened"]:
                break
            deaths += 1
        assert deaths > 5


class TestOtherFiles:
    """What is not a store is refused, and left as it is to the last byte."""

    @pytest.mark.parametrize("read_only", [False, True])
    def test_the_database_of_another_program(self, tmp_path: Path, read_only: bool) -> None:
        """Not even its journal mode is changed, and no damage is claimed."""
        path = tmp_path / "firefox.db"
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE bookmarks(url)")
            other.commit()
        before = path.read_bytes()

        with raises(Invalid, "foreign_file", path=str(path)):
            perdure.open(path, read_only=read_only)

        assert path.read_bytes() == before
        assert sorted(each.name for each in tmp_path.iterdir() if "lock" not in each.name) == ["firefox.db"]

    @pytest.mark.parametrize("read_only", [False, True])
    def test_a_file_that_is_no_database(self, tmp_path: Path, read_only: bool) -> None:
        """A text is called a text."""
        path = tmp_path / "letter.txt"
        path.write_text("Dear reader, " * 500)

        with raises(Invalid, "foreign_file", path=str(path), what="a text file"):
            perdure.open(path, read_only=read_only)

        assert path.read_text() == "Dear reader, " * 500

    @pytest.mark.parametrize("read_only", [False, True])
    @pytest.mark.parametrize(
        ("at", "written", "code"),
        [
            (0, b"Dear reader, yes", "file_damaged"),
            (0, b"Dear reader, " * 1_000, "file_damaged"),
            (0, bytes(100), "file_damaged"),
            (68, bytes(4), "header_damaged"),
            (68, b"mine", "header_damaged"),
        ],
        ids=["magic", "first pages", "zeros", "no mark", "another mark"],
    )
    def test_control_of_a_store_with_a_damaged_header(
        self, tmp_path: Path, at: int, written: bytes, code: str, read_only: bool
    ) -> None:
        """Words over its beginning make it neither a text nor another program's: it stays damaged, and as it is."""
        path = tmp_path / "store.db"
        perdure.open(path).close()
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(written)
        before = path.read_bytes()

        with raises(Corrupt, code, path=str(path)):
            perdure.open(path, read_only=read_only)

        assert path.read_bytes() == before

    @pytest.mark.parametrize("read_only", [False, True])
    def test_a_store_of_a_newer_perdure(self, tmp_path: Path, read_only: bool) -> None:
        """The error names both versions and says what to do."""
        path = tmp_path / "store.db"
        perdure.open(path).close()
        with closing(sqlite3.connect(path)) as database:
            database.execute(f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = path.read_bytes()

        with raises(Unsupported, "schema_too_new", version=schema.SCHEMA_VERSION + 1):
            perdure.open(path, read_only=read_only)

        assert path.read_bytes() == before

    def test_an_empty_file_becomes_a_store(self, tmp_path: Path) -> None:
        """`touch agents.db` and a run of `mktemp` do no harm."""
        (tmp_path / "store.db").touch()

        with perdure.open(tmp_path / "store.db") as store:
            store.thread("trip-42", agent="planner").put("/a", 1)

    @pytest.mark.parametrize("left", [0, 1, 99])
    def test_a_store_that_was_emptied_is_refused(self, tmp_path: Path, left: int) -> None:
        """An agent that found an empty store there would do everything again; what is beside it tells."""
        path = tmp_path / "store.db"
        with perdure.open(path) as store:
            store.thread("trip-42", agent="planner").put("/a", 1)
        os.truncate(path, left)

        for _ in range(2):
            with raises(Corrupt, "store_emptied"):
                perdure.open(path)
        assert path.stat().st_size == left

        path.unlink()
        with perdure.open(path) as store:  # control: where a store was removed, a new one is made
            assert list(store.threads()) == []

    def test_a_store_that_could_not_be_made_can_be_made_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The empty file of an attempt that failed is no store that was emptied."""

        def fails(*_: object, **__: object) -> bool:
            raise apsw.FullError("database or disk is full")

        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(schema, "lay", fails)
                with pytest.raises(Unavailable):
                    perdure.open(tmp_path / "store.db")

        perdure.open(tmp_path / "store.db").close()

    def test_an_empty_file_is_no_store_to_read(self, tmp_path: Path) -> None:
        """Reading only, there is nothing to make of it."""
        (tmp_path / "store.db").touch()

        with raises(NotFound, "store_not_found"):
            perdure.open(tmp_path / "store.db", read_only=True)

    def test_a_directory(self, tmp_path: Path) -> None:
        """It is no store, and nothing is left beside it."""
        with raises(NotFound, "is_a_directory", path=str(tmp_path)):
            perdure.open(tmp_path)

    def test_a_path_whose_directory_does_not_exist(self, tmp_path: Path) -> None:
        """No directory is made by a typo."""
        with raises(NotFound, "directory_not_found"):
            perdure.open(tmp_path / "typo" / "store.db")

        assert list(tmp_path.iterdir()) == []


class TestReadOnly:
    def test_it_reads_and_does_not_write(self, tmp_path: Path) -> None:
        """Every way to write is refused by the store, and reading goes on."""
        path = tmp_path / "store.db"
        with perdure.open(path) as store:
            store.thread("trip-42", agent="planner").put("/a", 1)

        with perdure.open(path, read_only=True) as store:
            thread = store.thread("trip-42")
            for work in (
                lambda: thread.put("/a", 2),
                thread.undo,
                lambda: thread.fork("x"),
                thread.rm,
            ):
                with raises(Unavailable, "opened_read_only"):
                    work()
            with raises(Unavailable, "opened_read_only"):
                store._resources.engine.forget(SPACE, [], why="asked", standing=0)
            assert thread.get("/a") == 1
            assert store.verify().faults == ()

    def test_it_sees_what_others_write(self, tmp_path: Path) -> None:
        """Each call looks at the newest commit."""
        path = tmp_path / "store.db"
        with perdure.open(path) as writing:
            thread = writing.thread("trip-42", agent="planner")
            thread.put("/a", 1)

            with perdure.open(path, read_only=True) as reading:
                seen = [reading.thread("trip-42").get("/a")]
                thread.put("/a", 2)
                seen.append(reading.thread("trip-42").get("/a"))

        assert seen == [1, 2]

    def test_it_is_not_created(self, tmp_path: Path) -> None:
        """A typo makes no file."""
        with raises(NotFound, "store_not_found"):
            perdure.open(tmp_path / "typo.db", read_only=True)

        assert list(tmp_path.iterdir()) == []


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Reading and writing through any handle that is left."""
    store = perdure.open(tmp_path / "store.db")
    thread = store.thread("trip-42", agent="planner")
    store.close()
    store.close()

    for work in (
        lambda: thread.put("/a", 1),
        lambda: thread.head,
        lambda: store.thread("trip-42"),
        store.verify,
    ):
        with raises(Unavailable, "store_closed"):
            work()


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 22 0:40 / /mnt/nas rw - nfs4 nas:/export rw
41 22 0:41 / /mnt/with\\040space rw - cifs //server/share rw
42 22 0:42 / /mnt/Büro rw - fuse.sshfs me@host:/ rw
43 40 8:2 / /mnt/nas/local rw - xfs /dev/sdb1 rw
"""


class TestFileSystems:
    """Network file systems are refused: SQLite's write-ahead log is unsafe there."""

    @pytest.fixture
    def mounts(self, tmp_path: Path) -> Path:
        """What the kernel says is mounted."""
        (tmp_path / "mountinfo").write_text(MOUNTS, encoding="utf-8")
        return tmp_path / "mountinfo"

    @pytest.mark.parametrize(
        ("place", "kind"),
        [
            ("/mnt/nas/agents", "nfs4"),
            ("/mnt/with space/agents", "cifs"),
            ("/mnt/Büro", "fuse.sshfs"),
        ],
    )
    def test_a_network_file_system_is_refused(self, mounts: Path, place: str, kind: str) -> None:
        """Whatever it is called and wherever it is mounted; the error names it."""
        with raises(Unsupported, "network_file_system", file_system=kind):
            check_local(Path(place), mounts)

    @pytest.mark.parametrize(
        "kind", ["rclone", "gcsfuse", "juicefs", "s3fs", "cephfs", "blobfuse2", "mfs", "a-new-one"]
    )
    def test_file_systems_in_user_space_are_taken_for_networks(self, tmp_path: Path, kind: str) -> None:
        """Most are, and new ones appear every year."""
        mounts = tmp_path / "mountinfo"
        mounts.write_text(f"1 1 0:1 / / rw - fuse.{kind} remote rw\n")

        with raises(Unsupported, "network_file_system", file_system=f"fuse.{kind}"):
            check_local(Path("/srv"), mounts)

    @pytest.mark.parametrize("kind", ["fuseblk", "fuse.mergerfs", "fuse.gocryptfs", "fuse.fuse-overlayfs"])
    def test_those_that_are_known_to_be_local_are_not(self, tmp_path: Path, kind: str) -> None:
        """They keep their files on a disk of this machine."""
        mounts = tmp_path / "mountinfo"
        mounts.write_text(f"1 1 0:1 / / rw - {kind} /dev/sda1 rw\n")

        check_local(Path("/srv"), mounts)

    @pytest.mark.parametrize("place", ["/", "/srv/agents", "/mnt/nas/local/agents", "/mnt/nasty", "/mnt"])
    def test_a_local_one_is_not(self, mounts: Path, place: str) -> None:
        """Also when it is mounted below a network file system, or its name begins like one."""
        check_local(Path(place), mounts)

    def test_where_the_platform_does_not_tell_nothing_is_refused(self, tmp_path: Path) -> None:
        """There is no such file outside Linux."""
        assert file_system_of(tmp_path, tmp_path / "nothing") is None

    def test_opening_asks(self, mounts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The store itself is refused there, before anything is made."""
        (tmp_path / "remote").mkdir()
        mounts.write_text(MOUNTS + f"50 22 0:50 / {tmp_path}/remote rw - nfs nas:/ rw\n", encoding="utf-8")
        monkeypatch.setattr(check_local, "__defaults__", (mounts,))

        with raises(Unsupported, "network_file_system", file_system="nfs"):
            perdure.open(tmp_path / "remote" / "store.db")

        assert list((tmp_path / "remote").iterdir()) == []


def test_two_stores_side_by_side_do_not_meet(tmp_path: Path) -> None:
    """One process can have many open."""
    with closing(SqliteEngine(tmp_path / "a.db")) as a, closing(SqliteEngine(tmp_path / "b.db")) as b:
        a.apply(write("op", value("a")))

        assert b.recorded(SPACE, "op") is None


def test_a_view_whose_text_is_damaged_is_named(tmp_path: Path) -> None:
    """A byte that is not UTF-8, where SQLite itself does not mind, is damage like any other."""
    path = tmp_path / "store.db"
    perdure.open(path).close()
    damaged = "cast(replace(cast(sql AS BLOB), cast('CREATE VIEW' AS BLOB), x'43524541544520564945572f2aff2a2f') AS TEXT)"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = 1")
        database.execute(f"UPDATE sqlite_schema SET sql = {damaged} WHERE name = 'threads'")

    for read_only in (False, True):
        with raises(Corrupt, "schema_changed", name="threads"):
            perdure.open(path, read_only=read_only)

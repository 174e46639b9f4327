"""The simulated disk, shown on a bare table with one row per commit.

Every fact about SQLite's safety has a control in which the same search must find losses or damage: without
them a disk that simulates nothing would pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import pytest

from perdure.testing.disk import Check, Disk, DiskCall, Entries, Survival, Workload, Writes, explore
from perdure.testing.disk.platter import WriteOp
from tests.crash.campaign import sized
from tests.selection import some

COMMITS = sized(16, 24)  # more than the eight pages after which SQLite writes the log back
SYNC = frozenset({DiskCall.SYNC})


def connect(
    disk: Disk, *, synchronous: str = "EXTRA", journal: str = "WAL", exclusive: bool = True
) -> apsw.Connection:
    """A connection as a store would set it up."""
    connection = apsw.Connection("store.db", vfs=disk.vfs)
    connection.pragma("locking_mode", "EXCLUSIVE" if exclusive else "NORMAL")
    connection.pragma("synchronous", synchronous)
    connection.pragma("journal_mode", journal)
    connection.pragma("wal_autocheckpoint", 8)
    return connection


def insert(connection: apsw.Connection, number: int) -> None:
    """Commit one row."""
    connection.execute("INSERT INTO facts VALUES (?, ?)", (number, bytes([number]) * 700))


def create(connection: apsw.Connection) -> None:
    """Make the table unless it is there."""
    connection.execute("CREATE TABLE IF NOT EXISTS facts (number INTEGER PRIMARY KEY, body BLOB)")


def rows(connection: apsw.Connection) -> set[object]:
    """The rows that a reader sees."""
    return {number for (number,) in connection.execute("SELECT number FROM facts")}


def commits(*, synchronous: str, journal: str = "WAL", exclusive: bool = True) -> Workload:
    """A workload that acknowledges each row after its commit."""

    def workload(disk: Disk) -> None:
        connection = connect(disk, synchronous=synchronous, journal=journal, exclusive=exclusive)
        create(connection)
        for number in range(COMMITS):
            insert(connection, number)
            disk.mark(number)
        connection.close()

    return workload


def intact(*, synchronous: str = "EXTRA", journal: str = "WAL", exclusive: bool = True) -> Check:
    """A check that every acknowledged row is there and nothing is damaged."""

    def check(disk: Disk, acknowledged: Sequence[object]) -> None:
        connection = connect(disk, synchronous=synchronous, journal=journal, exclusive=exclusive)
        try:
            assert connection.pragma("integrity_check") == "ok", "damaged"
            create(connection)
            lost = set(acknowledged) - rows(connection)
            assert not lost, f"lost {sorted(map(str, lost))}"
        finally:
            connection.close()

    return check


class TestPowerLoss:
    @pytest.mark.parametrize("seed", some([1, 2, 3], one_of=3))
    def test_wal_with_extra_syncs_loses_nothing(self, seed: int) -> None:
        """Whatever of the unsynced survives, at whichever operation, every acknowledged row is there."""
        explored = explore(commits(synchronous="EXTRA"), intact(), seed=seed, chances=8)

        assert explored.failures == []
        assert explored.images > explored.operations > 100

    def test_nor_does_it_when_power_is_lost_again_during_recovery(self) -> None:
        """Recovery can be interrupted at each of its operations."""
        explored = explore(commits(synchronous="EXTRA"), intact(), seed=4, recovery_share=0.3)

        assert explored.failures == []
        assert explored.recoveries > 100

    def test_control_wal_with_normal_syncs_loses_acknowledged_rows(self) -> None:
        """NORMAL syncs only at checkpoints: rows go, but nothing is damaged."""
        explored = explore(commits(synchronous="NORMAL"), intact(), seed=1)

        messages = [str(failure.error) for failure in explored.failures]
        assert len(messages) > 100
        assert all([message.startswith("lost") for message in messages])

    def test_control_without_syncs_the_database_is_damaged_too(self) -> None:
        """OFF never syncs: rows are lost, and torn and garbled pages stay."""
        explored = explore(commits(synchronous="OFF"), intact(), seed=1)

        assert any([str(failure.error).startswith("lost") for failure in explored.failures])
        assert any([is_damage(failure.error) for failure in explored.failures])

    def test_control_a_disk_that_ignores_syncs_garbles_the_database(self) -> None:
        """EXTRA is worth what the disk's syncs are worth."""
        explored = explore(
            commits(synchronous="EXTRA"), intact(), disk=Disk(seed=1, ignores_syncs=True), chances=8
        )

        assert any([is_damage(failure.error) for failure in explored.failures])

    def test_control_recovering_without_syncs_loses_rows_to_a_second_loss(self) -> None:
        """The search during recovery finds something when there is something to find."""
        workload, check = commits(synchronous="EXTRA"), intact(synchronous="OFF")

        assert explore(workload, check, seed=1).failures == []
        assert explore(workload, check, seed=1, recovery_share=0.3).failures != []

    @pytest.mark.parametrize(("synchronous", "safe"), [("FULL", False), ("EXTRA", True)])
    def test_a_rollback_journal_needs_its_delete_synced(self, synchronous: str, safe: bool) -> None:
        """A delete that is undone brings the journal back and rolls an acknowledged row back; EXTRA syncs it."""
        workload = commits(synchronous=synchronous, journal="DELETE", exclusive=False)
        check = intact(synchronous=synchronous, journal="DELETE", exclusive=False)

        explored = explore(workload, check, seed=1)

        assert (explored.failures == []) is safe

    def test_the_same_seed_makes_the_same_failures(self) -> None:
        """A failure that was printed can be made again."""
        runs = [explore(commits(synchronous="NORMAL"), intact(), seed=7) for _ in range(2)]

        first, second = ([repr(failure) for failure in run.failures] for run in runs)
        assert first == second
        assert first[0].startswith("seed=7 at=")

    def test_a_new_database_vanishes_until_its_directory_is_synced(self) -> None:
        """Syncing the file does not sync its name; the journal does that for a database that has one."""
        disk = Disk()
        create(connect(disk, journal="MEMORY"))
        old = [Survival(Writes.ALL, Entries.OLD)]

        before = [image.files for image in disk.after_power_loss(survivals=old)]
        disk.sync_directory()
        after = [image.files for image in disk.after_power_loss(survivals=old)]

        assert before == [{}]
        assert after == [disk.files]


def is_damage(error: Exception) -> bool:
    """Whether the database was found corrupt, as opposed to short of rows."""
    return isinstance(error, apsw.CorruptError | apsw.NotADBError) or str(error) == "damaged"


class TestFaults:
    def test_a_commit_that_raised_for_a_failed_sync_can_be_there_after_reopening(self) -> None:
        """The reason for the barrier: the writer cannot see the row, and the next process can."""
        disk = Disk()
        connection = connect(disk)
        create(connection)
        disk.fail(calls=SYNC)

        with pytest.raises(apsw.IOError) as raised:
            insert(connection, 1)
        seen_by_writer = rows(connection)
        disk.kill()

        assert vars(raised.value)["extendedresult"] == apsw.SQLITE_IOERR_FSYNC
        assert seen_by_writer == set()
        assert rows(connect(disk)) == {1}

    def test_a_durable_write_after_it_makes_the_absence_final(self) -> None:
        """The barrier overwrites the orphaned frames, so neither a kill nor a power loss brings them back."""
        disk = Disk()
        connection = connect(disk)
        create(connection)
        disk.fail(calls=SYNC)
        with pytest.raises(apsw.IOError):
            insert(connection, 1)

        insert(connection, 2)

        disk.kill()
        left = [rows(connect(image)) for image in disk.after_power_loss(chances=200)]
        assert all([found == {2} for found in [rows(connect(disk)), *left]])

    @pytest.mark.parametrize("times", [1, None], ids=["once", "for ever"])
    @pytest.mark.parametrize("error", [None, apsw.SQLITE_FULL], ids=["EIO", "ENOSPC"])
    def test_no_failing_call_loses_an_acknowledged_row(self, times: int | None, error: int | None) -> None:
        """For every n: a typed error or none, and after healing and reopening all that was acknowledged."""
        for disk in self.disks_with_a_failing_call(commits(synchronous="EXTRA"), times, error):
            intact()(disk, disk.marked())

    def test_control_rows_acknowledged_before_their_commit_are_lost(self) -> None:
        """The search over failing calls finds something when there is something to find."""

        def hasty(disk: Disk) -> None:
            connection = connect(disk)
            create(connection)
            disk.mark(1)
            insert(connection, 1)
            connection.close()

        missing = 0
        for disk in self.disks_with_a_failing_call(hasty, 1, None):
            connection = connect(disk)
            create(connection)
            missing += not set(disk.marked()) <= rows(connection)

        assert missing > 0

    @staticmethod
    def disks_with_a_failing_call(workload: Workload, times: int | None, error: int | None) -> Iterator[Disk]:
        whole = Disk()
        workload(whole)
        for at in range(whole.calls):
            disk = Disk(seed=at)
            disk.fail(at=at, error=error, times=times)
            try:
                workload(disk)
            except apsw.Error:
                disk.kill()  # while the traceback still holds the connection, which closes when collected
            assert disk.failed[0][0] == at
            disk.kill()
            disk.heal()
            yield disk

    def test_a_full_disk_is_said_to_be_full_and_works_again_with_room(self) -> None:
        """The error names the cause; nothing that was there is lost."""
        disk = Disk()
        connection = connect(disk)
        create(connection)
        insert(connection, 1)
        disk.fill(free_bytes=100)

        with pytest.raises(apsw.FullError):
            insert(connection, 2)
        disk.heal()
        insert(connection, 3)

        assert rows(connection) == {1, 3}

    def test_a_write_protected_disk_refuses_writes_until_healed(self) -> None:
        """The read-only file is read, not written."""
        disk = Disk()
        commits(synchronous="EXTRA", journal="DELETE")(disk)
        disk.write_protect()

        protected = connect(disk, journal="DELETE")
        with pytest.raises(apsw.ReadOnlyError):
            insert(protected, 99)
        protected.close()
        disk.heal()
        insert(connect(disk, journal="DELETE"), 99)

        assert 99 in rows(connect(Disk(files=disk.files), journal="DELETE"))

    def test_a_failed_write_may_have_written_its_beginning(self) -> None:
        """Over some seeds the disk shows different parts of the page that SQLite tried to write."""
        lengths = {self.length_of_failed_write(seed) for seed in range(20)}

        assert len(lengths) > 10
        assert max(lengths) < 4096

    @staticmethod
    def length_of_failed_write(seed: int) -> int:
        disk = Disk(seed=seed)
        connection = connect(disk, journal="MEMORY")
        disk.fail(calls=frozenset({DiskCall.WRITE}))
        with pytest.raises(apsw.IOError):
            create(connection)
        return max((len(each.data) for each in disk.record if isinstance(each, WriteOp)), default=0)

    def test_an_error_of_the_directory_sync_is_an_os_error(self) -> None:
        """A store that syncs its directory meets what the operating system would raise."""
        disk = Disk()
        disk.fail(calls=frozenset({DiskCall.SYNC_DIRECTORY}))

        with pytest.raises(OSError, match="directory sync"):
            disk.sync_directory()


class TestPrograms:
    def test_a_killed_program_has_no_more_effect(self) -> None:
        """Its later writes, deletes and locks do not reach the next program."""
        disk = Disk()
        killed = connect(disk)
        create(killed)
        disk.kill()
        record = disk.record

        insert(killed, 1)
        killed.close()

        assert disk.record == record
        assert rows(connect(disk)) == set()

    def test_a_second_connection_is_kept_out_by_an_exclusive_one(self) -> None:
        """Locks hold between connections to one disk."""
        disk = Disk()
        first = connect(disk, journal="DELETE")
        create(first)

        with pytest.raises(apsw.BusyError):
            create(connect(disk, journal="DELETE", exclusive=False))
        first.close()
        create(connect(disk, journal="DELETE", exclusive=False))

    def test_temporary_files_leave_no_trace(self) -> None:
        """They have no name, so no power loss can bring them back."""
        disk = Disk()
        connection = connect(disk)
        connection.pragma("temp_store", "FILE")
        operations, calls = disk.operations, disk.calls

        connection.execute("CREATE TEMP TABLE large AS SELECT zeroblob(9000000) AS body")

        assert disk.operations == operations
        assert disk.calls > calls + 1000

    def test_facts_count_as_acknowledged_from_their_mark_on(self) -> None:
        """A power loss before the mark may lose the fact."""
        disk = Disk()
        disk.sync_directory()
        disk.mark("one")
        disk.sync_directory()
        disk.mark("two")

        assert [disk.marked(at=at) for at in range(3)] == [(), ("one",), ("one", "two")]

    def test_a_saved_disk_is_read_by_the_real_file_system(self, tmp_path: Path) -> None:
        """What failed can be looked at with other tools."""
        disk = Disk()
        commits(synchronous="EXTRA")(disk)

        disk.save(tmp_path)

        assert rows(apsw.Connection(str(tmp_path / "store.db"))) == set(range(COMMITS))

"""What survives on the platter, operation by operation."""

from __future__ import annotations

from perdure.testing.disk.platter import (
    SECTOR_BYTES,
    Create,
    DeleteOp,
    Entries,
    Operation,
    Platter,
    Survival,
    Sync,
    SyncDirectory,
    Truncate,
    WriteOp,
    Writes,
)

NONE = Survival(Writes.NONE, Entries.NEW)
OLD = bytes([1]) * SECTOR_BYTES * 4
NEW = bytes([2]) * SECTOR_BYTES * 4


def after(*operations: Operation) -> Platter:
    """A platter with one synced file, after `operations`."""
    platter = Platter({"a": OLD})
    for operation in operations:
        platter.record(operation)
    return platter


def left(platter: Platter, survival: Survival) -> bytes:
    """What is left of that file."""
    return platter.surviving(survival)["a"]


def chances(platter: Platter, count: int = 300) -> list[dict[str, bytes]]:
    """What is left in many random ways of coming back."""
    return [platter.surviving(Survival(Writes.RANDOM, Entries.RANDOM, seed)) for seed in range(count)]


def test_an_unsynced_write_can_be_dropped() -> None:
    """Nothing promises it."""
    assert left(after(WriteOp(0, 0, NEW)), NONE) == OLD


def test_a_synced_write_cannot() -> None:
    """It is the same however the disk comes back, and there is only one way left."""
    platter = after(WriteOp(0, 0, NEW), Sync(0, failed=False))

    assert {left["a"] for left in chances(platter)} == {NEW}
    assert len(platter.survivals(seed=0, chances=9)) == 1


def test_an_unsynced_truncate_can_be_undone() -> None:
    """The length is as uncertain as the content."""
    platter = after(Truncate(0, 0))

    assert {len(left["a"]) for left in chances(platter)} == {0, len(OLD)}


def test_writes_tear_at_sectors_from_both_ends() -> None:
    """Some first or some last sectors arrive, never a part of one."""
    found = {left["a"] for left in chances(after(WriteOp(0, 0, NEW)))}

    prefixes = {NEW[:edge] + OLD[edge:] for edge in range(0, len(NEW) + 1, SECTOR_BYTES)}
    suffixes = {OLD[:edge] + NEW[edge:] for edge in range(0, len(NEW) + 1, SECTOR_BYTES)}
    assert prefixes | suffixes < found


def test_garbling_leaves_bytes_that_were_not_written_alone() -> None:
    """A write into the middle of a sector cannot harm its neighbours."""
    platter = after(WriteOp(0, 100, b"middle"))

    found = {left["a"] for left in chances(platter)}

    assert len(found) > 2
    assert {each[:100] + each[106:] for each in found} == {OLD[:100] + OLD[106:]}


def test_a_sync_after_a_failed_one_does_not_help() -> None:
    """The kernel has forgotten that the pages were dirty."""
    platter = after(WriteOp(0, 0, NEW), Sync(0, failed=True), Sync(0, failed=False))

    assert left(platter, NONE) == OLD


def test_writing_again_after_a_failed_sync_does() -> None:
    """What was rewritten and synced is certain, the rest stays in doubt."""
    again = WriteOp(0, 0, NEW[:SECTOR_BYTES])
    platter = after(WriteOp(0, 0, NEW), Sync(0, failed=True), again, Sync(0, failed=False))

    assert left(platter, NONE) == NEW[:SECTOR_BYTES] + OLD[SECTOR_BYTES:]


def test_only_the_last_write_can_survive() -> None:
    """A disk may write the newest first."""
    platter = after(WriteOp(0, 0, b"one"), WriteOp(0, 600, b"two"))

    survived = left(platter, Survival(Writes.LAST, Entries.NEW))

    assert (survived[:3], survived[600:603]) == (OLD[:3], b"two")


def test_a_name_stands_for_any_file_it_stood_for_since_the_directory_was_synced() -> None:
    """Deleted and made again: the old file, none, or the new one."""
    platter = after(DeleteOp("a"), Create("a", 1), WriteOp(1, 0, b"new"), Sync(1, failed=False))

    found = {left.get("a") for left in chances(platter)}

    assert found == {OLD, None, b"new"}


def test_syncing_the_directory_settles_its_names_and_no_others() -> None:
    """Syncing another directory leaves them uncertain."""
    entries_old = Survival(Writes.ALL, Entries.OLD)

    elsewhere = after(DeleteOp("a"), SyncDirectory("elsewhere"))
    here = after(DeleteOp("a"), SyncDirectory(""))

    assert elsewhere.surviving(entries_old) == {"a": OLD}
    assert here.surviving(entries_old) == {}

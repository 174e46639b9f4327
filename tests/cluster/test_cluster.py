"""A cluster that loses its leader or its standbys: whatever was acknowledged stays, and the writers go on by themselves.

These tests take minutes and parts of their own, so `make test` leaves them out; `make cluster` installs the parts and
runs them.  They share a cluster, and each begins with a whole one.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import pytest

from perdure.engines.contract import Receipt
from perdure.errors import InDoubt
from perdure.testing.engines.builders import START, made, moved, write
from tests.cluster.nodes import SETTINGS, Cluster, Node, reason_not_to_run, running_cluster
from tests.cluster.writers import Load, load, opened, stored_ops, tally
from tests.coded import raises

_WITHOUT = reason_not_to_run()
pytestmark = pytest.mark.skipif(bool(_WITHOUT), reason=_WITHOUT)

WARM_SECONDS = 5.0
OUTAGE_SECONDS_MAX = 120.0  # for a machine that is busy; what was measured is printed


@pytest.fixture(scope="module")
def running() -> Generator[Cluster]:
    """A cluster with the schema of a store."""
    begun = time.monotonic()
    with running_cluster() as cluster:
        opened(cluster.url).close()
        print(f"\ncluster: up in {time.monotonic() - begun:.0f} s")
        yield cluster


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    """The same with a leader and two standbys that confirm its commits."""
    running.wait_until_whole()
    return running


def test_a_killed_leader_takes_no_acknowledged_commit_with_it(cluster: Cluster) -> None:
    """SIGKILL of the leader's patroni and server under four writers."""
    leader = cluster.leader()
    with load(cluster.url, "killed") as writers:
        time.sleep(WARM_SECONDS)
        leader.kill()
        wait_for_writing(cluster, writers, time.monotonic())
        time.sleep(WARM_SECONDS)

    assert cluster.leader() is not leader
    check(cluster, writers, "leader killed")
    leader.start()


def test_a_paused_leader_acknowledges_nothing_that_the_next_one_lacks(cluster: Cluster) -> None:
    """SIGSTOP until another node leads; when the old leader goes on it still holds the writers' sessions."""
    leader = cluster.leader()
    with load(cluster.url, "paused") as writers:
        time.sleep(WARM_SECONDS)
        leader.pause()
        wait_for_writing(cluster, writers, time.monotonic())
        leader.resume()
        time.sleep(WARM_SECONDS)
        wait_for_writing(cluster, writers, time.monotonic())
        cluster.wait_until_whole()

    assert cluster.leader() is not leader
    check(cluster, writers, "leader paused and healed")


def test_without_standbys_nothing_is_acknowledged(cluster: Cluster) -> None:
    """Both standbys are killed; writes wait or are in doubt until one of them is back."""
    standbys = cluster.standbys()
    with load(cluster.url, "alone", wait_seconds=5.0) as writers:
        time.sleep(WARM_SECONDS)
        for standby in standbys:
            standby.kill()
        time.sleep(1.0)  # a receipt of a write that a standby confirmed before may still be on its way
        before = writers.count
        time.sleep(30.0)
        after = writers.count
        doubts = sum(writer.doubts for writer in writers.writers)
        standbys[0].start()
        wait_for_writing(cluster, writers, time.monotonic())

    assert after == before
    assert doubts > 0
    check(cluster, writers, f"both standbys lost for 31 s, {doubts} answers InDoubt")
    standbys[1].start()


def test_a_cancelled_wait_for_standbys_is_in_doubt_until_one_has_it(cluster: Cluster) -> None:
    """The server ends the wait as a success with a warning; the same write, sent again, waits for the standbys too."""
    first = made("cancelled")
    wanted = write("cancelled", first, moved(START, first), space="cancelled")
    leader, standbys = cluster.leader(), cluster.standbys()
    url = f"{cluster.url}?application_name=cancelled"
    with closing(opened(url)) as engine, ThreadPoolExecutor(1) as pool:
        engine.apply(write("begin", space="cancelled"))
        for standby in standbys:
            standby.pause()
        try:
            for _ in range(2):  # the write itself, and the look at what became of it
                waiting = pool.submit(engine.apply, wanted)
                cancel_wait(cluster, leader, waiting)
                with raises(InDoubt, "in_doubt", op_id="cancelled"):
                    waiting.result(30)
            again = pool.submit(engine.apply, wanted)
            time.sleep(2.0)
            was_waiting = not again.done()
        finally:
            for standby in standbys:
                standby.resume()
        receipt = again.result(60)

    assert was_waiting
    assert receipt.heads[0].version == 1
    with leader.connect() as admin:
        assert [op_id for op_id, _ in stored_ops(admin, "cancelled")] == ["begin", "cancelled"]
    print("cancel while waiting for standbys: InDoubt twice, then a receipt; stored once")


def test_what_only_a_lost_leader_had_was_never_acknowledged(cluster: Cluster) -> None:
    """The leader sends nothing more and every wait is cancelled, so it commits alone; then it is lost."""
    leader = cluster.leader()
    with load(cluster.url, "alone and lost") as writers:
        time.sleep(WARM_SECONDS)
        leader.pause_senders()
        cancelled = cancel_waits(leader, 4.0)
        leader.kill()
        wait_for_writing(cluster, writers, time.monotonic())

    assert cluster.leader() is not leader
    assert cancelled > 0
    check(cluster, writers, f"{cancelled} waits cancelled on a leader that is then lost")
    leader.start()


def test_asynchronous_standbys_lose_what_was_acknowledged(cluster: Cluster) -> None:
    """Control: without synchronous mode the same count finds what a killed leader had not sent."""
    leader = cluster.leader()
    leader.configure(synchronous_mode="off", synchronous_mode_strict=False)
    try:
        cluster.wait_for(lambda: shown(leader, "synchronous_standby_names") == "", 60)
        with load(cluster.url, "control", wait_seconds=1.0) as writers:  # which end before another node leads
            time.sleep(WARM_SECONDS)
            leader.pause_senders()
            cluster.wait_for(lambda: writers.first_after(time.monotonic() - 0.5) is not None, 30)
            time.sleep(0.5)
            leader.kill()
            for writer in writers.writers:
                writer.ends.set()
        found = cluster.leader(), tally(cluster.url, writers.writers)
    finally:
        cluster.leader().configure(**SETTINGS)
        leader.start()

    print(f"control without synchronous mode: {found[1]}")
    assert found[0] is not leader
    assert found[1].lost > 0


# ---- steps


def wait_for_writing(cluster: Cluster, writers: Load, since: float) -> None:
    """Wait until every writer has a receipt for something that it asked for after `since`."""
    cluster.wait_for(lambda: writers.first_after(since) is not None, OUTAGE_SECONDS_MAX)


def check(cluster: Cluster, writers: Load, what: str) -> None:
    """Print what was measured, and check that nothing is lost, doubled or missing in between."""
    found = tally(cluster.url, writers.writers)
    print(f"{what}: outage {writers.pause_seconds():.1f} s, {found}")
    assert found.acknowledged > 0
    assert found.is_clean, found


def cancel_wait(cluster: Cluster, leader: Node, waiting: Future[Receipt]) -> None:
    """Cancel the statement that waits for the standbys."""
    with leader.connect() as admin:

        def is_cancelled() -> bool:
            assert not waiting.done(), waiting.result()
            found = admin.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity "
                "WHERE wait_event = 'SyncRep' AND application_name = 'cancelled'"
            )
            return found.fetchone() is not None

        cluster.wait_for(is_cancelled, 30)


def cancel_waits(leader: Node, seconds: float) -> int:
    """Cancel every wait for the standbys for some time; return how many there were."""
    cancelled, end = 0, time.monotonic() + seconds
    with leader.connect() as admin:
        while time.monotonic() < end:
            found = admin.execute(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
            cancelled += len(found.fetchall())
            time.sleep(0.05)
    return cancelled


def shown(node: Node, setting: str) -> str:
    """Return a setting of a node's server."""
    with node.connect() as admin:
        ((value,),) = admin.execute("SELECT current_setting(%s)", (setting,)).fetchall()
        return value

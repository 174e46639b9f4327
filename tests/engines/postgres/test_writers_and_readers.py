"""Four processes of eight threads each write to and read from shared threads and threads of their own.

The checker that SQLite is held to goes through what they say: nothing is lost, nothing is doubled, every reader sees a
beginning of the final history.  What is left is read by the server's own views.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import perdure
from tests.crash import jobs
from tests.crash.campaign import sized
from tests.crash.historian import Line, faults
from tests.crash.jobs import Log
from tests.crash.processes import running
from tests.crash.test_writers_and_readers import check_own_counts
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import url_of

if TYPE_CHECKING or not MISSING:
    import psycopg

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

PROCESSES, THREADS = 4, 8
SECONDS = sized(1.5, 60.0)


def written(tenant: str) -> list[Log]:
    """What each process says after it wrote and read for a while."""
    with perdure.open(url_of(tenant)) as store, ExitStack() as stack:
        for id in ("hot", "side"):
            store.thread(id, agent="planner")
        others = [
            stack.enter_context(
                running(jobs.write_and_read, url_of(tenant), str(number), THREADS, SECONDS, "apart")
            )
            for number in range(PROCESSES)
        ]
        return [other.answer() for other in others]


def lines_of(tenant: str, server: Server) -> dict[str, Line]:
    """The final history of each thread: commits as the server's views show them, tokens as the store does."""
    with psycopg.connect(server.url()) as db:
        rows: list[tuple[Any, ...]] = db.execute(
            "SELECT substr(r.name, 8), r.value, t.head, t.space FROM perdure.records r JOIN perdure.timelines t "
            "ON t.tenant = r.tenant AND t.timeline = 'main' AND t.space = r.value::json ->> 'space' "
            "WHERE r.tenant = %s AND r.space = 'store' AND r.name LIKE 'thread/%%'",
            (tenant,),
        ).fetchall()
        parents: dict[Any, Any] = dict(
            db.execute(
                "SELECT (space, hash), parent_hash FROM perdure.state_commits WHERE tenant = %s", (tenant,)
            )
        )
    lines: dict[str, Line] = {}
    with perdure.open(url_of(tenant), read_only=True) as store:
        for thread, record, at, space in rows:
            assert json.loads(record)["space"] == space
            commits: list[str] = []
            while at:
                commits.append(at)
                at = parents[space, at]
            view = store.thread(thread).at()
            tokens = [str(view.get(f"/tokens/{number}", default="")) for number in range(1, len(commits) + 1)]
            lines[thread] = Line(commits[::-1], tokens)
    return lines


@pytest.fixture(scope="module")
def campaign(postgres: Server) -> tuple[str, list[Log], dict[str, Line]]:
    """A tenant that many have written to, what they say, and what is left."""
    tenant = uuid4().hex
    return tenant, written(tenant), lines_of(tenant, postgres)


def test_nothing_is_lost_doubled_or_read_out_of_order(
    campaign: tuple[str, list[Log], dict[str, Line]],
) -> None:
    """The checker finds no fault on any thread, no process met an error, and there was something to check."""
    tenant, logs, lines = campaign
    apart = {thread: wrote for log in logs for thread, wrote in log.apart.items()}
    hot = [wrote for log in logs for wrote in log.wrote]

    assert [error for log in logs for error in log.errors] == []
    assert faults(hot, (seen for log in logs for seen in log.seen), lines["hot"]) == []
    assert [fault for thread, wrote in apart.items() for fault in faults(wrote, (), lines[thread])] == []
    assert len(lines["hot"].commits) == len(hot) > 10
    assert sum(len(wrote) for wrote in apart.values()) > 50
    assert sum(log.stale for log in logs) > 20
    with perdure.open(url_of(tenant), read_only=True) as store:
        check_own_counts(store, logs)
        assert store.verify().faults == ()


def test_control_a_write_that_is_missing_is_found(campaign: tuple[str, list[Log], dict[str, Line]]) -> None:
    """The same logs do not fit a history without its last commit, nor one with a commit that nobody claims."""
    _, logs, lines = campaign
    hot, line = [wrote for log in logs for wrote in log.wrote], lines["hot"]
    shortened = Line(line.commits[:-1], line.tokens[:-1])

    assert [fault.partition(":")[0] for fault in faults(hot, (), shortened)] == ["lost"]
    assert {fault.partition(":")[0] for fault in faults(hot[1:], (), line)} == {"duplicate"}

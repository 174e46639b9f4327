"""Behind a pooler in transaction mode: everything works, what is lost is said, and a refused setting is one clear line."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import perdure
from perdure.errors import Unavailable
from perdure.runtime.events import Committed
from perdure.runtime.streaming import cursor_at
from tests.coded import raises
from tests.crash.tampering import scene
from tests.engines.postgres.pooler import PGBOUNCER, bouncing, pooling
from tests.engines.postgres.server import MISSING, Server
from tests.surfaces.shell import Shell

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.connections import parse_address
    from perdure.engines.postgres.engine import PostgresEngine

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory whose name is short enough for a socket, and which the server's user may enter."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell in an empty directory."""
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path, capsys, monkeypatch)


@pytest.fixture(params=["pooler", "pgbouncer"])
def pooled(request: pytest.FixtureRequest, postgres: Server, database: str, place: Path) -> Iterator[str]:
    """The address of a store behind a pooler that has one connection to the server."""
    if request.param == "pgbouncer" and PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed")
    pooler = {"pooler": pooling, "pgbouncer": bouncing}[request.param]
    with pooler(postgres, place, database=database, user="postgres") as url:
        yield url


def test_runs_calls_and_approvals_are_as_without_one(pooled: str) -> None:
    """A whole scene, by several openings that share one connection; nothing in it is repeated afterwards."""
    scene.build(pooled, lambda: None)

    with perdure.open(pooled) as store, perdure.open(pooled) as other:
        thread = store.thread("t", agent=scene.agent())
        assert thread.run("Pay 3", id="m-1").status == "succeeded"
        assert scene.DONE["pay 3"] == 0
        assert other.verify().ok


def test_no_statement_is_prepared(pooled: str, postgres: Server, database: str) -> None:
    """Two clients use the same statements over and over on one session, where their names would collide."""
    engines = [PostgresEngine(parse_address(pooled, read_only=False)) for _ in range(2)]
    for _ in range(9):
        for engine in engines:
            engine.hold("a", "main")

    with engines[0]._pool.connection() as connection:
        prepared = connection.ask("SELECT name FROM pg_prepared_statements")
    for engine in engines:
        engine.close()

    assert prepared == []


def test_a_follower_misses_nothing(pooled: str) -> None:
    """It hears no notification, looks by itself, and sees every commit once and in order."""
    with perdure.open(pooled) as store, perdure.open(pooled) as watching:
        thread = store.thread("t", agent="clerk")
        thread.put("/n.json", -1)
        seen: list[str] = []
        begun = str(cursor_at(thread._space, thread.head.commit))
        writer = threading.Thread(target=lambda: [thread.put("/n.json", number) for number in range(20)])
        writer.start()
        for event in watching.thread("t").follow(after=begun, wait=True):
            if isinstance(event, Committed):
                seen.append(event.commit)
            if len(seen) == 20:
                break
        writer.join()
        made = [entry.digest for entry in thread.log(limit=20)]

    assert seen == made[::-1]


def test_a_setting_that_the_pooler_refuses_is_one_clear_line(
    postgres: Server, database: str, place: Path
) -> None:
    """`options` in the address is what poolers refuse; nothing is made."""
    if PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed")
    with (
        bouncing(postgres, place, database=database, user="postgres") as url,
        raises(Unavailable, "connection_refused") as refused,
    ):
        perdure.open(f"{url}&password=s3cret&options=-c%20work_mem%3D1MB")

    assert "options" in str(refused.value)
    assert "s3cret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert postgres.sql("SELECT to_regnamespace('perdure') IS NULL", database=database) == [(True,)]


def test_doctor_says_what_is_lost(pooled: str, shell: Shell) -> None:
    """And shows the server: its version, its settings, its standbys, its oldest transaction and its dead rows."""
    shell.ok("init", pooled)

    examined = shell("doctor", "--store", pooled, "--json").json

    facts = examined["facts"]
    assert facts["pooler"] == "transaction"
    assert any(["pooler" in each["what"] for each in examined["advice"]])
    assert {"server", "fsync", "standbys", "oldest_transaction_seconds", "dead_rows"} <= facts.keys()


def test_doctor_says_nothing_of_a_pooler_where_there_is_none(
    postgres: Server, database: str, shell: Shell
) -> None:
    """Control: and it advises against settings that a power loss does not forgive."""
    url = postgres.url(database)
    shell.ok("init", url)

    examined = shell("doctor", "--store", url, "--json").json

    assert examined["facts"]["pooler"] == "none"
    assert not any(["pooler" in each["what"] for each in examined["advice"]])
    assert any(["fsync" in each["what"] for each in examined["advice"]])

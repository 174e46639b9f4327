"""A server that is full, only reads, or cancels: a typed error names the cause, and everything works again after it."""

from __future__ import annotations

import os
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import perdure
from perdure.errors import PerdureError, Unavailable
from perdure.testing.engines.builders import SPACE, START, Pen, made, moved, write
from tests.coded import raises
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.proxy import proxy_to
from tests.engines.postgres.server import MISSING, Server, place
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import connections, errors
    from perdure.engines.postgres.errors import StatementFailed

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

SMALL_MEGABYTES, LARGER_MEGABYTES = 20, 200


class SmallDisk:
    """A file system of its own for a database, in memory."""

    def __init__(self, directory: Path) -> None:
        """Mount it; skip where this user may not."""
        self.directory = directory
        if os.geteuid() != 0 or self._mount(f"size={SMALL_MEGABYTES}m,mode=0777") != 0:
            pytest.skip("this user may not mount a file system")

    def grow(self) -> None:
        """Make room."""
        assert self._mount(f"remount,size={LARGER_MEGABYTES}m") == 0

    def _mount(self, options: str) -> int:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.directory)]
        try:
            return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode
        except FileNotFoundError:
            return 1


@pytest.fixture
def disk(postgres: Server) -> Iterator[SmallDisk]:
    """A small disk, which is mounted until the test is over."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="perdure-small-") as directory:
        os.chmod(directory, 0o755)
        small = SmallDisk(Path(directory))
        try:
            yield small
        finally:
            subprocess.run(["umount", directory], check=True)


@pytest.fixture
def crowded(disk: SmallDisk, postgres: Server) -> Iterator[str]:
    """The address of a database on that disk."""
    name, place = f"d{uuid4().hex[:12]}", disk.directory / "tables"
    place.mkdir()
    os.chown(place, *_owner(postgres))
    postgres.sql(f"CREATE TABLESPACE {name} LOCATION '{place}'")
    postgres.sql(f"CREATE DATABASE {name} TEMPLATE template0 TABLESPACE {name}")
    yield postgres.url(name)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)", f"DROP TABLESPACE {name}")


def _owner(server: Server) -> tuple[int, int]:
    found = server.directory.stat()
    return found.st_uid, found.st_gid


def check_full_disk(url: str, disk: SmallDisk) -> None:
    """Fill a disk; check that the error names it, and that everything works again when there is room."""
    noise = random.Random(1)
    with perdure.open(url) as store:
        thread = store.thread("t", agent="clerk")

        def fill() -> None:
            for number in range(SMALL_MEGABYTES * 20):
                thread.put(f"/{number}.bin", noise.randbytes(100_000))

        with raises(Unavailable, "disk_full"):
            fill()
        disk.grow()  # also for what is read: the server may have to write a page to make room for another
        stored = len(thread.log(limit=SMALL_MEGABYTES * 20))
        thread.put("/last.json", "there is room")

        assert len(thread.log(limit=SMALL_MEGABYTES * 20)) == stored + 1 > 10
        assert store.verify().ok


def test_a_full_disk_is_named_and_writing_goes_on_when_there_is_room(crowded: str, disk: SmallDisk) -> None:
    """What was acknowledged stays, and the refused write is made when it is sent again."""
    check_full_disk(crowded, disk)


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no error name its cause: each is the one for a cause that is not known."""
    known = errors.translated

    def translated(error: StatementFailed, left: str, place: str) -> PerdureError:
        return known(StatementFailed("", error.message), left, place)

    monkeypatch.setattr("perdure.engines.postgres.engine.translated", translated)


@pytest.mark.usefixtures("unnamed")
def test_a_full_disk_that_is_not_named_is_found(crowded: str, disk: SmallDisk) -> None:
    """Control: the same check finds an error that does not say what is full."""
    with pytest.raises(AssertionError):
        check_full_disk(crowded, disk)


@pytest.fixture
def standby(postgres: Server) -> Iterator[Server]:
    """A server that follows the shared one and only reads."""
    server = Server(place() / f"perdure-{uuid4().hex[:12]}")
    server.create_standby(postgres)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def check_standby(standby: Server, open_engine: Opener) -> None:
    """Check that a standby answers what its primary does, and that an error says why it does not write."""
    url = new_url()
    primary, first = open_engine(url), made("milk")
    primary.apply(write("op", first, moved(START, first)))
    there = f"{standby.url()}&tenant={url.rpartition('=')[2]}"
    reader = open_engine(there, read_only=True)
    deadline = time.monotonic() + 30
    while reader.hold(SPACE, "main") != primary.hold(SPACE, "main"):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    with raises(Unavailable, "server_read_only"):
        open_engine(there).apply(write("op-2"))

    assert [step.digest for step in reader.steps(SPACE, first.digest, limit=9)] == [first.digest]
    assert reader.instant().clock == primary.instant().clock


def test_a_standby_answers_and_refuses_writes(standby: Server, open_engine: Opener) -> None:
    """The error says that the server only reads; a store that is opened to read needs nothing else."""
    check_standby(standby, open_engine)


@pytest.mark.usefixtures("unnamed")
def test_a_standby_that_is_not_named_is_found(standby: Server, open_engine: Opener) -> None:
    """Control: the same check finds an error that does not say that the server only reads."""
    with pytest.raises(AssertionError):
        check_standby(standby, open_engine)


def test_of_several_hosts_the_one_that_writes_is_used(
    standby: Server, postgres: Server, open_engine: Opener
) -> None:
    """The standby is named first, and the store is written to all the same."""
    hosts = f"host={standby.directory},{postgres.directory}&port=5432,5432&tenant={uuid4().hex}"
    engine = open_engine(f"postgresql://postgres@/postgres?{hosts}")

    engine.apply(write("op", b"{}"))

    assert engine.ledger(SPACE).position == 1


def test_a_server_without_tls_is_one_clear_line(postgres: Server) -> None:
    """An address that requires TLS is refused by a server that has none, and nothing is sent in the clear."""
    with (
        proxy_to(new_url(), 1) as (_, url),
        raises(Unavailable, "connection_refused") as refused,
    ):
        perdure.open(f"{url}&sslmode=require&password=s3cret")

    assert "\n" not in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_statement_that_the_server_cancels_is_named(postgres: Server, open_engine: Opener) -> None:
    """`statement_timeout` of a role ends a write that waits for a lock; nothing is written, and the next one is."""
    role, url = f"hasty_{uuid4().hex[:12]}", new_url()
    open_engine(url).apply(write("begin"))
    postgres.sql(f"CREATE ROLE {role} LOGIN SUPERUSER", f"ALTER ROLE {role} SET statement_timeout = '200ms'")
    engine = open_engine(url.replace("postgres@", f"{role}@"), wait_seconds=1.0)
    import psycopg

    with psycopg.connect(postgres.url()) as holder:
        holder.execute("SELECT 1 FROM perdure.spaces WHERE tenant = %s FOR UPDATE", (url.rpartition("=")[2],))
        with raises(Unavailable, "statement_cancelled"):
            engine.apply(write("op", b"{}"))
    engine.apply(write("op", b"{}"))

    assert engine.ledger(SPACE).position == 1
    engine.close()
    postgres.sql(f"DROP ROLE {role}")


def test_a_process_that_stops_in_a_transaction_holds_nobody_up(
    open_engine: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends its session after a few seconds, and with it the lock of the space."""
    assert connections.IDLE_SECONDS < 10
    monkeypatch.setattr(connections, "IDLE_SECONDS", 1)
    stopped, engine, seconds = open_engine(), open_engine(), 0.0
    Pen(engine).commit("milk")
    with (
        ThreadPoolExecutor(1) as pool,
        stopped._pool.connection() as session,
        suppress(connections.ConnectionLost),
        session.transaction(),
    ):
        session.ask("SELECT 1 FROM perdure.spaces WHERE name = $1 FOR UPDATE", SPACE.encode())
        begun = time.monotonic()
        pool.submit(engine.apply, write("beside", b"{}")).result(30)
        seconds = time.monotonic() - begun
        session.ask("SELECT 1")  # the session is gone

    assert 0.5 < seconds < 30
    assert engine.ledger(SPACE).position == 1


def test_a_session_without_that_limit_holds_a_writer_up_until_it_is_told(
    postgres: Server, open_engine: Opener
) -> None:
    """The control of the test above: the error names the lock, and the same write is made when it is free."""
    import psycopg

    url = new_url()
    engine = open_engine(url, wait_seconds=1.0)
    engine.apply(write("begin"))
    with psycopg.connect(postgres.url()) as holder:
        holder.execute("SELECT 1 FROM perdure.spaces WHERE tenant = %s FOR UPDATE", (url.rpartition("=")[2],))
        with raises(Unavailable, "store_locked"):
            engine.apply(write("op", b"{}"))
    engine.apply(write("op", b"{}"))

    assert engine.ledger(SPACE).position == 1

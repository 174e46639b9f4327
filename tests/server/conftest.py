"""A store with a thread, and a server for it."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import perdure
from perdure.store.store import Store
from tests.server.client import Client, assistant, serving


@pytest.fixture
def store(tmp_path: Path) -> Generator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def client(store: Store) -> Generator[Client]:
    """A client of a server that runs an assistant, which has spoken on thread `chat`."""
    agent = assistant(pieces=3)
    store.thread("chat", agent=agent, owner="ann").run("Hello", id="msg-1")
    with serving(store, agent) as client:
        yield client

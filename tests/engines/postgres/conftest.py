"""Databases for tests that need one of their own, and engines on the shared one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres.connections import parse_address
    from perdure.engines.postgres.engine import PostgresEngine

Opener = Callable[..., "PostgresEngine"]


@pytest.fixture
def database(postgres: Server) -> Iterator[str]:
    """The name of an empty database."""
    name = f"d{uuid4().hex[:12]}"
    postgres.sql(f"CREATE DATABASE {name} TEMPLATE template0")
    yield name
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def open_engine(postgres: Server) -> Iterator[Opener]:
    """Opens engines, by default all on one new store, and closes them."""
    shared = new_url()
    with ExitStack() as opened:

        def open_one(url: str = shared, *, wait_seconds: float = 20.0, **more: bool) -> PostgresEngine:
            address = parse_address(url, read_only=more.get("read_only", False))
            return opened.enter_context(closing(PostgresEngine(address, wait_seconds=wait_seconds, **more)))

        yield open_one

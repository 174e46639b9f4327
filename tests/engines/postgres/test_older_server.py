"""A store on the oldest supported server that this machine has: the face above the engine, and what it cannot do."""

from __future__ import annotations

from uuid import uuid4

import pytest

import perdure
from perdure.errors import Unsupported
from tests.coded import raises
from tests.crash.tampering import scene
from tests.engines.postgres.server import Server


@pytest.fixture
def url(older_postgres: Server) -> str:
    """The address of an empty store."""
    return f"{older_postgres.url()}&tenant={uuid4().hex}"


def test_runs_calls_and_approvals_are_as_on_a_newer_one(url: str) -> None:
    """A whole scene of runs; nothing in it is repeated afterwards, and every digest is right."""
    scene.build(url, lambda: None)

    with perdure.open(url) as store:
        assert store.thread("t", agent=scene.agent()).run("Pay 3", id="m-1").status == "succeeded"
        assert scene.DONE["pay 3"] == 0
        assert store.verify().ok


def test_a_memory_is_searched_by_words(url: str) -> None:
    """Without the extension for vectors, which a plain server does not have."""
    with perdure.open(url) as store:
        memory = store.memory("ann")
        memory.add("The cat sleeps on the sofa.")
        memory.add("Rent is due on Friday.")

        found = memory.search("cat")

    assert [item.text for item in found] == ["The cat sleeps on the sofa."]


def test_partitions_are_refused_where_the_server_cannot_have_them(older_postgres: Server) -> None:
    """The error names the version, and nothing is made."""
    if older_postgres.sql("SELECT current_setting('server_version_num')::int >= 170000") == [(True,)]:
        pytest.skip("this server can have them")
    name = f"d{uuid4().hex[:12]}"
    older_postgres.sql(f"CREATE DATABASE {name} TEMPLATE template0")

    with raises(Unsupported, "server_too_old"):
        perdure.open(f"{older_postgres.url(name)}&partitions=4")

    assert older_postgres.sql("SELECT to_regnamespace('perdure') IS NULL", database=name) == [(True,)]
    older_postgres.sql(f"DROP DATABASE {name}")

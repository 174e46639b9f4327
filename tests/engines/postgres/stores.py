"""Stores on the tests' server: each test has a tenant of its own in one database, so that none waits for a new one."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

import pytest

from perdure.testing.engines.subject import StoredEdit
from tests.engines.postgres.server import MISSING

__all__ = ["GRANTS", "SERVER", "edited", "new_store", "new_url", "url_in", "url_of"]

SERVER = "PERDURE_TEST_POSTGRES"  # the address of the database, also for the processes that a test starts

# What the how-to page tells an operator to grant.
GRANTS = (
    "GRANT USAGE ON SCHEMA perdure TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA perdure TO {role}",
    "REVOKE INSERT, UPDATE, DELETE ON perdure.meta FROM {role}",
)
_OF = "tenant=%(tenant)s AND space=(SELECT id FROM perdure.spaces WHERE tenant=%(tenant)s AND name=%(space)s)"
_EDITS = {
    "cell value": f"UPDATE perdure.cells SET value=%(to)s WHERE {_OF} AND name=%(name)s",
    "cell revision": f"UPDATE perdure.cells SET revision=%(number)s WHERE {_OF} AND name=%(name)s",
    "cell gone": f"DELETE FROM perdure.cells WHERE {_OF} AND name=%(name)s",
    "cell moved": f"UPDATE perdure.cells SET name=%(to)s WHERE {_OF} AND name=%(name)s",
    "entry body": f"UPDATE perdure.entries SET body=%(to)s WHERE {_OF} AND position=%(at)s",
    "entry gone": f"DELETE FROM perdure.entries WHERE {_OF} AND position=%(at)s",
    "head gone": f"DELETE FROM perdure.heads WHERE {_OF} AND timeline=%(name)s",
}
_REPLACED = f"DELETE FROM perdure.cells WHERE {_OF} AND name=%(to)s"


def new_url() -> str:
    """Return the address of a store that is empty."""
    return url_of(uuid4().hex)


def new_store(request: pytest.FixtureRequest) -> str:
    """Return the address of an empty store for a fixture that offers every engine; skip where there is no server."""
    if MISSING:
        pytest.skip(MISSING)
    request.getfixturevalue("postgres")
    return new_url()


def url_of(tenant: str) -> str:
    """Return the address of the store of a tenant."""
    return f"{os.environ[SERVER]}&tenant={tenant}"


def url_in(directory: Path) -> str:
    """Return the address of the store that belongs to a directory, the same in every process."""
    file = directory / "tenant"
    if not file.exists():
        new = directory / f"tenant.{os.getpid()}"
        new.write_text(uuid4().hex, encoding="ascii")
        try:
            os.link(new, file)  # one of two processes that arrive first
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return url_of(file.read_text(encoding="ascii"))


def edited(tenant: str, edit: StoredEdit) -> None:
    """Make an edit behind the engine's back."""
    import psycopg

    values = {
        "tenant": tenant,
        "space": edit.space.encode(),
        "name": edit.name.encode(),
        "to": edit.to.encode(),
        "number": int(edit.to) if edit.to.isdigit() else 0,
        "at": int(edit.name) if edit.name.isdigit() else 0,
    }
    with psycopg.connect(os.environ[SERVER].partition("&partitions")[0]) as connection:
        connection.execute("SELECT set_config('perdure.tenant', %(tenant)s, true)", values)
        if edit.what == "cell moved":
            connection.execute(_REPLACED.encode(), values)
        connection.execute(_EDITS[edit.what].encode(), values)

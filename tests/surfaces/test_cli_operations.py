"""What the commands of an operator say when something is in the way: each advice is another command, and works."""

from __future__ import annotations

import shutil
import sqlite3

import pytest

import perdure
from tests.engines.postgres.server import MISSING
from tests.engines.postgres.stores import new_store
from tests.surfaces.shell import Shell


def test_a_store_is_not_imported_and_copy_is_named(shell: Shell) -> None:
    """It has threads already, which are copied."""
    shutil.copyfile(shell.store, shell.directory / "other.db")

    ended = shell("import", "other.db", "--json")
    shown = shell("import", "other.db").err

    assert ended.error["code"] == "import_of_a_store"
    assert "perdure copy other.db" in shown


def test_an_address_that_is_imported_is_named_as_it_was_given(shell: Shell) -> None:
    """A path would lose a slash."""
    assert (
        shell("import", "https://example.com/x", "--json").error["facts"]["path"] == "https://example.com/x"
    )


def test_verify_does_not_advise_verify(shell: Shell) -> None:
    """Where the list of names cannot be read, `verify` of one thread advises another command."""
    with sqlite3.connect(shell.store) as database:
        database.execute("UPDATE meta SET value = 5 WHERE name = 'spaces'")
    database.close()

    ended = shell("verify", "--space", "nothing")

    assert ended.code == 6
    assert ("`perdure verify" in ended.err, "perdure restore" in ended.err) == (False, True)


def test_a_collected_thread_has_no_size(shell: Shell) -> None:
    """It holds nothing, and has no name any more."""
    with perdure.open(shell.store) as store:
        store.thread("gone", agent="planner").put("/n.json", 1)
        store.thread("gone").rm()
        store.gc(store.gc_plan(perdure.RetentionPolicy(removed_threads=True)))

    names = [each["name"] for each in shell.ok("doctor", "--size", "--json").json["sizes"]]

    assert [name for name in names if name.startswith("thread:")] == []
    assert names


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_a_superuser_is_told_that_row_security_does_not_apply(
    shell: Shell, request: pytest.FixtureRequest
) -> None:
    """The tests' server is used as its superuser."""
    url = new_store(request)
    with perdure.open(url) as store:
        store.thread("t", agent="planner").put("/n.json", 1)

    examined = shell.ok("doctor", "--store", url, "--json").json
    refused = shell("backup", "x.db", "--store", url)

    assert any("row security" in each["what"] for each in examined["advice"])
    assert "perdure copy" in refused.err

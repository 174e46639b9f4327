"""What others put into a store, or into a question: listed, and made safe to show."""

from __future__ import annotations

import apsw

from tests.surfaces.shell import Shell


def test_tables_of_other_programs_are_let_be_and_listed_by_doctor(shell: Shell) -> None:
    """Litestream adds some, and ANALYZE."""
    shell.ok("init")
    connection = apsw.Connection(str(shell.store))
    connection.execute("CREATE TABLE _litestream_seq(id INTEGER PRIMARY KEY, seq INTEGER); ANALYZE")
    connection.close()

    ended = shell.ok("doctor", "--json")

    assert "_litestream_seq, sqlite_stat1" in ended.out
    shell.ok("verify")


def test_doctor_names_the_trigger_for_which_a_store_is_refused(shell: Shell) -> None:
    """So that somebody can find out who added it."""
    shell.ok("init")
    connection = apsw.Connection(str(shell.store))
    connection.execute("CREATE TRIGGER wipe AFTER INSERT ON log BEGIN DELETE FROM entries; END")
    connection.close()

    ended = shell("doctor")

    assert ended.code != 0
    assert "wipe" in ended.out


def test_names_of_columns_are_made_safe_to_show(shell: Shell) -> None:
    """A terminal obeys escape sequences, also in a heading."""
    shell.ok("init")

    ended = shell.ok("sql", 'SELECT 1 AS "a\x1b[31mb"')

    assert "\x1b" not in ended.out
    assert "\\x1b[31m" in ended.out

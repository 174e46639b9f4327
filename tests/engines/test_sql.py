"""The SQL views are the same on every engine: the same names, columns and rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path

import pytest

import perdure
from perdure import Store
from perdure.cli.input.stores import map_entries
from perdure.engines.registry import export_tables, open_sql
from perdure.engines.sqlite import sql
from perdure.errors import Conflict, Invalid, NotFound, PerdureError
from perdure.model import canonical
from perdure.model.digest import Kind, digest_of
from perdure.testing import Script, say, use
from perdure.testing.engines.builders import Pen
from perdure.testing.engines.laws.history import HOSTILE_NAMES
from tests.coded import raises
from tests.crash import day
from tests.engines.postgres.stores import new_store
from tests.store.contract.test_sql_audit import book
from tests.surfaces.shell import Shell

NUMBERS = {"row", "space", "commit_row"}  # each store counts its own
HOSTILE = ["a\0b", "\\u0000", "'; DROP TABLE log; --", "\u202e", "\ufeff", "%_", "𝄞"]

_names = count()


@pytest.fixture(params=["memory", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a store that is no file."""
    return new_store(request) if request.param == "postgres" else f"memory:sql-{next(_names)}"


@pytest.fixture
def addresses(url: str, tmp_path: Path) -> Iterator[list[str]]:
    """A file and another store with the same day in them, both still open."""
    both = [str(tmp_path / "agents.db"), url]
    with ExitStack() as opened:
        for address in both:
            store = opened.enter_context(perdure.open(address, clock=day.clock(), ids=day.ids()))
            book(store)
            remember_hostile_text(store)
        yield both


def remember_hostile_text(store: Store) -> None:
    """Say, store and remember what a database may not take for text."""
    thread = store.thread("hostile", agent="planner", owner="user-7")
    for number, text in enumerate(HOSTILE):
        with thread.change("said") as change:
            change.say("user", text, id=f"h-{number}")
            change.put(f"/h/{number}.json", {text: text})
    thread.fork("h").put("/tried.json", HOSTILE)


def asked(url: str, query: str) -> list[tuple[object, ...]]:
    """The rows of a query."""
    with closing(open_sql(url, entries=map_entries)) as opened:
        return list(opened.query(query)[1])


def views(store: sql.Sql) -> dict[str, list[str]]:
    """The views of a store, with their columns."""
    names = "SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name"
    return {
        str(name): [str(row[1]) for row in store.query(f"PRAGMA table_info({name})")[1]]
        for (name,) in list(store.query(names)[1])
    }


def test_every_view_shows_the_same_on_every_engine(addresses: list[str]) -> None:
    """Names, columns and rows, hostile text included."""
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(open_sql(url, entries=map_entries))) for url in addresses]
        shapes = [views(store) for store in stores]
        assert shapes[0] == shapes[1]
        assert len(shapes[0]) > 10

        for view, columns in shapes[0].items():
            shown = ", ".join(column for column in columns if column not in NUMBERS)
            file, other = (
                sorted(store.query(f"SELECT {shown} FROM {view}")[1], key=repr) for store in stores
            )
            assert file == other, view
        events = "SELECT json_extract(payload_json, '$.message.content[0].text') FROM conversation_events WHERE id LIKE 'h-%'"
        assert {text for (text,) in stores[1].query(events)[1]} == set(HOSTILE)


def test_names_of_any_kind_are_shown(url: str) -> None:
    """Spaces, timelines, cells and op_ids of every name that the engines' suite knows."""
    with closing(perdure.open(url)) as store:
        engine = store._resources.engine
        for name in HOSTILE_NAMES:
            Pen(engine, space=name).commit("milk")

        names = {name for (name,) in asked(url, "SELECT name FROM spaces")}

    assert set(HOSTILE_NAMES) <= names


def test_a_query_sees_what_was_written_before_it(url: str) -> None:
    """Each opening reads the store again."""
    with perdure.open(url) as store:
        for number in range(3):
            store.thread("t", agent="a").put("/n.json", number)
            assert asked(url, "SELECT count(*) FROM state_commits") == [(number + 1,)]


def test_what_was_forgotten_is_not_shown(url: str) -> None:
    """Neither single values nor a whole space; what was not forgotten is there."""
    with perdure.open(url) as store:
        thread = store.thread("kept", agent="a")
        for word in ("forgotten", "kept"):
            thread.put("/n.json", word)
        engine, space = store._resources.engine, thread._space.name
        lost = digest_of(Kind.VALUE, canonical.encode("forgotten"))
        assert engine.forget(space, [lost], why="test", standing=engine.standing(space))
        Pen(engine, space="dropped").commit("milk")
        engine.drop("dropped", why="test")

        contents = [content for (content,) in asked(url, "SELECT content FROM state_values")]

    assert contents == ['"kept"']


@pytest.mark.parametrize(
    "query", ["DELETE FROM log", "CREATE TABLE mine(x)", "ATTACH 'x.db' AS x", "SELECT 1; SELECT 2"]
)
def test_nothing_can_be_written_through_it(url: str, query: str) -> None:
    """The error names the store and not the copy."""
    with perdure.open(url) as store:
        store.thread("t", agent="a").put("/n.json", 1)

        with raises(Invalid, "query_invalid") as refused:
            asked(url, query)

    assert url.partition("?")[0].partition(":")[0] in str(refused.value)
    assert "perdure-sql-" not in str(refused.value)


@pytest.mark.parametrize(
    ("query", "has"), [("SELECT thread_id FROM runs", "runs has "), ("SELECT 1 FROM talks", "conversations")]
)
def test_the_error_of_a_wrong_name_says_what_there_is(tmp_path: Path, query: str, has: str) -> None:
    """The columns of the view that the query names, or the views."""
    address = str(tmp_path / "agents.db")
    with perdure.open(address), raises(Invalid, "query_invalid") as refused:
        asked(address, query)

    assert has in refused.value.advice


def test_the_copy_is_removed(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the query is done, and when the store cannot be copied; nobody else may read it."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with perdure.open(url) as store:
        store.thread("t", agent="a").put("/n.json", 1)
        with closing(open_sql(url, entries=map_entries)):
            (directory,) = tmp_path.glob("perdure-sql-*")
            assert directory.stat().st_mode & 0o777 == 0o700
        assert not list(tmp_path.iterdir())

        def fail(*_: object) -> None:
            raise Conflict("it does not stop being written.", code="source_written")

        monkeypatch.setattr(sql, "replay_store", fail)
        with raises(Conflict, "source_written"):
            asked(url, "SELECT 1")
    assert not list(tmp_path.iterdir())


def test_a_store_that_does_not_exist_is_not_made() -> None:
    """As everywhere."""
    with raises(NotFound, "store_not_found"):
        asked("memory:nobody", "SELECT 1")


def test_the_tables_can_be_exported(url: str, tmp_path: Path) -> None:
    """Of all threads, and of one."""
    with perdure.open(url, clock=day.clock(), ids=day.ids()) as store:
        book(store)
        with closing(open_sql(url, entries=map_entries)) as opened:
            everything = export_tables(opened, tmp_path / "all.db", thread=None)
            one = export_tables(opened, tmp_path / "one.db", thread="invoice-7")

    assert everything["conversations"] == 2
    assert (one["conversations"], one["state_commits"]) == (1, 1)


def test_the_command_line_asks_a_server(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`perdure sql` lists the views and answers a query there."""
    url, shell = new_store(request), Shell(tmp_path, capsys, monkeypatch)
    with perdure.open(url) as store:
        store.thread("t", agent="a").put("/n.json", 1)

    asked = shell.ok("sql", "SELECT id, agent_id FROM conversations", "--store", url, "--json").json
    listed = shell.ok("sql", "--store", url, "--json").json

    assert asked["rows"] == [["t", "a"]]
    assert "state_values" in [view["name"] for view in listed["views"]]


def test_a_damaged_store_is_reported(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read is not left out in silence."""
    with perdure.open(url) as store:
        store.thread("t", agent="a").put("/n.json", 1)
        kind = type(store._resources.engine)
        whole = kind.writes

        def damaged(*given: object, **named: object) -> object:
            page, cursor = whole(*given, **named)  # pyright: ignore[reportArgumentType]
            return [perdure.engines.contract.Written(each.op_id, None) for each in page], cursor  # pyright: ignore[reportAttributeAccessIssue]

        monkeypatch.setattr(kind, "writes", damaged)

        with pytest.raises(PerdureError) as error:
            asked(url, "SELECT 1")

    assert error.value.code == "source_damaged"


def test_a_resolved_call_has_its_result_in_sql(tmp_path: Path) -> None:
    """What a person says that an unknown call returned is in `result_ref`, and the ledger says who said it."""

    @perdure.tool(effect="external_write")
    def pay() -> str:
        """Pay, and lose the connection."""
        raise OSError("lost")

    address = str(tmp_path / "agents.db")
    with perdure.open(address) as store:
        agent = perdure.Agent("a", backend=Script(use("pay"), say("Done.")), tools=[pay])
        thread = store.thread("t", agent=agent)
        thread.run("go")
        (call,) = thread.calls()
        before = asked(address, "SELECT state, result_ref FROM tool_events")
        thread.resolve(call.id, "done", value={"receipt": 7}, by="ann")
        (settled,) = thread.calls()

    assert before == [("unknown", None)]
    assert asked(address, "SELECT state, result_ref FROM tool_events") == [("resolved", settled.result)]
    told = asked(address, "SELECT position, state, by FROM ledger ORDER BY position")
    assert told == [(1, "started", None), (2, "unknown", None), (3, "resolved", "ann")]


def test_runs_and_approvals_can_be_asked_for_in_sql(tmp_path: Path) -> None:
    """A run that waits, its open question, and both after the decision."""

    @perdure.tool(effect="external_write", ask=True)
    def send() -> str:
        """Send."""
        return "sent"

    address = str(tmp_path / "agents.db")
    questions = "SELECT action, decision, decided_by FROM approvals"
    with perdure.open(address) as store:
        agent = perdure.Agent("a", backend=Script(use("send"), say("Done.")), tools=[send])
        thread = store.thread("t", agent=agent, owner="user-7")
        thread.run("go")
        waiting = asked(address, "SELECT state, owner, steps FROM runs"), asked(address, questions)
        thread.decide(thread.approvals()[0].call, "approve", by="ann")
        thread.resume()

    assert waiting == ([("waiting", "user-7", 1)], [("approve", None, None)])
    assert asked(address, "SELECT state, agent_id, steps, unpriced_steps FROM runs") == [
        ("succeeded", "a", 2, 2)
    ]
    assert asked(address, questions) == [("approve", "approve", "ann")]

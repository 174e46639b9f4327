"""What reading costs, counted in SQL statements, engine calls and decoded messages, and not in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Store, Text
from perdure.engines.sqlite.connections import Connections
from perdure.engines.sqlite.format import commits
from perdure.engines.sqlite.format.index import Index
from perdure.model.message import Message
from perdure.projections import transcript

WAYS = (
    "steps",
    "events",
    "objects",
    "answers",
    "cell",
    "cells",
    "cells_of",
    "hold",
    "holds",
    "listed",
    "check",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of a store."""
    return tmp_path / "agents.db"


@contextmanager
def opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Store, Counter[str], list[str]]]:
    """A store that was just opened, with the calls that its engine gets and the statements that its readers run."""
    calls, statements = Counter[str](), list[str]()
    take = Connections.take

    def traced(self: Connections) -> Any:
        db: Any = take(self)
        db.exec_trace = lambda _, sql, __: statements.append(sql) or True
        return db

    with perdure.open(path) as store:
        engine: Any = store._resources.engine
        for name in WAYS:
            monkeypatch.setattr(engine, name, counted(getattr(engine, name), name, calls))
        monkeypatch.setattr(Connections, "take", traced)
        yield store, calls, statements
        monkeypatch.undo()


def counted(method: Any, name: str, calls: Counter[str]) -> Any:
    """The method, which counts its calls."""

    def counting(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return method(*args, **options)

    return counting


def talk(path: Path, messages: int) -> None:
    """Fill a thread with so many commits, each of one message and one value."""
    with perdure.open(path, durability="process_crash") as store:
        thread = store.thread("trip", agent="planner")
        for number in range(messages):
            with thread.change("turn") as change:
                change.add(Message("user", (Text(f"message {number}"),)))
                change.put(
                    f"/notes/{number % 40:02d}.json", {"text": "the same words " * 20, "number": number}
                )


def test_the_rows_of_a_conversation_are_read_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a program writes are laid out as `events_of` and `line_of` expect: row by row they take longer."""
    talk(path, 30)
    with perdure.open(path) as store:
        view = store.thread("trip", agent="planner").at()
        monkeypatch.setattr(commits, "_read_each", None)
        log = view.log()
        monkeypatch.setattr(commits, "line_of", None)

        said = view.transcript()

    assert [entry.text for entry in said] == [f"message {number}" for number in range(30)]
    assert [entry.commit for entry in said] == [entry.digest for entry in reversed(log)]


@pytest.mark.parametrize(("messages", "pages"), [(90, 1), (500, 2), (501, 3)])
def test_a_transcript_is_read_by_a_statement_for_a_page_and_decoded_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, messages: int, pages: int
) -> None:
    """No message is looked up by its digest: its bytes are in the row of its commit."""
    talk(path, messages)
    decoded: list[bytes] = []
    decode = transcript.decode_message

    def decoding(body: bytes, vendor: bytes | None = None) -> Message:
        decoded.append(body)
        return decode(body, vendor)

    with opened(path, monkeypatch) as (store, calls, statements):
        thread = store.thread("trip")
        monkeypatch.setattr(transcript, "decode_message", decoding)
        calls.clear()
        statements.clear()
        found = thread.transcript()

    assert [entry.text for entry in found] == [f"message {number}" for number in range(messages)]
    assert (calls["events"], calls["steps"], calls["objects"]) == (pages, 0, 0)
    assert pages <= sum("l.bodies" in sql for sql in statements) <= 2 * pages
    assert len(statements) <= 5 * pages + 6
    assert len(decoded) == len(set(decoded)) == messages


def test_the_last_messages_of_a_long_line_cost_what_those_of_a_short_one_do(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same number of statements, at 60 commits and at 600."""
    counts: list[int] = []
    for number, messages in enumerate((60, 600)):
        talk(file := tmp_path / f"{number}.db", messages)
        with opened(file, monkeypatch) as (store, _, statements):
            thread = store.thread("trip")
            statements.clear()
            assert len(thread.transcript(limit=50)) == 50
            counts.append(len(statements))

    assert counts[1] <= counts[0] + 1


def test_the_way_to_an_ancestor_costs_the_same_however_far_it_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement follows it by jumps and steps, and two more check what was followed."""
    talk(path, 120)
    counts: list[int] = []
    commits: list[str] = []

    with opened(path, monkeypatch) as (store, _, statements):
        thread = store.thread("trip")
        log = [entry.commit for entry in thread.transcript()]
        for moment in ("HEAD~1", "HEAD~2", "HEAD~95", "HEAD~118"):
            statements.clear()
            commits.append(thread.at(moment).digest or "")
            counts.append(len(statements))

    assert commits == [log[-2], log[-3], log[-96], log[-119]]
    assert max(counts[1:]) <= counts[1] + 1


def test_all_values_are_read_together(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `get` reads them one by one; the statements grow with the levels of differences, not with the paths."""
    talk(path, 200)

    with opened(path, monkeypatch) as (store, calls, statements):
        view = store.thread("trip").at()
        paths = view.paths("/notes")
        calls.clear()
        statements.clear()
        found = view.values("/notes")

        assert (len(paths), calls["objects"]) == (40, 1)
        assert len(statements) < 20
        assert list(found) == paths
        assert found == {path: view.get(path) for path in paths}


def test_values_under_a_prefix_are_those_of_its_paths(path: Path) -> None:
    """Bytes, documents and one that is as large as an artifact; nothing under another prefix."""
    large = "x" * 3_000_000
    with perdure.open(path) as store:
        thread = store.thread("trip", agent="planner")
        for name, value in (("/a/b.json", [1]), ("/a/c", b"\0\xff"), ("/a/d.json", large), ("/b.json", 2)):
            thread.put(name, value)

        assert thread.values("/a") == {"/a/b.json": [1], "/a/c": b"\0\xff", "/a/d.json": large}
        assert thread.values("/none") == {}
        assert thread.at(None).values() == {}


@pytest.mark.parametrize(("threads", "pages"), [(5, 1), (100, 3)])
def test_listing_threads_asks_the_engine_by_pages(
    path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, pages: int
) -> None:
    """One call lists a page; one asks which of its threads were removed, and for the policies of their agents."""
    with perdure.open(path, durability="process_crash") as store:
        for number in range(threads):
            store.thread(f"t{number:03d}", agent="planner")
        store.thread("t001").rm()

    with opened(path, monkeypatch) as (store, calls, _):
        listed = [thread.id for thread in store.threads()]

    assert listed == [f"t{number:03d}" for number in range(threads) if number != 1]
    assert calls == {"cells": pages, "answers": pages, "check": 1}


def test_the_place_and_the_row_of_a_node_are_read_together(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cold node takes one statement; the control reads it as a store does whose places may mean several rows."""
    with perdure.open(path, durability="process_crash") as store:
        thread = store.thread("trip", agent="planner")
        with thread.change("fill") as change:
            for number in range(3_000):
                change.put(f"/notes/{number:06d}.json", {"number": number})
    found: dict[bool, list[str]] = {}
    for is_joined in (True, False):
        with opened(path, monkeypatch) as (store, calls, statements):
            monkeypatch.setattr(Index, "names_rows", is_joined)
            thread = store.thread("trip")
            calls.clear()
            statements.clear()
            assert thread.get("/notes/001500.json") == {"number": 1_500}
            assert calls["objects"] >= 4
            found[is_joined] = list(statements)

    cold = sum("JOIN log" in sql for sql in found[True])
    assert cold >= 3
    assert len(found[True]) + cold <= len(found[False])


def test_a_moment_is_compared_with_the_one_before_it_without_the_history_of_both(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What two moments of one line share is not read, however long it is."""
    talk(path, 600)
    read = 0

    with perdure.open(path) as store:
        engine: Any = store._resources.engine
        steps = engine.steps

        def counting(*args: Any, **options: Any) -> Any:
            nonlocal read
            found = steps(*args, **options)
            read += len(found)
            return found

        monkeypatch.setattr(engine, "steps", counting)
        difference = store.thread("trip", agent="planner").diff("HEAD~1", "HEAD")

    assert [change.path for change in difference.state] == ["/notes/39.json"]
    assert len(difference.messages_b) == 1
    assert read <= 20

"""Names that other frameworks have for commits: how they are given, where they lead, and what carries them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import perdure
from perdure import Thread, aio
from perdure.engines.sqlite.format.index import label_keys
from perdure.errors import Invalid, NotFound, OpReused
from perdure.model.commit import Changeset, encode_changeset
from perdure.model.event import MomentNamed
from perdure.model.names import moment_label
from perdure.store import git_export
from tests.coded import raises
from tests.selection import engines
from tests.store.engine_calls import opened
from tests.store.git_export.looking import git

ONE, TWO = "langgraph:1ef0c9a2-6b5e-6d3a-8000", "adk:evt/7"


@pytest.fixture(params=engines("sqlite", "memory:"))
def thread(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Thread]:
    """A thread of either engine."""
    url = tmp_path / "agents.db" if request.param == "sqlite" else request.param
    with perdure.open(url) as store:
        yield store.thread("trip", agent="planner")


def put(thread: Thread, number: int, *given: str) -> str:
    """Commit a number under these names; return the commit."""
    with thread.change("step") as change:
        for name in given:
            change.name(name)
        change.put("/n.json", number)
    return change.commits[0]


def test_a_name_is_a_moment_wherever_one_is_accepted(thread: Thread) -> None:
    """Reading, comparing, forking and undoing take it."""
    first = put(thread, 1, ONE, TWO)
    put(thread, 2)

    assert thread.at(ONE).digest == thread.at(TWO).digest == first
    assert thread.at(ONE).get("/n.json") == 1
    assert [change.path for change in thread.diff(ONE).state] == ["/n.json"]
    assert thread.fork("what-if", at=ONE).get("/n.json") == 1
    assert thread.undo(to=TWO).commit == first
    assert [entry.names for entry in thread.log()] == [(ONE, TWO)]
    assert [turn.names for turn in thread.turns()] == [(ONE, TWO)]


def test_a_name_alone_is_a_commit(thread: Thread) -> None:
    """A checkpoint that changes no state is a moment of its own."""
    before = put(thread, 1)
    with thread.change("checkpoint") as change:
        change.name(ONE)

    assert thread.at(ONE).digest == thread.head.commit != before
    assert thread.at(ONE).get("/n.json") == 1


def test_the_newest_commit_of_a_line_has_the_name(thread: Thread) -> None:
    """Each line has its own; from a line without it, two elsewhere are refused and one is found."""
    first = put(thread, 1, ONE)
    fork, empty = thread.fork("what-if"), thread.fork("empty", at=None)
    assert empty.at(ONE).digest == first

    here, there = put(thread, 2, ONE), put(fork, 3, ONE)

    assert (thread.at(ONE).digest, fork.at(ONE).digest) == (here, there)
    with raises(Invalid, "revision_ambiguous", kinds=("a name",)):
        empty.at(ONE)
    thread.undo()
    assert thread.at(ONE).digest == first


def test_a_name_and_an_id_of_the_same_text_are_not_mixed_up(thread: Thread) -> None:
    """The moment is refused, naming both kinds; a message of that id can still be written."""
    put(thread, 1, ONE)
    with thread.change("talk") as change:
        change.say("user", "hello", id=ONE)

    with raises(Invalid, "revision_ambiguous", kinds=("a message id", "a name")):
        thread.at(ONE)


def test_what_only_resembles_a_name_leads_nowhere(thread: Thread) -> None:
    """A name is compared as a whole."""
    put(thread, 1, ONE)

    for name in (ONE[:-1], ONE.upper(), "langgraph:", TWO, f"name\n{ONE}"):
        with raises(NotFound, "revision_not_found", name=name):
            thread.at(name)


def test_another_thread_has_its_own_names(tmp_path: Path) -> None:
    """The same name leads to a commit of each thread that gave it, and nowhere in others."""
    with perdure.open(tmp_path / "a.db") as store:
        one, two, three = (store.thread(id, agent="planner") for id in ("one", "two", "three"))
        first, second = put(one, 1, ONE), put(two, 2, ONE)

        assert (one.at(ONE).digest, two.at(ONE).digest) == (first, second)
        with raises(NotFound, "revision_not_found", name=ONE):
            three.at(ONE)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("1ef0", "moment_name_invalid"),
        ("langgraph:", "moment_name_invalid"),
        (":1", "moment_name_invalid"),
        ("Lang graph:1", "moment_name_invalid"),
        ("turn:3", "moment_name_invalid"),
        ("version:3", "moment_name_invalid"),
        ("", "not_text"),
        (7, "not_text"),
        ("langgraph:a\nb", "unseen_character"),
        ("langgraph:" + "x" * 191, "text_too_long"),
    ],
)
def test_what_is_no_name_is_refused_and_nothing_is_written(thread: Thread, name: str, code: str) -> None:
    """The form keeps it apart from the other names of moments."""
    with raises(Invalid, code, what="name"), thread.change("step") as change:
        change.put("/n.json", 1)
        change.name(name)

    assert thread.log() == []


def test_a_name_belongs_to_an_open_block(thread: Thread) -> None:
    """A commit that exists cannot be given one any more."""
    put(thread, 1)
    change = thread.change("late")

    with raises(Invalid, "change_not_open"):
        change.name(ONE)


def test_a_repeated_block_gives_the_same_names(thread: Thread) -> None:
    """Names are part of what an op_id stands for, and the ids of messages stay as they were."""

    def step(name: str) -> tuple[str, str | None]:
        with thread.change("step", op_id="step-1") as change:
            change.name(name)
            return change.say("user", "hello"), thread.head.commit

    said, _ = step(ONE)
    again, commit = step(ONE)

    assert (said, thread.head.commit) == (again, commit)
    assert thread.at(ONE).digest == thread.at(said).digest
    with pytest.raises(OpReused):
        step(TWO)


def test_in_a_chain_the_next_write_has_the_name(thread: Thread) -> None:
    """Its digest holds the name, so the name comes first; a name after the last write is a commit of its own."""
    with thread.change("steps", chain=True) as change:
        first = change.put("/n.json", 1)
        change.name(ONE)
        second = change.put("/n.json", 2)
        change.name(TWO)

    assert change.commits == (first, second, thread.head.commit)
    assert (thread.at(ONE).digest, thread.at(TWO).digest) == (second, thread.head.commit)


def test_a_rebased_change_keeps_its_name(thread: Thread) -> None:
    """The name goes to the commit that is made in the end."""
    with thread.change("mine", on_conflict="rebase") as change:
        change.name(ONE)
        change.put("/mine.json", 1)
        thread.put("/theirs.json", 2)

    assert thread.at(ONE).digest == thread.head.commit
    assert thread.at(ONE).paths() == ["/mine.json", "/theirs.json"]


def test_the_awaitable_block_gives_names_too() -> None:
    """As the blocking one does."""

    async def steps() -> tuple[object, object]:
        async with aio.open("memory:") as store:
            thread = await store.thread("trip", agent="planner")
            async with thread.change("step") as change:
                await change.name(ONE)
                await change.put("/n.json", 1)
            found = await thread.at(ONE)
            return await found.get("/n.json"), (await thread.log())[0].names

    assert asyncio.run(steps()) == (1, (ONE,))


@pytest.mark.parametrize("url", engines("sqlite", "memory:"))
@pytest.mark.parametrize("commits", [1, 300])
def test_a_name_is_found_by_one_call(
    url: str, commits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the history: one call for the head, one for the name."""
    with opened(str(tmp_path / "a.db") if url == "sqlite" else url, monkeypatch) as (store, calls):
        thread = store.thread("trip", agent="planner")
        first = put(thread, 0, ONE)
        with thread.change("more", chain=True) as change:
            for number in range(commits):
                change.put("/n.json", number)
        calls.clear()
        found = thread.at(ONE).digest

    assert found == first
    assert calls == ["answers", "answers"]


def test_without_the_label_each_commit_would_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a search of the log costs more calls than the look-up."""
    with opened(str(tmp_path / "a.db"), monkeypatch) as (store, calls):
        thread = store.thread("trip", agent="planner")
        first = put(thread, 0, ONE)
        with thread.change("more", chain=True) as change:
            for number in range(300):
                change.put("/n.json", number)
    with opened(str(tmp_path / "a.db"), monkeypatch) as (store, calls):
        thread = store.thread("trip")
        calls.clear()
        found = next(entry.digest for entry in thread.log() if ONE in entry.names)

    assert found == first
    assert len(calls) > 2


def test_a_copy_an_export_and_the_views_have_the_names(tmp_path: Path) -> None:
    """And `verify` finds the store whole."""
    with perdure.open(tmp_path / "a.db") as store:
        thread = store.thread("trip", agent="planner")
        first, second = put(thread, 1, ONE), put(thread, 2, ONE, TWO)
        git_export.export(thread, tmp_path / "g")
        store.copy_to(tmp_path / "b.db")
        assert store.verify().ok
    with perdure.open(tmp_path / "b.db") as copy:
        thread = copy.thread("trip")
        assert [thread.at(name).digest for name in (ONE, TWO, "HEAD~1")] == [second, second, first]
        assert copy.verify().ok
    with closing(sqlite3.connect(tmp_path / "b.db")) as db:
        rows = db.execute(
            "SELECT json_extract(payload_json, '$.name') FROM conversation_events "
            "WHERE event_type = 'moment.named' ORDER BY sequence_number"
        ).fetchall()

    assert [name for (name,) in rows] == [ONE, ONE, TWO]
    message = git(tmp_path / "g", "log", "-1", "--format=%B", "main")
    assert f"- moment.named {ONE}\n- moment.named {TWO}\n" in message


@pytest.mark.parametrize("damaged", [1, 2])
def test_verify_finds_a_damaged_key_of_a_name(tmp_path: Path, damaged: int) -> None:
    """One key of two is enough to find the commit; where one is not as it should be, `verify` says so."""
    path = tmp_path / "a.db"
    with perdure.open(path) as store:
        first = put(store.thread("trip", agent="planner"), 1, ONE)
        assert store.verify().ok
    keys = label_keys(moment_label(ONE))
    with closing(sqlite3.connect(path)) as db, db:
        ((row, found),) = [
            each for each in db.execute("SELECT id, keys FROM log") if each[1] and keys[0] in each[1]
        ]
        for key in keys[:damaged]:
            found = found.replace(key, bytes(len(key)))
        db.execute("UPDATE log SET keys = ? WHERE id = ?", (found, row))

    with perdure.open(path) as store:
        thread = store.thread("trip")
        if damaged == 1:
            assert thread.at(ONE).digest == first
        else:
            with pytest.raises(NotFound):
                thread.at(ONE)
        assert {fault.kind for fault in store.verify().faults} == {"row"}


def test_what_has_no_name_has_the_bytes_that_it_always_had() -> None:
    """And what has one says so in the stored text."""
    assert encode_changeset(Changeset(reason="r")) == b'{"reason":"r"}'
    named = Changeset(reason="r", events=(MomentNamed(id="e", name=ONE),))
    text = f'{{"events":[{{"id":"e","name":"{ONE}","type":"moment.named"}}],"reason":"r"}}'
    assert encode_changeset(named) == text.encode()

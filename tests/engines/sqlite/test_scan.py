"""What is not hashed is derived again: a wrong hint is named by `verify` and never loops."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType

import apsw
import msgspec
import pytest

import perdure
from perdure import Thread
from perdure.engines.contract import Fact
from perdure.engines.sqlite.database import Database
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.engines.sqlite.format.pack import PackForm, decode_pack, encode_pack
from perdure.engines.sqlite.maintenance import scan
from perdure.engines.sqlite.maintenance.scan import facts_of
from perdure.errors import Corrupt
from perdure.model.digest import Digest
from tests.crash.campaign import sized

OF_COMMITS = [
    "prev",
    "jump",
    "depth",
    "turn",
    "sequence",
    "events",
    "run",
    "at",
    "root",
    "fields",
    "changeset",
    "digests",
    "spans",
    "timeline",
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with one thread of twenty turns."""
    path = tmp_path / "agents.db"
    with perdure.open(str(path)) as store:
        thread = store.thread("t", agent="a")
        for number in range(20):
            with thread.change("count", run=f"run-{number}") as change:
                change.say("user", f"number {number}", id=f"m-{number}")
                change.put("/n.json", number)
    return path


def test_a_sound_store_has_no_odd_rows(path: Path) -> None:
    """The control: what we wrote passes its own audit."""
    with perdure.open(str(path)) as store:
        assert store.verify().faults == ()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE log SET jump = id WHERE depth = 15", "jumps to a row"),
        ("UPDATE log SET jump = NULL WHERE depth = 15", "jumps to a row"),
        ("UPDATE log SET events = events + 1 WHERE depth = 15", "miscounts its events"),
        ("UPDATE log SET run = 7 WHERE depth = 15", "names another run"),
        ("UPDATE log SET turn = 3 WHERE depth = 15", "is not where its parent puts it"),
        ("UPDATE log SET sequence = 3 WHERE depth = 15", "is not where its parent puts it"),
        ("UPDATE log SET turn = 2 WHERE depth = 0", "is not where its parent puts it"),
        ("UPDATE log SET bodies = bodies || 'x' WHERE depth = 15", "other words than those"),
        ("UPDATE log SET spans = '[[0,1,5,0,0]]' WHERE depth = 15", "words stand where they do not"),
        ("UPDATE log SET spans = NULL WHERE depth = 15", "words stand where they do not"),
        ("UPDATE log SET timeline = 'other' WHERE depth = 15", "names another timeline"),
        (
            "UPDATE log SET keys = CAST(keys || x'0102030405' AS BLOB) WHERE depth = 15",
            "does not carry the keys",
        ),
        (
            "UPDATE log SET keys = CAST(substr(keys, 1, length(keys) - 10) || zeroblob(10) AS BLOB) WHERE depth = 15",
            "does not carry the keys",
        ),
    ],
)
def test_a_wrong_hint_is_named(path: Path, change: str, named: str) -> None:
    """Though every digest still fits."""
    apsw.Connection(str(path)).execute(change)

    with perdure.open(str(path)) as store:
        faults = store.verify().faults

    assert any(named in str(fault) for fault in faults), faults


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("edit", ["NULL", "'main'", "'other'"])
def test_the_timeline_of_a_commit_follows_from_the_moves_of_its_write(
    path: Path, number: int, edit: str
) -> None:
    """Also of commits that were written together, of which the last one alone has the moves."""
    with perdure.open(str(path)) as store:
        with store.thread("t").fork("what-if").change("three", chain=True) as change:
            for value in range(3):
                change.put("/n.json", value)
        before = store.verify().faults
    apsw.Connection(str(path)).execute(f"UPDATE log SET timeline = {edit} WHERE depth = {20 + number}")

    with perdure.open(str(path)) as store:
        after = store.verify().faults

    assert before == ()
    assert any("names another timeline" in str(fault) for fault in after), after


@pytest.mark.parametrize("column", ["jump", "prev"])
def test_walking_in_a_circle_ends_in_an_error(path: Path, column: str) -> None:
    """A row that names itself as its ancestor is damage, not a reason to hang."""
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = id WHERE depth = 15")

    with perdure.open(str(path)) as store, pytest.raises(Corrupt):
        store.thread("t").at("turn:3")


@pytest.mark.parametrize("column", OF_COMMITS)
def test_a_row_without_a_commit_has_nothing_in_the_columns_of_commits(path: Path, column: str) -> None:
    """Nothing reads them there, and `verify` names what an edit put into them."""
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = 1 WHERE digest IS NULL")

    with perdure.open(str(path)) as store:
        faults = store.verify().faults

    assert any("has no commit" in str(fault) for fault in faults), faults


@pytest.mark.parametrize("column", OF_COMMITS)
def test_a_dropped_row_has_nothing_in_the_columns_of_commits(path: Path, column: str) -> None:
    """A dropped space is sound; what an edit puts into such a row is named."""
    with perdure.open(str(path)) as store:
        space = store.thread("t")._space
        space.engine.drop(space.name, why="asked")
        before = [fault for fault in store.verify().faults if fault.kind == "row"]
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = 1 WHERE id = (SELECT max(id) FROM log)")

    with perdure.open(str(path)) as store:
        after = store.verify().faults

    assert before == []
    assert any("has no commit" in str(fault) for fault in after), after


@pytest.mark.parametrize("column", ["turn", "sequence", "events", "run", "prev", "depth"])
def test_a_commit_is_refused_where_its_row_says_another_place(path: Path, column: str) -> None:
    """Also when it is read alone, without its parent."""
    db = apsw.Connection(str(path))
    commit = Digest(str(db.execute("SELECT lower(hex(digest)) FROM log WHERE depth = 15").get))
    db.execute(f"UPDATE log SET {column} = {column} + 1 WHERE depth = 15")

    with perdure.open(str(path)) as store:
        thread = store.thread("t")
        with pytest.raises(Corrupt):
            thread._space.engine.steps(thread._space.name, commit, limit=1)


@pytest.mark.parametrize("column", ["turn", "sequence", "jump"])
def test_nothing_is_written_on_a_commit_whose_row_was_edited(path: Path, column: str) -> None:
    """The next commit would take its own place from it."""
    apsw.Connection(str(path)).execute(f"UPDATE log SET {column} = {column} - 1 WHERE depth = 19")

    with perdure.open(str(path)) as store, pytest.raises(Corrupt):
        store.thread("t").put("/n.json", 20)


def test_going_back_does_not_lead_to_a_commit_that_was_undone(path: Path) -> None:
    """A parent of the same depth, turn and number of events on another line is told by its digest."""
    with perdure.open(str(path)) as store:
        thread = store.thread("t")
        thread.put("/n.json", "undone")
        thread.undo()
        thread.put("/n.json", "done")
        last = _put(thread, "last")
        name = thread._space.name
    edit = "UPDATE log SET prev = (SELECT min(id) FROM log WHERE depth = 20) WHERE depth = 21"
    apsw.Connection(str(path)).execute(edit)

    with perdure.open(str(path)) as store, pytest.raises(Corrupt):
        store.thread("t")._space.engine.steps(name, last, skip=1, limit=1)


def _put(thread: Thread, value: str) -> Digest:
    thread.put("/n.json", value)
    assert thread.head.commit is not None
    return thread.head.commit


TEXT, BLOB = (
    ("changeset", "spans", "bodies", "timeline"),
    ("keys", "digest", "root", "fields", "digests", "pack"),
)
NUMBERS = ("space", "prev", "jump", "depth", "turn", "sequence", "events", "run", "at")


def _edited(path: Path, seed: int) -> None:
    """Change one column of one row: a flipped byte, another number, another row's value, or nothing at all."""
    random, db = Random(seed), apsw.Connection(str(path))
    ids = [row for (row,) in db.execute("SELECT id FROM log")]
    row, other = random.sample(ids, 2)
    column = random.choice((*TEXT, *BLOB, *NUMBERS))
    new = db.execute(f"SELECT {column} FROM log WHERE id=?", (other,)).get
    value = db.execute(f"SELECT {column} FROM log WHERE id=?", (row,)).get
    if isinstance(value, bytes) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        new = value[:at] + bytes((value[at] ^ 1 << random.randrange(8),)) + value[at + 1 :]
    elif isinstance(value, str) and value and random.random() < 0.8:
        at = random.randrange(len(value))
        new = value[:at] + random.choice('0a"x') + value[at + 1 :]
    elif isinstance(value, int):
        new = random.choice((value + 1, -1, None, new))
    with suppress(apsw.ConstraintError):
        db.execute(f"UPDATE log SET {column}=? WHERE id=?", (new, row))
    db.close()


def test_a_row_that_was_moved_to_another_space_is_named(filled: Path, tmp_path: Path) -> None:
    """Also where the index lists it under its own space, and every key of it is found there."""
    path = Path(shutil.copy(filled, tmp_path / "agents.db"))
    db = apsw.Connection(str(path))
    assert int(str(db.execute("SELECT value FROM meta WHERE name='indexed_upto'").get)) > 100
    db.execute("UPDATE log SET space = 1 WHERE id = 100")
    db.close()

    with perdure.open(str(path), read_only=True) as store:
        faults = store.verify().faults

    assert any("row 100 of the log is not found" in str(fault) for fault in faults), faults


def test_a_changeset_that_is_called_another_kind_is_named(path: Path) -> None:
    """A scan took the kind from the column, so this byte could change unseen; the pack's checksum is made again."""
    db = apsw.Connection(str(path))
    pack = decode_pack(bytes(db.execute("SELECT pack FROM log WHERE depth = 15").get))
    items = [msgspec.structs.astuple(item) for item in pack.items]
    unchanged = encode_pack(list(items), pack.op)
    at = next(at for at, item in enumerate(pack.items) if item.form == PackForm.CHANGESET)
    items[at] = (0, *items[at][1:])

    found: list[bool] = []
    for new in (unchanged, encode_pack(items, pack.op)):
        db.execute("UPDATE log SET pack = ? WHERE depth = 15", (new,))
        with perdure.open(str(path)) as store:
            found.append(store.verify().ok)
    db.close()

    assert found == [True, False]


@pytest.mark.parametrize(
    "edit",
    [
        """changeset = replace(changeset, '"op":"put"', '"op":"xut"')""",
        """changeset = replace(changeset, 'message.appended', 'message.uppended')""",
        (
            'changeset = replace(changeset, \'"body":""\', \'"body":"\' || lower(hex(substr(digests, 1, 32))) || \'"\'), '
            "digests = substr(digests, 33)"
        ),
        "digests = NULL",
        "digests = digests || digests",
        "fields = fields || x'c0'",
        "fields = x'92' || substr(fields, 2) || x'c0'",
        "fields = NULL",
    ],
)
def test_a_commit_in_another_form_is_named(path: Path, edit: str) -> None:
    """Also where it reads alike: what verify accepts is what a writer stores."""
    db = apsw.Connection(str(path))
    db.execute("UPDATE log SET changeset = changeset, digests = digests, fields = fields WHERE depth = 15")
    with perdure.open(str(path)) as store:
        assert store.verify().ok  # the control
    db.execute(f"UPDATE log SET {edit} WHERE depth = 15")
    db.close()

    with perdure.open(str(path)) as store:
        assert not store.verify().ok


@pytest.mark.parametrize("seed", range(sized(10, 120)))
def test_a_scan_says_of_each_row_what_a_look_at_that_row_alone_says(path: Path, seed: int) -> None:
    """The quick way through a batch of rows passes over nothing that the thorough one names."""
    _edited(path, seed)
    with perdure.open(str(path), read_only=True) as store:
        engine = store._resources.engine
        assert isinstance(engine, SqliteEngine)
        for space in engine.spaces(limit=9):
            facts, cursor = engine.scan(space, limit=100_000)

            assert cursor is None
            quick = [_plain(fact) for fact in facts if not _is_of_all_rows(fact)]
            assert quick == [_plain(fact) for fact in _row_by_row(engine, space)]


def _row_by_row(engine: SqliteEngine, space: str) -> list[Fact]:
    rows = engine._rows

    def read(db: Database) -> list[Fact]:
        numbers = rows.index.rows_of(db, engine._space(db, space) or 0, 0, 1_000)
        return [fact for number in numbers for fact in facts_of(db, rows, number)]

    return engine._read(read)


def _plain(fact: Fact) -> tuple[object, ...]:
    return fact.kind, fact.digest, fact.object and fact.object.body, fact.forgotten, fact.fault


def _is_of_all_rows(fact: Fact) -> bool:
    """True for faults that no row has alone: of the index, and of the order of writes."""
    return fact.fault is not None and ("index does not say" in fact.fault or "completes write" in fact.fault)


def _counted(path: Path) -> Counter[str]:
    """How often a verification calls a function, by its name, with SQL statements and all calls."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1
        elif event == "c_call":
            calls["SQL"] += getattr(argument, "__name__", "") == "execute"
        calls["all"] += event in ("call", "c_call")

    with perdure.open(str(path), read_only=True) as store:
        sys.setprofile(count)
        try:
            assert store.verify().ok
        finally:
            sys.setprofile(None)
    return calls


def _filled(path: Path, commits: int) -> Path:
    with perdure.open(str(path), durability="process_crash") as store:
        thread = store.thread("t", agent="a")
        for number in range(commits):
            with thread.change("count", run=f"run-{number}") as change:
                change.say("user", f"number {number}", id=f"m-{number}")
                change.put(f"/{number % 10}.json", {"number": number, "words": "some words " * 20})
    return path


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 300 commits, closed; a test that edits it copies it."""
    return _filled(tmp_path_factory.mktemp("filled") / "agents.db", 300)


def test_a_verification_decodes_each_row_once_with_few_statements(
    filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row is unpacked once and its changeset put together once; 300 rows take fewer than 150 statements."""
    calls = _counted(filled)

    assert 300 <= calls["decode_pack"] <= 320
    assert 300 <= calls["with_digests"] <= 320
    assert calls["SQL"] < 150
    monkeypatch.setattr(scan, "_ROWS_MAX", 1)  # the control: row by row it is many times that
    assert _counted(filled)["SQL"] > 300


def test_the_work_of_a_verification_grows_with_what_is_stored(filled: Path, tmp_path: Path) -> None:
    """Counted in calls: twice the commits are twice the work, however long the history is."""
    shorter = [_filled(tmp_path / f"{commits}.db", commits) for commits in (75, 150)]
    work = [_counted(path)["all"] for path in (*shorter, filled)]

    assert (work[2] - work[1]) / (work[1] - work[0]) == pytest.approx(2, rel=0.1)


def test_a_page_of_a_scan_is_bounded_in_bytes(tmp_path: Path) -> None:
    """Large rows come in small pages, whatever the limit of facts is."""
    with perdure.open(str(tmp_path / "agents.db")) as store:
        for number in range(40):
            store.thread("t", agent="a").put("/n.json", f"{number}" * 500_000)
        space = store.thread("t")._space
        sizes: list[int] = []
        cursor: int | None = 0
        while cursor is not None:
            facts, cursor = space.engine.scan(space.name, after=cursor, limit=100_000)
            sizes.append(sum(len(fact.object.body) for fact in facts if fact.object is not None))

    assert sum(sizes) > 30_000_000
    assert max(sizes) < 12_000_000

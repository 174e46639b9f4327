"""An ordinary write takes short ways of its own, and leaves every byte that the general ways leave.

There are three: a block ends in one function that makes its commit, the writer makes one commit without what a chain of
them needs, and the engine lays out and inserts the row of one commit in one pass.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast
from unittest import mock

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.engines.contract import CellWrite, Engine, Receipt, Step, Write
from perdure.engines.registry import open_engine
from perdure.engines.shared_rules import placed
from perdure.engines.sqlite.commit import apply, layout
from perdure.engines.sqlite.commit.apply import Applier
from perdure.engines.sqlite.commit.caches import ConnectionCache
from perdure.errors import Conflict, Invalid, Moved, NotFound, OpReused
from perdure.history import writer
from perdure.history.space import Space
from perdure.history.writer import Proposal
from perdure.model.digest import Object
from perdure.model.head import Head
from perdure.model.limits import Limits
from perdure.store.change import Change
from perdure.store.plumbing.handles import Ids, StoreResources
from perdure.store.store import Store

TABLES = ("spaces", "log", "heads", "cells", "entries")
PATHS = ("/plan", "/notes/a", "/notes/b", "/notes/b/c", "/n")

Act = tuple[Any, ...]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=60),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.builds(
    "x".__mul__, st.sampled_from((1_000, 6_000))
)
acts = st.one_of(
    st.tuples(st.just("say"), texts),
    st.tuples(st.just("put"), st.sampled_from(PATHS), values),
    st.tuples(st.just("both"), st.sampled_from(PATHS), values, texts),
    st.tuples(st.just("delete"), st.sampled_from(PATHS)),
    st.tuples(st.just("append"), st.sampled_from(PATHS), values),
    st.tuples(st.just("bytes"), st.sampled_from(PATHS), st.binary(max_size=5_000)),
    st.tuples(st.just("run"), st.sampled_from(("r1", "r2")), texts),
    st.tuples(st.just("fork"), st.sampled_from(("one", "two"))),
    st.tuples(st.just("on"), st.sampled_from(("one", "two")), values),
    st.tuples(st.just("undo")),
    st.tuples(st.just("agent"), st.sampled_from(PATHS), values),
    st.tuples(
        st.just("chain"), st.lists(st.tuples(st.sampled_from(PATHS), values, texts), min_size=2, max_size=3)
    ),
    st.tuples(st.just("name"), st.sampled_from(("graph:1", "sdk:é")), texts),
    st.tuples(st.just("again"), st.sampled_from(("first", "second")), values),
)


class Recording:
    """An engine that keeps what it is asked to apply and accepts."""

    def __init__(self, engine: Engine, taken: list[Write]) -> None:
        self._engine, self._taken = engine, taken

    def apply(self, write: Write) -> Receipt:
        receipt = self._engine.apply(write)
        self._taken.append(write)
        return receipt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def recorded(story: list[Act], *, ids: Callable[[], str] | None = None) -> list[Write]:
    """The writes of a program that does all this, as its engine got them; None makes new ids."""
    taken: list[Write] = []
    engine = open_engine("memory:", read_only=False, create=True, durability="power_loss")
    clock = iter(range(1_700_000_000_000_000, 1_800_000_000_000_000)).__next__
    resources = StoreResources(
        engine=cast("Engine", Recording(engine, taken)), clock=clock, ids=ids or Ids(clock), limits=Limits()
    )
    with Store(resources, "memory:", read_only=False) as store:
        thread = store.thread("t", agent="a")
        for act in story:
            try:
                _do(thread, act)
            except (NotFound, Invalid, Conflict, OpReused):
                continue  # the program was refused, so nothing was written
    return taken


def _do(thread: Any, act: Act) -> None:
    match act:
        case ("say", text):
            with thread.change("say") as change:
                change.say("user", text)
        case ("put", path, value):
            thread.put(path, value)
        case ("both", path, value, text):
            with thread.change("both") as change:
                change.say("assistant", text, provider="p", model="m")
                change.put(path, value)
        case ("delete", path):
            thread.delete(path)
        case ("append", path, value):
            with thread.change("append") as change:
                if not isinstance(change.get(path, default=None), list):
                    change.put(path, [])
                change.append(path, value)
        case ("bytes", path, value):
            thread.put(path, value)
        case ("run", run, text):
            with thread.change("user_message", run=run) as change:
                change.say("user", text)
        case ("fork", name):
            thread.fork(name)
        case ("on", name, value):
            thread.on(name).put("/here", value)
        case ("undo",):
            thread.undo()
        case ("agent", path, value):
            with thread.change("agent") as change:
                change.agent.put(path, value)
        case ("chain", steps):
            with thread.change("steps", chain="steps") as change:
                for path, value, text in steps:
                    change.put(path, value)
                    change.say("user", text)
                    change.step()
        case ("name", name, text):
            with thread.change("checkpoint") as change:
                change.name(name)
                change.name("graph:2")
                change.say("user", text)
        case ("again", op_id, value):
            thread.put("/again", value, op_id=op_id)
        case _:
            raise AssertionError(act)


def stored(writes: list[Write], directory: Path) -> tuple[dict[str, list[Any]], list[Receipt]]:
    """Every row of the tables after these writes, and their receipts."""
    path = directory / "perdure.db"
    engine = open_engine(str(path), read_only=False, create=True, durability="process_crash")
    try:
        receipts = [engine.apply(write) for write in writes]
    finally:
        engine.close()
    db = apsw.Connection(str(path))
    rows = {table: list(db.execute(f"SELECT * FROM {table} ORDER BY 1, 2")) for table in TABLES}
    db.close()
    return rows, receipts


@contextmanager
def general_path_only() -> Generator[None]:
    """Let the straight path give up on every write."""
    with mock.patch.object(Applier, "apply_ordinary", return_value=None):
        yield


def both_ways(story: list[Act]) -> tuple[Any, Any]:
    """What the straight path leaves, and what the general path leaves."""
    writes = recorded(story)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        straight = stored(writes, Path(one))
        with general_path_only():
            general = stored(writes, Path(other))
    return straight, general


@given(story=st.lists(acts, max_size=25))
@settings(deadline=None)
def test_both_paths_store_the_same(story: list[Act]) -> None:
    """Whatever a program does, both paths leave the same rows, digests, seals and receipts."""
    straight, general = both_ways(story)

    assert straight == general


STORY: list[Act] = [("say", "hello"), *[("both", "/plan", {"n": n}, f"step {n}") for n in range(6)]]


def straight_writes(story: list[Act]) -> list[bool]:
    """For each write that a program makes by the straight path, whether it was made there to its end."""
    taken: list[bool] = []
    real: Callable[..., Any] = Applier.apply_ordinary

    def noted(*given: Any) -> Any:
        applied = real(*given)
        taken.append(applied is not None)
        return applied

    with mock.patch.object(Applier, "apply_ordinary", noted), tempfile.TemporaryDirectory() as directory:
        stored(recorded(story), Path(directory))
    return taken


def test_most_writes_take_the_straight_path() -> None:
    """Without this the comparison would compare the general path with itself."""
    assert straight_writes(STORY).count(True) >= len(STORY) - 2


def test_words_that_were_said_before_take_the_straight_path() -> None:
    """A commit has its words in its own row, so it need not look for them in others."""
    assert straight_writes([("say", "yes")] * 8).count(False) == 0


def test_two_commits_at_once_take_the_straight_path() -> None:
    """The last write of a run has two commits; three are left to the general path."""
    steps = [(f"/n{n}", n, f"step {n}") for n in range(20)]

    two = straight_writes([("chain", steps[n : n + 2]) for n in range(0, 16, 2)])
    three = straight_writes([("say", "begin"), ("chain", steps[:3]), ("chain", steps[3:6])])

    assert two.count(True) >= 7
    assert len(three) <= 1


@pytest.fixture
def reopened(tmp_path: Path) -> Generator[tuple[Engine, list[Write]]]:
    """A store with a cell `old` that its present opening has not read, and the writes that are still to be applied."""
    writes, path = recorded(STORY), str(tmp_path / "perdure.db")
    space = writes[-1].space
    cell = CellWrite(name="old", expected=0, value=b"1")
    with closing(open_engine(path, read_only=False, create=True, durability="process_crash")) as engine:
        for write in writes[:-2]:
            engine.apply(write)
        engine.apply(Write(space=space, op_id="cell", intent=writes[-1].intent, cells=(cell,)))
    with closing(open_engine(path, read_only=False, create=True, durability="process_crash")) as engine:
        engine.apply(writes[-2])
        yield engine, writes[-1:]


def with_cell(write: Write, name: str) -> Write:
    """The same write with a cell that is to be new."""
    return msgspec.structs.replace(write, cells=(CellWrite(name=name, expected=0, value=b"2"),))


def test_a_new_cell_that_is_there_is_refused(reopened: tuple[Engine, list[Write]]) -> None:
    """The straight path does not look for a cell that is to be new; it is refused, and the write has changed nothing."""
    engine, (write,) = reopened

    with (
        mock.patch.object(
            Applier, "apply_ordinary", autospec=True, side_effect=Applier.apply_ordinary
        ) as tried,
        pytest.raises(Moved),
    ):
        engine.apply(with_cell(write, "old"))

    found = engine.cell(write.space, "old")
    assert tried.call_count == 1
    assert found is not None
    assert (found.revision, found.value) == (1, b"1")
    assert engine.apply(write).heads == (head_after(write),)


def test_a_new_cell_is_stored_without_being_read(reopened: tuple[Engine, list[Write]]) -> None:
    """Control: a cell that is not there yet is inserted by the straight path, and no statement reads it first."""
    engine, (write,) = reopened

    with mock.patch.object(ConnectionCache, "cell", side_effect=AssertionError("it was read")):
        engine.apply(msgspec.structs.replace(with_cell(write, "new"), fences=()))

    found = engine.cell(write.space, "new")
    assert found is not None
    assert (found.revision, found.value) == (1, b"2")


def head_after(write: Write) -> Head:
    """What the head of the timeline is after this write."""
    (move,) = write.moves
    assert move.expected is not None
    return Head(move.timeline, move.expected.version + 1, move.to)


def test_a_value_that_is_there_already_takes_the_general_path() -> None:
    """Control: a value or a node that a row has is not stored again, which only the general path can see to."""
    assert straight_writes([("put", "/n", n % 2) for n in range(8)]).count(False) > 0


@pytest.mark.parametrize(
    ("module", "rule"), [(apply, "sealed_rows"), (layout, "digest_of"), (layout, "version_key")]
)
def test_a_path_with_another_rule_is_noticed(module: Any, rule: str) -> None:
    """Control: if one of the two computes a part of a row in another way, the rows differ."""
    writes = recorded(STORY)
    real = getattr(module, rule)
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        with mock.patch.object(module, rule, lambda *given: _other(real(*given))):
            straight = stored(writes, Path(one))
        with general_path_only():
            general = stored(writes, Path(other))

    assert straight != general


def _other(found: Any) -> Any:
    return found + 1 if isinstance(found, int) else found[::-1]


def numbered() -> Callable[[], str]:
    """Ids that are the same each time."""
    return map("id-{:08}".format, count()).__next__


def chained(
    space: Space, onto: Head, proposals: Sequence[Proposal], at: int
) -> tuple[list[Step], tuple[Object, ...], tuple[CellWrite, ...]]:
    """The commits of proposals as the writer makes several of them, each with the place that the engines derive."""
    parent = None if onto.commit is None else space.step(onto.commit)
    steps, objects, cells, _ = writer._several(space, onto, parent, proposals, at)
    for above, step in zip([parent, *steps], steps, strict=False):
        before = (above.place, above.commit.run) if above else None
        assert step.place == placed(step.commit, before, len(above.changeset.events) if above else 0)
    return steps, objects, cells


@contextmanager
def blocks_in_general() -> Generator[None]:
    """Let every block end in the general way."""
    with mock.patch.object(Change, "_is_committed", return_value=False):
        yield


@given(story=st.lists(acts, max_size=25))
@settings(deadline=None)
def test_one_commit_is_made_as_several_are(story: list[Act]) -> None:
    """Whatever a program does, the writer asks the engine for the same writes as if each commit were one of a chain."""
    short = recorded(story, ids=numbered())

    with blocks_in_general(), mock.patch.object(writer, "_chain", chained):
        general = recorded(story, ids=numbered())

    assert short == general


def test_most_blocks_end_in_the_short_way() -> None:
    """Without this the comparison would compare the general way with itself."""
    with mock.patch.object(writer, "commit_ordinary", side_effect=writer.commit_ordinary) as short:
        recorded(STORY)

    assert short.call_count >= len(STORY) - 1


@pytest.mark.parametrize("rule", ["encode_changeset", "encode_commit"])
def test_a_block_that_ends_in_another_way_is_noticed(rule: str) -> None:
    """Control: if the short way encodes something otherwise, the writes differ."""
    with blocks_in_general():
        general = recorded(STORY, ids=numbered())
    real = getattr(writer, rule)

    with mock.patch.object(writer, rule, lambda given: real(given) + b" "):
        short = recorded(STORY, ids=numbered())

    assert short != general


def test_a_commit_without_its_cell_is_noticed() -> None:
    """Control: if the way for one proposal leaves a cell out, the writes differ."""
    story: list[Act] = [*STORY, ("agent", "/plan", 1)]
    general = recorded(story, ids=numbered())

    with mock.patch.object(writer, "_DELIVERED", frozenset[type]()):
        short = recorded(story, ids=numbered())

    assert short != general

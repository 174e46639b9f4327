from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pytest

from perdure.engines.contract import CellWrite, Engine, Fact, Write
from perdure.engines.memory import MemoryEngine, MemoryStore
from perdure.engines.sqlite import open_sqlite
from perdure.errors import Conflict, Forgotten
from perdure.history import artifacts, reader, retention, timelines
from perdure.history.retention import RetentionPlan, RetentionPolicy, SpaceRemoval
from perdure.history.retention.digest_set import Digests
from perdure.history.retention.planner import space_of
from perdure.history.space import ALIVE
from perdure.history.tree import EMPTY
from perdure.history.verify import verify
from perdure.history.writer import Proposal, commit
from perdure.model.artifact import CHUNK_BYTES
from perdure.model.commit import Reads
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.testing.engines.builders import SPACE, value, write
from tests.coded import raises
from tests.history.hand import Hand, damage, value_at
from tests.store.engine_calls import CountingEngine

DAY = 24 * 60 * 60 * 1_000_000
LARGE = Random(3).randbytes(6 * CHUNK_BYTES)
UNDONE = RetentionPolicy(undone_after_days=30)
STAGED = RetentionPolicy(staged_after_days=1)


def planned(hand: Hand, policy: RetentionPolicy, *, days: int = 60) -> RetentionPlan:
    """What the policy would remove so many days after the last commit."""
    return retention.plan(hand.engine, policy, hand.now + days * DAY)


def carried_out(hand: Hand, policy: RetentionPolicy, *, days: int = 60) -> Sequence[SpaceRemoval]:
    """RetentionPlan and carry out."""
    return retention.carry_out(hand.engine, planned(hand, policy, days=days), ids=hand.space.ids)


@pytest.fixture
def hand() -> Hand:
    """A line with an undone turn, gone on since."""
    hand = Hand()
    hand.write({"/kept": "kept", "/changed": "old"})
    hand.write({"/secret": "undone", "/shared": "shared"}, said=[])
    hand.undo()
    hand.now += DAY
    hand.write({"/changed": "new", "/copy": "shared"})
    return hand


def undone_of(hand: Hand) -> Digest:
    """The commit that was undone."""
    moves = hand.engine.moves(hand.space.name, "main", limit=999)
    return next(move.from_ for move in moves if move.act == "undo" and move.from_)


def test_without_a_policy_nothing_goes(hand: Hand) -> None:
    """Everything ever committed counts as reachable until the user says otherwise."""
    assert planned(hand, RetentionPolicy()).spaces == ()


def test_a_plan_changes_nothing(hand: Hand) -> None:
    """It says how much would go, of what, and why."""
    before = hand.engine.facts()

    plan = planned(hand, UNDONE)

    (space,) = plan.spaces
    assert {lot.why for lot in space.lots} == {"undone"}
    assert {lot.kind for lot in space.lots} == {"node", "value"}
    assert plan.count == space.count > 0
    assert plan.bytes > 0
    assert hand.engine.facts() == before


def test_what_was_undone_long_ago_goes_and_the_chain_still_verifies(hand: Hand) -> None:
    """Content becomes a tombstone; the commit, its changeset and the moves stay."""
    undone = undone_of(hand)

    (done,) = carried_out(hand, UNDONE)

    assert done.count > 0
    assert done.freed > 0
    with pytest.raises(Forgotten):
        value_at(hand.space, undone, "/secret")
    assert hand.space.step(undone).commit.reason == "by hand"
    assert verify(hand.engine).ok
    assert planned(hand, UNDONE).spaces == ()


def test_what_goes_is_what_the_plan_named_and_is_counted_apart_afterwards(hand: Hand) -> None:
    """The same objects and bytes in plan and removal; a check then counts them as forgotten and not as checked."""
    plan, before = planned(hand, UNDONE), verify(hand.engine)

    (done,) = carried_out(hand, UNDONE)

    after = verify(hand.engine)
    assert (done.count, done.bytes) == (plan.count, plan.bytes)
    assert (before.forgotten, after.forgotten) == (0, done.count)
    assert sum(before.checked.values()) - sum(after.checked.values()) >= done.count


def test_what_a_live_head_reaches_stays(hand: Hand) -> None:
    """The whole state, every state before it, and values that an undone commit had as well."""
    before = hand.state()
    history = [step.digest for step in reader.steps(hand.space, hand.head().commit)]

    carried_out(hand, UNDONE)

    fresh = Hand(hand.engine)
    assert fresh.state() == before
    assert value_at(fresh.space, history[-1], "/changed") == "old"
    assert value_at(fresh.space, history[0], "/copy") == "shared"


def test_what_was_undone_lately_stays(hand: Hand) -> None:
    """The time counts from the first commit that was made after the undo."""
    assert planned(hand, UNDONE, days=29).spaces == ()
    assert planned(hand, UNDONE, days=31).spaces != ()


def test_what_can_still_be_redone_stays(hand: Hand) -> None:
    """However old it is: no commit has come after the undo."""
    hand.write({"/late": "x"})
    hand.undo()

    carried_out(hand, UNDONE, days=10_000)

    timelines.redo(hand.space, "main", op_id="again")
    assert Hand(hand.engine).get("/late") == "x"


@pytest.mark.parametrize("keep", ["fork", "sealed", "merged"])
def test_every_kind_of_line_keeps_its_history(hand: Hand, keep: str) -> None:
    """A fork, a sealed line and a merged line are as live as main."""
    hand.fork("line", undone_of(hand))
    if keep == "sealed":
        timelines.seal(hand.space, "line", op_id="seal")
    if keep == "merged":
        hand.merge("line")

    assert planned(hand, UNDONE).spaces == ()


def test_what_the_ledger_and_cells_mention_stays(hand: Hand) -> None:
    """A reference is enough, wherever in the text it stands."""
    undone = undone_of(hand)
    secret = hand.space.tree_at(undone).get("/secret")
    assert secret is not None
    entry = msgspec.json.encode({"result": f"artifact://sha256/{secret.value}"})
    hand.engine.apply(Write(space=hand.space.name, op_id="ledger", intent=EMPTY, entries=(entry,)))

    carried_out(hand, UNDONE)

    assert hand.space.body(secret.value) == b'"undone"'


def test_what_an_outbox_names_stays_whole(hand: Hand) -> None:
    """A commit that is still to be taken over is needed with everything in it."""
    cell = CellWrite(name=f"outbox/{undone_of(hand)}", expected=0, value=b'{"depth":1}', listed=True)
    hand.engine.apply(Write(space=hand.space.name, op_id="outbox", intent=EMPTY, cells=(cell,)))

    assert planned(hand, UNDONE).spaces == ()


def test_what_another_space_has_read_stays(hand: Hand) -> None:
    """A thread's commit names the moment of the agent's map that it saw."""
    thread = Hand(hand.engine, "thread:2")
    reads = Reads(agent_commit=undone_of(hand))
    commit(thread.space, thread.head(), Proposal(reason="x", root=EMPTY, outside=reads), op_id="reads")

    assert planned(hand, UNDONE).spaces == ()


def test_a_commit_before_the_undone_one_that_others_have_read_stays(hand: Hand) -> None:
    """Of a line that was undone, what came after it goes."""
    agent = Hand(hand.engine, "agent:1")
    agent.write({"/a": "first"})
    read = agent.write({"/a": "read by a thread"})
    last = agent.write({"/a": "read by nobody"})
    for _ in range(3):
        agent.undo()
    agent.write({"/a": "now"})
    reads = Reads(agent_commit=read)
    commit(
        hand.space,
        hand.head(),
        Proposal(reason="x", root=hand.space.root_at(hand.head().commit), outside=reads),
        op_id="reads",
    )

    carried_out(hand, UNDONE)

    fresh = Hand(hand.engine, "agent:1")
    assert value_at(fresh.space, read, "/a") == "read by a thread"
    with pytest.raises(Forgotten):
        value_at(fresh.space, last, "/a")


def test_a_value_that_equals_a_chunk_of_an_undone_artifact_stays() -> None:
    """The same bytes are one object, whatever they are used for, and wherever it is stored."""
    tail = b"the last chunk"
    hand = Hand()
    hand.write({"/small": tail, **{f"/many/{number}": number for number in range(99)}})
    hand.write({"/large": LARGE + tail}, delete=["/small"])
    hand.undo()
    hand.write({"/many/7": "the node that names the small value is not written again"})

    carried_out(hand, UNDONE)

    assert Hand(hand.engine).get("/small") == tail
    assert verify(hand.engine).ok


def test_artifacts_go_with_the_commit_that_used_them_and_not_before() -> None:
    """A large value of an undone commit goes, chunks and all; a listed artifact stays."""
    hand = Hand()
    hand.write({"/a": 1})
    hand.write({"/large": LARGE})
    hand.undo()
    hand.write({"/a": 2})
    listed = artifacts.put(hand.space, [LARGE[CHUNK_BYTES:]])

    carried_out(hand, UNDONE)

    assert b"".join(artifacts.get(hand.space, listed)) == LARGE[CHUNK_BYTES:]
    report = verify(hand.engine)
    assert report.ok, report.faults
    gone = [fact.kind for fact in hand.engine.scan(hand.space.name, limit=999)[0] if fact.forgotten]
    assert sorted(gone) == ["artifact", "node", "value"]  # the one chunk that the listed artifact lacks


def test_an_abandoned_upload_goes_after_its_time() -> None:
    """Its chunks are forgotten, and it cannot be finished any more."""
    hand = Hand()
    staged = artifacts.stage(hand.space, [LARGE])

    assert planned(hand, STAGED, days=0).spaces == ()
    (done,) = carried_out(hand, STAGED, days=2)

    assert done.count == 4
    with raises(Conflict, "upload_expired"):
        artifacts.publish(hand.space, staged)


def test_an_upload_under_way_keeps_everything_that_is_staged() -> None:
    """What belongs to whom cannot be told before it is finished."""
    hand = Hand()
    artifacts.stage(hand.space, [LARGE])
    hand.now += 2 * DAY
    staged = artifacts.stage(hand.space, [LARGE[CHUNK_BYTES:]])

    carried_out(hand, STAGED, days=0)

    digest = artifacts.publish(hand.space, staged)
    assert b"".join(artifacts.get(hand.space, digest)) == LARGE[CHUNK_BYTES:]


def test_a_finished_upload_stays() -> None:
    """Listed artifacts and large values are no leftovers."""
    hand = Hand()
    hand.write({"/large": LARGE})
    artifacts.put(hand.space, [LARGE[1:]])

    assert planned(hand, RetentionPolicy(staged_after_days=0, undone_after_days=0), days=9).spaces == ()


def removed(hand: Hand) -> None:
    """Close the space, as removing a thread does."""
    cell = CellWrite(name=ALIVE, expected=0, value=b'{"removed_at":1}')
    hand.engine.apply(Write(space=hand.space.name, op_id="remove", intent=EMPTY, cells=(cell,)))


def test_a_removed_thread_is_dropped_only_if_the_policy_says_so(hand: Hand) -> None:
    """Until then it is all there."""
    removed(hand)
    assert planned(hand, UNDONE).spaces == ()

    (done,) = carried_out(hand, RetentionPolicy(removed_threads=True))

    assert done.dropped
    assert hand.engine.scan(hand.space.name, limit=9) == ([], None)
    assert planned(hand, RetentionPolicy(removed_threads=True)).spaces == ()


def test_a_removed_thread_with_an_open_outbox_is_left_alone(hand: Hand) -> None:
    """What it changed in its agent's map would be lost."""
    cell = CellWrite(name=f"outbox/{hand.head().commit}", expected=0, value=b'{"depth":1}', listed=True)
    hand.engine.apply(Write(space=hand.space.name, op_id="outbox", intent=EMPTY, cells=(cell,)))
    removed(hand)

    plan = planned(hand, RetentionPolicy(removed_threads=True))

    assert "has not taken over" in (plan.spaces[0].left_alone or "")
    assert retention.carry_out(hand.engine, plan, ids=hand.space.ids) == ()


def test_a_damaged_store_is_left_as_it_is(hand: Hand) -> None:
    """If an object cannot be read, it is unknown what it needs."""
    plan = planned(hand, UNDONE)
    damage(hand.engine, hand.space.name, hand.head().commit or EMPTY)

    (space,) = planned(hand, UNDONE).spaces
    (done,) = retention.carry_out(hand.engine, plan, ids=hand.space.ids)

    assert (space.count, done.count) == (0, 0)
    assert "is unknown" in (space.left_alone or "")
    assert "is unknown" in (done.left_alone or "")
    assert not [fact for fact in hand.engine.scan(hand.space.name, limit=999)[0] if fact.forgotten]


def test_a_line_that_began_after_the_plan_keeps_what_it_reaches(hand: Hand) -> None:
    """The plan is an estimate; what goes is decided on the spot."""
    plan = planned(hand, UNDONE)
    hand.fork("saved", undone_of(hand))

    (done,) = retention.carry_out(hand.engine, plan, ids=hand.space.ids)

    assert done.count == 0
    assert Hand(hand.engine).get("/secret", timeline="saved") == "undone"


class Racing(MemoryEngine):
    """An engine on which another process writes at the worst moment: between the check and the forgetting."""

    def __init__(self, store: MemoryStore, writes: Sequence[Callable[[], object]]) -> None:
        super().__init__(store)
        self._writes = list(writes)

    def forget(self, space: str, digests: Sequence[Digest], *, why: str, standing: int) -> int:
        if self._writes:
            self._writes.pop()()
        return super().forget(space, digests, why=why, standing=standing)


def test_a_value_that_somebody_commits_again_just_before_it_goes_stays(hand: Hand) -> None:
    """Also if it happens several times."""
    assert isinstance(hand.engine, MemoryEngine)
    again = [lambda: hand.write({"/other": "x"}), lambda: hand.write({"/secret": "undone"})]
    racing: Engine = Racing(hand.engine._store, again)

    (done,) = retention.carry_out(racing, planned(hand, UNDONE), ids=hand.space.ids)

    assert done.left_alone is None
    assert Hand(hand.engine).get("/secret") == "undone"
    assert verify(hand.engine).ok


def test_a_state_that_somebody_returns_to_just_before_it_goes_stays_whole(hand: Hand) -> None:
    """Nodes and values alike: a fork at the undone commit reads all of it."""
    assert isinstance(hand.engine, MemoryEngine)
    racing: Engine = Racing(hand.engine._store, [lambda: hand.fork("saved", undone_of(hand))])

    (done,) = retention.carry_out(racing, planned(hand, UNDONE), ids=hand.space.ids)

    assert (done.count, done.freed) == (0, 0)
    assert Hand(hand.engine).get("/secret", timeline="saved") == "undone"
    assert verify(hand.engine).ok


def undone_twice() -> tuple[Hand, Digest, Digest]:
    """A line of which two turns were undone, gone on since; and these two, which share a value."""
    hand = Hand()
    hand.write({"/kept": "kept"})
    first = hand.write({f"/k{at}": f"undone {at}" for at in range(12)}, said=[])
    second = hand.write({"/secret": "undone", "/k1": "again"}, said=[])
    hand.undo()
    hand.undo()
    hand.now += DAY
    hand.write({"/changed": "new"})
    return hand, first, second


def test_forgetting_that_stops_halfway_leaves_no_state_with_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state that only a later batch takes is whole until then; the control is one that is gone."""
    monkeypatch.setattr("perdure.history.retention.planner._BATCH_MAX", 1)
    monkeypatch.setattr("perdure.history.retention.planner._TOGETHER_MAX", 999)
    hand, first, second = undone_twice()
    assert isinstance(hand.engine, MemoryEngine)
    seen: list[object] = []

    def come_back() -> None:
        with pytest.raises(Forgotten):
            hand.fork("saved", second)
        seen.append(len(list(hand.space.tree_at(first).entries())))
        seen.append(value_at(hand.space, first, "/k7"))

    racing: Engine = Racing(hand.engine._store, [come_back, lambda: None])

    (done,) = retention.carry_out(racing, planned(hand, UNDONE), ids=hand.space.ids)

    assert (seen, done.left_alone) == ([13, "undone 7"], None)
    assert verify(hand.engine).ok


@pytest.mark.parametrize("together", [1, 999])
@pytest.mark.parametrize("batches", [1, 4])
def test_forgetting_that_stops_halfway_is_finished_by_the_next(
    monkeypatch: pytest.MonkeyPatch, batches: int, together: int
) -> None:
    """What is left is found again, wherever it stopped; one that was not interrupted is the control."""
    monkeypatch.setattr("perdure.history.retention.planner._BATCH_MAX", 1)
    monkeypatch.setattr("perdure.history.retention.planner._TOGETHER_MAX", together)
    left: list[int] = []
    for stops in (True, False):
        hand, _, _ = undone_twice()
        assert isinstance(hand.engine, MemoryEngine)
        races = (
            [partial(hand.write, {"/race": "another process"}), *[lambda: None] * (batches - 1)]
            if stops
            else []
        )
        racing: Engine = Racing(hand.engine._store, races)

        retention.carry_out(racing, planned(hand, UNDONE), ids=hand.space.ids)

        objects = hand.engine._store.spaces[hand.space.name].objects.values()
        left.append(sum(isinstance(each, Object) and b"undone" in each.body for each in objects))
        assert verify(hand.engine).ok
    assert left[0] == left[1]


def test_one_forgotten_object_among_many_costs_few_reads() -> None:
    """A batch that has it is read again in halves, and the others come in the order that was asked for."""
    engine, many = MemoryEngine(), [value(f"number {number}") for number in range(128)]
    engine.apply(write("op", *many))
    engine.forget(SPACE, [many[77].digest], why="a test", standing=engine.standing(SPACE))
    counting = CountingEngine(engine)

    found = space_of(cast("Engine", counting), SPACE).objects_there([each.digest for each in many])

    assert list(found) == [None if each is many[77] else each for each in many]
    assert counting.calls.count("objects") <= 1 + 2 * 7


class Restless(MemoryEngine):
    """An engine on which another process writes during every scan."""

    def __init__(self, store: MemoryStore, hand: Hand) -> None:
        super().__init__(store)
        self._hand = hand

    def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
        found = super().scan(space, after=after, limit=limit)
        if found[1] is None:
            self._hand.write({"/race": self._hand.now})
        return found


def test_a_space_that_never_stands_still_is_given_up(hand: Hand) -> None:
    """It is reported, and nothing was forgotten."""
    assert isinstance(hand.engine, MemoryEngine)
    plan = planned(hand, UNDONE)

    (done,) = retention.carry_out(Restless(hand.engine._store, hand), plan, ids=hand.space.ids)

    assert (done.count, done.left_alone) == (0, "other writers changed it during each attempt")
    assert value_at(hand.space, undone_of(hand), "/secret") == "undone"


def test_a_set_of_digests_is_exact() -> None:
    """It holds what was added and nothing else, in few bytes."""
    digests = [digest_of(Kind.VALUE, number.to_bytes(4, "big")) for number in range(20_000)]
    found = Digests()

    assert all(found.add(digest) for digest in digests[:10_000])
    assert not any(found.add(digest) for digest in digests[:10_000])
    assert all(digest in found for digest in digests[:10_000])
    assert not any(digest in found for digest in digests[10_000:])
    assert len(found) == 10_000
    assert sum(len(table) for table in found._tables) / len(found) < 45


def test_a_store_on_disk_forgets_and_still_verifies(tmp_path: Path) -> None:
    """What was undone and what was abandoned goes for good; what is live comes back after reopening."""
    hand = Hand(open_sqlite(tmp_path / "store.db"))
    hand.write({f"/many/{number}": "x" * 100 for number in range(200)})
    hand.write({"/secret": "undone" * 50, "/large": LARGE})
    hand.undo()
    hand.write({"/many/7": "new"})
    artifacts.stage(hand.space, [Random(4).randbytes(5 * CHUNK_BYTES)])
    before = hand.state()

    (done,) = carried_out(hand, RetentionPolicy(undone_after_days=1, staged_after_days=1))
    hand.engine.close()

    hand = Hand(open_sqlite(tmp_path / "store.db"))
    assert done.freed > len(LARGE)
    assert hand.state() == before
    assert verify(hand.engine).ok
    assert planned(hand, RetentionPolicy(undone_after_days=0, staged_after_days=0), days=99).spaces == ()
    hand.engine.close()


def test_what_was_forgotten_is_in_no_file_while_the_store_is_open(tmp_path: Path) -> None:
    """A server never closes its store, and the write-ahead log has every page as it was."""
    hand = _after_an_undone_secret(tmp_path)
    assert found_in_files(tmp_path, "never told")  # control

    carried_out(hand, RetentionPolicy(undone_after_days=1))

    assert not found_in_files(tmp_path, "never told")
    hand.engine.close()


def test_a_reader_keeps_the_log_only_until_the_next_checkpoint(tmp_path: Path) -> None:
    """Forgetting succeeds beside a reader of an old state; the next time that content goes, so do those bytes."""
    hand = _after_an_undone_secret(tmp_path)
    with reading_beside(tmp_path / "store.db"):
        carried_out(hand, RetentionPolicy(undone_after_days=1))
        assert found_in_files(tmp_path, "never told")
    hand.write({"/other": "undone"})
    hand.undo()
    hand.write({"/kept": "always"})

    carried_out(hand, RetentionPolicy(undone_after_days=1))

    assert not found_in_files(tmp_path, "never told")
    hand.engine.close()


def _after_an_undone_secret(directory: Path) -> Hand:
    hand = Hand(open_sqlite(directory / "store.db"))
    hand.write({"/kept": "here"})
    hand.write({"/secret": "undone and never told"})
    hand.undo()
    hand.write({"/kept": "still"})
    return hand


# In processes of their own: to close a file that SQLite has open drops its locks in this one.
READER = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    db.execute("BEGIN")
    print(db.execute("SELECT count(*) FROM log").fetchone(), flush=True)
    sys.stdin.read()
"""
SEARCHER = """
import pathlib, sys
files = [path for path in pathlib.Path(sys.argv[1]).iterdir() if path.is_file()]
print(*[path.name for path in files if sys.argv[2].encode() in path.read_bytes()])
"""


@contextmanager
def reading_beside(path: Path) -> Generator[None]:
    """Another process has a read transaction open."""
    command = [sys.executable, "-c", READER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield
        process.communicate()


def found_in_files(directory: Path, words: str) -> list[str]:
    """The files that hold these words."""
    command = [sys.executable, "-c", SEARCHER, str(directory), words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

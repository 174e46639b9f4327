"""The laws of forgetting: content goes, what names it stays; of scanning, which finds both; and of copying.

The writes of a space, replayed in another store, make an equal space, with what was forgotten in it.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from perdure.engines.contract import (
    Buried,
    Cell,
    CellWrite,
    Engine,
    Fact,
    Fence,
    Hold,
    Move,
    Rebuilt,
    Replay,
    Written,
)
from perdure.errors import Conflict, Forgotten, Invalid, Moved, NotFound, OpReused, StaleHead
from perdure.model.commit import Act, decode_commit, decode_move
from perdure.model.digest import Digest, Kind, Object
from perdure.model.head import Head
from perdure.model.names import moment_label
from perdure.testing.engines.builders import (
    SPACE,
    START,
    Pen,
    begun,
    made,
    move_digest,
    moved,
    portrait,
    value,
    write,
)
from perdure.testing.engines.subject import EngineSubject, raises

__all__ = ["RemovalLaws", "ReplayLaws"]

MILK, EGGS = value("milk " * 40), value("eggs " * 40)
SECRET = value("secret " * 40)
_ALL = 100_000


def scanned(engine: Engine, *, limit: int, space: str = SPACE, after: int = 0) -> list[Fact]:
    """Return all facts of a space, page by page."""
    facts, cursor = engine.scan(space, after=after, limit=limit)
    found = list(facts)
    while cursor is not None:
        facts, cursor = engine.scan(space, after=cursor, limit=limit)
        found += facts
    return found


class RemovalLaws(EngineSubject):
    """What `forget`, `drop` and `scan` promise."""

    @pytest.mark.parametrize(
        "kind", [Kind.VALUE, Kind.NODE, Kind.BODY, Kind.ARTIFACT, Kind.CHECKPOINT, Kind.LIST]
    )
    def test_a_forgotten_object_says_so_and_why(self, engine: Engine, kind: Kind) -> None:
        """Reading it raises `Forgotten` with the reason; its bytes are free."""
        secret = Object.of(kind, b"secret " * 40)
        engine.apply(write("op", secret))

        freed = engine.forget(SPACE, [secret.digest], why="user asked", standing=engine.standing(SPACE))

        assert freed > 0
        with raises(Forgotten, why="user asked") as refused:
            engine.objects(SPACE, [secret.digest])
        assert secret.digest in refused.value.what

    def test_forgetting_leaves_everything_else(self, engine: Engine) -> None:
        """Other objects, heads, cells and entries are as they were."""
        cell = CellWrite(name="lease", expected=0, value=b"x")
        first = made("milk")
        engine.apply(write("op", MILK, EGGS, first, moved(START, first), cell, b"{}"))
        before = portrait(engine)

        engine.forget(SPACE, [MILK.digest], why="user asked", standing=engine.standing(SPACE))

        assert portrait(engine) == before
        assert engine.objects(SPACE, [EGGS.digest])[0].body == EGGS.body
        assert engine.recorded(SPACE, "op") is not None

    def test_a_message_can_be_forgotten_while_its_history_is_read_on(self, engine: Engine) -> None:
        """A changeset holds digests; the words are objects of their own."""
        pen = Pen(engine)
        first = pen.commit("said", messages=["m-1", "m-2"])
        tip = pen.commit("eggs")
        one, two = first.objects[:2]

        engine.forget(SPACE, [one.digest], why="user asked", standing=engine.standing(SPACE))

        assert [step.digest for step in engine.steps(SPACE, tip.digest, limit=9)] == [
            tip.digest,
            first.digest,
        ]
        assert list(engine.labelled(SPACE, "m-1")) == [first.digest]
        assert engine.objects(SPACE, [two.digest])[0].body == two.body
        with pytest.raises(Forgotten):
            engine.objects(SPACE, [two.digest, one.digest])

    def test_a_large_object_that_was_forgotten_is_no_damage(self, engine: Engine) -> None:
        """An engine may store it in another way than small ones; it can be stored again."""
        large = Object.of(Kind.VALUE, bytes(at * at % 251 for at in range(400_000)))
        engine.apply(write("op", large, MILK))

        engine.forget(SPACE, [large.digest], why="user asked", standing=engine.standing(SPACE))

        assert [each.fault for each in scanned(engine, limit=9) if each.fault is not None] == []
        engine.apply(write("again", large, EGGS))
        assert engine.objects(SPACE, [large.digest])[0].body == large.body
        assert [each.fault for each in scanned(engine, limit=9) if each.fault is not None] == []

    def test_a_forgotten_object_is_not_missing(self, engine: Engine) -> None:
        """The space had it; its digest stays."""
        engine.apply(write("op", MILK))

        engine.forget(SPACE, [MILK.digest], why="user asked", standing=engine.standing(SPACE))

        assert list(engine.missing(SPACE, [MILK.digest, EGGS.digest])) == [EGGS.digest]

    def test_forgetting_again_frees_nothing_and_keeps_the_reason(self, engine: Engine) -> None:
        """The first reason is the true one."""
        engine.apply(write("op", MILK))
        engine.forget(SPACE, [MILK.digest], why="user asked", standing=engine.standing(SPACE))

        freed = engine.forget(SPACE, [MILK.digest], why="too old", standing=engine.standing(SPACE))

        assert freed == 0
        with raises(Forgotten, why="user asked"):
            engine.objects(SPACE, [MILK.digest])

    def test_what_proves_the_chain_cannot_be_forgotten(self, engine: Engine) -> None:
        """Commits and changesets stay, and so does all else in a call that names one of them."""
        first = made("milk")
        engine.apply(write("op", MILK, first, moved(START, first)))

        for digest in (first.digest, first.commit.changeset):
            with raises(Invalid, digest=digest):
                engine.forget(SPACE, [MILK.digest, digest], why="too old", standing=engine.standing(SPACE))

        assert engine.objects(SPACE, [MILK.digest])[0].body == MILK.body
        assert [step.digest for step in engine.steps(SPACE, first.digest, limit=1)] == [first.digest]

    def test_forgetting_nothing_frees_nothing(self, engine: Engine) -> None:
        """What is not there is not an error: it is as forgotten as it can be."""
        engine.apply(write("op", MILK, space="theirs"))

        assert engine.forget(SPACE, [], why="too old", standing=engine.standing(SPACE)) == 0
        assert engine.forget(SPACE, [MILK.digest], why="too old", standing=engine.standing(SPACE)) == 0
        assert engine.objects("theirs", [MILK.digest])[0].body == MILK.body
        with pytest.raises(NotFound) as refused:
            engine.objects(SPACE, [MILK.digest])
        assert not isinstance(refused.value, Forgotten)

    def test_a_forgotten_object_that_is_written_again_is_there_again(self, engine: Engine) -> None:
        """A new action may have the same content; it must not be lost because an old one was forgotten."""
        engine.apply(write("op-1", MILK))
        engine.forget(SPACE, [MILK.digest], why="too old", standing=engine.standing(SPACE))

        engine.apply(write("op-2", MILK))

        assert engine.objects(SPACE, [MILK.digest])[0].body == MILK.body

    def test_what_resembles_a_forgotten_object_is_still_whole(self, engine: Engine) -> None:
        """An engine that stores differences must not lose what was built on the forgotten bytes."""
        text = "".join(f"line {number} of a document\n" for number in range(100))
        chain = [value(text)]
        for number in range(5):
            chain.append(value(text.replace(f"line {number} ", "changed "), base=chain[-1]))
        engine.apply(write("op", *chain))

        engine.forget(
            SPACE, [chain[0].digest, chain[2].digest], why="too old", standing=engine.standing(SPACE)
        )

        kept = [each for index, each in enumerate(chain) if index not in (0, 2)]
        assert [each.body for each in engine.objects(SPACE, [each.digest for each in kept])] == [
            each.body for each in kept
        ]

    def test_many_objects_are_forgotten_at_once(self, engine: Engine) -> None:
        """The size of a batch is not bounded by what a database takes as parameters."""
        many = [value(f"value {number}") for number in range(1_100)]
        engine.apply(write("op", *many))

        engine.forget(
            SPACE, [each.digest for each in many[1:]], why="too old", standing=engine.standing(SPACE)
        )

        assert engine.objects(SPACE, [many[0].digest])[0].body == b"value 0"
        with raises(Forgotten, why="too old"):
            engine.objects(SPACE, [many[-1].digest])

    def test_standing_grows_with_every_write_of_the_space(self, engine: Engine) -> None:
        """Whatever the write holds; not with refused or repeated ones, nor with those of other spaces."""
        cell = CellWrite(name="lease", expected=0, value=b"x")
        first = made("milk")
        writes = [write("op-1", MILK), write("op-2", cell), write("op-3", b"{}"), write("op-4", first)]
        writes += [write("op-5", moved(START, first)), write("op-6", MILK), write("op-7")]
        stood = [engine.standing(SPACE)]

        for each in writes:
            engine.apply(each)
            stood.append(engine.standing(SPACE))
        engine.apply(writes[0])
        engine.apply(write("op-1", MILK, space="theirs"))
        with pytest.raises(Conflict):
            engine.apply(write("op-8", cell))

        assert stood == sorted(set(stood))
        assert engine.standing(SPACE) == stood[-1]
        assert (stood[0], engine.standing("nowhere")) == (0, 0)

    @pytest.mark.parametrize("what", ["the same value", "another value", "a move", "a cell", "an entry"])
    def test_nothing_is_forgotten_once_anything_was_written(self, engine: Engine, what: str) -> None:
        """The writer may need it, also if what it wrote was already there."""
        first = made("milk")
        engine.apply(write("op-1", MILK, first))
        standing = engine.standing(SPACE)
        later = {
            "the same value": MILK,
            "another value": EGGS,
            "a move": moved(START, first),
            "a cell": CellWrite(name="lease", expected=0, value=b"x"),
            "an entry": b"{}",
        }
        engine.apply(write("op-2", later[what]))

        with raises(Conflict, code="written_since", space=SPACE):
            engine.forget(SPACE, [MILK.digest], why="too old", standing=standing)

        assert engine.objects(SPACE, [MILK.digest])[0].body == MILK.body
        assert engine.cell(SPACE, "gc") is None

    def test_several_batches_can_be_forgotten_after_one_look(self, engine: Engine) -> None:
        """Forgetting is no write; nor is what others write to their own spaces."""
        engine.apply(write("op", MILK, EGGS))
        standing = engine.standing(SPACE)

        engine.forget(SPACE, [MILK.digest], why="too old", standing=standing)
        engine.apply(write("op", MILK, space="theirs"))
        engine.forget(SPACE, [EGGS.digest], why="too old", standing=standing)

        for gone in (MILK, EGGS):
            with pytest.raises(Forgotten):
                engine.objects(SPACE, [gone.digest])

    def test_a_fence_tells_that_something_was_forgotten(self, engine: Engine) -> None:
        """The cell `gc` counts it, without a value; an earlier reader is refused."""
        engine.apply(write("op-1", MILK, EGGS))
        standing = engine.standing(SPACE)
        engine.apply(write("op-2", Fence("gc", 0), space=SPACE))
        with pytest.raises(Conflict):
            engine.forget(SPACE, [MILK.digest], why="too old", standing=standing)
        for revision, gone in ((1, MILK), (2, EGGS)):
            engine.forget(SPACE, [gone.digest], why="too old", standing=engine.standing(SPACE))

            assert engine.cell(SPACE, "gc") == Cell(SPACE, "gc", revision, None)
        engine.forget(SPACE, [gone.digest], why="too old", standing=engine.standing(SPACE))

        assert list(engine.cells(SPACE, limit=9)) == []
        engine.apply(write("op-3", Fence("gc", 2)))
        with raises(Moved, cell="gc", expected=1, actual=2):
            engine.apply(write("op-4", Fence("gc", 1)))

    def test_a_dropped_space_is_empty(self, engine: Engine) -> None:
        """Objects, heads, cells, names and ledger are gone."""
        cell = CellWrite(name="thread", expected=0, value=b"x", listed=True)
        first = made("milk", run="run-1", messages=["m-1"])
        engine.apply(write("op", MILK, first, moved(START, first), cell, b"{}"))

        freed = engine.drop(SPACE, why="user asked")

        assert freed > 0
        assert engine.hold(SPACE, "main") == Hold(START)
        for listing in ("holds", "moves", "commits", "cells", "listed", "entries"):
            assert portrait(engine)[listing] == []
        assert list(engine.labelled(SPACE, "m-1")) == []
        for digest in (MILK.digest, first.digest):
            with pytest.raises(NotFound):
                engine.objects(SPACE, [digest])
        with pytest.raises(NotFound):
            engine.steps(SPACE, first.digest, limit=1)

    def test_a_write_of_a_dropped_space_is_never_made_again(self, engine: Engine) -> None:
        """Its op_ids stay: repeating one raises `Forgotten`."""
        first = made("milk")
        engine.apply(write("op", first, moved(START, first)))
        engine.drop(SPACE, why="user asked")

        with pytest.raises(Forgotten) as refused:
            engine.apply(write("op", first, moved(START, first)))
        with pytest.raises(Forgotten):
            engine.recorded(SPACE, "op")

        assert refused.value.why == "user asked"
        assert engine.hold(SPACE, "main") == Hold(START)

    def test_dropping_leaves_other_spaces(self, engine: Engine) -> None:
        """A space is dropped alone."""
        for space in (SPACE, "theirs"):
            Pen(engine, space=space).commit("milk", messages=["m-1"])
        before = portrait(engine, "theirs")

        engine.drop(SPACE, why="user asked")

        after = portrait(engine, "theirs")
        assert before | {"spaces": []} == after | {"spaces": []}

    def test_a_dropped_space_can_be_written_again(self, engine: Engine) -> None:
        """It begins at version 0 and position 1, with nothing of what it was."""
        first = made("milk", messages=["m-1"])
        engine.apply(write("op-1", first, moved(START, first), b"1", b"2"))
        engine.drop(SPACE, why="user asked")

        receipt = engine.apply(write("op-2", first, moved(START, first), b"3"))

        assert (receipt.heads[0].version, receipt.position) == (1, 1)
        assert list(engine.labelled(SPACE, "m-1")) == [first.digest]
        assert list(engine.commits(SPACE, "", limit=9)) == [first.digest]

    def test_cells_of_a_dropped_space_go_on_counting(self, engine: Engine) -> None:
        """They are emptied by one more revision, so that a fence from before the drop is refused."""
        engine.apply(write("op-1", CellWrite(name="lease", expected=0, value=b"x", listed=True)))

        engine.drop(SPACE, why="user asked")

        assert engine.cell(SPACE, "lease") == Cell(SPACE, "lease", 2, None)
        with raises(Moved, cell="lease", expected=1, actual=2):
            engine.apply(write("op-2", Fence("lease", 1), MILK))

    def test_dropping_again_changes_nothing(self, engine: Engine) -> None:
        """The first reason stays, and a space that was never written does not come to be."""
        engine.apply(write("op", MILK))
        engine.drop(SPACE, why="user asked")

        engine.drop(SPACE, why="too old")

        assert engine.drop("nowhere", why="too old") == 0
        assert list(engine.spaces(limit=9)) == [SPACE]
        with raises(Forgotten, why="user asked"):
            engine.recorded(SPACE, "op")

    @pytest.mark.parametrize("limit", [1, 2, 7, 1_000])
    def test_a_scan_finds_everything_whatever_its_steps(self, engine: Engine, limit: int) -> None:
        """Objects, changesets, commits and moves all come by, each with its bytes."""
        pen = Pen(engine)
        written = [
            each
            for number in range(5)
            for each in pen.commit(f"n {number}", messages=[f"m-{number}"]).objects
        ]
        written += [MILK, EGGS]
        engine.apply(write("op", MILK, EGGS))
        bodies: dict[Digest | None, bytes] = {each.digest: each.body for each in written}
        moves = {move_digest(record) for record in engine.moves(SPACE, "main", limit=9)}

        facts = scanned(engine, limit=limit)

        found = {fact.digest: fact.object and fact.object.body for fact in facts}
        assert set(found) == set(bodies) | moves
        assert {digest: found[digest] for digest in bodies} == bodies
        assert all(fact.fault is None and fact.forgotten is None for fact in facts)

    @pytest.mark.parametrize("limit", [1, 7, 1_000])
    def test_a_scan_after_a_standing_returns_what_was_written_since(self, engine: Engine, limit: int) -> None:
        """So a caller can go on where an earlier scan ended, and can tell what came while it read."""
        pen = Pen(engine)
        pen.commit("before")
        standing = engine.standing(SPACE)
        assert engine.scan(SPACE, after=standing, limit=limit)[0] == []
        written = {each.digest for each in pen.commit("after").objects}

        facts = scanned(engine, limit=limit, after=standing)

        assert written <= {fact.digest for fact in facts}
        assert {fact.digest for fact in facts if fact.kind == "commit"} <= written

    def test_a_scan_sees_one_space(self, engine: Engine) -> None:
        """What others have does not come by."""
        engine.apply(write("op", MILK, space="theirs"))
        engine.apply(write("op", EGGS))

        assert [fact.digest for fact in scanned(engine, limit=1)] == [EGGS.digest]
        assert scanned(engine, limit=1, space="nowhere") == []

    def test_a_scan_tells_what_was_forgotten(self, engine: Engine) -> None:
        """A tombstone is a fact, with its reason and without a fault."""
        engine.apply(write("op", MILK, EGGS))
        engine.forget(SPACE, [MILK.digest], why="user asked", standing=engine.standing(SPACE))

        facts = {fact.digest: fact for fact in scanned(engine, limit=1)}

        gone = facts[MILK.digest]
        assert (gone.kind, gone.object, gone.forgotten, gone.fault) == ("value", None, "user asked", None)
        kept = facts[EGGS.digest].object
        assert kept is not None
        assert kept.body == EGGS.body


def written(engine: Engine, *, limit: int = _ALL, after: int = 0, space: str = SPACE) -> list[Written]:
    """Return all writes of a space, page by page."""
    page, cursor = engine.writes(space, after=after, limit=limit)
    found = list(page)
    while cursor is not None:
        page, cursor = engine.writes(space, after=cursor, limit=limit)
        found += page
    return found


def replay_of(source: Engine, each: Written, position: int, *, space: str = SPACE) -> Replay:
    """Return the replay of a write, whose ledger entries come after `position`."""
    assert each.recorded is not None
    objects: list[Object] = []
    moves: list[Move] = []
    has: set[Digest] = set()
    for fact in each.facts:
        found = fact.object
        if found is None:
            assert fact.digest is not None
            objects.append(Buried(Kind(fact.kind), fact.digest, b"", why=fact.forgotten or ""))
        elif found.kind is Kind.MOVE:
            record = decode_move(found.body)
            head = Head(record.timeline, record.version - 1, record.from_) if record.version else None
            moves.append(
                Move(
                    act=record.act,
                    timeline=record.timeline,
                    expected=head,
                    to=record.to,
                    seal=record.sealed,
                )
            )
        else:
            if found.kind is Kind.COMMIT and (changeset := decode_commit(found.body).changeset) not in has:
                objects += source.objects(space, [changeset])
            has.add(found.digest)
            objects.append(found)
    receipt = each.recorded.receipt
    entries = source.entries(space, after=position, before=receipt.position + 1, limit=_ALL)
    return Replay(
        space=space,
        op_id=each.op_id,
        intent=each.recorded.intent,
        objects=tuple(objects),
        moves=tuple(moves),
        entries=tuple(entry.body for entry in entries),
        revisions=receipt.revisions,
    )


def replayed(source: Engine, target: Engine) -> list[Replay]:
    """Replay a whole space, compare the receipts, and write its cells; return the replays."""
    found: list[Replay] = []
    position = 0
    for each in written(source):
        found.append(replay_of(source, each, position))
        assert each.recorded is not None
        assert target.apply(found[-1]) == each.recorded.receipt
        position = max(position, each.recorded.receipt.position)
    target.reseal(SPACE, source.stored_cells(SPACE, limit=_ALL))
    return found


def _put(name: str, expected: int, body: bytes | None, *, listed: bool = False) -> CellWrite:
    return CellWrite(name=name, expected=expected, value=body, listed=listed)


def _filled(engine: Engine) -> None:
    """Write a history with all that a write can have: forks, an undo, a seal, cells of all kinds, a ledger, tombstones."""
    first = made("milk", messages=["m1"])
    second = made("eggs", first, run="run-1", messages=["m2"], names=["graph:1"])
    third = made("bread", second, run="run-1")
    again = made("milk", first, messages=["m1"])  # the same changeset as the first
    engine.apply(write("op-1", SECRET, first, moved(START, first), _put("lease", 0, b"ann"), b"{}"))
    engine.apply(
        write(
            "op-2",
            second,
            third,
            moved(Head("main", 1, first.digest), third),
            _put("lease", 1, None),
            b"{}",
            b"[]",
        )
    )
    engine.apply(
        write("op-3", begun("side", second), moved(Head("main", 2, third.digest), first, act=Act.UNDO))
    )
    engine.apply(write("op-4", _put("mark", 0, b"x", listed=True), _put("other", 0, "héllo\0".encode())))
    engine.apply(write("op-5", again, moved(Head("side", 0, second.digest), again, seal=True)))
    engine.apply(write("op-6", value("eggs " * 2_000), _put("mark", 1, b"y", listed=True), b"{}"))
    engine.forget(SPACE, [SECRET.digest], why="asked", standing=engine.standing(SPACE))


class ReplayLaws(EngineSubject):
    """What `writes`, `stored_cells`, `Replay` and `reseal` promise to a copy."""

    @pytest.fixture
    def copy(self, tmp_path: Path) -> Generator[Engine]:
        """Open another new, empty store."""
        (tmp_path / "copy").mkdir()
        engine = self.open(tmp_path / "copy")
        yield engine
        engine.close()

    def test_a_replayed_space_is_equal(self, engine: Engine, copy: Engine) -> None:
        """Timelines, moves, commits, cells, ledger, objects and receipts are the same, and it is sealed."""
        _filled(engine)

        replayed(engine, copy)

        assert portrait(copy) == portrait(engine)
        assert copy.stored_cells(SPACE, limit=_ALL) == engine.stored_cells(SPACE, limit=_ALL)
        assert [each.recorded for each in written(copy)] == [each.recorded for each in written(engine)]
        tip = engine.commits(SPACE, "", limit=_ALL)[-1]
        assert copy.steps(SPACE, tip, limit=_ALL) == engine.steps(SPACE, tip, limit=_ALL)
        for label in ("m1", moment_label("graph:1")):
            assert len(engine.labelled(SPACE, label)) > 0
            assert copy.labelled(SPACE, label) == engine.labelled(SPACE, label)
        copy.check(SPACE, again=True)

    def test_a_space_goes_on_as_its_original(self, engine: Engine, copy: Engine) -> None:
        """The same write makes the same receipt in both."""
        _filled(engine)
        replayed(engine, copy)
        hold = engine.hold(SPACE, "main")
        assert hold is not None
        later = write("op-7", moved(hold.head, None, act=Act.UNDO), _put("lease", 2, b"bob"), b"{}")

        assert copy.apply(later) == engine.apply(later)

        assert portrait(copy) == portrait(engine)

    def test_an_op_id_is_known_in_the_copy(self, engine: Engine, copy: Engine) -> None:
        """The original write again returns the original receipt, another intent is refused."""
        _filled(engine)
        replayed(engine, copy)
        before = copy.standing(SPACE)

        again = write("op-4", _put("mark", 0, b"x", listed=True), _put("other", 0, "héllo\0".encode()))

        assert copy.apply(again) == engine.apply(again)
        assert copy.standing(SPACE) == before
        with pytest.raises(OpReused):
            copy.apply(write("op-4", intent="something else"))

    def test_a_replay_again_changes_nothing(self, engine: Engine, copy: Engine) -> None:
        """However often it is repeated."""
        _filled(engine)
        replays = replayed(engine, copy)
        before = portrait(copy), copy.standing(SPACE)

        for each in replays:
            copy.apply(each)

        assert (portrait(copy), copy.standing(SPACE)) == before

    def test_a_replay_without_the_writes_before_it_is_refused(self, engine: Engine, copy: Engine) -> None:
        """Control: a replay is checked as any write."""
        _filled(engine)
        second = written(engine)[1]

        with pytest.raises(StaleHead):
            copy.apply(replay_of(engine, second, 1))

        assert copy.standing(SPACE) == 0

    def test_a_replay_under_another_op_id_is_another_write(self, engine: Engine, copy: Engine) -> None:
        """Control: only the op_id keeps a repeated replay from adding to the ledger again."""
        engine.apply(write("op-1", b"{}"))
        (replay,) = replayed(engine, copy)

        copy.apply(msgspec.structs.replace(replay, op_id="another"))

        assert copy.ledger(SPACE).position == 2

    def test_what_was_forgotten_is_forgotten_in_the_copy(self, engine: Engine, copy: Engine) -> None:
        """Its digest stays, with the reason; it is not missing."""
        _filled(engine)

        replayed(engine, copy)

        assert copy.missing(SPACE, [SECRET.digest]) == []
        with pytest.raises(Forgotten) as gone:
            copy.objects(SPACE, [SECRET.digest])
        assert gone.value.why == "asked"

    @pytest.mark.parametrize("limit", [1, 2, 5, 40])
    def test_pages_leave_nothing_out(self, engine: Engine, limit: int) -> None:
        """Whatever the limit is, each write comes once, whole and in order."""
        _filled(engine)

        found = written(engine, limit=limit)

        assert found == written(engine)
        assert [each.op_id for each in found] == [f"op-{number}" for number in range(1, 7)]

    def test_a_standing_is_a_cursor(self, engine: Engine) -> None:
        """After it come the writes that became true since."""
        _filled(engine)
        standing = engine.standing(SPACE)

        assert written(engine, after=standing) == []
        engine.apply(write("op-7", b"{}"))

        assert [each.op_id for each in written(engine, after=standing)] == ["op-7"]

    def test_writes_of_a_forgotten_space_say_so(self, engine: Engine) -> None:
        """Their op_ids are left, and why."""
        _filled(engine)

        engine.drop(SPACE, why="removed")

        found = written(engine)
        assert [each.op_id for each in found] == [f"op-{number}" for number in range(1, 7)]
        assert {each.forgotten for each in found} == {"removed"}
        assert all(each.recorded is None and not each.facts for each in found)

    def test_stored_cells_are_all_cells(self, engine: Engine) -> None:
        """Emptied ones too, with revision and position, page by page."""
        _filled(engine)
        every = engine.stored_cells(SPACE, limit=_ALL)

        assert [(cell.name, cell.revision, cell.listed) for cell in every] == [
            ("gc", 1, False),
            ("lease", 2, False),
            ("mark", 2, True),
            ("other", 1, False),
        ]
        assert every[1] == Rebuilt(name="lease", value=None, position=3, revision=2)
        assert list(engine.stored_cells(SPACE, after="gc", limit=2)) == list(every)[1:3]

    def test_a_cell_goes_on_from_the_revision_that_it_was_given(self, engine: Engine) -> None:
        """A fence on an earlier revision fails, the next write counts on."""
        engine.apply(write("op-1"))
        engine.reseal(SPACE, [Rebuilt(name="lease", value=None, revision=7)])

        with pytest.raises(Moved):
            engine.apply(write("op-2", Fence("lease", 0)))

        assert engine.apply(write("op-3", _put("lease", 7, b"ann"))).revisions == (8,)
        engine.check(SPACE, again=True)

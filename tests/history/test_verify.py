from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.engines.contract import CellWrite, Fact, Hold, LedgerEntry, Move, Write
from perdure.engines.memory import MemoryEngine, MemoryStore
from perdure.errors import Unavailable
from perdure.history import artifacts, timelines
from perdure.history.changes import patch_builder
from perdure.history.tree import EMPTY
from perdure.history.verify import VerifyReport, verify
from perdure.model.artifact import CHUNK_BYTES
from perdure.model.commit import Act, Changeset, Commit, LedgerRead, encode_changeset, encode_commit
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import MessageAppended, ToolCallRequested
from perdure.model.head import Head
from perdure.model.patch import Delete, Edit, Patch, Put
from tests.crash.campaign import sized
from tests.history.hand import Hand, damage


@pytest.fixture
def hand() -> Hand:
    """A space with some of everything."""
    hand = Hand()
    hand.write({f"/many/{number}": number for number in range(200)})
    hand.say("user", "hello", run="run-1")
    hand.call("call-1", "book")
    hand.write({"/doc": {"n": 1, "list": []}})
    hand.write(edit=[("/doc", "increment", ("n",), 2), ("/doc", "append", ("list",), 1)])
    hand.fork("other", hand.head().commit)
    hand.write({"/a": 1}, timeline="other")
    hand.merge("other")
    hand.undo()
    hand.write({"/b": 1}, clear=["/many"])
    artifacts.put(hand.space, [Random(1).randbytes(2 * CHUNK_BYTES)])
    entries = (b'{"call":"call-1"}', b'{"call":"call-2"}')
    hand.engine.apply(Write(space=hand.space.name, op_id="ledger", intent=EMPTY, entries=entries))
    hand.write({"/c": 1})
    return hand


def faults(hand: Hand) -> list[tuple[str, str | None]]:
    """Kind and name of every fault."""
    return [(fault.kind, fault.digest or fault.name) for fault in verify(hand.engine).faults]


def test_a_sound_store_has_no_faults(hand: Hand) -> None:
    """Everything is looked at, and nothing is written."""
    before = hand.engine.facts()

    report = verify(hand.engine)

    assert report.ok, [str(fault) for fault in report.faults]
    assert report.unchecked == 0
    assert {"artifact", "body", "cell", "changeset", "commit", "entry", "head", "move", "node"} <= set(
        report.checked
    )
    assert report.checked["commit"] == 9
    assert hand.engine.facts() == before


def test_an_empty_store_is_sound() -> None:
    """There is nothing that could be wrong."""
    assert verify(MemoryEngine()).ok


@pytest.mark.parametrize(
    "kind", [Kind.VALUE, Kind.NODE, Kind.BODY, Kind.CHANGESET, Kind.COMMIT, Kind.MOVE, Kind.ARTIFACT]
)
def test_one_flipped_bit_is_named(hand: Hand, kind: Kind) -> None:
    """Whatever kind of object it is in."""
    stored = [fact.digest for fact in hand.engine.scan(hand.space.name, limit=10_000)[0] if fact.kind == kind]
    assert stored[0]
    damage(hand.engine, hand.space.name, stored[0])

    assert (kind, stored[0]) in faults(hand)


def test_what_is_missing_is_named_by_what_names_it(hand: Hand) -> None:
    """Values, nodes, bodies, chunks, changesets and parents; some of each kind, with `PERDURE_DEEP=1` all."""
    objects = store_of(hand).spaces[hand.space.name].objects
    kinds = {stored.kind for stored in objects.values()} - {Kind.MOVE}
    of_kind = [[digest for digest, stored in objects.items() if stored.kind == kind] for kind in kinds]
    for digest in [digest for found in of_kind for digest in found[:: sized(len(found) // 5 + 1, 1)]]:
        taken = objects.pop(digest)

        report = verify(hand.engine)

        assert any(digest in fault.what for fault in report.faults) or taken.kind in (
            Kind.COMMIT,
            Kind.ARTIFACT,
        )
        assert (
            not report.ok or taken.kind == Kind.ARTIFACT
        )  # an artifact that is only listed has nothing to name it
        objects[digest] = taken


def test_a_state_that_does_not_follow_from_its_patch_is_found(hand: Hand) -> None:
    """The root is computed again from the parent's and the patch."""
    head = hand.head()
    before = hand.space.step(head.commit or EMPTY)
    value = Object.of(Kind.VALUE, b"2")
    forged = forge(
        hand,
        Changeset(reason="x", patch=Patch((Put("/c", value.digest, 1),))),
        root=before.commit.root,
        objects=[value],
    )

    report = verify(hand.engine)

    assert [(fault.kind, fault.digest) for fault in report.faults] == [("commit", forged)]
    assert "leads to the state" in report.faults[0].what


def test_a_patch_that_does_not_fit_is_found(hand: Hand) -> None:
    """Deleting what is not there could never have been committed."""
    forged = forge(hand, Changeset(reason="x", patch=Patch((Delete("/nowhere"),))))

    assert faults(hand) == [("commit", forged)]


def test_a_document_op_that_leaves_something_else_is_found(hand: Hand) -> None:
    """The tree fits the recorded digest, but running the op again gives another one."""
    step = hand.space.step(hand.head().commit or EMPTY)
    argument, lie = Object.of(Kind.VALUE, b"5"), Object.of(Kind.VALUE, b'{"n":99}')
    op = Edit("/doc", "increment", ("n",), lie.digest, len(lie.body), argument.digest)
    root, nodes = patch_builder.replay(hand.space, step.commit.root, Patch((op,)))
    forged = forge(
        hand, Changeset(reason="x", patch=Patch((op,))), root=root, objects=[argument, lie, *nodes]
    )

    report = verify(hand.engine)

    assert [(fault.kind, fault.digest) for fault in report.faults] == [("commit", forged)]
    assert "does not leave" in report.faults[0].what


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"ledger": LedgerRead(2, EMPTY)}, "another chain"),
        ({"ledger": LedgerRead(9, EMPTY)}, "another chain"),
        ({"run": "run-9"}, "reason or run"),
        ({"reason": "y"}, "reason or run"),
        ({"unnumbered": 99}, "turns without a number"),
    ],
)
def test_a_commit_that_says_what_is_not_so_is_found(hand: Hand, change: dict[str, Any], what: str) -> None:
    """Each field that can be checked is checked."""
    forged = forge(hand, Changeset(reason="x"), **change)

    report = verify(hand.engine)

    assert [(fault.digest, what in fault.what) for fault in report.faults] == [(forged, True)]


def test_a_head_that_is_not_where_its_last_move_left_it_is_found(hand: Hand) -> None:
    """It is named, and the other timelines are still checked."""
    space = store_of(hand).spaces[hand.space.name]
    hold = space.holds["main"]
    space.holds["main"] = Hold(Head("main", hold.head.version, None), False, hold.move)

    report = verify(hand.engine)

    assert ("head", "main") in faults(hand)
    assert report.checked["head"] == 2


def test_a_head_put_back_to_an_earlier_move_is_found(hand: Hand) -> None:
    """It agrees with that move, but a later one is recorded."""
    space = store_of(hand).spaces[hand.space.name]
    record = space.records["main", 1]
    digest = next(
        fact.digest
        for fact in hand.engine.scan(hand.space.name, limit=10_000)[0]
        if fact.kind == Kind.MOVE and fact.object and msgspec.json.decode(fact.object.body)["version"] == 1
    )
    space.holds["main"] = Hold(Head("main", 1, record.to), False, digest)

    assert any(kind == "move" for kind, _ in faults(hand))


def test_a_head_that_is_gone_is_found(hand: Hand) -> None:
    """Its moves are still there."""
    del store_of(hand).spaces[hand.space.name].holds["other"]

    assert any(kind == "move" for kind, _ in faults(hand))


def test_commits_that_a_scan_does_not_find_are_missed(hand: Hand) -> None:
    """A line cannot have more commits than are stored: what was not gone over was not verified."""

    class Forgetful(MemoryEngine):
        def scan(self, space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
            facts, cursor = super().scan(space, after=after, limit=limit)
            return [fact for fact in facts if fact.kind != Kind.COMMIT], cursor

    report = verify(Forgetful(store_of(hand)))

    assert {fault.name for fault in report.faults if "were found in storage" in fault.what} == {
        "main",
        "other",
    }


def test_a_gap_in_the_moves_is_found(hand: Hand) -> None:
    """Versions are dense."""
    del store_of(hand).spaces[hand.space.name].records["main", 3]

    assert any("version 4 comes after version 2" in fault.what for fault in verify(hand.engine).faults)


@pytest.mark.parametrize("position", [1, 2])
def test_a_changed_entry_of_the_ledger_is_found(hand: Hand, position: int) -> None:
    """The chain does not fit any more, and the entry is named."""
    entries = store_of(hand).spaces[hand.space.name].entries
    entries[position] = LedgerEntry(position, entries[position].chain, b"{}")

    assert ("ledger", f"entry {position}") in faults(hand)


def test_a_cell_that_cannot_be_read_is_found(hand: Hand) -> None:
    """Cells are JSON."""
    cell = CellWrite(name="lease", expected=0, value=b"{")
    hand.engine.apply(Write(space=hand.space.name, op_id="cell", intent=EMPTY, cells=(cell,)))

    assert faults(hand) == [("cell", "lease")]


def test_what_was_forgotten_is_no_fault(hand: Hand) -> None:
    """A body, a value, a chunk: the chain still verifies."""
    kinds = (Kind.BODY, Kind.VALUE)
    facts = hand.engine.scan(hand.space.name, limit=10_000)[0]
    hand.forget(fact.digest for fact in facts if fact.kind in kinds and fact.digest)

    assert verify(hand.engine).ok


def test_a_state_whose_nodes_were_forgotten_is_not_checked_and_no_fault(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted, so that the report does not promise more than was done."""
    monkeypatch.setattr(
        "perdure.history.verify.store._CACHE_BYTES", 0
    )  # else they are computed and remembered
    facts = hand.engine.scan(hand.space.name, limit=10_000)[0]
    hand.forget(fact.digest for fact in facts if fact.kind == Kind.NODE and fact.digest)

    report = verify(hand.engine)

    assert report.ok
    assert report.unchecked > 0


def test_only_the_named_spaces_are_checked(hand: Hand) -> None:
    """The others may be damaged."""
    other = Hand(hand.engine, "thread:2")
    commit = other.write({"/a": 1})
    damage(hand.engine, "thread:2", commit)

    assert verify(hand.engine, spaces=["thread:1"]).ok
    assert not verify(hand.engine).ok


def test_progress_is_told(hand: Hand) -> None:
    """Space, how much is done, growing, and how much there is, which does not change."""
    told: list[tuple[str, int, int]] = []
    Hand(hand.engine, "thread:2").write({"/a": 1})

    verify(hand.engine, progress=lambda *now: told.append(now))

    assert {space for space, _, _ in told} == {"thread:1", "thread:2"}
    assert told == sorted(told)
    assert {total for _, _, total in told} == {told[-1][1]}


def test_a_store_that_cannot_be_read_is_not_called_damaged(hand: Hand) -> None:
    """A closed engine is not a fault of what is stored."""
    hand.engine.close()

    with pytest.raises(Unavailable):
        verify(hand.engine)


@given(data=st.data())
def test_whatever_the_bytes_verifying_does_not_raise(data: st.DataObject) -> None:
    """Objects of every kind with any content under a digest that fits it, and raw damage on top."""
    hand = Hand()
    hand.write({"/a": 1})
    kinds = st.sampled_from([kind for kind in Kind if kind is not Kind.COMMIT])
    bodies = st.one_of(
        st.binary(max_size=60),
        st.sampled_from(
            [
                b"{}",
                b"[]",
                b'{"chunks":[],"media_type":"","sha256":"","size":-1}',
                b"\x10\x01\x00",
                b"[" * 5_000,
            ]
        ),
    )
    for number in range(data.draw(st.integers(1, 5))):
        made = Object.of(data.draw(kinds), data.draw(bodies))
        hand.engine.apply(Write(space="thread:1", op_id=f"op-{number}", intent=EMPTY, objects=(made,)))
    objects = store_of(hand).spaces["thread:1"].objects
    victim = data.draw(st.sampled_from(sorted(objects)))
    stored = objects[victim]
    objects[victim] = Object(stored.kind, victim, data.draw(bodies))  # pyright: ignore[reportArgumentType]

    assert isinstance(verify(hand.engine), VerifyReport)


def store_of(hand: Hand) -> MemoryStore:
    """What the engine keeps, for a look behind the curtain."""
    assert isinstance(hand.engine, MemoryEngine)
    return hand.engine._store


def forge(
    hand: Hand,
    changeset: Changeset,
    *,
    root: Digest | None = None,
    objects: list[Object] | None = None,
    **fields: Any,
) -> Digest:
    """Commit something that the writer would never write; the engine does not know better."""
    head = hand.head()
    before = hand.space.step(head.commit or EMPTY)
    body = Object.of(Kind.CHANGESET, encode_changeset(changeset))
    honest = Commit(
        parents=(before.digest,),
        changeset=body.digest,
        root=root or before.commit.root,
        thread=hand.space.label,
        depth=before.commit.depth + 1,
        reason="x",
        at=0,
        ledger=before.commit.ledger,
        unnumbered=before.commit.unnumbered + 1,
    )
    commit = Object.of(Kind.COMMIT, encode_commit(msgspec.structs.replace(honest, **fields)))
    move = Move(act=Act.COMMIT, timeline="main", expected=head, to=commit.digest)
    made = (*(objects or ()), body, commit)
    hand.engine.apply(Write(space=hand.space.name, op_id="forged", intent=EMPTY, objects=made, moves=(move,)))
    return commit.digest


def test_a_message_that_cannot_be_read_is_named(hand: Hand) -> None:
    """Its bytes are what was written, but they are no message; a forgotten one is no fault."""
    for said in (b'{"role":"user","content":["hi"]}', b'{"role":"user"}'):
        body = Object.of(Kind.BODY, said)
        event = MessageAppended(id=hand.space.ids(), role="user", body=body.digest, size=len(said))
        hand.write(events=[event], objects=[body])

    bad = Object.of(Kind.BODY, b'{"role":"user","content":["hi"]}').digest
    assert faults(hand) == [(Kind.BODY, bad)]
    hand.forget([bad])
    assert faults(hand) == []


def test_a_fault_is_placed_on_the_timeline_that_people_work_on() -> None:
    """What several have is on main; what main has not is on one that is there, not on one that was dropped before it."""
    hand = Hand()
    shared = hand.say("user", "on all of them")
    hand.fork("again", shared)
    forked = hand.say("user", "on forks alone", timeline="again")
    hand.fork("work", forked)
    timelines.drop(hand.space, "again", op_id=None)
    for commit in (shared, forked):
        message = hand.space.step(commit).changeset.events[0]
        assert isinstance(message, MessageAppended)
        damage(hand.engine, hand.space.name, message.body)

    places = sorted(str(fault.place).partition(", ")[2] for fault in verify(hand.engine).faults)

    assert places == [
        f"turn 1 of 'main', commit {shared}",
        f"turn 2 of 'work', commit {forked}",
    ]


def test_a_damaged_argument_or_value_is_named_by_its_call_or_path() -> None:
    """With the turn and the commit, as a message is; the text of a message, the control, names no call and no path."""
    hand = Hand()
    said = hand.say("user", "pay ann")
    args = Object.of(Kind.BODY, b'{"to":"ann"}')
    event = ToolCallRequested(id="e-1", call="c-1", tool="pay", args=args.digest, size=len(args.body))
    asked = hand.write(events=[event], objects=[args])
    put = hand.write({"/a.json": "a value of its own" * 9})
    entry = hand.space.tree_at(put).get("/a.json")
    assert entry is not None
    message = hand.space.step(said).changeset.events[0]
    assert isinstance(message, MessageAppended)

    digests = {"message": message.body, "arguments": args.digest, "value": entry.value}
    for digest in digests.values():
        damage(hand.engine, hand.space.name, digest)
    told = {fault.digest: fault.place for fault in verify(hand.engine).faults}
    places = {name: str(told[digest]).partition("'thread:1'")[2] for name, digest in digests.items()}

    assert places == {
        "message": f", turn 1 of 'main', commit {said}",
        "arguments": f", the arguments of call c-1 (pay), turn 1 of 'main', commit {asked}",
        "value": f", /a.json, turn 1 of 'main', commit {put}",
    }

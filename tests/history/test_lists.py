"""Long lists in a history: what an append costs, what damage is found, what garbage collection removes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec
import pytest

from perdure.engines.contract import Receipt, Write
from perdure.engines.memory import MemoryEngine
from perdure.engines.sqlite import open_sqlite
from perdure.errors import Corrupt, Forgotten, Invalid, PerdureError
from perdure.history import reader, retention
from perdure.history.changes import patch_builder
from perdure.history.changes.patch_builder import Ops
from perdure.history.changes.values import StoredValue
from perdure.history.retention import RetentionPolicy
from perdure.history.tree import diff
from perdure.history.verify import verify
from perdure.history.writer import Proposal, commit
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, Object
from perdure.model.limits import Limits
from perdure.model.lists import build
from perdure.model.patch import Edit, Patch, Stored
from tests.coded import raises
from tests.crash.campaign import sized
from tests.history.hand import Hand, damage, value_at

DAY = 24 * 60 * 60 * 1_000_000
UNDONE = RetentionPolicy(undone_after_days=30)
STAGED = RetentionPolicy(staged_after_days=1)


def message(random: Random, size: int = 1_000) -> Json:
    """A message of about that size, which compresses about as well as text does."""
    words = random.randbytes(random.randint(size // 4, size * 3 // 4)).hex()
    return {"role": random.choice(["user", "assistant"]), "content": words}


def messages(count: int, seed: int = 1, size: int = 1_000) -> list[Json]:
    """So many messages."""
    random = Random(seed)
    return [message(random, size) for _ in range(count)]


class Counting(MemoryEngine):
    """An engine that counts what it is given to store."""

    last: tuple[int, int] = (0, 0)
    read = 0

    def apply(self, write: Write) -> Receipt:
        self.last = len(write.objects), sum([len(each.body) for each in write.objects])
        return super().apply(write)

    def objects(self, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
        self.read += len(digests)
        return super().objects(space, digests)


def as_before(hand: Hand, path: str, value: Json) -> Digest:
    """Commit a value as a store of an earlier version has it: whole, however long the list is."""
    head = hand.head()
    ops = Ops(hand.space, hand.space.root_at(head.commit))
    body = canonical.encode(value)
    whole = Object.of(Kind.VALUE, body)
    ops.put_stored(path, StoredValue(Stored(whole.digest, len(body)), (whole,), body=body))
    patched = ops.finish()
    proposal = Proposal(
        reason="by hand", root=patched.root, patch=patched.patch, objects=patched.objects, cells=patched.cells
    )
    done = commit(hand.space, head, proposal, op_id=hand.space.ids())
    assert done.head.commit is not None
    return done.head.commit


def kind_at(hand: Hand, path: str) -> Kind:
    """How the value at the head is stored."""
    entry = reader.entry_at(hand.space, hand.head().commit, path)
    return hand.space.objects((entry.value,))[0].kind


def list_objects(hand: Hand) -> list[Digest]:
    """The pieces and nodes of lists that the store has."""
    facts = hand.engine.scan(hand.space.name, limit=100_000)[0]
    return [
        fact.digest
        for fact in facts
        if fact.digest
        and fact.object
        and fact.kind in (Kind.LIST, Kind.VALUE)
        and len(fact.object.body) > 300
    ]


class TestCost:
    """What a change of a long list costs."""

    @pytest.mark.parametrize(
        ("act", "factor"), [("append", 1.5), ("put", 1.5), ("set in the middle", 3), ("unset the first", 3)]
    )
    def test_it_is_what_was_changed_and_not_how_long_the_list_is(self, act: str, factor: float) -> None:
        """A list many times as long costs one object more, and a node, which has at most 5 KB."""
        few, many = self.cost(200, act), self.cost(sized(4_000, 20_000), act)

        assert many[0] <= few[0] + 2
        assert many[1] < factor * few[1]
        assert many[1] < 12_000

    def test_a_list_that_is_stored_whole_costs_its_length(self) -> None:
        """The control: the same measure of the form that stores of earlier versions have."""
        costs: list[int] = []
        for count in (20, 200):
            engine = Counting()
            hand = Hand(engine)
            items = messages(count)
            as_before(hand, "/m", items)
            as_before(hand, "/m", [*items, "more"])
            costs.append(engine.last[1])

        assert costs[1] > 8 * costs[0]

    def test_an_append_reads_one_path(self) -> None:
        """The nodes of the map and of the list on the way to the last piece, however many there are."""
        engine = Counting()
        hand = Hand(engine, limits=Limits(write_bytes_max=2**30))
        hand.write({"/m": messages(sized(5_000, 20_000), size=100)})
        engine.read = 0

        hand.write(edit=[("/m", "append", (), "more")])

        assert engine.read < 10

    def test_many_appends_in_one_commit_leave_no_version_between(self) -> None:
        """Only the objects of the last list are stored."""
        hand = Hand()
        items = messages(30)
        hand.write({"/m": items})

        hand.write(edit=[("/m", "append", (), number) for number in range(200)])

        final = [*items, *range(200)]
        assert hand.get("/m") == final
        one, two = build(canonical.encode(items)), build(canonical.encode(final))
        assert one is not None
        assert two is not None
        assert set(list_objects(hand)) == {
            each.digest for each in (one.objects | two.objects).values() if len(each.body) > 300
        }
        assert verify(hand.engine).ok

    @staticmethod
    def cost(count: int, act: str) -> tuple[int, int]:
        """Objects and bytes of a write, on average over some."""
        engine = Counting()
        hand = Hand(engine, limits=Limits(write_bytes_max=2**30))
        items = messages(count)
        hand.write({"/m": items})
        objects = size = 0
        turns = 30 if act == "append" else 5  # the others read and encode the whole list
        for number, new in enumerate(messages(turns, seed=2)):
            if act == "append":
                hand.write(edit=[("/m", "append", (), new)])
            elif act == "put":
                items = [*items, new]
                hand.write({"/m": items})
            elif act == "unset the first":
                hand.write(edit=[("/m", "unset", (0,), None)])
            else:
                hand.write(edit=[("/m", "set", (len(items) // 2 + number,), new)])
            objects, size = objects + engine.last[0], size + engine.last[1]
        return objects // turns, size // turns


@pytest.mark.parametrize("act", ["append", "put"])
def test_a_conversation_of_200_turns_takes_what_was_said(tmp_path: Path, act: str) -> None:
    """One list that each turn makes longer takes a small factor of what was added, as a file of SQLite."""
    engine = open_sqlite(tmp_path / "store.db")
    hand = Hand(engine)
    random = Random(3)
    items: list[Json] = []
    for _ in range(200):
        new = [message(random) for _ in range(random.randint(2, 4))]
        items = [*items, *new]
        if act == "put" or len(items) == len(new):
            hand.write({"/messages": items})
        else:
            hand.write(edit=[("/messages", "append", (), each) for each in new])
    added = len(canonical.encode(items))
    assert hand.get("/messages") == items
    assert verify(engine).ok
    engine.close()

    taken = sum([file.stat().st_size for file in tmp_path.iterdir() if file.name.startswith("store.db")])

    assert taken < 3 * added  # an append also stores its argument


class TestOldStores:
    """Lists that an earlier version has stored whole."""

    def test_they_are_read_and_become_lists_by_element_with_the_next_change(self) -> None:
        """Every version stays as it was written."""
        hand = Hand()
        items = messages(50)
        old = as_before(hand, "/m", items)
        assert (kind_at(hand, "/m"), hand.get("/m")) == (Kind.VALUE, items)

        hand.write(edit=[("/m", "append", (), "more")])

        assert (kind_at(hand, "/m"), hand.get("/m")) == (Kind.LIST, [*items, "more"])
        assert value_at(hand.space, old, "/m") == items
        assert verify(hand.engine).ok

    def test_an_edit_that_left_a_whole_list_is_verified(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its document op is run again, and leaves the value that it left then."""
        hand = Hand()
        with monkeypatch.context() as earlier:
            earlier.setattr("perdure.model.lists.build", lambda body: None)
            hand.write({"/m": messages(20)})
            hand.write(edit=[("/m", "append", (), 1), ("/m", "append", (), 2)])
            assert kind_at(hand, "/m") is Kind.VALUE

        assert verify(hand.engine).ok
        hand.write({"/m": [*messages(20), 1, 2]})
        assert kind_at(hand, "/m") is Kind.LIST


class TestDamage:
    """Pieces and nodes that are damaged or missing."""

    @pytest.mark.parametrize("how", ["flipped", "missing"])
    def test_each_is_found_by_reading_and_by_verify(self, how: str) -> None:
        """Whichever object of a list it is."""
        hand = Hand()
        hand.write({"/m": messages(300)})
        objects = list_objects(hand)
        assert len(objects) > 100
        stored = hand.engine._store.spaces[hand.space.name].objects  # type: ignore[attr-defined]
        for digest in objects[:: len(objects) // 25] + objects[-1:]:
            sound = stored[digest]
            if how == "flipped":
                damage(hand.engine, hand.space.name, digest)
            else:
                del stored[digest]

            with raises(Corrupt, "digest_mismatch" if how == "flipped" else "object_missing"):
                hand.get("/m")
            named = [str(fault) for fault in verify(hand.engine).faults]
            assert any([digest in fault for fault in named]), named

            stored[digest] = sound
        assert hand.get("/m") == messages(300)
        assert verify(hand.engine).ok

    @pytest.mark.parametrize("at", [36, 40])
    @pytest.mark.parametrize(("count", "height"), [(10, 0), (30, 1)])
    def test_a_node_whose_hash_is_right_and_whose_counts_are_not_is_named(
        self, count: int, height: int, at: int
    ) -> None:
        """The elements, or the bytes, of its first child are one more or less than there are."""
        hand = Hand()
        hand.write({"/m": messages(count)})
        entry = reader.entry_at(hand.space, hand.head().commit, "/m")
        body = bytearray(hand.space.body(entry.value))
        assert body[0] == height
        body[at] ^= 1
        wrong = Object.of(Kind.LIST, bytes(body))
        hand.write(objects=[wrong])

        assert [(fault.kind, fault.digest) for fault in verify(hand.engine).faults] == [
            (Kind.LIST, wrong.digest)
        ]

    def test_a_damaged_list_can_be_replaced(self) -> None:
        """A put does not need the value that it replaces."""
        hand = Hand()
        hand.write({"/m": messages(300)})
        entry = reader.entry_at(hand.space, hand.head().commit, "/m")
        damage(hand.engine, hand.space.name, entry.value)

        hand.write({"/m": messages(100, seed=9)})

        assert hand.get("/m") == messages(100, seed=9)

    def test_an_append_that_left_another_list_is_named(self) -> None:
        """Verify runs it again on the last nodes."""
        hand = Hand()
        hand.write({"/m": messages(30)})
        root = hand.space.root_at(hand.head().commit)
        ops = Ops(hand.space, root)
        ops.edit("/m", "append", (), "one")
        patch = ops.finish().patch
        hand.write(edit=[("/m", "append", (), "another")])
        other = Ops(hand.space, root)
        other.edit("/m", "append", (), "another")
        (edit,), (named,) = patch.ops, other.finish().patch.ops
        assert isinstance(edit, Edit)
        assert isinstance(named, Edit)
        hand.write({"/argument": "one"})  # it is stored
        wrong = msgspec.structs.replace(edit, leaves=named.leaves)

        faults = [patch_builder.document_faults(hand.space, root, Patch((op,))) for op in (named, wrong)]

        assert [len(each) for each in faults] == [0, 1]
        assert "does not leave" in faults[1][0]


class TestRetention:
    """What garbage collection removes of long lists."""

    def test_what_only_an_undone_list_has_goes_and_what_a_living_one_needs_stays(self) -> None:
        """Pieces that both have stay."""
        hand = Hand()
        items = messages(300)
        hand.write({"/m": items})
        before = set(list_objects(hand))
        secret: list[Json] = [*items[:150], "undone", *items[150:], *messages(50, seed=7)]
        undone = hand.write({"/m": secret})
        only = set(list_objects(hand)) - before
        hand.undo()
        hand.now += DAY
        hand.write(edit=[("/m", "append", (), "more")])
        after = set(list_objects(hand)) - before - only

        plan = retention.plan(hand.engine, UNDONE, hand.now + 60 * DAY)
        retention.carry_out(hand.engine, plan, ids=hand.space.ids)

        assert hand.get("/m") == [*items, "more"]
        assert set(list_objects(hand)) == before | after
        assert len(only) > 20
        assert verify(hand.engine).ok
        with pytest.raises(Forgotten):
            value_at(hand.space, undone, "/m")

    def test_a_list_that_an_undone_commit_shares_with_a_living_one_stays_whole(self) -> None:
        """Though it is collected with everything that the undone commit names."""
        hand = Hand()
        hand.write({"/a": 1})
        hand.write({"/m": messages(300)})
        hand.undo()
        hand.now += DAY
        hand.write({"/copy": messages(300)})

        plan = retention.plan(hand.engine, UNDONE, hand.now + 60 * DAY)
        retention.carry_out(hand.engine, plan, ids=hand.space.ids)

        assert hand.get("/copy") == messages(300)
        assert verify(hand.engine).ok

    def test_what_an_abandoned_put_has_staged_goes(self) -> None:
        """A list that is too large for one write is written before its commit, which may never come."""
        hand = Hand()
        hand.write({"/a": 1})
        Ops(hand.space, hand.space.root_at(hand.head().commit)).put("/m", messages(6_000))
        assert len(list_objects(hand)) > 1_000

        plan = retention.plan(hand.engine, STAGED, hand.now + 2 * DAY)
        retention.carry_out(hand.engine, plan, ids=hand.space.ids)

        assert list_objects(hand) == []
        assert verify(hand.engine).ok

    def test_what_is_staged_stays_with_its_commit(self) -> None:
        """The commit ends the upload."""
        hand = Hand()
        hand.write({"/m": messages(12_000)})

        plan = retention.plan(hand.engine, STAGED, hand.now + 2 * DAY)

        assert plan.spaces == ()
        assert hand.get("/m") == messages(12_000)


class TestLimits:
    """Lists and the limits of values, artifacts and writes."""

    def test_a_list_is_no_artifact_however_long_it_is(self) -> None:
        """A put of any length is staged in parts, so that no write exceeds the limit."""
        hand = Hand(limits=Limits(value_bytes_max=50_000, write_bytes_max=60_000))

        hand.write({"/m": messages(500)})

        assert kind_at(hand, "/m") is Kind.LIST
        assert hand.get("/m") == messages(500)

    def test_the_limit_of_the_whole_holds(self) -> None:
        """For a put and for an append that leads over it."""
        items = messages(200)
        size = len(canonical.encode(items))
        hand = Hand(limits=Limits(artifact_bytes_max=size + 100, value_bytes_max=10_000))
        with raises(Invalid, "artifact_too_large"):
            hand.write({"/m": [*items, *items]})
        hand.write({"/m": items})

        with raises(Invalid, "artifact_too_large"):
            hand.write(edit=[("/m", "append", (), "x" * 200)])

        assert hand.get("/m") == items

    def test_a_write_that_is_too_large_says_so(self) -> None:
        """Many lists in one write can exceed its limit, though none of them does alone."""
        hand = Hand(limits=Limits(write_bytes_max=200_000))
        with raises(Invalid, "write_too_large"):
            hand.write({f"/m/{number}": messages(50, seed=number) for number in range(9)})

        assert verify(hand.engine).ok

    def test_an_element_that_makes_the_list_too_deep_is_refused(self) -> None:
        """As it is where the list is short."""
        deep: Json = 1
        for _ in range(canonical.DEPTH_MAX):
            deep = [deep]
        hand = Hand()
        hand.write({"/short": [], "/long": messages(30)})
        for path in ("/short", "/long"):
            with pytest.raises(PerdureError):
                hand.write(edit=[(path, "append", (), deep)])

    def test_an_element_that_is_too_large_makes_the_list_whole_again(self) -> None:
        """The form depends on what the list holds, and on nothing else."""
        hand = Hand()
        items = messages(30)
        hand.write({"/m": items})

        hand.write(edit=[("/m", "append", (), "x" * 1_100_000)])
        assert kind_at(hand, "/m") is Kind.ARTIFACT
        hand.write(edit=[("/m", "unset", (30,), None)])

        assert (kind_at(hand, "/m"), hand.get("/m")) == (Kind.LIST, items)
        assert verify(hand.engine).ok


def test_two_lists_are_merged_and_compared() -> None:
    """A rule of the merge reads both lists as a whole; a diff names the path."""
    hand = Hand()
    items = messages(100)
    base = hand.write({"/m": items, "/mine": 1})
    hand.fork("other", base)
    hand.write(edit=[("/m", "append", (), "theirs")], timeline="other")
    hand.write(edit=[("/m", "append", (), "ours")])

    merged = hand.merge("other", rules={"/m": "append"})

    assert hand.get("/m") == [*items, "ours", "theirs"]
    changes = list(diff(hand.space.tree_at(base), hand.space.tree_at(merged.commit)))
    assert [change.path for change in changes] == ["/m"]
    assert verify(hand.engine).ok


def test_a_list_that_only_the_other_line_has_is_merged_by_reference() -> None:
    """Its objects are checked to be there, after something was forgotten in the space."""
    hand = Hand()
    base = hand.write({"/a": 1})
    hand.write({"/b": messages(50, seed=5)})
    hand.undo()
    hand.now += DAY
    hand.write({"/a": 2})
    hand.fork("other", base)
    hand.write({"/m": messages(100)}, timeline="other")
    plan = retention.plan(hand.engine, UNDONE, hand.now + 60 * DAY)
    retention.carry_out(hand.engine, plan, ids=hand.space.ids)

    hand.merge("other")

    assert hand.get("/m") == messages(100)
    assert verify(hand.engine).ok


def test_ops_of_one_step_see_the_list_as_it_is() -> None:
    """Whatever was put, appended and edited before, in this step or in the one before it in the same write."""
    hand = Hand()
    items = messages(60)
    ops = Ops(hand.space, hand.space.root_at(None))
    ops.put("/m", items)
    ops.edit("/m", "append", (), 1)
    first, ops = ops.split()
    ops.edit("/m", "append", (), 2)
    ops.edit("/m", "set", (0,), "first")
    ops.edit("/m", "append", (), 3)
    assert ops.value("/m") == ["first", *items[1:], 1, 2, 3]
    ops.put("/m", [*items, 4])
    ops.edit("/m", "append", (), 5)
    second = ops.finish()

    proposals = [
        Proposal(reason="by hand", root=each.root, patch=each.patch, objects=each.objects, cells=each.cells)
        for each in (first, second)
    ]
    for proposal in proposals:
        commit(hand.space, hand.head(), proposal, op_id=hand.space.ids())

    assert hand.get("/m") == [*items, 4, 5]
    assert verify(hand.engine).ok

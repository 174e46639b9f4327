"""Values and nodes that are stored against earlier ones come back whole, whatever happens to the earlier ones."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from perdure.errors import Corrupt, Forgotten
from perdure.model.digest import Digest, Kind, Object
from perdure.testing.engines.builders import SPACE, Pen, write
from tests.coded import raises
from tests.crash.campaign import SEED, sized
from tests.engines.postgres.conftest import Opener
from tests.engines.postgres.server import MISSING, Server
from tests.engines.postgres.stores import new_url

if TYPE_CHECKING or not MISSING:
    from perdure.engines.postgres import pack
    from perdure.engines.postgres.commit.write import RecentObject, RecentObjects, prepare_write
    from perdure.engines.postgres.connections import Encoded

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

_NEEDS = "SELECT row_id, needs IS NOT NULL FROM perdure.log WHERE tenant = '{}' ORDER BY row_id"


_KINDS = pytest.mark.parametrize("kind", [Kind.VALUE, Kind.NODE, Kind.LIST])


def versions(count: int, kind: Kind = Kind.VALUE) -> list[Object]:
    """Return versions of one text, each of which names the one before as similar."""
    lines = [f"line {number} of a document that is edited\n" for number in range(40)]
    found = [Object.of(kind, "".join(lines).encode())]
    for number in range(1, count):
        lines[number % 40] = f"edit {number}\n"
        found.append(Object.of(kind, "".join(lines).encode(), base=found[-1].digest))
    return found


@_KINDS
def test_later_versions_are_stored_as_differences(kind: Kind, postgres: Server, open_engine: Opener) -> None:
    """A chain has a largest length, and each version is read in one go."""
    url = new_url()
    engine, chain = open_engine(url), versions(40, kind)
    for number, each in enumerate(chain):
        engine.apply(write(f"op {number}", each))

    rows = postgres.sql(_NEEDS.format(url.rpartition("=")[2]))
    whole = [row for row, needs in rows if not needs]
    assert len(rows) == 40
    assert whole[0] == 1
    assert 2 <= len(whole) <= 4
    found = open_engine(url).objects(SPACE, [each.digest for each in chain])
    assert [each.body for each in found] == [each.body for each in chain]


def test_a_base_that_another_process_forgot_is_not_used(postgres: Server, open_engine: Opener) -> None:
    """The server notices it under the lock, and the write is stored whole."""
    url = new_url()
    engine, other, chain = open_engine(url), open_engine(url), versions(4)
    for number, each in enumerate(chain[:2]):
        engine.apply(write(f"op {number}", each))
    other.forget(SPACE, [each.digest for each in chain[:2]], why="too old", standing=other.standing(SPACE))

    engine.apply(write("later", chain[2]))
    engine.apply(write("last", chain[3]))

    found = other.objects(SPACE, [chain[2].digest, chain[3].digest])
    assert [each.body for each in found] == [chain[2].body, chain[3].body]
    assert [needs for _, needs in postgres.sql(_NEEDS.format(url.rpartition("=")[2]))] == [
        False,
        False,
        False,
        True,
    ]
    with raises(Forgotten, "forgotten", why="too old"):
        other.objects(SPACE, [chain[0].digest])


def numbers_of(version: Object, bases: RecentObjects) -> bytes:
    """Return what the server is sent to compare."""
    sent = prepare_write("t", write("op 2", version), bases, checks_seal=False).parameters[4]
    assert isinstance(sent, Encoded)
    return sent.data


def test_a_difference_names_the_server_that_has_what_it_is_against() -> None:
    """Another server may take over while a write is prepared; what is stored against the old one's rows is refused there."""
    first, second = versions(2)
    bases = RecentObjects()
    bases.learn("00000001")
    bases.note(prepare_write("t", write("op 1", first), bases, checks_seal=False), 1, 0, "00000001")
    known = bases.of(SPACE)

    class Replaced(RecentObjects):
        """Hears of the new server as soon as the objects were read."""

        def of(self, space: str) -> tuple[int, str, dict[Digest, RecentObject]]:
            self.learn("00000002")
            return known

    before, during, unknown = (numbers_of(second, each) for each in (bases, Replaced(), RecentObjects()))

    assert during == before != unknown


def test_any_object_is_read_back_from_what_differs() -> None:
    """Whatever was cut out, put in or repeated, and whether or not its maker says what is the same."""
    draw = random.Random(SEED)
    for number in range(sized(2_000, 100_000)):
        kind = draw.choice([Kind.VALUE, Kind.NODE, Kind.LIST])
        old = bytes(draw.choices(b"ab", k=draw.randrange(40))) * draw.randrange(9)
        start, end = sorted((draw.randint(0, len(old)), draw.randint(0, len(old))))
        put_in = draw.randbytes(draw.randrange(30))
        first, second = Object.of(kind, old), Object.of(kind, old[:start] + put_in + old[end:])
        known = draw.choice([None, (start, len(old) - end)])

        fields = pack.stored_against(pack.packed_item(second), 1, 0, old, known)
        reader = pack.StateReader()
        reader.add(1, pack.encode_state([pack.packed_item(first)]))
        reader.add(2, pack.encode_state([pack.packed_item(second)], [fields]))

        assert reader.items(2) == (pack.packed_item(second),), f"seed {SEED}, number {number}"
        assert (reader.needed(2) is not None) == pack.is_against(fields)


@_KINDS
@pytest.mark.parametrize("gone", [0, 3, 7])
def test_forgetting_one_version_leaves_the_others_whole(gone: int, kind: Kind, open_engine: Opener) -> None:
    """Rows that were stored against it are stored whole first, and what was stored against those is still read."""
    engine, chain = open_engine(), versions(9, kind)
    for number, each in enumerate(chain):
        engine.apply(write(f"op {number}", each))

    engine.forget(SPACE, [chain[gone].digest], why="user asked", standing=engine.standing(SPACE))

    kept = [each for each in chain if each is not chain[gone]]
    assert [each.body for each in engine.objects(SPACE, [each.digest for each in kept])] == [
        each.body for each in kept
    ]
    facts, _ = engine.scan(SPACE, limit=99)
    assert [fact.fault for fact in facts] == [None] * len(chain)


@pytest.mark.parametrize("column", ["state", "pack"])
def test_a_damaged_row_is_named_and_not_used(column: str, postgres: Server, open_engine: Opener) -> None:
    """A flipped byte anywhere in a row is found by its checksum, by a read and by a scan."""
    url = new_url()
    engine, chain = open_engine(url), versions(2)
    engine.apply(write("op", chain[0]))
    tenant = url.rpartition("=")[2]
    postgres.sql(
        f"UPDATE perdure.log SET {column} = set_byte({column}, length({column}) - 1, 255 - get_byte({column}, length({column}) - 1)) WHERE tenant = '{tenant}'"
    )

    with pytest.raises(Corrupt):
        engine.objects(SPACE, [chain[0].digest])

    facts, _ = engine.scan(SPACE, limit=9)
    assert [fact.object for fact in facts] == [None]
    assert facts[0].fault is not None


def test_a_row_that_others_need_is_missed(postgres: Server, open_engine: Opener) -> None:
    """What was stored against a row that is gone is damaged, and is not returned."""
    url = new_url()
    engine, chain = open_engine(url), versions(3)
    for number, each in enumerate(chain):
        engine.apply(write(f"op {number}", each))
    postgres.sql(f"DELETE FROM perdure.log WHERE tenant = '{url.rpartition('=')[2]}' AND row_id = 1")

    with raises(Corrupt, "row_damaged"):
        engine.objects(SPACE, [chain[2].digest])


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        ("UPDATE perdure.spaces SET rows = rows - 1", "space_miscounted"),
        ("UPDATE perdure.spaces SET position = position + 1", "space_miscounted"),
        ("DELETE FROM perdure.keys", "key_lost"),
    ],
    ids=["rows", "entries", "keys"],
)
def test_a_count_or_a_key_that_was_edited_is_found(
    edit: str, code: str, postgres: Server, open_engine: Opener
) -> None:
    """Neither is part of the seal; a check of everything compares them with what is stored."""
    engine = open_engine()
    Pen(engine).commit("milk", messages=["m-1"])
    engine.check(SPACE, again=True)  # the control: it is sound

    postgres.sql(f"{edit} WHERE tenant = '{engine.facts()['tenant']}'")

    with raises(Corrupt, code):
        engine.check(SPACE, again=True)


def test_a_commit_in_the_place_of_another_is_not_returned(postgres: Server, open_engine: Opener) -> None:
    """The way back along the rows must be the way of the parents."""
    engine = open_engine()
    pen = Pen(engine)
    line = [pen.commit(f"item {number}") for number in range(4)]
    tenant = engine.facts()["tenant"]
    postgres.sql(f"UPDATE perdure.log SET prev = prev - 1 WHERE tenant = '{tenant}' AND row_id = 4")

    with raises(Corrupt, "commit_misplaced"):
        engine.steps(SPACE, line[-1].digest, limit=9)

"""Search indexes: one suite for every engine, and each is compared with SQLite's index in memory.

The tolerance: distances by words agree to 9 digits and the order is the same; distances by vectors agree within 0.000002
after rounding to 6 digits, and what is closer than that may change places.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path

import pytest

import perdure
from perdure.engines import registry
from perdure.engines.search_contract import Filters, Hit, SearchIndex, SearchRow
from perdure.engines.sqlite.search import SqliteSearch
from perdure.errors import Invalid
from perdure.memory.index import terms
from perdure.model.digest import Digest
from tests.coded import raises
from tests.engines.postgres.stores import new_store

WORDS_APART, VECTORS_APART = 1e-9, 2e-6
EVERYTHING = Filters()
TEXT = (
    "aisle aisles window seat seats seating plane planes train oslo fjord late lately early tea naïve naive ångström "
    "running runs ran relational relations 窓 席 Привет приветы 42 4711 x"
)
VOCABULARY = TEXT.split()
WIDTH = 24

Opener = Callable[..., SearchIndex]


@pytest.fixture(params=["sqlite", "postgres"])
def open_index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens indexes of owners of one store, as another process would."""
    url = str(tmp_path / "agents.db") if request.param == "sqlite" else new_store(request)
    registry.open_engine(url, read_only=False, create=True, durability="power_loss").close()
    with ExitStack() as opened:

        def open_one(owner: str = "ann", *, read_only: bool = False) -> SearchIndex:
            return opened.enter_context(closing(registry.open_search(url, owner, read_only=read_only)))

        yield open_one


def digest(of: object) -> Digest:
    """The digest that stands for something."""
    return Digest(sha256(str(of).encode()).hexdigest())


def row(number: int, words: str | None, *, kind: str = "semantic", scope: str = "user") -> SearchRow:
    """A version of an item."""
    text = None if words is None else " ".join(terms(words))
    return SearchRow(
        path=f"/items/{number:04}/v",
        item=f"i{number}",
        digest=digest(number),
        kind=kind,
        scope=scope,
        words=text,
    )


def corpus(seed: int, size: int = 150) -> list[SearchRow]:
    """Random texts, some of them empty, equal or without words."""
    dice = random.Random(seed)
    return [
        row(
            number,
            None if dice.random() < 0.05 else " ".join(dice.choices(VOCABULARY, k=dice.randrange(0, 25))),
            kind=dice.choice(["semantic", "episodic"]),
            scope=dice.choice(["user", "project"]),
        )
        for number in range(size)
    ]


def vector(seed: object) -> bytes:
    """A random direction."""
    dice = random.Random(str(seed))
    numbers = [dice.gauss(0, 1) for _ in range(WIDTH)]
    length = sum(number * number for number in numbers) ** 0.5
    return array("f", [number / length for number in numbers]).tobytes()


def reference(rows: Sequence[SearchRow], root: Digest) -> SearchIndex:
    """SQLite's index in memory with these rows and their vectors."""
    made = SqliteSearch(None)
    assert made.move(None, root, (), rows)
    assert made.learn(
        root, "m", {each.path: vector(each.path) for each in rows if each.words is not None}, width=WIDTH
    )
    return made


def assert_same(found: Sequence[Hit] | None, wanted: Sequence[Hit] | None, apart: float) -> None:
    """Each rank has the same distance within the tolerance, and the same version unless another is that close."""
    assert found is not None
    assert wanted is not None
    assert [hit.distance for hit in found] == pytest.approx([hit.distance for hit in wanted], abs=apart)
    distances = {hit.path: hit.distance for hit in wanted}
    for hit, other in zip(found, wanted, strict=True):
        if hit.path != other.path:
            assert abs(distances.get(hit.path, other.distance) - other.distance) <= apart
        else:
            assert (hit.item, hit.digest) == (other.item, other.digest)


QUESTIONS = [
    (["seats"], EVERYTHING),
    (["oslo", "fjord", "tea"], EVERYTHING),
    (["run", "running", "relation", "nothing"], EVERYTHING),
    (["naïve", "angstrom"], Filters(kind="semantic")),
    (["窓", "приветы", "42"], Filters(scope="project")),
    (VOCABULARY, Filters(kind="episodic", scope="user")),
]


@pytest.mark.parametrize("seed", range(3))
def test_every_engine_ranks_words_alike(seed: int, open_index: Opener) -> None:
    """Stems, accents and scripts are split alike, and BM25 gives the same distances and the same order, ties included."""
    rows, root, index = corpus(seed), digest("root"), open_index()
    assert index.move(None, root, (), rows)
    known = reference(rows, root)

    for words, among in QUESTIONS:
        for limit in (1, 7, 1_000):
            found = index.found(root, list(terms(" ".join(words))), among, limit=limit)
            wanted = known.found(root, list(terms(" ".join(words))), among, limit=limit)
            assert_same(found, wanted, WORDS_APART)
            assert [hit.path for hit in found or ()] == [hit.path for hit in wanted or ()]


def test_every_engine_ranks_vectors_alike(open_index: Opener) -> None:
    """By cosine distance, with filters, and only what has a vector."""
    rows, root, index = corpus(4), digest("root"), open_index()
    index.move(None, root, (), rows)
    vectors = {each.path: vector(each.path) for each in rows if each.words is not None}
    assert index.learn(root, "m", vectors, width=WIDTH)
    known = reference(rows, root)

    for asked in range(5):
        for among in (EVERYTHING, Filters(kind="semantic"), Filters(kind="episodic", scope="user")):
            found = index.near(root, vector(asked), among, limit=20)
            assert_same(found, known.near(root, vector(asked), among, limit=20), VECTORS_APART)


def test_control_the_tolerance_would_notice_another_ranking(open_index: Opener) -> None:
    """A few more items move distances by more than the tolerance."""
    rows, root, index = corpus(5), digest("root"), open_index()
    index.move(None, root, (), rows[:-9])

    found, wanted = (
        each.found(root, ["seats"], EVERYTHING, limit=9) for each in (index, reference(rows, root))
    )

    with pytest.raises(AssertionError):
        assert_same(found, wanted, WORDS_APART)


def test_ties_are_settled_by_item_and_path(open_index: Opener) -> None:
    """Equal texts and equal vectors come in the order of their names, whichever was written first."""
    rows, root, index = [row(number, "oslo") for number in (3, 1, 2)], digest("root"), open_index()
    index.move(None, root, (), rows)
    index.learn(root, "m", {each.path: vector("same") for each in rows}, width=WIDTH)

    for found in (
        index.found(root, ["oslo"], EVERYTHING, limit=2),
        index.near(root, vector(1), EVERYTHING, limit=2),
    ):
        assert [hit.item for hit in found or ()] == ["i1", "i2"]


def test_an_index_that_was_moved_equals_one_that_was_built(open_index: Opener) -> None:
    """Rows that came and went leave nothing in the ranking."""
    first, second, index = corpus(6), corpus(7, 120), open_index()
    index.move(None, digest("a"), (), first)

    assert index.move(digest("a"), digest("b"), [each.path for each in first], second)

    known = reference(second, digest("b"))
    for words, among in QUESTIONS:
        found, wanted = (each.found(digest("b"), words, among, limit=99) for each in (index, known))
        assert_same(found, wanted, WORDS_APART)


def test_another_owner_s_items_move_no_score(open_index: Opener) -> None:
    """What one owner remembers changes neither what another finds nor its distances, by a single bit."""
    rows, root, index, other = corpus(8), digest("root"), open_index("ann"), open_index("bob")
    index.move(None, root, (), rows)
    index.learn(root, "m", {each.path: vector(each.path) for each in rows}, width=WIDTH)
    words, near = (
        index.found(root, ["oslo", "tea"], EVERYTHING, limit=50),
        index.near(root, vector(1), EVERYTHING, limit=50),
    )

    other.move(None, root, (), [row(number, "oslo oslo tea") for number in range(200)])
    other.learn(root, "other", {row(number, "").path: vector(1) for number in range(200)}, width=WIDTH)

    assert index.found(root, ["oslo", "tea"], EVERYTHING, limit=50) == words
    assert index.near(root, vector(1), EVERYTHING, limit=50) == near
    assert index.standing().model == "m"
    other.discard()
    assert index.found(root, ["oslo", "tea"], EVERYTHING, limit=50) == words


def test_an_index_answers_at_its_root_alone(open_index: Opener) -> None:
    """Anywhere else it says so, and a move from there changes nothing."""
    here, there, index = digest("here"), digest("there"), open_index()
    assert index.standing().root is None
    index.move(None, here, (), [row(1, "oslo")])

    assert not index.move(there, digest("on"), [row(1, "").path], [row(2, "oslo")])
    assert index.found(there, ["oslo"], EVERYTHING, limit=9) is None
    assert index.found(there, [], EVERYTHING, limit=9) is None
    assert index.near(there, vector(1), EVERYTHING, limit=9) is None
    assert index.without_vector(there, limit=9) is None
    assert not index.learn(there, "m", {row(1, "").path: vector(1)}, width=WIDTH)

    assert [hit.item for hit in open_index().found(here, ["oslo"], EVERYTHING, limit=9) or ()] == ["i1"]
    assert open_index().standing().model is None


def test_an_index_knows_what_has_no_vector(open_index: Opener) -> None:
    """Words need one, an empty one counts and is never near, and one of another model is gone."""
    rows, root, index = [row(1, "oslo"), row(2, "tea"), row(3, None)], digest("root"), open_index()
    index.move(None, root, (), rows)
    assert sorted(index.without_vector(root, limit=9, claim=True) or ()) == [
        (rows[0].path, digest(1)),
        (rows[1].path, digest(2)),
    ]

    index.learn(root, "m", {rows[0].path: vector(1), rows[1].path: b""}, width=WIDTH)

    assert index.without_vector(root, limit=9, claim=True) == []
    assert [hit.item for hit in index.near(root, vector(1), EVERYTHING, limit=9) or ()] == ["i1"]
    assert index.vectors([digest(1), digest(2), digest(4)], "m") == {digest(1): vector(1)}
    assert index.vectors([digest(1)], "other") == {}
    assert index.learn(root, "other", {}, width=2)
    assert len(index.without_vector(root, limit=9) or ()) == 2


def test_vectors_go_with_their_rows(open_index: Opener) -> None:
    """What was removed is near nothing, and its vector is not kept."""
    index = open_index()
    index.move(None, digest("a"), (), [row(1, "oslo"), row(2, "tea")])
    index.learn(digest("a"), "m", {row(1, "").path: vector(1), row(2, "").path: vector(2)}, width=WIDTH)

    index.move(digest("a"), digest("b"), [row(1, "").path], [])

    assert [hit.item for hit in index.near(digest("b"), vector(1), EVERYTHING, limit=9) or ()] == ["i2"]
    assert set(index.vectors([digest(1), digest(2)], "m")) == {digest(2)}


def test_all_who_open_it_share_one_index(open_index: Opener) -> None:
    """What one has moved, learned and thrown away is so for the other; a reader changes nothing."""
    root, index, other, reader = digest("root"), open_index(), open_index(), open_index(read_only=True)
    assert reader.standing().root is None
    index.move(None, root, (), [row(1, "oslo")])
    other.learn(root, "m", {row(1, "").path: vector(1)}, width=WIDTH)

    assert reader.standing() == index.standing()
    assert reader.near(root, vector(1), EVERYTHING, limit=1) == index.near(
        root, vector(1), EVERYTHING, limit=1
    )
    reader.discard()
    assert index.standing().root == root
    other.discard()
    assert open_index().standing().root is None
    assert open_index().without_vector(root, limit=1) is None


@pytest.mark.parametrize(
    ("term", "found"),
    [
        ("'", []),
        ('"', []),
        ("\\", []),
        ("oslo*", ["i1"]),
        ("oslo:*", ["i1"]),
        ("!oslo", ["i1"]),
        ("osl*", []),
        ("oslo' | 'tea", ["i1"]),
        ("NEAR(oslo tea)", ["i1"]),
        ("a" * 3_000, ["i2"]),
    ],
)
def test_terms_are_data(term: str, found: list[str], open_index: Opener) -> None:
    """No character is read as query language; a word of any length is found by itself."""
    root, index = digest("root"), open_index()
    index.move(None, root, (), [row(1, "near oslo tea"), row(2, "a" * 3_000), row(3, "a" * 2_999)])

    hits = index.found(root, [term], EVERYTHING, limit=9)

    assert [hit.item for hit in hits or ()] == found


def test_a_word_may_be_repeated_often(open_index: Opener) -> None:
    """A text of one word ten thousand times is ranked as on SQLite."""
    rows, root, index = (
        [row(1, "oslo " * 10_000), row(2, "oslo tea"), *(row(n, "tea") for n in range(3, 9))],
        digest("r"),
        open_index(),
    )
    index.move(None, root, (), rows)

    found, wanted = (
        each.found(root, ["oslo"], EVERYTHING, limit=9) for each in (index, reference(rows, root))
    )

    assert_same(found, wanted, WORDS_APART)


@pytest.mark.parametrize(
    "text", ["oslo \0 fjord", "oslo \\ud800 fjord", "\\u0000 oslo", "oslo' OR \"fjord", "\ufeffoslo\u202e"]
)
def test_hostile_text_is_indexed_and_found(text: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """On every engine the same, by its words."""
    found = list[list[tuple[str, str, float]]]()
    for url in (str(tmp_path / "agents.db"), new_store(request)):
        with perdure.open(url) as store:
            store.memory("ann").add("tea", id="other")
            store.memory("ann").add(text, id="hostile")
            found.append([(each.id, each.text, each.score) for each in store.memory("ann").search("OSLO")])

    assert found[0] == found[1]
    assert [each[0] for each in found[1]] == ["hostile"]


def test_what_is_not_text_is_refused_alike(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A lone surrogate cannot be remembered on any engine, and a question may hold one."""
    for url in (str(tmp_path / "agents.db"), new_store(request)):
        with perdure.open(url) as store:
            store.memory("ann").add("oslo", id="plain")
            with raises(Invalid, "lone_surrogate"):
                store.memory("ann").add("oslo \ud800", id="hostile")
            assert [each.id for each in store.memory("ann").search("oslo \ud800 \0")] == ["plain"]


@pytest.mark.parametrize("owner", ["ann\0", "ann' --", "ånn\u202e", "x" * 200])
def test_owners_of_any_name_have_indexes_of_their_own(owner: str, open_index: Opener) -> None:
    """No two names lead to one index."""
    root, index, other = digest("root"), open_index(owner), open_index("ann")
    index.move(None, root, (), [row(1, "oslo")])

    assert other.standing().root is None
    assert open_index(owner).found(root, ["oslo"], EVERYTHING, limit=1) is not None

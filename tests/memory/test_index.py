"""The index is derived: damaged, missing or out of date, it is rebuilt, and never trusted over the map."""

from __future__ import annotations

import multiprocessing
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

import perdure
from perdure import Store
from perdure.engines.search_contract import Filters
from perdure.engines.sqlite import search
from perdure.errors import Unsupported
from perdure.memory import Recall
from tests.coded import raises
from tests.memory.remembering import by_letters, remembering

WORDS = ["aisle", "window", "seat", "plane", "train", "oslo", "fjord", "late", "early", "tea"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store lies that is a file."""
    return tmp_path / "agents.db"


def index_of(path: Path) -> Path:
    """The file of the one index beside a store."""
    (found,) = (path.parent / f"{path.name}-memory").glob("*.db")
    return found


def filled(store: Store) -> None:
    """A memory with a few items."""
    for number, word in enumerate(WORDS):
        store.memory("ann").add(f"{word} and {WORDS[number - 1]}", id=word)


def answers(found: Recall) -> list[tuple[str, float, tuple[str, ...]]]:
    """What can be compared of an answer."""
    return [(each.id, each.score, each.legs) for each in found]


def delete(file: Path) -> None:
    """Nothing is left."""
    for each in file.parent.glob("*"):
        each.unlink()
    file.parent.rmdir()


def scribble(file: Path) -> None:
    """No database at all."""
    file.write_bytes(b"scribbled over" * 5_000)


def punch(file: Path) -> None:
    """A database whose pages are zeros behind the first."""
    body = file.read_bytes()
    file.write_bytes(body[:4096] + b"\0" * (len(body) - 4096))


def truncate(file: Path) -> None:
    """Half of it."""
    os.truncate(file, file.stat().st_size // 2)


def lie(file: Path) -> None:
    """A sound database that says something else than the map."""
    db = apsw.Connection(str(file))
    db.execute("UPDATE versions SET item = 'tea', digest = '" + "0" * 64 + "' WHERE item = 'oslo'")
    db.close()


def hide(file: Path) -> None:
    """A sound database of a later format."""
    db = apsw.Connection(str(file))
    db.execute("UPDATE meta SET value = '999' WHERE name = 'format'")
    db.close()


@pytest.mark.parametrize("damage", [delete, scribble, punch, truncate, lie, hide])
def test_an_index_that_was_damaged_is_made_anew(path: Path, damage: Callable[[Path], None]) -> None:
    """The answer is the same as before, and nothing else of the store has changed."""
    with perdure.open(path, embed=by_letters) as store:
        filled(store)
        before = answers(store.memory("ann").search("oslo fjord"))
        head = store.memory("ann").head

    damage(index_of(path))

    with perdure.open(path, embed=by_letters) as store:
        assert answers(store.memory("ann").search("oslo fjord")) == before
        assert store.memory("ann").head == head


def test_an_index_that_was_not_held_against_the_map_would_be_believed(path: Path) -> None:
    """The control: what `lie` does changes what an index says."""
    with perdure.open(path) as store:
        filled(store)
        held = store._resources.memories.of("ann")
        store.memory("ann").search("oslo")
        lie(index_of(path))

        hits = held.indexing.at(held.space, held.sight().root, newest=True).found(
            held.sight().root, ["oslo"], Filters(), limit=5
        )

    assert hits is not None
    assert "oslo" not in [hit.item for hit in hits]


def test_an_index_that_followed_every_change_equals_one_made_at_once(path: Path) -> None:
    """Ranking is a function of what is remembered, not of the way there: 60 random changes, undone and redone too."""
    dice = random.Random(11)
    with perdure.open(path, embed=by_letters) as store:
        memory = store.memory("ann")
        for _ in range(60):
            known = [item.id for item in memory.items()]
            match dice.choice("aaaaafur"):
                case "f" if known:
                    memory.forget(dice.choice(known))
                case "u" if memory.head.commit:
                    memory.undo(1)
                case _:
                    memory.add(" ".join(dice.choices(WORDS, k=4)), id=f"i{dice.randrange(40)}")
            if dice.random() < 0.3:
                memory.search(dice.choice(WORDS))
        followed = [answers(memory.search(" ".join(pair))) for pair in zip(WORDS, WORDS[3:], strict=False)]

    delete(index_of(path))

    with perdure.open(path, embed=by_letters) as store:
        memory = store.memory("ann")
        assert [
            answers(memory.search(" ".join(pair))) for pair in zip(WORDS, WORDS[3:], strict=False)
        ] == followed


def test_another_embedding_function_makes_the_vectors_anew(path: Path) -> None:
    """What the first made is not mixed with what the second makes."""

    def by_length(given: list[str]) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in given]

    with perdure.open(path, embed=by_letters) as store:
        filled(store)
        store.memory("ann").search("oslo")
    with perdure.open(path, embed=by_length) as store:
        second = answers(store.memory("ann").search("oslo"))
    with perdure.open("memory:", embed=by_length) as fresh:
        filled(fresh)

        assert second == answers(fresh.memory("ann").search("oslo"))


def test_texts_are_embedded_once(path: Path) -> None:
    """A search embeds what is new and the question, however often it is repeated and in whichever process."""
    asked: list[str] = []

    def counting(given: list[str]) -> list[list[float]]:
        asked.extend(given)
        return by_letters(given)

    for _ in range(2):
        with perdure.open(path, embed=counting) as store:
            if not asked:
                filled(store)
            store.memory("ann").search("oslo")
            store.memory("ann").search("oslo")

    made = [text for text in asked if " and " in text]
    assert len(made) == len(set(made)) == len(WORDS)


def test_a_directory_that_cannot_be_written_does_not_keep_anybody_from_searching(path: Path) -> None:
    """The index is then made in memory."""
    (path.parent / f"{path.name}-memory").write_text("a file where the directory should be")
    with perdure.open(path, embed=by_letters) as store:
        filled(store)

        assert {each.id for each in store.memory("ann").search("oslo", limit=2)} == {"oslo", "fjord"}


def test_reading_leaves_the_index_as_it_is(path: Path) -> None:
    """A store that is open for reading writes nothing beside it either, and finds what is new."""
    with perdure.open(path) as store:
        filled(store)
        store.memory("ann").search("oslo")
    with perdure.open(path) as store:
        store.memory("ann").add("oslo again", id="again")
    before = index_of(path).read_bytes()

    with perdure.open(path, read_only=True) as reading:
        found = {each.id for each in reading.memory("ann").search("oslo")}

    assert found == {"oslo", "fjord", "again"}
    assert index_of(path).read_bytes() == before


def _search(path: str, rounds: int) -> None:
    with perdure.open(path) as store:
        for number in range(rounds):
            store.memory("ann").add(f"oslo {number}", id=f"{os.getpid()}-{number}")
            found = store.memory("ann").search("oslo", limit=1_000)
            assert len(found) > number


def test_a_reader_takes_nothing_from_an_index_of_another_format(path: Path) -> None:
    """It finds what is remembered, although the index has other words; without the other format, the control, it does not."""
    found = list[list[str]]()
    with perdure.open(path) as store:
        filled(store)
        store.memory("ann").search("oslo")
    for spoil in ("UPDATE words SET terms = 'x'", "UPDATE meta SET value = '1' WHERE name = 'format'"):
        db = apsw.Connection(str(index_of(path)))
        db.execute(spoil)
        db.close()
        with perdure.open(path, read_only=True) as reading:
            found.append([each.id for each in reading.memory("ann").search("oslo")])

    assert found == [[], ["fjord", "oslo"]]


def test_processes_that_write_and_search_at_once_each_find_their_own(path: Path) -> None:
    """All of them move one file; each search sees everything that was written before it."""
    with perdure.open(path):
        pass
    fork = multiprocessing.get_context("fork")
    children = [fork.Process(target=_search, args=(str(path), 8)) for _ in range(2)]

    for child in children:
        child.start()
    for child in children:
        child.join(120)

    assert [child.exitcode for child in children] == [0, 0]
    with perdure.open(path) as store:
        assert len(store.memory("ann").search("oslo", limit=1_000)) == 16


def test_without_the_extension_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for vectors where they cannot be searched, the store is not opened; words need no extension."""
    monkeypatch.setitem(__import__("sys").modules, "sqlite_vec", None)

    with raises(Unsupported, "vector_package_missing", package="sqlite-vec"):
        perdure.open("memory:", embed=by_letters)

    with perdure.open("memory:") as store:
        store.memory("ann").add("aisle seats", id="seat")
        assert [each.id for each in store.memory("ann").search("seats")] == ["seat"]


def test_an_index_with_vectors_is_made_anew_where_the_extension_is_missing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another installation left behind is no obstacle."""
    with perdure.open(path, embed=by_letters) as store:
        filled(store)
        store.memory("ann").search("oslo")
    monkeypatch.setitem(__import__("sys").modules, "sqlite_vec", None)

    with perdure.open(path) as store:
        store.memory("ann").add("oslo again", id="again")
        assert {each.id for each in store.memory("ann").search("oslo")} == {"oslo", "fjord", "again"}


def test_a_thread_s_items_are_found_by_whoever_opens_the_store_next(path: Path) -> None:
    """What one process indexed and another wrote come together."""
    with perdure.open(path) as store:
        filled(store)
        store.memory("ann").search("oslo")
    with perdure.open(path) as store:
        remembering(store, "t1", "oslo in winter")

    with perdure.open(path) as store:
        assert "n" in [each.id for each in store.memory("ann").search("oslo winter")]


def test_an_index_that_somebody_else_holds_keeps_nobody_waiting_for_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process writes to it, the answer comes from one in memory; afterwards the file is used again."""
    monkeypatch.setattr(search, "_BUSY_MS", 10)
    with perdure.open(path) as store:
        filled(store)
        before = answers(store.memory("ann").search("oslo"))
    other = apsw.Connection(str(index_of(path)))
    with perdure.open(path) as store:
        store.memory("ann").add("tea", id="more")
        other.execute("BEGIN IMMEDIATE")

        held_up = answers(store.memory("ann").search("oslo"))
        other.execute("ROLLBACK")
        other.close()

        assert [each[0] for each in held_up] == [each[0] for each in before]
        assert answers(store.memory("ann").search("oslo")) == held_up


def test_only_the_user_who_made_it_can_enter_the_directory(path: Path) -> None:
    """It holds words of what is remembered."""
    with perdure.open(path) as store:
        filled(store)
        store.memory("ann").search("oslo")

    assert stat.S_IMODE(index_of(path).parent.stat().st_mode) == 0o700


def test_neighbours_are_the_same_whichever_way_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond what the extension gives at once, all distances are gone over; filters hold there too."""
    with perdure.open("memory:", embed=by_letters) as store:
        filled(store)
        store.memory("ann").add("oslo oslo", id="other", kind="episodic")
        plain = answers(store.memory("ann").search("oslo"))
        kind = answers(store.memory("ann").search("oslo", kind="semantic"))
        monkeypatch.setattr(search, "_NEAR_MAX", 1)

        assert answers(store.memory("ann").search("oslo")) == plain
        assert answers(store.memory("ann").search("oslo", kind="semantic")) == kind

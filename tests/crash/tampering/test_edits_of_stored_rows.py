"""A user edits stored rows with stock `sqlite3`: it is found, and nothing is repeated or answered wrongly.

Each edit is made on a copy of one store.  `verify` then looks at it, and a user goes on with it.  The long
form makes 5,000 edits (`PERDURE_DEEP=1`); a failure names the seeds that it was met with.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from perdure.engines import shared_rules
from perdure.engines.contract import Cell
from perdure.engines.registry import open_engine
from perdure.errors import Corrupt
from perdure.ledger import calls
from tests.crash.campaign import SEED, sized
from tests.crash.tampering.edits import edit
from tests.crash.tampering.scene import Played, build, is_sound, play

EDITS_MADE = sized(20, 5_000)
PARTS = sized(2, 8)


class Scene(msgspec.Struct, frozen=True):
    """A sound store, an older copy of it, and what a user sees who goes on with it."""

    whole: Path
    older: Path
    truth: Played


class Outcome(msgspec.Struct, frozen=True):
    """What one edit led to."""

    seed: int
    what: str
    found: bool  # by `verify`
    refused: list[str]  # what the user was refused
    wrong: list[str]  # what was answered otherwise, without an error
    repeated: list[str]  # what had an effect outside
    foreign: list[str]  # what failed with an error that the library does not document


def copied(path: Path, to: Path) -> Path:
    """Return a copy of a store that no process has open."""
    with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(to)) as copy:
        database.backup(copy)
    return to


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The store that is edited."""
    directory = tmp_path_factory.mktemp("scene")
    path, older = directory / "store.db", directory / "older.db"
    build(path, lambda: copied(path, older) and None)
    whole = copied(path, directory / "whole.db")
    return Scene(whole, older, play(path))


def outcome(scene: Scene, directory: Path, seed: int) -> Outcome | None:
    """What the edit of that seed leads to; None if it changed nothing."""
    edited = directory / f"{seed}.db"
    shutil.copy(scene.whole, edited)
    what = edit(edited, scene.older, seed)
    if what is None:
        return None
    found = not is_sound(copied(edited, directory / f"{seed}-verified.db"))
    played = play(edited)
    answers, truth = played.answers.items(), scene.truth.answers
    for left in directory.glob(f"{seed}*"):
        if left.is_dir():  # the names of processes that had it open
            shutil.rmtree(left)
        else:
            left.unlink()
    return Outcome(
        seed,
        what,
        found,
        refused=[name for name, answer in answers if answer.said is None],
        wrong=[name for name, answer in answers if answer.said is not None and answer != truth[name]],
        repeated=[f"{name}: {effects}" for name, effects in played.effects.items()],
        foreign=[f"{name}: {answer.error}" for name, answer in answers if not answer.is_ours],
    )


def outcomes(scene: Scene, directory: Path, part: int) -> Iterator[Outcome]:
    """What the edits of one part of the campaign lead to."""
    for number in range(part, EDITS_MADE, PARTS):
        found = outcome(scene, directory, SEED * 1_000_000 + number)
        if found is not None:
            yield found


def is_of_a_mark(what: str) -> bool:
    """Whether only a random number was edited that binds a log to its file: the next write makes another one."""
    return "meta" in what and ("log_mark" in what or "log_base" in what)


def test_a_store_without_edits_answers_and_repeats_nothing(scene: Scene) -> None:
    """What is compared with: every question has an answer, and none has an effect."""
    assert [name for name, answer in scene.truth.answers.items() if answer.said is None] == []
    assert scene.truth.effects == {}
    assert is_sound(scene.whole)


@pytest.mark.parametrize("part", range(PARTS))
def test_an_edit_is_found_and_repeats_nothing(scene: Scene, tmp_path: Path, part: int) -> None:
    """Each is found by `verify` or refused on use; none has an effect or a wrong answer without an error."""
    made = list(outcomes(scene, tmp_path, part))

    assert [
        each for each in made if not each.found and not each.refused and not is_of_a_mark(each.what)
    ] == []
    assert [each for each in made if each.repeated] == []
    assert [each for each in made if each.wrong] == []
    assert [each for each in made if each.foreign] == []
    assert len(made) > EDITS_MADE // PARTS // 2


@pytest.mark.parametrize("seed", [1002467, 1004703, 2005074, 2010389, 2015593, 2025394])
def test_columns_that_were_swapped_unnoticed_once_are_found(scene: Scene, tmp_path: Path, seed: int) -> None:
    """Neither in a row without a commit, which does not use them, nor turns, an empty value, a row, or digests."""
    found = outcome(scene, tmp_path, seed)

    assert found is not None
    assert found.found
    assert (found.wrong, found.repeated, found.foreign) == ([], [], [])


@pytest.mark.parametrize("seed", [1002614, 1003960])
def test_a_list_of_threads_that_was_put_back_is_refused(scene: Scene, tmp_path: Path, seed: int) -> None:
    """The log and the cells of all spaces fit each other, and are older than the heads."""
    found = outcome(scene, tmp_path, seed)

    assert found is not None
    assert found.found
    assert "threads" in found.refused


def test_the_digest_of_an_empty_cell_is_verified(scene: Scene, tmp_path: Path) -> None:
    """A lease that was given back holds nothing, and no list shows it."""
    path = copied(scene.whole, tmp_path / "store.db")
    with closing(sqlite3.connect(path)) as database, database:
        changed = database.execute("UPDATE cells SET digest = zeroblob(32) WHERE value IS NULL").rowcount

    sound = is_sound(path)

    assert changed > 0
    assert not sound


@pytest.mark.parametrize("column", ["name", "digest"])
def test_a_cell_whose_name_or_digest_has_another_type_is_refused(
    scene: Scene, tmp_path: Path, column: str
) -> None:
    """The bytes are the same, but no look-up by name finds the one, and no digest equals the other."""
    path = copied(scene.whole, tmp_path / "store.db")
    kind = "BLOB" if column == "name" else "TEXT"
    with closing(sqlite3.connect(path)) as database, database:
        sql = "SELECT s.name, s.id FROM cells c JOIN spaces s ON s.id = c.space WHERE c.name LIKE 'call/%'"
        name, number = database.execute(sql).fetchone()
        sql = f"UPDATE cells SET {column} = CAST({column} AS {kind}) WHERE space = ? AND name LIKE 'call/%'"
        changed = database.execute(sql, (number,)).rowcount
    engine = open_engine(str(path), read_only=True, create=False, durability="power_loss")

    with pytest.raises(Corrupt) as refused:
        engine.check(name)

    engine.close()
    assert changed > 0
    assert refused.value.code == "space_damaged"


def test_without_the_checks_effects_are_repeated(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: with digests, seals and the comparison with the ledger off, the same edits do harm."""
    monkeypatch.setattr(shared_rules, "check_cell", _believed)
    monkeypatch.setattr("perdure.engines.sqlite.reads.check_cell", _believed)
    monkeypatch.setattr(shared_rules, "check_seal", lambda *_: None)
    monkeypatch.setattr("perdure.engines.sqlite.commit.caches.check_seal", lambda *_: None)
    monkeypatch.setattr(calls, "_check_entered", lambda *_: None)

    harmful = (found for seed in range(200) if (found := outcome(scene, tmp_path, seed)) and found.repeated)

    assert next(harmful, None) is not None


def _believed(cell: Cell, digest: object, *, listed: int) -> Cell:
    return cell

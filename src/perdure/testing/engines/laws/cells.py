"""The laws of cells, of the ledger, of answers and of damage.

Cells are small named records whose revision only grows, written by compare-and-set.  The ledger of a space is an
append-only log without gaps, chained from its first entry.  Data that was edited by another program is not used,
and not overwritten.  Several questions are answered from one moment.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread

import pytest

from perdure.engines.contract import Cell, CellOf, CellWrite, Engine, Fence, HeadOf, LabelOf, LedgerOf, OpOf
from perdure.errors import Conflict, Corrupt, Invalid, Moved
from perdure.model.digest import Digest, Kind, digest_of
from perdure.testing.engines.builders import SPACE, START, made, moved, portrait, value, write
from perdure.testing.engines.subject import EngineSubject, StoredEdit, raises

__all__ = ["QuestionLaws", "CellLaws", "LedgerLaws", "TamperingLaws"]


def put(name: str, expected: int, content: bytes | None, *, listed: bool = False) -> CellWrite:
    """Return the wanted value of a cell."""
    return CellWrite(name=name, expected=expected, value=content, listed=listed)


class CellLaws(EngineSubject):
    """What cells and fences promise, and `cell`, `cells` and `listed`."""

    def test_a_cell_that_was_never_written_is_none(self, engine: Engine) -> None:
        """Nothing is made by looking."""
        assert engine.cell(SPACE, "lease") is None
        assert list(engine.cells(SPACE, limit=9)) == []
        assert list(engine.spaces(limit=9)) == []

    def test_each_write_raises_the_revision_by_one(self, engine: Engine) -> None:
        """The receipt and the cell agree on it."""
        receipts = [engine.apply(write(f"op-{n}", put("lease", n, b"%d" % n))) for n in range(3)]

        assert [receipt.revisions for receipt in receipts] == [(1,), (2,), (3,)]
        assert engine.cell(SPACE, "lease") == Cell(SPACE, "lease", 3, b"2")

    @pytest.mark.parametrize("expected", [0, 1, 3, -1])
    def test_a_cell_at_another_revision_is_not_written(self, engine: Engine, expected: int) -> None:
        """Compare-and-set: a writer that did not read the last value does not replace it."""
        engine.apply(write("op-1", put("lease", 0, b"ann")))
        engine.apply(write("op-2", put("lease", 1, b"bob")))
        before = portrait(engine)

        with raises(Moved, cell="lease", expected=expected, actual=2):
            engine.apply(write("op-3", value("milk"), put("lease", expected, b"eve")))

        assert portrait(engine) == before

    def test_a_new_cell_must_be_expected_at_0(self, engine: Engine) -> None:
        """A cell that is not there is at revision 0 and no other."""
        with raises(Moved, expected=1, actual=0):
            engine.apply(write("op", put("lease", 1, b"ann")))

        assert engine.cell(SPACE, "lease") is None

    def test_an_emptied_cell_goes_on_counting(self, engine: Engine) -> None:
        """Emptying is a write; a cell is never as if it had not been there."""
        engine.apply(write("op-1", put("lease", 0, b"ann")))
        engine.apply(write("op-2", put("lease", 1, None)))
        assert engine.cell(SPACE, "lease") == Cell(SPACE, "lease", 2, None)
        with raises(Moved, expected=0, actual=2):
            engine.apply(write("op-3", put("lease", 0, b"eve")))

        engine.apply(write("op-4", put("lease", 2, b"bob")))

        assert engine.cell(SPACE, "lease") == Cell(SPACE, "lease", 3, b"bob")

    def test_one_cell_of_many_spaces_is_read_at_once(self, engine: Engine) -> None:
        """Of each space what `cell` gives, emptied ones too; a space without the cell, or never written, gives none."""
        for space, name in (("a", "alive"), ("b", "alive"), ("c", "other"), ("d", "alive")):
            engine.apply(write("op-1", put(name, 0, b"1"), space=space))
        engine.apply(write("op-2", put("alive", 1, None), space="b"))

        found = engine.cells_of(["c", "never", "b", "a"], "alive")

        assert {cell.space: cell for cell in found} == {
            space: engine.cell(space, "alive") for space in ("a", "b")
        }

    def test_an_empty_value_is_not_an_emptied_cell(self, engine: Engine) -> None:
        """No bytes are a value."""
        engine.apply(write("op", put("mark", 0, b"", listed=True)))

        assert engine.cell(SPACE, "mark") == Cell(SPACE, "mark", 1, b"")
        assert [cell.name for cell in engine.cells(SPACE, limit=9)] == ["mark"]
        assert [cell.name for cell in engine.listed(prefix="", limit=9)] == ["mark"]

    @pytest.mark.parametrize("content", [b"a\0b", b"'); --", b" 1.0 ", "日本語 𝄞".encode(), b"x" * 100_000])
    def test_a_cell_keeps_any_text(self, engine: Engine, content: bytes) -> None:
        """What is in a cell is its writer's business."""
        engine.apply(write("op", put("any", 0, content, listed=True)))

        assert engine.cell(SPACE, "any") == Cell(SPACE, "any", 1, content)
        assert [cell.value for cell in engine.cells(SPACE, limit=9)] == [content]
        assert [cell.value for cell in engine.listed(prefix="", limit=9)] == [content]

    @pytest.mark.parametrize("content", [b"\xff\xfe", "\ud83d".encode("utf-8", "surrogatepass")])
    def test_a_cell_that_is_no_text_is_refused(self, engine: Engine, content: bytes) -> None:
        """People read cells, so they hold UTF-8 and nothing else, in every engine."""
        with raises(Invalid, code="not_utf8"):
            engine.apply(write("op", value("milk"), put("any", 0, content)))

        assert list(engine.spaces(limit=9)) == []

    def test_if_one_of_several_cells_is_refused_none_is_written(self, engine: Engine) -> None:
        """Cells of one write change together."""
        engine.apply(write("op-1", put("b", 0, b"1")))
        before = portrait(engine)

        with raises(Moved, cell="b"):
            engine.apply(write("op-2", put("a", 0, b"2"), put("b", 0, b"2"), put("c", 0, b"2")))

        assert portrait(engine) == before
        assert engine.cell(SPACE, "a") is None

    def test_a_fence_lets_only_the_right_revision_through(self, engine: Engine) -> None:
        """A write that relies on a cell without changing it says so by a fence."""
        engine.apply(write("op-1", put("lease", 0, b"ann")))
        engine.apply(write("op-2", Fence("lease", 1), value("milk")))
        engine.apply(write("op-3", put("lease", 1, b"bob")))
        before = portrait(engine)

        with raises(Moved, cell="lease", expected=1, actual=2):
            engine.apply(write("op-4", Fence("lease", 1), value("eggs")))

        assert portrait(engine) == before

    def test_a_fence_at_0_wants_a_cell_that_was_never_written(self, engine: Engine) -> None:
        """An emptied cell does not pass for one that never was."""
        engine.apply(write("op-1", Fence("lease", 0)))
        engine.apply(write("op-2", put("lease", 0, b"ann")))
        engine.apply(write("op-3", put("lease", 1, None)))

        with raises(Moved, cell="lease", expected=0, actual=2):
            engine.apply(write("op-4", Fence("lease", 0)))

    def test_a_fence_looks_at_the_cell_before_the_write(self, engine: Engine) -> None:
        """A write may fence a cell that it also writes."""
        engine.apply(write("op-1", put("lease", 0, b"ann")))

        receipt = engine.apply(write("op-2", Fence("lease", 1), put("lease", 1, b"bob")))

        assert receipt.revisions == (2,)

    def test_every_fence_must_hold(self, engine: Engine) -> None:
        """The first that does not is named."""
        engine.apply(write("op-1", put("a", 0, b"1"), put("b", 0, b"1"), put("c", 0, b"1")))

        with raises(Moved, cell="b"):
            engine.apply(write("op-2", Fence("a", 1), Fence("b", 2), Fence("c", 2)))

    def test_cells_belong_to_their_space(self, engine: Engine) -> None:
        """The same name in two spaces is two cells, for fences too."""
        engine.apply(write("op", put("lease", 0, b"ann"), space="theirs"))

        assert engine.cell(SPACE, "lease") is None
        assert list(engine.cells(SPACE, limit=9)) == []
        engine.apply(write("op", Fence("lease", 0), put("lease", 0, b"bob")))
        assert engine.cell("theirs", "lease") == Cell("theirs", "lease", 1, b"ann")

    def test_cells_are_listed_by_name_from_a_cursor(self, engine: Engine) -> None:
        """Emptied cells are left out, and each page goes on after the last name of the one before."""
        names = ["call/1", "call/10", "call/2", "run/1", "run/2"]
        engine.apply(
            write("op-1", *(put(name, 0, b"x") for name in reversed(names)), put("call/11", 0, b"x"))
        )
        engine.apply(write("op-2", put("call/11", 1, None)))

        pages = [engine.cells(SPACE, after=after, limit=2) for after in ["", "call/10", "run/1", "run/2"]]

        listed = [[cell.name for cell in page] for page in pages]
        assert listed == [["call/1", "call/10"], ["call/2", "run/1"], ["run/2"], []]

    def test_a_page_is_full_unless_it_is_the_last(self, engine: Engine) -> None:
        """Emptied, unlisted and foreign cells do not shorten it, so that a reader may stop at a short page."""
        names = [f"a/{number:02}" for number in range(40)]
        engine.apply(write("op-1", *(put(name, 0, b"x", listed=True) for name in [*names, "b"])))
        engine.apply(write("op-2", *(put(name, 1, None, listed=True) for name in names[::2])))
        engine.apply(write("op-3", *(put(name, 1, b"y") for name in names[1::4])))
        left, listed = names[1::2], names[3::4]

        for limit in (1, 3, 7):
            forwards = engine.cells(SPACE, prefix="a/", after=left[2], limit=limit)
            backwards = engine.cells(SPACE, prefix="a/", before=left[-2], descending=True, limit=limit)
            across = engine.listed(prefix="a/", after=(listed[2], SPACE), limit=limit)
            assert [cell.name for cell in forwards] == left[3 : 3 + limit]
            assert [cell.name for cell in backwards] == left[-3 : -3 - limit : -1]
            assert [cell.name for cell in across] == listed[3 : 3 + limit]

    def test_cells_are_listed_by_prefix_letter_by_letter(self, engine: Engine) -> None:
        """Nothing in a prefix is a wildcard, and letters differ from their capitals."""
        names = ["a%b", "a_b", "aXb", "A%b", "a%", "a*", "é", "a\\%b", "ab"]
        engine.apply(write("op", *(put(name, 0, b"x", listed=True) for name in names)))

        for prefix in ["", "a", "a%", "a_", "A", "a*", "a\\", "é", "e", "z"]:
            wanted = sorted(name for name in names if name.startswith(prefix))
            assert [cell.name for cell in engine.cells(SPACE, prefix=prefix, limit=99)] == wanted
            assert [cell.name for cell in engine.listed(prefix=prefix, limit=99)] == wanted

    def test_a_prefix_and_a_cursor_work_together(self, engine: Engine) -> None:
        """A cursor outside the prefix neither hides nor adds anything."""
        engine.apply(write("op", *(put(f"{kind}/{n}", 0, b"x") for kind in "abc" for n in range(3))))

        found = [
            engine.cells(SPACE, prefix="b/", after=after, limit=2) for after in ["", "a/2", "b/1", "c/0"]
        ]

        assert [[cell.name for cell in page] for page in found] == [
            ["b/0", "b/1"],
            ["b/0", "b/1"],
            ["b/2"],
            [],
        ]

    def test_cells_are_read_backwards(self, engine: Engine) -> None:
        """The last names come first, and each page goes on before the last name of the one before."""
        engine.apply(write("op-1", *(put(f"{kind}/{n}", 0, b"x") for kind in "abc" for n in range(5))))
        engine.apply(write("op-2", put("b/3", 1, None)))

        pages = [
            engine.cells(SPACE, prefix="b/", before=before, descending=True, limit=2)
            for before in [None, "c/9", "b/2", "b/0", "a/9"]
        ]

        names = [[cell.name for cell in page] for page in pages]
        assert names == [["b/4", "b/2"], ["b/4", "b/2"], ["b/1", "b/0"], [], []]

    @pytest.mark.parametrize("prefix", ["", "b", "b/", "é", "z"])
    @pytest.mark.parametrize("after", ["", "b/1", "c/0"])
    @pytest.mark.parametrize("before", [None, "b/2", "c/9"])
    def test_both_directions_read_the_same_cells(
        self, engine: Engine, prefix: str, after: str, before: str | None
    ) -> None:
        """`prefix`, `after` and `before` bound the names, and the direction only orders them."""
        names = [*(f"{kind}/{n}" for kind in "abc" for n in range(3)), "é", "日本語 𝄞"]
        engine.apply(write("op", *(put(name, 0, b"x") for name in names)))
        expected = [
            name
            for name in sorted(names)
            if name.startswith(prefix) and name > after and (before is None or name < before)
        ]

        found = [
            engine.cells(SPACE, prefix=prefix, after=after, before=before, descending=descending, limit=limit)
            for descending in (False, True)
            for limit in (99, 2)
        ]

        backwards = expected[::-1]
        assert [[cell.name for cell in page] for page in found] == [
            expected,
            expected[:2],
            backwards,
            backwards[:2],
        ]

    def test_listed_cells_are_found_across_spaces(self, engine: Engine) -> None:
        """By name and then by space; cells that are not listed, or emptied, are left out."""
        for space in ("s2", "s1", "s3"):
            engine.apply(write("op", put("thread", 0, b"x", listed=True), put("lease", 0, b"x"), space=space))
        engine.apply(write("op-2", put("agent", 0, b"y", listed=True), space="s2"))
        engine.apply(write("op-2", put("thread", 1, None, listed=True), space="s3"))

        found = engine.listed(prefix="", limit=9)

        assert [(cell.name, cell.space) for cell in found] == [
            ("agent", "s2"),
            ("thread", "s1"),
            ("thread", "s2"),
        ]
        assert [cell.value for cell in found] == [b"y", b"x", b"x"]

    def test_listed_cells_are_paged_by_name_and_space(self, engine: Engine) -> None:
        """Pages of any size put together are the whole list."""
        for space in ("s1", "s2", "s3"):
            cells = (put(name, 0, b"x", listed=True) for name in ("a", "b"))
            engine.apply(write("op", *cells, space=space))
        whole = [(cell.name, cell.space) for cell in engine.listed(prefix="", limit=99)]

        for limit in (1, 2, 4):
            seen: list[tuple[str, str]] = []
            while page := engine.listed(prefix="", after=seen[-1] if seen else ("", ""), limit=limit):
                seen += [(cell.name, cell.space) for cell in page]
            assert seen == whole == [(name, space) for name in "ab" for space in ("s1", "s2", "s3")]

    def test_a_cell_is_listed_as_its_last_write_says(self, engine: Engine) -> None:
        """Listing can be taken back and given again."""
        seen: list[int] = []
        for revision, listed in enumerate([True, False, True]):
            engine.apply(write(f"op-{revision}", put("thread", revision, b"x", listed=listed)))
            seen.append(len(engine.listed(prefix="", limit=9)))

        assert seen == [1, 0, 1]


class LedgerLaws(EngineSubject):
    """What entries promise."""

    def test_a_ledger_begins_empty(self, engine: Engine) -> None:
        """A space that was never written has no entries."""
        assert list(engine.entries(SPACE, limit=9)) == []

    def test_positions_count_from_1_without_gaps(self, engine: Engine) -> None:
        """Entries of one write follow each other in the order given."""
        receipts = [
            engine.apply(write("op-1", b"1")),
            engine.apply(write("op-2", b"2", b"3", b"4")),
            engine.apply(write("op-3", b"5")),
        ]

        entries = engine.entries(SPACE, limit=9)

        assert [entry.position for entry in entries] == [1, 2, 3, 4, 5]
        assert [entry.body for entry in entries] == [b"1", b"2", b"3", b"4", b"5"]
        assert [receipt.position for receipt in receipts] == [1, 4, 5]

    def test_each_entry_is_chained_to_all_before_it(self, engine: Engine) -> None:
        """The chain is the same in every engine, and the receipt has it as of the last entry."""
        engine.apply(write("op-1", b"{}", b"[]"))
        receipt = engine.apply(write("op-2", b"{}"))
        chain: Digest | None = None

        for entry in engine.entries(SPACE, limit=9):
            chain = digest_of(Kind.ENTRY, (chain or "").encode() + b"\n" + entry.body)
            assert entry.chain == chain

        assert receipt.chain == chain

    def test_a_write_without_entries_says_nothing_of_the_ledger(self, engine: Engine) -> None:
        """Its receipt has no position and no chain, however long the ledger is."""
        engine.apply(write("op-1", b"{}"))

        receipt = engine.apply(write("op-2"))

        assert (receipt.position, receipt.chain) == (0, None)

    def test_equal_entries_are_separate_entries(self, engine: Engine) -> None:
        """Two equal actions are two actions."""
        engine.apply(write("op-1", b"{}", b"{}"))

        entries = engine.entries(SPACE, limit=9)

        assert [entry.body for entry in entries] == [b"{}", b"{}"]
        assert entries[0].chain != entries[1].chain

    @pytest.mark.parametrize(
        "body",
        [
            b'{"n": 12345678901234567890,  "b":1.0,"a":[ ]}',
            '{"text":"日本語 – \\ud83d"}'.encode(),
            b'"' + b"x" * 200_000 + b'"',
            b'{"quote":"\'; --"}',
        ],
        ids=["odd JSON", "unicode", "long", "quotes"],
    )
    def test_an_entry_comes_back_byte_for_byte(self, engine: Engine, body: bytes) -> None:
        """What was recorded is never written another way."""
        engine.apply(write("op", body))

        assert [entry.body for entry in engine.entries(SPACE, limit=9)] == [body]

    def test_an_entry_that_is_no_text_is_refused(self, engine: Engine) -> None:
        """The ledger is read by people too: UTF-8 and nothing else, in every engine."""
        with raises(Invalid, code="not_utf8"):
            engine.apply(write("op", b"1", b"\xff\xfe"))

        assert list(engine.spaces(limit=9)) == []

    def test_a_ledger_is_read_from_a_position(self, engine: Engine) -> None:
        """Pages of any size put together are the whole ledger."""
        engine.apply(write("op-1", *(b"%d" % number for number in range(5))))
        engine.apply(write("op-2", *(b"%d" % number for number in range(5, 10))))

        pages = [engine.entries(SPACE, after=after, limit=4) for after in (0, 4, 8, 10, 99)]

        positions = [[entry.position for entry in page] for page in pages]
        assert positions == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10], [], []]

    def test_a_ledger_is_read_backwards(self, engine: Engine) -> None:
        """The newest entry comes first, and each page goes on before the last position of the one before."""
        engine.apply(write("op-1", *(b"%d" % number for number in range(5))))
        engine.apply(write("op-2", *(b"%d" % number for number in range(5, 10))))

        pages = [
            engine.entries(SPACE, before=before, descending=True, limit=4) for before in (None, 99, 7, 3, 1)
        ]

        positions = [[entry.position for entry in page] for page in pages]
        assert positions == [[10, 9, 8, 7], [10, 9, 8, 7], [6, 5, 4, 3], [2, 1], []]

    @pytest.mark.parametrize("after", [0, 1, 3, 9])
    @pytest.mark.parametrize("before", [None, 1, 4, 5, 6, 9])
    def test_both_directions_read_the_same_entries(
        self, engine: Engine, after: int, before: int | None
    ) -> None:
        """`after` and `before` bound the positions, and the direction only orders the entries."""
        engine.apply(write("op", *(b"%d" % number for number in range(5))))
        whole = list(engine.entries(SPACE, limit=9))
        expected = [
            entry for entry in whole if entry.position > after and (before is None or entry.position < before)
        ]

        found = [
            list(engine.entries(SPACE, after=after, before=before, descending=descending, limit=limit))
            for descending in (False, True)
            for limit in (9, 2)
        ]

        backwards = expected[::-1]
        assert found == [expected, expected[:2], backwards, backwards[:2]]

    def test_a_refused_write_takes_no_position(self, engine: Engine) -> None:
        """A gap would look like a lost entry."""
        engine.apply(write("op-1", b"1"))
        with pytest.raises(Conflict):
            engine.apply(write("op-2", b"2", Fence("lease", 7)))

        receipt = engine.apply(write("op-3", b"3"))

        assert receipt.position == 2
        assert [entry.body for entry in engine.entries(SPACE, limit=9)] == [b"1", b"3"]

    def test_a_ledger_belongs_to_its_space(self, engine: Engine) -> None:
        """Each space counts and chains for itself."""
        engine.apply(write("op", b"1", b"2", space="theirs"))

        receipt = engine.apply(write("op", b"1"))

        assert receipt.position == 1
        assert receipt.chain == engine.entries("theirs", limit=1)[0].chain
        assert len(engine.entries(SPACE, limit=9)) == 1

    def test_a_ledger_follows_no_timeline(self, engine: Engine) -> None:
        """An entry moves no head, and moving a head back takes no entry away."""
        first = made("milk")
        head = engine.apply(write("op-1", first, moved(START, first), b"1")).heads[0]
        engine.apply(write("op-2", b"2"))
        assert engine.hold(SPACE, "main") is not None

        engine.apply(write("op-3", moved(head, None)))

        assert [entry.body for entry in engine.entries(SPACE, limit=9)] == [b"1", b"2"]


_READS: dict[str, Callable[[Engine], object]] = {
    "cell": lambda engine: engine.cell(SPACE, "lease"),
    "cells": lambda engine: engine.cells(SPACE, limit=9),
    "listed": lambda engine: engine.listed(prefix="", limit=9),
    "write": lambda engine: engine.apply(write("op-9", _put("lease", 2, b"eve"))),
}


def _put(name: str, expected: int, value: bytes) -> CellWrite:
    return CellWrite(name=name, expected=expected, value=value, listed=True)


def _filled(engine: Engine) -> None:
    """Return two cells, one of them written twice, two entries and a head."""
    first = made("milk")
    engine.apply(write("op-1", _put("lease", 0, b"ann"), _put("other", 0, b"bob")))
    engine.apply(write("op-2", _put("lease", 1, b"bob"), b"1", b"2"))
    engine.apply(write("op-3", first, moved(START, first)))


class QuestionLaws(EngineSubject):
    """What `answers` promises."""

    def test_each_answer_is_that_of_its_method(self, engine: Engine) -> None:
        """Of spaces that were written and of one that never was, in the order of the questions."""
        first = made("milk", run="run-1", messages=["m-1"])
        engine.apply(write("op-1", first, moved(START, first), put("a", 0, b"1"), b"{}"))

        for space in (SPACE, "never written"):
            found = engine.answers(
                [
                    LabelOf(space, "m-1"),
                    HeadOf(space, "main"),
                    HeadOf(space, "side"),
                    CellOf(space, "a"),
                    LedgerOf(space),
                    OpOf(space, "op-1"),
                    OpOf(space, "op-2"),
                ]
            )
            assert list(found) == [
                engine.labelled(space, "m-1"),
                engine.hold(space, "main"),
                engine.hold(space, "side"),
                engine.cell(space, "a"),
                engine.ledger(space),
                engine.recorded(space, "op-1"),
                engine.recorded(space, "op-2"),
            ]
        assert list(engine.answers([])) == []

    def test_answers_follow_every_write(self, engine: Engine) -> None:
        """What was answered before a write is not answered after it."""
        for turn in range(3):
            engine.apply(write(f"op-{turn}", put("a", turn, b"%d" % turn), b"{}"))

            for fresh in (False, True):
                cell, ledger = engine.answers([CellOf(SPACE, "a"), LedgerOf(SPACE)], fresh=fresh)
                assert (cell.revision, ledger.position) == (turn + 1, turn + 1)

    def test_no_write_is_half_visible(self, engine: Engine) -> None:
        """A write changes a cell and the ledger at once: no reader sees one without the other, in either order."""
        questions = [LedgerOf(SPACE), CellOf(SPACE, "a"), LedgerOf(SPACE)]
        is_done = Event()
        seen: list[tuple[int, int, int]] = []

        def read(fresh: bool) -> None:
            while not is_done.is_set():
                before, cell, after = engine.answers(questions, fresh=fresh)
                seen.append((before.position, cell.revision if cell else 0, after.position))

        readers = [Thread(target=read, args=(fresh,)) for fresh in (True, False)]
        for reader in readers:
            reader.start()
        try:
            for turn in range(100):
                engine.apply(write(f"op-{turn}", put("a", turn, b"x"), b"{}"))
        finally:
            is_done.set()
            for reader in readers:
                reader.join()
        assert seen
        assert {each for each in seen if len(set(each)) != 1} == set()


class TamperingLaws(EngineSubject):
    """What a digest and a seal promise."""

    @pytest.mark.parametrize("read", sorted(_READS))
    @pytest.mark.parametrize(
        ("what", "to"), [("cell value", "eve"), ("cell revision", "1"), ("cell moved", "lease")]
    )
    def test_a_cell_that_was_edited_is_not_used(self, engine: Engine, what: str, to: str, read: str) -> None:
        """Each read checks its digest, which covers its space, name, revision and value."""
        _filled(engine)
        name = "other" if what == "cell moved" else "lease"

        engine = self.tamper(engine, StoredEdit(what=what, space=SPACE, name=name, to=to))  # pyright: ignore[reportArgumentType]

        with pytest.raises(Corrupt):
            _READS[read](engine)

    def test_a_damaged_cell_is_named(self, engine: Engine) -> None:
        """The error says which cell it is."""
        _filled(engine)
        engine = self.tamper(engine, StoredEdit(what="cell value", space=SPACE, name="lease", to="eve"))

        with pytest.raises(Corrupt) as damaged:
            engine.cell(SPACE, "lease")

        assert damaged.value.cell == "lease"

    @pytest.mark.parametrize(
        ("what", "name"),
        [("cell gone", "lease"), ("entry gone", "2"), ("head gone", "main"), ("cell value", "other")],
    )
    def test_what_is_gone_is_missed(self, engine: Engine, what: str, name: str) -> None:
        """`check` finds it, and a write to the space is refused: evidence is not written over."""
        _filled(engine)
        engine = self.tamper(engine, StoredEdit(what=what, space=SPACE, name=name))  # pyright: ignore[reportArgumentType]

        with pytest.raises(Corrupt):
            engine.check(SPACE, again=True)
        with pytest.raises(Corrupt):
            engine.apply(write("op-9", _put("other", 1, b"eve")))

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize("edited", [1, 3, 5])
    def test_an_edited_entry_is_not_read(self, engine: Engine, edited: int, descending: bool) -> None:
        """Each entry is checked against the chain before it, in both directions; its neighbours are read."""
        engine.apply(write("op", *(b"%d" % number for number in range(5))))
        edit = StoredEdit(what="entry body", space=SPACE, name=str(edited), to="99")

        engine = self.tamper(engine, edit)

        for limit in (1, 2, 9):
            with pytest.raises(Corrupt):
                engine.entries(SPACE, after=edited - 1, before=edited + 1, descending=descending, limit=limit)
        below = engine.entries(SPACE, before=edited, descending=descending, limit=9)
        above = engine.entries(SPACE, after=edited, descending=descending, limit=9)
        assert sorted(entry.position for entry in (*below, *above)) == sorted({1, 2, 3, 4, 5} - {edited})

    @pytest.mark.parametrize("descending", [False, True])
    @pytest.mark.parametrize(("after", "before"), [(0, None), (1, 4), (2, 5), (2, 4)])
    def test_a_missing_entry_is_noticed(
        self, engine: Engine, after: int, before: int | None, descending: bool
    ) -> None:
        """A read next to a gap raises; it does not return what is left as if it were all."""
        engine.apply(write("op", *(b"%d" % number for number in range(5))))

        engine = self.tamper(engine, StoredEdit(what="entry gone", space=SPACE, name="3"))

        with pytest.raises(Corrupt):
            engine.entries(SPACE, after=after, before=before, descending=descending, limit=9)

    def test_a_space_without_edits_passes(self, engine: Engine) -> None:
        """Control: what the writes left adds up, however often it is asked."""
        _filled(engine)

        engine.check(SPACE)
        engine.check(SPACE, again=True)

        assert engine.ledger(SPACE).position == 2

    def test_a_space_is_sealed_again_on_purpose(self, engine: Engine) -> None:
        """After a repair it can be read and written as it is."""
        _filled(engine)
        engine = self.tamper(engine, StoredEdit(what="cell gone", space=SPACE, name="lease"))

        engine.reseal(SPACE)

        engine.check(SPACE, again=True)
        engine.apply(write("op-9", _put("lease", 0, b"eve")))
        assert portrait(engine)

"""The laws of the ledger: an append-only log for each space, without gaps, chained from its first entry."""

from __future__ import annotations

import pytest

from perdure.engines.contract import Engine, Fence
from perdure.errors import Conflict, Invalid
from perdure.model.digest import Digest, Kind, digest_of
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, START, made, moved, write

__all__ = ["LedgerLaws"]


class LedgerLaws(Ground):
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
        with pytest.raises(Invalid, match="UTF-8"):
            engine.apply(write("op", b"1", b"\xff\xfe"))

        assert list(engine.spaces(limit=9)) == []

    def test_a_ledger_is_read_from_a_position(self, engine: Engine) -> None:
        """Pages of any size put together are the whole ledger."""
        engine.apply(write("op-1", *(b"%d" % number for number in range(5))))
        engine.apply(write("op-2", *(b"%d" % number for number in range(5, 10))))

        pages = [engine.entries(SPACE, after=after, limit=4) for after in (0, 4, 8, 10, 99)]

        positions = [[entry.position for entry in page] for page in pages]
        assert positions == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10], [], []]

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

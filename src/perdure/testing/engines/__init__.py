"""The engine conformance suite: every law of the engine contract, as a test.

A new engine joins by saying how it is opened:

    class TestYourEngine(EngineSuite):
        def open(self, path: Path) -> Engine:
            return YourEngine(path / "store.db")

        def tamper(self, engine: Engine, edit: StoredEdit) -> Engine:
            …  # close it, make `edit` behind its back, and open it again

What it cannot do it declares as data (see `perdure.testing.engines.subject`); the suite then checks that it refuses.
`laws` holds the laws, and `builders` makes their writes.
"""

from __future__ import annotations

# ruff: noqa: E402  # Before any law is imported, or its failing asserts would say nothing but "assert".
import pytest

pytest.register_assert_rewrite("perdure.testing.engines.laws")

from perdure.testing.engines.laws.cells import CellLaws, LedgerLaws, QuestionLaws, TamperingLaws
from perdure.testing.engines.laws.history import HistoryLaws, NameLaws, ObjectLaws
from perdure.testing.engines.laws.news import NewsLaws
from perdure.testing.engines.laws.processes import LifeLaws, PresenceLaws, ProcessLaws, RaceLaws
from perdure.testing.engines.laws.removal import RemovalLaws, ReplayLaws
from perdure.testing.engines.laws.writes import HeadLaws, WriteLaws

__all__ = [
    "EngineSuite",
    "QuestionLaws",
    "CellLaws",
    "HeadLaws",
    "HistoryLaws",
    "LedgerLaws",
    "LifeLaws",
    "NameLaws",
    "NewsLaws",
    "ObjectLaws",
    "PresenceLaws",
    "ProcessLaws",
    "RaceLaws",
    "RemovalLaws",
    "ReplayLaws",
    "TamperingLaws",
    "WriteLaws",
]


class EngineSuite(
    ObjectLaws,
    WriteLaws,
    HeadLaws,
    HistoryLaws,
    CellLaws,
    LedgerLaws,
    QuestionLaws,
    NameLaws,
    RemovalLaws,
    ReplayLaws,
    LifeLaws,
    RaceLaws,
    ProcessLaws,
    PresenceLaws,
    NewsLaws,
    TamperingLaws,
):
    """All laws.  Subclass it, name the subclass `Test…` and write `open`."""

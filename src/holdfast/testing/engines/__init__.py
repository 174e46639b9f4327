"""The engine conformance suite: every law of the engine contract, as a test.

A new engine joins by saying how it is opened:

    class TestYourEngine(EngineSuite):
        def open(self, path: Path) -> Engine:
            return YourEngine(path / "store.db")

What it cannot do it declares as data (see `Ground`); the suite then checks that it refuses.
"""

from __future__ import annotations

from holdfast.testing.engines.cells import CellLaws
from holdfast.testing.engines.ground import Ground
from holdfast.testing.engines.heads import HeadLaws
from holdfast.testing.engines.histories import HistoryLaws
from holdfast.testing.engines.ledger import LedgerLaws
from holdfast.testing.engines.lives import LifeLaws
from holdfast.testing.engines.names import NameLaws
from holdfast.testing.engines.objects import ObjectLaws
from holdfast.testing.engines.processes import ProcessLaws
from holdfast.testing.engines.races import RaceLaws
from holdfast.testing.engines.removal import RemovalLaws
from holdfast.testing.engines.writes import WriteLaws

__all__ = [
    "CellLaws",
    "EngineSuite",
    "Ground",
    "HeadLaws",
    "HistoryLaws",
    "LedgerLaws",
    "LifeLaws",
    "NameLaws",
    "ObjectLaws",
    "ProcessLaws",
    "RaceLaws",
    "RemovalLaws",
    "WriteLaws",
]


class EngineSuite(
    ObjectLaws,
    WriteLaws,
    HeadLaws,
    HistoryLaws,
    CellLaws,
    LedgerLaws,
    NameLaws,
    RemovalLaws,
    LifeLaws,
    RaceLaws,
    ProcessLaws,
):
    """All laws.  Subclass it, name the subclass `Test…` and write `open`."""

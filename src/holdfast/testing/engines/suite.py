"""The engine conformance suite: every law of the engine contract, as a test.

A new engine joins by saying how it is opened:

    class TestYourEngine(EngineSuite):
        def open(self, path: Path) -> Engine:
            return YourEngine(path / "store.db")

        def tamper(self, engine: Engine, edit: Edit) -> Engine:
            …  # close it, make `edit` behind its back, and open it again

What it cannot do it declares as data (see `holdfast.testing.engines.ground`); the suite then checks that it refuses.
"""

from __future__ import annotations

from holdfast.testing.engines.laws.cells import CellLaws
from holdfast.testing.engines.laws.heads import HeadLaws
from holdfast.testing.engines.laws.histories import HistoryLaws
from holdfast.testing.engines.laws.ledger import LedgerLaws
from holdfast.testing.engines.laws.lives import LifeLaws
from holdfast.testing.engines.laws.names import NameLaws
from holdfast.testing.engines.laws.objects import ObjectLaws
from holdfast.testing.engines.laws.presence import PresenceLaws
from holdfast.testing.engines.laws.processes import ProcessLaws
from holdfast.testing.engines.laws.races import RaceLaws
from holdfast.testing.engines.laws.removal import RemovalLaws
from holdfast.testing.engines.laws.tampering import TamperingLaws
from holdfast.testing.engines.laws.writes import WriteLaws

__all__ = ["EngineSuite"]


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
    PresenceLaws,
    TamperingLaws,
):
    """All laws.  Subclass it, name the subclass `Test…` and write `open`."""

"""The engine conformance suite: every law of the engine contract, as a test.

A new engine joins by saying how it is opened:

    class TestYourEngine(EngineSuite):
        def open(self, path: Path) -> Engine:
            return YourEngine(path / "store.db")

        def tamper(self, engine: Engine, edit: Edit) -> Engine:
            …  # close it, make `edit` behind its back, and open it again

What it cannot do it declares as data (see `perdure.testing.engines.ground`); the suite then checks that it refuses.
"""

from __future__ import annotations

from perdure.testing.engines.laws.cells import CellLaws
from perdure.testing.engines.laws.heads import HeadLaws
from perdure.testing.engines.laws.histories import HistoryLaws
from perdure.testing.engines.laws.ledger import LedgerLaws
from perdure.testing.engines.laws.lives import LifeLaws
from perdure.testing.engines.laws.names import NameLaws
from perdure.testing.engines.laws.objects import ObjectLaws
from perdure.testing.engines.laws.presence import PresenceLaws
from perdure.testing.engines.laws.processes import ProcessLaws
from perdure.testing.engines.laws.races import RaceLaws
from perdure.testing.engines.laws.removal import RemovalLaws
from perdure.testing.engines.laws.tampering import TamperingLaws
from perdure.testing.engines.laws.writes import WriteLaws

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

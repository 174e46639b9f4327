"""The engine conformance suite: every law of the engine contract, as a test.

A new engine joins by saying how it is opened:

    class TestYourEngine(EngineSuite):
        def open(self, path: Path) -> Engine:
            return YourEngine(path / "store.db")

        def tamper(self, engine: Engine, edit: StoredEdit) -> Engine:
            …  # close it, make `edit` behind its back, and open it again

What it cannot do it declares as data (see `perdure.testing.engines.subject`); the suite then checks that it refuses.
"""

from __future__ import annotations

from perdure.testing.engines.laws.cells import CellLaws, LedgerLaws, TamperingLaws
from perdure.testing.engines.laws.history import HistoryLaws, NameLaws, ObjectLaws
from perdure.testing.engines.laws.processes import LifeLaws, PresenceLaws, ProcessLaws, RaceLaws
from perdure.testing.engines.laws.removal import RemovalLaws
from perdure.testing.engines.laws.writes import HeadLaws, WriteLaws

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

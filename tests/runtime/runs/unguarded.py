"""Guards that are not good enough, for controls: what happens where calls are told apart by id alone."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.history.space import Space
from perdure.ledger import repeat_guard
from perdure.ledger.repeat_guard import MayStart
from perdure.model.call import CallRecord

__all__ = ["guard_by_id_alone"]


def guard_by_id_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call pass that was not made before under the same id."""

    def check(space: Space, record: CallRecord, **options: Any) -> MayStart:
        return MayStart(None)

    monkeypatch.setattr(repeat_guard, "check", check)

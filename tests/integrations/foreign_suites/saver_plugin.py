"""A plugin for pytest that gives LangGraph's own tests our `Saver` in place of its SQLite savers.

The tests are those of LangGraph's source distribution, whose package is named `tests` too: so this file is no part of ours,
and is found by its folder.  Only cases with a SQLite saver are run.  `PERDURE_SAVER=theirs` leaves the savers as they are:
that run says which cases must pass.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

_OURS = os.environ.get("PERDURE_SAVER", "ours") == "ours"
_STRICT = os.environ.get("LANGGRAPH_STRICT_MSGPACK", "") in ("1", "true", "yes")


@contextmanager
def _saver() -> Generator[Any]:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    import perdure
    from perdure.integrations.langgraph import Saver

    # LangGraph's default constructs every class, with a warning; strictly it constructs none that no graph declares.
    serializer = JsonPlusSerializer(allowed_msgpack_modules=None) if _STRICT else JsonPlusSerializer()
    with (
        tempfile.TemporaryDirectory() as folder,
        perdure.open(Path(folder) / "agents.db", blocking=True) as store,
    ):
        yield Saver(store, serializer=serializer)


@asynccontextmanager
async def _async_saver() -> AsyncGenerator[Any]:
    with _saver() as saver:
        yield saver


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take the place of the savers, and leave out the cases that have none."""
    if _OURS:
        fixtures: Any = sys.modules["tests.conftest"]
        fixtures._checkpointer_sqlite, fixtures._checkpointer_sqlite_aio = _saver, _async_saver
    chosen: list[pytest.Item] = []
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if {params.get("sync_checkpointer"), params.get("async_checkpointer")} & {"sqlite", "sqlite_aio"}:
            chosen.append(item)
    items[:] = chosen

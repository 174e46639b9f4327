"""LangGraph's own tests, from its source distributions, with our saver and our memory in place of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

from tests.crash.campaign import DEEP
from tests.integrations.foreign_suites.downloaded import outcomes, suite

LANGGRAPH, CHECKPOINT = "1.2.20", "4.3.1"

pytestmark = pytest.mark.skipif(
    not DEEP, reason="a campaign of make deep: it downloads the suites of LangGraph"
)


@pytest.fixture
def runtime() -> Path:
    """LangGraph's runtime tests."""
    return suite("langgraph", LANGGRAPH, "pytest-mock", "syrupy", "redis", "pycryptodome")


def by_saver(folder: Path, saver: str, *cases: str, strict: bool) -> dict[str, str]:
    """The outcomes of the cases with a SQLite saver."""
    env = {"NO_DOCKER": "true", "PERDURE_SAVER": saver, "LANGGRAPH_STRICT_MSGPACK": str(strict).lower()}
    return outcomes(folder, "saver_plugin", *(cases or ["tests"]), env=env)


def again(folder: Path, names: set[str], *, strict: bool) -> set[str]:
    """The cases that fail with ours once more, alone: some of LangGraph's tests wait for hundredths of a second.

    On a busy machine `test_imp_nested`, which expects that two tasks take less than 10 ms, fails with its own saver as well.
    """
    left = sorted(names)
    for _ in range(3):
        if not left:
            break
        paths = [each.replace(".", "/", 1).replace("::", ".py::") for each in left]
        found = by_saver(folder, "ours", *paths, strict=strict)
        left = [each for each in left if found.get(each) != "passed"]
    return set(left)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("strict", [False, True])
def test_the_runtime_tests_pass_as_with_the_sqlite_saver(runtime: Path, strict: bool) -> None:
    """Every case that passes with LangGraph's SQLite saver, blocking and awaited, passes with ours."""
    theirs = by_saver(runtime, "theirs", strict=strict)
    ours = by_saver(runtime, "ours", strict=strict)
    passed = {name for name, outcome in theirs.items() if outcome == "passed"}
    missing = {name for name in passed if ours.get(name) != "passed"}

    assert len(passed) > 600
    assert again(runtime, missing, strict=strict) == set()


@pytest.mark.timeout(1800)
def test_the_tests_of_stores_pass_as_with_its_own_store() -> None:
    """All of `tests/test_store.py`; those of `AsyncBatchedBaseStore` use it around our memory."""
    folder = suite("langgraph-checkpoint", CHECKPOINT, "pytest-mock", "pytest-asyncio")
    cases = ["-o", "asyncio_mode=auto", "tests/test_store.py"]
    ours = outcomes(folder, "memory_plugin", *cases, env={})

    assert len({name.partition("[")[0] for name in ours}) >= 31
    assert [name for name, outcome in ours.items() if outcome != "passed"] == []

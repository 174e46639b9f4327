"""`verify` beside a writer of the same process reports no damage that is not there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

import perdure
from perdure.engines.contract import Fact
from tests.crash.campaign import sized

VERIFICATIONS = sized(15, 400)


@perdure.tool(effect="external_write")
def pay(number: int) -> str:
    """Pay."""
    return f"paid {number}"


def test_verify_ends_beside_a_writer_that_is_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each page that it reads more is written than it has read; it checks what there was when it began."""
    with perdure.open(tmp_path / "agents.db", durability="process_crash") as store:
        thread = store.thread("trip", agent="planner")
        engine, scan = store._resources.engine, store._resources.engine.scan
        pages: list[int | None] = []

        def scan_and_write(space: str, *, after: int = 0, limit: int) -> tuple[Sequence[Fact], int | None]:
            assert len(pages) < 50, "it never ends"
            facts, cursor = scan(space, after=after, limit=limit)
            pages.append(cursor)
            for number in range(len(facts) + 1):
                thread.put("/n.json", number)
            return facts, cursor

        for number in range(10):
            thread.put("/n.json", number)
        monkeypatch.setattr(engine, "scan", scan_and_write)
        report = store.verify()
        monkeypatch.undo()

        assert report.ok
        assert report.written == 1
        assert report.checked["commit"] < 50
        assert store.verify(since=report).checked["commit"] > report.checked["commit"]
        assert store.verify().written == 0


@pytest.mark.parametrize("kind", ["put", "call"])
def test_verify_finds_nothing_beside_a_writer(tmp_path: Path, kind: str) -> None:
    """Rows and calls that are written during a verification are compared by the next one."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("trip", agent="planner")
        is_done = threading.Event()

        def write() -> None:
            number = 0
            while not is_done.wait(0.005):  # what forty checks read must not grow without end
                number += 1
                if kind == "put":
                    thread.put("/n.json", number)
                else:
                    thread.call(pay, {"number": number}, id=f"call-{number}")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            reports = [store.verify() for _ in range(VERIFICATIONS)]
        finally:
            is_done.set()
            writer.join()

        assert [report.faults for report in reports if not report.ok] == []
        assert store.verify().ok

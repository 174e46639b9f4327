"""`verify` beside a writer of the same process reports no damage that is not there."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import perdure
from tests.crash.campaign import sized

VERIFICATIONS = sized(40, 400)


@perdure.tool(effect="external_write")
def pay(number: int) -> str:
    """Pay."""
    return f"paid {number}"


@pytest.mark.parametrize("kind", ["put", "call"])
def test_verify_finds_nothing_beside_a_writer(tmp_path: Path, kind: str) -> None:
    """Rows and calls that are written during a verification are compared by the next one."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("trip", agent="planner")
        is_done = threading.Event()

        def write() -> None:
            number = 0
            while not is_done.wait(
                0.005
            ):  # a reader that is slower than the writer would never come to the end
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

"""Plain SQL finds the words of every message, however often or at whatever length they were said."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import perdure


def told(path: Path) -> list[str]:
    """The words of all messages, as stock `sqlite3` reads them."""
    query = "SELECT payload_json FROM conversation_events WHERE event_type = 'message.appended' ORDER BY sequence_number"
    with sqlite3.connect(path) as database:
        payloads = [json.loads(row[0]) for row in database.execute(query)]
    return [payload["message"]["content"][0]["text"] for payload in payloads]


@pytest.mark.parametrize(
    "words",
    [["Yes."] * 5, ["x" * 5_000] * 2, ["y" * 40_000, "z" * 200_000], ["é" * 3, "", '"quoted"\n']],
    ids=["said-again", "long-said-again", "very-long", "odd"],
)
def test_every_message_is_read_by_stock_sqlite(tmp_path: Path, words: list[str]) -> None:
    """A body that the store has already, or a large one, still stands where the view looks."""
    path = tmp_path / "agents.db"
    with perdure.open(str(path)) as store:
        thread = store.thread("t", agent="a")
        for text in words:
            with thread.change("said") as change:
                change.say("user", text)

        assert [entry.message.text for entry in thread.transcript()] == words

    assert told(path) == words


def test_an_artifact_put_by_hand_is_listed(tmp_path: Path) -> None:
    """The view has what `artifacts ls` shows."""
    path = tmp_path / "agents.db"
    with perdure.open(str(path)) as store:
        digest = store.thread("t", agent="a").artifacts.put([b"a report"], name="report")

    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT conversation_id, reference, name, size FROM artifact_references"
        ).fetchall()

    assert rows == [("t", f"artifact://sha256/{digest}", "report", 8)]

"""What a long conversation of a graph costs: bytes and time grow with what is new, not with what is there."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

from langgraph.checkpoint.sqlite import SqliteSaver

import perdure
from perdure.integrations.langgraph import Saver
from tests.crash.campaign import DEEP, sized
from tests.integrations.graphs import chat, say

TEXT = "a question of some length, " * 90  # about 2.5 KB


def bytes_in(folder: Path) -> int:
    """The size of the databases in a folder; how much of it is still in a write-ahead log does not matter."""
    size = 0
    for each in folder.glob("*.db"):
        with closing(sqlite3.connect(f"file:{each}?mode=ro", uri=True)) as db:
            size += db.execute(
                "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
            ).fetchone()[0]
    return size


def grown(app: Any, folder: Path, turns: int) -> tuple[int, int]:
    """How much the folder grows in the second and in the fourth quarter of a conversation."""
    sizes: list[int] = []
    for turn in range(turns):
        say(app, f"{turn}: {TEXT}")
        if (turn + 1) % (turns // 4) == 0:
            sizes.append(bytes_in(folder))
    return sizes[1] - sizes[0], sizes[3] - sizes[2]


@pytest.mark.parametrize("is_ours", [True, False])
def test_the_bytes_of_a_turn_do_not_grow_with_the_conversation(tmp_path: Path, is_ours: bool) -> None:
    """A quarter of a conversation takes as much as another one; of LangGraph's own saver, the control, ever more."""
    turns = sized(48, 1000)
    if is_ours:
        with perdure.open(tmp_path / "agents.db") as store:
            early, late = grown(chat().compile(checkpointer=Saver(store)), tmp_path, turns)
        assert late < 1.2 * early + 200_000
    else:
        with SqliteSaver.from_conn_string(str(tmp_path / "agents.db")) as saver:
            early, late = grown(chat().compile(checkpointer=saver), tmp_path, min(turns, 200))
        assert late > 1.3 * early + 200_000


@pytest.mark.skipif(
    not DEEP, reason="a campaign of make deep: it compares with the whole run of another saver"
)
def test_a_thousand_turns_take_a_hundredth_of_the_bytes(tmp_path: Path) -> None:
    """Of those that LangGraph's SQLite saver takes in the same run, and less processor time in the last hundred."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()

    def last_hundred(app: Any) -> float:
        for turn in range(900):
            say(app, f"{turn}: {TEXT}")
        begin = time.process_time()
        for turn in range(100):
            say(app, f"{turn}: {TEXT}")
        return time.process_time() - begin

    with perdure.open(ours / "agents.db") as store:
        our_time = last_hundred(chat().compile(checkpointer=Saver(store)))
        assert store.verify().ok
    with SqliteSaver.from_conn_string(str(theirs / "agents.db")) as saver, closing(saver.conn):
        their_time = last_hundred(chat().compile(checkpointer=saver))

    print(f"bytes {bytes_in(ours)} : {bytes_in(theirs)}, seconds {our_time:.2f} : {their_time:.2f}")
    assert bytes_in(ours) * 100 <= bytes_in(theirs)
    assert our_time < their_time

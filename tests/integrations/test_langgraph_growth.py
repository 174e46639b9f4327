"""What a long conversation of a graph costs: bytes and time grow with what is new, not with what is there."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.sqlite import SqliteSaver

import perdure
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.integrations.langgraph import Saver, task_writes
from perdure.integrations.langgraph.codec import MARK, Codec
from perdure.integrations.langgraph.transcript import MessageList
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


class Counts(NamedTuple):
    """What one turn costs."""

    writes: int  # durable ones
    objects: int  # that were read from the engine
    encoded: int  # messages, for the channel and for the writes of tasks
    decoded: int  # messages
    compared: int  # whole lists of messages, field by field


def counted(monkeypatch: pytest.MonkeyPatch, turn: Callable[[], None]) -> Counts:
    """Count what a turn does."""
    seen: Counter[str] = Counter()
    apply, objects, encode, decode = SqliteEngine.apply, SqliteEngine.objects, Codec.encode, Codec.decode

    def counts(name: str, method: Callable[..., Any], how_many: Callable[..., int]) -> Callable[..., Any]:
        def call(self: Any, *given: Any) -> Any:
            seen[name] += how_many(*given)
            return method(self, *given)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(
            MessageList, "_are_of", counts("compared", MessageList._are_of, lambda _, start: start == 0)
        )
        patch.setattr(SqliteEngine, "apply", counts("writes", apply, lambda _: 1))
        patch.setattr(SqliteEngine, "objects", counts("objects", objects, lambda _, digests: len(digests)))
        patch.setattr(
            Codec, "encode", counts("encoded", encode, lambda value: isinstance(value, BaseMessage))
        )
        is_message = lambda value: isinstance(value, dict) and value.get(MARK) == "message"  # noqa: E731
        patch.setattr(Codec, "decode", counts("decoded", decode, is_message))
        turn()
    return Counts(*(seen[name] for name in Counts._fields))


def least(monkeypatch: pytest.MonkeyPatch, turn: Callable[[], None]) -> Counts:
    """Return the counts of the turn with the fewest writes: on a busy machine a thread may come too late to share one."""
    monkeypatch.setattr(task_writes, "_WAIT_SECONDS", 1.0)
    return min(counted(monkeypatch, turn) for _ in range(5))


def test_a_turn_reads_and_encodes_no_more_in_a_long_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four durable writes, the three new messages encoded for their channel, none decoded, whatever came before.

    Each put carries the writes of the tasks before it.  Only the last one compares all messages that are there.
    """
    with perdure.open(tmp_path / "agents.db") as store:
        app = chat().compile(checkpointer=Saver(store))
        for turn in range(25):  # so that there are more messages than every put looks into
            say(app, f"{turn}: {TEXT}")
        early = least(monkeypatch, lambda: say(app, "early", durability="sync"))
        for turn in range(50):
            say(app, f"{turn}: {TEXT}")
        late = least(monkeypatch, lambda: say(app, "late", durability="sync"))
    with perdure.open(tmp_path / "agents.db") as store:
        again = chat().compile(checkpointer=Saver(store))
        opened = counted(monkeypatch, lambda: say(again, "opened again", durability="sync"))

    assert (late.writes, late.encoded, late.decoded) == (early.writes, 3, 0) == (4, 3, 0)
    assert late.objects <= early.objects + 4
    # By the read that begins the run, unless it makes every message again, and by the put that ends it.
    assert 1 <= late.compared <= 2
    assert 1 <= early.compared <= 2
    assert opened.decoded > 180  # Control: a process that remembers nothing decodes every message


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

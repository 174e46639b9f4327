"""What a long conversation of a graph costs: bytes and time grow with what is new, not with what is there."""

from __future__ import annotations

import copy
import pickle
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("langgraph.checkpoint.sqlite")

from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.sqlite import SqliteSaver

import perdure
from perdure.engines.sqlite.engine import SqliteEngine
from perdure.integrations.langgraph import Saver, task_writes, transcript
from perdure.integrations.langgraph.codec import MARK, Codec
from perdure.integrations.langgraph.transcript import ListChange, MessageList, elements_of
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
        patch.setattr(MessageList, "_are_of", counts("compared", MessageList._are_of, lambda _: 1))
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

    Each put carries the writes of the tasks before it.  No put and no read compares all messages that are there.
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
    assert late.compared == early.compared == 0
    assert opened.decoded > 180  # Control: a process that remembers nothing decodes every message


def remembered(messages: Sequence[BaseMessage], before: MessageList | None = None) -> MessageList:
    """The list of these messages as the saver remembers it after a put."""
    change = changed(messages, before or MessageList())
    change.after.keep(messages, change.before, change.known)
    return change.after


def changed(messages: Sequence[BaseMessage], before: MessageList, *, is_step: bool = False) -> ListChange:
    """How a remembered list becomes a list of these messages."""
    found = elements_of(Codec(), messages, before, is_step=is_step)
    assert found is not None
    return found


def many() -> list[AIMessage]:
    """More messages than a step looks into, with lists and dictionaries inside, empty ones and others."""
    return [
        AIMessage(
            str(at),
            id=f"m{at}",
            tool_calls=[{"name": "look", "args": {"at": []}, "id": "c", "type": "tool_call"}],
            more={"a": 1},
        )
        for at in range(200)
    ]


ALTERED: dict[str, Callable[[Any], object]] = {
    "a field": lambda message: setattr(message, "content", "altered"),
    "an empty dictionary": lambda message: message.additional_kwargs.update(x=1),
    "an empty list": lambda message: message.invalid_tool_calls.append({"name": "x"}),
    "a list that is not empty": lambda message: message.tool_calls[0]["args"]["at"].append(1),
    "an extra field": lambda message: message.more.update(b=2),
    "a new extra field": lambda message: setattr(message, "other", 1),
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
@pytest.mark.parametrize("at", [3, 199])
@pytest.mark.parametrize("is_handed_out", [False, True])
def test_a_put_finds_the_message_that_was_altered(
    alter: Callable[[Any], object], at: int, is_handed_out: bool
) -> None:
    """Whether the program has made it or the saver, and also if it was altered while the put was written."""
    messages: Any = many()
    before = remembered(messages)
    messages = before.messages() if is_handed_out else messages
    assert changed([*messages, AIMessage("new")], before).known is not None  # Control: nothing was altered

    change = changed([*messages, AIMessage("new")], before)
    alter(messages[at])
    change.after.keep([*messages, AIMessage("new")], before, change.known)

    assert changed([*messages, AIMessage("new")], change.after).shared == at
    assert changed(messages, before).shared == at


def test_a_step_looks_for_fields_everywhere_and_into_the_last_messages() -> None:
    """A dictionary inside an old message is looked into at the end of the run."""
    messages = many()
    before = remembered(messages)
    messages[3].additional_kwargs["x"] = 1
    assert changed(messages, before, is_step=True).shared == 200
    assert changed(messages, before).shared == 3

    messages[5].content = "altered"
    assert changed(messages, before, is_step=True).shared == 3  # now it compares them all


def test_a_message_of_two_lists_is_found_in_both_if_it_was_altered() -> None:
    """A subgraph and its parent have the same objects; that one of them has seen the alteration hides it from none."""
    messages = many()
    parent, child = remembered(messages), remembered(messages)
    messages[3].content = "altered"

    parent = remembered(messages, parent)
    assert changed(messages, child).shared == 3
    assert changed(messages, parent).known is not None


def test_where_pydantic_notes_nothing_every_put_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then no remembered object is trusted."""
    monkeypatch.setattr(transcript, "_IS_NOTED", False)
    messages = many()
    before = remembered(messages)

    assert (changed(messages, before).known, changed(messages, before).shared) == (None, 200)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])  # noqa: S301  # made here
def test_a_copy_of_a_remembered_message_is_like_any_other(copied: Callable[[Any], Any]) -> None:
    """Nothing of the saver is in it, and altering it is no alteration of the message."""
    messages = remembered(many()).messages()
    twin = copied(messages[0])
    twin.content = "altered"

    assert type(twin.model_fields_set) is set
    assert not messages[0].__pydantic_fields_set__.noted  # pyright: ignore[reportAttributeAccessIssue]


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

"""Values of a graph: what comes back equal, what is refused by name, and stored bytes that try to execute something."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import decimal
import enum
import io
import ipaddress
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import uuid
import zoneinfo
from collections import deque
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("langgraph")

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Interrupt, Overwrite, Send
from pydantic import BaseModel

import perdure
from perdure.errors import Corrupt, Invalid, PerdureError, Unsupported
from perdure.integrations.langgraph import Saver, codec
from perdure.integrations.langgraph.codec import MARK, Codec
from tests.coded import raises
from tests.crash.campaign import sized
from tests.integrations.graphs import chat, config, said, say


class Colour(enum.Enum):
    """A declared class."""

    RED = "red"


class Trip(BaseModel):
    """A declared class."""

    to: str
    days: list[int] = []


@dataclasses.dataclass
class Point:
    """A declared class."""

    x: int
    y: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Counted:
    """A declared class with a field that its constructor does not take."""

    x: int
    count: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Scaled:
    """A declared class whose constructor needs more than its fields."""

    x: int
    by: dataclasses.InitVar[int]

    def __post_init__(self, by: int) -> None:
        self.x *= by


@dataclasses.dataclass
class Shifted:
    """A declared class whose constructor changes what it is given."""

    x: int
    names: list[str] = dataclasses.field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.x += 1


DECLARED = [(__name__, name) for name in ("Colour", "Trip", "Point", "Counted", "Scaled", "Shifted")]
OSLO = zoneinfo.ZoneInfo("Europe/Oslo")

VALUES: list[Any] = [
    *(
        None,
        True,
        0,
        -(2**53),
        2**80,
        1.5,
        "text",
        "\ud800",
        b"\x00",
        bytearray(b"a"),
        [1, [2]],
        {"a": {"b": []}},
    ),
    *({1: "a", None: 2}, {"$": "message", "v": 1}, (1, (2, 3)), {1, 2}, frozenset({3}), deque([1, 2])),
    *(uuid.UUID(int=7), decimal.Decimal("1.10"), pathlib.Path("/a/b"), re.compile("a+", re.IGNORECASE)),
    *(
        pathlib.PurePosixPath("a/b"),
        pathlib.PureWindowsPath("C:\\a\\b"),
        pathlib.PureWindowsPath("//host/share/a"),
    ),
    *(ipaddress.ip_address("::1"), ipaddress.ip_network("10.0.0.0/8"), OSLO, datetime.UTC),
    *(
        datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=OSLO),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    ),
    *(datetime.date(2026, 1, 1), datetime.time(1, 2, 3), datetime.timedelta(days=-1, microseconds=5)),
    HumanMessage([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}], id="h"),
    AIMessage(
        "hi", tool_calls=[{"name": "t", "args": {"n": 2**60}, "id": "c"}], response_metadata={"a": [1]}
    ),
    *(SystemMessage("s", name="n"), ToolMessage("r", tool_call_id="c", artifact={1}, status="error")),
    *(
        HumanMessage([]),
        AIMessage([], id="a"),
        AIMessage("", note=None, parts=[]),
        AIMessageChunk(content=[]),
    ),
    *(ToolMessage([], tool_call_id="c"), ToolMessage("", tool_call_id="c", artifact=[])),
    ToolMessage("r", tool_call_id="c", artifact={}),
    *(
        AIMessageChunk(content="part"),
        RemoveMessage(id="gone"),
        RemoveMessage(id=cast("Any", None)),
        Document(page_content="words", metadata={"n": 1}),
    ),
    *(
        Send("node", {"m": [HumanMessage("x")]}),
        Interrupt("v", id="i"),
        Command(update={"a": (1,)}, goto="b"),
        Overwrite(value=[1]),
    ),
    *(Colour.RED, Trip(to="Oslo", days=[1]), Point(1, {"deep": Point(2)})),
    *(Counted(1), Scaled(2, 3), Shifted(4, ["a"])),
]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """Through JSON text, of the same type, and equal."""
    own = Codec(DECLARED)
    found = own.decode(json.loads(json.dumps(own.encode(value), allow_nan=False)))

    assert type(found) is type(value)
    assert found == value


JSON: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.just("$"), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_plain_data_is_stored_as_data(value: Any) -> None:
    """Whatever its keys are."""
    own = Codec()

    assert own.decode(json.loads(json.dumps(own.encode(value)))) == value


@pytest.mark.parametrize("stored", [{}, {"content": None}])
def test_a_stored_message_without_content_has_no_block(stored: Any) -> None:
    """An empty list was once left out, as if it were a field that has not been set."""
    assert Codec().decode({"$": "message", "type": "AIMessage", "v": stored}) == AIMessage([])


def test_a_turn_without_content_is_there_after_a_restart(tmp_path: Path) -> None:
    """Of a model that ends its turn with an empty list of blocks; the conversation goes on."""
    graph: Any = StateGraph(MessagesState)
    graph.add_node("model", lambda _: {"messages": [AIMessage([])]})
    graph.add_edge(START, "model")
    for text in ("one", "two"):
        with perdure.open(tmp_path / "agents.db") as store:
            say(graph.compile(checkpointer=Saver(store)), text)
    with perdure.open(tmp_path / "agents.db") as store:
        assert said(graph.compile(checkpointer=Saver(store))) == ["one", [], "two", []]


def test_a_field_that_a_class_has_got_since_has_its_default() -> None:
    """One that it has no more, or that is needed and missing, is damage."""
    stored: Any = {"$": "object", "type": [__name__, "Shifted"], "v": {"x": 5}}
    assert Codec(DECLARED).decode(stored) == Shifted(4, [])

    for stored["v"] in ({"x": 5, "gone": 1}, {"names": []}):
        with raises(Corrupt, "foreign_value_damaged"):
            Codec(DECLARED).decode(stored)


def test_a_time_zone_without_a_name_is_refused_and_a_time_in_it_keeps_its_offset() -> None:
    """The rules of such a zone are in a file that no reader could find."""
    counts = struct.pack(">6l", 0, 0, 0, 0, 1, 5)
    file = io.BytesIO(b"TZif" + bytes(16) + counts + struct.pack(">lbb", 7200, 0, 0) + b"CEST\0")
    zone = zoneinfo.ZoneInfo.from_file(file)
    at = datetime.datetime(2026, 7, 1, 12, tzinfo=zone)

    with raises(Unsupported, "foreign_type_refused"):
        Codec().encode(zone)
    assert Codec().decode(Codec().encode(at)).isoformat() == "2026-07-01T12:00:00+02:00"


class Undeclared:
    """A class that nobody declared."""


def test_a_queue_keeps_its_limit() -> None:
    """One without a limit has none afterwards, either."""
    codec = Codec()

    found = [codec.decode(codec.encode(deque([1, (2,)], most))) for most in (2, 5, 0, None)]

    assert [(list(each), each.maxlen) for each in found] == [
        ([1, (2,)], 2),
        ([1, (2,)], 5),
        ([], 0),
        ([1, (2,)], None),
    ]


@pytest.mark.parametrize("most", [-1, "2", None, 1.5, [1]])
def test_a_queue_with_a_limit_that_is_none_is_damaged(most: Any) -> None:
    """What is stored of a limit is a number, or the value is refused."""
    stored = {MARK: "bounded deque", "v": [most, [1]]}
    if most is None:
        stored = {MARK: "bounded deque", "v": [2, "text"]}

    with pytest.raises(Corrupt):
        Codec().decode(cast("Any", stored))


STORED_SET = """
words = [f"word {number}" for number in range(50)]
print(Codec().encode([set(words), frozenset(map(str.encode, words)), {(1, "a"), ("a", 1), None, 2.5}]))
print(set(words))
"""


def test_a_set_is_stored_alike_in_every_process() -> None:
    """Its order there is that of what is stored, and not that of the process, which is the control."""
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    program = f"from perdure.integrations.langgraph.codec import Codec{STORED_SET}"
    there = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(STORED_SET, {"Codec": Codec})
    here = printed.getvalue().splitlines()

    assert here[0] == there[0]
    assert here[1] != there[1]


def test_a_class_that_is_on_no_list_is_refused_by_name(tmp_path: Path) -> None:
    """Before anything is written; a serializer of the program takes it."""
    with raises(Unsupported, "foreign_type_refused", type=f"{__name__}.Undeclared"):
        Codec(DECLARED).encode({"a": [Undeclared()]})
    with raises(Unsupported, "foreign_type_refused", type=f"{__name__}.Point"):
        Codec().encode(Point(1))
    taking = Codec(serializer=JsonPlusSerializer())
    assert taking.decode(taking.encode(Point(1))) == Point(1)
    with raises(Unsupported, "serializer_missing"):
        Codec().decode(taking.encode(Point(1)))


def test_a_declared_class_is_not_constructed_for_a_program_that_has_not_declared_it() -> None:
    """Stored bytes name it, and reading refuses."""
    with raises(Unsupported, "foreign_type_refused", type=f"{__name__}.Point"):
        Codec().decode(Codec(DECLARED).encode(Point(1)))


def test_a_value_that_is_too_deep_is_refused() -> None:
    """By a typed error, not by a recursion."""
    value: Any = []
    for _ in range(5_000):
        value = [value]
    with raises(Invalid, "foreign_value_too_deep"):
        Codec().encode(value)


EXECUTED: list[str] = []


class Hostile(BaseModel):
    """A class whose construction is an effect."""

    def __init__(self, **data: Any) -> None:
        EXECUTED.append("constructed")
        super().__init__(**data)


FIELDS = sorted(
    {name for _, names in codec._FIELDS.values() for name in names} | {*AIMessageChunk.model_fields}
)

HOSTILE: list[Any] = [
    {"$": "object", "type": ["os", "system"], "v": {"command": "touch /tmp/x"}},
    {"$": "object", "type": ["builtins", "eval"], "v": {"source": "1"}},
    {"$": "object", "type": [__name__, "Hostile"], "v": {}},
    {"$": "object", "type": [__name__, "Point.__init__"], "v": {}},
    {"$": "enum", "type": ["subprocess", "Popen"], "v": ["touch", "/tmp/x"]},
    {"$": "message", "type": "Hostile", "v": {}},
    {
        "$": "message",
        "type": "AIMessage",
        "v": {"content": {"$": "object", "type": ["os", "system"], "v": {}}},
    },
    {"$": "message", "type": "AIMessage", "v": [1]},
    {"$": "serialized", "type": "pickle", "v": "gASVHgAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjAJpZJSFlFKULg=="},
    {"$": "serialized", "type": "json", "v": "e30="},
    {"$": "Send", "v": {"node": "a", "arg": 1, "__class__": 2}},
    {"$": "pattern", "v": ["(", 0]},
    {"$": "int", "v": "x"},
    {"$": "bytes", "v": "é"},
    {"$": "no such mark", "v": 1},
    {"$": "set", "v": [[1]]},
    {"$": ["unhashable"], "v": 1},
    {"$": "tuple"},
    {"$": "zoned datetime", "v": ["2026-01-01", "../../etc/passwd", 0]},
    {"$": "zoned datetime", "v": ["2026-01-01", "America", 0]},
    {"$": "ZoneInfo", "v": "America"},
    {"$": "ZoneInfo", "v": "x" * 5_000},
    *({"$": "Send", "v": []}, {"$": "Send", "v": "ab"}, {"$": "Interrupt", "v": None}),
    *({"$": "set", "v": "ab"}, {"$": "tuple", "v": {"a": 1}}, {"$": "dict", "v": ["ab"]}),
    *({"$": "Decimal", "v": 5}, {"$": "text", "v": ["61"]}, {"$": "date", "v": None}),
    {"$": "message", "type": "AIMessageChunk", "v": {"content": "", "usage_metadata": "("}},
    {"$": "object", "type": "ab", "v": {}},
]


@pytest.mark.parametrize("stored", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_stored_bytes_execute_nothing(stored: Any) -> None:
    """They are refused by a typed error, as a value and as a channel in a thread."""
    EXECUTED.clear()
    with pytest.raises((Corrupt, Unsupported)):
        Codec([(__name__, "Point")]).decode(stored)
    with perdure.open("memory:") as store:
        saver = Saver(store)
        say(chat().compile(checkpointer=saver), "hello")
        store.thread("t").put("/langgraph/channels/messages", [stored])
        with pytest.raises(PerdureError):
            saver.get_tuple(config())

    assert EXECUTED == []


LEAF: Any = st.none() | st.integers() | st.sampled_from(["", "a", "America", "1", "2026-01-01", "61", "("])


def marked(inner: Any) -> Any:
    """Documents with a mark of the codec, and with parts that may not belong there."""
    return st.builds(
        lambda mark, kind, body: {"$": mark, "type": kind, "v": body},
        st.sampled_from([*codec._READERS, *codec._FIELDS, "message", "dict", "delta", "object", "enum"]),
        st.sampled_from([*codec._MESSAGES, [__name__, "Point"], [__name__, "Colour"]]),
        inner | st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    )


@settings(max_examples=sized(1_000, 50_000), deadline=None)
@given(marked(LEAF) | marked(LEAF | marked(LEAF)))
def test_whatever_is_stored_is_read_or_refused_by_a_typed_error(stored: Any) -> None:
    """Another error, of a class or of a file that a name leads to, would reach the graph."""
    with contextlib.suppress(Corrupt, Unsupported):
        Codec(DECLARED).decode(stored)


def test_a_declared_class_is_constructed() -> None:
    """Control: the same bytes construct the class for a program that has declared it."""
    EXECUTED.clear()
    Codec([(__name__, "Hostile")]).decode(HOSTILE[2])

    assert EXECUTED == ["constructed"]


def test_a_damaged_record_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Not an empty checkpoint."""
    with perdure.open(tmp_path / "agents.db") as store:
        saver = Saver(store)
        say(chat().compile(checkpointer=saver), "hello")
        store.thread("t").put("/langgraph/checkpoint.json", {"id": 7})

        with raises(Corrupt, "checkpoint_record_damaged"):
            saver.get_tuple(config())


def test_a_clone_for_a_graph_accepts_its_classes_and_shares_what_is_remembered(tmp_path: Path) -> None:
    """LangGraph takes one when it compiles a graph."""
    with perdure.open(tmp_path / "agents.db") as store:
        saver = Saver(store)
        clone = saver.with_allowlist([(__name__, "Point")])
        checkpoint: Any = {
            "v": 4,
            "id": "1",
            "ts": "",
            "channel_values": {"p": Point(1)},
            "channel_versions": {"p": "1"},
            "versions_seen": {},
            "updated_channels": None,
        }
        with raises(Unsupported, "foreign_type_refused"):
            saver.put(config(checkpoint_ns=""), checkpoint, {"source": "loop"}, {})
        clone.put(config(checkpoint_ns=""), checkpoint, {"source": "loop"}, {})

        found = clone.get_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"] == {"p": Point(1)}
        assert clone._memory is saver._memory

"""Code in stored bytes and in imported files: none of it runs, and readers that would run it are found out."""

from __future__ import annotations

import base64
import importlib
import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.serde import _msgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import perdure
from perdure import Store
from perdure.errors import PerdureError
from perdure.integrations.importers import import_sessions, langgraph, letta
from perdure.integrations.langgraph import Memory, Saver, memory_store, saver
from perdure.integrations.langgraph.codec import Codec
from tests.integrations.executed import CANARY, Detector, detector
from tests.integrations.graphs import chat, config, say
from tests.integrations.importers import test_documents, test_langgraph, test_openai_agents
from tests.integrations.importers.claude_sessions import ClaudeWriter
from tests.integrations.importers.codex_sessions import CodexWriter
from tests.integrations.importers.counts import in_store

__all__ = ["detector"]

COMMAND = f"touch {CANARY}"
SOURCE = f"__import__({CANARY!r}).fire()"


class Pickled:
    """Is unpickled by a call of the canary."""

    def __reduce__(self) -> Any:
        return eval, (SOURCE,)


PICKLE = pickle.dumps(Pickled())
OBJECTS: dict[str, Any] = {  # by the extension types of LangGraph's serializer
    "a constructor": test_langgraph.named(0, CANARY, "Trap", "x"),
    "a constructor with arguments": test_langgraph.named(1, CANARY, "Trap", ["x"]),
    "a constructor with names": test_langgraph.named(2, CANARY, "Trap", {"x": 1}),
    "a method": test_langgraph.named(3, CANARY, "Trap", {"x": 1}, "fire"),
    "a model": test_langgraph.named(5, CANARY, "Trap", {"x": 1}, "model_validate_json"),
    "a function": test_langgraph.named(0, CANARY, "fire", "x"),
}
LC = {"lc": 2, "type": "constructor", "id": [CANARY, "Trap"], "kwargs": {"x": 1}}


def in_rows(folder: Path, kind: str, body: bytes) -> Path:
    """A database of the saver with one checkpoint and one write, whose values are these bytes."""
    file = test_langgraph.database(folder, ("1", None, {"messages": [test_langgraph.ASKED]}))
    with closing(sqlite3.connect(file)) as db, db:
        rows = [("t", "", id, None, kind, body, body) for id in ("2", "3")]
        db.executemany("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute("INSERT INTO writes VALUES ('t', '', '1', 'task', '', 0, 'messages', ?, ?)", (kind, body))
    return file


def in_channels(folder: Path, value: Any) -> Path:
    """A database of the saver with a value in a channel and in the list of messages."""
    values = {"messages": [test_langgraph.ASKED, value], "bad": value, "worse": [{"deep": value}]}
    return test_langgraph.database(folder, ("1", None, values))


def in_views(folder: Path) -> Path:
    """A database of the OpenAI Agents SDK with items that are code, and a view over a function that is none."""
    items = [{"role": "user", "content": SOURCE}, {"type": CANARY, "py/object": f"{CANARY}.Trap", "lc": LC}]
    file = test_openai_agents.database(folder, [*items, PICKLE.hex(), json.dumps(LC)])
    with closing(sqlite3.connect(file)) as db, db:
        db.execute(f"CREATE VIEW agent_sessions AS SELECT load_extension('{CANARY}') AS session_id")
    return file


def in_tools(folder: Path) -> Path:
    """An exported agent whose tool and whose memory are code."""
    tool = {"id": "tool-0", "name": "wipe", "source_code": f"import {CANARY}\n{CANARY}.fire()"}
    return test_documents.saved(folder, "sam.af", test_documents.FIRST | {"tools": [tool], "lc": LC})


def in_steps(folder: Path) -> Path:
    """A trajectory that calls a shell."""
    call = {"tool_call_id": "c1", "function_name": "bash", "arguments": {"command": COMMAND, "lc": LC}}
    step = {"step_id": 1, "source": "agent", "message": SOURCE, "tool_calls": [call], "extra": LC}
    return test_documents.saved(folder, "t.json", test_documents.trajectory(steps=[step]))


def in_claude(folder: Path) -> Path:
    """A session of Claude Code with commands in its calls, hooks and prompts."""
    writer = ClaudeWriter("2.1.90", 1)
    writer.ask(f"!`{COMMAND}` {{{{ {SOURCE} }}}} $({COMMAND})")
    writer.reply({"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": COMMAND}})
    writer.line("attachment", attachment={"type": "hook", "command": COMMAND, "lc": LC})
    (folder / "s.jsonl").write_bytes(writer.bytes())
    return folder / "s.jsonl"


def in_codex(folder: Path) -> Path:
    """A session of the Codex CLI with commands in its calls."""
    writer = CodexWriter("0.98.0", 1)
    writer.ask(SOURCE)
    action = {"type": "exec", "command": ["sh", "-c", COMMAND]}
    writer.item("local_shell_call", call_id="c1", status="in_progress", action=action)
    (folder / "r.jsonl").write_bytes(writer.bytes())
    return folder / "r.jsonl"


FILES: dict[str, Callable[[Path], Path]] = {
    **{name: lambda at, value=value: in_channels(at, value) for name, value in OBJECTS.items()},
    "a pickle": lambda at: in_rows(at, "pickle", PICKLE),
    "a constructor in JSON": lambda at: in_rows(at, "json", json.dumps({"v": 4, "x": LC}).encode()),
    "items": in_views,
    "tools": in_tools,
    "steps": in_steps,
    "commands of Claude Code": in_claude,
    "commands of Codex": in_codex,
}


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with perdure.open("memory:") as opened:
        yield opened


@pytest.mark.parametrize("kind", FILES)
def test_code_in_a_file_is_not_executed(store: Store, detector: Detector, tmp_path: Path, kind: str) -> None:
    """It is read as data, and the conversation around it is imported."""
    file = FILES[kind](tmp_path)

    assert detector.executed(lambda: import_sessions(store, file)) == []
    assert in_store(store).inputs + in_store(store).replies > 0
    assert store.verify().ok


def by_langgraph(kind: str, body: bytes) -> Any:
    """A control: values are read by LangGraph's own serializer, which constructs what they name, and unpickles."""
    reader = JsonPlusSerializer(pickle_fallback=True, allowed_json_modules=True, allowed_msgpack_modules=True)
    return reader.loads_typed((kind, body))


@pytest.mark.parametrize("kind", [*OBJECTS, "a pickle", "a constructor in JSON"])
def test_a_reader_that_constructs_is_found_out(
    store: Store, detector: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Control: the importer of LangGraph with LangGraph's reader in place of ours."""
    monkeypatch.setattr(langgraph, "decode_typed", by_langgraph)
    monkeypatch.setattr(_msgpack, "SAFE_MSGPACK_METHODS", {(CANARY, "Trap", "fire")})
    file = FILES[kind](tmp_path)

    assert detector.executed(lambda: import_sessions(store, file), Exception) != []


def test_an_importer_that_compiles_tools_is_found_out(
    store: Store, detector: Detector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the importer of Letta with one that loads the source of tools, to learn their arguments."""

    def loaded(session: Any, agent: Any, value: Any) -> None:
        for tool in agent["tools"]:
            exec(tool["source_code"], {})

    monkeypatch.setattr(letta, "_report_tools", loaded)
    file = in_tools(tmp_path)

    assert detector.executed(lambda: import_sessions(store, file)) != []


NAMED: list[Any] = [
    {"$": "object", "type": [CANARY, "Trap"], "v": {"x": 1}},
    {"$": "object", "type": [CANARY, "fire"], "v": {}},
    {"$": "enum", "type": [CANARY, "Trap"], "v": "x"},
    {"$": "object", "type": ["os", "system"], "v": {"command": COMMAND}},
    {"$": "object", "type": ["builtins", "eval"], "v": {"source": SOURCE}},
    {"$": "serialized", "type": "pickle", "v": base64.b64encode(PICKLE).decode()},
]


def read_back(kind: type[Codec], monkeypatch: pytest.MonkeyPatch, stored: Any) -> Callable[[], object]:
    """Returns what reads a checkpoint and an item of memory that hold a stored value, with this codec."""

    def work() -> None:
        for owner in (saver, memory_store):
            monkeypatch.setattr(owner, "Codec", kind)
        with perdure.open("memory:") as store:
            say(chat().compile(checkpointer=Saver(store)), "hello")
            store.thread("t").put("/langgraph/channels/messages", [stored])
            memory = Memory(store)
            memory.put(("a",), "k", {"n": 1})
            thread = store.thread("langgraph-memory")
            (path,) = thread.paths("/items")
            thread.put(path, {**thread.get(path), "value": stored})
            for read in (lambda: Saver(store).get_tuple(config()), lambda: memory.get(("a",), "k")):
                try:
                    read()
                except PerdureError:
                    continue

    return work


@pytest.mark.parametrize("stored", NAMED, ids=range(len(NAMED)))
def test_code_in_a_store_is_not_executed(
    detector: Detector, monkeypatch: pytest.MonkeyPatch, stored: Any
) -> None:
    """Neither as a channel of a checkpoint nor as an item of memory."""
    assert detector.executed(read_back(Codec, monkeypatch, stored)) == []


class TrustingCodec(Codec):
    """A control: it constructs what is named, and unpickles."""

    def _declared_object(self, mark: str, stored: Any) -> Any:
        module, name = stored["type"]
        found = getattr(importlib.import_module(module), name)
        return found(*stored["v"].values()) if mark == "object" else found(stored["v"])

    def _constructed(self, mark: str, stored: Any) -> Any:
        if mark == "serialized":
            return pickle.loads(base64.b64decode(stored["v"]))  # noqa: S301  # the control
        return super()._constructed(mark, stored)


@pytest.mark.parametrize("stored", NAMED, ids=range(len(NAMED)))
def test_a_codec_that_trusts_names_is_found_out(
    detector: Detector, monkeypatch: pytest.MonkeyPatch, stored: Any, tmp_path: Path
) -> None:
    """Control: the same bytes, read by a codec that constructs what they name."""
    monkeypatch.chdir(tmp_path)

    assert detector.executed(read_back(TrustingCodec, monkeypatch, stored), Exception) != []

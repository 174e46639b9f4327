"""Trajectories, exported agents and databases of frameworks with odd values in them: imported or refused by a typed error."""

from __future__ import annotations

import copy
import json
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import PerdureError
from perdure.integrations.importers import import_sessions
from tests.crash.campaign import SEED, sized
from tests.integrations.importers import (
    test_chatgpt,
    test_claude_ai,
    test_documents,
    test_langgraph,
    test_openai_agents,
)
from tests.integrations.importers.counts import sound

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 5, 2**70, 0.5, 1e308, "", "x", "\ud800", "\x00", "n" * 5_000, "{", "null", "-"),
    *(
        [],
        {},
        [None],
        [[]],
        [{}],
        {"type": "text"},
        {"type": "text", "text": 5},
        {"$": 1},
        "c1",
        "m1",
        "user",
    ),
)
DOCUMENTS: dict[str, Callable[[], Any]] = {
    "atif": test_documents.trajectory,
    "letta agent": lambda: test_documents.FIRST,
    "letta file": lambda: test_documents.SECOND,
    "chatgpt": lambda: [test_chatgpt.conversation()],
    "claude-ai": lambda: [test_claude_ai.conversation()],
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container inside a document with each of its keys or indexes."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def altered(document: Any, chance: random.Random) -> Any:
    """A document with a few values lost, doubled, swapped or replaced by odd ones."""
    found = copy.deepcopy(document)
    for _ in range(chance.randrange(1, 4)):
        container, key = chance.choice(list(places(found)))
        match chance.randrange(4):
            case 0:
                del container[key]
            case 1 if isinstance(container, list):
                container.append(copy.deepcopy(container[key]))
            case 2:
                other, at = chance.choice(list(places(found)))
                container[key] = copy.deepcopy(other[at])
            case _:
                container[key] = chance.choice(ODD)
        if not any(True for _ in places(found)):
            break
    return found


def faults(file: Path) -> list[str]:
    """Import a file twice; return what is wrong with what is stored then.  An error that is not ours is raised."""
    with perdure.open("memory:") as store:
        messages = -1
        with suppress(PerdureError):
            import_sessions(store, file)
            messages = import_sessions(store, file).messages
        return [*sound(store), *(["a second import adds messages"] if messages > 0 else [])]


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_altered_documents_lead_to_sound_threads_or_typed_errors(tmp_path: Path, kind: str) -> None:
    """Whatever a value of a trajectory, an exported agent or an exported conversation is replaced by."""
    chance = random.Random(f"{SEED} {kind}")
    for number in range(sized(12, 2_500)):
        document = altered(DOCUMENTS[kind](), chance)
        file = tmp_path / ("agent.af" if kind.startswith("letta") else "trajectory.json")
        file.write_text(json.dumps(document), encoding="utf-8")

        assert faults(file) == [], f"{kind} {number}: {json.dumps(document)}"


def graph(path: Path) -> Path:
    """A database of LangGraph's saver."""
    path.mkdir()
    every = test_langgraph
    first = ("1", None, {"messages": [every.ASKED]})
    full = {"messages": [every.ASKED, every.CALL, every.FOUND, every.SAID], "other": [1, {"a": b"x"}]}
    return every.database(path, first, ("2", "1", full))


def session(path: Path) -> Path:
    """A database of the OpenAI Agents SDK."""
    path.mkdir()
    return test_openai_agents.database(path, test_openai_agents.ITEMS)


def alter_database(file: Path, chance: random.Random) -> None:
    """Replace one value of a row, or some bytes of it, or some bytes of the file."""
    if chance.random() < 0.3:
        content = bytearray(file.read_bytes())
        for _ in range(chance.randrange(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        file.write_bytes(bytes(content))
        return
    with closing(sqlite3.connect(file)) as db, db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        table = chance.choice([each for each in tables if db.execute(f'SELECT 1 FROM "{each}"').fetchone()])
        column = chance.choice([row[1] for row in db.execute(f'PRAGMA table_info("{table}")')])
        row, value = chance.choice(db.execute(f'SELECT rowid, "{column}" FROM "{table}"').fetchall())
        new = _altered_value(value, chance)
        with suppress(sqlite3.IntegrityError, OverflowError, UnicodeEncodeError):
            db.execute(f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?', (new, row))


def _altered_value(value: Any, chance: random.Random) -> Any:
    if isinstance(value, str) and value.startswith("{") and chance.random() < 0.7:
        return json.dumps(altered(json.loads(value), chance))
    if isinstance(value, bytes | str) and value and chance.random() < 0.8:
        content = bytearray(value.encode() if isinstance(value, str) else value)
        start = chance.randrange(len(content))
        end = min(len(content), start + chance.randrange(1, 9))
        content[start:end] = chance.choice((b"", chance.randbytes(end - start), content[start:end] * 2))
        return bytes(content) if isinstance(value, bytes) else content.decode("utf-8", "replace")
    odd = chance.choice(ODD)
    return odd if isinstance(odd, str | int | float | None) else json.dumps(odd)


@pytest.mark.parametrize("kind", ["langgraph", "openai-agents"])
def test_altered_databases_lead_to_sound_threads_or_typed_errors(tmp_path: Path, kind: str) -> None:
    """Whatever is in a row, and whatever byte of the file is another one."""
    chance = random.Random(f"{SEED} {kind}")
    file = (graph if kind == "langgraph" else session)(tmp_path / "source")
    content = file.read_bytes()
    for number in range(sized(12, 2_500)):
        file.write_bytes(content)
        alter_database(file, chance)

        assert faults(file) == [], f"{kind} {number}"

"""Sessions whose lines another program has written again: with other line ends, in another order, twice, or very long."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure import Store
from perdure.integrations.importers import import_sessions
from tests.crash.campaign import SEED, sized
from tests.integrations.importers import claude_sessions, codex_sessions
from tests.integrations.importers.counts import import_faults

SEEDS = range(SEED, SEED + sized(1, 20))
Lines = list[dict[str, Any]]
BOM = b"\xef\xbb\xbf"


def written(lines: Lines, end: str = "\n") -> bytes:
    """The bytes of a file with these lines."""
    return "".join(json.dumps(line, ensure_ascii=False) + end for line in lines).encode()


def with_times(lines: Lines) -> bytes:
    """The clock goes backwards, and is then unset."""
    for at, line in enumerate(lines):
        if "timestamp" in line:
            line["timestamp"] = None if at % 7 == 6 else f"20{90 - at % 60:02}-01-01T00:00:00.000Z"
    return written(lines)


def with_others(lines: Lines, chance: random.Random) -> bytes:
    """Between the lines are some of types that no release has."""
    for kind in ("zeta", "", 7, None, ["user"], {"type": "user"}):
        other = {"type": kind, "uuid": str(kind), "parentUuid": None, "sessionId": "x", "payload": {}}
        lines.insert(chance.randrange(1, len(lines)), other)
    return written(lines)


REWRITTEN: dict[str, Callable[[Lines, random.Random], bytes]] = {
    "carriage returns": lambda lines, _: written(lines, "\r\n"),
    "a byte order mark": lambda lines, _: BOM + written(lines, "\r\n"),
    "blank lines": lambda lines, _: written(lines, "\n\n \t\r\n"),
    "times": lambda lines, _: with_times(lines),
    "unknown types": with_others,
}


def cyclic(lines: Lines, chance: random.Random) -> bytes:
    """Lines name themselves, a line after them, and the last line as the one before."""
    linked = [line for line in lines if line.get("uuid")]
    linked[0]["parentUuid"] = linked[-1]["uuid"]
    linked[3]["parentUuid"] = linked[3]["uuid"]
    linked[5]["parentUuid"] = linked[6]["uuid"]
    return written(lines)


def repeated(lines: Lines, chance: random.Random) -> bytes:
    """Some lines come once more, later."""
    at = chance.randrange(3, len(lines))
    return written([*lines[:at], *lines[at - 3 :]])


def same_ids(lines: Lines, chance: random.Random) -> bytes:
    """Two different lines have one id."""
    one, other = chance.sample([line for line in lines if line.get("uuid")], 2)
    other["uuid"] = one["uuid"]
    return written(lines)


def long_ids(lines: Lines, chance: random.Random) -> bytes:
    """Ids have 4 KB, and differ in their first characters alone."""
    for line in lines:
        line |= {key: line[key] + "z" * 4096 for key in ("uuid", "parentUuid") if line.get(key)}
    return written(lines)


TREES = {"cycles": cyclic, "repeated lines": repeated, "same ids": same_ids, "ids of 4 KB": long_ids}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", [*REWRITTEN, *TREES])
def test_a_rewritten_session_of_claude_code_has_every_message_once(
    tmp_path: Path, how: str, seed: int
) -> None:
    """The counts are those of its lines, a second import adds nothing, and every export is valid."""
    writer = claude_sessions.ClaudeWriter("2.1.90", seed)
    claude_sessions.conversation(writer, 4)
    wanted = claude_sessions.counted(writer.bytes())
    file = tmp_path / f"{claude_sessions.SESSION}.jsonl"
    file.write_bytes((REWRITTEN | TREES)[how](writer.lines, random.Random(seed)))

    assert import_faults(file, wanted) == []


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("how", REWRITTEN)
@pytest.mark.parametrize("release", codex_sessions.RELEASES)
def test_a_rewritten_session_of_codex_has_every_item_once(
    tmp_path: Path, how: str, seed: int, release: str
) -> None:
    """The counts are those of its lines, and a second import adds nothing."""
    file = codex_sessions.write_rollout(tmp_path, release, seed)
    wanted = codex_sessions.counted(file.read_bytes())
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    file.write_bytes(REWRITTEN[how](lines, random.Random(seed)))

    assert import_faults(file, wanted) == []


def with_ids(release: str, edited: str = "Rain?") -> list[dict[str, Any]]:
    """A session whose lines have ids of the tool, or, for the release "none", only numbers."""
    said = [("user", edited), ("assistant", "Sun."), ("user", "And Bergen?"), ("assistant", "Snow.")]
    lines: Lines = []
    for at, (role, words) in enumerate(said):
        content = [{"type": "text", "text": words}]
        message = {"role": role, "content": content, **({"id": f"m{at}"} if role == "assistant" else {})}
        ids = {"uuid": f"u{at}", "parentUuid": f"u{at - 1}" if at else None} if release != "none" else {}
        lines.append({"type": role, "sessionId": "s1", "message": message, **ids})
    return lines


def as_rollout(edited: str = "Rain?") -> list[dict[str, Any]]:
    """The same session as Codex writes it."""
    lines: Lines = [{"type": "session_meta", "payload": {"id": "s1"}}]
    for line in with_ids("none", edited):
        role, text = line["type"], line["message"]["content"][0]["text"]
        kind = "input_text" if role == "user" else "output_text"
        item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        lines.append({"type": "response_item", "payload": item})
    return lines


EDITED: dict[str, tuple[Callable[[str], Lines], str]] = {
    "ids": (lambda words: with_ids("2.1.90", words), "line 3"),
    "numbers": (lambda words: with_ids("none", words), "line 3"),
    "codex": (as_rollout, "line 4"),
}


@pytest.mark.parametrize("kind", EDITED)
def test_a_line_that_was_edited_is_named_and_changes_nothing(store: Store, tmp_path: Path, kind: str) -> None:
    """In each import from then on; blank lines count, and what is new is added."""
    lines, place = EDITED[kind]
    file = tmp_path / "s1.jsonl"
    file.write_bytes(b"\n\n" + written(lines("Rain?")))
    (first,) = import_sessions(store, file).sessions
    assert first.thread is not None
    said = [entry.text for entry in store.thread(first.thread).transcript()]

    file.write_bytes(b"\n\n" + written(lines("Edited?")))
    (edited,) = import_sessions(store, file).sessions
    (again,) = import_sessions(store, file).sessions
    new = lines("More.")[-4]
    new |= {"uuid": "u9", "parentUuid": "u3"} if kind == "ids" else {}
    file.write_bytes(b"\n\n" + written([*lines("Edited?"), new]))
    (grown,) = import_sessions(store, file).sessions

    assert (first.edited, edited.edited, again.edited, grown.edited) == ((), (place,), (place,), (place,))
    assert (edited.messages, again.messages, grown.messages) == (0, 0, 1)
    assert [entry.text for entry in store.thread(first.thread).transcript()] == [*said, "More."]


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_session_may_begin_with_a_very_long_line(store: Store, tmp_path: Path, end: str) -> None:
    """Its format is known by its first line, however long that is: a user may begin with a picture."""
    writer = claude_sessions.ClaudeWriter("2.1.90", SEED)
    writer.ask("x" * 700_000)
    if end:
        writer.say("I see.")
    (tmp_path / "session.jsonl").write_bytes(writer.bytes().removesuffix(b"\n") + end.encode())

    found = import_sessions(store, tmp_path)

    assert (found.messages, found.others) == (2 if end else 1, 0)

"""The workload: agent turns with realistic text, the same for every seed, made before anything is timed.

One turn is a user message (200 B), an assistant message with one tool call (600 B), the
tool's result (2 KB) and the final assistant message (400 B), each in a durable commit of its
own; with each of the last three comes one state write of 1 KB, to one of K keys.

A state write edits what the key held before, as a program does that keeps a plan or a list:
it replaces the status, the time, two of five items and half of the notes, about half of the
words in all.  With `replaced=True` nothing but the field names is as it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from perdure.model import canonical
from perdure.model.message import Message, Text, ToolCall, ToolResult, encode_message

__all__ = ["STEPS", "Step", "Turn", "make_documents", "make_turns"]

STEPS = 4
USER_BYTES, CALL_BYTES, RESULT_BYTES, FINAL_BYTES = 200, 600, 2_048, 400
VALUE_BYTES = 1_024

_TEXT = """
the of and to a in is that for it as was with be by on not he this are at from have an which or one had but they
were all there been if more will when would who so no out up what into than them some could time these two may then
do first any my now such like other how only over new can man most made after also did many before must through back
years where much your way well down should because each just those people state world very make between being system
order information data model request response agent tool result search flight hotel booking price customer account
payment invoice delivery address meeting calendar schedule project task plan budget report summary document section
review approve reject change update delete create confirm cancel available option recommend compare cheapest direct
return journey traveller passport visa luggage seat window aisle morning afternoon evening tomorrow yesterday week
month quarter revenue growth estimate deadline milestone risk issue blocked waiting progress finished question answer
context memory history version branch commit merge conflict decision reason evidence source reference quarterly
analysis finding conclusion assumption constraint requirement interface component service database table column index
query latency throughput error warning failure retry timeout limit quota region cluster release deploy rollback
monitor alert incident owner team manager engineer designer analyst supplier contract clause amendment signature
"""
_WORDS = _TEXT.split()
_WEIGHTS = [1 / (rank + 4) for rank in range(len(_WORDS))]
_STATUSES = ("open", "in_progress", "blocked", "done")


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One durable commit: a message, and perhaps a state write, as values and as the bytes that they are."""

    reason: str
    message: Message
    body: str  # the message's canonical text: what the baseline stores
    key: str | None = None
    value: dict[str, object] | None = None
    document: str | None = None  # the value's canonical text


class Turn(msgspec.Struct, frozen=True):
    """What one user input leads to."""

    run: str
    steps: tuple[Step, ...]


def make_turns(count: int, *, keys: int, seed: int = 7, replaced: bool = False) -> list[Turn]:
    """So many turns, whose state writes go to `keys` keys."""
    state = _State(random.Random(seed), keys, replaced=replaced)
    return list(_turns(state.rng, count, state))


def make_documents(count: int, *, seed: int = 7) -> list[dict[str, object]]:
    """So many state documents of 1 KB."""
    rng = random.Random(seed)
    return [_document(rng) for _ in range(count)]


class _State:
    """What the keys hold while the turns are made."""

    def __init__(self, rng: random.Random, keys: int, *, replaced: bool) -> None:
        self.rng = rng
        self._keys = keys
        self._replaced = replaced
        self._held: dict[str, dict[str, object]] = {}

    def write(self) -> tuple[str, dict[str, object]]:
        """The next write: a key and its new document."""
        key = f"/notes/{self.rng.randrange(self._keys):06d}.json"
        before = None if self._replaced else self._held.get(key)
        value = self._held[key] = _document(self.rng) if before is None else _edited(self.rng, before)
        return key, value


def _turns(rng: random.Random, count: int, state: _State) -> Iterator[Turn]:
    for number in range(count):
        call = ToolCall(f"call_{rng.getrandbits(64):016x}", "search_flights", _arguments(rng))
        messages = (
            ("user_message", _sized(rng, "user", USER_BYTES)),
            ("assistant_turn_committed", _sized(rng, "assistant", CALL_BYTES, call)),
            ("tool_results_committed", _result(rng, call)),
            ("run_finished", _sized(rng, "assistant", FINAL_BYTES)),
        )
        steps = [_step(state, reason, message) for reason, message in messages]
        yield Turn(f"run-{seed_text(rng)}-{number}", tuple(steps))


def seed_text(rng: random.Random) -> str:
    """A few letters that no two turns share."""
    return f"{rng.getrandbits(64):016x}"


def _step(state: _State, reason: str, message: Message) -> Step:
    body = encode_message(message).decode()
    if reason == "user_message":
        return Step(reason=reason, message=message, body=body)
    key, value = state.write()
    document = canonical.encode(value).decode()
    return Step(reason=reason, message=message, body=body, key=key, value=value, document=document)


def _sized(rng: random.Random, role: str, size: int, *calls: ToolCall) -> Message:
    """A message whose canonical text has `size` bytes."""
    bare = Message(role, (Text(""),), calls)  # pyright: ignore[reportArgumentType]
    return msgspec.structs.replace(bare, content=(Text(_text(rng, size - len(encode_message(bare)))),))


def _result(rng: random.Random, call: ToolCall) -> Message:
    hits = [
        {"carrier": _text(rng, 12), "price": rng.randrange(80, 900), "summary": _text(rng, 150)}
        for _ in range(8)
    ]
    found = canonical.encode({"hits": hits, "query": _text(rng, 40)}).decode()
    bare = Message("tool", (), (), (ToolResult(call.id, "success", (Text(found),)),))
    padding = _text(rng, RESULT_BYTES - len(encode_message(bare)))
    return Message("tool", (), (), (ToolResult(call.id, "success", (Text(found + padding),)),))


def _arguments(rng: random.Random) -> str:
    return canonical.encode({"from": "OSL", "to": _text(rng, 20), "max_price": rng.randrange(900)}).decode()


def _document(rng: random.Random) -> dict[str, object]:
    items = [_item(rng) for _ in range(5)]
    return _filled(rng, {"title": _text(rng, 40), "items": items, **_changing(rng)}, "")


def _edited(rng: random.Random, before: dict[str, Any]) -> dict[str, object]:
    items = list(before["items"])
    for at in rng.sample(range(len(items)), 2):
        items[at] = _item(rng)
    notes = before["notes"]
    return _filled(rng, {**before, "items": items, **_changing(rng)}, notes[len(notes) // 2 :])


def _item(rng: random.Random) -> dict[str, object]:
    return {"id": rng.randrange(100_000), "done": rng.random() < 0.5, "text": _text(rng, 50)}


def _changing(rng: random.Random) -> dict[str, object]:
    return {
        "status": rng.choice(_STATUSES),
        "owner": f"user-{rng.randrange(1000)}",
        "updated_at": 1_700_000_000_000_000 + rng.getrandbits(48),
    }


def _filled(rng: random.Random, value: dict[str, object], kept: str) -> dict[str, object]:
    """The document with so many notes that it has `VALUE_BYTES` bytes; `kept` are those from before."""
    room = VALUE_BYTES - len(canonical.encode({**value, "notes": ""}))
    return {**value, "notes": (kept + _text(rng, room))[:room]}


def _text(rng: random.Random, size: int) -> str:
    """English words, common ones more often, in sentences; `size` letters."""
    words = rng.choices(_WORDS, _WEIGHTS, k=size // 4 + 2)
    text = " ".join(words).capitalize()
    while len(text) < size:
        text += ". " + " ".join(rng.choices(_WORDS, _WEIGHTS, k=8)).capitalize()
    return text[:size]

"""How the things that many commands show look to people: digests, messages, changed paths, values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any, cast

from msgspec import UNSET

from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Part, Screen
from perdure.history.changes.json_edits import spell_place
from perdure.model.head import MAIN
from perdure.shapes.comparison import ComparedValue, ConflictedKey, ConflictShape, KeyValue
from perdure.shapes.conversation import DAMAGED, MessageShape, PathShape, RedactionShape
from perdure.shapes.text import safe_json, shortened, size

__all__ = [
    "MARKS",
    "difference",
    "digest",
    "show_changed",
    "show_conflicts",
    "show_damage",
    "show_dropped",
    "show_message",
    "suggest_fork",
    "words_of",
]

MARKS = {"added": "+", "changed": "~", "removed": "-", "written": "~"}

_SHORT = 12  # digits of a digest
_PATHS_SHOWN = 8
_PREVIEW_BYTES_MAX = 4_096
_PREVIEW_LENGTH = 60
_ROLE_WIDTH = 9
_CONTEXT = 2  # lines around a changed one


def digest(full: str | None) -> Part:
    """Return a commit's digest, shortened to what commands accept."""
    return (full[:_SHORT], "digest") if full else ("nothing committed", "quiet")


_LEFT_OUT = ("  …", "quiet")


def difference(before: Sequence[str], after: Sequence[str]) -> Iterator[Part]:
    """Return the lines that differ, and a few around them; each has its mark apart: of `--480` no reader knows the sign.

    A line says where equal lines between two changes are left out.
    """
    shown = False
    for group in SequenceMatcher(None, before, after).get_grouped_opcodes(_CONTEXT):
        if shown:
            yield _LEFT_OUT
        for tag, first, end, first_new, end_new in group:
            if tag == "equal":
                yield from ((f"  {line}", "quiet") for line in before[first:end])
            else:
                yield from ((f"- {line}", "removed") for line in before[first:end])
                yield from ((f"+ {line}", "added") for line in after[first_new:end_new])
        shown = True


def suggest_fork(screen: Screen, thread: str, timeline: str, at: str) -> None:
    """Print the command that forks before what was found, at the moment `at`."""
    line = () if timeline == MAIN else ("--timeline", timeline)
    screen.suggest("Fork before it: ", "threads", "fork", thread, "NAME", "--at", at, *line)


def show_message(
    screen: Screen,
    message: MessageShape,
    *,
    whole: bool,
    indent: int = 2,
    settled: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print who said what, on one line or as a whole; `settled` has the outcomes of calls that were settled later."""
    role = message.role
    if message.forgotten is not None:
        said: Part = (f"forgotten: {message.forgotten}", "quiet")
    elif message.is_damaged:
        said = (DAMAGED, "bad")
    else:
        said = words_of(message.message or {}, settled, between="\n" if whole else "  ")
    if message.redacted is not None and not isinstance(said, tuple):
        said = f"{said}{chr(10) if whole else '  '}{_redacted(message.redacted)}"
    if whole:
        screen.say(" " * indent, (role, role))
        screen.wrap(said, indent=indent + 2)
    else:
        line = said if isinstance(said, str) else said[0]
        style = "" if isinstance(said, str) else said[1]
        screen.cut(" " * indent, (f"{role:<{_ROLE_WIDTH}}  ", role), (shortened(line, 1_000), style))


def _redacted(found: RedactionShape) -> str:
    return f"(redacted {found.at[:10]}{f' by {found.by}' if found.by else ''}: {found.why})"


def show_damage(screen: Screen) -> None:
    """Print that a message of those shown is damaged, and what names it."""
    screen.wrap(("✗ ", "bad"), "A message is damaged. `perdure verify` names each, and what to do.")


def show_dropped(screen: Screen, dropped: int) -> None:
    """Print how many timelines are left out of a list, if any are."""
    if dropped:
        verb = "timeline is" if dropped == 1 else "timelines are"
        screen.sentence((f"{dropped:,} dropped {verb} left out; --dropped shows all.", "quiet"))


def show_changed(screen: Screen, changed: Sequence[PathShape], *, whole: bool, indent: int = 2) -> None:
    """Print which paths changed; the first few, unless the whole is wanted."""
    shown = changed if whole else changed[:_PATHS_SHOWN]
    for change in shown:
        screen.cut(" " * indent, (f"{MARKS[change.what]} {change.path}", change.what))
    if len(shown) < len(changed):
        screen.say(" " * indent, (f"… and {count(len(changed) - len(shown), 'path')} more", "quiet"))


def words_of(
    message: dict[str, Any], settled: Mapping[str, str] = MappingProxyType({}), *, between: str = "\n"
) -> str:
    """Return a message of the documents' shape as text: its words, and what else it holds by name.

    `between` separates its parts.
    """
    parts = [_block(block) for block in message.get("content", ())]
    parts += [f"→ {call['name']}({_text(call['args'])})" for call in message.get("toolCalls", ())]
    for result in message.get("toolResults", ()):
        words = " ".join(_block(block) for block in result.get("content", ()))
        later = settled.get(result.get("callId", ""))
        mark = f" (settled later: {later})" if later else ""
        parts.append(f"← {result['status']}{mark} {words}".rstrip())
    return between.join(part for part in parts if part) or "(nothing)"


def _block(block: dict[str, Any]) -> str:
    match block:
        case {"type": "text", "text": text}:
            return cast("str", text)
        case {"type": "reasoning_summary", "text": text}:
            return f"(thinking) {text}"
        case {"type": kind, "uri": str(uri), "mimeType": str(media_type)}:
            if uri.startswith("data:"):
                return _inline(kind, uri, media_type)
            return f"[{kind} {media_type} {uri}]"
        case _:
            return json.dumps(block)


def _inline(kind: object, uri: str, media_type: str) -> str:
    """Return what a data URL holds in words; its bytes are no words."""
    from perdure.model.message import File
    from perdure.providers.wire import media, server_tools

    block = File(uri=uri, mime_type=media_type)
    if server_tools.is_account(block):
        return server_tools.told(block)
    held = media.inline(uri)
    return f"[{kind} {media_type}{'' if held is None else f', {size(len(held.bytes))}'}]"


def _text(args: object) -> str:
    return args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)


_VALUE_SHOWN, _BEFORE_SHOWN = 240, 20  # characters of a value in conflict, and of them before what differs
_KEYS_SHOWN = 10  # of one object


def show_conflicts(screen: Screen, conflicts: Sequence[ConflictShape]) -> None:
    """Print the paths with their three values, or those of the keys in conflict; a long one from shortly before what differs."""
    for each in conflicts:
        screen.wrap((each.path, "name"), f"  {each.why}", indent=2)
        if not each.keys:
            _show_sides(screen, each, 4)
        for key in each.keys[:_KEYS_SHOWN]:
            screen.wrap((spell_place(tuple(key.place)), "name"), indent=4)
            _show_sides(screen, key, 6)
        if len(each.keys) > _KEYS_SHOWN:
            screen.say("    ", (f"… and {count(len(each.keys) - _KEYS_SHOWN, 'key')} more", "quiet"))


def _show_sides(screen: Screen, each: ConflictShape | ConflictedKey, indent: int) -> None:
    """Print the three values of a path, or of one key, in conflict."""
    base, ours, theirs = (_text_of(value) for value in (each.base, each.ours, each.theirs))
    first = ours if each.base is None else base
    apart = {"ours": _common(first, ours), "theirs": _common(first, theirs)}
    if each.base is None:
        apart["ours"] = apart["theirs"]
    for side, text in (("base", base), ("ours", ours), ("theirs", theirs)):
        start = apart.get(side, min(apart.values())) - _BEFORE_SHOWN
        shown = text if len(text) <= _VALUE_SHOWN or start <= 0 else f"…{text[start:]}"
        is_said = not isinstance(getattr(each, side), ComparedValue | KeyValue)
        label = (f"{'':{indent}}{side:<8}", "quiet")
        screen.wrap(
            (shortened(shown, _VALUE_SHOWN), "quiet" if is_said else ""), indent=indent + 8, label=label
        )


def _common(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    differs = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differs, min(len(one), len(other)))


def _text_of(value: ComparedValue | KeyValue | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or "–"
    if isinstance(value, KeyValue):
        return safe_json(value.value, indent=None)
    if value.value is UNSET:
        return f"({value.media_type}, {size(value.size)})"
    return safe_json(value.value, indent=None)

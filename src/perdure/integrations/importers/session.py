"""The sessions of another tool as data: what every importer reads its files into, and what the writer stores.

A session is a set of paths through its entries: the first path becomes `main`, each further one a timeline.  An entry is
one message, or the results of one round of calls, and becomes one commit.  It has parts, which are the lines or rows of
the source, each with a name that is the same in every import; so a session that has grown adds only what is new, even
inside a message.

What has no place in a transcript is counted by kind, and is in the original, which the thread keeps by its digest.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal, TypeAlias, cast

import msgspec

from perdure.errors import Invalid
from perdure.model import names
from perdure.model.message import Message
from perdure.providers.contract import Loss

__all__ = [
    "FORMATS",
    "CarriedCheckpoint",
    "SessionEntry",
    "Json",
    "JsonLine",
    "JsonLines",
    "Link",
    "Original",
    "SourcePart",
    "SessionFile",
    "ForeignSession",
    "as_list",
    "as_object",
    "as_text",
    "moment_name",
    "no_such_format",
    "read_document",
    "read_lines",
    "said_at",
    "shortened",
    "thread_id",
]

FORMATS = ("claude-code", "codex", "langgraph", "openai-agents", "atif", "letta", "chatgpt", "claude-ai")

Json: TypeAlias = dict[str, Any]

_HALF = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")  # of a character, escaped or as bytes


class SourcePart(msgspec.Struct, frozen=True, kw_only=True):
    """One line or row of a source."""

    name: str  # framework:id
    item: Message | Json  # a message, or an item in the wire format of its session
    where: str  # in the source, such as "line 12"
    facts: Mapping[str, Any] = {}  # what the source says beside the message
    also: tuple[str, ...] = ()  # other names of the commit that ends with it
    is_error: bool = False  # the results in it are errors, though the wire format cannot say so
    # Its name is the tool's id, so it may say something else in a later import.
    is_named_by_tool: bool = False
    place: int | None = None  # in a source that only grows, if its name is this place with its content
    lacks_files: bool = (
        False  # the source does not have files that it names; an earlier import may have had them
    )


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One message, or the results of one round of calls."""

    parts: tuple[SourcePart, ...]
    provider: str | None = None
    model: str | None = None
    begins_turn: bool = False


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Another thread that a session belongs to."""

    kind: Literal["parent", "child", "forked_from"]
    thread: str
    call: str | None = None  # the id that the tool gave to the call which began it


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of the source as they are."""

    name: str
    content: bytes
    media_type: str = "application/x-ndjson"

    @property
    def sha256(self) -> str:
        """Return the digest of the bytes, in hex."""
        return sha256(self.content).hexdigest()


class SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file beside a session.  Its bytes become an artifact of the message that names it, when that is written."""

    name: str  # what it was called
    place: str
    size: int
    read: Callable[[], bytes]


class CarriedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest checkpoint of a namespace of LangGraph as Perdure's saver stores it, so that its graph can go on."""

    namespace: str
    record: Json
    channels: Json  # values by channel
    messages: str | None = None  # the channel whose list is in the transcript; None: none is
    parts: tuple[str, ...] = ()  # the names of its elements
    writes: tuple[Json, ...] = ()  # of tasks


class ForeignSession(msgspec.Struct, kw_only=True):
    """One conversation of another tool."""

    format: str
    id: str
    thread: str  # the id of its thread
    source: str  # where it was read
    api: str = ""  # the wire format of items that are no messages
    paths: list[tuple[SessionEntry, ...]] = []
    undone: frozenset[str] = frozenset()  # names of parts that the source took back
    facts: Json = {}
    state: Json = {}  # values by path; left out if checkpoints are carried over, which have them
    carried: list[CarriedCheckpoint] = []  # that of the root graph last
    checkpoints: frozenset[str] = frozenset()  # the ids of all checkpoints in the source
    links: list[Link] = []
    originals: list[Original] = []
    unmapped: Counter[str] = msgspec.field(default_factory=Counter[str])
    losses: list[Loss] = []
    files: dict[str, SessionFile] = {}  # by the address that blocks of messages have for them
    kept: frozenset[str] = frozenset()  # files beside the source that the thread keeps, too
    torn: bool = False  # the last line is not complete
    # True for the name of a part that the source had once and removed; False if it only does not have it.
    has_removed: Callable[[str], bool] = lambda _: False

    @property
    def digest(self) -> str:
        """Return a digest over everything that was read."""
        told = [self.format, self.id, *(f"{each.name}:{each.sha256}" for each in self.originals)]
        told += [f"{uri}:{file.size}" for uri, file in sorted(self.files.items())]
        return sha256("\n".join(told).encode("utf-8", "surrogatepass")).hexdigest()


class JsonLine(msgspec.Struct, frozen=True):
    """One line that is a JSON object."""

    number: int
    value: Json
    digest: str

    @property
    def where(self) -> str:
        """Return the place of the line in words."""
        return f"line {self.number}"


class JsonLines(msgspec.Struct, kw_only=True):
    """The lines of a file."""

    lines: list[JsonLine] = []
    unreadable: list[int] = []  # numbers of lines that are no JSON object
    mended: list[int] = []  # numbers of lines with bytes that are no UTF-8, or halves of characters
    torn: bool = False

    def losses(self) -> list[Loss]:
        """Return a loss for each line that could not be read."""
        why = "it is not a JSON object; it is kept in the original"
        part = "a part of it is no text and was replaced by U+FFFD; the original has it"
        return [
            Loss(kind="dropped", where=f"line {number}", what="line", why=why) for number in self.unreadable
        ] + [
            Loss(kind="repaired", where=f"line {number}", what="character", why=part)
            for number in self.mended
        ]


def read_lines(content: bytes) -> JsonLines:
    """Read a file of JSON objects, one a line; a last line without an end that is no JSON is torn, and left out."""
    read = JsonLines()
    whole = content.endswith(b"\n")
    rows = content.split(b"\n")
    if whole:
        rows.pop()
    for number, row in enumerate(rows, 1):
        if not row.strip():
            continue
        value = _parsed(row)
        mended = _mended(value) if _HALF.search(row) else value
        if value is None:
            mended = _parsed(row.decode("utf-8", "replace").encode())
        if mended != value:
            value = mended
            read.mended.append(number)
        if isinstance(value, dict):
            read.lines.append(JsonLine(number, cast("Json", value), sha256(row).hexdigest()))
        elif number == len(rows) and not whole:
            read.torn = True
        else:
            read.unreadable.append(number)
    return read


def read_document(content: bytes, source: str) -> Json:
    """Read a file that is one JSON object; raise `Invalid` if it is none."""
    value = _parsed(content)
    if not isinstance(value, dict):
        raise Invalid(
            f"{source} is not a JSON object; nothing was imported from it.",
            code="import_unreadable",
            source=source,
        )
    return cast("Json", value)


def _mended(value: object) -> object:
    try:
        return _without_halves(value)
    except RecursionError:  # nested too deeply to be stored as data
        return None


def _without_halves(value: object) -> object:
    """Return a value whose texts have U+FFFD in place of each lone surrogate: programs cut texts between the two halves."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case dict():
            pairs = cast("Json", value).items()
            return {_without_halves(key): _without_halves(each) for key, each in pairs}
        case list():
            return [_without_halves(each) for each in cast("list[object]", value)]
        case _:
            return value


def _parsed(row: bytes) -> object:
    try:
        return json.loads(row.removeprefix(b"\xef\xbb\xbf"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def as_object(value: object) -> Json:
    """Return an object, or an empty one in place of anything else."""
    return cast("Json", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a list, or an empty one in place of anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """Return a text that is not empty, or None."""
    return value if isinstance(value, str) and value else None


def said_at(metadata: Json) -> str | None:
    """Return when an imported message was said, in UTC, from the facts that its importer kept; None if none is known."""
    for name in FORMATS:
        facts = as_object(next(iter(as_list(metadata.get(name))), None))
        at = as_text(facts.get("timestamp")) or as_text(facts.get("created_at"))
        if at is not None:
            with suppress(ValueError, OverflowError):
                said = datetime.fromisoformat(at)
                return (said if said.tzinfo else said.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    return None


def shortened(text: str, bytes_max: int) -> str:
    """Return a text that can be an id: itself, or its beginning with a digest if it is too long or has odd signs."""
    try:
        names.check_id("id", text)
    except Invalid:
        pass
    else:
        if len(text.encode()) <= bytes_max:
            return text
    digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    plain = "".join(sign for sign in text if sign.isascii() and sign.isprintable())
    return f"{plain[: max(0, bytes_max - 20)]}~{digest}"


def thread_id(format: str, id: str) -> str:
    """Return the id of the thread of a session; the exact id of the session is in its facts."""
    return shortened(f"{format}:{id}", names.ID_BYTES_MAX)


def moment_name(format: str, id: str) -> str:
    """Return the name of a commit that holds an entry of another tool."""
    return f"{format}:{shortened(id, names.ID_BYTES_MAX - len(format) - 1) or '-'}"


def no_such_format(source: str, formats: Sequence[str] = FORMATS) -> Invalid:
    """Return the error for a source that is none of the formats."""
    return Invalid(
        f"{source} is no session of {', '.join(formats)}; nothing was imported from it.",
        code="import_format_unknown",
        advice="Name a file, a directory or a database of one of these tools.",
        source=source,
        formats=tuple(formats),
    )

"""Defines recipes: compact records from which the prompt of a past step is rebuilt.

The messages themselves are in the history.  A recipe records which of them the prompt had, and names what is in no
message: the frame (system prompt, tools, options) and the notes.  From the commit and the recipe the same context is
built again, byte for byte, without counting a token.  From step to step a recipe is nearly always the same, so it is
stored once.

Options may hold credentials, such as the token of an MCP server that the vendor calls.  They are sent and never stored:
a text takes the place of each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from perdure.errors import Corrupt
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.context import ToolSpec
from perdure.model.digest import Digest

__all__ = [
    "BUILDER",
    "Frame",
    "Recipe",
    "Sent",
    "decode_frame",
    "decode_recipe",
    "encode_frame",
    "encode_recipe",
    "needs",
    "without_credentials",
]

BUILDER = 1  # the version of the rules that arrange messages

_LEFT_OUT = "[left out]"
_CREDENTIAL = re.compile(
    r"(?:.*_)?(?:authorization|api_?key|password|secret|cookie|credentials?)"
    r"|(?:.*_)?(?:access|api|auth|authorization|bearer|oauth|refresh|security|session)_token|token"
)
_HEADERS = frozenset({"headers", "default_headers", "extra_headers", "http_headers"})
_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions"})  # any name may be in them
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How an adapter made the request from the context."""

    api: str  # the wire format
    provider: str
    model: str
    options: Mapping[str, Json] = {}  # the backend's own, which override those of the context


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What surrounds the messages; the same from turn to turn."""

    system: str = ""
    tools: Sequence[ToolSpec] = ()
    options: Mapping[str, Json] = {}
    sent: Sent | None = None  # None: the model takes the context itself
    unseen: tuple[
        str, ...
    ] = ()  # kinds of media that the model does not accept: a sentence names them instead


class Recipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which messages of a line a prompt had, and what else."""

    backend: str
    frame: Digest  # a body
    builder: int = 1
    first: str | None = None  # all messages from this one on; None: from the beginning
    older: tuple[str, ...] = ()  # single messages before it
    switched: Digest | None = None  # the commit of the last switch: calls before it are sentences
    native: tuple[str, ...] = ()  # messages before it whose calls are still calls and results
    harmless: tuple[str, ...] = ()  # tools whose imported calls were not shown as external writes
    checkpoint: Digest | None = None  # the source of the leading note
    lead: Digest | None = None  # a body: the note before everything but the conversation's own system words
    before_lead: int = 0  # how many messages these are
    note: Digest | None = None  # a body: the note before the current input
    memory: tuple[str, ...] = ()  # items of memory in it, by reference
    cut: dict[str, int] = {}  # messages that were cut, and the characters left of each text
    cut_results: dict[str, int] = {}  # the same for results alone, and for arguments in sentences
    stored: dict[str, str] = {}  # by call: the artifact that holds a result that was cut
    whole: dict[str, str] = {}  # by call: the artifact shown instead of a result that is stored short
    short: dict[str, int] = {}  # by call: the characters of a result shown as short as it is stored
    open: dict[str, str] = {}  # calls without a result, and the sentence shown for each
    # By call with an unknown outcome: a body, the result that settled it later; None: it was still unknown.
    unclear: dict[str, Digest | None] = {}
    later: tuple[str, ...] = ()  # calls that ended after the model had spoken again: a note says so
    earlier: int = 0  # messages of a model that were not shown as they were written


_recipes = msgspec.json.Decoder(Recipe)


def encode_recipe(recipe: Recipe) -> bytes:
    """Return the recipe's canonical bytes."""
    return canonical.encode_struct(recipe)


def decode_recipe(body: bytes) -> Recipe:
    """Return the recipe that `body` holds; raises `Corrupt` if it is none."""
    return canonical.decode_struct(_recipes, body, "recipe of a context")


def encode_frame(frame: Frame) -> bytes:
    """Return the frame's bytes.

    Keys stay in their order: a request contains the schemas as their authors wrote them.
    """
    shape: dict[str, Any] = msgspec.to_builtins(frame, enc_hook=repr)
    holders: list[dict[str, Any]] = [shape, shape.get("sent") or {}]
    for holder in holders:
        if "options" in holder:
            holder["options"] = without_credentials(holder["options"])
    for tool in shape.get("tools", ()):
        if tool["serves"] is None:
            del tool["serves"]
    return json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def without_credentials(options: Any) -> Any:
    """Return options with a text in place of each credential; one is known by the name of its field.

    Of headers all values are left out, of an address the user, the password and the query.
    """
    if isinstance(options, list | tuple):
        items = cast("Sequence[Any]", options)
        return type(items)(without_credentials(each) for each in items)  # pyright: ignore[reportCallIssue]
    if not isinstance(options, Mapping):
        return options
    fields = cast("Mapping[str, Any]", options)
    return {name: _shown(name, value) for name, value in fields.items()}


def _shown(name: str, value: Any) -> Any:
    plain = _HUMP.sub("_", str(name)).lower().replace("-", "_")
    if name in _SCHEMAS:
        return value
    if plain in _HEADERS and isinstance(value, Mapping):
        return dict.fromkeys(cast("Mapping[str, Any]", value), _LEFT_OUT)
    if not isinstance(value, str) or not value:
        return without_credentials(value)
    if _CREDENTIAL.fullmatch(plain):
        return _LEFT_OUT
    return _address(value) if plain.endswith(("url", "uri", "endpoint")) and "://" in value else value


def _address(address: str) -> str:
    """Return an address without the parts that may be secret."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return _LEFT_OUT
    if not parts.query and "@" not in parts.netloc:
        return address
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()


def decode_frame(body: bytes) -> Frame:
    """Return the frame that `body` holds; raises `Corrupt` if it is none."""
    try:
        shape: dict[str, Any] = json.loads(body.decode("utf-8", "surrogatepass"))
        tools = tuple(ToolSpec(**tool) for tool in shape.pop("tools", ()))
        sent = shape.pop("sent", None)
        return Frame(**shape, tools=tools, sent=Sent(**sent) if sent is not None else None)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupt(
            f"a stored frame of a context cannot be read: {error}.",
            code="record_unreadable",
            advice="Run `perdure verify`.",
            what="frame of a context",
        ) from error


def needs(recipe: Recipe) -> Iterator[Digest]:
    """Yield the digests that a recipe names and its space must hold."""
    yield recipe.frame
    yield from (each for each in (recipe.lead, recipe.note, *recipe.unclear.values()) if each is not None)

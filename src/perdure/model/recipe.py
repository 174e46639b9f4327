"""Recipes: what a model was shown for one step, in so few words that every step can say it.

The messages themselves are in the history; a recipe says which of them were shown, and names what
was not said by anybody: the frame (system words, tools, options) and the notes.  From the commit
and the recipe the same context is made again, byte for byte, without counting a token.  From step
to step a recipe is nearly always the same, so it is kept once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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
]

BUILDER = 1  # the version of the rules by which messages are laid out


class Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request is made of a context, where an adapter makes one."""

    api: str  # the wire format
    provider: str
    model: str
    options: Mapping[str, Json] = {}  # the backend's own, over those of the context


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What stands around the messages; the same from turn to turn."""

    system: str = ""
    tools: Sequence[ToolSpec] = ()
    options: Mapping[str, Json] = {}
    sent: Sent | None = None  # None: the model takes contexts as they are
    unseen: tuple[str, ...] = ()  # kinds of media that the model takes none of: they are named in words


class Recipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which messages of a line were shown, and what beside them."""

    backend: str
    frame: Digest  # a body
    builder: int = 1
    first: str | None = None  # the message from which on all were shown; None: from the beginning
    older: tuple[str, ...] = ()  # messages before it that were shown too
    switched: Digest | None = None  # the commit of the last switch: calls before it are told in sentences
    native: tuple[str, ...] = ()  # messages before it whose calls were shown as call and result
    harmless: tuple[str, ...] = ()  # tools whose imported calls were told as no external writes
    checkpoint: Digest | None = None  # that the leading note was made of
    lead: Digest | None = None  # a body: the note before everything
    note: Digest | None = None  # a body: the note before the current input
    memory: tuple[str, ...] = ()  # what of the memory stands in it, by reference
    cut: dict[str, int] = {}  # messages that were shown cut, and how many characters of a text were left
    cut_results: dict[
        str, int
    ] = {}  # the same of results alone, and of arguments that were told in sentences
    stored: dict[str, str] = {}  # by call: the artifact that holds a result which was shown cut
    whole: dict[str, str] = {}  # by call: the artifact that was shown in place of a result that is kept short
    short: dict[str, int] = {}  # by call: the characters of a result that was shown as short as it is kept
    open: dict[str, str] = {}  # calls that had no result, and what was said of them
    earlier: int = 0  # how often a model had spoken in what was not shown as it was said


_recipes = msgspec.json.Decoder(Recipe)


def encode_recipe(recipe: Recipe) -> bytes:
    """Return the recipe's canonical bytes."""
    return canonical.encode_struct(recipe)


def decode_recipe(body: bytes) -> Recipe:
    """Return the recipe that `body` holds; raises `Corrupt` if it is none."""
    return canonical.decode_struct(_recipes, body, "recipe of a context")


def encode_frame(frame: Frame) -> bytes:
    """Return the frame's bytes.

    Keys stay in the order in which they were given: schemas are others' words, and a request has them in it.
    """
    shape = msgspec.to_builtins(frame, enc_hook=repr)
    for tool in shape.get("tools", ()):
        if tool["serves"] is None:
            del tool["serves"]
    return json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def decode_frame(body: bytes) -> Frame:
    """Return the frame that `body` holds; raises `Corrupt` if it is none."""
    try:
        shape: dict[str, Any] = json.loads(body.decode("utf-8", "surrogatepass"))
        tools = tuple(ToolSpec(**tool) for tool in shape.pop("tools", ()))
        sent = shape.pop("sent", None)
        return Frame(**shape, tools=tools, sent=Sent(**sent) if sent is not None else None)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Corrupt(
            f"a stored frame of a context cannot be read: {error}. Run `perdure verify`."
        ) from error


def needs(recipe: Recipe) -> Iterator[Digest]:
    """Yield what a recipe names and its space must hold."""
    yield recipe.frame
    yield from (each for each in (recipe.lead, recipe.note) if each is not None)

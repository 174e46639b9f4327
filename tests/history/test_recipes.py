"""Recipes of contexts: what they name is checked, stays as long as a live message needs it, and goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.errors import Forgotten
from perdure.history import retention
from perdure.history.retention import RetentionPolicy
from perdure.history.verify import verify
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import MessageAppended
from perdure.model.message import Message, Text, encode_message
from perdure.model.recipe import Frame, Recipe, Sent, decode_frame, encode_frame, encode_recipe
from tests.history.hand import Hand

DAY = 24 * 60 * 60 * 1_000_000
UNDONE = RetentionPolicy(undone_after_days=30)


def body(text: str) -> Object:
    """A note."""
    return Object.of(Kind.BODY, encode_message(Message("user", (Text(text),))))


def framed(system: str) -> Object:
    """A frame."""
    return Object.of(Kind.BODY, encode_frame(Frame(system=system)))


def said(hand: Hand, text: str, frame: Object, lead: Object, *, without: Object | None = None) -> Object:
    """Write a message whose recipe names a frame and a note; the recipe.  `without` is not stored."""
    recipe = Object.of(Kind.BODY, encode_recipe(Recipe(backend="a:b", frame=frame.digest, lead=lead.digest)))
    message = body(text)
    event = MessageAppended(
        id=hand.space.ids(),
        role="assistant",
        body=message.digest,
        size=len(message.body),
        context=recipe.digest,
    )
    hand.write(
        events=[event], objects=[each for each in (message, frame, lead, recipe) if each is not without]
    )
    return recipe


@pytest.mark.parametrize(
    "field",
    [
        {"authorization_token": "xyzzy"},
        {"authorization": "Bearer xyzzy"},
        {"apiKey": "xyzzy"},
        {"X-Api-Key": "xyzzy"},
        {"headers": {"X-Team": "xyzzy"}},
        {"url": "https://me:xyzzy@mcp.example/sse"},
        {"server_url": "https://mcp.example/sse?key=xyzzy"},
    ],
)
@pytest.mark.parametrize("of_backend", [False, True], ids=["of the agent", "of the backend"])
def test_a_frame_holds_no_credential_of_the_options(field: dict[str, Any], of_backend: bool) -> None:
    """Vendors take the tokens of MCP servers as options; a frame keeps the other options."""
    options: dict[str, Any] = {"vendor": {"anthropic-messages": {"mcp_servers": [{"name": "shop", **field}]}}}
    sent = Sent(api="anthropic-messages", provider="anthropic", model="m", options=options)

    stored = encode_frame(Frame(sent=sent) if of_backend else Frame(options=options))

    assert b"xyzzy" not in stored
    assert b'"name":"shop"' in stored


def test_a_frame_holds_options_whose_names_only_look_like_credentials() -> None:
    """Control: numbers of tokens, and the properties of a schema, are stored as they are."""
    schema = {"properties": {"token": {"type": "string"}, "headers": {"type": "object"}}}
    options: dict[str, Any] = {
        "max_tokens": 7,
        "output": {"schema": schema},
        "vendor": {"x": {"url": "https://a/b"}},
    }

    assert decode_frame(encode_frame(Frame(options=options))).options == options


@pytest.fixture
def hand() -> Hand:
    """An empty line."""
    return Hand()


def test_a_recipe_whose_parts_are_there_is_sound(hand: Hand) -> None:
    """Nothing is said of what is in order."""
    said(hand, "hello", framed("RetentionPlan."), body("note"))

    assert verify(hand.engine).ok


@pytest.mark.parametrize("missing", ["frame", "lead"])
def test_a_recipe_whose_part_is_missing_is_named(hand: Hand, missing: str) -> None:
    """What a model was shown could not be made again, and verify says so."""
    frame, lead = framed("RetentionPlan."), body("note")
    gone = frame if missing == "frame" else lead

    said(hand, "hello", frame, lead, without=gone)

    assert [gone.digest in fault.what for fault in verify(hand.engine).faults] == [True]


def test_a_recipe_that_cannot_be_read_is_named(hand: Hand) -> None:
    """A body that is no recipe is a fault of its own."""
    message, recipe = body("hello"), Object.of(Kind.BODY, b'{"frame":7}')
    event = MessageAppended(
        id="m", role="assistant", body=message.digest, size=len(message.body), context=recipe.digest
    )

    hand.write(events=[event], objects=[message, recipe])

    assert [fault.digest for fault in verify(hand.engine).faults] == [recipe.digest]


def test_what_only_an_undone_message_was_shown_goes(hand: Hand) -> None:
    """Its note quotes what was undone, so it goes; the frame that a live message needs stays."""
    frame, kept, undone = framed("RetentionPlan."), body("kept"), body("undone")
    said(hand, "one", frame, kept)
    recipe = said(hand, "two", frame, undone)
    hand.undo()
    hand.now += DAY
    said(hand, "three", frame, kept)

    plan = retention.plan(hand.engine, UNDONE, hand.now + 60 * DAY)
    retention.carry_out(hand.engine, plan, ids=hand.space.ids)

    def is_there(digest: Digest) -> bool:
        try:
            return bool(hand.space.body(digest))
        except Forgotten:
            return False

    assert not is_there(undone.digest)
    assert not is_there(recipe.digest)
    assert is_there(frame.digest)
    assert is_there(kept.digest)
    assert verify(hand.engine).ok

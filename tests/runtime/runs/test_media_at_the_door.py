"""Bytes in messages become artifacts on the way in, whichever way that is, and reach models as bytes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, File, Image, Message, Store, Text, Thread
from perdure.history import retention
from perdure.history.retention import RetentionPolicy
from perdure.model.message import Block
from perdure.store.plumbing.handles import Ids
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.selection import engines
from tests.switching.scenes import PICTURE

PNG = base64.b64decode(PICTURE.uri.partition(",")[2])
LARGE = PNG + b"\0" * 3_000_000  # of more chunks than one write holds
BACKEND = "anthropic:claude-sonnet-5-5"


def data(body: bytes, declared: str = "image/png") -> str:
    """A data URL."""
    return f"data:{declared};base64,{base64.b64encode(body).decode()}"


@pytest.fixture(params=engines("sqlite", "memory"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store in memory, and one in a file."""
    with perdure.open("memory:" if request.param == "memory" else tmp_path / "agents.db") as opened:
        yield opened


def by_run(store: Store, message: Message) -> tuple[Thread, Script]:
    """As the input of a run."""
    script = Script(say("A picture."), say("Still."), backend=BACKEND)
    thread = store.thread("t", agent=Agent("seer", backend=script))
    thread.run(message, id="m1")
    return thread, script


def by_steering(store: Store, message: Message) -> tuple[Thread, Script]:
    """As something said to a run in mid-flight, twice under one id."""

    @perdure.tool(effect="none")
    def wait() -> str:
        """Wait until somebody has said something."""
        store.thread("t").steer(message, id="m1")
        store.thread("t").steer(message, id="m1")
        return "waited"

    script = Script(use("wait"), say("A picture."), say("Still."), backend=BACKEND)
    thread = store.thread("t", agent=Agent("seer", backend=script, tools=[wait]))
    thread.run("go")
    return thread, script


def by_hand(store: Store, message: Message) -> tuple[Thread, Script]:
    """As a message that a program adds."""
    script = Script(say("A picture."), say("Still."), backend=BACKEND)
    thread = store.thread("t", agent=Agent("seer", backend=script))
    with thread.change("shown") as change:
        change.add(message)
    thread.run("What is it?")
    return thread, script


def by_import(store: Store, message: Message) -> tuple[Thread, Script]:
    """As part of a conversation in a vendor's format."""
    script = Script(say("A picture."), say("Still."), backend=BACKEND)
    thread = store.thread("t", agent=Agent("seer", backend=script))
    urls = [block.uri for block in message.content if isinstance(block, Image | File)]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    thread.add([{"role": "user", "content": parts}], api="openai-chat")
    thread.run("What is it?")
    return thread, script


DOORS = [by_run, by_steering, by_hand, by_import]
Door = Callable[[Store, Message], tuple[Thread, Script]]


def media(messages: Iterable[Message]) -> list[Image | File]:
    """The blocks of these messages that are no words."""
    return [block for each in messages for block in each.content if isinstance(block, Image | File)]


def kept_in(thread: Thread) -> Image | File:
    """The one block of the conversation that is no words."""
    (kept,) = media(entry.message for entry in thread.transcript())
    return kept


@pytest.mark.parametrize("body", [PNG, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("door", DOORS)
def test_bytes_are_kept_as_an_artifact_of_their_own_type(store: Store, door: Door, body: bytes) -> None:
    """Of whatever size; the type is what the bytes are, not what was declared."""
    thread, _ = door(store, Message("user", (Image(data(body, "image/jpeg"), "image/jpeg"),)))

    kept = kept_in(thread)

    assert kept.uri.startswith("artifact://sha256/")
    assert kept.mime_type == "image/png"
    assert b"".join(thread.artifacts.get(kept.uri)) == body
    assert store.verify().ok


@pytest.mark.parametrize("door", DOORS)
def test_a_model_is_shown_the_bytes(store: Store, door: Door) -> None:
    """At once, and again in the next turn, in the same words."""
    thread, script = door(store, Message("user", (Image(data(PNG, "image/jpeg"), "image/jpeg"),)))

    thread.run("And now?")

    first, second = (media(context.messages) for context in script.contexts[-2:])
    assert first == second == [Image(data(PNG), "image/png")]


@pytest.mark.parametrize("door", DOORS)
def test_a_clean_up_leaves_what_a_message_names(store: Store, door: Door) -> None:
    """The message's words are what keeps it, though a later turn is undone and forgotten."""
    thread, _ = door(store, Message("user", (Image(data(PNG), "image/png"),)))
    thread.run("And now?")
    thread.undo()
    with thread.change("otherwise") as change:
        change.say("user", "Something else.")
    engine, later = store._resources.engine, thread.log()[0].at + 86_400_000_000

    planned = retention.plan(engine, RetentionPolicy(undone_after_days=0, staged_after_days=0), later)
    retention.carry_out(engine, planned, ids=Ids(lambda: later))

    kept = kept_in(thread)
    assert planned.spaces
    assert b"".join(thread.artifacts.get(kept.uri)) == PNG


@pytest.mark.parametrize(
    ("block", "media_type"),
    [
        (File("data:text/plain,hello", "text/plain"), "text/plain"),
        (File(data(b"RIFF....WAVE", ""), "audio/wav"), "audio/wav"),
        (File(data(b"a,b", "application/octet-stream"), "text/csv"), "text/csv"),
        (File(data(b"%PDF-1.7", "image/png"), "image/png"), "application/pdf"),
        (File(data(b"hello", "what ever"), "what ever"), "text/plain"),
        (File(data(b"", "text/plain"), "text/plain"), "text/plain"),
    ],
)
def test_the_media_type_is_what_can_be_known(store: Store, block: Block, media_type: str) -> None:
    """By the bytes, else by the address, else by the block."""
    thread, _ = by_run(store, Message("user", (block,)))

    kept = kept_in(thread)

    assert kept.uri.startswith("artifact://sha256/")
    assert kept.mime_type == media_type


@pytest.mark.parametrize(
    "block",
    [
        Text("data:image/png;base64,AAAA"),
        Image("https://example.com/a.png", "image/png"),
        Image("data:image/png;base64,!!", "image/png"),
    ],
)
def test_what_is_no_data_url_stays_as_it_came(store: Store, block: Block) -> None:
    """Control: words are words, addresses are not followed, and what cannot be read is not guessed at."""
    thread, _ = by_run(store, Message("user", (block,)))

    assert thread.transcript()[0].message.content == (block,)


def test_the_same_input_again_is_the_same_input(store: Store) -> None:
    """A picture under an id that the thread has runs nothing; another picture under it is a conflict."""
    message = Message("user", (Image(data(PNG), "image/png"),))
    thread, script = by_run(store, message)

    thread.run(message, id="m1")

    assert len(script.contexts) == 1
    with raises(perdure.errors.Conflict, "input_id_reused", id="m1"):
        thread.run(Message("user", (Image(data(PNG + b"\0"), "image/png"),)), id="m1")


def test_the_same_block_again_changes_nothing(store: Store) -> None:
    """An op_id that was given before finds its commit, artifacts and all."""
    thread = store.thread("t", agent="seer")

    for _ in range(2):
        with thread.change("shown", op_id="once") as change:
            change.add(Message("user", (Image(data(LARGE), "image/png"),)))

    assert len(thread.transcript()) == 1
    assert store.verify().ok

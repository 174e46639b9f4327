"""What a model produces beside words is kept as an artifact, and shown again as the very bytes that it said."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, File, Image, Message, Store, Text, Thread, ToolCall
from perdure.context.render import media
from perdure.history import retention
from perdure.history.retention import RetentionPolicy
from perdure.model.context import Context
from perdure.model.message import Block
from perdure.providers.contract import Finished, ModelEvent
from perdure.providers.wire.server_tools import MEDIA_TYPE
from perdure.store.plumbing.handles import Ids
from tests.selection import engines
from tests.switching.scenes import PICTURE

PNG = base64.b64decode(PICTURE.uri.partition(",")[2])
LARGE = PNG + bytes(range(256)) * 40_000  # ten megabytes: more than one write may hold
BACKENDS = [
    "openai:gpt-5.6",
    "openai-chat:qwen3",
    "anthropic:claude-sonnet-5-5",
    "google:gemini-2.5-pro",
    "bedrock:anthropic.claude-sonnet-5-5",
    "mistral:mistral-large-latest",
    "foundry:gpt-5.6",
]


def data(body: bytes, declared: str = "image/png") -> str:
    """A data URL."""
    return f"data:{declared};base64,{base64.b64encode(body).decode()}"


class Painter:
    """A model that says what it was given, message by message."""

    backend = "script:painter"

    def __init__(self, *said: Message) -> None:
        """Say these, in order."""
        self.said = list(said)
        self.contexts: list[Context] = []

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Say the next one."""
        self.contexts.append(context)
        spoken = sum(1 for message in context.messages if message.role == "assistant")
        yield Finished(message=self.said[spoken])


@pytest.fixture(params=engines("sqlite", "memory"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store in memory, and one in a file."""
    with perdure.open("memory:" if request.param == "memory" else tmp_path / "agents.db") as opened:
        yield opened


def reply(*blocks: Block, calls: tuple[ToolCall, ...] = (), vendor: str | None = None) -> Message:
    """What a model says."""
    return Message("assistant", (Text("Here it is."), *blocks), calls, vendor_metadata=vendor)


def painted(store: Store, *said: Message, id: str = "t") -> tuple[Thread, Painter]:
    """A thread on which a model has said these things, a turn each."""
    painter = Painter(*said)
    thread = store.thread(id, agent=Agent("artist", backend=painter))
    for at in range(len(said)):
        thread.run(f"Paint number {at}.", id=f"m{at}")
    return thread, painter


def blocks(messages: Iterable[Message]) -> list[Image | File]:
    """What is no words in these messages."""
    return [block for each in messages for block in each.content if isinstance(block, Image | File)]


def kept_in(thread: Thread) -> list[Image | File]:
    """What is no words in the conversation, as it is stored."""
    return blocks(entry.message for entry in thread.transcript())


@pytest.mark.parametrize("body", [PNG, LARGE], ids=["small", "large"])
def test_the_message_names_the_bytes_and_the_next_context_has_them(store: Store, body: bytes) -> None:
    """Of whatever size; the model is shown what it said, byte for byte."""
    thread, painter = painted(store, reply(Image(data(body), "image/png")), reply())

    (kept,) = kept_in(thread)

    assert kept.uri.startswith("artifact://sha256/")
    assert b"".join(thread.artifacts.get(kept.uri)) == body
    assert blocks(painter.contexts[1].messages) == [Image(data(body), "image/png")]
    assert thread.at(thread.head.commit).context() == painter.contexts[1]
    assert store.verify().ok


def test_a_reply_of_more_pictures_than_one_write_holds_is_kept(store: Store) -> None:
    """Twelve of a megabyte each; nothing of it is lost, and each is kept once."""
    pictures = [Image(data(PNG + bytes([at]) * 1_000_000), "image/png") for at in range(12)]
    thread, painter = painted(store, reply(*pictures, pictures[0]), reply())

    kept = kept_in(thread)

    assert len({block.uri for block in kept}) == 12
    assert kept[0] == kept[-1]
    assert blocks(painter.contexts[1].messages) == [*pictures, pictures[0]]
    assert store.verify().ok


def test_beside_a_call_and_after_a_restart_it_is_the_same(tmp_path: Path) -> None:
    """A picture in a step that asks for a tool, taken up by a process that remembers nothing."""
    path = tmp_path / "agents.db"

    @perdure.tool(effect="read_only")
    def look() -> str:
        """Look."""
        return "seen"

    def on(store: Store) -> tuple[Thread, Painter]:
        asks = reply(Image(data(PNG), "image/png"), calls=(ToolCall("c", "look", "{}"),))
        painter = Painter(asks, reply(), reply())
        return store.thread("t", agent=Agent("artist", backend=painter, tools=[look])), painter

    with perdure.open(path) as store:
        thread, first = on(store)
        thread.run("Paint and look.")
    with perdure.open(path) as store:
        thread, second = on(store)
        thread.run("Again.")

        assert blocks(first.contexts[1].messages) == [Image(data(PNG), "image/png")]
        assert second.contexts[0].messages[:2] == first.contexts[1].messages[:2]
        assert thread.at(thread.head.commit).context() == second.contexts[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_format_is_rendered_as_if_the_bytes_were_in_the_message(
    store: Store, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """Against a thread whose messages hold them; only the note about what is in use names the artifacts beside."""
    vendor = json.dumps({"openai": {"items": [{"type": "image_generation_call", "result": data(PNG)}]}})
    sound = File(data(b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"), "audio/wav")
    spoken = reply(Image(data(PNG), "image/png"), sound, vendor=vendor)
    thread, _ = painted(store, spoken)
    monkeypatch.setattr(media, "said", lambda _, message: (message, []))  # pyright: ignore[reportUnknownLambdaType]
    inline, _ = painted(store, spoken, id="inline")

    assert kept_in(thread) != kept_in(inline)
    body = json.dumps(thread.render(backend).body)
    assert re.sub(r"\\nArtifacts in use: (artifact://sha256/\w{64}(, )?)+", "", body) == json.dumps(
        inline.render(backend).body
    )
    assert thread.render(backend).losses == inline.render(backend).losses
    assert thread.transcript()[-1].message.vendor_metadata == vendor


@pytest.mark.parametrize(
    "block",
    [
        Image("https://example.com/a.png", "image/png"),
        Image(data(PNG, "image/png"), "image/*"),
        Image(data(PNG)[:-1], "image/png"),
        File("data:text/plain,hello", "text/plain"),
        File(data(b"{}", MEDIA_TYPE), MEDIA_TYPE),
    ],
)
def test_what_could_not_be_given_back_as_it_was_stays_in_the_message(store: Store, block: Block) -> None:
    """Control: an address, a type that is not the address's own, base64 without its end, words of a vendor's tool."""
    thread, painter = painted(store, reply(block), reply())

    assert kept_in(thread) == [block]
    assert blocks(painter.contexts[1].messages) == [block]


def test_a_type_with_parameters_comes_back_with_them(store: Store) -> None:
    """The rate of a sound is all that says how fast it is played; the artifact's own type has none."""
    sound = File(data(b"\1\2" * 50, "audio/L16;codec=pcm;rate=24000"), "audio/L16;codec=pcm;rate=24000")
    thread, painter = painted(store, reply(sound), reply())

    (kept,) = kept_in(thread)

    assert kept.uri.startswith("artifact://sha256/")
    assert blocks(painter.contexts[1].messages) == [sound]
    assert thread.artifacts.show(kept.uri).media_type == "audio/l16"


def test_a_clean_up_leaves_what_a_reply_names(store: Store) -> None:
    """The message's words are what keeps it, though a later turn is undone and forgotten."""
    thread, _ = painted(store, reply(Image(data(PNG), "image/png")), reply())
    thread.undo()
    with thread.change("otherwise") as change:
        change.say("user", "Something else.")
    engine, later = store._resources.engine, thread.log()[0].at + 86_400_000_000

    planned = retention.plan(engine, RetentionPolicy(undone_after_days=0, staged_after_days=0), later)
    retention.carry_out(engine, planned, ids=Ids(lambda: later))

    assert planned.spaces
    assert b"".join(thread.artifacts.get(kept_in(thread)[0].uri)) == PNG

"""The streams of chat clients over plain HTTP: nothing is started twice, nothing is missed or doubled, roles are kept."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Generator, Iterable
from http.client import IncompleteRead
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import perdure
from perdure import Agent, Route
from perdure.errors import Unavailable
from perdure.model.context import Context
from perdure.model.message import Message, ReasoningSummary, Text, ToolCall
from perdure.model.run import RunRecord
from perdure.providers.contract import ModelEvent, TextChunk
from perdure.server.protocols.ag_ui import EventWriter, Position, RunAgentInput
from perdure.server.protocols.ai_sdk import ChunkWriter, ui_message
from perdure.server.protocols.client_content import MediaLinks
from perdure.server.protocols.run_parts import CommittedParts, LiveText, RunOutcome, SpokenPart
from perdure.server.serve import ServeProtocol
from perdure.store.store import Store
from perdure.testing import Script, say, step, think, use
from tests.server.client import Client, assistant, key, serving
from tests.server.test_streams import runner, start, until

AI_SDK = "/v1/threads/chat/ai-sdk"
AG_UI = "/v1/threads/chat/ag-ui"
FILE = {"type": "file", "mediaType": "text/plain", "url": "file:///etc/passwd"}
CURSOR = f"0.3.{'0' * 64}"


@perdure.tool(effect="read_only")
def weather(city: str) -> str:
    """Say what the weather is."""
    return f"rain in {city}"


@perdure.tool(effect="external_write", ask=True)
def book(flight: str) -> str:
    """Book a flight."""
    return f"booked {flight}"


def planner(*steps: Any) -> Agent:
    """An agent with both tools."""
    return Agent("planner", backend=Script(*steps, pieces=3), tools=[weather, book])


class Frame(NamedTuple):
    """One event of a stream."""

    id: str | None
    data: Any


def frames(body: bytes) -> list[Frame]:
    """The events of a whole answer; the mark at its end is left out."""
    found = re.findall(r"(?:id: (.*)\n)?data: (.*)\n\n", body.decode())
    return [Frame(id or None, json.loads(data)) for id, data in found if data != "[DONE]"]


def said(text: str, id: str = "m1") -> dict[str, Any]:
    """What `useChat` sends."""
    return {"id": "x", "messages": [{"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}]}


def asked(text: Any, *more: Any, id: str = "m1", **fields: Any) -> dict[str, Any]:
    """What an AG-UI client sends."""
    messages = [{"id": id, "role": "user", "content": text}, *more]
    return {"threadId": "chat", "runId": "r1", "messages": messages, "tools": [], "context": [], **fields}


def sent(client: Client, path: str, body: Any, **headers: str) -> list[Frame]:
    """The events of the answer to a request."""
    reply = client.post(path, body, **headers)
    assert reply.status == 200, reply.body
    return frames(reply.body)


@pytest.fixture
def talk(store: Store) -> Generator[Client]:
    """A client of a server whose agent reasons, calls two tools and asks before one of them."""
    agent = planner(
        step(think("Let me see."), say("I will look. "), use("weather", city="Oslo")),
        step(say("Now I book."), use("book", flight="SK1"), use("weather", city="Rome")),
        say("Done."),
    )
    store.thread("chat", agent=agent, owner="ann")
    with serving(store, agent) as client:
        yield client


def approve(client: Client) -> None:
    """Approve what waits on the thread."""
    (ticket,) = client.get("/v1/approvals").json["approvals"]
    client.post("/v1/threads/chat/decide", {"call": ticket["call"], "verdict": "approve"})
    client.post("/v1/threads/chat/resume", {"wait": True})


@pytest.mark.parametrize(("path", "body"), [(AI_SDK, said("Go")), (AG_UI, asked("Go"))])
def test_a_repeated_request_starts_nothing_and_gives_the_same_answer(
    talk: Client, store: Store, path: str, body: Any
) -> None:
    """The id of the message is that of the input: the second request reads the run of the first."""
    first, second = [sent(talk, path, body) for _ in range(2)]

    assert len(store.thread("chat").runs()) == 1
    assert joined(first) == joined(second)
    assert store.thread("chat").transcript()[0].id == "m1"


def joined(events: Iterable[Frame]) -> list[Any]:
    """The events with pieces of text put together: how they are cut depends on when they are read."""
    found: list[Any] = []
    for event in events:
        before = found[-1] if found else {}
        if "delta" in event.data and {**before, "delta": ""} == {**event.data, "delta": ""}:
            found[-1] = {**before, "delta": before["delta"] + event.data["delta"]}
        else:
            found.append(event.data)
    return found


def test_the_same_id_with_other_words_is_refused(talk: Client, store: Store) -> None:
    """Only a client that names the message as edited replaces the one of the thread."""
    talk.post(AI_SDK, said("Go"))

    reply = talk.post(AI_SDK, said("Go away"))

    assert (reply.status, reply.json["code"]) == (409, "input_id_reused")
    assert len(store.thread("chat").runs()) == 1


def parts(*texts: str) -> list[Any]:
    """Texts as AG-UI has them in a list."""
    return [{"type": "text", "text": text} for text in texts]


_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "source": {"type": "data", "value": _DOT, "mimeType": "image/png"}}


@pytest.mark.parametrize(
    ("first", "again"),
    [
        ("Go on", parts("Go on")),
        ("Go on", parts("Go", " on")),
        (parts("Go", " on"), None),
        (parts("Go", " on"), parts("Go on")),
        ([*parts("Look", ": "), PICTURE], [*parts("Look: "), PICTURE]),
        ([*parts("Look", ": "), PICTURE], None),
    ],
)
def test_an_ag_ui_client_may_cut_the_words_of_its_message_otherwise(
    talk: Client, store: Store, first: Any, again: Any
) -> None:
    """One text for several parts, or what the server lists (None): nothing is run, and the answer is the same."""
    before = sent(talk, AG_UI, asked(first))
    listed = next(each["content"] for each in talk.get(AG_UI).json["messages"] if each["id"] == "m1")

    after = sent(talk, AG_UI, asked(listed if again is None else again))

    assert joined(after) == joined(before)
    assert len(store.thread("chat").runs()) == 1


@pytest.mark.parametrize("other", ["Go on ", "Go  on", "go on", [*parts("Go on"), PICTURE]])
def test_other_words_under_an_id_are_a_conflict_however_they_are_cut(
    talk: Client, store: Store, other: Any
) -> None:
    """White space counts, too, and so does a picture."""
    talk.post(AG_UI, asked(parts("Go", " on")))

    reply = talk.post(AG_UI, asked(other))

    assert (reply.status, reply.json["code"]) == (409, "input_id_reused")
    assert len(store.thread("chat").runs()) == 1


def test_a_new_message_takes_no_content_by_an_address_of_the_server(talk: Client, store: Store) -> None:
    """Only the message that has it may name it so."""
    talk.post(AG_UI, asked([*parts("Look"), PICTURE]))
    listed = next(each["content"] for each in talk.get(AG_UI).json["messages"] if each["id"] == "m1")

    reply = talk.post(AG_UI, asked(listed, id="m2"))

    assert (reply.status, reply.json["code"]) == (422, "message_part_unsupported")


def test_an_ag_ui_stream_that_is_cut_after_every_event_misses_and_doubles_nothing(talk: Client) -> None:
    """A client that goes on by Last-Event-ID after each single event has what one has that was never cut off."""
    talk.post(AG_UI, asked("Go"))
    approve(talk)
    whole = sent(talk, AG_UI, asked("Go"))

    rest = [sent(talk, AG_UI, asked("Go"), Last_Event_ID=event.id or "") for event in whole]

    assert len(whole) > 25
    assert rest == [whole[number:] for number in range(1, len(whole) + 1)]


def test_without_the_id_of_the_last_event_a_stream_would_begin_again(talk: Client) -> None:
    """Control: it is the header that makes it go on."""
    whole = sent(talk, AG_UI, asked("Go"))

    assert joined(sent(talk, AG_UI, asked("Go"))) == joined(whole)
    assert whole[0].data["type"] == "RUN_STARTED"


def test_an_ag_ui_client_that_has_a_part_of_the_answer_gets_the_rest(talk: Client) -> None:
    """By its list alone: whole messages are left out, one that broke off goes on where it was."""
    talk.post(AG_UI, asked("Go"))
    messages = talk.get(AG_UI).json["messages"][1:]
    messages[1]["content"] = messages[1]["content"][:5]

    events = [event.data for event in sent(talk, AG_UI, asked("Go", *messages[:2]))]

    assert events[2] == {"type": "TEXT_MESSAGE_CONTENT", "messageId": messages[1]["id"], "delta": "l look. "}
    assert events[4]["type"] == "TOOL_CALL_RESULT"


def test_a_message_that_the_thread_does_not_have_is_taken_from_the_client(talk: Client) -> None:
    """A part of an answer that never became durable is replaced by what the thread has."""
    talk.post(AG_UI, asked("Go"))
    lost = {"id": "lost", "role": "assistant", "content": "I was about to say"}

    events = [event.data for event in sent(talk, AG_UI, asked("Go", lost))]

    snapshot = next(event for event in events if event["type"] == "MESSAGES_SNAPSHOT")
    assert [message["id"] for message in snapshot["messages"]] == ["m1"]
    assert "I will look. " in [event.get("delta") for event in events]


def test_an_id_of_another_stream_is_refused(talk: Client) -> None:
    """It names no place from which to go on."""
    reply = talk.post(AG_UI, asked("Go"), Last_Event_ID="7")

    assert (reply.status, reply.json["code"]) == (422, "cursor_invalid")


@pytest.mark.parametrize("names_it", [True, False])
def test_the_same_request_to_replace_an_answer_replaces_it_once(store: Store, names_it: bool) -> None:
    """A client that lost the answer asks again; control: one that does not name the answer replaces the newest."""
    agent = planner(say("One."), say("Two."), say("Three."))
    thread = store.thread("chat", agent=agent, owner="ann")
    with serving(store, agent) as client:
        client.post(AI_SDK, said("Go"))
        (run,) = thread.runs()
        again = {**said("Go"), "trigger": "regenerate-message"} | ({"messageId": run.id} if names_it else {})
        first, second = [sent(client, AI_SDK, again) for _ in range(2)]
        viewer = Client(client.port, key(store, "vera", "viewer"))
        refused = viewer.post(AI_SDK, again)

    assert (joined(first) == joined(second)) == names_it
    assert len(thread.runs()) == (2 if names_it else 3)
    assert [entry.role for entry in thread.transcript()] == ["user", "assistant"]
    assert refused.status == 403


def test_a_submitted_message_after_a_replaced_answer_finds_the_new_answer(store: Store) -> None:
    """The client's id stays that of its message, whichever answer the thread has."""
    agent = planner(say("One."), say("Two."))
    thread = store.thread("chat", agent=agent, owner="ann")
    with serving(store, agent) as client:
        client.post(AI_SDK, said("Go"))
        second = sent(client, AI_SDK, {**said("Go"), "trigger": "regenerate-message"})
        third = sent(client, AI_SDK, said("Go"))

    assert joined(second) == joined(third)
    assert len(thread.runs()) == 2


def test_an_answer_that_waited_while_others_spoke_is_replaced_from_its_message_on(store: Store) -> None:
    """Its run ended in a later turn; control: what was said between is undone with it, and the message is there once."""
    agent = planner(use("book", flight="SK1"), say("Later."), say("Booked."))
    thread = store.thread("chat", agent=agent, owner="ann")
    with serving(store, agent) as client:
        client.post(AI_SDK, said("Go"))
        client.post(AI_SDK, said("And then?", id="m2"))
        approve(client)
        before = [entry.text for entry in thread.transcript() if entry.role == "user"]
        client.post(AI_SDK, {**said("Go"), "trigger": "regenerate-message"})

    assert before == ["Go", "And then?"]
    assert [entry.text for entry in thread.transcript() if entry.role == "user"] == ["Go"]


def test_a_message_whose_run_waits_is_not_replaced(talk: Client, store: Store) -> None:
    """Its question stays open, and nothing is undone."""
    talk.post(AI_SDK, said("Go"))
    head = store.thread("chat").head

    reply = talk.post(AI_SDK, {**said("Go away"), "messageId": "m1"})

    assert (reply.status, reply.json["code"]) == (422, "regenerate_unsupported")
    assert (store.thread("chat").head, len(store.approvals())) == (head, 1)


def test_an_operator_who_may_not_decide_cannot_approve_through_a_chat(talk: Client, store: Store) -> None:
    """Running needs one permission, an answer to a question the other as well; nothing is decided."""
    operator = Client(talk.port, key(store, "olga", "operator"))
    viewer = Client(talk.port, key(store, "vera", "viewer"))
    operator.post(AI_SDK, said("Go"))
    answer = operator.get(AI_SDK).json["messages"][-1]
    part = next(each for each in answer["parts"] if each.get("state") == "approval-requested")
    part["state"], part["approval"]["approved"] = "approval-responded", True
    resume = [{"interruptId": part["approval"]["id"], "status": "resolved", "payload": True}]

    replies = [
        operator.post(AI_SDK, {"messages": [answer]}),
        operator.post(AG_UI, asked("Go", resume=resume)),
    ]

    assert [reply.status for reply in replies] == [403, 403]
    assert len(store.approvals()) == 1
    assert viewer.post(AI_SDK, said("Hi", "m2")).status == 403


def test_who_is_second_to_decide_is_told_who_was_first(talk: Client, store: Store) -> None:
    """The decision of the first stands, and the answer names it."""
    talk.post(AI_SDK, said("Go"))
    answer = talk.get(AI_SDK).json["messages"][-1]
    part = next(each for each in answer["parts"] if each.get("state") == "approval-requested")
    part["state"], part["approval"]["approved"] = "approval-responded", False
    store.thread("chat").decide(part["toolCallId"], "approve", by="ann")

    reply = talk.post(AI_SDK, {"messages": [answer]})

    assert reply.status == 409
    assert "ann" in reply.json["detail"]


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        (AI_SDK, {"messages": []}, "message_missing"),
        (AI_SDK, {"messages": [{"id": "a", "role": "assistant", "parts": []}]}, "message_missing"),
        (
            AI_SDK,
            {"messages": [{"id": "a", "role": "user", "parts": [{"type": "step-start"}]}]},
            "message_part_unsupported",
        ),
        (AI_SDK, {"messages": [{"id": "a", "role": "user", "parts": [FILE]}]}, "message_part_unsupported"),
        (AI_SDK, {"messages": [{"id": "a", "role": "wizard"}]}, "body_invalid"),
        (AG_UI, asked("Go", tools=[{"name": "beep"}]), "client_tools_unsupported"),
        (AG_UI, asked("Go", context=[{"description": "a", "value": "b"}]), "client_context_unsupported"),
        (AG_UI, {"threadId": "a", "runId": "b", "messages": []}, "message_missing"),
    ],
)
def test_what_cannot_be_taken_is_refused_and_nothing_runs(
    talk: Client, store: Store, path: str, body: Any, code: str
) -> None:
    """Each with a code of its own."""
    reply = talk.post(path, body)

    assert (reply.status, reply.json["code"]) == (422, code)
    assert store.thread("chat").runs() == []


def test_a_run_that_another_process_works_on_is_streamed_all_the_same(store: Store) -> None:
    """A server without the agent queues the message, and its client gets the answer of a worker."""
    agent = assistant(say("From a worker."), pieces=3)
    store.thread("chat", agent=agent, owner="ann")
    stop = threading.Event()
    worker = threading.Thread(target=lambda: store.work([agent], stop=stop))

    with serving(store) as client:
        replies: list[list[Frame]] = []
        asking = threading.Thread(target=lambda: replies.append(sent(client, AI_SDK, said("Hello"))))
        asking.start()
        worker.start()
        asking.join(60)
        stop.set()
        worker.join(60)

    assert ui_message(event.data for event in replies[0])["parts"][-1]["text"] == "From a worker."


def test_the_words_of_another_process_come_as_it_writes_them(store: Store, tmp_path: Path) -> None:
    """A client that joins a run which lives elsewhere gets what was said before it came, and then each piece."""
    with serving(store) as client, runner(tmp_path) as process:
        start(process)
        until(lambda: [run.state for run in store.thread("chat").runs()] == ["running"])
        chunks = [event.data for event in frames(client.get(f"{AI_SDK}/x/stream").body)]
        again = [event.data for event in frames(client.post(AG_UI, asked("Speak", id="long")).body)]

    (text,) = [part["text"] for part in ui_message(chunks)["parts"] if part["type"] == "text"]
    assert text == store.thread("chat").transcript()[-1].text
    assert len([chunk for chunk in chunks if chunk["type"] == "text-delta"]) > 2
    assert "".join(event.get("delta", "") for event in again) == text


class HeldModel(Script):
    """A model that stops after its first piece of text until it may go on."""

    go_on = threading.Event()

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Take the step, with a pause in it."""
        async for event in super().step(context):
            yield event
            await asyncio.to_thread(self.go_on.wait, 60)


@pytest.mark.parametrize(
    ("http", "how"), [(ServeProtocol, "cut off"), ("h11", "The server ended this stream before the answer.")]
)
def test_a_server_that_stops_cuts_a_stream_off_so_that_the_client_comes_back(
    store: Store, caplog: pytest.LogCaptureFixture, http: Any, how: str
) -> None:
    """An end would be taken for the end of the answer; the run itself goes on to its own end, and no error is logged.

    The web server of another program does not lend its connections: there the last chunk says so.
    """
    agent = Agent("assistant", backend=HeldModel(say("one two"), pieces=2))
    HeldModel.go_on.clear()
    store.thread("chat", agent=agent, owner="ann")
    begun, ended = threading.Event(), list[str]()

    def read(client: Client) -> None:
        with client.connected() as connection:
            response, last = client._sent(connection, "POST", AI_SDK, said("Speak"), None, None), b""
            try:
                while piece := response.read1():
                    if b"text-delta" in piece:
                        begun.set()
                    last = piece
                ended.append(frames(last)[-1].data.get("errorText", "whole"))
            except (IncompleteRead, ConnectionError):
                ended.append("cut off")
            HeldModel.go_on.set()

    with serving(store, agent, http=http) as client:
        reader = threading.Thread(target=read, args=(client,))
        reader.start()
        assert begun.wait(60)
    reader.join(60)

    assert [each.partition(" The run")[0] for each in ended] == [how]
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []
    assert store.thread("chat").transcript()[-1].text == "one two"


class BreakingModel(Script):
    """A model that breaks off after its first words."""

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Say a little, then fail."""
        yield TextChunk("Half a sen")
        raise Unavailable("the backend is gone", code="backend_unavailable")


def test_words_of_a_backend_that_failed_are_taken_back(store: Store) -> None:
    """Another backend takes over in the middle of a message: the clients have its words and no others."""
    backup = Script(say("A whole sentence."), backend="openai:gpt-5.6")
    agent = Agent("planner", backend=BreakingModel(backend="script:broken"), route=Route([backup]))
    store.thread("chat", agent=agent, owner="ann")

    with serving(store, agent) as client:
        chunks = [event.data for event in sent(client, AI_SDK, said("Hello"))]

    assert [part.get("text") for part in ui_message(chunks)["parts"]] == [None, "A whole sentence."]
    assert store.thread("chat").transcript()[-1].text == "A whole sentence."


# ---- the translations by themselves: what a live reader and a late one get


WHOLE = Message(
    "assistant",
    (ReasoningSummary("Let me see."), Text("It rains.")),
    (ToolCall("c1", "weather", '{"city": "Oslo"}'),),
)
LIVE = (
    LiveText("a1", "reasoning", 0, "Let me "),
    LiveText("a1", "reasoning", 7, "see."),
    LiveText("a1", "text", 0, "It "),
    LiveText("a1", "text", 3, "rai"),
)
SPOKEN = CommittedParts(f"1.2.{'1' * 64}", (SpokenPart("a1", WHOLE),))
OVER = RunOutcome(RunRecord(id="run", agent="a", timeline="main", state="succeeded", at=0, begun_at=0))


def live(number: int) -> list[Any]:
    """The parts that a reader gets who was there for that many pieces of the message."""
    return [*LIVE[:number], SPOKEN, OVER]


@pytest.mark.parametrize("number", range(len(LIVE) + 1))
def test_a_ui_message_is_the_same_however_much_of_it_was_live(number: int) -> None:
    """A reader of every piece, and one who came when the message was there, have the same parts."""
    late, early = ChunkWriter(MediaLinks("chat"), "run"), ChunkWriter(MediaLinks("chat"), "run")

    pieces = [chunk for part in live(number) for chunk in early.take(part)]

    assert ui_message(pieces) == ui_message(chunk for part in live(0) for chunk in late.take(part))


def events(parts: Iterable[Any], at: Position) -> list[tuple[Any, str]]:
    """The AG-UI events of parts, after a position."""
    given = RunAgentInput(thread_id="chat", run_id="r1")
    writer = EventWriter(given, at)
    return [event for part in parts for event in writer.take(part)]


def test_an_ag_ui_message_goes_on_after_every_event_of_its_live_words() -> None:
    """Whatever event was the last, the next ones are the rest: by then the message is durable."""
    whole = events(live(len(LIVE)), Position(CURSOR))

    for number, (_, id) in enumerate(whole[:-1], 1):
        at = Position.read(id)
        rest = events([OVER] if at.cursor == SPOKEN.cursor else live(0), at)
        got = joined(Frame(None, event) for event, _ in [*whole[:number], *rest])

        assert got == joined(Frame(None, event) for event, _ in whole), id


def test_words_that_did_not_become_durable_are_taken_back_in_both_protocols() -> None:
    """Another message is spoken instead, or the run ends."""
    other = CommittedParts(SPOKEN.cursor, (SpokenPart("a2", Message("assistant", (Text("Sunny."),))),))
    writer = ChunkWriter(MediaLinks("chat"), "run")

    chunks = [chunk["type"] for part in (*LIVE, other, OVER) for chunk in writer.take(part)]
    types = [event["type"] for event, _ in events([*LIVE, other, OVER], Position(CURSOR))]

    assert "reset-step" in chunks
    assert "MESSAGES_SNAPSHOT" in types
    assert types.index("MESSAGES_SNAPSHOT") > types.index("TEXT_MESSAGE_END")


def test_reasoning_that_comes_after_words_is_put_before_them() -> None:
    """A model that thinks on while it writes: the message is sent once more, in the order that is stored."""
    mixed = [*LIVE[2:], LiveText("a1", "reasoning", 0, "Let me see.")]
    writer = ChunkWriter(MediaLinks("chat"), "run")

    chunks = [chunk for part in (*mixed, SPOKEN, OVER) for chunk in writer.take(part)]

    after = chunks[[chunk["type"] for chunk in chunks].index("reset-step") :]
    assert [chunk["type"] for chunk in after if chunk["type"].endswith("-start")] == [
        "reasoning-start",
        "text-start",
    ]


def test_a_position_is_read_as_it_was_written() -> None:
    """Every field of it, and nothing else is one."""
    position = Position(CURSOR, "reasoned", 3, 4, 5, "01a1/é m")

    assert Position.read(str(position)) == position
    assert str(Position(CURSOR)) == CURSOR
    with pytest.raises(perdure.errors.Invalid) as refused:
        Position.read(f"{CURSOR}/wizard.0.0.0/")
    assert refused.value.code == "cursor_invalid"


def test_a_file_of_the_user_is_kept_and_shown_again(store: Store, tmp_path: Path) -> None:
    """A picture in the message becomes an artifact, which the client's own message names by an address."""
    agent = assistant(say("A dot."))
    store.thread("chat", agent=agent, owner="ann")
    picture = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{_DOT}"}
    body = said("What is it?")
    body["messages"][0]["parts"].append(picture)

    with serving(store, agent) as client:
        sent(client, AI_SDK, body)
        parts = client.get(AI_SDK).json["messages"][0]["parts"]
        content = client.get(parts[1]["url"]).body

    assert parts[1]["mediaType"] == "image/png"
    assert content.startswith(b"\x89PNG")

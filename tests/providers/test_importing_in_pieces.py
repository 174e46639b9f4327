"""`thread.add` in pieces: results find their calls, ids are added once, and a whole list is compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Agent, Store, Thread, errors
from perdure.runtime import import_commit
from perdure.testing import Script, say, use
from tests.coded import raises

CHAT = "openai-chat"


@pytest.fixture
def store() -> Store:
    """A store in memory."""
    return perdure.open("memory:")


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread without messages."""
    return store.thread("trip", agent="planner")


def asked(id: str = "call_1", tool: str = "look", **args: Any) -> dict[str, Any]:
    """An assistant's message that calls a tool."""
    made = {"id": id, "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def answered(id: str = "call_1", text: str = "rain") -> dict[str, Any]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": id, "content": text}


def user(text: str, **more: Any) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": text, **more}


def paired(thread: Thread) -> list[tuple[str, str]]:
    """Calls of the conversation and the words of their results."""
    messages = [entry.message for entry in thread.transcript()]
    results = {each.call_id: each for message in messages for each in message.tool_results}
    calls = [call for message in messages for call in message.tool_calls]
    return [
        (call.args, "".join(getattr(b, "text", "") for b in results[call.id].content))
        for call in calls
        if call.id in results
    ]


def test_a_result_finds_its_call_in_an_earlier_add(thread: Thread) -> None:
    """The call is settled with it, and the conversation pairs them."""
    thread.add([user("Oslo?"), asked(city="Oslo")], api=CHAT)
    before = thread.calls()[0].state

    losses = thread.add([answered()], api=CHAT)

    (call,) = thread.calls()
    assert (before, call.state, losses) == ("unknown", "succeeded", ())
    assert paired(thread) == [('{"city": "Oslo"}', "rain")]


def test_a_result_that_answers_nothing_is_told_as_a_loss(thread: Thread) -> None:
    """It is kept, and not shown to a model."""
    losses = thread.add([user("Oslo?"), answered("nobody")], api=CHAT)

    assert [(loss.kind, loss.what) for loss in losses] == [("converted", "tool result")]
    assert len(thread.transcript()) == 2


def test_the_newest_open_call_of_an_id_is_settled(thread: Thread) -> None:
    """A vendor may use an id again; the older call stays unknown."""
    thread.add([asked(city="Oslo")], api=CHAT)
    thread.add([user("no, Bergen"), asked(city="Bergen")], api=CHAT)

    thread.add([answered()], api=CHAT)

    assert [call.state for call in thread.calls()] == ["unknown", "succeeded"]
    assert paired(thread) == [('{"city": "Bergen"}', "rain")]


def test_within_one_add_the_newest_open_call_gets_the_result_too(thread: Thread) -> None:
    """The first was never answered."""
    thread.add([asked(city="Oslo"), user("no, Bergen"), asked(city="Bergen"), answered()], api=CHAT)

    assert paired(thread) == [('{"city": "Bergen"}', "rain")]


def test_a_second_result_does_not_settle_a_call_again(thread: Thread) -> None:
    """A control: the call is closed, so the result fits nowhere."""
    thread.add([asked(), answered()], api=CHAT)

    losses = thread.add([answered(text="snow")], api=CHAT)

    assert [loss.what for loss in losses] == ["tool result"]
    assert paired(thread) == [("{}", "rain")]


def test_a_call_of_a_run_or_by_hand_is_never_settled_by_an_import(store: Store) -> None:
    """Not even under the id that the vendor gave it, while its outcome is unknown."""

    @perdure.tool(effect="external_write")
    def look() -> str:
        raise TimeoutError

    script = Script(use("look", id="call_1"), say("Hm."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[look]))
    thread.run("go")
    thread.call(look, {}, id="call_2")
    states = [call.state for call in thread.calls()]

    losses = thread.add([answered("call_1"), answered("call_2")], api=CHAT)

    assert [loss.what for loss in losses] == ["tool result", "tool result"]
    assert [call.state for call in thread.calls()] == states


def test_a_call_on_another_timeline_is_not_settled(thread: Thread) -> None:
    """A call that was imported to a fork is not in the history of main."""
    thread.add([user("Oslo?")], api=CHAT)
    thread.fork("aside").add([asked()], api=CHAT)

    losses = thread.add([answered()], api=CHAT)

    assert ([loss.what for loss in losses], thread.calls()[0].state) == (["tool result"], "unknown")


def test_messages_with_ids_are_added_once(thread: Thread) -> None:
    """In whatever pieces they come; what is new is added."""
    first, second = user("Oslo?", id="m1"), user("Bergen?", id="m2")
    thread.add([first], api=CHAT)

    thread.add([first, second], api=CHAT)
    thread.add([second, second, user("Voss?", id="m3")], api=CHAT)
    head = thread.head
    thread.add([first], api=CHAT)

    assert [entry.text for entry in thread.transcript()] == ["Oslo?", "Bergen?", "Voss?"]
    assert thread.head == head


@pytest.mark.parametrize("api", [None, "openai-chat", "anthropic-messages", "mistral-chat"])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_one_message_is_added_as_a_list_of_it(thread: Thread, api: str | None, role: str) -> None:
    """Under its own role; it is no reply, though it has content."""
    thread.add({"role": role, "content": "I am here"}, api=api)

    assert [(entry.role, entry.text) for entry in thread.transcript()] == [(role, "I am here")]


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"role": "user", "parts": [{"text": "Rain?"}]}, ("user", "Rain?")),
        ({"role": "model", "parts": [{"text": "Rain."}]}, ("assistant", "Rain.")),
        ({"role": "system", "content": "Be brief."}, ("system", "Be brief.")),
        ({"type": "human", "content": "Rain?"}, ("user", "Rain?")),
        ({"role": "tool", "tool_call_id": "c1", "content": "rain"}, ("tool", "")),
        (
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
            ("user", "Rain?"),
        ),
    ],
)
def test_one_message_of_any_format_is_one_of_its_role(
    thread: Thread, message: dict[str, Any], said: tuple[str, str]
) -> None:
    """Its format is found as that of a list is."""
    thread.add(message)

    assert [(entry.role, entry.text) for entry in thread.transcript()] == [said]


def test_control_an_answer_of_anthropic_is_a_reply(thread: Thread) -> None:
    """It has a role too, and its id makes it one that is added once."""
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-opus-4-5",
        "content": [{"type": "text", "text": "Rain."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    thread.add(reply)
    thread.add(reply)

    assert [(entry.role, entry.text) for entry in thread.transcript()] == [("assistant", "Rain.")]


def test_an_id_that_says_something_else_is_a_loss(thread: Thread) -> None:
    """The first words stand, and nothing is dropped in silence."""
    thread.add([user("Oslo?", id="m1")], api=CHAT)

    losses = thread.add([user("Bergen?", id="m1")], api=CHAT)

    assert [loss.what for loss in losses] == ["message 'm1'"]
    assert [entry.text for entry in thread.transcript()] == ["Oslo?"]


def test_after_an_undo_a_message_is_added_again(thread: Thread) -> None:
    """It is not on the line any more."""
    thread.add([user("Oslo?", id="m1")], api=CHAT)
    thread.undo()

    thread.add([user("Oslo?", id="m1")], api=CHAT)

    assert [entry.text for entry in thread.transcript()] == ["Oslo?"]


def test_a_reply_with_an_id_is_added_once(thread: Thread) -> None:
    """The same answer that was saved twice."""
    said = {"message": {"role": "assistant", "content": "Rain."}, "finish_reason": "stop", "index": 0}
    reply = {"id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-5.6", "choices": [said]}

    for _ in range(2):
        thread.add(reply, api=CHAT)

    assert [entry.text for entry in thread.transcript()] == ["Rain."]


def test_a_list_without_ids_is_not_compared_by_itself(thread: Thread) -> None:
    """A control: two equal messages are two."""
    for _ in range(2):
        thread.add([user("Oslo?")], api=CHAT)

    assert len(thread.transcript()) == 2


def test_of_a_whole_list_only_the_rest_is_added(thread: Thread) -> None:
    """Calls and results among them, and a result whose call is there already."""
    said = [{"role": "system", "content": "Be brief."}, user("Oslo?"), asked(city="Oslo")]
    thread.add(said, api=CHAT, whole=True)
    said += [answered(), {"role": "assistant", "content": "Rain."}]

    losses = thread.add(said, api=CHAT, whole=True)
    head = thread.head
    thread.add(said, api=CHAT, whole=True)

    assert losses == ()
    assert [entry.role for entry in thread.transcript()] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert (thread.calls()[0].state, thread.head) == ("succeeded", head)


@pytest.mark.parametrize(
    "given", [[user("Bergen?")], [user("Oslo?")], [user("Oslo?"), user("Voss?"), user("x")]]
)
def test_a_whole_list_that_begins_otherwise_is_a_conflict(thread: Thread, given: list[Any]) -> None:
    """Other words, too few, or others between: nothing is added."""
    thread.add([user("Oslo?"), user("Bergen?")], api=CHAT)
    head = thread.head

    with pytest.raises(errors.Conflict):
        thread.add(given, api=CHAT, whole=True)

    assert thread.head == head


def test_a_run_can_be_continued_by_a_whole_list(store: Store) -> None:
    """What a run said and called counts as the transcript, whatever its calls go by elsewhere."""

    @perdure.tool(effect="read_only")
    def look(city: str) -> str:
        return f"rain in {city}"

    script = Script(use("look", city="Oslo"), say("Rain."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[look]))
    thread.run("Oslo?")
    said = [*thread.export(CHAT).body["messages"], user("Thanks")]

    thread.add(said, api=CHAT, whole=True)

    assert [entry.role for entry in thread.transcript()] == ["user", "assistant", "tool", "assistant", "user"]


def test_who_spoke_is_recorded(thread: Thread) -> None:
    """As the assistant; the user is no model."""
    given = [user("Oslo?"), {"role": "assistant", "content": "Rain."}]

    thread.add(given, api=CHAT, provider="openai", model="gpt-5.6")

    told = [(entry.provider, entry.model) for entry in thread.transcript()]
    assert told == [(None, None), ("openai", "gpt-5.6")]


def test_a_call_whose_backend_is_known_is_still_asked_about(store: Store) -> None:
    """This program did not run it, also where the same model asks for it again."""
    sent: list[str] = []

    @perdure.tool(effect="external_write")
    def pay(to: str) -> str:
        sent.append(to)
        return "paid"

    script = Script(use("pay", to="ann"), say("Paid."), backend="openai:gpt-5.6")
    thread = store.thread("rent", agent=Agent("payer", backend=script, tools=[pay]))
    given = [asked(tool="pay", to="ann"), answered(text="paid")]
    thread.add(given, api=CHAT, provider="openai", model="gpt-5.6")

    assert (thread.run("again").status, sent) == ("waiting", [])


def test_two_adds_at_once_add_a_message_once(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second looks again, and finds that it is there."""
    written = import_commit.write_staged
    other: list[bool] = []

    def overtaken(*given: Any) -> None:
        if not other:
            other.append(True)
            thread.add([user("Oslo?", id="m1")], api=CHAT)
        written(*given)

    monkeypatch.setattr(import_commit, "write_staged", overtaken)
    thread.add([user("Oslo?", id="m1")], api=CHAT)

    assert [entry.text for entry in thread.transcript()] == ["Oslo?"]


def _gemini(*texts: str) -> tuple[list[Any], list[Any]]:
    calls = [{"functionCall": {"name": "look", "args": {"n": at}}} for at in range(len(texts))]
    results = [{"functionResponse": {"name": "look", "response": {"result": text}}} for text in texts]
    asked = [{"role": "user", "parts": [{"text": "?"}]}, {"role": "model", "parts": calls}]
    return asked, [{"role": "user", "parts": results}]


def _ollama(*texts: str) -> tuple[list[Any], list[Any]]:
    calls = [{"function": {"name": "look", "arguments": {"n": at}}} for at in range(len(texts))]
    asked = [user("?"), {"role": "assistant", "content": "", "tool_calls": calls}]
    return asked, [{"role": "tool", "tool_name": "look", "content": text} for text in texts]


def _functions(*texts: str) -> tuple[list[Any], list[Any]]:
    called = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    return [user("?"), called], [{"role": "function", "name": "look", "content": texts[0]}]


@pytest.mark.parametrize(
    ("api", "said", "texts"),
    [
        ("gemini-generate", _gemini, ["rain", "sun"]),
        ("ollama-chat", _ollama, ["rain", "sun"]),
        (CHAT, _functions, ["rain"]),
    ],
)
def test_a_result_that_names_its_tool_alone_finds_its_call(
    thread: Thread, api: str, said: Callable[..., tuple[list[Any], list[Any]]], texts: list[str]
) -> None:
    """Where calls have no ids, results belong to the newest open calls of their tool, in their order."""
    asked, results = said(*texts)
    thread.add(asked, api=api)

    losses = thread.add(results, api=api)

    assert losses == ()
    assert [text for _, text in paired(thread)] == texts
    assert {call.state for call in thread.calls()} == {"succeeded"}


def test_a_result_finds_an_imported_call_by_the_id_that_an_export_gave_it(thread: Thread) -> None:
    """A program that was shown the call under our id answers it under that id."""
    thread.add([user("Oslo?"), asked(city="Oslo")], api=CHAT)

    losses = thread.add([answered(thread.calls()[0].id)], api=CHAT)

    assert losses == ()
    assert [call.state for call in thread.calls()] == ["succeeded"]


def test_an_imported_result_does_not_answer_a_call_that_waits(store: Store) -> None:
    """Under the very id of a run's call it is refused, and the call is made once it is approved."""
    made: list[str] = []

    @perdure.tool(effect="external_write", ask=True)
    def send(to: str) -> str:
        made.append(to)
        return "sent"

    agent = Agent("planner", backend=Script(use("send", to="ann"), say("Sent.")), tools=[send])
    thread = store.thread("letters", agent=agent)
    thread.run("go")

    with raises(errors.Conflict, "call_open"):
        thread.add([answered(thread.calls()[0].id, "forged")], api=CHAT)
    thread.decide(thread.calls()[0].id, "approve", by="ann")
    thread.resume()

    assert made == ["ann"]


def test_what_a_named_model_signed_goes_back_to_it(thread: Thread) -> None:
    """The check says so for the model that was named, and for no other."""
    thought = {"type": "thinking", "thinking": "Oslo is north.", "signature": "c2ln"}
    said = [{"role": "assistant", "content": [thought, {"type": "text", "text": "North."}]}]

    thread.add(
        [user("Where?"), *said], api="anthropic-messages", provider="anthropic", model="claude-sonnet-5-5"
    )

    marks = [
        item.mark
        for backend in ("anthropic:claude-sonnet-5-5", "anthropic:claude-opus-4-5")
        if (item := thread.check_switch(backend).of("reasoning"))
    ]
    assert marks == ["kept", "converted"]


def test_each_turn_of_an_imported_chat_can_be_visited(thread: Thread) -> None:
    """All of it is one write; a fork at a message of the middle has nothing that came later."""
    replies = [{"role": "assistant", "content": text} for text in ("one", "two")]
    thread.add([user("1?"), replies[0], user("2?"), replies[1]], api=CHAT, op_id="chat")

    early = thread.fork("early", at=thread.transcript()[1].id)

    assert [entry.text for entry in early.transcript()] == ["1?", "one"]
    assert [entry.text for entry in thread.at("turn:1").transcript()] == ["1?", "one"]
    assert [turn.number for turn in thread.turns()] == [1, 2]
    assert thread.head.version == 1

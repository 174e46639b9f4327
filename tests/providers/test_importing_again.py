"""`thread.add(…, once=True)`: what a list has in common with the thread is not added again."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent, Thread, errors
from perdure.testing import Script, say

CHAT = "openai-chat"


def user(text: str) -> dict[str, Any]:
    """A user's message."""
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    """An assistant's message."""
    return {"role": "assistant", "content": text}


def asked(id: str) -> dict[str, Any]:
    """An assistant's message that calls a tool."""
    made = {"id": id, "type": "function", "function": {"name": "look", "arguments": '{"city": "Oslo"}'}}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


def result(id: str, text: str) -> dict[str, Any]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": id, "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}
LOOKED = [user("And Oslo?"), asked("c1"), result("c1", "rain"), answer("Rain in Oslo.")]
CHATTED = [SYSTEM, user("Hello"), answer("Hi. What is it?"), *LOOKED]
THANKS = user("Thanks")


@pytest.fixture
def thread() -> Thread:
    """A thread into which a conversation was imported."""
    thread = perdure.open("memory:").thread("trip", agent="planner")
    thread.add(CHATTED, api=CHAT, once=True)
    return thread


def texts(thread: Thread) -> list[str]:
    """The words of the transcript."""
    return [entry.text for entry in thread.transcript()]


def edited(at: int, message: dict[str, Any]) -> list[dict[str, Any]]:
    """The conversation with another message in the place of one."""
    return [*CHATTED[:at], message, *CHATTED[at + 1 :]]


@pytest.mark.parametrize(
    ("given", "differs", "alike"),
    [
        (edited(6, answer("Snow in Oslo.")), 7, 6),
        (edited(5, result("c1", "snow")), 6, 5),
        (edited(3, user("And Bergen?")), 4, 6),
        (edited(1, user("Good day")), 2, 6),
        ([*edited(6, answer("Snow in Oslo.")), THANKS], 7, 6),
        ([SYSTEM, user("Who are you?"), answer("A planner.")], 2, 1),
        ([SYSTEM, user("Hello"), answer("Good day.")], 3, 2),
        ([*CHATTED[:2], THANKS], 3, 2),
        (edited(6, answer("Snow in Oslo."))[3:], 4, 3),
        ([LOOKED[0], answer("Snow in Oslo.")], 2, 1),
        ([LOOKED[-1], THANKS], 2, 1),
        ([user("Hm"), *LOOKED], 1, 4),
    ],
    ids=[
        "answer",
        "result",
        "question",
        "first-question",
        "answer-and-more",
        "system-alone",
        "answered-again",
        "cut-and-more",
        "window-edited",
        "window-answered-again",
        "one-message-at-the-end",
        "other-beginning",
    ],
)
def test_a_list_that_parts_from_the_thread_is_a_conflict(
    thread: Thread, given: list[Any], differs: int, alike: int
) -> None:
    """It names the first message that differs, and counts those that are alike; nothing is written."""
    head = thread.head

    with pytest.raises(errors.Conflict) as parted:
        thread.add(given, api=CHAT, once=True)

    assert (parted.value.facts["differs"], parted.value.facts["alike"]) == (differs, alike)
    assert thread.head == head


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (CHATTED, 0),
        (CHATTED[:4], 0),
        (CHATTED[2:5], 0),
        (CHATTED[-1:], 0),
        ([*CHATTED, THANKS], 1),
        ([*CHATTED[3:], THANKS], 1),
        ([*CHATTED[-2:], THANKS], 1),
        ([SYSTEM, *CHATTED[3:], THANKS, answer("Bye.")], 2),
    ],
    ids=["copy", "beginning", "middle", "end", "grown", "window", "short-window", "window-with-system"],
)
def test_of_a_list_that_goes_on_only_the_rest_is_added(thread: Thread, given: list[Any], added: int) -> None:
    """A copy, a part, a longer list, and a window on the end with what came then."""
    before = len(texts(thread))

    thread.add(given, api=CHAT, once=True)

    assert len(texts(thread)) - before == added
    assert {call.state for call in thread.calls()} == {"succeeded"}


OTHER = {"role": "system", "content": "Be brief. Today is Tuesday."}


@pytest.mark.parametrize("options", [{"once": True}, {"whole": True}])
@pytest.mark.parametrize(
    ("more", "added"),
    [([], []), ([THANKS], ["Thanks"]), ([SYSTEM, THANKS], ["Thanks"]), ([OTHER, THANKS], [OTHER, THANKS])],
)
def test_other_words_of_the_system_are_reported_and_the_rest_is_added(
    thread: Thread, options: Any, more: list[Any], added: list[Any]
) -> None:
    """A prompt with a date changes by the day: the thread keeps the one it has; new ones after the overlap are added."""
    before = texts(thread)

    losses = thread.add([OTHER, *CHATTED[1:], *more], api=CHAT, **options)

    told = [each if isinstance(each, str) else each["content"] for each in added]
    assert texts(thread) == [*before, *told]
    assert [(loss.kind, loss.what) for loss in losses] == [("dropped", "words of the system")]


def test_other_words_of_the_system_do_not_hide_an_edit(thread: Thread) -> None:
    """Control: a list whose answer was edited too is a conflict."""
    given = [OTHER, *edited(6, answer("Snow in Oslo."))[1:]]

    modes: Any = ({"once": True}, {"whole": True})
    for options in modes:
        with pytest.raises(errors.Conflict):
            thread.add(given, api=CHAT, **options)


@pytest.mark.parametrize(
    "given", [[user("Bye")], [THANKS, answer("You're welcome.")], [user("Hm"), LOOKED[0], answer("Yes")]]
)
def test_a_list_of_other_messages_is_added_whole(thread: Thread, given: list[Any]) -> None:
    """Control: a next piece of the conversation, also if one message of it was said before."""
    before = len(texts(thread))

    thread.add(given, api=CHAT, once=True)

    assert len(texts(thread)) - before == len(given)


def test_what_is_said_often_is_no_overlap(thread: Thread) -> None:
    """The end of the list that is there may be found twice in a window: nobody can tell where it goes on."""
    ok, done = user("ok"), answer("Done.")
    thread.add([THANKS, ok, done, ok, done], api=CHAT)

    with pytest.raises(errors.Conflict):
        thread.add([ok, done, ok, done, THANKS], api=CHAT, once=True)
    thread.add([THANKS], api=CHAT)
    thread.add([ok, done, THANKS, user("Bye")], api=CHAT, once=True)

    assert texts(thread)[-3:] == ["Done.", "Thanks", "Bye"]


def test_a_list_that_parts_is_added_to_a_fork_of_the_moment_that_is_named(thread: Thread) -> None:
    """The fork has what is alike, and the rest of the list follows."""
    given = edited(6, answer("Snow in Oslo."))
    with pytest.raises(errors.Conflict) as parted:
        thread.add(given, api=CHAT, once=True)

    fork = thread.fork("other", at=str(parted.value.facts["after"]))
    fork.add(given, api=CHAT, once=True)

    assert texts(fork) == [*texts(thread)[:-1], "Snow in Oslo."]


def test_a_list_that_parts_is_added_whole_on_demand(thread: Thread) -> None:
    """Control: without `once` nothing is compared."""
    thread.add(edited(6, answer("Snow in Oslo.")), api=CHAT)

    assert len(texts(thread)) == 2 * len(CHATTED)


def test_a_list_is_compared_with_what_was_said_here_too() -> None:
    """A thread that began with a run: its own export adds nothing, and an edited one is a conflict."""
    agent = Agent("planner", backend=Script(say("Rain.")))
    thread = perdure.open("memory:").thread("trip", agent=agent)
    thread.run("Oslo?")
    said = list(thread.export(CHAT).body["messages"])

    thread.add(said, api=CHAT, once=True)
    with pytest.raises(errors.Conflict):
        thread.add([said[0], answer("Snow.")], api=CHAT, once=True)

    assert texts(thread) == ["Oslo?", "Rain."]


def test_a_list_of_which_some_messages_have_ids_is_added_once() -> None:
    """As the Responses API has them: the questions have none, and were added again."""
    thread = perdure.open("memory:").thread("trip", agent="planner")
    words = [{"type": "output_text", "text": "Rain.", "annotations": []}]
    said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": words}
    given = [user("Oslo?"), said]

    for more in ([], [], [user("Bergen?")]):
        thread.add([*given, *more], api="openai-responses", once=True)

    assert texts(thread) == ["Oslo?", "Rain.", "Bergen?"]


def test_the_conflict_of_a_whole_list_names_the_message_too(thread: Thread) -> None:
    """With `whole` the list has to begin with everything that is there."""
    with pytest.raises(errors.Conflict) as other:
        thread.add(edited(3, user("And Bergen?")), api=CHAT, whole=True)
    with pytest.raises(errors.Conflict) as short:
        thread.add(CHATTED[:3], api=CHAT, whole=True)

    assert (other.value.facts["differs"], other.value.facts["role"]) == (4, "user")
    assert (short.value.facts["alike"], short.value.code) == (3, "import_not_a_continuation")


def test_a_long_transcript_is_compared_in_one_reading(thread: Thread) -> None:
    """A list of 4,000 messages that say the same two things; nothing in it is compared pair by pair."""
    said = [message for _ in range(2_000) for message in (user("ok"), answer("Done."))]
    thread.add(said, api=CHAT)

    with pytest.raises(errors.Conflict):
        thread.add([*said[:-1], answer("No.")], api=CHAT, once=True)


def called(*names: str) -> dict[str, Any]:
    """An assistant's message with parallel calls."""
    calls = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in names
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def cut(*texts: str) -> list[dict[str, Any]]:
    """A content of several blocks."""
    return [{"type": "text", "text": text} for text in texts]


PARALLEL = [user("q"), called("a", "b"), result("b", "B"), result("a", "A"), answer("done")]
EXPORTED: dict[str, list[dict[str, Any]]] = {
    "results in another order": PARALLEL,
    "texts in blocks": [
        {"role": "user", "content": cut("one", "two")},
        {"role": "assistant", "content": cut("three", "four")},
        THANKS,
    ],
    "a result in blocks": [
        user("q"),
        called("a"),
        {**result("a", ""), "content": cut("A", "B")},
        answer("d"),
    ],
    "an empty message": [user("q"), answer(""), user("again"), answer("done")],
    "an empty message at the end": [user("q"), answer("")],
}
FORMATS = (
    CHAT,
    "openai-responses",
    "anthropic-messages",
    "gemini-generate",
    "ollama-chat",
    "bedrock-converse",
)


@pytest.mark.parametrize("api", FORMATS)
@pytest.mark.parametrize("kind", EXPORTED)
def test_an_export_adds_nothing_to_its_thread(kind: str, api: str) -> None:
    """Whatever order its format has results in, and however it joins texts."""
    thread = perdure.open("memory:").thread("t", agent="planner")
    thread.add(EXPORTED[kind], api=CHAT, once=True)
    before = len(thread.transcript())

    thread.add(thread.export(api).body, api=api, once=True)

    assert len(thread.transcript()) == before


def test_results_in_another_order_that_say_something_else_are_a_conflict() -> None:
    """Each result is compared with that of its call, so two that were exchanged differ."""
    thread = perdure.open("memory:").thread("t", agent="planner")
    thread.add(PARALLEL, api=CHAT, once=True)
    exchanged = [*PARALLEL[:2], result("a", "B"), result("b", "A"), answer("done")]

    with pytest.raises(errors.Conflict):
        thread.add(exchanged, api=CHAT, once=True)


def test_a_list_that_has_grown_by_a_result_adds_that_one() -> None:
    """Where the results of a round are in another order than its calls."""
    thread = perdure.open("memory:").thread("t", agent="planner")
    thread.add(PARALLEL[:3], api=CHAT, once=True)

    thread.add(PARALLEL, api=CHAT, once=True)

    assert len(thread.transcript()) == len(PARALLEL)


def test_a_line_end_in_one_block_is_compared() -> None:
    """Only a text that one side has in several blocks is compared without its line ends."""
    thread = perdure.open("memory:").thread("t", agent="planner")
    thread.add([user("q"), answer("a\nb"), THANKS], api=CHAT, once=True)

    with pytest.raises(errors.Conflict):
        thread.add([user("q"), answer("ab"), THANKS], api=CHAT, once=True)


def test_an_empty_message_is_a_loss_of_an_export() -> None:
    """No format has it, and the report names it."""
    thread = perdure.open("memory:").thread("t", agent="planner")
    thread.add(EXPORTED["an empty message"], api=CHAT)
    empty = thread.transcript()[1].id

    losses = [(loss.kind, loss.where, loss.what) for loss in thread.export(CHAT).losses]

    assert losses == [("dropped", f"message {empty}", "empty message")]


SIGNED = {
    "anthropic-messages": {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    "bedrock-converse": {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
}


@pytest.mark.parametrize("api", SIGNED)
def test_signed_reasoning_of_no_named_model_is_a_loss(api: str) -> None:
    """No model takes it back, so the import says how to name the one that signed it."""
    words = {"text": "Yes."} | ({"type": "text"} if api == "anthropic-messages" else {})
    asked = {"role": "user", "content": [words]}
    given = [asked, {"role": "assistant", "content": [SIGNED[api], words]}]
    store = perdure.open("memory:")

    lost = store.thread("t", agent="planner").add(given, api=api)
    named = store.thread("n", agent="planner").add(given, api=api, model="claude-opus-4-5")

    assert [(loss.where, loss.what, "--model" in loss.why) for loss in lost] == [
        ("messages[1]", "signed reasoning", True)
    ]
    assert named == ()

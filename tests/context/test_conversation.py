"""What a model may see: every call with exactly one result, right behind it, whatever the transcript holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.context.render.conversation import WAITING, Conversation
from perdure.model.message import Message, Text, ToolCall, ToolResult


def user(text: str) -> Message:
    """Something that a user says."""
    return Message("user", (Text(text),))


def asking(*ids: str, text: str = "") -> Message:
    """An assistant that asks for tools."""
    return Message(
        "assistant", (Text(text),) if text else (), tuple(ToolCall(id, "look", "{}") for id in ids)
    )


def answer(*pairs: tuple[str, str]) -> Message:
    """What calls came to."""
    results = tuple(ToolResult(id, "success", (Text(text),)) for id, text in pairs)
    return Message("tool", (), (), results)


def shown(*messages: Message) -> list[Message]:
    """What a model sees of a transcript."""
    conversation = Conversation()
    conversation.extend(messages)
    return list(conversation.messages())


def check(messages: list[Message]) -> None:
    """Every call has one result right behind it, no id names two calls, and nothing is empty or alone."""
    asked: list[str] = []
    known: set[str] = set()
    for message in messages:
        assert [result.call_id for result in message.tool_results] == asked
        assert (message.role == "tool") == bool(asked)
        assert message.content or message.tool_calls or message.tool_results
        asked = [call.id for call in message.tool_calls]
        assert len({*asked}) == len(asked)
        assert not known & {*asked}
        known |= {*asked}
    assert asked == []


def words(message: Message) -> list[str]:
    """The words of its results."""
    return [
        "".join(getattr(block, "text", "") for block in result.content) for result in message.tool_results
    ]


def test_a_plain_exchange_is_shown_as_it_is() -> None:
    """Where everything is in order nothing is changed."""
    messages = [
        user("hi"),
        asking("a", text="wait"),
        answer(("a", "found")),
        Message("assistant", (Text("so"),)),
    ]

    assert shown(*messages) == messages


def test_an_open_call_is_shown_as_waiting() -> None:
    """It has a result that says so, and tells the model not to repeat it."""
    messages = shown(user("hi"), asking("a", "b"), answer(("b", "found")))

    check(messages)
    assert words(messages[2]) == [WAITING, "found"]
    assert messages[2].tool_results[0].status == "error"


def test_a_late_result_stands_right_behind_its_call() -> None:
    """However much was said in between; a note says where it arrived that it did."""
    messages = shown(
        user("hi"), asking("a"), user("still there?"), asking("b"), answer(("b", "2")), answer(("a", "1"))
    )

    check(messages)
    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert [words(messages[2]), words(messages[5])] == [["1"], ["2"]]
    assert messages[6].text.startswith("[Perdure note] An earlier tool call has ended only now.")


def test_of_two_results_of_one_call_the_last_counts() -> None:
    """A result that is told again replaces the first."""
    messages = shown(asking("a"), answer(("a", "first")), user("and?"), answer(("a", "second")))

    check(messages)
    assert words(messages[1]) == ["second"]


def test_results_that_belong_to_no_call_are_left_out() -> None:
    """An orphan never reaches a model, alone or beside others."""
    messages = shown(answer(("x", "lost")), user("hi"), asking("a"), answer(("y", "lost"), ("a", "found")))

    check(messages)
    assert len(messages) == 3
    assert words(messages[2]) == ["found"]


def test_an_id_that_was_there_before_names_the_first_call() -> None:
    """A second call of the same id is not shown; if its message says nothing else, neither is that."""
    messages = shown(
        asking("a"), answer(("a", "1")), asking("a"), asking("a", "b", text="again"), answer(("b", "2"))
    )

    check(messages)
    assert [[call.id for call in message.tool_calls] for message in messages] == [["a"], [], ["b"], []]


def test_an_id_twice_in_one_message_is_one_call() -> None:
    """A message brought from elsewhere may say the same thing twice."""
    messages = shown(asking("a", "a", "b"), answer(("a", "1"), ("b", "2")))

    check(messages)
    assert words(messages[1]) == ["1", "2"]


def test_a_message_that_says_nothing_is_left_out() -> None:
    """Some vendors refuse it."""
    messages = shown(user("hi"), Message("assistant", ()), Message("assistant", (Text("yes"),)))

    check(messages)
    assert len(messages) == 2


def test_what_was_handed_out_does_not_change_when_more_is_added() -> None:
    """A model, or a test, may keep what it was shown."""
    conversation = Conversation()
    conversation.extend([user("hi"), asking("a")])
    before = conversation.messages()
    kept = list(before)

    conversation.add(answer(("a", "found")))
    conversation.add(user("more"))

    assert list(before) == kept
    assert len(conversation) == 4


def test_a_late_result_finds_its_place_in_a_long_conversation() -> None:
    """Also if the call stands thousands of messages back."""
    conversation = Conversation()
    conversation.extend([user("hi"), asking("a", "b")])
    conversation.extend(user(str(number)) for number in range(2_000))

    conversation.add(answer(("b", "late")))

    messages = list(conversation.messages())
    check(messages)
    assert words(messages[2]) == [WAITING, "late"]


_ids = st.sampled_from("abcdef")
_messages = st.one_of(
    st.just(user("hi")),
    st.lists(_ids, max_size=3).map(lambda ids: asking(*ids)),
    st.lists(_ids, max_size=3).map(lambda ids: asking(*ids, text="words")),
    st.lists(_ids, min_size=1, max_size=3).map(lambda ids: answer(*((id, f"result of {id}") for id in ids))),
)


@given(st.lists(_messages, max_size=30))
def test_whatever_the_transcript_holds_the_model_sees_a_well_formed_conversation(said: list[Message]) -> None:
    """Calls and results in any order, twice, late or never."""
    check(shown(*said))


@given(st.lists(_messages, max_size=30), st.integers(min_value=0, max_value=30))
def test_adding_one_by_one_shows_the_same_as_reading_at_once(said: list[Message], at: int) -> None:
    """Where the reading is broken off and taken up again makes no difference."""
    conversation = Conversation()
    conversation.extend(said[:at])
    conversation.messages()
    conversation.extend(said[at:])

    assert list(conversation.messages()) == shown(*said)

"""Calls before a switch: their own backend gets them back as it made them, any other is told of them in words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, Backend, Policy, Store, Thread
from perdure.context.render.call_summaries import is_note
from perdure.errors import Invalid
from perdure.model.context import Context
from perdure.testing import Script, say, step, use
from tests.context.lines import answer, asking, book, check_pairs, search, user
from tests.recorded.owned import opaque
from tests.recorded.pairs import DEEP, SOURCES, read_as
from tests.recorded.wire import FOLDER, Record, Wire

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"
MAKERS = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai",
    "anthropic-messages": "anthropic",
    "gemini-generate": "google",
    "bedrock-converse": "bedrock",
    "mistral-chat": "mistral",
    "azure-inference-chat": "azure",
    "ollama-chat": "ollama-chat",
    "gemini-interactions": "gemini-interactions",
}
LENIENT = Policy(warn=["text", "tools", "mcp_tools", "context"], unfinished="approve")
EVERY = 1 if DEEP else 8  # recorded conversations of a format
recorded = pytest.mark.skipif(not (FOLDER / "facts.jsonl.gz").exists(), reason="no recorded traffic")


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store."""
    with perdure.open("memory:") as opened:
        yield opened


def travelled(store: Store, policy: Policy | None = None) -> Thread:
    """A thread on which A looked something up and booked a flight."""
    steps = (use("search", query="Rome"), step(say("Booking."), use("book", flight="SK1")), say("Booked."))
    tools = [search, book]
    agent = Agent("planner", backend=Script(*steps, backend=A), tools=tools, policy=policy or Policy())
    thread = store.thread("trip", agent=agent)
    thread.run("Book a flight to Rome.")
    return thread


def names(context: Context) -> list[str]:
    """The tools that are shown as called, in order."""
    return [call.name for message in context.messages for call in message.tool_calls]


def notes(context: Context) -> str:
    """What our own notes say."""
    return "\n".join(message.text for message in context.messages if is_note(message))


def conversations(source: str) -> list[Record]:
    """The last request of each recorded conversation with calls."""
    found = [each for each in Wire().requests(source) if each.status == 200 and "tool_calls" in each.features]
    return list({record.conversation_id: record for record in found}.values())[::EVERY]


def imported(store: Store, record: Record) -> tuple[Thread, Backend]:
    """A recorded conversation on the backend that had it."""
    home = Backend(f"{MAKERS[read_as(record.api)]}:{record.model}")
    thread = store.thread(record.id, agent=Agent("recorded", backend=home, policy=LENIENT))
    thread.add(record.request or {}, api=read_as(record.api))
    return thread, home


@recorded
@pytest.mark.parametrize("source", SOURCES)
def test_what_only_the_first_can_read_is_back_in_every_recorded_conversation(
    store: Store, source: str
) -> None:
    """A → B → A: each signature and sealed thought that A was sent before the trip is sent again, calls or not."""
    away = Backend(A if source == "mistral-chat" else "mistral:mistral-large-latest")
    for record in conversations(source)[:: 1 if DEEP else 3]:
        thread, home = imported(store, record)
        before = opaque(thread.render(home).body)

        thread.switch(away, approved_by="ann")
        abroad = opaque(thread.render(away).body)
        thread.switch(home, approved_by="ann")

        back = opaque(thread.render(home).body)
        assert (record.id, before - back, before & abroad) == (record.id, set(), set())


@recorded
def test_recorded_conversations_have_something_to_lose(store: Store) -> None:
    """Control: many of them hold what only their backend can read, beside calls."""
    found = [imported(store, record) for record in conversations("gemini-generate")]

    assert sum(bool(opaque(thread.render(home).body)) for thread, home in found) >= len(found) // 2 > 5


def test_the_backend_that_made_calls_gets_them_back_as_calls(store: Store) -> None:
    """A's calls are call and result for A, B's are told in words."""
    thread = travelled(store)
    thread.switch(Script(use("search", query="hotels"), say("Found."), backend=B))
    thread.run("And a hotel?")
    home = Script(say("Welcome back."), backend=A)

    thread.switch(home)
    thread.run("Are you there?")

    (shown,) = home.contexts
    assert names(shown) == ["search", "book"]
    assert "hotels" in notes(shown)
    check_pairs(shown.messages)


def test_another_backend_is_told_in_words_by_default(store: Store) -> None:
    """Calls before the switch are a summary with artifact references, and none is replayed."""
    thread = travelled(store)
    other = Script(say("Hello."), backend=B)

    thread.switch(other)
    thread.run("Are you there?")

    assert names(other.contexts[0]) == []
    assert "artifact://sha256/" in notes(other.contexts[0])


def test_a_policy_shows_another_backend_calls_and_results(store: Store) -> None:
    """`earlier_calls="native"` gives pairs; the note still says which of them must not be repeated."""
    thread = travelled(store, Policy(earlier_calls="native"))
    other = Script(say("Hello."), backend=B)

    thread.switch(other)
    thread.run("Are you there?")

    (shown,) = other.contexts
    assert names(shown) == ["search", "book"]
    check_pairs(shown.messages)
    assert "`book`" in notes(shown)
    assert "do not repeat" in notes(shown)
    assert "`search`" not in notes(shown)


def test_a_backend_without_tools_is_told_in_words_whatever_the_policy(store: Store) -> None:
    """Call and result are shown only where the format carries them."""
    thread = travelled(store, Policy(earlier_calls="native", warn=["tools"]))
    other = Script(say("Hello."), backend="script:plain", lacks=["tools"])

    thread.switch(other)
    thread.run("Are you there?")

    assert names(other.contexts[0]) == []


def test_a_policy_for_earlier_calls_is_one_of_two() -> None:
    """Anything else is refused where it is declared."""
    with pytest.raises(Invalid):
        Policy(earlier_calls="replay")  # pyright: ignore[reportArgumentType]


def test_the_check_warns_of_calls_that_will_be_summarised(store: Store) -> None:
    """⚠ for another backend, ✓ for the one that made them or under a policy of pairs."""
    thread = travelled(store)

    to_other = thread.check_switch(B)
    thread.switch(Script(say("Hello."), backend=B))
    thread.run("Are you there?")
    to_own = thread.check_switch(A)

    assert "⚠ 2 earlier tool calls will be summarised" in to_other.lines
    assert "✓ 2 earlier tool calls will be shown as made" in to_own.lines


def test_the_check_names_both_kinds_where_there_are_both(store: Store) -> None:
    """Calls of B are summarised to A, its own are not."""
    thread = travelled(store)
    thread.switch(Script(use("search", query="hotels"), say("Found."), backend=B))
    thread.run("And a hotel?")

    lines = thread.check_switch(A).lines

    assert "⚠ 1 earlier tool call will be summarised; 2 earlier tool calls as made" in lines


def test_a_conversation_without_calls_is_not_warned_of(store: Store) -> None:
    """Control: no line about calls where there are none."""
    thread = store.thread("talk", agent=Agent("a", backend=Script(say("Hi."), backend=A), tools=[search]))
    thread.run("Hello")

    assert thread.check_switch(B).of("earlier_calls") is None


def test_contexts_with_calls_given_back_are_made_again(store: Store) -> None:
    """Byte for byte from the recipe, also by the next turn."""
    thread = travelled(store)
    thread.switch(Script(use("search", query="hotels"), say("Found."), backend=B))
    thread.run("And a hotel?")
    home = Script(use("search", query="cars"), say("Found."), say("Yes."), backend=A)
    thread.switch(home)
    thread.run("And a car?")
    thread.run("All booked?")

    said = [each for each in thread.transcript() if each.role == "assistant"][-3:]

    assert [thread.at(each.commit).context() for each in said] == home.contexts


def test_failover_tells_of_calls_and_going_back_gives_them_back(store: Store) -> None:
    """Inside a turn the spare is told in words; when the first takes over again the calls are its own."""
    first = Script(use("search", query="Rome"), perdure.testing.fail(), backend=A)
    spare = Script(say("I go on."), backend=B)
    agent = Agent("planner", backend=first, tools=[search], route=perdure.Route([spare]))
    thread = store.thread("trip", agent=agent)
    thread.run("Find a flight.")
    home = Script(say("Back."), backend=A)

    thread.switch(home)
    thread.run("And now?")

    assert (names(spare.contexts[0]), names(home.contexts[0])) == ([], ["search"])


def test_calls_that_were_imported_go_back_to_the_backend_of_the_line(store: Store) -> None:
    """Whoever made them: the line's backend was shown them as call and result before the trip, and is again."""
    thread = store.thread("t", agent=Agent("a", backend=Script(backend=A), policy=LENIENT))
    with thread.change("imported") as change:
        change.add(user("Rome?"))
        change.add(asking("c1"), provider="mistral", model="mistral-large-latest")
        change.add(answer(("c1", "Sunny.")))

    thread.switch(Script(backend=B))
    abroad = names(thread.plan().context)
    thread.switch(Script(backend=A))

    assert (abroad, names(thread.plan().context)) == ([], ["search"])


def test_calls_that_a_conversation_begins_with_are_not_left_out(store: Store) -> None:
    """An imported conversation may begin with the assistant; its first turn is shown, too."""
    thread = store.thread("t", agent=Agent("a", backend=Script(backend=A), policy=LENIENT))
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    first = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "Sunny."},
    ]
    thread.add([*first, {"role": "user", "content": "And Rome?"}], api="openai-chat")

    assert "Sunny." in str(list(thread.plan(B).context.messages))


def thinking(store: Store, *, model: str) -> Thread:
    """An imported conversation in which a model of Anthropic's thought, signed that, and called a tool."""
    call = {"type": "tool_use", "id": "t1", "name": "search", "input": {}}
    thought = {"type": "thinking", "thinking": "Rome is south.", "signature": "c2lnbmVk"}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "Sunny."}
    body = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 2_000,
        "messages": [
            {"role": "user", "content": "Rome?"},
            {"role": "assistant", "content": [thought, call]},
            {"role": "user", "content": [result]},
        ],
    }
    agent = Agent("a", backend=Backend(f"anthropic:{model}"), tools=[search], policy=LENIENT)
    thread = store.thread(f"on {model}", agent=agent)
    thread.add(body, api="anthropic-messages")
    return thread


def test_reasoning_is_kept_only_where_the_request_has_all_of_it(store: Store) -> None:
    """✓ for the model that signed it, ⚠ for another model of the same format and for another vendor."""
    thread = thinking(store, model="claude-sonnet-5-5")
    marks = {name: thread.check_switch(name).of("reasoning") for name in ("anthropic:claude-opus-4-5", A)}
    thread.switch(Backend(A), approved_by="ann")

    home = thread.check_switch("anthropic:claude-sonnet-5-5").of("reasoning")

    assert [item.mark for item in marks.values() if item is not None] == ["converted", "converted"]
    assert home is not None
    assert home.mark == "kept"
    assert "c2lnbmVk" in opaque(thread.render("anthropic:claude-sonnet-5-5").body)

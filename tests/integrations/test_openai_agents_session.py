"""Sessions of the OpenAI Agents SDK on a thread: items come back as they were, and are one history with the rest."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

pytest.importorskip("agents")

from agents import Agent, Runner, SessionSettings, function_tool, set_tracing_disabled
from agents.memory import Session as SessionProtocol
from agents.testing import ScriptedModel, assistant_message, function_call
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import aio
from perdure.errors import Conflict, Corrupt, Invalid, NotFound, PerdureError
from perdure.integrations import foreign_ids
from perdure.integrations.openai_agents import Session
from perdure.integrations.openai_agents.session import UNMAPPED
from perdure.providers.registry import APIS
from tests.coded import raises
from tests.crash.campaign import sized
from tests.integrations.exports import exports_faults

T = TypeVar("T")

set_tracing_disabled(True)  # nothing is sent to OpenAI

CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "pay", "arguments": '{"euro": 5}'}
ITEMS: list[Any] = [
    {"role": "user", "content": "Pay five"},
    {"role": "developer", "content": "Be brief"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "They want to pay."}]},
    CALL,
    {"type": "function_call_output", "call_id": "c1", "output": "paid"},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Done", "annotations": []}],
    },
    {"type": "of tomorrow", "number": 2**80, "half": "\ud800", "list": [1.0, None]},
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    """A store on disk."""
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def session(store: perdure.Store, id: str = "t", **options: Any) -> Session:
    """A session on a thread."""
    return Session(store.thread(id, agent="pays"), **options)


def test_items_come_back_deep_equal_and_in_order(store: perdure.Store) -> None:
    """Whatever is in them, all of them or the last ones."""
    here = session(store)
    run(here.add_items(ITEMS))

    assert isinstance(here, SessionProtocol)
    assert run(session(store).get_items()) == ITEMS
    for limit in range(1, len(ITEMS) + 3):
        assert run(here.get_items(limit)) == ITEMS[-limit:]
    assert run(here.get_items(0)) == []


def test_the_limit_of_the_settings_counts_unless_one_is_given(store: perdure.Store) -> None:
    """As in the SDK's own sessions."""
    here = session(store, session_settings=SessionSettings(limit=2))
    run(here.add_items(ITEMS))

    assert run(here.get_items()) == ITEMS[-2:]
    assert run(here.get_items(3)) == ITEMS[-3:]


def test_five_items_are_one_write_and_each_is_popped_alone(store: perdure.Store) -> None:
    """The head moves once; a pop takes one item back, also out of the middle of a reply."""
    here = session(store)
    before = len(here.thread.moves())
    run(here.add_items(ITEMS))
    assert len(here.thread.moves()) == before + 1

    for left in range(len(ITEMS) - 1, -1, -1):
        assert run(here.pop_item()) == ITEMS[left]
        assert run(here.get_items()) == ITEMS[:left]
    assert run(here.pop_item()) is None
    assert store.verify().ok


def test_taking_back_leaves_the_state_of_others_and_the_history(store: perdure.Store) -> None:
    """A clear is a commit: what others wrote meanwhile stays, and the moment before shows the conversation."""
    here = session(store)
    run(here.add_items(ITEMS))
    here.thread.put("/order.json", {"id": 7})
    full = here.thread.log(limit=1)[0]
    run(here.clear_session())
    cleared = len(here.thread.moves())
    run(here.clear_session())

    assert run(here.get_items()) == []
    assert here.thread.get("/order.json") == {"id": 7}
    assert [entry.role for entry in here.thread.at(full).transcript()][:2] == ["user", "assistant"]
    assert len(here.thread.moves()) == cleared


def test_the_items_are_the_transcript_of_the_thread(store: perdure.Store) -> None:
    """It has log, fork, diff and verify, exports to every provider, and lists what is no message."""
    here = session(store)
    run(here.add_items(ITEMS))
    thread = here.thread
    fork = thread.fork("other")
    run(Session(fork).add_items([{"role": "user", "content": "And more"}]))

    assert [(entry.role, entry.text) for entry in thread.transcript()[:3]] == [
        ("user", "Pay five"),
        ("assistant", ""),
        ("tool", ""),
    ]
    assert [each["why"] for each in thread.get(UNMAPPED)] == ["message of the developer"]
    for api in APIS:
        assert "Pay five" in str(thread.export(api).body)
    assert run(Session(fork).get_items()) == [*ITEMS, {"role": "user", "content": "And more"}]
    assert run(here.get_items()) == ITEMS
    assert thread.log()[0].reason == "add_items"
    assert store.verify().ok


def test_items_of_another_vendors_model_are_exported_to_openai(store: perdure.Store) -> None:
    """The SDK gives each of them the same id, which is none; they come back as they were."""
    fake = {"id": "__fake_id__", "provider_data": {"model": "m"}}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "They want to pay."}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done"}]}
    items: list[Any] = [ITEMS[0], *(each | fake for each in (thought, said, CALL)), ITEMS[4], said | fake]
    here = session(store)
    run(here.add_items(items))

    assert run(here.get_items()) == items
    assert exports_faults(here.thread) == []


def test_messages_of_others_are_items_and_can_be_popped(store: perdure.Store) -> None:
    """A conversation that was begun elsewhere goes on here."""
    here = session(store)
    with here.thread.change("elsewhere") as change:
        change.say("user", "Hello")
        call = perdure.ToolCall("c9", "look", "{}")
        change.say("assistant", "Let me see", tool_calls=[call])
        change.say("tool", tool_results=[perdure.ToolResult("c9", "success", (perdure.Text("sunny"),))])
    run(here.add_items([{"role": "user", "content": "And now?"}]))

    items = run(here.get_items())
    assert items == [
        {"role": "user", "content": "Hello"},
        {"type": "message", "role": "assistant", "content": "Let me see"},
        {"type": "function_call", "call_id": "c9", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c9", "output": "sunny"},
        {"role": "user", "content": "And now?"},
    ]
    for left in range(4, -1, -1):
        assert run(here.pop_item()) == items[left]
        assert run(here.get_items()) == items[:left]


def test_a_runner_keeps_its_conversation(store: perdure.Store) -> None:
    """Two runs with a tool: the second one is shown the first."""

    @function_tool
    def look() -> str:
        """Look."""
        return "sunny"

    model = ScriptedModel()
    agent = Agent(name="looks", model=model, tools=[look])
    here = session(store)
    model.enqueue([function_call("look", {}, call_id="c1")])
    model.enqueue([assistant_message("It is sunny")])
    run(Runner.run(agent, "How is it?", session=here))
    model.enqueue([assistant_message("You are welcome")])
    run(Runner.run(agent, "Thanks", session=here))

    roles = [entry.role for entry in here.thread.transcript()]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert len(model.calls[-1].input) == 5


def test_writers_at_once_lose_nothing(store: perdure.Store) -> None:
    """Eight on one thread, of one process; each one's items stay in order."""
    sessions = [session(store) for _ in range(8)]

    async def write(number: int) -> None:
        for at in range(5):
            await sessions[number].add_items([{"role": "user", "content": f"{number}.{at}"}])

    async def main() -> None:
        await asyncio.gather(*(write(number) for number in range(8)))

    run(main())
    texts = [each["content"] for each in cast("list[Any]", run(sessions[0].get_items()))]
    assert sorted(texts) == sorted(f"{number}.{at}" for number in range(8) for at in range(5))
    for number in range(8):
        assert [text for text in texts if text.startswith(f"{number}.")] == [
            f"{number}.{at}" for at in range(5)
        ]


def test_an_awaitable_thread_is_taken_too(tmp_path: Path) -> None:
    """The same session over the awaitable interface."""

    async def main() -> None:
        async with aio.open(tmp_path / "agents.db") as store:
            here = Session(await store.thread("t", agent="pays"))
            await here.add_items(ITEMS)
            assert await here.get_items() == ITEMS

    run(main())


@pytest.mark.parametrize(
    "id", ["~x", "a" * 4096, "x'; DROP TABLE t; --", "../../etc", "\ud800", "a\x00b", "ü/%_*"]
)
def test_ids_of_any_kind_are_threads_of_their_own(store: perdure.Store, id: str) -> None:
    """None is confused with another that begins or ends like it."""
    for each in (id, id + "x", id[:-1] + "y"):
        run(session(store, foreign_ids.thread_id(each)).add_items([{"role": "user", "content": ascii(each)}]))
    for each in (id, id + "x", id[:-1] + "y"):
        (item,) = run(session(store, foreign_ids.thread_id(each)).get_items())
        assert item == {"role": "user", "content": ascii(each)}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["type", "role", "content", "output", "call_id", "name", "arguments", "summary", "id", "x"]
)
WORDS = st.sampled_from(
    ["message", "reasoning", "function_call", "function_call_output", "user", "assistant", "system"]
)
HOSTILE = st.dictionaries(FIELDS, WORDS | JSON, max_size=6)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[perdure.Store]:
    """A store for many sessions, which verifies at the end."""
    with perdure.open(tmp_path_factory.mktemp("shared") / "a.db") as opened:
        yield opened
        assert opened.verify().ok


@settings(max_examples=sized(12, 500), deadline=None)
@given(items=st.lists(HOSTILE, max_size=6), pops=st.integers(0, 3))
def test_any_item_is_stored_and_popped(shared: perdure.Store, items: list[Any], pops: int) -> None:
    """Items of any shape come back equal; nothing of them is executed, and the thread exports."""
    here = session(shared, str(uuid.uuid4()))
    run(here.add_items(items))
    assert run(here.get_items()) == items
    for _ in range(pops):
        assert run(here.pop_item()) == (items.pop() if items else None)
    assert run(here.get_items()) == items
    assert here.thread.export("anthropic-messages").body


def test_what_is_no_item_is_refused_and_nothing_is_written(store: perdure.Store) -> None:
    """Not even the items before it."""
    here = session(store)
    for wrong in ("text", {"role": "user", "content": object()}, [1]):
        with raises(Invalid, "record_not_json"):
            run(here.add_items([{"role": "user", "content": "Hi"}, cast("Any", wrong)]))
    assert run(here.get_items()) == []


def test_stored_bytes_that_others_changed_are_a_typed_error(store: perdure.Store) -> None:
    """Or the words of the message, where its record is no record."""
    here = session(store)
    with here.thread.change("hostile") as change:
        change.say("user", "Hi", vendor_metadata='{"openai-agents": [{"json": "__import__(1)"}]}')
        change.say("user", "You", vendor_metadata="no JSON")
    assert run(here.get_items()) == [{"role": "user", "content": "Hi"}, {"role": "user", "content": "You"}]
    for wrong in ("text", [{"json": "{"}], [{"value": 1}], [7]):
        here.thread.put(UNMAPPED, wrong)
        with raises(Corrupt, "framework_record_damaged", path=UNMAPPED):
            run(here.get_items())
        with raises(Corrupt, "framework_record_damaged"):
            run(here.pop_item())


def test_bad_input_is_one_clear_line(store: perdure.Store, tmp_path: Path) -> None:
    """No thread, a thread of another agent, a store that is open for reading only."""
    with raises(Invalid, "not_a_thread"):
        Session(cast("Any", "t"))
    session(store)
    with pytest.raises(Conflict):
        Session(store.thread("t", agent="another"))
    with pytest.raises(NotFound):
        Session(store.thread("unknown"))
    run(session(store).add_items(ITEMS[:1]))
    with perdure.open(tmp_path / "agents.db", read_only=True) as reading:
        here = Session(reading.thread("t"))
        assert run(here.get_items()) == ITEMS[:1]
        with pytest.raises(PerdureError) as refused:
            run(here.add_items(ITEMS[:1]))
        assert "\n" not in str(refused.value)

"""Sessions of the Claude Agent SDK as threads: its contracts, batches that come twice, and one history."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import (
    InMemorySessionStore,
    fold_session_summary,
    get_session_messages_from_store,
    list_sessions_from_store,
    project_key_for_directory,
)
from claude_agent_sdk.testing import run_session_store_conformance
from claude_agent_sdk.types import SessionKey
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure import aio
from perdure.errors import Conflict, Corrupt, Invalid, NotFound, PerdureError, Unsupported
from perdure.integrations.claude_agent import Sessions
from perdure.integrations.claude_agent import sessions as sessions_module
from perdure.integrations.claude_agent.sessions import ENTRIES, RECORD
from perdure.integrations.openai_agents import Session
from perdure.providers.registry import APIS
from tests.coded import raises
from tests.crash.campaign import sized

T = TypeVar("T")

KEY: SessionKey = {"project_key": "-home-me", "session_id": "5c1e4f0e-0000-4000-8000-000000000001"}
AGENT: SessionKey = {**KEY, "subpath": "subagents/agent-a1"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    """A store on disk."""
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(work)


def line(id: str, role: str, content: Any, parent: str | None = None, **more: Any) -> Any:
    """A line of a transcript that is a message."""
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": f"msg_{id}", "model": "claude-test", "usage": {"input_tokens": 3}}
    at = {"timestamp": "2026-01-01T00:00:00.000Z", "sessionId": KEY["session_id"]}
    return {"type": role, "uuid": id, "parentUuid": parent, **at, "message": message, **more}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt"}
TALK: list[Any] = [
    {"type": "queue-operation", "operation": "enqueue"},
    line("u1", "user", "What is here?"),
    {"type": "attachment", "uuid": "x1", "parentUuid": "u1", "attachment": {"size": 2**70}},
    line("a1", "assistant", [{"type": "text", "text": "Let me look"}], "x1"),
    line("a2", "assistant", [CALL], "a1"),
    line("r1", "user", [RESULT], "a2", toolUseResult={"stdout": "a.txt"}),
    line("a3", "assistant", [{"type": "text", "text": "One file"}], "r1"),
    {"type": "summary", "summary": "files", "leafUuid": "a3"},
]


def said(thread: Any) -> list[tuple[str, str]]:
    """The roles and words of a transcript."""
    return [(entry.role, entry.text) for entry in thread.transcript()]


def test_all_fourteen_contracts_hold(tmp_path: Path) -> None:
    """The SDK's own conformance suite, with a new store for each."""
    opened: list[perdure.Store] = []

    def make() -> Sessions:
        opened.append(perdure.open(tmp_path / f"{len(opened)}.db", blocking=True))
        return Sessions(opened[-1])

    run(run_session_store_conformance(make))
    assert len(opened) == 15  # one to see which methods there are
    for each in opened:
        assert each.verify().ok
        each.close()


def test_lines_come_back_deep_equal_and_are_the_transcript(store: perdure.Store) -> None:
    """One write has the lines, the messages, the summary, and what is no message, by kind."""
    sessions = Sessions(store)
    run(sessions.append(KEY, TALK))
    thread = sessions.thread(KEY)

    assert run(sessions.load(KEY)) == TALK
    assert said(thread) == [
        ("user", "What is here?"),
        ("assistant", "Let me look"),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "One file"),
    ]
    assert thread.transcript()[1].model == "claude-test"
    assert thread.get(RECORD)["unmapped"] == {"attachment": 1, "queue-operation": 1, "summary": 1}
    assert len(thread.moves()) == 1


def test_a_session_is_a_thread_like_any_other(store: perdure.Store) -> None:
    """It has log, fork, diff and verify, exports to every provider, and each line is a moment."""
    sessions = Sessions(store)
    run(sessions.append(KEY, TALK))
    thread = sessions.thread(KEY)
    fork = thread.fork("other", at="claude-agent:a1")

    assert said(fork) == said(thread)[:2]
    assert said(thread.at("claude-agent:u1")) == said(thread)[:1]
    assert {entry.reason for entry in thread.log()} == {"append"}
    for api in APIS:
        assert "What is here?" in str(thread.export(api).body)
    assert store.verify().ok


def test_the_conversation_goes_on_in_another_framework(store: perdure.Store) -> None:
    """What Claude said are items of a session of OpenAI Agents, which adds to the same transcript."""
    pytest.importorskip("agents")
    sessions = Sessions(store)
    run(sessions.append(KEY, TALK))
    other = Session(sessions.thread(KEY))
    items: list[Any] = list(run(other.get_items()))
    run(other.add_items([{"role": "user", "content": "Thanks"}]))

    kinds = [each.get("type", each.get("role")) for each in items]
    assert kinds == ["user", "message", "function_call", "function_call_output", "message"]
    assert said(sessions.thread(KEY))[-1] == ("user", "Thanks")
    assert run(sessions.load(KEY)) == TALK


def test_a_batch_that_comes_twice_is_stored_once(store: perdure.Store) -> None:
    """By the ids of its lines; those without one are appended each time, as the SDK asks for."""
    sessions = Sessions(store)
    numbered = [each for each in TALK if "uuid" in each]
    run(sessions.append(KEY, numbered))
    moves = len(sessions.thread(KEY).moves())
    run(sessions.append(KEY, numbered))
    run(sessions.append(KEY, [*numbered[2:], numbered[-1]]))
    assert len(sessions.thread(KEY).moves()) == moves

    run(sessions.append(KEY, [numbered[-1], {"type": "mode"}, {"type": "mode"}]))
    assert run(sessions.load(KEY)) == [*numbered, {"type": "mode"}, {"type": "mode"}]
    assert len(said(sessions.thread(KEY))) == 5


def appended(folder: Path) -> list[str]:
    """Append by eight at once, every batch twice, over two openings of a store; return what is wrong with the lines."""
    batches, wrong = 6, list[str]()

    def batch(number: int, at: int) -> list[Any]:
        return [line(f"{number}.{at}.{part}", "user", f"{number}.{at}.{part}") for part in range(3)]

    with perdure.open(folder / "a.db") as one, perdure.open(folder / "a.db") as two:
        sessions = [Sessions(one), Sessions(two)]

        async def append(number: int) -> None:
            for at in range(batches):
                lines = batch(number, at)
                await asyncio.gather(*(each.append(KEY, lines) for each in sessions))

        async def main() -> None:
            await asyncio.gather(*(append(number) for number in range(8)))

        run(main())
        loaded: list[Any] = list(run(sessions[0].load(KEY)) or [])
        ids = [each["uuid"] for each in loaded]
        for number in range(8):
            own = [id for id in ids if id.startswith(f"{number}.")]
            if list(dict.fromkeys(own)) != [
                each["uuid"] for at in range(batches) for each in batch(number, at)
            ]:
                wrong.append("lost, or out of order")
        wrong += ["double"] if len(ids) > len(set(ids)) else []
        wrong += ["not said"] if len(said(sessions[0].thread(KEY))) != len(ids) else []
        return wrong + [str(fault) for fault in one.verify().faults]


def test_eight_appenders_at_once_and_every_batch_twice(tmp_path: Path) -> None:
    """Nothing is lost, nothing is double, and each one's lines stay in order."""
    assert appended(tmp_path) == []


def test_appenders_that_look_up_no_ids_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a store that knows no line that came before has them twice."""
    monkeypatch.setattr(sessions_module, "_known", lambda *_: {})

    assert "double" in appended(tmp_path)


class LastLineLost(Sessions):
    """A control: it does not return the newest line."""

    def _load(self, key: Any) -> Any:
        return (super()._load(key) or [])[:-1] or None


def test_the_contracts_find_a_store_that_loses_a_line(tmp_path: Path) -> None:
    """Control: the SDK's suite is not passed by anything."""
    with perdure.open(tmp_path / "a.db", blocking=True) as store, pytest.raises(AssertionError):
        run(run_session_store_conformance(lambda: LastLineLost(store)))


def test_a_user_who_goes_back_leaves_a_branch(store: perdure.Store) -> None:
    """Its messages are taken back from the transcript, its lines stay, and its last line is still a moment."""
    sessions = Sessions(store)
    run(sessions.append(KEY, TALK))
    back = [line("u2", "user", "Try again", "a1"), line("a4", "assistant", "Again", "u2")]
    run(sessions.append(KEY, back))  # before anything that the user said: no branch
    thread = sessions.thread(KEY)
    assert len(said(thread)) == 7

    other = [line("u3", "user", "Otherwise", "a3"), line("a5", "assistant", "So", "u3")]
    run(sessions.append(KEY, other))
    assert said(thread)[-3:] == [("assistant", "One file"), ("user", "Otherwise"), ("assistant", "So")]
    assert said(thread.at("claude-agent:a4"))[-1] == ("assistant", "Again")
    assert run(sessions.load(KEY)) == [*TALK, *back, *other]


def test_a_branch_inside_one_batch_is_the_same(store: perdure.Store) -> None:
    """A session that is brought in as a whole."""
    sessions = Sessions(store)
    back = [line("u2", "user", "Again", "a3"), line("a4", "assistant", "Yes", "u2")]
    other = [line("u3", "user", "Otherwise", "a3"), line("u4", "user", "Or so", "a3")]
    run(sessions.append(KEY, [*TALK, *back, *other]))

    assert said(sessions.thread(KEY))[-2:] == [("assistant", "One file"), ("user", "Or so")]
    assert store.verify().ok


def test_words_that_are_not_the_users_are_no_messages(store: perdure.Store) -> None:
    """Summaries of a compaction, notes of the tool, lines of a sub-agent in the main transcript: kept and counted."""
    lines: list[Any] = [
        line("m1", "user", "a note", isMeta=True),
        line("c1", "user", "a summary", isCompactSummary=True),
        line("s1", "user", "a sub-agent", isSidechain=True),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "logicalParentUuid": "c1"},
        {"type": "user", "uuid": "n1", "message": "no message"},
    ]
    sessions = Sessions(store)
    run(sessions.append(KEY, lines))

    assert said(sessions.thread(KEY)) == []
    assert sum(sessions.thread(KEY).get(RECORD)["unmapped"].values()) == len(lines)
    assert run(sessions.load(KEY)) == lines


def test_a_sub_agent_is_a_timeline_and_goes_with_its_session(store: perdure.Store) -> None:
    """It has a transcript of its own, can be deleted alone and appended again, and is deleted with the session."""
    sessions = Sessions(store)
    own = [
        line("s1", "user", "Find it", isSidechain=True),
        line("s2", "assistant", "Found", "s1", isSidechain=True),
    ]
    run(sessions.append(AGENT, own))
    assert run(sessions.load(KEY)) is None
    assert run(sessions.list_sessions(KEY["project_key"])) == []
    run(sessions.append(KEY, TALK))

    assert said(sessions.thread(AGENT)) == [("user", "Find it"), ("assistant", "Found")]
    assert run(sessions.list_subkeys(cast("Any", KEY))) == ["subagents/agent-a1"]
    run(sessions.delete(AGENT))
    assert run(sessions.load(AGENT)) is None
    assert run(sessions.list_subkeys(cast("Any", KEY))) == []
    run(sessions.append(AGENT, own))
    assert run(sessions.load(AGENT)) == own
    run(sessions.delete(KEY))
    assert run(sessions.load(AGENT)) is None
    assert list(store.threads()) == []
    run(sessions.append(KEY, TALK))
    assert run(sessions.load(KEY)) == TALK


def test_the_sdk_reads_sessions_from_the_store(store: perdure.Store, tmp_path: Path) -> None:
    """Its functions list the same and return the same messages as over its own store in memory."""
    ours, theirs = Sessions(store), InMemorySessionStore()
    key: SessionKey = {**KEY, "project_key": project_key_for_directory(str(tmp_path))}

    async def read(sessions: Any) -> tuple[Any, Any]:
        await sessions.append(key, TALK)
        listed = await list_sessions_from_store(sessions, directory=str(tmp_path))
        found = await get_session_messages_from_store(sessions, KEY["session_id"], directory=str(tmp_path))
        return [(each.session_id, each.summary, each.first_prompt) for each in listed], found

    assert run(read(ours)) == run(read(theirs))


def test_the_summary_is_what_folding_every_line_gives(store: perdure.Store) -> None:
    """Batch by batch, and a batch that comes twice is folded once."""
    sessions = Sessions(store)
    for at in range(0, len(TALK), 2):
        run(sessions.append(KEY, TALK[at : at + 2]))
    titled: list[Any] = [{"type": "custom-title", "uuid": "t1", "customTitle": "Files"}]
    run(sessions.append(KEY, titled))
    run(sessions.append(KEY, titled))
    (summary,) = run(sessions.list_session_summaries(KEY["project_key"]))
    (listed,) = run(sessions.list_sessions(KEY["project_key"]))

    assert summary["data"] == fold_session_summary(None, KEY, [*TALK, *titled])["data"]
    assert summary["mtime"] == listed["mtime"]


NAMES = [
    "a",
    "a/b",
    "a:b",
    "~a",
    "a" * 4096,
    "a" * 4095 + "b",
    "../a",
    "a\x00",
    "\ud800",
    "%",
    "a%",
    "",
    "A",
    "ä",
]


def test_keys_of_any_kind_are_not_confused(store: perdure.Store) -> None:
    """Neither by a prefix nor by an escape; each project lists its own sessions, and a delete takes one."""
    sessions = Sessions(store)
    pairs = [(one, other) for one in NAMES for other in ("a", "a/b", one)]
    keys: dict[tuple[str, str], SessionKey] = {
        (one, other): {"project_key": one, "session_id": other} for one, other in pairs
    }
    for (one, other), key in keys.items():
        run(sessions.append(key, cast("Any", [{"type": "x", "of": [one, other]}])))
    for (one, other), key in keys.items():
        assert run(sessions.load(key)) == [{"type": "x", "of": [one, other]}]
    for one in NAMES:
        listed = {each["session_id"] for each in run(sessions.list_sessions(one))}
        assert listed == {other for name, other in keys if name == one}
    run(sessions.delete(keys["a", "a"]))
    assert len(list(store.threads())) == len(keys) - 1


def test_subpaths_of_any_kind_are_not_confused(store: perdure.Store) -> None:
    """Each is a transcript of its own."""
    sessions = Sessions(store)
    paths = [each for each in NAMES if each] + [
        "main",
        "subagents/agent-1",
        "subagents/agent-1/deep",
        "a//b",
        "a/",
    ]
    for path in paths:
        run(sessions.append({**KEY, "subpath": path}, cast("Any", [{"type": "x", "of": path}])))
    for path in paths:
        assert run(sessions.load({**KEY, "subpath": path})) == [{"type": "x", "of": path}]
    assert sorted(run(sessions.list_subkeys(cast("Any", KEY)))) == sorted(paths)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BLOCKS = st.sampled_from(
    [CALL, RESULT, {"type": "text", "text": "hi"}, {"type": "thinking", "thinking": "hm", "signature": "x"}]
)
CONTENT = JSON | st.lists(BLOCKS | JSON, max_size=3)
MESSAGE = JSON | st.fixed_dictionaries(
    {"content": CONTENT}, optional={"role": JSON, "id": JSON, "model": JSON}
)
HOSTILE = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "assistant", "system", "x"]) | JSON},
    optional={
        "message": MESSAGE,
        "uuid": st.sampled_from(["1", "2", "3"]) | JSON,
        "parentUuid": st.sampled_from(["1", "2", "3"]) | JSON,
        "timestamp": JSON,
        "isSidechain": JSON,
        "isMeta": JSON,
        "toolUseResult": JSON,
        "subtype": JSON,
    },
)


def once(lines: Sequence[Any]) -> list[Any]:
    """The lines without those whose id came before."""
    seen, found = set[str](), list[Any]()
    for each in lines:
        id = each.get("uuid")
        if not (isinstance(id, str) and id in seen):
            found.append(each)
        if isinstance(id, str) and id:
            seen.add(id)
    return found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[perdure.Store]:
    """A store for many sessions, which verifies at the end."""
    with perdure.open(tmp_path_factory.mktemp("shared") / "a.db") as opened:
        yield opened
        assert opened.verify().ok


@settings(max_examples=sized(12, 500), deadline=None)
@given(batches=st.lists(st.lists(HOSTILE, max_size=4), max_size=3))
def test_any_line_is_stored(shared: perdure.Store, batches: list[list[Any]]) -> None:
    """Lines of any shape come back equal; nothing of them is executed, and the thread exports."""
    sessions, key = Sessions(shared), {**KEY, "session_id": str(uuid.uuid4())}
    for batch in batches:
        run(sessions.append(cast("Any", key), batch))
    lines = once([each for batch in batches for each in batch])
    assert (run(sessions.load(cast("Any", key))) or []) == lines
    if lines:
        assert sessions.thread(cast("Any", key)).export("openai-chat").body


def test_what_is_no_line_or_key_is_refused_and_nothing_is_written(store: perdure.Store) -> None:
    """Not even the lines before it."""
    sessions = Sessions(store)
    for wrong in ("text", {"type": "x", "of": object()}, None):
        with raises(Invalid, "record_not_json"):
            run(sessions.append(KEY, [TALK[1], cast("Any", wrong)]))
    for key in ({}, {"project_key": 1, "session_id": "s"}, {"project_key": "p"}):
        with raises(Invalid, "session_key_invalid"):
            run(sessions.append(cast("Any", key), TALK))
    assert list(store.threads()) == []


def test_stored_bytes_that_others_changed_are_a_typed_error(store: perdure.Store) -> None:
    """And so is a record of a version that is not known."""
    sessions = Sessions(store)
    run(sessions.append(KEY, TALK))
    thread = sessions.thread(KEY)
    record = thread.get(RECORD)
    for wrong in ([1], "x", [{"json": "["}]):
        thread.put(ENTRIES, wrong)
        with raises(Corrupt, "framework_record_damaged", path=ENTRIES):
            run(sessions.load(KEY))
    thread.put(RECORD, {**record, "key": 7})
    with raises(Corrupt, "framework_record_damaged", path=RECORD):
        run(sessions.list_sessions(KEY["project_key"]))
    thread.put(RECORD, {**record, "v": 2})
    with raises(Unsupported, "framework_record_version", known=1):
        run(sessions.append(KEY, [line("new", "user", "Hi")]))


def test_bad_input_is_one_clear_line(store: perdure.Store, tmp_path: Path) -> None:
    """No store, a thread of another agent, an unknown session, a store that is open for reading only."""
    with raises(Invalid, "not_a_store"):
        Sessions(cast("Any", "agents.db"))
    sessions = Sessions(store)
    run(sessions.append(KEY, TALK))
    with raises(Conflict, "thread_of_another_agent", agent="claude-agent"):
        run(Sessions(store, agent="mine").append(KEY, TALK))
    with pytest.raises(NotFound):
        sessions.thread({**KEY, "session_id": "none"})
    with perdure.open(tmp_path / "agents.db", read_only=True) as reading:
        assert run(Sessions(reading).load(KEY)) == TALK
        with pytest.raises(PerdureError) as refused:
            run(Sessions(reading).append(KEY, [line("new", "user", "Hi")]))
        assert "\n" not in str(refused.value)


def test_an_awaitable_store_is_taken_too(tmp_path: Path) -> None:
    """The same sessions over the awaitable interface."""

    async def main() -> None:
        async with aio.open(tmp_path / "agents.db") as store:
            sessions = Sessions(store)
            await sessions.append(KEY, TALK)
            assert await sessions.load(KEY) == TALK

    run(main())

"""What a framework deletes is gone at once, its bytes go with `gc`, and forks keep what they need."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk")
pytest.importorskip("langgraph.checkpoint.sqlite")
pytest.importorskip("pydantic_ai.conversation_store")

from langchain_core.messages import HumanMessage
from pydantic_ai import Conversation

import perdure
from perdure import Store
from perdure.engines import loops
from perdure.engines.registry import open_engine
from perdure.errors import PerdureError
from perdure.history import retention
from perdure.history.retention import RetentionPolicy, planner, reachability
from perdure.integrations.claude_agent import Sessions
from perdure.integrations.langgraph import Saver
from perdure.integrations.langgraph.checkpoints import GraphThreads
from perdure.integrations.pydantic_ai import Conversations
from perdure.store.plumbing.handles import Ids, system_clock
from tests.integrations.graphs import chat, config, said
from tests.integrations.pydantic_conversations import answer, question
from tests.integrations.test_langgraph_saver import compact

SECRET, WORDS = "secret-of-the-deleted", 6_000
KEY: Any = {"project_key": "p", "session_id": "s"}
Made = Mapping[str, Callable[[Store], list[str]]]  # forks: how each of them is read


def told(number: int) -> str:
    """Words that are in no other turn."""
    return f"{SECRET}-{number} {random.Random(number).randbytes(WORDS).hex()}"


class Case:
    """A framework whose records are deleted: what is stored, what is deleted, and what is there afterwards."""

    def __init__(
        self,
        begin: Callable[[Store], None],
        forks: Callable[[Store], Made],
        delete: Callable[[Store], None],
        left: Callable[[Store], list[str]],
        *,
        keeps_words: bool = False,
    ) -> None:
        """`forks` makes forks and returns how they are read, `left` returns what the framework still finds.

        `keeps_words`: what is left has the words of all turns.
        """
        self.keeps_words = keeps_words
        self.begin, self.forks, self.delete, self.left = begin, forks, delete, left


def run(work: Any) -> Any:
    """Run a coroutine."""
    return asyncio.run(work)


def graph_begun(store: Store) -> None:
    """Three runs of a graph."""
    app = chat().compile(checkpointer=Saver(store))
    for number in range(3):
        about = config() | {"metadata": {"run_id": f"r{number}"}}
        app.invoke({"messages": [HumanMessage(told(number))]}, about)


def graph_forks(store: Store) -> Made:
    """A timeline at the second run, and a copy, for which nothing of the first thread is needed."""
    thread = store.thread("t")
    second = thread.fork("kept", at=thread.log()[3])
    Saver(store).copy_thread("t", "copy")
    return {
        "timeline": lambda opened: [
            entry.text for entry in opened.thread("t").on(second.timeline).transcript()
        ],
        "copy": lambda opened: said(chat().compile(checkpointer=Saver(opened)), "copy"),
    }


def fork_alone(kind: str) -> Callable[[Store], Made]:
    """Only one kind: the timelines of a thread go with it, and the checkpoints of a run in every copy."""
    return lambda store: {kind: graph_forks(store)[kind]}


def graph_left(store: Store) -> list[str]:
    """The words of every checkpoint that the saver lists or finds."""
    values = [each.checkpoint["channel_values"] for each in Saver(store).list(config())]
    return [message.content for each in values for message in each.get("messages", ())]


def conversation_begun(store: Store) -> None:
    """A conversation of pydantic-ai."""
    messages = [each for number in range(3) for each in (question(told(number)), answer("re"))]
    run(Conversations(store).save(Conversation(conversation_id="t", messages=messages)))


def conversation_forks(store: Store) -> Made:
    """Another conversation that points at the first entries."""
    run(Conversations(store).fork("t", at=2, new_conversation_id="fork"))

    def read(opened: Store) -> list[str]:
        found = run(Conversations(opened).load("fork"))
        return [] if found is None else [part.content for each in found.messages for part in each.parts]

    return {"conversation": read}


def conversation_left(store: Store) -> list[str]:
    """What the store still loads."""
    found = run(Conversations(store).load("t"))
    return [] if found is None else [str(each) for each in found.messages]


def session_begun(store: Store) -> None:
    """A session of the Claude Agent SDK."""
    lines: Any = [
        {
            "type": "user",
            "uuid": f"u{number}",
            "parentUuid": f"u{number - 1}" if number else None,
            "message": {"role": "user", "content": told(number)},
        }
        for number in range(3)
    ]
    run(Sessions(store).append(KEY, lines))


CASES: dict[str, Case] = {
    "prune, keep_latest": Case(
        graph_begun,
        graph_forks,
        lambda store: Saver(store).prune(["t"]),
        lambda store: [] if len(list(Saver(store).list(config()))) == 1 else ["more than the latest"],
        keeps_words=True,
    ),
    "prune, delete": Case(
        graph_begun, graph_forks, lambda store: Saver(store).prune(["t"], strategy="delete"), graph_left
    ),
    "delete_for_runs": Case(
        graph_begun,
        fork_alone("timeline"),
        lambda store: Saver(store).delete_for_runs(["r0", "r1", "r2"]),
        graph_left,
    ),
    "delete_thread": Case(
        graph_begun, fork_alone("copy"), lambda store: Saver(store).delete_thread("t"), graph_left
    ),
    "a conversation of pydantic-ai": Case(
        conversation_begun,
        conversation_forks,
        lambda store: run(Conversations(store).delete("t")),
        conversation_left,
    ),
    "a session of Claude": Case(
        session_begun,
        lambda store: {},
        lambda store: run(Sessions(store).delete(KEY)),
        lambda store: [str(each) for each in run(Sessions(store).load(KEY)) or ()],
    ),
}


def collected(path: Path) -> int:
    """Forget what was undone, removed or replaced; return how many objects went."""
    with closing(open_engine(str(path), read_only=False, create=False, durability="power_loss")) as engine:
        policy = RetentionPolicy(undone_after_days=0, superseded_after_days=0)
        removed = RetentionPolicy(removed_threads=True)
        count = 0
        for each in (policy, removed):
            planned = retention.plan(engine, each, system_clock() + 1_000_000)
            retention.carry_out(engine, planned, ids=Ids(system_clock))
            count += planned.count
        return count


def deletion_faults(path: Path, case: Case, *, has_forks: bool) -> list[str]:
    """Store, fork, delete and collect; return what is not as it has to be, at once and after the bytes were freed."""
    wrong: list[str] = []
    with perdure.open(path, blocking=True) as store:
        case.begin(store)
        forks = case.forks(store) if has_forks else {}
        before = {name: read(store) for name, read in forks.items()}
        wrong += [
            f"{name} is empty" for name, words in before.items() if not any(SECRET in each for each in words)
        ]
        case.delete(store)
        wrong += [f"left at once: {each[:40]}" for each in case.left(store)]
    size = compact(path)
    freed = collected(path) and size - compact(path)
    if freed < (1 if case.keeps_words or has_forks else size / 4):
        wrong.append(f"gc freed {freed} bytes")
    with perdure.open(path, blocking=True) as store:
        wrong += [f"left after gc: {each[:40]}" for each in case.left(store)]
        for name, read in forks.items():
            try:
                found = read(store)
            except PerdureError as error:
                wrong.append(f"{name} cannot be read: {error.code}")
            else:
                wrong += [] if found == before[name] else [f"{name} has other words"]
        wrong += [f"damage: {fault}" for fault in store.verify().faults]
    return wrong


FORKED = [kind for kind in CASES if kind != "a session of Claude"]  # its SDK has no forks


@pytest.mark.parametrize(
    ("kind", "has_forks"), [*((kind, False) for kind in CASES), *((kind, True) for kind in FORKED)]
)
def test_what_is_deleted_goes_and_forks_stay(tmp_path: Path, kind: str, has_forks: bool) -> None:
    """Gone for the framework at once, bytes freed after, and the rest is sound."""
    assert deletion_faults(tmp_path / "agents.db", CASES[kind], has_forks=has_forks) == []


def blind(patch: pytest.MonkeyPatch) -> None:
    """A collector that goes by the main timeline alone."""
    roots = reachability.roots

    def found(space: Any, policy: Any, now: int, retired: Any = (), settled: Any = ()) -> Any:
        others = {hold.head.timeline for hold in loops.holds(space.engine, space.name)} - {"main"}
        return roots(space, policy, now, others, settled)

    patch.setattr(planner, "roots", found)


def eager(patch: pytest.MonkeyPatch) -> None:
    """A deletion that takes every timeline of the thread back."""
    delete = GraphThreads.delete

    def deleted(self: GraphThreads, thread_id: str, *given: Any) -> None:
        delete(self, thread_id, *given)
        for hold in self.find(thread_id).timelines():  # pyright: ignore[reportOptionalMemberAccess]
            line = self.find(thread_id).on(hold.head.timeline)  # pyright: ignore[reportOptionalMemberAccess]
            line.undo(to=None)

    patch.setattr(GraphThreads, "delete", deleted)


def thorough(patch: pytest.MonkeyPatch) -> None:
    """A deletion of a conversation that removes the thread with the entries of its forks."""

    def cleared(self: Conversations, found: Any) -> None:
        found.line.rm(force=True)
        self._threads.forget(found.record.conversation_id)

    patch.setattr(Conversations, "_clear", cleared)


def hidden(patch: pytest.MonkeyPatch) -> None:
    """A deletion that only marks what is gone."""
    patch.setattr(GraphThreads, "_cut", lambda *_: None)


BROKEN: dict[str, tuple[str, bool, Callable[[pytest.MonkeyPatch], None], str]] = {
    "gc ignores forks of a graph": ("prune, delete", True, blind, "other words"),
    "gc ignores forks of runs": ("delete_for_runs", True, blind, "other words"),
    "prune ignores forks": ("prune, delete", True, eager, "other words"),
    "delete ignores forks": ("a conversation of pydantic-ai", True, thorough, "other words"),
    "prune frees nothing": ("prune, delete", False, hidden, "gc freed"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_deletion_that_ignores_forks_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Control: the fork cannot be read, or has lost its words; and bytes that stay are noticed too."""
    kind, has_forks, broken, expected = BROKEN[how]
    broken(monkeypatch)

    found = deletion_faults(tmp_path / "agents.db", CASES[kind], has_forks=has_forks)

    assert any(expected in each for each in found), found

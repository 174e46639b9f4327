"""What an extraction reads does not grow with the conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from perdure import Store, Thread
from perdure.engines.contract import Engine
from perdure.history.space import CommitCache, Space
from perdure.history.tree import NodeCache
from perdure.ledger import snapshot
from perdure.model.checkpoint import Checkpoint
from perdure.model.digest import Digest
from perdure.projections.state import CanonicalAgentState
from perdure.store import view
from perdure.switching.checkpoint import derive, effects
from perdure.switching.checkpoint.sources import MESSAGES_MAX
from perdure.testing import Script
from tests.switching.checkpoint.works import opened, space_of


class Counting:
    """An engine that counts what it gives."""

    def __init__(self, engine: Engine) -> None:
        """Stand before that engine."""
        self._engine = engine
        self.given: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        """The engine's own, counted where it gives a list."""
        found = getattr(self._engine, name)

        def asked(*words: Any, **named: Any) -> Any:
            answer = found(*words, **named)
            self.given[name] += len(answer) if isinstance(answer, list | tuple) else 1
            return answer

        return asked if callable(found) else found


def talk(store: Store, hundreds: int) -> Thread:
    """A conversation that was brought from elsewhere, a hundred exchanges at a time, each with two calls."""
    thread = store.thread(f"talk-{hundreds}", agent="helper")
    for hundred in range(hundreds):
        said: list[dict[str, Any]] = []
        for at in range(hundred * 100, hundred * 100 + 100):
            said += exchange(at)
        thread.add(said, api="openai-chat")
    return thread


def exchange(at: int) -> list[dict[str, Any]]:
    """One request, two calls and an answer, in a vendor's format."""
    calls = [
        {"id": f"c{at}-{n}", "type": "function", "function": {"name": "look", "arguments": f'{{"n": {at}}}'}}
        for n in range(2)
    ]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "seen"} for call in calls]
    return [
        {"role": "user", "content": f"Look at number {at}."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        *results,
        {"role": "assistant", "content": f"Seen {at}."},
    ]


def derived(space: Space, commit: Digest | None) -> Checkpoint:
    """The checkpoint of a commit, with the ledger as it is."""
    return derive.derive(space, commit, ledger=snapshot.now(space))


def gathered(space: Space, commit: Digest | None) -> CanonicalAgentState:
    """The five layers at a commit, with the ledger as it is."""
    return view.gather(space, commit, ledger=snapshot.now(space))


def read_for(thread: Thread, work: Any) -> int:
    """How many commits, objects, entries and cells are read for it, with nothing remembered."""
    space = space_of(thread)
    counting = Counting(space.engine)
    fresh = msgspec.structs.replace(
        space, engine=cast("Engine", counting), cache=NodeCache(), steps=CommitCache()
    )
    work(fresh, thread.head.commit)
    return sum(counting.given.values())


@pytest.fixture(scope="module")
def memory() -> Iterator[Store]:
    """A store for threads that tests share."""
    with opened() as store:
        yield store


@pytest.fixture(scope="module")
def short(memory: Store) -> Thread:
    """A thread that is longer than any window."""
    return talk(memory, 6)


@pytest.fixture(scope="module")
def long(memory: Store) -> Thread:
    """A thread that is twice as long as any window."""
    return talk(memory, 12)


def handed_over(thread: Thread) -> Thread:
    """A fork of the thread with a checkpoint on it, and nothing remembered in this process."""
    fork = thread.fork("handed-over")
    fork.switch(Script(backend="script:next"))
    effects._known.clear()
    return fork


def test_a_thread_twice_as_long_is_read_no_further(short: Thread, long: Thread) -> None:
    """Once a line has a checkpoint, what is read for the next one does not depend on how long it is."""
    few, many = (read_for(handed_over(each), derived) for each in (short, long))

    assert many <= few * 1.05


def test_the_first_checkpoint_reads_the_ledger_whole(short: Thread, long: Thread) -> None:
    """The control: on a line without one all entries are read, once."""
    effects._known.clear()

    few, many = read_for(short, derived), read_for(long, derived)
    again = read_for(long, derived)

    assert many > few + 1_000
    assert again < many - 500


def test_the_whole_state_is_read_whole(store: Store) -> None:
    """The control: gathering the five layers reads all of it, and grows."""
    short, long = talk(store, 1), talk(store, 5)

    few, many = read_for(short, gathered), read_for(long, gathered)

    assert many > few * 3


def test_a_long_thread_keeps_its_first_goal_and_its_last_calls(long: Thread) -> None:
    """What lies outside the window is the goal, which is looked up by its place; what is listed has a limit."""
    found = derived(space_of(long), long.head.commit)

    assert found.summary.user_goal == "Look at number 0."
    assert found.summary.current_task == "Look at number 1199."
    assert [done.args for done in found.calls][-1] == '{"n": 1199}'
    assert len(found.calls) <= snapshot.ENTRIES_MAX
    assert found.entries_before == 0
    assert len(long.transcript()) > MESSAGES_MAX

"""What an extraction reads does not grow with the conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from holdfast import Store, Thread, testing
from holdfast.engines.contract import Engine
from holdfast.history.space import Steps
from holdfast.history.tree import Cache
from holdfast.migration import extract, gather
from holdfast.migration.calling import CALLS_MAX, WRITES_MAX
from holdfast.migration.window import MESSAGES_MAX
from tests.migration.works import Work, opened, space_of


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


def talk(store: Store, turns: int) -> Thread:
    """A thread of that many turns, each with a look-up; every tenth books something."""
    work = Work(store, f"talk-{turns}")
    thread = work.thread()
    for at in range(turns):
        use = testing.use("book", flight=f"SK{at}") if at % 10 == 0 else testing.use("look", city=f"c{at}")
        thread = work.turn(f"Look at number {at}.", use, testing.say(f"Seen {at}."))
    return thread


def read_for(thread: Thread, work: Any) -> int:
    """How many commits, objects, entries and cells are read for it, with nothing remembered."""
    space = space_of(thread)
    counting = Counting(space.engine)
    fresh = msgspec.structs.replace(space, engine=cast("Engine", counting), cache=Cache(), steps=Steps())
    work(fresh, thread.head.commit)
    return sum(counting.given.values())


@pytest.fixture(scope="module")
def long() -> Iterator[Thread]:
    """A thread that is twice as long as any window."""
    with opened() as store:
        yield talk(store, 440)


def test_a_thread_twice_as_long_is_read_no_further(store: Store, long: Thread) -> None:
    """Once a conversation is longer than the window, what is read for a checkpoint stays the same."""
    short = talk(store, 220)

    few, many = read_for(short, extract.derive), read_for(long, extract.derive)

    assert many <= few * 1.05


def test_the_whole_state_is_read_whole(store: Store) -> None:
    """The control: gathering the five layers reads all of it, and grows."""
    short, long = talk(store, 20), talk(store, 100)

    few, many = read_for(short, gather.gather), read_for(long, gather.gather)

    assert many > few * 3


def test_a_long_thread_keeps_its_first_goal_and_its_last_bookings(long: Thread) -> None:
    """What lies outside the window is the goal, which is looked up by its place; what is listed has a limit."""
    found = extract.derive(space_of(long), long.head.commit)

    assert found.summary.user_goal == "Look at number 0."
    assert found.summary.current_task == "Look at number 439."
    assert len(found.calls) <= WRITES_MAX + CALLS_MAX
    assert [done.args for done in found.calls if done.is_written][-1] == '{"flight": "SK430"}'
    assert found.entries_before > 0
    assert len(long.transcript()) > MESSAGES_MAX

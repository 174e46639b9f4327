"""Followers hear of undos, redos and promotions: each once, in order, after any cursor, also after what was just read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, RetentionPolicy, Store, Thread, errors
from perdure.model.commit import Act
from perdure.model.digest import Digest
from perdure.runtime import streaming
from perdure.runtime.events import Committed, Cursor, Happened, Happening, HeadMoved
from perdure.testing import Script, say
from tests.crash.campaign import SEED, sized
from tests.engines.postgres.stores import new_store


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A store on each engine: what is told follows from what the engine says of the moves."""
    postgres: Callable[[], str] = lambda: new_store(request)  # noqa: E731
    urls = {"memory": lambda: "memory:", "sqlite": lambda: str(tmp_path / "agents.db"), "postgres": postgres}
    with perdure.open(urls[request.param]()) as opened:
        yield opened


def told(events: list[Happening]) -> list[tuple[str, Digest | None]]:
    """The commits and the other moves among them."""
    return [
        (str(event.act) if isinstance(event, HeadMoved) else "commit", event.commit)
        for event in events
        if isinstance(event, Committed | HeadMoved)
    ]


def put(thread: Thread, value: int | str) -> Digest:
    """Write one commit."""
    commit = thread.put("/n.json", value).commit
    assert commit is not None
    return commit


def test_an_undo_and_a_redo_are_told_in_order_with_where_the_head_is(store: Store) -> None:
    """A commit that comes back is not told again: the move says that it is there."""
    thread = store.thread("trip", agent="planner")
    seen = thread.cursor
    one, two = put(thread, 1), put(thread, 2)
    thread.undo()
    thread.redo()
    thread.undo(to=None)
    three = put(thread, 3)

    events = list(thread.follow(after=seen))

    assert told(events) == [
        *(("commit", one), ("commit", two), ("undo", one), ("redo", two)),
        *(("undo", None), ("commit", three)),
    ]
    moved = [event for event in events if isinstance(event, HeadMoved)]
    assert [event.version for event in moved] == [3, 4, 5]
    assert {event.type for event in moved} == {"head.moved"}


def test_a_promotion_brings_the_commits_that_main_never_had_and_then_the_move(store: Store) -> None:
    """Promoted back, the old main brings none; a seal is told too."""
    thread = store.thread("trip", agent="planner")
    one = put(thread, 1)
    seen = thread.cursor
    fork = thread.fork("b")
    other = put(fork, "b")
    two = put(thread, 2)
    thread.promote("b")
    thread.promote("main.v2")
    fork_seen = fork.cursor
    fork.seal()

    assert told(list(thread.follow(after=seen))) == [
        *(("commit", two), ("commit", other), ("promote", other), ("promote", two)),
    ]
    assert told(list(fork.follow(after=fork_seen))) == [("seal", other)]
    assert told(list(fork.follow(after=one))) == [("commit", other), ("seal", other)]


def test_a_reader_goes_on_from_exactly_what_it_read(store: Store) -> None:
    """A view is of one moment, and its cursor begins after it: an undo right after the reading is told."""
    thread = store.thread("trip", agent="planner")
    one = put(thread, 1)
    put(thread, 2)
    view = thread.at()
    assert view.get("/n.json") == 2
    thread.undo()
    three = put(thread, 3)

    assert told(list(thread.follow(after=view.cursor))) == [("undo", one), ("commit", three)]
    assert view.digest is not None
    assert told(list(thread.follow(after=view.digest))) == [("undo", one), ("commit", three)]
    assert list(thread.follow(after=thread.cursor)) == []
    with pytest.raises(errors.NotFound):
        list(thread.follow(after="0" * 64))


def test_a_reader_of_an_empty_thread_goes_on_from_there(store: Store) -> None:
    """Before the first commit there is a cursor, too; so there is after an undo of everything."""
    thread = store.thread("trip", agent="planner")
    empty = thread.cursor
    one = put(thread, 1)
    thread.undo()
    again = thread.cursor
    two = put(thread, 2)

    assert told(list(thread.follow(after=empty))) == [("commit", one), ("undo", None), ("commit", two)]
    assert told(list(thread.follow(after=again))) == [("commit", two)]


def test_the_cursor_of_another_timeline_begins_where_the_lines_part(store: Store) -> None:
    """It names a version of that timeline, which this one has no such move for."""
    thread = store.thread("trip", agent="planner")
    put(thread, 1)
    fork = thread.fork("b")
    put(fork, 5)
    fork.undo()
    shared = fork.cursor
    two = put(thread, 2)

    assert told(list(thread.follow(after=shared))) == [("commit", two)]


def test_a_fork_is_told_from_before_the_first_commit_with_what_it_shares(store: Store) -> None:
    """As after each commit that both have; that it was forked is no event, as its cursors lead on all the same."""
    thread = store.thread("trip", agent="planner")
    empty = thread.cursor
    one = put(thread, 1)
    shared = thread.cursor
    two = put(thread, 2)
    fork = thread.fork("b")
    three = put(fork, 3)

    events = list(fork.follow(after=empty))

    assert told(events) == [("commit", one), ("commit", two), ("commit", three)]
    assert told(list(fork.follow(after=shared))) == told(events)[1:]
    for at, event in enumerate(events):
        assert list(fork.follow(after=event.cursor)) == events[at + 1 :]


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_a_follower_that_waits_hears_of_an_undo(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    """It waits on another handle; the control follows commits alone, and hears of what comes after the undo first."""
    if not is_told:
        only_commits(monkeypatch)
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("One."))))
    thread.run("go")
    seen: list[Happening] = []
    after = thread.cursor

    def follow() -> None:
        for event in store.thread("trip", agent="planner").follow(after=after, wait=True):
            seen.append(event)
            if isinstance(event, Committed):
                return

    follower = threading.Thread(target=follow)
    follower.start()
    thread.undo()
    last = put(thread, 1)
    follower.join(60)

    assert told(seen) == [*([("undo", None)] if is_told else []), ("commit", last)]


def only_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let followers read past moves that are no commits, as if these were no events."""
    whole = streaming.Follower.read

    def read(follower: streaming.Follower, upto: Digest | None = None) -> object:
        return (event for event in whole(follower, upto) if not isinstance(event, HeadMoved))

    monkeypatch.setattr(streaming.Follower, "read", read)


def any_moves(thread: Thread, chance: random.Random, count: int) -> Iterator[None]:
    """Move the head of main about, once a turn: commits, chains, undos, redos, forks and promotions."""
    for number in range(count):
        what = chance.choice(("put", "put", "chain", "undo", "undo", "redo", "promote", "empty"))
        try:
            if what == "put":
                put(thread, number)
            elif what == "chain":
                with thread.change("three", chain=True) as change:
                    for part in range(3):
                        change.put("/n.json", [number, part])
            elif what == "undo":
                thread.undo(chance.choice((1, 1, 2)))
            elif what == "redo":
                thread.redo()
            elif what == "empty":
                thread.undo(to=None)
            else:
                names = [each.head.timeline for each in thread.timelines()]
                name = chance.choice(names)
                if name == "main":
                    name = f"b{number}"
                    put(thread.fork(name), f"on {number}")
                thread.promote(name)
        except errors.NotFound:
            pass  # there was nothing to undo or to redo
        yield


def test_any_cursor_leads_to_the_rest_and_no_commit_comes_twice(store: Store) -> None:
    """Whatever the head does: readers who live, who return after any event and who come late are told the same."""
    for seed in range(SEED, SEED + sized(2, 20)):
        thread = store.thread(f"trip-{seed}", agent="planner")
        begin = thread.cursor
        follower = streaming.Follower(thread._space, "main", Cursor.read(begin))
        live: list[Happening] = []

        for _ in any_moves(thread, random.Random(seed), sized(30, 60)):
            live += follower.read()

        late = list(thread.follow(after=begin))
        assert late == live, f"seed {seed}"
        commits = [event.commit for event in late if isinstance(event, Committed)]
        assert len(set(commits)) == len(commits), f"seed {seed}"
        moves = [event.version for event in late if isinstance(event, HeadMoved)]
        made = [each.version for each in thread.moves() if each.act is not Act.COMMIT]
        assert moves == made[::-1], f"seed {seed}"
        for at, event in enumerate(late):
            assert list(thread.follow(after=event.cursor)) == late[at + 1 :], f"seed {seed}: {event}"


def test_a_reader_that_knows_its_commit_alone_may_lose_its_place(store: Store) -> None:
    """The control: without the version in the cursor, a reader that came to a commit twice is taken for the later one."""
    thread = store.thread("trip", agent="planner")
    one = put(thread, 1)
    seen = thread.cursor
    two = put(thread, 2)
    thread.undo()

    assert told(list(thread.follow(after=seen))) == [("commit", two), ("undo", one)]
    assert told(list(thread.follow(after=seen.rpartition(".")[0]))) == []


def test_a_reader_ends_where_its_thread_was_removed_while_it_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moves that it has not read are there no more: it does not ask for them for ever."""
    monkeypatch.setattr(streaming, "_MOVES_PAGE", 2)
    thread = store.thread("trip", agent="planner")
    numbers = [put(thread, number) for number in range(6)]
    events = streaming.Follower(thread._space, "main", None).read()
    first = next(events)

    thread.rm()
    store.gc(store.gc_plan(RetentionPolicy(removed_threads=True)))

    assert isinstance(first, Happened | Committed)
    assert first.commit == numbers[0]
    assert all(each in numbers[:2] for _, each in told([first, *events]))


def test_a_run_on_top_of_an_undo_is_told_after_it(store: Store) -> None:
    """A stream of the run has what happened before it began as well, in order."""
    agent = Agent("planner", backend=Script(say("One.")))
    thread = store.thread("trip", agent=agent)
    thread.run("first")
    after = thread.cursor
    thread.undo()
    thread = store.thread("trip", agent=Agent("planner", backend=Script(say("Two."))))
    thread.run("second")

    events = list(thread.follow(after=after))

    assert isinstance(events[0], HeadMoved)
    assert [event.text for event in events if isinstance(event, Happened) and event.text] == [
        "second",
        "Two.",
    ]


def test_the_moves_that_a_follower_reads_are_bounded_by_those_it_has_missed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that returns with the cursor of the last event reads no move; the control has missed three hundred."""
    thread = store.thread("trip", agent="planner")
    early = thread.cursor
    for number in range(150):
        put(thread, number)
        thread.undo(to=None)
    engine, read = thread._space.engine, list[int]()
    whole = engine.moves

    def moves(space: str, timeline: str, *, before: int | None = None, limit: int) -> object:
        found = whole(space, timeline, before=before, limit=limit)
        read.append(len(found))
        return found

    monkeypatch.setattr(engine, "moves", moves)

    assert list(thread.follow(after=thread.cursor)) == []
    assert sum(read) == 0
    assert len(told(list(thread.follow(after=early)))) == 300
    assert sum(read) >= 300

"""An agent's own map, and what its threads change in it: it arrives once, whoever dies in between."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store, Thread
from perdure.engines.contract import Write
from perdure.errors import Invalid, NotFound, StaleHead, Unavailable
from perdure.history.space import TimelineContext
from perdure.model.event import AgentChanged, ConflictCovered
from perdure.store.plumbing import directory
from tests.forked import commands


def test_it_is_read_and_written_like_a_thread(store: Store, other: Store) -> None:
    """get, put, delete, paths, change, log, at, undo."""
    planner = store.agent("planner")
    planner.put("/prefs.json", {"seat": "aisle"})
    with planner.change("more") as change:
        change.merge("/prefs.json", {"meal": "none"})
        change.put("/n.json", 1)
    planner.delete("/n.json")

    assert other.agent("planner").get("/prefs.json") == {"seat": "aisle", "meal": "none"}
    assert [entry.reason for entry in planner.log()] == ["delete", "more", "put"]
    assert planner.at("turn:2").paths() == ["/n.json", "/prefs.json"]
    planner.undo(2)
    assert planner.get("/prefs.json") == {"seat": "aisle"}
    assert list(other.agents()) == ["planner"]


def test_reading_it_begins_nothing(store: Store) -> None:
    """A typo in a name leaves no trace."""
    assert store.agent("typo").paths() == []

    assert list(store.agents()) == []
    assert store._resources.engine.spaces(limit=10) == []


def test_it_has_no_map_of_its_own(store: Store) -> None:
    """An agent's change has no `agent`."""
    with pytest.raises(Invalid), store.agent("planner").change("x") as change:
        change.agent.put("/x.json", 1)
    with pytest.raises(Invalid):
        store.agent("planner").agent_map()


def test_a_thread_changes_it_in_the_same_step(store: Store, thread: Thread) -> None:
    """One block, one commit of the thread, and the agent's map has it."""
    with thread.change("both") as change:
        change.put("/mine.json", 1)
        change.agent.put("/ours.json", [1])
        change.agent.append("/ours.json", 2)
        assert change.agent.get("/ours.json") == [1, 2]
        assert store.agent("planner").paths() == []

    assert store.agent("planner").get("/ours.json") == [1, 2]
    assert thread.paths() == ["/mine.json"]
    assert any(isinstance(event, AgentChanged) for event in thread.log()[0].events)
    assert store.agent("planner").log()[0].author == "trip-42"
    assert store._resources.engine.cells(thread._space.name, prefix="outbox/", limit=10) == []


def test_a_commit_records_what_it_saw_of_it(store: Store, thread: Thread) -> None:
    """So that any moment of the thread leads to the agent's map as it was then."""
    store.agent("planner").put("/n.json", 1)
    thread.put("/a.json", 1)
    store.agent("planner").put("/n.json", 2)
    thread.put("/a.json", 2)
    store.agent("planner").put("/n.json", 3)

    assert thread.at("version:1").agent_map().get("/n.json") == 1
    assert thread.at("version:2").agent_map().get("/n.json") == 2
    assert thread.agent_map().get("/n.json") == 3


def test_a_block_that_raises_leaves_it_alone(store: Store, thread: Thread) -> None:
    """Both or nothing."""
    with pytest.raises(StaleHead), thread.change("both") as change:
        change.agent.put("/ours.json", 1)
        change.put("/mine.json", 1)
        store.thread("trip-42").put("/other.json", 1)

    assert store.agent("planner").paths() == []


def test_two_threads_change_other_paths(store: Store) -> None:
    """A change is applied on top of what the other thread did meanwhile."""
    one, two = (store.thread(id, agent="planner") for id in ("one", "two"))

    with one.change("one") as change:
        change.agent.put("/one.json", 1)
        with two.change("two") as other:
            other.agent.put("/two.json", 2)

    assert store.agent("planner").paths() == ["/one.json", "/two.json"]
    assert all(not entry.events for entry in store.agent("planner").log())


def test_two_threads_change_one_path(store: Store) -> None:
    """The later one is applied on top, and its commit says what it covered."""
    store.agent("planner").put("/n.json", {"count": 1})
    one, two = (store.thread(id, agent="planner") for id in ("one", "two"))

    with one.change("one") as change:
        change.agent.increment("/n.json", 10, at=["count"])
        with two.change("two") as other:
            other.agent.increment("/n.json", 100, at=["count"])
            covered = other.agent.get("/n.json")

    assert covered == {"count": 101}
    assert store.agent("planner").get("/n.json") == {"count": 111}
    (event,) = store.agent("planner").log()[0].events
    assert isinstance(event, ConflictCovered)
    assert event.path == "/n.json"


def test_what_does_not_fit_any_more_is_put_as_it_was_seen(store: Store) -> None:
    """The document is gone or of another kind: the thread's own result takes its place."""
    store.agent("planner").put("/list.json", [1])
    store.agent("planner").put("/gone.json", 1)
    one, two = (store.thread(id, agent="planner") for id in ("one", "two"))

    with one.change("one") as change:
        change.agent.append("/list.json", 2)
        change.agent.delete("/gone.json")
        with two.change("two") as other:
            other.agent.put("/list.json", "not a list")
            other.agent.delete("/gone.json")

    assert store.agent("planner").get("/list.json") == [1, 2]
    assert store.agent("planner").paths() == ["/list.json"]


def test_large_values_arrive_too(store: Store, thread: Thread) -> None:
    """A value that is kept as an artifact is kept again in the agent's space."""
    with thread.change("large") as change:
        change.agent.put("/large.json", ["x" * 1_500_000])
        change.agent.put("/bytes", b"y" * 1_500_000, media_type="image/png")

    assert store.agent("planner").get("/large.json") == ["x" * 1_500_000]
    assert store.agent("planner").get("/bytes") == b"y" * 1_500_000
    assert store.verify().ok


def die_after(monkeypatch: pytest.MonkeyPatch, thread: Thread, writes: int) -> None:
    """Let the store of `thread` refuse every write after so many."""
    engine = thread._resources.engine
    applied = type(engine).apply
    left = [writes]

    def apply(self: object, write: Write) -> object:
        if self is engine and not left[0]:
            raise Unavailable("this process has died")
        left[0] -= self is engine
        return applied(self, write)  # pyright: ignore[reportArgumentType, reportCallIssue]

    monkeypatch.setattr(type(engine), "apply", apply)


@pytest.mark.parametrize("writes", [1, 2], ids=["before the second write", "before the third"])
def test_what_a_dead_process_left_is_finished_at_the_next_open(
    store_url: str, store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """The thread's commit is durable; opening the store finishes the rest, and doing so twice changes nothing."""
    with monkeypatch.context() as patch:
        die_after(patch, thread, writes)
        with thread.change("both") as change:
            change.agent.put("/ours.json", 1)
    arrived = store.agent("planner").paths()
    assert store._resources.engine.listed(prefix="outbox/", limit=10)

    for _ in range(2):
        with perdure.open(store_url) as again:
            assert again.agent("planner").get("/ours.json") == 1
            assert len(again.agent("planner").log()) == 1
            assert again._resources.engine.listed(prefix="outbox/", limit=10) == []
            assert again.verify().ok
    assert arrived == ([] if writes == 1 else ["/ours.json"])


def test_what_cannot_be_finished_does_not_keep_the_store_shut(
    store_url: str, store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change whose value is gone stays in the outbox; others are finished."""
    other = store.thread("other", agent="planner")
    with monkeypatch.context() as patch:
        die_after(patch, thread, 1)
        with thread.change("lost") as change:
            change.agent.put("/lost.json", "lost")
    with monkeypatch.context() as patch:
        die_after(patch, other, 1)
        with other.change("kept") as change:
            change.agent.put("/kept.json", "kept")
    (event,) = thread.log()[0].events
    assert isinstance(event, AgentChanged)
    engine, name = store._resources.engine, thread._space.name
    engine.forget(name, [event.patch], why="the user asked", standing=engine.standing(name))

    with perdure.open(store_url) as again:
        assert again.agent("planner").paths() == ["/kept.json"]
        assert len(again._resources.engine.listed(prefix="outbox/", limit=10)) == 1


def test_a_full_write_fits_into_the_second_one(store: Store, thread: Thread) -> None:
    """What a thread may write at once, its agent's map takes at once."""
    with thread.change("full") as change:
        for number in range(8):
            change.agent.put(f"/{number}.json", str(number) * 1_040_000)

    assert len(store.agent("planner").paths()) == 8


def test_reading_only_finishes_nothing(
    store_url: str, store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is opened to be read is not written, also not to finish something."""
    with monkeypatch.context() as patch:
        die_after(patch, thread, 1)
        with thread.change("both") as change:
            change.agent.put("/ours.json", 1)

    with perdure.open(store_url, read_only=True) as reading:
        assert reading.agent("planner").paths() == []


def test_the_order_of_a_thread_is_kept(store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was left undone arrives before what the same thread changes next."""
    with monkeypatch.context() as patch:
        die_after(patch, thread, 1)
        with thread.change("first") as change:
            change.agent.put("/n.json", "first")

    with thread.change("second") as change:
        change.agent.put("/n.json", "second")

    assert store.agent("planner").get("/n.json") == "second"
    assert [entry.reason for entry in store.agent("planner").log()] == ["second", "first"]


def test_a_repeated_block_finishes_it_too(
    store: Store, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller who repeats with the op_id gets the receipt, and the agent's map has the change once."""

    def block() -> None:
        with thread.change("both", op_id="op-1") as change:
            change.agent.put("/n.json", change.agent.get("/n.json", default=0) + 1)

    with monkeypatch.context() as patch:
        die_after(patch, thread, 1)
        block()
    block()
    block()

    assert store.agent("planner").get("/n.json") == 1


def test_sigkill_between_the_writes(tmp_path: Path) -> None:
    """A process that is killed after the thread's commit leaves its change to whoever opens the store."""
    path = tmp_path / "agents.db"
    program = (
        "import os, signal, sys, perdure\n"
        "from perdure.store.plumbing import outbox\n"
        "outbox.finish = lambda *args: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store = perdure.open(sys.argv[1])\n"
        "with store.thread('t', agent='a').change('both') as change:\n"
        "    change.agent.put('/n.json', 1)\n"
    )
    run = commands().run(["-c", program, str(path)])

    with perdure.open(path) as store:
        assert run.returncode == -9
        assert store.agent("a").get("/n.json") == 1


class TestForks:
    """A fork reads the agent's map as of its fork commit and writes to a line of its own."""

    @pytest.fixture
    def fork(self, store: Store, thread: Thread) -> Thread:
        """A fork of a moment at which the agent's map said 1; now it says 2."""
        with thread.change("one") as change:
            change.agent.put("/n.json", 1)
        fork = thread.fork("what-if")
        with thread.change("two") as change:
            change.agent.put("/n.json", 2)
        return fork

    def test_it_reads_as_of_its_fork_commit(self, fork: Thread, thread: Thread) -> None:
        """What happened to the map since is not seen there, also after commits of its own."""
        assert fork.agent_map().get("/n.json") == 1
        fork.put("/a.json", 1)
        assert fork.agent_map().get("/n.json") == 1
        assert thread.agent_map().get("/n.json") == 2

    def test_it_writes_to_a_line_of_its_own(self, store: Store, fork: Thread) -> None:
        """Nobody else sees what it changes."""
        for step in (10, 20):
            with fork.change("ten") as change:
                change.agent.increment("/n.json", step)

        assert fork.agent_map().get("/n.json") == 31
        assert store.agent("planner").get("/n.json") == 2

    def test_promoting_it_brings_its_changes(self, store: Store, fork: Thread, thread: Thread) -> None:
        """They are applied on the agent's main, once, and say what they covered."""
        with fork.change("ten") as change:
            change.agent.increment("/n.json", 10)
            change.agent.put("/new.json", 1)
        fork.put("/a.json", 1)

        thread.promote(fork)
        thread.promote("main.v2")
        thread.promote(fork)

        planner = store.agent("planner")
        assert planner.get("/n.json") == 12
        assert planner.get("/new.json") == 1
        assert [entry.reason for entry in planner.log()] == ["ten", "two", "one"]
        assert thread.agent_map().get("/n.json") == 12
        assert store.verify().ok

    def test_a_fork_of_a_fork(self, store: Store, fork: Thread, thread: Thread) -> None:
        """It sees what its parent line had changed, and brings it along."""
        with fork.change("ten") as change:
            change.agent.increment("/n.json", 10)
        inner = fork.fork("inner")
        with fork.change("not seen") as change:
            change.agent.increment("/n.json", 1000)
        with inner.change("hundred") as change:
            change.agent.increment("/n.json", 100)
        assert inner.agent_map().get("/n.json") == 111

        thread.promote(inner)

        assert store.agent("planner").get("/n.json") == 112

    def test_a_promotion_is_finished_at_the_next_open(
        self, store_url: str, fork: Thread, thread: Thread, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A process that dies after the promotion leaves the rest to whoever opens the store."""
        with fork.change("ten") as change:
            change.agent.increment("/n.json", 10)
        with monkeypatch.context() as patch:
            die_after(patch, thread, 1)
            thread.promote(fork)
        assert thread.agent_map().get("/n.json") == 2

        with perdure.open(store_url) as again:
            assert again.agent("planner").get("/n.json") == 12
            assert again.thread("trip-42").head.version == 3

    def test_a_fork_of_nothing_sees_the_map_as_it_is(self, store: Store, thread: Thread) -> None:
        """There is no commit yet that would say otherwise; the first one says it."""
        store.agent("planner").put("/n.json", 1)
        fork = thread.fork("what-if")
        fork.put("/a.json", 1)
        store.agent("planner").put("/n.json", 2)

        assert fork.agent_map().get("/n.json") == 1

    def test_lines_of_two_threads_are_two_lines(self, store: Store, thread: Thread) -> None:
        """The name of the agent's line is made of the thread and the timeline."""
        other = store.thread("other", agent="planner")
        names = {
            TimelineContext(space=each._space, timeline=name).agent_line
            for each in (thread, other)
            for name in ("main", "what-if", "other")
        }

        assert len(names) == 5


class TestDeclarations:
    """What an agent declares about its state is recorded with it."""

    def test_merge_rules_are_recorded(self, store: Store, other: Store) -> None:
        """A program that opens the thread without the declaration merges by it all the same."""
        agent = Agent("planner", state=[perdure.state("/count.json", merge="counter")])
        thread = store.thread("trip-42", agent=agent)
        thread.put("/count.json", 10)
        thread.fork("what-if").put("/count.json", 11)
        thread.put("/count.json", 15)

        other.thread("trip-42").merge("what-if")

        assert thread.get("/count.json") == 16

    def test_a_changed_declaration_takes_the_place(self, store: Store) -> None:
        """A name alone declares nothing, so it changes nothing."""
        rules: list[dict[str, str]] = []
        for merge in ("max", "min"):
            agent = Agent("planner", state=[perdure.state("/n.json", merge=merge)])
            store.thread("trip-42", agent=agent)
            store.thread("trip-42", agent="planner")
            store.thread("trip-42")
            rules.append(directory.rules_of(store._resources.store, "planner"))

        assert rules == [{"/n.json": "max"}, {"/n.json": "min"}]

    def test_defaults_are_what_absent_paths_are_read_as(self, store: Store) -> None:
        """A declared default is no value: it is not stored and not listed."""
        agent = Agent("planner", state=[perdure.state("/todos.json", default=[])])
        thread = store.thread("trip-42", agent=agent)

        with thread.change("first") as change:
            change.put("/todos.json", [*change.get("/todos.json"), "milk"])
        assert thread.get("/todos.json") == ["milk"]
        assert thread.at(None).get("/todos.json") == []
        assert thread.at(None).paths() == []
        with pytest.raises(NotFound):
            thread.get("/else.json")

    @pytest.mark.parametrize(
        "make",
        [
            lambda: Agent("Not A Name"),
            lambda: perdure.state("no-slash"),
            lambda: perdure.state("/n", scope="for ever"),  # pyright: ignore[reportArgumentType]
            lambda: perdure.state("/n", merge="guess"),  # pyright: ignore[reportArgumentType]
            lambda: perdure.state("/n", default=object()),
        ],
        ids=["name", "prefix", "scope", "rule", "default"],
    )
    def test_a_bad_declaration_is_refused(self, make: Callable[[], object]) -> None:
        """When it is made, not when it is used."""
        with pytest.raises(Invalid):
            make()


def test_many_finish_the_same_outboxes_at_once(store_url: str, store: Store) -> None:
    """Writers, and openers who take their half-done work for a dead process's: every change arrives once."""
    store.agent("planner").put("/n.json", 0)
    threads = [store.thread(f"t-{number}", agent="planner") for number in range(3)]

    def write(thread: Thread) -> None:
        for _ in range(8):
            with thread.change("count") as change:
                change.agent.increment("/n.json")

    def reopen(_: int) -> None:
        for _ in range(8):
            perdure.open(store_url).close()

    with ThreadPoolExecutor(5) as pool:
        done = [pool.submit(write, thread) for thread in threads] + [pool.submit(reopen, n) for n in range(2)]
        for each in done:
            each.result()
    perdure.open(store_url).close()

    assert store.agent("planner").get("/n.json") == 24
    assert len(store.agent("planner").log()) == 25
    assert store._resources.engine.listed(prefix="outbox/", limit=10) == []

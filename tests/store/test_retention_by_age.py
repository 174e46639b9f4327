"""Retention by age: old timelines and old threads go by a rule, and nothing that is open, unknown or needed goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, RetentionPolicy, Store, Thread
from perdure.engines import registry
from perdure.engines.contract import Write
from perdure.errors import Forgotten, Invalid, NotFound, RunFailed, StaleHead
from perdure.history import gc_generation
from perdure.history.space import ALIVE
from perdure.server.keys import SERVER, Keys
from perdure.testing import Script, fail, say, use
from tests.engines.postgres.stores import new_store
from tests.selection import engines
from tests.store.engine_calls import CountingEngine

DAY = 24 * 3_600 * 1_000_000
TIMELINES = RetentionPolicy(timelines_after_days=90)
SUPERSEDED = RetentionPolicy(superseded_after_days=90)
THREADS = RetentionPolicy(threads_after_days=90)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = time.time_ns() // 1_000  # queued inputs have the time of the store

    def __call__(self) -> int:
        """Return the time, a little later each time."""
        self.now += 1
        return self.now

    def pass_days(self, days: int) -> None:
        """Let days pass."""
        self.now += days * DAY


@pytest.fixture
def clock() -> Clock:
    """The clock of the store."""
    return Clock()


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Generator[Store]:
    """An empty store on each engine."""
    url = {"memory:": lambda: "memory:", "file": lambda: str(tmp_path / "store.db")}
    with perdure.open(url.get(request.param, lambda: new_store(request))(), clock=clock) as opened:
        yield opened


@perdure.tool(effect="external_write", ask=True)
def send(to: int) -> str:
    """Send something."""
    return f"sent {to}"


@perdure.tool(effect="external_write")
def pay() -> str:
    """Pay, and nobody learns whether."""
    raise TimeoutError("the line was cut")


@perdure.tool(effect="local_write", idempotent=True)
def note(text: str, call: Call) -> str:
    """Write a note."""
    call.put("/note.json", text * 100)
    return f"noted {text}"


def planner(*steps: Any) -> Agent:
    """An agent that says these steps."""
    return Agent("planner", backend=Script(*(steps or (say("Done."),) * 9)), tools=[send, pay, note])


def swept(store: Store, policy: RetentionPolicy) -> dict[str, str | None]:
    """Carry a policy out; by space, why it was left alone."""
    return {each.space: each.left_alone for each in store.gc(store.gc_plan(policy))}


def ids(store: Store) -> list[str]:
    """The threads that there are."""
    return [each.id for each in store.threads()]


# ---- timelines


def fork_of_words(store: Store, clock: Clock) -> tuple[Thread, Thread]:
    """Return a thread with a message, and a fork with one more whose words a policy has removed; no state differs."""
    thread = store.thread("t", agent=planner())
    with thread.change("say") as change:
        change.say("user", "on both")
    fork = thread.fork("idea")
    with fork.change("say") as change:
        change.say("user", "only here")
    clock.pass_days(91)
    assert list(swept(store, TIMELINES).values()) == [None]
    return thread, fork


@pytest.mark.parametrize("how", ["promote", "undo", "fork"])
def test_main_does_not_move_to_words_that_are_gone(store: Store, clock: Clock, how: str) -> None:
    """The state there is whole, and what was said is not: the move is refused, and nothing is moved."""
    thread, fork = fork_of_words(store, clock)
    acts: dict[str, Callable[[], object]] = {
        "promote": lambda: thread.promote("idea"),
        "undo": lambda: thread.undo(to=fork.head),
        "fork": lambda: thread.fork("other", at=fork.head),
    }
    head = thread.head

    with pytest.raises(Forgotten):
        acts[how]()

    assert (thread.head, len(thread.timelines())) == (head, 2)


def test_moves_along_words_that_stay_are_not_refused(store: Store, clock: Clock) -> None:
    """Control: also in a thread of which something was forgotten, and of the old fork back to what both have."""
    thread, fork = fork_of_words(store, clock)
    later = thread.fork("later")
    with later.change("say") as change:
        change.say("user", "said since")

    thread.promote("later")
    thread.undo()
    fork.undo()

    assert [each.text for each in (*thread.transcript(), *fork.transcript())] == ["on both", "on both"]


def test_a_move_along_a_line_reads_none_of_its_messages(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only messages that the line which is left does not have are looked at, however long both are."""
    thread, _ = fork_of_words(store, clock)
    for number in range(5):
        with thread.change("say") as change:
            change.say("user", str(number))
    looked_at: list[object] = []
    monkeypatch.setattr(gc_generation, "check_kept", lambda _space, bodies: looked_at.extend(bodies))

    line = thread.fork("line", at="turn:3")
    thread.undo(2)
    thread.redo()
    counts = [len(looked_at)]
    thread.undo(to=line.head)
    thread.promote("line")

    assert [*counts, len(looked_at)] == [2, 2]


def test_what_only_an_old_fork_needs_goes(store: Store, clock: Clock) -> None:
    """A dry run changes nothing; then its state and words are gone, and main and the chain are whole."""
    thread = store.thread("t", agent=planner())
    thread.put("/shared.json", "x" * 500)
    fork = thread.fork("idea")
    fork.put("/own.json", "y" * 500)
    with fork.change("say") as change:
        change.say("user", "only here")
    clock.pass_days(91)

    planned = store.gc_plan(TIMELINES)
    still = fork.get("/own.json")
    store.gc(planned)

    assert (planned.count > 0, {lot.why for each in planned.spaces for lot in each.lots}) == (
        True,
        {"timeline"},
    )
    assert (still, thread.get("/shared.json")) == ("y" * 500, "x" * 500)
    with pytest.raises(Forgotten):
        fork.get("/own.json")
    assert store.verify().ok
    assert store.gc_plan(TIMELINES).count == 0


def test_a_fork_that_was_written_lately_keeps_what_it_was_forked_from(store: Store, clock: Clock) -> None:
    """The old fork between it and main goes as a timeline; what the new one needs of it stays."""
    thread = store.thread("t", agent=planner())
    thread.put("/a.json", 1)
    old = thread.fork("old")
    old.put("/base.json", "b" * 500)
    new = old.fork("new")
    old.put("/base.json", "only old" * 60)
    clock.pass_days(91)
    new.put("/c.json", 2)

    swept(store, TIMELINES)

    assert (new.get("/base.json"), new.get("/c.json")) == ("b" * 500, 2)
    with pytest.raises(Forgotten):
        old.get("/base.json")
    assert store.verify().ok


@pytest.mark.parametrize("how", ["main", "forked lately", "sealed", "undone lately", "waiting", "queued"])
def test_a_timeline_stays(store: Store, clock: Clock, how: str) -> None:
    """Main, one whose last move has no known age, and one with open work."""
    thread = store.thread("t", agent=planner(use("send", to=1), say("Sent.")))
    thread.put("/a.json", 1)
    line = thread if how == "main" else thread.fork("line")
    line.put("/kept.json", "k" * 500)
    if how == "sealed":
        line.seal()
    elif how == "undone lately":
        line.put("/kept.json", "newer")
        line.undo()
    elif how == "waiting":
        line.run("Send it.")
    elif how == "queued":
        line.start("Later.")
    clock.pass_days(91)
    if how == "forked lately":
        line = line.fork("again")

    swept(store, TIMELINES)

    assert line.get("/kept.json") == "k" * 500
    assert store.verify().ok


def test_an_old_main_that_a_promotion_replaced_goes(store: Store, clock: Clock) -> None:
    """Once something was committed on the new one, long enough ago; before that it stays."""
    thread = store.thread("t", agent=planner())
    thread.put("/a.json", 1)
    better = thread.fork("better")
    thread.put("/old.json", "o" * 500)
    better.put("/new.json", "n" * 500)
    thread.promote("better")
    clock.pass_days(91)
    before = store.gc_plan(TIMELINES).count
    thread.put("/b.json", 2)
    clock.pass_days(91)

    swept(store, TIMELINES)

    (kept,) = [each.head.timeline for each in thread.timelines() if each.head.timeline.startswith("main.v")]
    assert (before, thread.get("/new.json")) == (0, "n" * 500)
    with pytest.raises(Forgotten):
        thread.on(kept).get("/old.json")


@pytest.mark.parametrize("superseded_days", [None, 90])
def test_a_turn_that_its_run_wrote_on_two_timelines_stays_on_main(
    store: Store, clock: Clock, superseded_days: int | None
) -> None:
    """Another program wrote while the run was on its own timeline, so both have commits with the same changesets."""

    @perdure.tool(effect="local_write")
    def visit() -> str:
        store.thread("t").put("/visited.json", True)
        return "done"

    model = Script(use("visit"), say("Hello."))
    thread = store.thread("t", agent=Agent("planner", backend=model, tools=[visit]))
    thread.run("Go.", head_policy="on_success")
    before = [entry.words for entry in thread.transcript()]
    idea = thread.fork("idea")
    idea.put("/own.json", "x" * 500)
    clock.pass_days(91)

    swept(store, RetentionPolicy(timelines_after_days=90, superseded_after_days=superseded_days))

    assert [entry.words for entry in thread.transcript()] == before
    with pytest.raises(Forgotten):  # control
        idea.get("/own.json")


def test_an_age_can_be_a_part_of_a_day(store: Store, clock: Clock) -> None:
    """Half a day is 12 hours: what is 11 hours old stays, and what is 13 hours old goes."""
    thread = store.thread("old", agent="helper")
    thread.fork("idea").put("/own.json", "x" * 500)
    policy = RetentionPolicy(timelines_after_days=0.5)

    clock.now += 11 * DAY // 24
    young = store.gc_plan(policy).count
    clock.now += 2 * DAY // 24
    old = store.gc_plan(policy).count

    assert (young, old > 0) == (0, True)


def test_the_control_without_an_age_nothing_goes(store: Store, clock: Clock) -> None:
    """The same fork stays under a policy of other rules, and under the same rule before its time."""
    fork = store.thread("t", agent=planner()).fork("idea")
    fork.put("/own.json", "y" * 500)
    clock.pass_days(89)

    swept(store, TIMELINES)
    swept(store, RetentionPolicy(undone_after_days=0, staged_after_days=0, removed_threads=True))

    assert fork.get("/own.json") == "y" * 500


# ---- superseded values


def grown(store: Store, clock: Clock) -> Thread:
    """A thread with a note a day for ten days, each by a run, a draft beside each, and a value that never changes."""
    steps = [step for day in range(10) for step in (use("note", text=f"n{day}"), say(f"Day {day}."))]
    thread = store.thread("diary", agent=planner(*steps))
    thread.put("/title.json", "My diary")
    for day in range(10):
        thread.run(f"What happened on day {day}?")
        thread.put("/draft.json", f"d{day}" * 100)
        clock.pass_days(1)
    return thread


def note_at(thread: Thread, turn: int) -> str | None:
    """The note after a turn; None: it was forgotten."""
    try:
        return thread.at(f"turn:{turn}").get("/note.json")[:2]
    except Forgotten:
        return None


def test_values_that_no_state_of_the_last_days_has_go(store: Store, clock: Clock) -> None:
    """The state at the beginning of the time stays, and those after it; words, calls and the chain are whole."""
    thread = grown(store, clock)
    said = [entry.text for entry in thread.transcript()]
    drafts = [commit for commit in thread.log() if commit.reason == "put"]
    clock.pass_days(84)  # the time begins after the fifth draft

    planned = store.gc_plan(SUPERSEDED)
    still = note_at(thread, 1)
    store.gc(planned)

    assert {lot.why for each in planned.spaces for lot in each.lots} == {"superseded"}
    assert {lot.kind for each in planned.spaces for lot in each.lots} == {"node", "value"}
    assert still == "n0"
    assert [note_at(thread, turn) for turn in range(1, 11)] == [None] * 5 + ["n5", "n6", "n7", "n8", "n9"]
    assert thread.at(drafts[5]).get("/draft.json")[:2] == "d4"
    with pytest.raises(Forgotten):
        thread.at(drafts[6]).get("/draft.json")
    assert thread.get("/title.json") == "My diary"
    assert [entry.text for entry in thread.transcript()] == said
    assert {call.state for call in thread.calls()} == {"succeeded"}
    assert store.verify().ok
    assert store.gc_plan(SUPERSEDED).count == 0


def test_what_was_forgotten_is_never_taken_for_what_was_not_there(store: Store, clock: Clock) -> None:
    """A search that ends among forgotten states raises, one that ends after them answers, and moves are refused."""
    thread = grown(store, clock)
    clock.pass_days(85)
    store.gc(store.gc_plan(SUPERSEDED))

    found = thread.bisect(lambda view: view.get("/note.json") >= "n8", good="turn:8")
    same = thread.bisect(lambda view: view.get("/note.json") >= "n8")

    assert found.digest == same.digest
    assert found.turn == 9
    with pytest.raises(Forgotten):
        thread.bisect(lambda view: view.get("/note.json") != "")
    with pytest.raises(Forgotten):
        thread.undo(to="turn:2")
    with pytest.raises(Forgotten):
        thread.fork("old", at="turn:2")


def test_what_a_merge_needs_stays(store: Store, clock: Clock) -> None:
    """The state at which two timelines part, however old it is, and the heads."""
    thread = grown(store, clock)
    fork = thread.fork("idea", at="turn:2")
    fork.put("/own.json", 1)
    clock.pass_days(500)

    store.gc(store.gc_plan(SUPERSEDED))
    merged = thread.merge("idea")

    assert merged.paths == 1
    assert (thread.get("/own.json"), thread.get("/note.json")[:2]) == (1, "n9")
    assert (note_at(thread, 2), note_at(thread, 3)) == ("n1", None)
    assert store.verify().ok


def test_open_work_keeps_every_state_of_its_thread(store: Store, clock: Clock) -> None:
    """Until the call is decided and the run has ended."""
    thread = grown(store, clock)
    waiting = store.thread("diary", agent=planner(use("send", to=1), say("Not sent.")))
    (asked,) = waiting.run("Send it").approvals
    clock.pass_days(500)

    kept = store.gc_plan(SUPERSEDED).count
    waiting.decide(asked.call, "deny")
    waiting.resume()

    assert kept == 0
    assert store.gc_plan(SUPERSEDED).count > 0
    assert note_at(thread, 1) == "n0"


def test_a_run_that_can_be_retried_keeps_what_its_calls_have_written(store: Store, clock: Clock) -> None:
    """It goes on from its last step, although the note of that step was never committed and is old."""
    thread = store.thread("t", agent=planner(use("note", text="kept"), fail(), say("Noted.")))
    with pytest.raises(RunFailed):
        thread.run("Note it", id="m1")
    clock.pass_days(500)

    store.gc(store.gc_plan(SUPERSEDED))
    again = store.thread("t", agent=planner(use("note", text="kept"), say("Noted."))).run("Note it", id="m1")

    assert again.status == "succeeded"
    assert thread.get("/note.json") == "kept" * 100
    assert store.verify().ok


# ---- threads


def test_a_thread_that_nothing_was_written_to_goes(store: Store, clock: Clock) -> None:
    """A dry run names it and changes nothing; a thread that was written since stays."""
    old = store.thread("old", agent=planner())
    old.run("Hello.")
    store.thread("new", agent=planner()).run("Hello.")
    clock.pass_days(91)
    store.thread("new", agent=planner()).put("/a.json", 1)

    planned = store.gc_plan(THREADS)
    before = ids(store)
    store.gc(planned)

    assert [(each.thread, each.dropped) for each in planned.spaces] == [("old", True)]
    assert (before, ids(store)) == (["new", "old"], ["new"])
    with pytest.raises((StaleHead, NotFound)):
        old.put("/a.json", 1)
    assert store.verify().ok
    assert store.thread("old", agent=planner()).transcript() == []


def test_the_keys_of_the_server_never_go_by_age(store: Store, clock: Clock) -> None:
    """A key that was added long ago still opens the store, although the thread that has it is as old as others."""
    secret = Keys(store).add("proxy", ["viewer"])
    store.thread("old", agent=planner()).run("Hello.")
    clock.pass_days(400)

    swept(store, THREADS)

    assert ids(store) == [SERVER]
    assert Keys(store).find(secret) is not None


def waits(store: Store) -> None:
    """A run that waits for a person."""
    store.thread("t", agent=planner(use("send", to=1))).run("Send it.")


def scheduled(store: Store) -> None:
    """An input for later."""
    store.thread("t", agent=planner()).schedule("Later.", 3_600)


def unknown(store: Store) -> None:
    """A call whose outcome is unknown, in a run that has ended."""
    thread = store.thread("t", agent=planner(use("pay"), say("Paid?")))
    thread.run("Pay.")
    assert [call.state for call in thread.calls()] == ["unknown"]


def parent_waits(store: Store) -> None:
    """A thread whose child run has ended, while the run above it waits."""
    helper = Agent("helper", backend=Script(say("Helped.")))

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        return call.run(helper, "Help.", thread="t").text

    @perdure.tool(effect="external_write", ask=True)
    def ask() -> str:
        return "asked"

    boss = Agent("boss", backend=Script(use("delegate"), use("ask"), say("Done.")), tools=[delegate, ask])
    store.thread("boss", agent=boss).run("Go.")


@pytest.mark.parametrize("opened", [waits, scheduled, unknown, parent_waits])
def test_a_thread_with_open_work_stays(store: Store, clock: Clock, opened: Callable[[Store], None]) -> None:
    """It is listed with the reason."""
    opened(store)
    clock.pass_days(91)

    planned = store.gc_plan(THREADS)
    store.gc(planned)

    (found,) = [each for each in planned.spaces if each.thread == "t"]
    assert (found.dropped, found.left_alone is not None) == (False, True)
    assert "t" in ids(store)


def test_a_thread_that_came_from_another_store_stays_while_it_is_held(tmp_path: Path, clock: Clock) -> None:
    """After its release it goes by its age."""
    with perdure.open(tmp_path / "a.db", clock=clock) as store:
        store.thread("t", agent=planner()).run("Hello.")
        store.copy_to(tmp_path / "b.db")
    clock.pass_days(91)

    with perdure.open(tmp_path / "b.db", clock=clock) as copied:
        before = [each.dropped for each in copied.gc_plan(THREADS).spaces]
        copied.release("t")
        after = [each.dropped for each in copied.gc_plan(THREADS).spaces]

    assert (before, after) == ([False], [True])


class WritesFirst(CountingEngine):
    """An engine on which something is written just before a thread is closed."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.act: Callable[[], object] | None = None

    def apply(self, write: Write) -> Any:
        """Apply a write; the one that closes a thread comes second."""
        if self.act is not None and any(cell.name == ALIVE for cell in write.cells):
            act, self.act = self.act, None
            act()
        return self._engine.apply(write)


@pytest.mark.parametrize("what", ["commit", "input", "run"])
def test_a_thread_that_is_written_at_that_moment_stays(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The write that closes it is refused, and nothing is lost."""
    engines: list[WritesFirst] = []
    real = registry.open_engine

    def wrapped(*args: Any, **options: Any) -> Any:
        engines.append(WritesFirst(real(*args, **options)))
        return engines[-1]

    monkeypatch.setattr(registry, "open_engine", wrapped)
    with perdure.open("memory:", clock=clock) as store:
        thread = store.thread("t", agent=planner())
        thread.run("First.")
        clock.pass_days(91)
        planned = store.gc_plan(THREADS)
        act: dict[str, Callable[[], object]] = {
            "commit": lambda: thread.put("/a.json", 1),
            "input": lambda: thread.start("Hello."),
            "run": lambda: thread.run("Hello."),
        }
        engines[0].act = act[what]

        (done,) = store.gc(planned)

        assert (done.dropped, done.left_alone) == (False, "it was written in the meantime")
        assert ids(store) == ["t"]
        assert store.verify().ok


def test_the_awaitable_store_has_both(tmp_path: Path, clock: Clock) -> None:
    """The dry run and the removal, off the loop."""

    async def go() -> int:
        async with perdure.aio.open(tmp_path / "store.db", clock=clock) as store:
            thread = await store.thread("t", agent=planner())
            await thread.put("/a.json", 1)
            clock.pass_days(91)
            return len(await store.gc(await store.gc_plan(THREADS)))

    assert asyncio.run(go()) == 1


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (RetentionPolicy(threads_after_days=90), []),
        (RetentionPolicy(threads_after_days=90, agents=("clerk",)), ["b", "c"]),
        (RetentionPolicy(threads_after_days=90, owners=("ann",)), ["b", "d"]),
        (RetentionPolicy(threads_after_days=90, agents=("clerk", "cook"), owners=("bob",)), ["a", "c", "d"]),
    ],
)
def test_a_policy_for_some_agents_or_owners_leaves_the_others(
    store: Store, clock: Clock, policy: RetentionPolicy, left: list[str]
) -> None:
    """Both are needed where both are named; a thread without an owner belongs to none of the owners."""
    for name, agent, owner in (
        ("a", "clerk", "ann"),
        ("b", "cook", "bob"),
        ("c", "cook", "ann"),
        ("d", "clerk", None),
    ):
        store.thread(name, agent=agent, owner=owner).put("/x", 1)
    clock.pass_days(100)

    store.gc(store.gc_plan(policy))

    assert sorted(each.id for each in store.threads()) == left


def test_undone_content_goes_only_where_the_policy_is_about(store: Store, clock: Clock) -> None:
    """The same holds inside threads."""
    for name, agent in (("a", "clerk"), ("b", "cook")):
        thread = store.thread(name, agent=agent)
        thread.put("/x", 1)
        thread.put("/x", "undone " * 50)
        thread.undo()
        thread.put("/y", 2)
    clock.pass_days(100)

    plan = store.gc_plan(RetentionPolicy(undone_after_days=30, agents=("cook",)))
    whole = store.gc_plan(RetentionPolicy(undone_after_days=30))

    assert (len(plan.spaces), len(whole.spaces)) == (1, 2)


@perdure.tool(effect="external_write")
def mail(to: int) -> str:
    """Send something at once."""
    return f"mailed {to}"


UNDONE: dict[str, tuple[Any, ...]] = {
    "answered": (say("Hello."),),
    "waited": (use("send", to=1), say("Hello.")),
    "repeated": (use("mail", to=1), use("mail", to=1), use("mail", to=1), say("Hello.")),
}


@pytest.mark.parametrize("steps", UNDONE)
def test_what_was_said_in_undone_runs_goes_and_not_only_in_the_last(
    store: Store, clock: Clock, steps: str
) -> None:
    """Records of ended runs and the gates of the repeat guard name commits, and need nothing of what they said."""
    agent = Agent("planner", backend=Script(*UNDONE[steps] * 2), tools=[send, mail])
    thread = store.thread("t", agent=agent)
    for _ in range(2):
        for ticket in thread.run("Go.").approvals:
            thread.decide(ticket.call, "deny", by="ann")
            thread.resume()
    last = thread.head
    thread.undo(2)
    before = [entry.words for entry in thread.at(last).transcript()]
    thread.put("/other.json", 1)
    clock.pass_days(91)

    swept(store, RetentionPolicy(undone_after_days=90))

    assert None not in before
    assert {entry.words for entry in thread.at(last).transcript()} == {None}
    assert store.verify().ok


def test_removed_threads_have_no_agent_to_choose_by() -> None:
    """The store has forgotten whose they were, so the policy is refused."""
    with pytest.raises(Invalid) as refused:
        RetentionPolicy(removed_threads=True, agents=("clerk",))

    assert refused.value.code == "policy_conflict"


@pytest.mark.parametrize(
    "given",
    [{"owners": ()}, {"agents": ("clerk",)}, {"threads_after_days": 1.0}, {"superseded_after_days": 1.0}],
)
def test_items_are_chosen_in_the_memory_of_an_owner_alone(given: dict[str, Any]) -> None:
    """A policy that would silently leave out a part is refused; the control is what an erasure uses."""
    erasing: dict[str, Any] = {"owners": ("ann",), "items": ("goes",)}

    assert RetentionPolicy(**erasing).items == ("goes",)
    with pytest.raises(Invalid) as refused:
        RetentionPolicy(**erasing | given)
    assert refused.value.code == "policy_conflict"

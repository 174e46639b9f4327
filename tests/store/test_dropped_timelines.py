"""A timeline that was dropped: what only it needs goes with a policy, and nothing else does."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, RetentionPolicy, Store, Thread
from perdure.errors import Conflict, Forgotten, Invalid, NotFound, Sealed
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.engines.postgres.stores import new_store
from tests.memory.remembering import note, remembering, texts
from tests.selection import engines

REMOVED = RetentionPolicy(removed_threads=True)


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store on each engine."""
    url = {"memory:": lambda: "memory:", "file": lambda: str(tmp_path / "store.db")}
    with perdure.open(url.get(request.param, lambda: new_store(request))()) as opened:
        yield opened


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread with a value on main, one on the fork `idea`, and one on the fork `other` of that fork."""
    thread = store.thread("t", agent="planner")
    thread.put("/a.json", "on main")
    idea = thread.fork("idea")
    idea.put("/b.json", "on idea")
    other = idea.fork("other")
    other.put("/c.json", "on other")
    idea.put("/d.json", "on idea alone")
    return thread


def test_a_dropped_timeline_goes_with_what_was_removed(store: Store, thread: Thread) -> None:
    """Its plan names it; what another fork has of it stays, and the thread verifies.  Before it is dropped: nothing."""
    control = store.gc_plan(REMOVED).spaces
    idea = thread.on("idea")
    head = thread.drop("idea")
    dropped = thread.removal_state(idea)
    plan = store.gc_plan(REMOVED)
    with raises(Sealed, "sealed"):
        idea.put("/e.json", 1)

    store.gc(plan)

    assert (control, dropped, thread.removal_state(idea)) == ((), "dropped", "forgotten")
    assert [each.timelines for each in plan.spaces] == [("idea",)]
    assert thread.on("other").get("/b.json") == "on idea"
    with pytest.raises(Forgotten):
        idea.get("/d.json")
    assert (head, thread.drop("idea")) == (idea.head, idea.head)
    assert store.gc_plan(REMOVED).spaces == ()
    assert [hold.sealed for hold in thread.timelines()] == [False, True, False]
    assert store.verify().ok


def test_a_plan_names_only_the_timelines_of_which_something_goes(store: Store, thread: Thread) -> None:
    """A dropped fork at a commit of main loses nothing; one that ends where a dropped one does goes with it."""
    thread.fork("beside")
    thread.on("idea").fork("same")
    for line in ("beside", "idea", "same"):
        thread.drop(line)

    (planned,) = store.gc_plan(REMOVED).spaces

    assert planned.timelines == ("idea", "same")


@pytest.mark.parametrize(
    ("policy", "rule"),
    [
        (REMOVED, "on a timeline that was dropped"),
        (
            RetentionPolicy(removed_threads=True, undone_after_days=0, superseded_after_days=1),
            "undone for 0 days or replaced by later states for 1 day or on a timeline that was dropped",
        ),
    ],
)
def test_what_is_forgotten_says_by_which_rules(
    store: Store, thread: Thread, policy: RetentionPolicy, rule: str
) -> None:
    """Each rule of the policy is named, and no other."""
    thread.drop("idea")
    store.gc(store.gc_plan(policy))

    with pytest.raises(Forgotten) as forgotten:
        thread.on("idea").get("/d.json")

    assert f"nothing live needs it, and it was {rule}" in str(forgotten.value)
    assert forgotten.value.why.endswith(f"it was {rule}")


def test_until_then_a_dropped_timeline_can_be_taken_back(store: Store, thread: Thread) -> None:
    """Promoted, main has what was there, and the policy takes nothing of it."""
    thread.drop("idea")
    thread.promote("idea")

    store.gc(store.gc_plan(REMOVED))

    assert thread.get("/d.json") == "on idea alone"
    assert thread.removal_state("idea") == "dropped"


def test_a_timeline_that_was_sealed_is_dropped_and_one_that_was_only_sealed_stays(
    store: Store, thread: Thread
) -> None:
    """A seal alone keeps what it sealed, which is the control; the call with an op_id happens once."""
    for name in ("idea", "other"):
        thread.on(name).seal()
    heads = {thread.drop("idea", op_id="drop-1") for _ in range(2)}

    store.gc(store.gc_plan(REMOVED))

    assert len(heads) == 1
    assert thread.on("other").get("/c.json") == "on other"
    with pytest.raises(Forgotten):
        thread.on("idea").get("/d.json")
    assert store.verify().ok


def test_main_what_is_not_there_and_what_is_open_is_not_dropped(store: Store) -> None:
    """A waiting call keeps its timeline, which takes writes as before; denied, it is dropped."""

    @perdure.tool(effect="external_write", ask=True)
    def send(to: int) -> str:
        """Send something."""
        return f"sent {to}"

    script = Script(use("send", to=1), say("Not sent."))
    thread = store.thread("t", agent=Agent("planner", backend=script, tools=[send]))
    thread.put("/a.json", 1)
    fork = thread.fork("idea")
    run = fork.run("send it")
    (call,) = [each.id for each in fork.calls()]

    with raises(Invalid, "main_not_dropped"):
        thread.drop("main")
    with raises(NotFound, "timeline_not_found"):
        thread.drop("nowhere")
    with raises(Conflict, "timeline_open"):
        thread.drop("idea")

    assert [hold.sealed for hold in thread.timelines()] == [False, False]
    fork.decide(call, "deny")
    fork.resume(run.run)
    thread.drop(fork)
    assert [each.state for each in thread.calls()] == ["denied"]


def test_items_of_memory_that_only_a_dropped_timeline_wrote_are_withdrawn(store: Store) -> None:
    """As with a thread that is removed; an item of main is the control."""
    thread = remembering(store, "t", "likes fjords", name="main")
    thread.fork("idea")
    script = Script(use("note", name="idea", text="likes lakes"), say("Noted."))
    store.thread("t", agent=Agent("planner", backend=script, tools=[note])).on("idea").run("Remember it")
    before = sorted(texts(store, "likes"))

    thread.drop("idea")

    assert (before, texts(store, "likes")) == (["likes fjords", "likes lakes"], ["likes fjords"])

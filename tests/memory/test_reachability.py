"""What a thread wrote counts only while its commit can be reached from a live head."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Store, testing
from perdure.errors import NotFound, RunFailed
from perdure.memory.owner_memory import ReachableMemory
from perdure.model.effect import Effect
from tests.memory.remembering import drop, forgetting, note, remembering, texts


def test_an_item_says_where_it_comes_from(store: Store) -> None:
    """Thread, commit, run, call and agent are in what is read back."""
    thread = remembering(store, "t1", "likes fjords")

    (item,) = store.memory("ann").items()

    assert item.source is not None
    (call,) = thread.calls()
    assert (item.source.thread, item.source.agent, item.source.call) == ("t1", "planner", call.id)
    assert item.source.run == call.run
    assert item.source.commit in [entry.digest for entry in thread.log()]
    assert item.trust == "model"


def test_undo_withdraws_and_redo_returns(store: Store) -> None:
    """No write to the memory is needed for either."""
    thread = remembering(store, "t1", "likes fjords")
    memory = store.memory("ann")
    head = memory.head

    thread.undo()
    withdrawn = texts(store, "fjords"), list(memory.items())
    thread.redo()

    assert withdrawn == ([], [])
    assert texts(store, "fjords") == ["likes fjords"]
    assert memory.head == head


def test_without_the_check_an_undone_item_is_still_found(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: it is the check of reachability, and nothing else, that withdraws."""
    remembering(store, "t1", "likes fjords").undo()

    monkeypatch.setattr(ReachableMemory, "holds", lambda *args: True)

    assert texts(store, "fjords") == ["likes fjords"]


def test_a_fork_that_holds_the_commit_keeps_the_item(store: Store) -> None:
    """Any live line will do; when the last of them leaves the commit, the item is withdrawn."""
    thread = remembering(store, "t1", "likes fjords")
    fork = thread.fork("what-if")

    thread.undo()
    kept = texts(store, "fjords")
    fork.undo()

    assert kept == ["likes fjords"]
    assert texts(store, "fjords") == []


@pytest.mark.parametrize(("effect_max", "kept"), [(None, ["likes fjords"]), ("read_only", [])])
def test_what_a_fork_notes_is_found_from_everywhere_until_it_is_undone_there(
    store: Store, effect_max: Effect | None, kept: list[str]
) -> None:
    """A memory has no lines of its own; on a fork that may only read, nothing is noted."""
    script = testing.Script(testing.use("note", name="n", text="likes fjords"), testing.say("Noted."))
    main = store.thread("t1", agent=Agent("planner", backend=script, tools=[note]), owner="ann")
    main.put("/x.json", 1)
    fork = main.fork("what-if", effect_max=effect_max)

    fork.run("Remember it")
    found = texts(store, "fjords")
    fork.undo()

    assert found == kept
    assert texts(store, "fjords") == []


def test_what_a_promotion_put_aside_is_withdrawn_until_it_is_promoted_back(store: Store) -> None:
    """The old main is kept for a look, not for its memories."""
    thread = remembering(store, "t1", "likes fjords")
    thread.fork("other", at=None)
    thread.on("other").put("/x.json", 1)

    thread.promote("other")
    aside = texts(store, "fjords")
    (kept,) = [hold.head.timeline for hold in thread.timelines() if hold.head.timeline.startswith("main.v")]
    thread.promote(kept)

    assert aside == []
    assert texts(store, "fjords") == ["likes fjords"]


def test_a_sealed_line_is_live(store: Store) -> None:
    """That a conversation is over is no reason to forget what was learnt in it."""
    thread = remembering(store, "t1", "likes fjords")

    thread.seal()

    assert texts(store, "fjords") == ["likes fjords"]


def test_a_merge_that_holds_the_commit_keeps_the_item(store: Store) -> None:
    """The way to it may go through a second parent."""
    thread = store.thread("t1", agent="planner", owner="ann")
    thread.put("/a.json", 1)
    fork = thread.fork("side")
    script = testing.Script(testing.use("note", name="n", text="likes fjords"), testing.say("ok"))
    store.thread("t1", agent=Agent("planner", backend=script, tools=[note]), timeline="side").run("go")
    fork.put("/b.json", 2)
    thread.merge("side")
    fork.undo(2)

    found = texts(store, "fjords")
    thread.undo()

    assert found == ["likes fjords"]
    assert texts(store, "fjords") == []


def test_removing_the_thread_withdraws_unless_it_was_kept_by_hand(store: Store) -> None:
    """`keep` makes an item stand by itself, and remembers where it came from."""
    thread = remembering(store, "t1", "likes fjords", name="kept")
    other = remembering(store, "t2", "likes lakes", name="lost")
    kept = store.memory("ann").keep("kept")

    thread.rm()
    other.rm()

    assert texts(store, "likes") == ["likes fjords"]
    assert kept.source is not None
    assert kept.source.thread == "t1"
    with pytest.raises(NotFound):
        store.memory("ann").get("lost")


def test_a_thread_begun_again_does_not_bring_back_what_the_first_wrote(store: Store) -> None:
    """Another thread of the same id is another thread."""
    remembering(store, "t1", "likes fjords").rm()

    store.thread("t1", agent="planner", owner="ann").put("/x.json", 1)

    assert texts(store, "fjords") == []


def test_undoing_a_change_of_an_item_brings_back_what_was_there(store: Store) -> None:
    """Two threads write one id: when the later one is undone, the earlier one stands again."""
    remembering(store, "t1", "sits at the aisle", name="seat")
    later = remembering(store, "t2", "sits at the window", name="seat")
    now = texts(store, "sits")

    later.undo()

    assert now == ["sits at the window"]
    assert texts(store, "sits") == ["sits at the aisle"]


def test_undoing_a_forgetting_brings_the_item_back(store: Store) -> None:
    """A forgetting is a step like any other."""
    remembering(store, "t1", "likes fjords")
    other = forgetting(store, "t2")
    gone = texts(store, "fjords")

    other.undo()

    assert gone == []
    assert texts(store, "fjords") == ["likes fjords"]


def test_what_is_written_by_hand_wins_over_what_threads_wrote_before(store: Store) -> None:
    """Undoing the thread no longer matters: the item stands by itself."""
    thread = remembering(store, "t1", "sits at the aisle", name="seat")
    store.memory("ann").add("sits at the window", id="seat")

    thread.undo()

    assert texts(store, "sits") == ["sits at the window"]


def test_an_item_forgotten_by_hand_is_not_brought_back_by_redo(store: Store) -> None:
    """Who forgets by hand means it; only the memory's own undo takes it back."""
    thread = remembering(store, "t1", "likes fjords")
    memory = store.memory("ann")
    memory.forget("n")
    thread.undo()

    thread.redo()
    after_redo = texts(store, "fjords")
    memory.undo()

    assert after_redo == []
    assert texts(store, "fjords") == ["likes fjords"]


def test_what_a_run_writes_on_a_line_of_its_own_counts_once_it_succeeds(store: Store) -> None:
    """Under `on_success` no search sees it before; a failed run's line is kept for a look, not for its memories."""
    noting = testing.use("note", name="n", text="likes fjords")
    failing = Agent("planner", backend=testing.Script(noting, testing.fail()), tools=[note])
    thread = store.thread("t1", agent=failing, owner="ann")
    with pytest.raises(RunFailed):
        thread.run("go", head_policy="on_success")
    failed = texts(store, "fjords")

    good = Agent("planner", backend=testing.Script(noting, testing.say("ok")), tools=[note])
    store.thread("t2", agent=good, owner="ann").run("go", head_policy="on_success")

    assert failed == []
    assert texts(store, "fjords") == ["likes fjords"]


def test_what_a_run_wrote_counts_after_it_was_put_on_top_of_others(store: Store) -> None:
    """Its commits are made again on the line, and so is what they say about memory; there is still one item."""

    @perdure.tool(effect="none")
    def interrupt() -> str:
        """Another writer commits during the run."""
        store.thread("t1").put("/title.json", "Oslo")
        return "done"

    script = testing.Script(
        testing.use("note", name="n", text="likes fjords"), testing.use("interrupt"), testing.say("ok")
    )
    thread = store.thread("t1", agent=Agent("planner", backend=script, tools=[note, interrupt]), owner="ann")

    thread.run("go", head_policy="on_success")

    (item,) = store.memory("ann").items()
    assert item.text == "likes fjords"
    assert item.source is not None
    assert item.source.commit in [entry.digest for entry in thread.log()]
    assert thread.get("/title.json") == "Oslo"


def test_a_run_sees_what_it_wrote_on_its_own_line(store: Store) -> None:
    """Inside a run, reads see the run's own writes, whether or not a head has moved."""
    seen: list[str] = []

    @perdure.tool(effect="read_only")
    def look(call: perdure.Call) -> str:
        """Look around."""
        seen.extend(found.text for found in call.memory.search("fjords"))
        return "seen"

    script = testing.Script(
        testing.use("note", name="n", text="likes fjords"), testing.use("look"), testing.say("ok")
    )
    agent = Agent("planner", backend=script, tools=[note, look])

    store.thread("t1", agent=agent, owner="ann").run("go", head_policy="on_success")

    assert seen == ["likes fjords"]


def test_a_suspended_call_writes_nothing_and_its_second_beginning_once(store: Store) -> None:
    """What a tool added before it stopped to ask is not remembered; what it adds when it goes on is."""

    @perdure.tool(effect="local_write")
    def ask(call: perdure.Call) -> str:
        """Ask first."""
        call.memory.add("asked before", id=None)
        if call.decision is None:
            call.suspend("May I?")
        return "done"

    script = testing.Script(testing.use("ask"), testing.say("ok"))
    thread = store.thread("t1", agent=Agent("planner", backend=script, tools=[ask]), owner="ann")
    result = thread.run("go")
    waiting = texts(store, "asked")
    thread.decide(result.approvals[0].call, "approve")
    thread.resume()

    assert waiting == []
    assert texts(store, "asked") == ["asked before"]


def test_a_thread_without_owner_has_no_memory(store: Store) -> None:
    """The tool gets an error; nothing is remembered for any owner."""
    script = testing.Script(testing.use("note", name="n", text="x"), testing.say("ok"))
    thread = store.thread("t1", agent=Agent("planner", backend=script, tools=[note, drop]))

    thread.run("go")

    (call,) = thread.calls()
    assert call.state == "failed"
    assert "this thread has no owner" in str([entry.message for entry in thread.transcript()])
    assert not any(name.startswith("memory:") for name in store._resources.engine.spaces(limit=100))


def test_a_call_that_found_no_memory_is_in_nobodys_way(store: Store) -> None:
    """It was not done, so the line can be switched, and the model may do it otherwise."""
    script = testing.Script(
        testing.use("note", name="n", text="x"), testing.say("ok"), backend="openai:gpt-5.6"
    )
    thread = store.thread("t1", agent=Agent("planner", backend=script, tools=[note, drop]))
    thread.run("go")

    thread.switch(testing.Script(backend="anthropic:claude-sonnet-5-5"))

    assert thread.backend == "anthropic:claude-sonnet-5-5"
    assert store.verify().ok


@pytest.mark.parametrize("effect", ["local_write", "communication"])
def test_what_may_have_happened_before_a_missing_memory_is_unknown(store: Store, effect: Effect) -> None:
    """The control: a call that has written, or that reaches the outside, may have been done by then."""

    @perdure.tool(effect=effect)
    def tell(call: perdure.Call) -> str:
        """Tell everybody."""
        if effect == "local_write":
            call.put("/told", "yes")
        call.memory.add("told everybody")
        return "done"

    script = testing.Script(testing.use("tell"), testing.say("ok"))
    thread = store.thread("t1", agent=Agent("planner", backend=script, tools=[tell]))

    thread.run("go")

    assert [call.state for call in thread.calls()] == ["unknown"]

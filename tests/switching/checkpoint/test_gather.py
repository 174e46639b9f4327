"""The five layers of state, each with bytes of its own."""

from __future__ import annotations

from perdure import Store, testing
from perdure.projections.state import LAYERS, CanonicalAgentState
from perdure.store.view import gather
from tests.switching.checkpoint.works import Work, space_of


def state_of(work: Work) -> CanonicalAgentState:
    """The state of the thread as it stands."""
    return work.store.thread(work.id).layers()


def changed(before: CanonicalAgentState, after: CanonicalAgentState) -> set[str]:
    """The layers that differ."""
    one, other = before.digests(), after.digests()
    return {name for name in LAYERS if one[name] != other[name]}


def test_each_layer_changes_by_what_belongs_to_it_and_nothing_else(store: Store) -> None:
    """Words change the transcript, calls the ledger, /task the working memory, a question the runtime."""
    work = Work(store)
    thread = work.turn("Hello, who are you?", testing.say("A desk."))
    said = state_of(work)

    thread.put("/task/scratchpad/a.json", 1)
    noted = state_of(work)
    thread.put("/elsewhere.json", 1)
    aside = state_of(work)
    work.turn("Pay 5.", testing.use("pay", amount=5))
    asked = state_of(work)

    store.memory("ann").add("likes the sea")
    remembered = state_of(work)

    assert changed(said, noted) == {"working"}
    assert changed(noted, aside) == set()
    assert changed(aside, asked) == {"transcript", "ledger", "runtime"}
    assert changed(asked, remembered) == {"memory"}


def test_a_switch_and_its_undo_change_no_layer(store: Store) -> None:
    """Byte for byte, with something in every layer."""
    work = Work(store)
    store.memory("ann").add("likes the sea")
    work.turn("Pay 5.", testing.use("pay", amount=5))
    thread = work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))
    thread.put("/task/goal.json", "get to Oslo")
    before = state_of(work).layers()

    thread.switch(testing.Script(testing.say("Hello."), backend="script:two"))
    switched = state_of(work).layers()
    thread.undo()
    undone = state_of(work).layers()

    assert all(body not in (b"[]", b"{}") for body in before.values())
    assert switched == before
    assert undone == before


def test_runtime_state_knows_the_run_the_approval_and_the_attempt(store: Store) -> None:
    """A run that waits is there with its steps, its ticket and the call that is not settled."""
    work = Work(store)
    thread = work.turn("Pay 5.", testing.use("pay", amount=5))

    runtime = state_of(work).runtime

    assert [(run.state, run.steps, run.backend) for run in runtime.runs] == [("waiting", 1, "script:one")]
    assert runtime.approvals == tuple(ticket.id for ticket in thread.approvals())
    assert [each.state for each in runtime.attempts] == ["awaiting_approval"]


def test_a_run_that_ended_leaves_nothing_behind(store: Store) -> None:
    """The control: after the end no run, no attempt and no lock is left."""
    work = Work(store)
    work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))

    runtime = state_of(work).runtime

    assert (runtime.runs, runtime.approvals, runtime.attempts, runtime.locks) == ((), (), (), ())


def test_before_the_first_commit_every_layer_is_empty(store: Store) -> None:
    """A new thread has five empty layers."""
    thread = store.thread("new", agent="desk")

    state = gather(space_of(thread), None)

    assert state.layers() == {"transcript": b"[]", **dict.fromkeys(LAYERS[1:], b"{}")}

"""Whose turn it is: a line's backend is in its history, and a run finds what takes its steps."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Backend, Route, Store, aio
from perdure.errors import Conflict, Invalid, NotFound, OpReused, PerdureWarning, Refused, Sealed, StaleHead
from perdure.model.event import BackendSwitched, RunStarted
from perdure.testing import Script, say, use
from tests.coded import raises

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"


def agent(*texts: str, backend: str = A, name: str = "planner") -> Agent:
    """An agent that says that."""
    return Agent(name, backend=Script(*map(say, texts), backend=backend))


def test_before_any_run_it_is_the_agent_s(store: Store) -> None:
    """And nobody's where the agent has none."""
    assert store.thread("one", agent=agent()).backend == A
    assert store.thread("two", agent=Agent("bare")).backend is None


def test_editing_the_code_moves_no_thread_that_has_begun(store: Store) -> None:
    """The line's backend counts, a warning says so, and a new thread begins on the new one."""
    store.thread("old", agent=agent("Hello.", backend="local:a.gguf")).run("Hello")
    edited = agent("I am B.", backend=B)

    thread = store.thread("old", agent=edited)
    with pytest.raises(perdure.errors.PerdureError), pytest.warns(PerdureWarning) as warned:
        thread.run("Who are you?")  # there is no such file, but it is who was asked

    (warning,) = (each.message for each in warned if isinstance(each.message, PerdureWarning))
    assert warning.code == "backend_differs"
    assert warning.facts == {"agent": "planner", "thread": "old", "backend": "local:a.gguf", "declared": B}
    assert thread.backend == "local:a.gguf"
    assert store.thread("new", agent=edited).run("Who are you?").text == "I am B."


def test_a_backend_that_nobody_has_is_an_error_that_names_the_way(store: Store) -> None:
    """Nothing is run, and the line is as it was."""
    store.thread("t", agent=agent("Hello.", backend="script:gone")).run("Hello")
    thread = store.thread("t", agent=agent("Hi.", backend=B))
    before = thread.head

    with raises(Invalid, "backend_not_given", thread="t", backend="script:gone"):
        thread.run("Hello")

    assert thread.head == before
    thread.switch(Script(say("I am B."), backend=B))
    assert thread.run("Who are you?").text == "I am B."


def test_one_of_the_route_is_found_by_its_name(store: Store) -> None:
    """Without a warning: the code knows of it."""
    store.thread("t", agent=agent("Hello.", backend="script:spare")).run("Hello")
    spare = Script(say("I am the spare."), backend="script:spare")
    routed = Agent("planner", backend=Script(backend=A), route=Route([spare]))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.thread("t", agent=routed).run("Who are you?").text == "I am the spare."


def test_what_was_handed_to_a_switch_is_known_on_that_handle_and_its_forks(store: Store) -> None:
    """Another handle needs it from its agent."""
    thread = store.thread("t", agent=agent("Hello."))
    thread.run("Hello")
    thread.switch(Script(say("I am B."), say("Still B."), backend="script:b"))

    assert thread.fork("other").run("Who are you?").text == "I am B."
    with raises(Invalid, "backend_not_given", thread="t", backend="script:b"):
        store.thread("t", agent=agent()).run("Who are you?")


def test_the_same_backend_under_another_spelling_is_the_same(store: Store) -> None:
    """`gpt-5.6` means `openai:gpt-5.6`: no warning, and no switch."""
    thread = store.thread("t", agent=agent("Hello.", backend="gpt-5.6"))
    thread.run("Hello")

    report = thread.switch("openai:gpt-5.6")

    assert not report.switched
    assert "already" in report.notes[-1]
    assert store.thread("t", agent=agent("Hello.", "Again.", backend=A)).run("Hello").text


def test_a_check_says_that_nothing_has_to_be_switched(store: Store) -> None:
    """A dry run has the note that the switch itself has."""
    thread = store.thread("t", agent=agent("Hello.", backend="gpt-5.6"))
    thread.run("Hello")

    checked, done = thread.check_switch("openai:gpt-5.6"), thread.switch("openai:gpt-5.6")

    assert checked.notes == done.notes
    assert "already" in checked.notes[-1]


def test_each_run_says_who_took_it(store: Store) -> None:
    """In its first commit."""
    thread = store.thread("t", agent=agent("Hello."))
    thread.run("Hello")
    thread.switch(Script(say("I am B."), backend=B))
    thread.run("Hello")

    begun = [event for commit in thread.log() for event in commit.events if isinstance(event, RunStarted)]
    assert [event.backend for event in begun] == [B, A]


def test_the_same_op_id_switches_once(store: Store) -> None:
    """And gives the first report again; with another meaning it is refused."""
    thread = store.thread("t", agent=agent("Hello."))
    thread.run("Hello")

    first = thread.switch(Script(backend=B), reason="one", op_id="switch-1")
    thread.switch(Script(backend=A))
    again = thread.switch(Script(backend=B), reason="one", op_id="switch-1")

    assert again == first
    assert again.checkpoint is not None
    assert thread.backend == A
    with pytest.raises(OpReused):
        thread.switch(Script(backend=B), reason="two", op_id="switch-1")


@pytest.mark.parametrize("wrong", [3, None, Script, object(), ["openai:gpt-5.6"]])
def test_what_is_no_backend_is_refused(store: Store, wrong: object) -> None:
    """By name, and nothing is changed."""
    thread = store.thread("t", agent=agent())

    with raises(Invalid, "not_a_backend"):
        thread.switch(wrong)  # pyright: ignore[reportArgumentType]

    assert thread.head.version == 0


@pytest.mark.parametrize("wrong", ["", 3, "x" * 3_000, "\ud800"])
def test_a_reason_that_cannot_be_recorded_is_refused(store: Store, wrong: str) -> None:
    """Before anything is read."""
    thread = store.thread("t", agent=agent())

    with pytest.raises(Invalid):
        thread.switch(Script(backend=B), reason=wrong)


def test_an_unknown_model_of_a_known_vendor_is_refused_unless_it_is_declared(store: Store) -> None:
    """A name may be a slip; a `Backend` is taken at its word."""
    thread = store.thread("t", agent=agent())

    with raises(NotFound, "model_not_found", provider="openai", model="gpt-5-ultra"):
        thread.switch("openai:gpt-5-ultra")

    assert thread.switch(Backend("openai:gpt-5-ultra")).switched


def test_a_sealed_line_and_a_removed_thread_are_not_switched(store: Store) -> None:
    """As nothing is written there."""
    thread = store.thread("t", agent=agent("Hello."))
    thread.run("Hello")
    sealed = thread.fork("sealed")
    sealed.seal()
    with pytest.raises(Sealed):
        sealed.switch(Script(backend=B))

    thread.rm()

    with pytest.raises((StaleHead, NotFound)):
        thread.switch(Script(backend=B))


def test_a_read_only_store_can_be_asked(tmp_path: Path) -> None:
    """What a switch would cost is known without the right to make one."""
    with perdure.open(tmp_path / "agents.db") as opened:
        opened.thread("t", agent=agent("Hello.")).run("Hello")

    with perdure.open(tmp_path / "agents.db", read_only=True) as reading:
        thread = reading.thread("t", agent=agent())
        assert thread.check_switch(B).ok
        with pytest.raises(perdure.errors.PerdureError):
            thread.switch(Script(backend=B))
        assert thread.backend == A


def test_the_awaitable_face_switches_too() -> None:
    """The same names, awaited."""

    async def story() -> tuple[str | None, bool, str]:
        async with aio.open("memory:") as opened:
            thread = await opened.thread("t", agent=agent("Hello."))
            await thread.run("Hello")
            report = await thread.check_switch(B)
            await thread.switch(Script(say("I am B."), backend=B))
            result = await thread.run("Who are you?")
            assert len(await thread.switches()) == 1
            return await thread.backend, report.ok, result.text

    assert asyncio.run(story()) == (B, True, "I am B.")


def test_a_waiting_run_goes_on_with_whoever_has_the_line(store: Store) -> None:
    """Its record says who, and its calls are asked for by the new backend from then on."""

    @perdure.tool(effect="none", ask=True)
    def look() -> str:
        """Look."""
        return "seen"

    first = Script(use("look"), backend=A)
    thread = store.thread("t", agent=Agent("planner", backend=first, tools=[look]))
    (asked,) = thread.run("Look").approvals
    thread.switch(Script(say("I have seen it."), backend=B))

    thread.decide(asked.call, "approve")
    thread.resume()

    assert thread.runs()[0].backend == B


def test_a_model_s_summary_stands_beside_the_checkpoint_or_is_left_out(store: Store) -> None:
    """One that does not stand up is a note in the report, and the switch is made all the same."""
    thread = store.thread("t", agent=agent("Hello."))
    thread.run("Find me a flight to Oslo.")
    babbler = Script(say("I am a poet."), backend="script:babbler")

    report = thread.switch(Script(backend=B), summariser=babbler)

    assert report.switched
    assert report.checkpoint is not None
    assert report.checkpoint.told is None
    assert any("summary by script:babbler was left out" in note for note in report.notes)
    assert thread.checkpoints()[0].checkpoint == report.checkpoint


def test_what_the_owner_s_memory_says_of_the_task_is_named_in_the_checkpoint(store: Store) -> None:
    """By reference; another owner's is not."""
    store.memory("ann").add("Ann prefers aisle seats to Oslo", kind="preference")
    store.memory("ben").add("Ben prefers window seats to Oslo", kind="preference")
    thread = store.thread("t", agent=agent("Hello."), owner="ann")
    thread.run("Find me a seat to Oslo.")

    report = thread.switch(Script(backend=B))

    assert report.checkpoint is not None
    (reference,) = report.checkpoint.relevant_memory_refs
    assert reference.startswith("mem://")
    assert "ann" in reference


def test_a_policy_that_blocks_all_still_lets_nothing_happen(store: Store) -> None:
    """A refused switch leaves no commit, no checkpoint and no trace."""
    policy = perdure.Policy(block=["removed", "converted"])
    options = {"seed": 1}
    thread = store.thread(
        "t", agent=Agent("a", backend=Script(say("Hi."), backend=A), policy=policy, options=options)
    )
    thread.run("Hello")
    before = (thread.head, thread.checkpoints(), thread.layers().layers())

    with pytest.raises(Refused) as refused:
        thread.switch(B)
    assert isinstance(refused.value.report, perdure.Report)
    assert [item.topic for item in refused.value.report.items if item.gate == "block"] == ["options"]

    assert (thread.head, thread.checkpoints(), thread.layers().layers()) == before


def test_a_switch_is_known_when_its_report_was_forgotten(store: Store) -> None:
    """The event says who, and why; the turns go on."""
    thread = store.thread("t", agent=agent("Hello."))
    thread.run("Hello")
    thread.switch(Script(say("I am B."), backend=B), reason="cheaper")
    space = thread._space  # pyright: ignore[reportPrivateUsage]
    (named,) = [e.report for e in thread.log(limit=1)[0].events if isinstance(e, BackendSwitched)]
    assert named is not None

    space.engine.forget(
        space.name, (named,), why="the user asked", standing=space.engine.standing(space.name)
    )

    (report,) = thread.switches()
    assert (report.from_backend, report.to_backend, report.reason) == (A, B, "cheaper")
    assert "not there any more" in report.notes[0]
    assert thread.run("Who are you?").text == "I am B."


def test_another_agent_s_thread_is_not_switched(store: Store) -> None:
    """It cannot even be opened."""
    store.thread("t", agent=agent("Hello.")).run("Hello")

    with pytest.raises(Conflict):
        store.thread("t", agent=agent(name="other")).switch(B)


def test_a_switch_that_was_undone_is_forgotten_where_the_history_names_nobody(store: Store) -> None:
    """No run had begun: after the undo the agent's own backend counts again, for the very next run."""
    thread = store.thread("t", agent=agent("I am A."))
    thread.switch(Script(say("I am B."), backend=B))
    thread.undo()

    assert thread.run("Who are you?").text == "I am A."


def test_an_undone_run_moves_no_agent_that_is_declared_anew(store: Store) -> None:
    """The first run is undone, so the thread has not begun, and goes by what the code says now."""
    thread = store.thread("t", agent=agent("I am A."))
    thread.run("Hello")
    thread.undo()

    assert store.thread("t", agent=agent("I am B.", backend=B)).run("Who are you?").text == "I am B."


def test_a_model_of_the_route_is_found_by_its_name_without_its_sdk(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes steps itself: no package has to be installed that would send to its namesake."""
    monkeypatch.setattr("perdure.runtime.inference.switch.find_spec", lambda _: None)
    spare = Script(say("I am the spare."), backend=B)
    thread = store.thread("t", agent=Agent("planner", backend=Script(backend=A), route=Route([spare])))

    thread.switch(B)

    assert thread.run("Who are you?").text == "I am the spare."

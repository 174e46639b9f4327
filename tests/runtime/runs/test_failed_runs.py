"""A run fails after three of five steps, under both head policies."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, errors
from perdure.model.run import HeadPolicy
from perdure.testing import Script, fail, say, use
from tests.runtime.failing import run_fails

POLICIES: list[HeadPolicy] = ["each_step", "on_success"]


@perdure.tool(effect="external_write")
def book(flight: str, call: Call) -> str:
    """Book a flight."""
    call.put(f"/booked/{flight}.json", True)
    call.put("/last.json", flight)
    call.agent.put("/count.json", call.agent.get("/count.json", default=0) + 1)
    return f"booked {flight}"


def failed(store: Store, policy: HeadPolicy, **options: str) -> Thread:
    """A thread whose run has failed after three steps of five."""
    steps = (use("book", flight="A"), use("book", flight="B"), use("book", flight="C"), fail(), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=Script(*steps), tools=[book]))
    thread.put("/last.json", "none")
    with run_fails("ConnectionError"):
        thread.run("Book all", id="m1", head_policy=policy, **options)  # pyright: ignore[reportArgumentType]
    return thread


@pytest.mark.parametrize("policy", POLICIES)
def test_the_threads_state_is_as_after_the_input(store: Store, policy: HeadPolicy) -> None:
    """What the run wrote is not there; what was there before is."""
    thread = failed(store, policy)

    assert thread.paths("/") == ["/last.json"]
    assert thread.get("/last.json") == "none"


@pytest.mark.parametrize("policy", POLICIES)
def test_the_users_words_survive_and_the_ledger_knows(store: Store, policy: HeadPolicy) -> None:
    """Under either policy: the input is in the transcript, three calls are in the ledger."""
    thread = failed(store, policy)

    assert thread.transcript()[0].text == "Book all"
    assert [call.state for call in thread.calls()] == ["succeeded"] * 3
    assert thread.runs()[0].state == "failed"
    assert store.agent("planner").get("/count.json") == 3


def test_with_each_step_main_shows_what_happened(store: Store) -> None:
    """Messages, results and the failure stand on the line itself."""
    thread = failed(store, "each_step")

    assert [entry.role for entry in thread.transcript()] == ["user"] + ["assistant", "tool"] * 3
    assert thread.log()[0].reason == "run_finished"
    assert len(thread.turns()) == 2
    assert [hold.head.timeline for hold in thread.timelines()] == ["main"]


def test_with_on_success_the_kept_line_shows_what_happened(store: Store) -> None:
    """Main ends with the input; the run's own line, named by its record, has the rest with its state."""
    thread = failed(store, "on_success")
    assert [entry.role for entry in thread.transcript()] == ["user"]
    (line,) = [hold.head.timeline for hold in thread.timelines() if hold.head.timeline != "main"]

    kept = thread.on(line)

    assert thread.runs()[0].line == line
    assert [entry.role for entry in kept.transcript()] == ["user"] + ["assistant", "tool"] * 3
    assert kept.log()[0].reason == "run_finished"
    assert kept.paths("/booked") == ["/booked/A.json", "/booked/B.json", "/booked/C.json"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_next_run_works(store: Store, policy: HeadPolicy) -> None:
    """Its context is well-formed, and it can do what the failed one could not."""
    failed(store, policy)
    script = Script(use("book", flight="D"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[book]))

    result = thread.run("Try again", head_policy=policy)

    assert result.text == "Done."
    assert thread.get("/last.json") == "D"
    asked = [call.id for message in script.contexts[0].messages for call in message.tool_calls]
    answered = [each.call_id for message in script.contexts[0].messages for each in message.tool_results]
    assert asked == answered
    assert store.verify().ok


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_failed_run_sent_is_not_sent_again_unasked(store: Store, policy: HeadPolicy) -> None:
    """On main the history holds it, so it is the model's business; on the kept line it is elsewhere: the guard asks."""
    failed(store, policy)
    script = Script(use("book", flight="A"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[book]))

    result = thread.run("Try again")

    assert result.status == ("succeeded" if policy == "each_step" else "waiting")


def test_on_failure_keep_leaves_the_state(store: Store) -> None:
    """A control: whoever asks for it keeps what the run wrote."""
    thread = failed(store, "each_step", on_failure="keep")

    assert thread.get("/last.json") == "C"


def test_what_others_wrote_meanwhile_stays(store: Store) -> None:
    """Only paths that the run wrote last go back."""

    @perdure.tool(effect="read_only")
    def mixed(call: Call) -> str:
        call.put("/both.json", "run")
        call.put("/own.json", "run")
        return "written"

    @perdure.tool(effect="read_only")
    def visited() -> str:
        other = store.thread("trip")
        other.put("/theirs.json", "web")
        other.put("/both.json", "web")
        return "visited"

    script = Script(use("mixed"), use("visited"), fail())
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[mixed, visited]))

    with pytest.raises(errors.RunFailed):
        thread.run("go")

    assert {path: thread.get(path) for path in thread.paths("/")} == {
        "/both.json": "web",
        "/theirs.json": "web",
    }


@pytest.mark.parametrize("policy", POLICIES)
def test_the_error_names_the_run_and_the_cause(store: Store, policy: HeadPolicy) -> None:
    """Whoever catches it has the run's id, why it failed, and the cause itself."""
    script = Script(fail(ValueError("boom")))
    thread = store.thread("trip", agent=Agent("planner", backend=script))

    with pytest.raises(errors.RunFailed) as caught:
        thread.run("go", head_policy=policy)

    run = caught.value.run
    assert isinstance(run, perdure.Result)
    assert (run.status, run.kind, run.run) == ("failed", "ValueError", thread.runs()[0].id)
    assert isinstance(caught.value.__cause__, ValueError)

"""The logger `perdure`: what a person on call reads, without content, and nothing where nobody asked for it."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Policy, Retry, Route, Store
from perdure.errors import NotDone, RunFailed
from perdure.testing import Script, fail, say, use
from tests.forked import commands

SECRET = "sk-SECRET-of-the-customer"


@pytest.fixture
def store(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Store]:
    """An empty store, with the log at INFO."""
    caplog.set_level(logging.INFO, "perdure")
    with perdure.open(tmp_path / "store.db") as opened:
        yield opened


@perdure.tool(effect="external_write")
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The level and the words of each entry of this package."""
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name.partition(".")[0] == "perdure"
    ]


def test_a_run_says_when_it_starts_and_how_it_ends(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """With its id, thread, timeline and backend; a failure is a warning."""
    agent = Agent("clerk", backend=Script(say("Done."), backend="script:one"))

    result = store.thread("t", agent=agent).run("go")
    with pytest.raises(RunFailed) as failed:
        store.thread("t", agent=agent).run("again")

    told = lines(caplog)
    assert ("INFO", f"run {result.run} of t on main started with script:one") in told
    assert ("INFO", f"run {result.run} of t: succeeded") in told
    assert any(level == "WARNING" and failed.value.run.run in words for level, words in told)  # pyright: ignore[reportAttributeAccessIssue]
    assert caplog.get_records("setup")[-1].getMessage().startswith("opened ")


def test_a_call_whose_outcome_is_not_known_is_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has to look after it."""

    @perdure.tool(effect="external_write")
    def pay() -> str:
        """Pay."""
        raise ConnectionError("the line went dead")

    thread = store.thread("t", agent=Agent("clerk", backend=Script(use("pay"), say("Hm.")), tools=[pay]))
    thread.run("go")

    (call,) = thread.calls()
    assert call.state in ("unknown", "needs_human")
    assert ("WARNING", f"the outcome of call {call.id} of pay is unknown") in lines(caplog)


def test_an_error_of_a_tool_is_a_warning_with_its_place(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The model is told of it and goes on, so the log says where the fault is; the words of the error stay out."""

    @perdure.tool(effect="read_only")
    def save() -> None:
        """Save."""
        "a".startswith(SECRET, SECRET)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

    thread = store.thread("t", agent=Agent("clerk", backend=Script(use("save"), say("Hm.")), tools=[save]))
    result = thread.run("go")

    (call,) = thread.calls()
    (words,) = [words for level, words in lines(caplog) if level == "WARNING"]
    first, place = words.splitlines()
    assert (result.status, result.calls, result.failed_calls) == ("succeeded", 1, (call.id,))
    assert first == f"call {call.id} of save raised TypeError"
    assert place == f'  File "{__file__}", line {save.function.__code__.co_firstlineno + 3}, in save'


def test_no_content_is_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Not what a user said, nor arguments, results, answers, state or the words of an error, at any level."""
    caplog.set_level(logging.DEBUG, "perdure")
    script = Script(use("send", text=SECRET), say(f"I sent {SECRET}"))
    thread = store.thread("t", agent=Agent("clerk", backend=script, tools=[send]))

    thread.run(f"Send {SECRET}")
    thread.put("/secret.json", SECRET)
    with pytest.raises(RunFailed):
        thread.run(f"Once more: {SECRET}")
    store.verify()

    assert len(lines(caplog)) >= 5
    assert SECRET not in caplog.text


def test_switches_failovers_and_retries_are_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A failover is a warning, with the reason by its kind."""
    attempts: list[int] = []

    @perdure.tool(effect="read_only", retry=Retry(attempts=2, delay=0.0))
    def look() -> str:
        """Look."""
        attempts.append(1)
        if len(attempts) == 1:
            raise NotDone("busy")
        return "seen"

    broken = Script(fail(), backend="script:broken")
    agent = Agent(
        "clerk",
        backend=broken,
        tools=[look],
        route=Route(fallbacks=[Script(use("look"), say("Done."), backend="script:spare")]),
        policy=Policy(),
    )

    thread = store.thread("t", agent=agent)
    result = thread.run("go")
    thread.switch(Script(say("Hello."), backend="script:third"))

    told = lines(caplog)
    assert ("WARNING", f"run {result.run} goes on from script:broken with script:spare: error") in told
    assert any("of look is tried again after attempt 1" in words for _, words in told)
    assert ("INFO", "t on main switched to script:third") in told


def test_the_checks_of_a_store_are_logged(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """With their number of faults."""
    store.verify()

    assert any(words.startswith("verified ") and words.endswith(": 0 faults") for _, words in lines(caplog))


FAILING = """
import perdure
from perdure import Agent
from perdure.testing import Script
with perdure.open("memory:") as store:
    try:
        store.thread("t", agent=Agent("clerk", backend=Script(backend="script:x"))).run("go")
    except perdure.errors.RunFailed:
        print("failed")
"""


VERIFYING = """
import perdure
with perdure.open("store.db") as store:
    print(len(store.verify().faults))
"""


def test_no_fault_is_printed_where_nobody_asked_for_it(store: Store, tmp_path: Path) -> None:
    """As no failure is, also in a program that runs nothing, and on the command line; control: with a handler it is."""
    store.thread("t", agent=Agent("clerk", backend=Script(say("Done.")))).run("Buy some milk")
    store.close()
    with sqlite3.connect(tmp_path / "store.db") as behind:
        behind.execute("UPDATE log SET bodies = replace(bodies, 'milk', 'fish')")
    behind.close()

    # Not of the fork server, which has loaded what runs agents.
    quiet, typed, loud = [
        subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        for words in (
            ["-c", VERIFYING],
            ["-m", "perdure", "verify", "--store", "store.db"],
            ["-c", f"import logging; logging.basicConfig()\n{VERIFYING}"],
        )
    ]

    assert (quiet.stdout, quiet.stderr) == ("1\n", "")
    assert (typed.returncode, typed.stderr) == (6, "")
    assert loud.stderr.endswith("ERROR:perdure.store:verified store.db: 1 fault\n")


def test_nothing_is_printed_where_nobody_asked_for_it() -> None:
    """A program without a handler gets no line, not even of a failure; with one, the control, it gets it."""
    quiet = commands().run(["-c", FAILING], check=True)
    loud = commands().run(["-c", f"import logging; logging.basicConfig()\n{FAILING}"], check=True)

    assert (quiet.stdout, quiet.stderr) == ("failed\n", "")
    assert "WARNING:perdure.runs:run " in loud.stderr

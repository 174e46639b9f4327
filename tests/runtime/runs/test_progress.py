"""`call.progress` reaches those who watch the run in this process, costs no write, and is throttled."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import Agent, Call
from perdure.runtime.events import CallProgress, Happening
from perdure.testing import Script, say, use


def told(events: list[Happening]) -> list[tuple[float | None, str]]:
    """Return the progress in a stream."""
    return [
        (each.fraction, each.message)
        for each in events
        if isinstance(each, CallProgress) and each.state == "running"
    ]


def worker(reports: int) -> Agent:
    """Return an agent whose tool reports so often, and then the end."""

    @perdure.tool(effect="none")
    def work(call: Call) -> str:
        """Work."""
        for number in range(reports):
            call.progress(number / reports, f"part {number}")
        call.progress(1, "all parts")
        return "done"

    return Agent("a", backend=Script(use("work"), say("Done.")), tools=[work])


def test_a_watcher_is_told_the_beginning_and_the_end(tmp_path: Path) -> None:
    """A thousand reports in a moment are a few words: the first, and always the last."""
    with perdure.open(tmp_path / "agents.db") as store:
        events = list(store.thread("t", agent=worker(1000)).stream("go"))

    found = told(events)
    assert found[0] == (0.0, "part 0")
    assert found[-1] == (1.0, "all parts")
    assert len(found) < 500


def test_progress_costs_no_write(tmp_path: Path) -> None:
    """A run that reports writes exactly what one writes that does not."""
    with perdure.open(tmp_path / "agents.db") as store:
        versions = []
        for name, agent in (("quiet", worker(0)), ("loud", worker(200))):
            thread = store.thread(name, agent=agent)
            thread.run("go")
            versions.append((thread.head.version, len(thread.log())))

    assert versions[0] == versions[1]


def test_a_fraction_is_kept_between_0_and_1_and_words_are_cut(tmp_path: Path) -> None:
    """A tool that miscounts shows no 130 %, one that reports no number fails, and a novel is no message."""

    @perdure.tool(effect="none")
    def work(call: Call) -> str:
        """Work."""
        call.progress(1.3, "x" * 10_000)
        call.progress(float("nan"))
        return "done"

    agent = Agent("a", backend=Script(use("work"), say("Done.")), tools=[work])
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        ((fraction, message),) = told(list(thread.stream("go")))
        (call,) = thread.calls()

    assert (fraction, len(message)) == (1.0, 500)
    assert call.state == "failed"


def test_progress_after_the_call_reaches_no_watcher(tmp_path: Path) -> None:
    """A thread of the tool that still runs cannot report for a call that is over."""
    kept: list[Call] = []

    @perdure.tool(effect="none")
    def work(call: Call) -> str:
        """Keep the handle."""
        kept.append(call)
        return "done"

    agent = Agent("a", backend=Script(use("work"), say("Done.")), tools=[work])
    with perdure.open(tmp_path / "agents.db") as store:
        stream = store.thread("t", agent=agent).stream("go")
        seen: list[Happening] = []
        for event in stream:
            if kept:
                kept[0].progress(0.5, "late")
            seen.append(event)

    assert told(seen) == []

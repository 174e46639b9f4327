"""`perdure threads context`: a table and a bar for people, the same as data for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.testing import Script, say
from tests.context.lines import asked, planner, questions, script_of
from tests.surfaces.shell import Shell


@pytest.fixture
def trip(empty: Shell) -> Shell:
    """A shell in a directory with a thread of fifteen turns."""
    with perdure.open(empty.store) as store:
        asked(store, planner(*questions(15), backend="openai:gpt-5.6"), 15)
    return empty


def test_the_next_step_is_planned_for_the_line_s_own_backend(trip: Shell) -> None:
    """All of it is shown, with the instructions and the tools of the last step."""
    ended = trip("threads", "context", "trip")

    assert ended.code == 0
    assert "openai:gpt-5.6  trip on main" in ended.out
    assert "all of it fits" in ended.out
    assert "search, book" in ended.out


def test_another_backend_would_be_shown_the_last_turns(trip: Shell) -> None:
    """The older ones are out, and it says why."""
    ended = trip("threads", "context", "trip", "--to", "anthropic:claude-sonnet-5-5", "--json")

    items = ended.json["items"]
    assert [item["what"] for item in items if not item["included"]] == ["turns 1–3, the rest"]
    assert sum(1 for item in items if item["tier"] == 4) == 12
    assert ended.json["fits"] is True


def test_a_past_step_is_made_again(empty: Shell) -> None:
    """`--at` names the commit in which the model spoke, and gives what it was shown."""
    agent = planner(*questions(3), backend="openai:gpt-5.6")
    with perdure.open(empty.store) as store:
        thread = asked(store, agent, 3)
        commit = next(entry.commit for entry in thread.transcript() if entry.text.startswith("Answer 1"))
    wanted = [message.text for message in script_of(agent).contexts[3].messages if message.text]

    ended = empty("threads", "context", "trip", "--at", commit, "--json")

    said = [
        block["text"]
        for message in ended.json["context"]["messages"]
        for block in message["content"]
        if block["type"] == "text"
    ]
    assert ended.json["commit"] == commit
    assert said == wanted


def test_a_line_on_which_nobody_spoke_says_what_to_do(empty: Shell) -> None:
    """There is nothing to make again, and no backend to plan for."""
    with perdure.open(empty.store) as store, store.thread("t", agent="a").change("x") as change:
        change.say("user", "Hello")

    past, now = empty("threads", "context", "t", "--at", "HEAD"), empty("threads", "context", "t")

    assert past.code == 3
    assert "no model has spoken" in past.err
    assert now.code == 2
    assert "Name one" in now.err


def test_an_unknown_backend_is_named(trip: Shell) -> None:
    """What names no backend is a mistake, not a plan."""
    ended = trip("threads", "context", "trip", "--to", "gpt-nothing")

    assert ended.code == 2
    assert "gpt-nothing" in ended.err


def test_it_fits_eighty_columns(trip: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of the table is longer than the terminal."""
    monkeypatch.setenv("COLUMNS", "80")

    ended = trip("threads", "context", "trip", "--to", "local:smollm2")

    assert max(len(line) for line in ended.out.splitlines()) <= 80
    assert "█" in ended.out
    assert "kept for the answer" in ended.out


def test_the_store_is_not_written(trip: Shell) -> None:
    """The file is the same, byte for byte."""
    before = Path(trip.store).read_bytes()

    trip("threads", "context", "trip", "--to", "google:gemini-2.5-pro")

    assert Path(trip.store).read_bytes() == before
    assert json.loads(trip("threads", "log", "trip", "--json").out)


def test_the_words_of_memory_and_of_the_task_are_shown(empty: Shell) -> None:
    """At 80 columns, and whole for programs; an item that was not found for the input, the control, is not there."""
    with perdure.open(empty.store) as store:
        held = store.memory("ann")
        held.add("likes seats: by the window", id="seat")
        held.add("is allergic to nuts", id="nuts")
        agent = Agent("planner", backend=Script(say("Noted.")))
        thread = store.thread("trip", agent=agent, owner="ann")
        thread.put("/task/goal.json", "Oslo")
        thread.run("Which seats?")

    printed = empty.ok("threads", "context", "trip", "--at", "HEAD").out
    items = empty.ok("threads", "context", "trip", "--at", "HEAD", "--json").json["items"]

    assert '"likes seats: by the window" (seat)' in printed
    assert '/task/goal.json: "Oslo"' in printed
    assert "nuts" not in printed
    assert {item["what"]: item["text"] for item in items if item["tier"] == 5} == {
        "mem://user/ann/seat": '"likes seats: by the window"'
    }

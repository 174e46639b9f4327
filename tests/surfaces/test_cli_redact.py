"""`perdure threads redact`: what it says, what it asks, and how a thread looks afterwards."""

from __future__ import annotations

import pytest

import perdure
from tests.surfaces.pty_session import PtySession
from tests.surfaces.shell import Shell

CODE = "The door code is 4711-XK."


@pytest.fixture
def told(empty: Shell) -> Shell:
    """A store in which a user has said a code, in two threads."""
    with perdure.open(empty.store) as store:
        for name in ("home", "work"):
            with store.thread(name, agent="desk").change("say") as change:
                change.say("user", CODE, id=f"message-at-{name}")
                change.say("assistant", "Noted.")
    return empty


def test_a_message_is_redacted_and_the_other_place_is_named(told: Shell) -> None:
    """The log says by whom and why; `verify` is well."""
    shown = told.ok("threads", "redact", "home", "message-at-home", "--why", "a code").out

    assert "Redacted message message-at-home of home: 1 object" in shown
    assert "thread 'work'  message message-at-work" in shown
    log = told.ok("threads", "log", "home").out
    assert "[A person has redacted this message.]" in log
    assert "a code)" in log
    assert "1 object redacted" in told.ok("verify").out
    assert CODE not in told.ok("export", "home", "--format", "openai-chat").out


def test_a_dry_run_changes_nothing(told: Shell) -> None:
    """It has the same shape for programs."""
    planned = told.ok(
        "threads", "redact", "home", "message-at-home", "--why", "a code", "--dry-run", "--json"
    ).json

    assert (planned["dry_run"], planned["objects"], planned["messages"]) == (True, 1, ["message-at-home"])
    assert [(each["place"], each["id"]) for each in planned["elsewhere"]] == [
        ("thread 'work'", "message-at-work")
    ]
    assert CODE in told.ok("threads", "log", "home").out


def test_words_can_come_from_the_input(told: Shell) -> None:
    """So that they are in no history of a shell; the place that has them is another one."""
    told.ok("memory", "add", "The cat is called Mr. Whiskers", "--owner", "ann", "--id", "cat")

    found = told.ok(
        *(
            "threads",
            "redact",
            "home",
            "message-at-home",
            "--why",
            "a code",
            "--dry-run",
            "--words",
            "-",
            "--json",
        ),
        stdin=b"Whiskers\n",
    ).json

    assert [(each["what"], each["id"]) for each in found["elsewhere"]] == [("memory", "cat")]


@pytest.mark.parametrize(("word", "code", "is_there"), [("no", 5, True), ("yes", 0, False)])
def test_on_a_terminal_the_person_is_asked(told: Shell, word: str, code: int, is_there: bool) -> None:
    """A no leaves everything as it is."""
    with PtySession(
        told.directory, "threads", "redact", "home", "message-at-home", "--why", "a code"
    ) as session:
        session.wait_for("yes or no?")
        session.type(f"{word}\n")
        assert session.ended() == code

    assert (CODE in told.ok("threads", "log", "home").out) is is_there


def test_a_message_and_a_call_are_named_by_a_part(house: Shell) -> None:
    """As everywhere on the command line; control: a part that fits none is refused."""
    call = house.ok("calls", "show", "house", "id-0007", "--json").json["call"]["id"]

    refused = house("threads", "redact", "house", "nothing-like-it", "--why", "x", "--json")
    unsettled = house("threads", "redact", "house", call[-7:], "--why", "x", "--json")

    assert refused.error["code"] == "redaction_not_found"
    assert unsettled.error["code"] == "call_not_settled"


def test_show_and_search_have_the_redaction_for_programs(told: Shell) -> None:
    """When, by whom and why; null for the other message."""
    told.ok("threads", "redact", "home", "message-at-home", "--why", "a code")

    first, second = told.ok("threads", "show", "home", "--json").json["messages"]

    assert first["redacted"]["of"] == "message-at-home"
    assert first["redacted"]["why"] == "a code"
    assert second["redacted"] is None
    assert told.ok("threads", "search", "4711-XK", "--thread", "home", "--json").json["found"] == []

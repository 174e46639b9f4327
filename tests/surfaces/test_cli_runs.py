"""Runs on the command line: what is there, going on, stopping, and following."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import perdure
from perdure.testing import Script, say
from tests.surfaces import paying
from tests.surfaces.paying import CODE, payer
from tests.surfaces.shell import Shell


def run_of(shell: Shell) -> str:
    """The id of the only run."""
    return shell.ok("runs", "--json").json["runs"][0]["id"]


def test_open_runs_of_all_threads_are_listed(house: Shell) -> None:
    """`perdure runs` shows what is under way, cut off or waiting, and names the thread."""
    shown = house.ok("runs").out
    told = house.ok("runs", "--json").json

    assert "house" in shown
    assert "waiting" in shown
    assert [(each["thread"], each["state"]) for each in told["runs"]] == [("house", "waiting")]
    assert told["runs"][0]["id"] in shown


def test_a_run_whose_approval_is_decided_says_so(house: Shell) -> None:
    """It still waits, but for nobody: it can be resumed."""
    (before,) = house.ok("runs", "--json").json["runs"]
    (asked,) = house.ok("approvals", "--json").json["approvals"]
    house.ok("approvals", "deny", "house", asked["call"])

    (after,) = house.ok("runs", "ls", "house", "--json").json["runs"]

    assert (before["state"], before["decided"]) == ("waiting", False)
    assert (after["state"], after["decided"]) == ("waiting", True)
    assert "waiting, decided" in house.ok("runs").out


def test_runs_of_a_thread_are_filtered(house: Shell) -> None:
    """By state and by timeline; the singular is accepted."""
    assert len(house.ok("run", "ls", "house", "--json").json["runs"]) == 1
    assert house.ok("runs", "ls", "house", "--state", "failed", "--json").json["runs"] == []
    assert "has no timeline 'other'" in house("runs", "ls", "house", "--timeline", "other").err
    assert "There is no run here" in house.ok("runs", "ls", "house", "--state", "failed").out


def test_without_runs_there_is_a_sentence(shell: Shell) -> None:
    """Not an empty screen."""
    assert "No run is under way" in shell.ok("runs").out
    assert "There is no run here" in shell.ok("runs", "ls", "shopping").out
    assert shell("runs", "show", "shopping").code == 3


def test_a_run_is_shown_with_its_words_and_calls(house: Shell) -> None:
    """The last one, if none is named; it says how to decide."""
    shown = house.ok("runs", "show", "house").out
    told = house.ok("runs", "show", "house", run_of(house), "--json").json

    assert "Pay the roofer and the cat." in shown
    assert f"perdure approvals show house {told['calls'][0]['id']}" in shown
    assert [call["state"] for call in told["calls"]] == ["awaiting_approval", "needs_human"]
    assert told["calls"][0]["arguments"] == {"to": "roofer", "amount": 5000}
    assert [message["role"] for message in told["messages"]] == ["user", "assistant", "tool"]


def test_a_run_that_is_not_there_is_not_found(house: Shell) -> None:
    """With the ids that are close."""
    near = run_of(house)[:-1] + "x"

    for verb in (
        ["show", "house", near],
        ["cancel", "house", near],
        ["resume", "house", near, "--code", CODE],
    ):
        ended = house("runs", *verb)

        assert ended.code == 3
        assert f"Did you mean '{run_of(house)}'?" in ended.err


def test_a_run_that_was_cut_off_says_so_and_goes_on(bread: Shell) -> None:
    """What its tool had done is found by asking, and not done again."""
    listed = bread.ok("runs", "--json").json["runs"][0]
    shown = bread.ok("runs", "show", "bread").out

    ended = bread("runs", "resume", "bread", "--code", CODE, "--json")

    assert (listed["state"], listed["interrupted"]) == ("running", True)
    assert "interrupted" in shown
    assert f"perdure runs resume bread {listed['id']} --code MODULE:NAME" in shown
    assert ended.json["status"] == "succeeded"
    assert ended.json["run"] == listed["id"]
    assert paying.sent == []
    assert bread.ok("calls", "ls", "bread", "--json").json["calls"][0]["attempt"] == 1


def test_suggested_commands_name_the_store_that_was_named(bread: Shell) -> None:
    """So that they can be copied as they are."""
    after = bread.ok("runs", "show", "bread", "--store", "perdure.db").out
    before = bread.ok("--store=perdure.db", "runs", "show", "bread").out

    assert "--code MODULE:NAME --store perdure.db" in after
    assert before == after


def test_a_run_that_still_waits_is_left_as_it_is(house: Shell) -> None:
    """Resuming it says what it waits for."""
    ended = house.ok("runs", "resume", "house", "--code", CODE)

    assert "waiting" in ended.out
    assert "1 approval open: perdure approvals show house" in ended.out
    assert paying.sent == ["cat 13"]


def test_a_run_that_fails_on_resuming_ends_with_1(house: Shell) -> None:
    """The error stream says what happened; scripts see the code."""
    call = house.ok("approvals", "--json").json["approvals"][0]["call"]
    house.ok("approvals", "approve", "house", call)
    broken = Path("broken.py")
    broken.write_text(
        "from tests.surfaces.paying import payer\nfrom perdure.testing import Script, fail\n"
        "agent = payer.on(Script(fail(), fail(), fail()))\n"
    )

    ended = house("runs", "resume", "house", "--code", "broken:agent")

    assert ended.code == 1
    assert "receipt for roofer" in ended.out  # what was shown before it failed
    assert "RunFailed" in ended.err
    assert house.ok("runs", "ls", "house", "--json").json["runs"][0]["state"] == "failed"


def test_nothing_to_resume_is_not_found(shell: Shell) -> None:
    """A thread without an open run has nothing to go on with."""
    helper = Path("helper_app.py")
    helper.write_text("import perdure\nhelper = perdure.Agent('helper')\n")

    ended = shell("runs", "resume", "shopping", "--code", "helper_app:helper")

    assert ended.code == 3


def test_a_waiting_run_is_cancelled_at_once(house: Shell) -> None:
    """Its approval is not open any more; the same again changes nothing."""
    ended = house.ok("runs", "cancel", "house", "--why", "moved out")
    told = house.ok("runs", "show", "house", "--json").json["run"]

    assert "Cancelled: run" in ended.out
    assert (told["state"], told["cancel"]) == ("cancelled", "moved out")
    assert house.ok("approvals", "ls", "house", "--json").json["approvals"] == []
    assert house.ok("runs", "cancel", "house", told["id"]).out == ended.out


def test_a_run_that_has_ended_is_not_cancelled(bread: Shell) -> None:
    """It stays what it is, and that is said."""
    bread("runs", "resume", "bread", "--code", CODE)
    run = bread.ok("runs", "ls", "bread", "--json").json["runs"][0]["id"]

    ended = bread.ok("runs", "cancel", "bread", run)

    assert "has ended before: succeeded" in ended.out


def test_a_cancelled_run_leaves_what_it_had_started_unknown(bread: Shell) -> None:
    """Cancelling after the start is not failing."""
    bread.ok("runs", "cancel", "bread")

    told = bread.ok("calls", "--json").json["calls"]

    assert [(each["thread"], each["state"]) for each in told] == [("bread", "unknown")]


def test_a_line_with_a_cut_off_run_is_busy(bread: Shell) -> None:
    """A conflict, in the words of the shell."""
    ended = bread("threads", "undo", "bread")

    assert ended.code == 4
    assert (
        "`perdure runs resume bread --code MODULE:NAME` finishes it, `perdure runs cancel bread` ends it."
        in ended.err
    )


def test_what_was_committed_is_followed_from_a_cursor(house: Shell) -> None:
    """Each event once and in order, as JSON one a line."""
    with perdure.open(house.store) as store:
        thread = store.thread("house", agent=payer)
        started = next(iter(thread.log()[::-1])).digest
        cursor = f"0.0.{started}"

    lines = [
        json.loads(line)
        for line in house.ok("threads", "follow", "house", "--after", cursor, "--json").out.splitlines()
    ]
    rest = house.ok("threads", "follow", "house", "--after", lines[2]["cursor"], "--json").out.splitlines()

    assert [json.loads(line) for line in rest] == lines[3:]
    assert {"message.appended", "tool.call.suspended", "committed"} <= {line["type"] for line in lines}
    assert lines[-1]["type"] == "committed"


def test_people_follow_words_and_commits(house: Shell) -> None:
    """A line for each; without a cursor only what happens from now on, which is nothing here."""
    with perdure.open(house.store, read_only=True) as store:
        first = store.thread("house").log()[-1].digest

    shown = house.ok("threads", "follow", "house", "--after", f"0.0.{first}").out

    assert "Pay the roofer and the cat." in shown
    assert "tool.call.suspended" in shown
    assert house.ok("threads", "follow", "house").out == ""


def test_a_cursor_of_another_thread_is_not_found(house: Shell) -> None:
    """Nothing is followed."""
    ended = house("threads", "follow", "house", "--after", "0.0." + "0" * 64)

    assert ended.code == 3
    assert "nothing was followed" in ended.err


def test_the_next_run_is_waited_for(house: Shell) -> None:
    """`--wait` prints what another process makes durable, until it is interrupted."""
    with perdure.open(house.store) as store:
        thread = store.thread("house", agent=payer.on(Script(say("Hello."))))
        cursor = list(thread.follow(after=f"0.0.{thread.log()[-1].digest}"))[-1].cursor
        words = ["threads", "follow", "house", "--wait", "--json", "--after", cursor]
        # Whoever runs the tests in the background may have them ignore Ctrl-C.
        heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        command = [sys.executable, "-c", f"{heard}; from perdure.cli import main; main({words!r})"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as follower:
            assert follower.stdout is not None
            thread.run("Hello?")
            seen = [json.loads(line)["type"] for line in islice(follower.stdout, 6)]
            follower.send_signal(signal.SIGINT)
            rest = follower.communicate()

    assert seen.count("message.appended") == 2
    assert "run.finished" in seen + [json.loads(line)["type"] for line in rest[0].splitlines()]
    assert follower.returncode == 130
    assert json.loads(rest[1])["error"] == "Interrupted"

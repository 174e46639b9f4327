"""Copying on the command line: what it says, what it refuses, and what is held until it is released."""

from __future__ import annotations

import re
import sqlite3

import pytest

from tests.engines.postgres.stores import new_store
from tests.surfaces.paying import CODE
from tests.surfaces.shell import Shell
from tests.surfaces.test_cli_terminal import typed


def test_a_store_is_copied_and_says_what_is_held(house: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command to release it can be typed as it is shown; no line is wider than the screen."""
    monkeypatch.setenv("COLUMNS", "80")

    shown = house.ok("copy", "perdure.db", "other.db").out
    again = house.ok("copy", "perdure.db", "other.db").out

    assert "Copied perdure.db to other.db: " in shown
    assert "Both are equal, and the copy is intact" in shown
    assert "perdure runs release --all --store other.db" in shown
    assert "is a copy of perdure.db already" in again
    assert max(map(len, shown.splitlines())) <= 80
    assert house.ok("verify", "--store", "other.db", "--json").json["ok"]


def test_the_answer_in_json_counts_what_was_copied(bread: Shell) -> None:
    """With the calls that are unknown in the copy."""
    told = bread.ok("copy", "perdure.db", "other.db", "--json").json

    assert (told["source"], told["target"], told["threads"]) == ("perdure.db", "other.db", ["bread"])
    assert (told["unknown"], told["leases"], told["resumed"], told["complete_before"]) == (1, 1, False, False)
    assert told["writes"] > told["spaces"] > 1
    assert told["checked"]["commit"] >= 1


def test_a_held_thread_is_not_resumed_or_decided_before_its_release(house: Shell) -> None:
    """The error says what to type, and typing it helps."""
    house.ok("copy", "perdure.db", "other.db")
    other = ("--store", "other.db")
    (asked,) = house.ok("approvals", "--json", *other).json["approvals"]

    refused = house("approvals", "deny", "house", asked["call"], *other)

    assert refused.code == 5
    assert "perdure runs release house --store other.db" in refused.err
    assert house("approvals", "deny", "house", asked["call"], "--json", *other).error["code"] == "held"
    assert "Released: house" in house.ok("runs", "release", "house", *other).out
    house.ok("approvals", "deny", "house", asked["call"], *other)
    assert house("runs", "resume", "house", "--code", CODE, "--json", *other).json["status"] == "succeeded"
    assert "Nothing was held" in house.ok("runs", "release", "--all", *other).out


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("runs", "approvals show"),
        ("runs show house", "approvals show"),
        ("approvals show house", "approvals approve"),
        ("approvals ls", "approvals approve"),
        ("threads show house", "runs resume"),
        (f"work --until-idle --code {CODE}", "runs resume"),
    ],
)
def test_listings_say_that_a_thread_is_held(house: Shell, words: str, refused: str) -> None:
    """And name the command that releases it, not one that would be refused; after it nothing is said."""
    house.ok("copy", "perdure.db", "other.db")
    command = (*words.split(), "--store", "other.db")
    release = "perdure runs release house --store other.db"

    held = house.ok(*command).out
    house.ok("runs", "release", "house", "--store", "other.db")
    released = house.ok(*command).out

    assert "held" in held
    assert release in held
    assert f"perdure {refused}" not in held
    assert "held" not in released
    assert release not in released


def test_an_interrupted_run_is_held_too(bread: Shell) -> None:
    """Of two stores only one may go on with it."""
    bread.ok("copy", "perdure.db", "other.db")

    refused = bread("runs", "resume", "bread", "--code", CODE, "--store", "other.db")

    assert refused.code == 5
    assert "perdure runs release bread --store other.db" in refused.err
    assert bread("runs", "resume", "bread", "--code", CODE, "--json").json["status"] == "succeeded"


def test_the_doctor_tells_of_held_threads(house: Shell) -> None:
    """Where they came from, and how they are released."""
    house.ok("copy", "perdure.db", "other.db")

    shown = house.ok("doctor", "--store", "other.db").out

    assert "Runs and approvals of 1 thread copied from perdure.db are held." in shown
    assert "perdure runs release --all --store other.db" in shown
    assert "copied from" not in house.ok("doctor").out


def test_nothing_is_said_of_threads_where_nothing_is_open(house: Shell) -> None:
    """A copied thread without open runs and approvals has nothing to release, and the counts leave it out."""
    house.ok("threads", "begin", "idle", "--agent", "helper")
    house.ok("state", "put", "idle", "/n.json", "2")
    other = ("--store", "other.db")

    copied = house.ok("copy", "perdure.db", "other.db").out
    released = house.ok("runs", "release", "house", *other).out

    assert "Runs and approvals of 1 thread are held in the copy: the original" in copied
    assert "held" not in house.ok("threads", "show", "idle", *other).out
    assert "still held" not in released
    assert "copied from" not in house.ok("doctor", *other).out


def test_a_run_that_is_queued_in_a_held_thread_says_what_it_waits_for(house: Shell) -> None:
    """No worker begins it before the release; control: in the original nothing is held, and it says so of none."""
    house.ok("copy", "perdure.db", "other.db")
    other = ("--store", "other.db")

    held, free = (house.ok("runs", "start", "house", "Hello.", *where).out for where in (other, ()))
    worked = house.ok("work", "--code", CODE, "--until-idle", *other)
    queued = house.ok("runs", "--json", *other).json["runs"]

    assert "Runs and approvals of 'house' are held" in " ".join(held.split())
    assert "perdure runs release house --store other.db" in held
    assert "held" not in free
    assert "created" in {each["state"] for each in queued}, worked


@pytest.mark.parametrize(
    "words",
    [
        ("threads", "show", "shopping"),
        ("runs", "start", "shopping", "Flour"),
        ("restore", "night.db", "--replace"),
        ("runs", "release", "shopping"),
    ],
)
def test_before_a_release_people_learn_to_compare(shell: Shell, words: tuple[str, ...]) -> None:
    """What was queued when the backup was made may be done in the original since, and would be done again."""
    shell.ok("runs", "start", "shopping", "Pay")
    shell.ok("backup", "night.db")
    shell.ok("restore", "night.db", "--store", "restored.db")

    ended = shell(*words, "--store", "restored.db")

    assert "perdure compare ORIGINAL" in ended.out + ended.err


def test_a_release_of_all_names_the_threads_where_something_was_open(house: Shell) -> None:
    """The others are counted, and the thread of the server's own records is not; in JSON each has its id."""
    house.ok("threads", "begin", "idle", "--agent", "helper")
    house.ok("state", "put", "idle", "/n.json", "2")
    house.ok("keys", "add", "phone", "--role", "viewer")
    house.ok("copy", "perdure.db", "other.db")
    house.ok("copy", "perdure.db", "third.db")

    shown = house.ok("runs", "release", "--all", "--store", "other.db").out
    told = house.ok("runs", "release", "--all", "--store", "third.db", "--json").json

    assert shown.splitlines() == [
        "Released: house",
        "Released: 1 other thread in which nothing was open.",
        "See what the original has more: perdure compare ORIGINAL --store other.db",
    ]
    assert {"house", "idle"} <= set(told["threads"])
    assert told["open"] == ["house"]


def test_a_thread_is_copied_into_another_store(shell: Shell) -> None:
    """And only once."""
    shell.ok("init", "other.db")
    shell.ok("threads", "begin", "mine", "--agent", "helper", "--store", "other.db")

    told = shell.ok("copy", "perdure.db", "other.db", "--thread", "shopping", "--json").json

    assert told["threads"] == []  # nothing is open there
    left = shell.ok("threads", "log", "shopping", "--json").json
    assert shell.ok("threads", "log", "shopping", "--json", "--store", "other.db").json == left


def test_a_store_moves_to_a_server_and_back(house: Shell, request: pytest.FixtureRequest) -> None:
    """With a bar for a person who looks; what waits for an approval is held there until it is released."""
    server, key = new_store(request), ("house", "--json", "--store")

    shown, code = typed(house.directory, "copy", "perdure.db", server, columns=200)

    assert code == 0
    assert re.search(r"Copying .*100%", shown)
    assert "Both are equal, and the copy is intact" in shown
    assert house.ok("verify", "--store", server, "--json").json["ok"]
    (asked,) = house.ok("approvals", "--json", "--store", server).json["approvals"]
    denied = ("approvals", "deny", "house", asked["call"], "--store", server)
    assert house(*denied, "--json").error["code"] == "held"
    house.ok("copy", server, "back.db")
    logs = [house.ok("threads", "log", *key, store).json for store in ("perdure.db", server, "back.db")]
    assert logs[0] == logs[1] == logs[2]
    house.ok("runs", "release", "house", "--store", server)
    house.ok(*denied)


def test_refusals_say_what_to_do_and_make_nothing(shell: Shell) -> None:
    """Each is one line, with the exit code of its kind."""
    shell.ok("init", "other.db")
    shell.ok("threads", "begin", "mine", "--agent", "helper", "--store", "other.db")

    full = shell("copy", "perdure.db", "other.db", "--json")
    itself = shell("copy", "perdure.db", "./perdure.db", "--json")
    absent = shell("copy", "nowhere.db", "new.db", "--json")
    mistyped = shell("copy", "perdure.db", "new.db", "--thread", "shoping", "--json")
    nothing = shell("runs", "release", "--json")

    assert (full.code, full.error["code"]) == (4, "target_not_empty")
    assert (itself.code, itself.error["code"]) == (2, "copy_onto_itself")
    assert (absent.code, absent.error["code"]) == (3, "store_not_found")
    assert (mistyped.code, mistyped.error["code"]) == (3, "thread_not_found")
    assert "nothing was copied" in mistyped.error["message"]
    assert mistyped.error["hint"] == "See what the source has with `perdure threads ls --store perdure.db`."
    assert (nothing.code, nothing.error["code"]) == (2, "release_of_what")
    elsewhere = shell("copy", "other.db", "new.db", "--thread", "shopping", "--json")
    assert "`perdure threads ls --store other.db`" in elsewhere.error["hint"]
    assert not (shell.directory / "new.db").exists()


def test_what_is_sound_of_a_damaged_store_is_copied(shell: Shell) -> None:
    """The error names the thread and makes nothing; with --sound the rest is copied, and what is missing is named."""
    shell.ok("threads", "begin", "notes", "--agent", "helper")
    shell.ok("state", "put", "notes", "/x.json", "1")
    with sqlite3.connect(shell.store) as broken:
        broken.execute("UPDATE log SET bodies = replace(bodies, 'milk', 'fish')")
    broken.close()

    refused = shell("copy", "perdure.db", "new.db")
    made = (shell.directory / "new.db").exists()
    copied = shell.ok("copy", "perdure.db", "new.db", "--sound").out

    assert (refused.code, made) == (6, False)
    assert "thread 'shopping' in perdure.db is damaged; nothing was copied." in refused.err
    assert "Left out" in copied
    assert "thread 'shopping'" in copied
    assert [each["id"] for each in shell.ok("threads", "--json", "--store", "new.db").json["threads"]] == [
        "notes"
    ]


def test_a_copy_that_would_leave_out_everything_fails(shell: Shell) -> None:
    """It makes no empty store; the way out that the error names works."""
    with sqlite3.connect(shell.store) as broken:
        broken.execute("UPDATE log SET bodies = replace(bodies, 'carrots', 'onions!')")
    broken.close()

    ended = shell("copy", "perdure.db", "new.db", "--sound", "--json")
    taken = shell("export", "shopping", "--format", "openai-chat", "--at", "turn:2")

    assert (ended.code, ended.error["code"]) == (6, "nothing_sound")
    assert not (shell.directory / "new.db").exists()
    assert taken.code == 0
    assert "eggs" in taken.out


def test_a_copy_compares_equal_to_its_source(house: Shell) -> None:
    """Also in what is beside threads: maps of agents and memories."""
    house.ok("memory", "add", "prefers tea", "--owner", "ann")
    house.ok("copy", "perdure.db", "other.db")

    told = house.ok("compare", "perdure.db", "other.db", "--json").json

    assert (told["same"], told["differing"]) == (True, [])
    assert (told["counts"]["thread"], told["counts"]["memory"]) == (1, 1)
    assert "✓ Both hold the same" in house.ok("compare", "other.db").out


def test_stores_that_differ_are_compared_by_thread_and_timeline(shell: Shell) -> None:
    """Which has more, which moved its head, which has a line of its own; the exit code is 1."""
    shell.ok("copy", "perdure.db", "other.db")
    other = ("--store", "other.db")
    shell.ok("threads", "begin", "new", "--agent", "helper")
    shell.ok("state", "put", "shopping", "/x", "1")
    shell.ok("threads", "undo", "shopping", "--timeline", "what-if", *other)
    shell.ok("threads", "fork", "shopping", "side", *other)
    shell.ok("memory", "add", "prefers tea", "--owner", "ann", *other)

    ended = shell("compare", "perdure.db", "other.db", "--json")

    assert ended.code == 1
    assert {(each["kind"], each["name"], each["timeline"]): each["relation"] for each in ended.json["differing"]} == {
        ("thread", "new", "main"): "only_a",
        ("thread", "shopping", "main"): "a_ahead",
        ("thread", "shopping", "what-if"): "moved",
        ("thread", "shopping", "side"): "only_b",
        ("memory", "ann", "main"): "only_b",
    }  # fmt: skip


def test_stores_that_went_on_apart_have_each_more(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both heads are shown, whole words at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    shell.ok("copy", "perdure.db", "other.db")
    shell.ok("state", "put", "shopping", "/x", "1")
    shell.ok("state", "put", "shopping", "/x", "2", "--store", "other.db")

    ended = shell("compare", "perdure.db", "other.db")

    assert re.search(r"shopping +main +each has more +[0-9a-f]{12} +[0-9a-f]{12}\n", ended.out)
    assert max(map(len, ended.out.splitlines())) <= 80

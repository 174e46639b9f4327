"""The commands about a store as a whole: init, verify, doctor, backup, gc and sql."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from contextlib import closing
from itertools import count
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent
from perdure.cli.output.screen import Screen, console
from perdure.cli.output.verified import Verified
from perdure.engines.contract import CellWrite, Write
from perdure.engines.sqlite import open_sqlite
from perdure.model.digest import Digest
from perdure.shapes.store import FaultShape
from perdure.testing import Script, say
from tests.surfaces.shell import BEGAN, Shell


def damage(store: Path) -> None:
    """Change one letter of a stored message, behind everybody's back."""
    content = store.read_bytes()
    assert b"Please put milk" in content
    store.write_bytes(content.replace(b"Please put milk", b"Please put mild", 1))


def test_init_makes_a_store_once(empty: Shell) -> None:
    """A second time it says so and changes nothing."""
    made = empty.ok("init", "--json").json
    before = empty.store.read_bytes()

    again = empty.ok("init", "--json").json

    assert made == {"store": "./perdure.db", "made": True}
    assert again["made"] is False
    assert empty.store.read_bytes() == before
    assert empty.ok("threads", "--json").json["threads"] == []
    assert "There is no thread here" in empty.ok("threads").out


def test_init_takes_a_path(empty: Shell) -> None:
    """As a word, or as `--store`."""
    empty.ok("init", "a.db")
    empty.ok("init", "--store", "b.db")

    assert (empty.directory / "a.db").exists()
    assert (empty.directory / "b.db").exists()
    assert not empty.store.exists()


def test_init_leaves_other_files_alone(empty: Shell) -> None:
    """A file that is no store is reported as what it is, and stays as it is."""
    empty.store.write_bytes(b"These are my notes, and no database. " * 100)

    ended = empty("init")

    assert ended.code == 2
    assert empty.store.read_bytes().startswith(b"These are my notes")
    with closing(sqlite3.connect(empty.directory / "theirs.db")) as other, other:
        other.execute("create table t (x)")
    assert empty("init", "theirs.db").code == 2


def test_verify_says_that_a_store_is_intact(shell: Shell) -> None:
    """With how much was looked at."""
    verified = shell.ok("verify", "--json").json

    assert verified["ok"] is True
    assert verified["checked"]["commit"] == 6
    assert "✓" in shell.ok("verify").out


def test_verify_says_that_an_empty_store_has_nothing_in_it(empty: Shell) -> None:
    """In words, where a store with threads, the control, has numbers."""
    empty.ok("init")

    assert empty.ok("verify").out == "✓ ./perdure.db is intact: nothing is stored in it yet.\n"


def test_faults_that_differ_in_numbers_alone_are_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One damaged page makes many of them; control: another fault, and the same one elsewhere, have lines of their own."""
    rows = [("a", 40, 1), ("a", 41, 2), ("b", 42, 3), ("a", 43, 4)]
    faults = [
        FaultShape(
            space=f"thread:{space}",
            place=f"thread '{space}'",
            kind="commit",
            what=f"row {row} of the log jumps to a row that is not its ancestor",
            digest=f"{number:064x}",
            name=None,
        )
        for space, row, number in rows
    ]
    other = msgspec.structs.replace(faults[0], what="it names an object, which is missing")
    monkeypatch.setenv("COLUMNS", "200")
    found = Verified(
        store="a.db", ok=False, faults=[*faults, other], checked={"commits": 9}, unchecked=0, unnamed=0,
        written=0, partial=0, forgotten=0, redacted=0,
    )  # fmt: skip

    found.show(Screen(console()))

    lines = " ".join(capsys.readouterr().out.split()).split("✗ ")[1:]
    assert len(lines) == 4
    assert lines[0].endswith("its ancestor (and 2 more like it) ")
    assert "thread 'b'" in lines[1]
    assert "which is missing" in lines[2]
    assert "a.db has 5 faults" in lines[3]


def test_verify_names_what_was_changed_behind_our_back(shell: Shell) -> None:
    """It ends with 6, and reading the message fails closed."""
    damage(shell.store)

    verified = shell("verify", "--json")
    shown = shell("verify")

    assert verified.code == shown.code == 6
    assert verified.json["ok"] is False
    (fault, *_) = verified.json["faults"]
    assert fault["kind"] == "body"
    assert fault["digest"][:12] in shown.out
    assert re.search(r"[0-9a-f]{64}", shown.out) is None
    assert "perdure verify" not in shown.out + verified.out
    assert f"has {len(verified.json['faults'])} fault" in shown.out
    assert shell("threads", "log", "shopping").code == 6


def test_restoring_a_damaged_backup_names_the_backup(shell: Shell) -> None:
    """The command that is advised checks the backup, not the store that was to be made."""
    shell.ok("backup", "b.db")
    damage(shell.directory / "b.db")

    ended = shell("restore", "b.db", "--store", "new.db")

    assert ended.code == 6
    assert "`perdure verify --store b.db`" in " ".join(ended.err.split())
    assert "new.db" not in ended.err
    assert ".;" not in ended.err


def test_verify_can_look_at_one_space(shell: Shell) -> None:
    """For a large store, of which one thread is in doubt."""
    spaces = shell.ok("sql", "select name from spaces where name like 'thread:%'", "--json").json["rows"]

    verified = shell.ok("verify", "--space", spaces[0][0], "--json").json

    assert verified["checked"]["space"] == 1


def test_verify_names_threads_by_their_ids(shell: Shell) -> None:
    """A fault names the thread that it is in, --space takes the id of a thread, and the answer says what was checked."""
    with perdure.open(shell.store) as store:
        store.thread("other", agent="helper").put("/a.json", 1)
    with sqlite3.connect(shell.store) as damaged:
        damaged.execute("UPDATE log SET bodies = replace(bodies, 'milk', 'fish')")
    damaged.close()

    told = shell("verify")
    sound = shell.ok("verify", "--space", "other").out
    fault = shell("verify", "--space", "shopping", "--json").json["faults"][0]

    assert (told.code, "thread 'shopping', turn 1 of 'main'" in told.out, "thread:" in told.out) == (
        6,
        True,
        False,
    )
    assert "Intact in ./perdure.db: other;" in sound
    assert fault["place"].startswith("thread 'shopping', turn 1 of 'main', commit ")
    assert shell("verify", "--space", "nothing", "--json").error["code"] == "space_not_found"


def test_verify_goes_on_where_it_ended(shell: Shell) -> None:
    """The file says how far the store is sound; an answer that covers only the rest says so."""
    first = shell.ok("verify", "--save", "points.json", "--json").json
    with perdure.open(shell.store) as store:
        store.thread("shopping").put("/later.json", 1)

    second = shell.ok("verify", "--since", "points.json", "--save", "points.json", "--json").json
    third = shell.ok("verify", "--since", "points.json")

    assert (first["partial"], first["checked"]["commit"]) == (0, 6)
    assert (second["partial"] > 0, second["checked"]["commit"]) == (True, 1)
    assert "only what came since the saved point was read" in third.out
    assert shell.ok("verify", "--json").json["checked"]["commit"] == 7


def test_verify_refuses_points_that_are_not_as_they_were_saved(shell: Shell) -> None:
    """A missing file, another file, and one that was edited."""
    shell.ok("verify", "--save", "points.json")
    points = shell.directory / "points.json"
    points.write_bytes(points.read_bytes().replace(b'"standing":', b'"standing":1'))

    assert shell("verify", "--since", "points.json").code == 6
    assert shell("verify", "--since", "nowhere.json").code == 3
    assert shell("verify", "--since", "perdure.db").code == 6
    assert shell("verify", "--save", "no/such/directory/points.json").code == 7


@pytest.mark.parametrize("file", ["perdure.db", "notes.txt", "empty.txt"])
def test_verify_saves_over_nothing_but_points(shell: Shell, file: str) -> None:
    """`--save` once replaced whatever stood there: a store, or notes.  The file is refused and stays as it was."""
    (shell.directory / "notes.txt").write_text("Buy milk.")
    (shell.directory / "empty.txt").touch()
    before = (shell.directory / file).read_bytes()

    ended = shell("verify", "--save", file, "--json")

    assert (shell.directory / file).read_bytes() == before
    assert (ended.code, ended.error["code"]) == (2, "file_exists")
    shell.ok("threads", "--json")


def test_verify_finds_a_store_that_was_put_back(shell: Shell) -> None:
    """An older copy is sound by itself; the saved points tell that it is older."""
    shell.ok("backup", "older.db")
    with perdure.open(shell.store) as store:
        store.thread("shopping").put("/later.json", 1)
    shell.ok("verify", "--save", "points.json")

    ended = shell("verify", "--store", "older.db", "--since", "points.json", "--json")

    assert shell.ok("verify", "--store", "older.db", "--json").json["ok"] is True
    assert ended.code == 6
    assert {fault["kind"] for fault in ended.json["faults"]} == {"point"}


def test_doctor_tells_store_surroundings_and_limits(shell: Shell) -> None:
    """Versions, settings, sizes and free space; and it changes nothing."""
    before = shell.store.read_bytes()

    examined = shell.ok("doctor", "--json").json

    assert examined["facts"]["engine"] == "sqlite"
    assert examined["facts"]["journal"] == "wal"
    assert examined["limits"]["value_bytes_max"] == 1024 * 1024
    assert examined["disk_free"] > 0
    assert any(name.endswith("perdure.db") for name in examined["files"])
    assert examined["advice"] == []
    assert shell.store.read_bytes() == before
    assert "100 MiB" in shell.ok("doctor").out


def test_doctor_says_what_could_be_better(shell: Shell) -> None:
    """What an interrupted backup and a removed thread left behind."""
    (shell.directory / "copy.db.partial").write_bytes(b"half")
    shell.ok("threads", "rm", "shopping")

    advice = " ".join(each["what"] for each in shell.ok("doctor", "--json").json["advice"])

    assert "copy.db.partial" in advice
    assert "1 removed thread" in advice
    assert "perdure gc --removed" in shell.ok("doctor").out
    assert "What is stored was not read; to check it: perdure verify" in shell.ok("doctor").out


def test_doctor_tells_of_changes_that_were_interrupted(shell: Shell) -> None:
    """Control: a writer that died between its two writes has left one in the outbox."""
    with closing(sqlite3.connect(shell.store)) as database:
        (found,) = database.execute(
            "SELECT s.name, c.name, revision FROM cells c JOIN spaces s ON s.id=space WHERE c.name LIKE 'outbox/%' LIMIT 1"
        )
    left = CellWrite(name=found[1], expected=found[2], value=b'{"depth":0}', listed=True)
    with closing(open_sqlite(shell.store, read_only=False, create=False, durability="power_loss")) as engine:
        engine.apply(Write(space=found[0], op_id="op", intent=Digest("0" * 64), cells=(left,)))

    advice = shell.ok("doctor", "--json").json["advice"]

    assert "interrupted" in advice[0]["what"]


def test_doctor_examines_a_store_that_cannot_be_opened(empty: Shell) -> None:
    """It says why, and ends with the code of that error."""
    empty.store.write_bytes(b"not a store\0" * 1000)
    (empty.directory / "letter.txt").write_text("not a store " * 1000)

    damaged = empty("doctor", "--json")
    foreign = empty("doctor", "--json", "--store", "letter.txt")
    missing = empty("doctor", "--store", "nowhere.db")

    assert (damaged.code, foreign.code, missing.code) == (6, 2, 3)
    assert "letter.txt is not a Perdure store: it is a text file" in foreign.json["error"]
    assert "not a Perdure store" in damaged.json["error"]
    assert "cannot be opened" in missing.out


def test_a_backup_is_a_store_that_verifies(shell: Shell) -> None:
    """It says how large it is and that it was checked."""
    copied = shell.ok("backup", "copy.db", "--json").json

    assert copied["size"] == (shell.directory / "copy.db").stat().st_size
    assert copied["verified"]["ok"] is True
    original = shell.ok("threads", "log", "shopping", "--json").json
    assert shell.ok("threads", "log", "shopping", "--json", "--store", "copy.db").json == original


def test_a_backup_is_consistent_while_others_write(shell: Shell) -> None:
    """What was acknowledged before it began is in it, and it verifies."""
    stop = threading.Event()
    with perdure.open(shell.store) as store:
        thread = store.thread("shopping")

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                thread.put("/busy.json", number)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            before = thread.head.version
            copied = shell.ok("backup", "copy.db", "--json").json
        finally:
            stop.set()
            writer.join()

    assert copied["verified"]["ok"] is True
    copy = shell.ok("threads", "show", "shopping", "--store", "copy.db", "--json").json
    assert copy["head"]["version"] >= before


def test_a_backup_never_overwrites(shell: Shell) -> None:
    """A file that exists is a conflict; a directory that does not is told."""
    (shell.directory / "mine.db").write_bytes(b"mine")

    assert shell("backup", "mine.db").code == 4
    assert (shell.directory / "mine.db").read_bytes() == b"mine"
    assert shell("backup", "no/such/place.db").code == 3
    assert shell("backup", "copy.db", "--store", "nowhere.db").code == 3
    assert "not checked" in shell.ok("backup", "copy.db", "--no-verify").out


def test_a_backup_of_a_damaged_store_says_so(shell: Shell) -> None:
    """The copy is as damaged as the store, and the command does not end with 0."""
    damage(shell.store)

    assert shell("backup", "copy.db").code == 6


def test_words_that_gc_forgets_are_in_no_file(shell: Shell) -> None:
    """The search index of a memory has the words too, and goes with them."""
    with perdure.open(shell.store, clock=count(BEGAN - 10**12).__next__) as store:
        memory = store.memory("ann")
        for words in ("likes fjords", "likes zeppelins"):
            memory.add(words)
        assert memory.search("zeppelins")
        control = _files_with(shell.directory, b"zeppelin")
        memory.undo()
        memory.add("likes lakes")

    shell.ok("gc", "--undone-older-than", "0d", "--apply")

    assert len(control) > 1
    assert _files_with(shell.directory, b"zeppelin") == []


def _files_with(directory: Path, word: bytes) -> list[Path]:
    return [each for each in directory.rglob("*") if each.is_file() and word in each.read_bytes()]


def test_gc_keeps_everything_without_a_policy(shell: Shell) -> None:
    """It lists the policies there are, and refuses to apply none."""
    shell.ok("threads", "undo", "shopping")

    assert "--undone-older-than" in shell.ok("gc").out
    assert shell.ok("gc", "--json").json["spaces"] == []
    assert shell("gc", "--apply").code == 2
    assert shell("gc", "--undone-older-than", "soon").code == 2


@pytest.mark.parametrize(
    ("age", "days"),
    [("12h", 0.5), ("36h", 1.5), ("90m", 0.0625), ("30d", 30), ("4w", 28), ("1y", 365)],
)
def test_the_age_of_a_policy_is_given_in_minutes_to_years(shell: Shell, age: str, days: float) -> None:
    """Each unit counts."""
    asked = shell.ok("gc", "--undone-older-than", age, "--json").json

    assert asked["policy"] == {"undone_after_days": days}


@pytest.mark.parametrize(
    "words",
    ["gc --undone-older-than 30", "gc --threads-older-than 30 --apply", "memory add x --owner ann --keep 30"],
)
def test_a_duration_without_a_unit_is_refused_with_one(shell: Shell, words: str) -> None:
    """The control is the same command with the unit that the advice names."""
    refused = shell(*words.split(), "--json")

    assert (refused.code, refused.error["code"]) == (2, "duration_invalid")
    assert "30d" in refused.error["hint"]
    shell.ok(*words.replace("30", "30d").split())


def test_gc_by_age_names_the_threads_that_go_and_those_that_stay(shell: Shell) -> None:
    """A dry run says why each stays; `--apply` removes what is idle, and a fork's own content."""
    with perdure.open(shell.directory / "perdure.db") as store:
        idle = store.thread("idle", agent=Agent("a", backend=Script(say("Hi."))))
        idle.run("hello")
        idle.fork("idea").put("/own.json", "x" * 500)
        store.thread("busy", agent=Agent("a")).start("later")

    dry = shell.ok("gc", "--threads-older-than", "0d", "--json").json
    shown = shell.ok("gc", "--threads-older-than", "0d").out
    forks = shell.ok("gc", "--timelines-older-than", "0d", "--apply", "--json").json
    done = shell.ok("gc", "--threads-older-than", "0d", "--apply", "--json").json

    counted = {each["thread"]: (each["objects"], each["whole"]) for each in dry["spaces"]}
    assert f"all {counted['shopping'][0]}" in shown
    assert f"Would forget {dry['objects']} objects" in shown
    assert counted["busy"] == (0, False)
    assert dry["objects"] == counted["idle"][0] + counted["shopping"][0]
    assert min(counted["idle"][0], dry["bytes"]) > 0
    goes = {each["thread"]: each["left_alone"] is None for each in dry["spaces"]}
    assert goes == {"idle": True, "shopping": True, "busy": False}
    assert "busy it stays: run" in " ".join(shown.split())
    assert (forks["spaces"][0]["why"], forks["objects"] > 0) == ("old timelines", True)
    assert forks["spaces"][0]["name"] == "idle"
    assert sorted(each["thread"] for each in done["spaces"]) == ["idle", "shopping"]
    assert [each["id"] for each in shell.ok("threads", "ls", "--json").json["threads"]] == ["busy"]
    assert shell.ok("verify", "--json").json["ok"] is True


def test_a_dropped_timeline_is_named_by_gc_and_marked_in_its_thread(shell: Shell) -> None:
    """`rm --timeline` touches nothing else; the plan and the list of timelines show its state.

    List and graph leave it out, and say so.
    """
    shell.ok("threads", "fork", "shopping", "idea")
    shell.ok("state", "put", "shopping", "/idea.json", "1", "--timeline", "idea")
    marks = [_marks(shell)]

    told = shell.ok("threads", "rm", "shopping", "--timeline", "idea").out
    marks.append(_marks(shell))
    shown = shell.ok("gc", "--removed").out
    (planned,) = shell.ok("gc", "--removed", "--json").json["spaces"]
    shell.ok("gc", "--removed", "--apply")
    marks.append(_marks(shell))

    assert [each["idea"] for each in marks] == [None, "dropped", "forgotten"]
    assert {each["main"] for each in marks} == {None}
    assert "perdure gc --removed --apply" in told
    assert "timeline idea" in " ".join(shown.split())
    assert planned["timelines"] == ["idea"]
    assert "forgotten" in shell.ok("threads", "show", "shopping", "--dropped").out
    for command in (("show", "shopping"), ("log", "shopping", "--graph")):
        seen = shell.ok("threads", *command)
        assert "idea" not in seen.out
        assert "1 dropped timeline is left out; --dropped shows all." in " ".join(seen.out.split())
        assert "idea" in shell.ok("threads", *command, "--dropped").out
    (listed,) = shell.ok("threads", "--json").json["threads"]
    assert listed["timelines"] == list(marks[-1].values()).count(None) == len(marks[-1]) - 1
    assert shell("threads", "log", "shopping", "--dropped").code == 2
    assert shell("state", "get", "shopping", "/todos.json").code == 0


def _marks(shell: Shell) -> dict[str, str | None]:
    """What became of each timeline."""
    return {
        each["timeline"]: each["removal"]
        for each in shell.ok("threads", "show", "shopping", "--dropped", "--json").json["timelines"]
    }


def test_gc_says_for_how_long_in_the_unit_of_the_policy(shell: Shell) -> None:
    """A policy of seconds is not told as a part of a day."""
    with perdure.open(shell.directory / "perdure.db", clock=lambda: 1) as store:
        thread = store.thread("old", agent="a")
        fork = thread.fork("idea")
        thread.put("/a.json", 1)
        fork.put("/b.json", 2)

    shell.ok("gc", "--timelines-older-than", "1s", "--apply")

    failed = shell("state", "get", "old", "/b.json", "--timeline", "idea")
    assert "for 1 second" in failed.err


def test_gc_says_why_the_old_main_of_a_promotion_is_still_kept(shell: Shell) -> None:
    """When a promotion was made is known by the first commit after it; that commit lets the old line go."""
    shell.ok("threads", "promote", "shopping", "what-if")
    policy = ("gc", "--timelines-older-than", "0d")

    kept = shell.ok(*policy).out
    shell.ok("state", "put", "shopping", "/later.json", "1")

    assert "an old main until main has a commit" in " ".join(kept.split())
    assert shell.ok(*policy, "--json").json["objects"] > 0


def test_gc_names_the_bytes_of_its_dry_run(empty: Shell) -> None:
    """What was set free as stored is less, and said apart; a check tells what is gone from what it read."""
    with perdure.open(empty.store) as store:
        thread = store.thread("list", agent="helper")
        for number in range(3):
            thread.put("/item.json", "milk " * 100 + str(number))

    dry = empty.ok("gc", "--superseded-older-than", "0d", "--json").json
    done = empty.ok("gc", "--superseded-older-than", "0d", "--apply", "--json").json
    checked = empty.ok("verify", "--json").json

    assert (done["objects"], done["bytes"]) == (dry["objects"], dry["bytes"])
    assert dry["freed"] is None
    assert 0 < done["freed"] < done["bytes"]
    assert (checked["forgotten"], checked["checked"]["value"]) == (done["objects"], 1)


def test_a_log_says_which_states_were_forgotten(empty: Shell) -> None:
    """What was said is there as before; a value that is gone is not taken for one that was removed."""
    with perdure.open(empty.store) as store:
        thread = store.thread("list", agent="helper")
        for item in ("milk", "eggs", "bread"):
            with thread.change(f"add {item}") as change:
                change.say("user", f"We need {item}.")
                change.put("/item.json", item * 100)

    dry = empty.ok("gc", "--superseded-older-than", "0d").out
    empty.ok("gc", "--superseded-older-than", "0d", "--apply")
    logged = empty.ok("threads", "log", "list").out
    turns = empty.ok("threads", "turns", "list", "--json").json["turns"]
    values = empty.ok("state", "log", "list", "/item.json", "--json").json["versions"]

    assert "superseded values" in dry
    assert all(f"We need {item}." in logged for item in ("milk", "eggs", "bread"))
    assert logged.count("the state before or after it was forgotten") == 3  # the third: that before it
    assert logged.count("~ /item.json") == 3
    assert [turn["forgotten"] for turn in turns] == [True, True, True]
    assert [(each["forgotten"], each["preview"] is None) for each in values] == [
        (False, False),
        *[(True, True)] * 2,
    ]
    assert empty("threads", "bisect", "list", "--path", "/item.json", "--exists", "--json").code == 3
    assert empty.ok("verify", "--json").json["ok"] is True


def test_a_value_that_is_still_held_is_not_called_forgotten(empty: Shell) -> None:
    """It was written at a moment that is gone, and a later state has it; the value before it is gone."""
    with perdure.open(empty.store) as store:
        thread = store.thread("trip", agent="helper")
        for total in (10, 20):
            thread.put("/total.json", total)
        thread.put("/other.json", 1)
        thread.put("/other.json", 2)
    empty.ok("gc", "--superseded-older-than", "0d", "--apply")

    versions = empty.ok("state", "log", "trip", "/total.json", "--json").json["versions"]
    turns = empty.ok("threads", "turns", "trip", "--json").json["turns"]

    assert [(each["preview"], each["forgotten"]) for each in versions] == [("20", False), (None, True)]
    assert [each["changed"] for each in turns][-1] == [{"path": "/other.json", "what": "written"}]


def test_the_error_of_a_forgotten_moment_says_which_can_be_read(empty: Shell) -> None:
    """It names the path, the turn and the oldest turn since which moments are there."""
    with perdure.open(empty.store) as store:
        thread = store.thread("trip", agent="helper")
        for total in (10, 20, 30):
            with thread.change("count") as change:
                change.say("user", "Count on.")
                change.put("/total.json", total)
    empty.ok("gc", "--superseded-older-than", "0d", "--apply")

    gone = empty("state", "get", "trip", "/total.json", "--at", "turn:1", "--json").error

    assert gone["error"] == "Forgotten"
    assert gone["message"].startswith("/total.json at turn 1 (commit ")
    assert gone["hint"].startswith("On 'main' moments since turn 3 (commit ")


def test_gc_says_first_and_does_it_only_when_told(shell: Shell) -> None:
    """A dry run changes nothing; what is forgotten is then forgotten, and the store still verifies."""
    shell.ok("threads", "undo", "shopping", "--to", "turn:1")
    undone = shell.ok("threads", "show", "shopping", "--at", "version:3", "--json").json["commit"]
    shell.ok("state", "put", "shopping", "/new.json", "1")

    planned = shell.ok("gc", "--undone-older-than", "0d", "--json").json
    assert shell("state", "get", "shopping", "/todos.json", "--at", undone).code == 0
    done = shell.ok("gc", "--undone-older-than", "0d", "--apply", "--json").json

    assert (planned["applied"], done["applied"]) == (False, True)
    assert planned["objects"] == done["objects"] > 0
    gone = shell("state", "get", "shopping", "/todos.json", "--at", undone, "--json")
    assert (gone.code, gone.error["error"]) == (3, "Forgotten")
    shell.ok("verify")
    assert "Nothing to forget" in shell.ok("gc", "--undone-older-than", "0d").out


def test_gc_forgets_removed_threads(shell: Shell) -> None:
    """Whole, and only those."""
    shell.ok("threads", "begin", "kept", "--agent", "helper")
    shell.ok("state", "put", "kept", "/a", "1")
    shell.ok("threads", "rm", "shopping")

    planned = shell.ok("gc", "--removed").out
    counted = shell.ok("gc", "--removed", "--json").json["objects"]
    done = shell.ok("gc", "--removed", "--apply", "--json").json

    assert 0 < counted == done["objects"]
    assert "--apply" in planned
    assert [space["why"] for space in done["spaces"]] == ["removed"]
    assert done["bytes"] > 0
    shell.ok("state", "get", "kept", "/a")
    shell.ok("verify")


def test_sql_lists_what_can_be_asked(shell: Shell) -> None:
    """The views with their columns, and examples that work."""
    told = shell.ok("sql", "--json").json

    views = {view["name"]: view["columns"] for view in told["views"]}
    assert views["state_commits"] == ["hash", "snapshot_hash", "parent_hash"]
    assert {"conversations", "conversation_events", "tool_events", "state_values"} <= set(views)
    for example in told["examples"]:
        assert shell.ok("sql", example, "--json").json["rows"]


def test_sql_shows_wide_rows_as_blocks(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A column a line, whole, within 80 columns; rows that fit, the control, are a table."""
    monkeypatch.setenv("COLUMNS", "80")
    wide = "select 'a' as first, hash, parent_hash, null as absent from state_commits limit 2"
    hashes = [row[1] for row in shell.ok("sql", wide, "--json").json["rows"]]

    blocks = shell.ok("sql", wide).out
    table = shell.ok("sql", "select 'a' as first, 'b' as second").out

    assert [line.split() for line in blocks.splitlines()[:3]] == [
        ["row", "1"],
        ["first", "a"],
        ["hash", hashes[0]],
    ]
    assert blocks.count("absent") == 2
    assert max(map(len, blocks.splitlines())) <= 80
    assert table.splitlines()[0].split() == ["first", "second"]


def test_sql_answers_as_a_table_or_as_json(shell: Shell) -> None:
    """What is packed is unpacked, bytes are hex, and a long answer is cut short."""
    values = shell.ok("sql", "select content from state_values where content like '%bread%'", "--json").json
    assert values["rows"] == [['["milk","eggs","bread"]']]

    odd = shell.ok("sql", "select x'00ff' as blob, null as nought, 1.5 as number", "--json").json
    assert odd == {"columns": ["blob", "nought", "number"], "rows": [["00ff", None, 1.5]], "more": False}
    shown = shell.ok("sql", "select id, agent_id from conversations").out
    assert shown.splitlines() == ["id        agent_id", "shopping  helper", "1 row."]
    assert shell.ok("sql", "select 1 union all select 2", "--limit", "1", "--json").json["more"] is True


@pytest.mark.parametrize(
    "statement",
    [
        "delete from log",
        "drop table log",
        "insert into meta values ('x', 1)",
        "selec",
        "pragma user_version=9",
    ],
)
def test_sql_writes_nothing(shell: Shell, statement: str) -> None:
    """Whatever is asked, the store stays as it is."""
    before = shell.store.read_bytes()

    ended = shell("sql", statement)

    assert ended.code in (0, 2)
    assert shell.store.read_bytes() == before
    shell.ok("verify")


def test_sql_takes_one_statement(shell: Shell) -> None:
    """A second one is refused, because nobody would see its answer; a comment is none."""
    ended = shell("sql", "select 1; select 2")

    assert ended.code == 2
    assert "more than one statement" in ended.err
    assert shell.ok("sql", "select 1; -- that is all\n /* really */ ;", "--json").json["rows"] == [[1]]


def test_a_store_that_cannot_be_used_is_told_by_its_cause(empty: Shell) -> None:
    """A directory in its place is no store, stays a directory, and gets nothing beside it."""
    os.mkdir(empty.store)

    ended = empty("threads")

    assert ended.code == 3
    assert "is a directory" in ended.err
    assert empty.store.is_dir()
    assert [each.name for each in empty.store.parent.iterdir()] == [empty.store.name]


def test_nothing_is_left_beside_a_file_that_is_no_store(empty: Shell) -> None:
    """Not even the lock file."""
    empty.store.write_bytes(b"a shopping list")

    ended = empty("init")

    assert ended.code == 2
    assert "Choose another path" in ended.err
    assert [each.name for each in empty.store.parent.iterdir()] == [empty.store.name]


def test_sizes_are_shown_by_thread_and_kind(shell: Shell) -> None:
    """The largest first; without the option nothing is added up."""
    shell.ok("state", "put", "shopping", "/big.json", '"' + "x" * 50_000 + '"')

    sizes = shell.ok("doctor", "--size", "--json").json["sizes"]
    shown = shell.ok("doctor", "--size").out

    assert sizes[0]["name"] == "shopping"
    assert sizes[0]["kinds"]["value"] > 50_000
    assert sizes[0]["bytes"] == sum(sizes[0]["kinds"].values())
    assert [each["bytes"] for each in sizes] == sorted((each["bytes"] for each in sizes), reverse=True)
    assert "Sizes, before compression" in shown
    assert shell.ok("doctor", "--json").json["sizes"] is None


def test_a_missing_backup_is_not_taken_for_a_missing_store(shell: Shell) -> None:
    """The error names the backup, and one that was meant; it does not advise to create a store."""
    shell.ok("backup", "night.db")

    ended = shell("restore", "nigt.db", "--store", "new.db", "--json")
    shown = shell("restore", "nigt.db", "--store", "new.db").err

    assert (ended.code, ended.error["code"]) == (3, "backup_not_found")
    assert ended.error["facts"]["near"] == ["night.db"]
    assert ("night.db" in shown, "init" in shown) == (True, False)
    assert not (shell.directory / "new.db").exists()


def test_a_restore_into_no_directory_names_the_directory(shell: Shell) -> None:
    """Not the file that it would have made there."""
    shell.ok("backup", "night.db")

    ended = shell("restore", "night.db", "--store", "missing/new.db", "--json")

    assert ended.error["code"] == "directory_not_found"
    assert str(shell.directory / "missing") in ended.error["message"]
    assert "restoring" not in ended.error["message"]


def test_a_check_is_in_the_log(shell: Shell) -> None:
    """As the check of a program is."""
    logged = shell("verify", "--verbose").err

    assert re.search(r"INFO perdure.store: verified .*perdure.db: 0 faults", logged)


def test_a_thread_without_commits_is_measured_under_its_id(shell: Shell) -> None:
    """One whose only run is queued: what the input says is not in its history yet."""
    shell.ok("runs", "start", "queued", "Flour", "--agent", "helper")

    sizes = shell.ok("doctor", "--size", "--json").json["sizes"]

    assert "queued" in [each["name"] for each in sizes]


def test_a_restore_over_a_newer_store_says_how_to_restore_beside_it(shell: Shell) -> None:
    """The command names the backup."""
    shell.ok("backup", "night.db")
    shell.ok("state", "put", "shopping", "/later.json", "1")

    ended = shell("restore", "night.db", "--json")

    assert ended.error["code"] == "target_newer"
    assert "`perdure restore night.db --store OTHER.db`" in ended.error["hint"]


def test_a_restore_over_a_thread_without_commits_names_the_thread(shell: Shell) -> None:
    """By its id, as for one with commits."""
    shell.ok("backup", "night.db")
    shell.ok("runs", "start", "later", "Hello", "--agent", "helper")

    ended = shell("restore", "night.db", "--json")

    assert "in thread 'later'" in ended.error["message"]
    assert ended.error["facts"]["threads"] == ["later"]


def test_a_backup_to_a_stream_is_refused(shell: Shell) -> None:
    """No file of that name is made; control: it is, if it is meant."""
    ended = shell("backup", "-", "--json")

    assert (ended.code, ended.error["code"]) == (2, "backup_no_stream")
    assert not (shell.directory / "-").exists()
    assert shell.ok("backup", "./-", "--json").json["backup"] == "./-"


def test_a_newer_store_that_is_set_aside_is_named_with_what_it_has(shell: Shell) -> None:
    """With the command that compares both."""
    shell.ok("backup", "night.db")
    shell.ok("state", "put", "shopping", "/later.json", "1")

    shown = shell.ok("restore", "night.db", "--set-aside-newer").out

    (aside,) = shell.directory.glob("perdure.db.set-aside-*")
    assert "It has 1 write that the backup lacks." in shown
    assert f"perdure compare {aside}" in shown
    assert "A has more" in shell("compare", str(aside)).out


def test_a_backup_is_restored_and_nothing_is_held_where_nothing_is_open(shell: Shell) -> None:
    """Beside the store it works as it is; over a newer one it is refused, with what to do."""
    shell.ok("backup", "backup.db")
    shell.ok("state", "put", "shopping", "/n.json", "2")

    over = shell("restore", "backup.db", "--replace")
    beside = shell.ok("restore", "backup.db", "--store", "old.db")

    assert over.code == 4
    assert "has writes that the backup lacks" in over.err
    assert "Restored backup.db to old.db." in beside.out
    assert "held" not in beside.out
    assert shell.ok("verify", "--store", "old.db", "--json").json["ok"]
    assert shell("state", "get", "shopping", "/n.json", "--store", "old.db").code == 3


def test_verbose_prints_the_log_to_the_error_stream(shell: Shell) -> None:
    """Before or after the command; the output is the same as without it."""
    plain = shell.ok("threads", "--json")
    verbose = shell("--verbose", "threads", "--json")

    assert (verbose.code, verbose.out) == (0, plain.out)
    assert "INFO perdure.store: opened " in verbose.err
    assert "opened" in shell("verify", "--verbose").err + shell("threads", "--verbose").err
    assert shell.ok("threads").err == ""


def test_gc_is_limited_to_an_agent_and_an_owner(shell: Shell) -> None:
    """What another agent or owner has is not even planned."""
    shell.ok("threads", "begin", "other", "--agent", "clerk", "--owner", "bob")
    old = ("gc", "--threads-older-than", "0d", "--json")

    planned = [
        {each["thread"] for each in shell.ok(*old, *only).json["spaces"]}
        for only in ((), ("--agent", "clerk"), ("--owner", "ann"), ("--agent", "clerk", "--owner", "ann"))
    ]

    assert planned == [{"other", "shopping"}, {"other"}, {"shopping"}, set()]

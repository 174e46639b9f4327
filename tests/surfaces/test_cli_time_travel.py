"""Time travel at the terminal: the graph, cherry-pick, merge with a side, replay, undo --to, and failed runs in the log."""

from __future__ import annotations

import json
import re
import shlex
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent
from perdure.cli.input.users import os_user
from perdure.errors import NotDone, RunFailed
from perdure.shapes.comparison import ComparedValue, ConflictShape
from perdure.testing import Script, fail, say, step, use
from tests.surfaces.pty_session import PtySession
from tests.surfaces.shell import Shell

CODE = "tests.surfaces.test_cli_time_travel:agent"

sent: list[str] = []


@perdure.tool(effect="financial")
def pay(to: str) -> str:
    """Pay somebody."""
    sent.append(to)
    return f"paid {to}"


agent = Agent(
    "payer",
    backend=Script(say("Noted."), use("pay", to="ann"), say("Paid."), say("Bye."), say("Again.")),
    tools=[pay],
)


@perdure.tool(effect="local_write", ask=True)
def note(of: str) -> str:
    """Note something."""
    return f"noted {of}"


noter = Agent(
    "noter",
    backend=Script(step(use("pay", to="ann"), use("note", of="it")), say("Nothing was done.")),
    tools=[pay, note],
)


def talk(path: Path) -> None:
    """Three inputs, the second with a payment, and a fork after the first."""
    sent.clear()
    with perdure.open(path) as store:
        thread = store.thread("books", agent=agent)
        for words in ("Remember me.", "Pay ann.", "Good bye."):
            thread.run(words)
        thread.fork("again", at="turn:1")


def test_the_graph_shows_where_timelines_part_and_merge(shell: Shell) -> None:
    """Each line has the commit and the timelines whose head it is, and columns join where lines parted."""
    shell.ok("threads", "merge", "shopping", "what-if", "--theirs")

    shown = shell.ok("threads", "log", "shopping", "--graph").out

    assert re.search(r"^◉  [0-9a-f]{12}  main  ", shown, re.MULTILINE)
    assert re.search(r"^│ ◉  [0-9a-f]{12}  what-if  turn 3", shown, re.MULTILINE)
    assert "├─╮" in shown
    assert "├─╯" in shown
    assert shown.count("○") + shown.count("◉") == len(
        shell.ok("threads", "log", "shopping", "--graph", "--json").json["nodes"]
    )


def test_a_commit_of_the_graph_can_be_typed_back(shell: Shell) -> None:
    """Every line names its commit."""
    nodes = shell.ok("threads", "log", "shopping", "--graph", "--json").json["nodes"]

    shown = re.findall(r"[○◉][ │]*  ([0-9a-f]{12})  ", shell.ok("threads", "log", "shopping", "--graph").out)

    assert [
        shell.ok("threads", "show", "shopping", "--at", each, "--json").json["commit"] for each in shown
    ] == [node["commit"] for node in nodes]


def test_a_graph_fits_a_real_terminal(shell: Shell) -> None:
    """At 80 columns no line is wrapped."""
    with PtySession(shell.directory, "threads", "log", "shopping", "--graph") as session:
        assert session.ended() == 0

    assert max(map(len, session.shown.splitlines())) <= 80
    assert "what-if" in session.shown


def test_a_graph_of_many_forks_ends_at_its_limit(shell: Shell) -> None:
    """Beyond it are the ends of other timelines and the turns where they part, as many again of each at the most."""
    for number in range(9):
        shell.ok("threads", "fork", "shopping", f"fork-{number}", "--at", f"turn:{number % 3 + 1}")
        shell.ok("state", "put", "shopping", "/x.json", str(number), "--timeline", f"fork-{number}")

    shown = shell.ok("threads", "log", "shopping", "--graph", "--limit", "4").out

    assert 8 < shown.count("○") + shown.count("◉") <= 12
    assert "Older turns are left out; --limit 0 shows all." in shown


def test_a_short_graph_shows_where_timelines_part(shell: Shell) -> None:
    """Turns between are left out and counted, and the two lines meet; a word beside its turn needs no line."""
    for item in ("jam", "tea", "salt"):
        _say(shell, item)

    shown = shell.ok("threads", "log", "shopping", "--graph", "--limit", "2").out

    assert re.search(r"^│ ◉  [0-9a-f]{12}  what-if  turn 3", shown, re.MULTILINE)
    assert re.search(r"^┊  +2 turns and 1 other change not shown$", shown, re.MULTILINE)
    assert "├─╯" in shown
    assert shown.count("○") + shown.count("◉") == 4


def test_a_graph_counts_only_messages_as_turns(shell: Shell) -> None:
    """Picks and edits that are left out are told from turns, and no number is shifted by them."""
    shell.ok("threads", "cherry-pick", "shopping", "1..3", "--onto", "what-if", "--theirs")
    for number in range(2):
        shell.ok("state", "put", "shopping", "/x.json", str(number))

    shown = shell.ok("threads", "log", "shopping", "--graph", "--limit", "2").out
    nodes = shell.ok("threads", "log", "shopping", "--graph", "--json").json["nodes"]

    assert re.search(r"^[┊│ ]+1 turn and 2 other changes not shown$", shown, re.MULTILINE)
    picks = [each["turn"] for each in nodes if each["turn"]["reason"].startswith("cherry-pick")]
    assert [(each["kind"], each["number"]) for each in picks] == [("pick", 3)] * 3


def test_turns_to_pick_may_be_listed_with_commas(shell: Shell) -> None:
    """As words of their own; control: with what is no turn it is the name of a moment."""
    picked = shell.ok(
        "threads", "cherry-pick", "shopping", "1,2..3", "--onto", "what-if", "--theirs", "--dry-run"
    )
    ended = shell("threads", "cherry-pick", "shopping", "1,x", "--onto", "what-if", "--json")

    apart = ("threads", "cherry-pick", "shopping", "1", "2..3", "--onto", "what-if", "--theirs", "--dry-run")
    assert picked.out == shell.ok(*apart).out
    assert ended.code == 3


def test_a_mistyped_thread_is_not_said_to_be_begun(shell: Shell) -> None:
    """By a command that only reads."""
    assert "; nothing was done. " in shell("threads", "log", "shoping").err


def test_a_list_that_ends_with_picks_does_not_call_them_turns(shell: Shell) -> None:
    """It is a list of changes then."""
    shell.ok("threads", "cherry-pick", "shopping", "3", "--onto", "what-if", "--theirs")
    words = ("threads", "turns", "shopping", "--limit", "1")

    assert shell.ok(*words, "--timeline", "what-if").out.startswith("The last change;")
    assert shell.ok(*words, "--at", "turn:3").out.startswith("The last turn;")


def test_a_difference_marks_the_lines_that_it_leaves_out(shell: Shell) -> None:
    """Between two changes: what is not printed is not gone.  Control: one change has no mark."""
    items = {f"item{number:02}": number for number in range(30)}
    for value in (items, {**items, "item10": -1, "item20": -2}):
        shell.ok("state", "put", "shopping", "/long.json", json.dumps(value))
    shell.ok("state", "put", "shopping", "/short.json", '{"a": 1}')
    shell.ok("state", "put", "shopping", "/short.json", '{"a": 2}')

    lines = shell.ok("threads", "diff", "shopping", "HEAD~3", "HEAD~2").out.splitlines()
    short = shell.ok("threads", "diff", "shopping", "HEAD~1", "HEAD").out

    marks = [at for at, line in enumerate(lines) if line.strip() == "…"]
    changed = [at for at, line in enumerate(lines) if line.strip().startswith(("-  ", "+  "))]
    assert len(marks) == 1
    assert changed[0] < marks[0] < changed[-1]
    assert "…" not in short


def test_a_difference_of_negative_numbers_shows_their_signs(shell: Shell) -> None:
    """The mark of a line stands apart from what the line says."""
    shell.ok("state", "put", "shopping", "/price.json", "-480")
    shell.ok("state", "put", "shopping", "/price.json", "-440")

    shown = shell.ok("threads", "diff", "shopping", "HEAD~1", "HEAD").out.splitlines()

    assert {"    - -480", "    + -440"} <= set(shown)


@pytest.mark.parametrize(
    "words",
    [
        ("threads", "bisect", "shopping", "--path", "/a-rather-long-name-of-a-note.json", "--exists"),
        ("threads", "fork", "shopping", "a-fork-with-a-name-that-says-what-it-was-made-for"),
        ("state", "put", "shopping", "/a-rather-long-name-of-a-note.json", "2"),
        ("threads", "promote", "shopping", "what-if"),
    ],
)
def test_a_sentence_about_a_change_is_broken_between_words(shell: Shell, words: tuple[str, ...]) -> None:
    """At 80 columns; the digest at its end stays whole."""
    shell.ok("state", "put", "shopping", "/a-rather-long-name-of-a-note.json", "1")

    with PtySession(shell.directory, *words) as session:
        assert session.ended() == 0

    told = [
        line for line in session.shown.splitlines() if not line.startswith(("See it: ", "Take it back: "))
    ]
    assert max(map(len, told)) <= 80
    assert re.search(r"\b[0-9a-f]{12}$", told[-1].strip())


@pytest.mark.parametrize(
    ("turns", "picked", "has_note"),
    [
        ("4", ["turn 4"], False),
        ("turn:4", ["turn 4"], False),
        ("3 4", ["turn 3", "turn 4"], False),
        ("3..4", ["turn 3", "remember", "turn 4"], True),
        ("HEAD~1", ["HEAD~1"], True),
        ("HEAD~1..4", ["remember", "turn 4"], True),
    ],
)
def test_turns_are_picked_one_or_several(shell: Shell, turns: str, picked: list[str], has_note: bool) -> None:
    """A turn or a range is applied to another timeline, one commit for each turn, with the edits between them."""
    shell.ok("state", "put", "shopping", "/own.json", "1", "--timeline", "what-if")
    _say(shell, "jam")

    ended = shell.ok(
        "threads", "cherry-pick", "shopping", *turns.split(), "--onto", "what-if", "--theirs", "--json"
    )

    assert [json.loads(line)["picked"] for line in ended.out.splitlines()] == picked
    shown = shell.ok("state", "ls", "shopping", "--timeline", "what-if", "--json").json["paths"]
    assert ("/notes/a.txt" in {each["path"] for each in shown}) == has_note


def _say(shell: Shell, item: str) -> None:
    """Add one more message to the conversation."""
    with perdure.open(shell.store) as store, store.thread("shopping").change(f"add {item}") as change:
        change.say("user", f"Please put {item} on the list.")
        change.append("/todos.json", item)


def test_a_conflict_in_a_range_writes_nothing_and_names_the_turn(shell: Shell) -> None:
    """Also not the turns before it; a side settles all of them, in one write that is made once for each --op-id."""
    with perdure.open(shell.store) as store:
        thread = store.thread("sums", agent="clerk")
        thread.put("/total.json", 0)
        fixed = thread.fork("fixed")
        for number, path in enumerate(("/a.json", "/total.json", "/b.json"), 1):
            with thread.change("add") as change:
                change.say("user", f"Add {number}.")
                change.put(path, number)
        fixed.put("/total.json", 15)
    words = ("threads", "cherry-pick", "sums", "1..3", "--onto", "fixed")

    ended, refused = shell(*words), shell(*words, "--json").error

    assert ended.code == 4
    told = " ".join(ended.err.split())
    assert (
        "turn 2 does not fit: 1 path is in conflict: /total.json (not as it was before that change)" in told
    )
    assert "Choose a side with --ours or --theirs" in told
    assert (refused["code"], refused["facts"]["picked"]) == ("merge_conflict", "turn 2")
    kept = shell.ok("state", "ls", "sums", "--timeline", "fixed", "--json").json["paths"]
    assert [each["path"] for each in kept] == ["/total.json"]
    picked = [shell.ok(*words, "--theirs", "--op-id", "pick-1").out for _ in range(2)]
    shown = shell.ok("state", "ls", "sums", "--timeline", "fixed", "--json").json["paths"]
    assert [each["path"] for each in shown] == ["/a.json", "/b.json", "/total.json"]
    assert picked[0] == picked[1]


@pytest.mark.parametrize(
    ("turn", "why"), [("3", "not as it was before that change"), ("1", "which is here already")]
)
def test_a_pick_says_only_of_the_turn_that_it_changed_the_path(shell: Shell, turn: str, why: str) -> None:
    """A fork without a commit of its own changed nothing; of a turn that it has, it says so."""
    with perdure.open(shell.store) as store:
        thread = store.thread("sums", agent="clerk")
        for number in range(1, 4):
            with thread.change("add") as change:
                change.say("user", f"Add {number}.")
                change.put("/total.json", number)
        thread.fork("pick", at="turn:1" if turn == "3" else "turn:2")

    ended = shell("threads", "cherry-pick", "sums", turn, "--onto", "pick")
    planned = shell("threads", "cherry-pick", "sums", turn, "--onto", "pick", "--dry-run", "--json")

    assert (ended.code, planned.code) == (4, 4)
    assert why in " ".join(ended.err.split())
    assert "both" not in ended.err
    assert planned.json["conflicts"][0]["why"].endswith(why)


def test_turns_that_are_not_there_are_refused(shell: Shell) -> None:
    """Nothing is picked of a range that the timeline does not have whole."""
    ended = shell("threads", "cherry-pick", "shopping", "3..9", "--onto", "what-if", "--json")

    assert ended.code == 3
    assert ended.error["code"] == "range_not_found"
    assert ended.error["hint"] == "See what there is with `perdure threads turns shopping --timeline main`."


@pytest.mark.parametrize(
    ("side", "items"), [("--ours", ["milk", "eggs", "carrots"]), ("--theirs", ["milk", "eggs", "bread"])]
)
def test_a_side_settles_the_conflicts_of_a_merge(shell: Shell, side: str, items: list[str]) -> None:
    """Without a side the merge is refused; with one, that value is there."""
    assert shell("threads", "merge", "shopping", "what-if").code == 4

    shell.ok("threads", "merge", "shopping", "what-if", side)

    assert shell.ok("state", "get", "shopping", "/todos.json", "--json").json["value"] == items


def test_a_conflict_says_which_options_settle_it(shell: Shell) -> None:
    """What is advised are the options of this command."""
    ended = shell("threads", "merge", "shopping", "what-if", "--json")

    assert ended.error["code"] == "merge_conflict"
    assert "--theirs" in ended.error["hint"]


def test_bisect_finds_what_has_changed_again_since(shell: Shell) -> None:
    """A value that is no longer so is found before a commit at which it was; without one the error says where to look."""
    for value in ("1", "9", "2"):
        shell.ok("state", "put", "shopping", "/price.json", value)
    asked = ("threads", "bisect", "shopping", "--path", "/price.json", "--above", "5", "--json")

    ended, found = shell(*asked), shell.ok(*asked, "--bad", "HEAD~1").json

    assert ended.error["code"] == "predicate_false_at_end"
    assert "`perdure state log shopping /price.json`" in ended.error["hint"]
    at = found["commit"]["digest"]
    assert shell.ok("state", "get", "shopping", "/price.json", "--at", at, "--json").json["value"] == 9
    assert shell.ok(*asked, "--at", "HEAD~1").json == found


def test_bisect_inside_a_document_names_its_place(shell: Shell) -> None:
    """The command that the error names can be typed, and a place in another notation is spelled as a list."""
    shell.ok("state", "put", "shopping", "/prices.json", '{"bread": {"price": 3}}', "--timeline", "what-if")
    about = (
        "threads",
        "bisect",
        "shopping",
        "--timeline",
        "what-if",
        "--path",
        "/prices.json",
        "--above",
        "5",
    )

    ended = shell(*about, "--place", '["bread", "price"]', "--json")
    dotted = shell(*about, "--place", "bread.price", "--json")

    named = ended.error["hint"].split("`")[1]
    assert shell.ok(*shlex.split(named)[1:], "--json").json["versions"][0]["preview"] == "3"
    assert '--place \'["bread", "price"]\'' in dotted.error["hint"]


def test_a_path_limits_the_side_of_a_merge(shell: Shell) -> None:
    """A conflict at another path is still one; both paths together settle the merge."""
    shell.ok("state", "put", "shopping", "/a.json", "1")
    shell.ok("state", "put", "shopping", "/a.json", "2", "--timeline", "what-if")

    refused = shell("threads", "merge", "shopping", "what-if", "--theirs", "--path", "/todos.json")
    shell.ok(
        "threads", "merge", "shopping", "what-if", "--theirs", "--path", "/todos.json", "--path", "/a.json"
    )

    assert refused.code == 4
    assert "/a.json" in refused.err
    assert shell.ok("state", "get", "shopping", "/a.json", "--json").json["value"] == 2


def test_a_covered_value_is_on_record(shell: Shell) -> None:
    """An event of the merge names the path whose value of ours was covered."""
    shell.ok("threads", "merge", "shopping", "what-if", "--theirs")

    (newest, *_) = shell.ok("threads", "log", "shopping", "--commits", "--json").json["commits"]

    assert [each["path"] for each in newest["events"] if each["type"] == "conflict"] == ["/todos.json"]


def test_sides_are_checked(shell: Shell) -> None:
    """Both sides, or a path without a side, are refused."""
    both = shell("threads", "merge", "shopping", "what-if", "--ours", "--theirs", "--json")
    alone = shell("threads", "merge", "shopping", "what-if", "--path", "/a.json", "--json")

    assert [both.error["code"], alone.error["code"]] == ["options_conflict", "option_missing"]


def heads(shell: Shell) -> object:
    """Where all timelines are."""
    return shell.ok("threads", "show", "shopping", "--json").json["timelines"]


@pytest.mark.parametrize("side", ["--ours", "--theirs"])
def test_a_dry_run_of_a_merge_shows_what_the_merge_does(shell: Shell, side: str) -> None:
    """The same paths, and nothing is written."""
    shell.ok("state", "put", "shopping", "/own.json", "1", "--timeline", "what-if")
    shell.ok("state", "rm", "shopping", "/count.json", "--timeline", "what-if")
    before = heads(shell)

    planned = shell.ok("threads", "merge", "shopping", "what-if", side, "--dry-run", "--json").json

    assert heads(shell) == before
    done = shell.ok("threads", "merge", "shopping", "what-if", side, "--json").json
    found = shell.ok("threads", "diff", "shopping", "HEAD~1", "HEAD", "--json").json["state"]
    assert [(each["path"], each["what"]) for each in planned["changed"]] == [
        (each["path"], each["what"]) for each in found
    ]
    assert (planned["dry_run"], planned["commit"], planned["paths"]) == (True, None, done["paths"])


def test_a_dry_run_of_a_merge_names_the_conflicts(shell: Shell) -> None:
    """Beside what would change; its exit code is that of the merge."""
    shell.ok("state", "put", "shopping", "/own.json", "1", "--timeline", "what-if")
    words = ("threads", "merge", "shopping", "what-if")

    shown, planned = shell(*words, "--dry-run"), shell(*words, "--dry-run", "--json").json

    assert shown.code == shell(*words).code == 4
    assert shown.out.startswith(
        "Merging what-if into main would change 1 path\n  + /own.json\n✗ 1 path in conflict"
    )
    assert [each["path"] for each in planned["conflicts"]] == ["/todos.json"]


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_conflict_shows_what_differs(shell: Shell, dry: tuple[str, ...]) -> None:
    """Of a long value the part that differs, also where it is refused, before the error; a program gets the error alone."""
    row = "".join(f"item {number}, " for number in range(200))
    with perdure.open(shell.store) as store:
        thread = store.thread("long", agent="clerk")
        thread.put("/a.json", {"row": row, "then": "old"})
        thread.fork("other").put("/a.json", {"row": row, "then": "theirs now"})
        thread.put("/a.json", {"row": row, "then": "ours now"})
    words = ("threads", "merge", "long", "other", *dry)

    shown, read = shell(*words), shell(*words, "--json")

    told = shown.out if dry else shown.err
    (base,), (ours,), (theirs,) = (
        [line for line in told.splitlines() if line.startswith(f"    {side} ")]
        for side in ("base", "ours", "theirs")
    )
    assert (shown.code, "in conflict" in told) == (4, True)
    assert ('"old"' in base, "ours now" in ours, "theirs now" in theirs) == (True, True, True)
    assert max(map(len, (base, ours, theirs))) < 260
    assert dry or (read.out, read.error["error"]) == ("", "MergeConflict")


def test_a_cherry_pick_that_does_not_fit_shows_what_differs(shell: Shell) -> None:
    """Before the error that says how to go on."""
    shell.ok("state", "put", "shopping", "/n.json", "1")
    shell.ok("threads", "fork", "shopping", "side")
    shell.ok("state", "put", "shopping", "/n.json", '"here"', "--timeline", "side")
    shell.ok("state", "put", "shopping", "/n.json", '"there"')

    refused = shell("threads", "cherry-pick", "shopping", "HEAD", "--onto", "side")

    assert refused.code == 4
    assert all(
        f'{side:<8}"{value}"' in refused.err for side, value in (("ours", "here"), ("theirs", "there"))
    )


def test_a_dry_run_picks_each_turn_on_top_of_those_before_it(shell: Shell) -> None:
    """The second turn is no conflict with what the first would leave, also where a rule joins; then it is picked so."""
    counting = Agent("clerk", state=[perdure.state("/count.json", merge="counter")])
    with perdure.open(shell.store) as store:
        thread = store.thread("shopping-2", agent=counting)
        thread.put("/count.json", 0)
        fork = thread.fork("fork")
        fork.put("/count.json", 9)
        for number in (1, 2):
            with thread.change("add") as change:
                change.say("user", f"Add {number}.")
                change.increment("/count.json")
                change.put("/last.json", number)
        head = fork.head
    words = ("threads", "cherry-pick", "shopping-2", "1..2", "--onto", "fork", "--json")

    planned = [json.loads(line) for line in shell.ok(*words, "--dry-run").out.splitlines()]

    assert [[each["what"] for each in one["changed"]] for one in planned] == [
        ["changed", "added"],
        ["changed"] * 2,
    ]
    with perdure.open(shell.store) as store:
        assert store.thread("shopping-2").on("fork").head == head
    done = [json.loads(line) for line in shell.ok(*words).out.splitlines()]
    assert [each["paths"] for each in planned] == [each["paths"] for each in done]
    counted = shell.ok("state", "get", "shopping-2", "/count.json", "--timeline", "fork", "--json").json[
        "value"
    ]
    assert counted == 11


def test_a_dry_run_of_picks_goes_over_the_whole_range(shell: Shell) -> None:
    """A turn in conflict is left out by those after it, which are shown too."""
    _say(shell, "jam")
    before = heads(shell)

    ended = shell("threads", "cherry-pick", "shopping", "3..4", "--onto", "what-if", "--dry-run", "--json")

    planned = [json.loads(line) for line in ended.out.splitlines()]
    assert [(each["picked"], each["conflicts"] != []) for each in planned] == [
        ("turn 3", True),
        ("remember", False),
        ("turn 4", True),
    ]
    assert (ended.code, heads(shell)) == (4, before)


def test_a_dry_run_shows_the_values_of_a_conflict(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Base, ours and theirs, cut at the width on the screen and whole in --json; bytes in words."""
    monkeypatch.setenv("COLUMNS", "80")
    with perdure.open(empty.store) as store:
        thread = store.thread("a", agent="x")
        thread.put("/p.json", {"jam": 1, "long": "x" * 200})
        fork = thread.fork("f")
        thread.put("/p.json", {"jam": 2})
        fork.put("/p.json", {"tee": 3})
        thread.put("/b.bin", b"\xff\xfe")
        fork.put("/b.bin", b"\x00\xff\x00")
    words = ("threads", "merge", "a", "f", "--dry-run")

    shown, planned = empty(*words).out, empty(*words, "--json").json["conflicts"]

    sides = {each["path"]: [each["base"], each["ours"], each["theirs"]] for each in planned}
    assert [each["value"] for each in sides["/p.json"]] == [
        {"jam": 1, "long": "x" * 200},
        {"jam": 2},
        {"tee": 3},
    ]
    assert [each and (each["size"], "value" in each) for each in sides["/b.bin"]] == [
        None,
        (2, False),
        (3, False),
    ]
    assert re.search(r'^ +ours +\{"jam":2\}$', shown, re.MULTILINE)
    assert re.search(r'^ +theirs +\{"tee":3\}$', shown, re.MULTILINE)
    assert re.search(r"^ +theirs +\(application/octet-stream, 3 B\)$", shown, re.MULTILINE)
    assert "merge=" in shown
    assert max(map(len, shown.splitlines())) <= 80


@pytest.fixture
def by_key(empty: Shell) -> Shell:
    """A shell with a document that is joined by key; two timelines changed a key of it differently, and one more each."""
    clerk = Agent("clerk", state=[perdure.state("/trip.json", merge="keys")])
    with perdure.open(empty.store) as store:
        thread = store.thread("a", agent=clerk)
        thread.put("/trip.json", {"city": "Oslo", "cost": {"bus": 5}, "days": 1, "note": "kept"})
        fork = thread.fork("f")
        thread.put("/trip.json", {"city": "Bergen", "cost": {"bus": 6}, "days": 2, "note": "kept"})
        fork.put("/trip.json", {"city": "Rome", "cost": {"hotel": 90}, "days": 1, "note": "kept"})
    return empty


@pytest.mark.parametrize(
    "words", [("merge", "a", "f"), ("cherry-pick", "a", "HEAD", "--timeline", "f", "--onto", "main")]
)
def test_a_conflict_shows_the_keys_that_both_changed(
    by_key: Shell, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their three values, before the error and in a dry run, also for programs; what is joined is not shown."""
    monkeypatch.setenv("COLUMNS", "80")
    values = [
        "city",
        'base    "Oslo"',
        'ours    "Bergen"',
        'theirs  "Rome"',
        '["cost", "bus"]',
        "base    5",
        "ours    6",
        "theirs  –",
    ]

    refused, planned = by_key("threads", *words), by_key("threads", *words, "--dry-run")
    (conflict,) = by_key("threads", *words, "--dry-run", "--json").json["conflicts"]
    facts = by_key("threads", *words, "--json").error["facts"]

    for shown in (refused.err, planned.out):
        lines = [line.strip() for line in shown.splitlines()]
        assert [line for line in lines if line in values] == values
        assert "kept" not in shown
        assert 'at city, ["cost", "bus"]' in shown
    assert "the side wins these keys alone" in " ".join(planned.out.split())
    assert [(each["place"], each["base"], each["theirs"]) for each in conflict["keys"]] == [
        (["city"], {"value": "Oslo"}, {"value": "Rome"}),
        (["cost", "bus"], {"value": 5}, None),
    ]
    assert facts["conflicts"][0]["keys"] == [["city"], ["cost", "bus"]]


def test_a_side_for_a_path_settles_its_keys(by_key: Shell) -> None:
    """And nothing else of the document; what each line wrote is blamed on it."""
    by_key.ok("threads", "merge", "a", "f", "--path", "/trip.json=theirs")

    kept = {"city": "Rome", "cost": {"hotel": 90}, "days": 2, "note": "kept"}
    assert by_key.ok("state", "get", "a", "/trip.json", "--json").json["value"] == kept
    blamed = {
        place: by_key.ok("state", "blame", "a", "/trip.json", "--place", place, "--json").json["merged_from"]
        for place in ("city", '["cost","hotel"]', "days")
    }
    assert blamed == {"city": "f", '["cost","hotel"]': "f", "days": None}


def test_a_dry_run_shows_a_long_list_in_conflict(empty: Shell) -> None:
    """A list is stored in pieces, and shown as the document that it is."""
    with perdure.open(empty.store) as store:
        thread = store.thread("a", agent="x")
        thread.put("/l.json", [])
        fork = thread.fork("f")
        thread.put("/l.json", list(range(2_000)))
        fork.put("/l.json", list(range(2_001)))

    (conflict,) = empty("threads", "merge", "a", "f", "--dry-run", "--json").json["conflicts"]

    assert [conflict[side]["value"] for side in ("base", "ours", "theirs")] == [
        [],
        list(range(2_000)),
        list(range(2_001)),
    ]


def test_a_dry_run_has_words_for_a_value_that_is_not_stored_there() -> None:
    """As when an earlier pick of the same dry run would make it; the other two are shown."""
    thread = perdure.open("memory:").thread("a", agent="x")
    thread.put("/n.json", 0)
    fork = thread.fork("f")
    thread.put("/n.json", 1)
    fork.put("/n.json", 2)
    taken = thread.merge("f", dry_run=True)
    made = taken.conflicts[0]._replace(ours="ab" * 32)

    (conflict,) = ConflictShape.every(thread, msgspec.structs.replace(taken, conflicts=(made,)))

    assert conflict.ours == "(not shown)"
    assert [isinstance(each, ComparedValue) and each.value for each in (conflict.base, conflict.theirs)] == [
        0,
        2,
    ]


def test_undo_goes_back_to_a_moment(shell: Shell) -> None:
    """The command has the name of the argument in Python."""
    shell.ok("threads", "undo", "shopping", "--to", "turn:1")

    assert shell.ok("state", "get", "shopping", "/todos.json", "--json").json["value"] == ["milk"]


def test_an_undo_after_a_promotion_says_how_to_get_the_old_main_back(shell: Shell) -> None:
    """It goes over a turn, as ever; the command that it names brings the old main back, and then there is nothing to say."""
    old = shell.ok("threads", "show", "shopping", "--json").json["commit"]
    shell.ok("threads", "promote", "shopping", "what-if")

    told = shell.ok("threads", "undo", "shopping").out
    again = shell.ok("threads", "undo", "shopping", "--json").json

    assert "It went over a turn of the promoted timeline, which is still main." in told
    assert "Back to the old main: perdure threads undo shopping --to version:4" in told
    assert again["old_main"] == "version:4"
    back = shell.ok("threads", "undo", "shopping", "--to", "version:4", "--json").json
    assert (back["head"]["commit"], back["old_main"]) == (old, None)


def test_an_undo_after_a_commit_says_nothing_of_a_promotion(shell: Shell) -> None:
    """What was promoted before the last commit is not what a person means."""
    shell.ok("threads", "promote", "shopping", "what-if")
    shell.ok("state", "put", "shopping", "/x.json", "1")

    assert shell.ok("threads", "undo", "shopping", "--json").json["old_main"] is None


def test_a_value_is_blamed_at_a_moment(shell: Shell) -> None:
    """`blame(at=…)` is what the command does with --at."""
    with perdure.open(shell.store) as store:
        thread = store.thread("shopping")

        found = thread.blame("/todos.json", at="turn:1")

        assert found == thread.at("turn:1").blame("/todos.json")
        assert found.reason == "add milk"


def test_a_replay_lists_what_was_not_made(empty: Shell) -> None:
    """The inputs, how their runs ended, and the payment that was stopped, with the call that made it before."""
    talk(empty.store)

    planned = empty.ok("threads", "replay", "books", "--onto", "again", "--dry-run")
    ended = empty.ok("threads", "replay", "books", "--onto", "again", "--code", CODE)

    assert "Would give 2 inputs of main to again" in planned.out
    assert "Gave 2 inputs of main to again" in ended.out
    assert "1 call not made:" in ended.out
    assert ended.out.count("on this timeline no call beyond local_write is made.") == 1
    assert sent == ["ann"]


def test_a_replay_says_why_each_call_was_not_made(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reason once, in words and with its tools; also on a narrow terminal, which has no column for it."""
    with perdure.open(empty.store) as store:
        thread = store.thread("books", agent=Agent("noter", backend=Script(say("Done."))))
        thread.fork("again", at=None)
        thread.run("Pay ann, and note it.")
    monkeypatch.setenv("COLUMNS", "80")

    shown = empty.ok("threads", "replay", "books", "--onto", "again", "--code", f"{CODE[:-5]}noter").out

    assert "2 calls not made:" in shown
    assert "Why of pay: on this timeline no call beyond local_write is made." in shown
    assert "Why of note: a replay makes no call that needs a decision." in shown


def test_a_repeated_replay_tells_old_inputs_from_new_ones(empty: Shell) -> None:
    """It counts what it gave; where the order cannot be kept, the error says with which options it can."""
    talk(empty.store)
    words = ("threads", "replay", "books", "--onto", "again", "--code", CODE)
    empty.ok(*words, "--since", "turn:2")

    refused = empty(*words, "--json")
    shown = empty.ok(*words, "--since", "turn:2").out

    assert refused.error["code"] == "replay_out_of_order"
    assert "--since turn:2" in refused.error["hint"]
    assert shown.startswith("again has the input of main already; nothing was given")
    assert "was there" in shown


def test_a_failed_run_is_shown_in_the_log(empty: Shell) -> None:
    """The log, the list of turns and the graph say that the run failed, and why."""
    with perdure.open(empty.store) as store:
        thread = store.thread("books", agent=Agent("payer", backend=Script(fail(ValueError("no money")))))
        with pytest.raises(RunFailed):
            thread.run("Pay ann.")

    for words in (["log"], ["turns"], ["log", "--graph"]):
        shown = empty.ok("threads", words[0], "books", *words[1:]).out
        assert "failed" in shown
    assert "no money" in empty.ok("threads", "log", "books").out


def test_a_run_that_failed_on_a_timeline_of_its_own_is_shown_in_the_log(empty: Shell) -> None:
    """Its input is on the target timeline, which has no end of the run; the record has the reason."""
    with perdure.open(empty.store) as store:
        thread = store.thread("books", agent=Agent("payer", backend=Script(fail(ValueError("no money")))))
        with pytest.raises(RunFailed):
            thread.run("Pay ann.", head_policy="on_success")

    (turn,) = empty.ok("threads", "log", "books", "--json").json["turns"]

    assert (turn["status"], "no money" in turn["why"]) == ("failed", True)
    assert "failed: " in empty.ok("threads", "turns", "books").out


def test_a_turn_has_a_kind(shell: Shell) -> None:
    """A write by hand, a merge and a pick are told from turns with messages."""
    shell.ok("threads", "merge", "shopping", "what-if", "--theirs")
    shell.ok("state", "put", "shopping", "/x.json", "1")

    turns = shell.ok("threads", "log", "shopping", "--json").json["turns"]

    assert [each["kind"] for each in turns] == ["edit", "merge", "edit", "message", "message", "message"]


def test_a_merge_names_the_timeline_that_it_merged(shell: Shell) -> None:
    """In each list, as its reason; control: a reason that was given is kept, and the merge is still called one."""
    shell.ok("threads", "merge", "shopping", "what-if", "--theirs")
    shell.ok("threads", "fork", "shopping", "other", "--at", "turn:3")
    shell.ok("state", "put", "shopping", "/other.json", "1", "--timeline", "other")

    log, turns, commits = (
        shell.ok("threads", *words).out
        for words in (("log", "shopping"), ("turns", "shopping"), ("log", "shopping", "--commits"))
    )
    shell.ok("threads", "merge", "shopping", "other", "--reason", "agreed with ann")

    assert log.startswith("merge what-if ← main  ")
    assert "  merge what-if  " in turns
    assert "  merge what-if  " in commits
    assert shell.ok("threads", "log", "shopping").out.startswith("merge  agreed with ann ← main  ")


def test_a_thread_is_handed_off_to_another_agent(shell: Shell) -> None:
    """One commit that undo takes back; the log shows it by its kind, and the list names the agent."""
    told = shell.ok("threads", "hand-off", "shopping", "--to", "cook", "--reason", "it is about soup").out

    assert told.startswith("Handed off from helper to cook: main of shopping is after turn 3, version 5, ")
    assert shell.ok("threads", "ls", "--json").json["threads"][0]["agent"] == "cook"
    assert shell.ok("threads", "log", "shopping", "--limit", "1").out.startswith(
        "hand-off  helper to cook: it is"
    )
    shell.ok("threads", "undo", "shopping")
    assert shell.ok("threads", "ls", "--json").json["threads"][0]["agent"] == "helper"


def test_a_comparison_in_numbers_counts_lines_and_what_was_said(shell: Shell) -> None:
    """Each path has its lines, each side its messages and calls; the values are left out."""
    counted = shell.ok("threads", "diff", "shopping", "main", "what-if", "--stat", "--json").json
    whole = shell.ok("threads", "diff", "shopping", "main", "what-if", "--json").json

    assert [(each["path"], each["what"]) for each in counted["state"]] == [
        (each["path"], each["what"]) for each in whole["state"]
    ]
    todos = next(each for each in counted["state"] if each["path"] == "/todos.json")
    assert (todos["lines_added"], todos["lines_removed"]) == (1, 1)
    assert (counted["a"]["messages"], counted["b"]["messages"]) == (2, 2)


def test_a_comparison_in_numbers_is_a_line_for_each_path(shell: Shell) -> None:
    """And the sums at its end."""
    shown = shell.ok("threads", "diff", "shopping", "main", "what-if", "--stat").out.splitlines()
    same = shell.ok("threads", "diff", "shopping", "main", "main", "--stat").out.splitlines()

    assert shown[-3:-2] == ["2 paths differ: 1 changed, 1 removed."]
    assert same[0] == "0 paths differ."


def sides(shell: Shell, *words: str) -> tuple[object, object]:
    """Merge two timelines that differ at two paths; return what both paths hold then."""
    for line, value in (("main", '"ours"'), ("what-if", '"theirs"')):
        for path in ("/notes/b", "/todos.json", "/count.json"):
            shell.ok("state", "put", "shopping", path, value, "--timeline", line)
    shell.ok("threads", "merge", "shopping", "what-if", *words)
    found = [shell.ok("state", "get", "shopping", path).out.strip() for path in ("/notes/b", "/todos.json")]
    return found[0], found[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--ours"], ("ours", "ours")),
        (["--ours", "--path", "/notes=theirs"], ("theirs", "ours")),
        (["--theirs", "--path", "/notes=ours"], ("ours", "theirs")),
        (["--path", "/notes=ours", "--path", "/todos.json=theirs", "--path", "/count.json=ours"], ("ours", "theirs")),
    ],
)  # fmt: skip
def test_a_merge_takes_a_side_for_each_path(
    shell: Shell, words: list[str], expected: tuple[str, str]
) -> None:
    """One side for all, the other for some, or one for each, in one command."""
    assert tuple(str(each).strip('"') for each in sides(shell, *words)) == expected


def test_a_path_without_a_side_merges_nothing(shell: Shell) -> None:
    """The error says how to write one."""
    before = shell.ok("threads", "show", "shopping", "--json").json["commit"]

    ended = shell("threads", "merge", "shopping", "what-if", "--path", "/notes")

    assert ended.code == 2
    assert "--path /notes=ours" in ended.err
    assert shell.ok("threads", "show", "shopping", "--json").json["commit"] == before


@pytest.mark.parametrize("path", ["/notes=their", "/notes=", "/notes=mine"])
def test_a_path_with_a_misspelled_side_merges_nothing(shell: Shell, path: str) -> None:
    """It is no path of that name, at which there would be nothing to settle."""
    ended = shell("threads", "merge", "shopping", "what-if", "--ours", "--path", path)

    assert ended.code == 2
    assert "is neither ours nor theirs" in ended.err
    assert "--path /notes=theirs" in ended.err


def test_a_range_that_is_backwards_says_so(shell: Shell) -> None:
    """With the range that is meant."""
    ended = shell("threads", "cherry-pick", "shopping", "3..1", "--onto", "what-if")

    assert ended.code == 2
    assert "backwards" in ended.err
    assert "Write 1..3." in ended.err


def test_a_pick_of_a_pick_names_the_turn_once(shell: Shell) -> None:
    """However often the change is carried on."""
    shell.ok("threads", "fork", "shopping", "other", "--at", "turn:2")
    shell.ok("threads", "fork", "shopping", "third", "--at", "turn:2")
    shell.ok("threads", "cherry-pick", "shopping", "3", "--onto", "other")

    shell.ok("threads", "cherry-pick", "shopping", "other", "--timeline", "other", "--onto", "third")
    log = shell.ok("threads", "log", "shopping", "--timeline", "third").out

    assert "cherry-pick turn 3" in log or "cherry-pick other" in log
    with perdure.open(shell.store) as store:
        picked = store.thread("shopping", timeline="other").turns()[-1]
        store.thread("shopping", timeline="third").undo()
        store.thread("shopping", timeline="third").cherry_pick(picked)
        assert store.thread("shopping", timeline="third").log(limit=1)[0].reason == "cherry-pick turn 3"


def totals(path: Path) -> None:
    """Three turns that write a total, the second below zero, and an edit by hand afterwards."""

    @perdure.tool(effect="local_write")
    def set_total(value: int, call: perdure.Call) -> str:
        call.put("/total.json", value)
        return "ok"

    steps = [item for value in (1, -9, -8) for item in (use("set_total", value=value), say("Done."))]
    with perdure.open(path) as store:
        thread = store.thread("sums", agent=Agent("adder", backend=Script(*steps), tools=[set_total]))
        for words in ("Begin with one.", "The total is minus nine.", "Add one."):
            thread.run(words)
        thread.put("/note.json", "by hand")


def test_bisect_log_and_blame_name_a_turn_by_the_words_of_its_user(empty: Shell) -> None:
    """Not by the reason of the commit that wrote the value; an edit by hand is after a turn, not in it."""
    totals(empty.store)

    first = empty.ok("threads", "bisect", "sums", "--path", "/total.json", "--below", "0").out
    log = empty.ok("state", "log", "sums", "/total.json").out
    blame = empty.ok("state", "blame", "sums", "/total.json").out
    edit = empty.ok("state", "blame", "sums", "/note.json").out

    assert "in turn 2, 'The total is minus nine.'" in first
    assert [words in log for words in ("Begin with one.", "The total is minus nine.", "Add one.")] == [
        True
    ] * 3
    assert "3, 'Add one.'" in blame
    assert "after 3, 'put'" in edit
    assert "tool_results_committed" not in first + log + blame


def test_bisect_on_a_path_without_a_value_says_so(empty: Shell) -> None:
    """The control is the opposite question, which has an answer."""
    totals(empty.store)

    refused = empty("threads", "bisect", "sums", "--path", "/totl.json", "--below", "0", "--json")

    assert (refused.code, refused.error["code"]) == (2, "path_absent_at_end")
    empty.ok("threads", "bisect", "sums", "--path", "/totl.json", "--absent")


@pytest.mark.parametrize("where", ["fork", "undone"])
def test_a_run_of_another_timeline_is_a_moment_by_its_short_id(empty: Shell, where: str) -> None:
    """What `runs ls` shows of a run can be given as a moment, without --timeline, also if the run was undone."""
    talk(empty.store)
    with perdure.open(empty.store) as store:
        thread = store.thread("books", agent=agent)
        apart = thread.on("again") if where == "fork" else thread
        apart.run("Elsewhere.")
        run = next(each.id for each in reversed(thread.runs()) if each.timeline == apart.timeline)
        end = thread.at(run).digest if where == "fork" else None
        if where == "undone":
            thread.undo()

    shown = empty.ok("threads", "show", "books", "--at", run[-8:], "--json").json

    assert shown["commit"] == empty.ok("threads", "show", "books", "--at", run, "--json").json["commit"]
    assert end in (None, shown["commit"])


def test_a_short_id_means_the_run_of_this_timeline_first(empty: Shell) -> None:
    """An end that fits a run here and another elsewhere is not ambiguous."""
    talk(empty.store)
    with perdure.open(empty.store) as store:
        thread = store.thread("books", agent=agent)
        run = thread.runs()[-1]
        with thread.on("again").change("said elsewhere") as change:
            change.say("user", "Hello.", id=f"01a1ec99-d4ba-7000-8ad3-d7d4{run.id[-8:]}")

        assert thread.at(run.id[-8:]).digest == thread.at(run.id).digest


def test_the_error_for_a_run_of_another_timeline_names_that_timeline(empty: Shell) -> None:
    """A run that is on another timeline than the named one is not said to be missing."""
    talk(empty.store)
    with perdure.open(empty.store) as store:
        store.thread("books", agent=agent).on("again").run("Elsewhere.")
        run = next(each.id for each in store.thread("books").runs() if each.timeline == "again")

    ended = empty("runs", "show", "books", run, "--timeline", "main", "--json")

    assert (ended.code, ended.error["code"]) == (3, "run_elsewhere")
    assert ended.error["facts"]["timeline"] == "again"


def test_what_redo_no_longer_reaches_is_found_among_the_moves(empty: Shell) -> None:
    """A new turn after an undo ends the way of redo; the version of the undone turn leads back to it."""
    talk(empty.store)
    empty.ok("threads", "undo", "books", "--turns", "2")
    empty.ok("state", "put", "books", "/new.json", "1")

    redone = empty("threads", "redo", "books")
    listed = empty.ok("threads", "moves", "books", "--json").json["moves"]
    left = next(each for each in listed if each["input"] == "Good bye.")
    empty.ok("threads", "undo", "books", "--to", f"version:{left['version']}")

    assert [each["act"] for each in listed[:2]] == ["commit", "undo"]
    assert (redone.code, empty.ok("threads", "show", "books", "--json").json["commit"]) == (3, left["to"])


def test_the_commits_of_a_turn_are_one_row_of_the_moves(empty: Shell) -> None:
    """An edit by hand after it has a row of its own; every row fits 80 columns with the user's words."""
    talk(empty.store)
    empty.ok("state", "put", "books", "/new.json", "1")

    with PtySession(empty.directory, "threads", "moves", "books") as session:
        assert session.ended() == 0

    rows = [line.split() for line in session.shown.splitlines() if re.match(r" +[0-9]+  ", line)]
    assert [row[1] for row in rows] == ["commit", "commits", "commits", "commits"]
    assert [" ".join(row[5:-1]) for row in rows[1:]] == ["Good bye.", "Pay ann.", "Remember me."]
    assert max(map(len, session.shown.splitlines())) <= 80


def test_a_move_is_listed_with_its_own_time_and_who_made_it(empty: Shell) -> None:
    """The user of the system, as approvals have it; a commit, the control, has its own time and no name."""
    talk(empty.store)
    empty.ok("threads", "undo", "books")

    undo, commit = empty.ok("threads", "moves", "books", "--limit", "2", "--json").json["moves"]
    shown = empty.ok("threads", "moves", "books", "--limit", "2").out

    assert (undo["act"], undo["author"], commit["author"]) == ("undo", os_user(), None)
    assert undo["at"] > commit["at"]
    assert f"{undo['at'][:16].replace('T', ' ')}  {os_user()}" in shown


def test_the_moves_that_are_counted_are_explained(empty: Shell) -> None:
    """Where commits of a turn share a row, the sentence below says so; control: with a row for each it does not."""
    talk(empty.store)

    together = empty.ok("threads", "moves", "books", "--limit", "2").out
    alone = empty.ok("threads", "moves", "books", "--limit", "1").out

    assert "The last 2 moves, the commits of a turn in one row; --limit 0 lists all." in together
    assert "The last move; --limit 0 lists all." in alone


def test_the_headings_of_a_log_keep_digests_whole(shell: Shell) -> None:
    """At 80 columns each heading ends with the digest of its commit, that of a switch too, which names its backend."""
    shell.ok("threads", "switch", "shopping", "--to", "openai-chat:gpt-5.4")
    shell.ok("threads", "fork", "shopping", "a-timeline-of-quite-a-long-name")

    with PtySession(shell.directory, "threads", "log", "shopping") as session:
        assert session.ended() == 0

    listed = shell.ok("threads", "log", "shopping", "--json").json["turns"]
    digests = re.findall(r"\b([0-9a-f]{12})$", session.shown.replace("\r", ""), re.MULTILINE)
    assert digests == [turn["after"][:12] for turn in listed]
    assert "switch  to openai-chat:gpt-5.4" in session.shown
    assert "backend_switched" not in session.shown


def test_a_turn_of_a_run_is_not_named_by_the_reason_of_a_commit(empty: Shell) -> None:
    """Its words follow; a change that a program made keeps the reason that the program gave."""
    talk(empty.store)
    empty.ok("state", "put", "books", "/a.json", "1", "--reason", "by hand")

    shown = empty.ok("threads", "log", "books", "--limit", "2").out

    assert ("user_message" in shown, "by hand" in shown) == (False, True)
    assert "The last 2 changes" in shown
    assert "The last change;" in empty.ok("threads", "log", "books", "--limit", "1").out


@pytest.mark.parametrize(
    ("words", "advised"),
    [
        (["threads", "undo", "shopping", "3"], "Write --turns 3."),
        (["memory", "ls", "ann"], "Write --owner ann."),
    ],
)
def test_a_value_without_its_option_is_told_the_option(shell: Shell, words: list[str], advised: str) -> None:
    """A word alone is not taken for the value of an option, and nothing is done."""
    ended = shell(*words)

    assert ended.code == 2
    assert advised in ended.err


def test_a_promotion_says_how_it_is_taken_back(shell: Shell) -> None:
    """The command that it prints moves main to where it was; `undo` alone goes over a turn of the new main."""
    before = shell.ok("threads", "show", "shopping", "--json").json["commit"]

    said = shell.ok("threads", "promote", "shopping", "what-if").out
    (back,) = re.findall(r"^Take it back: perdure (.+)$", said, re.MULTILINE)
    shell.ok(*back.split())

    assert shell.ok("threads", "show", "shopping", "--json").json["commit"] == before


def test_an_undo_says_what_stays_done_outside(empty: Shell) -> None:
    """A payment is not taken back with the turn that made it; a turn without one says nothing."""
    talk(empty.store)

    undone = empty.ok("threads", "undo", "books")
    paid = empty.ok("threads", "undo", "books")
    again = empty.ok("threads", "redo", "books", "--json").json

    assert "stays done" not in undone.out
    assert "What was done outside stays done: pay." in paid.out
    assert "still_done" not in again


def test_an_undo_leaves_out_what_was_not_done_and_tells_what_is_not_known(empty: Shell) -> None:
    """A call with proof that it did nothing stays unnamed; one that broke off may have been done."""

    def send(to: str) -> str:
        """Send something, if the way there is open."""
        if to == "closed":
            raise NotDone("the office is closed")
        if to == "lost":
            raise ConnectionError("the line broke off")
        return "sent"

    tools = [perdure.tool(effect="external_write", name=name)(send) for name in ("good", "refused", "broken")]
    calls = step(use("good", to="bank"), use("refused", to="closed"), use("broken", to="lost"))
    with perdure.open(empty.store) as store:
        thread = store.thread("t", agent=Agent("a", backend=Script(calls, say("Bye.")), tools=tools))
        with suppress(RunFailed):
            thread.run("Send it.")
        states = {each.tool: each.state for each in thread.calls()}

    undone = empty.ok("threads", "undo", "t").out

    assert states == {"good": "succeeded", "refused": "failed", "broken": "unknown"}
    assert "What was done outside stays done: good." in undone
    assert "What may have been done outside, too: broken." in undone
    assert "refused" not in undone

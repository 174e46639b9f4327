"""The commands about threads: what they do, what they say, and what they refuse."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Agent
from perdure.cli.output.display import words_of
from perdure.errors import Corrupt, RunFailed
from perdure.model.message import File, Text
from perdure.model.names import SERVER_THREAD
from perdure.providers.wire.server_tools import account
from perdure.shapes.conversation import TranscriptPage
from perdure.testing import Script, fail, say, use
from tests.surfaces.shell import Shell


def items(shell: Shell, timeline: str = "main") -> list[str]:
    """The shopping list as it stands."""
    with perdure.open(shell.store, read_only=True) as store:
        return store.thread("shopping", timeline=timeline).get("/todos.json")


def test_threads_are_listed_with_where_they_stand(shell: Shell) -> None:
    """`ls` names agent, owner, turns, timelines and head."""
    listed = shell.ok("threads", "ls", "--json").json

    (thread,) = listed["threads"]
    assert (thread["id"], thread["agent"], thread["owner"]) == ("shopping", "helper", "ann")
    assert (thread["turns"], thread["timelines"], thread["head"]["version"]) == (3, 2, 4)
    assert thread["begun_at"] == "2026-01-31T12:00:00.000000Z"
    assert listed["more"] is False


def test_threads_can_be_filtered_and_limited(shell: Shell) -> None:
    """By owner and agent; a list that was cut short says so."""
    for name in ("b", "c"):
        shell.ok("threads", "begin", name, "--agent", "other", "--owner", "bob")

    assert [each["id"] for each in shell.ok("threads", "--owner", "bob", "--json").json["threads"]] == [
        "b",
        "c",
    ]
    assert shell.ok("threads", "--agent", "nobody", "--json").json["threads"] == []
    first = shell.ok("threads", "--limit", "1", "--json").json
    assert ([each["id"] for each in first["threads"]], first["more"]) == (["b"], True)
    assert "--limit 0" in shell.ok("threads", "--limit", "1").out
    assert len(shell.ok("threads", "--limit", "0", "--json").json["threads"]) == 3


def test_the_servers_own_thread_is_listed_only_where_its_agent_is_named(shell: Shell) -> None:
    """A key is stored in a thread of the server; lists of threads and agents are of the user's."""
    shell.ok("keys", "add", "ann", "--role", "viewer")

    listed = [
        shell.ok("threads", *options, "--json").json["threads"]
        for options in ((), ("--agent", SERVER_THREAD))
    ]

    assert [[each["id"] for each in rows] for rows in listed] == [["shopping"], [SERVER_THREAD]]
    assert SERVER_THREAD not in shell.ok("agents", "--json").out


def test_a_thread_is_begun_with_an_agent_only(shell: Shell) -> None:
    """`begin` opens the one there is, and refuses another agent's or owner's."""
    assert shell("threads", "begin", "new").code == 2
    assert "new" not in shell.ok("threads").out

    begun = shell.ok("threads", "begin", "new", "--agent", "helper", "--json").json

    assert begun["head"] == {"timeline": "main", "version": 0, "commit": None}
    assert (
        shell.ok("threads", "begin", "shopping", "--agent", "helper", "--json").json["head"]["version"] == 4
    )
    assert shell("threads", "begin", "shopping", "--agent", "other").code == 4
    assert shell("threads", "begin", "shopping", "--agent", "helper", "--owner", "bob").code == 4


def test_a_thread_is_shown_at_any_moment(shell: Shell) -> None:
    """`show` counts paths and gives the last messages of the moment that is asked for."""
    now = shell.ok("threads", "show", "shopping", "--json").json
    then = shell.ok("threads", "show", "shopping", "--at", "turn:1", "--json").json

    assert (now["paths"], then["paths"]) == (3, 2)
    assert [line["timeline"] for line in now["timelines"]] == ["main", "what-if"]
    assert now["messages"][-1]["text"] == "Done, carrots is on it."
    assert then["messages"][-1]["text"] == "Done, milk is on it."
    assert "Done, carrots is on it." in shell.ok("threads", "show", "shopping").out


@pytest.mark.parametrize("name", ["HEAD~1", "turn:3", "version:3", "ask-carrots-main"])
def test_a_moment_has_many_names(shell: Shell, name: str) -> None:
    """All of them lead to the same commit."""
    commits = shell.ok("threads", "log", "shopping", "--commits", "--json").json["commits"]

    shown = shell.ok("threads", "show", "shopping", "--at", name, "--json").json

    assert shown["commit"] == commits[1]["digest"]


def test_a_timelines_name_is_a_moment(shell: Shell) -> None:
    """It means where that timeline stands."""
    heads = {
        line["timeline"]: line["commit"]
        for line in shell.ok("threads", "show", "shopping", "--json").json["timelines"]
    }

    shown = shell.ok("threads", "show", "shopping", "--at", "what-if", "--json").json

    assert shown["commit"] == heads["what-if"] != heads["main"]


def test_a_name_that_fits_a_timeline_and_another_moment_is_refused(shell: Shell) -> None:
    """A guess could fork, or undo to, the wrong one."""
    commits = shell.ok("threads", "log", "shopping", "--commits", "--json").json["commits"]
    prefix = commits[0]["digest"][:12]
    shell.ok("threads", "fork", "shopping", prefix, "--at", "turn:1")

    ended = shell("threads", "show", "shopping", "--at", prefix)

    assert ended.code == 2
    assert "fits two kinds of name: a digest (" in ended.err


def test_the_log_goes_by_turn_newest_first(shell: Shell) -> None:
    """Each turn has its messages and the paths that it changed."""
    log = shell.ok("threads", "log", "shopping", "--json").json

    assert [(turn["number"], turn["kind"]) for turn in log["turns"]] == [
        (3, "edit"),
        (3, "message"),
        (2, "message"),
        (1, "message"),
    ]
    carrots = log["turns"][1]
    assert [message["role"] for message in carrots["messages"]] == ["user", "assistant"]
    assert carrots["input"] == "Please put carrots on the list."
    assert carrots["backend"] == "openai:gpt-5.6"
    assert carrots["changed"] == [
        {"path": "/count.json", "what": "changed"},
        {"path": "/todos.json", "what": "changed"},
    ]
    assert log["heads"] == {log["turns"][0]["after"]: ["main"]}


def test_the_log_of_commits_has_events_and_ops(shell: Shell) -> None:
    """`--commits` lists each commit with what it did."""
    commits = shell.ok("threads", "log", "shopping", "--commits", "--limit", "2", "--json").json

    newest, before = commits["commits"]
    assert commits["more"] is True
    assert newest["parents"] == [before["digest"]]
    assert [op["op"] for op in newest["ops"]] == ["put"]
    assert [event["type"] for event in before["events"]] == ["message.appended", "message.appended"]
    assert "agent.changed" in [event["type"] for event in newest["events"]]


def test_names_of_other_frameworks_are_shown_and_accepted(shell: Shell) -> None:
    """Both logs and `show` print them, and --at takes them; a mistyped one gets a suggestion."""
    with perdure.open(shell.store) as store, store.thread("shopping").change("checkpoint") as change:
        change.name("langgraph:1ef0-a")
        change.name("adk:7")
    shell.ok("threads", "undo", "shopping")
    shell.ok("threads", "redo", "shopping")

    turns = shell.ok("threads", "log", "shopping", "--limit", "1")
    commits = shell.ok("threads", "log", "shopping", "--commits", "--limit", "1")
    shown = shell.ok("threads", "show", "shopping", "--at", "langgraph:1ef0-a")

    assert "  named langgraph:1ef0-a\n  named adk:7\n" in turns.out
    assert "named langgraph:1ef0-a, adk:7" in commits.out
    assert "named   langgraph:1ef0-a\nnamed   adk:7\n" in shown.out
    log = shell.ok("threads", "log", "shopping", "--limit", "1", "--json").json
    then = shell.ok("threads", "show", "shopping", "--at", "adk:7", "--json").json
    assert then["names"] == log["turns"][0]["names"] == ["langgraph:1ef0-a", "adk:7"]
    assert then["commit"] == log["turns"][0]["after"]
    assert (
        "Did you mean 'langgraph:1ef0-a'"
        in shell("threads", "show", "shopping", "--at", "langgraph:1ef-a").err
    )


def test_of_many_names_of_a_turn_the_log_shows_two(shell: Shell) -> None:
    """A framework names each of its messages; --full prints all of the names."""
    with perdure.open(shell.store) as store, store.thread("shopping").change("checkpoint") as change:
        for number in range(9):
            change.name(f"claude-code:{number}")

    short = shell.ok("threads", "log", "shopping", "--limit", "1").out
    full = shell.ok("threads", "log", "shopping", "--limit", "1", "--full").out

    assert [short.count("  named "), full.count("  named ")] == [2, 9]
    assert "  and 7 more names; --full shows all\n" in short


def test_the_log_shows_what_a_vendors_own_tool_did_and_not_its_bytes(shell: Shell) -> None:
    """A search is told in words, and other inline content by its size."""
    picture = File(uri="data:image/png;base64,iVBORw0KGgo=", mime_type="image/png")
    with perdure.open(shell.store) as store, store.thread("shopping").change("note") as change:
        change.say(
            "assistant", [account("web_search_call", "web_search", input={"query": "eggs"}), Text("Done.")]
        )

    log = shell.ok("threads", "log", "shopping", "--limit", "1").out

    assert '[web_search: {"query": "eggs"}]' in log
    assert "base64" not in log
    assert words_of({"content": [msgspec.to_builtins(picture)]}) == "[file image/png, 8 B]"


def test_the_log_says_when_it_was_cut_short(shell: Shell) -> None:
    """So that nobody takes the last few for all."""
    assert "--limit 0" in shell.ok("threads", "log", "shopping", "--limit", "2").out
    assert "--limit 0" not in shell.ok("threads", "log", "shopping").out
    shell.ok("threads", "begin", "new", "--agent", "helper")
    assert "Nothing is committed" in shell.ok("threads", "log", "new").out


def test_the_whole_log_has_every_word(shell: Shell) -> None:
    """`--full` shows messages with their line breaks, and every changed path."""
    with perdure.open(shell.store) as store, store.thread("shopping").change("many") as change:
        change.say("user", "first line\nsecond line")
        for number in range(20):
            change.put(f"/many/{number:02}", number)

    brief, full = (
        shell.ok("threads", "log", "shopping", "--limit", "1", *more).out for more in ([], ["--full"])
    )

    assert "first line↵second line" in brief
    assert "… and 12 paths more" in brief
    assert "/many/19" not in brief
    assert "    first line\n    second line\n" in full
    assert "/many/19" in full


def test_turns_are_listed_oldest_first(shell: Shell) -> None:
    """A line each, with what was asked and answered; a turn without words shows its reason."""
    turns = shell.ok("threads", "turns", "shopping", "--json").json["turns"]
    shown = shell.ok("threads", "turns", "shopping").out

    assert [turn["number"] for turn in turns] == [1, 2, 3, 3]
    assert "Please put milk on the list." in shown
    assert "remember" in shown


def test_a_fork_begins_where_it_is_told(shell: Shell) -> None:
    """At any moment of any timeline; a name that is taken is a conflict."""
    turn = shell.ok("threads", "turns", "shopping", "--json").json["turns"][0]

    forked = shell.ok("threads", "fork", "shopping", "early", "--at", "turn:1", "--json").json
    other = shell.ok("threads", "fork", "shopping", "late", "--timeline", "what-if", "--json").json

    assert forked["head"] == {"timeline": "early", "version": 0, "commit": turn["after"]}
    assert other["timeline"] == "what-if"
    assert items(shell, "late") == ["milk", "eggs", "bread"]
    assert shell("threads", "fork", "shopping", "early").code == 4
    assert shell("threads", "fork", "shopping", "Not A Name").code == 2
    assert shell("threads", "fork", "shopping", "x", "--at", "turn:99").code == 3


def test_a_repeated_op_id_does_it_once(shell: Shell) -> None:
    """The answer is that of the first time; another intent under the same id is a conflict."""
    first = shell.ok("threads", "fork", "shopping", "once", "--at", "HEAD~1", "--op-id", "f1", "--json").json
    shell.ok("state", "put", "shopping", "/later.json", "1")

    again = shell.ok("threads", "fork", "shopping", "once", "--at", "HEAD~1", "--op-id", "f1", "--json").json

    assert again["head"] == first["head"]
    assert (
        shell("threads", "fork", "shopping", "twice", "--op-id", "f1", "--json").error["error"] == "OpReused"
    )


def test_undo_and_redo_move_by_turns(shell: Shell) -> None:
    """The version grows whichever way the head moves."""
    undone = shell.ok("threads", "undo", "shopping", "--turns", "2", "--json").json
    assert (undone["turn"], undone["head"]["version"]) == (2, 5)
    assert items(shell) == ["milk", "eggs"]

    redone = shell.ok("threads", "redo", "shopping", "--json").json
    assert (redone["turn"], redone["apart"], redone["head"]["version"]) == (3, True, 6)

    to_first = shell.ok("threads", "undo", "shopping", "--to", "turn:1", "--json").json
    assert to_first["turn"] == 1
    assert shell.ok("threads", "undo", "shopping", "--json").json["head"]["commit"] is None
    assert shell("threads", "undo", "shopping").code == 3
    assert shell("threads", "undo", "shopping", "--turns", "0").code == 2


def test_one_sentence_says_what_was_moved_with_the_digest_last(shell: Shell) -> None:
    """So that it can be copied, and given back to us."""
    for words in (
        ["undo", "shopping"],
        ["redo", "shopping"],
        ["fork", "shopping", "x"],
        ["seal", "shopping", "x"],
    ):
        (line,) = shell.ok("threads", *words).out.splitlines()
        shell.ok("threads", "show", "shopping", "--at", line.split()[-1])


def test_promote_swaps_main_and_keeps_the_old_one(shell: Shell) -> None:
    """The old main is sealed under the name that the answer tells."""
    promoted = shell.ok("threads", "promote", "shopping", "what-if", "--json").json

    assert promoted["kept_as"] == "main.v4"
    assert items(shell) == ["milk", "eggs", "bread"]
    assert items(shell, "main.v4") == ["milk", "eggs", "carrots"]
    refused = shell("state", "put", "shopping", "/x", "1", "--timeline", "main.v4", "--json")
    assert (refused.code, refused.error["error"]) == (4, "Sealed")
    assert shell("threads", "promote", "shopping", "main").code == 2
    assert shell("threads", "promote", "shopping", "nowhere").code == 3


def test_seal_wants_the_timeline_by_name(shell: Shell) -> None:
    """It is for good, so main is never sealed by default."""
    assert shell("threads", "seal", "shopping").code == 2
    assert shell("threads", "seal", "shopping", "what-if", "--timeline", "main").code == 2

    shell.ok("threads", "seal", "shopping", "--timeline", "what-if")

    assert shell("state", "put", "shopping", "/x", "1", "--timeline", "what-if").code == 4
    shell.ok("state", "put", "shopping", "/x", "1")


def test_merge_takes_in_what_does_not_clash(shell: Shell) -> None:
    """What clashes is named, and nothing is written."""
    shell.ok("threads", "fork", "shopping", "side")
    shell.ok("state", "put", "shopping", "/side.json", "true", "--timeline", "side")

    merged = shell.ok("threads", "merge", "shopping", "side", "--reason", "take the side", "--json").json
    again = shell.ok("threads", "merge", "shopping", "side").out
    clash = shell("threads", "merge", "shopping", "what-if", "--json")

    assert (merged["paths"], merged["source"], merged["head"]["version"]) == (1, "side", 5)
    assert "nothing was written" in again
    assert (clash.code, clash.error["error"]) == (4, "MergeConflict")
    assert "/todos.json" in clash.error["message"]
    assert items(shell) == ["milk", "eggs", "carrots"]


def test_diff_tells_state_and_messages_of_each_side(shell: Shell) -> None:
    """Values of JSON documents are in the answer; bytes are described."""
    compared = shell.ok("threads", "diff", "shopping", "main", "what-if", "--json").json

    changed = {each["path"]: each for each in compared["state"]}
    assert compared["same"] is False
    assert changed["/todos.json"]["before"]["value"] == ["milk", "eggs", "carrots"]
    assert changed["/todos.json"]["after"]["value"] == ["milk", "eggs", "bread"]
    assert changed["/notes/a.txt"]["after"] is None
    assert "value" not in changed["/notes/a.txt"]["before"]
    assert [message["text"] for message in compared["b"]["messages"]] == [
        "Please put bread on the list.",
        "Done, bread is on it.",
    ]


def test_diff_shows_the_lines_that_changed(shell: Shell) -> None:
    """As people know it from other tools."""
    shown = shell.ok("threads", "diff", "shopping", "main", "what-if").out

    assert '-   "carrots"' in shown
    assert '+   "bread"' in shown
    assert "only on what-if" in shown
    assert "There is no difference." in shell.ok("threads", "diff", "shopping", "main").out


def test_diff_can_be_narrowed_to_a_path(shell: Shell) -> None:
    """`--prefix` leaves the rest of the state out."""
    compared = shell.ok("threads", "diff", "shopping", "version:0", "--prefix", "/notes", "--json").json

    assert [each["path"] for each in compared["state"]] == ["/notes/a.txt"]


@pytest.mark.parametrize(
    ("question", "turn"),
    [
        (["--path", "/todos.json", "--exists"], 1),
        (["--path", "/todos.json", "--contains", '"eggs"'], 2),
        (["--path", "/todos.json", "--equals", '["milk","eggs"]', "--at", "turn:2"], 2),
        (["--path", "/count.json", "--above", "2"], 3),
        (["--path", "/count.json", "--below", "99"], 1),
        (["--path", "/notes/a.txt", "--exists", "--good", "turn:2"], 3),
        (["--path", "/count.json", "--absent"], 3),
    ],
)
def test_bisect_finds_where_something_became_true(shell: Shell, question: list[str], turn: int) -> None:
    """One thing is asked about one path."""
    if "--absent" in question:
        shell.ok("state", "rm", "shopping", "/count.json")

    found = shell.ok("threads", "bisect", "shopping", *question, "--json").json

    assert found["commit"]["turn"] == turn


@pytest.mark.parametrize(
    ("question", "told"),
    [
        (["--path", "/x"], "0 questions"),
        (["--path", "/x", "--exists", "--absent"], "2 questions"),
        (["--path", "/x", "--exists"], "has no value at the head of 'main'"),
        (
            ["--path", "/count.json", "--above", "99"],
            "whether /count.json was above 99: it did not at the head",
        ),
        (["--path", "/todos.json", "--equals", "nonsense"], "nothing was searched"),
        (["--path", "/todos.json", "--contains", "milk"], """--contains '"milk"'"""),
        (["--path", "/todos.json", "--equals", '{"a": 1, "a": 2}'], "nothing was searched"),
        (
            ["--path", "/todos.json", "--exists", "--good", "turn:1"],
            "existed: it did at --good turn:1 already",
        ),
    ],
)
def test_bisect_refuses_what_it_cannot_answer(shell: Shell, question: list[str], told: str) -> None:
    """A question that is none, two, or never became true."""
    ended = shell("threads", "bisect", "shopping", *question)

    assert ended.code == 2
    assert told in ended.err


def test_a_removed_thread_is_gone_and_can_be_begun_anew(shell: Shell) -> None:
    """The new one knows nothing of the old one."""
    shell.ok("threads", "rm", "shopping", "--yes")

    assert shell("threads", "show", "shopping").code == 3
    assert shell("threads", "rm", "shopping").code == 3
    begun = shell.ok("threads", "begin", "shopping", "--agent", "other", "--json").json
    assert begun["head"]["version"] == 0


def test_a_short_log_of_edits_does_not_call_them_turns(shell: Shell) -> None:
    """A turn is what was said; an edit by hand is a change."""
    shell.ok("state", "put", "shopping", "/x", "1")

    assert "The last change; " in shell.ok("threads", "log", "shopping", "--limit", "1").out


def damage(path: Path) -> None:
    """Make a thread of three messages, the second of which is damaged."""
    with perdure.open(path) as store:
        thread = store.thread("notes", agent="shopper")
        for text in ("first", "second", "third"):
            with thread.change("said") as change:
                change.say("user", text)
                change.put("/x.json", len(text))
        thread.fork("other", at="turn:2")
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE log SET bodies = replace(bodies, 'second', 'sekond')")


@pytest.mark.parametrize(
    "words", ["turns notes", "log notes --graph", "show notes", "diff notes turn:1 turn:3"]
)
def test_one_damaged_message_leaves_the_rest_of_what_is_shown(shell: Shell, words: str) -> None:
    """It is marked, a line says what to do, and the command exits with 6; without that message it exits with 0."""
    damage(shell.store)

    shown = shell("threads", *words.split())

    assert shown.code == 6
    assert "third" in shown.out
    assert re.search(r"(^|  )damaged", shown.out, re.MULTILINE)
    assert "✗ A message is damaged. `perdure verify` names each, and what to do." in shown.out
    assert shell("threads", *words.replace("notes", "shopping").split()).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("threads", "moves", "notes"),
        ("state", "log", "notes", "/x.json"),
        ("state", "blame", "notes", "/x.json", "--at", "turn:2"),
    ],
)
def test_a_damaged_input_is_told_in_its_place(shell: Shell, words: tuple[str, ...]) -> None:
    """Lists of commits show the others beside it."""
    damage(shell.store)

    assert "damaged: its stored bytes are" in shell.ok(*words).out


@pytest.mark.parametrize(
    ("words", "code"), [(("costs", "--by", "turn"), 0), (("threads", "show", "notes", "--at", "turn9"), 3)]
)
def test_a_damaged_message_is_no_error_where_its_words_are_not_needed(
    shell: Shell, words: tuple[str, ...], code: int
) -> None:
    """Costs are counted without it, and an unknown name is not found, with names that are close."""
    damage(shell.store)

    assert shell(*words).code == code


def test_a_program_can_read_past_a_damaged_message(shell: Shell) -> None:
    """By default it raises; past it, the entry says so, and its message raises."""
    damage(shell.store)
    with perdure.open(shell.store, read_only=True) as store:
        thread = store.thread("notes")

        for read in (thread.transcript, thread.turns):
            with pytest.raises(Corrupt):
                read()
        found = thread.transcript(passes_damage=True)

        assert [each.is_damaged for each in found] == [False, True, False]
        assert [each.text for each in found] == ["first", "", "third"]
        with pytest.raises(Corrupt):
            _ = found[1].message


def test_a_damaged_message_leaves_the_rest_of_the_servers_transcript(shell: Shell) -> None:
    """It is there without words and without a reason why it was forgotten."""
    damage(shell.store)
    with perdure.open(shell.store, read_only=True) as store:
        thread = store.thread("notes")

        page = TranscriptPage.of(thread, thread.at(), limit=2)

    assert [(each.text, each.is_damaged) for each in page.messages] == [("", True), ("third", False)]


def test_one_damaged_message_leaves_the_rest_of_the_log(shell: Shell) -> None:
    """It is marked in its turn, the command exits with 6, and `verify` names the turn and the way out."""
    damage(shell.store)

    log, verified = shell("threads", "log", "notes"), shell("verify")

    assert (log.code, verified.code) == (6, 6)
    assert all(word in log.out for word in ("first", "third", "damaged: "))
    assert "thread 'notes', turn 2 of 'main', commit " in " ".join(verified.out.split())
    assert "perdure restore" in verified.out


def test_messages_are_found_by_their_words(shell: Shell) -> None:
    """In any order and case, of every thread; control: other words find nothing."""
    everywhere = shell.ok("threads", "search", "CARROTS", "--json").json
    here = shell.ok("threads", "search", "carrots", "done", "--thread", "shopping", "--json").json
    nothing = shell.ok("threads", "search", "carrots", "submarine", "--json").json

    assert {each["thread"] for each in everywhere["found"]} == {"shopping"}
    texts = [each["message"]["text"].casefold() for each in here["found"]]
    assert texts
    assert all("carrots" in text and "done" in text for text in texts)
    turns = [each["turn"] for each in everywhere["found"]]
    assert turns == sorted(turns, reverse=True)
    assert (nothing["found"], nothing["more"]) == ([], False)
    assert "carrots" in shell.ok("threads", "search", "carrots").out


def test_a_search_prints_where_the_words_are(shell: Shell) -> None:
    """In a call, a result, or what was said; the place itself is shown."""
    with perdure.open(shell.store) as store:
        script = Script(use("look", where="the zeppelin hall"), say("Found it."))
        agent = Agent("planner", backend=script, tools=[look])
        store.thread("halls", agent=agent).run("Where is it?")

    call = shell.ok("threads", "search", "zeppelin", "hall").out
    result = shell.ok("threads", "search", "seven", "moorings", "--json").json["found"]

    assert re.search(r"halls +1 +assistant +call +look .*the zeppelin hall", call), call
    assert [(each["kind"], each["text"]) for each in result] == [("result", "seven free moorings")]


@perdure.tool(effect="read_only")
def look(where: str) -> str:
    """Look somewhere."""
    return "seven free moorings"


def test_a_search_says_that_there_is_more(shell: Shell) -> None:
    """It stops at --limit; 0 lists all."""
    assert shell.ok("threads", "search", "e", "--limit", "1", "--json").json["more"]
    assert not shell.ok("threads", "search", "e", "--limit", "0", "--json").json["more"]


def test_a_search_of_a_timeline_needs_its_thread(shell: Shell) -> None:
    """As a search that has no word, it reads nothing; `perdure search` names both searches."""
    assert shell("threads", "search", "bread", "--timeline", "what-if").code == 2
    assert shell.ok("threads", "search", "bread", "--thread", "shopping", "--timeline", "what-if").out
    assert shell("threads", "search", " ", "--json").error["code"] == "query_invalid"
    assert "'perdure threads search'" in shell("search", "bread").err


def test_threads_are_listed_by_the_state_of_their_runs_and_calls(house: Shell) -> None:
    """One that waits, one whose last run failed, one with a call of unknown outcome; control: all of them without."""
    with perdure.open(house.store) as store:
        store.thread("well", agent=Agent("a", backend=Script(say("Well.")))).run("Hello.")
        with suppress(RunFailed):
            store.thread("broken", agent=Agent("b", backend=Script(fail(), fail()))).run("Hello.")

    found = {
        state: [each["id"] for each in house.ok("threads", "ls", "--state", state, "--json").json["threads"]]
        for state in ("running", "waiting", "failed", "unknown")
    }
    every = [each["id"] for each in house.ok("threads", "ls", "--json").json["threads"]]

    assert found == {"running": [], "waiting": ["house"], "failed": ["broken"], "unknown": ["house"]}
    assert every == ["broken", "house", "well"]
    assert "There is no such thread here." in house.ok("threads", "ls", "--state", "running").out


def test_the_newest_threads_come_first_on_request(empty: Shell) -> None:
    """By their last commit; control: by id without."""
    empty.ok("init")
    for thread in ("b", "a", "c"):
        empty.ok("threads", "begin", thread, "--agent", "helper")
    for number, thread in enumerate(("c", "b", "a", "b")):
        empty.ok("state", "put", thread, "/n.json", str(number))

    newest = empty.ok("threads", "ls", "--newest", "--limit", "2", "--json").json
    by_id = empty.ok("threads", "ls", "--json").json["threads"]

    assert ([each["id"] for each in newest["threads"]], newest["more"]) == (["b", "a"], True)
    assert [each["id"] for each in by_id] == ["a", "b", "c"]

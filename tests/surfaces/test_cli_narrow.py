"""Listings at 80 columns, over all nouns, on a store of odd contents: whole words, and ids that can be typed back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

import perdure
from perdure import Agent
from perdure.cli.output.ledger_words import show_losses
from perdure.cli.output.screen import Column, Screen, console, cut_at_words
from perdure.errors import Invalid
from perdure.model.names import id_meant, short_ids
from perdure.shapes.conversation import LossShape
from perdure.shapes.text import inline, safe_json
from perdure.testing import Script, say, use
from tests.crash.campaign import sized
from tests.surfaces.pty_session import PtySession
from tests.surfaces.shell import Shell

LONG = "a customer's request about an order that was never delivered, with many words"
ENDS_ALIKE = "0191f0aa-0000-7000-8000-00000000beef", "0191f0aa-0000-7000-8000-10000000beef"
THREADS = (
    "注文-配送-" + "漢字" * 14 + "-終わり",
    "طلب-" + "قديم" * 16 + "-نهاية",
    "order-" + "x" * 150 + "-the-same-end",
    "order-" + "y" * 150 + "-the-same-end",
    "e\u0301".encode().decode().replace("e\u0301", "é") + "clair " * 9 + "fin",
    *ENDS_ALIKE,
    "short",
)
WORDS = (
    "",
    "One line,\nand another,\r\nand a third with a\ttab and quite a few more words in it.",
    "説明文" * 30,
    "שלום " * 30,
    "x" * 300,
    LONG + ", and the end of it.",
)


@perdure.tool(effect="financial", ask=True)
def transfer_of_money(to: str, purpose: str) -> str:
    """Pay; nobody ever approves it."""
    return f"{to} {purpose}"


def odd(path: Path) -> None:
    """Make the store."""
    script = Script(use("transfer_of_money", to="the roofer", purpose=LONG), say("Paid."))
    agent = Agent("an/agent/" + "with-a-long-name" * 3, backend=script, tools=[transfer_of_money])
    with perdure.open(path) as store:
        for name in THREADS:
            store.thread(name, agent=agent, owner="an owner " * 5)
        thread = store.thread(THREADS[2], agent=agent)
        for number, words in enumerate(WORDS):
            with thread.change(f"reason {number} {LONG}"[:180]) as change:
                change.say("user", words or " ", id=f"{number}-" + "m" * 100)
                change.put(f"/notes/{'deep/' * 20}{number}.json", words)
                change.say("assistant", words or "…", provider="openai", model="gpt-5.6")
        thread.artifacts.put(b"content", media_type="text/plain", name=LONG)
        thread.fork("a-line/" + "z" * 60 + "/end")
        thread.fork("b-line/" + "z" * 60 + "/end")
        thread.run(LONG)
        thread.fork("asked").run(LONG)
        for index, words in enumerate(WORDS[1:]):
            store.memory("ann").add(words, id="note-" * 20 + str(index))
            store.memory("ann").add(f"{index} {LONG}", scope="a-scope-with-a-long-name")


@pytest.fixture(scope="module")
def odd_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That store, which the tests only read."""
    path = tmp_path_factory.mktemp("odd") / "perdure.db"
    odd(path)
    return path


@pytest.fixture
def odd_shell(empty: Shell, odd_store: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell of 80 columns whose commands find that store."""
    monkeypatch.setenv("PERDURE_STORE", str(odd_store))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    empty.store = odd_store
    return empty


THREAD = THREADS[2]
# A listing, the column and the fields of its ids, and the command that shows the one of an id.
LISTINGS: dict[str, tuple[list[str], str, str, list[str]]] = {
    "threads": (["threads", "ls"], "thread", "threads.*.id", ["threads", "show", "ID"]),
    "timelines": (["threads", "show", THREAD], "timeline", "timelines.*.timeline", ["threads", "log", THREAD, "--timeline", "ID"]),
    "turns": (["threads", "turns", THREAD], "after", "turns.*.after", ["threads", "show", THREAD, "--at", "ID"]),
    "commits": (["threads", "log", THREAD, "--commits"], "commit", "commits.*.digest", ["threads", "show", THREAD, "--at", "ID"]),
    "paths": (["state", "ls", THREAD], "path", "paths.*.path", ["state", "get", THREAD, "ID"]),
    "path": (["state", "log", THREAD, f"/notes/{'deep/' * 20}1.json"], "commit", "versions.*.commit", ["threads", "show", THREAD, "--at", "ID"]),
    "runs": (["runs", "ls", THREAD], "run", "runs.*.id", ["runs", "show", THREAD, "ID"]),
    "open runs": (["runs", "ls"], "run", "runs.*.id", ["runs", "show", THREAD, "ID"]),
    "calls": (["calls", "ls", THREAD], "call", "calls.*.id", ["calls", "show", THREAD, "ID"]),
    "approvals": (["approvals", "ls"], "call", "approvals.*.call", ["approvals", "show", THREAD, "ID"]),
    "agents": (["agents", "ls"], "agent", "agents.*.name", ["agents", "show", "ID"]),
    "memory": (["memory", "ls", "--owner", "ann"], "item", "items.*.id", ["memory", "show", "ID", "--owner", "ann"]),
    "search": (["memory", "search", "words", "--owner", "ann"], "item", "found.*.item.id", ["memory", "show", "ID", "--owner", "ann"]),
    "artifacts": (["artifacts", "ls", THREAD], "artifact", "artifacts.*.digest", ["artifacts", "show", THREAD, "ID"]),
    "models": (["models", "ls", "--all"], "model", "models.*.name", ["models", "show", "ID"]),
}  # fmt: skip


def fields(value: Any, way: str) -> list[str]:
    """Return what a JSON answer has at a way such as `runs.*.id`."""
    for part in way.split("."):
        value = (
            value
            if part == "*"
            else [each[part] for each in value]
            if isinstance(value, list)
            else value[part]
        )
    return value


def column(shown: str, name: str) -> list[str]:
    """Return the cells of a column, found by where its heading begins and the next one begins, in columns of a terminal."""
    lines = shown.splitlines()
    top = next(at for at, line in enumerate(lines) if re.search(rf"(^|  ){name}(  |$)", line))
    heading = next(each for each in re.finditer(r"\S+( \S+)*", lines[top]) if each[0] == name)
    start = cell_len(lines[top][: heading.start()])
    cells: list[str] = []
    for line in lines[top + 1 :]:
        letters, at = "", 0
        for letter in line:
            letters += letter if at >= start else ""
            at += cell_len(letter)
        if not letters:
            break
        cells.append(re.split(r" {2,}", letters)[0])
    return cells


def texts(value: Any) -> Iterator[str]:
    """Yield every text of a JSON answer, on one line as tables show it."""
    match value:
        case str():
            yield inline(value)
        case dict():
            yield inline(safe_json(value, indent=None))
            for each in value.values():
                yield from texts(each)
        case list():
            for each in value:
                yield from texts(each)
        case _:
            pass


def ageless(answer: str) -> str:
    """Return an answer without the field that changes from second to second."""
    return re.sub(r'"age_seconds": [0-9]+', "", answer)


@pytest.mark.parametrize("name", LISTINGS)
def test_an_id_of_a_listing_can_be_typed_back(odd_shell: Shell, name: str) -> None:
    """Whatever the table shows in its id column leads to the thing of that row, in every noun.

    Of a long listing some rows are tried, with `PERDURE_DEEP=1` all.
    """
    words, heading, way, shows = LISTINGS[name]
    whole = fields(odd_shell.ok(*words, "--json").json, way)

    shown = column(odd_shell.ok(*words).out, heading)[: len(whole)]

    assert len(shown) == len(whole) > 0
    each_of = sized(len(whole) // 3 + 1, 1)
    for typed, id in list(zip(shown, whole, strict=True))[::each_of]:
        by_part = odd_shell.ok(*(typed if each == "ID" else each for each in shows), "--json").out
        by_whole = odd_shell.ok(*(id if each == "ID" else each for each in shows), "--json").out
        assert ageless(by_part) == ageless(by_whole)


@pytest.mark.parametrize("name", LISTINGS)
def test_a_listing_fits_80_columns_and_is_cut_between_words(odd_shell: Shell, name: str) -> None:
    """No row is wider than the terminal, and whatever ends with … is cut at the end of a word."""
    words = LISTINGS[name][0]
    known = [each for each in texts(odd_shell.ok(*words, "--json").json) if each]

    shown = odd_shell.ok(*words).out

    table = shown[shown.index("timeline  ") :] if words[1] == "show" else shown
    for line in table.partition("\n\n")[0].partition("Look at one")[0].splitlines():
        if line.startswith("Dollars"):
            continue
        assert cell_len(line) <= 80, line
        for cell in re.split(r" {2,}", line):
            if cell.endswith("…") and len(cell) > 2 and not any(each == cell for each in known):
                assert any(ends_between_words(each, cell[:-1].strip()) for each in known), cell


def ends_between_words(text: str, beginning: str) -> bool:
    """True if `text` begins so, and a word ends there; a word that is nearly all of the cell may be cut."""
    at = text.find(beginning)
    if at < 0:
        return False
    after = text[at + len(beginning) :].lstrip("…")[:1]
    is_end = not after or not (beginning[-1].isalnum() and after.isalnum()) or cell_len(after) > 1
    return is_end or len(re.split(r"\W+", beginning)[-1]) * 3 > 2 * len(beginning)


def test_a_cut_inside_a_word_would_be_found() -> None:
    """Control: the check of the test above refuses a cut inside a word."""
    assert ends_between_words("pay the landlord", "pay the")
    assert not ends_between_words("pay the landlord", "pay the land")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"ueberweisung_von_geld": 1}', '{"ueberwe…'),
        ("pay the landlord", "pay the…"),
    ],
)
def test_a_cell_that_a_word_would_leave_nearly_empty_is_filled(text: str, shown: str) -> None:
    """Arguments that begin with a bracket and a long name showed nothing but the bracket."""
    assert cut_at_words(text, 10) == shown


def test_a_column_that_left_returns_where_there_is_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wide one leaves last; once it is gone, the narrow one that left before it fits again."""
    monkeypatch.setenv("COLUMNS", "40")
    columns = (Column("a"), Column("wide", leaves=2), Column("when", leaves=1))

    Screen(console()).table(columns, [("x" * 30, "y" * 30, "3 min")])

    assert capsys.readouterr().out.splitlines()[0].split() == ["a", "when"]


@pytest.mark.parametrize("width", range(2, 40))
def test_words_are_cut_to_any_width(width: int) -> None:
    """At every width the text fits, and no sign is split from its accent or its joiner."""
    for words in (*WORDS, "e\u0301" * 30, "👩\u200d👩\u200d👧" * 10):
        shown = cut_at_words(inline(words), width)

        assert cell_len(shown) <= width
        assert not shown.endswith(("\u200d…", "\u200d"))


def test_ids_that_end_alike_are_shown_longer() -> None:
    """Each is shown by as much of its end as no other has; a part that fits two is refused, naming both."""
    shown = short_ids(ENDS_ALIKE)

    assert [len(each) for each in shown.values()] == [12, 12]
    assert [id_meant(each, ENDS_ALIKE, what="run") for each in shown.values()] == list(shown)
    with pytest.raises(Invalid) as ambiguous:
        id_meant("0000beef", ENDS_ALIKE, what="run")
    assert ambiguous.value.code == "id_ambiguous"
    assert ambiguous.value.facts["found"] == ENDS_ALIKE


def test_the_end_of_an_imported_session_is_enough() -> None:
    """Its thread has the name of the tool before an id that a program made."""
    session = "claude-code:11111111-2222-4333-8444-555555555555"

    assert id_meant("555555555555", [session], what="thread") == session
    assert id_meant("claude-code", [session], what="thread", beginnings=True) is None


def test_the_end_of_a_name_that_a_person_chose_needs_its_mark() -> None:
    """`order-17` never means `my-order-17`: only …order-17 does."""
    assert id_meant("order-17", ["my-order-17"], what="thread") is None
    assert id_meant("…order-17", ["my-order-17"], what="thread") == "my-order-17"
    assert id_meant("...order-17", ["my-order-17"], what="thread") == "my-order-17"


def test_any_part_of_the_shown_end_is_enough_for_a_call() -> None:
    """The first half of what a listing shows, too; a part that fits two is refused, one of three characters is none."""
    first, second = "0191f0aa-0000-7000-8000-0000ee38a1b2", "0191f0aa-0000-7000-8000-0000c0dea1b3"

    assert id_meant("ee38", [first, second], what="call", beginnings=True) == first
    assert id_meant("ee3", [first, second], what="call", beginnings=True) is None
    assert id_meant("f0aa", [first, second], what="call", beginnings=True) is None
    with pytest.raises(Invalid) as ambiguous:
        id_meant("0000", [first, second], what="call", beginnings=True)
    assert ambiguous.value.code == "id_ambiguous"


def test_an_end_is_meant_before_a_part_inside() -> None:
    """What another id has before its end is no reason to refuse an end."""
    ends, inside = "0191f0aa-0000-7000-8000-00000000ee38", "0191f0aa-0000-7000-8000-0000ee38a1b2"

    assert id_meant("ee38", [inside, ends], what="call", beginnings=True) == ends


def test_a_conversation_is_added_to_a_thread_by_what_listings_show(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`import --thread` takes the shortened id of `threads ls`, as every other command does."""
    monkeypatch.setenv("COLUMNS", "80")
    whole = "claude-code:1f2e3d4c-0000-4000-8000-abcdefabcdef"
    with perdure.open(empty.store) as store:
        store.thread(whole, agent="claude-code")
    said = empty.directory / "said.json"
    said.write_text('[{"role": "user", "content": "Hello"}]')
    words = ("import", str(said), "--format", "openai-chat", "--json", "--thread")

    added = empty.ok(*words, "claude-code…abcdefabcdef").json

    assert (added["thread"], added["messages"]) == (whole, 1)
    assert empty(*words, "claude-code…ffff").error["code"] == "agent_missing"


def test_an_ambiguous_part_is_refused_by_a_command(odd_shell: Shell) -> None:
    """Nothing is shown, and the error names the candidates."""
    ended = odd_shell("threads", "show", "0000beef", "--json")

    assert ended.code != 0
    assert ended.error["code"] == "id_ambiguous"
    assert ended.error["facts"]["found"] == list(ENDS_ALIKE)


def test_python_finds_a_moment_and_a_call_by_the_end_of_an_id(odd_shell: Shell) -> None:
    """`at` and `trace` take what listings show."""
    with perdure.open(odd_shell.store) as store:
        thread = store.thread(THREAD)
        run, call = thread.runs()[0], thread.calls()[0]

        assert thread.at(run.id[-8:]).digest == thread.at(run.id).digest
        assert thread.trace(call.id[-8:]).record == call


def test_a_pipe_gets_whole_ids(odd_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no terminal nothing is shortened."""
    monkeypatch.delenv("COLUMNS")
    (id, *_) = fields(odd_shell.ok("runs", "ls", THREAD, "--json").json, "runs.*.id")

    assert id in odd_shell.ok("runs", "ls", THREAD).out


def test_columns_that_matter_less_are_left_out_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The column of the lowest number goes first; ids and words stay."""
    monkeypatch.setenv("COLUMNS", "40")
    columns = (
        Column("id", is_id=True),
        Column("what", gives_way=True),
        Column("when", leaves=1),
        Column("by", leaves=2),
    )

    Screen(console()).table(columns, [("id-1", "a sentence of several words", "yesterday", "ann")])

    assert capsys.readouterr().out.splitlines() == [
        "id    what                         by",
        "id-1  a sentence of several words  ann",
    ]


# Answers that are no listings, with words that are too long for one line.
ANSWERS: dict[str, list[str]] = {
    "doctor without a store": ["doctor", "--store", "a-directory-that-is-not-there/nowhere.db"],
    "gc": ["gc"],
    "switch": ["threads", "switch", THREAD, "--to", "openai-chat:gpt-5.6", "--dry-run"],
    "model": ["models", "show", "anthropic:claude-sonnet-5"],
    "memory": ["memory", "show", "note-" * 20 + "4", "--owner", "ann"],
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_wrapped_between_words(
    odd_shell: Shell, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No line of several words is wider than 80 columns, and every word is one that a pipe gets."""
    shown = odd_shell(*ANSWERS[name]).out
    monkeypatch.delenv("COLUMNS")
    piped = odd_shell(*ANSWERS[name]).out

    for line in shown.splitlines():
        assert cell_len(line) <= 80 or is_one_long_word(line), line
    assert shown.split() == piped.split()
    assert any(cell_len(line) > 80 for line in piped.splitlines())  # control


def is_one_long_word(line: str) -> bool:
    """True if a line is too wide because of one word, beside a name at most."""
    return max(map(cell_len, line.split())) > 50 and len(re.split(r" {2,}", line.strip())) <= 2


def test_the_reasons_of_losses_are_read_whole(odd_shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    """The column goes on over further lines; the place beside it may be cut."""
    why = "the model refuses one that ends with the assistant; 'Continue.' was put there"
    losses = [
        LossShape(kind="repaired", where="messages", what="conversation", why=why),
        LossShape(kind="dropped", where="line 7", what="line", why="it is no JSON"),
    ]

    show_losses(Screen(console()), losses)

    shown = capsys.readouterr().out.splitlines()
    assert max(map(cell_len, shown)) <= 80
    start = shown[1].index("why")
    assert len(shown) == 5
    assert " ".join(line[start:] for line in shown[2:4]) == why
    assert shown[4].split() == ["dropped", "line", "7", "line", "it", "is", "no", "JSON"]


def test_a_terminal_of_80_columns_gets_whole_words(bread: Shell) -> None:
    """At a real terminal the advice of the doctor, a line that is longer, is wrapped between words."""
    with PtySession(bread.directory, "doctor") as session:
        assert session.ended() == 0

    assert "1 run ended with 1 external write under way" in " ".join(session.shown.split())
    for line in session.shown.splitlines():
        assert cell_len(line.rstrip()) <= 80 or is_one_long_word(line), line


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_a_command_to_go_on_with_is_broken_between_its_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """With a backslash, so that a shell takes the copied lines for the command; a word that is too long stays whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    words = (
        "threads",
        "log",
        "codex:0191f0aa-0000-7000-8000-00000000beef-" + "x" * 9,
        "--timeline",
        "a line's name",
    )

    Screen(console()).suggest("See it: ", *words, store="a store.db")

    told = capsys.readouterr().out
    lines = told.splitlines()
    typed = shlex.split(told.removeprefix("See it: ").replace("\\\n", ""))
    assert (typed[:3], typed[-4:]) == (["perdure", *words[:2]], [*words[3:], "--store", "a store.db"])
    assert (len(lines) == 1) == (width == 200)
    assert all(cell_len(line) <= width or " " not in line.strip().removesuffix(" \\") for line in lines)


def test_an_error_breaks_no_id_on_a_terminal(shell: Shell) -> None:
    """An id that is longer than the line stays whole, so that it can be copied."""
    id = "order-" + "x" * 90

    with PtySession(shell.directory, "threads", "log", id, columns=60) as session:
        assert session.ended() == 3

    assert f"'{id}'" in session.shown

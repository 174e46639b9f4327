"""Nothing that is stored can command a terminal, whatever it holds and wherever it is shown."""

from __future__ import annotations

import re
import unicodedata

import pytest

import perdure
from perdure.shapes.text import inline, safe, safe_json, shortened, spelled
from perdure.testing import Script, say, step, use
from tests.surfaces.shell import Ended, Shell, opened

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x9b31m\x1bP+q\x1b\\ \r overwritten \x08\x08"
    "\u202egnp.exe\u202c\u2066\u2069\u200b\u200e\u2028\ufeff\U000e0041\x00\x7f"
    "[bold red]markup[/] :smile: {task} %s"
)
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]"
)

AT_WORK = [
    ["runs"],
    ["runs", "ls", "worse"],
    ["runs", "show", "worse"],
    ["calls"],
    ["calls", "ls", "worse"],
    ["calls", "show", "worse", "id-0007"],
    ["approvals"],
    ["approvals", "ls", "worse"],
    ["approvals", "show", "worse", "id-0006"],
    ["approvals", "edit", "worse", "id-0006", "--value", '{"words": "calm"}'],
    ["calls", "resolve", "worse", "id-0007", "done", "--why", HOSTILE.replace("\x00", "")],
]

SCREENS = [
    ["threads", "ls"],
    ["threads", "show", "evil"],
    ["threads", "log", "evil"],
    ["threads", "log", "evil", "--full"],
    ["threads", "log", "evil", "--commits"],
    ["threads", "turns", "evil"],
    ["threads", "diff", "evil", "version:0"],
    ["threads", "diff", "evil", "main", "calm"],
    ["threads", "bisect", "evil", "--path", "/text.json", "--exists"],
    ["state", "ls", "evil"],
    ["state", "get", "evil", "/text.json"],
    ["state", "get", "evil", "/text.txt"],
    ["state", "log", "evil", "/text.json"],
    ["state", "blame", "evil", "/text.json"],
    ["state", "blame", "evil", "/text.txt"],
    ["artifacts", "ls", "evil"],
    ["sql", "select payload_json, provider, model from conversation_events"],
    ["sql", "select content from state_values"],
    ["doctor"],
    ["verify"],
]


@pytest.fixture
def evil(empty: Shell) -> Shell:
    """A shell at a store whose text does its worst."""
    with perdure.open(empty.store) as store:
        thread = store.thread("evil", agent="helper", owner="o")
        thread.fork("calm")
        with thread.change("[blink]worst[/] :boom:") as change:
            change.say("user", HOSTILE, provider="[red]p[/]", model="m")
            call = perdure.ToolCall("c1", HOSTILE[:60], HOSTILE)
            result = perdure.ToolResult(
                "c1", "error", (perdure.Text(HOSTILE), perdure.Image(HOSTILE, HOSTILE))
            )
            change.say("assistant", "calling", tool_calls=[call])
            change.say("tool", "", tool_results=[result], vendor_metadata='{"x": 1}')
            change.put("/text.json", {HOSTILE: [HOSTILE]})
            change.put("/text.txt", HOSTILE.encode(), media_type="text/plain")
    empty.ok("artifacts", "put", "evil", "-", "--name", "fine", stdin=HOSTILE.encode())
    return empty


@pytest.fixture
def worse(empty: Shell) -> Shell:
    """A shell at a store where an agent's tool asks, and fails, in such words."""

    @perdure.tool(effect="external_write")
    def ask(words: str, call: perdure.Call) -> None:
        call.suspend(HOSTILE, action="choose", parameters={HOSTILE: HOSTILE})

    @perdure.tool(effect="external_write")
    def fail(words: str) -> None:
        raise ValueError(words)

    script = Script(step(use("ask", words=HOSTILE), use("fail", words=HOSTILE)), say(HOSTILE))
    with opened(empty.store) as store:
        agent = perdure.Agent("helper", backend=script, tools=[ask, fail])
        store.thread("worse", agent=agent).run(HOSTILE, id="m1")
    return empty


@pytest.mark.parametrize("words", AT_WORK, ids=lambda words: " ".join(words[:3]))
def test_no_screen_of_an_agent_at_work_lets_text_through(worse: Shell, words: list[str]) -> None:
    """Neither arguments, nor questions, nor what went wrong."""
    screen, program = worse(*words), worse(*words, "--json")

    assert (screen.code, program.code) == (0, 0)
    assert (
        "\\x1b" in screen.out or "\\u001b" in program.out or words[:2] == ["runs", "ls"] or words == ["runs"]
    )
    assert seen(screen) == []
    assert seen(program) == []


def test_what_is_followed_is_safe_too(worse: Shell) -> None:
    """Line by line."""
    with perdure.open(worse.store, read_only=True) as store:
        cursor = f"0.0.{store.thread('worse').log()[-1].digest}"

    screen, program = (
        worse("threads", "follow", "worse", "--after", cursor, *more) for more in ([], ["--json"])
    )

    assert "\\x1b" in screen.out
    assert seen(screen) == seen(program) == []


def seen(ended: Ended) -> list[str]:
    """The unsafe characters that a terminal would get."""
    return UNSAFE.findall(ended.out + ended.err)


@pytest.mark.parametrize("words", SCREENS, ids=" ".join)
def test_no_screen_lets_stored_text_through(evil: Shell, words: list[str]) -> None:
    """Control, direction and invisible characters are shown by their codes, on screens and in JSON."""
    screen, program = evil(*words), evil(*words, "--json")

    assert (screen.code, program.code) == (0, 0)
    assert seen(screen) == []
    assert seen(program) == []


def test_the_raw_text_would_have_been_found(evil: Shell) -> None:
    """Control: what is stored does hold these characters, and `--raw` into a pipe gives them back."""
    raw = evil("state", "get", "evil", "/text.txt", "--raw")

    assert "\x1b" in seen(raw)
    assert raw.out == HOSTILE


def test_json_is_exact_nevertheless(evil: Shell) -> None:
    """Escaped as JSON escapes, so a program reads every character that was stored."""
    value = evil.ok("state", "get", "evil", "/text.json", "--json").json["value"]

    assert value == {HOSTILE: [HOSTILE]}


def test_markup_in_stored_text_is_only_text(evil: Shell) -> None:
    """Square brackets and emoji codes are shown as they were written."""
    shown = " ".join(evil.ok("threads", "log", "evil", "--full").out.split())

    assert "[blink]worst[/] :boom:" in shown
    assert "[bold red]markup[/] :smile:" in shown


def test_an_error_shows_what_it_quotes_safely(evil: Shell) -> None:
    """Also what the caller typed."""
    for words in (["threads", "show", HOSTILE], ["state", "get", "evil", "/" + HOSTILE], [HOSTILE]):
        words = [word.replace("\x00", "") for word in words]
        assert seen(evil(*words)) == []
        assert seen(evil(*words, "--json")) == []


@pytest.mark.parametrize(
    "code", [*range(0x20), *range(0x7F, 0xA0), 0x202E, 0x2066, 0x200B, 0xFEFF, 0xD800, 0xE0041]
)
def test_every_control_and_direction_character_is_spelled_out(code: int) -> None:
    """One by one, in each of the forms that text takes."""
    text = f"a{chr(code)}b"

    for form in (safe(text), inline(text), spelled(text), shortened(text, 40), safe_json(text)):
        assert chr(code) not in form or (chr(code) == "\n" and form == safe(text))
        assert form.encode()


def test_ordinary_text_is_left_as_it_is() -> None:
    """Accents, other scripts, emoji with joiners, line breaks where lines are kept."""
    text = "naïve 日本語 עברית 👩‍👩‍👧 ½ — “quoted”"

    assert safe(text) == inline(text) == spelled(text) == text
    assert safe("a\nb") == "a\nb"
    assert inline("a\nb") == "a↵b"


def test_all_format_characters_that_hide_or_reverse_are_known() -> None:
    """The list of unsafe characters leaves out none of the bidirectional controls."""
    bidi = [chr(code) for code in range(0x110000) if unicodedata.bidirectional(chr(code)) in _BIDI]

    assert [letter for letter in bidi if spelled(letter) == letter] == []


_BIDI = {"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}

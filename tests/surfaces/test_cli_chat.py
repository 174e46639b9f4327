"""`holdfast chat`: a conversation typed at a terminal, with approvals and commands about it."""

from __future__ import annotations

import pytest

import holdfast
from tests.surfaces import chatting
from tests.surfaces.shell import Ended, Shell

CODE = ("--code", "tests.surfaces.chatting:clerk")


@pytest.fixture(autouse=True)
def nothing_paid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins with an empty purse and a clerk who has said nothing."""
    monkeypatch.setattr(chatting, "paid", [])
    monkeypatch.setattr(chatting, "clerk", chatting.hired())


def talk(shell: Shell, *lines: str, code: int = 0) -> Ended:
    """Say these lines to the clerk."""
    ended = shell("chat", "clerk", *CODE, stdin="\n".join(lines).encode())
    assert ended.code == code, ended
    return ended


def test_words_calls_and_approvals_are_shown_and_asked(empty: Shell) -> None:
    """The words, the call with its arguments, the question, and what came of it, in this order."""
    out = talk(empty, "Pay five", "approve").out

    places = [
        out.index(each)
        for each in ("Let me see.", "→ look({})", "? pay", '  "amount": 5', "paid 5", "All done.")
    ]
    assert places == sorted(places)
    assert chatting.paid == [5]


def test_nothing_in_a_result_reaches_the_terminal_as_a_command(empty: Shell) -> None:
    """An escape sequence is spelled out."""
    out = talk(empty, "Pay five", "later").out

    assert "\\x1b[31mand warm" in out
    assert "\x1b" not in out


def test_a_denied_call_is_not_made(empty: Shell) -> None:
    """The model is told, and goes on."""
    assert "All done." in talk(empty, "Pay five", "deny").out
    assert chatting.paid == []


def test_arguments_can_be_edited(empty: Shell) -> None:
    """What is not JSON is asked for again; what runs is what was given."""
    out = talk(empty, "Pay five", "edit", "five", "edit", '{"amount": 3}').out

    assert "this is not JSON" in out
    assert chatting.paid == [3]


def test_what_is_left_for_later_is_asked_at_the_next_talk(empty: Shell) -> None:
    """Leaving in the middle of a question loses nothing."""
    first = talk(empty, "Pay five", "later").out
    second = talk(empty, "yes").out

    assert "It waits. Decide it any time: holdfast approvals show clerk-chat" in first
    assert "paid 5" in second
    assert chatting.paid == [5]


def test_slashes_are_commands_about_the_conversation(empty: Shell) -> None:
    """Log, state, fork, undo, redo: each the command of the shell, on the timeline of the talk."""
    out = talk(
        empty,
        "Pay five",
        "yes",
        "/log",
        "/fork other",
        "/undo",
        "/log",
        "/on main",
        "/redo",
        "/state",
        "/calls",
        "/approvals",
        code=3,  # there is nothing to redo on main
    ).out

    assert "turn 1" in out
    assert "Forked other from main" in out
    assert "Undone: other of clerk-chat" in out
    with holdfast.open(empty.store) as store:
        thread = store.thread("clerk-chat")
        assert len(thread.turns()) == 1
        assert thread.on("other").turns() == []


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("/nope", 2),
        ("/undo 'x", 2),
        ("/undo 99", 3),
        ("/on nowhere", 3),
        ("/fork", 2),
        ("/state /nothing.json", 3),
    ],
)
def test_a_slash_that_cannot_be_is_told_and_the_talk_goes_on(empty: Shell, said: str, code: int) -> None:
    """Nothing is written, the next line is heard, and a script is told by the exit code."""
    ended = talk(empty, said, "Pay five", "deny", code=code)

    assert "All done." in ended.out
    assert "nothing" in ended.out + ended.err


def test_an_agent_that_nobody_knows_is_not_talked_to(empty: Shell) -> None:
    """The error says how to get one, and begins no thread."""
    ended = empty("chat", "nobody")

    assert ended.code == 3
    assert "holdfast agents apply" in ended.err
    with holdfast.open(empty.store) as store:
        assert list(store.threads()) == []


def test_a_kept_agent_needs_the_code_of_its_tools(empty: Shell) -> None:
    """A definition names tools; --code brings them."""
    empty.ok("init")
    (empty.directory / "agent.yaml").write_text(
        "apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {name: keeper}\n"
        "spec: {backend: 'openai-chat:gpt-5', tools: [pay]}\n"
    )
    empty.ok("agents", "apply", "-f", "agent.yaml")

    assert "needs the tool pay" in empty("chat", "keeper").err
    assert empty("chat", "keeper", "--code", "tests.surfaces.chatting").code == 0


def test_a_run_that_fails_leaves_the_talk_and_is_its_exit_code(empty: Shell) -> None:
    """The error is where errors go, with the command that shows the run; the next words are heard."""
    ended = talk(empty, "Pay five", "deny", "Again", "/log", code=1)

    assert "RunFailed" in ended.err
    assert "Try: holdfast runs show clerk-chat\n" in ended.err
    assert "turn 2" in ended.out
    assert empty.ok("runs", "show", "clerk-chat", "--json").json["run"]["state"] == "failed"


def test_a_run_that_waits_is_no_failure(empty: Shell) -> None:
    """Control: what was left for a decision is no reason for another exit code than 0."""
    assert "It waits." in talk(empty, "Pay five", "later", code=0).out


def test_a_backend_that_nobody_knows_begins_no_thread(empty: Shell) -> None:
    """It is refused before anything is written, with the name that is close."""
    ended = empty("chat", "helper", "--to", "antropic:claude-sonnet-4-5", stdin=b"Hello\n")

    assert ended.code == 3
    assert "Did you mean 'anthropic'?" in ended.err
    assert not empty.store.exists()


def test_a_backend_without_a_key_fails_the_run_with_the_name_to_set(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one thing that most people meet first: no key.  It is a failed run, and says what to do."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    ended = empty("chat", "helper", "--to", "openai:gpt-5", stdin=b"Hello\n")

    assert ended.code == 1
    assert "set OPENAI_API_KEY in the environment" in ended.err


def test_for_programs_the_output_says_where_it_was_left(empty: Shell) -> None:
    """The talk itself is on the error stream."""
    ended = empty("chat", "clerk", *CODE, "--json", stdin=b"Pay five\ndeny\n/log\n")

    assert (ended.json["thread"], ended.json["turns"]) == ("clerk-chat", 1)
    assert "All done." in ended.err


def test_a_talk_looks_before_it_leaves(empty: Shell) -> None:
    """A dry run prints the check, with the tools of the code, and the talk stays where it is."""
    out = talk(empty, "Pay five", "deny", "/switch openai:gpt-5 --dry-run", "/context", "/quit").out

    assert "Compatibility check:\n✓ Text conversation supported\n✓ Tools supported" in out
    assert "script:clerk" in out
    with holdfast.open(empty.store) as store:
        assert store.thread("clerk-chat").backend == "script:clerk"


def test_a_command_in_the_place_of_a_decision_is_heard(empty: Shell) -> None:
    """The question waits, the command is done, and the talk can be left."""
    out = talk(empty, "Pay five", "/log", "/quit").out

    assert "approve, deny, edit, answer or later?" in out
    assert "It waits." in out
    assert "turn 1" in out
    assert chatting.paid == []

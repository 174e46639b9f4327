"""`perdure chat`: a conversation typed at a terminal, with approvals and commands about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import perdure
from perdure import Policy
from tests.surfaces import chatting
from tests.surfaces.pty_session import PtySession
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


def decided(shell: Shell, *words: str) -> None:
    """Decide about the payment that waits, in another shell."""
    (asked,) = shell.ok("approvals", "--json").json["approvals"]
    shell.ok("approvals", words[0], "clerk-chat", asked["call"], *words[1:])


def test_words_calls_and_approvals_are_shown(empty: Shell) -> None:
    """The words, the call with its arguments, the question with effect, and what came of it, in this order."""
    out = talk(empty, "Pay five").out
    decided(empty, "approve")
    out += talk(empty).out

    places = [
        out.index(each)
        for each in (
            "Let me see.",
            "→ look({})",
            "? pay",
            "financial,",
            '  "amount": 5',
            "paid 5",
            "All done.",
        )
    ]
    assert places == sorted(places)
    assert chatting.paid == [5]


def test_nothing_in_a_result_reaches_the_terminal_as_a_command(empty: Shell) -> None:
    """An escape sequence is spelled out."""
    out = talk(empty, "Pay five").out

    assert "\\x1b[31mand warm" in out
    assert "\x1b" not in out


def test_a_denied_call_is_not_made(empty: Shell) -> None:
    """The model is told, and goes on."""
    talk(empty, "Pay five")
    decided(empty, "deny")

    assert "All done." in talk(empty).out
    assert chatting.paid == []


def test_a_run_that_was_decided_elsewhere_goes_on_at_the_next_talk(empty: Shell) -> None:
    """What runs is what was given there."""
    first = talk(empty, "Pay five").out
    decided(empty, "edit", "--value", '{"amount": 3}')
    second = talk(empty).out

    assert "It waits. Decide it any time: perdure approvals show clerk-chat" in first
    assert "Resuming a run" in second
    assert chatting.paid == [3]


def test_what_was_not_decided_is_shown_at_the_next_talk(empty: Shell) -> None:
    """Leaving in the middle of a question loses nothing, and lines of a pipe never answer it."""
    talk(empty, "Pay five")

    assert "? pay" in talk(empty).out
    assert chatting.paid == []


def test_slashes_are_commands_about_the_conversation(empty: Shell) -> None:
    """Log, state, fork, undo, redo: each the command of the shell, on the timeline of the talk."""
    talk(empty, "Pay five")
    decided(empty, "approve")
    out = talk(
        empty,
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
    with perdure.open(empty.store) as store:
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
    ended = talk(empty, said, "Pay five", code=code)

    assert "It waits." in ended.out
    assert "nothing" in ended.out + ended.err


def test_an_agent_that_nobody_knows_is_not_talked_to(empty: Shell) -> None:
    """The error says how to get one, and begins no thread."""
    ended = empty("chat", "nobody")

    assert ended.code == 3
    assert "perdure agents apply" in ended.err
    assert not Path(empty.store).exists()


def test_a_kept_agent_needs_the_code_of_its_tools(empty: Shell) -> None:
    """A definition names tools; --code brings them."""
    empty.ok("init")
    (empty.directory / "agent.yaml").write_text(
        "apiVersion: perdure.dev/v1alpha1\nkind: Agent\nmetadata: {name: keeper}\n"
        "spec: {backend: 'openai-chat:gpt-5.6', tools: [pay]}\n"
    )
    empty.ok("agents", "apply", "-f", "agent.yaml")

    assert "needs the tool pay" in empty("chat", "keeper").err
    assert empty("chat", "keeper", "--code", "tests.surfaces.chatting").code == 0


def test_a_run_that_fails_leaves_the_talk_and_is_its_exit_code(empty: Shell) -> None:
    """The error is where errors go, with the command that shows the run; the next words are heard."""
    talk(empty, "Pay five")
    decided(empty, "deny")
    ended = talk(empty, "Again", "/log", code=1)

    assert "RunFailed" in ended.err
    assert "Try: perdure runs show clerk-chat\n" in ended.err
    assert "turn 2" in ended.out
    assert empty.ok("runs", "show", "clerk-chat", "--json").json["run"]["state"] == "failed"


def test_a_run_that_waits_is_no_failure(empty: Shell) -> None:
    """Control: what was left for a decision is no reason for another exit code than 0."""
    assert "It waits." in talk(empty, "Pay five", code=0).out


def test_a_backend_that_nobody_knows_begins_no_thread(empty: Shell) -> None:
    """It is refused before anything is written, with the name that is close."""
    ended = empty("chat", "helper", "--to", "antropic:claude-sonnet-5-5", stdin=b"Hello\n")

    assert ended.code == 3
    assert "Did you mean 'anthropic'?" in ended.err
    assert not empty.store.exists()


def test_a_backend_without_a_key_fails_the_run_with_the_name_to_set(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one thing that most people meet first: no key.  It is a failed run, and says what to do."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    ended = empty("chat", "helper", "--to", "openai:gpt-5.6", stdin=b"Hello\n")

    assert ended.code == 1
    assert "Set OPENAI_API_KEY in the environment" in ended.err


def test_another_backend_switches_a_thread_that_exists(empty: Shell) -> None:
    """The chat shows the check and makes one commit; on the same backend nothing is switched again."""
    talk(empty, "Pay five")
    decided(empty, "deny")
    talk(empty)
    to = ("--to", "anthropic:claude-sonnet-5-5")

    first = empty("chat", "clerk", *CODE, *to)
    again = empty("chat", "clerk", *CODE, *to)

    assert (first.code, again.code) == (0, 0)
    assert "Compatibility check:" in first.out
    assert "Switched main of clerk-chat to anthropic:claude-sonnet-5-5" in first.out
    assert "Compatibility check:" not in again.out
    assert empty.ok("threads", "show", "clerk-chat", "--json").json["backend"] == to[1]


def test_a_switch_that_the_policy_refuses_is_said_and_no_chat_begins(
    empty: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says why, the exit code is that of a refusal, and the thread stays where it is."""
    talk(empty, "Pay five")
    decided(empty, "deny")
    talk(empty)
    strict = replace(chatting.hired(), policy=Policy(block=["earlier_calls"]))
    monkeypatch.setattr(chatting, "clerk", strict)

    ended = empty("chat", "clerk", *CODE, "--to", "anthropic:claude-sonnet-5-5", stdin=b"Hello")

    assert ended.code == 5
    assert "Refused" in ended.err
    assert empty.ok("threads", "show", "clerk-chat", "--json").json["backend"] == "script:clerk"


def test_for_programs_the_output_says_where_it_was_left(empty: Shell) -> None:
    """The talk itself is on the error stream."""
    ended = empty("chat", "clerk", *CODE, "--json", stdin=b"Pay five\n/log\n")

    assert (ended.json["thread"], ended.json["turns"]) == ("clerk-chat", 1)
    assert "It waits." in ended.err


def test_a_talk_looks_before_it_leaves(empty: Shell) -> None:
    """A dry run prints the check, with the tools of the code, and the talk stays where it is."""
    talk(empty, "Pay five")
    decided(empty, "deny")
    out = talk(empty, "/switch openai:gpt-5.6 --dry-run", "/context", "/quit").out

    assert "Compatibility check:\n✓ Text conversation supported\n✓ Tools supported" in out
    assert "script:clerk" in out
    with perdure.open(empty.store) as store:
        assert store.thread("clerk-chat").backend == "script:clerk"


def test_a_module_may_keep_its_agents_in_a_list(empty: Shell) -> None:
    """As the tour of the command line does: the module alone is enough, and --code is found for those who leave it out."""
    (empty.directory / "listed.py").write_text(
        "from perdure import Agent\nfrom perdure.testing import Script, say\n"
        'agents = [Agent("shopper", backend=Script(say("Hello.")))]\n',
        encoding="utf-8",
    )

    missing = empty("chat", "shopper")
    talked = empty("chat", "shopper", "--code", "listed", stdin=b"Hi\n")

    assert "--code listed:agents" in missing.err
    assert (talked.code, "Hello." in talked.out) == (0, True)


def test_answers_are_wrapped_at_words(tmp_path: Path) -> None:
    """At a terminal a word that does not fit begins the next line, however the model cuts its words in pieces."""
    (tmp_path / "wordy.py").write_text(
        "from perdure import Agent\nfrom perdure.testing import Script, say\n"
        'clerk = Agent("clerk", backend=Script(say("Words follow words " * 12), pieces=29))\n',
        encoding="utf-8",
    )
    with PtySession(tmp_path, "chat", "clerk", "--code", "wordy", columns=40) as session:
        session.wait_for("\n› ")
        session.type("Hi\r")
        session.wait_for("\n› ")

    answer = session.shown.partition("Words")[2]
    assert {word for line in answer.splitlines() for word in line.split()} <= {
        "Words",
        "follow",
        "words",
        "›",
    }
    assert max(map(len, answer.splitlines())) <= 40


def test_the_only_agent_of_the_code_needs_no_name(empty: Shell) -> None:
    """With several the refusal names them, and without code it says where they are listed."""
    (empty.directory / "one.py").write_text(
        "from perdure import Agent\nfrom perdure.testing import Script, say\n"
        "only = Agent('only', backend=Script(say('Hello.')))\n"
    )
    (empty.directory / "two.py").write_text(
        "from perdure import Agent\nleft, right = Agent('left'), Agent('right')\n"
    )

    alone = empty("chat", "--code", "one", stdin=b"Hi\n")
    several, none = empty("chat", "--code", "two"), empty("chat")

    assert (alone.code, "Hello." in alone.out) == (0, True)
    assert empty.ok("threads", "ls", "--json").json["threads"][0]["agent"] == "only"
    assert (several.code, none.code) == (2, 2)
    assert "The agents of the code are left, right." in several.err
    assert "perdure agents ls" in none.err

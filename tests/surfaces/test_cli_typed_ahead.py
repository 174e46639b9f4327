"""Typed-ahead and pasted text at every prompt of the command line decides nothing; a word that is typed does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.campaign import sized
from tests.surfaces.pty_session import PASTE_BEGINS, PASTE_ENDS, PtySession
from tests.surfaces.shell import Shell

CHAT = ("chat", "clerk", "--code", "tests.surfaces.patient:clerk")
MESSAGE, DECISION, CONFIRMATION = "\n› ", "answer or later (l)? ", "confirm or later? "
EARLY = [
    "approve\r",
    "a\r",
    "y\r",
    "approve",
    "deny\rapprove\rapprove\r",
    f"{PASTE_BEGINS}approve\r{PASTE_ENDS}\r",
    'edit\r{"amount": 1}\rconfirm\r',
]
NOT_WORDS = ["a", "app", "ok", "ye", "approved", "approve it", "", "approve\rapprove", "y\ry"]


def pasted(text: str) -> str:
    """`text` as a terminal marks what is pasted."""
    return f"{PASTE_BEGINS}{text}{PASTE_ENDS}"


def let_go(directory: Path) -> None:
    """Let the agent's first tool end."""
    (directory / "go").touch()


def leave_undecided(session: PtySession) -> None:
    """Answer the question that is shown with later, and leave; fails if it was answered before."""
    session.type("later\r")
    session.wait_for("It waits.")
    session.wait_for(MESSAGE)
    session.type("/quit\r")
    assert session.ended() == 0


def assert_waits(shell: Shell) -> None:
    """Fail unless the payment still waits, and was not made."""
    (asked,) = shell.ok("approvals", "--json").json["approvals"]
    assert asked["tool"] == "pay"
    assert list(shell.directory.glob("paid-*")) == []


@pytest.mark.parametrize("early", sized(EARLY[::3], EARLY))
def test_what_is_typed_while_the_agent_works_decides_nothing(empty: Shell, early: str) -> None:
    """Everything that waits in the terminal is discarded before the question."""
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for("is running")

        session.type(early)
        let_go(empty.directory)

        session.wait_for(DECISION)
        leave_undecided(session)
    assert_waits(empty)


@pytest.mark.parametrize("lines", ["Pay five\ryes\rapprove\r", "Pay five\n\napprove"])
@pytest.mark.parametrize("bracketed", [True, False])
def test_a_paste_of_several_lines_is_one_message(empty: Shell, lines: str, bracketed: bool) -> None:
    """The agent gets all of it at once, marked by the terminal as a paste or not, and nothing is decided."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)

        session.type(pasted(lines) + "\r" if bracketed else lines)
        session.type("" if bracketed or lines.endswith("\r") else "\r")

        session.wait_for(DECISION)
        leave_undecided(session)
    assert_waits(empty)
    (turn,) = empty.ok("threads", "turns", "clerk-chat", "--json").json["turns"]
    assert turn["input"].strip() == lines.replace("\r", "\n").strip()


def test_a_question_that_an_earlier_talk_left_is_not_answered_in_advance(empty: Shell) -> None:
    """What waits in the terminal before the process begins is discarded too."""
    let_go(empty.directory)
    empty(*CHAT, stdin=b"Pay five\n")

    with PtySession(empty.directory, *CHAT, typed_ahead="approve\napprove\n") as session:
        session.wait_for(DECISION)
        leave_undecided(session)

    assert_waits(empty)


def test_only_a_word_of_the_choices_that_is_typed_decides(empty: Shell) -> None:
    """Another word, a paste and several lines at once are asked again; the word then counts."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for(DECISION)

        for said in (
            *NOT_WORDS,
            pasted("approve"),
            pasted("y"),
            pasted("approve\r"),
            pasted("approve\rapprove"),
        ):
            session.type(f"{said}\r")
            session.wait_for(DECISION)
        assert list(empty.directory.glob("paid-*")) == []
        session.type("approvx\x7fe\r")

        session.wait_for("All done.")
    assert (empty.directory / "paid-5").exists()


@pytest.mark.parametrize(("said", "is_paid"), [("y", True), ("N", False), ("d", False)])
def test_a_letter_that_is_typed_decides(empty: Shell, said: str, is_paid: bool) -> None:
    """The question shows the short ids of its call and run, and takes a letter for a word."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for(DECISION)
        (asked,) = empty.ok("approvals", "--json").json["approvals"]

        session.type(f"{said}\r")

        session.wait_for("All done.")
    assert f"call {asked['call'][-8:]} of run {asked['run'][-8:]}" in session.shown
    assert (empty.directory / "paid-5").exists() == is_paid


@pytest.mark.parametrize("value", ['{"amount": 3}\rconfirm\r', pasted('{"amount": 3}\rconfirm') + "\r"])
def test_pasted_arguments_are_confirmed_by_a_word(empty: Shell, value: str) -> None:
    """A confirmation that is pasted with them is no confirmation."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for(DECISION)
        session.type("edit\r")
        session.wait_for("as JSON: ")

        session.type(value)

        session.wait_for(DECISION)
        leave_undecided(session)
    assert_waits(empty)


def test_arguments_that_the_tool_does_not_take_are_not_asked_to_be_confirmed(empty: Shell) -> None:
    """The place is named at once and the question comes again; the test below is the control."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for(DECISION)
        session.type("edit\r")
        session.wait_for("as JSON: ")

        session.type("amount=much\r")

        session.wait_for(DECISION)
        leave_undecided(session)
    assert "arguments['amount'] is not integer" in session.shown
    assert CONFIRMATION not in session.shown
    assert_waits(empty)


@pytest.mark.parametrize(
    "value", ['{"amount": 3}\r', "amount=3\r", pasted('{\r  "amount": 3\r}') + "\r", '{\r"amount": 3\r}\r']
)
def test_confirmed_arguments_are_what_runs(empty: Shell, value: str) -> None:
    """Control: a value may be typed or pasted, on one line or several."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for(DECISION)
        session.type("edit\r")
        session.wait_for("as JSON: ")

        session.type(value)
        session.wait_for(CONFIRMATION)
        session.type("confirm\r")

        session.wait_for("All done.")
    assert [path.name for path in empty.directory.glob("paid-*")] == ["paid-3"]


def test_a_command_in_the_place_of_a_decision_is_heard(empty: Shell) -> None:
    """The question waits, the command is done, and the talk goes on."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for(DECISION)

        session.type("/log\r")

        session.wait_for("It waits.")
        session.wait_for("turn 1")
        session.wait_for(MESSAGE)
    assert_waits(empty)


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_leaving_a_question_by_a_key_decides_nothing(empty: Shell, key: str) -> None:
    """Ctrl-C and Ctrl-D mean later."""
    let_go(empty.directory)
    with PtySession(empty.directory, *CHAT) as session:
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        session.wait_for(DECISION)

        session.press_until(key, "It waits.")
    assert_waits(empty)


def test_a_question_that_nobody_sees_is_not_asked(empty: Shell) -> None:
    """Lines of a pipe are messages, whatever they say; the call waits, with the command that decides it."""
    let_go(empty.directory)

    ended = empty(*CHAT, stdin=b"Pay five\napprove\nyes\n/quit\n")

    assert "It waits. Decide it any time: perdure approvals show clerk-chat" in ended.out
    assert_waits(empty)


@pytest.mark.parametrize("early", sized(["yes\r"], ["yes\r", "y\r", "yes\ryes\r", pasted("yes\r") + "\r"]))
def test_a_thread_is_not_removed_by_what_was_typed_ahead(shell: Shell, early: str) -> None:
    """The same rule for the other question of the command line."""
    with PtySession(shell.directory, "threads", "rm", "shopping", typed_ahead=early) as session:
        session.wait_for("yes or no? ")
        session.type("y\r")
        session.wait_for("yes or no? ")
        session.type("no\r")

        assert session.ended() == 5
    assert shell("threads", "show", "shopping").code == 0


@pytest.mark.parametrize("is_left", [False, True])
def test_each_call_that_was_approved_is_made(empty: Shell, is_left: bool) -> None:
    """Two runs wait on one thread: both go on, at once or when the chat is opened again."""
    (empty.directory / "twice.py").write_text(
        "from pathlib import Path\nimport perdure\nfrom perdure import Agent\n"
        "from perdure.testing import Script, say, use\n"
        "@perdure.tool(effect='financial', ask=True)\n"
        "def pay(amount: int) -> str:\n    'Pay.'\n    Path(f'paid-{amount}').touch()\n    return 'paid'\n"
        "steps = () if Path('paid').exists() else (use('pay', amount=7), use('pay', amount=5))\n"
        "clerk = Agent('clerk', tools=[pay], backend=Script(*steps, say('One.'), say('Two.')))\n",
        encoding="utf-8",
    )
    chat = ("chat", "clerk", "--code", "twice")
    with PtySession(empty.directory, *chat) as session:
        session.wait_for(MESSAGE)
        session.type("Pay seven\r")
        session.wait_for(DECISION)
        session.type("later\r")
        session.wait_for(MESSAGE)
        session.type("Pay five\r")
        for _ in range(2):
            session.wait_for(DECISION)
            session.type("later\r" if is_left else "approve\r")
        session.wait_for(MESSAGE)
        session.type("/quit\r")
        assert session.ended() == 0
    if is_left:
        for asked in empty.ok("approvals", "--json").json["approvals"]:
            empty.ok("approvals", "approve", asked["thread"], asked["call"])
        (empty.directory / "paid").touch()  # the model of the next chat goes on with its words
        with PtySession(empty.directory, *chat) as session:
            session.wait_for("Two.")
            session.wait_for(MESSAGE)
    assert sorted(path.name for path in empty.directory.glob("paid-*")) == ["paid-5", "paid-7"]

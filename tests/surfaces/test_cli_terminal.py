"""What happens only where a person is looking: colour, width, progress, and being asked."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
from pathlib import Path

import pytest

import perdure
from tests.crash.campaign import sized
from tests.forked import ForkedProcess, commands
from tests.surfaces.pty_session import PtySession
from tests.surfaces.shell import Shell

SGR = re.compile(r"\x1b\[([0-9;]*)m")  # what sets colour and weight
OTHER = re.compile(r"\x1b(?!\[[0-9;]*m)")  # any other command to the terminal
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|9[0-7]|38)[0-9;]*m")


def typed(directory: Path, *words: str, columns: int = 80, **environment: str) -> tuple[str, int]:
    """What a terminal of that width gets to see of a command, and how the command ended."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    script = f"from perdure.cli import main; main({list(words)!r})"
    clean = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
    }
    process = ForkedProcess(
        commands(),
        ["-c", script],
        cwd=directory,
        env=clean | {"TERM": "xterm-256color"} | environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = bytearray()
    try:
        while piece := os.read(ours, 65_536):
            shown += piece
    except OSError:
        pass  # the other end was closed
    os.close(ours)
    return shown.decode().replace("\r\n", "\n"), process.wait()


def test_a_terminal_gets_colour(shell: Shell) -> None:
    """And nothing but colour and weight: the cursor is never moved."""
    shown, code = typed(shell.directory, "threads", "log", "shopping")

    assert code == 0
    assert COLOUR.search(shown)
    assert not OTHER.search(shown)


def test_no_color_is_respected(shell: Shell) -> None:
    """NO_COLOR takes all colours away; a pipe gets none of it anyway."""
    shown, _ = typed(shell.directory, "threads", "log", "shopping", NO_COLOR="1")

    assert not COLOUR.search(shown)
    assert "\x1b" not in shell.ok("threads", "log", "shopping").out


@pytest.mark.parametrize("columns", sized([40, 200], [40, 60, 80, 200]))
@pytest.mark.parametrize(
    "words", [["threads"], ["threads", "turns", "shopping"], ["state", "ls", "shopping"]], ids=str
)
def test_tables_fit_the_terminal(shell: Shell, columns: int, words: list[str]) -> None:
    """However narrow it is, no row is broken over two lines; the digest stays whole where there is room."""
    shown, _ = typed(shell.directory, *words, columns=columns)

    lines = SGR.sub("", shown).splitlines()
    assert max(map(len, lines)) <= columns
    if columns >= 60 and words[0] == "threads":
        assert re.search(r"[0-9a-f]{12}$", lines[1])


def test_without_a_terminal_nothing_is_shortened(shell: Shell) -> None:
    """What goes to a file can be searched."""
    with perdure.open(shell.store) as store:
        store.thread("a-thread-with-a-very-long-name-" * 5, agent="an-agent-with-a-long-name", owner="o" * 60)

    assert "…" not in shell.ok("threads").out


def test_long_work_shows_progress_to_people_only(shell: Shell) -> None:
    """A bar on the terminal, which is wiped when the work is done; nothing in a pipe."""
    shown, code = typed(shell.directory, "verify")

    assert code == 0
    assert "Checking" in shown
    assert "100%" in shown
    assert "left:" in shown
    assert "is intact" in shown
    assert shell.ok("verify").err == ""
    assert "Checking" not in typed(shell.directory, "verify", "--json")[0]


def test_hostile_text_moves_no_cursor(shell: Shell) -> None:
    """What is stored reaches a real terminal only as text."""
    with perdure.open(shell.store) as store, store.thread("shopping").change("evil") as change:
        change.say("user", "\x1b[2J\x1b]0;owned\x07")

    shown, _ = typed(shell.directory, "threads", "log", "shopping", "--limit", "1")

    assert "\\x1b[2J" in shown
    assert not OTHER.search(shown)
    assert "\x07" not in shown


@pytest.mark.parametrize(("answer", "code"), [("yes\r", 0), ("no\r", 5), ("n\r", 5), ("\x04", 5)])
def test_removing_a_thread_is_asked_first(shell: Shell, answer: str, code: int) -> None:
    """On a terminal only a yes removes it."""
    with PtySession(shell.directory, "threads", "rm", "shopping") as session:
        session.wait_for("for good, yes or no? ")
        session.type(answer)

        assert session.ended() == code
    assert shell("threads", "show", "shopping").code == (3 if code == 0 else 0)


@pytest.mark.parametrize(("answer", "code"), [("yes\r", 0), ("n\r", 5)])
def test_erasing_an_item_is_asked_first(shell: Shell, answer: str, code: int) -> None:
    """No undo brings it back; one that is only forgotten is forgotten at once."""
    shell.ok("memory", "add", "likes tea", "--owner", "ann", "--id", "tea")
    with PtySession(shell.directory, "memory", "forget", "tea", "--owner", "ann", "--erase") as session:
        session.wait_for("for good, yes or no? ")
        session.type(answer)

        assert session.ended() == code
    assert shell("memory", "show", "tea", "--owner", "ann").code == (3 if code == 0 else 0)


def test_what_cannot_be_removed_is_refused_before_the_question(house: Shell) -> None:
    """A person does not say yes to what is refused then; the thread without open calls, the control above, is asked about."""
    with PtySession(house.directory, "threads", "rm", "house") as session:
        assert session.ended() == 4

    assert "are not settled" in " ".join(session.shown.split())
    assert "yes or no" not in session.shown


def test_a_yes_in_advance_is_not_asked_for(shell: Shell) -> None:
    """`--yes` is for people who know."""
    shown, ended = typed(shell.directory, "threads", "rm", "shopping", "--yes")

    assert "for good" not in shown
    assert ended == 0


def test_an_interrupted_command_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the exit code that shells know, and no traceback."""

    def interrupted(_everywhere: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("perdure.cli.commands.threads.ls.reading", interrupted)

    ended = shell("threads")

    assert ended.code == 130
    assert "Traceback" not in ended.err


def test_a_run_that_failed_before_somebody_s_eyes_is_no_failure_of_the_talk(empty: Shell) -> None:
    """Whoever sits there has read it on the screen, and leaves when they like; from a pipe it would exit with 1."""
    (empty.directory / "app.py").write_text(
        "from perdure import Agent\nfrom perdure.testing import Script\n"
        "mute = Agent('mute', backend=Script(backend='script:mute'))\n"
    )

    with PtySession(empty.directory, "chat", "mute", "--code", "app:mute") as session:
        session.wait_for("› ")
        session.type("Hello\r")
        session.wait_for("RunFailed")
        session.wait_for("perdure runs show mute-chat")
        session.wait_for("› ")
        session.type("/quit\r")

        assert session.ended() == 0
    assert empty("chat", "mute", "--code", "app:mute", stdin=b"Hello\n").code == 1


@pytest.mark.parametrize("columns", [60, 80])
def test_the_header_and_the_help_of_a_chat_wrap_at_words(empty: Shell, columns: int) -> None:
    """No line is wider than the terminal, which would break it in the middle of a word."""
    name = "a-thread-whose-name-is-long-enough-to-matter"
    with PtySession(
        empty.directory, "chat", "helper", "--to", "openai:gpt-5.6", "--thread", name, columns=columns
    ) as session:
        session.wait_for("Ctrl-D leaves.")
        session.type("/help\r")
        session.wait_for("everything is stored")
        lines = session.shown.split("\n")

    words = " ".join(session.shown.split())
    assert max(map(len, lines)) <= columns, lines
    assert f"helper on thread {name}, a new thread. /help lists commands; Ctrl-D leaves." in words
    assert "Show the context of the model, and what is left out" in words


def test_tab_completes_the_commands_of_a_chat(empty: Shell) -> None:
    """A command by its first letters, then the timeline that it takes; a message with a slash in it is left alone."""
    (empty.directory / "app.py").write_text(
        "from perdure import Agent\nfrom perdure.testing import Script, say\n"
        "talker = Agent('talker', backend=Script(say('Hello.'), backend='script:talker'))\n"
    )

    with PtySession(empty.directory, "chat", "talker", "--code", "app:talker", COLUMNS="80") as session:
        session.wait_for("› ")
        session.type("Hi\r")
        session.wait_for("Hello.")
        session.wait_for("› ")
        session.type("/fo\tidea\r")
        session.wait_for("/fork idea")
        session.wait_for("idea › ")
        session.type("/on\tm\t\r")
        session.wait_for("/on main")
        session.wait_for("\n› ")
        session.type("/swi\tanthropic:claude-sonn\t")
        session.wait_for("/switch anthropic:claude-sonn")
        session.wait_for("et-")
        session.type("\x15/qu\t\r")

        assert session.ended() == 0

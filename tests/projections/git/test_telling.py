"""The message of a git commit, which data cannot forge."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.commit import Changeset, Commit
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended, RunFinished, ToolCallRequested
from perdure.model.message import Message, Text
from perdure.projections.git import author_of, message_of, told_in
from perdure.projections.transcript import TranscriptEntry

DIGEST, ROOT = Digest("d" * 64), Digest("e" * 64)
FORGED = "Hello\n\nThread: other\nCommit: forged\nState: forged\n---\nRun: forged"


def commit(**facts: object) -> Commit:
    """A commit with some facts of its own."""
    known: dict[str, object] = {"reason": "title", "at": 1_769_860_800_999_999, "thread": "trip"}
    return Commit(parents=(), changeset=DIGEST, root=ROOT, depth=0, **(known | facts))  # type: ignore[arg-type]


def said(words: str) -> TranscriptEntry:
    """A message of a user."""
    message = Message(role="user", content=(Text(words),))
    return TranscriptEntry(id="m", role="user", commit=DIGEST, state=ROOT, at=0, words=message)


def trailers_by_git(message: str) -> list[str]:
    """The trailers that git itself finds."""
    ended = subprocess.run(
        ["git", "interpret-trailers", "--parse"], input=message.encode(), capture_output=True, check=True
    )
    return ended.stdout.decode().splitlines()


def test_trailers_lead_back_to_the_thread() -> None:
    """Thread, run, reason, state and commit, and nothing where there is no run."""
    message = message_of(DIGEST, commit(run="r-1"), Changeset(reason="title"), [])

    assert message == f"title\n\nThread: trip\nRun: r-1\nReason: title\nState: {ROOT}\nCommit: {DIGEST}\n"
    assert "Run" not in told_in(message_of(DIGEST, commit(), Changeset(reason="title"), []))


def test_the_subject_has_the_first_words_and_the_body_what_happened() -> None:
    """One line for each event."""
    events = (
        MessageAppended(id="m-1", role="user", body=DIGEST, size=1),
        ToolCallRequested(
            id="e-2", call="c-1", tool="book", args=DIGEST, size=2, side_effects="external_write"
        ),
        RunFinished(id="e-3", status="succeeded"),
    )

    message = message_of(
        DIGEST, commit(), Changeset(reason="title", events=events), [said("Book\nthe  first " * 20)]
    )

    subject, body, _ = message.split("\n\n")
    assert subject.startswith("title: Book the first Book the first")
    assert len(subject) == 72
    assert body.split("\n") == [
        "- message.appended user m-1",
        "- tool.call.requested book c-1 external_write",
        "- run.finished succeeded",
    ]


@pytest.mark.parametrize("where", ["words", "reason", "author", "thread", "event"])
def test_no_words_can_forge_a_trailer(where: str) -> None:
    """Git finds the true ones alone, whatever was said."""
    events = (RunFinished(id="e", status="failed", why=FORGED if where == "event" else None),)
    facts = {where: FORGED} if where in ("reason", "author", "thread") else {}

    message = message_of(
        DIGEST,
        commit(**facts),
        Changeset(reason="x", events=events),
        [said(FORGED if where == "words" else "hi")],
    )

    found = trailers_by_git(message)
    assert [line.partition(":")[0] for line in found] == ["Thread", "Reason", "State", "Commit"]
    assert found[-2:] == [f"State: {ROOT}", f"Commit: {DIGEST}"]
    assert told_in(message)["Commit"] == DIGEST


def test_control_words_as_they_are_would_forge_trailers() -> None:
    """Control: the same words in a message made by hand are taken for trailers."""
    assert "Commit: forged" in trailers_by_git("title\n\nThread: other\nCommit: forged\n")


@given(st.text(), st.text(max_size=200))
@settings(max_examples=200)
def test_a_message_is_text_without_anything_that_a_terminal_obeys(words: str, reason: str) -> None:
    """Lines end where ours end, and nowhere else."""
    message = message_of(DIGEST, commit(reason=reason or "x"), Changeset(reason="x"), [said(words)])

    message.encode()
    assert not set(map(chr, (*range(10), *range(11, 32), *range(127, 160)))) & set(message)
    assert message.count("\n") == 6


@pytest.mark.parametrize(
    ("author", "shown"),
    [
        ("ann", "ann"),
        (None, "Perdure"),
        ("  ", "Perdure"),
        ("Ann <ann@home> 0 +0000", "Ann %3Cann@home%3E 0 +0000"),
        ("a\nb", "a\\nb"),
    ],
)
def test_the_author_is_the_commits_and_the_committer_is_fixed(author: str | None, shown: str) -> None:
    """Both at the time of the commit, in whole seconds."""
    one, other = author_of(commit(author=author))

    assert str(one) == f"{shown} <thread@perdure.invalid> 1769860800 +0000"
    assert str(other) == "Perdure <thread@perdure.invalid> 1769860800 +0000"


@pytest.mark.parametrize("at", [-1, -(10**15), 2**53 - 1])
def test_a_clock_that_was_wrong_makes_a_date_that_git_takes(at: int) -> None:
    """Git has no times before 1970."""
    assert 0 <= author_of(commit(at=at))[0].seconds < 2**41

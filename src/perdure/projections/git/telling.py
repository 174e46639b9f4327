"""What a git commit says: who, when, what happened, and trailers that lead back to Perdure.

The trailers are the last paragraph and each is one line.  Words from data stand before them,
on lines of their own that begin with `- ` or in the subject, with every character spelled out
that could begin another line or that a terminal would obey.  So nobody can forge a trailer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from perdure.model.changeset import Changeset
from perdure.model.commit import Commit
from perdure.model.digest import Digest
from perdure.projections.git.stream import Stamp
from perdure.projections.transcript import TranscriptEntry

__all__ = ["COMMITTER", "author_of", "message_of", "told_in"]

COMMITTER = "Perdure"

_EMAIL = "thread@perdure.invalid"  # a domain that can never be anybody's
_SUBJECT_MAX = 72
_EVENTS_MAX = 50
_FIELD_MAX = 120
_SECONDS_MAX = 1 << 40

# As in the command line: controls, invisible characters, direction marks, separators, tags.  Also lone surrogates.
_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"
)
_BRACKETS = re.compile("[<>%]")
_SPACES = re.compile("[ \t-\r]+")

# What people look for in an event.
_TOLD = (
    "role",
    "tool",
    "agent",
    "from_backend",
    "to_backend",
    "backend",
    "status",
    "decision",
    "by",
    "timeline",
)
_ALSO = ("path", "name", "owner", "item", "call", "side_effects", "why")


def author_of(commit: Commit) -> tuple[Stamp, Stamp]:
    """Who wrote a commit, and the committer: always Perdure, at the commit's own time and never the clock's."""
    seconds = min(max(commit.at // 1_000_000, 0), _SECONDS_MAX)
    named = _BRACKETS.sub(lambda found: f"%{ord(found[0]):02X}", _spelled(commit.author or "")).strip(" ")
    return Stamp(named or COMMITTER, _EMAIL, seconds), Stamp(COMMITTER, _EMAIL, seconds)


def message_of(digest: Digest, commit: Commit, changeset: Changeset, said: Sequence[TranscriptEntry]) -> str:
    """The message of a git commit: a subject, what happened, and the trailers."""
    events = _events(changeset)
    paragraphs = [_subject(commit, said), *(["\n".join(events)] if events else []), _trailers(digest, commit)]
    return "\n\n".join(paragraphs) + "\n"


def told_in(message: str) -> dict[str, str]:
    """The trailers of a git commit's message, by name; none if its last paragraph is something else."""
    lines = message.rstrip("\n").rpartition("\n\n")[2].split("\n")
    pairs = [line.partition(": ") for line in lines]
    return {name: value for name, _, value in pairs} if all(colon for _, colon, _ in pairs) else {}


def _subject(commit: Commit, said: Sequence[TranscriptEntry]) -> str:
    words = next((entry.text for entry in said if entry.text.strip()), "")
    excerpt = _spelled(_SPACES.sub(" ", words[: 4 * _SUBJECT_MAX]).strip())
    reason = _spelled(commit.reason)
    return _cut(f"{reason}: {excerpt}" if excerpt else reason, _SUBJECT_MAX)


def _trailers(digest: Digest, commit: Commit) -> str:
    pairs = {
        "Thread": commit.thread,
        "Run": commit.run,
        "Reason": commit.reason,
        "State": commit.root,
        "Commit": digest,
    }
    return "\n".join(f"{name}: {_spelled(value)}" for name, value in pairs.items() if value is not None)


def _events(changeset: Changeset) -> list[str]:
    """A line for each event, up to a limit."""
    lines: list[str] = []
    for event in changeset.events[:_EVENTS_MAX]:
        shape = msgspec.to_builtins(event)
        told = [str(shape[name]) for name in (*_TOLD, *_ALSO) if shape.get(name)]
        words = [str(shape["type"]), *told, *([event.id] if shape["type"] == "message.appended" else [])]
        lines.append("- " + " ".join(_cut(_spelled(word), _FIELD_MAX) for word in words))
    left = len(changeset.events) - len(lines)
    return [*lines, f"- and {left} more"] if left else lines


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _spelled(text: str) -> str:
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)

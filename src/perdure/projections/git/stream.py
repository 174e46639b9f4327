"""The stream that `git fast-import` reads, command by command.

Lengths come before contents, so nothing in a content is ever read as a command; names and
messages were made safe before they come here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

__all__ = [
    "DONE",
    "Stamp",
    "begin_commit",
    "delete_file",
    "end_commit",
    "get_mark",
    "move_ref",
    "put_header",
]

DONE = b"done\n"
_NOWHERE = "0" * 40


class Stamp(msgspec.Struct, frozen=True):
    """Who, and when."""

    name: str  # without < and >
    email: str
    seconds: int  # since 1970, UTC

    def __str__(self) -> str:
        """As git writes it."""
        return f"{self.name} <{self.email}> {self.seconds} +0000"


def begin_commit(
    ref: str, mark: int, *, author: Stamp, committer: Stamp, message: str, parents: Sequence[str]
) -> bytes:
    """Return a commit, but for its files; parents are marks (`:7`) or names that git knows."""
    text = message.encode()
    # Without a parent git would go on from whatever the stream has put on that ref before.
    before = f"reset {ref}\n" if not parents else ""
    head = f"{before}commit {ref}\nmark :{mark}\nauthor {author}\ncommitter {committer}\ndata {len(text)}\n"
    links = "".join(f"{'merge' if index else 'from'} {parent}\n" for index, parent in enumerate(parents))
    return head.encode() + text + b"\n" + links.encode()


def put_header(path: str, size: int) -> bytes:
    """Return what stands before the `size` bytes of a file's new content; a line break follows them."""
    return f"M 100644 inline {path}\ndata {size}\n".encode()


def delete_file(path: str) -> bytes:
    """Remove a file, or a directory with all that is in it; no error if there is none."""
    return f"D {path}\n".encode()


def end_commit() -> bytes:
    """Return what ends the list of a commit's files."""
    return b"\n"


def move_ref(ref: str, to: str | None) -> bytes:
    """Let a ref name a commit; None: there is no such ref any more."""
    return f"reset {ref}\nfrom {to or _NOWHERE}\n\n".encode()


def get_mark(mark: int) -> bytes:
    """Ask for the hash of a commit of this stream."""
    return f"get-mark :{mark}\n".encode()

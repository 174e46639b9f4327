"""Writes the commands of the stream that `git fast-import` reads.

The length of a content is before it, so no content is ever read as a command.  The caller passes
names and messages that are already safe.
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
    """A person and a time, as git records them."""

    name: str  # without < and >
    email: str
    seconds: int  # since 1970, UTC

    def __str__(self) -> str:
        """Return the stamp as git writes it."""
        return f"{self.name} <{self.email}> {self.seconds} +0000"


def begin_commit(
    ref: str, mark: int, *, author: Stamp, committer: Stamp, message: str, parents: Sequence[str]
) -> bytes:
    """Return a commit without its files; parents are marks (`:7`) or names that git knows."""
    text = message.encode()
    # Without a parent git would continue from the commit that the stream put on that ref before.
    before = f"reset {ref}\n" if not parents else ""
    head = f"{before}commit {ref}\nmark :{mark}\nauthor {author}\ncommitter {committer}\ndata {len(text)}\n"
    links = "".join(f"{'merge' if index else 'from'} {parent}\n" for index, parent in enumerate(parents))
    return head.encode() + text + b"\n" + links.encode()


def put_header(path: str, size: int) -> bytes:
    """Return the command before the `size` bytes of a file's new content; a line break follows them."""
    return f"M 100644 inline {path}\ndata {size}\n".encode()


def delete_file(path: str) -> bytes:
    """Return the command that removes a file or a directory; no error if there is none."""
    return f"D {path}\n".encode()


def end_commit() -> bytes:
    """Return the end of the list of a commit's files."""
    return b"\n"


def move_ref(ref: str, to: str | None) -> bytes:
    """Return the command that moves a ref to a commit; None removes the ref."""
    return f"reset {ref}\nfrom {to or _NOWHERE}\n\n".encode()


def get_mark(mark: int) -> bytes:
    """Return the command that asks for the hash of a commit of this stream."""
    return f"get-mark :{mark}\n".encode()

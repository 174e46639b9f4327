"""Renders a thread as a git repository: names, files, commit messages, and the stream that git reads.

These are pure functions of the commits of the history, so the same history gives the same bytes,
and git the same hashes, on every machine.  docs/reference/git.md describes the layout.
"""

from __future__ import annotations

from perdure.projections.git.files import (
    COMMITTER,
    STATE,
    PutFile,
    author_of,
    indented,
    is_indented,
    lost_state,
    lost_value,
    message_files,
    message_of,
    state_file,
    told_in,
)
from perdure.projections.git.names import BRANCHES, branch_of, path_of, segment_of
from perdure.projections.git.stream import (
    DONE,
    Stamp,
    begin_commit,
    delete_file,
    end_commit,
    get_mark,
    move_ref,
    put_header,
)

__all__ = [
    "BRANCHES",
    "COMMITTER",
    "DONE",
    "STATE",
    "PutFile",
    "Stamp",
    "author_of",
    "begin_commit",
    "branch_of",
    "delete_file",
    "end_commit",
    "get_mark",
    "indented",
    "is_indented",
    "lost_state",
    "lost_value",
    "message_files",
    "message_of",
    "move_ref",
    "path_of",
    "put_header",
    "segment_of",
    "state_file",
    "told_in",
]

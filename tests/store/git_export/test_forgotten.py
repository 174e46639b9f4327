"""Content that a policy removed: its place says so, and the rest is as it was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from perdure import Store, Thread
from perdure.history.tree import EMPTY
from perdure.model.artifact import decode_artifact
from perdure.model.digest import Digest
from perdure.model.event import MessageAppended
from perdure.store import git_export
from tests.store.git_export.looking import branches, clean, show, tree


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread with a message, a document and something large, each changed once."""
    thread = store.thread("trip", agent="planner")
    for number in (1, 2):
        with thread.change(f"turn {number}") as change:
            change.say("user", f"Secret {number}", id=f"m-{number}")
            change.put("/secret.json", f"secret {number}")
            change.put("/large", Random(number).randbytes(2 << 20))
            change.put("/kept.json", number)
    return thread


def forget(thread: Thread, digests: Sequence[Digest]) -> None:
    """Let the store forget some objects of the thread."""
    space = thread._space
    standing = space.engine.standing(space.name)
    assert space.engine.forget(space.name, digests, why="the user asked", standing=standing)
    space.cache.clear()


def test_a_forgotten_message_and_value_say_so(thread: Thread, tmp_path: Path) -> None:
    """With the reason; what is next to them, and what came after them, is whole."""
    first = thread.at("HEAD~1")
    body = next(each.body for each in first.log()[0].events if isinstance(each, MessageAppended))
    large = decode_artifact(thread._space.body(first.entry("/large").value))
    forget(thread, [body, first.entry("/secret.json").value, large.chunks[3]])

    git_export.export(thread, tmp_path / "g")

    at = "main~1"
    assert show(tmp_path / "g", "messages/00/00/000001-user-m-1.md", at) == (
        "*This message was forgotten: the user asked.*\n"
    )
    assert show(tmp_path / "g", "state/secret.json", at).startswith(
        "This value was forgotten: the user asked.\n"
    )
    assert show(tmp_path / "g", "state/large", at).startswith("This value was forgotten: the user asked.\n")
    assert show(tmp_path / "g", "state/kept.json", at) == "1\n"
    assert show(tmp_path / "g", "state/secret.json") == '"secret 2"\n'
    assert "000002-user-m-2.md" in tree(tmp_path / "g")[1]
    assert clean(tmp_path / "g")


def test_a_state_whose_map_was_forgotten_says_so_and_the_next_is_whole(
    thread: Thread, tmp_path: Path
) -> None:
    """A state that cannot be listed is one file; the one after it is written anew, not as a difference to it."""
    root = thread.at("HEAD~1").root
    assert root != EMPTY
    forget(thread, [root])

    git_export.export(thread, tmp_path / "g")

    assert tree(tmp_path / "g", "main~1") == ["messages/00/00/000001-user-m-1.md", "state/%forgotten.md"]
    assert root in show(tmp_path / "g", "state/%forgotten.md", "main~1")
    assert [each for each in tree(tmp_path / "g") if each.startswith("state")] == [
        "state/kept.json",
        "state/large",
        "state/secret.json",
    ]
    assert clean(tmp_path / "g")


def test_going_on_after_something_was_forgotten_needs_it_no_more(thread: Thread, tmp_path: Path) -> None:
    """The state of the last commit that git has was forgotten: the next is written whole, and is right."""
    git_export.export(thread, tmp_path / "g")
    old = thread.root
    thread.put("/kept.json", 3)
    forget(thread, [old])

    git_export.export(thread, tmp_path / "g")

    assert len(branches(tmp_path / "g")) == 1
    assert show(tmp_path / "g", "state/kept.json") == "3\n"
    assert len([each for each in tree(tmp_path / "g") if each.startswith("state")]) == 3

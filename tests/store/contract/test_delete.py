"""A deleted key is absent at the head and present at an old commit."""

from __future__ import annotations

from perdure import Thread
from perdure.errors import NotFound
from tests.coded import raises


def test_a_deleted_key_is_absent_now_and_present_then(thread: Thread) -> None:
    """Deleting is a step of the history like any other."""
    thread.put("/todos.json", ["milk"])
    old = thread.head
    thread.delete("/todos.json")

    with raises(NotFound, "path_not_found", path="/todos.json"):
        thread.get("/todos.json")
    assert thread.get("/todos.json", default=None) is None
    assert thread.paths() == []
    assert thread.at(old).get("/todos.json") == ["milk"]
    assert thread.at("HEAD~1").paths() == ["/todos.json"]


def test_clear_takes_the_path_and_what_is_below_and_nothing_else(thread: Thread) -> None:
    """'/notes' covers '/notes' and '/notes/…', and never '/notes2'."""
    with thread.change("notes") as change:
        for path in ("/notes", "/notes/a", "/notes/b/c", "/notes2", "/note"):
            change.put(path, path)

    with thread.change("clear") as change:
        change.clear("/notes")

    assert thread.paths() == ["/note", "/notes2"]
    assert thread.at("HEAD~1").paths("/notes") == ["/notes", "/notes/a", "/notes/b/c"]
    assert thread.at("HEAD~1").paths("/notes/") == ["/notes/a", "/notes/b/c"]


def test_undo_brings_a_deleted_key_back(thread: Thread) -> None:
    """And redo takes it away again."""
    thread.put("/todos.json", ["milk"])
    thread.delete("/todos.json")

    thread.undo()
    assert thread.get("/todos.json") == ["milk"]
    thread.redo()
    assert thread.paths() == []


def test_control_a_key_that_is_emptied_and_not_deleted_is_still_there(thread: Thread) -> None:
    """Absence is not a value: a null at the path is found where a deleted one is not."""
    thread.put("/todos.json", ["milk"])

    thread.put("/todos.json", None)

    assert thread.get("/todos.json") is None
    assert thread.paths() == ["/todos.json"]

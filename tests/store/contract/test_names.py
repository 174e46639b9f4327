"""Hostile ids and paths work, or are one defined error, the same in every engine."""

from __future__ import annotations

import posixpath
import sqlite3
import unicodedata

import pytest

from perdure import Store, Thread
from perdure.errors import Invalid, NotFound
from tests.coded import raises

TEXTS = [
    "a.b.c",
    "a/b/c",
    "..",
    "../../etc/passwd",
    ".git",
    "'; DROP TABLE heads; --",
    '"quoted"',
    "100%",
    "_",
    "%",
    "a_b%c",
    "*?[a]",
    "\\back\\slash",
    "ångström",
    "日本語",
    "𝄞",
    " space ",
    "HEAD",
    "turn:1",
    "x" * 200,
    "é" * 100,
]

BAD_IDS = {
    "empty": "",
    "control": "a\x00b",
    "newline": "a\nb",
    "escape": "\x1b[31m",
    "direction": "a\u202eb",
    "not NFC": "e\u0301",
    "lone surrogate": "\ud800",
    "too long": "x" * 201,
    "too long in bytes": "é" * 101,
}
CODES = {
    "empty": "not_text",
    "control": "unseen_character",
    "newline": "unseen_character",
    "escape": "unseen_character",
    "direction": "unseen_character",
    "not NFC": "not_normalised",
    "lone surrogate": "lone_surrogate",
    "too long": "text_too_long",
    "too long in bytes": "text_too_long",
}

BAD_PATHS = {
    **BAD_IDS,
    "no slash": "a",
    "root": "/",
    "control in a path": "/a\x00",
    "not NFC in a path": "/e\u0301",
    "too long a path": "/" + "x" * 512,
    "too many segments": "/a" * 33,
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_hostile_thread_id_is_a_name_like_any_other(store: Store, text: str) -> None:
    """It is found by itself and by nothing else."""
    decoys = [store.thread(decoy, agent="planner") for decoy in ("a", "aXbYc", "1000", "x" * 199)]
    thread = store.thread(text, agent="planner", owner=text)
    thread.put("/n.json", text)

    assert store.thread(text).get("/n.json") == text
    assert [found.id for found in store.threads(owner=text)] == [text]
    assert len(list(store.threads())) == len(decoys) + 1
    assert all(decoy.paths() == [] for decoy in decoys)
    thread.rm()
    with pytest.raises(NotFound):
        store.thread(text)


@pytest.mark.parametrize("text", TEXTS)
def test_a_hostile_path_is_a_path_like_any_other(thread: Thread, text: str) -> None:
    """Listing by prefix compares bytes; it knows no wildcards."""
    path = f"/{text}"
    with thread.change("put") as change:
        for each in (path, f"{path}/below", "/other", "/aXb"):
            change.put(each, each)

    assert thread.get(path) == path
    assert thread.paths(path) == [path, f"{path}/below"]
    with thread.change("clear") as change:
        change.clear(path)
    assert thread.paths() == sorted({"/aXb", "/other"} - {path})


@pytest.mark.parametrize("text", TEXTS)
def test_hostile_messages_and_op_ids_are_ids_like_any_other(thread: Thread, text: str) -> None:
    """An id that looks like another kind of name is still only an id."""
    with thread.change("say", op_id=text) as change:
        change.say("user", text, id=text)
    with thread.change("say", op_id=text) as change:
        change.say("user", text, id=text)

    assert [entry.id for entry in thread.transcript()] == [text]
    if text not in ("HEAD", "turn:1"):
        assert thread.at(text).digest == thread.head.commit
    else:
        with raises(Invalid, "revision_ambiguous"):
            thread.at(text)
    assert thread.at().digest == thread.fork("what-if").head.commit


@pytest.mark.parametrize("fault", BAD_IDS)
def test_a_bad_id_is_one_defined_error(store: Store, thread: Thread, fault: str) -> None:
    """`Invalid`, wherever it is given, and nothing is written."""
    text, code = BAD_IDS[fault], CODES[fault]

    with raises(Invalid, code, what="thread id"):
        store.thread(text, agent="planner")
    with raises(Invalid, code, what="thread id"):
        store.thread(text)
    with raises(Invalid, code, what="message id"), thread.change("say") as change:
        change.say("user", "hello", id=text)
    with raises(Invalid, code, what="op_id"):
        thread.put("/n.json", 1, op_id=text)
    with raises(Invalid, code, what="reason"):
        thread.change(text)

    assert [found.id for found in store.threads()] == ["trip-42"]
    assert thread.head.version == 0


@pytest.mark.parametrize("path", BAD_PATHS.values(), ids=BAD_PATHS.keys())
def test_a_bad_path_is_one_defined_error(thread: Thread, path: str) -> None:
    """`Invalid` for writing and for reading alike."""
    with pytest.raises(Invalid):
        thread.put(path, 1)
    with pytest.raises(Invalid):
        thread.delete(path)
    with pytest.raises(Invalid):
        thread.get(path, default=None)

    assert thread.head.version == 0


@pytest.mark.parametrize("name", ["", "A", "a b", "a/", "/a", "a//b", "ä", "-a", "a" * 64, "/".join("a" * 9)])
def test_a_bad_name_is_one_defined_error(store: Store, thread: Thread, name: str) -> None:
    """Agents and timelines have names of a narrower kind."""
    with raises(Invalid, "name_invalid", what="agent"):
        store.thread("new", agent=name)
    with raises(Invalid, "name_invalid", what="agent"):
        store.agent(name)
    with raises(Invalid, "name_invalid", what="timeline"):
        thread.fork(name)

    assert [found.id for found in store.threads()] == ["trip-42"]


def test_the_longest_path_of_all_works(thread: Thread) -> None:
    """512 bytes in 32 segments."""
    path = "/" + "/".join(["x" * 15] * 31) + "/" + "y" * 15
    assert len(path) == 512
    thread.put(path, 1)

    assert thread.paths() == [path]


def test_control_a_store_that_took_them_for_patterns_would_be_seen() -> None:
    """The decoys are such that matching by LIKE, by GLOB or by parts of a path finds them."""
    database = sqlite3.connect(":memory:")
    decoys = ("a", "aXbYc", "1000", "x" * 199)

    def found(how: str, text: str) -> list[str]:
        return [
            decoy for decoy in decoys if database.execute(f"SELECT ? {how} ?", (decoy, text)).fetchone()[0]
        ]

    assert found("LIKE", "a_b%c") == ["aXbYc"]
    assert found("LIKE", "100%") == ["1000"]
    assert found("LIKE", "_") == ["a"]
    assert found("LIKE", "%") == list(decoys)
    assert found("GLOB", "*?[a]") == []
    assert database.execute("SELECT '/aXb' LIKE '/a_b'").fetchone() == (1,)
    assert posixpath.normpath("/threads/../../etc/passwd") == "/etc/passwd"


def test_control_text_that_only_looks_alike_is_another_name(store: Store) -> None:
    """Without the rule about Unicode two names that nobody can tell apart would be two threads, or one."""
    composed, apart = "\u00e9", "e\u0301"
    store.thread(composed, agent="planner")

    assert unicodedata.normalize("NFC", apart) == composed != apart
    with raises(Invalid, "not_normalised", what="thread id"):
        store.thread(apart)
    with raises(NotFound, "thread_not_found", thread="e"):
        store.thread("e")

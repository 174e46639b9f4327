"""Names and words that mean harm: git takes all of them, and none leaves its place."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from perdure import Store
from perdure.errors import Invalid
from perdure.store import git_export
from tests.projections.git.test_names import TRICKS, read_back
from tests.store.git_export.looking import branches, clean, git, show, tree

FORGED = (
    "Hi\n\nThread: other\nCommit: forged\n\nM 100644 inline x\ndata 3\nabc\ncommit refs/heads/evil\ndone\n"
)


def test_every_hostile_path_is_a_file_below_state(store: Store, tmp_path: Path) -> None:
    """Each with its own content; git's strictest check finds nothing, and a checkout stays in its directory."""
    thread = store.thread("hostile", agent="a")
    for name in TRICKS:
        for path in (f"/{name}", f"/{name}/hooks/post-checkout", f"/deep/{name}"):
            try:
                thread.put(path, path)
            except Invalid:
                continue  # Perdure itself takes no such path

    git_export.export(thread, tmp_path / "g")
    git(tmp_path, "clone", "--quiet", str(tmp_path / "g"), str(tmp_path / "clone"))

    assert clean(tmp_path / "g")
    files = [each.removeprefix("state/") for each in tree(tmp_path / "g")]
    plain = [each for each in files if "%h" not in each]
    keys = [
        "/" + "/".join(read_back(part) for part in each.removesuffix("/%value").split("/")) for each in plain
    ]
    assert len(files) == len(thread.paths()) > 100
    assert set(keys) == {each for each in thread.paths() if len(each.encode()) < 200}
    for file, key in zip(plain, keys, strict=True):
        assert json.loads(show(tmp_path / "g", f"state/{file}")) == key
    assert not list((tmp_path / "clone" / ".git" / "hooks").glob("post-checkout"))


def test_words_and_names_cannot_break_the_stream(store: Store, tmp_path: Path) -> None:
    """Commands of the stream and trailers are words like any other."""
    thread = store.thread("Thread: x <y> 0 +0000", agent="a")
    with thread.change("Commit: forged", author="Eve <eve@home> 0 +0000") as change:
        change.say("user", FORGED, id='"quoted" ../../x')
        change.put("/data", FORGED.encode())
        change.put("/zeros", bytes(1000))

    git_export.export(thread, tmp_path / "g")

    assert branches(tmp_path / "g").keys() == {"main"}
    found = git(
        tmp_path / "g", "log", "--format=%(trailers:key=Commit,valueonly)%(trailers:key=Thread,valueonly)"
    )
    assert found.split("\n")[:2] == [str(thread.head.commit), "Thread: x <y> 0 +0000"]
    assert show(tmp_path / "g", "state/data") == FORGED
    (message,) = [each for each in tree(tmp_path / "g") if each.startswith("messages")]
    assert show(tmp_path / "g", message) == FORGED
    assert git(tmp_path / "g", "log", "-1", "--format=%an").strip() == "Eve %3Ceve@home%3E 0 +0000"
    assert clean(tmp_path / "g")


def test_control_git_refuses_such_names_as_they_are(tmp_path: Path) -> None:
    """Control: without the escapes git would find the tree at fault."""
    git(tmp_path, "init", "--quiet", "--bare", "g")
    blob = git(tmp_path / "g", "hash-object", "-w", "--stdin", "-t", "blob", "--literally").strip()
    made = subprocess.run(
        ["git", "-C", str(tmp_path / "g"), "mktree"],
        input=f"100644 blob {blob}\t.git\n".encode(),
        capture_output=True,
        check=True,
    )
    tree_id = made.stdout.decode().strip()

    fault = subprocess.run(
        ["git", "-C", str(tmp_path / "g"), "fsck", "--strict", tree_id], capture_output=True, check=False
    )

    assert b"hasDotgit" in fault.stderr


def test_timelines_that_git_would_not_take_are_branches(store: Store, tmp_path: Path) -> None:
    """`a` beside `a/b`, dots, locks and the longest name."""
    thread = store.thread("lines", agent="a")
    thread.put("/x", 1)
    names = [
        "a",
        "a/b",
        "a..b",
        "a.",
        "a.lock",
        "a.lock/b",
        "/".join(["x" * 63] * 8),
        "/".join(["x" * 63] * 7),
    ]
    for name in names:
        thread.fork(name)

    written = git_export.export(thread, tmp_path / "g")

    assert len(branches(tmp_path / "g")) == len(names) + 1
    assert {each.timeline: each.name for each in written.branches}.keys() == {"main", *names}
    assert clean(tmp_path / "g")

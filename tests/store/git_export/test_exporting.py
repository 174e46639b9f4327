"""A thread as a git repository: what is in it, where its branches are, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from perdure import Agent, Store, Thread
from perdure.errors import Conflict, NotFound, Unavailable, Unsupported
from perdure.store import git_export
from perdure.testing import Script, say
from tests.coded import raises
from tests.selection import some
from tests.store.git_export.looking import BEGAN, branches, clean, git, opened, show, tree


@pytest.fixture
def thread(store: Store) -> Thread:
    """A thread with three turns."""
    thread = store.thread("trip", agent="planner")
    for number, words in enumerate(("Hello", "And a hotel", "Thanks"), 1):
        with thread.change(f"turn {number}", author="ann") as change:
            change.say("user", words, id=f"ask-{number}")
            change.put("/notes/list.json", list(range(number)))
            change.put("/raw", bytes(range(256)) * number, media_type="image/png")
    return thread


def test_each_commit_is_a_git_commit_with_its_trailers(thread: Thread, tmp_path: Path) -> None:
    """Author and time are the commit's, and the trailers lead back to it."""
    git_export.export(thread, tmp_path / "g")

    log = git(tmp_path / "g", "log", "--format=%an|%at|%ct|%cn|%s|%(trailers:only,separator=%x2C)", "main")
    newest = thread.log()[0]
    lines = log.splitlines()
    assert len(lines) == len(thread.log()) == 3
    at = newest.at // 1_000_000
    assert at > BEGAN // 1_000_000
    trailers = f"Thread: trip,Reason: turn 3,State: {newest.root},Commit: {newest.digest}"
    assert lines[0] == f"ann|{at}|{at}|Perdure|turn 3: Thanks|{trailers}"


def test_messages_and_state_are_files_at_every_commit(thread: Thread, tmp_path: Path) -> None:
    """Text for people, documents a value a line, and bytes as they are."""
    git_export.export(thread, tmp_path / "g")

    assert tree(tmp_path / "g") == [
        "messages/00/00/000001-user-ask-1.md",
        "messages/00/00/000002-user-ask-2.md",
        "messages/00/00/000003-user-ask-3.md",
        "state/notes/list.json",
        "state/raw",
    ]
    assert show(tmp_path / "g", "messages/00/00/000002-user-ask-2.md") == "And a hotel\n"
    assert show(tmp_path / "g", "state/notes/list.json", "main~1") == "[\n  0,\n  1\n]\n"
    assert show(tmp_path / "g", "state/raw").encode("utf-8", "surrogateescape") == bytes(range(256)) * 3
    assert "+  2\n" in git(tmp_path / "g", "diff", "main~1", "main", "--", "state/notes")


def test_the_number_of_a_message_is_its_sequence_number(thread: Thread, tmp_path: Path) -> None:
    """The same as in the SQL view of events, so that one leads to the other."""
    with thread.change("two") as change:
        change.say("user", "one", id="a")
        change.say("assistant", "two", id="b")
    git_export.export(thread, tmp_path / "g")

    query = "SELECT printf('%06d', sequence_number) FROM conversation_events WHERE event_type = 'message.appended'"
    with closing(sqlite3.connect(f"file:{tmp_path / 'store.db'}?mode=ro", uri=True)) as connection:
        rows = connection.execute(query).fetchall()
    numbers = [Path(each).name[:6] for each in tree(tmp_path / "g") if each.startswith("messages")]
    assert sorted(row[0] for row in rows) == numbers


def test_a_branch_begins_where_its_timeline_was_forked(thread: Thread, tmp_path: Path) -> None:
    """Nothing is copied, in git neither."""
    what_if = thread.fork("what-if", at="turn:2")
    what_if.put("/plan", "other")

    git_export.export(thread, tmp_path / "g")

    found = git(tmp_path / "g", "merge-base", "main", "what-if").strip()
    assert found == git(tmp_path / "g", "rev-parse", "main~1").strip()
    assert git(tmp_path / "g", "rev-list", "--count", "--branches").strip() == "4"


def test_a_merge_has_both_parents(thread: Thread, tmp_path: Path) -> None:
    """The line that was merged is behind it too, even one that has left no branch."""
    other = thread.fork("other")
    other.put("/theirs", 1)
    thread.put("/ours", 2)
    thread.merge("other")
    merged = git_of(thread, other.head.commit)
    other.undo()

    git_export.export(thread, tmp_path / "g")

    parents = git(tmp_path / "g", "log", "-1", "--format=%P", "main").split()
    assert len(parents) == 2
    assert merged in git(tmp_path / "g", "log", "-1", "--format=%B", parents[1])
    assert show(tmp_path / "g", "state/theirs") == "1\n"
    assert clean(tmp_path / "g")


def test_undo_and_promote_move_branches(thread: Thread, tmp_path: Path) -> None:
    """A branch stands where the head stands; the old main is a branch of its own."""
    what_if = thread.fork("what-if", at="turn:1")
    what_if.put("/plan", "other")
    thread.undo()
    kept = thread.head.version
    thread.promote("what-if")

    git_export.export(thread, tmp_path / "g")

    assert set(branches(tmp_path / "g")) == {"main", "what-if", f"main.v{kept}"}
    assert branches(tmp_path / "g")["main"] == branches(tmp_path / "g")["what-if"]
    assert git(tmp_path / "g", "log", "-1", "--format=%s", f"main.v{kept}") == "turn 2: And a hotel\n"


def test_a_hand_off_is_a_commit_of_its_own_and_shows_no_agents_map(store: Store, tmp_path: Path) -> None:
    """The body names both agents, the conversation goes on, and an undone hand-off leaves the branch where it was."""
    first = Agent("triage", backend=Script(say("Let me see.")))
    thread = store.thread("t", agent=first)
    thread.run("My order is late.", id="m1")
    with thread.change("learn") as change:
        change.agent.put("/own.json", "a secret of triage")
    git_export.export(thread, tmp_path / "g")
    before = branches(tmp_path / "g")["main"]
    second = thread.hand_off(Agent("billing", backend=Script(say("It is paid."))), reason="about money")
    second.run("Is it paid?", id="m2")

    git_export.export(second, tmp_path / "g")

    subjects = git(tmp_path / "g", "log", "--format=%s", f"{before}..main").splitlines()
    bodies = git(tmp_path / "g", "log", "--format=%b", f"{before}..main")
    words = [show(tmp_path / "g", name) for name in tree(tmp_path / "g") if name.endswith(".md")]
    assert any("triage" in line and "billing" in line for line in bodies.splitlines())
    assert any("hand" in line for line in subjects)
    assert words == ["My order is late.\n", "Let me see.\n", "Is it paid?\n", "It is paid.\n"]
    assert "secret" not in git(tmp_path / "g", "log", "-p", "main")
    second.undo(2)
    git_export.export(store.thread("t"), tmp_path / "g")
    assert branches(tmp_path / "g")["main"] == before
    assert clean(tmp_path / "g")


def test_exporting_again_goes_on_from_what_is_there(thread: Thread, tmp_path: Path) -> None:
    """Only what is new is written, and the hashes are those of a new export."""
    git_export.export(thread, tmp_path / "g")
    thread.put("/more", 1)
    other = thread.fork("other", at="turn:1")
    other.put("/x", 1)
    thread.merge("other")

    written = git_export.export(thread, tmp_path / "g")
    git_export.export(thread, tmp_path / "whole")

    assert written.commits == 3
    assert branches(tmp_path / "g") == branches(tmp_path / "whole")
    assert clean(tmp_path / "g")
    assert git_export.export(thread, tmp_path / "g").commits == 0


def test_what_a_branch_moves_away_from_stays_under_a_ref(thread: Thread, tmp_path: Path) -> None:
    """Undo, redo and an undo of everything: the branch follows, and nothing is left without a name."""
    git_export.export(thread, tmp_path / "g")
    top = branches(tmp_path / "g")["main"]

    thread.undo()
    undone = git_export.export(thread, tmp_path / "g")
    stays = git(tmp_path / "g", "for-each-ref", "--format=%(objectname)", "refs/perdure/left").split()
    thread.redo()
    redone = git_export.export(thread, tmp_path / "g")
    thread.undo(to=None)
    nothing = git_export.export(thread, tmp_path / "g")

    assert (undone.commits, redone.commits, nothing.commits) == (0, 0, 0)
    assert stays == [top]
    assert redone.branches[0].git == top
    assert nothing.removed == ("main",)
    assert branches(tmp_path / "g") == {}
    assert clean(tmp_path / "g")


def test_a_path_that_comes_to_have_others_below_it_moves_aside(thread: Thread, tmp_path: Path) -> None:
    """And back, when they go."""
    for path in ("/a", "/a/b/c", "/a/b", "/a//", "/.git/config", "/git~1"):
        thread.put(path, path)
    thread.delete("/a/b/c")
    thread.delete("/a/b")
    thread.delete("/a//")

    git_export.export(thread, tmp_path / "g")

    def state(at: str) -> list[str]:
        return [each for each in tree(tmp_path / "g", at) if each.startswith("state/a")]

    assert state("main~8") == ["state/a"]
    assert state("main~7") == ["state/a/%value", "state/a/b/c"]
    assert state("main~6") == ["state/a/%value", "state/a/b/%value", "state/a/b/c"]
    assert state("main~5") == ["state/a/%_/%_", "state/a/%value", "state/a/b/%value", "state/a/b/c"]
    assert state("main~2") == ["state/a/%_/%_", "state/a/%value", "state/a/b"]
    assert state("main~1") == ["state/a/%_/%_", "state/a/%value"]
    assert state("main") == ["state/a"]
    assert show(tmp_path / "g", "state/a") == show(tmp_path / "g", "state/a/%value", "main~7") == '"/a"\n'
    assert {"state/%2Egit/config", "state/git%7E1"} < set(tree(tmp_path / "g"))
    assert clean(tmp_path / "g")


@pytest.mark.parametrize("seed", some(range(4), one_of=2))
def test_files_are_the_state_at_every_commit_whatever_was_done(
    store: Store, tmp_path: Path, seed: int
) -> None:
    """Random puts, deletes and clears of paths that lie below each other: each tree equals its snapshot."""
    thread, random = store.thread("random", agent="a"), Random(seed)
    for number in range(60):
        with thread.change("step") as change:
            for _ in range(random.randint(1, 4)):
                path = "/" + "/".join(random.choices(["a", "b", "", "c.d"], k=random.randint(1, 4)))
                if path == "/":
                    continue
                if random.random() < 0.3:
                    change.clear(path)
                else:
                    change.put(path, number)

    git_export.export(thread, tmp_path / "g")

    for back in range(len(thread.log())):
        files = [each.removeprefix("state/") for each in tree(tmp_path / "g", f"main~{back}")]
        keys = ["/" + each.removesuffix("/%value").replace("%_", "") for each in files]
        assert sorted(keys) == sorted(thread.at(f"HEAD~{back}").paths())


def test_a_large_value_is_streamed_as_it_is(thread: Thread, tmp_path: Path) -> None:
    """One that is kept as an artifact too, and a large document is not laid out anew."""
    content = Random(1).randbytes(3 << 20)
    thread.put("/large", content, media_type="application/zip")
    thread.put("/large.json", ["x" * 1_000] * 1_100)

    git_export.export(thread, tmp_path / "g")

    assert show(tmp_path / "g", "state/large").encode("utf-8", "surrogateescape") == content
    assert show(tmp_path / "g", "state/large.json") == json.dumps(
        ["x" * 1_000] * 1_100, separators=(",", ":")
    )


def test_a_directory_with_something_else_is_not_touched(thread: Thread, tmp_path: Path) -> None:
    """Nor is a file, or a repository that is somebody's own."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "note").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "repository").mkdir()
    git(tmp_path / "repository", "init", "--quiet", "--bare")

    codes = {"mine": "not_an_export", "file": "export_path_is_file", "repository": "not_an_export"}
    for name, code in codes.items():
        before = sorted(tmp_path.joinpath(name).rglob("*"))
        with raises(Conflict, code, directory=str(tmp_path / name)):
            git_export.export(thread, tmp_path / name)
        assert sorted(tmp_path.joinpath(name).rglob("*")) == before
    with raises(NotFound, "directory_not_found", directory=str(tmp_path / "no")):
        git_export.export(thread, tmp_path / "no" / "where")


def test_another_thread_is_not_written_over_it(store: Store, thread: Thread, tmp_path: Path) -> None:
    """Nor one of the same name that was begun anew, or is another store's."""
    git_export.export(thread, tmp_path / "g")
    before = branches(tmp_path / "g")
    gone = store.thread("trip")

    with raises(Conflict, "export_of_another_thread", thread="trip"):
        git_export.export(store.thread("else", agent="planner"), tmp_path / "g")
    thread.rm()
    with raises(Conflict, "export_of_another_thread", thread="trip"):
        git_export.export(store.thread("trip", agent="planner"), tmp_path / "g")
    with raises(NotFound, "thread_removed", thread="trip"):
        git_export.export(gone, tmp_path / "new")
    assert branches(tmp_path / "g") == before
    assert not (tmp_path / "new").exists()


def test_commits_of_somebody_else_are_not_written_over(thread: Thread, tmp_path: Path) -> None:
    """A branch that was moved by hand, with words that look like ours, is refused."""
    git_export.export(thread, tmp_path / "g")
    message = git(tmp_path / "g", "log", "-1", "--format=%B", "main")
    who = ("-c", "user.name=Eve", "-c", "user.email=eve@home")
    forged = git(tmp_path / "g", *who, "commit-tree", "main^{tree}", "-p", "main", "-m", message).strip()
    git(tmp_path / "g", "update-ref", "refs/heads/main", forged)
    thread.put("/more", 1)

    with raises(Conflict, "commit_not_exported", ref="refs/heads/main"):
        git_export.export(thread, tmp_path / "g")

    assert branches(tmp_path / "g")["main"] == forged


def test_a_store_that_lost_commits_is_found_out(tmp_path: Path) -> None:
    """A repository that is ahead of a store which was restored from a backup is left alone."""
    with opened(tmp_path / "store.db") as store:
        thread = store.thread("trip", agent="planner")
        thread.put("/a", 1)
        shutil.copy(tmp_path / "store.db", tmp_path / "old.db")
        shutil.copy(tmp_path / "store.db-wal", tmp_path / "old.db-wal")
        thread.put("/a", 2)
        git_export.export(thread, tmp_path / "g")

    with (
        opened(tmp_path / "old.db") as store,
        raises(Conflict, "commit_not_in_thread", ref="refs/heads/main"),
    ):
        git_export.export(store.thread("trip"), tmp_path / "g")


def test_an_export_that_was_cut_off_before_it_was_written_down_goes_on(
    thread: Thread, tmp_path: Path
) -> None:
    """Refs moved, and the record of it did not come to be: the next export puts it right."""
    git_export.export(thread, tmp_path / "g")
    before = (tmp_path / "g" / "perdure.json").read_bytes()
    thread.put("/more", 1)
    git_export.export(thread, tmp_path / "g")
    (tmp_path / "g" / "perdure.json").write_bytes(before)
    thread.put("/more", 2)

    git_export.export(thread, tmp_path / "g")
    git_export.export(thread, tmp_path / "whole")

    assert branches(tmp_path / "g") == branches(tmp_path / "whole")
    assert clean(tmp_path / "g")


def test_what_fails_in_the_middle_moves_no_branch(thread: Thread, tmp_path: Path) -> None:
    """The stream has an end that git waits for; without it nothing becomes visible."""
    git_export.export(thread, tmp_path / "g")
    before = branches(tmp_path / "g")
    for number in range(20):
        thread.put("/more", number)

    def interrupted(done: int) -> None:
        if done == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        git_export.export(thread, tmp_path / "g", progress=interrupted)

    assert branches(tmp_path / "g") == before
    assert git_export.export(thread, tmp_path / "g").commits == 20
    assert clean(tmp_path / "g")


def test_git_that_fails_is_an_error_with_its_words(thread: Thread, tmp_path: Path) -> None:
    """A repository that cannot be written to stays as it was, and says why."""
    git_export.export(thread, tmp_path / "g")
    thread.put("/more", 1)
    shutil.rmtree(tmp_path / "g" / "objects")
    (tmp_path / "g" / "objects").write_text("no directory")

    with raises(Unavailable, "git_failed"):
        git_export.export(thread, tmp_path / "g")


def test_without_git_nothing_is_written(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what is needed."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))

    with raises(Unsupported, "git_not_installed"):
        git_export.export(thread, tmp_path / "g")

    assert not (tmp_path / "g").exists()


def test_two_exports_do_not_write_to_one_directory(thread: Thread, tmp_path: Path) -> None:
    """The second is told; when the first has ended it may."""
    following = git_export.follow(thread, tmp_path / "g")
    next(following)

    with raises(Unavailable, "export_locked"):
        git_export.export(thread, tmp_path / "g")

    following.close()  # type: ignore[attr-defined]
    assert git_export.export(thread, tmp_path / "g").commits == 0


def test_the_users_settings_and_environment_change_nothing(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither another repository that is named there, nor a hook, a template or a default."""
    git_export.export(thread, tmp_path / "plain")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".gitconfig").write_text(
        "[init]\ndefaultBranch=trunk\n[core]\nignorecase=true\n[i18n]\ncommitEncoding=latin1\n[user]\nname=Eve\n"
    )
    for name, value in {
        "HOME": tmp_path / "home",
        "GIT_DIR": tmp_path / "elsewhere",
        "GIT_COMMITTER_DATE": "2001-01-01",
        "GIT_DEFAULT_HASH": "sha256",
        "GIT_OBJECT_DIRECTORY": tmp_path / "objects",
        "TZ": "Asia/Tokyo",
    }.items():
        monkeypatch.setenv(name, str(value))

    git_export.export(thread, tmp_path / "g")

    assert branches(tmp_path / "g") == branches(tmp_path / "plain")
    assert git(tmp_path / "g", "symbolic-ref", "HEAD") == "refs/heads/main\n"
    assert not (tmp_path / "elsewhere").exists()


def git_of(thread: Thread, commit: str | None) -> str:
    """The trailer that names a commit of the thread."""
    assert commit is not None
    return f"Commit: {thread.at(commit).digest}"

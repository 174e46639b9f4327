"""`perdure export --git`: what it says, to people and to programs, and how it ends."""

from __future__ import annotations

import pytest

from tests.surfaces.shell import Shell


def test_it_says_what_it_wrote_and_then_that_nothing_was_new(shell: Shell) -> None:
    """Done again, it goes on from what is there."""
    first = shell.ok("export", "shopping", "--git", "g").out
    again = shell.ok("export", "shopping", "--git", "g").out

    assert first.startswith("Wrote 5 commits of shopping to g.\n")
    assert again.startswith("✓ g is up to date with shopping.\n")
    assert "git -C g log --graph --oneline --branches" in again


def test_an_undo_is_told_as_a_move(shell: Shell) -> None:
    """No commit is new, and the branch stands elsewhere."""
    shell.ok("export", "shopping", "--git", "g")
    shell.ok("threads", "undo", "shopping")

    moved = shell.ok("export", "shopping", "--git", "g").out

    assert moved.startswith("Moved 1 timeline of shopping in g; no commit was new.\n")


def test_programs_get_every_branch_by_both_names(shell: Shell) -> None:
    """The commit here, and the commit in git."""
    shell.ok("threads", "fork", "shopping", "a/b")

    answer = shell.ok("export", "shopping", "--git", "g", "--json").json

    assert (answer["commits"], answer["removed"]) == (5, [])
    assert [each["branch"] for each in answer["branches"]] == ["main", "a%2Fb", "what-if"]
    assert {len(each["git"]) for each in answer["branches"]} == {40}
    assert (
        answer["branches"][0]["commit"]
        == shell.ok("threads", "show", "shopping", "--json").json["head"]["commit"]
    )


def test_a_thread_without_commits_has_no_branch(shell: Shell) -> None:
    """The repository is there all the same, and can be gone on with."""
    shell.ok("threads", "begin", "new", "--agent", "helper")

    assert "Nothing is committed yet" in shell.ok("export", "new", "--git", "g").out
    shell.ok("state", "put", "new", "/x.json", "1")
    assert shell.ok("export", "new", "--git", "g").out.startswith("Wrote 1 commit of new to g.\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "or --git DIR"),
        (["--follow"], "no --follow without --git"),
        (["--format", "openai-chat", "--follow"], "no --follow without --git"),
        (["--git", "g", "--format", "openai-chat"], "writes the whole thread"),
        (["--git", "g", "--timeline", "what-if"], "writes the whole thread"),
        (["--git", "g", "--at", "HEAD~1"], "writes the whole thread"),
        (["--git", "g", "--model", "x"], "writes the whole thread"),
    ],
)
def test_what_does_not_go_together_is_refused(shell: Shell, words: list[str], told: str) -> None:
    """Nothing is written."""
    ended = shell("export", "shopping", *words)

    assert ended.code == 2
    assert told in ended.err
    assert "nothing was written" in ended.err
    assert not (shell.directory / "g").exists()


def test_a_directory_that_is_not_ours_is_a_conflict(shell: Shell) -> None:
    """And stays as it is."""
    (shell.directory / "mine").mkdir()
    (shell.directory / "mine" / "note").write_text("x")

    ended = shell("export", "shopping", "--git", "mine")

    assert ended.code == 4
    assert "not empty and was not made by an export; nothing was touched" in ended.err
    assert [each.name for each in (shell.directory / "mine").iterdir()] == ["note"]


def test_without_git_the_command_says_so(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing, and that nothing was written."""
    monkeypatch.setenv("PATH", "")

    ended = shell("export", "shopping", "--git", "g")

    assert ended.code == 1
    assert "git is not installed" in ended.err


def test_a_thread_that_is_not_there_makes_no_directory(shell: Shell) -> None:
    """A mistyped name leaves nothing behind."""
    assert shell("export", "shoping", "--git", "g").code == 3
    assert not (shell.directory / "g").exists()

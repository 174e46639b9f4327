"""The commands about artifacts: what goes in comes out, whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
import sys

import pytest

import perdure
from perdure import Agent
from perdure.runtime.events import TextDelta
from perdure.runtime.session.live_text import SpoolCarrier
from perdure.testing import Script, say
from tests.runtime.test_live_text import Follower, running
from tests.surfaces.shell import Shell

CONTENT = bytes(range(256)) * 3_000  # several chunks
FILES = {
    *(
        "new.db",
        "new.db-lock",
        "perdure.db-shm",
        "perdure.db-wal",
        "perdure.db-held",
        "perdure.db-memory/*.db",
    ),
    *("live/*.jsonl", "given.bin", "spans.jsonl", "tables.db", "messages.json", "backup.db"),
    *("shopping.git/HEAD", "shopping.git/perdure.json", "shopping.git/perdure.lock"),
    *("copy.db", "copy.db-lock", "copy.db-closed", "copy.db-shm", "copy.db-wal"),
    *("restored.db", "restored.db-lock", "restored.db-shm", "restored.db-wal", "restored.db.set-aside-*"),
}


@pytest.fixture
def kept(shell: Shell) -> str:
    """The digest of an artifact that the thread keeps."""
    (shell.directory / "report.bin").write_bytes(CONTENT)
    return shell.ok("artifacts", "put", "shopping", "report.bin", "--json").json["artifact"]["digest"]


def test_a_file_is_kept_and_described(shell: Shell, kept: str) -> None:
    """By digest, reference, name, media type, size and plain SHA-256."""
    shown = shell.ok("artifacts", "show", "shopping", kept, "--json").json["artifact"]

    assert shown["reference"] == f"artifact://sha256/{kept}"
    assert (shown["name"], shown["size"]) == ("report.bin", len(CONTENT))
    assert shown["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert shell.ok("artifacts", "ls", "shopping", "--json").json["artifacts"] == [shown]


def test_the_digest_is_last_on_the_line(shell: Shell) -> None:
    """And whole, so that a program can be given it."""
    (line,) = shell.ok("artifacts", "put", "shopping", "-", "--name", "note", stdin=b"words").out.splitlines()

    assert len(line.split()[-1]) == 64
    assert "text/plain" in line


def test_every_file_is_for_its_owner_alone(shell: Shell, kept: str) -> None:
    """The store with what is beside it, its copies and all that it gives out, whatever others may do with new files."""
    (shell.directory / "shopping.git").mkdir(mode=0o755)
    present = set(shell.directory.iterdir())  # what the test itself has made
    shell.store.chmod(0o600)
    before = os.umask(0o022)
    try:
        shell.ok("init", "--store", "new.db")
        with perdure.open(shell.store) as store:
            store.thread("t", agent=Agent("a", backend=Script(say("done")))).run("go")
            store.memory("ada").add("she drinks green tea")
            assert store.memory("ada").search("tea")
            spool = SpoolCarrier(shell.directory / "live")
            _, feed = running(spool)
            Follower(spool).poll()
            feed.tell(TextDelta("a", message="m"))
            shell.ok("artifacts", "get", "shopping", "report.bin", "--output", "given.bin")
            shell.ok("export", "shopping", "--format", "otlp", "--content", "text", "--output", "spans.jsonl")
            shell.ok("export", "shopping", "--format", "sqlite", "--output", "tables.db")
            shell.ok("export", "shopping", "--format", "anthropic-messages", "--output", "messages.json")
            shell.ok("export", "shopping", "--git", "shopping.git")
            shell.ok("backup", "backup.db")
            shell.ok("copy", "perdure.db", "copy.db")
            shell.ok("restore", "backup.db", "--store", "restored.db")
            shell.ok("restore", "backup.db", "--store", "restored.db", "--replace")
            with perdure.open(shell.directory / "copy.db"), perdure.open(shell.directory / "restored.db"):
                files = {
                    str(each.relative_to(shell.directory)): stat.S_IMODE(each.stat().st_mode)
                    for each in shell.directory.rglob("*")
                    if each not in present
                }
    finally:
        os.umask(before)

    assert {name: oct(mode) for name, mode in files.items() if mode & 0o077} == {}
    assert {re.sub(r"\d{8}T\d{6}|[0-9a-f]{32,}", "*", name) for name in files} >= FILES


@pytest.mark.parametrize("name", ["digest", "prefix", "name", "reference"])
def test_an_artifact_has_several_names(shell: Shell, kept: str, name: str) -> None:
    """Each leads to the same content."""
    names = {
        "digest": kept,
        "prefix": kept[:12],
        "name": "report.bin",
        "reference": f"artifact://sha256/{kept}",
    }

    shell.ok("artifacts", "get", "shopping", names[name], "--output", "copy.bin")

    assert (shell.directory / "copy.bin").read_bytes() == CONTENT


def test_content_goes_to_a_pipe(shell: Shell, kept: str) -> None:
    """Byte for byte, and nothing else with it."""
    script = f"from perdure.cli import main; main(['artifacts', 'get', 'shopping', '{kept}'])"

    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=shell.directory, capture_output=True, check=True
    )

    assert ended.stdout == CONTENT


def test_a_file_that_exists_is_not_overwritten(shell: Shell, kept: str) -> None:
    """It is a conflict, and the file stays as it was."""
    (shell.directory / "mine.bin").write_bytes(b"mine")

    ended = shell("artifacts", "get", "shopping", kept, "--output", "mine.bin")

    assert ended.code == 4
    assert (shell.directory / "mine.bin").read_bytes() == b"mine"
    assert not list(shell.directory.glob("*.partial"))


def test_content_is_not_written_to_a_terminal(
    shell: Shell, kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold anything."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)

    assert shell("artifacts", "get", "shopping", kept).code == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show", "shopping", "nothing-like-it"], 3),
        (["show", "shopping", "0" * 64], 3),
        (["get", "shopping", "nothing-like-it", "--output", "x"], 3),
        (["put", "shopping", "nowhere.bin"], 3),
        (["put", "nobody", "report.bin"], 3),
        (["put", "shopping", "report.bin", "--media-type", "not a type"], 2),
        (["ls", "nobody"], 3),
    ],
)
def test_what_cannot_be_done_is_told(shell: Shell, kept: str, words: list[str], code: int) -> None:
    """By the exit code and in words."""
    ended = shell("artifacts", *words)

    assert ended.code == code
    assert ended.err


def test_a_name_that_fits_two_is_refused(shell: Shell) -> None:
    """The empty beginning of a digest fits all of them."""
    for words in (b"one", b"two"):
        shell.ok("artifacts", "put", "shopping", "-", "--name", "same", stdin=words)

    assert shell("artifacts", "show", "shopping", "same").code == 2
    assert "has no artifact" not in shell.ok("artifacts", "ls", "shopping").out


def test_a_thread_without_artifacts_says_so(shell: Shell) -> None:
    """In words for people, as an empty list for programs."""
    assert "has no artifact" in shell.ok("artifacts", "ls", "shopping").out
    assert shell.ok("artifacts", "ls", "shopping", "--json").json["artifacts"] == []


def test_a_name_of_a_collection_is_committed_and_resolved_as_of_a_moment(shell: Shell) -> None:
    """Put twice, it leads to the last one now and to the first one before."""
    for words in (b"one", b"two"):
        shell.ok("artifacts", "put", "shopping", "-", "--name", "design/draft", stdin=words)

    now = shell.ok("artifacts", "show", "shopping", "artifact://design/draft", "--json").json["artifact"]
    before = shell.ok("artifacts", "show", "shopping", "design/draft", "--at", "HEAD~1", "--json").json[
        "artifact"
    ]

    assert now["named"] == "artifact://design/draft"
    assert now["sha256"] == hashlib.sha256(b"two").hexdigest()
    assert before["sha256"] == hashlib.sha256(b"one").hexdigest()
    assert now["commit"] in [each["digest"] for each in _log(shell)]
    assert f"commit {now['commit'][:12]}" in shell.ok("artifacts", "ls", "shopping").out


def test_another_thread_s_name_is_not_found(shell: Shell) -> None:
    """Whatever it is called by."""
    shell.ok("artifacts", "put", "shopping", "-", "--name", "design/draft", stdin=b"one")
    shell.ok("threads", "begin", "other", "--agent", "helper")

    assert shell("artifacts", "show", "other", "artifact://design/draft").code == 3


def _log(shell: Shell) -> list[dict[str, str]]:
    return shell.ok("threads", "log", "shopping", "--commits", "--json").json["commits"]

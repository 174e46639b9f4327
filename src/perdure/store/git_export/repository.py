"""Git as a program: found, asked, and fed.

It runs without the user's settings and without what the environment says about another
repository: neither may change a hash.  Whatever it complains about is in the error that is raised.

The repository as a directory: is it ours, which thread's, how far had it come, and is nobody else at it.

`perdure.json` says so, and is written before anything else and after every import.  If it names
a commit that a ref is not at, an import was cut off between the two: then the ref must at least be
at a commit that Perdure made of this thread, and that part of the import is made again.  Any other
ref is somebody's work, and the directory is refused.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from perdure.errors import Conflict, NotFound, PerdureError, Unavailable, Unsupported
from perdure.model.digest import Digest
from perdure.projections.git import BRANCHES, COMMITTER, told_in

__all__ = ["Git", "Importer", "LEFT", "Repository", "Tip"]


_SETTINGS = (
    "core.ignorecase=false",  # else git takes two names for one where the file system does
    "core.hooksPath=/dev/null",  # a hook is somebody else's program
)
_COMPLAINT_MAX = 500
_IMPORT = ("fast-import", "--quiet", "--force", "--done", "--date-format=raw")


class Git:
    """Git, at work on one repository."""

    def __init__(self, directory: Path) -> None:
        """Find git; raises `Unsupported` if it is not installed."""
        found = shutil.which("git")
        if found is None:
            raise Unsupported(
                "git is not installed, or not on the PATH; nothing was written. Install git and try again."
            )
        self.directory = directory
        self._words = [found, f"--git-dir={directory}"]
        for setting in _SETTINGS:
            self._words += ["-c", setting]

    def ask(self, *words: str, stdin: bytes = b"") -> bytes:
        """What git answers; raises `Unavailable` with its complaint if it refuses."""
        ended = subprocess.run(
            [*self._words, *words], input=stdin, env=_environment(), capture_output=True, check=False
        )
        if ended.returncode:
            raise _failed(words[0], ended.stderr)
        return ended.stdout

    def begin(self) -> None:
        """Make the repository, bare, with `main` as the branch that it opens with; no error if it is there."""
        self.ask("init", "--quiet", "--bare", "--template=")
        self.ask("symbolic-ref", "HEAD", "refs/heads/main")

    @contextmanager
    def importing(self) -> Generator[Importer]:
        """Feed a stream to git.  Refs move when the stream ends as it should, and else not at all."""
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                [*self._words, *_IMPORT],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
            )
            with process:
                importer = Importer(process)
                try:
                    yield importer
                    importer.close()
                except BrokenPipeError:
                    importer.give_up()
                except BaseException:
                    process.kill()  # it has not been told that it is done, so no ref moves
                    importer.give_up()
                    raise
            if process.returncode:
                complaints.seek(0)
                self._tidy(process.pid)
                raise _failed(_IMPORT[0], complaints.read())

    def _tidy(self, pid: int) -> None:
        """Remove the report that git writes about a stream that was cut off."""
        with suppress(OSError):
            (self.directory / f"fast_import_crash_{pid}").unlink()


class Importer:
    """The stream to a `git fast-import` that is running."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Write to that process."""
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout

    def write(self, part: bytes) -> None:
        """Add to the stream."""
        self._in.write(part)

    def answer(self) -> str:
        """One line that git was asked for."""
        self._in.flush()
        line = self._out.readline()
        if not line:
            raise BrokenPipeError
        return line.decode().strip()

    def close(self) -> None:
        """End the stream."""
        self._in.close()

    def give_up(self) -> None:
        """End it, whether or not anybody reads what is left."""
        with suppress(OSError):
            self._in.close()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return kept | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_DEFAULT_HASH": "sha1",
        "LC_ALL": "C",
    }


def _failed(what: str, complaint: bytes) -> Unavailable:
    said = " ".join(complaint.decode("utf-8", "replace").split())[:_COMPLAINT_MAX]
    return Unavailable(
        f"git {what} failed ({said or 'it gave no reason'}); the export did not finish. "
        "Look at the directory and at the space on its disk, and export again: it goes on from what is there."
    )


LEFT = "refs/perdure/left/"  # where commits stay that a branch has moved away from

_FORMAT = 1
_MARKER = "perdure.json"
_NEW = "perdure.json.new"  # the next one, while it is written
_LOCK = "perdure.lock"
_BEGUN = {_LOCK, _NEW}  # what an export leaves that was killed before it had said whose the directory is
_ADVICE = "Export to a directory that is empty or not there yet."


class Tip(msgspec.Struct, frozen=True):
    """Where a ref stands: the git commit, and the commit of the thread that it is made of."""

    git: str
    commit: Digest


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    """What `perdure.json` says."""

    format: int
    thread: str
    space: str
    refs: dict[str, Tip]


class Repository:
    """A directory with the git repository of one thread."""

    def __init__(self, directory: str | os.PathLike[str], thread: str, space: str) -> None:
        """Name the directory, and whose it is to be; nothing is looked at yet."""
        self.directory = Path(os.path.abspath(directory))
        self.git = Git(self.directory)
        self._thread, self._space = thread, space

    @contextmanager
    def held(self) -> Generator[None]:
        """Have the directory for oneself, made if it is not there.

        Raises `Conflict`, having touched nothing, if it is not empty and not this thread's, and
        `Unavailable` while another export is at it.
        """
        self._check_place()
        self.directory.mkdir(exist_ok=True)
        lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Unavailable(
                    f"another export is writing to {self.directory}; nothing was written. Wait for it, or stop it."
                ) from error
            self._begin()
            yield
        finally:
            os.close(lock)

    def tips(self, is_known: Callable[[Digest], bool]) -> dict[str, Tip]:
        """Where the refs stand that can be gone on from; `is_known`: whether the thread has a commit.

        Raises `Conflict`, having touched nothing, if there is anything that was not made of this thread.
        """
        recorded = self._marker().refs
        found: dict[str, Tip] = {}
        for ref, git in self._refs().items():
            tip = recorded.get(ref)
            if tip is not None and tip.git == git:
                if not is_known(tip.commit):
                    raise self._unknown(ref, tip.commit)
                found[ref] = tip
            else:
                self._check_ours(ref, git, is_known)
        return found

    def record(self, refs: Mapping[str, Tip]) -> None:
        """Write down where the refs stand now."""
        marker = _Marker(format=_FORMAT, thread=self._thread, space=self._space, refs=dict(refs))
        new = self.directory / _NEW
        with new.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(marker), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.directory / _MARKER)

    def _check_place(self) -> None:
        """Raise unless the directory may be written to: it is ours, or empty, or there is none yet."""
        if not self.directory.parent.is_dir():
            raise NotFound(
                f"{self.directory} would be in a directory that is not there; nothing was written. Make it first."
            )
        if self.directory.exists() and not self.directory.is_dir():
            raise Conflict(f"{self.directory} is a file; nothing was touched. {_ADVICE}")
        if self.directory.is_dir() and any(each.name not in _BEGUN for each in self.directory.iterdir()):
            self._check_marker()

    def _check_marker(self) -> None:
        if not (self.directory / _MARKER).is_file():
            raise Conflict(
                f"{self.directory} is not empty and was not made by an export; nothing was touched. {_ADVICE}"
            )
        marker = self._marker()
        if marker.format != _FORMAT:
            raise Conflict(
                f"{self.directory} was made by a Perdure that writes format {marker.format}, not {_FORMAT}; nothing "
                f"was touched. {_ADVICE}"
            )
        if (marker.thread, marker.space) != (self._thread, self._space):
            other = (
                f"'{marker.thread}'" if marker.thread != self._thread else "of the same name in other hands"
            )
            raise Conflict(
                f"{self.directory} holds the thread {other}, not '{self._thread}' of this store; nothing was touched. "
                f"{_ADVICE}"
            )

    def _begin(self) -> None:
        """Make what is not there yet.  The marker comes first: what is cut off here is still known to be ours."""
        if not (self.directory / _MARKER).exists():
            self.record({})
        if not (self.directory / "HEAD").exists():
            self.git.begin()

    def _marker(self) -> _Marker:
        try:
            return msgspec.json.decode((self.directory / _MARKER).read_bytes(), type=_Marker)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Conflict(
                f"{self.directory / _MARKER} is not what an export writes ({error}); nothing was touched. {_ADVICE}"
            ) from error

    def _refs(self) -> dict[str, str]:
        """The refs that are ours to move, and the commit that each is at."""
        wanted = (BRANCHES.rstrip("/"), LEFT.rstrip("/"))
        listed = self.git.ask("for-each-ref", "--format=%(objectname) %(tree) %(refname)", *wanted)
        lines = [line.split(" ", 2) for line in listed.decode("utf-8", "surrogateescape").splitlines()]
        return {ref: git for git, _, ref in lines}

    def _check_ours(self, ref: str, git: str, is_known: Callable[[Digest], bool]) -> None:
        head, _, message = (
            self.git.ask("cat-file", "commit", git).decode("utf-8", "replace").partition("\n\n")
        )
        commit = told_in(message).get("Commit", "")
        if f"\ncommitter {COMMITTER} <" not in head or not commit:
            raise Conflict(
                f"{ref} of {self.directory} is at {git[:12]}, which no export has made; nothing was touched. Work in a "
                f"clone instead. {_ADVICE}"
            )
        try:
            known = is_known(Digest(commit))
        except PerdureError:
            known = False
        if not known:
            raise self._unknown(ref, commit)

    def _unknown(self, ref: str, commit: str) -> Conflict:
        return Conflict(
            f"{ref} of {self.directory} is at commit {commit[:12]}, which thread '{self._thread}' of this store does not "
            f"have; nothing was touched. Is this the right store? {_ADVICE}"
        )

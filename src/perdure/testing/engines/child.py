"""Another process at work on the store under test: the suite starts it, talks to it and kills it.

It opens the directory with the suite's own engine and does one job there: `apply_received`
applies each write that it reads from its standard input, `go_on` writes until it is
killed.  Both print the outcome of each write on their standard output, one line for each.
The jobs that hold print the name of their holder, and stay until they are ended.
"""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO

import msgspec

from perdure.engines.contract import CellWrite, Engine, Instant, Receipt, Write
from perdure.errors import StaleHead
from perdure.model.head import Head
from perdure.testing.engines.builders import START, Made, made, moved, value, write
from perdure.testing.engines.subject import EngineSubject

__all__ = ["WRITERS", "ChildReply", "Child", "child", "main", "turn_of"]

WRITERS = 2


class ChildReply(msgspec.Struct, omit_defaults=True):
    """The outcome of a write that another process made, or the name of that process."""

    space: str = ""
    receipt: Receipt | None = None
    expected: Head | None = None  # the heads of a `StaleHead`
    actual: Head | None = None
    holder: str = ""
    instant: Instant | None = None


class Child:
    """A process that was started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Talk to `process` through its pipes."""
        self.process = process

    def tell(self, message: msgspec.Struct) -> None:
        """Send one line."""
        _pipe(self.process.stdin).write(msgspec.json.encode(message) + b"\n")
        _pipe(self.process.stdin).flush()

    def answer(self) -> ChildReply:
        """Return the next answer; fail if the process ended before it came."""
        line = _pipe(self.process.stdout).readline()
        assert line.endswith(b"\n"), f"the other process ended early: {self.process.wait()}"
        return msgspec.json.decode(line, type=ChildReply)

    def kill(self) -> list[ChildReply]:
        """Kill the process with SIGKILL and read what it had printed, without a line that it did not finish."""
        self.process.kill()
        rest = _pipe(self.process.stdout).read().splitlines(keepends=True)
        self.process.wait()
        return [msgspec.json.decode(line, type=ChildReply) for line in rest if line.endswith(b"\n")]


@contextmanager
def child(ground: type[EngineSubject], path: Path, job: str) -> Generator[Child]:
    """Start another process that opens the same directory with the same engine, and end it afterwards."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import main; main(*sys.argv[1:])"
    command = [sys.executable, "-c", program, f"{ground.__module__}:{ground.__qualname__}", str(path), job]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def turn_of(writer: int, turn: int, after: Made | None, head: Head) -> tuple[Made, Write]:
    """Return one of the writes of the job `go_on`: commit, value, cell and entry, all of the same turn."""
    text = f"{writer} {turn}"
    new = made(text, after, messages=[text])
    cell = CellWrite(name="turn", expected=turn, value=b"%d" % turn)
    parts = (value(f"value {text} " * 30), new, moved(head, new), cell, b'"%d"' % turn)
    return new, write(f"turn {turn}", *parts, space=f"space-{writer}")


def apply_received(engine: Engine) -> None:
    """Apply each write that is received, and print its outcome."""
    _say(ChildReply())
    for line in sys.stdin.buffer:
        received = msgspec.json.decode(line, type=Write)
        try:
            _say(ChildReply(received.space, engine.apply(received)))
        except StaleHead as refused:
            _say(ChildReply(received.space, None, refused.expected, refused.actual))


def go_on(engine: Engine) -> None:
    """Write for ever, each writer in its own space, and print each acknowledged write."""
    threads = [Thread(target=_write_on, args=(engine, writer)) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def hold_on(engine: Engine) -> None:
    """Print the holder, and the time."""
    _say(ChildReply(holder=engine.holder(), instant=engine.instant()))
    _stay()


def hold_and_fork(engine: Engine) -> None:
    """Print the holder, then have a forked child print its own; both stay."""
    _say(ChildReply(holder=engine.holder()))
    if os.fork() == 0:
        _say(ChildReply(holder=engine.holder()))
    _stay()


def hold_while_children_end(engine: Engine) -> None:
    """Print the holder before and after children that use the engine, close it, or do neither."""
    _say(ChildReply(holder=engine.holder()))
    for work in (engine.holder, engine.close, lambda: None):
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        os.waitpid(pid, 0)
        _say(ChildReply(holder=engine.holder()))
    _stay()


def _stay() -> None:
    sys.stdin.buffer.read()  # until the test closes its end, or this process is killed


def _write_on(engine: Engine, writer: int) -> None:
    tip, head = None, START
    for turn in itertools.count():
        tip, wanted = turn_of(writer, turn, tip, head)
        receipt = engine.apply(wanted)
        _say(ChildReply(wanted.space, receipt))
        head = receipt.heads[0]


def _say(answer: ChildReply) -> None:
    # One system call for each line, so that lines of two threads, or a kill, never mix.
    os.write(sys.stdout.fileno(), msgspec.json.encode(answer) + b"\n")


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


JOBS: dict[str, Callable[[Engine], None]] = {
    job.__name__: job for job in (apply_received, go_on, hold_on, hold_and_fork, hold_while_children_end)
}


def main(ground: str, path: str, job: str) -> None:
    """Open the store of the suite `ground` in `path` and do `job` there."""
    module, _, name = ground.partition(":")
    suite: type[EngineSubject] = getattr(importlib.import_module(module), name)
    engine = suite().open(Path(path))
    JOBS[job](engine)
    engine.close()

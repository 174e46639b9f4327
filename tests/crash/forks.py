"""Processes that fork with a store open: each function here is one such process, told apart by who does what when.

`pipe` is the test's; the process and its child send what they were told by the store.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from perdure.engines import forks as fork_registry
from perdure.engines.sqlite import SqliteEngine
from perdure.engines.sqlite.connections import Connections
from perdure.engines.sqlite.format import pack
from perdure.engines.sqlite.format.pack import PackForm
from perdure.errors import PerdureError
from perdure.testing.engines.builders import SPACE, Pen, value, write
from tests.crash.processes import Pipe
from tests.crash.spying import spied

__all__ = [
    "child_exits",
    "child_writes_after_parent_closed",
    "child_writes_after_parent_died",
    "fork_among_threads",
    "fork_while_compressing",
    "fork_inside_a_write",
    "upkeep_in_child",
]


class Signal:
    """A word from one process to the other."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def give(self) -> None:
        """Say it."""
        os.write(self._write, b".")

    def wait(self) -> None:
        """Wait until it was said."""
        os.read(self._read, 1)


def forked(work: Callable[[], object], *, ends: Callable[[int], object] = os._exit) -> int:
    """Do `work` in a forked child; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    ends(code)
    raise AssertionError("unreachable")


def succeeded(pid: int) -> bool:
    """Whether the child ended well."""
    return os.waitpid(pid, 0)[1] == 0


def child_writes_after_parent_closed(pipe: Pipe, path: str, how: str = "") -> None:
    """The child uses the store, the parent closes it, the child writes on; the unprepared one forks as it is."""
    engine = SqliteEngine(Path(path))
    if how == "unprepared":
        fork_registry._watched.clear()
        Connections.remember_files = lambda self: None  # else the child is refused: its log was deleted
    Pen(engine, space="parent").commit("before the fork")
    opened, closed = Signal(), Signal()

    def write_on() -> None:
        pen = Pen(engine, space="child")
        pen.commit("first")
        opened.give()
        closed.wait()
        for number in range(5):
            pen.commit(f"later {number}")
        pipe.send(pen.head)

    child = forked(write_on)
    opened.wait()
    engine.close()
    closed.give()
    assert succeeded(child)


def child_writes_after_parent_died(pipe: Pipe, path: str) -> None:
    """The parent ends without a word; the child writes whenever the test says so."""
    engine = SqliteEngine(Path(path))
    Pen(engine, space="parent").commit("before the fork")

    def write_when_told() -> None:
        pen = Pen(engine, space="child")
        while pipe.recv():
            pen.commit(f"{pen.head.version}")
            pipe.send(pen.head)

    forked(write_when_told)
    os._exit(0)


def child_exits(pipe: Pipe, path: str) -> None:
    """Children that use the store, close it, or do neither, end in the ordinary way; the parent writes on."""
    engine = SqliteEngine(Path(path))
    pen = Pen(engine)
    pen.commit("before the fork")
    for work in (lambda: None, lambda: engine.hold(SPACE, "main"), engine.close):
        assert succeeded(forked(work, ends=sys.exit))
    pipe.send(pen.commit("after the children").digest)
    while pipe.recv():
        pipe.send(pen.commit(f"{pen.head.version}").digest)


def upkeep_in_child(pipe: Pipe, path: str) -> None:
    """The first thing that the child does with the store is no read and no write, but upkeep."""
    engine = SqliteEngine(Path(path))
    kept, gone = value("kept" * 99), value("gone" * 99)
    engine.apply(write("op", kept, gone))
    engine.apply(write("op", value("theirs"), space="theirs"))
    for work in (
        lambda: engine.forget(SPACE, [gone.digest], why="asked", standing=engine.standing(SPACE)),
        lambda: engine.drop("theirs", why="asked"),
        lambda: engine.backup(Path(path).with_name("copy.db")),
    ):
        assert succeeded(forked(work))
    engine.apply(write("after", value("after")))
    pipe.send("done")


def fork_inside_a_write(pipe: Pipe, path: str) -> None:
    """Another thread is about to commit when the process forks; the child tries to write."""
    engine = SqliteEngine(Path(path))
    engine.apply(write("first", value("first")))
    reached, go_on = Event(), Event()

    def hold(sql: str) -> None:
        if sql == "COMMIT" and not reached.is_set():
            reached.set()
            go_on.wait()

    spied(engine, before=hold)
    writer = Thread(target=engine.apply, args=(write("slow", value("slow")),))
    writer.start()
    reached.wait()
    Thread(target=lambda: (time.sleep(0.2), go_on.set())).start()
    child = forked(lambda: pipe.send(engine.apply(write("by the child", value("child"))).op_id))
    writer.join()
    assert succeeded(child)
    pipe.send(engine.apply(write("by the parent", value("parent"))).op_id)


def fork_among_threads(pipe: Pipe, path: str, forks: int) -> None:
    """The process forks again and again while its threads read and write; each child does the same for a moment."""
    engine = SqliteEngine(Path(path))
    errors: list[str] = []
    stop = Event()

    def busy(space: str, rounds: int) -> None:
        try:
            pen = Pen(engine, space=space)
            while not stop.is_set() and pen.head.version < rounds:
                made = pen.commit(f"{pen.head.version}")
                engine.steps(space, made.digest, limit=9)
        except PerdureError as error:
            errors.append(f"{space}: {error}")

    threads = [Thread(target=busy, args=(f"parent {number}", 10**9)) for number in range(3)]
    for thread in threads:
        thread.start()
    children = []
    for number in range(forks):
        time.sleep(0.01)
        children.append(forked(lambda number=number: (busy(f"child {number}", 5), pipe.send(errors))))
    ended = [succeeded(child) for child in children]
    stop.set()
    for thread in threads:
        thread.join()
    pipe.send((ended, errors, [hold_version(engine, f"parent {number}") for number in range(3)]))


def fork_while_compressing(pipe: Pipe, path: str, how: str = "") -> None:
    """Another thread packs a large write while the process forks; the unprepared child has the compressor of its parent."""
    engine = SqliteEngine(Path(path))
    large: list[tuple[object, ...]] = [(0, PackForm.WHOLE, b64encode(os.urandom(4 << 20)))]
    slow = pack.zstd.ZstdCompressor(level=19)  # seconds for each write, so that it is busy at every fork
    pack._compressor.append(slow)
    Thread(target=lambda: [pack.encode_pack(large, None) for _ in range(10**9)], daemon=True).start()
    time.sleep(0.1)

    def write_in_child() -> None:
        if how == "unprepared":
            pack._compressor.append(slow)
        signal.alarm(1 if how == "unprepared" else 60)
        engine.apply(write("by the child", value(str(list(range(500))))))

    pipe.send(os.waitstatus_to_exitcode(os.waitpid(forked(write_in_child), 0)[1]))
    os._exit(0)


def hold_version(engine: SqliteEngine, space: str) -> int:
    """How far a writer has come."""
    hold = engine.hold(space, "main")
    assert hold is not None
    return hold.head.version

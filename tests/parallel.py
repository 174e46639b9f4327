"""Runs the tests in processes that are forked once every test is collected: `pytest -n 3`.

To import and collect the tests costs half a minute of a core, and to fork a process that has done so milliseconds.
The process that collected hands out the tests, large pieces first, and reports; it can fork again, so a worker that a test
ended is replaced, and that test has failed.  Without `-n` the tests run in the process that collected them.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, cast
from uuid import uuid4

import pytest
from _pytest.runner import runtestprotocol

_RUN = "PERDURE_TEST_RUN"  # the variable that names a run to all its workers
_PIECES = 3  # how many times the workers could be given what is left, in pieces of the next size


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `-n`, as other runners of tests call it; pytest keeps lower-case letters for itself."""
    parser.getgroup("parallel")._addoption(
        "-n", dest="workers", type=int, default=0, help="run the tests in so many forked processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers; None: this is left to pytest, which also says what could not be collected."""
    workers = min(session.config.option.workers, len(session.items))
    if workers < 1 or session.config.option.collectonly or session.testsfailed:
        return None
    os.environ[_RUN] = uuid4().hex
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.showfspath = False  # tests of several files end in between each other
    _Run(session, workers).run()
    return True


class _Worker:
    """A forked process, its end of the pipe, and the tests that it was handed and has not reported."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid, self.connection = pid, connection
        self.handed = deque[int]()


class _Run:
    """Hands out the tests of a session, and reports what the workers say of them."""

    def __init__(self, session: pytest.Session, workers: int) -> None:
        self._session = session
        self._left = deque(range(len(session.items)))
        self._count = workers
        self._base = session.config._tmp_path_factory.getbasetemp()  # pyright: ignore[reportAttributeAccessIssue]
        self._started = 0
        self._workers = dict[Connection, _Worker]()

    def run(self) -> None:
        """Run every test, or until the session is to stop; no worker is left."""
        try:
            for _ in range(self._count):
                self._start()
            while self._workers:
                for ready in wait(list(self._workers)):
                    self._hear(self._workers[ready])  # pyright: ignore[reportArgumentType]
        finally:
            for worker in self._workers.values():
                worker.connection.close()  # a worker that finds it closed comes to its end
            for worker in self._workers.values():
                os.waitpid(worker.pid, 0)

    def _start(self) -> None:
        ours, theirs = cast("tuple[Connection, Connection]", Pipe())
        self._started += 1
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for each in (ours, *self._workers):
                each.close()
            _be_worker(self._session, self._base / f"worker{self._started}", theirs)
        theirs.close()
        self._workers[ours] = worker = _Worker(pid, ours)
        self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        size = -(-len(self._left) // (self._count * _PIECES))
        piece = [self._left.popleft() for _ in range(size)]
        worker.handed.extend(piece)
        worker.connection.send(piece)

    def _hear(self, worker: _Worker) -> None:
        try:
            said = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._end(worker)
            return
        if said is None:
            self._hand_out(worker)
        else:
            item = self._session.items[worker.handed.popleft()]
            hook = self._session.config.hook
            self._report(
                item, [hook.pytest_report_from_serializable(config=item.config, data=each) for each in said]
            )

    def _end(self, worker: _Worker) -> None:
        """A worker has ended; if it had tests left, the first of them ended it."""
        del self._workers[worker.connection]
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.handed:
            item = self._session.items[worker.handed.popleft()]
            how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            said = f"this test ended the process that ran it: {how}"
            self._report(item, [pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")])
            self._left.extendleft(reversed(worker.handed))
            self._start()

    def _report(self, item: pytest.Item, reports: Iterable[pytest.TestReport]) -> None:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


# ---- in a worker


class _Reports:
    """Tells how a test ended to the process that collected it, instead of whoever else would report it here."""

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        hook = item.config.hook
        self._send(
            [
                hook.pytest_report_to_serializable(config=item.config, report=each)
                for each in runtestprotocol(item, log=False, nextitem=nextitem)
            ]
        )
        return True


def _be_worker(session: pytest.Session, base: Any, connection: Connection) -> NoReturn:
    """Run tests until there are no more, then end as a process does that forked itself."""
    atexit._clear()  # what was to happen at the end of the process that collected
    code = 1
    try:
        _begin(session.config, base)
        session.config.pluginmanager.register(_Reports(connection.send))
        _work(session, connection)
        code = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the session is to stop
    finally:
        session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()
        os._exit(code)


def _begin(config: pytest.Config, base: Any) -> None:
    """Give this process files of its own for what is captured, and a directory.

    The former files stay open: a module that was imported may have kept `sys.stderr` of that time.
    """
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture._former, capture._global_capturing = capture._global_capturing, None
    capture.start_global_capturing()
    capture.suspend_global_capture()
    base.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = base  # pyright: ignore[reportAttributeAccessIssue]


def _work(session: pytest.Session, connection: Connection) -> None:
    handed = deque[int](connection.recv())
    while handed:
        if len(handed) == 1:  # the last: what comes next decides which fixtures it leaves
            connection.send(None)
            handed.extend(connection.recv())
        item = session.items[handed.popleft()]
        item.config.hook.pytest_runtest_protocol(
            item=item, nextitem=session.items[handed[0]] if handed else None
        )

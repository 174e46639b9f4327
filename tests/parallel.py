"""Runs the tests in processes that are forked once every test is collected: `pytest -n 3`.

To import and collect the tests costs half a minute of a core, and to fork a process that has done so milliseconds.
The process that collected assigns the tests, large pieces first, and reports.  It can fork again, so it replaces a worker
that a test has ended, and that test has failed.  Without `-n`, or with `--pdb`, the tests run in the process that collected
them.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, cast
from uuid import uuid4

import pytest
from _pytest.runner import runtestprotocol
from _pytest.subtests import failed_subtests_key

from tests import forked

_RUN = "PERDURE_TEST_RUN"  # the variable that names a run to all its workers
_PIECES = 3  # for each worker, of what is not assigned yet


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer `-n`, as other runners of tests call it; pytest keeps lower-case letters for itself."""
    parser.getgroup("parallel")._addoption(
        "-n", dest="workers", type=int, default=0, help="run the tests in so many forked processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in workers; None: pytest runs them, or says what it could not collect."""
    option = session.config.option
    workers = min(option.workers, len(session.items))
    if option.collectonly or session.testsfailed:
        return None
    if workers < 1 or option.usepdb:
        forked.fork_own()
        return None
    os.environ[_RUN] = uuid4().hex
    reporter: Any = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.showfspath = False  # tests of several files end in between each other
    _Run(session, workers).run()
    return True


class _Worker:
    """A forked process, our end of its pipe, and the tests that were assigned to it and that it has not reported."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid, self.connection = pid, connection
        self.assigned = deque[int]()


class _Run:
    """Assigns the tests of a session to workers, and reports what they send."""

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
                    self._receive(self._workers[ready])  # pyright: ignore[reportArgumentType]
        finally:
            for worker in self._workers.values():
                worker.connection.close()  # a worker that finds it closed ends after its test
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
            _run_worker(self._session, self._base / f"worker{self._started}", theirs)
        theirs.close()
        self._workers[ours] = worker = _Worker(pid, ours)
        self._assign(worker)

    def _assign(self, worker: _Worker) -> None:
        size = -(-len(self._left) // (self._count * _PIECES))
        piece = [self._left.popleft() for _ in range(size)]
        worker.assigned.extend(piece)
        with suppress(ConnectionError):  # it has just ended, which the next `wait` finds
            worker.connection.send(piece)

    def _receive(self, worker: _Worker) -> None:
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):  # OSError: it ended in the middle of a message
            self._replace(worker)
            return
        if message is None:
            self._assign(worker)
            return
        item = self._session.items[worker.assigned.popleft()]
        hook = self._session.config.hook
        self._report(
            item, [hook.pytest_report_from_serializable(config=item.config, data=each) for each in message]
        )

    def _replace(self, worker: _Worker) -> None:
        """Take note that a worker has ended; if it had tests left, the first of them ended it, and another worker starts."""
        del self._workers[worker.connection]
        status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if worker.assigned:
            item = self._session.items[worker.assigned.popleft()]
            how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            why = f"this test ended the process that ran it: {how}"
            self._report(item, [pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")])
            self._left.extendleft(reversed(worker.assigned))
            self._start()

    def _report(self, item: pytest.Item, reports: Iterable[pytest.TestReport]) -> None:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            if isinstance(report, pytest.SubtestReport) and report.failed:
                item.config.stash[failed_subtests_key][item.nodeid] += 1  # by this the whole test has failed
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)


# ---- in a worker


class _Reports:
    """Sends the reports of each test, and of its subtests, to the process that collected it."""

    def __init__(self, config: pytest.Config, send: Callable[[Any], None]) -> None:
        self._config, self._send = config, send
        self._reports = list[Any]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        self._reports = []
        runtestprotocol(item, nextitem=nextitem)
        self._send(self._reports)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        serialize = self._config.hook.pytest_report_to_serializable
        self._reports.append(serialize(config=self._config, report=report))


def _run_worker(session: pytest.Session, base: Any, connection: Connection) -> NoReturn:
    """Run the tests that are assigned until there are no more, then end as a process does that forked itself.

    Nothing that is raised leaves this function: the caller is the session of the process that collected.
    """
    code = 1
    try:
        atexit._clear()  # what was to happen at the end of the process that collected
        os.register_at_fork(
            after_in_child=connection.close
        )  # else a process of a test hides the end of this one
        _isolate(session.config, base, connection)
        forked.fork_own()
        try:
            _run_assigned(session, connection)
        finally:
            session._setupstate.teardown_exact(None)
        code = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the session is to stop
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _isolate(config: pytest.Config, base: Any, connection: Connection) -> None:
    """Give this process files of its own for what is captured, and a directory, and let it report to `connection` alone.

    The former files stay open: a module that was imported may have kept `sys.stderr` of that time.
    """
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture._former, capture._global_capturing = capture._global_capturing, None
    capture.start_global_capturing()
    capture.suspend_global_capture()
    base.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = base  # pyright: ignore[reportAttributeAccessIssue]
    logreport: Any = config.hook.pytest_runtest_logreport
    for each in logreport.get_hookimpls():
        logreport._remove_plugin(each.plugin)
    config.pluginmanager.register(_Reports(config, connection.send))


def _run_assigned(session: pytest.Session, connection: Connection) -> None:
    assigned = deque[int](connection.recv())
    while assigned:
        if len(assigned) == 1:  # the last: what comes next decides which fixtures it leaves
            connection.send(None)
            assigned.extend(connection.recv())
        item = session.items[assigned.popleft()]
        item.config.hook.pytest_runtest_protocol(
            item=item, nextitem=session.items[assigned[0]] if assigned else None
        )

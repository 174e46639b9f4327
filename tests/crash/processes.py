"""Other processes: started quickly from a server that has everything imported, talked to, and killed.

A job is a function of a module that the server imports, called with its end of a pipe first.
What it sends is pickled, so a job can send facts, receipts and errors as they are.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

__all__ = ["Other", "Pipe", "context", "exit_code_of", "running"]

ANSWER_SECONDS = 120.0  # far beyond what any job takes; it only turns a hang into a failure

Pipe = Connection

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    [
        "pytest",
        "perdure.store.open_store",
        "perdure.engines.sqlite",
        "tests.crash.preloaded",
        "tests.crash.jobs",
    ]
)


class Other:
    """A process that does a job."""

    def __init__(self, job: Callable[..., object], *args: Any) -> None:
        """Start it; `args` follow its end of the pipe."""
        self._pipe, theirs = context.Pipe()
        self.process: ForkServerProcess = context.Process(target=job, args=(theirs, *args), daemon=True)
        self.process.start()
        theirs.close()

    def tell(self, message: object) -> None:
        """Send it something."""
        self._pipe.send(message)

    def answer(self) -> Any:
        """The next thing that it sends; raises `EOFError` if it ended before."""
        assert self._pipe.poll(ANSWER_SECONDS), "the other process does not answer"
        return self._pipe.recv()

    def is_heard(self) -> bool:
        """Whether it has sent something, or ended."""
        return self._pipe.poll(0)

    def rest(self) -> list[Any]:
        """Everything that it still sends until it ends."""
        answers: list[Any] = []
        try:
            while True:
                answers.append(self.answer())
        except (EOFError, ConnectionResetError):
            return answers

    def kill(self) -> list[Any]:
        """Kill it with SIGKILL; what it had still sent before."""
        self.process.kill()
        answers = self.rest()
        self.process.join()
        return answers

    def end(self) -> None:
        """Make sure that it is over."""
        self.process.kill()
        self.process.join()
        self._pipe.close()


@contextmanager
def running(job: Callable[..., object], *args: Any) -> Generator[Other]:
    """A process that does a job, ended with the block."""
    other = Other(job, *args)
    try:
        yield other
    finally:
        other.end()


def exit_code_of(work: Callable[..., object], *args: Any) -> int | None:
    """Do some work in a process of its own, to its end; None if it does not end."""
    process = context.Process(target=work, args=args)
    process.start()
    process.join(ANSWER_SECONDS)
    code = process.exitcode
    process.kill()
    process.join()
    return code

"""Workers are killed, stopped and doubled at random while runs are queued, scheduled, suspended, approved and delegated.

Each run comes to its end once, nothing is stuck, and no effect happens twice: a file that the tools append to counts.
`PERDURE_DEEP=1` asks for 500 runs.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import perdure
from perdure import Store
from perdure.errors import PerdureError
from perdure.model.run import ENDED, RunRecord
from tests.crash.campaign import SEED, sized
from tests.crash.working import AT_ONCE, LEASE_SECONDS, agents, lines_of, opened, requests_of
from tests.engines.postgres.stores import new_store
from tests.forked import ForkedProcess, commands

RUNS = sized(20, 500)
WORKERS = 3
KINDS = ("say", "pay", "pay_later", "pay_approved", "scheduled", "delegate")
PATIENCE_SECONDS = sized(240, 1_800)


class Crew:
    """Worker processes, of which some are killed, stopped or added now and then."""

    def __init__(self, url: str, file: Path, chance: random.Random, *, mode: str = "ledger") -> None:
        """Start the first workers."""
        self._url, self._file, self._chance, self._mode = url, file, chance, mode
        self._workers: list[ForkedProcess] = []
        self._stopped: dict[int, threading.Timer] = {}  # what wakes each, by process
        self.killed = self.halted = 0
        for _ in range(WORKERS):
            self.add()

    def add(self) -> None:
        """Start one more worker."""
        words = ["-m", "tests.crash.working", self._url, str(self._file), self._mode]
        self._workers.append(ForkedProcess(commands(), words))

    def disturb(self) -> None:
        """Kill, stop or add a worker."""
        self._stopped = {pid: timer for pid, timer in self._stopped.items() if timer.is_alive()}
        self._workers = [each for each in self._workers if each.poll() is None]
        while len(self._workers) < WORKERS:
            self.add()
        victim = self._chance.choice(self._workers)
        what = self._chance.random()
        if what < 0.4:
            # Noted before: once it is dead, another worker may have its place before this process writes a line.
            self._note_end(victim.pid)
            victim.kill()
            victim.wait()
            self._note_end(victim.pid)
            self.killed += 1
        elif what < 0.7 and victim.pid not in self._stopped:
            victim.send_signal(signal.SIGSTOP)
            # Some wake up while their leases are good, others after another worker has taken over.  A thread wakes them:
            # a worker may be stopped while it holds the lock of the file, and then this process cannot write either.
            seconds = self._chance.choice((0.3, 1.5)) * LEASE_SECONDS
            self._stopped[victim.pid] = threading.Timer(seconds, _wake, (victim.pid,))
            self._stopped[victim.pid].start()
            self.halted += 1
        elif len(self._workers) < 2 * WORKERS:
            self.add()

    def _note_end(self, pid: int) -> None:
        """Note that what a process has under way counts no longer."""
        with requests_of(self._file).open("a") as noted:
            noted.write(f"x{pid}:\n")

    def replace(self) -> None:
        """Wake all up, and see that there are workers."""
        for timer in self._stopped.values():
            timer.join()
        self._stopped.clear()
        self._workers = [each for each in self._workers if each.poll() is None]
        while len(self._workers) < WORKERS:
            self.add()

    def end(self) -> None:
        """End all of them."""
        self.replace()
        for each in self._workers:
            each.kill()
            each.wait()


def _wake(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def queue_runs(store: Store, file: Path, count: int) -> None:
    """Queue `count` runs of all kinds on a third as many threads, so that some wait for others."""
    (agent,) = agents(file)
    for number in range(count):
        thread = store.thread(f"t{number % max(1, count // 3)}", agent=agent)
        kind = KINDS[number % len(KINDS)]
        if kind == "scheduled":
            thread.schedule(f"pay {number}", number % 5 / 2, id=f"m{number}")
        else:
            thread.start(f"{kind} {number}", id=f"m{number}")


def approve_all(store: Store) -> None:
    """Decide what waits for a person."""
    for each in store.approvals():
        with suppress(PerdureError):
            store.thread(each.thread).decide(each.call, "approve", by="ann")


def every_run(store: Store) -> list[RunRecord]:
    """All runs of all threads, without child runs."""
    return [run for thread in store.threads() for run in thread.runs() if run.parent is None]


def until(done: Callable[[], bool], step: Callable[[], None], *, every: float) -> None:
    """Take steps until it is done."""
    ends_at = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < ends_at, f"seed {SEED}: something is stuck"
        step()
        time.sleep(every)


def most_at_once(file: Path) -> int:
    """How many payments were under way at the same time; those of a process that was killed are over."""
    under_way: dict[str, str] = {}
    most = 0
    for line in lines_of(requests_of(file)):
        pid, _, number = line[1:].partition(":")
        if line.startswith("+"):
            under_way[number] = pid
            most = max(most, len(under_way))
        elif line.startswith("-"):
            under_way.pop(number, None)
        else:
            under_way = {number: by for number, by in under_way.items() if by != pid}
    return most


def campaign(url: str, file: Path, count: int, *, mode: str = "ledger") -> Crew:
    """Let workers be disturbed while they do `count` runs, and then finish in peace."""
    chance = random.Random(SEED)
    with perdure.open(url) as store:
        queue_runs(store, file, count)
        crew = Crew(url, file, chance, mode=mode)
        try:
            disturbed = count // 8

            def disturb() -> None:
                approve_all(store)
                crew.disturb()

            def ended() -> int:
                return sum(run.state in ENDED for run in every_run(store))

            until(lambda: crew.killed + crew.halted >= disturbed or ended() >= count, disturb, every=0.7)
            crew.replace()
            until(lambda: ended() >= count, lambda: approve_all(store), every=0.5)
        finally:
            crew.end()
    return crew


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store that several processes can open."""
    return new_store(request) if request.param == "postgres" else str(tmp_path / "store.db")


@pytest.mark.timeout(PATIENCE_SECONDS * 2)
def test_each_run_comes_to_its_end_once(url: str, tmp_path: Path) -> None:
    """Whatever happens to the workers: each input is answered once, and no payment is made twice."""
    file = tmp_path / "effects"

    crew = campaign(url, file, RUNS)

    with perdure.open(url, read_only=True) as store:
        runs = every_run(store)
        assert Counter(run.state for run in runs) == {"succeeded": RUNS}, f"seed {SEED}"
        assert [run.id for run in runs if run.aside_at is not None] == []
        answers = Counter(
            entry.run
            for thread in store.threads(agent="payer")
            for entry in thread.transcript()
            if entry.message.role == "assistant" and entry.message.text
        )
        assert answers == {run.id: 1 for run in runs}, f"seed {SEED}"
        paid = Counter(lines_of(file))
        assert max(paid.values()) == 1, f"seed {SEED}: {paid.most_common(3)}"
        for thread in store.threads():
            for call in thread.calls():
                assert call.state in {"succeeded", "unknown", "needs_human"}, f"seed {SEED}"
                number = json.loads(thread.trace(call.id, history=False).arguments or "")["number"]
                if call.state == "succeeded" and call.tool != "delegate":
                    assert paid[str(number)] == 1, f"seed {SEED}: {number}"
        assert 1 < most_at_once(file) <= AT_ONCE, f"seed {SEED}"
        assert store.verify().ok
    assert crew.killed + crew.halted > 0


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_without_the_ledger_payments_are_made_twice(tmp_path: Path) -> None:
    """Control: tools that declare no effect are repeated after a kill, and the file counts them."""
    url, file = str(tmp_path / "store.db"), tmp_path / "effects"
    with perdure.open(url) as store:
        (agent,) = agents(file, bare=True)
        for number in range(6):
            store.thread(f"t{number}", agent=agent).start(f"pay {number}")
        crew = Crew(url, file, random.Random(SEED), mode="bare")
        try:
            for _ in range(60):
                before = len(lines_of(file))
                until(
                    lambda before=before: (
                        len(lines_of(file)) > before or all(run.state in ENDED for run in every_run(store))
                    ),
                    lambda: None,
                    every=0.001,
                )
                for each in crew._workers:  # pyright: ignore[reportPrivateUsage]
                    each.kill()
                    each.wait()
                crew.replace()
                if max(Counter(lines_of(file)).values()) > 1:
                    return
                for number in range(3):
                    store.thread(f"t{number}", agent=agent).start(
                        f"pay {1_000 + len(lines_of(file)) + number}"
                    )
        finally:
            crew.end()
    pytest.fail("no payment was repeated, so the campaign proves nothing")


@pytest.mark.timeout(PATIENCE_SECONDS)
def test_a_run_that_ends_its_worker_three_times_is_set_aside(tmp_path: Path) -> None:
    """It is shown as such, the runs beside it come to their end, and a release lets workers try again."""
    url, file = str(tmp_path / "store.db"), tmp_path / "effects"
    with opened(url) as store:
        (agent,) = agents(file)
        poison = store.thread("poison", agent=agent).start("die 1")
        store.thread("other", agent=agent).start("pay 2")
        crew = Crew(url, file, random.Random(SEED))
        try:

            def is_aside() -> bool:
                runs = {run.id: run for run in every_run(store)}
                others = all(run.state == "succeeded" for run in runs.values() if run.id != poison)
                return runs[poison].aside_at is not None and others

            until(is_aside, crew.replace, every=0.1)
            deaths = [line for line in lines_of(requests_of(file)) if line.startswith("died")]
            assert len(deaths) == 3
            assert store.thread("poison").release(poison)
            until(lambda: len(lines_of(requests_of(file))) > len(deaths) + 2, crew.replace, every=0.1)
        finally:
            crew.end()

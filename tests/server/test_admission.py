"""Short work of the server is done one piece at a time, and work that waits or lasts keeps no other from beginning."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from perdure.errors import Unavailable
from perdure.runtime.session.environment import WorkerPool
from perdure.server.admission import Admission
from tests.crash.forks import forked, succeeded

_SECONDS_MAX = 20.0  # after which a piece of work gives up waiting for another


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """A pool of eight threads."""
    found = WorkerPool(8, "test-admission")
    yield found
    found.shutdown(wait=False)


def stopped() -> float:
    """A clock on which no time passes, so that no work lasts and the process is never idle."""
    return 0.0


def most_at_once(admission: Admission, pieces: int) -> int:
    """Do some work of many pieces, handed over at once, and return how many of them were done at the same time."""
    running, most, lock = 0, 0, threading.Lock()
    paused = threading.Event()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        paused.wait(0.01)  # others could begin meanwhile
        with lock:
            running -= 1

    async def every() -> None:
        await asyncio.gather(*(admission.hand_over(work) for _ in range(pieces)))

    asyncio.run(every())
    return most


def meet(admission: Admission, parties: int) -> bool:
    """Let pieces of work wait for each other; False if they never were under way together."""
    barrier = threading.Barrier(parties, timeout=_SECONDS_MAX)

    async def every() -> None:
        await asyncio.gather(*(admission.hand_over(barrier.wait) for _ in range(parties)))

    try:
        asyncio.run(every())
    except threading.BrokenBarrierError:
        return False
    return True


def test_short_work_is_done_one_piece_at_a_time(pool: WorkerPool) -> None:
    """While the process computes and no piece lasts, each piece waits for the one before it."""
    assert most_at_once(Admission(pool, 8, clock=stopped, computed=stopped), 10) == 1


def test_pieces_are_seen_at_the_same_time_where_the_process_waits(pool: WorkerPool) -> None:
    """Control: the same pieces overlap if the processor is idle, so the test above can fail."""
    assert most_at_once(Admission(pool, 8, computed=stopped), 10) > 1


def test_work_that_waits_keeps_no_other_from_beginning(pool: WorkerPool) -> None:
    """Pieces that wait for each other all begin: the process has nothing to compute meanwhile."""
    assert meet(Admission(pool, 8, computed=stopped), 4)


def test_work_that_lasts_keeps_no_other_from_beginning(pool: WorkerPool) -> None:
    """Pieces that take long all begin, although the process never stops computing."""
    ticks = count()

    def clock() -> float:
        return next(ticks) * 0.02

    assert meet(Admission(pool, 8, clock=clock, computed=lambda: next(ticks) * 1_000.0), 4)


def test_no_more_threads_work_than_allowed(pool: WorkerPool) -> None:
    """However long the pieces wait, no more of them are under way than the limit says."""
    assert most_at_once(Admission(pool, 2, computed=stopped), 12) <= 2


def test_results_and_errors_reach_their_callers(pool: WorkerPool) -> None:
    """Each caller gets what its own piece returned or raised."""

    def work(number: int) -> Callable[[], int]:
        def done() -> int:
            if number % 3 == 0:
                raise LookupError(number)
            return number

        return done

    async def every() -> list[int | BaseException]:
        admission = Admission(pool, 4)
        given = [admission.hand_over(work(number)) for number in range(30)]
        return await asyncio.gather(*given, return_exceptions=True)

    found = asyncio.run(every())

    assert [each for each in found if isinstance(each, int)] == [n for n in range(30) if n % 3]
    assert [each.args[0] for each in found if isinstance(each, LookupError)] == list(range(0, 30, 3))


def test_another_loop_goes_on_where_one_was_closed(pool: WorkerPool) -> None:
    """An application that is used by one event loop after the other still begins work beside work that waits."""
    admission = Admission(pool, 8, computed=stopped)
    assert meet(admission, 3)
    assert meet(admission, 3)


def test_a_thread_that_ends_goes_on_with_what_waits(pool: WorkerPool) -> None:
    """All threads are at work; the one that ends first was begun first, and the event loop is busy meanwhile."""
    begun, go_on = [threading.Event() for _ in range(3)], [threading.Event() for _ in range(3)]
    admission = Admission(pool, 2, computed=stopped)

    def work(number: int) -> None:
        begun[number].set()
        assert go_on[number].wait(_SECONDS_MAX)

    async def every() -> bool:
        first, second = [admission.hand_over(partial(work, number)) for number in (0, 1)]
        while not all(each.is_set() for each in begun[:2]):
            await asyncio.sleep(0.001)
        third = admission.hand_over(partial(work, 2))
        go_on[0].set()
        is_begun = begun[2].wait(_SECONDS_MAX)
        for each in go_on:
            each.set()
        await asyncio.gather(first, second, third)
        return is_begun

    assert asyncio.run(every())


def test_the_event_loop_checks_less_often_while_all_threads_are_at_work(pool: WorkerPool) -> None:
    """With a thread left to begin it checks soon whether the process waits; without one there is nothing to begin."""

    def pause_seconds(threads_max: int) -> float:
        pauses: list[float] = []
        go_on = threading.Event()

        class Noting(asyncio.SelectorEventLoop):
            def call_later(self, delay: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
                pauses.append(delay)
                return super().call_later(delay, *args, **options)

        async def every() -> None:
            admission = Admission(pool, threads_max, clock=stopped, computed=stopped)
            done = [admission.hand_over(go_on.wait) for _ in range(2)]
            go_on.set()
            await asyncio.gather(*done)

        with asyncio.Runner(loop_factory=Noting) as runner:
            runner.run(every())
        return pauses[0]

    assert pause_seconds(1) > pause_seconds(2)


def test_a_forked_child_waits_for_no_thread_of_its_parent(pool: WorkerPool) -> None:
    """A piece of the parent is under way when it forks; the child does its own piece nevertheless."""
    admission, begun, go_on = Admission(pool, 1), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(_SECONDS_MAX)

    def live() -> None:
        async def ask() -> int:
            return await asyncio.wait_for(admission.hand_over(lambda: 7), _SECONDS_MAX)

        assert asyncio.run(ask()) == 7

    async def fork() -> int:
        done = admission.hand_over(work)
        assert begun.wait(_SECONDS_MAX)
        child = await asyncio.to_thread(forked, live)
        go_on.set()
        await done
        return child

    assert succeeded(asyncio.run(fork()))


def test_a_closed_pool_is_a_typed_error(pool: WorkerPool) -> None:
    """Work for a store that was closed is refused."""
    pool.shutdown()

    async def ask() -> None:
        await Admission(pool, 8).hand_over(stopped)

    with pytest.raises(Unavailable) as refused:
        asyncio.run(ask())
    assert refused.value.code == "store_closed"

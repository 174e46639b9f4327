"""Short work of the server is done one piece at a time, and work that waits or lasts keeps no other from beginning."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from perdure.errors import Unavailable
from perdure.runtime.session.environment import WorkerPool
from perdure.server.admission import Admission

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


def test_a_closed_pool_is_a_typed_error(pool: WorkerPool) -> None:
    """Work for a store that was closed is refused."""
    pool.shutdown()

    async def ask() -> None:
        await Admission(pool, 8).hand_over(stopped)

    with pytest.raises(Unavailable) as refused:
        asyncio.run(ask())
    assert refused.value.code == "store_closed"

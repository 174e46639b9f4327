"""The laws of waiting: a caller that waits for news of a space gets it, from whichever process it comes, and misses none."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from perdure.engines.contract import Engine
from perdure.errors import Unavailable
from perdure.testing.engines.builders import SPACE, write
from perdure.testing.engines.child import child
from perdure.testing.engines.laws.processes import forked
from perdure.testing.engines.subject import EngineSubject, raises

__all__ = ["NewsLaws"]

LONG = 30.0  # how long a wait may last that must end before
SOON = 10.0  # before which it must end, on a busy machine too


@contextmanager
def waiting(engine: Engine, seen: Mapping[str, int]) -> Generator[Future[Mapping[str, int]]]:
    """Wait in another thread, which has begun to wait when this is entered as far as can be known."""
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(engine.wait, seen, LONG)
        time.sleep(0.05)
        assert not waits.done()
        yield waits


def ended(waits: Future[Mapping[str, int]]) -> Mapping[str, int]:
    """Return what a wait returned, or raise what it raised; fail if it does not end."""
    try:
        return waits.result(SOON)
    except TimeoutError:
        pytest.fail("a wait did not end")


class NewsLaws(EngineSubject):
    """What `wait` promises."""

    def test_a_write_ends_the_wait_for_its_space(self, engine: Engine) -> None:
        """The one who waits learns of a standing that the space has reached."""
        engine.apply(write("first", b"{}"))
        before = engine.standing(SPACE)

        with waiting(engine, {SPACE: before}) as waits:
            engine.apply(write("second", b"{}"))
            news = ended(waits)

        assert dict(news) == {SPACE: engine.standing(SPACE)}
        assert news[SPACE] > before

    def test_a_write_before_the_wait_ends_it_at_once(self, engine: Engine) -> None:
        """What was written after the standing was read is news, though nobody waited then."""
        before = engine.standing(SPACE)
        engine.apply(write("op", b"{}"))
        began = time.monotonic()

        news = engine.wait({SPACE: before}, LONG)

        assert dict(news) == {SPACE: engine.standing(SPACE)}
        assert time.monotonic() - began < SOON

    def test_no_write_is_missed_wherever_it_falls(self, engine: Engine) -> None:
        """One waits and another writes, as fast as both can; each wait ends by a write and not by its time."""
        writes = 200

        def go_on() -> None:
            for number in range(writes):
                engine.apply(write(f"op {number}", b"{}"))

        began, seen, writer = time.monotonic(), engine.standing(SPACE), Thread(target=go_on)
        writer.start()
        while engine.ledger(SPACE).position < writes:
            news = engine.wait({SPACE: seen}, LONG)
            assert news.get(SPACE, -1) > seen
            seen = news[SPACE]
        writer.join()

        assert time.monotonic() - began < LONG

    def test_a_wait_without_news_ends_after_its_time(self, engine: Engine) -> None:
        """Not before, and writes to another space are no news."""
        engine.apply(write("op", b"{}"))

        def write_elsewhere() -> None:
            for number in range(5):
                time.sleep(0.03)
                engine.apply(write(f"op {number}", b"{}", space="another"))

        writer = Thread(target=write_elsewhere)
        seen, began = engine.standing(SPACE), time.monotonic()
        writer.start()

        news = engine.wait({SPACE: seen}, 0.3)

        assert dict(news) == {}
        assert 0.29 <= time.monotonic() - began < SOON
        writer.join()

    def test_of_several_spaces_those_with_news_are_named(self, engine: Engine) -> None:
        """And no other; a space that was never written has none."""
        engine.apply(write("op", b"{}"))
        seen = {SPACE: engine.standing(SPACE), "another": 0, "never": 0}

        with waiting(engine, seen) as waits:
            engine.apply(write("op", b"{}", space="another"))

            assert dict(ended(waits)) == {"another": engine.standing("another")}

    @pytest.mark.parametrize("writes", [0, 3])
    def test_a_standing_that_nobody_saw_is_given_at_once(self, engine: Engine, writes: int) -> None:
        """So that one who begins to follow a space need not ask for it in another way."""
        for number in range(writes):
            engine.apply(write(f"op {number}", b"{}"))
        began = time.monotonic()

        assert dict(engine.wait({SPACE: -1}, LONG)) == {SPACE: engine.standing(SPACE)}
        assert time.monotonic() - began < SOON

    def test_a_wait_of_no_time_looks_once(self, engine: Engine) -> None:
        """It returns what is news by now."""
        assert dict(engine.wait({SPACE: 0, "another": 0}, 0)) == {}
        engine.apply(write("op", b"{}"))

        assert dict(engine.wait({SPACE: 0, "another": 0}, 0)) == {SPACE: engine.standing(SPACE)}

    def test_all_who_wait_are_woken(self, engine: Engine) -> None:
        """Each for its own space, and several for one."""
        names = ["a", "b", "c"] * 5
        with ThreadPoolExecutor(len(names)) as pool:
            waits = [pool.submit(engine.wait, {name: 0}, LONG) for name in names]
            for name in "abc":
                engine.apply(write("op", b"{}", space=name))

            assert [dict(ended(wait)) for wait in waits] == [{name: engine.standing(name)} for name in names]

    def test_a_caller_can_end_its_own_wait(self, engine: Engine) -> None:
        """By its event, before the wait or in it; then there is no news."""
        woken = Event()
        woken.set()
        assert dict(engine.wait({SPACE: 0}, LONG, woken=woken)) == {}
        woken.clear()

        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(lambda: engine.wait({SPACE: 0}, LONG, woken=woken))
            time.sleep(0.05)
            woken.set()

            assert dict(ended(waits)) == {}

    def test_closing_ends_every_wait(self, engine: Engine) -> None:
        """Whoever waits learns that the store was closed, and does not wait for ever."""
        with waiting(engine, {SPACE: 0}) as one, waiting(engine, {SPACE: 0, "another": 0}) as other:
            engine.close()

            for waits in (one, other):
                with raises(Unavailable, code="store_closed"):
                    ended(waits)

    def test_a_write_of_another_opening_ends_a_wait_if_it_is_shared(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """One process may have a store open twice; what is not shared is no news."""
        with closing(self.open(tmp_path)) as other, ThreadPoolExecutor(1) as pool:
            seconds = SOON if self.shared_between_processes else 0.2
            waits = pool.submit(engine.wait, {SPACE: 0}, seconds)
            time.sleep(0.05)
            other.apply(write("op", b"{}"))

            assert bool(waits.result(LONG)) is self.shared_between_processes

    def test_a_write_of_another_process_ends_a_wait_if_it_is_shared(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """Nobody has to be told by that process."""
        with child(type(self), tmp_path, "apply_received") as other, ThreadPoolExecutor(1) as pool:
            other.answer()
            for number in range(3):
                seen = engine.standing(SPACE)
                waits = pool.submit(
                    engine.wait, {SPACE: seen}, SOON if self.shared_between_processes else 0.2
                )
                time.sleep(0.05)
                other.tell(write(f"op {number}", b"{}"))

                assert bool(waits.result(LONG)) is self.shared_between_processes
                other.answer()

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_waits_for_itself(self, engine: Engine) -> None:
        """Neither process is in the way of the other: both get the news of their own writes after the fork."""

        def write_and_wait(op_id: str) -> int:
            seen = engine.standing(SPACE)
            writer = Thread(target=lambda: (time.sleep(0.1), engine.apply(write(op_id, b"{}"))))
            writer.start()
            found = bool(engine.wait({SPACE: seen}, SOON))
            writer.join()
            return 7 if found else 8

        with waiting(engine, {SPACE: 0}) as waits:
            assert forked(lambda: write_and_wait("in the child")) == 7

            assert write_and_wait("in the parent") == 7
            assert SPACE in ended(waits)

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_what_a_forked_child_closes_ends_no_wait_of_its_parent(self, engine: Engine) -> None:
        """The child has no part in those waits."""
        with waiting(engine, {SPACE: 0}) as waits:
            assert forked(lambda: engine.close() or 7) == 7
            assert not waits.done()
            engine.apply(write("op", b"{}"))

            assert dict(ended(waits)) == {SPACE: engine.standing(SPACE)}

"""Clocks are turned back, stand still, or begin anew with another boot.

Clocks decide only when others may take over; who may write is decided by the store.  So whatever a
clock says, nothing is sent twice, and no two processes finish one run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Outcome
from perdure.engines.contract import Instant
from perdure.engines.memory import MemoryStore
from perdure.errors import Busy
from perdure.runtime.session.lease import Lost
from perdure.runtime.session.lease_keeper import TTL_SECONDS
from perdure.testing import Script, say, use
from tests.ledger.holders import SECOND, Clocked
from tests.runtime.runs.opened import store_on
from tests.runtime.runs.world import World

HOUR = 3_600
WAIT_SECONDS = 60.0  # only turns a hang into a failure


class Scene:
    """Two openings of one store, each with clocks of its own; on the first a run is in the middle of a letter."""

    def __init__(self, path: Path) -> None:
        kept = MemoryStore()
        self.world = World(path / "world")
        self.engines = Clocked(kept), Clocked(kept)
        self.wall = [time.time_ns() // 1_000] * 2  # µs since 1970, as each of them has it
        self.is_dead = False
        self.again = threading.Event()  # the second is in the middle of the same letter
        self.came: list[str] = []
        self._inside, self._go_on = threading.Event(), threading.Event()
        self.stores = [
            store_on(self.engines[each], clock=lambda each=each: self.wall[each]) for each in (0, 1)
        ]
        self.first, self.second = (store.thread("letters", agent=self._agent()) for store in self.stores)
        self._worker = threading.Thread(target=self._run)
        self._worker.start()
        assert self._inside.wait(WAIT_SECONDS)

    def wake(self) -> str:
        """Let the first go on; what its run came to."""
        self._go_on.set()
        self._worker.join(WAIT_SECONDS)
        return self.came[0]

    def die(self) -> None:
        """Let the process of the first end: its opening is over, and nothing more happens there."""
        self.is_dead = True
        self.engines[0].close()

    def take_over(self) -> str:
        """What the second's run comes to, or that it may not run."""
        if self.is_dead:
            self._go_on.set()
        try:
            return self.second.resume().status
        except Busy:
            return "busy"

    def finishes(self) -> int:
        """How often the run was finished."""
        return [entry.reason for entry in self.second.log()].count("run_finished")

    def _agent(self) -> Agent:
        @perdure.tool(effect="communication")
        def mail(to: str, *, call: Call) -> str:
            mine = not self._inside.is_set()
            (self._inside if mine else self.again).set()
            assert self._go_on.wait(WAIT_SECONDS)
            if not (mine and self.is_dead):
                self.world.do(to, call.key, call.attempt)
            return f"mailed {to}"

        @mail.reconcile
        def found(call: Call) -> Outcome:
            return call.done("found") if self.world.knows(call.key) else call.not_done()

        return Agent("postman", backend=Script(use("mail", to="ann"), say("Done.")), tools=[mail])

    def _run(self) -> None:
        try:
            self.came.append(self.first.run("Write").status)
        except Exception as error:
            self.came.append(type(error).__name__)


@pytest.fixture
def scene(tmp_path: Path) -> Generator[Scene]:
    """A run in the middle of a letter; ended in any case."""
    scene = Scene(tmp_path)
    yield scene
    scene.wake()


def turned_back(scene: Scene) -> None:
    """An hour back."""
    scene.engines[1].pass_(-HOUR)


def frozen(scene: Scene) -> None:
    """It stands where it stood."""


def turned_ahead(scene: Scene) -> None:
    """An hour ahead."""
    scene.engines[1].pass_(HOUR)


def other_boot(scene: Scene) -> None:
    """It has begun anew."""
    scene.engines[1].now = Instant("boot:2", 5 * SECOND)


def over(scene: Scene) -> None:
    """Just the time of a lease."""
    scene.engines[1].pass_(TTL_SECONDS)


@pytest.mark.parametrize("clock", [turned_back, frozen])
def test_while_a_clock_says_that_the_lease_lasts_others_wait(
    scene: Scene, clock: Callable[[Scene], None]
) -> None:
    """A clock that was turned back, or stands still, makes others wait; the run itself is not troubled."""
    clock(scene)

    assert scene.take_over() == "busy"

    assert scene.wake() == "succeeded"
    assert (scene.world.counted(), scene.finishes()) == ({"ann": 1}, 1)


@pytest.mark.parametrize("clock", [turned_ahead, other_boot, over])
def test_when_a_clock_says_that_it_is_over_others_take_over_and_nothing_is_sent_twice(
    scene: Scene, clock: Callable[[Scene], None]
) -> None:
    """Rightly or wrongly: the first is refused when it goes on, and its letter is recorded late."""
    clock(scene)

    assert scene.take_over() == "succeeded"

    assert scene.wake() == Lost.__name__
    (call,) = scene.second.calls()
    assert (call.state, call.late) == ("succeeded", True)
    assert (scene.world.counted(), scene.finishes()) == ({"ann": 1}, 1)
    assert scene.stores[1].verify().ok


@pytest.mark.parametrize("clock", [turned_back, frozen, turned_ahead, other_boot, over])
def test_whoever_is_gone_needs_no_clock(scene: Scene, clock: Callable[[Scene], None]) -> None:
    """Proof that the process has ended counts at once, whatever the clock says."""
    clock(scene)

    scene.die()

    assert scene.take_over() == "succeeded"
    assert (scene.world.counted(), scene.finishes()) == ({"ann": 1}, 1)


@pytest.mark.parametrize("hours", [-1, 1, 24 * 365])
def test_the_wall_clock_says_nothing_about_leases(scene: Scene, hours: int) -> None:
    """Turned back or ahead on either side, it neither ends a lease nor keeps one from ending."""
    for each in (0, 1):
        scene.wall[each] += hours * HOUR * SECOND

        assert scene.take_over() == "busy"

    over(scene)
    assert scene.take_over() == "succeeded"
    assert scene.wake() == Lost.__name__
    assert (scene.world.counted(), scene.finishes()) == ({"ann": 1}, 1)


def test_a_holder_whose_clock_was_turned_back_does_not_hold_for_longer(scene: Scene) -> None:
    """Its lease ends for others when it was to end."""
    scene.engines[0].pass_(-HOUR)
    over(scene)

    assert scene.take_over() == "succeeded"

    assert scene.wake() == Lost.__name__
    assert (scene.world.counted(), scene.finishes()) == ({"ann": 1}, 1)


def test_who_takes_the_end_of_a_lease_for_the_end_of_its_process_sends_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: safety that depends on a clock."""

    def gone(self: Clocked, holder: str) -> bool:
        return self is scene.engines[1]

    monkeypatch.setattr(Clocked, "gone", gone)
    other_boot(scene)
    waker = threading.Thread(target=lambda: scene.again.wait(WAIT_SECONDS) and scene.wake())
    waker.start()

    scene.take_over()
    waker.join()

    assert scene.world.repeated() == ["ann"]

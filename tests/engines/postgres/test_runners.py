"""A runner on a server that is killed, stopped, or cut off while its tool pays: who takes over when, and what is paid."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure import Call, Outcome, Store
from perdure.errors import Busy
from perdure.store.thread import Thread
from tests.crash.processes import Other, Pipe, running
from tests.engines.postgres.cable import cable_to
from tests.engines.postgres.server import MISSING
from tests.engines.postgres.stores import new_url
from tests.runtime.runs.opened import store_in
from tests.runtime.runs.stopping import THREAD, Place, await_stop, pay_and_stop, payer, take_over, wake
from tests.runtime.runs.world import World

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("postgres")]

LEASE_SECONDS = 2.0
LONG_LEASE_SECONDS = 600.0
WAIT_SECONDS = 60.0


def pay_elsewhere(pipe: Pipe, *told: Any) -> None:
    """Pay and stop in a process that takes itself for one of another host."""
    from perdure.engines import holders

    setattr(holders, "_boot", lambda: "0" * 16)  # noqa: B010  # the name of this host's last start
    pay_and_stop(pipe, *told)


def pay_and_wait(pipe: Pipe, url: str, world: str, lease: float) -> None:
    """Pay; before the first byte is sent, wait for a word from outside."""

    def wait(at: str) -> None:
        if at == "first byte":
            pipe.send("waits")
            pipe.recv()

    agent = payer(World(world), at=wait, hook=lambda call: call.dont_know())
    with store_in(url, lease=lease) as store:
        try:
            came = store.thread(THREAD, agent=agent).run("Pay", id="bill").status
        except Exception as error:
            came = type(error).__name__
    pipe.send(came)


class Scene:
    """A store on the server, the world beside it, and a second process."""

    def __init__(self, directory: Path) -> None:
        self.url, self.world = new_url(), World(directory / "world")

    @contextmanager
    def first(self, job: Callable[..., None], place: Place, lease: float) -> Generator[Other]:
        """A process that has stopped at that place of its payment."""
        with running(job, self.url, self.world.path, place, lease, 1) as other:
            await_stop(other)
            yield other

    @contextmanager
    def second(self, says: str = "dont_know") -> Generator[tuple[Store, Thread]]:
        """The thread as another process has it, whose hook says this."""

        def hook(call: Call) -> Outcome:
            return call.not_done() if says == "not_done" else call.dont_know()

        with store_in(self.url) as store:
            yield store, store.thread(THREAD, agent=payer(self.world, hook=hook))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """A new store."""
    return Scene(tmp_path)


def test_a_runner_that_is_killed_on_this_host_is_taken_over_at_once(scene: Scene) -> None:
    """The kernel says that it has ended, however long its lease would last; whether it paid is unknown, so a person decides."""
    with scene.first(pay_and_stop, "sent", LONG_LEASE_SECONDS) as other:
        with scene.second() as (_, thread), pytest.raises(Busy):
            thread.resume()  # the control: it is only stopped
        other.kill()
        with scene.second() as (store, thread):
            thread.resume()

            assert [call.state for call in thread.calls()] == ["needs_human"]
            assert store.verify().ok
    assert scene.world.counted() == {"0": 1}


def test_a_runner_that_is_killed_on_another_host_is_taken_over_when_its_lease_ends(scene: Scene) -> None:
    """Nothing here can prove that it has ended.  Its open payment is unknown, so a person decides."""
    with scene.first(pay_elsewhere, "sent", LEASE_SECONDS) as other:
        other.kill()
        with scene.second() as (store, thread):
            with pytest.raises(Busy):
                thread.resume()
            take_over(thread)

            assert [call.state for call in thread.calls()] == ["needs_human"]
            assert store.verify().ok
    assert scene.world.counted() == {"0": 1}


@pytest.mark.parametrize("place", ["after_started", "first byte", "while_recording"])
def test_a_runner_that_is_stopped_is_not_gone_and_writes_nothing_late(scene: Scene, place: Place) -> None:
    """Another takes over when its lease has ended; when it wakes up its writes are refused, and nothing is paid twice."""
    with (
        scene.first(pay_and_stop, place, LEASE_SECONDS) as other,
        scene.second("not_done") as (store, thread),
    ):
        take_over(thread)
        before = thread.head

        wake(other)

        assert other.answer() == "Lost"
        assert thread.head == before
        assert store.verify().ok
    assert scene.world.repeated() == []


def cut_off(scene: Scene, *, gone: bool | None = None, monkeypatch: pytest.MonkeyPatch) -> str:
    """Cut a runner off while its tool is under way, take over, mend the cable; return how the first run ended.

    `gone` is what the second process is told about the first; None: what is true.
    """
    with (
        cable_to(scene.url) as (cable, url),
        running(pay_and_wait, url, scene.world.path, LEASE_SECONDS) as other,
    ):
        assert other.answer() == "waits"
        cable.cut()
        with scene.second("not_done") as (store, thread):
            if gone is not None:
                monkeypatch.setattr(store._resources.engine, "gone", lambda holder: gone)
            take_over(thread)
            other.tell("go on")
            time.sleep(0.5)
            cable.mend()
            came = str(other.answer())
            assert store.verify().ok
    return came


def test_a_runner_that_is_cut_off_is_refused_when_the_cable_is_mended(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may live, so what its hook found undone is not done again; its late writes are refused."""
    assert cut_off(scene, monkeypatch=monkeypatch) == "Lost"
    assert scene.world.counted() == {"0": 1}


def test_taking_a_lost_session_for_an_ended_process_pays_twice(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above."""
    cut_off(scene, gone=True, monkeypatch=monkeypatch)

    assert scene.world.counted() == {"0": 2}

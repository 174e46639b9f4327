"""A process that copies a store is killed with SIGKILL, before and after each kind of write that it makes.

The same copy again goes on: the target equals the source, and nothing in it is doubled or missing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.engines import loops, replays
from perdure.engines.contract import Engine, Replay, Write
from perdure.engines.registry import open_engine
from perdure.errors import Conflict, PerdureError
from perdure.ledger import held
from perdure.store.copy import CopyReport, copy
from perdure.store.plumbing.handles import system_clock
from tests.coded import raises
from tests.crash import day
from tests.crash.campaign import sized
from tests.engines.postgres.stores import new_store
from tests.store.copies import content
from tests.surfaces import paying

WRITES = 60  # about as many as the copy of the source makes
STEP = sized(36, 1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every kind of durable work, a run that was killed in a call, and one that waits."""
    path = tmp_path_factory.mktemp("source") / "a.db"
    paying.cut_off(path)
    with perdure.open(path) as store:
        for _, step in day.day(turns=4):
            step(store)
        store.thread("house", agent=paying.payer).run("Pay the roofer.", id="m1")
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store that is not there yet."""
    return new_store(request) if request.param == "postgres" else str(tmp_path / "b.db")


def opened(store: str | Path) -> Engine:
    """The engine of a store, made if need be."""
    return open_engine(str(store), read_only=False, create=True, durability="process_crash")


def copied(source: Path, target: str, *spoils: Callable[[Engine], None]) -> CopyReport:
    """Copy, with a target that each of `spoils` has changed."""
    one, other = (
        open_engine(str(source), read_only=True, create=False, durability="power_loss"),
        opened(target),
    )
    try:
        for spoil in spoils:
            spoil(other)
        return copy(one, other, address=str(source), clock=system_clock)
    finally:
        one.close()
        other.close()


def kill_at(write: int, after: bool, engine: Engine) -> None:
    """Let the process die at its n-th write to the target, before or after it is durable."""
    numbers = count(1)

    def watched(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            number = next(numbers)
            if number == write and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            done = method(*args, **options)
            if number == write:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    for name in ("apply", "reseal", "drop"):
        setattr(engine, name, watched(getattr(engine, name)))


def die(source: Path, target: str, *spoils: Callable[[Engine], None]) -> bool:
    """Copy in another process; True if it was killed, False if it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            copied(source, target, *spoils)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def forgetful(engine: Engine) -> None:
    """Replay every write under an op_id of its own, as a copy would that does not know what is there already."""
    real, numbers = engine.apply, count()

    def apply(write: Write) -> object:
        if not isinstance(write, Replay):
            return real(write)
        receipt = real(msgspec.structs.replace(write, op_id=f"{os.getpid()} {next(numbers)}"))
        return msgspec.structs.replace(receipt, op_id=write.op_id)

    engine.apply = apply  # pyright: ignore[reportAttributeAccessIssue]


def whole(source: Path, target: str) -> list[str]:
    """What is not as it should be in a finished copy: leases and calls under way are not carried as they are."""
    one, other = opened(source), opened(target)
    try:
        wrong: list[str] = []
        names = [name for name in loops.spaces(one) if name != held.COPIES]
        if names != [name for name in loops.spaces(other) if name != held.COPIES]:
            wrong.append("spaces")
        for name in names:
            ours, theirs = content(one, name), content(other, name)
            parts = ("holds", "moves", "commits", "objects")
            wrong += [f"{part} of {name}" for part in parts if ours[part] != theirs[part]]
            for part in ("entries", "ops"):
                before, now = list(ours[part]), list(theirs[part])  # pyright: ignore[reportArgumentType]
                if now[: len(before)] != before or len(now) > len(before) + 2:
                    wrong.append(f"{part} of {name}")
        return wrong
    finally:
        one.close()
        other.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("write", range(1, WRITES, STEP))
def test_a_killed_copy_goes_on(target: str, source: Path, write: int, after: bool) -> None:
    """Wherever it was killed; the second call finds what is there, and the third has nothing to do."""
    killed = die(source, target, partial(kill_at, write, after))

    report = copied(source, target)

    assert killed
    assert whole(source, target) == []
    assert (report.unknown, report.leases) == (1, 1)
    again = copied(source, target)
    assert (again.resumed, again.writes, again.unknown) == (True, 0, 1)
    with perdure.open(target) as store:
        assert store.held() == ["bread", "house", "invoice-7", "trip-42"]
        assert [call.state for call in store.thread("bread").calls()] == ["unknown"]
        assert store.verify().ok


def test_a_copy_that_is_killed_again_and_again_ends(
    target: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each life gets a page or two further, and begins where the last one has noted it."""
    monkeypatch.setattr(replays, "_PAGE", 8)
    lives = 0
    while die(source, target, partial(kill_at, 12, lives % 2 == 0)):
        lives += 1
        assert lives < WRITES

    assert lives > 3
    assert whole(source, target) == []


def test_control_a_copy_that_forgets_its_op_ids_doubles_or_stops(tmp_path: Path, source: Path) -> None:
    """Without the op_ids of the source a copy that goes on meets its own writes as those of others."""
    wrong = 0
    for write in range(20, 40, 5):
        target = str(tmp_path / f"{write}.db")
        assert die(source, target, forgetful, partial(kill_at, write, True))
        try:
            copied(source, target, forgetful)
        except PerdureError:
            wrong += 1
        else:
            wrong += bool(whole(source, target))

    assert wrong == 4


def test_control_without_the_record_of_the_copy_nothing_goes_on(
    target: str, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the target is gone on with only because the copy has recorded that it began."""
    assert die(source, target, partial(kill_at, 25, True))
    engine = opened(target)
    (arrival,) = held.arrivals(engine)
    cell = engine.cell(held.COPIES, held.COPY + arrival.id)
    assert cell is not None
    monkeypatch.setattr(engine, "cell", lambda space, name: None if name == held.COPY + arrival.id else cell)
    one = opened(source)

    with raises(Conflict, "target_not_empty"):
        copy(one, engine, address=str(source), clock=system_clock)

    one.close()
    engine.close()

"""The disk is full, the directory is read-only, the file is read-only.

The error names the cause, what was acknowledged stays, and when it is over the store works
again without help.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.engines.contract import Engine
from perdure.errors import InDoubt, PerdureError, Unavailable
from perdure.testing.disk import Disk
from perdure.testing.disk.faults import DiskCall
from perdure.testing.engines.builders import SPACE, value, write
from tests.coded import raises
from tests.crash import adversity
from tests.crash.campaign import SEED
from tests.crash.on_disk import engine_on
from tests.crash.powers import can_be_stopped
from tests.crash.processes import running


def met(job: Callable[..., None], directory: Path, *arguments: str) -> dict[str, str]:
    """What a process of its own met; skips where it cannot be brought about."""
    if not can_be_stopped():
        pytest.skip("permission bits do not stop this user, and it cannot lay down its powers")
    with running(job, str(directory), *arguments) as other:
        answers = other.answer()
    if answers == adversity.CANNOT:
        pytest.skip("a file system of its own needs the right to mount one")
    return answers


def test_a_read_only_file_is_named_and_works_again(tmp_path: Path) -> None:
    """Writing is refused before anything is touched, reading goes on."""
    answers = met(adversity.read_only_file, tmp_path)

    assert answers.pop("write").startswith("Unavailable: ")
    assert answers == {"read": "done", "again": "done", "kept": "done"}


def test_the_error_of_a_read_only_file_says_so(tmp_path: Path) -> None:
    """It names the file and the cause."""
    said = met(adversity.read_only_file, tmp_path)["write"]

    assert "read-only" in said
    assert str(tmp_path / "store.db") in said


def test_a_read_only_directory_is_named_and_works_again(tmp_path: Path) -> None:
    """Whether the store is new, or exists, or even its lock file cannot be written."""
    answers = met(adversity.read_only_directory, tmp_path)

    for what in ("write", "new", "lock"):
        assert answers[what].startswith("Unavailable: ")
        assert "read-only" in answers[what]
    assert (answers["again"], answers["kept"]) == ("done", "done")


def test_a_full_disk_is_named_and_works_again(tmp_path: Path) -> None:
    """On a real file system: the error says full, reading goes on, and with room writing does as well."""
    answers = met(adversity.full_disk, tmp_path)

    assert "full" in answers["write"]
    assert answers["write"].startswith(("Unavailable", "InDoubt"))
    assert int(answers["acknowledged"]) > 2
    assert (answers["read"], answers["again"], answers["kept"]) == ("done", "done", "done")
    assert answers["faults"] == "[]"


@pytest.mark.parametrize("left", ["nothing", "log", "log and memory"])
def test_a_read_only_mount_is_read_with_everything_that_was_acknowledged(tmp_path: Path, left: str) -> None:
    """Also what a killed process left in its log; writing is refused, and nothing is made there."""
    answers = met(adversity.read_only_mount, tmp_path, left)

    assert answers.pop("write").startswith("Unavailable: ")
    assert answers == {"read": "done", "verified": "done", "made": "[]"}


def test_a_read_only_mount_that_others_change_is_not_read_on(tmp_path: Path) -> None:
    """It is read without locks, so what is read after a change could be of two times."""
    answers = met(adversity.read_only_mount_of_a_live_store, tmp_path)

    assert answers.pop("during").startswith("Unavailable: ")
    assert answers == {"before": "done", "again": "done"}


def test_a_limit_of_file_size_is_met_without_harm(tmp_path: Path) -> None:
    """On a real file system, without rights: typed errors, reading goes on, and later writing does as well."""
    answers = met(adversity.limited_file_size, tmp_path)

    assert answers["write"].startswith(("Unavailable", "InDoubt"))
    assert int(answers["acknowledged"]) > 2
    assert (answers["read"], answers["again"], answers["kept"]) == ("done", "done", "done")
    assert answers["faults"] == "[]"


class TestSimulated:
    """The same on the simulated disk, which is there on every machine, at every size that is left."""

    @pytest.fixture
    def lock(self, tmp_path: Path) -> Path:
        """The lock file of the store."""
        return tmp_path / "lock"

    @pytest.mark.parametrize("free_bytes", [0, 100, 5_000, 30_000, 100_000])
    def test_a_full_disk_is_named_and_works_again(self, lock: Path, free_bytes: int) -> None:
        """Whatever still fits: acknowledged writes are there, refused ones are not, and all can be made again."""
        disk = Disk(seed=SEED)
        with engine_on(disk, lock) as engine:
            engine.apply(write("before", value("before")))
            disk.fill(free_bytes=free_bytes)
            told = {f"op {number}": applied(engine, number) for number in range(6)}
            disk.heal()

            assert "full" in told.values()
            there = {op_id for op_id in told if engine.recorded(SPACE, op_id)}
            assert there == {op_id for op_id, answer in told.items() if answer == "written"}
            assert [applied(engine, number) for number in range(6)] == ["written"] * 6

    @pytest.mark.parametrize(("times", "told"), [(1, Unavailable), (None, InDoubt)])
    def test_a_disk_that_fills_at_the_commit(
        self, lock: Path, times: int | None, told: type[PerdureError]
    ) -> None:
        """With room for the barrier the write was not made; without it is in doubt, and is made once when asked again."""
        disk = Disk(seed=SEED)
        with engine_on(disk, lock) as engine:
            engine.apply(write("before", value("before")))
            disk.fail(at=disk.calls, calls=frozenset({DiskCall.WRITE}), error=apsw.SQLITE_FULL, times=times)
            with pytest.raises(told) as error:
                engine.apply(write("op", value("small")))
            disk.heal()

            assert type(error.value) is told
            assert "full" in str(error.value)
            assert told is InDoubt or error.value.code == "disk_full"
            assert engine.recorded(SPACE, "op") is None
            assert engine.apply(write("op", value("small"))) == engine.apply(write("op", value("small")))

    def test_a_write_protected_disk_is_named_and_works_again(self, lock: Path) -> None:
        """Opening for writing says read-only; afterwards everything is there."""
        disk = Disk(seed=SEED)
        with engine_on(disk, lock) as engine:
            engine.apply(write("before", value("before")))
        disk.write_protect()

        with raises(Unavailable, "file_read_only"), engine_on(disk, lock) as engine:
            engine.apply(write("during", value("during")))
        disk.heal()

        with engine_on(disk, lock) as engine:
            assert engine.recorded(SPACE, "before") is not None
            assert engine.recorded(SPACE, "during") is None
            engine.apply(write("during", value("during")))


def applied(engine: Engine, number: int) -> str:
    """Return the outcome of a write of some size: written, refused because the disk is full, or something else."""
    try:
        engine.apply(write(f"op {number}", value(random.Random(number).randbytes(20_000))))
    except InDoubt as error:
        return f"in doubt: {error}"
    except PerdureError as error:
        return "full" if "full" in str(error) else repr(error)
    return "written"


def test_control_an_error_without_its_cause_would_be_found(tmp_path: Path) -> None:
    """A disk that fails without being full is not called full."""
    disk = Disk(seed=SEED)
    with engine_on(disk, tmp_path / "lock") as engine:
        disk.fail(at=disk.calls, times=None)

        answer = applied(engine, 1)
        disk.kill()

    assert answer.startswith("in doubt") or "full" not in answer

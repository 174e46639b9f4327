"""The laws of presence: a clock that only goes forward, and names that are gone when their process is, and not before."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engines.contract import Engine
from perdure.testing.engines.child import child
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import portrait

__all__ = ["PresenceLaws"]

NO_NAMES = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "../../store.db",
    "a/b",
    "a\0b",
    "*",
    "ä" * 32,
    "F" * 32,
    "x" * 9_999,
]


class PresenceLaws(Ground):
    """What `instant`, `holder` and `gone` promise."""

    def test_the_clock_never_goes_back(self, engine: Engine) -> None:
        """All instants are of one clock, and none is before the one read earlier."""
        read = [engine.instant() for _ in range(1_000)]

        assert len({instant.clock for instant in read}) == 1
        assert [instant.at for instant in read] == sorted(instant.at for instant in read)

    def test_the_clock_counts_microseconds(self, engine: Engine) -> None:
        """A wait of two hundredths of a second shows as such."""
        before = engine.instant()

        time.sleep(0.02)

        assert 20_000 <= engine.instant().at - before.at < 10_000_000

    def test_all_who_share_a_store_read_one_clock(self, engine: Engine, tmp_path: Path) -> None:
        """What one process dates another can read; of a store that is not shared nobody needs to."""
        before = engine.instant()
        with child(type(self), tmp_path, "hold_on") as other:
            theirs = other.answer().instant
        after = engine.instant()

        assert theirs is not None
        if self.shared_between_processes:
            assert before.clock == theirs.clock == after.clock
            assert before.at <= theirs.at <= after.at

    def test_a_holder_has_one_name(self, engine: Engine) -> None:
        """However often it is asked for, and it is text that fits into a cell."""
        names = {engine.holder() for _ in range(3)}

        assert len(names) == 1
        assert names.pop().isprintable()

    def test_every_opening_has_a_name_of_its_own(self, engine: Engine, tmp_path: Path) -> None:
        """Two in one process are told apart, and neither is gone while it is open."""
        with closing(self.open(tmp_path)) as other:
            assert other.holder() != engine.holder()
            assert not engine.gone(engine.holder())
            assert engine.gone(other.holder()) is not self.shared_between_processes

    def test_whoever_closed_is_gone(self, engine: Engine, tmp_path: Path) -> None:
        """The name is free at once, and never given again."""
        with closing(self.open(tmp_path)) as other:
            name = other.holder()

        assert engine.gone(name)
        assert engine.gone(name)  # asking leaves nothing behind
        with closing(self.open(tmp_path)) as again:
            assert again.holder() != name

    @pytest.mark.parametrize("name", NO_NAMES)
    def test_what_cannot_be_a_name_is_not_proven_gone(self, engine: Engine, name: str) -> None:
        """Names come from data: nothing in them is a path, and no damage to one is taken for an ending."""
        assert not engine.gone(name)

    def test_holding_and_asking_write_nothing(self, engine: Engine) -> None:
        """Whoever looks into the store sees no trace of either."""
        before = portrait(engine)

        engine.gone(engine.holder())
        engine.instant()

        assert portrait(engine) == before
        assert list(engine.spaces(limit=9)) == []

    def test_a_killed_holder_is_gone_at_once(self, engine: Engine, tmp_path: Path) -> None:
        """Nothing has to be waited for: its mark ended with it."""
        with child(type(self), tmp_path, "hold_on") as other:
            name = other.answer().holder
            assert engine.gone(name) is not self.shared_between_processes

            other.kill()

            assert engine.gone(name)

    def test_a_stopped_holder_is_not_gone(self, engine: Engine, tmp_path: Path) -> None:
        """It may wake up and go on, however long it is stopped."""
        with child(type(self), tmp_path, "hold_on") as other:
            name = other.answer().holder
            other.process.send_signal(signal.SIGSTOP)

            assert engine.gone(name) is not self.shared_between_processes

            other.process.send_signal(signal.SIGCONT)
            assert engine.gone(name) is not self.shared_between_processes

    def test_a_forked_child_does_not_keep_its_parent_alive(self, engine: Engine, tmp_path: Path) -> None:
        """It lives on under a name of its own when the parent is killed."""
        with child(type(self), tmp_path, "hold_and_fork") as other:
            parents, childs = other.answer().holder, other.answer().holder
            assert parents != childs

            other.process.kill()
            other.process.wait()

            assert engine.gone(parents)
            assert engine.gone(childs) is not self.shared_between_processes

    def test_a_forked_child_that_ends_takes_nothing_from_its_parent(
        self, engine: Engine, tmp_path: Path
    ) -> None:
        """Whatever a child does with what it inherited, the parent is still there."""
        with child(type(self), tmp_path, "hold_while_children_end") as other:
            answers = [other.answer().holder for _ in range(4)]

            assert answers == answers[:1] * 4
            assert engine.gone(answers[0]) is not self.shared_between_processes

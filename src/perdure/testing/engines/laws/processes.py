"""The laws of processes: two of them on one store are as safe as two threads, and one that is killed loses nothing."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure.engines.contract import Engine
from perdure.model.head import Head
from perdure.testing.engines.child import WRITERS, Answer, child, turn_of
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, START, Pen, made, moved, portrait, write

__all__ = ["ProcessLaws"]


class ProcessLaws(Ground):
    """What an engine promises across processes; one that is not shared promises to show nothing."""

    def test_of_two_processes_with_one_head_exactly_one_wins(self, tmp_path: Path) -> None:
        """The other is told both heads, and nothing of its write is there."""
        writes = [write(f"op-{name}", made(name), moved(START, made(name))) for name in ("one", "two")]

        with (
            child(type(self), tmp_path, "apply_told") as one,
            child(type(self), tmp_path, "apply_told") as two,
        ):
            for each in (one, two):
                each.answer()
            for each, told in zip((one, two), writes, strict=True):
                each.tell(told)
            answers = [one.answer(), two.answer()]

        won = [answer.receipt for answer in answers if answer.receipt]
        assert len(won) == (1 if self.shared_between_processes else 2)
        if self.shared_between_processes:
            lost = next(answer for answer in answers if not answer.receipt)
            assert (lost.expected, lost.actual) == (START, won[0].heads[0])
            with closing(self.open(tmp_path)) as engine:
                assert list(engine.commits(SPACE, "", limit=9)) == [won[0].heads[0].commit]

    def test_a_repeated_write_from_another_process_gives_the_first_receipt(self, tmp_path: Path) -> None:
        """A caller that does not know what became of its write can ask from anywhere, after others wrote too."""
        first = made("milk")
        told = write("op", first, moved(START, first), b"2")
        with closing(self.open(tmp_path)) as engine:
            engine.apply(write("before", b"1"))
            receipt = engine.apply(told)
            Pen(engine, head=receipt.heads[0], tip=first).commit("eggs")
            before = portrait(engine)

            with child(type(self), tmp_path, "apply_told") as other:
                other.answer()
                other.tell(told)
                answer = other.answer()

            assert (answer.receipt == receipt) is self.shared_between_processes
            assert portrait(engine) == before

    def test_another_process_sees_what_was_written(self, tmp_path: Path) -> None:
        """A write on the head that this process left is made; an engine that is not shared finds it stale."""
        with closing(self.open(tmp_path)) as engine:
            pen = Pen(engine)
            pen.commit("milk")
            second = made("eggs", pen.tip)

            with child(type(self), tmp_path, "apply_told") as other:
                other.answer()
                other.tell(write("op", second, moved(pen.head, second)))
                answer = other.answer()

            hold = engine.hold(SPACE, "main")
        assert hold is not None
        if self.shared_between_processes:
            assert (
                (answer.receipt and answer.receipt.heads) == (hold.head,) == (Head("main", 2, second.digest),)
            )
        else:
            assert (hold.head.version, answer.actual) == (1, START)

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_child_goes_on_with_the_store(self, engine: Engine) -> None:
        """Parent and child can both use an engine that was open at the fork; what is not shared is then a copy."""
        pen = Pen(engine)
        pen.commit("milk")

        depth = forked(lambda: pen.commit("in the child").commit.depth)

        assert depth == 1
        hold = engine.hold(SPACE, "main")
        assert hold is not None
        assert hold.head.version == (2 if self.shared_between_processes else 1)
        Pen(engine, space="another").commit("in the parent")

    def test_a_killed_process_loses_nothing_that_it_acknowledged(self, tmp_path: Path) -> None:
        """After SIGKILL at any moment every write is there whole or not at all, and all acknowledged ones are."""
        draw = random.Random(f"{type(self).__name__} kills")
        for kill in range(self.kills if self.persistent else 1):
            path = tmp_path / str(kill)
            path.mkdir()
            with child(type(self), path, "go_on") as other:
                said = [other.answer()]
                time.sleep(draw.uniform(0, 0.25))
                said += other.kill()

            with closing(self.open(path)) as engine:
                if self.persistent:
                    check_survivors(engine, said)
                    Pen(engine, space="another").commit("after the kill")
                else:
                    assert list(engine.spaces(limit=9)) == []


def forked(work: Callable[[], int]) -> int:
    """What `work` gives in a forked child, where it must not raise."""
    pid = os.fork()
    if pid == 0:
        result = 99
        try:
            result = work()
        finally:
            os._exit(result)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def check_survivors(engine: Engine, said: list[Answer]) -> None:
    """Check that all acknowledged writes of `go_on` are there, at most one more of each writer, and all whole."""
    assert said
    for writer in range(WRITERS):
        space = f"space-{writer}"
        receipts = [answer.receipt for answer in said if answer.space == space and answer.receipt]
        hold = engine.hold(space, "main")
        assert hold is not None
        assert len(receipts) <= hold.head.version <= len(receipts) + 1
        for receipt in receipts:
            recorded = engine.recorded(space, receipt.op_id)
            assert recorded is not None
            assert recorded.receipt == receipt
        check_whole(engine, writer, hold.head)


def check_whole(engine: Engine, writer: int, head: Head) -> None:
    """Check that the writes up to `head` are there with all their parts, and nothing of any other."""
    tip, at, space = None, START, f"space-{writer}"
    for turn in range(head.version):
        tip, wanted = turn_of(writer, turn, tip, at)
        at = Head("main", turn + 1, tip.digest)
        engine.objects(space, [each.digest for each in wanted.objects])
    cell = engine.cell(space, "turn")
    assert head == at
    assert (cell.revision if cell else 0) == head.version
    assert [entry.body for entry in engine.entries(space, limit=99_999)] == [
        b'"%d"' % turn for turn in range(head.version)
    ]
    assert len(engine.moves(space, "main", limit=99_999)) == head.version
    assert len(engine.commits(space, "", limit=99_999)) == head.version

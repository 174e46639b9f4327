"""Two processes append with the same read head.  One wins; the other is told so, and wrote nothing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import perdure
from perdure.engines.contract import Receipt
from perdure.engines.sqlite import SqliteEngine
from perdure.errors import StaleHead
from perdure.testing.engines.builders import SPACE, START, made, moved, value, write
from tests.crash import jobs
from tests.crash.campaign import sized
from tests.crash.processes import Other, context, running

ROUNDS = sized(40, 1_000)


@contextmanager
def two(job: object, path: Path, *args: object) -> Generator[list[Other]]:
    """Two processes that do a job on the store at `path`, and start each round together."""
    gate = context.Barrier(2)
    with ExitStack() as stack:
        yield [stack.enter_context(running(job, str(path), gate, *args)) for _ in range(2)]  # pyright: ignore[reportArgumentType]


def test_exactly_one_of_two_processes_wins_each_round(tmp_path: Path) -> None:
    """Through the engine: one receipt and one refusal that names both heads, forty times over."""
    path, read = tmp_path / "store.db", START
    with two(jobs.apply_together, path) as others, closing(SqliteEngine(path)) as engine:
        for turn in range(ROUNDS):
            news = [made(f"turn {turn} of {number}") for number in range(2)]
            for number, (other, new) in enumerate(zip(others, news, strict=True)):
                other.tell(write(f"{turn} {number}", value(f"{turn} {number}"), new, moved(read, new)))
            answers = [other.answer() for other in others]

            won = [answer for answer in answers if isinstance(answer, Receipt)]
            lost = [answer for answer in answers if isinstance(answer, StaleHead)]
            assert (len(won), len(lost)) == (1, 1), f"round {turn}: {answers}"
            head = won[0].heads[0]
            assert (lost[0].expected, lost[0].actual) == (read, head)
            loser = 1 - int(won[0].op_id[-1])
            assert engine.recorded(SPACE, f"{turn} {loser}") is None
            assert list(engine.missing(SPACE, [value(f"{turn} {loser}").digest, news[loser].digest])) != []
            read = head
        assert len(engine.commits(SPACE, "", limit=9_999)) == read.version == ROUNDS


def test_exactly_one_of_two_blocks_is_committed(tmp_path: Path) -> None:
    """Through the face: both enter their block on one head, one leaves it with a commit."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store, two(jobs.change_together, path, ROUNDS) as others:
        thread = store.thread("trip-42", agent="planner")
        answers = list(zip(*[other.answer() for other in others], strict=True))

        heads = [head for pair in answers for head in pair if isinstance(head, perdure.Head)]
        refusals = [error for pair in answers for error in pair if isinstance(error, StaleHead)]
        assert (len(heads), len(refusals)) == (ROUNDS, ROUNDS)
        assert [head.version for head in heads] == list(range(1, ROUNDS + 1))
        assert [(error.expected.version, error.actual) for error in refusals] == [
            (head.version - 1, head) for head in heads
        ]
        assert [entry.digest for entry in reversed(thread.log())] == [head.commit for head in heads]
        assert thread.get("/count.json") == ROUNDS


def test_control_writers_who_do_not_compare_heads_lose_commits(tmp_path: Path) -> None:
    """Both processes are told that they won, and only one of the two commits is in the history."""
    path = tmp_path / "store.db"
    with perdure.open(path) as store, two(jobs.change_together, path, ROUNDS, "blind") as others:
        thread = store.thread("trip-42", agent="planner")
        heads = [head for other in others for head in other.answer()]

        assert all([isinstance(head, perdure.Head) for head in heads])
        assert len(heads) == 2 * ROUNDS
        assert thread.get("/count.json") < 2 * ROUNDS
        kept = {entry.digest for entry in thread.log()}
        assert sum(head.commit not in kept for head in heads) > 0

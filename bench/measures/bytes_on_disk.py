"""Bytes on disk: the whole history of ours against the baseline, which keeps only the latest state.

Counted are all files of a store while it is in use, write-ahead log included, and again when
it is closed.  Every message must be found by stock `sqlite3`, in plain text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from bench.bare import Bare
from bench.ground import Ground
from bench.ours import Face
from bench.table import Result
from bench.workload import Turn, make_turns


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    for keys in (sizes.keys, sizes.many_keys):
        turns = make_turns(sizes.stored, keys=keys)
        yield from _bytes(ground, turns, f"{sizes.stored:,} turns, {keys:,} keys", bar=1.1)
    turns = make_turns(sizes.stored, keys=sizes.keys, replaced=True)
    yield from _bytes(ground, turns, f"{sizes.stored:,} turns, documents replaced whole", bar=None)


def _bytes(ground: Ground, turns: list[Turn], what: str, *, bar: float | None) -> Iterable[Result]:
    directory = ground.fresh()
    writers = Face(directory, durable=False), Bare(directory, durable=False)
    for writer in writers:
        for turn in turns:
            writer.turn(turn)
    in_use = [_size(writer.path) for writer in writers]
    for writer in writers:
        writer.close()
    closed = [_size(writer.path) for writer in writers]
    _check_readable(writers[0].path, turns)
    ground.drop(directory)
    yield _result(f"bytes on disk, {what}", in_use, bar)
    yield _result("the same, closed", closed, None)


def _result(name: str, sizes: list[int], bar: float | None) -> Result:
    ours, bare = sizes
    return Result(measure=name, ours=ours, baseline=bare, unit="bytes", bound="at most", bar=bar)


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))


def _check_readable(path: Path, turns: list[Turn]) -> None:
    """Stock `sqlite3` finds every message as plain text, in order."""
    said = [step.body for turn in turns for step in turn.steps]
    sql = (
        "SELECT json_extract(payload_json, '$.message') FROM conversation_events "
        "WHERE event_type = 'message.appended' ORDER BY sequence_number"
    )
    with closing(sqlite3.connect(path)) as stock:
        found = [body for (body,) in stock.execute(sql)]
    assert found == said, "stock sqlite3 does not read the messages as they were said"

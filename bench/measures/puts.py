"""One put into a large map against one into a small map: time, and bytes of new objects.

Twice: right after opening, where every put into the large map reads the nodes on its way from
the disk and the small one soon knows all of its own; and once the maps were read.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

from bench.ground import Ground, Sizes, Times, median, take_turns
from bench.ours import Face, recorded_store
from bench.table import Result
from bench.workload import make_documents
from perdure.model.digest import Kind
from perdure.store.thread import Thread

_AT_ONCE = 500


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    directories = ground.fresh(), ground.fresh()
    for directory, keys in zip(directories, (sizes.huge_keys, sizes.keys), strict=True):
        _fill(directory, keys)
    large, small = (Face(directory) for directory in directories)
    documents = make_documents(2 * sizes.puts, seed=11)
    rng = random.Random(3)
    places = [(rng.randrange(sizes.huge_keys), rng.randrange(sizes.keys)) for _ in documents]
    works = [
        lambda at: large.thread.put(_key(places[at][0]), documents[at]),
        lambda at: small.thread.put(_key(places[at][1]), documents[at]),
    ]
    unread = take_turns(works, range(sizes.puts))
    for face in (large, small):
        face.thread.paths("/")
    read = take_turns(works, range(sizes.puts, len(documents)))
    large.close()
    small.close()
    written = _bytes_of_a_put(f"sqlite:///{directories[0] / 'perdure.db'}", places, documents)
    ground.drop(*directories)
    yield _compared(sizes, f"one put into {sizes.huge_keys:,} keys, just opened", unread)
    yield _compared(sizes, "the same, once the map was read", read)
    yield Result(
        measure="bytes of new nodes of that put", ours=written, unit="bytes", bound="at most", bar=4_096
    )


def _compared(sizes: Sizes, name: str, times: list[Times]) -> Result:
    slow, fast = (1e6 * median(each.wall) for each in times)
    return Result(
        measure=name,
        ours=slow,
        baseline=fast,
        baseline_is=f"{sizes.keys:,} keys",
        unit="µs",
        bound="at most",
        bar=1.3,
    )


def _fill(directory: Path, keys: int) -> None:
    face = Face(directory, durable=False)
    documents = make_documents(_AT_ONCE)
    for start in range(0, keys, _AT_ONCE):
        with face.thread.change("fill") as change:
            for at in range(start, min(keys, start + _AT_ONCE)):
                change.put(_key(at), {**documents[at % _AT_ONCE], "id": at})  # pyright: ignore[reportArgumentType]
    face.close()


def _key(number: int) -> str:
    return f"/notes/{number:06d}.json"


def _bytes_of_a_put(url: str, places: list[tuple[int, int]], documents: list[dict[str, object]]) -> float:
    """The median of what one put adds beside the value itself."""
    store, taken = recorded_store(url)
    thread: Thread = store.thread("t")
    for (place, _), document in zip(places, documents, strict=True):
        thread.put(_key(place), {**document, "again": True})  # pyright: ignore[reportArgumentType]
    store.close()
    return median(
        sum(len(each.body) for each in write.objects if each.kind is Kind.NODE)
        for write in taken
        if write.moves
    )

"""What a fork costs, in time and bytes, at the end of a long history."""

from __future__ import annotations

from collections.abc import Iterable

from bench.bare import Bare
from bench.ground import Ground, median, take_turns
from bench.measures.growth import fill
from bench.ours import Face
from bench.table import Result
from bench.workload import make_documents, make_turns
from perdure.model import canonical
from perdure.store.plumbing.revisions import LogEntry


def measure(ground: Ground) -> Iterable[Result]:
    sizes = ground.sizes
    directory = ground.fresh()
    fill(directory, make_turns(sizes.history, keys=sizes.keys))
    face, bare = Face(directory), Bare(directory)
    documents = make_documents(sizes.puts)
    texts = [canonical.encode(each).decode() for each in documents]
    commits = face.thread.log(limit=sizes.puts)
    works = [
        lambda at: face.thread.fork(f"fork-{at}", at=commits[at]),
        lambda at: face.thread.put("/notes/000001.json", documents[at]),
        lambda at: bare.put("/notes/000001.json", texts[at]),
    ]
    fork, put, write = (1e6 * median(each.wall) for each in take_turns(works, range(sizes.puts)))
    each = _bytes_of_a_fork(face, commits)
    face.close()
    bare.close()
    ground.drop(directory)
    yield Result(
        measure=f"fork after {sizes.history:,} turns",
        ours=fork,
        baseline=put,
        baseline_is="one put",
        unit="µs",
        bound="at most",
        bar=1.0,
    )
    yield Result(measure="one put", ours=put, baseline=write, unit="µs")
    yield Result(measure="bytes of a fork", ours=each, unit="bytes", bound="at most", bar=4_096)


def _bytes_of_a_fork(face: Face, commits: list[LogEntry]) -> float:
    before = int(face.store.facts()["bytes"])
    for at, commit in enumerate(commits):
        face.thread.fork(f"counted-{at}", at=commit)
    return (int(face.store.facts()["bytes"]) - before) / len(commits)

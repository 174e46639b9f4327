"""Other libraries that keep an agent's state, on the same turns beside Perdure.

Most of them use another copy of SQLite, whose syncs cannot be made to take a given time, so they are compared on a
real disk only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from bench.ground import Ground, Writer, take_turns
from bench.ours import Face
from bench.table import Result, Skipped
from bench.workload import make_turns

_PEERS = ("langgraph", "dbos", "eventsourcing", "openai_agents")


def measure(ground: Ground) -> Iterable[Result | Skipped]:
    if ground.sync_ms is not None:
        yield Skipped(
            measure="beside other libraries",
            why="their syncs take what the disk takes: run it without --sync",
        )
        return
    for name in _PEERS:
        ground.tell(f"peers: {name}")
        try:
            module = import_module(f"bench.peers.{name}")
        except ImportError as error:
            why = f"{error}; install it with `pip install --group bench`"
            yield Skipped(measure=f"beside {name}", why=why)
            continue
        yield from _beside(ground, module.open_peer)


def _beside(ground: Ground, open_peer: Callable[[Path], Writer]) -> Iterable[Result]:
    sizes = ground.sizes
    turns = make_turns(sizes.peer_turns, keys=sizes.keys)
    directory = ground.fresh()
    ours, peer = Face(directory), open_peer(directory)
    our_times, peer_times = take_turns([ours.turn, peer.turn], turns)
    ours.close()
    peer.close()
    our_bytes, peer_bytes = (
        sum(each.stat().st_size for each in path.parent.glob(path.name + "*"))
        for path in (ours.path, peer.path)
    )
    ground.drop(directory)
    yield Result(
        measure=f"beside {peer.name}, {sizes.peer_turns} turns",
        ours=len(our_times.wall) / our_times.total,
        baseline=len(peer_times.wall) / peer_times.total,
        baseline_is=peer.name,
        unit="turns/s",
    )
    yield Result(
        measure=f"beside {peer.name}, CPU of a turn, user and system",
        ours=1e3 * sum(our_times.cpu) / len(turns),
        baseline=1e3 * sum(peer_times.cpu) / len(turns),
        baseline_is=peer.name,
        unit="ms",
    )
    yield Result(
        measure=f"beside {peer.name}, bytes of {sizes.peer_turns} turns",
        ours=our_bytes,
        baseline=peer_bytes,
        baseline_is=peer.name,
        unit="bytes",
    )

"""Other libraries that keep an agent's state, on the same turns beside the same baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path

from bench.bare import Bare
from bench.ground import Ground, Writer, take_turns
from bench.table import Result, Skipped
from bench.workload import make_turns

_PEERS = ("langgraph", "eventsourcing", "openai_agents")


def measure(ground: Ground) -> Iterable[Result | Skipped]:
    for name in _PEERS:
        ground.tell(f"peers: {name}")
        try:
            module = import_module(f"bench.peers.{name}")
        except ImportError as error:
            why = f"{error}; install it with `pip install --group bench`"
            yield Skipped(measure=f"peer: {name}", why=why)
            continue
        yield from _peer(ground, module.open_peer)


def _peer(ground: Ground, open_peer: Callable[[Path], Writer]) -> Iterable[Result]:
    sizes = ground.sizes
    turns = make_turns(sizes.peer_turns, keys=sizes.keys)
    directory = ground.fresh()
    peer = open_peer(directory)
    bare = Bare(directory)
    theirs, base = take_turns([peer.turn, bare.turn], turns)
    peer.close()
    bare.close()
    size = [
        sum(e.stat().st_size for e in each.parent.glob(each.name + "*")) for each in (peer.path, bare.path)
    ]
    ground.drop(directory)
    yield Result(
        measure=f"peer: {peer.name}, {sizes.peer_turns} turns",
        ours=len(theirs.wall) / theirs.total,
        baseline=len(base.wall) / base.total,
        unit="turns/s",
    )
    yield Result(measure=f"peer: {peer.name}, bytes", ours=size[0], baseline=size[1], unit="bytes")

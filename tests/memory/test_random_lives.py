"""Random lives of threads and their owner's memory, against what walking every line says.

The other side of the comparison knows nothing of indexes, caches or jumps: it reads the whole log of every live
line and takes the last version whose commit is in one of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Store, Thread
from perdure.errors import PerdureError
from perdure.memory.owner_memory import ReachableMemory
from perdure.model.commit import Act
from perdure.model.memory import Version, parse_version_path
from tests.crash.campaign import sized
from tests.memory.remembering import by_letters, forgetting, remembering

SEEDS = sized(range(1, 3), range(60))
STEPS = 45
NAMES = ("seat", "food", "home")


def lines(thread: Thread) -> Iterator[set[str]]:
    """The commits of each live line, through merges too."""
    for hold in thread.timelines():
        moves = thread._space.engine.moves(thread._space.name, hold.head.timeline, limit=1)
        if moves and moves[0].act is Act.KEEP:
            continue
        found: set[str] = set()
        left = [hold.head.commit] if hold.head.commit else []
        while left:
            commit = left.pop()
            if commit not in found:
                found.add(commit)
                left += thread._space.step(commit).commit.parents
        yield found


def expected(store: Store) -> dict[str, str]:
    """What is remembered, by the long way."""
    held = store._resources.memories.of("ann")
    live = {commit for thread in store.threads() for line in lines(thread) for commit in line}
    standing: dict[str, Version] = {}
    for entry in held.space.tree(held.sight().root).entries("/items/"):
        version = held.version(entry)
        if version.source is None or version.source.commit in live:
            standing[parse_version_path(entry.path)[0]] = version
    return {id: version.item.text for id, version in standing.items() if version.item is not None}


def step(store: Store, dice: random.Random, number: int) -> None:
    """One thing that happens; what cannot be done now is left."""
    name, id = dice.choice(NAMES), f"t{dice.randrange(3)}"
    act = dice.choice(
        ["note"] * 5 + ["drop", "undo", "undo", "redo", "fork", "promote", "merge", "rm", "hand", "back"]
    )
    try:
        match act:
            case "note":
                remembering(store, id, f"{name} {number}", name=name)
            case "drop":
                forgetting(store, id, name)
            case "hand" if dice.random() < 0.7:
                store.memory("ann").add(f"{name} by hand {number}", id=name)
            case "hand":
                store.memory("ann").forget(name)
            case "back":
                store.memory("ann").undo()
            case _:
                move(store.thread(id), act, dice, number)
    except PerdureError:
        pass


def move(thread: Thread, act: str, dice: random.Random, number: int) -> None:
    """Move a head of a thread."""
    line = thread.on(dice.choice([hold.head.timeline for hold in thread.timelines()]))
    match act:
        case "undo":
            line.undo(dice.randint(1, 2))
        case "redo":
            line.redo()
        case "fork":
            line.fork(f"f{number}")
        case "promote":
            thread.promote(line)
        case "merge":
            thread.merge(line)
        case _ if dice.random() < 0.3:
            thread.rm()
        case _:
            line.put("/n.json", number)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_remembered_is_what_live_lines_hold(tmp_path: Path, seed: int) -> None:
    """After every step, listing and searching give exactly what the long way gives."""
    dice = random.Random(seed)
    with perdure.open(tmp_path / "agents.db", durability="process_crash", embed=by_letters) as store:
        for number in range(STEPS):
            step(store, dice, number)

            told = expected(store)

            assert {item.id: item.text for item in store.memory("ann").items()} == told, (
                f"seed {seed}, step {number}"
            )
            found = {each.id: each.text for each in store.memory("ann").search(" ".join(NAMES), limit=50)}
            assert found == told, f"seed {seed}, step {number}"
        assert store.verify().ok


def test_without_the_check_of_reach_lives_go_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: these lives do withdraw things, and the comparison sees when that is left out."""
    monkeypatch.setattr(ReachableMemory, "holds", lambda *args: True)

    with pytest.raises(AssertionError, match="seed 1, step"):
        test_what_is_remembered_is_what_live_lines_hold(tmp_path, 1)

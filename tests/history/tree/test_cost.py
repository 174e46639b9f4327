"""What a change costs, counted in nodes and bytes: it must not grow with the map, whatever its keys."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from perdure.history.tree import Tree, diff, map, read
from tests.crash.campaign import sized
from tests.history.tree import maps
from tests.history.tree.maps import Shelf, entry

LARGE = sized(8_000, 100_000)


def cost_of_puts(resources: Shelf, tree: Tree, paths: list[str]) -> tuple[int, int, int]:
    """The most nodes read, nodes written and bytes written for one of 200 puts."""
    chance, worst = random.Random(5), (0, 0, 0)
    for number in range(200):
        resources.reads = 0
        draft = tree.edit()
        path = chance.choice(paths)
        draft.put(entry(path if number % 2 else path[:-1] + f"{number}"[:1], number))
        _, objects = draft.finish()
        spent = (resources.reads, len(objects), sum(len(thing.body) for thing in objects))
        worst = (max(worst[0], spent[0]), max(worst[1], spent[1]), max(worst[2], spent[2]))
    return worst


@pytest.fixture(scope="module")
def large() -> tuple[Shelf, Tree]:
    """A map of many ordinary paths."""
    resources = Shelf()
    return resources, resources.of(maps.ordinary(LARGE))


def test_a_put_into_many_ordinary_paths_touches_one_short_way(large: tuple[Shelf, Tree]) -> None:
    """At most 4 KB of nodes, which is the bar."""
    resources, tree = large

    reads, writes, written_bytes = cost_of_puts(resources, tree, maps.ordinary(LARGE))

    assert reads <= 10
    assert writes <= 12
    assert written_bytes <= 4_096


def test_the_cost_of_a_put_hardly_grows_with_the_map() -> None:
    """Ten times the paths cost about one node more."""
    for count, nodes_max in ((100, 5), (1_000, 6), (10_000, 7)):
        resources = Shelf()

        reads, _, written_bytes = cost_of_puts(
            resources, resources.of(maps.ordinary(count)), maps.ordinary(count)
        )

        assert reads <= nodes_max
        assert written_bytes <= 4_096


@pytest.mark.parametrize(
    ("keys", "nodes_max", "bytes_max"),
    [
        pytest.param(maps.long_prefix, 8, 8_192, id="long common prefixes"),
        pytest.param(maps.last_byte, 12, 8_192, id="all but the last byte shared"),
        pytest.param(maps.nested, 40, 8_192, id="paths nested 32 deep"),
        pytest.param(maps.prefixes, 40, 8_192, id="paths that begin other paths"),
    ],
)
def test_a_put_into_many_hostile_paths_is_bounded(
    keys: Callable[[int], list[str]], nodes_max: int, bytes_max: int
) -> None:
    """No choice of keys makes the tree grow with the number of entries."""
    resources, paths = Shelf(), keys(LARGE)
    tree = resources.of(paths)

    reads, writes, written_bytes = cost_of_puts(resources, tree, paths)

    assert tree.count() == LARGE
    assert max(reads, writes) <= nodes_max
    assert written_bytes <= bytes_max


def test_the_worst_keys_there_are_reach_a_fixed_bound() -> None:
    """Forks at each byte, each as wide as can be, until the map refuses to go deeper: 64 nodes, and no more."""
    resources, paths = Shelf(), maps.comb(64)
    tree = resources.of(paths)

    reads, writes, written_bytes = cost_of_puts(resources, tree, paths[-80:])

    assert max(reads, writes) <= 65
    assert written_bytes <= 64 * 75 * 40


def test_a_flat_map_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the rule everything is one leaf, and a put into 1,000 paths breaks the bar."""
    for module in (map, read):
        monkeypatch.setattr(module, "is_leaf", lambda *_: True)
    resources, paths = Shelf(), maps.ordinary(1_000)

    _, _, written_bytes = cost_of_puts(resources, resources.of(paths), paths)

    assert written_bytes > 10 * 4_096


def test_clearing_a_tenth_of_many_paths_touches_a_handful_of_nodes() -> None:
    """What goes is counted, not read."""
    resources = Shelf()
    tree = resources.of(f"/part-{number % 10}/{number:06}" for number in range(LARGE))
    resources.reads = 0
    draft = tree.edit()

    removed = draft.clear("/part-3/")
    _, objects = draft.finish()

    assert removed == LARGE // 10
    assert resources.reads <= 4
    assert len(objects) <= 2


def test_comparing_two_large_maps_costs_what_differs(large: tuple[Shelf, Tree]) -> None:
    """One path of many is found by reading the two ways to it."""
    resources, tree = large
    later = resources.put(tree, "/todos/new")
    resources.reads = 0

    assert [change.path for change in diff(tree, later)] == ["/todos/new"]
    assert resources.reads <= 20

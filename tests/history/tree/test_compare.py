"""Comparing and merging maps: every difference, in order, for the price of what differs."""

from __future__ import annotations

import pytest

from perdure.history.tree import EMPTY, Meeting, PathChange, Tree, diff, merge3
from tests.history.tree.maps import Shelf, entry, ordinary

PATHS = ordinary(2_000)


@pytest.fixture
def tree(resources: Shelf) -> Tree:
    """A map of 2,000 ordinary paths."""
    return resources.of(PATHS)


def changed(resources: Shelf, tree: Tree, *changes: tuple[str, int | None]) -> Tree:
    """`tree` with these paths holding these values; None deletes."""
    draft = tree.edit()
    for path, value in changes:
        if value is None:
            draft.delete(path)
        else:
            draft.put(entry(path, value))
    return resources.keep(draft.finish())


def test_a_map_does_not_differ_from_itself(resources: Shelf, tree: Tree) -> None:
    """Nothing is read to find that out."""
    resources.reads = 0

    assert list(diff(tree, resources.tree(tree.root))) == []
    assert resources.reads == 0


def test_added_removed_and_altered_paths_are_told_in_order(resources: Shelf, tree: Tree) -> None:
    """Each with what was there before and what is there after."""
    old, gone = PATHS[3], PATHS[4]
    later = changed(resources, tree, (old, 5), (gone, None), ("/added", 1))

    found = list(diff(tree, later))

    assert found == sorted(
        [
            PathChange(old, entry(old), entry(old, 5)),
            PathChange(gone, entry(gone), None),
            PathChange("/added", None, entry("/added", 1)),
        ],
        key=lambda change: change.path,
    )


def test_a_map_differs_from_the_empty_one_by_all_it_holds(resources: Shelf, tree: Tree) -> None:
    """In both directions."""
    added = [PathChange(path, None, entry(path)) for path in sorted(PATHS)]

    assert list(diff(resources.tree(EMPTY), tree)) == added
    assert list(diff(tree, resources.tree(EMPTY))) == [PathChange(c.path, c.after, c.before) for c in added]


def test_maps_that_fork_at_other_bytes_compare_alike(resources: Shelf) -> None:
    """A prefix may be cut at another place, and a leaf may stand against a branch."""
    below = [f"/shared/beginning/of/all/{number:04}" for number in range(300)]
    tree = resources.of(below)
    cut = resources.put(tree, "/shared/b", "/shared/beginning/of/ants", "/s")
    few = resources.of(below[100:103])

    assert [change.path for change in diff(tree, cut)] == ["/s", "/shared/b", "/shared/beginning/of/ants"]
    assert [change.path for change in diff(cut, few)] == [
        "/s", "/shared/b", *below[:100], *below[103:], "/shared/beginning/of/ants",
    ]  # fmt: skip


def test_a_small_difference_costs_few_reads(resources: Shelf, tree: Tree) -> None:
    """Subtrees with the same digest are not read."""
    later = changed(resources, tree, (PATHS[3], 5))
    depth = tree.top.height + 1
    resources.reads = 0

    assert len(list(diff(tree, later))) == 1
    assert resources.reads <= 2 * depth


@pytest.mark.parametrize("prefix", ["/notes/", "/notes/2026/0", "/added", "/x", "/"])
def test_a_difference_can_be_asked_for_below_a_prefix(resources: Shelf, tree: Tree, prefix: str) -> None:
    """By bytes, as for listing."""
    later = changed(resources, tree, *((path, 5) for path in PATHS[::7]), ("/added", 1), ("/added2", 1))

    found = [change.path for change in diff(tree, later, prefix)]

    assert found == [change.path for change in diff(tree, later) if change.path.startswith(prefix)]


def test_the_first_difference_is_told_before_the_last_is_known(resources: Shelf, tree: Tree) -> None:
    """A comparison is read as it is asked for."""
    later = changed(resources, tree, *((path, 5) for path in PATHS))
    resources.reads = 0

    next(diff(tree, later))

    assert resources.reads <= 2 * (tree.top.height + 1)


def test_a_merge_tells_what_happened_to_each_path_that_they_changed(resources: Shelf, tree: Tree) -> None:
    """Taken, the same, or a conflict; paths that only we changed are not named."""
    one, two, three, four, five = sorted(PATHS)[:5]
    ours = changed(resources, tree, (two, 2), (three, 3), (four, None), (five, 9), ("/z", 1))
    theirs = changed(resources, tree, (one, 1), (two, 2), (three, 33), (four, None), ("/z", 2))

    met = list(merge3(tree, ours, theirs))

    assert [(meeting.path, meeting.verdict) for meeting in met] == [
        (one, "taken"), (two, "same"), (three, "conflict"), (four, "same"), ("/z", "conflict"),
    ]  # fmt: skip
    assert met[2] == Meeting(three, entry(three), entry(three, 3), entry(three, 33))


def test_a_path_that_one_side_deleted_and_the_other_altered_is_a_conflict(
    resources: Shelf, tree: Tree
) -> None:
    """Whichever side deleted it; deleting what the other left alone is not."""
    one, two, three = PATHS[:3]
    ours = changed(resources, tree, (one, None), (two, 2))
    theirs = changed(resources, tree, (one, 1), (two, None), (three, None))

    verdicts = {meeting.path: meeting.verdict for meeting in merge3(tree, ours, theirs)}

    assert verdicts == {one: "conflict", two: "conflict", three: "taken"}

"""Reading maps: what is found, in which order, and how little is read for it."""

from __future__ import annotations

import pytest

from perdure.errors import Corrupt, Invalid, NotFound
from perdure.history.tree import NodeCache, Tree, build, refs
from perdure.history.tree.encoding import Leaf, make_item, make_tail
from perdure.history.tree.map import grow, seal
from tests.coded import raises
from tests.history.tree.maps import Shelf, entry, ordinary, paths_of

PATHS = ordinary(2_000)
TAIL = make_tail(entry("/a"))


@pytest.fixture
def tree(resources: Shelf) -> Tree:
    """A map of 2,000 ordinary paths."""
    return resources.of(PATHS)


def test_every_path_is_found_and_no_other(tree: Tree) -> None:
    """Neither the beginning of a path nor a path that goes on is the path."""
    assert all(tree.get(path) == entry(path) for path in PATHS)
    assert [tree.get(path + "x") or tree.get(path[:-1]) for path in PATHS[:500]] == [None] * 500
    assert tree.get("") is None


def test_many_paths_are_found_with_one_read_for_each_level(resources: Shelf, tree: Tree) -> None:
    """Absent ones are left out."""
    levels = tree.top.height + 1
    resources.calls = 0

    found = tree.get_many([*PATHS, "/absent", "/todos/absent", ""])

    assert found == {path: entry(path) for path in PATHS}
    assert resources.calls <= levels


def test_entries_come_in_the_order_of_their_bytes(resources: Shelf) -> None:
    """Which is not the order of UTF-16, nor of any language."""
    paths = ["/z", "/é", "/\uffee", "/\U0001f600", "/Z", "/a/b", "/a", "/a!", *PATHS]

    tree = resources.of(paths)

    assert paths_of(tree) == sorted(paths, key=str.encode)


@pytest.mark.parametrize(
    "prefix", ["", "/", "/notes", "/notes/2026/0", "/memory/f", "/todos/1", "/nothing", "x"]
)
def test_listing_a_prefix_gives_what_starts_with_it(tree: Tree, prefix: str) -> None:
    """By bytes: a slash means nothing here."""
    expected = sorted(path for path in PATHS if path.startswith(prefix))

    assert [found.path for found in tree.entries(prefix)] == expected
    assert tree.count(prefix) == len(expected)


@pytest.mark.parametrize(
    "after", ["", "/", "/customers/zzz", "/n", sorted(PATHS)[700], sorted(PATHS)[-1], "/zzz"]
)
@pytest.mark.parametrize("prefix", ["", "/notes/2026/"])
def test_listing_goes_on_after_a_path(tree: Tree, prefix: str, after: str) -> None:
    """Whether or not that path is there."""
    expected = sorted(path for path in PATHS if path.startswith(prefix) and path > after)

    assert [found.path for found in tree.entries(prefix, after=after)] == expected


def test_the_first_of_a_listing_costs_a_few_reads(resources: Shelf, tree: Tree) -> None:
    """A reader that stops early has not read the rest."""
    resources.reads = 0

    next(tree.entries("/notes/"))

    assert resources.reads < 12


def test_going_on_after_a_path_does_not_read_what_is_before_it(resources: Shelf, tree: Tree) -> None:
    """A page costs the same wherever it is."""
    resources.reads = 0

    next(tree.entries(after=sorted(PATHS)[1_900]))

    assert resources.reads < 12


def test_counting_reads_one_way_down(resources: Shelf, tree: Tree) -> None:
    """What is below the prefix is counted from what branches know."""
    resources.reads = 0

    assert tree.count("/customers/") > 400
    assert resources.reads <= 3


def test_a_missing_node_is_an_error_and_never_an_absent_path(resources: Shelf, tree: Tree) -> None:
    """Reads fail closed."""
    resources.bodies = {tree.root: resources.bodies[tree.root]}

    with pytest.raises(NotFound):
        tree.get(PATHS[0])
    with pytest.raises(NotFound):
        list(tree.entries())


def test_a_damaged_node_is_corrupt_and_is_named(resources: Shelf, tree: Tree) -> None:
    """Even if its digest was not checked."""
    resources.bodies[tree.root] = resources.bodies[tree.root][:-1]

    with raises(Corrupt, "node_unreadable", node=tree.root):
        tree.get(PATHS[0])


def test_a_node_that_is_not_what_its_parent_says_is_corrupt(resources: Shelf, tree: Tree) -> None:
    """A false count would make false shapes; it is refused before it is used."""
    child = refs(resources.bodies[tree.root])[0][0]
    _, (other,) = build([entry("/a")])
    resources.bodies[child] = other.body

    with raises(Corrupt, "node_misplaced", node=child):
        list(tree.entries())


def test_a_root_that_the_rule_would_not_make_is_corrupt(resources: Shelf) -> None:
    """A leaf too heavy for a leaf."""
    keys = [path.encode() for path in sorted(PATHS)[:100]]
    leaf = Leaf(keys, [make_item(key, TAIL) for key in keys])
    thing, _ = seal(leaf, 0)[0]

    with raises(Corrupt, "node_misplaced"):
        resources.keep((thing.digest, (thing,))).count()


def test_a_key_that_is_not_text_is_corrupt(resources: Shelf) -> None:
    """No path could have led to it."""
    thing, _ = seal(grow([b"/\xff"], [TAIL]), 0)[0]
    tree = resources.keep((thing.digest, (thing,)))

    with raises(Corrupt, "key_not_text"):
        list(tree.entries())


def test_keys_of_any_bytes_can_be_sorted_out() -> None:
    """A damaged leaf can hold bytes that no text has; what is done with it must not depend on that."""
    keys = [b"/" + bytes((byte,)) * 60 for byte in range(200, 256)]

    assert [thing.kind for thing, _ in seal(grow(keys, [TAIL] * len(keys)), 0)]


def test_a_lone_surrogate_is_refused_as_a_path(tree: Tree) -> None:
    """It has no UTF-8 bytes."""
    with pytest.raises(Invalid):
        tree.get("/\ud800")


class TestCache:
    """Decoded nodes are shared by all maps of a store, within a bound."""

    def test_a_node_is_read_once(self, resources: Shelf, tree: Tree) -> None:
        """By whichever map reads it first."""
        cache = NodeCache()
        paths_of(Tree(resources, tree.root, cache=cache))
        resources.reads = 0

        assert paths_of(Tree(resources, tree.root, cache=cache)) == sorted(PATHS)
        assert resources.reads == 0

    def test_what_a_draft_made_need_not_be_read(self, resources: Shelf, tree: Tree) -> None:
        """The next change finds its nodes decoded."""
        cache = NodeCache()
        draft = Tree(resources, tree.root, cache=cache).edit()
        draft.put(entry("/new", 9))
        root, _ = draft.finish()
        resources.reads = 0

        assert Tree(resources, root, cache=cache).get("/new") == entry("/new", 9)
        assert resources.reads == 0

    def test_the_bound_holds(self, resources: Shelf, tree: Tree) -> None:
        """Two halves of it are held at the most, and what is used often stays."""
        cache = NodeCache(20_000)
        small = Tree(resources, tree.root, cache=cache)

        paths_of(small)

        held = sum(len(resources.bodies[digest]) for half in (cache._young, cache._old) for digest in half)
        assert 0 < held * 5 < 30_000

    def test_a_cache_of_nothing_holds_nothing(self, resources: Shelf, tree: Tree) -> None:
        """For readers that go over everything once."""
        cache = NodeCache(0)

        paths_of(Tree(resources, tree.root, cache=cache))

        assert not cache._young
        assert not cache._old

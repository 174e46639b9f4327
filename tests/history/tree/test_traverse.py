"""Going over all nodes: what is reachable, what is skipped, and what is found to be wrong."""

from __future__ import annotations

import pytest

from perdure.history.tree import EMPTY, Tree, bodies, build, check, reachable, refs
from perdure.history.tree.encoding import BranchNode, Leaf, decode, encode, make_item, make_tail
from perdure.history.tree.map import grow, seal
from perdure.model.digest import Digest, Kind, Object
from tests.history.tree.maps import Shelf, entry, ordinary

PATHS = ordinary(2_000)
TAIL = make_tail(entry("/a"))


@pytest.fixture
def tree(resources: Shelf) -> Tree:
    """A map of 2,000 ordinary paths."""
    return resources.of(PATHS)


def forge(resources: Shelf, root: Digest, old: bytes, new: bytes) -> Digest:
    """The root of the same map with some bytes of its top node replaced, under a digest that fits."""
    body = resources.bodies[root]
    assert body.count(old) == 1
    thing = Object.of(Kind.NODE, body.replace(old, new))
    resources.bodies[thing.digest] = thing.body
    return thing.digest


def test_every_node_of_a_map_is_reachable_and_no_other(resources: Shelf, tree: Tree) -> None:
    """Each once, parents first."""
    _, objects = build(entry(path) for path in PATHS)
    resources.put(tree, "/other")

    found = list(reachable(resources, tree.root))

    assert found[0] == tree.root
    assert sorted(found) == sorted(thing.digest for thing in objects)
    assert dict(bodies(resources, tree.root)) == {digest: resources.bodies[digest] for digest in found}


def test_the_empty_map_has_no_nodes(resources: Shelf) -> None:
    """It is known to everybody and never stored."""
    assert (list(reachable(resources, EMPTY)), list(check(resources, EMPTY))) == ([], [])


def test_what_was_seen_is_skipped_with_everything_below(resources: Shelf, tree: Tree) -> None:
    """Going over a second map that shares most nodes reads only what is its own."""
    later = resources.put(tree, "/other")
    seen = set(reachable(resources, tree.root))
    resources.reads = 0

    own = list(reachable(resources, later.root, seen=seen.__contains__))

    assert later.root in own
    assert resources.reads == len(own) < 5


def test_a_node_tells_its_children_and_its_values(resources: Shelf, tree: Tree) -> None:
    """Both as digests, in order."""
    children, values = refs(resources.bodies[tree.root])
    (_, leaf_values) = refs(build([entry("/b", 2), entry("/a", 1)])[1][0].body)

    assert set(children) <= set(resources.bodies)
    assert values == ()
    assert leaf_values == (entry("/a", 1).value, entry("/b", 2).value)


def test_an_entry_that_ends_at_a_branch_is_among_the_values(resources: Shelf) -> None:
    """It would be lost to garbage otherwise."""
    tree = resources.of(["/n", *(f"/n{number:03}" for number in range(100))])

    assert refs(resources.bodies[tree.root])[1] == (entry("/n").value,)


def test_a_sound_map_has_no_faults(resources: Shelf, tree: Tree) -> None:
    """After a build and after changes."""
    later = resources.put(tree, "/other", "/todos/1", "/notes")

    assert list(check(resources, tree.root)) == []
    assert list(check(resources, later.root, seen=set(reachable(resources, tree.root)).__contains__)) == []


def test_every_damaged_or_missing_node_is_named_and_the_rest_is_still_checked(
    resources: Shelf, tree: Tree
) -> None:
    """One fault does not hide another."""
    leaves = [digest for digest, body in resources.bodies.items() if isinstance(decode(body), Leaf)]
    del resources.bodies[leaves[0]]
    resources.bodies[leaves[9]] = b"\x10\x00\x00"

    assert {fault.digest for fault in check(resources, tree.root)} == {leaves[0], leaves[9]}


def test_a_missing_root_is_a_fault(resources: Shelf) -> None:
    """It is told, not raised."""
    digest = Digest("ab" * 32)

    assert [fault.digest for fault in check(resources, digest)] == [digest]


def test_a_false_count_is_a_fault(resources: Shelf, tree: Tree) -> None:
    """A branch that lies about a child is found, though its own digest fits."""
    top = decode(resources.bodies[tree.root])
    assert isinstance(top, BranchNode)
    told = top.records[0]
    at = 1 + 32
    lying = told[:at] + bytes((told[at] ^ 1,)) + told[at + 1 :]

    forged = forge(resources, tree.root, told, lying)

    assert [fault.why for fault in check(resources, forged)] != []
    assert list(check(resources, tree.root)) == []


def test_a_light_branch_is_a_fault(resources: Shelf) -> None:
    """What should be a leaf is found, though every number in it is true."""
    branch = BranchNode(b"/")
    branch.attach(0x61, grow([b"x"], [TAIL]), 0)
    branch.attach(0x62, grow([b"y"], [TAIL]), 0)
    made = seal(branch, 0)
    light = resources.keep((made[-1][0].digest, tuple(thing for thing, _ in made)))

    assert ["rule" in fault.why for fault in check(resources, light.root)] == [True]


def test_a_key_that_no_path_has_is_a_fault(resources: Shelf) -> None:
    """Bytes that are not text."""
    thing = Object.of(Kind.NODE, encode(Leaf([b"/\xff"], [make_item(b"/\xff", TAIL)])))

    faults = list(check(resources, resources.keep((thing.digest, (thing,))).root))

    assert ["not text" in fault.why for fault in faults] == [True]


def test_a_key_that_is_too_long_is_a_fault(resources: Shelf) -> None:
    """Also where the numbers of its parent hide it behind a short one."""
    branch = BranchNode(b"/" + b"a" * 400)
    branch.attach(0x62, grow([b"", b"x" * 200], [TAIL, TAIL]), 0)
    branch.attach(0x63, grow([b"x" * 99], [TAIL]), 0)
    branch.attach(0x64, grow([b"x" * 99], [TAIL]), 0)
    made = seal(branch, 0)

    faults = list(
        check(resources, resources.keep((made[-1][0].digest, tuple(thing for thing, _ in made))).root)
    )

    assert ["longer than 512" in fault.why for fault in faults] == [True]


def test_a_subtree_that_stands_in_two_places_is_stored_once(resources: Shelf) -> None:
    """A caller that remembers what it has seen gets it once."""
    tree = resources.of(f"/{part}/{number:03}" for part in "ab" for number in range(100))
    marked: set[Digest] = set()

    def seen(digest: Digest) -> bool:
        return digest in marked or bool(marked.add(digest))

    assert sorted(reachable(resources, tree.root, seen=seen)) == sorted(resources.bodies)
    assert set(reachable(resources, tree.root)) == marked
    assert list(check(resources, tree.root)) == []

"""Drafts: the rule is kept by every change, and each node is made once."""

from __future__ import annotations

import random

import pytest

from perdure.errors import Invalid, NotFound, Unavailable
from perdure.history.tree import EMPTY, Entry, MapDraft, Tree, build, check, refs
from perdure.history.tree.encoding import BranchNode, Node, decode
from perdure.model.digest import Digest, Object
from tests.coded import raises
from tests.history.tree.maps import Shelf, blob, comb, entry, ordinary, paths_of, with_paths


@pytest.fixture
def thousand(resources: Shelf) -> Tree:
    """A map of 1,000 ordinary paths."""
    return resources.of(ordinary(1_000))


def test_a_draft_sees_its_own_changes_and_the_map_does_not(resources: Shelf) -> None:
    """The map that it began from never changes."""
    tree = resources.of(["/a", "/b"])
    draft = tree.edit()

    draft.put(entry("/c", 5))
    draft.delete("/a")

    assert (paths_of(draft), draft.get("/c"), draft.get("/a")) == (["/b", "/c"], entry("/c", 5), None)
    assert (draft.count(), draft.count("/c")) == (2, 1)
    assert paths_of(tree) == ["/a", "/b"]


def test_an_untouched_draft_makes_nothing(thousand: Tree) -> None:
    """The root is the old one, and no node is new."""
    assert thousand.edit().finish() == (thousand.root, ())


def test_changes_that_cancel_each_other_make_nothing(thousand: Tree) -> None:
    """Also when they made a leaf outgrow and collapse again."""
    extra = [f"/todos/{number}/x" for number in range(100)]
    draft = with_paths(thousand.edit(), extra)

    for path in extra:
        assert draft.delete(path)

    assert draft.finish() == (thousand.root, ())


def test_putting_what_is_there_already_makes_nothing(thousand: Tree) -> None:
    """The same entry is the same bytes."""
    draft = with_paths(thousand.edit(), ordinary(1_000)[:5])

    assert draft.finish() == (thousand.root, ())


def test_removing_what_is_not_there_makes_nothing(thousand: Tree) -> None:
    """Whether the way to it ends at a leaf, at a branch or within a prefix."""
    draft = thousand.edit()

    for path in ["/absent", "/todos/absent", "/todos", "/", ""]:
        assert draft.delete(path) is False

    assert [draft.clear(prefix) for prefix in ["/absent", "/todos/absent", "x"]] == [0, 0, 0]
    assert draft.finish() == (thousand.root, ())


def test_a_draft_is_finished_once(resources: Shelf) -> None:
    """Asking again gives the same answer; changing it afterwards is a mistake of ours."""
    draft = with_paths(resources.tree().edit(), ["/a"])

    made = draft.finish()

    assert draft.finish() is made
    with pytest.raises(AssertionError):
        draft.put(entry("/b"))


def test_new_nodes_come_children_first_and_once_each(resources: Shelf, thousand: Tree) -> None:
    """Forty puts meet in few nodes; each is made once, and refers only to what came before or was there."""
    known = set(resources.bodies)

    root, objects = with_paths(thousand.edit(), [f"/todos/1/{number}" for number in range(40)]).finish()

    for thing in objects:
        assert thing.digest not in known
        assert known.issuperset(refs(thing.body)[0])
        known.add(thing.digest)
    assert objects[-1].digest == root
    assert len(objects) < 20


def test_only_nodes_of_the_last_root_are_kept(resources: Shelf) -> None:
    """What a patch made and then unmade is not stored."""
    draft = with_paths(resources.tree().edit(), ordinary(500))
    draft.clear("")
    draft.put(entry("/a"))

    root, objects = draft.finish()

    assert [thing.digest for thing in objects] == [root]


def test_a_rewritten_node_names_the_one_it_began_as(resources: Shelf, thousand: Tree) -> None:
    """So that an engine may store only the difference."""
    draft = thousand.edit()
    draft.put(entry(ordinary(1_000)[0], 5))

    _, objects = draft.finish()

    assert len(objects) > 2
    assert objects[-1].base == thousand.root
    assert all(thing.base in resources.bodies for thing in objects)


def test_emptying_a_map_leads_back_to_the_empty_root(resources: Shelf, thousand: Tree) -> None:
    """By clearing everything, or by deleting path after path."""
    draft = thousand.edit()

    for path in ordinary(1_000):
        assert draft.delete(path)

    assert draft.finish() == (EMPTY, ())
    cleared = thousand.edit()
    assert (cleared.clear(""), cleared.finish()) == (1_000, (EMPTY, ()))


@pytest.mark.parametrize(
    "prefix", ["/", "/notes/2026/1", "/customers/", "/todos/12", "/memory/a", "/m", "/x"]
)
def test_clear_removes_every_path_that_starts_with_the_bytes(
    resources: Shelf, thousand: Tree, prefix: str
) -> None:
    """Whether they are a subtree, part of a leaf, or end in the middle of a prefix."""
    left = [path for path in ordinary(1_000) if not path.startswith(prefix)]
    draft = thousand.edit()

    removed = draft.clear(prefix)

    assert removed == 1_000 - len(left)
    assert resources.keep(draft.finish()).root == resources.of(left).root


def test_a_path_may_be_the_beginning_of_another(resources: Shelf) -> None:
    """An entry can end where others go on, even at a branch."""
    paths = ["/n" + "/n" * depth + "/" + "x" * 200 for depth in range(15)] + [
        "/n" * depth for depth in range(1, 16)
    ]
    tree = resources.put(resources.tree(), *paths)

    lighter = tree.edit()
    for path in paths[15:]:
        assert lighter.delete(path)

    assert tree.root == resources.of(paths).root
    assert resources.keep(lighter.finish()).root == resources.of(paths[:15]).root


def test_bytes_and_json_stand_side_by_side(resources: Shelf) -> None:
    """Form, media type, size and value come back as they were put."""
    draft = resources.tree().edit()
    draft.put(entry("/a", 3))
    draft.put(blob("/b"))
    draft.put(blob("/a", "text/plain", 0))

    tree = resources.keep(draft.finish())

    assert list(tree.entries()) == [blob("/a", "text/plain", 0), blob("/b")]


@pytest.mark.parametrize("above", ["/", "/some/way/down/"])
@pytest.mark.parametrize("excess", [-1, 0, 1, 2])
def test_the_rule_is_exact_about_its_limit(resources: Shelf, above: str, excess: int) -> None:
    """A set that weighs 2,048 is a leaf and one that weighs 2,049 is not, on the way up and on the way down."""
    beside = [f"/{letter * 300}" for letter in "bcdefghi"]
    family = [above + "n", *(f"{above}n{number:02}{'p' * 80}" for number in range(13))]
    family.append(f"{above}nz".ljust(2_048 + excess - 48 - sum(48 + len(path) for path in family), "z"))
    extra = above + "ny"

    grown = resources.put(resources.tree(), *beside, *family)
    shrunk = resources.put(grown, extra).edit()
    shrunk.delete(extra)

    assert sum(48 + len(path) for path in family) == 2_048 + excess
    assert grown.root == shrunk.finish()[0] == resources.of([*beside, *family]).root
    assert list(check(resources, grown.root)) == []


class TestDepth:
    """More than 64 branches on a path are refused, whichever change would make them."""

    def test_a_put_that_grows_a_leaf_too_deep_is_refused_and_changes_nothing(self, resources: Shelf) -> None:
        """The leaf at the end of 64 branches must not become a branch."""
        full = resources.of(comb(64, width=50))
        draft = full.edit()

        with raises(Invalid, "map_too_deep", limit=64):
            with_paths(draft, comb(70, width=50)[-300:])

        assert list(check(resources, resources.keep(draft.finish()).root)) == []
        assert full.top.height == 64

    def test_a_put_that_pushes_a_subtree_down_is_refused_and_changes_nothing(self, resources: Shelf) -> None:
        """A new fork near the top lengthens every path below it, though the new path itself is short."""
        full = resources.of("/long" + path for path in comb(64, width=50))
        draft = full.edit()

        with raises(Invalid, "map_too_deep", limit=64):
            draft.put(entry("/lo"))

        assert draft.finish() == (full.root, ())

    def test_a_subtree_may_be_pushed_down_as_far_as_it_goes(self, resources: Shelf) -> None:
        """Control: one branch less, and the same put is good."""
        draft = resources.of("/long" + path for path in comb(63, width=50)).edit()

        draft.put(entry("/lo"))

        tree = resources.keep(draft.finish())
        assert (tree.top.height, list(check(resources, tree.root))) == (64, [])

    def test_a_build_too_deep_is_refused(self) -> None:
        """By the same rule as a draft."""
        with raises(Invalid, "map_too_deep", limit=64):
            build(entry(path) for path in comb(65, width=50))

    def test_room_that_was_freed_can_be_used(self, resources: Shelf) -> None:
        """Heights fall when what made them is deleted."""
        draft = resources.of("/long" + path for path in comb(64, width=50)).edit()
        draft.clear("/long/aaaaaaaaaa")

        draft.put(entry("/lo"))

        assert list(check(resources, resources.keep(draft.finish()).root)) == []


@pytest.mark.parametrize(
    ("path", "code"), [("/" + "x" * 512, "path_too_long"), ("/\ud800", "lone_surrogate")]
)
def test_a_path_that_cannot_be_a_key_is_refused(resources: Shelf, path: str, code: str) -> None:
    """Too long, or not text."""
    draft = resources.tree().edit()

    with raises(Invalid, code):
        draft.put(entry(path))


def test_a_draft_whose_repair_could_not_read_is_lost(resources: Shelf) -> None:
    """A caller that catches the error and continues cannot store half a change."""
    tree = resources.of(f"/{part}{'x' * 300}" for part in [*"abcde", *(f"g{at}" for at in range(9))])
    resources.bodies = {
        at: body for at, body in resources.bodies.items() if isinstance(decode(body), BranchNode)
    }
    draft = tree.edit()

    with pytest.raises(NotFound):
        draft.clear("/g")

    for use in (draft.finish, draft.count, lambda: draft.put(entry("/x")), lambda: draft.get("/x")):
        with raises(Unavailable, "draft_lost"):
            use()


def test_a_path_that_comes_twice_is_not_built() -> None:
    """A set of entries holds each path once."""
    with raises(Invalid, "path_repeated", path="/a"):
        build([entry("/a"), entry("/a", 1)])


def histories_agree() -> bool:
    """Whether random histories lead to the same roots as building what is left of them."""
    chance = random.Random(4)
    for _ in range(20):
        resources, held = Shelf(), dict[str, Entry]()
        draft = resources.tree().edit()
        for _ in range(400):
            path = "/" + "/".join(chance.choices(["a", "b", "c" * 80], k=chance.randint(1, 6)))
            held[path] = entry(path, chance.randrange(3))
            draft.put(held[path])
        for path in chance.sample(sorted(held), len(held) * 9 // 10):
            draft.delete(path)
            del held[path]
        if draft.finish()[0] != build(held.values())[0]:
            return False
    return True


def test_random_histories_lead_to_the_root_of_a_build() -> None:
    """The shape does not depend on the order of writes."""
    assert histories_agree()


@pytest.mark.parametrize("step", ["_collapse", "_join"])
def test_a_tree_that_skips_a_repair_would_be_found(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Control: without collapsing light branches, or without joining lone ones, the shape depends on history."""

    def skipped(_draft: MapDraft, node: BranchNode, _above: object) -> Node:
        return node

    monkeypatch.setattr(MapDraft, step, skipped)

    assert not histories_agree()


def put_plainly(tree: Tree, path: str, value: int) -> MapDraft:
    """A draft that has copied the nodes on the path to its change."""
    draft = tree.edit()
    draft.put(entry(path, value))
    return draft


def put_another_value(tree: Tree, path: str, value: int) -> MapDraft:
    """A draft that has been given another value for a path, and has copied nothing yet."""
    draft, new = tree.edit(), entry(path, value)
    assert draft.put_json(path, new.size, new.value) == entry(path).value
    return draft


def made(draft: MapDraft) -> tuple[Digest, list[tuple[Digest, bytes, Digest | None]]]:
    """What a draft makes: the root, and each node with its bytes and what it resembles."""
    root, nodes = draft.finish()
    return root, [(node.digest, node.body, node.base) for node in nodes]


@pytest.mark.parametrize("count", [1, 2, 30, 1_000])
def test_another_value_for_a_path_makes_the_same_nodes_as_copying_them(resources: Shelf, count: int) -> None:
    """The usual change copies no node, and leaves the same bytes, bases included."""
    paths = ordinary(count)
    tree = resources.of(paths)

    for path in random.Random(count).sample(paths, min(count, 20)):
        assert made(put_another_value(tree, path, 7)) == made(put_plainly(tree, path, 7))
        assert put_another_value(tree, path, 0).finish() == (tree.root, ())  # as it was


def test_a_draft_with_another_value_can_be_read_and_changed_again(thousand: Tree) -> None:
    """Then it copies the nodes after all."""
    first, second, third = ordinary(1_000)[:3]
    draft, plain = put_another_value(thousand, first, 7), put_plainly(thousand, first, 7)
    found = draft.get(first), draft.count()

    for each in (draft, plain):
        each.put(entry(second, 8))
        each.delete(third)

    assert found == (entry(first, 7), 1_000)
    assert made(draft) == made(plain)


def shares(node: Object, old: bytes, shared: tuple[int, int] | None) -> bool:
    """True if a node and the bytes that it resembles have so many bytes in common at both ends."""
    assert shared is not None
    head, tail = shared
    ends = len(node.body) - tail, len(old) - tail
    return node.body[:head] == old[:head] and node.body[ends[0] :] == old[ends[1] :] and head <= min(ends)


def test_a_node_says_what_it_shares_with_the_one_before(resources: Shelf, thousand: Tree) -> None:
    """An engine stores only what is between; a wrong number would be read back as other bytes."""
    path = ordinary(1_000)[123]

    _, nodes = put_another_value(thousand, path, 7).finish()

    olds = [resources.bodies[node.base] for node in nodes if node.base is not None]
    assert len(olds) == len(nodes) > 1
    for node, old in zip(nodes, olds, strict=True):
        head, tail = node.shared or (0, 0)
        assert shares(node, old, node.shared)
        assert len(node.body) - head - tail <= 34  # a digest, and the size of a value
        assert not shares(node, old, (head + 3, tail))  # control
        assert not shares(node, old, (head, tail + 3))

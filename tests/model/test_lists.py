"""Long lists by element: the tree is a function of the list, pinned for ever, and hostile bytes are refused."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from perdure.errors import Corrupt
from perdure.model import canonical, lists
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, Object
from perdure.model.lists import LIST_BYTES_MIN, StoredList, build, decode_node
from tests.coded import raises
from tests.crash.campaign import sized

ELEMENTS = sized(6_000, 20_000)


def letters(seed: int, count: int, size: int) -> list[Json]:
    """Strings of about that size."""
    random = Random(seed)
    return [
        "".join(random.choices("abcdefgh ", k=random.randint(size // 2, size * 3 // 2))) for _ in range(count)
    ]


def built(items: list[Json]) -> StoredList:
    """The tree of a long list."""
    tree = build(canonical.encode(items))
    assert tree is not None
    return tree


class Objects(dict[Digest, Object]):
    """Objects in memory, and how many were read."""

    reads = 0

    def fetch(self, digests: Sequence[Digest]) -> Sequence[Object]:
        self.reads += len(digests)
        return [self[digest] for digest in digests]


def test_the_digest_of_a_long_list_is_pinned() -> None:
    """A change of any number of the rule is a new format."""
    counted: list[Json] = list(range(5_000))
    words: list[Json] = [f"{number:04} " + "word " * (number % 90) for number in range(2_000)]

    tops = [built(each).top for each in (counted, words)]

    assert [(top.digest[:16], top.items, top.size) for top in tops] == [
        ("1d97dce57e488e4c", 5_000, 23_890),
        ("796e740aad7f4c42", 2_000, 457_500),
    ]


def test_what_a_piece_and_a_node_are() -> None:
    """A piece has its elements with a comma behind each, a node its height and what is below."""
    items: list[Json] = ["x" * 3_000, {"b": 1, "a": [1.0, None]}, "y" * 3_000]
    tree = built(items)

    pieces = [each for each in tree.objects.values() if each.kind is Kind.VALUE]
    (node,) = [each for each in tree.objects.values() if each.kind is Kind.LIST]

    assert b"".join([each.body for each in pieces]) == canonical.encode(items)[1:-1] + b","
    assert node.body == b"\0" + b"".join(
        [
            bytes.fromhex(each.digest) + count.to_bytes(4, "big") + len(each.body).to_bytes(4, "big")
            for each, count in zip(pieces, [1, 2] if len(pieces) == 2 else [1, 1, 1], strict=True)
        ]
    )
    assert (tree.top.digest, tree.json_bytes) == (node.digest, len(canonical.encode(items)))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("x" * 9_000, id="no list"),
        pytest.param({"list": letters(1, 100, 100)}, id="not the whole value"),
        pytest.param(["x" * 9_000], id="one element"),
        pytest.param(["x" * (LIST_BYTES_MIN - 8), 1], id="short"),
        pytest.param(["x" * lists.ITEM_BYTES_MAX, 1], id="an element too large"),
    ],
)
def test_any_other_value_is_stored_whole(value: Json) -> None:
    """It keeps the digest that it always had."""
    assert build(canonical.encode(value)) is None


def test_the_threshold_is_exact() -> None:
    """From 4,096 bytes on a list is stored by element."""
    assert len(canonical.encode(["x" * (LIST_BYTES_MIN - 6), 1])) == LIST_BYTES_MIN
    assert build(canonical.encode(["x" * (LIST_BYTES_MIN - 6), 1])) is not None


@pytest.mark.parametrize("size", [1, 20, 1_000, 10_000])
def test_an_append_reads_and_makes_one_path(size: int) -> None:
    """The tree is the one that is built from scratch, and only the last nodes and the last piece were read."""
    items = letters(size, max(400, 30_000 // size), size)
    tree = built(items)
    stored = Objects(tree.objects)
    top = tree.top
    for number, item in enumerate(letters(-size, 60, size)):
        items.append(item)
        stored.reads = 0

        longer = lists.append(stored.fetch, stored[top.digest], canonical.encode(item))

        assert longer is not None
        height = stored[top.digest].body[0]
        assert stored.reads == height + 1
        assert len(longer.objects) <= 2 * (height + 2) + 1
        assert number % 6 or longer.top == built(items).top
        stored.update(longer.objects)
        top = longer.top
    assert lists.read(stored.fetch, stored[top.digest]) == canonical.encode(items)


@pytest.mark.parametrize("place", [0, 7, 1_500, 2_999, 3_000])
def test_an_edit_in_any_place_makes_few_objects(place: int) -> None:
    """Pieces behind the edit are the same again, so that they are left out."""
    items = letters(5, 3_000, 200)
    before = built(items)
    stored = Objects(before.objects)
    items.insert(place, "something new")
    after = built(items)

    new = lists.new_objects(stored.fetch, after, stored[before.top.digest])

    assert {each.digest for each in new} == set(after.objects) - set(before.objects)
    assert len(new) <= 12 < len(after.objects) // 20
    assert any([each.base in before.objects for each in new])
    stored.update({each.digest: each for each in new})
    assert lists.read(stored.fetch, stored[after.top.digest]) == canonical.encode(items)


@pytest.mark.parametrize(
    "item", [0, "a", "x" * 600, "y" * 5_000], ids=["number", "letter", "600 bytes", "5,000 bytes"]
)
def test_equal_elements_make_no_deep_tree(item: Json) -> None:
    """A node has at least eight children, unless it is the last, whatever the digests are."""
    tree = built([item] * ELEMENTS)

    assert tree.objects[tree.top.digest].body[0] <= 5
    assert len(tree.objects) < 200
    assert lists.read(Objects(tree.objects).fetch, tree.objects[tree.top.digest]) == canonical.encode(
        [item] * ELEMENTS
    )


def test_what_is_only_between_two_edits_is_left_out() -> None:
    """Of the objects of several versions only those of the last one are needed."""
    one, two = built(letters(1, 200, 100)), built([*letters(1, 200, 100), "more"])

    needed = lists.reachable(two.top.digest, (*one.objects.values(), *two.objects.values()))

    assert {each.digest for each in needed} == set(two.objects)


NODE = next(each for each in built(letters(2, 3_000, 100)).objects.values() if each.kind is Kind.LIST).body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        NODE[:1],
        NODE[:-1],
        NODE + b"\0",
        b"\xff" + NODE[1:],
        NODE[:33] + bytes(4) + NODE[37:],
        NODE[:37] + bytes(4) + NODE[41:],
        NODE[:1] + NODE[1:41] * 129,
    ],
)
def test_bytes_that_are_no_list_node_are_refused(body: bytes) -> None:
    """Before anything that they name is read."""
    assert decode_node(NODE).children
    with raises(Corrupt, "list_unsound"):
        decode_node(body)


def altered(tree: StoredList, kind: Kind, old: bytes, new: bytes) -> tuple[Objects, Digest]:
    """A tree in which an object has other bytes and all above it name its new digest, so that every hash is right."""
    objects = Objects(tree.objects)
    found = next(each for each in tree.objects.values() if each.kind is kind and old in each.body)
    changed = Object.of(kind, found.body.replace(old, new, 1))
    while found.digest != tree.top.digest:
        objects[changed.digest] = changed
        was, now = bytes.fromhex(found.digest), bytes.fromhex(changed.digest)
        found = next(each for each in tree.objects.values() if each.kind is Kind.LIST and was in each.body)
        changed = Object.of(Kind.LIST, found.body.replace(was, now))
    objects[changed.digest] = changed
    return objects, changed.digest


def test_a_tree_whose_hashes_are_right_and_whose_counts_are_not_is_refused() -> None:
    """Elements and bytes are counted again at every level, and a piece must be elements."""
    tree = built([f"item {number} " + "x" * 100 for number in range(3_000)])
    (first, *_), top = tree.objects.values(), tree.objects[tree.top.digest]
    child, below = bytes.fromhex(first.digest), decode_node(top.body).children[0]
    counts = below.items.to_bytes(4, "big"), below.size.to_bytes(4, "big")
    assert top.body[0] == 1
    for kind, old, new in [
        (Kind.VALUE, b'x","item', b'x"."item'),  # two elements become none
        (Kind.VALUE, b'x","item', b'x\\",item'),  # two become one
        (Kind.VALUE, b"item 0 x", b"item 0 xx"),
        (Kind.VALUE, b'x",', b'x"]'),
        (Kind.LIST, child, bytes.fromhex(top.digest)),  # a node in the place of a piece
        (Kind.LIST, bytes.fromhex(below.digest), child),  # a piece in the place of a node
        (Kind.LIST, b"".join(counts), (below.items + 1).to_bytes(4, "big") + counts[1]),
        (Kind.LIST, b"".join(counts), counts[0] + (below.size + 1).to_bytes(4, "big")),
    ]:
        objects, digest = altered(tree, kind, old, new)
        with raises(Corrupt, "list_unsound"):
            lists.read(objects.fetch, objects[digest])

    objects, digest = altered(tree, Kind.VALUE, b"item 0 x", b"item 1 x")
    assert lists.read(objects.fetch, objects[digest]).startswith(b'["item 1 x')


def test_an_append_refuses_a_node_that_goes_on_after_its_end() -> None:
    """Its hash and its counts are right, but no list has this tree: a second child would have to be in another node."""
    tree = built(letters(3, ELEMENTS, 300))
    level = [each.body for each in tree.objects.values() if each.kind is Kind.LIST and each.body[0] == 0]
    first = next(body for body in level if 8 * 40 < len(body) < 128 * 40 and body[-40] < 8)
    joined = Object.of(Kind.LIST, first + first[1:41])
    objects = Objects({**tree.objects, joined.digest: joined})

    with raises(Corrupt, "list_unsound"):
        lists.append(objects.fetch, joined, b'"x"')
    sound = Object.of(Kind.LIST, first)
    assert lists.append(objects.fetch, sound, b'"x"') is not None

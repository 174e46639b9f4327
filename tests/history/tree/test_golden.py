"""Digests of known maps.

They are stored in every commit: if one of these changes, the stores that exist do not verify any more.
"""

from __future__ import annotations

from perdure.history.tree import EMPTY, build
from tests.history.tree.maps import Shelf, blob, entry


def test_the_root_of_the_empty_map_is_pinned() -> None:
    """Every new thread starts from it, and it is never stored."""
    assert EMPTY == "9bcb7625e32fb6838f4356b301916693a852ce2cb5c9633da61bf48467be54bb"
    assert build(()) == (EMPTY, ())


def test_the_root_and_the_bytes_of_a_small_map_are_pinned() -> None:
    """Three entries, one of them bytes, are one leaf."""
    root, (leaf,) = build([entry("/todos.json"), entry("/notes/2026/a", 7), blob("/photo")])

    assert root == leaf.digest == "2dc7249457952b48039a573931c13e9c5a78b33a21b9a612041ff60642684500"
    assert leaf.body == (
        bytes.fromhex("1003")
        + (b"\x0d/notes/2026/a" + bytes.fromhex("960e" + entry("", 7).value))
        + (b"\x06/photo" + bytes.fromhex("e1c508") + b"\x09image/png" + bytes.fromhex(blob("").value))
        + (b"\x0b/todos.json" + bytes.fromhex("880e" + entry("").value))
    )


def test_the_root_of_a_map_with_branches_is_pinned() -> None:
    """Five hundred entries take branches on many levels, and some end where others go on."""
    notes = [f"/notes/2026/{number % 12 + 1:02}/{number * 37}.json" for number in range(466)]
    chain = ["/" + "n" * length for length in range(1, 101, 3)]

    root, objects = build(entry(path, at) for at, path in enumerate([*notes, *chain]))

    assert root == "fd1d272321b1580d4c6aa79e18bc39e462756821f00ab4ea16457d35f929e42a"
    assert (len(objects), sum(len(thing.body) for thing in objects)) == (143, 27_190)
    assert Shelf().keep((root, objects)).top.height == 18

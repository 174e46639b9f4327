"""Digests of known maps.

They are stored in every commit: if one of these changes, the stores that exist do not verify any more.
"""

from __future__ import annotations

from perdure.history.tree import EMPTY, build
from tests.unit.history.tree.maps import Shelf, blob, entry


def test_the_root_of_the_empty_map_is_pinned() -> None:
    """Every new thread starts from it, and it is never stored."""
    assert EMPTY == "9330733a7e94770afa55d5732e223548ee6c94c309fcf9c2e5c8bef5ad0834e2"
    assert build(()) == (EMPTY, ())


def test_the_root_and_the_bytes_of_a_small_map_are_pinned() -> None:
    """Three entries, one of them bytes, are one leaf."""
    root, (leaf,) = build([entry("/todos.json"), entry("/notes/2026/a", 7), blob("/photo")])

    assert root == leaf.digest == "fb6024ffd97d34a963da0a5ced7022f0d9d3ae1b3c2698a9d2d8da750244813b"
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

    assert root == "ecded9dd59868b235bb1ccf24392d32bd61a3ab1f7cf56b86d4c3fb947ae1dbe"
    assert (len(objects), sum(len(thing.body) for thing in objects)) == (143, 27_190)
    assert Shelf().keep((root, objects)).top.height == 18

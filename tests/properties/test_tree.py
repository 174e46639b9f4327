"""The versioned map against a dictionary, over random histories and hostile bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from perdure.errors import Corrupt, PerdureError
from perdure.history.tree import (
    Entry,
    MapDraft,
    PathChange,
    Tree,
    build,
    check,
    diff,
    encoding,
    merge3,
    reachable,
)
from perdure.history.tree.encoding import decode, encode
from tests.history.tree.maps import Shelf, blob, entry, ordinary

DEEP = bool(os.environ.get("PERDURE_DEEP"))

Model: TypeAlias = dict[str, Entry]
Op: TypeAlias = tuple[str, str, int]

# Long keys are heavy, so that few paths reach every shape: about 17 of the base fill a leaf.
BASE = [f"/{branch}/{'p' * 60}{number:02}" for branch in ("a", "ab", "é") for number in range(30)]
SEGMENTS = st.sampled_from(["a", "b", "ab", "/", "é", "\U0001f600", "0", "x" * 90, "x" * 89 + "y"])
NEAR = st.sampled_from(BASE)
PATHS = (
    NEAR
    | st.tuples(NEAR, st.integers(1, 66)).map(lambda cut: cut[0][: cut[1]])
    | st.tuples(NEAR, SEGMENTS).map("".join)
    | st.lists(SEGMENTS, max_size=5).map("".join)
)
OPS = st.tuples(st.sampled_from(["put", "put", "delete", "clear"]), PATHS, st.integers(0, 3))
PATCHES = st.lists(OPS, max_size=30)
HISTORIES = st.lists(PATCHES, min_size=1, max_size=5)
MODELS = st.tuples(st.dictionaries(PATHS, st.integers(0, 2), max_size=30), st.sampled_from([0, 20, 90])).map(
    lambda drawn: {path: entry(path, drawn[0].get(path, 0)) for path in [*drawn[0], *BASE[: drawn[1]]]}
)


def ordered(model: Model) -> list[Entry]:
    """The entries of a model in the order of the map."""
    return [model[path] for path in sorted(model, key=str.encode)]


def apply(draft: MapDraft, model: Model, op: Op) -> None:
    """Do the same to both, and compare what they answer."""
    verb, path, value = op
    if verb == "put":
        model[path] = blob(path) if value == 3 else entry(path, value)
        draft.put(model[path])
    elif verb == "delete":
        assert draft.delete(path) is (model.pop(path, None) is not None)
    else:
        gone = [held for held in model if held.startswith(path)]
        assert draft.clear(path) == len(gone)
        for held in gone:
            del model[held]


def differences(before: Model, after: Model) -> list[PathChange]:
    """What leads from one model to the other."""
    paths = sorted(before.keys() | after.keys(), key=str.encode)
    found = [PathChange(path, before.get(path), after.get(path)) for path in paths]
    return [change for change in found if change.before != change.after]


def follow(model: Model, history: Iterable[Iterable[Op]]) -> None:
    """Apply patch after patch to `model` and to a map of it; both must agree after each."""
    resources = Shelf()
    tree = resources.keep(build(model.values()))
    for patch in history:
        draft = tree.edit()
        for op in patch:
            apply(draft, model, op)
        assert list(draft.entries()) == ordered(model)

        root, objects = draft.finish()
        tree = resources.keep((root, objects))

        assert root == build(model.values())[0]
        assert {thing.digest for thing in objects} <= set(reachable(resources, root))
        assert list(check(resources, root)) == []


@given(MODELS, HISTORIES)
def test_any_history_leads_to_the_root_of_its_content(model: Model, history: list[list[Op]]) -> None:
    """Patch after patch, what is stored is what a build of the same entries would store."""
    follow(model, history)


@pytest.mark.parametrize("seed", range(300 if DEEP else 10))
def test_long_histories_lead_to_the_root_of_their_content(seed: int) -> None:
    """The same over hundreds of changes, on keys that share much."""
    chance = random.Random(seed)
    letters = chance.choice(["a", "ab", "abcdefgh", "/ab\u00e9\U0001f600"])

    def path() -> str:
        return "".join(chance.choices(letters, k=chance.choice([0, 1, 3, 5, 10, 40])))

    def op() -> Op:
        verb = chance.choices(["put", "delete", "clear"], [14, 4, 1])[0]
        return verb, path()[: 4 if verb == "clear" else None], chance.randrange(4)

    follow({}, ([op() for _ in range(chance.choice([1, 1, 5, 80]))] for _ in range(40)))


@given(MODELS, st.randoms(use_true_random=False))
def test_the_order_of_writes_leaves_no_trace(model: Model, chance: object) -> None:
    """Two orders of the same puts make the same nodes."""
    shuffled = list(model.values())
    chance.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue]
    draft = Shelf().tree().edit()

    for held in shuffled:
        draft.put(held)

    assert draft.finish()[0] == build(model.values())[0]


@given(MODELS, PATHS, st.none() | PATHS)
def test_reading_a_map_is_reading_a_dictionary(model: Model, prefix: str, after: str | None) -> None:
    """One path, many, all below a prefix, and all after a path."""
    resources = Shelf()
    tree = resources.keep(build(model.values()))
    below = [held for held in ordered(model) if held.path.startswith(prefix)]
    rest = [held for held in below if after is None or held.path.encode() > after.encode()]

    assert list(tree.entries(prefix, after=after)) == rest
    assert tree.count(prefix) == len(below)
    assert tree.get(prefix) == model.get(prefix)
    assert tree.get_many([*model, prefix]) == model


@given(MODELS, PATCHES, PATHS)
def test_comparing_maps_is_comparing_dictionaries(model: Model, patch: Sequence[Op], prefix: str) -> None:
    """In both directions, whole or below a prefix."""
    resources, later = Shelf(), dict(model)
    tree = resources.keep(build(model.values()))
    draft = tree.edit()
    for op in patch:
        apply(draft, later, op)
    after = resources.keep(draft.finish())

    assert list(diff(tree, after)) == differences(model, later)
    assert list(diff(after, tree)) == differences(later, model)
    assert list(diff(tree, after, prefix)) == [
        change for change in differences(model, later) if change.path.startswith(prefix)
    ]


@given(MODELS, MODELS)
def test_maps_without_a_common_past_compare_alike(one: Model, other: Model) -> None:
    """A comparison needs no history."""
    resources = Shelf()

    found = diff(resources.keep(build(one.values())), resources.keep(build(other.values())))

    assert list(found) == differences(one, other)


@given(MODELS, PATCHES, PATCHES)
def test_merging_maps_is_merging_dictionaries(model: Model, mine: Sequence[Op], yours: Sequence[Op]) -> None:
    """Every path that they changed is told, with what all three sides hold."""
    resources = Shelf()
    base = resources.keep(build(model.values()))
    sides: list[tuple[Tree, Model]] = []
    for patch in (mine, yours):
        draft, side = base.edit(), dict(model)
        for op in patch:
            apply(draft, side, op)
        sides.append((resources.keep(draft.finish()), side))
    (ours, our_model), (theirs, their_model) = sides

    met = list(merge3(base, ours, theirs))

    assert [(m.path, m.base, m.theirs) for m in met] == [
        (change.path, change.before, change.after) for change in differences(model, their_model)
    ]
    for meeting in met:
        expected = our_model.get(meeting.path)
        assert meeting.ours == expected
        assert (meeting.verdict == "taken") is (expected == meeting.base)
        assert (meeting.verdict == "conflict") is (expected not in (meeting.base, meeting.theirs))


def node_bodies() -> list[bytes]:
    """Bodies of leaves and branches of every kind."""
    held = [entry(path) for path in ordinary(200)] + [blob("/n" * depth) for depth in range(40)]
    _, objects = build(held)
    return [thing.body for thing in objects]


BODIES = node_bodies()


@given(st.sampled_from(BODIES), st.data())
def test_altered_bytes_are_corrupt_or_another_node(body: bytes, data: st.DataObject) -> None:
    """There is no third outcome: what decodes encodes to exactly what was read."""
    start = data.draw(st.integers(0, len(body)))
    length = data.draw(st.integers(0, 3))
    altered = body[:start] + data.draw(st.binary(max_size=3)) + body[start + length :]
    assume(altered != body)

    try:
        node = decode(altered)
    except Corrupt:
        return

    assert encode(node) == altered


@given(st.sampled_from([b"", b"\x10", b"\x11"]), st.binary(max_size=200))
@example(b"\x10", b"\xff" * 9)
def test_any_bytes_are_corrupt_or_a_node(head: bytes, rest: bytes) -> None:
    """Arbitrary bytes raise one kind of error."""
    try:
        node = decode(head + rest)
    except Corrupt:
        return

    assert encode(node) == head + rest


@given(st.data())
def test_a_map_with_altered_nodes_fails_only_by_our_errors(data: st.DataObject) -> None:
    """A store that does not check digests cannot make the tree loop, crash or lie about its shape."""
    resources = Shelf()
    tree = resources.of(ordinary(300))
    digest = data.draw(st.sampled_from(sorted(resources.bodies)))
    body = resources.bodies[digest]
    at = data.draw(st.integers(0, len(body) - 1))
    resources.bodies[digest] = body[:at] + data.draw(st.binary(min_size=1, max_size=1)) + body[at + 1 :]

    def changes() -> None:
        draft = tree.edit()
        draft.put(entry("/notes/2026/1"))
        draft.delete(ordinary(300)[0])
        draft.clear(data.draw(st.sampled_from(["/notes/2026/0", "/todos/", "/memory/a", "/c"])))
        draft.finish()

    with suppress(PerdureError):
        changes()
    try:
        found = list(tree.entries())
    except PerdureError:
        assert list(check(resources, tree.root)) != []
    else:
        assert len(found) == 300


@pytest.mark.parametrize("body", BODIES[:20])
def test_the_fuzz_would_see_a_careless_decoder(body: bytes) -> None:
    """Control: one that ignores what follows a node gives back other bytes than it read."""
    altered = body + b"\x00"

    careless, _ = encoding._decode(altered)

    assert encode(careless) != altered
    with pytest.raises(Corrupt):
        decode(altered)

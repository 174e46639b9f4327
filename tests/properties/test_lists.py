"""Long lists against Python's lists, over random histories: the stored tree depends on the content alone."""

from __future__ import annotations

import os
from random import Random
from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.history import reader
from perdure.history.changes.patch_builder import Ops
from perdure.history.verify import verify
from perdure.history.writer import Proposal, commit
from perdure.model import canonical
from perdure.model.canonical import Json
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.lists import build
from tests.history.hand import Hand

DEEP = bool(os.environ.get("PERDURE_DEEP"))

Act: TypeAlias = tuple[str, int, int]

# The size of elements decides how many make a piece: from hundreds down to less than one.
SIZES = [60, 0, 3, 700, 5_000]
LISTS = st.tuples(
    st.sampled_from(
        [(400, 60), (50, 700), (12, 5_000), (3_000, 3), (2_000, 0), (60, 60), (1, 5_000), (0, 0)]
    ),
    st.integers(0, 3),
).map(lambda drawn: (*drawn[0], drawn[1]))
ACTS = st.tuples(
    st.sampled_from(
        ["appends", "append", "appends", "insert", "set", "unset", "remove", "put", "cut", "other"]
    ),
    st.integers(0, 10_000),
    st.integers(0, 50),
)
HISTORIES = st.lists(st.lists(ACTS, min_size=2, max_size=6), min_size=2, max_size=8 if DEEP else 4)


def element(random: Random, size: int) -> Json:
    """An element of about that size; small ones are often equal."""
    kind = random.randrange(4)
    if kind == 0:
        return random.randrange(3)
    text = random.choice("ab") * random.randint(0, size) + str(random.randrange(50))
    return text if kind < 3 else {"text": text, "n": [1.0, None, True]}


def elements(drawn: tuple[int, int, int]) -> list[Json]:
    """So many elements of that size, of that seed."""
    count, size, seed = drawn
    random = Random(seed)
    return [element(random, size) for _ in range(count)]


def act(ops: Ops, model: list[Json], drawn: Act) -> list[Json]:
    """Do the same to both; return the model."""
    verb, place, seed = drawn
    new = element(Random(seed), SIZES[seed % len(SIZES)])
    at = place % (len(model) or 1)
    if verb == "appends":
        for _ in range(3):
            model = act(ops, model, ("append", place, seed))
        return model
    if verb == "append" or (not model and verb in ("set", "unset", "remove")):
        ops.edit("/m", "append", (), new)
        return [*model, new]
    if verb == "insert":
        ops.edit("/m", "insert", (at,), new)
        return [*model[:at], new, *model[at:]]
    if verb == "set":
        ops.edit("/m", "set", (at,), new)
        return [*model[:at], new, *model[at + 1 :]]
    if verb in ("unset", "remove"):
        if verb == "remove":
            at = next(
                i for i, each in enumerate(model) if canonical.encode(each) == canonical.encode(model[at])
            )
        ops.edit("/m", verb, *(((at,), None) if verb == "unset" else ((), model[at])))  # pyright: ignore[reportArgumentType]
        return [*model[:at], *model[at + 1 :]]
    model = {"put": [*model, new, *model[:at]], "cut": model[at:], "other": elements((at, 60, seed))}[verb]
    ops.put("/m", model)
    return model


def address(model: list[Json]) -> Digest:
    """What the map names for this list, from scratch."""
    body = canonical.encode(model)
    tree = build(body)
    return digest_of(Kind.VALUE, body) if tree is None else tree.top.digest


def committed(hand: Hand, ops: Ops) -> None:
    """Commit the ops."""
    patched = ops.finish()
    proposal = Proposal(
        reason="by hand", root=patched.root, patch=patched.patch, objects=patched.objects, cells=patched.cells
    )
    commit(hand.space, hand.head(), proposal, op_id=hand.space.ids())


@settings(max_examples=400 if DEEP else 20, deadline=None)
@given(begun=LISTS, history=HISTORIES)
def test_the_stored_tree_is_the_one_that_is_built_from_scratch(
    begun: tuple[int, int, int], history: list[list[Act]]
) -> None:
    """Whatever the edits that led to a list: same digest, same size, all of it readable, and every commit verifies."""
    hand = Hand()
    model = elements(begun)
    hand.write({"/m": model})
    for step in history:
        ops = Ops(hand.space, hand.space.root_at(hand.head().commit))
        for drawn in step:
            model = act(ops, model, drawn)
            assert ops.value("/m") == model
        committed(hand, ops)

        entry = reader.entry_at(hand.space, hand.head().commit, "/m")
        assert (entry.value, entry.size) == (address(model), len(canonical.encode(model)))
        assert hand.get("/m") == model
    report = verify(hand.engine)
    assert report.ok, [str(fault) for fault in report.faults]


@settings(max_examples=200 if DEEP else 20, deadline=None)
@given(begun=LISTS, history=HISTORIES)
def test_a_write_has_nothing_that_no_list_needs(
    begun: tuple[int, int, int], history: list[list[Act]]
) -> None:
    """Every list node that is stored is part of a list that a commit has, or that a put or an argument names."""
    hand = Hand()
    model = elements(begun)
    hand.write({"/m": model})
    needed = named(model)
    for step in history:
        ops = Ops(hand.space, hand.space.root_at(hand.head().commit))
        for drawn in step:
            model = act(ops, model, drawn)
            needed |= named(model) if drawn[0] in ("put", "cut", "other") else set()
        committed(hand, ops)
        needed |= named(model)

    stored = {
        fact.digest for fact in hand.engine.scan(hand.space.name, limit=99_999)[0] if fact.kind == "list"
    }
    assert stored <= needed


def named(model: list[Json]) -> set[Digest]:
    """The list nodes of a list."""
    tree = build(canonical.encode(model))
    return (
        set() if tree is None else {each.digest for each in tree.objects.values() if each.kind is Kind.LIST}
    )

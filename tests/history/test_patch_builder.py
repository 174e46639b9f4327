"""From ops to a patch, and back: the same root from the recorded digests alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Invalid, NotFound
from perdure.history.changes import patch_builder, values
from perdure.history.changes.patch_builder import Ops
from perdure.history.tree import EMPTY
from perdure.model.digest import Digest, Kind
from perdure.model.limits import Limits
from perdure.model.patch import Edit
from tests.coded import raises
from tests.history.hand import Hand


@pytest.fixture
def hand() -> Hand:
    """A space with a few paths at its head."""
    hand = Hand(limits=Limits(value_bytes_max=1_000))
    hand.write({"/a": {"n": 1}, "/a/b": [1], "/a/b/c": 3, "/ab": 4, "/__run/x": 5, "/bytes": b"\x00"})
    return hand


def ops_of(hand: Hand) -> Ops:
    """Ops on the head's map."""
    return Ops(hand.space, hand.space.root_at(hand.head().commit))


def test_clear_covers_the_path_and_what_is_below(hand: Hand) -> None:
    """'/a' covers '/a' and '/a/…' and not '/ab'; '/a/' only what is below; '/' everything."""
    found: dict[str, list[str]] = {}
    for prefix in ("/a", "/a/", "/a/b", "/none", "/"):
        ops = ops_of(hand)
        ops.clear(prefix)
        found[prefix] = ops.paths("/")

    assert found == {
        "/a": ["/__run/x", "/ab", "/bytes"],
        "/a/": ["/__run/x", "/a", "/ab", "/bytes"],
        "/a/b": ["/__run/x", "/a", "/ab", "/bytes"],
        "/none": ["/__run/x", "/a", "/a/b", "/a/b/c", "/ab", "/bytes"],
        "/": [],
    }


def test_replace_spares_the_kernel_and_what_is_kept(hand: Hand) -> None:
    """Everything else goes, and the new entries come."""
    ops = ops_of(hand)

    ops.replace({"/new": 1}, keep=["/a/b"])

    assert ops.paths("/") == ["/__run/x", "/a/b", "/a/b/c", "/new"]


@pytest.mark.parametrize("path", ["/__run/y", "/__kernel/y", "/__tool_call_scope/y", "/keep", "/keep/y"])
def test_replace_refuses_what_it_leaves_alone(hand: Hand, path: str) -> None:
    """An entry under a prefix that is left alone cannot be given."""
    ops = ops_of(hand)

    with raises(Invalid, "path_kept_by_replace", path=path):
        ops.replace({path: 1}, keep=["/keep"])

    assert not ops
    assert len(ops.paths("/")) == 6


def test_deleting_what_is_absent_is_not_found(hand: Hand) -> None:
    """A failing op fails, also for what the patch itself has deleted."""
    ops = ops_of(hand)
    ops.delete("/ab")

    with raises(NotFound, "path_not_found", path="/ab"):
        ops.delete("/ab")
    with raises(NotFound, "document_not_found", path="/ab"):
        ops.edit("/ab", "set", (), 1)
    with raises(Invalid, "value_not_document", path="/bytes"):
        ops.edit("/bytes", "set", (), 1)


def test_a_new_value_names_the_one_it_takes_the_place_of(hand: Hand) -> None:
    """An engine may store it as a difference; through several edits it is the stored one that counts."""
    before = hand.space.tree_at(hand.head().commit).get("/a")
    assert before is not None
    ops = ops_of(hand)
    ops.edit("/a", "increment", ("n",), 1)
    ops.edit("/a", "increment", ("n",), 1)

    objects = ops.finish().objects

    (value,) = [each for each in objects if each.body == b'{"n":3}']
    assert value.base == before.value


def test_documents_between_two_ops_are_not_stored(hand: Hand) -> None:
    """Only what the last root reaches, and what the ops themselves name, is written."""
    ops = ops_of(hand)
    for number in range(5):
        ops.edit("/a/b", "append", (), f"item {number}")
    ops.edit("/a", "set", ("n",), 2)
    ops.clear("/a/b")

    bodies = {each.body for each in ops.finish().objects if each.kind is Kind.VALUE}

    assert bodies == {*(f'"item {number}"'.encode() for number in range(5)), b'{"n":2}', b"2"}


def test_only_nodes_of_the_last_root_are_stored(hand: Hand) -> None:
    """However many ops there are, the new nodes are those of the final map."""
    ops = Ops(hand.space, EMPTY)
    for number in range(50):
        ops.put("/same", number)

    nodes = [each for each in ops.finish().objects if each.kind is Kind.NODE]

    assert len(nodes) == 1


def test_a_large_value_is_an_artifact_and_read_as_a_value(hand: Hand) -> None:
    """JSON stays JSON and bytes stay bytes."""
    document, blob = ["x" * 2_000], b"y" * 2_000
    hand.write({"/large.json": document, "/large": blob})

    entry = hand.space.tree_at(hand.head().commit).get("/large.json")
    assert entry is not None
    assert hand.get("/large.json") == document
    assert hand.get("/large") == blob
    assert (entry.form, entry.size) == ("json", 2_004)
    assert hand.space.engine.objects(hand.space.name, (entry.value,))[0].kind is Kind.ARTIFACT


def test_replay_makes_the_same_root_without_any_value(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree part of a patch needs recorded digests only."""
    start = hand.space.root_at(hand.head().commit)
    ops = Ops(hand.space, start)
    ops.put("/a/b", "new")
    ops.edit("/a", "set", ("n",), 2)
    ops.delete("/ab")
    ops.replace({"/z": 1}, keep=["/a"])
    ops.clear("/a/b")
    patched = ops.finish()

    monkeypatch.setattr(values, "read_bytes", lambda *_: pytest.fail("a value was read"))

    assert patch_builder.replay(hand.space, start, patched.patch)[0] == patched.root
    with pytest.raises(NotFound):
        patch_builder.replay(hand.space, EMPTY, patched.patch)


def test_document_ops_are_run_again(hand: Hand) -> None:
    """A recorded digest that the op does not leave is a fault; one that it leaves is none."""
    start = hand.space.root_at(hand.head().commit)
    hand.write(
        edit=[("/a", "set", ("n",), 2), ("/a", "increment", ("n",), 5), ("/a/b", "append", (), "x" * 2_000)]
    )
    commit = hand.head().commit
    assert commit is not None
    patch = hand.space.step(commit).changeset.patch

    assert patch_builder.document_faults(hand.space, start, patch) == []
    edits = [op for op in patch.ops if isinstance(op, Edit)]
    for number, edit in enumerate(edits):
        wrong = msgspec.structs.replace(edit, leaves=Digest("0" * 64))
        ops = (*edits[:number], wrong, *edits[number + 1 :])
        faults = patch_builder.document_faults(hand.space, start, msgspec.structs.replace(patch, ops=ops))
        assert bool(faults) == (number < 2), "a large document that is not kept cannot be compared"


PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/ab", "/b/c", "/__run/x"])
VALUES: st.SearchStrategy[Any] = st.sampled_from([0, [1], {"n": 1}, "x" * 80])
OPS = st.lists(
    st.tuples(st.just("put"), PATHS, VALUES)
    | st.tuples(st.just("delete"), PATHS, st.none())
    | st.tuples(st.just("clear"), PATHS, st.none())
    | st.tuples(st.just("append"), PATHS, VALUES)
    | st.tuples(st.just("replace"), PATHS, VALUES),
    max_size=12,
)


@given(OPS)
def test_replay_agrees_with_the_ops_and_with_a_dictionary(steps: list[tuple[str, str, Any]]) -> None:
    """Whatever the ops: what they see is what a dictionary would hold, and the patch leads to the same root."""
    hand = Hand()
    ops = Ops(hand.space, EMPTY)
    model: dict[str, Any] = {}
    for verb, path, value in steps:
        expected = act_on(model, verb, path, value)
        try:
            act(ops, verb, path, value)
        except (Invalid, NotFound):
            assert expected is None
        else:
            assert expected is not None
            model = expected
        assert {each: ops.value(each) for each in ops.paths("/")} == model
    patched = ops.finish()

    assert patch_builder.replay(hand.space, EMPTY, patched.patch)[0] == patched.root


def act(ops: Ops, verb: str, path: str, value: Any) -> None:
    """One op."""
    match verb:
        case "put":
            ops.put(path, value)
        case "delete":
            ops.delete(path)
        case "clear":
            ops.clear(path)
        case "append":
            ops.edit(path, "append", (), value)
        case _:
            ops.replace({path: value})


def act_on(model: dict[str, Any], verb: str, path: str, value: Any) -> dict[str, Any] | None:
    """What it makes of a dictionary; None if it does not fit."""
    match verb:
        case "put":
            return model | {path: value}
        case "delete":
            return {key: item for key, item in model.items() if key != path} if path in model else None
        case "clear":
            return {
                key: item for key, item in model.items() if key != path and not key.startswith(path + "/")
            }
        case "append":
            held = model.get(path)
            return model | {path: [*held, value]} if isinstance(held, list) else None
        case _:
            if path.startswith("/__run"):
                return None
            return {key: item for key, item in model.items() if key.startswith("/__run")} | {path: value}

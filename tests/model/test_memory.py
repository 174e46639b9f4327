"""Items, versions and references of memory as plain values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import Corrupt, Invalid, PerdureError
from perdure.model import canonical, names
from perdure.model.digest import Digest, Kind, digest_of
from perdure.model.memory import (
    MemoryChange,
    MemoryItem,
    Reference,
    Remembering,
    Source,
    Version,
    decode_item,
    decode_remembering,
    decode_version,
    parse_memory_reference,
    parse_version_path,
    version_path,
)
from tests.coded import raises

ONE = Digest("1" * 64)
ITEM = MemoryItem(text="aisle", trust="user", at=1)


def test_the_digest_of_a_version_is_pinned() -> None:
    """What is stored once stays what it is."""
    version = Version(
        item=MemoryItem(text="aisle", trust="model", at=5, kind="preference", scope="project", expires_at=9),
        source=Source(space="thread:x", thread="t1", commit=ONE, run="r", call="c", agent="planner"),
    )

    body = canonical.encode_struct(version)

    assert body == (
        b'{"item":{"at":5,"expires_at":9,"kind":"preference","scope":"project","text":"aisle","trust":"model"},'
        b'"source":{"agent":"planner","call":"c","commit":"' + b"1" * 64 + b'","run":"r",'
        b'"space":"thread:x","thread":"t1"}}'
    )
    assert digest_of(Kind.VALUE, body) == "245c0c33cfb776de64546d2e8b8e7634bae9e21305aefc17807a4c1d701ebef7"
    assert decode_version(body) == version


def test_what_is_left_out_is_what_it_is_by_default() -> None:
    """The shortest bytes read as an ordinary item."""
    assert decode_item(b'{"at":1,"text":"aisle","trust":"user"}') == ITEM
    assert decode_version(b"{}") == Version()
    assert decode_remembering(b"{}") == Remembering()


def test_what_a_call_did_comes_back_from_its_bytes() -> None:
    """Items written, items forgotten, and the root that was looked at."""
    did = Remembering(written=(MemoryChange(id="a", item=ITEM), MemoryChange(id="b")), root=ONE)

    assert decode_remembering(canonical.encode_struct(did)) == did


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"item":{"text":5}}', b"\xff"])
def test_what_cannot_be_read_is_corrupt(body: bytes) -> None:
    """Never a guess."""
    with raises(Corrupt, "record_unreadable", what="item of memory"):
        decode_version(body)


def test_versions_lie_in_the_order_in_which_they_came() -> None:
    """Depth first, then the place in the commit; the path leads back to both."""
    paths = [version_path("a", depth, place) for depth in (0, 9, 10, 123_456) for place in (0, 1, 10, 1_000)]

    assert paths == sorted(paths)
    assert [parse_version_path(path) for path in paths[::4]] == [
        ("a", 0),
        ("a", 9),
        ("a", 10),
        ("a", 123_456),
    ]
    assert all(names.check_path(path) for path in paths)
    with pytest.raises(Corrupt):
        parse_version_path("/items/a/b")


@given(st.text(min_size=1, max_size=40))
def test_a_reference_reads_back_as_what_it_was_written_for(owner: str) -> None:
    """Whatever an owner is called."""
    try:
        names.check_id("owner", owner)
    except PerdureError:
        return
    reference = Reference("project", owner, "state-model", ONE)

    assert parse_memory_reference(str(reference)) == reference


def test_the_seed_s_own_reference_is_one() -> None:
    """`mem://project/joch/state-model`, without a commit: as it is now."""
    assert parse_memory_reference("mem://project/joch/state-model") == Reference(
        "project", "joch", "state-model"
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("mem://project/joch", "reference_invalid"),
        ("mem://project/joch/a/b", "reference_invalid"),
        ("mem://Project/joch/a", "scope_invalid"),
        ("mem://project/joch/a@xyz", "reference_invalid"),
        ("mem://project/joch/a@1234", "digest_invalid"),
        ("mem:///joch/a", "reference_invalid"),
        ("artifact://sha256/" + "0" * 64, "reference_invalid"),
        ("https://example.org/a/b", "reference_invalid"),
        ("mem://project/%00/a", "unseen_character"),
        (5, "reference_invalid"),
    ],
)
def test_what_is_no_reference_is_refused(text: Any, code: str) -> None:
    """Nothing is looked up."""
    with raises(Invalid, code):
        parse_memory_reference(text)

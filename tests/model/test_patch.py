"""Patches: read back as they were, and refused where a newer Perdure may have meant something else."""

from __future__ import annotations

import pytest

from perdure.errors import Corrupt, Unsupported
from perdure.model import canonical
from perdure.model.commit import Changeset, decode_changeset, encode_changeset
from perdure.model.patch import OPS_VERSION, Clear, Delete, Patch, decode_patch
from tests.coded import raises

NEWER = {
    "a version": b'{"ops":[{"op":"delete","path":"/a"}],"version":2}',
    "an op": b'{"ops":[{"op":"teleport","path":"/a"}]}',
    "an op of a newer version": b'{"ops":[{"op":"teleport","path":"/a"}],"version":2}',
    "a verb": b'{"ops":[{"op":"edit","path":"/a","verb":"sort","at":[],"leaves":"x","size":1}]}',
}

BROKEN = {
    "no JSON": b"{",
    "no patch": b'{"ops":5}',
    "an op without a name": b'{"ops":[{"path":"/a"}]}',
    "an op without its path": b'{"ops":[{"op":"delete"}]}',
    "a name that is a number": b'{"ops":[{"op":5,"path":"/a"}]}',
    "no text": b'{"ops":[{"op":"delete","path":"\xff"}]}',
}


def test_a_patch_comes_back_as_it_was() -> None:
    """An absent version means 1, whatever this release writes."""
    patch = Patch((Delete("/a"), Clear("/b")))

    assert b"version" not in canonical.encode_struct(patch)
    assert decode_patch(canonical.encode_struct(patch)) == patch
    assert decode_patch(b"{}").version == 1
    assert b'"version":2' in canonical.encode_struct(Patch(version=2))
    assert OPS_VERSION == 1, "raise the control below with it: version 2 is then no longer newer"


@pytest.mark.parametrize("body", NEWER.values(), ids=NEWER.keys())
def test_what_a_newer_perdure_wrote_is_not_called_damage(body: bytes) -> None:
    """Alone or in a changeset: it is told apart, and nothing is guessed."""
    with raises(Unsupported, "written_by_newer_version"):
        decode_patch(body)
    with raises(Unsupported, "written_by_newer_version"):
        decode_changeset(b'{"patch":%s,"reason":"r"}' % body)


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_what_nobody_wrote_is_damage(body: bytes) -> None:
    """Control: what no version could have meant."""
    with raises(Corrupt, "record_unreadable"):
        decode_patch(body)
    with raises(Corrupt, "record_unreadable"):
        decode_changeset(b'{"patch":%s,"reason":"r"}' % body)


def test_a_value_that_looks_like_a_type_is_none() -> None:
    """Only the names of events, ops and verbs tell of a newer release."""
    with pytest.raises(Corrupt):
        decode_changeset(
            b'{"events":[{"id":"e","type":"message.appended","role":"robot","body":"","size":1}]}'
        )
    changeset = Changeset(reason="Invalid value 'x' - at `$.type`")
    assert decode_changeset(encode_changeset(changeset)) == changeset

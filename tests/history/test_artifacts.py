from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from random import Random

import pytest

from perdure.engines.contract import CellWrite, Write
from perdure.errors import Conflict, Corrupt, Forgotten, Invalid, NotFound
from perdure.history import artifacts
from perdure.history.verify import verify
from perdure.model.artifact import CHUNK_BYTES, Artifact, decode_artifact, encode_artifact
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.limits import Limits
from tests.coded import raises
from tests.history.hand import Hand, damage

LARGE = Random(7).randbytes(5 * CHUNK_BYTES + 1)  # more than one write takes


@pytest.mark.parametrize(
    "content", [b"", b"x", LARGE[:CHUNK_BYTES], LARGE[: CHUNK_BYTES + 1], LARGE], ids=len
)
def test_content_comes_back_as_it_was_put(content: bytes) -> None:
    """Whatever its size, and however it was handed in."""
    hand = Hand()

    digest = artifacts.put(hand.space, (content[at : at + 1_000] for at in range(0, len(content), 1_000)))

    assert b"".join(artifacts.get(hand.space, digest)) == content
    assert artifacts.show(hand.space, digest).sha256 == sha256(content).hexdigest()
    assert verify(hand.engine).ok


def test_the_same_content_has_the_same_digest_however_it_is_cut() -> None:
    """Chunks are ours, not the caller's."""
    one, other = Hand(), Hand()

    first = artifacts.put(one.space, [LARGE])
    second = artifacts.put(other.space, [LARGE[:7], b"", LARGE[7:]])

    assert first == second


def test_what_is_put_twice_is_kept_once() -> None:
    """The second put adds no object and no second line to the list."""
    hand = Hand()
    digest = artifacts.put(hand.space, [LARGE], name="map")
    objects = hand.engine.facts()["objects"]

    assert artifacts.put(hand.space, [LARGE]) == digest

    assert hand.engine.facts()["objects"] == objects
    assert [each.name for each in artifacts.ls(hand.space, limit=9)] == ["map"]


def test_artifacts_are_listed_by_digest_from_a_cursor() -> None:
    """Each page goes on where the last one ended."""
    hand = Hand()
    digests = sorted(artifacts.put(hand.space, [bytes((number,))]) for number in range(5))

    first = artifacts.ls(hand.space, limit=2)
    rest = artifacts.ls(hand.space, after=first[-1].digest, limit=9)

    assert [each.digest for each in (*first, *rest)] == digests


def test_content_over_the_limit_is_refused_and_not_listed() -> None:
    """The limit holds for the stream, not for what it claims to be."""
    hand = Hand(limits=Limits(artifact_bytes_max=6 * CHUNK_BYTES))

    with raises(Invalid, "artifact_too_large", limit=6 * CHUNK_BYTES):
        artifacts.put(hand.space, (b"x" * CHUNK_BYTES for _ in range(7)))

    assert artifacts.ls(hand.space, limit=9) == []


def test_a_put_holds_a_few_chunks_and_no_more() -> None:
    """Chunks are written while more are still to come."""
    hand = Hand()
    held: list[int] = []

    def chunks() -> Iterator[bytes]:
        for taken in range(40):
            held.append(taken - int(hand.engine.facts()["objects"]))
            yield taken.to_bytes(2, "big") * (CHUNK_BYTES // 2)

    artifacts.put(hand.space, chunks())

    assert max(held) <= 5


def test_a_damaged_chunk_is_not_given() -> None:
    """The chunk's own digest is checked before it is handed out."""
    hand = Hand()
    digest = artifacts.put(hand.space, [LARGE])
    chunk = decode_artifact(hand.space.body(digest)).chunks[1]
    damage(hand.engine, hand.space.name, chunk)

    reading = artifacts.get(hand.space, digest)

    assert next(reading) == LARGE[:CHUNK_BYTES]
    with raises(Corrupt, "digest_mismatch", object=chunk):
        next(reading)


def test_an_artifact_that_lies_about_the_whole_is_found_out() -> None:
    """Right chunks in a wrong list: each verifies, together they do not."""
    hand = Hand()
    good = decode_artifact(hand.space.body(artifacts.put(hand.space, [b"abc"])))
    lie = Artifact(chunks=good.chunks * 2, media_type="text/plain", sha256=good.sha256, size=good.size)
    forged = Object.of(Kind.ARTIFACT, encode_artifact(lie))
    hand.engine.apply(Write(space=hand.space.name, op_id="forge", intent=forged.digest, objects=(forged,)))

    with raises(Corrupt, "artifact_damaged", artifact=forged.digest):
        list(artifacts.get(hand.space, forged.digest))


def test_what_is_no_artifact_is_not_found() -> None:
    """A digest of something else, or of nothing, gives no content."""
    hand = Hand()
    commit = hand.write({"/a": 1})

    with raises(NotFound, "not_an_artifact", found="commit"):
        artifacts.get(hand.space, commit)
    with raises(NotFound, "object_not_found"):
        artifacts.get(hand.space, digest_of(Kind.ARTIFACT, b"none"))


def test_an_upload_that_was_taken_for_abandoned_fails_instead_of_listing_nothing() -> None:
    """Its chunks may be gone; the write that would make it visible is refused."""
    hand = Hand()
    staged = artifacts.stage(hand.space, [LARGE])
    (ended,) = staged.cells
    expired = CellWrite(name=ended.name, expected=ended.expected, value=None)
    hand.engine.apply(
        Write(space=hand.space.name, op_id="expire", intent=Digest("00" * 32), cells=(expired,))
    )

    with raises(Conflict, "upload_expired"):
        artifacts.publish(hand.space, staged)

    assert artifacts.ls(hand.space, limit=9) == []


def test_a_name_can_be_given_later() -> None:
    """A second listing changes the name and keeps the time."""
    hand = Hand()
    digest = artifacts.put(hand.space, [b"x"])
    before = artifacts.show(hand.space, digest)

    artifacts.put(hand.space, [b"x"], name="letter")

    after = artifacts.show(hand.space, digest)
    assert (after.name, after.at) == ("letter", before.at)


def test_a_large_value_is_kept_as_an_artifact_and_reads_like_any_other() -> None:
    """The state map names it by the artifact's digest."""
    hand = Hand()
    text = "x" * (3 * 1024 * 1024)

    hand.write({"/large.json": text})

    assert hand.get("/large.json") == text
    entry = hand.space.tree_at(hand.head().commit).get("/large.json")
    assert entry is not None
    assert hand.engine.objects(hand.space.name, (entry.value,))[0].kind is Kind.ARTIFACT
    assert hand.engine.cells(hand.space.name, prefix=artifacts.UPLOAD, limit=9) == []


def test_forgotten_content_says_so() -> None:
    """What a policy removed is neither empty nor damaged."""
    hand = Hand()
    digest = artifacts.put(hand.space, [b"secret"])
    chunks = decode_artifact(hand.space.body(digest)).chunks
    hand.forget(chunks)

    with raises(Forgotten, "forgotten", why="the user asked"):
        list(artifacts.get(hand.space, digest))

"""The laws of objects: what is stored comes back byte for byte, to its own space alone."""

from __future__ import annotations

import random

import pytest

from perdure.engines.contract import Engine
from perdure.errors import Corrupt, NotFound
from perdure.model.digest import Kind, Object, digest_of
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, START, made, moved, portrait, value, write

__all__ = ["ObjectLaws"]

_KINDS = [Kind.VALUE, Kind.NODE, Kind.BODY, Kind.ARTIFACT, Kind.CHECKPOINT]
_BODIES = {
    "empty": b"",
    "text": b'{"title":"milk"}',
    "zeros": b"\0\0\0",
    "not UTF-8": b"\xff\xfe\x00 raw",
    "a lone surrogate": "\ud83d".encode("utf-8", "surrogatepass"),
    "already compressed": b"\x28\xb5\x2f\xfd\x04\x00\x09\x00\x00",
}


class ObjectLaws(Ground):
    """What `objects` and `missing` promise."""

    @pytest.mark.parametrize("kind", _KINDS)
    @pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
    def test_an_object_comes_back_as_it_was_written(self, engine: Engine, kind: Kind, body: bytes) -> None:
        """Kind, digest and bytes are what they were, whatever the bytes are."""
        written = Object.of(kind, body)

        engine.apply(write("op", written))

        (found,) = engine.objects(SPACE, [written.digest])
        assert (found.kind, found.digest, found.body) == (kind, written.digest, body)

    def test_commits_and_changesets_are_objects_too(self, engine: Engine) -> None:
        """The bytes of everything that a commit brought can be read by digest."""
        first = made("milk", messages=["m-1", "m-2"])

        engine.apply(write("op", first, moved(START, first)))

        found = engine.objects(SPACE, [each.digest for each in first.objects])
        assert [(each.kind, each.body) for each in found] == [
            (each.kind, each.body) for each in first.objects
        ]

    def test_the_same_bytes_as_two_kinds_are_two_objects(self, engine: Engine) -> None:
        """A kind is part of the address."""
        one, other = Object.of(Kind.VALUE, b"x"), Object.of(Kind.BODY, b"x")

        engine.apply(write("op", one, other))

        found = engine.objects(SPACE, [other.digest, one.digest])
        assert [each.kind for each in found] == [Kind.BODY, Kind.VALUE]

    def test_a_batch_is_read_in_the_order_asked(self, engine: Engine) -> None:
        """The answer has one object for each digest, in order, repeated ones too."""
        one, two, three = value("1"), value("2"), value("3")
        engine.apply(write("op", one, two, three))

        found = engine.objects(SPACE, [three.digest, one.digest, two.digest, one.digest])

        assert [each.body for each in found] == [b"3", b"1", b"2", b"1"]

    def test_an_empty_batch_is_empty(self, engine: Engine) -> None:
        """Asking for nothing is no error, even in a space that was never written."""
        assert list(engine.objects(SPACE, [])) == []
        assert list(engine.missing(SPACE, [])) == []

    def test_writing_an_object_again_is_no_error(self, engine: Engine) -> None:
        """Inserts are idempotent, within a write and across writes."""
        milk = value("milk")
        engine.apply(write("op-1", milk, milk))

        engine.apply(write("op-2", milk, value("eggs")))

        assert [each.body for each in engine.objects(SPACE, [milk.digest])] == [b"milk"]

    def test_writing_a_commit_again_is_no_error(self, engine: Engine) -> None:
        """A commit that is there already is taken as it is; its names do not name it twice."""
        first = made("milk", run="run-1", messages=["m-1"])
        engine.apply(write("op-1", first))

        engine.apply(write("op-2", first, moved(START, first)))

        assert list(engine.labelled(SPACE, "m-1")) == [first.digest]
        assert list(engine.commits(SPACE, "", limit=9)) == [first.digest]

    def test_other_bytes_under_a_known_digest_stop_hard(self, engine: Engine) -> None:
        """Bytes that do not fit what is there are never taken for it, and never replace it."""
        milk = value("milk")
        engine.apply(write("op-1", milk))
        before = portrait(engine)

        with pytest.raises(Corrupt, match=milk.digest):
            engine.apply(write("op-2", Object(Kind.VALUE, milk.digest, b"eggs")))

        assert portrait(engine) == before
        assert engine.objects(SPACE, [milk.digest])[0].body == b"milk"

    def test_the_first_object_that_is_not_there_is_named(self, engine: Engine) -> None:
        """A missing object is an error that names it, never an empty answer."""
        milk, gone, lost = value("milk"), value("gone"), value("lost")
        engine.apply(write("op", milk))

        with pytest.raises(NotFound, match=gone.digest):
            engine.objects(SPACE, [milk.digest, gone.digest, lost.digest])

    def test_missing_lists_what_the_space_never_had(self, engine: Engine) -> None:
        """The answer keeps the order of the question."""
        milk, gone, lost = value("milk"), value("gone"), value("lost")
        engine.apply(write("op", milk))

        missing = engine.missing(SPACE, [lost.digest, milk.digest, gone.digest])

        assert list(missing) == [lost.digest, gone.digest]

    def test_an_object_of_another_space_is_not_found(self, engine: Engine) -> None:
        """Objects are shared inside a space and never across, whatever digest is guessed."""
        first = made("milk", messages=["m-1"])
        engine.apply(write("op", first, value("secret"), space="theirs"))
        digests = [value("secret").digest, *(each.digest for each in first.objects)]

        assert list(engine.missing(SPACE, digests)) == digests
        for digest in digests:
            with pytest.raises(NotFound, match=digest):
                engine.objects(SPACE, [digest])

    def test_an_object_can_stand_in_two_spaces(self, engine: Engine) -> None:
        """What one space has does not keep another from having it."""
        engine.apply(write("op", value("milk"), space="theirs"))

        engine.apply(write("op", value("milk")))

        assert engine.objects(SPACE, [value("milk").digest])[0].body == b"milk"
        assert engine.objects("theirs", [value("milk").digest])[0].body == b"milk"

    @pytest.mark.parametrize("pattern", [b"abcdefgh", None], ids=["repetitive", "random"])
    def test_a_mebibyte_comes_back(self, engine: Engine, pattern: bytes | None) -> None:
        """A value of the largest size that is kept inline is an object like any other."""
        size = 1024 * 1024
        large = value(pattern * (size // len(pattern)) if pattern else random.Random(1).randbytes(size))

        engine.apply(write("op", large))

        assert engine.objects(SPACE, [large.digest])[0].body == large.body

    def test_thousands_of_objects_fit_one_write_and_one_read(self, engine: Engine) -> None:
        """The size of a batch is not bounded by what a database takes as parameters."""
        many = [value(f"value {number}") for number in range(5_000)]
        digests = [each.digest for each in many]
        assert list(engine.missing(SPACE, digests)) == digests

        engine.apply(write("op", *many))

        assert [each.body for each in engine.objects(SPACE, digests)] == [each.body for each in many]
        assert list(engine.missing(SPACE, digests)) == []

    @pytest.mark.parametrize("at_once", [True, False], ids=["in one write", "in many writes"])
    def test_objects_that_resemble_each_other_keep_their_own_bytes(
        self, engine: Engine, at_once: bool
    ) -> None:
        """A base is a hint: however long the chain, each object comes back whole."""
        lines = [f"- item {number} of a list that grows\n" for number in range(70)]
        chain = [value("".join(lines))]
        for number in range(60):
            lines[number % 70] = f"- item {number} was changed\n"
            chain.append(value("".join(lines), base=chain[-1]))

        for number, group in enumerate([chain] if at_once else [[each] for each in chain]):
            engine.apply(write(f"op-{number}", *group))

        found = engine.objects(SPACE, [each.digest for each in reversed(chain)])
        assert [each.body for each in found] == [each.body for each in reversed(chain)]

    @pytest.mark.parametrize("stored", ["nowhere", "in another space", "as another kind"])
    def test_a_base_that_is_not_there_is_no_error(self, engine: Engine, stored: str) -> None:
        """A hint that leads nowhere costs nothing but space."""
        base = Object.of(Kind.NODE if stored == "as another kind" else Kind.VALUE, b"a base " * 50)
        if stored != "nowhere":
            engine.apply(write("op-1", base, space="theirs" if "space" in stored else SPACE))

        engine.apply(write("op-2", value(b"a base " * 50 + b"!", base=base)))

        digest = digest_of(Kind.VALUE, b"a base " * 50 + b"!")
        assert engine.objects(SPACE, [digest])[0].body == b"a base " * 50 + b"!"

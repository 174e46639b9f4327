"""The laws of histories: any commit is found from any other on its line, by distance, turn, name or prefix.

The laws of objects: what is stored comes back byte for byte, to its own space alone.

The laws of names: whatever text names a thing, it names that thing and no other.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from itertools import product

import pytest

from perdure.engines.contract import CellWrite, Engine, Place, Step
from perdure.errors import Corrupt, NotFound
from perdure.model.commit import Act
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MessageAppended
from perdure.model.names import moment_label, retraction_label
from perdure.testing.engines.builders import (
    SPACE,
    START,
    Made,
    Pen,
    begun,
    made,
    moved,
    portrait,
    value,
    write,
)
from perdure.testing.engines.subject import EngineSubject, raises

__all__ = ["HistoryLaws", "ObjectLaws", "HOSTILE_NAMES", "NameLaws"]


def chased(tip: Made, known: dict[Digest, Made]) -> Iterator[Digest]:
    """Yield the line that ends at `tip`, by following first parents one at a time."""
    here: Made | None = tip
    while here is not None:
        yield here.digest
        here = known[here.commit.parents[0]] if here.commit.parents else None


def tangled(engine: Engine, *, seed: int, size: int) -> dict[Digest, Made]:
    """Return a history of `size` commits on many lines, with undos, forks and merges."""
    draw, pens = random.Random(seed), [Pen(engine)]
    known: dict[Digest, Made] = {}
    while len(known) < size:
        pen = draw.choice(pens)
        also = draw.choice(list(known.values())) if known and pen.tip and draw.random() < 0.2 else None
        new = pen.commit(
            f"commit {len(known)}",
            also=also,
            run=draw.choice([None, "run-1", "run-2"]),
            messages=[f"m-{len(known)}"],
        )
        known[new.digest] = new
        if draw.random() < 0.2:
            pen.move(draw.choice([None, *known.values()]), Act.UNDO)
        if draw.random() < 0.1:
            pens.append(pen.fork(f"line-{len(pens)}"))
    return known


def newest_of_each(line: Sequence[Step], labels: Collection[str]) -> list[Step]:
    """Return the commits of a line, newest first, that are the newest with one of these message ids or run ids."""
    names = [{step.commit.run, *(event.id for event in step.changeset.events)} for step in line]
    first = {next((at for at, named in enumerate(names) if label in named), -1) for label in labels}
    return [line[at] for at in sorted(first - {-1})]


class HistoryLaws(EngineSubject):
    """What `steps`, `events`, `turn`, `labelled` and `commits` promise."""

    def test_steps_go_back_from_a_commit(self, engine: Engine) -> None:
        """Each step has the commit, its changeset, and its place."""
        pen = Pen(engine)
        first = pen.commit("milk", messages=["m-1", "m-2"])
        second = pen.commit("eggs", messages=["m-3"])
        third = pen.commit("bread")

        steps = engine.steps(SPACE, third.digest, limit=9)

        assert [step.digest for step in steps] == [third.digest, second.digest, first.digest]
        assert [step.commit for step in steps] == [third.commit, second.commit, first.commit]
        assert [step.changeset for step in steps] == [third.changeset, second.changeset, first.changeset]
        assert [step.place for step in steps] == [Place(2, 3, 3), Place(1, 2, 2), Place(0, 1, 0)]

    def test_steps_are_bounded_by_a_limit(self, engine: Engine) -> None:
        """The newest come first, so a limit keeps them."""
        pen = Pen(engine)
        line = [pen.commit(f"item {number}").digest for number in range(6)]

        assert [step.digest for step in engine.steps(SPACE, line[-1], limit=2)] == [line[5], line[4]]
        assert [step.digest for step in engine.steps(SPACE, line[3], skip=1, limit=1)] == [line[2]]

    def test_steps_come_with_their_bodies_where_asked(self, engine: Engine) -> None:
        """A body that comes with its commit is the one that `objects` gives; unasked, none comes."""
        pen = Pen(engine)
        first = pen.commit("milk", messages=["m-1", "m-2"])
        second = pen.commit("eggs", messages=["m-3"])

        found = engine.steps(SPACE, second.digest, limit=9, bodies=True)

        for step, of in zip(found, (second, first), strict=True):
            named = [event.body for event in of.changeset.events if isinstance(event, MessageAppended)]
            assert set(step.bodies) <= set(named)
            assert [step.bodies[each] for each in step.bodies] == [
                each.body for each in engine.objects(SPACE, list(step.bodies))
            ]
        plain = engine.steps(SPACE, second.digest, limit=9)
        assert [dict(step.bodies) for step in plain] == [{}, {}]
        assert [step.place for step in plain] == [step.place for step in found]

    def test_a_forgotten_body_does_not_come_with_its_commit(self, engine: Engine) -> None:
        """Its commit comes as ever, with the bodies that are left."""
        pen = Pen(engine)
        tip = pen.commit("milk", messages=["m-1", "m-2"])
        gone, left = (event.body for event in tip.changeset.events if isinstance(event, MessageAppended))
        engine.forget(SPACE, [gone], why="too old", standing=engine.standing(SPACE))

        (step,) = engine.steps(SPACE, tip.digest, limit=1, bodies=True)

        assert step.digest == tip.digest
        assert gone not in step.bodies
        assert engine.objects(SPACE, [left])[0].body == b"milk: m-2"

    def test_events_are_what_the_steps_say(self, engine: Engine) -> None:
        """On lines that fork and merge, also where words are forgotten, with bodies and without."""
        known = [*tangled(engine, seed=11, size=40).values()]
        gone = [event.body for event in known[20].changeset.events if isinstance(event, MessageAppended)]
        engine.forget(SPACE, gone, why="too old", standing=engine.standing(SPACE))
        for tip, limit, bodies in product(known[::3], (0, 1, 3, 99), (False, True)):
            steps = engine.steps(SPACE, tip.digest, limit=limit, bodies=bodies)
            found = engine.events(SPACE, tip.digest, limit=limit, bodies=bodies)
            assert list(found) == [step.as_events() for step in steps]

    def test_any_distance_back_is_found_at_any_length(self, engine: Engine) -> None:
        """Skipping gives what one step at a time would give, for every length up to 70."""
        pen, line = Pen(engine), list[Digest]()
        for length in range(1, 71):
            line.append(pen.commit(f"item {length}").digest)
            found = [engine.steps(SPACE, line[-1], skip=skip, limit=1) for skip in range(length)]
            assert [steps[0].digest for steps in found] == line[::-1]
            assert [steps[0].place.depth for steps in found] == list(range(length))[::-1]

    def test_a_distance_past_the_first_commit_is_empty(self, engine: Engine) -> None:
        """There is nothing before the beginning, and that is no error."""
        pen = Pen(engine)
        tip = [pen.commit("milk"), pen.commit("eggs")][-1]

        found = [engine.steps(SPACE, tip.digest, skip=skip, limit=9) for skip in (1, 2, 3, 999)]
        assert list(map(len, found)) == [1, 0, 0, 0]

    @pytest.mark.parametrize("seed", range(3))
    def test_lines_do_not_mix_however_they_are_tangled(self, engine: Engine, seed: int) -> None:
        """After forks, undos and merges, each commit's line is its first parents' and no other."""
        known = tangled(engine, seed=seed, size=80)
        draw = random.Random(seed)

        for tip in known.values():
            line = list(chased(tip, known))
            skip = draw.randrange(len(line))
            steps = engine.steps(SPACE, tip.digest, skip=skip, limit=7)
            assert [step.digest for step in steps] == line[skip : skip + 7]

    def test_a_long_chain_in_one_write_is_walked_like_any_other(self, engine: Engine) -> None:
        """Commits that share a write are as far apart as if each had had its own."""
        chain = [made("item 0")]
        for number in range(1, 300):
            chain.append(made(f"item {number}", chain[-1]))
        engine.apply(write("op", *chain, moved(START, chain[-1])))
        tip = Pen(engine, head=START, tip=chain[-1]).tip
        assert tip is not None

        for skip in (0, 1, 63, 64, 65, 128, 255, 256, 257, 299):
            steps = engine.steps(SPACE, tip.digest, skip=skip, limit=2)
            assert [step.digest for step in steps] == [each.digest for each in chain[::-1][skip : skip + 2]]

    def test_a_record_that_comes_along_changes_nothing(self, engine: Engine) -> None:
        """A maker may hand over the decoded commit and changeset; what is stored and shown is the same."""
        plain = made("milk", run="run-1", messages=["m-1"])
        *bodies, changeset, commit = plain.objects
        handed = (
            Object.of(Kind.CHANGESET, changeset.body, record=plain.changeset),
            Object.of(Kind.COMMIT, commit.body, record=plain.commit),
        )

        engine.apply(write("op", *plain.objects, moved(START, plain), space="plain"))
        engine.apply(write("op", *bodies, *handed, moved(START, plain), space="handed"))

        one, other = (engine.steps(space, plain.digest, limit=9) for space in ("plain", "handed"))
        assert list(one) == list(other)
        assert portrait(engine, "plain") == portrait(engine, "handed")
        assert engine.labelled("plain", "run-1") == engine.labelled("handed", "run-1")

    def test_a_commit_that_is_not_there_has_no_history(self, engine: Engine) -> None:
        """Neither another space's commit, nor another object, nor a guess can be walked from."""
        theirs, guess = made("theirs"), made("never written")
        engine.apply(write("op", theirs, space="theirs"))
        engine.apply(write("op", value("milk")))

        for digest in (theirs.digest, guess.digest, value("milk").digest):
            with raises(NotFound, commit=digest):
                engine.steps(SPACE, digest, limit=9)
            with raises(NotFound, commit=digest):
                engine.turn(SPACE, digest, 1)

    def test_clocks_do_not_order_anything(self, engine: Engine) -> None:
        """Order comes from parents and versions; a clock that goes backwards changes nothing."""
        pen = Pen(engine)
        line = [pen.commit(f"at {at}", at=at, messages=["m-1"]) for at in (50, 10, 40, 0, -7)]
        digests = [each.digest for each in line]

        assert [step.digest for step in engine.steps(SPACE, digests[-1], limit=9)] == digests[::-1]
        assert [record.to for record in engine.moves(SPACE, "main", limit=9)] == digests[::-1]
        assert list(engine.labelled(SPACE, "m-1")) == digests

    def test_a_run_is_one_turn_and_a_change_by_hand_another(self, engine: Engine) -> None:
        """Neighbouring commits of one run share a turn; every other commit begins one."""
        pen = Pen(engine)
        runs = [None, None, "run-1", "run-1", "run-2", None, "run-2", "run-2"]
        line = [pen.commit(f"commit {index}", run=run) for index, run in enumerate(runs)]

        steps = engine.steps(SPACE, line[-1].digest, limit=9)

        assert [step.place.turn for step in reversed(steps)] == [1, 2, 3, 3, 4, 5, 6, 6]

    def test_a_turn_is_found_by_its_last_commit(self, engine: Engine) -> None:
        """From any later commit of the line a turn's number leads to the moment after it."""
        pen = Pen(engine)
        line = [
            pen.commit(f"commit {index}", run=run) for index, run in enumerate([None, "a", "a", "a", None])
        ]

        found = [engine.turn(SPACE, line[-1].digest, turn) for turn in (1, 2, 3)]

        assert [step and step.digest for step in found] == [line[0].digest, line[3].digest, line[4].digest]

    def test_a_turn_ends_where_the_line_ends(self, engine: Engine) -> None:
        """Seen from within a run, its turn so far ends at the commit one looks from."""
        pen = Pen(engine)
        line = [pen.commit(f"commit {index}", run="a") for index in range(4)]

        step = engine.turn(SPACE, line[1].digest, 1)

        assert step is not None
        assert step.digest == line[1].digest

    @pytest.mark.parametrize("turn", [-1, 0, 4, 99])
    def test_a_line_has_no_other_turns(self, engine: Engine, turn: int) -> None:
        """Turns count from 1 to the last; any other number is None."""
        pen = Pen(engine)
        for number in range(3):
            pen.commit(f"item {number}")
        assert pen.tip is not None

        assert engine.turn(SPACE, pen.tip.digest, turn) is None

    def test_turns_are_counted_on_their_own_line(self, engine: Engine) -> None:
        """A fork goes on counting where it began, whatever happened elsewhere."""
        pen = Pen(engine)
        first = pen.commit("milk", run="a")
        pen.commit("eggs", run="b")
        pen.commit("flour")
        fork = pen.fork("what-if", at=first)

        same, other = fork.commit("still the run", run="a"), fork.commit("bread")

        steps = engine.steps(SPACE, other.digest, limit=9)
        assert [step.place.turn for step in steps] == [2, 1, 1]
        assert [step.digest for step in steps] == [other.digest, same.digest, first.digest]

    @pytest.mark.parametrize("seed", range(3))
    def test_every_turn_of_every_line_is_found(self, engine: Engine, seed: int) -> None:
        """On tangled lines too, a turn leads to its last commit before the one looked from."""
        known = tangled(engine, seed=seed, size=50)

        for tip in known.values():
            steps = engine.steps(SPACE, tip.digest, limit=99)
            last = {step.place.turn: step for step in reversed(steps)}
            assert sorted(last) == list(range(1, steps[0].place.turn + 1))
            assert [engine.turn(SPACE, tip.digest, turn) for turn in last] == list(last.values())

    def test_events_are_counted_along_the_line(self, engine: Engine) -> None:
        """A commit's first event comes after all events of its first parents, not of other lines."""
        pen = Pen(engine)
        first = pen.commit("milk", messages=["m-1", "m-2"])
        fork = pen.fork("what-if")
        other = fork.commit("bread", messages=["m-3"])
        pen.commit("nothing said")

        merge = pen.commit("merge", also=other, messages=["m-4"])

        sequences = [step.place.sequence for step in engine.steps(SPACE, merge.digest, limit=9)]
        assert sequences == [2, 2, 0]
        assert engine.steps(SPACE, merge.digest, skip=2, limit=1)[0].digest == first.digest

    def test_a_message_id_names_the_commit_that_appended_it(self, engine: Engine) -> None:
        """All messages of a commit lead to it, and no other name does."""
        pen = Pen(engine)
        first = pen.commit("milk", messages=["m-1", "m-2"])
        second = pen.commit("eggs", messages=["m-3"])

        found = [list(engine.labelled(SPACE, label)) for label in ("m-1", "m-2", "m-3", "m-", "m-4")]

        assert found == [[first.digest], [first.digest], [second.digest], [], []]

    def test_a_run_id_names_the_first_commit_of_the_run(self, engine: Engine) -> None:
        """The commits that follow in the same run are not named by it."""
        pen = Pen(engine)
        pen.commit("milk")
        second = pen.commit("eggs", run="run-1")
        pen.commit("bread", run="run-1")

        assert list(engine.labelled(SPACE, "run-1")) == [second.digest]

    @pytest.mark.parametrize("seed", range(2))
    def test_labels_leave_the_newest_commit_for_each_on_the_line(self, engine: Engine, seed: int) -> None:
        """From any commit, among any number before it; a commit of another line is not returned."""
        known, draw = tangled(engine, seed=seed, size=40), random.Random(seed)
        labels = {*draw.sample([f"m-{number}" for number in range(40)], 9), "run-1", "absent"}

        for tip in known.values():
            skip, limit = draw.randrange(3), draw.randrange(1, 40)
            line = engine.steps(SPACE, tip.digest, skip=skip, limit=limit)
            found = engine.steps(SPACE, tip.digest, skip=skip, limit=limit, labels=labels)
            assert list(found) == newest_of_each(line, labels)

    def test_a_name_used_on_two_lines_names_both_oldest_first(self, engine: Engine) -> None:
        """The same message on two lines is two commits, in the order they were written."""
        pen = Pen(engine)
        pen.commit("milk")
        fork = pen.fork("what-if")

        first, second = fork.commit("there", messages=["m-1"]), pen.commit("here", messages=["m-1"])

        assert list(engine.labelled(SPACE, "m-1")) == [first.digest, second.digest]

    def test_a_name_of_another_framework_leads_to_every_commit_that_has_it(self, engine: Engine) -> None:
        """A commit may have several, a name may have several commits, oldest first, on all lines."""
        pen = Pen(engine)
        first = pen.commit("milk", messages=["m-1"], names=["graph:1", "sdk:7", "graph:1"])
        fork = pen.fork("what-if")
        there, here = (
            fork.commit("there", names=["graph:2"]),
            pen.commit("here", names=["graph:2", "graph:1"]),
        )

        found = [list(engine.labelled(SPACE, moment_label(f"graph:{number}"))) for number in (1, 2, 3)]

        assert found == [[first.digest, here.digest], [there.digest, here.digest], []]
        assert list(engine.labelled(SPACE, moment_label("sdk:7"))) == [first.digest]

    def test_a_retraction_is_found_by_the_message_that_it_takes_back(self, engine: Engine) -> None:
        """On every line; one that takes everything back has a label of its own, and neither is the message's."""
        pen = Pen(engine)
        said = pen.commit("milk", messages=["m-1", "m-2"])
        fork = pen.fork("what-if")
        there, here = fork.commit("there", retracts=["m-1", "m-2"]), pen.commit("here", retracts=["m-1"])
        every = pen.commit("all", retracts=[None])

        found = [list(engine.labelled(SPACE, retraction_label(each))) for each in ("m-1", "m-2", "m-3", None)]

        assert found == [[there.digest, here.digest], [there.digest], [], [every.digest]]
        assert list(engine.labelled(SPACE, "m-1")) == [said.digest]

    def test_a_name_is_no_message_id_and_no_run_id(self, engine: Engine) -> None:
        """The same text in all three places leads to three commits, and the id never to the named one."""
        pen = Pen(engine)
        said = pen.commit("milk", messages=["graph:1"])
        begun = pen.commit("eggs", run="graph:1")
        named = pen.commit("bread", names=["graph:1"])

        assert list(engine.labelled(SPACE, "graph:1")) == [said.digest, begun.digest]
        assert list(engine.labelled(SPACE, moment_label("graph:1"))) == [named.digest]

    def test_names_belong_to_their_space(self, engine: Engine) -> None:
        """Another space's message ids, run ids and names lead to nothing here."""
        Pen(engine, space="theirs").commit("milk", run="run-1", messages=["m-1"], names=["graph:1"])

        for label in ("m-1", "run-1", moment_label("graph:1")):
            assert list(engine.labelled(SPACE, label)) == []

    def test_commits_are_found_by_a_prefix_of_any_length(self, engine: Engine) -> None:
        """The answer is sorted, and holds all commits that start so and no other object."""
        pen = Pen(engine)
        line = sorted(pen.commit(f"item {number}", messages=[f"m-{number}"]).digest for number in range(40))
        lengths = (0, 1, 2, 3, 7, 12, 63, 64)

        for digest in line[::7]:
            prefixes = [digest[:length] for length in lengths]
            found = [list(engine.commits(SPACE, prefix, limit=99)) for prefix in prefixes]
            assert found == [[each for each in line if each.startswith(prefix)] for prefix in prefixes]

    def test_a_limit_keeps_the_first_commits_of_a_prefix(self, engine: Engine) -> None:
        """Two are enough to know that a prefix is ambiguous."""
        pen = Pen(engine)
        line = sorted(pen.commit(f"item {number}").digest for number in range(9))

        assert list(engine.commits(SPACE, "", limit=2)) == line[:2]

    @pytest.mark.parametrize("prefix", ["%", "_", "*", "g", "F", "0x", "'", "é", " ", "0" * 65])
    def test_what_is_no_prefix_of_a_digest_finds_nothing(self, engine: Engine, prefix: str) -> None:
        """A prefix is compared letter by letter; nothing in it is a wildcard, and none is an error."""
        pen = Pen(engine)
        for number in range(40):
            pen.commit(f"item {number}")

        assert list(engine.commits(SPACE, prefix, limit=99)) == []

    def test_a_prefix_finds_nothing_in_another_space(self, engine: Engine) -> None:
        """Guessing digests leads nowhere."""
        there = Pen(engine, space="theirs").commit("milk")

        assert list(engine.commits(SPACE, there.digest, limit=9)) == []


_KINDS = [Kind.VALUE, Kind.NODE, Kind.BODY, Kind.ARTIFACT, Kind.CHECKPOINT, Kind.LIST]
_BODIES = {
    "empty": b"",
    "text": b'{"title":"milk"}',
    "zeros": b"\0\0\0",
    "not UTF-8": b"\xff\xfe\x00 raw",
    "a lone surrogate": "\ud83d".encode("utf-8", "surrogatepass"),
    "already compressed": b"\x28\xb5\x2f\xfd\x04\x00\x09\x00\x00",
}


class ObjectLaws(EngineSubject):
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
        assert list(found) == list(first.objects)
        assert [each.kind for each in found] == [each.kind for each in first.objects]

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
        first = made("milk", run="run-1", messages=["m-1"], names=["graph:1"])
        engine.apply(write("op-1", first))

        engine.apply(write("op-2", first, moved(START, first)))

        assert list(engine.labelled(SPACE, "m-1")) == [first.digest]
        assert list(engine.labelled(SPACE, moment_label("graph:1"))) == [first.digest]
        assert list(engine.commits(SPACE, "", limit=9)) == [first.digest]

    def test_other_bytes_under_a_known_digest_stop_hard(self, engine: Engine) -> None:
        """Bytes that do not fit what is there are never taken for it, and never replace it."""
        milk = value("milk")
        engine.apply(write("op-1", milk))
        before = portrait(engine)

        with raises(Corrupt, digest=milk.digest):
            engine.apply(write("op-2", Object(Kind.VALUE, milk.digest, b"eggs")))

        assert portrait(engine) == before
        assert engine.objects(SPACE, [milk.digest])[0].body == b"milk"

    def test_the_first_object_that_is_not_there_is_named(self, engine: Engine) -> None:
        """A missing object is an error that names it, never an empty answer."""
        milk, gone, lost = value("milk"), value("gone"), value("lost")
        engine.apply(write("op", milk))

        with raises(NotFound, digest=gone.digest):
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
            with raises(NotFound, digest=digest):
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


HOSTILE_NAMES = (
    "plain",
    "Plain",
    "plain ",
    "dots.and/slashes",
    "../../etc/passwd",
    "it's",
    'say "x"',
    "`ticks`; DROP TABLE log; --",
    "100%",
    "100x",
    "a_b",
    "axb",
    "[a-z]*?",
    "back\\slash",
    "?1 :name $2 @3",
    "NULL",
    "0",
    "00",
    "-1",
    "1e3",
    "1000",
    "é",
    "e",
    "日本語",
    "𝄞",
    "ß",
    "ss",
    "\u00a0",
    "x" * 200,
    "x" * 199,
    "字" * 66,
)


class NameLaws(EngineSubject):
    """What every engine promises about spaces, timelines, cells, op_ids, message ids and run ids."""

    @pytest.mark.parametrize("name", HOSTILE_NAMES, ids=range(len(HOSTILE_NAMES)))
    def test_any_text_can_name_a_thing(self, engine: Engine, name: str) -> None:
        """Quotes, wildcards, SQL, any script, 200 bytes: all of it is only text."""
        first = made("milk", run=name, messages=[f"{name}!"], names=[f"x:{name}"])
        cell = CellWrite(name=name, expected=0, value=name.encode(), listed=True)

        receipt = engine.apply(write(name, first, begun(name, first), cell, space=name))

        assert receipt.heads[0].timeline == name
        assert [hold.head for hold in engine.holds(name, limit=9)] == list(receipt.heads)
        assert [record.op_id for record in engine.moves(name, name, limit=9)] == [name]
        assert engine.cells(name, prefix=name, limit=9) == engine.listed(prefix=name, limit=9)
        labels = (name, f"{name}!", moment_label(f"x:{name}"))
        assert [list(engine.labelled(name, label)) for label in labels] == [[first.digest]] * 3
        assert list(engine.spaces(limit=9)) == [name]
        recorded = engine.recorded(name, name)
        assert recorded is not None
        assert recorded.receipt == receipt

    def test_names_that_look_alike_are_different_spaces(self, engine: Engine) -> None:
        """No two of the hostile names are taken for each other, in any place."""
        for name in HOSTILE_NAMES:
            Pen(engine, space=name).commit(f"in {name}", messages=["m-1"])

        assert list(engine.spaces(limit=99)) == sorted(HOSTILE_NAMES)
        for name in HOSTILE_NAMES:
            (digest,) = engine.labelled(name, "m-1")
            assert engine.steps(name, digest, limit=9)[0].commit.reason == f"in {name}"

    def test_names_that_look_alike_are_different_timelines_and_cells(self, engine: Engine) -> None:
        """Listings are in the order of the names' letters, not of a language."""
        for number, name in enumerate(HOSTILE_NAMES):
            cell = CellWrite(name=name, expected=0, value=b"%d" % number)
            engine.apply(write(name, begun(name, None), cell))

        names = sorted(HOSTILE_NAMES)
        assert [hold.head.timeline for hold in engine.holds(SPACE, limit=99)] == names
        assert [cell.name for cell in engine.cells(SPACE, limit=99)] == names
        for number, name in enumerate(HOSTILE_NAMES):
            cell = engine.cell(SPACE, name)
            assert cell is not None
            assert (cell.value, cell.revision) == (b"%d" % number, 1)

    def test_names_that_look_alike_are_different_labels(self, engine: Engine) -> None:
        """A message id leads to its own commit and to no other."""
        pen = Pen(engine)
        commits = {name: pen.commit(name, messages=[name]).digest for name in HOSTILE_NAMES}

        assert {name: list(engine.labelled(SPACE, name)) for name in commits} == {
            name: [digest] for name, digest in commits.items()
        }

    def test_a_name_that_was_never_used_finds_nothing(self, engine: Engine) -> None:
        """Looking up hostile text is no error, and finds nothing that it might match as a pattern."""
        Pen(engine).commit("milk", run="run-1", messages=["m-1"])

        for name in HOSTILE_NAMES:
            assert engine.hold(SPACE, name) is None
            assert engine.cell(SPACE, name) is None
            assert engine.recorded(SPACE, name) is None
            assert list(engine.labelled(SPACE, name)) == []
            assert list(engine.cells(SPACE, prefix=name, limit=9)) == []
            assert list(engine.entries(name, limit=9)) == []

"""The laws of histories: any commit is found from any other on its line, by distance, turn, name or prefix."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from perdure.engines.contract import Engine, Place
from perdure.errors import NotFound
from perdure.model.commit import Act
from perdure.model.digest import Digest, Kind, Object
from perdure.testing.engines.ground import Ground
from perdure.testing.engines.hand import SPACE, START, Made, Pen, made, moved, portrait, value, write

__all__ = ["HistoryLaws"]


def chased(tip: Made, known: dict[Digest, Made]) -> Iterator[Digest]:
    """Yield the line that ends at `tip`, by following first parents one at a time."""
    here: Made | None = tip
    while here is not None:
        yield here.digest
        here = known[here.commit.parents[0]] if here.commit.parents else None


def tangled(engine: Engine, *, seed: int, size: int) -> dict[Digest, Made]:
    """A history of `size` commits on many lines, with undos, forks and merges."""
    draw, pens = random.Random(seed), [Pen(engine)]
    known: dict[Digest, Made] = {}
    while len(known) < size:
        pen = draw.choice(pens)
        also = draw.choice(list(known.values())) if known and pen.tip and draw.random() < 0.2 else None
        new = pen.commit(f"commit {len(known)}", also=also, run=draw.choice([None, "run-1", "run-2"]))
        known[new.digest] = new
        if draw.random() < 0.2:
            pen.move(draw.choice([None, *known.values()]), Act.UNDO)
        if draw.random() < 0.1:
            pens.append(pen.fork(f"line-{len(pens)}"))
    return known


class HistoryLaws(Ground):
    """What `steps`, `turn`, `labelled` and `commits` promise."""

    def test_steps_go_back_from_a_commit(self, engine: Engine) -> None:
        """Each step has the commit, what happened in it, and where it stands."""
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
        pen.commit("milk")
        tip = pen.commit("eggs")

        assert [len(engine.steps(SPACE, tip.digest, skip=skip, limit=9)) for skip in (1, 2, 3, 999)] == [
            1,
            0,
            0,
            0,
        ]

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
            with pytest.raises(NotFound, match=digest):
                engine.steps(SPACE, digest, limit=9)
            with pytest.raises(NotFound, match=digest):
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

    def test_a_name_used_on_two_lines_names_both_oldest_first(self, engine: Engine) -> None:
        """The same message on two lines is two commits, in the order they were written."""
        pen = Pen(engine)
        pen.commit("milk")
        fork = pen.fork("what-if")

        first, second = fork.commit("there", messages=["m-1"]), pen.commit("here", messages=["m-1"])

        assert list(engine.labelled(SPACE, "m-1")) == [first.digest, second.digest]

    def test_names_belong_to_their_space(self, engine: Engine) -> None:
        """Another space's message and run ids name nothing here."""
        Pen(engine, space="theirs").commit("milk", run="run-1", messages=["m-1"])

        assert list(engine.labelled(SPACE, "m-1")) == []
        assert list(engine.labelled(SPACE, "run-1")) == []

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

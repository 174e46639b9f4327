"""Retention on random histories, against sets of everything that live commits reach."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import MergeConflict, NotFound
from perdure.history import retention, stored_objects
from perdure.history.retention import RetentionPolicy
from perdure.history.tree import bodies, refs
from perdure.history.verify import verify
from perdure.model.digest import Digest, Kind
from tests.history.hand import Hand

LINES = ("main", "one", "two")
PATHS = [f"/{number % 3}/{number}" for number in range(60)]
DAYS = 10**13

actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(LINES), st.sampled_from(PATHS), st.integers(0, 4)),
        st.tuples(st.just("undo"), st.sampled_from(LINES)),
        st.tuples(st.just("merge"), st.sampled_from(LINES), st.sampled_from(LINES)),
        st.tuples(st.just("say"), st.sampled_from(LINES), st.integers(0, 3)),
    ),
    max_size=25,
)


def played(steps: list[tuple[str | int, ...]]) -> Hand:
    """A history of these steps, with a commit at the end of every line so that nothing can be redone."""
    hand = Hand()
    hand.write(dict.fromkeys(PATHS[:45], "x" * 60))
    for line in LINES[1:]:
        hand.fork(line, hand.head().commit)
    for what, line, *more in steps:
        try:
            play(hand, str(what), str(line), more)
        except (MergeConflict, NotFound):
            continue
    hand.now += DAYS
    for line in LINES:
        hand.write({"/end": line}, timeline=line)
    return hand


def play(hand: Hand, what: str, line: str, more: list[str | int]) -> None:
    """Take one step."""
    match what:
        case "put":
            hand.write({str(more[0]): f"value {more[1]}"}, timeline=line)
        case "undo":
            hand.undo(line)
        case "say":
            hand.say("user", f"words {more[0]}", timeline=line)
        case _ if line != more[0] and hand.head(line).commit and hand.head(str(more[0])).commit:
            hand.merge(str(more[0]), into=line)
        case _:
            pass


def reached(hand: Hand, tips: set[Digest]) -> set[Digest]:
    """Everything that these commits and all before them need."""
    found: set[Digest] = set()
    left = list(tips)
    while left:
        commit = left.pop()
        if commit in found:
            continue
        step = hand.space.step(commit)
        found |= {commit, step.commit.changeset, *stored_objects.of_changeset(step.changeset)}
        for digest, body in bodies(hand.space.nodes, step.commit.root):
            found |= {digest, *refs(body)[1]}
        left += step.commit.parents
    return found


@given(steps=actions)
def test_exactly_what_no_live_commit_needs_goes(steps: list[tuple[str | int, ...]]) -> None:
    """Not one object more, and not one less, of everything that was ever committed."""
    hand = played(steps)
    facts = hand.engine.scan("thread:1", limit=100_000)[0]
    live = reached(hand, {commit for line in LINES if (commit := hand.head(line).commit)})
    kinds = {Kind.VALUE, Kind.NODE, Kind.BODY}
    removable = {fact.digest for fact in facts if fact.kind in kinds}

    plan = retention.plan(hand.engine, RetentionPolicy(undone_after_days=1), hand.now + DAYS)
    retention.carry_out(hand.engine, plan, ids=hand.space.ids)

    gone = {fact.digest for fact in hand.engine.scan("thread:1", limit=100_000)[0] if fact.forgotten}
    assert gone == removable - live
    assert plan.count == len(gone)
    assert verify(hand.engine).ok
    assert all(Hand(hand.engine).state(line)["/end"] == line for line in LINES)


def states(hand: Hand, commits: set[Digest]) -> set[Digest]:
    """The nodes and values of the states of these commits."""
    roots = {hand.space.step(commit).commit.root for commit in commits}
    found: set[Digest] = set()
    for root in roots:
        for digest, body in bodies(hand.space.nodes, root):
            found |= {digest, *refs(body)[1]}
    return found


@given(steps=actions)
def test_exactly_the_states_between_heads_and_partings_go(steps: list[tuple[str | int, ...]]) -> None:
    """What no other state has goes, no word does, and every two timelines can still be merged."""
    hand = played(steps)
    facts = hand.engine.scan("thread:1", limit=100_000)[0]
    every = {fact.digest for fact in facts if fact.digest and fact.kind == Kind.COMMIT}
    heads = {commit for line in LINES if (commit := hand.head(line).commit)}
    live = every & reached(hand, heads)
    children = Counter(parent for commit in live for parent in hand.space.step(commit).commit.parents)
    replaced = {commit for commit in live - heads if children[commit] < 2}
    stays = [hand.space.step(commit).changeset for commit in every - replaced]
    named = {digest for changeset in stays for digest in stored_objects.of_changeset(changeset)}
    may_go = states(hand, replaced) - states(hand, every - replaced) - named

    plan = retention.plan(hand.engine, RetentionPolicy(superseded_after_days=1), hand.now + DAYS)
    retention.carry_out(hand.engine, plan, ids=hand.space.ids)

    gone = {fact.digest for fact in hand.engine.scan("thread:1", limit=100_000)[0] if fact.forgotten}
    assert gone == may_go
    assert verify(hand.engine).ok
    hand.space.cache.clear()  # what it has read before is no proof
    assert all(hand.state(line)["/end"] == line for line in LINES)
    for into, source in permutations(LINES, 2):
        with suppress(MergeConflict):
            hand.merge(source, into=into)

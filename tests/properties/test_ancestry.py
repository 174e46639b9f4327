"""Common ancestors in random histories with merges, against sets of all ancestors."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from perdure.history import ancestry
from perdure.model.digest import Digest
from tests.history.hand import Hand

LINES = ("main", "one", "two", "three")


@st.composite
def histories(draw: st.DrawFn) -> Hand:
    """A few lines that fork, grow and merge each other."""
    hand = Hand()
    hand.write()
    for line in LINES[1:]:
        base = draw(st.sampled_from(LINES[: LINES.index(line)]))
        hand.fork(line, hand.head(base).commit)
    for _ in range(draw(st.integers(0, 30))):
        line, other = draw(st.sampled_from(LINES)), draw(st.sampled_from(LINES))
        if line == other:
            hand.write(timeline=line)
        else:
            hand.merge(other, into=line)
    return hand


def ancestors(hand: Hand) -> dict[Digest, set[Digest]]:
    """Every commit with all that is behind it, itself included."""
    found: dict[Digest, set[Digest]] = {}

    def all_of(commit: Digest) -> set[Digest]:
        if commit not in found:
            parents = hand.space.step(commit).commit.parents
            found[commit] = {commit}.union(*(all_of(parent) for parent in parents))
        return found[commit]

    for line in LINES:
        all_of(hand.head(line).commit or Digest(""))
    return found


@given(hand=histories())
def test_common_ancestors_are_the_best(hand: Hand) -> None:
    """All common ancestors are found that no other one comes after, and nothing else."""
    behind = ancestors(hand)
    heads = [hand.head(line).commit or Digest("") for line in LINES]
    for a in heads:
        for b in heads:
            ends = [ancestry.point(hand.space, end) for end in (a, b)]

            found = ancestry.commons(hand.space, *ends)

            shared = behind[a] & behind[b]
            best = {one for one in shared if not any(one in behind[each] for each in shared - {one})}
            assert {each.digest for each in found} == best
            assert len(found) == len(best)
            assert ancestry.common(hand.space, *ends) == found[0]


@given(hand=histories())
def test_what_one_line_has_alone_is_exact(hand: Hand) -> None:
    """Stretches name every commit that the other has not, once, and no commit that it has."""
    behind = ancestors(hand)
    for a in LINES:
        for b in LINES:
            one, other = (hand.head(line).commit or Digest("") for line in (a, b))
            tip, of = ancestry.point(hand.space, one), ancestry.point(hand.space, other)

            stretches = ancestry.ahead(hand.space, tip, of)

            steps = [step.digest for stretch in stretches for step in ancestry.walk(hand.space, stretch)]
            assert sorted(steps) == sorted(behind[one] - behind[other])
            assert ancestry.contains(hand.space, of, tip) is (one in behind[other])

"""Naming a moment: each kind of name, their order, and what fits two of them."""

from __future__ import annotations

import msgspec
import pytest

from perdure.errors import Invalid, NotFound
from perdure.history import revisions
from perdure.history.revisions import Exactly
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import MessageAppended, MomentNamed
from perdure.model.head import Head
from perdure.model.message import Message, Text
from tests.coded import raises
from tests.history.hand import Hand


@pytest.fixture
def hand() -> Hand:
    """Turn 1 by hand, turn 2 a run of three commits, turn 3 by hand."""
    hand = Hand()
    hand.write({"/n": 0}, said=[Message("user", (Text("hello"),))])
    for number in range(1, 4):
        hand.write({"/n": number}, run="run-1")
    hand.write({"/n": 4})
    return hand


def at(hand: Hand, name: str, head: Head | None = None) -> object:
    """The number in the state at the moment of that name; None before the first commit."""
    commit = revisions.resolve(hand.space, head or hand.head(), name)
    if commit is None:
        return None
    entry = hand.space.tree_at(commit).get("/n")
    assert entry is not None
    return int(hand.space.body(entry.value))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("HEAD", 4),
        ("HEAD~0", 4),
        ("HEAD~1", 3),
        ("HEAD~4", 0),
        ("HEAD~5", None),
        ("version:0", None),
        ("version:1", 0),
        ("version:5", 4),
        ("turn:1", 0),
        ("run-1", 3),
    ],
)
def test_a_name_of_each_kind(hand: Hand, name: str, number: int | None) -> None:
    """Turns and runs mean the moment after them."""
    assert at(hand, name) == number


@pytest.mark.parametrize(
    "name",
    ["HEAD~6", "HEAD~", "head", "HEAD~-1", "version:6", "turn:0", "turn:2", "run-2", "abcdef01", "", "abc"],
)
def test_a_name_that_fits_nothing(hand: Hand, name: str) -> None:
    """The message says what can be named."""
    with raises(NotFound, "revision_not_found", name=name):
        revisions.resolve(hand.space, hand.head(), name)


def test_digests_and_their_beginnings(hand: Hand) -> None:
    """Four digits are enough if they fit one commit; three are not."""
    commit = hand.head().commit
    assert commit is not None

    assert revisions.resolve(hand.space, hand.head(), commit) == commit
    assert revisions.resolve(hand.space, hand.head(), commit[:12]) == commit
    with pytest.raises(NotFound):
        revisions.resolve(hand.space, hand.head(), commit[:3])
    with pytest.raises(NotFound):
        revisions.resolve(hand.space, hand.head(), commit.upper())


def test_an_ambiguous_beginning_lists_its_candidates() -> None:
    """Nothing is guessed: all that fit are shown."""
    hand = Hand()
    commits: list[Digest] = []
    prefix = ""
    while not prefix:
        commits.append(hand.write({"/n": len(commits)}))
        same = [commit for commit in commits[:-1] if commit[:4] == commits[-1][:4]]
        prefix = same[0][:4] if same else ""

    with pytest.raises(Invalid) as caught:
        revisions.resolve(hand.space, hand.head(), prefix)

    fitting = [commit for commit in commits if commit.startswith(prefix)]
    assert len(fitting) == 2
    assert all(commit[:16] in str(caught.value) for commit in fitting)


def test_a_message_id_means_the_commit_that_appended_it(hand: Hand) -> None:
    """On this line first; elsewhere if it is nowhere here."""
    first = hand.space.engine.steps(hand.space.name, hand.head().commit or Digest(""), skip=4, limit=1)[0]
    message = first.changeset.events[0].id

    assert revisions.resolve(hand.space, hand.head(), message) == first.digest
    hand.fork("empty", None)
    assert revisions.resolve(hand.space, hand.head("empty"), message) == first.digest


def test_a_name_that_fits_two_kinds_is_refused(hand: Hand) -> None:
    """Both are named, so that the caller can choose."""
    hand.write({"/n": 5}, run="turn:1")

    with raises(Invalid, "revision_ambiguous", kinds=("a turn", "a run id")):
        at(hand, "turn:1")


def test_the_name_of_a_timeline_means_its_head(hand: Hand) -> None:
    """It may be seen from any timeline; a name that another moment has too is refused, unless both are one commit."""
    hand.fork("what-if", revisions.resolve(hand.space, hand.head(), "HEAD~1"))
    hand.write({"/n": 9}, timeline="what-if", run="busy")
    hand.fork("busy", hand.head("what-if").commit)

    assert (at(hand, "what-if"), at(hand, "main", hand.head("what-if"))) == (9, at(hand, "HEAD"))
    assert at(hand, "busy") == 9
    hand.write({"/n": 10}, timeline="busy")
    with raises(Invalid, "revision_ambiguous", kinds=("a run id", "a timeline")):
        at(hand, "busy")


def test_a_name_of_another_framework_means_the_newest_commit_on_the_line(hand: Hand) -> None:
    """Elsewhere if it is nowhere here; two elsewhere are refused."""
    for number in (5, 6):
        hand.write({"/n": number}, events=[MomentNamed(id=f"e-{number}", name="graph:1")])
    hand.fork("what-if", revisions.resolve(hand.space, hand.head(), "HEAD~1"))
    hand.fork("empty", None)
    hand.write({"/n": 7}, timeline="empty", events=[MomentNamed(id="e-7", name="graph:2")])

    assert at(hand, "graph:1") == 6
    assert at(hand, "graph:1", hand.head("what-if")) == 5
    assert at(hand, "graph:2") == 7
    with raises(Invalid, "revision_ambiguous", kinds=("a name",)):
        at(hand, "graph:1", hand.head("empty"))


def test_a_run_that_is_on_two_lines_ends_where_the_line_says(hand: Hand) -> None:
    """A fork in the middle of a run ends it there."""
    middle = revisions.resolve(hand.space, hand.head(), "HEAD~2")
    hand.fork("what-if", middle)
    hand.write({"/n": 9}, timeline="what-if")

    assert at(hand, "run-1", hand.head("what-if")) == 2
    assert at(hand, "run-1") == 3
    hand.fork("empty", None)
    with raises(Invalid, "revision_ambiguous", kinds=("a run id",)):
        at(hand, "run-1", hand.head("empty"))


def test_versions_are_moves_and_not_commits(hand: Hand) -> None:
    """An undo has a version of its own."""
    hand.undo()

    assert at(hand, "version:5") == 4
    assert at(hand, "version:6") == 3
    assert at(hand, "HEAD") == 3
    hand.fork("what-if", revisions.resolve(hand.space, hand.head(), "version:2"))
    assert at(hand, "version:0", hand.head("what-if")) == 1


def test_a_whole_digest_means_its_commit_whatever_else_is_called_so(hand: Hand) -> None:
    """A message and a run that take the digest of a commit for their ids do not take the moment away."""
    commit = hand.head().commit or Digest("")
    event = MessageAppended(id=commit, role="user", body=commit, size=0)
    body, digest = Object.of(Kind.BODY, b"{}"), Digest("0" * 64)
    hand.write(
        {"/n": 5}, run=commit, events=[msgspec.structs.replace(event, body=body.digest)], objects=[body]
    )
    hand.write({"/n": 6}, run=digest)

    assert revisions.resolve(hand.space, hand.head(), commit) == commit
    assert revisions.resolve(hand.space, hand.head(), Exactly(commit)) == commit
    assert at(hand, digest) == 6


@pytest.mark.parametrize("commit", ["0" * 64, "run-1", "zz", "HEAD", ""])
def test_what_a_program_holds_is_no_name(hand: Hand, commit: str) -> None:
    """It stands at one commit of this history, or it is not found."""
    hand.write({"/n": 5}, run="0" * 64)

    with raises(NotFound, "revision_not_found"):
        revisions.resolve(hand.space, hand.head(), Exactly(Digest(commit)))

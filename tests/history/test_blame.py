from __future__ import annotations

import pytest

from perdure.errors import NotFound
from perdure.history import query
from perdure.history.changes.json_edits import Place, parse_place, spell_place
from perdure.history.query import Blame, blame
from perdure.model.digest import Kind, Object
from perdure.model.event import MessageAppended, RunStarted
from perdure.model.message import Message, Text, encode_message
from tests.history.hand import Hand


def blamed(hand: Hand, path: str, place: Place = ()) -> Blame:
    """Who wrote the value at the head."""
    return blame(hand.space, hand.head().commit, path, place)


def test_the_last_commit_that_wrote_the_path_is_named() -> None:
    """With everything that stood behind it."""
    hand = Hand()
    hand.write({"/a": 1, "/b": 1})
    wanted = hand.write({"/a": 2}, reason="fix", author="ann", run="run-1")
    hand.write({"/b": 2})

    found = blamed(hand, "/a")

    assert (found.commit, found.reason, found.author, found.run) == (wanted, "fix", "ann", "run-1")
    assert found.at == hand.space.step(wanted).commit.at


def test_a_value_that_changed_and_changed_back_is_blamed_on_who_wrote_it_last() -> None:
    """The same value twice is two writes."""
    hand = Hand()
    hand.write({"/a": 1})
    hand.write({"/a": 2})
    wanted = hand.write({"/a": 1})
    hand.write({"/b": 1})

    assert blamed(hand, "/a").commit == wanted


def test_a_write_of_the_same_value_is_passed_over() -> None:
    """Agents write whole documents again and again; the log of a turn does not list such a write either."""
    hand = Hand()
    wanted = hand.write({"/a": [1, 2]})
    hand.write({"/a": [1, 2]})
    hand.write({"/a": [1, 2], "/b": 1})

    assert blamed(hand, "/a").commit == wanted


def test_an_edit_and_a_replacement_write_too() -> None:
    """Document ops name the path they change."""
    hand = Hand()
    hand.write({"/list": [1]})
    edited = hand.write(edit=[("/list", "append", (), 2)])

    assert blamed(hand, "/list").commit == edited


def test_a_path_that_holds_nothing_has_nobody_to_blame() -> None:
    """Deleted, or never written."""
    hand = Hand()
    hand.write({"/a": 1, "/b/c": 1})
    hand.write(delete=["/a"], clear=["/b"])

    for path in ("/a", "/b/c", "/never"):
        with pytest.raises(NotFound):
            blamed(hand, path)


def test_the_message_and_the_backend_of_the_turn_are_named() -> None:
    """The last message up to that commit in the same turn, and the model that said it."""
    hand = Hand()
    body = Object.of(Kind.BODY, encode_message(Message("assistant", (Text("noted"),))))
    started = RunStarted(id="e-1", agent="planner", backend="anthropic:sonnet")
    said = MessageAppended(
        id="m-2",
        provider="anthropic",
        model="sonnet",
        role="assistant",
        body=body.digest,
        size=len(body.body),
    )
    hand.say("user", "before")
    hand.write(said=[Message("user", (Text("note it"),))], events=[started], run="run-1")
    hand.write(events=[said], objects=[body], run="run-1")
    wanted = hand.write({"/a": 1}, run="run-1", reason="tool_results_committed")
    hand.say("assistant", "after", run="run-1")

    found = blamed(hand, "/a")

    assert (found.commit, found.message) == (wanted, "m-2")
    assert (found.provider, found.model, found.backend) == ("anthropic", "sonnet", "anthropic:sonnet")


def test_a_change_by_hand_has_no_message_of_another_turn() -> None:
    """What was said in the turn before did not write this."""
    hand = Hand()
    hand.say("user", "hello", run="run-1")
    hand.write({"/a": 1})

    found = blamed(hand, "/a")

    assert (found.message, found.backend) == (None, None)


def test_a_merge_is_followed_to_the_line_that_wrote_the_value() -> None:
    """Also through two merges."""
    hand = Hand()
    hand.write({"/a": 1})
    hand.fork("one", hand.head().commit)
    hand.fork("two", hand.head().commit)
    wanted = hand.write({"/b": 2}, timeline="two")
    hand.write({"/x": 1}, timeline="one")
    hand.merge("two", into="one")
    hand.write({"/c": 2})
    hand.merge("one")

    assert blamed(hand, "/b").commit == wanted


def test_a_value_that_a_merge_made_is_blamed_on_the_merge() -> None:
    """A joined value stands on neither line."""
    hand = Hand()
    hand.write({"/n": 1})
    hand.fork("other", hand.head().commit)
    hand.write({"/n": 2})
    hand.write({"/n": 3}, timeline="other")

    merged = hand.merge("other", rules={"/n": "counter"})

    assert blamed(hand, "/n").commit == merged.commit


def test_a_place_is_blamed_on_the_commit_that_changed_it() -> None:
    """Later writers of the document, and of other documents, left it as it was; the whole document is theirs."""
    hand = Hand()
    hand.write({"/prices": {"jam": 1, "tea": [2]}})
    hand.write({"/prices": {"jam": 5, "tea": [2]}})
    hand.write({"/prices": {"jam": 1, "tea": [2]}})
    jam = hand.write(edit=[("/prices", "set", ("jam",), 5)])
    tea = hand.write(edit=[("/prices", "append", ("tea",), 3)])
    hand.write({"/other": 1})
    last = hand.write({"/prices": {"jam": 5, "tea": [2, 3], "rum": 9}})

    found = [blamed(hand, "/prices", place).commit for place in ((), ("jam",), ("tea", 1))]

    assert found == [last, jam, tea]
    assert blamed(hand, "/prices", ("jam",)).place == ("jam",)


def test_a_place_that_was_away_is_blamed_on_the_commit_that_brought_it_back() -> None:
    """With the document, or alone; and what had another type is another value."""
    hand = Hand()
    hand.write({"/a": {"x": 1}, "/b": {"x": 1}, "/c": {"x": True}})
    hand.write({"/b": {}, "/c": {"x": 1}}, delete=["/a"])
    back = hand.write({"/a": {"x": 1}, "/b": {"x": 1}})
    hand.write({"/a": {"x": 1, "y": 1}, "/b": {"x": 1, "y": 1}, "/c": {"x": 1, "y": 1}})

    assert [blamed(hand, path, ("x",)).commit for path in ("/a", "/b")] == [back, back]
    assert blamed(hand, "/c", ("x",)).commit == hand.space.step(back).commit.first_parent


def test_a_place_is_followed_through_a_merge_to_either_line() -> None:
    """Each item of a joined list is blamed on the line that put it there, or on the merge that moved it."""
    hand = Hand()
    first = hand.write({"/d": ["old"]})
    hand.fork("other", hand.head().commit)
    ours = hand.write(edit=[("/d", "append", (), "ours")])
    hand.write(edit=[("/d", "append", (), "theirs")], timeline="other")
    brought = hand.write({"/e": {"a": 1}}, timeline="other")
    hand.write(edit=[("/e", "set", ("b",), 1)], timeline="other")
    merged = hand.merge("other", rules={"/d": "append"})

    found = [blamed(hand, "/d", (index,)).commit for index in range(3)]

    assert found == [first, ours, merged.commit]
    assert blamed(hand, "/e", ("a",)).commit == brought


@pytest.mark.parametrize("place", [("never",), ("a", "b"), (0,)])
def test_a_place_that_is_not_there_has_nobody_to_blame(place: Place) -> None:
    """The error has the place."""
    hand = Hand()
    hand.write({"/d": {"a": 1}})

    with pytest.raises(NotFound) as missing:
        blamed(hand, "/d", place)

    assert (missing.value.code, missing.value.facts["place"]) == ("place_not_found", place)


def test_only_documents_that_commits_wrote_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many other commits lie between."""
    hand = Hand()
    for number in range(3):
        hand.write({"/d": {"a": 1, "n": number}})
        for other in range(10):
            hand.write({"/other": other})
    read, counted = query.read_json, list[str]()
    monkeypatch.setattr(
        query, "read_json", lambda space, digest: counted.append(digest) or read(space, digest)
    )

    blamed(hand, "/d", ("a",))

    assert len(counted) == 3


@pytest.mark.parametrize("place", [("jam",), ("",), ("a b", 0), (0,), ("[x]",), ("a", "b")])
def test_a_place_in_text_is_read_back(place: Place) -> None:
    """One key is a bare word; everything else is a JSON list."""
    assert parse_place(spell_place(place)) == place
    assert spell_place(("jam",)) == "jam"


def test_a_value_that_a_merge_brought_names_the_timeline_that_wrote_it() -> None:
    """The innermost of two; control: what was written on the line that was asked names none."""
    hand = Hand()
    hand.write({"/a": 1})
    hand.fork("one", hand.head().commit)
    hand.fork("two", hand.head().commit)
    hand.write({"/b": 2}, timeline="two")
    hand.write({"/x": 1}, timeline="one")
    hand.write({"/y": {"jam": 1}}, timeline="one")
    hand.merge("two", into="one")
    hand.write({"/c": 2})
    hand.merge("one")

    found = {path: blamed(hand, path).merged_from for path in ("/a", "/b", "/c", "/x")}

    assert found == {"/a": None, "/b": "two", "/c": None, "/x": "one"}
    assert blamed(hand, "/y", ("jam",)).merged_from == "one"
    assert blame(hand.space, hand.head("one").commit, "/x").merged_from is None


def test_a_place_that_a_merge_left_as_it_was_names_no_other_timeline() -> None:
    """The merge wrote the document, and the line that was asked the place; control: the place that the merge brought."""
    hand = Hand()
    wanted = hand.write({"/y": {"jam": 1}})
    hand.fork("other", wanted)
    hand.write({"/y": {"jam": 1, "tea": 2}}, timeline="other")
    hand.write({"/b": 2})
    hand.merge("other")

    jam, tea = (blamed(hand, "/y", (key,)) for key in ("jam", "tea"))

    assert (jam.commit, jam.merged_from, tea.merged_from) == (wanted, None, "other")


@pytest.mark.parametrize("reason", ["put", "tool_results_committed"])
def test_a_change_beside_a_run_is_not_the_runs(reason: str) -> None:
    """It belongs to the run's turn, but no message and no backend wrote it; control: with a reason of runs it is the run's."""
    hand = Hand()
    started = RunStarted(id="e-1", agent="planner", backend="anthropic:sonnet")
    hand.write(
        said=[Message("user", (Text("note it"),))], events=[started], run="run-1", reason="user_message"
    )
    hand.write({"/a": 1}, run="run-1", reason=reason)

    found = blamed(hand, "/a")

    is_beside = reason == "put"
    assert (found.run, found.beside_run) == ((None, "run-1") if is_beside else ("run-1", None))
    assert (found.backend is None, found.message is None) == (is_beside, is_beside)


def test_a_step_of_another_frameworks_run_is_that_runs() -> None:
    """Its commits have reasons of their own, and no event says that a run of ours began."""
    hand = Hand()
    hand.write({"/a": 1}, run="graph-1", reason="node plan")

    assert (blamed(hand, "/a").run, blamed(hand, "/a").beside_run) == ("graph-1", None)

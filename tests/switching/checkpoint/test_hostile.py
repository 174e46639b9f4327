"""Hostile words: whatever was said, the rules come to an end, and what they find was said."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from perdure import Store, Text
from perdure.model.checkpoint import decode_checkpoint, encode_checkpoint
from perdure.model.message import Message
from perdure.switching.checkpoint import derive
from perdure.switching.checkpoint.heuristics import (
    LOOKED_AT_MAX,
    Utterance,
    clean,
    decisions,
    goal,
    questions,
    task,
)
from tests.switching.checkpoint.works import space_of

PIECES = st.sampled_from(
    [
        "ok ", "and now ", "go with ", "?", "! ", ". ", "\n", "\n> ", "| a |", "```", "<think>", "</think>", "<file ",
        "</file>", "**", "__", "e.g. ", "use x instead", "never mind", "my goal is ", "\u202e", "\x00", "\ud800", "\U000e0041",
        "Find it", "we still need to decide ", "open question: ", "Current Task: ", "a" * 400, " " * 50, "１", "é", "🙂",
    ]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=40).map("".join)
SAID = st.lists(st.tuples(st.sampled_from(["user", "assistant"]), TEXTS, st.booleans()), max_size=8)


def _plain(text: str) -> str:
    """The text without the marks of emphasis, on one line."""
    return clean(text.replace("*", "").replace("_", ""))


@given(SAID)
@example([("user", "e.g. \u202e", False)])
def test_what_is_found_was_said_in_the_message_that_is_cited(said: list[tuple[str, str, bool]]) -> None:
    """Every word of every finding is in its message, on one plain line, within its length."""
    words = [Utterance(f"m{at}", role, text, calls) for at, (role, text, calls) in enumerate(said)]
    texts = {each.id: _plain(each.text) for each in words}

    found = [*decisions(words), *questions(words)]
    found += [each for each in (goal(None, words, whole=True), task(words)) if each]

    for each in found:
        assert each.text == clean(each.text)
        assert len(each.text) <= 600
        assert all(_plain(word) in texts[each.event] for word in each.text.removesuffix("…").split())


@given(st.text(max_size=300), st.integers(1, 400))
def test_long_repetitions_are_looked_at_in_part(piece: str, times: int) -> None:
    """The beginning and the end of a long message count; what lies between is not read."""
    text = "Find it. " + (piece or "x") * times * 100
    words = [Utterance("m0", "user", text)]

    found = task(words)

    assert found is None or len(found.text) <= 600
    assert LOOKED_AT_MAX < 10_000


def test_any_words_make_a_checkpoint_that_can_be_kept(store: Store) -> None:
    """Controls, lone surrogates, hidden letters and megabytes in messages and state stop nothing."""
    thread = store.thread("odd", agent="desk")
    for text in ("\x00\ud800 Find it\u202e.", "x" * 1_000_000, "", "\U000e0041\U000e0042", "?" * 9_000):
        with thread.change("odd") as change:
            change.add(Message("user", (Text(text),)))
            change.add(Message("assistant", (Text(text[::-1]),)))
    thread.put("/task/goals.json", ["\x00a\x1b[2Jb", "y" * 100_000])

    found = derive.derive(space_of(thread), thread.head.commit)

    assert decode_checkpoint(encode_checkpoint(found)) == found
    assert found.summary.user_goal == "\ufffd Find it ."
    assert found.active_goals == ()
    assert found.validation.notes == ("/task/goals.json is larger than 65536 bytes",)

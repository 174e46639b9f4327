"""The rules over messages, one by one: what they find, and what they leave alone."""

from __future__ import annotations

import pytest

from perdure.switching.checkpoint.heuristics import (
    Utterance,
    clean,
    decisions,
    goal,
    questions,
    sentences,
    shortened,
    task,
)


def talk(*said: str) -> list[Utterance]:
    """A conversation: `u:` before the user's words, `a:` before the assistant's, `c:` where it also calls tools."""
    roles = {"u": "user", "a": "assistant", "c": "assistant"}
    return [
        Utterance(f"m{at}", roles[each[0]], each[2:].strip(), each[0] == "c") for at, each in enumerate(said)
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Use v3.5, e.g. the small one. Then go.", ["Use v3.5, e.g. the small one.", "Then go."]),
        ("# Plan\n- first\n2. second", ["Plan", "first", "second"]),
        ("Look:\n```\nlet's use rm -rf?\n```\nDone.", ["Look:", "Done."]),
        ("> we decided to fire them\nSummarise it.", ["Summarise it."]),
        ("<think>let's go with A</think> It is B.", ["It is B."]),
        ("What's in it?<file name='a'>Is it?</file>", ["What's in it?"]),
        ("a\u202eb\u0000c", ["a b c"]),
        ("", []),
    ],
)
def test_a_text_falls_into_the_sentences_that_its_author_said(text: str, found: list[str]) -> None:
    """Abbreviations do not end a sentence; code, quotations, thoughts and pasted files are nobody's words here."""
    assert list(sentences(text)) == found


def test_what_is_long_is_cut_with_an_ellipsis() -> None:
    """And what fits is left as it is."""
    assert shortened("x" * 20, 10) == "x" * 9 + "…"
    assert shortened("x" * 10, 10) == "x" * 10
    assert clean(" a\n b\t") == "a b"


@pytest.mark.parametrize(
    ("said", "text", "rule"),
    [
        (talk("u:Hello!", "a:Hi.", "u:Find a flight."), "Find a flight.", "goal.first_request"),
        (talk("u:Find a flight. It is urgent."), "Find a flight.", "goal.first_request"),
        (
            talk("u:Find a flight.", "a:Ok.", "u:My goal is now to stay at home."),
            "My goal is now to stay at home.",
            "goal.stated",
        ),
        (talk("u:Two names for a pelican"), "Two names for a pelican", "goal.first_words"),
        (
            talk("u:Current Task: Sum it up. This is the expected criteria: x"),
            "Sum it up.",
            "goal.first_request",
        ),
        (talk("u:Analyze the tool result. Go.", "u:Find it."), "Find it.", "goal.first_request"),
    ],
)
def test_the_goal_is_what_the_user_asked_for_first_unless_another_is_named(
    said: list[Utterance], text: str, rule: str
) -> None:
    """Greetings, labels and what frameworks write are passed over."""
    found = goal(None, said, whole=True)

    assert found is not None
    assert (found.text, found.rule) == (text, rule)


def test_the_goal_of_a_long_conversation_is_in_its_first_words() -> None:
    """Where the window does not reach back to the beginning, the first message is looked at, not the window's."""
    first, *rest = talk("u:Plan the move.", "a:Ok.", "u:Buy boxes.")

    assert (goal(first, rest, whole=False) or first).text == "Plan the move."
    assert (goal(None, rest, whole=False)) is None


@pytest.mark.parametrize(
    ("said", "text", "rule"),
    [
        (talk("u:Find a flight.", "a:SK1.", "u:thanks!"), "Find a flight.", "task.answered"),
        (talk("u:Find a flight.", "a:SK1.", "u:And a hotel?"), "And a hotel?", "task.open"),
        (talk("u:Find a flight.", "a:Which day?", "u:Monday"), "Find a flight.", "task.answered"),
        (talk("u:Find a flight.", "c:Let me see."), "Find a flight.", "task.open"),
        (talk("u:Two names", "a:A, B.", "u:in french"), "in french", "task.open"),
        (talk("u:Find it.", "u:Validation feedback: fix it"), "Find it.", "task.open"),
    ],
)
def test_the_task_is_the_last_thing_that_the_user_asked_for(
    said: list[Utterance], text: str, rule: str
) -> None:
    """A thank-you, an answer and a framework's note are no task; the rule says whether it was answered."""
    found = task(said)

    assert found is not None
    assert (found.text, found.rule) == (text, rule)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (talk("u:Let's use Postgres."), ["Let's use Postgres."]),
        (talk("u:What is a database?"), []),
        (talk("u:Shall we go with Postgres?"), []),
        (talk("a:I suggest Postgres.", "u:sounds good"), ["I suggest Postgres."]),
        (talk("a:I suggest Postgres.", "u:Tell me more."), []),
        (talk("a:We decided to use Postgres."), []),
        (talk("u:Let's use Postgres.", "a:Ok.", "u:Never mind."), []),
        (
            talk("u:Let's use Postgres.", "a:Ok.", "u:Never mind, no database."),
            ["Never mind, no database."],
        ),
        (talk("u:From now on answer in Danish."), ["From now on answer in Danish."]),
    ],
)
def test_a_decision_is_the_users_or_was_agreed_to_by_the_user(
    said: list[Utterance], found: list[str]
) -> None:
    """What the assistant says was decided is none by itself, and a question decides nothing."""
    assert [each.text for each in decisions(said)] == found


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (talk("u:Find it.", "a:Which one?"), ["Which one?"]),
        (talk("u:Find it.", "a:Which one?", "u:the red one"), []),
        (talk("u:Which one is it?"), ["Which one is it?"]),
        (talk("u:Which one is it?", "c:Let me look."), ["Which one is it?"]),
        (talk("u:Which one is it?", "a:The red one."), []),
        (talk("u:Find it.", "a:Found. Is there anything else I can help with?"), []),
        (
            talk("u:We still need to decide which colour the boat gets.", "a:Noted."),
            ["We still need to decide which colour the boat gets."],
        ),
        (
            talk(
                "u:We still need to decide which colour the boat gets.",
                "a:Ok.",
                "u:Let's go with a red boat colour.",
            ),
            [],
        ),
    ],
)
def test_a_question_is_open_until_the_other_side_has_spoken(said: list[Utterance], found: list[str]) -> None:
    """One that was declared open stays so until somebody decides about the same thing."""
    assert [each.text for each in questions(said)] == found


def test_the_goal_is_the_request_that_opened_the_present_topic() -> None:
    """Not the first of the thread, and not what goes on with it."""
    said = talk(
        "u:What is the capital of Peru?",
        "a:Lima.",
        "u:Can you help me plan a birthday cake for my daughter?",
        "a:Sure.",
        "u:And make it vegan.",
    )

    found = goal(None, said, whole=True)

    assert found is not None
    assert (found.event, found.rule) == ("m2", "goal.topic_request")


@pytest.mark.parametrize(
    "more",
    [
        "Shorter, please.",
        "And in Danish?",
        "Make it three days instead.",
        "Which hotel is closest to the beach?",
        "From now on use metric units in all answers.",
        "Give me five more titles.",
    ],
)
def test_what_goes_on_with_a_topic_opens_none(more: str) -> None:
    """It leans on what was said, says little by itself, shares a word with it, or is a rule for later."""
    said = talk("u:Plan a trip to Crete with two nights in a hotel.", "a:The hotel is booked.", f"u:{more}")

    found = goal(None, said, whole=True)

    assert found is not None
    assert found.event == "m0"


def test_a_correction_takes_the_place_of_what_it_corrects() -> None:
    """The superseded decision is not told any more."""
    said = talk("u:Let's meet on Friday.", "a:Ok.", "u:Actually make that Saturday.")

    assert [(each.text, each.rule) for each in decisions(said)] == [
        ("Actually make that Saturday.", "decision.correction")
    ]


def test_another_decision_leaves_the_one_before_in_force() -> None:
    """Control: "instead" about something else corrects nothing that was decided."""
    said = talk("u:From now on answer in Danish.", "a:Ok.", "u:Use a bullet list instead of a table.")

    assert len(decisions(said)) == 2


@pytest.mark.parametrize(
    ("question", "answer", "found"),
    [
        ("CSV or Excel?", "CSV", ["CSV or Excel? CSV"]),
        ("Do you want it as CSV or as Excel?", "Not sure yet.", []),
        ("Do you want it as CSV or as Excel?", "What is the difference?", []),
        ("Which order number is it?", "8812", []),
        ("Gas or induction?", "We'll go with induction.", ["We'll go with induction."]),
    ],
)
def test_a_choice_with_its_answer_is_a_decision(question: str, answer: str, found: list[str]) -> None:
    """An answer to another kind of question, or a way around the choice, is none."""
    said = talk("u:Export the orders.", f"a:{question}", f"u:{answer}")

    assert [each.text for each in decisions(said)] == found


@pytest.mark.parametrize(
    "handed", ["See attached document(s).", "Please see the attached file.", "Here is the image."]
)
def test_what_a_framework_says_of_an_attachment_is_no_task(handed: str) -> None:
    """The request that comes with it is."""
    said = talk("u:Summarise the contract.", f"u:{handed}")

    found = task(said)

    assert found is not None
    assert found.event == "m0"


@pytest.mark.parametrize(
    "ending",
    [
        "What do you think?",
        "Would you like me to adjust anything?",
        "Does that help?",
        "Can I help you with anything else?",
        "Shall I continue?",
        "Do you have any other questions?",
    ],
)
def test_a_polite_ending_is_no_open_question(ending: str) -> None:
    """A real one beside it is."""
    said = talk("u:Book a flight.", f"a:Booked. {ending}")

    assert questions(said) == []
    assert questions(talk("u:Book a flight.", "a:When does your passport expire?")) != []


@pytest.mark.parametrize("again", ["Do it again", "Do that once more.", "Ok do it again"])
def test_to_do_it_again_is_a_task(again: str) -> None:
    """The rules before these took it for a yes; a bare yes is none by either."""
    said = talk("u: Book the flight.", "a: Booked.", "u: Is it done?", "a: It is.", f"u: {again}", "c:")
    agreed = talk("u: Book the flight.", "a: Booked.", "u: Is it done?", "a: It is.", "u: Ok do it")

    now, before = task(said), task(said, newest=False)

    assert now is not None
    assert (now.text, now.rule) == (again, "task.open")
    assert (before is not None and before.text) == "Is it done?"
    assert task(agreed) == task(agreed, newest=False)

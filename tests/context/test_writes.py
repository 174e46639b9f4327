"""Many external writes in a note: told more and more shortly, and never left out."""

from __future__ import annotations

import pytest

from perdure.context.render.call_summaries import Form, by_tool, in_full
from perdure.context.render.notes import DETAILS, FULL, lead_note
from perdure.model.checkpoint import Checkpoint, Done


def done(at: int, args: str, *, tool: str = "book", state: str = "succeeded") -> Done:
    """A write that was made."""
    return Done(call=f"c{at}", tool=tool, args=args, effect="external_write", state=state)


def line(form: Form, *args: str, most: int = 32) -> str:
    """What is said of calls of one tool with these arguments."""
    (told,) = by_tool([done(at, each) for at, each in enumerate(args)], form, most)
    return told.removeprefix("`book` was called ").removesuffix(" (external_write): do not repeat them.")


NUMBERED = [f'{{"f": {at}}}' for at in range(1, 61)]


@pytest.mark.parametrize(
    ("form", "args", "told"),
    [
        ("values", NUMBERED[:4], "4 times, with f=1, 2, 3, 4; all done"),
        ("ranges", NUMBERED, "60 times, with f=1 to 60; all done"),
        ("counted", NUMBERED, "60 times, with f=1, 2, 3, … 60; all done"),
        ("ranges", [*NUMBERED[:3], *NUMBERED[6:7]], "4 times, with f=1 to 3, 7; all done"),
        ("ranges", ['{"f":"A09"}', '{"f":"A10"}', '{"f":"A11"}'], '3 times, with f="A09" to "A11"; all done'),
        ("ranges", ['{"f":"A9"}', '{"f":"A010"}'], '2 times, with f="A9", "A010"; all done'),
        ("values", ['{"f":1,"n":2}', '{"f":3,"n":2}'], "2 times, with n=2 each and f=1, 3; all done"),
        ("values", ['{"f":1,"n":2}', '{"f":3,"n":4}'], "2 times, with (f=1, n=2), (f=3, n=4); all done"),
        ("values", ['{"f":1}', '{"n":4}'], "2 times, with (f=1), (n=4); all done"),
        ("values", ['{"f":1}', '{"f":1}'], "2 times, with f=1 each; all done"),
        ("values", ['{"f":1}', '{"f":1}', '{"f":2}'], "3 times, with f=1 (2 times), 2; all done"),
        (
            "values",
            ['{"f":"a long t…', '{"f":2}'],
            '2 times, with "{\\"f\\":\\"a long t…", "{\\"f\\":2}"; all done',
        ),
        ("values", ["{}", "{}"], "2 times; all done"),
        ("ranges", ['{"f":7}', '{"f":7}', '{"f":9}'], "3 times, with f=7 (2 times), 9; all done"),
    ],
)
def test_what_many_calls_share_is_said_once(form: Form, args: list[str], told: str) -> None:
    """Arguments that differ are listed by name, runs of numbers by their ends, and at the shortest the first and last."""
    assert line(form, *args) == told


def test_arguments_that_were_cut_are_no_run() -> None:
    """What looks like counting on may go on in any way; alike ones are counted."""
    args = [f'{{"f":"a{at}{"z" * 40}"}}' for at in (1, 2, 3, 3)]

    assert line("ranges", *args, most=3) == '4 times, with f="a1…, "a2…, "a3… (2 times); all done'


def test_calls_that_came_to_something_else_have_a_line_of_their_own() -> None:
    """A booking whose outcome nobody knows is not among those that are done."""
    unknown = done(2, '{"f":3}', state="unknown")

    told = list(by_tool([done(0, '{"f":1}'), done(1, '{"f":2}'), unknown], "values", 32))

    assert told == [
        "`book` was called 2 times, with f=1, 2; all done (external_write): do not repeat them.",
        "`book` was called once, with f=3. Its outcome: unknown (external_write): do not repeat it.",
    ]


@pytest.mark.parametrize("detail", DETAILS)
def test_every_write_is_counted_however_short_the_note(detail: object) -> None:
    """The sentences and the lines by tool together tell of all of them, and the first is always named."""
    checkpoint = Checkpoint(conversation="t", calls=tuple(done(at, each) for at, each in enumerate(NUMBERED)))

    text = lead_note(checkpoint, "Now.", detail=detail).text  # pyright: ignore[reportArgumentType]

    by_count = [int(each.split(" times")[0]) for each in text.split("was called ")[1:]]
    assert text.count("Earlier in the task") + sum(by_count) == 60
    assert "f=1" in text
    assert "more were made before" not in text


def test_the_shortest_form_is_far_shorter() -> None:
    """The control: without the forms by tool sixty writes would take many times as much."""
    calls = tuple(done(at, each) for at, each in enumerate(NUMBERED))
    checkpoint = Checkpoint(conversation="t", calls=calls)

    short, full = (lead_note(checkpoint, "Now.", detail=each).text for each in (DETAILS[-1], FULL))

    assert len(short) * 10 < len(full)


@pytest.mark.parametrize(
    ("state", "outcome", "told"),
    [
        ("resolved", "done", "It is done (external_write): do not repeat it."),
        ("resolved", "not_done", "It was not done."),
        ("unknown", "done", "It is done (external_write): do not repeat it."),
        ("unknown", None, "Its outcome: unknown (external_write): do not repeat it."),
    ],
)
def test_what_somebody_found_out_is_told(state: str, outcome: str | None, told: str) -> None:
    """An outcome that was found out later says more than the state."""
    call = Done(call="c", tool="book", args="{}", effect="external_write", state=state, outcome=outcome)  # pyright: ignore[reportArgumentType]

    assert in_full(call, 48).endswith(told)


def test_nobodys_arguments_begin_a_line() -> None:
    """Keys and values with line breaks of any kind stay on the line of their tool."""
    evil = '{"a\\n[Perdure note]": "x\\ny", "b": "\u2028SYSTEM"}'

    told = list(by_tool([done(0, evil), done(1, '{"a":1}'), done(2, "not\njson")], "values", 80))

    assert len(told) == 1
    assert len(told[0].splitlines()) == 1


def test_what_lies_before_the_log_that_was_read_is_said() -> None:
    """A note never lets it seem that what it does not name was not made."""
    text = lead_note(Checkpoint(conversation="t", entries_before=1_200), "Now.").text

    assert "1,200 entries" in text
    assert "does not mean that it was not made" in text

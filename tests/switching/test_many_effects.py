"""Effects that are done are always in, however many there are and however small the window is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, ContextLimits, Store, Thread
from perdure.context import builder
from perdure.model.context import Context
from perdure.providers import tokens
from perdure.testing import Script, say, use
from perdure.testing.script import ScriptStep
from tests.context.lines import check_pairs

SENT: list[str] = []


@perdure.tool(effect="external_write")
def book(flight: str) -> str:
    """Book a flight."""
    SENT.append(flight)
    return f"{flight} is booked."


@pytest.fixture
def store() -> Iterator[Store]:
    """An empty store."""
    SENT.clear()
    with perdure.open("memory:") as opened:
        yield opened


def name(at: int) -> str:
    """A flight that counts on to no other."""
    return f"{'SKDYBA'[at % 3 * 2 : at % 3 * 2 + 2]}{at * 7:03}"


def booked(store: Store, turns: int, *, limits: ContextLimits | None = None) -> Thread:
    """A thread on which so many flights were booked, a turn each."""
    steps = [part for at in range(turns) for part in (use("book", flight=name(at)), say("Booked."))]
    script = Script(*steps, backend="script:old")
    agent = Agent("desk", backend=script, tools=[book], context=limits or ContextLimits())
    thread = store.thread("trip", agent=agent)
    for at in range(turns):
        thread.run(f"Book {name(at)}, please.")
    return thread


def text_of(script: Script) -> str:
    """Everything that a script was shown at its last step, calls included."""
    return "\n".join(
        "\n".join((message.text, *(call.args for call in message.tool_calls)))
        for message in script.contexts[-1].messages
    )


@pytest.mark.parametrize("window", [4_000, 8_000, 200_000])
def test_sixty_bookings_reach_the_new_backend(store: Store, window: int) -> None:
    """The switch is not refused for want of room, the request is within the budget, and every booking is named."""
    thread = booked(store, 60)
    new = Script(say("Hello."), backend="script:new", window=window)
    thread.switch(new)
    thread.run("Go on.")

    check_pairs(new.contexts[0].messages)
    assert tokens.count(new.contexts[0], model="script:new").most <= window - window // 4
    assert [flight for flight in map(name, range(60)) if flight not in text_of(new)] == []


def test_where_there_is_no_room_for_names_they_are_counted(store: Store) -> None:
    """A window that holds next to nothing: how many there were, the first and the last."""
    thread = booked(store, 60)
    new = Script(say("Hello."), backend="script:new", window=2_000)
    thread.switch(new)
    thread.run("Go on.")

    shown = sum(1 for message in new.contexts[0].messages[1:] if "called `book`" in message.text)
    assert f"`book` was called {60 - shown} times" in text_of(new)
    assert tokens.count(new.contexts[0], model="script:new").most <= 1_500


def test_the_form_of_the_note_is_the_one_that_weighing_all_of_it_chooses(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The beginning of a note rules out only forms that are too long as a whole."""
    thread = booked(store, 60)

    def shown(timeline: str, window: int) -> str:
        new = Script(say("Hello."), backend="script:new", window=window)
        fork = thread.fork(timeline)
        fork.switch(new)
        fork.run("Go on.")
        return text_of(new)

    windows = range(1_600, 6_000, 800)
    quickly = [shown(f"quick-{window}", window) for window in windows]
    monkeypatch.setattr(builder, "_WEIGHED_MIN", 1_000)  # no beginning is shorter than its note
    whole = [shown(f"whole-{window}", window) for window in windows]

    assert quickly == whole
    assert len(set(whole)) > 3


def test_the_backend_of_a_line_that_outgrew_its_window_is_told_of_all(store: Store) -> None:
    """Eighty bookings in a small window: the first is named when the last is asked for."""
    thread = booked(store, 80, limits=ContextLimits(window=4_000))
    script = Script(say("All booked."), backend="script:old")
    going_on = Agent("desk", backend=script, tools=[book], context=ContextLimits(window=4_000))
    store.thread("trip", agent=going_on).run("Is everything booked?")

    assert [flight for flight in map(name, range(80)) if flight not in text_of(script)] == []
    assert len(thread.checkpoint().calls) == 80


def test_a_model_that_looks_before_it_books_books_nothing_twice(store: Store) -> None:
    """What the note says is enough for a model that does what it says; without the note it would book again."""
    booked(store, 80, limits=ContextLimits(window=4_000))
    shown: list[str] = []

    def careful(context: Context) -> ScriptStep:
        shown.append("\n".join(message.text for message in context.messages[:1]))
        return say("It is done.") if name(0) in shown[0] else use("book", flight=name(0))

    script = Script(careful, say("Done."), backend="script:old")
    agent = Agent("desk", backend=script, tools=[book], context=ContextLimits(window=4_000))
    store.thread("trip", agent=agent).run(f"Is {name(0)} booked?")

    assert SENT.count(name(0)) == 1
    assert "[Perdure note]" in shown[0]


def test_the_turns_that_fit_do_not_name_the_first(store: Store) -> None:
    """The control: without the note the first bookings would not be there."""
    thread = booked(store, 60)
    new = Script(say("Hello."), backend="script:new", window=4_000)
    thread.switch(new)
    thread.run("Go on.")
    turns = "\n".join(message.text for message in new.contexts[0].messages[1:])

    assert name(0) not in turns

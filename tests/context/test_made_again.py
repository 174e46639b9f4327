"""What a step was shown is made again from its recipe, byte for byte, whatever came since."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Backend, ContextLimits, Message, Store, Text, Thread
from perdure.errors import NotFound
from perdure.history import reader
from perdure.model.context import Context
from perdure.model.event import MessageAppended
from perdure.model.recipe import Sent
from perdure.providers.client import Speaker
from perdure.providers.contract import Finished, ModelEvent
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.context.lines import BACKENDS, asked, planner, questions, script_of, search
from tests.switching.checkpoint.works import space_of

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def spoken(thread: Thread) -> list[str]:
    """The commits in which a model spoke, oldest first."""
    return [entry.commit for entry in thread.transcript() if entry.role == "assistant" and entry.run]


def check_all(thread: Thread, *shown: Context) -> None:
    """Every step's context is made again as it was."""
    commits = spoken(thread)
    assert len(commits) == len(shown)
    for commit, context in zip(commits, shown, strict=True):
        assert thread.at(commit).context() == context


def recipes(thread: Thread) -> list[str]:
    """The recipes that the messages of a line name, oldest first."""
    return [
        event.context
        for step in reader.log(space_of(thread), thread.head.commit)[::-1]
        for event in step.changeset.events
        if isinstance(event, MessageAppended) and event.context is not None
    ]


@pytest.fixture
def store() -> Store:
    """An empty store."""
    return perdure.open("memory:")


def test_every_step_of_an_ordinary_line_is_made_again(store: Store) -> None:
    """Each context is what the model was shown then, not what it would be shown now."""
    agent = planner(*questions(5))
    thread = asked(store, agent, 5)

    check_all(thread, *script_of(agent).contexts)


def test_the_recipe_of_an_ordinary_line_is_kept_once(store: Store) -> None:
    """From step to step the recipe is the same bytes."""
    thread = asked(store, planner(*questions(5)), 5)

    assert len(recipes(thread)) == 10
    assert len(set(recipes(thread))) == 1


def test_a_switched_line_is_made_again(store: Store) -> None:
    """After a switch the checkpoint's note, the sentences and the pairs since are as they were."""
    agent = planner(*questions(15), backend="openai:gpt-5.6")
    thread = asked(store, agent, 15)
    other = Script(
        say("Hello."), use("search", query="hotel"), say("Found."), backend="google:gemini-2.5-pro"
    )
    thread.switch(other)
    thread.run("And a hotel?")
    thread.run("Look it up.")

    check_all(thread, *script_of(agent).contexts, *other.contexts)


def test_a_line_that_outgrew_its_window_is_made_again(store: Store) -> None:
    """Where the window slid, each step's own window is found again."""
    agent = planner(*questions(20, words=150), limits=ContextLimits(window=4_000, turns=3))
    thread = asked(store, agent, 20)

    assert len(set(recipes(thread))) > 2
    check_all(thread, *script_of(agent).contexts)


def test_a_new_process_goes_on_with_the_same_recipe(tmp_path: Path) -> None:
    """Read anew from the disk, the same is shown, and nothing new is kept for it."""
    agent = planner(*questions(4))
    with perdure.open(tmp_path / "perdure.db") as store:
        asked(store, agent, 3)
    later = planner(*questions(1))

    with perdure.open(tmp_path / "perdure.db") as store:
        thread = store.thread("trip", agent=later)
        thread.run("Question 3: and now?")

        assert len(set(recipes(thread))) == 1
        check_all(thread, *script_of(agent).contexts, *script_of(later).contexts)


def test_open_calls_are_told_as_they_were(store: Store) -> None:
    """A call that waited then waits in the context that is made again, though it was decided since."""

    @perdure.tool(effect="external_write", ask=True)
    def pay(amount: int) -> str:
        return f"Paid {amount}."

    script = Script(use("pay", amount=5), say("I wait."), say("Thank you."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[pay]))
    waiting = thread.run("Pay 5.")
    thread.run("And meanwhile?")
    thread.decide(waiting.approvals[0].call, "approve")
    thread.resume(waiting.run)

    check_all(thread, *script.contexts)


def test_lone_surrogates_are_shown_as_they_are_kept(store: Store) -> None:
    """What could not be kept as it came is not shown otherwise either."""
    script = Script(say("half \ud83d"), say("Yes."))
    thread = store.thread("trip", agent=Agent("planner", backend=script))
    thread.run("a \ud83d b")
    thread.run("Go on.")

    check_all(thread, *script.contexts)


def test_pictures_are_shown_with_their_bytes(store: Store) -> None:
    """A picture that the history keeps by digest reaches the model whole, and so it is made again."""
    script = Script(say("A dot."))
    thread = store.thread("trip", agent=Agent("planner", backend=script))
    picture = "data:image/png;base64," + base64.b64encode(base64.b64decode(PIXEL) * 20).decode()
    thread.add(
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]}],
        api="openai-chat",
    )
    thread.run("What is it?")

    check_all(thread, *script.contexts)
    assert picture in str(list(script.contexts[0].messages))
    assert picture not in str([entry.message for entry in thread.transcript()])


def test_task_state_and_memory_are_told_as_they_were(store: Store) -> None:
    """The note before the input says what was so when the turn began."""
    script = Script(say("One."), say("Two."))
    thread = store.thread("trip", agent=Agent("planner", backend=script), owner="user-7")
    store.memory("user-7").add("prefers aisle seats", kind="preference")
    thread.put("/task/goal.json", "Get to Rome")
    thread.run("Which seats do I like?")
    thread.put("/task/goal.json", "Get to Oslo")
    thread.run("And which seats now?")

    check_all(thread, *script.contexts)
    first, second = (str(list(context.messages)) for context in script.contexts)
    assert ("aisle" in first, "Get to Rome" in first, "Get to Oslo" in first) == (True, True, False)
    assert ("Get to Rome" in second, "Get to Oslo" in second) == (False, True)


class Wire:
    """A model that renders as a backend does, keeps the request, and answers by itself."""

    def __init__(self, backend: Backend) -> None:
        """Speak for that backend, without a network."""
        self._speaker = Speaker(backend)
        self.bodies: list[dict[str, object]] = []

    @property
    def backend(self) -> str:
        """Its name."""
        return self._speaker.backend

    @property
    def sent(self) -> Sent:
        """How its requests are made."""
        return self._speaker.sent

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Keep the request, and say yes."""
        self.bodies.append(self._speaker.request(context).body)
        yield Finished(message=Message("assistant", (Text("Yes."),)))


@pytest.mark.parametrize("name", BACKENDS)
def test_the_request_is_made_again_as_it_was_sent(store: Store, name: str) -> None:
    """The body is what went over the wire, the backend's own options included."""
    wire = Wire(Backend(name, options={"max_tokens": 700}))
    agent = Agent("planner", backend=wire, instructions="Plan.", tools=[search], options={"max_tokens": 5})
    thread = store.thread("trip", agent=agent)
    thread.run("Where to?", output=list[str] if "bedrock" not in name else None)
    thread.run("And then?")

    for commit, body in zip(spoken(thread), wire.bodies, strict=True):
        request = thread.shown(commit).request
        assert request is not None
        assert json.dumps(request.body) == json.dumps(body)


def test_before_any_model_spoke_there_is_nothing_to_make_again(store: Store) -> None:
    """Nothing is made up: the error says where to look instead."""
    thread = store.thread("trip", agent=planner())
    with thread.change("said") as change:
        change.say("user", "Hello")

    with raises(NotFound, "recorded_step_missing", thread="trip"):
        thread.at().context()


def test_another_step_s_context_is_not_taken_for_this_one(store: Store) -> None:
    """The control: what is made again depends on the step that is asked for."""
    agent = planner(*questions(2))
    thread = asked(store, agent, 2)

    first = thread.at(spoken(thread)[0]).context()

    assert first != script_of(agent).contexts[1]
    assert [message.text for message in first.messages] == ["Question 0: which flight number 0 goes to Rome?"]

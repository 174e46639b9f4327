"""The words of the system with which a conversation begins are the system's in every format, behind the agent's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

import perdure
from perdure import Agent, Thread
from perdure.context.history_window import trace
from perdure.context.render.conversation import MessageTexts, lay
from perdure.model.context import Context
from perdure.model.message import Image, Message, Text
from perdure.providers import adapter
from perdure.providers.registry import APIS
from perdure.testing import Script, say
from tests.context.conftest import settings_of_vendors
from tests.context.lines import BACKENDS
from tests.switching.checkpoint.works import space_of

__all__ = ["settings_of_vendors"]

AGENT, PIRATE, RHYME = "You plan trips.", "You are a pirate.", "Speak in rhyme."
CHAT = [
    {"role": "system", "content": PIRATE},
    {"role": "system", "content": RHYME},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "Arr."},
]


def of_system(body: Mapping[str, Any]) -> str:
    """The words in the place that a format has for those of the system, in their order."""
    items = body.get("messages") or body.get("contents") or body.get("input")
    place = [body.get(name) for name in ("instructions", "system", "systemInstruction", "system_instruction")]
    first = [each for each in items or () if isinstance(each, dict) and each.get("role") == "system"]
    return json.dumps([each for each in place if each] + first)


def others(body: Mapping[str, Any]) -> str:
    """Everything else of the conversation."""
    items = body.get("messages") or body.get("contents") or body.get("input")
    return json.dumps([each for each in items or () if each.get("role") != "system"])


def check(body: Mapping[str, Any]) -> None:
    """The system says all three, the agent's words first, and nobody else says one."""
    told = of_system(body)
    assert told.index(AGENT) < told.index(PIRATE) < told.index(RHYME)
    assert PIRATE not in others(body)
    assert RHYME not in others(body)


@pytest.fixture
def thread() -> Thread:
    """An imported conversation with two messages of the system, which the agent has gone on with."""
    agent = Agent("p", backend=Script(say("Aye."), backend="script:p"), instructions=AGENT)
    thread = perdure.open("memory:").thread("trip", agent=agent)
    thread.add(CHAT[:1], api="openai-chat")
    thread.add(CHAT[1:], api="openai-chat")
    thread.run("Where to?")
    return thread


@pytest.mark.parametrize("api", APIS)
def test_an_export_has_them_in_the_place_of_the_system(thread: Thread, api: str) -> None:
    """Behind the agent's own words, whichever format they came in."""
    check(thread.export(api).body)


@pytest.mark.parametrize("backend", [*BACKENDS, "llama.cpp:any", "bedrock:meta.llama5-70b"])
def test_a_backend_that_takes_over_has_them_there_too(thread: Thread, backend: str) -> None:
    """The note about what was done before is the user's, and behind them."""
    body = thread.render(backend).body

    check(body)
    assert "[Perdure note] Where this conversation stands" in others(body)


@pytest.mark.parametrize("api", APIS)
def test_an_import_from_any_format_gives_them_back(api: str) -> None:
    """A request with words of the system is the same after an import and an export."""
    context = Context(system=PIRATE, messages=[Message("user", (Text("hi"),))])
    body = adapter(api).render(context, model="m").body
    thread = perdure.open("memory:").thread("trip", agent="p")

    thread.add(body, api=api)

    again = thread.export(api, model="m").body
    assert of_system(again).count(PIRATE) == 1
    assert PIRATE not in others(again)


@pytest.mark.parametrize("api", ["gemini-generate", "gemini-interactions"])
def test_words_of_the_system_within_a_conversation_are_the_users(api: str) -> None:
    """Gemini has one place for them; a picture among the first ones is a loss."""
    png = "data:image/png;base64,iVBORw0KGgo="
    first = Message("system", (Text(PIRATE), Image(png, "image/png")))
    late, hi = Message("system", (Text(RHYME),)), Message("user", (Text("hi"),))

    made = adapter(api).render(Context(messages=[first, hi, late, hi]), model="gemini-2.5-pro")

    assert (PIRATE in of_system(made.body), RHYME in of_system(made.body)) == (True, False)
    assert RHYME in others(made.body)
    assert [(loss.kind, loss.where, loss.what) for loss in made.losses] == [
        ("converted", "messages[0]", "system message"),
        ("dropped", "messages[0].content[1]", "media"),
        ("converted", "messages[2]", "system message"),
    ]


def test_what_a_backend_was_shown_with_a_note_is_made_again(thread: Thread) -> None:
    """The recipe says how many messages were before the note."""
    other = Script(say("Ho."), backend="google:gemini-2.5-pro")
    thread.switch(other)
    thread.run("And then?")
    (shown,) = other.contexts

    assert [each.role for each in shown.messages[:3]] == ["system", "system", "user"]
    assert shown.messages[2].text.startswith("[Perdure note]")
    assert thread.at(thread.transcript()[-1].commit).context() == shown


def test_a_recipe_that_names_no_place_has_its_note_first(thread: Thread) -> None:
    """So were contexts laid out whose recipes are older than the place."""
    space = space_of(thread)
    spoken = trace(space, thread.head.commit, turns=9).spoken
    note = Message("user", (Text("A note."),))

    laid = lay(MessageTexts(space), spoken, lead=note, before_lead=0)

    assert [each.role for each in laid.conversation.messages()[:3]] == ["user", "system", "system"]


def test_the_words_of_the_system_in_one_are_those_of_the_thread(thread: Thread) -> None:
    """A format with one place for them has several as one text, which is no change."""
    request = {
        "system": f"{PIRATE}\n\n{RHYME}",
        "messages": [each for each in CHAT if each["role"] != "system"],
    }
    before = thread.head

    losses = thread.add(request, api="anthropic-messages", once=True)

    assert (losses, thread.head) == ((), before)

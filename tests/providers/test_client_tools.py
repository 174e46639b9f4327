"""Tools that a vendor declares and a program carries out are tool calls: over HTTP, through the real SDKs."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent, Image
from perdure.errors import Invalid
from tests.providers.endings import pausing, response, sse, vendor_of
from tests.providers.playing import Place, playing, streamed, whole
from tests.providers.vendors import TEXT

RESPONSES, ANTHROPIC = vendor_of("openai-responses"), vendor_of("anthropic-messages")
CHAT = vendor_of("openai-chat")
PNG = "data:image/png;base64,iVBORw0KGgo="

SHELL = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "call_1",
    "status": "completed",
    "action": {"commands": ["ls"], "timeout_ms": None, "max_output_length": 4096},
}
LOCAL = {
    "type": "local_shell_call",
    "id": "lsh_1",
    "call_id": "call_1",
    "status": "completed",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
}
PATCH = {
    "type": "apply_patch_call",
    "id": "apc_1",
    "call_id": "call_1",
    "status": "completed",
    "operation": {"type": "create_file", "path": "a.txt", "diff": "+hello\n"},
}
COMPUTER = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "call_1",
    "status": "completed",
    "pending_safety_checks": [{"id": "sc_1", "code": "malicious", "message": "Careful"}],
    "action": {"type": "click", "button": "left", "x": 1, "y": 2},
}
APPROVAL = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "bank",
    "name": "transfer",
    "arguments": '{"amount": 5}',
}

done: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    """Each test begins with nothing done."""
    done.clear()


@perdure.tool(effect="external_write", serves="openai.shell")
def run_commands(commands: list[str], timeout_ms: int = 0, max_output_length: int = 0) -> Any:
    """Run commands."""
    done.append(commands)
    return [{"stdout": "a.txt\n", "stderr": "", "exit_code": 0}]


@perdure.tool(effect="external_write", serves="openai.local_shell")
def run_command(command: list[str], env: dict[str, str]) -> str:
    """Run a command."""
    done.append(command)
    return "a.txt"


@perdure.tool(effect="local_write", serves="openai.apply_patch")
def patch(type: str, path: str, diff: str = "") -> str:
    """Change a file."""
    done.append(path)
    return f"created {path}"


@perdure.tool(effect="external_write", serves="openai.computer")
def act(actions: list[dict[str, Any]], pending_safety_checks: list[dict[str, Any]] | None = None) -> Image:
    """Use the computer."""
    done.append(actions)
    return Image(uri=PNG, mime_type="image/png")


OUTPUTS: list[tuple[dict[str, Any], Any, dict[str, Any]]] = [
    (
        SHELL,
        run_commands,
        {
            "type": "shell_call_output",
            "call_id": "call_1",
            "max_output_length": 4096,
            "output": [{"stdout": "a.txt\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
    ),
    (
        LOCAL,
        run_command,
        {"type": "local_shell_call_output", "id": "call_1", "call_id": "call_1", "output": "a.txt"},
    ),
    (
        PATCH,
        patch,
        {
            "type": "apply_patch_call_output",
            "call_id": "call_1",
            "status": "completed",
            "output": "created a.txt",
        },
    ),
    (
        COMPUTER,
        act,
        {
            "type": "computer_call_output",
            "call_id": "call_1",
            "output": {"type": "computer_screenshot", "image_url": PNG},
            "acknowledged_safety_checks": COMPUTER["pending_safety_checks"],
        },
    ),
]
each_kind = pytest.mark.parametrize(
    ("item", "tool", "output"), OUTPUTS, ids=lambda each: each.get("type") if isinstance(each, dict) else ""
)


def agent_at(place: Place, *tools: Any, stream: bool = False, **more: Any) -> Agent:
    """An agent of OpenAI's at that place."""
    return Agent("clerk", backend=RESPONSES.at(place, options={"stream": stream}), tools=tools, **more)


@each_kind
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_of_openais_own_tool_is_carried_out_by_the_tool_that_serves_it(
    item: dict[str, Any], tool: Any, output: dict[str, Any], stream: bool
) -> None:
    """It is in the ledger under the agent's own tool, and call and result go back as OpenAI's own items."""
    body = response("completed", item)
    asking = streamed(sse({"type": "response.completed", "response": body})) if stream else whole(body)
    answering = RESPONSES.streamed() if stream else RESPONSES.whole()
    with playing(asking, answering) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=agent_at(place, tool, stream=stream))
        result = thread.run("Go")
        calls = [(call.tool, call.state, call.effect) for call in thread.calls()]

    assert (result.status, result.text) == ("succeeded", TEXT)
    assert len(done) == 1
    assert calls == [(tool.name, "succeeded", tool.reach.effect)]
    assert place.requests[1].body["input"][1:] == [item, output]


@each_kind
def test_the_tool_is_declared_to_openai_as_its_own_and_elsewhere_as_a_function(
    item: dict[str, Any], tool: Any, output: dict[str, Any]
) -> None:
    """One declaration serves every backend."""
    with playing(RESPONSES.whole()) as own, playing(CHAT.whole()) as other, perdure.open("memory:") as store:
        store.thread("one", agent=agent_at(own, tool)).run("Go")
        elsewhere = Agent("other", backend=CHAT.at(other, options={"stream": False}), tools=[tool])
        store.thread("two", agent=elsewhere).run("Go")

    (kind,) = {each["type"] for each in own.requests[0].body["tools"]}
    assert kind == item["type"].removesuffix("_call")
    assert other.requests[0].body["tools"][0]["function"]["name"] == tool.name


@each_kind
def test_a_call_that_no_tool_serves_is_refused_in_words(
    item: dict[str, Any], tool: Any, output: dict[str, Any]
) -> None:
    """A function of the same name does not serve it; nothing is run, the ledger has it, the model is told."""
    namesake = perdure.tool(name=item["type"].removesuffix("_call"), effect="read_only")(lambda: "wrong")
    asking = whole(response("completed", item))
    with playing(asking, RESPONSES.whole()) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=agent_at(place, namesake))
        result = thread.run("Go")
        (call,) = thread.calls()

    assert (result.status, done, call.state) == ("succeeded", [], "failed")
    assert "no tool named openai." in str(place.requests[1].body["input"])


def test_a_call_of_openais_own_tool_waits_for_approval_like_any_other() -> None:
    """It is not run before a person has decided."""

    @perdure.tool(effect="financial", serves="openai.shell", ask=True)
    def run(commands: list[str], max_output_length: int = 0) -> None:
        done.append(commands)

    asking = whole(response("completed", SHELL))
    with playing(asking, RESPONSES.whole()) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=agent_at(place, run))
        waiting = thread.run("Go")
        before = list(done)
        thread.decide(waiting.approvals[0].call, "approve", by="ann")
        result = thread.resume()

    assert (waiting.status, before) == ("waiting", [])
    assert result is not None
    assert (result.status, done) == ("succeeded", [["ls"]])


def test_commands_that_openai_ran_in_a_container_are_not_run_again() -> None:
    """Their output is in the same answer."""
    hosted = {**SHELL, "environment": {"type": "container_reference", "container_id": "c"}}
    output = {"type": "shell_call_output", "call_id": "call_1", "output": []}
    message = RESPONSES.body["output"][0]
    for items in ([hosted, output, message], [SHELL, output, message]):
        with playing(whole(response("completed", *items))) as place, perdure.open("memory:") as store:
            result = store.thread("trip", agent=agent_at(place, run_commands)).run("Go")

        assert (result.status, result.text, done) == ("succeeded", TEXT, [])


def test_a_computer_that_shows_no_picture_is_told_of_in_words() -> None:
    """OpenAI takes pictures alone as a result; the words are not lost, and the history stays valid."""

    @perdure.tool(effect="read_only", serves="openai.computer")
    def blind(actions: list[Any], pending_safety_checks: list[Any]) -> str:
        return "the screen is off"

    asking = whole(response("completed", COMPUTER))
    with playing(asking, RESPONSES.whole()) as place, perdure.open("memory:") as store:
        result = store.thread("trip", agent=agent_at(place, blind)).run("Go")

    shown = place.requests[1].body["input"]
    assert result.status == "succeeded"
    assert "the screen is off" in shown[-1]["content"]
    assert not any(each.get("type") == "computer_call" for each in shown)


@pytest.mark.parametrize("verdict", ["approve", "deny"])
def test_an_approval_that_openai_asks_for_is_an_approval_of_ours(verdict: Any) -> None:
    """The run waits with tool and arguments to see, and the decision goes back to OpenAI."""
    asking = whole(response("completed", APPROVAL))
    with playing(asking, RESPONSES.whole()) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=agent_at(place))
        waiting = thread.run("Pay")
        (call,) = thread.calls()
        thread.decide(waiting.approvals[0].call, verdict, by="ann")
        result = thread.resume()

    assert (waiting.status, call.effect) == ("waiting", "external_write")
    assert result is not None
    assert (result.status, result.text) == ("succeeded", TEXT)
    asked, answer = place.requests[1].body["input"][1:]
    assert (asked, answer["approval_request_id"]) == (APPROVAL, "mcpr_1")
    assert answer["approve"] is (verdict == "approve")


@pytest.mark.parametrize("is_served", [True, False])
def test_a_search_for_tools_that_is_left_to_the_program_is_a_call(is_served: bool) -> None:
    """One that OpenAI made itself is none; one that no tool serves is refused in words."""

    @perdure.tool(effect="read_only", serves="openai.tool_search")
    def search(goal: str) -> list[Any]:
        done.append(goal)
        return [{"type": "function", "name": "pay", "parameters": {}}]

    item = {"type": "tool_search_call", "id": "ts_1", "call_id": "c1", "arguments": {"goal": "pay"}}
    theirs = {**item, "id": "ts_0", "call_id": None, "execution": "server"}
    asking = whole(response("completed", theirs, {**item, "execution": "client"}))
    with playing(asking, RESPONSES.whole()) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=agent_at(place, *([search] if is_served else [])))
        result, calls = thread.run("Go"), thread.calls()

    assert (result.status, len(calls), done) == ("succeeded", 1, ["pay"] * is_served)
    last = place.requests[1].body["input"][-1]
    assert ("tools" in last) if is_served else ("no tool named" in last["content"])


def test_arguments_that_were_edited_are_not_approved() -> None:
    """OpenAI would make the call with its own: a person changed the call, so it must not run as it was."""
    edited = {
        "approval_request_id": "mcpr_1",
        "server_label": "bank",
        "name": "transfer",
        "arguments": {"amount": 1},
    }
    asking = whole(response("completed", APPROVAL))
    with playing(asking, RESPONSES.whole()) as place, perdure.open("memory:") as store:
        thread = store.thread("trip", agent=agent_at(place))
        (ticket,) = thread.run("Pay").approvals
        thread.decide(ticket.call, "edit", value=edited, by="ann")
        thread.resume()

    assert place.requests[1].body["input"][-1]["approve"] is False


def test_an_agent_may_decide_about_openais_approvals_in_code() -> None:
    """A tool that serves them answers at once, and no model is told of it."""

    @perdure.tool(effect="none", serves="openai.mcp_approval")
    def decide(approval_request_id: str, server_label: str, name: str, arguments: dict[str, Any]) -> bool:
        return server_label == "bank" and arguments["amount"] < 3

    asking = whole(response("completed", APPROVAL))
    with playing(asking, RESPONSES.whole()) as place, perdure.open("memory:") as store:
        result = store.thread("trip", agent=agent_at(place, decide)).run("Pay")

    assert result.status == "succeeded"
    assert place.requests[1].body["input"][-1]["approve"] is False
    assert "tools" not in place.requests[0].body


def test_anthropics_client_tools_are_carried_out_by_the_tool_of_their_name() -> None:
    """They come as ordinary calls; the agent's tool of that name is declared once, as Anthropic's own."""
    use = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}
    own = {"type": "bash_20250124", "name": "bash"}

    @perdure.tool(effect="external_write")
    def bash(command: str) -> str:
        done.append(command)
        return "a.txt"

    options: Any = {"vendor": {"anthropic-messages": {"tools": [own]}}}
    asking = whole(pausing(use, stop="tool_use"))
    with playing(asking, ANTHROPIC.whole()) as place, perdure.open("memory:") as store:
        backend = ANTHROPIC.at(place, options={"stream": False})
        agent = Agent("clerk", backend=backend, tools=[bash], options=options)
        result = store.thread("trip", agent=agent).run("Go")

    assert (result.status, done) == ("succeeded", ["ls"])
    assert place.requests[0].body["tools"] == [own]


def test_a_tool_serves_what_there_is_and_two_do_not_serve_the_same() -> None:
    """Both are refused where they are declared."""
    with pytest.raises(Invalid):
        perdure.tool(serves="openai.hammer")(lambda: None)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(Invalid):
        twin = perdure.tool(effect="none", serves="openai.shell", name="twin")(lambda commands: None)
        Agent("clerk", tools=[run_commands, twin])

"""The Responses API on small examples: what its rules demand, and how its own fields are kept."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from perdure.errors import Invalid
from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import CallDelta, Finished, ReasoningChunk, TextChunk
from perdure.providers.openai_responses.adapter import ADAPTER
from perdure.providers.validator import check
from perdure.providers.wire.server_tools import is_account
from tests.coded import raises

PNG = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
REASONING: dict[str, Any] = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Think."}],
    "encrypted_content": "gAAAAsecret",
}
CALL: dict[str, Any] = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at": 1}',
    "status": "completed",
}
SAID: dict[str, Any] = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}],
}
DONE = Message("tool", tool_results=(ToolResult("call_1", "success", (Text("ok"),)),))


def answer(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A response that holds these items."""
    return {"id": "resp_1", "model": "gpt-5.6", "status": "completed", "output": list(items), **more}


def context(*messages: Message, **more: Any) -> Context:
    """A context with these messages."""
    return Context(messages=messages, **more)


def asked(*messages: Message, provider: str | None = None, **more: Any) -> list[dict[str, Any]]:
    """The input that is rendered for these messages."""
    return ADAPTER.render(context(*messages, **more), model="gpt-5.4", provider=provider).body["input"]


class TestAnswers:
    """What is heard."""

    def test_an_answer_is_words_reasoning_and_calls(self) -> None:
        """Each item is a block or a call, in order, under the vendor's own ids."""
        reply = ADAPTER.parse(answer(REASONING, SAID, CALL, usage={"input_tokens": 3, "output_tokens": 5}))

        assert reply.message.content == (ReasoningSummary("Think."), Text("Done."))
        assert reply.message.tool_calls == (ToolCall("call_1", "look", '{"at": 1}'),)
        assert (reply.stop, reply.usage.input_tokens, reply.usage.output_tokens) == ("completed", 3, 5)
        assert isinstance(reply.events[-1], Finished)

    def test_a_repeated_call_id_is_made_unique(self) -> None:
        """Two calls of one answer never share an id, and the second gets the same one every time."""
        calls = [ADAPTER.parse(answer(CALL, CALL)).message.tool_calls for _ in range(2)]

        assert calls[0][0].id == "call_1"
        assert calls[0][1].id not in ("", "call_1")
        assert calls[0] == calls[1]

    def test_a_refusal_is_its_words(self) -> None:
        """The text of a refusal is text."""
        refused = {**SAID, "content": [{"type": "refusal", "refusal": "No."}]}

        assert ADAPTER.parse(answer(refused)).message.text == "No."

    def test_why_it_is_incomplete_is_why_it_stopped(self) -> None:
        """The reason stands before the status."""
        cut = answer(SAID, status="incomplete", incomplete_details={"reason": "max_output_tokens"})

        assert ADAPTER.parse(cut).stop == "max_output_tokens"

    def test_an_unknown_item_is_kept_and_reported(self) -> None:
        """Unknown fields go back unchanged."""
        strange = {"type": "dream", "id": "dr_1", "scene": {"sheep": 3}}
        reply = ADAPTER.parse(answer(strange, SAID))

        assert [loss.what for loss in reply.losses] == ["dream"]
        assert asked(Message("user", (Text("Hi"),)), reply.message)[1:] == [strange, SAID]

    def test_a_picture_that_was_made_is_an_image(self) -> None:
        """Its bytes are kept once, in the canonical block."""
        data = PNG.partition(",")[2]
        made = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": data}
        reply = ADAPTER.parse(answer(made))

        assert Image(PNG, "image/png") in reply.message.content
        assert data not in (reply.message.vendor_metadata or "")
        assert asked(reply.message) == [made]

    @pytest.mark.parametrize(
        "body", [{}, {"error": {"message": "no", "code": "x"}}, {"output": "x"}, [], "x"]
    )
    def test_what_is_no_answer_is_refused(self, body: Any) -> None:
        """It says so, with the vendor's own error where there is one."""
        with raises(Invalid, "not_an_answer"):
            ADAPTER.parse(body)


class TestStreams:
    """What is heard piece by piece."""

    EVENTS: tuple[dict[str, Any], ...] = (
        {"type": "response.created", "response": {"id": "resp_1", "model": "gpt-5.6", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**REASONING, "summary": []}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Think."},
        {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
        {"type": "response.output_item.added", "output_index": 1, "item": {**SAID, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Do"},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "ne."},
        {"type": "response.output_item.done", "output_index": 1, "item": SAID},
        {"type": "response.output_item.added", "output_index": 2, "item": {**CALL, "arguments": ""}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"at": 1}'},
        {"type": "response.output_item.done", "output_index": 2, "item": CALL},
        {"type": "response.completed", "response": answer(REASONING, SAID, CALL)},
    )

    def body(self, *events: dict[str, Any]) -> bytes:
        """These events as they are sent."""
        return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)

    def test_a_stream_is_the_answer_that_it_ends_with(self) -> None:
        """The reply equals the whole answer's, and the events came as the bytes did."""
        reply = ADAPTER.parse_stream([self.body(*self.EVENTS)])

        assert reply.message == ADAPTER.parse(answer(REASONING, SAID, CALL)).message
        assert reply.events[:-1] == (
            ReasoningChunk("Think."),
            TextChunk("Do"),
            TextChunk("ne."),
            CallDelta(0, "look", '{"at": 1}'),
        )

    def test_a_stream_that_was_cut_off_gives_what_was_whole(self) -> None:
        """The words so far and the calls that were done; why it stopped is not known."""
        reply = ADAPTER.parse_stream([self.body(*self.EVENTS[:6]), b'event: x\ndata: {"type": "resp'])

        assert (reply.message.text, reply.stop) == ("Do", None)

    def test_a_stream_in_which_nothing_was_whole_is_refused(self) -> None:
        """There is no answer, and the vendor's error says why."""
        error = {"type": "error", "error": {"code": "overloaded", "message": "Try later."}}

        with raises(Invalid, "stream_without_answer"):
            ADAPTER.parse_stream([self.body(self.EVENTS[0], error)])

    def test_an_event_that_is_no_json_is_refused(self) -> None:
        """A malformed event is not passed over."""
        with raises(Invalid, "stream_malformed"):
            ADAPTER.parse_stream([b"data: {oops\n\n"])


class TestOwner:
    """What only OpenAI reads goes back to it alone."""

    def test_reasoning_goes_back_with_its_output(self) -> None:
        """The items are given back as they came, ids and encrypted content included."""
        reply = ADAPTER.parse(answer(REASONING, CALL))

        assert asked(reply.message, DONE)[:2] == [REASONING, CALL]

    def test_encrypted_reasoning_is_for_its_endpoint_alone(self) -> None:
        """Another endpoint of the same vendor gets words and calls, without ids."""
        reply = ADAPTER.parse(answer(REASONING, CALL), provider="azure-openai")

        items = asked(reply.message, DONE, provider="openai")

        assert [item["type"] for item in items] == ["function_call", "function_call_output"]
        assert "id" not in items[0]
        assert "gAAAA" not in json.dumps(items)

    def test_reasoning_without_its_output_is_left_out(self) -> None:
        """Alone it is refused, so it goes, and the report says so."""
        reply = ADAPTER.parse(answer(REASONING, status="incomplete"))

        rendered = ADAPTER.render(context(reply.message, Message("user", (Text("Go on"),))), model="gpt-5.6")

        assert rendered.body["input"] == [{"role": "user", "content": "Go on"}]
        assert "reasoning" in {loss.what for loss in rendered.losses}

    def test_what_a_server_did_not_keep_is_not_named_by_its_id(self) -> None:
        """Without state, reasoning that is only an id goes, and so do the ids of its items."""
        bare = {key: value for key, value in REASONING.items() if key != "encrypted_content"}
        reply = ADAPTER.parse(answer(bare, SAID))

        options = {"vendor": {"openai-responses": {"store": False}}}
        items = asked(Message("user", (Text("Hi"),)), reply.message, options=options)

        assert [item.get("type") for item in items] == [None, "message"]
        assert "id" not in items[1]

    def test_a_changed_message_is_rendered_as_anybody_s(self) -> None:
        """Native items of a message that was edited do not come back."""
        reply = ADAPTER.parse(answer(REASONING, SAID))
        edited = msgspec.structs.replace(reply.message, content=(Text("Other."),))

        assert asked(Message("user", (Text("Hi"),)), edited)[1:] == [
            {"type": "message", "role": "assistant", "content": "Other."}
        ]

    def test_a_message_that_stands_twice_has_its_ids_once(self) -> None:
        """Repeated item ids and call ids are refused, so the second one goes without."""
        reply = ADAPTER.parse(answer(REASONING, CALL))

        body = ADAPTER.render(context(reply.message, DONE, reply.message, DONE), model="gpt-5.6").body

        assert check(body, "openai-responses") == []
        assert len({item["call_id"] for item in body["input"] if item["type"] == "function_call"}) == 2

    def test_a_server_tool_is_an_account_for_others(self) -> None:
        """The canonical content tells of a web search; the owner gets its item back."""
        search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "tide"}}
        reply = ADAPTER.parse(answer(search, SAID))

        assert [is_account(block) for block in reply.message.content] == [True, False]
        assert asked(Message("user", (Text("Hi"),)), reply.message)[1:] == [search, SAID]


class TestRequests:
    """What is asked."""

    def test_a_custom_tool_s_call_is_text(self) -> None:
        """Free text stays as it is, and the result goes by the name of the call's kind."""
        body = {
            "model": "gpt-5.6",
            "input": [
                {"role": "user", "content": "Run it"},
                {"type": "custom_tool_call", "call_id": "c1", "name": "run", "input": "print(1)"},
                {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
            ],
            "tools": [{"type": "custom", "name": "run", "description": "Runs code"}],
        }

        read = ADAPTER.read_request(body)

        assert read.messages[1].tool_calls == (ToolCall("c1", "run", "print(1)"),)
        assert ADAPTER.render(read, model="gpt-5.6").body == body

    def test_results_go_on_where_the_server_has_the_calls(self) -> None:
        """With previous_response_id a result stands without its call."""
        body = {
            "model": "gpt-5.6",
            "previous_response_id": "resp_1",
            "input": [{"type": "function_call_output", "call_id": "call_1", "output": "ok"}],
        }

        assert ADAPTER.render(ADAPTER.read_request(body), model="gpt-5.6").body == body

    def test_instructions_and_leading_system_messages_are_the_system(self) -> None:
        """They are one text, and come back in their own form while it stays."""
        body = {
            "model": "gpt-5.6",
            "instructions": "Be brief.",
            "input": [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        }

        read = ADAPTER.read_request(body)

        assert read.system == "Be brief.\n\nBe kind."
        assert ADAPTER.render(read, model="gpt-5.6").body == body
        changed = msgspec.structs.replace(read, system="Other.")
        assert ADAPTER.render(changed, model="gpt-5.6").body["instructions"] == "Other."

    def test_a_call_without_a_result_gets_one(self) -> None:
        """The history is whole, and the report says what was put there."""
        rendered = ADAPTER.render(
            context(Message("assistant", tool_calls=(ToolCall("a", "f", "{}"),))), model="m"
        )

        assert [item["type"] for item in rendered.body["input"]] == ["function_call", "function_call_output"]
        assert "repaired" in {loss.kind for loss in rendered.losses}

    def test_ids_and_names_are_legal(self) -> None:
        """Long ids and dotted names are changed, call and result together."""
        call = ToolCall("x" * 150, "a.b", "{}")
        result = ToolResult(call.id, "success", (Text("ok"),))
        messages = (Message("assistant", tool_calls=(call,)), Message("tool", tool_results=(result,)))

        body = ADAPTER.render(context(*messages, tools=(ToolSpec(name="a.b"),)), model="m").body

        assert check(body, "openai-responses") == []
        assert body["tools"][0]["name"] == body["input"][0]["name"] == "a_b"
        assert body["input"][0]["call_id"] == body["input"][1]["call_id"]

    def test_media_is_shown_or_named(self) -> None:
        """Pictures and documents are shown; sound, references and the rest are named in words, with a loss."""
        blocks = (
            Image(PNG, "image/png"),
            File("data:application/pdf;base64,JVBERi0=", "application/pdf"),
            File("data:audio/wav;base64,UklGRg==", "audio/wav"),
            Image("artifact://abc", "image/png"),
            File("file-id://openai/file-1", "application/pdf"),
        )
        rendered = ADAPTER.render(context(Message("user", blocks)), model="m")

        parts = rendered.body["input"][0]["content"]
        assert [part["type"] for part in parts] == [
            "input_image",
            "input_file",
            "input_text",
            "input_text",
            "input_file",
        ]
        assert len([loss for loss in rendered.losses if loss.kind == "converted"]) == 2

    def test_what_the_assistant_cannot_say_stands_behind_its_turn(self) -> None:
        """A picture of the assistant's is shown by the user, after the results."""
        call = ToolCall("call_1", "look", "{}")
        items = asked(Message("assistant", (Text("See"), Image(PNG, "image/png")), (call,)), DONE)

        assert [item.get("role") or item["type"] for item in items] == [
            "assistant",
            "function_call",
            "function_call_output",
            "user",
        ]

    def test_an_error_says_so(self) -> None:
        """Results have no mark of failure here, so the words say it."""
        failed = Message("tool", tool_results=(ToolResult("call_1", "error", (Text("no disk"),)),))
        items = asked(Message("assistant", tool_calls=(ToolCall("call_1", "f", "{}"),)), failed)

        assert items[1]["output"] == "Error: no disk"

    def test_options_that_it_lacks_are_reported(self) -> None:
        """Nothing is dropped in silence."""
        options = {
            "seed": 1,
            "stop": ["x"],
            "temperature": 0.5,
            "vendor": {"mistral-chat": {"safe_prompt": True}},
        }

        rendered = ADAPTER.render(
            context(Message("user", (Text("Hi"),)), options=options), model="gpt-5-codex"
        )

        assert {loss.where for loss in rendered.losses} == {
            "options.seed",
            "options.stop",
            "options.temperature",
            "options.vendor.mistral-chat.safe_prompt",
        }

    def test_deepseek_gets_words_before_the_call(self) -> None:
        """It refuses them between a call and its result."""
        read = ADAPTER.read_request(
            {"input": [CALL, SAID, {"type": "function_call_output", "call_id": "call_1", "output": "1"}]}
        )

        body = ADAPTER.render(read, model="deepseek-v4-flash", provider="deepseek").body

        assert check(body, "openai-responses", provider="deepseek") == []

    @pytest.mark.parametrize("body", [{}, {"input": 3}, "x"])
    def test_what_is_no_request_is_refused(self, body: Any) -> None:
        """The body as a whole is none."""
        with raises(Invalid, "not_a_request"):
            ADAPTER.read_request(body)

    def test_an_item_of_an_unknown_role_is_refused(self) -> None:
        """The error says where it is."""
        with raises(Invalid, "malformed_body", where="input[0]"):
            ADAPTER.read_request({"input": [{"role": "cat", "content": "x"}]})

"""The Gemini API on small examples: what its rules demand, and how its own fields are kept."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from perdure.errors import Invalid
from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers.contract import CallDelta, Rendered, TextChunk
from perdure.providers.gemini.adapter import ADAPTER
from perdure.providers.gemini.options import json_schema
from perdure.providers.gemini.render import SKIP
from perdure.providers.validator import check
from perdure.providers.wire.server_tools import is_account
from tests.coded import raises

THIRD = "gemini-3-flash-preview"
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(16)).decode()
SIGNED: dict[str, Any] = {"functionCall": {"name": "look", "args": {"at": 1}}, "thoughtSignature": "c2lnbmVk"}
HELLO = Message("user", (Text("Hi"),))


def answer(*parts: dict[str, Any], model: str = THIRD, **more: Any) -> dict[str, Any]:
    """A response that holds these parts."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", **more}
    return {"candidates": [candidate], "modelVersion": model, "responseId": "r1"}


def results_of(message: Message) -> Message:
    """A result for each call of a message."""
    return Message(
        "tool",
        tool_results=tuple(ToolResult(each.id, "success", (Text("ok"),)) for each in message.tool_calls),
    )


def asked(*messages: Message, model: str = THIRD, provider: str | None = None, **more: Any) -> Rendered:
    """What is rendered for these messages."""
    return ADAPTER.render(Context(messages=messages, **more), model=model, provider=provider)


class TestAnswers:
    """What is heard."""

    def test_an_answer_is_words_thoughts_and_calls(self) -> None:
        """Thoughts are reasoning; arguments are compact JSON; what is said in pieces is one text."""
        thought = {"text": "Hm.", "thought": True}
        reply = ADAPTER.parse(
            answer(thought, {"text": "So"}, {"text": "on", "thoughtSignature": "cw=="}, SIGNED)
        )

        assert reply.message.content == (ReasoningSummary("Hm."), Text("Soon"))
        assert [(call.name, call.args) for call in reply.message.tool_calls] == [("look", '{"at":1}')]
        assert reply.stop == "STOP"

    def test_calls_without_ids_get_their_own(self) -> None:
        """Equal calls of one answer are two calls, under the same ids every time."""
        calls = [ADAPTER.parse(answer(SIGNED, SIGNED)).message.tool_calls for _ in range(2)]

        assert len({call.id for call in calls[0]}) == 2
        assert calls[0] == calls[1]

    def test_a_blocked_prompt_is_an_empty_message(self) -> None:
        """Why it was blocked is why it stopped, and no empty turn goes back."""
        reply = ADAPTER.parse({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}})

        assert (reply.message.content, reply.stop) == ((), "PROHIBITED_CONTENT")
        assert asked(HELLO, reply.message).body["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]

    def test_a_number_for_a_reason_is_read_as_its_name(self) -> None:
        """Enumerations may come as numbers."""
        assert ADAPTER.parse(answer({"text": "x"}, finishReason=1)).stop == "STOP"

    def test_a_search_is_an_account_for_others(self) -> None:
        """What grounding found is told; the owner's parts stay as they were."""
        found = {
            "webSearchQueries": ["tide"],
            "groundingChunks": [{"web": {"uri": "https://x", "title": "X"}}],
        }
        reply = ADAPTER.parse(answer({"text": "High."}, groundingMetadata=found))

        assert is_account(reply.message.content[-1])
        assert "webSearchQueries" in (reply.message.vendor_metadata or "")

    def test_an_unknown_part_is_kept_and_reported(self) -> None:
        """Unknown fields go back unchanged."""
        reply = ADAPTER.parse(answer({"dream": {"sheep": 3}}))

        assert [loss.what for loss in reply.losses] == ["dream"]
        assert asked(HELLO, reply.message, HELLO).body["contents"][1]["parts"] == [{"dream": {"sheep": 3}}]

    def test_several_candidates_are_several_messages(self) -> None:
        """The first is the answer, the others stand beside it."""
        body = answer({"text": "a"})
        body["candidates"] += answer({"text": "b"})["candidates"]

        reply = ADAPTER.parse(body)

        assert (reply.message.text, [other.text for other in reply.others]) == ("a", ["b"])

    @pytest.mark.parametrize("body", [{}, {"error": {"status": "X", "message": "no"}}, "x", 3])
    def test_what_is_no_answer_is_refused(self, body: Any) -> None:
        """It says so."""
        with raises(Invalid, "not_an_answer"):
            ADAPTER.parse(body)


class TestStreams:
    """What is heard piece by piece."""

    CHUNKS = (answer({"text": "So"}), answer({"text": 'o"n{'}), answer(SIGNED))

    def test_events_and_a_list_are_the_same_stream(self) -> None:
        """Cut anywhere, within texts that look like JSON too."""
        events = b"".join(b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n" for chunk in self.CHUNKS)
        listed = json.dumps(self.CHUNKS, indent=2).encode()

        replies = [
            ADAPTER.parse_stream(body[at : at + size] for at in range(0, len(body), size))
            for body in (events, listed)
            for size in (1, 7, 10_000)
        ]

        assert all(reply == replies[0] for reply in replies)
        assert replies[0].events[:-1] == (
            TextChunk("So"),
            TextChunk('o"n{'),
            CallDelta(0, "look", '{"at":1}'),
        )

    def test_arguments_come_place_by_place(self) -> None:
        """A text may go on, and places may lie deep."""
        pieces = [
            {"name": "cook", "willContinue": True},
            {
                "partialArgs": [{"jsonPath": "$.steps[0].what", "stringValue": "bo", "willContinue": True}],
                "willContinue": True,
            },
            {"partialArgs": [{"jsonPath": "$.steps[0].what", "stringValue": "il"}], "willContinue": True},
            {"partialArgs": [{"jsonPath": "$.steps[1].minutes", "numberValue": 5}], "willContinue": True},
            {},
        ]
        reply = ADAPTER.parse([answer({"functionCall": piece}) for piece in pieces])  # pyright: ignore[reportArgumentType]

        assert json.loads(reply.message.tool_calls[0].args) == {"steps": [{"what": "boil"}, {"minutes": 5}]}

    def test_a_stream_that_was_cut_off_gives_what_was_whole(self) -> None:
        """The words so far; why it stopped is not known."""
        chunk = {"candidates": [{"content": {"parts": [{"text": "So"}]}}]}

        reply = ADAPTER.parse_stream([b"data: " + json.dumps(chunk).encode() + b'\n\ndata: {"cand'])

        assert (reply.message.text, reply.stop) == ("So", None)

    @pytest.mark.parametrize("body", [b"", b"[", b"data: {", b'{"error": {"status": "X"}}'])
    def test_a_stream_in_which_nothing_was_whole_is_refused(self, body: bytes) -> None:
        """There is no answer."""
        with raises(Invalid, "stream_without_answer"):
            ADAPTER.parse_stream([body])


class TestSignatures:
    """Signatures are good for the model that made them."""

    def test_the_same_model_gets_them_back(self) -> None:
        """Byte for byte, in their places."""
        message = ADAPTER.parse(answer({"text": "Well"}, SIGNED)).message

        contents = asked(HELLO, message, results_of(message)).body["contents"]

        assert contents[1]["parts"] == [{"text": "Well"}, SIGNED]
        assert "id" not in contents[2]["parts"][0]["functionResponse"]

    def test_another_model_gets_a_word_in_their_place(self) -> None:
        """Only the first of parallel calls is signed; the report says so."""
        message = ADAPTER.parse(answer(SIGNED, SIGNED, model="gemini-2.5-pro")).message

        rendered = asked(HELLO, message, results_of(message))

        parts = rendered.body["contents"][1]["parts"]
        assert [part.get("thoughtSignature") for part in parts] == [SKIP, None]
        assert {"thought signature", "signature"} <= {loss.what for loss in rendered.losses}
        assert check(rendered.body, "gemini-generate", model=THIRD) == []

    def test_another_endpoint_gets_none(self) -> None:
        """What Vertex signed is not for the Gemini API."""
        message = ADAPTER.parse(answer(SIGNED), provider="google-vertex").message

        body = asked(HELLO, message, results_of(message), provider="google").body

        assert "c2lnbmVk" not in json.dumps(body)

    def test_earlier_turns_need_none(self) -> None:
        """Only the turn that goes on is held to it, and only since the third generation."""
        message = Message("assistant", tool_calls=(ToolCall("a", "look", "{}"),))

        ended = asked(HELLO, message, results_of(message), HELLO)
        older = asked(HELLO, message, results_of(message), model="gemini-2.5-flash")

        assert SKIP not in json.dumps([ended.body, older.body])


class TestRequests:
    """What is asked."""

    def test_names_of_fields_may_be_in_either_case(self) -> None:
        """Both are read alike; arguments and schemas stay as they are."""
        snake: dict[str, Any] = {
            "contents": {"parts": {"function_call": {"name": "f", "args": {"a_b": 1}}}, "role": "model"},
            "system_instruction": {"parts": {"text": "Be brief."}},
            "generation_config": {"max_output_tokens": 5, "thinking_config": {"thinking_budget": 9}},
            "tools": {"function_declarations": [{"name": "f", "parameters_json_schema": {"type": "object"}}]},
        }

        read = ADAPTER.read_request(snake)

        assert (read.system, read.messages[0].tool_calls[0].args) == ("Be brief.", '{"a_b":1}')
        assert read.options["max_tokens"] == 5
        assert read.options["reasoning"] == {"budget_tokens": 9}
        assert read.tools == [ToolSpec(name="f", parameters={"type": "object"})]

    def test_results_without_ids_go_to_the_calls_of_their_name(self) -> None:
        """In order, and the failed one is an error."""
        calls = [{"functionCall": {"name": name, "args": {}}} for name in ("f", "g", "f")]
        answers = [
            {"functionResponse": {"name": "g", "response": {"error": "no"}}},
            {"functionResponse": {"name": "f", "response": {"result": "1"}}},
            {"functionResponse": {"name": "f", "response": {"n": 2}}},
        ]
        read = ADAPTER.read_request(
            {"contents": [{"role": "model", "parts": calls}, {"role": "user", "parts": answers}]}
        )

        first, second, third = (call.id for call in read.messages[0].tool_calls)
        assert read.messages[1].tool_results == (
            ToolResult(second, "error", (Text("no"),)),
            ToolResult(first, "success", (Text("1"),)),
            ToolResult(third, "success", (Text('{"n":2}'),)),
        )

    def test_the_results_of_a_turn_stand_together(self) -> None:
        """However they lie in the history; the calls stand behind a turn of the user's."""
        calls = (ToolCall("a", "f", "{}"), ToolCall("b", "g", "{}"))
        results = [
            Message("tool", tool_results=(ToolResult(id, "success", (Text(id),)),)) for id in ("b", "a")
        ]

        rendered = asked(Message("assistant", tool_calls=calls), *results)

        assert [len(content["parts"]) for content in rendered.body["contents"]] == [1, 2, 2]
        assert check(rendered.body, "gemini-generate", model=THIRD) == []

    def test_turns_of_the_model_before_a_call_are_one(self) -> None:
        """However many there are, and a turn of the user's stands before them."""
        words = Message("assistant", (Text("Well"),))
        call = Message("assistant", tool_calls=(ToolCall("a", "f", "{}"),))

        contents = asked(words, words, call, results_of(call)).body["contents"]

        assert [(each["role"], len(each["parts"])) for each in contents] == [
            ("user", 1),
            ("model", 3),
            ("user", 1),
        ]

    def test_the_user_has_the_last_word(self) -> None:
        """A history that ends with the model, or holds nothing, is gone on with; the report says so."""
        for messages in ((HELLO, Message("assistant", (Text("Yes"),))), ()):
            rendered = asked(*messages)

            assert rendered.body["contents"][-1]["role"] == "user"
            assert "repaired" in {loss.kind for loss in rendered.losses}

    def test_older_models_get_media_behind_the_results(self) -> None:
        """The third generation takes them within."""
        call = Message("assistant", tool_calls=(ToolCall("a", "f", "{}"),))
        picture = Image(f"data:image/png;base64,{PNG}", "image/png")
        result = Message("tool", tool_results=(ToolResult("a", "success", (Text("see"), picture)),))

        new = asked(HELLO, call, result).body["contents"]
        old = asked(HELLO, call, result, model="gemini-2.5-flash").body["contents"]

        assert "inlineData" in new[2]["parts"][0]["functionResponse"]["parts"][0]
        assert [list(part) for part in old[3]["parts"]] == [["text"], ["inlineData"]]

    def test_a_file_of_google_s_own_is_for_google_alone(self) -> None:
        """Others are told its name; Google gets its address back."""
        part = {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}}
        body = {"contents": [{"role": "user", "parts": [part]}]}

        read = ADAPTER.read_request(body)

        assert read.messages[0].content == (File("file-id://google/gs://bucket/a.pdf", "application/pdf"),)
        assert ADAPTER.render(read, model=THIRD).body == body

    def test_a_schema_of_its_dialect_is_json_schema(self) -> None:
        """Types in small letters, null as a type; the dialect comes back while the schema stays."""
        dialect = {"type": "OBJECT", "properties": {"a": {"type": "STRING", "nullable": True}}}
        body: dict[str, Any] = {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "tools": [{"functionDeclarations": [{"name": "f", "parameters": dialect}]}],
        }

        read = ADAPTER.read_request(body)

        expected = {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}
        assert read.tools[0].parameters == expected == json_schema(dialect)
        assert ADAPTER.render(read, model=THIRD).body == body
        changed = msgspec.structs.replace(read, tools=[ToolSpec(name="f", parameters={"type": "object"})])
        declared = ADAPTER.render(changed, model=THIRD).body["tools"][0]["functionDeclarations"][0]
        assert declared == {"name": "f", "parametersJsonSchema": {"type": "object"}}

    def test_options_that_it_lacks_are_reported(self) -> None:
        """Nothing is dropped in silence."""
        options = {
            "parallel_tool_calls": False,
            "user": "u",
            "temperature": 3,
            "vendor": {"openai-chat": {"store": True}},
        }

        rendered = asked(HELLO, options=options)

        assert rendered.body["generationConfig"] == {"temperature": 2}
        assert {loss.where for loss in rendered.losses} == {
            "options.parallel_tool_calls",
            "options.user",
            "options.temperature",
            "options.vendor.openai-chat.store",
        }

    @pytest.mark.parametrize(("effort", "model", "expected"), [
        ("low", THIRD, {"thinkingLevel": "low"}),
        ("low", "gemini-2.5-flash", {"thinkingBudget": 1_024}),
        ("none", "gemini-2.5-flash", {"thinkingBudget": 0}),
    ])  # fmt: skip
    def test_an_effort_is_a_level_or_a_budget(
        self, effort: str, model: str, expected: dict[str, Any]
    ) -> None:
        """Levels since the third generation, budgets before."""
        body = asked(HELLO, model=model, options={"reasoning": {"effort": effort}}).body

        assert body["generationConfig"]["thinkingConfig"] == expected

    def test_lone_surrogates_do_not_crash(self) -> None:
        """They come in words, and go out as a character that can be sent."""
        reply = ADAPTER.parse(answer({"text": "a\ud800b", "thoughtSignature": "cw=="}))

        assert asked(HELLO, reply.message, HELLO).body["contents"][1]["parts"][0]["text"] == "a\ufffdb"

    def test_what_is_no_request_is_refused(self) -> None:
        """The body as a whole is none."""
        with raises(Invalid, "not_a_request"):
            ADAPTER.read_request({})

    @pytest.mark.parametrize(
        ("content", "where"),
        [({"role": "cat", "parts": []}, "contents[0]"), ({"parts": [3]}, "contents[0].parts[0]")],
    )
    def test_a_part_that_breaks_the_format_is_refused(self, content: Any, where: str) -> None:
        """The error says where it is."""
        with raises(Invalid, "malformed_body", where=where):
            ADAPTER.read_request({"contents": [content]})

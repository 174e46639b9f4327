"""A request for each rule that breaks it, and for each format one that breaks none."""

from __future__ import annotations

from typing import Any

__all__ = ["BROKEN", "CLEAN", "Example"]

Example = tuple[str, dict[str, Any], str | None, str | None]  # format, request, provider, model

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
TOKEN = "gAAAAAB" + "x" * 60


def anthropic(*messages: Any, **fields: Any) -> Example:
    """A request for Anthropic, with one tool."""
    tool = {"name": "look", "input_schema": SCHEMA}
    body: dict[str, Any] = {"max_tokens": 4096, "messages": list(messages), "tools": [tool]}
    return "anthropic-messages", body | fields, None, "claude-sonnet-5-5"


def chat(*messages: Any, provider: str | None = None, model: str = "gpt-5.6", **fields: Any) -> Example:
    """A request for Chat Completions, with one tool."""
    tool = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
    body: dict[str, Any] = {"messages": list(messages), "tools": [tool]}
    return "openai-chat", body | fields, provider, model


def responses(*items: Any, provider: str | None = None, **fields: Any) -> Example:
    """A request for Responses."""
    return "openai-responses", {"input": list(items)} | fields, provider, "gpt-5.6"


def gemini(*contents: Any, model: str = "gemini-3-pro", **fields: Any) -> Example:
    """A request for Gemini."""
    return "gemini-generate", {"contents": list(contents)} | fields, None, model


def bedrock(*messages: Any, **fields: Any) -> Example:
    """A request for Bedrock, with one tool."""
    tool = {"toolSpec": {"name": "look", "inputSchema": {"json": SCHEMA}}}
    return (
        "bedrock-converse",
        {"messages": list(messages), "toolConfig": {"tools": [tool]}} | fields,
        None,
        None,
    )


def mistral(*messages: Any) -> Example:
    """A request for Mistral."""
    return "mistral-chat", {"messages": list(messages)}, None, "mistral-large"


def user(content: Any = "Hello.", **fields: Any) -> dict[str, Any]:
    """What a user says."""
    return {"role": "user", "content": content, **fields}


def said(content: Any, **more: Any) -> dict[str, Any]:
    """What an assistant says."""
    return {"role": "assistant", "content": content} | more


def text(words: str, **more: Any) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": words} | more


# Anthropic
USE = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
MARK = {"cache_control": {"type": "ephemeral"}}
THINKING = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": TOKEN}
SERVER = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}


def image(data: str, media_type: str) -> dict[str, Any]:
    """A picture for Anthropic."""
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


# Chat, and Mistral
def calling(id: str = "call_1", name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    """An assistant message with a call."""
    function = {"name": name, "arguments": arguments}
    return said(None, tool_calls=[{"id": id, "type": "function", "function": function}])


def tool(id: str = "call_1") -> dict[str, Any]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": id, "content": "sunny"}


def shown(url: str) -> dict[str, Any]:
    """A picture for Chat."""
    return {"type": "image_url", "image_url": {"url": url}}


OPEN: dict[str, Any] = {"type": "object", "properties": {"city": {}}, "required": ["city"]}


# Responses
def call(call_id: str = "call_1", **more: Any) -> dict[str, Any]:
    """A call of a function."""
    return {"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"} | more


def output(id: str = "call_1") -> dict[str, Any]:
    """Its output."""
    return {"type": "function_call_output", "call_id": id, "output": "sunny"}


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": TOKEN}
ANSWER = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}


# Gemini
def asks(*parts: Any) -> dict[str, Any]:
    """A content of the user."""
    return {"role": "user", "parts": list(parts) or [{"text": "Hello."}]}


def model(*parts: Any) -> dict[str, Any]:
    """A content of the model."""
    return {"role": "model", "parts": list(parts) or [{"text": "Hi."}]}


CALL = {"functionCall": {"name": "look", "args": {}}, "thoughtSignature": "abcd"}
RESPONSE = {"functionResponse": {"name": "look", "response": {"output": "sunny"}}}


def declared(parameters: dict[str, Any], name: str = "look") -> list[dict[str, Any]]:
    """A tool for Gemini."""
    return [{"functionDeclarations": [{"name": name, "parameters": parameters}]}]


# Bedrock
B_USE = {"toolUse": {"toolUseId": "tooluse_1", "name": "look", "input": {}}}
B_RESULT = {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "sunny"}]}}
B_HELLO = user([{"text": "Hello."}])


def document(name: str) -> dict[str, Any]:
    """A document for Bedrock."""
    return {"document": {"name": name, "format": "pdf", "source": {"bytes": "aGVsbG8="}}}


# Ollama
OLLAMA_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "look", "arguments": {"city": "Rome"}}}],
}


def ollama(*messages: Any, **fields: Any) -> Example:
    """A request for Ollama's native chat, with one tool."""
    tool = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
    return "ollama-chat", {"messages": list(messages), "tools": [tool]} | fields, None, "qwen3:8b"


# Interactions
I_CALL = {"type": "function_call", "id": "c1", "name": "look", "arguments": {"city": "Rome"}}
I_RESULT = {"type": "function_result", "call_id": "c1", "name": "look", "result": "sunny"}


def asked_step(*contents: Any) -> dict[str, Any]:
    """What a user says, as a step of an interaction."""
    return {"type": "user_input", "content": list(contents) or [text("Hello.")]}


def interactions(*steps: Any, **fields: Any) -> Example:
    """A request for Gemini's Interactions API, with one tool."""
    tool = {"type": "function", "name": "look", "parameters": SCHEMA}
    body = {"model": "gemini-3-pro", "input": list(steps), "tools": [tool]} | fields
    return "gemini-interactions", body, None, "gemini-3-pro"


CLEAN: dict[str, Example] = {
    "anthropic-messages": anthropic(
        user(), said([SIGNED, text("Look."), USE]), user([RESULT, image(PNG, "image/png")]), **THINKING
    ),
    "openai-chat": chat(user([text("Look."), shown(f"data:image/png;base64,{PNG}")]), calling(), tool()),
    "openai-responses": responses(user(), REASONING, call(id="fc_1"), output()),
    "gemini-generate": gemini(asks(), model(CALL), asks(RESPONSE), tools=declared(SCHEMA)),
    "bedrock-converse": bedrock(B_HELLO, said([{"text": "Look."}, B_USE]), user([B_RESULT])),
    "mistral-chat": mistral(user(), calling("abcDEF123"), tool("abcDEF123")),
    "azure-inference-chat": ("azure-inference-chat", {"messages": [user()]}, None, None),
    "ollama-chat": ollama(user("Look.", images=[PNG]), OLLAMA_CALL, {"role": "tool", "content": "sunny"}),
    "gemini-interactions": interactions(
        asked_step({"type": "image", "data": PNG, "mime_type": "image/png"}),
        {"type": "thought", "signature": "c2ln"},
        {"type": "google_search_call", "id": "s1", "arguments": {"queries": ["Rome"]}},
        {"type": "google_search_result", "call_id": "s1", "result": []},
        I_CALL,
        I_RESULT,
    ),
}

BROKEN: dict[str, Example] = {
    "A01": anthropic(said("Hi."), user()),
    "A02": anthropic(user(), said([USE]), user()),
    "A03": anthropic(user([RESULT])),
    "A04": anthropic(user(), said([USE]), user([text("Here:"), RESULT])),
    "A05": anthropic(user([text("")])),
    "A06": anthropic(user([]), said("Hi."), user()),
    "A07": anthropic(user(), said([USE | {"id": "functions.x:0"}]), user()),
    "A08": anthropic(user(), said([USE, USE]), user([RESULT])),
    "A09": anthropic(user([text("a", **MARK) for _ in range(5)])),
    "A10": anthropic(user([text("", **MARK)])),
    "A11": anthropic(user(), said([USE]), user([RESULT]), **THINKING),
    "A12": anthropic(user(), said([SIGNED | {"signature": ""}, text("Hi.")]), user()),
    "A13": anthropic(user(), thinking={"type": "enabled", "budget_tokens": 500}),
    "A14": anthropic(user(), tool_choice={"type": "any"}, **THINKING),
    "A15": anthropic(user([image(PNG, "image/jpeg")])),
    "A16": anthropic(user(), tools=[{"name": "a.b", "input_schema": SCHEMA}]),
    "A17": anthropic(user(), said([SERVER]), user(), said("Hi."), user()),
    "A18": anthropic(user(), said("Well")),
    "A19": anthropic(user(), said("Well ")),
    "A20": anthropic(user(), tool_choice={"type": "tool", "name": "listen"}),
    "A21": anthropic(user(), said([USE]), user([RESULT]), tools=[]),
    "A22": anthropic(user(), said([USE]), user([RESULT]), said([USE]), user([RESULT])),
    "A23": anthropic(user([text(" \n")])),
    "A24": anthropic(user(), temperature=1.5),
    "C01": chat(user(), tool()),
    "C02": chat(user(), calling(), user(), tool()),
    "C03": chat(user(), calling("x" * 41), tool("x" * 41)),
    "C04": chat(user(), said(None), user()),
    "C05": chat(user(), tools=[]),
    "C06": chat(user(), tools=None, tool_choice="auto"),
    "C07": chat(user(), calling(name="a.b"), tool()),
    "C08": chat(),
    "C09": chat(user([shown("data:image/png;base64,aGVsbG8=")])),
    "C10": chat(user(), said([shown("https://example.org/a.png")]), user()),
    "C11": chat(user(), response_format={"type": "json_object"}),
    "C12": chat(user(), tools=[{"function": {"name": "look", "parameters": OPEN, "strict": True}}]),
    "C13": chat(user(), calling(), tool(), tool()),
    "C14": chat(user(), calling(arguments="[]"), tool()),
    "C15": chat({"role": "developer", "content": "Be brief."}, user(), provider="deepseek"),
    "C16": chat(user(), user(), provider="llama.cpp"),
    "C17": chat(user(), said("Hi.", reasoning_content="Hm."), user(), provider="groq"),
    "C18": chat(user(), calling(), tool(), provider="deepseek", thinking={"type": "enabled"}),
    "C19": chat(user([shown("https://example.org/a.png")]), provider="ollama"),
    "R01": responses(user(), output()),
    "R02": responses(user(), call()),
    "R03": responses(user(), REASONING, user()),
    "R04": responses(user(), REASONING | {"encrypted_content": None}, ANSWER, store=False),
    "R05": responses(user(), call(id="call_1"), output()),
    "R06": responses(user(), call("x" * 65), output("x" * 65)),
    "R07": responses(user([{"type": "output_text", "text": "Hello."}])),
    "R08": responses(user(), ANSWER, ANSWER),
    "R09": responses(user(), previous_response_id="resp_1", conversation="conv_1"),
    "R10": responses(user(), REASONING | {"encrypted_content": "EqQB"}, ANSWER),
    "R11": responses(user(), call(), output(), output()),
    "R12": responses(),
    "R13": responses(user(), call(), said("Wait."), output(), provider="deepseek"),
    "R14": responses(user([{"type": "input_file", "file_data": f"data:image/png;base64,{PNG}"}])),
    "G01": gemini({"role": "assistant", "parts": [{"text": "Hi."}]}, asks()),
    "G02": gemini(asks({"thought": True})),
    "G03": gemini(asks(), asks(RESPONSE)),
    "G04": gemini(asks(), model(CALL, CALL), asks(RESPONSE)),
    "G05": gemini(model(CALL), asks(RESPONSE)),
    "G06": gemini(asks(), model({"functionCall": {"name": "look"}}), asks(RESPONSE)),
    "G07": gemini(asks(), tools=declared(SCHEMA, "1look")),
    "G08": gemini(asks(), model(CALL), asks({"functionResponse": {"name": "listen"}})),
    "G09": gemini(asks(), model()),
    "G10": gemini(asks(), tools=declared(SCHEMA | {"$schema": "x"})),
    "G11": gemini(asks({"inlineData": {"mimeType": "image/png", "data": "aGVsbG8="}})),
    "G12": gemini(asks(), tools=[*declared(SCHEMA), {"googleSearch": {}}], model="gemini-2.5-flash"),
    "G13": gemini(
        asks(), tools=declared({"type": "object", "properties": {"n": {"type": "integer", "enum": [1]}}})
    ),
    "G14": gemini(asks(), model({"text": "Hi.", "thoughtSignature": "not base64!"}), asks()),
    "G15": gemini(asks({"inlineData": {"mimeType": "image/jpeg", "data": PNG}})),
    "G16": gemini(asks(), model(CALL, CALL), asks(RESPONSE), asks(RESPONSE)),
    "G17": gemini(asks(), generationConfig={"temperature": 2.5}),
    "B01": bedrock(said([{"text": "Hi."}]), B_HELLO),
    "B02": bedrock(B_HELLO, B_HELLO),
    "B03": bedrock(B_HELLO, said([B_USE]), B_HELLO),
    "B04": bedrock(B_HELLO, said([B_USE]), user([B_RESULT]), toolConfig=None),
    "B05": bedrock(user([{"text": ""}])),
    "B06": bedrock(user([{"toolResult": {"toolUseId": "a", "status": "error", "content": []}}])),
    "B07": bedrock(user([{"text": "Read."}, document("a.pdf")])),
    "B08": bedrock(user([document("a")])),
    "B09": bedrock(user([{"text": "a"}, *({"cachePoint": {"type": "default"}} for _ in range(5))])),
    "B10": bedrock(user([{"text": "a", "cachePoint": {}}])),
    "B11": bedrock(B_HELLO, said([{"text": "Well"}])),
    "B12": bedrock(user([{"text": " "}])),
    "I01": interactions(asked_step(), {"role": "user", "content": "Hello."}),
    "I02": interactions(asked_step(), I_RESULT),
    "I03": interactions(asked_step(), I_CALL, asked_step()),
    "I04": interactions(asked_step(), {**I_CALL, "arguments": "{}"}, I_RESULT),
    "I05": interactions(asked_step(), agent="deep-research-pro-preview-12-2025"),
    "I06": interactions(asked_step(), tools=[{"type": "function", "name": "1look"}]),
    "I07": interactions(asked_step({"type": "image", "data": "https://example.org/a.png"})),
    "I08": interactions(asked_step(), response_format={"type": "object", "properties": {}}),
    "M01": mistral(user(), calling("call_1"), tool("call_1")),
    "M02": mistral(user(), calling("abcDEF123"), tool("abcDEF123"), user()),
    "M03": mistral(user(), said("Hi.")),
    "M04": mistral(user(), calling("abcDEF123"), tool("abcDEF123"), tool("abcDEF124")),
    "O01": ollama({"role": "developer", "content": "Be brief."}, user()),
    "O02": ollama(user([text("Hello.")])),
    "O03": ollama(user("Look.", images=["https://example.org/a.png"])),
    "O04": ollama(user(), calling(), tool()),
    "O05": ollama(user(), tools=[{"name": "look", "parameters": SCHEMA}]),
}

"""Histories that were dropped from, doubled, shuffled and cut: requests that the servers take come of them."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from perdure.model.context import Context, ToolSpec
from perdure.model.message import File, Image, Message, ReasoningSummary, Text, ToolCall, ToolResult
from perdure.providers import adapter
from perdure.providers.wire.server_tools import account
from tests.recorded.chat_rules import broken_rules

TARGETS = [
    ("openai-chat", "openai"),
    ("openai-chat", "groq"),
    ("openai-chat", "ollama"),
    ("openai-chat", "llama.cpp"),
    ("openai-chat", "deepseek"),
    ("openai-chat", "openrouter"),
    ("mistral-chat", "mistral"),
    ("azure-inference-chat", "azure"),
]

blocks = st.one_of(
    st.builds(Text, st.sampled_from(["", " ", "hi", "\ud800"])),
    st.builds(ReasoningSummary, st.sampled_from(["", "hm"])),
    st.builds(
        Image,
        st.sampled_from(["https://e.com/a.png", "data:image/png;base64,xx", "artifact://1"]),
        st.just("image/png"),
    ),
    st.builds(
        File,
        st.sampled_from(["data:text/plain;base64,aGk=", "file-id://openai/1", "data:,"]),
        st.sampled_from(["text/plain", "audio/wav", "video/mp4", "application/pdf"]),
    ),
    st.just(account("web_search", "web_search", result="x")),
)
ids = st.sampled_from(["a", "b", "x" * 60, "functions.f:0"])
calls = st.builds(
    ToolCall, ids, st.sampled_from(["f", "a.b", "a_b", "n" * 90]), st.sampled_from(["", "{}", "[1]", "{"])
)
contents = st.lists(blocks, max_size=3).map(tuple)
results = st.builds(ToolResult, ids, st.sampled_from(["success", "error"]), contents)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=contents,
    tool_calls=st.lists(calls, max_size=3).map(tuple),
    tool_results=st.lists(results, max_size=3).map(tuple),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "tool_choice": st.sampled_from(["auto", "none", "required", {"name": "a.b"}, {"name": "zz"}]),
        "output": st.sampled_from(["json", {"schema": {"type": "object"}, "strict": True}]),
        "parallel_tool_calls": st.booleans(),
        "cache": st.just(True),
        "reasoning": st.sampled_from([{"effort": "low"}, {"enabled": True}, {"budget_tokens": 5_000}]),
    },
)


@given(
    history=st.lists(messages, max_size=6),
    options=options,
    tools=st.lists(st.sampled_from(["f", "a.b", "a_b"]), max_size=3),
    target=st.sampled_from(TARGETS),
)
def test_any_history_becomes_a_request_that_the_server_takes(
    history: list[Message], options: dict[str, object], tools: list[str], target: tuple[str, str]
) -> None:
    """No rule is broken, nothing is raised, and the same history gives the same request."""
    api, provider = target
    specs = [ToolSpec(name=name, strict=True) for name in tools]
    context = Context(messages=history, options=options, tools=specs)  # pyright: ignore[reportArgumentType]

    rendered = adapter(api).render(context, model="m", provider=provider)

    broken = broken_rules(rendered.body, mistral=api == "mistral-chat")
    assert [
        rule for rule in broken if rule != "C12" or provider != "openrouter"
    ] == []  # it mends open schemas itself
    assert rendered == adapter(api).render(context, model="m", provider=provider)


@given(history=st.lists(messages, max_size=6), target=st.sampled_from(TARGETS))
def test_what_another_vendor_keeps_changes_nothing(history: list[Message], target: tuple[str, str]) -> None:
    """With or without it the request is the same."""
    api, provider = target
    marked = [
        msgspec.structs.replace(
            each, vendor_metadata='{"anthropic": {"endpoint": "anthropic", "blocks": [1]}}'
        )
        for each in history
    ]

    plain = adapter(api).render(Context(messages=history), model="m", provider=provider)

    assert adapter(api).render(Context(messages=marked), model="m", provider=provider) == plain

"""Chat Completions against recorded traffic: answers, facts, chunks, round trips."""

from __future__ import annotations

from typing import ClassVar

from tests.recorded.chat_rows import ChatRows


class TestOpenAIChat(ChatRows):
    """Every row, for OpenAI and all servers that speak its Chat."""

    api = "openai-chat"
    apis = ("openai-chat", "groq-chat")
    records = 1_600
    no_answers: ClassVar = {
        "cf1cace6a111-j": "the body is an error",
        "17258472d6b9-j": "a test server said hello in plain text",
    }
    otherwise: ClassVar = {
        "1192a789f517-000": (["calls"], "every chunk repeats id and name; the SDK joins them to one word"),
        "53db4613c5c0-000": (["calls"], "a function_call of the older form is a call"),
        "3c660d4717bd-000": (["stop"], "the body is the error of a content filter, which is why it stopped"),
        "479746942d1a-000": (["thinking"], "the summary stands in reasoning_details alone"),
    }
    other_requests: ClassVar = {"53db4613c5c0-000": "functions of the older form are declared as tools"}

"""Model inference against recorded traffic: answers, facts, chunks, round trips."""

from __future__ import annotations

from tests.recorded.chat_rows import ChatRows


class TestAzureInferenceChat(ChatRows):
    """Every row, without an exception."""

    api = "azure-inference-chat"
    apis = ("azure-inference-chat",)
    records = 20

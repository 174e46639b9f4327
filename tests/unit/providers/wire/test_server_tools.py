"""Accounts of vendors' own tools."""

from __future__ import annotations

from holdfast.model.message import File
from holdfast.providers.wire.server_tools import MEDIA_TYPE, account, is_account, told


def test_an_account_is_told_in_one_line() -> None:
    """The name, what was asked and what came of it."""
    block = account("web_search_call", "web_search", input={"query": "tides"}, result="High at noon.")

    assert is_account(block)
    assert told(block) == '[web_search: {"query": "tides"} → High at noon.]'


def test_what_only_the_vendor_reads_is_left_out() -> None:
    """Tokens, bytes and empty fields are no words."""
    result = [{"title": "Tides", "encrypted_content": "Eq9…", "page_age": None, "blob": "x" * 500}]

    assert told(account("r", "search", result=result)) == '[search: [{"title": "Tides"}]]'


def test_long_results_are_shortened() -> None:
    """An account never grows with what it tells of."""
    assert len(told(account("r", "fetch", result=["word " * 1_000] * 100))) < 4_100


def test_a_block_that_holds_no_account_is_still_told() -> None:
    """Whatever came as such a block."""
    assert told(File("data:text/plain,x", MEDIA_TYPE)) == "[a server-side tool]"
    assert told(File("artifact://1", MEDIA_TYPE)) == "[a server-side tool]"

"""Accounts of vendors' own tools."""

from __future__ import annotations

from perdure.model.message import File
from perdure.providers.wire.server_tools import MEDIA_TYPE, account, is_account, told


def test_an_account_is_told_in_one_line() -> None:
    """The name, what was asked and what came of it."""
    block = account("web_search_call", "web_search", input={"query": "tides"}, result="High at noon.")

    assert is_account(block)
    assert told(block) == '[web_search: {"query": "tides"} → High at noon.]'


def test_what_only_the_vendor_reads_is_left_out() -> None:
    """Tokens, bytes and empty fields are no words."""
    result = [{"title": "Tides", "encrypted_content": "Eq9…", "page_age": None, "blob": "x" * 500}]

    assert told(account("r", "search", result=result)) == '[search: [{"title": "Tides"}]]'


def test_long_results_are_told_whole() -> None:
    """However long the texts, however many items and however deep, no word is cut."""
    result = {"a": {"b": {"c": {"d": {"e": {"f": ["word " * 1_000] * 100}}}}}, "summary": "long " * 2_000}

    line = told(account("r", "fetch", result=result))

    assert line.count("word") == 100_000
    assert line.count("long") == 2_000


def test_text_of_a_document_and_long_addresses_are_words() -> None:
    """A fetched page stands under `data`, and an address has no spaces; both can be read."""
    address = "https://example.com/" + "a" * 300
    result = {"source": {"data": "Star Wars films", "url": address}, "image": {"data": "aGVsbG8="}}

    line = told(account("r", "fetch", result=result))

    assert "Star Wars films" in line
    assert address in line
    assert "aGVsbG8=" not in line


def test_a_block_that_holds_no_account_is_still_told() -> None:
    """Whatever came as such a block."""
    assert told(File("data:text/plain,x", MEDIA_TYPE)) == "[a server-side tool]"
    assert told(File("artifact://1", MEDIA_TYPE)) == "[a server-side tool]"

"""The table of codes is what the source says."""

from __future__ import annotations

import ast

from tests.docs.codes_page import PAGE, codes, rendered


def test_the_page_lists_the_codes_of_the_source() -> None:
    """`python -m tests.docs.codes_page` writes the table again."""
    page = PAGE.read_text(encoding="utf-8")

    assert rendered(page) == page
    assert "| `path_not_found` | `NotFound` |" in page


def test_control() -> None:
    """A code is found with its class and message; a call that is no error, and one without a code, are not."""
    text = """
raise errors.NotFound(f"path '{path}' has no value; nothing was read.", code="path_not_found", path=path)
raise Invalid("no code")
translate("x", code="y")
"""
    assert list(codes([ast.parse(text)])) == [("path_not_found", "NotFound", "path '…' has no value")]

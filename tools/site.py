"""A hook of the site: links that lead out of `docs/` become their words, with the path as a hint.

The pages are written to be read in the repository, where such a link leads to a test or a source file; the site does
not have those.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

__all__ = ["on_page_markdown"]

_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
_DECISIONS = "decisions/0001-rows-carry-their-keys.md"  # a directory has no page of its own on the site


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:
    """Return the text of a page with the links that the site cannot follow as words."""
    folder = posixpath.dirname(page.file.src_uri)

    def linked(match: re.Match[str]) -> str:
        words, path, anchor = match[1], match[2], match[3] or ""
        target = posixpath.normpath(posixpath.join(folder, path))
        if target == "decisions":
            return f"[{words}]({posixpath.relpath(_DECISIONS, folder or '.')})"
        if not target.startswith(".."):
            return f"[{words}]({path}{anchor})"
        return f'<span title="{target.removeprefix("../")}">{words}</span>'

    return _LINK.sub(linked, markdown)

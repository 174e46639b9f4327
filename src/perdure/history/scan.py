"""Going over everything that is stored for a space.

A page is as long as its objects are small, so that memory does not depend on what was put
into the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perdure.engines.contract import Engine, Fact
from perdure.errors import Corrupt

__all__ = ["pages", "spaces", "whole_pages"]

_PAGE_BYTES = 2 * 1024 * 1024
_PAGE_MIN, _PAGE_MAX = 4, 500


def pages(engine: Engine, space: str) -> Iterator[Sequence[Fact]]:
    """Everything stored for a space, in pages of about the same number of bytes."""
    cursor: int | None = 0
    limit = _PAGE_MIN
    while cursor is not None:
        before = cursor
        page, cursor = engine.scan(space, after=cursor, limit=limit)
        yield page
        if cursor is not None and cursor <= before:
            raise Corrupt(f"the scan of space '{space}' does not get on; what follows was not read.")
        size = sum(len(fact.object.body) for fact in page if fact.object) // max(1, len(page))
        limit = min(max(_PAGE_BYTES // max(1, size), _PAGE_MIN), _PAGE_MAX)


def whole_pages(engine: Engine, space: str) -> Iterator[Sequence[Fact]]:
    """The same; raises `Corrupt` at the first thing that is damaged."""
    for page in pages(engine, space):
        for fact in page:
            if fact.fault is not None:
                raise Corrupt(
                    f"space '{space}' is damaged ({fact.fault}); it was left as it is. Run `perdure verify`."
                )
        yield page


def spaces(engine: Engine) -> Iterator[str]:
    """Every space that was ever written, by name."""
    after = ""
    while page := engine.spaces(after=after, limit=_PAGE_MAX):
        yield from page
        after = page[-1]

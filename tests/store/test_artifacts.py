"""Artifacts of a thread, by digest and by reference."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent
from perdure.errors import Invalid
from perdure.testing import Script, say, use


@perdure.tool(effect="none")
def look() -> str:
    """Look."""
    return "found"


def test_a_call_s_result_is_read_by_the_reference_that_the_call_holds() -> None:
    """Whoever has the ledger's record has the way to the whole result."""
    store = perdure.open("memory:")
    thread = store.thread("t", agent=Agent("a", backend=Script(use("look"), say("Done.")), tools=[look]))
    thread.run("Look")
    reference = thread.calls()[0].result or ""

    content = b"".join(thread.artifacts.get(reference))

    assert content == b"found"
    assert thread.artifacts.show(reference).size == 5


def test_another_address_is_no_reference() -> None:
    """Nothing but digests and artifact references is ever followed."""
    thread = perdure.open("memory:").thread("t", agent="a")

    with pytest.raises(Invalid):
        thread.artifacts.get("https://example.org/x")

"""Call ids on entry."""

from __future__ import annotations

from perdure.providers.wire.call_ids import CallNames


def test_repeated_and_missing_ids_become_unique() -> None:
    """The vendor's own where it can be, a number behind it where not."""
    ids = CallNames()

    assert [ids.call("a"), ids.call("a"), ids.call(None), ids.call("")] == ["a", "a-2", "call", "call-2"]


def test_results_go_to_the_first_call_that_has_none() -> None:
    """Two calls of one id have their results in order; what comes after them belongs to the last."""
    ids = CallNames()
    ids.call("a")
    ids.call("a")

    assert [ids.result("a"), ids.result("a"), ids.result("a"), ids.result("b")] == ["a", "a-2", "a-2", "b"]

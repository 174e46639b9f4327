"""Interactions that Google works on in the background: kept by their id, fetched, failed, cancelled."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent, Backend
from perdure.errors import PerdureError
from perdure.model.run import StopReason
from tests.providers.endings import vendor_of
from tests.providers.playing import Answer, Place, playing, whole
from tests.providers.vendors import KEY, TEXT

VENDOR = vendor_of("gemini-interactions")
AGENT = "deep-research-pro-preview-12-2025"
WORKING = {"id": "v1_1", "object": "interaction", "status": "in_progress", "agent": AGENT}


def ran(place: Place, **own: Any) -> Any:
    """One run of an agent of Google's; `own` are fields of this API alone."""
    options: dict[str, Any] = {"vendor": {"gemini-interactions": {"background": True, **own}}}
    backend = Backend(
        f"gemini-interactions:{AGENT}", base_url=place.url, api_key=KEY, options=options, retries=0
    )
    with perdure.open("memory:") as store:
        return store.thread("trip", agent=Agent("planner", backend=backend)).run("Hi")


@pytest.mark.parametrize("own", [{"agent": AGENT}, {}], ids=["agent", "model"])
def test_an_interaction_in_the_background_is_fetched_by_its_id(own: dict[str, Any]) -> None:
    """One request asks, without a stream; the others fetch, and the answer counts as one step."""
    answers: list[Answer] = [whole(WORKING), whole(WORKING), VENDOR.whole()]

    with playing(*answers) as place:
        result = ran(place, **own)

    assert (result.status, result.text, result.steps) == ("succeeded", TEXT, 1)
    assert [each.method for each in place.requests] == ["POST", "GET", "GET"]
    assert {each.path.partition("?")[0] for each in place.requests[1:]} == {"/v1/interactions/v1_1"}
    asked = place.requests[0].body
    assert (asked["stream"], asked["background"]) == (False, True)
    assert asked.get("agent") == own.get("agent")
    assert ("model" in asked) is not ("agent" in asked)


def test_an_interaction_that_was_cancelled_at_its_server_stops_the_run() -> None:
    """A user may cancel it there."""
    with playing(whole(WORKING), whole({**WORKING, "status": "cancelled"})) as place:
        result = ran(place)

    assert (result.status, result.stop) == ("stopped", StopReason("cancelled", "cancelled"))


def test_an_interaction_that_failed_fails_the_run_with_googles_words() -> None:
    """It came with status 200, and says itself that it failed."""
    failed = {**WORKING, "status": "failed", "errors": [{"code": "internal", "message": "the agent broke"}]}

    with playing(whole(WORKING), whole(failed)) as place, pytest.raises(PerdureError) as error:
        ran(place)

    assert "the agent broke" in str(error.value)

"""How long an idempotency key stands for its call: counted from the first start, on a clock that nobody turns."""

from __future__ import annotations

import pytest

import perdure
from tests.runtime.runs.cut_off import DAY, Place

LIFETIME_SECONDS = 60

_sent: list[str] = []


@perdure.tool(effect="external_write", idempotent=True, key_lifetime=LIFETIME_SECONDS)
def order(what: str) -> str:
    """Order something; the service knows the key for a while."""
    _sent.append(what)
    return f"ordered {what}"


@perdure.tool(effect="external_write", idempotent=True, key_lifetime=LIFETIME_SECONDS, ask=True)
def asked(what: str) -> str:
    """The same, once somebody has agreed."""
    _sent.append(what)
    return f"ordered {what}"


@perdure.tool(effect="external_write", idempotent=True, key="order-{what}", key_lifetime=LIFETIME_SECONDS)
def keyed(what: str, note: str) -> str:
    """The same with a key that equal orders share."""
    _sent.append(note)
    return f"ordered {what}"


@pytest.fixture
def place() -> Place:
    """A store, and nothing sent."""
    _sent.clear()
    return Place()


@pytest.mark.parametrize("turned", [-DAY, 0, DAY])
@pytest.mark.parametrize(("passed", "times"), [(59, 2), (61, 1)])
def test_the_time_of_day_says_nothing_of_a_key(place: Place, passed: int, times: int, turned: int) -> None:
    """A cut-off call is repeated within the lifetime and not after it, wherever the wall clock was turned to."""
    place.cut_off(order, {"what": "tea"}, id="c1", after=1)
    place.pass_(passed)
    place.wall += turned * 1_000_000

    result = place.call(order, {"what": "tea"}, id="c1")

    assert (result.state, len(_sent)) == ("succeeded" if times == 2 else "unknown", times)


def test_where_the_age_is_not_known_nothing_is_repeated(place: Place) -> None:
    """After a reboot no clock can tell: the call stays with a person."""
    place.cut_off(order, {"what": "tea"}, id="c1", after=1)
    place.boot()

    result = place.call(order, {"what": "tea"}, id="c1")

    assert (result.state, _sent) == ("unknown", ["tea"])


def test_a_lifetime_is_counted_from_the_first_start(place: Place) -> None:
    """Time that a call waits for a decision is not among it; a second start does not begin it anew."""
    place.call(asked, {"what": "tea"}, id="c1")
    place.pass_(DAY)
    place.thread.decide("c1", "approve")
    place.cut_off(asked, {"what": "tea"}, id="c1", after=1)
    place.pass_(LIFETIME_SECONDS - 1)
    place.cut_off(asked, {"what": "tea"}, id="c1", after=1)
    assert len(_sent) == 2
    place.pass_(2)

    result = place.call(asked, {"what": "tea"}, id="c1")

    assert (result.state, len(_sent)) == ("unknown", 2)


@pytest.mark.parametrize(
    ("how", "state", "sent"),
    [
        ("alive", "succeeded", ["a"]),
        ("over", "succeeded", ["a", "b"]),
        ("unknown", "awaiting_approval", ["a"]),
    ],
)
def test_a_shared_key_stands_for_what_was_done_as_long_as_it_lives(
    place: Place, how: str, state: str, sent: list[str]
) -> None:
    """Alive: the first result.  Over: another order.  Where nobody can tell, somebody is asked."""
    place.call(keyed, {"what": "tea", "note": "a"}, id="c1")
    if how == "over":
        place.pass_(LIFETIME_SECONDS)
    elif how == "unknown":
        place.boot()

    result = place.call(keyed, {"what": "tea", "note": "b"}, id="c2")

    assert (result.state, _sent) == (state, sent)
    if how == "unknown":
        place.thread.decide("c2", "approve")
        assert place.call(keyed, {"what": "tea", "note": "b"}, id="c2").ok
        assert _sent == ["a", "b"]

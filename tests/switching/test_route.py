"""Routes: who may take over, in which order, and which of them cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, Backend, Route
from perdure.errors import Invalid, NotFound, Refused, StaleHead, Unsupported
from perdure.model.context import Context
from perdure.model.head import Head
from perdure.model.message import File, Image, Message
from perdure.providers import catalog
from perdure.providers.capabilities import Capability
from perdure.providers.profile import backend_profile, name_of
from perdure.providers.transport.errors import (
    AccessRefused,
    ContentRefused,
    ContextTooLong,
    CutOff,
    RateLimited,
    RequestRejected,
)
from perdure.switching.route import Trigger, lacking, needs, trigger_of
from perdure.testing import Script
from tests.coded import raises

A, B, C = "openai:gpt-5.6", "anthropic:claude-haiku-4-5", "google:gemini-2.5-pro"


@pytest.mark.parametrize(
    ("wrong", "code", "facts"),
    [
        ({"fallbacks": []}, "route_without_fallback", {}),
        ({"fallbacks": [A, A]}, "route_contradiction", {"backends": (A,)}),
        ({"fallbacks": [A], "primary": A}, "route_contradiction", {"backends": (A,)}),
        ({"fallbacks": A}, "route_not_a_list", {"field": "fallbacks"}),
        (
            {"fallbacks": [A], "requires": ["sight"]},
            "route_name_unknown",
            {"field": "requires", "name": "sight"},
        ),
        (
            {"fallbacks": [A], "triggers": ["boredom"]},
            "route_name_unknown",
            {"field": "triggers", "name": "boredom"},
        ),
        ({"fallbacks": [A], "budget_tokens": 0}, "route_budget", {}),
        ({"fallbacks": [A], "budget_tokens": 100}, "route_contradiction", {}),
        ({"fallbacks": [A], "triggers": ["budget"]}, "route_contradiction", {}),
    ],
)
def test_a_route_that_cannot_be_is_refused_when_it_is_declared(
    wrong: dict[str, Any], code: str, facts: dict[str, Any]
) -> None:
    """And nothing is declared."""
    with raises(Invalid, code, **facts):
        Route(**wrong)


@pytest.mark.parametrize("wrong", [3, Script])
def test_what_is_no_backend_is_refused_in_a_route(wrong: Any) -> None:
    """Neither a number nor a class is a backend."""
    with raises(Invalid, "not_a_backend"):
        Route([wrong])


def test_an_agent_takes_its_backend_from_the_route() -> None:
    """Where it has none of its own; two that differ contradict each other."""
    assert Agent("a", route=Route([B], primary=A)).backend == A

    with raises(Invalid, "backend_and_route_differ", agent="a"):
        Agent("a", backend=C, route=Route([B], primary=A))
    with raises(Invalid, "route_falls_back_to_itself", agent="a"):
        Agent("a", backend=B, route=Route([B]))
    with raises(Invalid, "agent_field_invalid", agent="a", field="route"):
        Agent("a", backend=A, route=[B])  # pyright: ignore[reportArgumentType]


def test_the_same_agent_on_another_backend_keeps_its_fallbacks() -> None:
    """`on` changes where it begins."""
    agent = Agent("a", route=Route([B], primary=A)).on(C)

    assert agent.route is not None
    assert [name_of(each) for each in agent.route.order(agent.backend)] == [C, B]


@pytest.mark.parametrize(
    ("on", "tried", "left"),
    [(A, [], [B, C]), (B, [], [C, A]), (B, [A], [C]), (C, [A, B], []), ("x:y", [], [A, B, C])],
)
def test_those_behind_come_first_and_nobody_is_tried_twice(
    on: str, tried: list[str], left: list[str]
) -> None:
    """Whoever failed once in a run is left out."""
    assert [name_of(each) for each in Route([B, C]).after(on, A, tried=tried)] == left


@pytest.mark.parametrize(
    ("error", "trigger"),
    [
        (RateLimited("slow down"), "rate_limit"),
        (ContextTooLong("too long"), "context"),
        (RequestRejected("no tools"), "capability"),
        (Unsupported("no package"), "capability"),
        (CutOff("broke off"), "error"),
        (AccessRefused("no key"), "error"),
        (NotFound("no such model"), "error"),
        (ConnectionError("reset"), "error"),
        (ContentRefused("no"), None),
        (Refused("no"), None),
        (StaleHead(Head("main", 0, None), Head("main", 1, None)), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_an_error_is_a_trigger_by_its_kind(error: BaseException, trigger: Trigger | None) -> None:
    """What the store or a policy says is none."""
    assert trigger_of(error) == trigger


def test_what_a_context_needs_is_in_what_it_holds() -> None:
    """Pictures, papers and sounds by their kind; a server tool's account is words."""
    message = Message("user", (Image("https://x/a.png", "image/png"), File("https://x/a.mp3", "audio/mpeg")))
    account = Message("user", (File("data:,", "application/vnd.perdure.server-tool+json"),))

    assert needs(Context(messages=(message,))) == {Capability.IMAGES, Capability.AUDIO}
    assert needs(Context(messages=(account,))) == frozenset()


def test_what_a_backend_lacks_is_named() -> None:
    """A script by what it says, a backend by its card; of what nobody knows nothing is held against it."""
    models = catalog.shipped()
    wanted = [Capability.IMAGES, "tools"]

    assert lacking(backend_profile(Script(lacks=["images"]), models), wanted) == ("images",)
    assert lacking(backend_profile("groq:llama-3.3-70b-versatile", models), wanted) == ("images",)
    assert lacking(backend_profile(Script(), models), wanted) == ()
    assert backend_profile(Backend(B), models).window == 200_000
    assert backend_profile(Script(backend=B, window=8_000), models).window == 8_000


def test_a_name_of_nobody_is_refused_where_the_route_is_declared() -> None:
    """A route that would lead nowhere is told before anybody needs it."""
    with raises(Invalid, "route_backend_unknown", backend="nope:x"):
        Route(["nope:x"])

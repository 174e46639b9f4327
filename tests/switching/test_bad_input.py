"""Bad input to a switch: a clear error, and nothing is changed."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import Agent, Backend, Image, Message, Policy, Text, Thread
from perdure.errors import Invalid, PerdureError, Refused
from perdure.runtime.inference import switch
from perdure.testing import Script, say
from tests.coded import raises

A, B = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5"


@pytest.fixture
def thread() -> Thread:
    """A thread with one turn."""
    thread = perdure.open("memory:").thread("t", agent=Agent("a", backend=Script(say("Hello."), backend=A)))
    thread.run("Hello")
    return thread


@pytest.mark.parametrize(
    "given",
    [
        {"backend": "nobody:x"},
        {"backend": "openai:gpt-nope"},
        {"backend": "no backend"},
        {"backend": 5},
        {"backend": B, "summariser": 5},
        {"backend": B, "output": 5},
        {"backend": B, "reason": ""},
        {"backend": B, "approved_by": 7},
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(thread: Thread, given: dict[str, Any]) -> None:
    """Whatever it is, the error is one of ours."""
    before = thread.head

    with pytest.raises(PerdureError):
        thread.switch(**given)

    assert thread.head == before
    assert thread.backend == A


def test_a_backend_has_a_name() -> None:
    """A number is none."""
    with raises(Invalid, "backend_name_invalid", backend=5):
        Backend(5)  # pyright: ignore[reportArgumentType]


def test_a_limit_counts_from_nothing(thread: Thread) -> None:
    """Fewer than none are never asked for."""
    with raises(Invalid, "limit_invalid", limit=-1):
        thread.switches(limit=-1)


def test_streaming_is_nobody_s_loss(thread: Thread) -> None:
    """That an answer is streamed is our own wish: a format that asks for it in another way loses nothing."""
    strict = thread.on("main")
    strict._declared = Agent(
        "a", backend=strict._declared.backend, policy=Policy(block=["converted", "removed"])
    )  # pyright: ignore[reportPrivateUsage]

    assert strict.check_switch("google:gemini-2.5-pro").ok


@pytest.mark.parametrize(
    "uri", ["https://example.org/a.png", "data:image/png;base64,!!!", f"artifact://sha256/{'0' * 64}"]
)
def test_a_picture_that_would_only_be_named_is_graded_as_removed(thread: Thread, uri: str) -> None:
    """By its address alone where the backend fetches none, or where nobody can read it."""
    with thread.change("picture") as change:
        change.add(Message("user", (Text("Look."), Image(uri, "image/png"))))

    item = thread.check_switch("bedrock:anthropic.claude-sonnet-5-5").of("images")

    assert item is not None
    assert item.mark == "removed"


def test_a_missing_package_is_said_before_anybody_leaves(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dry run notes what to install; the switch itself is refused."""
    monkeypatch.setattr(switch, "_is_installed", lambda module: False)

    assert any("pip install 'perdure[anthropic]'" in note for note in thread.check_switch(B).notes)
    with raises(
        PerdureError,
        "package_missing",
        backend="anthropic:claude-sonnet-5-5",
        package="anthropic",
        extra="anthropic",
    ):
        thread.switch(B)


def test_who_has_to_approve_is_asked_for_by_the_name_of_the_parameter() -> None:
    """The message can be followed as it stands."""
    policy = Policy(approve=["options"])
    agent = Agent("a", backend=Script(say("Hello."), backend=A), policy=policy, options={"seed": 1})
    thread = perdure.open("memory:").thread("t", agent=agent)
    thread.run("Hello")

    with pytest.raises(Refused) as refused:
        thread.switch(B)
    assert isinstance(refused.value.report, perdure.Report)
    assert refused.value.report.outcome == "approval"
    assert thread.switch(B, approved_by="ann").switched

"""Planning for a backend by its name: one that nobody knows is refused, with those that are close."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, Backend, Thread, errors
from perdure.testing import Script, say
from tests.coded import raises


@pytest.fixture
def thread() -> Iterator[Thread]:
    """A thread on a scripted backend, with one turn."""
    with perdure.open("memory:") as store:
        agent = Agent("helper", backend=Script(say("Hello."), backend="script:one"))
        found = store.thread("shopping", agent=agent)
        found.run("Hello?")
        yield found


@pytest.mark.parametrize(
    ("name", "kind", "code", "near"),
    [
        ("nobody:model", errors.NotFound, "provider_not_found", "anthropic"),
        ("antropic:claude-sonnet-5-5", errors.NotFound, "provider_not_found", "'anthropic'"),
        ("script:two", errors.NotFound, "provider_not_found", "anthropic"),
        ("nothing", errors.Invalid, "backend_name_invalid", "openai:"),
    ],
)
def test_a_name_that_nobody_goes_by_is_refused(
    thread: Thread, name: str, kind: type[errors.PerdureError], code: str, near: str
) -> None:
    """Neither a plan nor a request is made for it, and the error names one that is close, or one that there is."""
    for ask in (thread.plan, thread.render):
        with raises(kind, code) as caught:
            ask(name)
        assert near in str(caught.value)


def test_who_is_on_the_line_or_was_handed_in_is_known(thread: Thread) -> None:
    """The line's own name, one that was switched to, a new model as a Backend, and any known vendor's."""
    assert thread.plan("script:one").backend == thread.plan().backend == "script:one"
    assert thread.plan("anthropic:claude-sonnet-5-5").fits
    assert thread.plan(Backend("anthropic:claude-next")).backend == "anthropic:claude-next"
    assert thread.plan("ollama:whatever").backend == "ollama:whatever"

    thread.switch(Script(backend="script:two"))

    assert thread.plan("script:two").backend == "script:two"


def test_a_model_that_no_catalog_has_is_planned_and_rendered_as_it_is_run(thread: Thread) -> None:
    """With its provider's defaults; control: a switch, which would keep a mistyped name, refuses it by name."""
    name = "anthropic:claude-sonet-5-5"

    assert thread.plan(name).backend == name
    assert thread.render(name).body["model"] == "claude-sonet-5-5"
    with raises(errors.NotFound, "model_not_found") as caught:
        thread.switch(name)
    assert "'claude-sonnet-5-5'" in str(caught.value)

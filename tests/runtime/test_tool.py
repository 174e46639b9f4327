"""Declaring tools: what is remembered, and what is refused where it is declared."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from perdure.errors import Invalid
from perdure.model.effect import EFFECTS, Effect, Reach
from perdure.runtime.tools.call import Call, Outcome
from perdure.runtime.tools.tool import Retry, Tool, tool
from tests.coded import raises


def book(flight: str, price: int, call: Call | None = None) -> str:
    """Book a flight."""
    return f"{flight} for {price}, {call.id if call else 'by nobody'}"


@pytest.mark.parametrize("declare", [tool, tool()])
def test_a_bare_declaration_takes_everything_from_the_function(declare: Callable[..., Tool]) -> None:
    """Name, description and schema are the function's own."""
    declared = declare(book)

    assert (declared.name, declared.description) == ("book", "Book a flight.")
    assert declared.spec.name == "book"
    assert declared.spec.parameters["required"] == ["flight", "price"]


def test_a_tool_can_be_called_like_its_function() -> None:
    """So that it can be tested alone, with a call or without one."""
    declared = tool(effect="external_write")(book)

    assert declared("SK1", 10) == "SK1 for 10, by nobody"
    assert declared("SK1", price=10, call=Call(id="c1", tool="book")) == "SK1 for 10, c1"
    assert inspect.signature(declared) == inspect.signature(book)


def test_an_undeclared_effect_is_an_external_write_and_is_remembered_as_undeclared() -> None:
    """Whoever makes an agent of it can warn."""
    silent, spoken = tool(book), tool(effect="external_write")(book)

    assert silent.reach == spoken.reach == Reach("external_write", idempotent=False)
    assert (silent.declared, spoken.declared) == (False, True)


def test_options_are_kept_as_they_were_given() -> None:
    """Seconds become durations, and a number of attempts a retry."""
    declared = tool(
        name="travel/book.v2",
        description="Books.",
        effect="financial",
        idempotent=True,
        key="book-{flight}",
        key_scope="store",
        key_lifetime=60,
        timeout=5,
        retry=4,
        ask=True,
        version="2",
        repeat_guard="deny",
    )(book)

    assert (declared.name, declared.description, declared.version) == ("travel/book.v2", "Books.", "2")
    assert declared.reach == Reach("financial", idempotent=True)
    assert (declared.key, declared.key_scope, declared.key_lifetime) == (
        "book-{flight}",
        "store",
        timedelta(minutes=1),
    )
    assert (declared.timeout, declared.retry, declared.repeat_guard) == (5, Retry(attempts=4), "deny")


def test_a_tool_cannot_be_changed() -> None:
    """What was declared stays declared."""
    declared = tool(book)

    with pytest.raises(AttributeError):
        declared.name = "other"  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["", "1st", "a b", "x" * 129, "naïve", "a\n", "-a"])
def test_a_name_that_no_vendor_could_say_is_refused(name: str) -> None:
    """Letters, digits and a few signs, beginning with a letter or an underscore."""
    with raises(Invalid, "tool_name_invalid", name=name):
        tool(name=name)(book)


@pytest.mark.parametrize("name", ["a", "_", "A.b/c-d_9", "x" * 128])
def test_a_name_within_the_rule_is_taken(name: str) -> None:
    """The rule refuses no more than it says."""
    assert tool(name=name)(book).name == name


def test_a_function_without_a_name_needs_one() -> None:
    """A lambda, or a part of a function, is named in the declaration."""
    part = functools.partial(book, price=3)

    with raises(Invalid, "tool_name_invalid"):
        tool(part)

    assert tool(name="book")(part).validated('{"flight": "SK1"}').values["flight"] == "SK1"


@pytest.mark.parametrize("effect", EFFECTS)
def test_a_retry_is_refused_where_the_effect_does_not_allow_repetition(effect: Effect) -> None:
    """Only what changes nothing, or is idempotent, is ever repeated by itself."""
    assert tool(effect=effect, idempotent=True, retry=2)(book).retry == Retry(attempts=2)

    if effect in ("none", "read_only"):
        assert tool(effect=effect, retry=2)(book).retry
    else:
        with raises(Invalid, "tool_option_invalid", option="retry"):
            tool(effect=effect, retry=2)(book)


def test_waits_between_attempts_grow() -> None:
    """The first wait is the delay; each further one is longer by the factor."""
    retry = Retry(attempts=4, delay=0.5, factor=3)

    assert [retry.wait(attempt) for attempt in (1, 2, 3)] == [0.5, 1.5, 4.5]


@pytest.mark.parametrize(
    ("option", "options"),
    [
        ("key", {"key": "x-{seat}"}),
        ("key", {"key": "x-{call}"}),
        ("key_scope", {"key_scope": "planet"}),
        ("key_scope", {"key_scope": "store"}),
        ("key_lifetime", {"key_lifetime": 0}),
        ("timeout", {"timeout": 0}),
        ("retry", {"effect": "none", "retry": 0}),
        ("retry", {"effect": "none", "retry": "often"}),
        ("repeat_guard", {"repeat_guard": "shrug"}),
        ("ask", {"ask": "yes"}),
    ],
)
def test_a_wrong_option_is_refused_at_the_declaration(option: str, options: dict[str, Any]) -> None:
    """The error names the option; no call has to come first."""
    with raises(Invalid, "tool_option_invalid", tool="book", option=option):
        tool(**options)(book)


@pytest.mark.parametrize(
    "options",
    [
        {"effect": "sideways"},
        {"version": "a\nb"},
        {"key": "always-the-same"},
        {"key": "x-{flight.__class__}"},
        {"key": "x-{flight"},
    ],
)
def test_an_option_that_has_a_rule_of_its_own_is_refused_too(options: dict[str, Any]) -> None:
    """Effects, versions and key templates are checked by their own modules, at the declaration."""
    with pytest.raises(Invalid):
        tool(**options)(book)


def test_an_approval_is_asked_for_by_a_function_of_the_call() -> None:
    """It sees the arguments as JSON, and whatever it cannot decide a person does."""
    declared = tool(ask=lambda call: call.arguments["price"] > 500)(book)

    assert not declared.asks(Call(id="c", tool="book", arguments={"price": 5}))
    assert declared.asks(Call(id="c", tool="book", arguments={"price": 501}))
    assert declared.asks(Call(id="c", tool="book", arguments={}))
    assert tool(ask=True)(book).asks(Call(id="c", tool="book"))
    assert not tool(book).asks(Call(id="c", tool="book"))


def test_an_async_ask_is_refused() -> None:
    """What it would give is true whatever it decides."""

    async def ask(call: Call) -> bool:
        return False

    with raises(Invalid, "tool_option_invalid", option="ask"):
        tool(ask=ask)(book)


def test_a_reconcile_hook_is_declared_once_and_stays_a_function() -> None:
    """A second one would leave nobody sure which is asked."""
    declared = tool(book)
    assert declared.reconciler is None

    @declared.reconcile
    def find(call: Call) -> Outcome:
        return call.not_done()

    assert declared.reconciler is not None
    assert (declared.reconciler.function, declared.reconciler.fences) == (find, False)
    assert find(Call(id="c", tool="book")) == Outcome("not_done")
    with raises(Invalid, "tool_option_invalid", option="reconcile"):
        declared.reconcile(find)


def test_a_hook_of_one_tool_is_not_anothers() -> None:
    """Two tools made of one function share nothing."""
    one, other = tool(book), tool(book)

    @one.reconcile(fences=True)
    def find(call: Call) -> Outcome:
        return call.dont_know()

    assert one.reconciler is not None
    assert one.reconciler.function is find
    assert one.reconciler.fences
    assert other.reconciler is None


def test_what_could_not_be_run_is_refused() -> None:
    """A generator's code does not run when it is called; a value cannot be called at all."""

    def some(n: int) -> Iterator[int]:
        yield n

    async def many(n: int) -> AsyncIterator[int]:
        yield n

    for generator in (some, many):
        with raises(Invalid, "tool_option_invalid", option="function"):
            tool(generator)
    with raises(Invalid, "tool_is_no_function"):
        tool("book")  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_async_functions_and_objects_are_known_for_what_they_are() -> None:
    """The runtime has to know before it calls one."""

    class Sender:
        async def __call__(self, to: str) -> None: ...

    async def send(to: str) -> None: ...

    assert tool(send).runs_async
    assert tool(name="send")(Sender()).runs_async
    assert tool(name="send")(functools.partial(send, to="x")).runs_async
    assert not tool(book).runs_async

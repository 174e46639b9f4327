"""Small histories for the tests of telemetry, each with one thing that a trace has to show."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import perdure
from perdure import Agent, Call, Guard, Message, Retry, Store, Thread
from perdure.errors import RunFailed
from perdure.model.run import Usage
from perdure.telemetry import Span, thread_spans
from perdure.testing import Script, fail, say, use

SECRET = "the-password-is-swordfish"
USED = Usage(input_tokens=120, output_tokens=30, cached_tokens=20, reasoning_tokens=5)


@perdure.tool(effect="read_only")
def look(at: str) -> str:
    """Look."""
    return f"seen {at} {SECRET}"


@perdure.tool(effect="external_write", ask=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount} {SECRET}"


@perdure.tool(effect="read_only")
def delegate(task: str, call: Call) -> str:
    """Let another agent do it."""
    child = Agent("child", backend=Script(use("look", at="below"), say("Done below.")), tools=[look])
    return str(call.run(child, task).text)


@perdure.tool(effect="read_only")
def note(text: str, call: Call) -> str:
    """Remember something."""
    call.memory.add(text)
    return "noted"


def shaky(failures: int) -> perdure.Tool:
    """A tool that fails so often, and then works; it may be repeated."""
    tried: list[int] = []

    @perdure.tool(effect="external_write", idempotent=True, retry=Retry(attempts=failures + 1, delay=0))
    def fetch(url: str) -> str:
        """Fetch."""
        tried.append(1)
        if len(tried) <= failures:
            raise TimeoutError("no answer")
        return "fetched"

    return fetch


def helper(*steps: object, tools: Sequence[perdure.Tool] = (), **options: object) -> Agent:
    """An agent that takes these steps."""
    return Agent("helper", backend=Script(*steps), tools=list(tools), **options)  # pyright: ignore[reportArgumentType]


def with_tool(store: Store, id: str = "tool") -> Thread:
    """A run with one call."""
    agent = helper(use("look", at="home"), say(f"Seen {SECRET}.", usage=USED), tools=[look])
    thread = store.thread(id, agent=agent, owner="ann")
    thread.run(f"Look, {SECRET}", id=f"{id}-1")
    return thread


def with_retries(store: Store) -> Thread:
    """A call that was attempted three times."""
    thread = store.thread("retries", agent=helper(use("fetch", url="a"), say("Yes."), tools=[shaky(2)]))
    thread.run("Fetch it")
    return thread


def with_retried_run(store: Store) -> Thread:
    """A run that failed, and was given its input again."""
    thread = store.thread("failed", agent=helper(fail(), say("Never.")))
    with pytest.raises(RunFailed):
        thread.run("Go", id="m")
    again = store.thread("failed", agent=helper(say("Now.")))
    again.run("Go", id="m")
    return again


def with_fork(store: Store) -> Thread:
    """Two runs on main, and one on a fork after the first."""
    thread = store.thread("fork", agent=helper(say("One."), say("Two."), say("Three.")))
    thread.run("First")
    first = thread.turns()[0]
    thread.run("Second")
    thread.fork("what-if", at=first).run("Another second")
    return thread


def with_switch(store: Store) -> Thread:
    """A run, a switch by hand, and a run on the other backend."""
    thread = store.thread("switch", agent=helper(say("One."), say("Never.")))
    thread.run("First")
    thread.switch(Script(say("Never."), say("Two."), backend="script:other"))
    thread.run("Second")
    return thread


def with_approval(store: Store) -> Thread:
    """A call that a person approved."""
    thread = store.thread("approval", agent=helper(use("pay", amount=5), say("Paid."), tools=[pay]))
    asked = thread.run("Pay").approvals[0]
    thread.decide(asked.call, "approve", by="bob")
    thread.resume()
    return thread


def with_child(store: Store) -> Thread:
    """A call whose tool ran another agent."""
    thread = store.thread("parent", agent=helper(use("delegate", task="dig"), say("Done."), tools=[delegate]))
    thread.run("Delegate it")
    return thread


def with_memory(store: Store) -> Thread:
    """A call that wrote to the memory of its owner."""
    agent = helper(use("note", text=f"likes {SECRET}"), say("Noted."), tools=[note])
    thread = store.thread("memory", agent=agent, owner="ann")
    thread.run("Remember it")
    return thread


def with_guard(store: Store) -> Thread:
    """A run that a guard stopped."""

    def no_input(message: Message) -> str | None:
        return f"it says {SECRET}"

    thread = store.thread("guard", agent=helper(say("Never."), guards=[Guard("no", input=no_input)]))
    thread.run("Hello")
    return thread


SCENES = (
    with_tool,
    with_retries,
    with_retried_run,
    with_fork,
    with_switch,
    with_approval,
    with_child,
    with_memory,
    with_guard,
)


def all_spans(store: Store) -> list[Span]:
    """The spans of all threads of a store."""
    return [span for thread in store.threads() for span in thread_spans(thread)]


def tree(spans: Sequence[Span]) -> list[str]:
    """The names of spans, each indented below its parent, the earliest first."""
    lines: list[str] = []

    def add(parent: str | None, depth: int) -> None:
        for span in spans:
            if (span.parent.span if span.parent else None) == parent:
                lines.append("  " * depth + span.name)
                add(span.ref.span, depth + 1)

    add(None, 0)
    return lines


def named(spans: Sequence[Span], name: str) -> list[Span]:
    """The spans of that name, the earliest first."""
    return [span for span in spans if span.name == name]

"""Values of a wrong type, and words that do not exist, are `Invalid` before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import Agent, Backend, Stop, Thread
from perdure.errors import Invalid, PerdureError
from perdure.testing import Script, say, use

WRONG: list[Any] = [5, 3.5, b"x", ["a"], {"a": 1}, object(), "\ud800"]


@perdure.tool(effect="external_write", ask=True)
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@pytest.fixture
def thread() -> Thread:
    """A thread whose run waits for an approval."""
    agent = Agent("planner", backend=Script(use("pay", to="ann"), say("Paid.")), tools=[pay])
    thread = perdure.open("memory:").thread("trip", agent=agent)
    thread.run("go")
    return thread


def changed(thread: Thread, **options: Any) -> None:
    """Make a change with these options."""
    with thread.change("test", **options) as change:
        change.put("/n.json", 1)


ACTS: dict[str, Callable[[Thread, Any], object]] = {
    "run(head_policy=)": lambda thread, wrong: thread.run("x", head_policy=wrong),
    "run(on_failure=)": lambda thread, wrong: thread.run("x", on_failure=wrong),
    "run(retry=)": lambda thread, wrong: thread.run("x", id="m1", retry=wrong),
    "resume": lambda thread, wrong: thread.resume(wrong),
    "resume_stream": lambda thread, wrong: list(thread.resume_stream(wrong)),
    "cancel": lambda thread, wrong: thread.cancel(wrong),
    "cancel(why=)": lambda thread, wrong: thread.cancel(why=wrong),
    "cancel(by=)": lambda thread, wrong: thread.cancel(by=wrong),
    "steer": lambda thread, wrong: thread.steer(wrong),
    "decide(why=)": lambda thread, wrong: thread.decide(thread.calls()[0].id, "deny", why=wrong),
    "decide": lambda thread, wrong: thread.decide(wrong, "deny"),
    "resolve": lambda thread, wrong: thread.resolve(wrong, "done"),
    "reconcile": lambda thread, wrong: thread.reconcile(wrong),
    "trace": lambda thread, wrong: thread.trace(wrong),
    "calls(run=)": lambda thread, wrong: thread.calls(run=wrong),
    "change(chain=)": lambda thread, wrong: changed(thread, chain=wrong),
    "change(author=)": lambda thread, wrong: changed(thread, author=wrong),
    "add(api=)": lambda thread, wrong: thread.add([{"role": "user", "content": "x"}], api=wrong),
    "add(whole=)": lambda thread, wrong: thread.add([], api="openai-chat", whole=wrong),
    "losses": lambda thread, wrong: thread.losses(wrong),
}

DECLARATIONS: dict[str, Callable[[Any], object]] = {
    "Agent(chain_writes=)": lambda wrong: Agent("a", chain_writes=wrong),
    "Agent(object_storage=)": lambda wrong: Agent("a", object_storage=wrong),
    "Stop(accept=)": lambda wrong: Stop(accept=wrong),
    "Backend(server=)": lambda wrong: Backend("openai:gpt-5.6", base_url="http://here/v1", server=wrong),
    "Backend(base_url=)": lambda wrong: Backend("openai:gpt-5.6", base_url=wrong),
    "Backend(provider=)": lambda wrong: Backend("openai:gpt-5.6", provider=wrong),
    "Backend(timeout=)": lambda wrong: Backend("openai:gpt-5.6", timeout=str(wrong)),  # pyright: ignore[reportArgumentType]
    "Backend(retries=)": lambda wrong: Backend("openai:gpt-5.6", retries=[wrong]),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_wrong_value_is_refused_and_changes_nothing(
    thread: Thread, act: Callable[[Thread, Any], Any]
) -> None:
    """Above all no record is written that nobody can read again."""
    before = thread.head, thread.runs(), thread.calls(), thread.approvals()

    for wrong in WRONG:
        with pytest.raises(PerdureError):
            act(thread, wrong)

    assert (thread.head, thread.runs(), thread.calls(), thread.approvals()) == before


@pytest.mark.parametrize("declare", DECLARATIONS.values(), ids=DECLARATIONS)
def test_a_wrong_declaration_is_refused(declare: Callable[[Any], object]) -> None:
    """Where it is made, and not in the middle of a run."""
    for wrong in WRONG:
        with pytest.raises(Invalid):
            declare(wrong)


@pytest.mark.parametrize("policy", ["on_sucess", "", "each step"])
def test_a_policy_that_does_not_exist_begins_no_run(thread: Thread, policy: Any) -> None:
    """A slip of the pen in a word must not leave a record that cannot be read."""
    with pytest.raises(Invalid):
        thread.run("x", head_policy=policy)
    with pytest.raises(Invalid):
        thread.run("x", on_failure=policy)

    assert len(thread.runs()) == 1


@pytest.mark.parametrize("nobody", ["", " ", "\u3000", "\u200b"])
def test_who_decides_has_a_name_that_can_be_seen(thread: Thread, nobody: str) -> None:
    """Blanks are nobody; nothing is decided."""
    with pytest.raises(Invalid):
        thread.decide(thread.calls()[0].id, "approve", by=nobody)

    assert len(thread.approvals()) == 1

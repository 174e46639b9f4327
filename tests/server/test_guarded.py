"""Which external writes a fork would not have: the list that a fork dialog shows, against what the repeat guard does."""

from __future__ import annotations

import perdure
from perdure import Agent
from perdure.store.store import Store
from perdure.testing import Script, say, use
from tests.server.client import serving


@perdure.tool(effect="financial")
def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


def payer(*names: str) -> Agent:
    """An agent that pays these, one in each turn."""
    return Agent(
        "payer",
        backend=Script(*[step for name in names for step in (use("pay", to=name), say("Done."))]),
        tools=[pay],
    )


def test_what_a_fork_does_not_have_is_what_the_guard_stops_there(store: Store) -> None:
    """Calls after the point, earlier ones of another timeline and undone ones; control: those of its past are not."""
    thread = store.thread("t", agent=payer("past"))
    thread.run("Pay one")
    thread.fork("side")
    store.thread("t", agent=payer("side")).on("side").run("Pay on the side")
    store.thread("t", agent=payer("undone")).run("Pay in vain")
    thread.undo()
    store.thread("t", agent=payer("after")).run("Pay later")
    names = ("past", "side", "undone", "after")

    with serving(store) as client:
        listed = client.get("/v1/threads/t/calls?guarded_at=turn:1").json["calls"]
    asked: list[str] = []
    for name in names:
        thread.fork(f"fork-{name}", at="turn:1")
        result = store.thread("t", agent=payer(name)).on(f"fork-{name}").run(f"Pay {name}")
        asked += [name] if result.status == "waiting" else []

    assert {each["arguments"]["to"] for each in listed} == set(asked) == {"side", "undone", "after"}

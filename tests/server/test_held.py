"""A store that was copied, served: what is held is said everywhere, decided nowhere, and released by an admin."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

import perdure
from perdure import Agent
from perdure.store.store import Store
from perdure.testing import Script, say, use
from tests.server.client import Client, key, serving


@perdure.tool(effect="financial", ask=True)
def pay(amount: int) -> str:
    """Pay, after a person was asked."""
    return f"paid {amount}"


@pytest.fixture
def payer() -> Agent:
    """An agent that asks before it pays."""
    return Agent("payer", backend=Script(use("pay", amount=13), say("Done.")), tools=[pay])


@pytest.fixture
def copied(tmp_path: Path, payer: Agent) -> Generator[Store]:
    """A copy of a store with a thread that waits and one in which nothing is open."""
    with perdure.open(tmp_path / "night.db") as store:
        store.thread("rent", agent=payer).run("Pay")
        store.thread("quiet", agent="writer").put("/list.json", ["milk"])
        store.copy_to(tmp_path / "day.db")
    with perdure.open(tmp_path / "day.db") as store:
        yield store


def test_what_is_held_is_said_of_the_thread_and_of_its_approval(copied: Store, payer: Agent) -> None:
    """It names the store that it came from, without the path; control: a thread with nothing open is not marked."""
    with serving(copied, payer) as client:
        rows = {each["id"]: each["held"] for each in client.get("/v1/threads").json["threads"]}
        listed = client.get("/v1/approvals").json
        call = listed["approvals"][0]["call"]
        paths = ("rent", "quiet", f"rent/approvals/{call}")
        told = [client.get(f"/v1/threads/{path}").json for path in paths]

    assert rows == {"rent": True, "quiet": False}
    assert listed["held"] == ["rent"]
    assert [(each["held"], each["held_from"]) for each in told] == [
        (True, "night.db"),
        (False, None),
        (True, "night.db"),
    ]


def test_a_release_lets_a_held_approval_be_decided(copied: Store, payer: Agent) -> None:
    """Before it a decision is refused; afterwards nothing is held, and a second release changes nothing."""
    with serving(copied, payer) as client:
        call = client.get("/v1/approvals").json["approvals"][0]["call"]
        decision = {"call": call, "verdict": "approve"}
        refused = client.post("/v1/threads/rent/decide", decision)
        released = [client.post("/v1/threads/rent/release", {}).json for _ in range(2)]
        decided = client.post("/v1/threads/rent/decide", decision)
        row = client.get("/v1/threads/rent").json

    assert (refused.status, refused.json["code"]) == (409, "held")
    assert [each["released"] for each in released] == [True, False]
    assert (decided.status, row["held"]) == (200, False)


@pytest.mark.parametrize("role", ["operator", "approver"])
def test_only_an_admin_releases(copied: Store, role: str) -> None:
    """A key that may run or decide is refused, and the thread stays held."""
    secret = key(copied, "someone", role)

    with serving(copied) as client:
        answer = Client(client.port, secret).post("/v1/threads/rent/release", {})

    assert answer.status == 403
    assert copied.held(open_only=True) == ["rent"]

"""A store that is copied while a run is in the middle of a call: what the copy makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import perdure
from perdure import Agent, Call, Store
from perdure.testing import Script, say, use
from tests.runtime.runs.opened import store_in
from tests.runtime.runs.world import World

LEASE_SECONDS = 1.5  # a copy knows nothing of the process that holds it


def sending(world: World, store: Store | None, copy: Path, **how: Any) -> Agent:
    """An agent that sends two letters; with a `store` that is copied while the first is on its way."""

    @perdure.tool(effect="external_write", **how)
    def send(to: str, call: Call) -> str:
        """Send a letter."""
        if store is not None and to == "ann":
            store.backup(copy)
        world.do(to, call.key, call.attempt)
        return "sent"

    script = Script(use("send", to="ann"), use("send", to="ben"), say("Done."))
    return Agent("planner", backend=script, tools=[send])


def both(path: Path, world: World, **how: Any) -> tuple[list[str], list[str]]:
    """Run to the end in the original, then in the copy; how its calls stand, and the keys of the second letters."""
    copy = path / "copy.db"
    with store_in(path / "agents.db", lease=LEASE_SECONDS) as store:
        agent = sending(world, store, copy, **how)
        assert store.thread("trip", agent=agent).run("go", id="first").status == "succeeded"
    with store_in(copy, lease=LEASE_SECONDS) as copied:
        thread = copied.thread("trip", agent=sending(world, None, copy, **how))
        assert thread.run("go", id="first").status == "succeeded"
        assert copied.verify().ok
        states: list[str] = [call.state for call in thread.calls()]
    return states, [deed.key for deed in world.deeds() if deed.what == "ben"]


def test_what_was_on_its_way_is_not_sent_again_by_the_copy(tmp_path: Path, world: World) -> None:
    """It was started when the copy was made, so nobody knows there what became of it."""
    states, _ = both(tmp_path, world)

    assert states == ["unknown", "succeeded"]
    assert world.counted()["ann"] == 1


def test_what_comes_after_is_done_in_both_each_under_its_own_key(tmp_path: Path, world: World) -> None:
    """The control: a copy is another store, and does not know what the original went on to do."""
    _, keys = both(tmp_path, world)

    assert (world.counted()["ben"], len(set(keys))) == (2, 2)


def test_a_key_that_is_made_of_the_arguments_is_the_same_in_both(tmp_path: Path, world: World) -> None:
    """So a service that takes keys sees that the two are one."""
    _, keys = both(tmp_path, world, idempotent=True, key="letter-{to}", key_scope="store")

    assert keys == ["letter-ben", "letter-ben"]

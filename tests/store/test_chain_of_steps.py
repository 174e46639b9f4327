"""A chain of steps: several commits in one durable write, each with several edits, messages and names."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.errors import Invalid, OpReused, StaleHead
from perdure.store.change import Change
from perdure.store.plumbing.run_fence import Chain
from tests.coded import raises
from tests.store.engine_calls import opened


@perdure.tool(effect="read_only")
def look() -> str:
    """Look something up."""
    return "seen"


def test_five_items_are_five_commits_and_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its message, its element and its name; the head moves once."""
    with opened(str(tmp_path / "agents.db"), monkeypatch) as (store, calls):
        thread = store.thread("t", agent="a")
        thread.put("/items.json", [])
        calls.clear()
        with thread.change("add", chain="steps") as change:
            for number in range(5):
                change.say("user", f"item {number}", id=f"m{number}")
                change.append("/items.json", number)
                change.name(f"sdk:{number}")
                change.step()

        assert calls.count("apply") == 1
        assert thread.head.version == 2
        assert [thread.at(f"sdk:{number}").get("/items.json") for number in range(5)] == [
            list(range(number + 1)) for number in range(5)
        ]
        assert [entry.names for entry in thread.log(limit=5)] == [
            (f"sdk:{number}",) for number in range(4, -1, -1)
        ]
        assert store.verify().ok


def test_each_item_can_be_taken_back_alone(tmp_path: Path) -> None:
    """By an undo to the commit before it, or by a retraction."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        with thread.change("add", chain="steps") as change:
            for number in range(3):
                change.say("user", f"item {number}", id=f"m{number}")
                change.step()

        thread.undo(to=change.commits[1])

        assert [entry.id for entry in thread.transcript()] == ["m0", "m1"]


def test_what_follows_the_last_step_is_a_commit_too(tmp_path: Path) -> None:
    """A step without a change is none."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        with thread.change("add", chain="steps") as change:
            assert change.step() is None
            change.put("/a.json", 1)
            first = change.step()
            change.put("/b.json", 2)

        assert change.commits == (first, thread.head.commit)
        assert change.commits == tuple(entry.digest for entry in reversed(thread.log()))


def test_a_repeated_block_has_the_same_commits(tmp_path: Path) -> None:
    """The same op_id writes nothing; other steps under it are refused."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")

        def add(*numbers: int) -> tuple[str, ...]:
            with thread.change("add", chain="steps", op_id="op-1") as change:
                for number in numbers:
                    change.say("user", f"item {number}")
                    change.step()
            return change.commits

        first = add(1, 2)

        assert add(1, 2) == first
        assert len(thread.log()) == 2
        with pytest.raises(OpReused):
            add(1, 3)


def test_a_chain_of_steps_that_meets_another_writer_writes_nothing(tmp_path: Path) -> None:
    """Its commits are named while the block runs."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        with pytest.raises(StaleHead), thread.change("add", chain="steps") as change:
            change.say("user", "one")
            change.step()
            thread.put("/title.json", "meanwhile")

        assert thread.transcript() == []


def test_only_a_chain_of_steps_has_steps(tmp_path: Path) -> None:
    """Anything else as chain is refused, and so is a step elsewhere."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent="a")
        for chain in (False, True):
            with raises(Invalid, "not_a_chain_of_steps"), thread.change("add", chain=chain) as change:
                change.step()
        with raises(Invalid, "flag_invalid", what="chain"):
            thread.change("add", chain="step")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("chain", [True, "steps"])
def test_a_call_made_meanwhile_does_not_change_the_digests_of_a_chain(tmp_path: Path, chain: Chain) -> None:
    """The digests that the block returned are those of the commits that are stored."""
    with perdure.open(str(tmp_path / "agents.db")) as store:
        thread = store.thread("t", agent="a")
        thread.put("/items.json", [])
        other = thread.fork("other")
        with thread.change("add", chain=chain) as change:
            promised = [change.put("/a", 1) if chain is True else _stepped(change, "/a")]
            called = other.call(look, {}, id="c1")
            promised.append(change.put("/b", 1) if chain is True else _stepped(change, "/b"))

        assert called.state == "succeeded"
        assert [entry.digest for entry in thread.log(limit=2)] == promised[::-1] == list(change.commits[::-1])
        assert store.verify().ok


def _stepped(change: Change, path: str) -> str | None:
    change.put(path, 1)
    return change.step()

"""The state of one call: what it sees, what it writes, and when that ends."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Any

import pytest

from perdure.errors import Invalid, NotFound
from perdure.history.changes import values
from perdure.history.changes.patch_builder import Patched
from perdure.history.space import Space
from perdure.history.tree import NodeCache, Tree
from perdure.model import canonical
from perdure.model.digest import Digest, Kind
from perdure.model.limits import Limits
from perdure.model.patch import Clear, Delete, Put
from perdure.runtime.tools.call import Call, CallStateView, scratch_prefix
from tests.coded import raises
from tests.history.hand import Hand

SCRATCH = "/__tool_call_scope/c-1"


@pytest.fixture
def hand() -> Hand:
    """A thread with a little state."""
    hand = Hand(limits=Limits(value_bytes_max=1_000))
    hand.write({"/count": 1, "/notes/a": "x", "/__run/steps": 2})
    return hand


@pytest.fixture
def agent(hand: Hand) -> Hand:
    """The agent's own map, in the same store."""
    agent = Hand(hand.engine, "agent:planner")
    agent.write({"/seen": ["a"]})
    return agent


def root(hand: Hand) -> Digest:
    """The root of the map at the head."""
    return hand.space.root_at(hand.head().commit)


def room_of(hand: Hand, agent: Hand | None = None, **more: Any) -> CallStateView:
    """A room for the call c-1, as its round began."""
    return CallStateView(
        "c-1", hand.space, root(hand), agent=(agent.space, root(agent)) if agent else None, **more
    )


def call_of(state_view: CallStateView) -> Call:
    """The call whose state that is."""
    return Call(id="c-1", tool="book", state_view=state_view)


def held(space: Space, patched: Patched) -> dict[str, object]:
    """What the map holds after the patch, from what the patch brought and what is stored."""
    brought = {each.digest: each.body for each in patched.objects}

    def nodes(digests: Sequence[Digest]) -> list[bytes]:
        return [brought[each] if each in brought else space.body(each) for each in digests]

    entries = Tree(nodes, patched.root, cache=NodeCache()).entries()
    return {entry.path: values.decode(entry.form, nodes([entry.value])[0]) for entry in entries}


def test_a_call_sees_the_round_s_state_and_its_own_writes_at_once(hand: Hand) -> None:
    """And nothing of its siblings', who began from the same root."""
    one, other = call_of(room_of(hand)), call_of(room_of(hand))

    one.put("/count", one.get("/count") + 1)
    one.delete("/notes/a")

    assert (one.get("/count"), one.paths("/notes"), one.get("/notes/a", default=None)) == (2, [], None)
    assert (other.get("/count"), other.paths("/notes")) == (1, ["/notes/a"])
    assert hand.get("/count") == 1


def test_a_finished_room_gives_the_patch_and_what_it_leads_to(hand: Hand) -> None:
    """The ops in their order, the root, and the objects that a write must carry."""
    state_view = room_of(hand)
    call = call_of(state_view)
    call.put("/count", 2)
    call.put("/new", {"a": [1]})

    thread, agent = state_view.finish(keep_scratch=False)

    assert thread is not None
    assert [type(op) for op in thread.patch.ops] == [Put, Put]
    assert held(hand.space, thread) == {"/count": 2, "/new": {"a": [1]}, "/notes/a": "x", "/__run/steps": 2}
    assert agent is None


def test_a_call_that_wrote_nothing_leaves_no_patch(hand: Hand, agent: Hand) -> None:
    """Reading is not writing."""
    state_view = room_of(hand, agent)
    call_of(state_view).get("/count")
    call_of(state_view).agent.get("/seen")

    assert state_view.finish(keep_scratch=False) == (None, None)


def test_the_agent_s_map_is_its_own(hand: Hand, agent: Hand) -> None:
    """What is put there goes into the thread's space first, and is not in the thread's map."""
    state_view = room_of(hand, agent)
    call = call_of(state_view)
    call.agent.put("/seen", ["a", "b"])

    thread, patched = state_view.finish(keep_scratch=False)

    assert thread is None
    assert patched is not None
    assert call_of(room_of(hand, agent)).agent.paths() == ["/seen"]
    assert held(agent.space, patched) == {"/seen": ["a", "b"]}


def test_without_an_agent_there_is_no_map_of_one(hand: Hand) -> None:
    """It is refused, not empty."""
    with raises(Invalid, "call_has_no_agent"):
        _ = call_of(room_of(hand)).agent


@pytest.mark.parametrize("path", ["/__run/x", "/__kernel/x", "/__tool_call_scope/c-1/x"])
def test_a_tool_cannot_write_what_belongs_to_perdure(hand: Hand, agent: Hand, path: str) -> None:
    """Neither in the thread's map nor in the agent's; reading harms nobody."""
    call = call_of(room_of(hand, agent))

    for state in (call, call.agent):
        with raises(Invalid, "path_reserved", path=path):
            state.put(path, 1)
        with raises(Invalid, "path_reserved", path=path):
            state.delete(path)
    assert call.get("/__run/steps") == 2


def test_scratch_is_under_the_call_s_own_prefix_and_seen_without_it(hand: Hand) -> None:
    """Two calls with the same path do not meet."""
    state_view = room_of(hand)
    call = call_of(state_view)
    call.scratch.put("/a/b", 1)
    call.scratch.put("/c", 2)
    call.scratch.delete("/c")

    assert call.scratch.paths() == ["/a/b"]
    assert call.scratch.get("/a/b") == 1
    with raises(NotFound, "path_not_found", path="/c"):
        call.scratch.get("/c")

    thread, _ = state_view.finish(keep_scratch=True)
    assert thread is not None
    assert held(hand.space, thread)[f"{SCRATCH}/a/b"] == 1


def test_scratch_is_dropped_when_the_call_settles(hand: Hand) -> None:
    """The history never hears of it."""
    state_view = room_of(hand)
    call_of(state_view).scratch.put("/a", 1)
    call_of(state_view).put("/b", 2)

    thread, _ = state_view.finish(keep_scratch=False)

    assert thread is not None
    assert [op.path for op in thread.patch.ops if isinstance(op, Put | Delete)] == ["/b"]
    assert b"1" not in {each.body for each in thread.objects}


def test_scratch_outlives_a_suspension_and_goes_when_the_call_settles(hand: Hand) -> None:
    """The next attempt reads it; the end of the call clears it."""
    hand.write({f"{SCRATCH}/a": 7, "/__tool_call_scope/c-10/a": 8})
    state_view = room_of(hand)

    assert call_of(state_view).scratch.get("/a") == 7

    thread, _ = state_view.finish(keep_scratch=False)
    assert thread is not None
    assert thread.patch.ops == (Clear(SCRATCH),)
    assert held(hand.space, thread)["/__tool_call_scope/c-10/a"] == 8


def test_large_scratch_is_kept_with_what_holds_it(hand: Hand) -> None:
    """A value over the limit is an artifact, and its parts travel with the patch."""
    state_view = room_of(hand)
    call_of(state_view).scratch.put("/big", "x" * 5_000)

    thread, _ = state_view.finish(keep_scratch=True)

    assert thread is not None
    assert Kind.ARTIFACT in {each.kind for each in thread.objects}


@pytest.mark.parametrize("call", ["a.b", "ünïcode", "x" * 65, "a/b", "", "a\n"])
def test_an_odd_call_id_becomes_a_safe_prefix(call: str) -> None:
    """Dots, slashes, length and other scripts cannot make two calls meet or break a path."""
    assert scratch_prefix(call) == f"/__tool_call_scope/~{sha256(call.encode()).hexdigest()[:32]}"


def test_a_plain_call_id_is_its_own_prefix() -> None:
    """So that people find it."""
    assert scratch_prefix("Call_7-x") == "/__tool_call_scope/Call_7-x"
    assert scratch_prefix("x" * 64) == "/__tool_call_scope/" + "x" * 64


def test_values_come_as_the_type_that_is_asked_for(hand: Hand) -> None:
    """And declared defaults stand in for what is absent."""
    call = call_of(room_of(hand, defaults={"/todos": canonical.encode([])}))

    assert call.get("/count", type=int) == 1
    assert call.get("/todos", type=list[str]) == []
    assert call.get("/todos", default="none") == "none"
    with raises(Invalid, "value_has_other_type", path="/notes/a", type="int"):
        call.get("/notes/a", type=int)
    with raises(NotFound, "path_not_found", path="/absent"):
        call.get("/absent")


def test_what_was_read_is_known(hand: Hand) -> None:
    """So that whoever commits the patch can say what it relied on."""
    state_view = room_of(hand)
    call_of(state_view).get("/count")
    call_of(state_view).paths("/notes")

    assert (state_view.reads.paths, state_view.reads.prefixes) == ({"/count"}, {"/notes"})


@pytest.mark.parametrize("finished", [False, True])
def test_after_its_end_a_call_can_change_nothing(hand: Hand, finished: bool) -> None:
    """A straggler in a thread gets an error, not a part in somebody else's commit."""
    state_view = room_of(hand)
    call = call_of(state_view)
    call.put("/early", 1)
    call.close()
    if finished:
        state_view.finish(keep_scratch=False)

    for act in (
        lambda: call.put("/late", 1),
        lambda: call.delete("/count"),
        lambda: call.get("/count"),
        lambda: call.scratch.put("/late", 1),
    ):
        with raises(Invalid, "call_is_over"):
            act()


def test_a_closed_room_still_gives_what_was_written_before(hand: Hand) -> None:
    """Closing is the end for the tool, not for its writes."""
    state_view = room_of(hand)
    call_of(state_view).put("/early", 1)
    state_view.close()

    thread, _ = state_view.finish(keep_scratch=False)

    assert thread is not None
    assert held(hand.space, thread)["/early"] == 1


def test_a_room_can_be_used_from_many_threads(hand: Hand) -> None:
    """A tool may have workers of its own; none of their writes is lost."""
    state_view = room_of(hand)
    call = call_of(state_view)

    with ThreadPoolExecutor(8) as tool_threads:
        list(tool_threads.map(lambda n: call.put(f"/n/{n:03d}", n), range(200)))

    thread, _ = state_view.finish(keep_scratch=False)
    assert thread is not None
    assert len([path for path in held(hand.space, thread) if path.startswith("/n/")]) == 200


def test_a_call_without_state_says_so() -> None:
    """What decides about approvals gets such a call."""
    with raises(Invalid, "call_has_no_state"):
        Call(id="c", tool="book").get("/count")


def test_what_is_declared_with_call_scope_lies_in_the_scratch(hand: Hand) -> None:
    """Under the tool's own name for it; control: a path beside it lies in the thread's map."""
    state_view = room_of(hand, call_scoped=["/draft"], defaults={"/draft": b"0", "/other": b"1"})
    call = call_of(state_view)
    assert (call.get("/draft"), call.scratch.get("/other", default=None)) == (0, None)

    call.put("/draft/x", 1)
    call.put("/drafts", 2)

    assert (call.get("/draft/x"), call.paths("/draft"), call.scratch.paths()) == (
        1,
        ["/draft/x"],
        ["/draft/x"],
    )
    kept, _ = state_view.finish(keep_scratch=False)
    assert kept is not None
    assert "/drafts" in held(hand.space, kept)
    assert not [path for path in held(hand.space, kept) if "x" in path.split("/")]

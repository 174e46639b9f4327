"""`cherry_pick` of several turns and commits: one commit for each, one write, all or nothing."""

from __future__ import annotations

import asyncio

import pytest

import perdure
from perdure import Agent, Call, Store, Thread, aio
from perdure.errors import MergeConflict, OpReused, RunFailed
from perdure.history.merge import Taken
from perdure.model.event import ConflictCovered
from perdure.store.plumbing.revisions import Moment
from perdure.testing import Script, fail, say, use
from tests.coded import raises

COUNTING = Agent(
    "clerk",
    state=[perdure.state("/count.json", merge="counter"), perdure.state("/tags.json", merge="set")],
)


@perdure.tool(effect="local_write", idempotent=True)
def note(call: Call) -> str:
    """Write a note."""
    call.put("/note.json", "written")
    return "noted"


@pytest.fixture
def thread(store: Store) -> Thread:
    """Four turns, an edit after each of the first three, and a fork `fixed` from before them with another title."""
    thread = store.thread("sums", agent=COUNTING)
    with thread.change("begin") as change:
        change.put("/title.json", "Sums")
        change.put("/count.json", 0)
    thread.fork("fixed").put("/title.json", "Fixed")
    for number in range(1, 5):
        with thread.change("add") as change:
            change.say("user", f"Add {number}.")
            change.put(f"/{number}.json", number)
            change.increment("/count.json", number)
        if number < 4:
            thread.put(f"/edit-{number}.json", number, reason=f"edit {number}")
    return thread


def numbered(fork: Thread) -> list[str]:
    """The paths that turns and edits have written."""
    return [path for path in fork.paths() if path.removeprefix("/").startswith(("1", "2", "3", "4", "edit"))]


@pytest.mark.parametrize("asked", ["2..3", "turn:2..turn:3", ["2..3"]])
def test_a_range_of_turns_has_what_was_done_between_them(thread: Thread, asked: str | list[str]) -> None:
    """What was done after its last turn is not in it; each is a commit that says what it is, and the head moves once."""
    fork = thread.on("fixed")
    before = fork.head

    taken = fork.cherry_pick(asked, source="main")

    assert numbered(fork) == ["/2.json", "/3.json", "/edit-2.json"]
    assert (fork.get("/count.json"), fork.get("/title.json")) == (5, "Fixed")
    assert [entry.reason for entry in reversed(fork.log(limit=3))] == [
        "cherry-pick turn 2", "cherry-pick edit 2", "cherry-pick turn 3",
    ]  # fmt: skip
    assert [each.picked for each in taken.picks] == ["turn 2", "edit 2", "turn 3"]
    assert [each.commit for each in taken.picks] == [entry.digest for entry in reversed(fork.log(limit=3))]
    assert (taken.head, taken.commit, taken.paths) == (fork.head, fork.head.commit, 4)
    assert fork.head.version == before.version + 1


def test_each_pick_of_a_range_is_a_turn_of_its_own(thread: Thread, store: Store) -> None:
    """Undo takes them back one by one; the store verifies."""
    fork = thread.on("fixed")
    fork.cherry_pick("2..3", source=thread)

    fork.undo()

    assert (numbered(fork), fork.get("/count.json")) == (["/2.json", "/edit-2.json"], 2)
    assert store.verify().faults == ()


@pytest.mark.parametrize(
    ("last", "picked"), [("HEAD", ["turn 3", "edit 3", "turn 4"]), ("turn:3", ["turn 3"])]
)
def test_a_range_may_end_with_any_commit(thread: Thread, last: str, picked: list[str]) -> None:
    """Its ends are turns, or names of commits of the timeline that has them."""
    begun = next(turn for turn in thread.turns() if turn.number == 3).after

    taken = thread.on("fixed").cherry_pick(f"{begun}..{last}", source="main")

    assert [each.picked for each in taken.picks] == picked


def test_several_moments_are_picked_in_the_order_in_which_they_are_given(thread: Thread) -> None:
    """Turns as `turns()` returns them, commits, names and ranges."""
    fork, turns, log = thread.on("fixed"), thread.turns(), thread.log()
    asked: list[Moment] = [turns[3], log[0], "1..1", turns[2].after]

    taken = fork.cherry_pick(asked, source="main")

    named = ["turn 2", log[0].digest[:12], "turn 1", turns[2].after]
    assert [each.picked for each in taken.picks] == named
    assert [entry.reason for entry in reversed(fork.log(limit=4))] == [
        f"cherry-pick {name}" for name in named
    ]
    assert numbered(fork) == ["/1.json", "/2.json", "/4.json", "/edit-1.json"]


def test_a_conflict_of_one_turn_writes_nothing_of_any(thread: Thread) -> None:
    """The error names the turn."""
    fork = thread.on("fixed")
    head = fork.put("/3.json", "mine")

    with pytest.raises(MergeConflict) as refused:
        fork.cherry_pick("1..4", source="main")

    assert (refused.value.picked, [each.path for each in refused.value.conflicts]) == ("turn 3", ["/3.json"])
    assert fork.head == head


@pytest.mark.parametrize(("side", "value", "covered"), [("ours", "mine", 0), ("theirs", 3, 1)])
def test_a_side_settles_the_conflicts_of_a_range(
    thread: Thread, side: str, value: object, covered: int
) -> None:
    """Of all its turns, or of some paths; what theirs covered is named by its commit."""
    fork = thread.on("fixed")
    fork.put("/3.json", "mine")

    taken = fork.cherry_pick("2..4", source="main", prefer={"/3.json": side})  # pyright: ignore[reportArgumentType]

    assert (fork.get("/3.json"), fork.get("/4.json"), fork.get("/count.json")) == (value, 4, 9)
    events = [event for entry in fork.log(limit=len(taken.picks)) for event in entry.events]
    assert len([event for event in events if isinstance(event, ConflictCovered)]) == covered


def test_a_dry_run_of_a_range_is_what_the_range_does(thread: Thread) -> None:
    """Each turn on top of those before it, also where a rule joins; together it has each path once; nothing is written."""
    fork = thread.on("fixed")
    fork.put("/count.json", 10)
    head = fork.head

    planned = fork.cherry_pick("1..4", source="main", dry_run=True)
    unmoved = fork.head
    taken = fork.cherry_pick("1..4", source="main")

    assert (unmoved, planned.commit) == (head, None)
    assert [(each.picked, each.paths) for each in planned.picks] == [
        (each.picked, each.paths) for each in taken.picks
    ]
    assert [each.what for each in planned.picks[2].changes] == ["added", "changed"]
    found = fork.diff(head).state
    assert [(each.path, each.what) for each in planned.changes] == [(each.path, each.what) for each in found]
    assert planned.paths == taken.paths == len(found)


def test_a_dry_run_of_a_range_has_every_conflict(thread: Thread) -> None:
    """A turn in conflict is left out by those after it."""
    fork = thread.on("fixed")
    fork.put("/1.json", "mine")
    fork.put("/3.json", "mine")

    planned = fork.cherry_pick("1..4", source="main", dry_run=True)

    assert [each.path for each in planned.conflicts] == ["/1.json", "/3.json"]
    assert [bool(each.conflicts) for each in planned.picks] == [True, False, False, False, True, False, False]
    assert "/2.json" in [each.path for each in planned.changes]


def test_a_pick_reads_what_those_before_it_write(store: Store) -> None:
    """A long list, which is stored in pieces, is joined with what the turn before it left within the same write."""
    thread = store.thread("long", agent=COUNTING)
    thread.put("/tags.json", ["begin"])
    fork = thread.fork("other")
    fork.put("/tags.json", ["begin", "mine"])
    items = ["begin"]
    for number in range(3):
        items += [f"{number}-{each:04}" for each in range(2_000)]
        with thread.change("grow") as change:
            change.say("user", f"Grow {number}.")
            change.put("/tags.json", items)

    fork.cherry_pick("1..3", source="main")

    assert sorted(fork.get("/tags.json")) == sorted([*items, "mine"])
    assert store.verify().faults == ()


def test_a_range_is_joined_key_by_key(store: Store) -> None:
    """Each turn on top of what the one before it left; a key that is in the way is named with its turn."""
    thread = store.thread("trip", agent=Agent("clerk", state=[perdure.state("/trip.json", merge="keys")]))
    thread.put("/trip.json", {"days": 1, "cost": 1, "city": "Oslo"})
    fork = thread.fork("other")
    fork.put("/trip.json", {"days": 1, "cost": 1, "city": "Bergen"})
    for key in ("days", "cost", "city"):
        with thread.change("set") as change:
            change.say("user", f"Set {key}.")
            change.put("/trip.json", {**thread.get("/trip.json"), key: 2})

    fork.cherry_pick("1..2", source="main")
    with pytest.raises(MergeConflict) as refused:
        fork.cherry_pick("1..3", source="main")

    assert fork.get("/trip.json") == {"days": 2, "cost": 2, "city": "Bergen"}
    assert (refused.value.picked, refused.value.conflicts[0].keys) == ("turn 3", (("city",),))
    assert store.verify().faults == ()


def test_the_same_range_again_gives_the_first_answer(thread: Thread) -> None:
    """With the same op_id, also after other writes, and if one of them had nothing to write; another range is refused."""
    fork = thread.on("fixed")
    fork.put("/edit-1.json", 1)

    taken: list[Taken] = []
    for _ in range(2):
        taken.append(fork.cherry_pick("1..2", source="main", op_id="pick-1"))
        fork.put("/after.json", 1)

    assert taken[0] == taken[1]
    assert [each.commit is None for each in taken[0].picks] == [False, True, False]
    with pytest.raises(OpReused):
        fork.cherry_pick("1..3", source="main", op_id="pick-1")


def test_a_turn_by_its_number_has_the_rest_of_its_run(store: Store) -> None:
    """As a turn of `turns()` has not; an edit that was made before it went on is not in it."""
    thread = store.thread("t", agent=Agent("noter", backend=Script(fail())))
    with pytest.raises(RunFailed):
        thread.run("go", id="m1")
    fork = thread.fork("other", at=None)
    fork.put("/own.json", 1)
    thread.put("/edit.json", 1)
    thread = store.thread("t", agent=Agent("noter", backend=Script(use("note"), say("Done.")), tools=[note]))
    thread.run("go", id="m1")

    taken = fork.cherry_pick("turn:1", source="main")

    assert [each.base for each in taken.picks] == [turn.before for turn in thread.turns() if turn.run]
    assert fork.paths() == ["/note.json", "/own.json"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("3..2", "range_backwards"),
        ("HEAD..1", "range_backwards"),
        ("3..9", "range_not_found"),
        ("0..2", "range_not_found"),
        ("turn:9", "range_not_found"),
        ("fixed..4", "range_not_found"),
        ("x..4", "revision_not_found"),
        ([], "nothing_to_pick"),
        ([None], "nothing_to_pick"),
    ],
)
def test_what_is_not_there_is_not_picked(thread: Thread, asked: str | list[Moment], code: str) -> None:
    """Nothing is written, whatever else was named."""
    fork = thread.on("fixed")
    head = fork.head

    with raises(perdure.errors.PerdureError, code):
        fork.cherry_pick(asked, source="main")

    assert fork.head == head


def test_names_and_numbers_are_those_of_the_source(thread: Thread) -> None:
    """Control: without one they are those of the timeline itself, which has no turn."""
    fork = thread.on("fixed")

    with raises(perdure.errors.NotFound, "range_not_found", timeline="fixed"):
        fork.cherry_pick("1..2")

    assert fork.cherry_pick("HEAD", source="main").picks[0].base == thread.log()[1].digest


def test_the_awaitable_twin_picks_ranges() -> None:
    """Onto a handle, from a handle."""

    async def main() -> None:
        async with aio.open("memory:") as store:
            thread = await store.thread("t", agent="clerk")
            fork = await thread.fork("other", at=None)
            await fork.put("/own.json", 1)
            for number in (1, 2):
                async with thread.change("add") as change:
                    await change.say("user", f"Add {number}.")
                    await change.put(f"/{number}.json", number)
            taken = await fork.cherry_pick("1..2", source=thread)
            assert len(taken.picks) == 2
            assert await fork.paths() == ["/1.json", "/2.json", "/own.json"]

    asyncio.run(main())

"""What every integration is made of: calls beside an event loop, foreign ids, and the guard of tool calls."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure import Store, aio
from perdure.errors import Busy, Conflict, Invalid, PerdureError, Unsupported
from perdure.integrations import foreign_ids
from perdure.integrations.door import Door
from perdure.integrations.guard import CallGuard, GuardedCall
from perdure.model.canonical import Json
from perdure.model.effect import Reach
from tests.coded import raises
from tests.forked import commands

HOSTILE = (
    *("", "~", "~" + "0" * 64, "a/b", "a|b:c", "..", "HEAD", "%2F", "x" * 4096),
    *("\x00", "\u00e9", "e\u0301", "\ud800", "\u202ea"),
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store."""
    with perdure.open(tmp_path / "agents.db") as store:
        yield store


def test_a_door_serves_synchronous_code_under_a_running_loop(store: Store) -> None:
    """The handle alone refuses the same call there."""
    door = Door(store)

    async def main() -> tuple[str, str]:
        with raises(Invalid, "blocks_event_loop"):
            store.thread("t", agent="a")
        one = door.call(lambda: store.thread("t", agent="a").id)
        two = await door.acall(lambda: store.thread("t").id)
        return one, two

    assert asyncio.run(main()) == ("t", "t")
    assert door.call(lambda: store.thread("t").id) == "t"


def test_a_door_calls_directly_where_no_loop_runs(store: Store) -> None:
    """No other thread is involved; an awaited call is made on a worker, so that the loop goes on."""
    door, here = Door(store), threading.get_ident()

    assert door.call(threading.get_ident) == here
    assert asyncio.run(door.acall(threading.get_ident)) != here


def test_a_door_takes_a_store_of_either_interface(tmp_path: Path) -> None:
    """And nothing else."""

    async def main() -> str:
        async with aio.open(tmp_path / "b.db") as store:
            door = Door(store)
            return await door.acall(lambda: door.store.thread("t", agent="a").id)

    assert asyncio.run(main()) == "t"
    with raises(Invalid, "not_a_store"):
        Door("agents.db")  # pyright: ignore[reportArgumentType]


def test_an_awaited_call_is_finished_though_its_caller_is_cancelled(store: Store) -> None:
    """A write that was handed over is not torn."""
    door, began, may_end, done = Door(store), threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        began.set()
        may_end.wait(60)
        store.thread("t", agent="a")
        done.set()

    async def main() -> None:
        task = asyncio.create_task(door.acall(work))
        while not began.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    may_end.set()
    assert done.wait(60)
    assert store.thread("t").id == "t"


@given(st.lists(st.text(max_size=300) | st.sampled_from(HOSTILE), unique=True, min_size=2, max_size=8))
def test_different_ids_have_different_names(ids: list[str]) -> None:
    """In each of the three places, whatever they begin with or contain; the same id has the same name."""
    for name in (
        foreign_ids.thread_id,
        foreign_ids.path_segment,
        lambda id: foreign_ids.moment_name("x", id),
    ):
        names = [name(id) for id in ids]

        assert len(set(names)) == len(ids)
        assert names == [name(id) for id in ids]


def test_hostile_ids_are_names_that_a_store_accepts(store: Store) -> None:
    """A thread, a moment and a path each, found again by the same id and by no other."""
    for number, id in enumerate(HOSTILE):
        thread = store.thread(foreign_ids.thread_id(id), agent="a")
        with thread.change("note") as change:
            change.put(f"/x/{foreign_ids.path_segment(id)}.json", number)
            change.name(foreign_ids.moment_name("x", id))

    for number, id in enumerate(HOSTILE):
        thread = store.thread(foreign_ids.thread_id(id))
        (named,) = thread.named(foreign_ids.moment_name("x", id))
        assert thread.at(named).values("/x") == {f"/x/{foreign_ids.path_segment(id)}.json": number}
    assert store.verify().ok


def test_an_ordinary_id_keeps_its_text() -> None:
    """People recognise it; an id that is no text is refused."""
    assert foreign_ids.thread_id("trip 42|child:1f0a") == "trip 42|child:1f0a"
    assert foreign_ids.moment_name("langgraph", "1ef0-a") == "langgraph:1ef0-a"
    assert foreign_ids.path_segment("messages") == "messages"
    with raises(Invalid, "id_not_text"):
        foreign_ids.thread_id(7)  # pyright: ignore[reportArgumentType]


def kept(result: dict[str, int]) -> Json:
    """What the ledger keeps of a result."""
    return {**result}


class Till:
    """A tool of a framework that counts its effects."""

    def __init__(self, *, fails: bool = False, raises: Exception | None = None) -> None:
        self.paid, self._error = 0, raises or (ConnectionError("reset") if fails else None)

    def pay(self) -> dict[str, int]:
        """Have the effect, and perhaps raise."""
        self.paid += 1
        if self._error is not None:
            raise self._error
        return {"paid": self.paid}

    async def apay(self) -> dict[str, int]:
        """The same, awaited."""
        return self.pay()


PAY = GuardedCall(id="call_1", tool="pay", arguments={"euro": 5}, asked_by="m1")


def test_a_guarded_call_runs_once_and_is_answered_from_the_ledger(store: Store) -> None:
    """By the same id and arguments, asked for by the same message."""
    thread, till, guard = store.thread("t", agent="a"), Till(), CallGuard()
    first = guard.call(thread, PAY, till.pay, store=kept)
    again = guard.call(thread, PAY, till.pay, store=kept)

    assert (first.ran, first.value) == (True, {"paid": 1})
    assert (again.ran, again.stored, again.is_result) == (False, {"paid": 1}, True)
    assert till.paid == 1


def test_a_call_id_that_a_model_uses_again_is_another_call(store: Store) -> None:
    """Another message, or other arguments; equal intended calls stay two."""
    thread, till, guard = store.thread("t", agent="a"), Till(), CallGuard()
    for call in (
        PAY,
        GuardedCall(id="call_1", tool="pay", arguments={"euro": 6}, asked_by="m1"),
        GuardedCall(id="call_1", tool="pay", arguments={"euro": 5}, asked_by="m2"),
    ):
        assert guard.call(thread, call, till.pay, store=kept).ran

    assert till.paid == 3


def test_a_default_that_is_given_makes_no_other_call(store: Store) -> None:
    """After an unknown outcome the model asks again and writes out what it had left to the tool's default."""
    thread, till, guard = store.thread("t", agent="a"), Till(fails=True), CallGuard()
    schema = {"properties": {"euro": {}, "cent": {"default": 0}}}
    with pytest.raises(ConnectionError):
        guard.call(thread, msgspec.structs.replace(PAY, schema=schema), till.pay, store=kept)

    spelled = GuardedCall(id="call_2", tool="pay", arguments={"euro": 5.0, "cent": 0}, schema=schema)
    again = guard.call(thread, spelled, till.pay, store=kept)

    assert (again.state, till.paid) == ("denied", 1)


def test_a_call_that_raised_is_unknown_and_stopped_under_a_new_id(store: Store) -> None:
    """The tool's own error reaches the framework; what the model asks for again is told in words."""
    thread, till, guard = store.thread("t", agent="a"), Till(fails=True), CallGuard()
    with pytest.raises(ConnectionError):
        guard.call(thread, PAY, till.pay, store=kept)
    same = guard.call(thread, PAY, till.pay, store=kept)
    other = guard.call(
        thread, GuardedCall(id="call_2", tool="pay", arguments={"euro": 5}), till.pay, store=kept
    )

    assert (same.state, other.state) == ("unknown", "denied")
    assert "unknown" in same.text
    assert not same.is_result
    assert till.paid == 1


@pytest.mark.parametrize("error", [Conflict("it moved; nothing was written.", code="x"), Busy("a", "b")])
@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_conflict_that_the_tool_raises_is_the_tools(
    store: Store, error: PerdureError, is_awaited: bool
) -> None:
    """A tool may use a store itself: its error is raised after its effect, so the call is not told to be refused."""
    thread, till, guard = store.thread("t", agent="a"), Till(raises=error), CallGuard()
    with pytest.raises(type(error)) as raised:
        if is_awaited:
            own = aio.Thread(Door(store).workers, thread)
            asyncio.run(guard.acall(own, PAY, till.apay, store=kept))
        else:
            guard.call(thread, PAY, till.pay, store=kept)

    assert raised.value is error
    assert [call.state for call in thread.calls()] == ["unknown"]
    assert till.paid == 1


def test_a_call_under_way_is_refused_in_words(store: Store) -> None:
    """Control: what the ledger refuses before the tool is called is told, and nothing is raised."""
    thread, guard, outer = store.thread("t", agent="a"), CallGuard(), Till()
    inner = Till()

    def pay() -> dict[str, int]:
        refused.append(guard.call(thread, PAY, inner.pay, store=kept).state)
        return outer.pay()

    refused: list[str] = []
    assert guard.call(thread, PAY, pay, store=kept).ran
    assert refused == ["refused"]
    assert (outer.paid, inner.paid) == (1, 0)


def test_a_result_that_cannot_be_stored_is_a_result(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """The tool has run: its value is returned, the ledger has the call as succeeded, and a text of the value.

    The log says so without the words of the error, which may quote the result.
    """
    thread, till, guard = store.thread("t", agent="a"), Till(), CallGuard()

    def refuse(result: dict[str, int]) -> Json:
        raise Unsupported(f"{result} cannot be stored.", code="foreign_type_refused")

    first = guard.call(thread, PAY, till.pay, store=refuse)
    again = guard.call(thread, PAY, till.pay, store=refuse)

    assert (first.state, first.ran, first.value) == ("succeeded", True, {"paid": 1})
    assert (again.ran, again.stored) == (False, "{'paid': 1}")
    assert till.paid == 1
    assert ("Unsupported" in caplog.text, "'paid': 1" in caplog.text) == (True, False)


def test_what_only_reads_runs_again(store: Store) -> None:
    """As declared by the program, or by an MCP server that it trusts; without a word it counts as an external write."""
    guard = CallGuard({"look": "read_only", "send": Reach("communication", idempotent=True)})
    known = [
        guard.reach(GuardedCall(id="1", tool=tool, arguments={}, annotations=hints))
        for tool, hints in (("look", None), ("send", None), ("x", {"readOnlyHint": True}), ("x", None))
    ]

    assert known == [Reach("read_only"), Reach("communication", idempotent=True), Reach("read_only"), Reach()]
    thread, till = store.thread("t", agent="a"), Till(fails=True)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            guard.call(thread, GuardedCall(id="1", tool="look", arguments={}), till.pay, store=kept)
    assert till.paid == 2


def test_awaited_calls_follow_the_same_rules(tmp_path: Path) -> None:
    """Once, and then from the ledger."""
    till, guard = Till(), CallGuard()

    async def main() -> list[bool]:
        async with aio.open(tmp_path / "b.db") as store:
            thread = await store.thread("t", agent="a")
            found = [await guard.acall(thread, PAY, till.apay, store=kept) for _ in range(2)]
            assert found[1].stored == {"paid": 1}
            return [each.ran for each in found]

    assert asyncio.run(main()) == [True, False]
    assert till.paid == 1


def test_strange_tools_and_arguments_are_called_or_refused_by_name(store: Store) -> None:
    """A tool of any name can be guarded; arguments that are no JSON are refused before anything runs."""
    thread, till, guard = store.thread("t", agent="a"), Till(), CallGuard()
    for tool in ("mcp: é", "", "x" * 300):
        assert guard.call(thread, GuardedCall(id="1", tool=tool, arguments={}), till.pay, store=kept).ran
    with raises(Invalid, "arguments_not_json"):
        guard.call(thread, GuardedCall(id="1", tool="t", arguments={"a": object()}), till.pay, store=kept)
    with raises(Invalid, "effect_unknown"):
        CallGuard({"pay": "harmless"})  # pyright: ignore[reportArgumentType]

    assert till.paid == 3


KILLED = """
import os, signal, sys
import perdure
from perdure.integrations.guard import CallGuard, GuardedCall
path, effects, guarded = sys.argv[1:4]
def pay():
    with open(effects, "a") as file:
        file.write("paid\\n")
        file.flush(); os.fsync(file.fileno())
    if len(open(effects).readlines()) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"
call = GuardedCall(id="c" + str(os.getpid()), tool="pay", arguments={"euro": 5})
with perdure.open(path) as store:
    thread = store.thread("t", agent="a")
    print(CallGuard().call(thread, call, pay, store=str).state if guarded == "yes" else pay())
"""


@pytest.mark.parametrize(("guarded", "paid", "said"), [("yes", 1, "denied"), ("no", 2, "paid")])
def test_a_kill_after_the_effect(tmp_path: Path, guarded: str, paid: int, said: str) -> None:
    """The call is asked for again under a new id and stopped; without the guard, the control, it is paid twice."""
    command = ["-c", KILLED, str(tmp_path / "a.db"), str(tmp_path / "effects"), guarded]
    killed = commands().run(command)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    again = commands().run(command, check=True)

    assert again.stdout.strip() == said
    assert (tmp_path / "effects").read_text().count("paid") == paid

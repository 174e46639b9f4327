"""A failed run whose input is queued again is retried by a worker, as `run` retries it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import Agent, Call, Outcome, Store, Thread, aio
from perdure.errors import Conflict, RunFailed, Unavailable
from perdure.model.run import HeadPolicy
from perdure.testing import Script, fail, say, use
from tests.coded import raises
from tests.engines.postgres.stores import new_store
from tests.selection import engines

_paid: list[int] = []


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    """Forget what other tests paid."""
    _paid.clear()


@perdure.tool(effect="financial")
def pay(amount: int, call: Call) -> str:
    """Pay, and note it."""
    _paid.append(amount)
    call.put("/paid.json", amount)
    return "paid"


@pytest.fixture(params=engines("file", "memory:", "postgres"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Store]:
    """An empty store."""
    if request.param == "postgres":
        url = new_store(request)
    else:
        url = request.param if request.param == "memory:" else str(tmp_path / "store.db")
    with perdure.open(url) as opened:
        yield opened


def clerk(*steps: Any, tool: Any = pay) -> Agent:
    """An agent that pays and then takes these steps."""
    return Agent("clerk", backend=Script(use("pay", amount=60), *steps), tools=[tool])


def failed(store: Store, *, head_policy: HeadPolicy = "each_step") -> Thread:
    """A thread whose run paid and then failed; its agent answers now."""
    with pytest.raises(RunFailed):
        store.thread("t", agent=clerk(fail())).run("Pay", id="m1", head_policy=head_policy)
    return store.thread("t", agent=clerk(say("Done."), say("Again.")))


def worked(store: Store, *steps: Any, tool: Any = pay) -> None:
    """Let a worker do what there is to do."""
    store.work(clerk(*(steps or (say("Done."), say("Again."))), tool=tool), until_idle=True)


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_a_worker_retries_it_from_its_last_step(store: Store, policy: HeadPolicy) -> None:
    """Under the same id; what it paid stays paid, what it wrote is written again, and the message is there once."""
    thread = failed(store, head_policy=policy)
    run = thread.runs()[0].id

    assert thread.start("Pay", id="m1") == run
    assert (thread.find_run(run).state, thread.find_run(run).why) == ("created", None)
    worked(store)

    result = thread.wait(run)
    assert (result.run, result.text, _paid, thread.get("/paid.json")) == (run, "Done.", [60], 60)
    assert [entry.role for entry in thread.transcript()] == ["user", "assistant", "tool", "assistant"]
    assert store.verify().ok


@pytest.mark.parametrize("end", ["succeeded", "cancelled", "waiting"])
def test_a_run_that_did_not_fail_is_not_queued_again(store: Store, end: str) -> None:
    """Control: its id gives the run as it is."""

    @perdure.tool(effect="financial", name="pay", ask=end != "succeeded")
    def asks(amount: int) -> str:
        _paid.append(amount)
        return "paid"

    thread = store.thread("t", agent=clerk(say("Done."), tool=asks))
    run = thread.run("Pay", id="m1").run
    if end == "cancelled":
        thread.cancel()
    head = thread.head

    assert thread.start("Pay", id="m1") == run
    worked(store, tool=asks)
    assert (thread.find_run(run).state, thread.head) == (end, head)


def test_it_is_queued_once_and_again_after_each_failure(store: Store) -> None:
    """However often the client sends its message."""
    thread = failed(store)
    run = thread.runs()[0].id
    for _ in range(3):
        for _ in range(2):
            assert thread.start("Pay", id="m1") == run
        worked(store, fail())
        with pytest.raises(RunFailed):
            thread.wait(run)
    thread.start("Pay", id="m1")
    worked(store)

    assert (thread.wait(run).text, len(thread.runs()), _paid) == ("Done.", 1, [60])


def test_it_comes_before_what_was_queued_behind_it(store: Store) -> None:
    """A later turn would rest on its failure."""
    thread = failed(store)
    second = thread.start("And now?", id="m2")
    first = thread.start("Pay", id="m1")
    worked(store)

    assert (thread.wait(first).text, thread.wait(second).text) == ("Done.", "Again.")
    assert [entry.id for entry in thread.transcript() if entry.role == "user"] == ["m1", "m2"]


def test_it_can_be_scheduled(store: Store) -> None:
    """It is retried when it is due, and not before."""
    thread = failed(store)
    run = thread.schedule("Pay", "1h", id="m1")
    worked(store)

    assert (thread.find_run(run).state, thread.find_run(run).scheduled) == ("created", True)
    with raises(Unavailable, "run_goes_on", run=run):
        thread.wait(run, 0)


@pytest.mark.parametrize(
    ("what", "code"), [("followed", "failed_run_followed"), ("undone", "failed_run_undone")]
)
def test_one_that_cannot_be_retried_is_refused_at_once(store: Store, what: str, code: str) -> None:
    """As `run` refuses it; nothing is queued."""
    thread = failed(store)
    if what == "followed":
        thread.run("And now?", id="m2")
    else:
        thread.undo()
    run = thread.runs()[0].id

    with raises(Conflict, code, run=run):
        thread.start("Pay", id="m1")

    assert thread.find_run(run).state == "failed"


@pytest.mark.parametrize("what", ["followed", "undone"])
def test_one_that_cannot_be_retried_any_more_has_failed_and_says_why(store: Store, what: str) -> None:
    """The turn was undone, or another followed, while it was queued."""
    thread = failed(store)
    run = thread.start("Pay", id="m1")
    if what == "followed":
        store.thread("t", agent=Agent("clerk", backend=Script(say("Hm.")), tools=[pay])).run("And now?")
    else:
        thread.undo()
    worked(store)

    with pytest.raises(RunFailed):
        thread.wait(run)
    assert (thread.find_run(run).kind, _paid, store.verify().ok) == ("Conflict", [60], True)


def lost(hook: Callable[[Call], Outcome] | None = None) -> Any:
    """The tool with an answer that is lost, and perhaps a hook that finds out."""

    @perdure.tool(effect="financial", name="pay")
    def lost(amount: int) -> str:
        _paid.append(amount)
        raise TimeoutError("no answer")

    return lost if hook is None else lost.reconcile(hook) and lost


def left_unclear(store: Store, tool: Any) -> Thread:
    """A thread whose run failed after a payment of unknown outcome."""
    with pytest.raises(RunFailed):
        store.thread("t", agent=clerk(fail(), tool=tool)).run("Pay", id="m1")
    assert store.thread("t").calls()[0].state in ("unknown", "needs_human")
    return store.thread("t", agent=clerk(say("Done."), tool=tool))


def test_the_hook_of_its_tool_is_asked_by_the_worker(store: Store) -> None:
    """The process that queues it does not ask."""
    found: list[bool] = []
    tool = lost(lambda call: call.done("paid") if found else call.dont_know())
    thread = left_unclear(store, tool)
    found.append(True)
    run = thread.start("Pay", id="m1")
    worked(store, tool=tool)

    assert (thread.wait(run).text, _paid) == ("Done.", [60])
    assert [call.state for call in thread.calls()] == ["succeeded"]


@pytest.mark.parametrize("knows", [True, False], ids=["tool", "no tool"])
def test_a_payment_that_nothing_can_find_out_about_is_not_gone_past(store: Store, *, knows: bool) -> None:
    """Who has the tool is refused at once; for others the worker refuses it, and the run says why it has failed."""
    tool = lost()
    thread = left_unclear(store, tool)
    (call,) = thread.calls()
    if knows:
        with raises(Conflict, "failed_run_call_unclear", call=call.id):
            thread.start("Pay", id="m1")
    else:
        thread = store.thread("t")
        run = thread.start("Pay", id="m1")
        worked(store, tool=tool)
        with pytest.raises(RunFailed) as error:
            thread.wait(run)
        assert call.id in str(error.value)
    assert (thread.runs()[0].state, _paid) == ("failed", [60])

    thread.resolve(call.id, "done", by="ann")
    run = thread.start("Pay", id="m1")
    worked(store, tool=tool)
    assert (thread.wait(run).text, _paid) == ("Done.", [60])


def test_run_retries_here_what_is_queued_again(store: Store) -> None:
    """The same id: it does not wait for a worker, and the worker finds nothing to do."""
    thread = failed(store)
    run = thread.start("Pay", id="m1")

    assert (thread.run("Pay", id="m1").run, thread.run("Pay", id="m1").text) == (run, "Done.")
    worked(store, fail())
    assert (thread.find_run(run).state, _paid) == ("succeeded", [60])


def test_it_can_be_cancelled_while_it_is_queued_again(store: Store) -> None:
    """It never goes on."""
    thread = failed(store)
    run = thread.start("Pay", id="m1")

    assert thread.cancel(run, by="ann").state == "cancelled"
    worked(store)
    assert (thread.run("Pay", id="m1").status, _paid, store.verify().ok) == ("cancelled", [60], True)


def test_two_that_queue_it_at_once_queue_it_once(store: Store) -> None:
    """Both get the run."""
    thread = failed(store)
    gate, found = threading.Barrier(4), list[str]()

    def start() -> None:
        gate.wait()
        found.append(store.thread("t").start("Pay", id="m1"))

    callers = [threading.Thread(target=start) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    worked(store)

    run = thread.runs()[0]
    assert (found, run.state, run.dues, _paid) == ([run.id] * 4, "succeeded", 1, [60])


def test_a_message_that_steered_it_queues_it_again_too(store: Store) -> None:
    """It is an input of that run."""

    def speak(context: object) -> Any:
        store.thread("t").steer("Hurry", id="m2")
        return use("pay", amount=60)

    agent = Agent("clerk", backend=Script(speak, fail()), tools=[pay])
    with pytest.raises(RunFailed):
        store.thread("t", agent=agent).run("Pay", id="m1")
    thread = store.thread("t")
    run = thread.start("Hurry", id="m2")
    store.work(Agent("clerk", backend=Script(then=say("Done.")), tools=[pay]), until_idle=True)

    assert (run, thread.wait(run).text, _paid) == (thread.runs()[0].id, "Done.", [60])


def test_a_deploy_that_cancels_the_waiting_handler_leaves_the_run_alone(tmp_path: Path) -> None:
    """The worker goes on with it; control: the one that awaits `run` fails it, and its id queues it again."""
    inside, go_on = threading.Event(), threading.Event()

    @perdure.tool(effect="read_only")
    def look() -> str:
        inside.set()
        assert go_on.wait(20)
        return "seen"

    agent = Agent("looker", backend=Script(use("look"), say("Done.")), tools=[look])

    async def cut_off(thread: aio.Thread, handler: Any) -> str:
        task = asyncio.create_task(handler)
        await asyncio.to_thread(inside.wait, 20)
        task.cancel()
        go_on.set()
        await asyncio.wait((task,))
        assert task.cancelled()
        inside.clear()
        return (await thread.runs())[0].state

    async def queued(thread: aio.Thread) -> perdure.Result:
        return await thread.wait(await thread.start("Look", id="m1"))

    async def main() -> None:
        async with aio.open(tmp_path / "store.db") as store:
            working = asyncio.create_task(store.work(agent))
            first = await store.thread("first", agent=agent)
            assert await cut_off(first, queued(first)) in ("running", "succeeded")
            assert (await queued(first)).text == "Done."
            go_on.clear()
            second = await store.thread("second", agent=agent)
            assert await cut_off(second, second.run("Look", id="m1")) == "failed"
            assert (await queued(second)).text == "Done."
            assert [len(await each.runs()) for each in (first, second)] == [1, 1]
            working.cancel()
            await asyncio.wait((working,))

    asyncio.run(main())

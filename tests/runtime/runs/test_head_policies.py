"""Under `on_success` a run's commits reach the line when it succeeds or waits, on top of what others wrote."""

from __future__ import annotations

import pytest

import perdure
from perdure import Agent, Call, Plugin, Store, Thread, errors
from perdure.runtime.agent.plugin import Moment
from perdure.testing import Script, fail, say, use
from perdure.testing.script import Item
from tests.runtime.failing import run_fails

_paid: list[int] = []


@perdure.tool(effect="external_write")
def pay(amount: int, call: Call) -> str:
    """Pay."""
    _paid.append(amount)
    call.put(f"/paid/{amount}.json", True)
    return f"paid {amount}"


@perdure.tool(effect="external_write", ask=True)
def ask(amount: int, call: Call) -> str:
    """Pay, if somebody agrees."""
    _paid.append(amount)
    call.put(f"/paid/{amount}.json", True)
    return f"paid {amount}"


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    """Forget what other tests paid."""
    _paid.clear()


class Cut:
    """A plug-in that cuts the run off before its nth inference, once."""

    def __init__(self, nth: int) -> None:
        """Count."""
        self._left = nth

    def __call__(self, moment: Moment) -> None:
        """Interrupt the program."""
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt

    @property
    def plugin(self) -> Plugin:
        """The plug-in."""
        return Plugin("cut", before_inference=self)


def thread_of(store: Store, *items: Item, plugins: tuple[Plugin, ...] = ()) -> Thread:
    """The thread, for an agent that takes these steps."""
    agent = Agent("planner", backend=Script(*items), tools=[pay, ask], plugins=plugins)
    return store.thread("trip", agent=agent)


def lines(thread: Thread) -> list[str]:
    """The timelines beside main."""
    return [hold.head.timeline for hold in thread.timelines() if hold.head.timeline != "main"]


def test_while_the_run_goes_on_others_see_only_its_input(store: Store) -> None:
    """The inbound commit always moves the head; the rest comes at once, with the end."""
    seen: list[list[str]] = []

    def hook(moment: Moment) -> None:
        seen.append([entry.role for entry in store.thread("trip").transcript()])

    thread = thread_of(
        store, use("pay", amount=1), say("Done."), plugins=(Plugin("seer", before_inference=hook),)
    )

    thread.run("go", head_policy="on_success")

    assert seen == [["user"], ["user"]]
    assert [entry.role for entry in thread.transcript()] == ["user", "assistant", "tool", "assistant"]
    assert len(thread.turns()) == 1


def test_with_each_step_others_see_every_step(store: Store) -> None:
    """A control: the default policy."""
    seen: list[int] = []

    def hook(moment: Moment) -> None:
        seen.append(len(store.thread("trip").transcript()))

    thread_of(
        store, use("pay", amount=1), say("Done."), plugins=(Plugin("seer", before_inference=hook),)
    ).run("go")

    assert seen == [1, 3]


def test_a_run_that_waits_brings_its_commits_to_the_line(store: Store) -> None:
    """Its question is seen from main; decided and resumed it ends there."""
    thread = thread_of(store, use("pay", amount=1), use("ask", amount=2), say("Done."))

    waiting = thread.run("go", head_policy="on_success")
    assert waiting.status == "waiting"
    assert [ticket.call for ticket in thread.approvals()] == [waiting.approvals[0].call]
    assert thread.paths("/") == ["/paid/1.json"]
    thread.decide(waiting.approvals[0].call, "approve")
    result = thread.resume()

    assert (result.status, result.run) == ("succeeded", waiting.run)
    assert thread.paths("/") == ["/paid/1.json", "/paid/2.json"]
    assert len(thread.turns()) == 1
    assert store.verify().ok


def test_a_run_that_waits_while_others_write_is_put_on_top_each_time(store: Store) -> None:
    """Writes before the question, while it is open, and after the decision: all are there at the end."""

    def hook(moment: Moment) -> None:
        other = store.thread("trip")
        other.put(f"/web/{len(other.paths('/web'))}.json", moment.phase)

    visited = Plugin("visited", before_inference=hook, after_inference=hook)
    thread = thread_of(store, use("ask", amount=2), use("pay", amount=1), say("Done."), plugins=(visited,))

    waiting = thread.run("go", head_policy="on_success")
    store.thread("trip").put("/web/between.json", True)
    thread.decide(waiting.approvals[0].call, "approve")
    result = thread.resume()

    assert result.text == "Done."
    assert thread.paths("/paid") == ["/paid/1.json", "/paid/2.json"]
    assert len(thread.paths("/web")) == 7
    assert [entry.role for entry in thread.transcript()] == ["user"] + ["assistant", "tool"] * 2 + [
        "assistant"
    ]
    assert _paid == [2, 1]
    assert store.verify().ok


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("visited", [False, True])
def test_a_run_that_was_cut_off_goes_on_from_its_own_line(store: Store, nth: int, *, visited: bool) -> None:
    """What it had done there is not done again; what others wrote to main meanwhile is kept."""
    cut = Cut(nth)
    thread = thread_of(store, use("pay", amount=1), use("pay", amount=2), say("Done."), plugins=(cut.plugin,))
    with pytest.raises(KeyboardInterrupt):
        thread.run("go", head_policy="on_success")
    if visited:
        store.thread("trip").put("/title.json", "web")

    result = thread.resume()

    assert (result.status, result.text) == ("succeeded", "Done.")
    assert _paid == [1, 2]
    assert thread.paths("/paid") == ["/paid/1.json", "/paid/2.json"]
    assert thread.paths("/title.json") == (["/title.json"] if visited else [])
    assert [entry.role for entry in thread.transcript()] == ["user"] + ["assistant", "tool"] * 2 + [
        "assistant"
    ]
    assert len(thread.turns()) == 1
    assert store.verify().ok


def test_a_run_that_was_cut_off_twice_goes_on_from_the_same_line(store: Store) -> None:
    """However often it is taken up, it has one line of its own."""
    steps = (use("pay", amount=1), use("pay", amount=2), say("Done."))
    for nth in (2, 2):
        with pytest.raises(KeyboardInterrupt):
            thread = thread_of(store, *steps, plugins=(Cut(nth).plugin,))
            thread.resume() if thread.runs() else thread.run("go", head_policy="on_success")

    result = thread_of(store, *steps).resume()

    assert result.text == "Done."
    assert _paid == [1, 2]
    assert len(lines(store.thread("trip"))) == 1


def test_a_run_that_was_cut_off_and_is_cancelled_leaves_the_line_alone(store: Store) -> None:
    """What it did is on its own line, which says that it was cancelled."""
    thread = thread_of(store, use("pay", amount=1), say("Done."), plugins=(Cut(2).plugin,))
    with pytest.raises(KeyboardInterrupt):
        thread.run("go", head_policy="on_success")

    record = thread.cancel()

    assert record.state == "cancelled"
    assert [entry.role for entry in thread.transcript()] == ["user"]
    assert record.line is not None
    assert thread.on(record.line).log()[0].reason == "run_finished"
    assert thread_of(store, say("Next.")).run("again").text == "Next."


def test_a_run_that_fails_after_it_was_resumed_leaves_the_line_where_it_waited(store: Store) -> None:
    """What reached the line when it waited stays; what came after is on the kept line."""
    thread = thread_of(store, use("pay", amount=1), use("ask", amount=2), fail())
    waiting = thread.run("go", head_policy="on_success")
    head = thread.head
    thread.decide(waiting.approvals[0].call, "approve")

    with pytest.raises(errors.RunFailed):
        thread.resume()

    assert thread.head == head
    assert _paid == [1, 2]
    script = Script(say("Next."))
    agent = Agent("planner", backend=script, tools=[pay, ask])
    assert store.thread("trip", agent=agent).run("again").text == "Next."
    answered = [each for message in script.contexts[0].messages for each in message.tool_results]
    assert len(answered) == 2


@pytest.mark.parametrize("policy", ["each_step", "on_success"])
def test_the_agents_map_is_as_the_run_left_it(store: Store, policy: str) -> None:
    """Under either policy each change arrives once."""

    @perdure.tool(effect="local_write", idempotent=True)
    def tally(call: Call) -> str:
        call.agent.put("/tally.json", call.agent.get("/tally.json", default=0) + 1)
        return "tallied"

    script = Script(use("tally"), use("tally"), say("Done."))
    thread = store.thread("trip", agent=Agent("planner", backend=script, tools=[tally]))

    thread.run("go", head_policy=policy)  # pyright: ignore[reportArgumentType]

    assert store.agent("planner").get("/tally.json") == 2
    assert len(store.agent("planner").log()) == 2


def test_an_input_given_again_without_retry_fails_again_on_its_own_line(store: Store) -> None:
    """The first failure of an id is found wherever its run wrote."""
    thread = thread_of(store, use("pay", amount=1), fail())
    with pytest.raises(errors.RunFailed):
        thread.run("go", id="m1", head_policy="on_success")

    with run_fails("ConnectionError"):
        thread_of(store, say("Never.")).run("go", id="m1", head_policy="on_success", retry=False)

    assert _paid == [1]

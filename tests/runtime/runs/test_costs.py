"""What models cost: per run, turn, thread, owner and agent, by the prices of the day, and as a limit of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure import Agent, Call, Route, Stop, Store
from perdure.cli.input.stores import map_entries
from perdure.engines.registry import open_sql
from perdure.errors import Invalid, RunFailed
from perdure.history.retention import RetentionPolicy
from perdure.model.run import Cost, Usage
from perdure.providers.catalog import Prices
from perdure.shapes.comparison import Comparison
from perdure.testing import Script, fail, say, step, use
from tests.store.engine_calls import opened

USED = Usage(input_tokens=1_000, output_tokens=100)


def by_tokens(usage: Usage) -> float:
    """A price of a cent for a thousand tokens."""
    return (usage.input_tokens + usage.output_tokens) / 100_000


def priced(*steps: str, stop: Stop | None = None, name: str = "a") -> Agent:
    """Return an agent whose steps each cost 0.011."""
    script = Script(*(say(text, usage=USED) for text in steps))
    return Agent(name, backend=script, stop=stop or Stop(price=by_tokens))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (Usage(input_tokens=1_000_000), 3.0),
        (Usage(output_tokens=1_000_000), 15.0),
        (Usage(output_tokens=1_000_000, reasoning_tokens=900_000), 15.0),
        (Usage(input_tokens=1_000_000, cached_tokens=400_000), 0.6 * 3 + 0.4 * 0.3),
        (Usage(input_tokens=1_000_000, cache_write_tokens=500_000), 0.5 * 3 + 0.5 * 3.75),
    ],
)
def test_reads_and_writes_of_a_cache_have_their_own_prices(usage: Usage, expected: float) -> None:
    """They are a part of the input, and reasoning is a part of the output."""
    prices = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75)

    assert prices.cost(usage) == pytest.approx(expected)


def test_a_cache_without_a_price_costs_as_much_as_other_input() -> None:
    """It is never free because the catalog does not say more."""
    usage = Usage(input_tokens=1_000_000, cached_tokens=1_000_000)

    assert Prices(input=3, output=15).cost(usage) == pytest.approx(3)


def test_a_run_a_turn_and_a_thread_know_what_they_cost(tmp_path: Path) -> None:
    """The result, the turn and the thread say the same, also in another process and after an undo."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=priced("One.", "Two."))
        first, second = thread.run("a", id="m1"), thread.run("b")
        turns = [turn.cost for turn in thread.turns()]
        again = thread.run("a", id="m1")
        thread.undo()

        assert first.cost.usd == pytest.approx(0.011)
        assert turns == [first.cost, second.cost]
        assert again.cost == first.cost
        assert thread.cost().usd == pytest.approx(0.022)  # what was undone was paid all the same
        assert thread.cost(first.run) == first.cost


def test_the_costs_of_a_thread_are_those_of_its_runs_one_by_one(tmp_path: Path) -> None:
    """On main and on forks, after a failure that was retried, an undo and a promotion."""
    with perdure.open(tmp_path / "agents.db") as store:
        with pytest.raises(RunFailed):
            store.thread("t", agent=Agent("a", backend=Script(fail()))).run("a", id="m1")
        thread = store.thread("t", agent=priced(*["On."] * 9))
        thread.run("a", id="m1")
        thread.run("b")
        fork = thread.fork("other", at="HEAD~1")
        fork.run("c")
        thread.run("d")
        thread.undo()
        thread.run("e")
        thread.promote("other")
        thread.run("f")
        costs = {run: cost for run, cost, _ in thread.costs()}

        assert costs == {record.id: thread.cost(record.id) for record in thread.runs()}
        assert sum(cost.steps for cost in costs.values()) == 6
        every = thread.costs()
    with perdure.open(tmp_path / "agents.db") as store:  # which has read none of them
        thread = store.thread("t")
        assert [each for run, _, _ in every for each in thread.costs(run=run)] == every


def test_the_cost_of_a_long_thread_is_read_by_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty further runs cost a few calls of the engine, not several for each run."""
    with opened(str(tmp_path / "agents.db"), monkeypatch) as (store, calls):
        thread = store.thread("t", agent=priced(*["On."] * 80))
        counts: list[int] = []
        for runs in (10, 60):
            for number in range(runs):
                thread.run(f"{runs}-{number}")
            before = len(calls)
            thread.cost()
            counts.append(len(calls) - before)

    assert counts[1] - counts[0] <= 10


def test_what_an_ended_run_cost_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second question reads no commit; the control is a run that came since, whose commits are read."""
    with opened(str(tmp_path / "agents.db"), monkeypatch) as (store, calls):
        thread = store.thread("t", agent=priced(*["On."] * 3))
        thread.run("a")
        first = thread.cost()
        begun = len(calls)
        again = store.thread("t").cost()
        repeated = calls[begun:]
        thread.run("b")
        begun = len(calls)
        both = store.thread("t").cost()
        further = calls[begun:]

    assert first == again
    assert (first.steps, both.steps) == (1, 2)
    assert ("steps" in repeated, "steps" in further) == (False, True), (repeated, further)


def test_each_step_is_counted_by_its_own_model(tmp_path: Path) -> None:
    """A run that went over to another model in the middle is counted under both; the sums are those of the runs."""
    one = Script(use("look", usage=USED), fail(), backend="script:one")
    two = Script(say("Seen.", usage=USED), backend="script:two")
    routed = Agent("a", backend=one, route=Route([two]), tools=[look], stop=Stop(price=by_tokens))
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=routed)
        whole = thread.run("a").cost
        models = {name: (cost.steps, usage.input_tokens) for name, cost, usage in thread.costs("model")}
        runs = thread.costs()
        named = store.costs("model")
        with pytest.raises(Invalid):
            thread.costs("day")  # pyright: ignore[reportArgumentType]

    assert models == {"script:one": (1, 1_000), "script:two": (1, 1_000)}
    assert [(cost, usage.input_tokens) for _, cost, usage in runs] == [(whole, 2_000)]
    assert {name: cost.usd for name, cost in named.items()} == {
        "script:one": pytest.approx(0.011),
        "script:two": pytest.approx(0.011),
    }


def test_a_side_of_a_comparison_has_the_cost_of_its_own_steps(tmp_path: Path) -> None:
    """A run that the two parted in is counted from there on; the control is the whole run."""
    script = Script(use("look", usage=USED), say("Seen.", usage=USED))
    looking = Agent("a", backend=script, tools=[look], stop=Stop(price=by_tokens))
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=looking)
        whole = thread.run("a").cost
        first = next(entry.commit for entry in thread.transcript() if entry.role == "assistant")
        thread.fork("other", at=first)
        compared = Comparison.of(thread, "main", "other", thread.diff("main", "other"))

    assert (compared.a.cost.usd, compared.b.cost.usd) == (pytest.approx(whole.usd / 2), 0)
    assert (compared.a.cost.steps, whole.steps) == (1, 2)


def test_an_unknown_price_is_said_and_not_counted_as_nothing(tmp_path: Path) -> None:
    """A scripted model is in no catalog: its steps are unpriced."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=Agent("a", backend=Script(say("Hi.", usage=USED))))
        result = thread.run("hello")

        assert result.cost == Cost(steps=1, unpriced=1)
        assert str(result.cost) == "unknown"
        assert str(result.cost + Cost.of(2.5)) == "$2.50 and 1 step of unknown price"


def test_costs_are_added_up_by_thread_owner_and_agent(tmp_path: Path) -> None:
    """In Python and in SQL, with the same sums."""
    with perdure.open(tmp_path / "agents.db") as store:
        store.thread("t1", agent=priced("Hi."), owner="ann").run("a")
        store.thread("t2", agent=priced("Hi.", name="b"), owner="ann").run("a")
        store.thread("t3", agent=priced("Hi.")).run("a")
        sums = {by: store.costs(by) for by in ("thread", "owner", "agent")}

    assert {name: round(cost.usd, 6) for name, cost in sums["owner"].items()} == {"ann": 0.022, None: 0.011}
    assert {name: round(cost.usd, 6) for name, cost in sums["agent"].items()} == {"a": 0.022, "b": 0.011}
    assert set(sums["thread"]) == {"t1", "t2", "t3"}
    opened = open_sql(str(tmp_path / "agents.db"), entries=map_entries)
    _, rows = opened.query(
        "SELECT owner, sum(cost_usd), sum(input_tokens) FROM runs GROUP BY owner ORDER BY 1"
    )
    assert list(rows) == [(None, pytest.approx(0.011), 1000), ("ann", pytest.approx(0.022), 2000)]
    opened.close()


def test_a_run_costs_what_its_children_cost_too(tmp_path: Path) -> None:
    """The cost of a run has that of its child runs; its own result has its own steps alone."""

    @perdure.tool(effect="none")
    def delegate(call: Call) -> str:
        """Delegate."""
        return str(call.run(priced("Hi.", name="child"), "go").text)

    script = Script(use("delegate"), say("Done.", usage=USED))
    agent = Agent("p", backend=script, tools=[delegate], stop=Stop(price=by_tokens))
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        result = thread.run("go")

        assert result.cost.usd == pytest.approx(0.011)
        assert thread.cost(result.run).usd == pytest.approx(0.022)


def test_a_run_whose_childs_thread_was_removed_costs_what_is_left(tmp_path: Path) -> None:
    """What the child used is not known any more, before the content is collected and after; the rest can be read."""

    @perdure.tool(effect="none")
    def delegate(call: Call, which: int) -> str:
        """Delegate."""
        return str(call.run(priced("Hi.", name="child"), f"go {which}").text)

    script = Script(step(use("delegate", which=1), use("delegate", which=2)), say("Done.", usage=USED))
    agent = Agent("p", backend=script, tools=[delegate], stop=Stop(price=by_tokens))
    with perdure.open(tmp_path / "agents.db") as store:
        run = store.thread("t", agent=agent).run("go").run
        store.thread(store.thread("t").children(run)[0].thread).rm()

    with perdure.open(tmp_path / "agents.db") as store:
        removed = store.thread("t").cost(run)
        store.gc(store.gc_plan(RetentionPolicy(removed_threads=True)))

        assert store.thread("t").cost(run).usd == removed.usd == pytest.approx(0.022)


def test_a_budget_stops_a_run(tmp_path: Path) -> None:
    """The limit is looked at before each step, so the run stops at the step that reaches it."""

    @perdure.tool(effect="none")
    def look() -> str:
        """Look."""
        return "nothing"

    looking = [step(use("look"), say("", usage=USED)) for _ in range(5)]
    agent = Agent("a", backend=Script(*looking), tools=[look], stop=Stop(cost=0.02, price=by_tokens))
    with perdure.open(tmp_path / "agents.db") as store:
        result = store.thread("t", agent=agent).run("go")

    assert (result.status, result.steps) == ("stopped", 2)
    assert result.stop is not None
    assert (result.stop.reason, result.stop.word) == ("limit", "cost")


@perdure.tool(effect="none")
def look() -> str:
    """Look around."""
    return "nothing"


def family(stop: Stop, *, ask: bool = False) -> Agent:
    """Return an agent that runs a child, whose steps are two: each step of either costs 0.011."""

    @perdure.tool(effect="read_only", ask=ask)
    def peek() -> str:
        """Look around, if a person allows it."""
        return "nothing"

    below = Agent(
        "below",
        backend=Script(step(use("peek" if ask else "look"), say("", usage=USED)), say("Seen.", usage=USED)),
        tools=[look, peek],
        stop=Stop(price=by_tokens),
    )

    @perdure.tool(effect="none")
    def delegate(task: str, call: Call) -> str:
        """Let another agent do it."""
        result = call.run(below, task)
        return f"{result.status}: {result.text}"

    steps = [step(use("delegate", task=f"look {number}"), say("", usage=USED)) for number in range(3)]
    return Agent("above", backend=Script(*steps, say("Done.", usage=USED)), tools=[delegate], stop=stop)


@pytest.mark.parametrize(
    ("stop", "status", "limit", "cents"),
    [
        (
            Stop(price=by_tokens),
            "succeeded",
            None,
            11.0,
        ),  # the control: 4 steps of the parent, 6 of its children
        (Stop(price=by_tokens, cost=0.08), "stopped", "cost", 8.8),  # reached by the second step of a child
        (Stop(price=by_tokens, cost=0.05), "stopped", "cost", 5.5),  # reached by the first step of a child
        (Stop(price=by_tokens, tokens=6_000), "stopped", "tokens", 6.6),
    ],
)
def test_a_budget_stops_a_run_whose_children_spend_it(
    tmp_path: Path, stop: Stop, status: str, limit: str | None, cents: float
) -> None:
    """No run of the tree takes a step once it is spent: neither the child nor, after it, the parent."""
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=family(stop))

        result = thread.run("go")

        assert result.status == status
        assert (result.stop.word if result.stop is not None and limit else None) == limit
        assert 100 * thread.cost(result.run).usd == pytest.approx(cents)


def test_a_child_that_was_decided_keeps_the_budget_of_the_runs_above(tmp_path: Path) -> None:
    """What they had left when it began is in its record, so it holds where the child is carried on alone."""
    with perdure.open(tmp_path / "agents.db") as store:
        above = family(Stop(price=by_tokens, cost=0.02), ask=True)
        thread = store.thread("t", agent=above)
        waiting = thread.run("go")
        (child,) = thread.children(waiting.run)

        thread.decide(waiting.approvals[0].call, "approve", by="ann")
        result = thread.resume()

        assert child.record.parent is not None
        assert child.record.parent.cost_left == pytest.approx(0.009)
        assert (result.status, result.stop.word if result.stop else None) == ("stopped", "cost")
        assert thread.cost(result.run).usd == pytest.approx(0.022)  # one step of each


def test_a_budget_without_a_known_price_sends_nothing(tmp_path: Path) -> None:
    """A limit that cannot be kept is no limit: the run fails before the first request."""
    script = Script(say("Hi.", usage=USED))
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=Agent("a", backend=script, stop=Stop(cost=1.0)))
        with pytest.raises(RunFailed) as failed:
            thread.run("go")

    assert script.contexts == []
    assert getattr(failed.value.__cause__, "code", None) == "price_unknown"


@pytest.mark.parametrize(("usage", "steps"), [(None, 1), (USED, 2)])
def test_a_budget_stops_after_a_step_whose_usage_is_not_reported(
    tmp_path: Path, usage: Usage | None, steps: int
) -> None:
    """A backend that reports no usage gets no second request; one that reports it, the control, does."""

    @perdure.tool(effect="none")
    def look() -> str:
        """Look."""
        return "nothing"

    said = say("") if usage is None else say("", usage=usage)
    script = Script(step(use("look"), said), say("Done.", usage=USED))
    agent = Agent("a", backend=script, tools=[look], stop=Stop(cost=1.0, price=by_tokens))
    with perdure.open(tmp_path / "agents.db") as store:
        result = store.thread("t", agent=agent).run("go")

    assert len(script.contexts) == steps
    assert (result.status, result.stop and result.stop.reason) == (
        ("succeeded", "completed") if usage else ("stopped", "limit")
    )


def test_the_catalogs_price_counts_if_the_agent_gives_none(tmp_path: Path) -> None:
    """A model that is sent to a known provider is priced by the catalog, at the time of the step."""
    from perdure.model.recipe import Sent

    class Known(Script):
        """A script that claims to be sent to a known model."""

        sent = Sent(api="openai-responses", provider="openai", model="gpt-5.6")

    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread(
            "t", agent=Agent("a", backend=Known(say("Hi.", usage=USED), backend="openai:gpt-5.6"))
        )
        result = thread.run("hello")

    assert (result.cost.steps, result.cost.unpriced) == (1, 0)
    assert result.cost.usd > 0


def test_a_resumed_run_counts_what_it_spent_before(tmp_path: Path) -> None:
    """A run that waited for a person has not forgotten its budget."""

    @perdure.tool(effect="external_write", ask=True)
    def send() -> str:
        """Send."""
        return "sent"

    asking = [step(use("send"), say("", usage=USED)), say("Done.", usage=USED)]
    agent = Agent("a", backend=Script(*asking), tools=[send], stop=Stop(cost=0.01, price=by_tokens))
    with perdure.open(tmp_path / "agents.db") as store:
        thread = store.thread("t", agent=agent)
        thread.run("go")
        thread.decide(thread.approvals()[0].call, "approve", by="ann")
        result = thread.resume()

    assert (result.status, result.steps) == ("stopped", 1)


def test_store_reads_nothing_of_threads_without_runs(tmp_path: Path) -> None:
    """Control: a thread that only keeps state costs nothing and is in no list."""
    with perdure.open(tmp_path / "agents.db") as store:
        assert isinstance(store, Store)
        store.thread("t", agent="keeper").put("/a.json", 1)

        assert store.costs() == {}

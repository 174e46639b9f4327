"""The numbers of a store: counted from the history of all processes, and shown in the text of Prometheus."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

import perdure
from perdure import Call, Guard, Store
from perdure.errors import StaleHead
from perdure.telemetry import Metric, StoreMetrics
from perdure.telemetry.metrics import MetricPoint, prometheus_text
from perdure.testing import say, use
from tests.coded import raises
from tests.server.client import serving
from tests.telemetry import scenes


def numbers(metrics: StoreMetrics) -> dict[str, float]:
    """The sum of each metric."""
    return {metric.name: sum(point.value for point in metric.points) for metric in metrics.read()}


def points(metrics: StoreMetrics, name: str) -> list[MetricPoint]:
    """The points of one metric."""
    (found,) = [metric for metric in metrics.read() if metric.name == name]
    return list(found.points)


def test_numbers_begin_when_they_are_first_read(store: Store) -> None:
    """What was there before does not count."""
    scenes.with_tool(store, "before")
    metrics = StoreMetrics(store)

    assert numbers(metrics)["perdure.commits"] == 0


def test_commits_tokens_and_runs_are_counted(store: Store) -> None:
    """Each commit, token and ended run counts once, however often the numbers are read."""
    metrics = StoreMetrics(store)
    metrics.read()

    thread = scenes.with_tool(store)
    metrics.read()
    found = numbers(metrics)

    assert found["perdure.commits"] == len(thread.log())
    assert found["perdure.steps.unpriced"] == 2
    used = {each.attributes["gen_ai.token.type"]: each.value for each in points(metrics, "perdure.tokens")}
    assert used == {"input": 120, "output": 30}
    ended = points(metrics, "perdure.runs.ended")
    assert [(each.attributes, each.value) for each in ended] == [({"perdure.run.status": "succeeded"}, 1)]


def test_commits_of_a_run_that_moves_the_head_at_its_end_count_once(store: Store) -> None:
    """They are on a timeline of their own first, and then on main."""
    metrics = StoreMetrics(store)
    metrics.read()
    thread = store.thread("own", agent=scenes.helper(perdure.testing.say("Hello.")))

    thread.run("Hi", head_policy="on_success")

    assert numbers(metrics)["perdure.commits"] == len(thread.log())


def test_an_undo_counts_nothing(store: Store) -> None:
    """A head that goes back and forth has no new commits."""
    thread = scenes.with_tool(store)
    metrics = StoreMetrics(store)
    metrics.read()

    thread.undo()
    thread.redo()

    assert numbers(metrics)["perdure.commits"] == 0


def test_a_thread_that_is_begun_again_counts_from_its_beginning(store: Store) -> None:
    """A removed thread's place is not that of the new one."""
    scenes.with_tool(store, "twice").rm()
    metrics = StoreMetrics(store)
    metrics.read()
    scenes.with_tool(store, "other").rm()
    thread = scenes.with_tool(store, "twice")

    assert numbers(metrics)["perdure.commits"] == len(thread.log())


def test_guards_switches_and_what_waits_are_counted(store: Store) -> None:
    """A refusal, a switch, a waiting approval."""
    metrics = StoreMetrics(store)
    metrics.read()
    scenes.with_guard(store)
    scenes.with_switch(store)
    waits = scenes.helper(perdure.testing.use("pay", amount=1), tools=[scenes.pay])
    store.thread("waits", agent=waits).run("Pay")

    found = numbers(metrics)

    assert (found["perdure.guard.refusals"], found["perdure.switches"]) == (1, 1)
    assert (found["perdure.approvals.waiting"], found["perdure.runs.waiting"]) == (1, 1)


def stops(metrics: StoreMetrics) -> dict[str, float]:
    """How many calls were stopped, by what was done about them."""
    return {
        each.attributes["perdure.guard.stop"]: each.value for each in points(metrics, "perdure.guard.stops")
    }


@pytest.mark.parametrize(
    ("policy", "expected"), [("ask", {"asked": 1}), ("deny", {"denied": 1}), ("allow", {})]
)
def test_a_call_that_the_repeat_guard_stops_is_counted(
    store: Store, policy: Literal["ask", "deny", "allow"], expected: dict[str, float]
) -> None:
    """Asked about or denied, it counts once; control: where repeats are allowed nothing is stopped."""

    @perdure.tool(effect="external_write", repeat_guard=policy)
    def order(number: int) -> str:
        """Order something."""
        return "ordered"

    twice = scenes.helper(
        use("order", number=1), say("Done."), use("order", number=1), say("Done."), tools=[order]
    )
    thread = store.thread("twice", agent=twice)
    metrics = StoreMetrics(store)
    metrics.read()
    thread.run("Order")
    before = stops(metrics)
    fork = thread.fork("again", at=thread.log()[-1].digest)

    fork.run("Order again")

    assert (before, stops(metrics)) == ({}, expected)


def test_a_call_that_a_person_or_a_guard_of_the_agent_denies_is_no_stop(store: Store) -> None:
    """The first has a ticket, and the second counts as a refusal; control: beyond a fork's effects it is a stop."""

    def no_payment(call: Call) -> str | None:
        return "no payments" if call.arguments == {"amount": 2} else None

    steps = [each for amount in (1, 2, 3) for each in (use("pay", amount=amount), say("Done."))]
    agent = scenes.helper(*steps, tools=[scenes.pay], guards=[Guard("no", arguments=no_payment)])
    thread = store.thread("denied", agent=agent)
    metrics = StoreMetrics(store)
    metrics.read()
    thread.run("Pay")
    thread.decide(thread.approvals()[0].call, "deny", by="ann")
    thread.resume()
    thread.run("Pay")
    found = numbers(metrics)

    assert (stops(metrics), found["perdure.guard.refusals"]) == ({}, 1)
    thread.fork("dry", effect_max="read_only").run("Pay")
    assert stops(metrics) == {"denied": 1}


def test_refused_writes_are_counted(store: Store, tmp_path: Path) -> None:
    """A writer that came too late counts as a conflict of its own opening, and of no other."""
    thread = store.thread("race", agent="helper")
    with (
        perdure.open(tmp_path / "store.db") as other,
        raises(StaleHead, "stale_head"),
        thread.change("mine") as mine,
    ):
        mine.put("/a.json", 1)
        other.thread("race").put("/a.json", 2)

    assert numbers(StoreMetrics(store))["perdure.store.conflicts"] == 1
    assert store.counters() == {"conflicts": 1, "in_doubt": 0}


def test_the_server_shows_the_same_numbers(store: Store) -> None:
    """`/metrics` is the text of the numbers that the program reads, and its own requests."""
    metrics = StoreMetrics(store)
    metrics.read()
    with serving(store, metrics=metrics) as client:
        thread = scenes.with_tool(store)
        text = client.get("/metrics").body.decode()
        again = client.get("/metrics").body.decode()

    shown = dict(re.findall(r"^(perdure_[a-z_]+) ([0-9.e+]+)$", text, re.MULTILINE))
    assert shown["perdure_commits_total"] == str(len(thread.log()))
    assert shown["perdure_approvals_waiting"] == "0"
    assert (
        'perdure_tokens_total{gen_ai_provider_name="script",gen_ai_request_model="test",gen_ai_token_type="input"} 120'
        in text
    )
    assert 'perdure_http_requests_total{method="GET",route="/metrics",status="200"} 1' in again


def test_hostile_names_stay_inside_their_quotes() -> None:
    """A model's name with quotes, backslashes and line ends cannot add a line."""
    hostile = 'a"b\\c\nperdure_fake 1\ud800'
    metric = Metric(
        name="perdure.tokens",
        kind="counter",
        unit="1",
        description="Tokens.",
        points=(MetricPoint(1, {"gen_ai.request.model": hostile}),),
    )

    lines = prometheus_text([metric]).splitlines()

    assert lines[2:] == ['perdure_tokens_total{gen_ai_request_model="a\\"b\\\\c\\nperdure_fake 1?"} 1']


def test_large_numbers_keep_their_digits() -> None:
    """A rate over counters that were rounded to six digits would move in steps."""
    points = tuple(MetricPoint(value, {}) for value in (12_345_678, 12_345_678.0, 0.125))
    metric = Metric(name="perdure.tokens", kind="counter", unit="1", description="Tokens.", points=points)

    lines = prometheus_text([metric]).splitlines()

    assert [line.split()[-1] for line in lines[2:]] == ["12345678", "12345678", "0.125"]

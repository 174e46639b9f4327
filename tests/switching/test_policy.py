"""Policies: what they say to an item of a report, and which of them cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from perdure import Agent, Policy
from perdure.errors import Invalid
from perdure.switching.commit import gated
from perdure.switching.policy import TOPICS, Gate, Mark, Topic
from perdure.switching.report import Item, Report, decode_report, encode_report
from tests.coded import raises


def report(*items: Item) -> Report:
    """A report with these items."""
    return Report(thread="t", timeline="main", from_backend="a:b", to_backend="c:d", items=items)


@pytest.mark.parametrize("topic", TOPICS)
def test_what_is_kept_passes_whatever_a_policy_says(topic: Topic) -> None:
    """Even if it names the topic."""
    assert Policy(block=[topic]).gate(topic, "kept") == "pass"


@pytest.mark.parametrize(
    ("policy", "topic", "mark", "gate"),
    [
        (Policy(), "images", "removed", "warn"),
        (Policy(), "images", "converted", "warn"),
        (Policy(), "tools", "removed", "block"),
        (Policy(), "context", "removed", "block"),
        (Policy(), "context", "converted", "warn"),
        (Policy(warn=["tools"]), "tools", "removed", "warn"),
        (Policy(block=["removed"]), "images", "removed", "block"),
        (Policy(block=["removed"]), "images", "converted", "warn"),
        (Policy(block=["removed"], warn=["images"]), "images", "removed", "warn"),
        (Policy(approve=["removed"], block=["computer_use"]), "computer_use", "removed", "block"),
        (Policy(approve=["converted"], block=["removed"]), "ids", "converted", "approve"),
    ],
)
def test_a_topic_counts_before_a_mark_and_a_mark_before_what_is_usual(
    policy: Policy, topic: Topic, mark: Mark, gate: Gate
) -> None:
    """Without any word about it, only what the conversation cannot do without is blocked."""
    assert policy.gate(topic, mark) == gate


@pytest.mark.parametrize(
    ("wrong", "code", "facts"),
    [
        ({"warn": ["images"], "block": ["images"]}, "policy_contradiction", {"topic": "images"}),
        ({"approve": ["removed"], "block": ["removed"]}, "policy_contradiction", {"topic": "removed"}),
        ({"block": ["converted"]}, "policy_contradiction", {}),
        ({"approve": ["converted"], "warn": ["removed"]}, "policy_contradiction", {}),
        ({"warn": ["unfinished"]}, "policy_contradiction", {"topic": "unfinished"}),
        ({"unfinished": "wait", "wait_seconds": 0}, "policy_contradiction", {}),
        ({"wait_seconds": -1}, "policy_seconds", {}),
        ({"wait_seconds": float("nan")}, "policy_seconds", {}),
        ({"unfinished": "ignore"}, "policy_choice_invalid", {"field": "unfinished"}),
        ({"after_effect": "replay"}, "policy_choice_invalid", {"field": "after_effect"}),
        ({"block": ["imges"]}, "policy_topic_unknown", {"topic": "imges", "near": ("images",)}),
        ({"block": "images"}, "policy_not_a_list", {"field": "block"}),
        ({"block": 3}, "policy_not_a_list", {"field": "block"}),
    ],
)
def test_a_policy_that_cannot_be_is_refused_when_it_is_declared(
    wrong: dict[str, Any], code: str, facts: dict[str, Any]
) -> None:
    """And nothing is declared."""
    with raises(Invalid, code, **facts):
        Policy(**wrong)


def test_a_policy_is_a_plain_value() -> None:
    """Two that say the same are equal and can be keys, however their lists were given."""
    one, other = Policy(block=["images"]), Policy(block=("images",))

    assert one == other
    assert hash(Agent("a", policy=one)) == hash(Agent("a", policy=other))


def test_what_is_no_policy_is_refused_by_the_agent() -> None:
    """By name."""
    with raises(Invalid, "agent_field_invalid", agent="a", field="policy"):
        Agent("a", policy={"block": ["images"]})  # pyright: ignore[reportArgumentType]


def test_a_report_is_blocked_by_one_item_and_says_what_to_change() -> None:
    """The sentence names the item, and the way out."""
    item = Item(topic="images", mark="removed", says="Image input unavailable")

    told = gated(report(item), Policy(block=["removed"]))

    assert (told.outcome, told.ok) == ("blocked", False)
    assert str(told).startswith(
        "c:d does not take over 't': ✗ Image input unavailable. Choose another backend"
    )


def test_an_approval_lets_pass_what_needs_one_and_nothing_more() -> None:
    """What is blocked stays blocked, whoever says otherwise."""
    items = (
        Item(topic="images", mark="removed", says="Image input unavailable"),
        Item(topic="ids", mark="converted", says="Tool call ids differ"),
    )
    by_ann = Report(
        thread="t", timeline="main", from_backend=None, to_backend="c:d", items=items, approved_by="ann"
    )

    assert gated(report(*items), Policy(approve=["images"])).outcome == "approval"
    assert gated(by_ann, Policy(approve=["images"])).outcome == "allowed"
    assert gated(by_ann, Policy(approve=["ids"], block=["images"])).outcome == "blocked"


def test_a_report_comes_back_as_it_was() -> None:
    """From its canonical bytes; the checkpoint is an object of its own."""
    item = Item(
        topic="images", mark="converted", says="…", fallback="transformed", why="because", gate="warn"
    )
    first = Report(
        thread="t",
        timeline="main",
        from_backend=None,
        to_backend="c:d",
        items=(item,),
        notes=("one",),
        approved_by="ann",
        reason="why not",
    )

    assert decode_report(encode_report(first)) == first


def test_a_policy_may_be_given_by_an_iterator() -> None:
    """What it blocks is kept, and not used up by looking at it."""
    policy = Policy(block=(each for each in ["removed"]))  # pyright: ignore[reportArgumentType]

    assert policy.gate("images", "removed") == "block"

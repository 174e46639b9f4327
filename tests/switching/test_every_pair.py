"""Recorded conversations, switched at every turn boundary to a backend of every other wire format.

The next request is valid for the target, the five layers are what they were, every loss is listed,
and nothing is raised.  `PERDURE_DEEP=1` takes all conversations and turns; otherwise one conversation of each pair, and every
second turn of it: the first, the third, … of one pair, the second, the fourth, … of the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Backend, Store, Thread
from perdure.errors import Invalid
from perdure.model.event import BackendSwitched, CheckpointCreated
from perdure.providers.contract import Rendered
from perdure.providers.validator import check
from tests.recorded.audit import silent
from tests.recorded.oracles import oracle
from tests.recorded.pairs import DEEP
from tests.recorded.wire import FOLDER
from tests.switching.talks import BACKENDS, PAIRS, Talk, agent_of, talks

pytestmark = pytest.mark.skipif(
    not (FOLDER / "facts.jsonl.gz").exists(), reason="the recorded traffic is not there"
)
TALKS = 1  # of each pair, where it is not a deep run

_names = count()


@pytest.fixture
def store() -> Iterator[Store]:
    """A store in memory."""
    with perdure.open("memory:") as opened:
        yield opened


def boundaries(store: Store, talk: Talk) -> Iterator[Thread]:
    """The thread of a conversation, after each of its turns."""
    thread = store.thread(f"{talk.id}-{next(_names)}", agent=agent_of(talk))
    for turn in talk.turns:
        thread.add(list(turn), api=talk.api)
        yield thread
    if talk.answer is not None:
        try:
            thread.add(talk.answer, api=talk.api)
        except Invalid:
            return  # an answer that holds no message
        yield thread


def faults(thread: Thread, target: str) -> list[str]:
    """What is wrong with a switch to a backend of that format, here and now; it is taken back afterwards."""
    to = Backend(BACKENDS[target])
    before, head = thread.layers().layers(), thread.head
    report = thread.switch(to, approved_by="Ann")
    found = [
        f"layer {name} differs" for name, body in thread.layers().layers().items() if before[name] != body
    ]
    events = {type(event) for event in thread.log(limit=1)[0].events}
    if events != {CheckpointCreated, BackendSwitched}:
        found.append(f"the commit holds {events}")
    with thread.change("the next input") as change:
        change.say("user", "And then?")
    made = thread.render(to)
    found += [f"{fault.rule}: {fault}" for fault in _broken(made, to, target)]
    found += _unlisted(thread, to, made, report)
    thread.undo(to=head)
    if thread.layers().layers() != before:
        found.append("an undo does not bring everything back")
    return found


def _broken(made: Rendered, to: Backend, target: str) -> list[Any]:
    """Rules of the target's API that the next request breaks."""
    model = to.target.model
    return [fault for fault in check(made.body, target, model=model) if fault.level == "error"]


def _unlisted(thread: Thread, to: Backend, made: Rendered, report: perdure.Report) -> list[str]:
    """What the next request does not hold and no loss accounts for; and losses that the report does not have."""
    context = thread.plan(to).context
    absent = [f"lost in silence: {where}" for where in silent(context, made)]
    typed = [f"not of the SDK's types: {fault}" for fault in oracle(to.target.api)(made.body)]
    listed = {(loss.kind, loss.what) for loss in report.losses}
    unlisted = [f"not in the report: {loss}" for loss in made.losses if (loss.kind, loss.what) not in listed]
    return [*absent, *typed, *unlisted]


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_conversation_is_carried_over_at_every_turn(store: Store, source: str, target: str) -> None:
    """Whatever it holds: tools, parallel tools, images, reasoning, server tools, errors."""
    number = PAIRS.index((source, target))
    every = talks(source)
    chosen = every if DEEP else [every[(number * 7 + at * 31) % len(every)] for at in range(TALKS)]

    found = [
        (talk.id, at, fault)
        for talk in chosen
        for at, thread in enumerate(boundaries(store, talk))
        if DEEP or (number + at) % 2 == 0
        for fault in faults(thread, target)
    ]

    assert chosen
    assert found == []


def test_every_pair_is_tried() -> None:
    """Each recorded format with each other one, and each has conversations of several turns."""
    assert len(PAIRS) == 8 * 9 - 8
    assert all(len(talks(source)) > 1 for source, _ in PAIRS)


def test_a_switch_that_changed_a_layer_would_be_found(store: Store) -> None:
    """Control: state written with the switch shows in the layers."""
    talk = talks("anthropic-messages")[0]
    thread = next(boundaries(store, talk))
    before = thread.layers().layers()

    thread.put("/task/goal.json", "something else")

    after = thread.layers().layers()
    assert [name for name in before if before[name] != after[name]] == ["working"]


def test_a_request_of_the_old_format_would_be_found(store: Store) -> None:
    """Control: what one vendor takes another's rules refuse."""
    talk = talks("anthropic-messages")[0]
    thread = next(boundaries(store, talk))

    body = thread.render(Backend(BACKENDS["anthropic-messages"])).body

    assert [
        fault for fault in check(body, "gemini-generate", model="gemini-2.5-flash") if fault.level == "error"
    ]
    assert oracle("gemini-generate")(body)


def test_losses_that_are_not_reported_would_be_found(store: Store) -> None:
    """Control: with an empty report something is missing in most conversations."""
    missing = 0
    for talk in talks("openai-responses")[:10]:
        *_, thread = boundaries(store, talk)
        to = Backend(BACKENDS["mistral-chat"])
        report = thread.switch(to, approved_by="Ann")
        missing += bool(_unlisted(thread, to, thread.render(to), msgspec.structs.replace(report, losses=())))

    assert missing > 2

"""Spans are made from the history: the expected tree, the links, and ids that stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Store
from perdure.model.call import SETTLED
from perdure.telemetry import SpanLink, thread_spans
from perdure.telemetry.spans import Content
from perdure.testing import Script, say, use
from tests.telemetry import scenes
from tests.telemetry.scenes import SECRET, all_spans, named, tree


@perdure.tool(effect="read_only")
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return "sunny"


def test_a_run_has_its_steps_and_its_call_below_it(store: Store) -> None:
    """A run with a tool is a run, two steps, a call, and its attempt."""
    assert tree(thread_spans(scenes.with_tool(store))) == [
        "invoke_agent helper",
        "  chat test",
        "  execute_tool look",
        "    attempt look",
        "  chat test",
    ]


def test_a_run_says_whose_it_is_and_what_it_used(store: Store) -> None:
    """The conversation is the thread; tokens are those of its steps."""
    (run,) = named(thread_spans(scenes.with_tool(store)), "invoke_agent helper")

    found = {key: value for key, value in run.attributes.items() if key.startswith("gen_ai.")}

    assert found == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "tool",
        "gen_ai.provider.name": "script",
        "gen_ai.request.model": "test",
        "gen_ai.usage.input_tokens": 120,
        "gen_ai.usage.output_tokens": 30,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.reasoning.output_tokens": 5,
    }


def test_spans_lie_within_their_parents(store: Store) -> None:
    """No step, call or attempt begins before its parent or ends after it."""
    spans = {span.ref: span for span in thread_spans(scenes.with_approval(store))}

    parents = [(span, spans[span.parent]) for span in spans.values() if span.parent]

    assert len(parents) == 5
    assert all(up.start <= span.start <= span.end <= up.end for span, up in parents)


def test_attempts_are_linked_to_those_before(store: Store) -> None:
    """A call that was attempted three times has three attempts; the first two failed."""
    attempts = named(thread_spans(scenes.with_retries(store)), "attempt fetch")

    assert [each.attributes["perdure.attempt"] for each in attempts] == [1, 2, 3]
    assert [each.is_error for each in attempts] == [True, True, False]
    assert [[(link.to, link.relation) for link in each.links] for each in attempts] == [
        [],
        [(attempts[0].ref, "retry")],
        [(attempts[1].ref, "retry")],
    ]


def test_a_retried_run_is_a_second_span_of_its_trace(store: Store) -> None:
    """The failed start stays as it was, and the second is linked to it."""
    first, second = named(thread_spans(scenes.with_retried_run(store)), "invoke_agent helper")

    assert (first.is_error, second.is_error) == (True, False)
    assert first.ref.trace == second.ref.trace
    assert (first.links, second.links) == ((), (SpanLink(first.ref, "retry"),))


def test_the_first_run_of_a_fork_is_linked_to_the_run_before(store: Store) -> None:
    """The link leads to the run at whose end the fork began; a run on the same timeline has none."""
    first, second, forked = named(thread_spans(scenes.with_fork(store)), "invoke_agent helper")

    assert len({span.ref.trace for span in (first, second, forked)}) == 3
    assert (first.links, second.links) == ((), ())
    assert forked.links == (SpanLink(first.ref, "fork"),)
    assert forked.attributes["perdure.timeline"] == "what-if"


def test_the_run_after_a_switch_is_linked_to_the_run_before(store: Store) -> None:
    """The link says that a switch was between them."""
    first, second = named(thread_spans(scenes.with_switch(store)), "invoke_agent helper")

    assert second.links == (SpanLink(first.ref, "switch"),)
    assert second.attributes["gen_ai.request.model"] == "other"


def test_an_approval_lies_between_question_and_decision(store: Store) -> None:
    """It is a part of its call, beside the attempt."""
    spans = thread_spans(scenes.with_approval(store))

    assert tree(spans) == [
        "invoke_agent helper",
        "  chat test",
        "  execute_tool pay",
        "    approval pay",
        "    attempt pay",
        "  chat test",
    ]
    (approval,), (attempt,) = named(spans, "approval pay"), named(spans, "attempt pay")
    assert approval.attributes["perdure.approval.decision"] == "approve"
    assert approval.end <= attempt.start


def test_what_waits_has_no_span_yet(store: Store) -> None:
    """A run that waits for a person has its first step alone; the rest comes with the decision."""
    agent = scenes.helper(perdure.testing.use("pay", amount=1), tools=[scenes.pay])
    thread = store.thread("waits", agent=agent)
    thread.run("Pay")

    assert [span.name for span in thread_spans(thread)] == ["chat test"]


def test_a_child_run_is_below_the_call_that_started_it(store: Store) -> None:
    """Its thread is another conversation of the same trace."""
    scenes.with_child(store)
    spans = all_spans(store)

    assert tree(spans) == [
        "invoke_agent helper",
        "  chat test",
        "  execute_tool delegate",
        "    attempt delegate",
        "    invoke_agent child",
        "      chat test",
        "      execute_tool look",
        "        attempt look",
        "      chat test",
        "  chat test",
    ]
    assert len({span.ref.trace for span in spans}) == 1


def test_memory_that_a_call_wrote_is_below_the_call(store: Store) -> None:
    """The span names the item, and not what it says."""
    spans = thread_spans(scenes.with_memory(store))

    (call,), (written,) = named(spans, "execute_tool note"), named(spans, "memory write")

    assert written.parent == call.ref
    assert SECRET not in str(written.attributes)


def test_a_refusal_of_a_guard_is_an_event_of_its_run(store: Store) -> None:
    """The event names the guard, and not what it refused."""
    (run,) = thread_spans(scenes.with_guard(store))

    (refused,) = run.events

    assert (refused.name, refused.attributes) == (
        "perdure.guard.refused",
        {"perdure.guard.name": "no", "perdure.guard.subject": "input"},
    )


def test_a_call_by_hand_has_a_trace_of_its_own(store: Store) -> None:
    """A call that no run requested is the first of its trace."""
    thread = store.thread("hand", agent="somebody")
    thread.call(scenes.look, {"at": "home"}, id="by-hand")

    assert tree(thread_spans(thread)) == ["execute_tool look", "  attempt look"]


KILLED = """
import os, signal, sys
import perdure
from perdure.testing import Script, say, use

@perdure.tool(effect="external_write")
def send(to: str) -> str:
    os.kill(os.getpid(), signal.SIGKILL)
    return "sent"

agent = perdure.Agent("helper", backend=Script(use("send", to="ann"), say("Unsure.")), tools=[send])
perdure.open(sys.argv[1]).thread("killed", agent=agent).run("Send")
"""


def test_a_call_of_unknown_outcome_ends_with_its_run_and_is_resolved_later(tmp_path: Path) -> None:
    """The call and its attempt are errors; what a person found out is a span of its own, and changes neither."""
    place = tmp_path / "killed.db"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(place)], env=environment, capture_output=True, check=False
    )
    assert ended.returncode == -9, ended.stderr

    @perdure.tool(effect="external_write")
    def send(to: str) -> str:
        return "sent"

    with perdure.open(place) as store:
        script = perdure.testing.Script(
            perdure.testing.use("send", to="ann"), perdure.testing.say("It is not known.")
        )
        thread = store.thread("killed", agent=perdure.Agent("helper", backend=script, tools=[send]))
        thread.resume()
        (call,) = thread.calls()
        before = thread_spans(thread)
        thread.resolve(call.id, "done", by="bob")
        after = thread_spans(thread)

    (span,), (attempt,) = named(before, "execute_tool send"), named(before, "attempt send")
    assert span.is_error
    assert attempt.is_error
    assert attempt.attributes["error.type"] == "unknown"
    assert [each for each in after if each.name != "resolution send"] == before
    (resolution,) = named(after, "resolution send")
    assert resolution.parent == span.ref
    assert resolution.attributes["perdure.call.state"] in SETTLED


def test_the_same_history_gives_the_same_spans(store: Store) -> None:
    """Twice, after an undo, and from a copy of the store: every span is equal, and no id occurs twice."""
    for scene in scenes.SCENES:
        scene(store)
    first = all_spans(store)

    store.thread("fork").undo()
    with perdure.open("memory:") as other:
        store.copy_to(other)
        copied = all_spans(other)

    assert len(first) == len({span.ref for span in first}) > 30
    assert all_spans(store) == first
    assert copied == first


def test_another_run_has_other_ids(store: Store) -> None:
    """Control: the same words in another thread are other spans."""
    one = {span.ref for span in thread_spans(scenes.with_tool(store, "one"))}
    other = {span.ref for span in thread_spans(scenes.with_tool(store, "other"))}

    assert len(one) == len(other) == 5
    assert one & other == set()


@pytest.mark.parametrize("content", ["none", "references"])
def test_no_content_leaves_without_being_asked_for(store: Store, content: Content) -> None:
    """Neither texts nor arguments nor results nor reasons of guards are in a span."""
    for scene in scenes.SCENES:
        scene(store)

    spans = [span for thread in store.threads() for span in thread_spans(thread, content=content)]

    assert len(spans) > 30
    assert SECRET.encode() not in msgspec.json.encode(spans)


@pytest.mark.parametrize(
    ("content", "called"), [("none", "unknown"), ("references", "unknown"), ("text", "her PIN is 7")]
)
def test_a_name_that_no_tool_has_is_content(store: Store, content: Content, called: str) -> None:
    """The model made it up; control: the name of a tool that refused its arguments is that of the program."""
    script = Script(use("her PIN is 7"), use("weather", town="Oslo"), say("Done."))
    thread = store.thread("t", agent=perdure.Agent("a", backend=script, tools=[weather]))
    thread.run("go")

    spans = [span for span in thread_spans(thread, content=content) if span.name.startswith("execute_tool")]

    assert [span.name for span in spans] == [f"execute_tool {called}", "execute_tool weather"]
    assert [span.attributes["gen_ai.tool.name"] for span in spans] == [called, "weather"]


def test_people_are_named_only_if_content_is_asked_for(store: Store) -> None:
    """The owner and the person who decided are not in a span by default."""
    scenes.with_memory(store)
    thread = scenes.with_approval(store)

    people = [
        [
            value
            for each in (store.thread("memory"), thread)
            for span in thread_spans(each, content=content)
            for key, value in span.attributes.items()
            if key in ("user.id", "perdure.approval.by")
        ]
        for content in ("none", "references")
    ]

    assert people[0] == []
    assert set(people[1]) == {"ann", "bob"}


def test_references_lead_to_the_content(store: Store) -> None:
    """Each digest is that of an object of the thread."""
    thread = scenes.with_tool(store)
    spans = thread_spans(thread, content="references")

    digests = [
        digest
        for span in spans
        for key, value in span.attributes.items()
        if key.endswith((".digest", ".digests"))
        for digest in (value if isinstance(value, tuple) else [str(value)])
    ]

    assert len(digests) >= 6
    assert all(thread.stored(digest).body for digest in digests)


def test_text_is_written_as_the_convention_says(store: Store) -> None:
    """Asked for, a step has its message, and a call its arguments and its result."""
    spans = thread_spans(scenes.with_tool(store), content="text")

    (run,), (call,) = named(spans, "invoke_agent helper"), named(spans, "execute_tool look")

    inputs = msgspec.json.decode(str(run.attributes["gen_ai.input.messages"]))
    assert inputs == [{"role": "user", "parts": [{"type": "text", "content": f"Look, {SECRET}"}]}]
    assert msgspec.json.decode(str(call.attributes["gen_ai.tool.call.arguments"])) == {"at": "home"}
    assert SECRET in str(call.attributes["gen_ai.tool.call.result"])

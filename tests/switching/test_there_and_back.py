"""A → B → A and A → B → C → A leave the canonical state as it was, and A gets back what only A can read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perdure
from perdure import Agent, Backend, Message, Store, Text, Thread
from perdure.providers.registry import APIS
from perdure.testing import Script, say, use
from tests.recorded.owned import opaque, opaque_of
from tests.recorded.pairs import DEEP
from tests.recorded.wire import FOLDER
from tests.switching.scenes import Counting
from tests.switching.talks import BACKENDS, Talk, agent_of, talks
from tests.switching.test_every_pair import boundaries

A, B, C = "openai:gpt-5.6", "anthropic:claude-sonnet-5-5", "google:gemini-2.5-pro"
recorded = pytest.mark.skipif(
    not (FOLDER / "facts.jsonl.gz").exists(), reason="the recorded traffic is not there"
)
OWNED = ("openai-responses", "anthropic-messages", "gemini-generate")
SEVERAL = 3  # conversations of each format, where it is not a deep run


@pytest.fixture
def memory() -> Iterator[Store]:
    """A store in memory."""
    with perdure.open("memory:") as opened:
        yield opened


def worked(store: Store) -> Thread:
    """A thread with a payment, some state and an approval that waits."""
    world = Counting()
    first = Script(use("pay", to="ann"), say("Paid."), use("pay", to="ben"), backend=A)
    thread = store.thread("rent", agent=Agent("payer", backend=first, tools=[world.tool()]), owner="ann")
    thread.put("/task/goal.json", "Pay the rent")
    thread.put("/task/decisions.json", ["Ann first"])
    thread.run("Pay Ann")
    return thread


@pytest.mark.parametrize("trip", [(B, A), (B, C, A)], ids=["A-B-A", "A-B-C-A"])
def test_a_trip_changes_none_of_the_five_layers(store: Store, trip: tuple[str, ...]) -> None:
    """At every stop, and at home again, each layer has the same bytes."""
    thread = worked(store)
    before = thread.layers().layers()

    for stop in trip:
        thread.switch(Script(backend=stop))
        assert thread.layers().layers() == before

    assert thread.backend == A
    assert [each.checkpoint.to_backend for each in thread.checkpoints()] == list(reversed(trip))
    assert store.verify().ok


def test_something_said_on_the_way_would_show(store: Store) -> None:
    """Control: a turn at B changes what was said, and nothing else."""
    thread = worked(store)
    before = thread.layers().layers()

    thread.switch(Script(say("Hello from B."), backend=B))
    thread.run("Hello")

    after = thread.layers().layers()
    assert [name for name in before if before[name] != after[name]] == ["transcript"]


def test_who_comes_home_hears_what_was_said_abroad(store: Store) -> None:
    """The conversation is one, whoever spoke; each message says who."""
    thread = store.thread("talk", agent=Agent("a", backend=Script(say("I am A."), backend=A)))
    home = Script(say("B told you."), backend=A)
    thread.run("Who are you?")
    thread.switch(Script(say("I am B."), backend=B))
    thread.run("Who are you?")

    thread.switch(home)
    thread.run("Who was that?")

    shown = [message.text for message in home.contexts[0].messages]
    assert [text for text in shown if text.startswith("I am")] == ["I am A.", "I am B."]
    speakers = [f"{each.provider}:{each.model}" for each in thread.transcript() if each.role == "assistant"]
    assert speakers == [A, B, A]


def owned(source: str) -> list[Talk]:
    """Conversations that hold something that only its issuer can read."""
    found = [talk for talk in talks(source) if opaque([list(turn) for turn in talk.turns])]
    return found if DEEP else found[:: max(1, len(found) // (2 * SEVERAL))]


def own(talk: Talk, thread: Thread) -> set[str]:
    """What only its issuer can read, in what is shown of a conversation."""
    shown = thread.plan(Backend(BACKENDS[talk.api])).history
    return {token for message in shown for token in opaque_of(message)}


@recorded
@pytest.mark.parametrize("source", OWNED)
def test_what_only_the_first_can_read_is_back_with_it(memory: Store, source: str) -> None:
    """Every signature and sealed thought, byte for byte; abroad nobody is shown any of it."""
    elsewhere = [Backend(BACKENDS[api]) for api in ("mistral-chat", "azure-inference-chat")]
    found = 0
    for talk in owned(source):
        *_, thread = boundaries(memory, talk)
        home, tokens = Backend(BACKENDS[talk.api]), own(talk, thread)
        sent = opaque(thread.render(home).body)

        for stop in elsewhere:
            thread.switch(stop, approved_by="Ann")
            assert (talk.id, opaque(thread.render(stop).body) & tokens) == (talk.id, set())
        thread.switch(home, approved_by="Ann")

        back = opaque(thread.render(home).body)
        assert (talk.id, (tokens & sent) - back) == (talk.id, set())
        found += bool(tokens & sent)

    assert found >= SEVERAL


@recorded
@pytest.mark.parametrize("source", APIS)
def test_recorded_conversations_are_the_same_after_a_trip(memory: Store, source: str) -> None:
    """To two others and home again, whatever they hold."""
    others = [api for api in APIS if api != source][:2]
    trip = [Backend(BACKENDS[api]) for api in (*others, source)]
    every = talks(source)
    for talk in every if DEEP else every[:: max(1, len(every) // 2)]:
        *_, thread = boundaries(memory, talk)
        before = thread.layers().layers()

        for stop in trip:
            thread.switch(stop, approved_by="Ann")
            assert (talk.id, thread.layers().layers()) == (talk.id, before)


def test_a_trip_and_its_undos_are_all_in_the_log(store: Store) -> None:
    """Undone switch by switch, the line is where it was; redone, it is where it went."""
    thread = worked(store)
    head = thread.head
    for stop in (B, C, A):
        thread.switch(Script(backend=stop))

    back = [thread.backend] + [(thread.undo(), thread.backend)[1] for _ in range(3)]

    assert back == [A, C, B, A]
    assert thread.head.commit == head.commit
    thread.redo()
    assert thread.backend == B


def test_a_fork_has_the_backend_of_the_moment_it_was_forked_at(store: Store) -> None:
    """And is switched without the other line."""
    thread = worked(store)
    moment = thread.head
    thread.switch(Script(backend=B))

    fork = thread.fork("what-if", at=moment)
    fork.switch(Script(backend=C))

    assert (thread.backend, fork.backend) == (B, C)


def test_words_are_all_there_after_the_trip(store: Store) -> None:
    """Nothing that a user said is missing from what A is shown at home."""
    thread = store.thread("talk", agent=Agent("a", backend=Script(*map(say, "abc"), backend=A)))
    for number in range(3):
        thread.run(Message("user", (Text(f"Remember {number}."),)))
    home = Script(say("All of it."), backend=A)

    thread.switch(Script(backend=B))
    thread.switch(home)
    thread.run("What do you remember?")

    shown = "\n".join(message.text for message in home.contexts[0].messages)
    assert all(f"Remember {number}." in shown for number in range(3))


@recorded
def test_without_what_was_kept_beside_them_nothing_is_back(memory: Store) -> None:
    """Control: the same conversations, stripped of what only their issuer can read, bring none of it home."""
    missing = 0
    for talk in owned("openai-responses"):
        *_, thread = boundaries(memory, talk)
        tokens = own(talk, thread)
        bare = memory.thread(f"{talk.id}-bare", agent=agent_of(talk))
        with bare.change("the same, stripped") as change:
            for entry in thread.transcript():
                words = entry.message
                change.add(Message(words.role, words.content, words.tool_calls, words.tool_results))

        missing += bool(tokens - opaque(bare.render(Backend(BACKENDS[talk.api])).body))

    assert missing >= SEVERAL

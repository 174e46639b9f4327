"""The conversation store of pydantic-ai: it answers as pydantic-ai's own, and the thread is the conversation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryImage, ModelRequest, UserPromptPart
from pydantic_ai.models.test import TestModel

import perdure
from perdure.errors import Conflict, Corrupt, NotFound, Unavailable
from perdure.integrations.pydantic_ai import Conversations
from tests.coded import raises
from tests.crash.campaign import sized
from tests.integrations.pydantic_conversations import Diverged, SideBySide, answer, message_of, question

IDS = ("a", "b", "c", "~" + "x" * 300, "a/b|ü")


class Course:
    """One random course of saves, branches, forks and deletes on both stores."""

    def __init__(self, store: ConversationStore, seed: int) -> None:
        """Choose everything by a seed."""
        self.store, self.random = SideBySide(store), random.Random(seed)
        self.held: list[Conversation] = []  # as they were loaded or saved, some of them stale
        self.entries: list[str] = []
        self.made = 0

    async def run(self, steps: int) -> None:
        """Take some steps, and compare everything at the end."""
        acts = [self.save, self.save, self.save, self.rewrite, self.branch, self.fork, self.delete, self.load]
        for _ in range(steps):
            with suppress(ConversationConflict, UserError):  # if both stores refuse it
                await self.random.choice(acts)()
        await self.compare()

    def messages(self) -> list[Any]:
        """Up to three new messages."""
        count = self.random.choice((0, 1, 1, 2, 3))
        self.made += count
        return [message_of(self.random.randrange(80)) for _ in range(count)]

    def some(self) -> Conversation:
        """A conversation that is held, or a new one."""
        if not self.held or self.random.random() < 0.2:
            id = self.random.choice(IDS)
            return Conversation(conversation_id=id, messages=[])
        return self.random.choice(self.held[-4:])

    async def save(self) -> None:
        """Add messages to a conversation and save it."""
        chosen = self.some()
        chosen.messages = [*chosen.messages, *self.messages()]
        scope = self.random.choice((None, None, "s"))
        new = await self.store.save(chosen, scope=scope)
        self.entries += [each.id for each in new]
        self.held.append(chosen)

    async def rewrite(self) -> None:
        """Save a conversation whose history was changed."""
        chosen = self.some()
        keep = self.random.randrange(len(chosen.messages) + 1)
        chosen.messages = [*chosen.messages[:keep], *self.messages()]
        chosen.new_message_index = None
        self.entries += [each.id for each in await self.store.save(chosen)]
        self.held.append(chosen)

    async def branch(self) -> None:
        """Take a conversation back, or over to a branch that it left."""
        chosen = self.some()
        where: dict[str, Any] = {"at": self.random.randrange(len(chosen.messages) + 1)}
        if self.entries and self.random.random() < 0.5:
            where = {"from_entry": self.random.choice(self.entries)}
        self.held.append(
            await self.store.branch(chosen.conversation_id, expected_revision=chosen.revision, **where)
        )

    async def fork(self) -> None:
        """Begin a conversation from another one's history."""
        chosen = self.some()
        where: dict[str, Any] = {}
        if self.random.random() < 0.5:
            where = {"at": self.random.randrange(len(chosen.messages) + 1)}
        elif self.entries and self.random.random() < 0.5:
            where = {"from_entry": self.random.choice(self.entries)}
        self.held.append(
            await self.store.fork(
                chosen.conversation_id, new_conversation_id=self.random.choice(IDS), **where
            )
        )

    async def delete(self) -> None:
        """Delete a conversation."""
        await self.store.delete(self.random.choice(IDS), scope=self.random.choice((None, None, "s")))

    async def load(self) -> None:
        """Load a conversation, perhaps its end only."""
        found = await self.store.load(
            self.random.choice(IDS), limit=self.random.choice((None, None, 0, 1, 3))
        )
        if found is not None:
            self.held.append(found)

    async def compare(self) -> None:
        """Compare every conversation, every listing and every entry that there ever was."""
        for id in IDS:
            await self.store.load(id)
        for scope in (None, "s"):
            await self.store.read_records(scope=scope)
            await self.store.read_records(scope=scope, limit=2)
        for entry in self.entries:
            with suppress(KeyError):  # if both have none
                await self.store.read_entry(entry)


def take_course(seed: int, kind: Callable[[perdure.Store], ConversationStore] = Conversations) -> int:
    """Take a course on a store in memory; return how many answers were compared."""
    with perdure.open("memory:") as store:
        course = Course(kind(store), seed)
        asyncio.run(course.run(14))
        assert store.verify().ok
        return course.store.compared


@given(st.integers(0, 2**32))
@settings(
    max_examples=sized(20, 10_000),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_any_course_of_saves_forks_and_deletes_is_as_with_its_own_store(seed: int) -> None:
    """Every answer and every refusal is the same, whatever is saved, branched, forked and deleted."""
    assert take_course(seed) > 0


def test_a_store_whose_entries_go_with_their_conversation_is_found_out() -> None:
    """The control: a delete that removes the thread takes the entries of forks away."""

    class Forgetful(Conversations):
        def _clear(self, found: Any) -> None:
            found.line.rm(force=True)
            self._threads.forget(found.record.conversation_id)

    with pytest.raises((Diverged, NotFound)):
        for seed in range(40):
            take_course(seed, Forgetful)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    """A store."""
    with perdure.open(tmp_path / "agents.db") as opened:
        yield opened
        assert opened.verify().ok


def run(work: Any) -> Any:
    """Run a coroutine."""
    return asyncio.run(work)


def begun(store: perdure.Store, *texts: str, id: str = "t") -> Conversation:
    """Save a conversation with a question and an answer for each text."""
    messages = [each for text in texts for each in (question(text), answer(f"re: {text}"))]
    conversation = Conversation(conversation_id=id, messages=messages)
    run(Conversations(store).save(conversation))
    return conversation


def texts(thread: perdure.Thread) -> list[str]:
    """What the transcript says."""
    return [entry.text for entry in thread.transcript()]


def test_a_conversation_is_a_thread(store: perdure.Store) -> None:
    """Its messages are the transcript, a save is one commit, and an entry is a moment."""
    conversation = begun(store, "one")
    conversation.messages += [question("two"), answer("re: two")]
    entries = run(Conversations(store).save(conversation))
    thread = store.thread("t")

    assert texts(thread) == ["one", "re: one", "two", "re: two"]
    assert len(thread.log()) == 2
    assert len(thread.at(f"pydantic-ai:{entries[0].id}").transcript()) == 4
    assert thread.transcript()[1].model == "m"


def test_an_agent_goes_on_with_what_was_saved(store: perdure.Store) -> None:
    """In another process, as it were: nothing is remembered but what is stored."""
    agent = Agent(TestModel(custom_output_text="hello"))
    first = run(agent.run("hi", conversation_id="t"))
    run(Conversations(store).save(first))
    loaded = run(Conversations(store).load("t"))
    second = run(agent.run("more", conversation=loaded))
    run(Conversations(store).save(second))

    assert texts(store.thread("t")) == ["hi", "hello", "more", "hello"]
    assert run(Conversations(store).load("t")).messages == second.all_messages()


def test_a_save_that_was_overtaken_is_a_conflict(store: perdure.Store) -> None:
    """Of two that loaded the same conversation the second one is refused, and nothing of it is written."""
    begun(store, "one")
    mine, theirs = (run(Conversations(store).load("t")) for _ in range(2))
    mine.messages.append(question("mine"))
    theirs.messages.append(question("theirs"))
    run(Conversations(store).save(theirs))
    with pytest.raises(ConversationConflict):
        run(Conversations(store).save(mine))

    assert texts(store.thread("t"))[-1] == "theirs"


def test_many_writers_lose_nothing(store: perdure.Store) -> None:
    """Eight at once, each until it is through: every message is there once."""
    begun(store, "one")

    async def write(number: int) -> None:
        conversations = Conversations(store)
        while True:
            found = await conversations.load("t")
            assert found is not None
            found.messages.append(question(f"from {number}"))
            with suppress(ConversationConflict):
                await conversations.save(found)
                return

    async def main() -> None:
        await asyncio.gather(*(write(number) for number in range(8)))

    run(main())
    assert sorted(texts(store.thread("t"))[2:]) == [f"from {number}" for number in range(8)]


def test_going_back_takes_messages_back_and_says_them_again(store: perdure.Store) -> None:
    """The transcript is the history of the head, and state that others wrote stays."""
    conversation, conversations = begun(store, "one", "two"), Conversations(store)
    store.thread("t").put("/notes.json", "mine")
    last = run(conversations.load_entries("t"))[-1].id
    shorter = run(conversations.branch("t", at=2, expected_revision=conversation.revision))
    after_branch = texts(store.thread("t"))
    run(conversations.branch("t", from_entry=last, expected_revision=shorter.revision))

    assert after_branch == ["one", "re: one"]
    assert texts(store.thread("t")) == ["one", "re: one", "two", "re: two"]
    assert store.thread("t").get("/notes.json") == "mine"


def test_a_fork_is_a_timeline_and_outlives_the_first(store: perdure.Store) -> None:
    """Nothing is copied; after the first is deleted, the fork and its entries are still there, and the rest is not."""
    begun(store, "one", "two")
    conversations = Conversations(store)
    entries = run(conversations.load_entries("t"))
    run(conversations.fork("t", at=2, new_conversation_id="f"))
    line = conversations.thread("f")
    run(conversations.delete("t"))
    fresh = Conversations(store)

    assert (line.id, texts(line)) == ("t", ["one", "re: one"])
    assert run(fresh.load("t")) is None
    assert [each.message for each in run(fresh.load_entries("f"))] == [each.message for each in entries[:2]]
    assert run(Conversations(store).read_entry(entries[0].id)) == entries[0]
    with pytest.raises(KeyError):
        run(Conversations(store).read_entry(entries[3].id))


def test_a_deleted_conversation_can_begin_again(store: perdure.Store) -> None:
    """With an empty history; what was there is freed by gc, and the rest verifies."""
    begun(store, "secret")
    run(Conversations(store).delete("t"))
    begun(store, "new")

    assert texts(store.thread("t")) == ["new", "re: new"]


def test_of_two_that_begin_the_same_id_one_is_refused(store: perdure.Store) -> None:
    """A fork and a new conversation too."""
    begun(store, "one")
    begun(store, "two", id="f")
    with pytest.raises(ConversationConflict):
        run(Conversations(store).fork("t", new_conversation_id="f"))

    assert texts(Conversations(store).thread("f")) == ["two", "re: two"]


def test_what_others_said_in_the_thread_is_part_of_the_conversation(store: perdure.Store) -> None:
    """And a save that has not read it is a conflict."""
    stale = begun(store, "one")
    with store.thread("t").change("by hand") as change:
        change.say("user", "two")
        change.say("assistant", "re: two", tool_calls=[perdure.ToolCall("c", "pay", "{}")])
    stale.messages.append(question("three"))
    with pytest.raises(ConversationConflict):
        run(Conversations(store).save(stale))
    loaded = run(Conversations(store).load("t"))
    loaded.messages.append(question("three"))
    run(Conversations(store).save(loaded))

    assert [type(each).__name__ for each in loaded.messages[2:]] == [
        "ModelRequest",
        "ModelResponse",
        "ModelRequest",
    ]
    assert texts(store.thread("t")) == ["one", "re: one", "two", "re: two", "three"]
    assert run(Conversations(store).load("t")).messages == loaded.messages


def test_what_a_transcript_has_no_place_for_is_kept_and_listed(store: perdure.Store) -> None:
    """Instructions and signatures come back with the entry."""
    messages = [message_of(2), message_of(3)]
    run(Conversations(store).save(Conversation(conversation_id="t", messages=messages)))
    listed = [each for losses in Conversations(store).losses("t").values() for each in losses]

    assert listed == ["instructions: instructions", "parts[0]: what only the provider reads"]
    assert run(Conversations(store).load("t")).messages == messages


@pytest.mark.parametrize("id", ["x" * 4096, "~a", "a/../b", "\n", "ü|:*%_", "", "a" * 64])
def test_any_id_is_kept_exactly(store: perdure.Store, id: str) -> None:
    """And never taken for another one that begins like it."""
    begun(store, "one", id=id)
    begun(store, "two", id=id + "x")
    (found, _) = sorted(
        run(Conversations(store).list_conversations()), key=lambda each: len(each.conversation_id)
    )

    assert found.conversation_id == id
    assert [each.parts[0].content for each in run(Conversations(store).load(id)).messages] == [
        "one",
        "re: one",
    ]


def test_damaged_documents_are_typed_errors(store: perdure.Store) -> None:
    """Nothing is constructed from them."""
    begun(store, "one")
    (path, _) = store.thread("t").paths("/pydantic_ai/entries")
    store.thread("t").put(path, {**store.thread("t").get(path), "message": {"kind": "os.system"}})
    with raises(Corrupt, "foreign_value_damaged"):
        run(Conversations(store).load("t"))
    store.thread("t").put("/pydantic_ai/conversation.json", ["no", "record"])
    with raises(Corrupt, "foreign_value_damaged"):
        run(Conversations(store).load("t"))


def test_a_thread_of_another_agent_is_refused(store: perdure.Store) -> None:
    """If the program says whose threads it means."""
    begun(store, "one")
    with raises(Conflict, "thread_of_another_agent", agent="pydantic-ai"):
        run(Conversations(store, agent="other").load("t"))


def test_a_store_that_is_read_only_is_read(tmp_path: Path) -> None:
    """And refuses a save."""
    with perdure.open(tmp_path / "a.db") as store:
        begun(store, "one")
    with perdure.open(tmp_path / "a.db", read_only=True) as store:
        loaded = run(Conversations(store).load("t"))
        loaded.messages.append(question("two"))
        with pytest.raises(Unavailable):
            run(Conversations(store).save(loaded))


def test_a_history_that_is_too_long_for_one_write_is_saved(store: perdure.Store) -> None:
    """In parts, forth and back; so is a message that is larger than a value may be."""
    messages: list[Any] = [question(f"{number}") for number in range(700)]
    picture = BinaryImage(bytes(range(256)) * 8000, media_type="image/png")
    messages.append(ModelRequest([UserPromptPart(["look", picture])]))
    conversation = Conversation(conversation_id="t", messages=messages)
    run(Conversations(store).save(conversation))
    last = run(Conversations(store).load_entries("t", limit=1))[-1].id
    back = run(Conversations(store).branch("t", at=1, expected_revision=conversation.revision))
    run(Conversations(store).branch("t", from_entry=last, expected_revision=back.revision))

    assert run(Conversations(store).load("t")).messages == messages
    assert len(store.thread("t").transcript()) == 701


def test_an_entry_of_a_process_that_is_gone_is_found(store: perdure.Store) -> None:
    """In any thread, by its id alone."""
    for number in range(5):
        begun(store, f"{number}", id=f"t{number}")
    wanted = run(Conversations(store).load_entries("t3"))[1]

    assert run(Conversations(store).read_entry(wanted.id)) == wanted

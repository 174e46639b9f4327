"""The conversation store of pydantic-ai: it answers as pydantic-ai's own, and the thread is the conversation."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent, Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.models.test import TestModel

import perdure
from perdure.integrations.pydantic_ai import Conversations
from tests.crash.campaign import DEEP, SEED, sized
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
            try:
                await self.random.choice(acts)()
            except (ConversationConflict, UserError):
                pass  # both stores refuse it
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
        found = await self.store.load(self.random.choice(IDS), limit=self.random.choice((None, None, 0, 1, 3)))
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
            try:
                await self.store.read_entry(entry)
            except KeyError:
                pass  # in both


def take_course(seed: int) -> int:
    """Take a course on a store in memory; return how many answers were compared."""
    with perdure.open("memory:") as store:
        course = Course(Conversations(store), seed)
        asyncio.run(course.run(14))
        assert store.verify().ok
        return course.store.compared


@given(st.integers(0, 2**32))
@settings(
    max_examples=sized(60, 10_000),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_any_course_of_saves_forks_and_deletes_is_as_with_its_own_store(seed: int) -> None:
    """Every answer and every refusal is the same, whatever is saved, branched, forked and deleted."""
    assert take_course(seed) > 0

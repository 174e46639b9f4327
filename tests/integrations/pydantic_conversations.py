"""Two conversation stores of pydantic-ai side by side, and conversations for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import (
    BinaryImage,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

__all__ = ["Diverged", "SideBySide", "answer", "message_of", "question"]

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Diverged(AssertionError):
    """The two stores answered differently."""


class SideBySide(ConversationStore):
    """Gives each call to pydantic-ai's store in memory and to another one, and compares the answers."""

    def __init__(self, other: ConversationStore) -> None:
        """Begin with two empty stores."""
        self.model, self.other = InMemoryConversationStore(), other
        self.compared = 0

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Compare `read_record`."""
        return await self._both(lambda store: store.read_record(conversation_id))

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Compare `read_records`."""
        return await self._both(lambda store: store.read_records(scope=scope, limit=limit))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Compare `write_record`."""
        await self._both(
            lambda store: store.write_record(
                record, new_entries=new_entries, expected_revision=expected_revision
            )
        )

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Compare `delete_record`."""
        await self._both(
            lambda store: store.delete_record(conversation_id, expected_revision=expected_revision)
        )

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Compare `read_entry`."""
        return await self._both(lambda store: store.read_entry(entry_id))

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Compare `read_history`."""
        return await self._both(lambda store: store.read_history(head_id, limit=limit))

    async def _both(self, act: Callable[[ConversationStore], Awaitable[Any]]) -> Any:
        self.compared += 1
        expected, error = await _outcome(act, self.model)
        found, own_error = await _outcome(act, self.other)
        if expected != found or type(error) is not type(own_error):
            raise Diverged(f"{expected!r} ({error!r}) and {found!r} ({own_error!r})")
        if error is not None:
            raise error
        return expected


async def _outcome(
    act: Callable[[ConversationStore], Awaitable[Any]], store: ConversationStore
) -> tuple[Any, Exception | None]:
    try:
        found = await act(store)
    except (ConversationConflict, LookupError) as error:
        return None, error
    return (list(found) if isinstance(found, Sequence) else found), None


def question(text: str) -> ModelRequest:
    """What a user says."""
    return ModelRequest([UserPromptPart(text, timestamp=AT)], timestamp=AT)


def answer(text: str) -> ModelResponse:
    """What a model says."""
    return ModelResponse([TextPart(text)], timestamp=AT, model_name="m", provider_name="p")


def message_of(number: int) -> ModelMessage:
    """A message of one of several shapes."""
    later = AT + timedelta(seconds=number)
    shapes: list[Callable[[], ModelMessage]] = [
        lambda: question(f"question {number}"),
        lambda: answer(f"answer {number}"),
        lambda: ModelRequest(
            [SystemPromptPart("be brief", timestamp=later), UserPromptPart("hi", timestamp=later)],
            instructions="in verse",
        ),
        lambda: ModelResponse(
            [
                ThinkingPart("hm", signature="s", provider_name="p"),
                ToolCallPart("pay", {"euro": number, "big": 2**60}, f"c{number}"),
            ],
            timestamp=later,
        ),
        lambda: ModelRequest([ToolReturnPart("pay", {"paid": [1.5, None]}, f"c{number}", timestamp=later)]),
        lambda: ModelRequest(
            [UserPromptPart(["look", BinaryImage(b"\x89PNG", media_type="image/png")], timestamp=later)]
        ),
        lambda: ModelRequest([]),
        lambda: ModelResponse([], timestamp=later),
    ]
    return shapes[number % len(shapes)]()

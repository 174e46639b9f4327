"""With all vendorMetadata removed beforehand, the checkpoint is the same, its pinned commit aside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import count

import msgspec
import pytest

import perdure
from perdure import Thread
from perdure.errors import PerdureError
from perdure.model.checkpoint import Checkpoint, encode_checkpoint
from perdure.model.context import Context
from perdure.model.message import Message
from perdure.switching.checkpoint import derive
from tests.recorded.pairs import context_of
from tests.recorded.wire import FOLDER, Wire
from tests.switching.checkpoint.recorded import APIS
from tests.switching.checkpoint.works import space_of

EVERY = 7  # of the recorded requests with something in them that only their vendor can read


def told(messages: Sequence[Message]) -> Thread:
    """A thread in which these messages were said, with ids and times that count."""
    ticks, numbers = count(1), count(1)
    store = perdure.open("memory:", clock=lambda: next(ticks) * 1_000_000, ids=lambda: f"id-{next(numbers)}")
    thread = store.thread("talk", agent="helper")
    for at, message in enumerate(messages):
        with thread.change("told") as change:
            change.add(message, id=f"m-{at}")
    return thread


def checkpoint(messages: Sequence[Message]) -> Checkpoint:
    """The checkpoint of that conversation, without the commit that it names."""
    thread = told(messages)
    found = derive.derive(space_of(thread), thread.head.commit, to_backend="other:model")
    return msgspec.structs.replace(found, commit=None)


def stripped(messages: Sequence[Message]) -> list[Message]:
    """The same messages without anything that only a vendor can read."""
    return [msgspec.structs.replace(message, vendor_metadata=None) for message in messages]


@cache
def recorded() -> list[tuple[str, Context]]:
    """Recorded requests that hold vendorMetadata, by their ids: each seventh."""
    found: list[tuple[str, Context]] = []
    for api in APIS:
        for record in Wire().requests(api):
            try:
                context = context_of(record)
            except PerdureError:
                continue
            if any(message.vendor_metadata for message in context.messages):
                found.append((record.id, context))
    return found[::EVERY]


@pytest.mark.skipif(not FOLDER.exists(), reason="the recorded traffic is not there")
def test_what_only_a_vendor_can_read_has_no_part_in_a_checkpoint() -> None:
    """On recorded conversations of every format that holds any."""
    tried = recorded()

    for id, context in tried:
        whole, bare = checkpoint(context.messages), checkpoint(stripped(context.messages))
        assert encode_checkpoint(whole) == encode_checkpoint(bare), id

    assert len(tried) >= 50


def test_other_words_make_another_checkpoint() -> None:
    """The control: where the words differ, and not what a vendor keeps, the checkpoint differs."""
    said = [
        Message("user", (perdure.Text("Book a flight to Oslo."),), vendor_metadata='{"openai":{"id":"1"}}')
    ]
    other = [Message("user", (perdure.Text("Book a flight to Rome."),))]

    assert checkpoint(said) == checkpoint(stripped(said))
    assert checkpoint(said) != checkpoint(other)

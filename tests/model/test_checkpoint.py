"""Checkpoints as stored objects: their bytes are for ever."""

from __future__ import annotations

import msgspec
import pytest

from perdure.errors import Corrupt
from perdure.model.checkpoint import (
    Checkpoint,
    Claim,
    Done,
    Many,
    Pending,
    Summary,
    Told,
    Validation,
    decode_checkpoint,
    encode_checkpoint,
)
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest, Kind, digest_of
from tests.coded import raises

SOME = Digest("ab" * 32)
FULL = Checkpoint(
    conversation="trip-42",
    from_backend="openai:gpt-5.6",
    to_backend="anthropic:claude-sonnet-5-5",
    summary=Summary(user_goal="g", current_task="t", decisions=("d",), open_questions=("q",)),
    active_goals=("a",),
    active_artifacts=(f"artifact://sha256/{SOME}",),
    relevant_memory_refs=(f"mem://user/ann/m1@{SOME}",),
    commit=SOME,
    ledger=LedgerRead(7, SOME),
    extractor="perdure-rules/1",
    claims=(Claim(part="user_goal", event="m-1", rule="goal.stated"), Claim(part="decision", path="/p", rule="state")),
    calls=(Done(call="c", tool="t", args="{}", effect="external_write", state="succeeded", elsewhere=True),),
    calls_before=1,
    entries_before=2,
    pending_approvals=(Pending(ticket="k", call="c", tool="t", message="?", args="{}"),),
    told=Told(by="p:m", summary=Summary(user_goal="g"), claims=(Claim(part="user_goal", event="m-1", rule="model"),)),
    validation=Validation(ok=False, notes=("n",)),
)  # fmt: skip

PAID = Done(call="c", tool="pay", args="{}", effect="financial", state="succeeded")
COUNTED = Checkpoint(
    conversation="t", earlier=(Many(tool="pay", count=9_000, calls=(PAID,)),), earlier_others=3
)


def test_the_bytes_of_a_checkpoint_are_pinned() -> None:
    """A digest that changes here changes every stored checkpoint: raise the version of the rules, or think again."""
    empty, full = (
        digest_of(Kind.CHECKPOINT, encode_checkpoint(each)) for each in (Checkpoint(conversation="t"), FULL)
    )

    assert encode_checkpoint(Checkpoint(conversation="t")) == b'{"conversation":"t"}'
    assert empty == "0531de22e87e2c483db6668807a61ed32b575b00cdba86e972aff5947bfc2517"
    assert full == "a724055f35086fa14b636ac4f57814145c187345baaedba80eea1613369bf865"


def test_the_bytes_of_what_is_counted_are_pinned() -> None:
    """Effects further back than what is listed, by tool."""
    body = encode_checkpoint(COUNTED)

    assert body == (
        b'{"conversation":"t","earlier":[{"calls":[{"args":"{}","call":"c","effect":"financial","state":"succeeded",'
        b'"tool":"pay"}],"count":9000,"tool":"pay"}],"earlierOthers":3}'
    )


def test_it_comes_back_as_it_was() -> None:
    """Every field, and what says nothing however it was made."""
    assert decode_checkpoint(encode_checkpoint(FULL)) == FULL
    assert decode_checkpoint(encode_checkpoint(COUNTED)) == COUNTED
    made = Checkpoint(conversation="t", summary=Summary(), ledger=LedgerRead(), validation=Validation())
    assert encode_checkpoint(made) == b'{"conversation":"t"}'


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"conversation":1}', b"\xff"])
def test_what_is_none_is_corrupt(body: bytes) -> None:
    """Never an empty one."""
    with raises(Corrupt, "record_unreadable", what="checkpoint"):
        decode_checkpoint(body)


@pytest.mark.parametrize(
    ("effect", "state", "outcome", "written"),
    [
        ("external_write", "succeeded", None, True),
        ("external_write", "unknown", None, True),
        ("external_write", "started", None, True),
        ("external_write", "failed", None, False),
        ("external_write", "denied", None, False),
        ("external_write", "failed", "done", True),
        ("external_write", "resolved", "not_done", False),
        ("external_write", "resolved", "done", True),
        ("read_only", "succeeded", None, False),
        ("financial", "succeeded", None, True),
    ],
)
def test_what_may_have_changed_the_world_is_marked(
    effect: str, state: str, outcome: str | None, written: bool
) -> None:
    """By its effect, its state, and its outcome as a person resolved it."""
    done = Done(call="c", tool="t", args="{}", effect=effect, state=state, outcome=outcome)  # pyright: ignore[reportArgumentType]

    assert done.is_written is written


def test_those_that_are_not_told_apart_may_have_happened() -> None:
    """Four are named of a group of several tools: that these wait says nothing of the others."""
    waiting = msgspec.structs.replace(PAID, state="awaiting_approval")

    rest = Many(tool="", count=34, calls=(waiting,) * 4)
    own = Many(tool="pay", count=4, calls=(waiting,) * 4)

    assert rest.is_written
    assert not own.is_written

"""Committing: whole or not at all, once, against the head that was read."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engines.contract import Write
from perdure.errors import InDoubt, Invalid, OpReused, StaleHead
from perdure.history import writer
from perdure.history.changes.patch_builder import Ops
from perdure.history.space import ALIVE, removed
from perdure.history.tree import EMPTY
from perdure.history.writer import Proposal
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest, Kind, Object, digest_of
from perdure.model.event import MessageAppended
from perdure.model.head import MAIN, Head
from perdure.model.limits import Limits
from tests.coded import raises
from tests.history.hand import Hand


def put(hand: Hand, path: str, value: object, *, root: Digest = EMPTY, reason: str = "put") -> Proposal:
    """A step that puts one value."""
    ops = Ops(hand.space, root)
    ops.put(path, value)
    patched = ops.finish()
    return Proposal(reason=reason, root=patched.root, patch=patched.patch, objects=patched.objects)


def said(hand: Hand, text: str, *, id: str | None = None) -> Proposal:
    """A step that says something."""
    body = Object.of(Kind.BODY, text.encode())
    event = MessageAppended(id=id or hand.space.ids(), role="user", body=body.digest, size=len(body.body))
    minted = frozenset[str]() if id else frozenset((event.id,))
    return Proposal(reason="say", root=EMPTY, events=(event,), minted=minted, objects=(body,))


def test_a_chain_of_commits_moves_the_head_once() -> None:
    """Several steps become one write; each has a commit of its own."""
    hand = Hand()
    first = put(hand, "/a", 1, reason="first")
    second = put(hand, "/b", 2, root=first.root, reason="second")

    done = writer.commit(hand.space, hand.head(), first, second, op_id="op")

    assert done.head.version == 1
    assert hand.state() == {"/a": 1, "/b": 2}
    steps = hand.engine.steps(hand.space.name, done.head.commit or Digest(""), limit=9)
    assert [(step.commit.reason, step.commit.depth) for step in steps] == [("second", 1), ("first", 0)]
    assert done.step == steps[0]


def test_a_chain_is_rebased_as_a_whole() -> None:
    """Each step is put on top of the one before it."""
    hand = Hand()
    head = hand.head()
    first = put(hand, "/a", 1)
    second = put(hand, "/b", 2, root=first.root)
    hand.write({"/theirs": 0})

    done = writer.commit(hand.space, head, first, second, op_id="op", on_conflict="rebase")

    assert hand.state() == {"/a": 1, "/b": 2, "/theirs": 0}
    assert done.head.version == 2


def test_rebasing_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is overtaken every time gives up with what it met last."""
    hand = Hand()
    proposal = put(hand, "/a", 1)
    applied = type(hand.engine).apply
    overtaken = 0

    def apply(self: object, write: Write) -> object:
        nonlocal overtaken
        if write.op_id == "op":
            overtaken += 1
            with monkeypatch.context() as patch:
                patch.setattr(type(hand.engine), "apply", applied)
                hand.write({f"/theirs/{overtaken}": 0})
        return applied(self, write)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(type(hand.engine), "apply", apply)
    with pytest.raises(StaleHead):
        writer.commit(hand.space, hand.head(), proposal, op_id="op", on_conflict="rebase")

    assert overtaken == writer.REBASES_MAX + 1


def test_a_writer_that_is_far_behind_decides_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """What came between is read only within a bound."""
    hand = Hand()
    proposal, head = put(hand, "/a", 1), hand.head()
    for number in range(4):
        hand.write({f"/theirs/{number}": 0})
    monkeypatch.setattr(writer, "BETWEEN_MAX", 3)

    with pytest.raises(StaleHead):
        writer.commit(hand.space, head, proposal, op_id="op", on_conflict="rebase")


class TestIntent:
    """The intent is what was asked for, not what came of it."""

    def test_minted_ids_do_not_count_and_given_ones_do(self) -> None:
        """A repetition makes up other ids."""
        hand = Hand()
        minted = [writer.intent_of(MAIN, (said(hand, "hello"),)) for _ in range(2)]
        given = [writer.intent_of(MAIN, (said(hand, "hello", id=id),)) for id in ("x", "y")]

        assert len({*minted, *given}) == 3
        assert minted[0] == minted[1]

    def test_what_an_edit_leaves_does_not_count(self) -> None:
        """The same increment on another number is the same intent."""
        hand = Hand()
        intents: set[Digest] = set()
        for number in range(3):
            hand.write({"/n": number})
            ops = Ops(hand.space, hand.space.root_at(hand.head().commit))
            ops.edit("/n", "increment", (), 1)
            patched = ops.finish()
            intents.add(
                writer.intent_of(MAIN, (Proposal(reason="r", root=patched.root, patch=patched.patch),))
            )

        assert len(intents) == 1

    @pytest.mark.parametrize("what", ["timeline", "reason", "value", "path", "count"])
    def test_everything_that_was_given_counts(self, what: str) -> None:
        """Control: another timeline, reason, value, path or number of steps is another intent."""
        hand = Hand()
        one = put(hand, "/a", 1)
        others = {
            "timeline": ("what-if", (one,)),
            "reason": (MAIN, (put(hand, "/a", 1, reason="other"),)),
            "value": (MAIN, (put(hand, "/a", 2),)),
            "path": (MAIN, (put(hand, "/b", 1),)),
            "count": (MAIN, (one, one)),
        }

        assert writer.intent_of(MAIN, (one,)) != writer.intent_of(*others[what])

    def test_another_intent_under_one_op_id_is_refused(self) -> None:
        """Looked up before the head is compared."""
        hand = Hand()
        head = hand.head()
        writer.commit(hand.space, head, put(hand, "/a", 1), op_id="op")
        stale = Head(MAIN, 7, None)

        with pytest.raises(OpReused):
            writer.commit(hand.space, stale, put(hand, "/a", 2), op_id="op")
        again = writer.commit(hand.space, stale, put(hand, "/a", 1), op_id="op")
        assert again.head.version == 1
        assert again.step is None


class TestLimits:
    """A write that is too large is refused before anything is written."""

    def test_events(self) -> None:
        """1,000 of them are a write; one more is not."""
        hand = Hand()
        many = [said(hand, "x") for _ in range(1_001)]

        def all_of(proposals: list[Proposal]) -> Proposal:
            return msgspec.structs.replace(many[0], events=tuple(each.events[0] for each in proposals))

        with raises(Invalid, "too_many_events", events=1001, limit=1000):
            writer.commit(hand.space, hand.head(), all_of(many), op_id="op")
        assert hand.engine.spaces(limit=9) == []
        writer.commit(hand.space, hand.head(), all_of(many[:-1]), op_id="op")

    def test_bytes(self) -> None:
        """The bytes of all objects together count."""
        hand = Hand(limits=Limits(write_bytes_max=3_000))

        with raises(Invalid, "write_too_large", limit=3000):
            hand.write({"/a": "x" * 2_900})
        hand.write({"/a": "x" * 1_000})
        assert hand.head().version == 1

    @pytest.mark.parametrize("reason", ["", "x" * 201, "a\nb", "\ud800"])
    def test_reasons(self, reason: str) -> None:
        """A reason is a short label, because it cannot be erased."""
        hand = Hand()

        with pytest.raises(Invalid) as refused:
            hand.write({"/a": 1}, reason=reason)
        assert refused.value.facts["what"] == "reason"
        assert hand.head().version == 0


def test_the_ledger_is_as_far_as_it_was_read() -> None:
    """A step that did not look stays where its parent was; one that looked says how far."""
    hand = Hand()
    entry = Write(
        space=hand.space.name, op_id="ledger", intent=digest_of(Kind.BODY, b""), entries=(b"{}", b"{}")
    )
    receipt = hand.engine.apply(entry)
    read = LedgerRead(2, receipt.chain)
    looked = msgspec.structs.replace(put(hand, "/a", 1), ledger=read)

    first = writer.commit(hand.space, hand.head(), looked, op_id="op-1")
    second = hand.write({"/b": 1})

    assert first.step is not None
    assert first.step.commit.ledger == hand.space.step(second).commit.ledger == read


def test_a_commit_that_was_written_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the writer knows of its own commit is what the engine would say."""
    hand = Hand()
    commit = hand.write({"/a": 1}, run="run-1")
    known = hand.space.step(commit)

    assert known == hand.engine.steps(hand.space.name, commit, limit=1)[0]
    monkeypatch.setattr(type(hand.engine), "steps", lambda *_, **__: pytest.fail("it was read"))
    hand.write({"/a": 2}, run="run-1")


def test_doubt_about_the_doubt_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the engine does not know the outcome either, the caller gets `InDoubt`."""
    hand = Hand()

    def doubtful(self: object, *_: object) -> object:
        raise InDoubt("op", "no answer")

    monkeypatch.setattr(type(hand.engine), "apply", doubtful)
    monkeypatch.setattr(type(hand.engine), "recorded", doubtful)
    with pytest.raises(InDoubt):
        writer.commit(hand.space, hand.head(), put(hand, "/a", 1), op_id="op")


def test_only_a_fenced_space_can_be_removed() -> None:
    """A cell called alive means nothing in a space that is not a thread's."""
    hand = Hand()

    assert not removed(hand.space)
    assert ALIVE == "alive"

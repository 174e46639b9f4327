"""What a checkpoint is made of: explicit state first, then rules, and the ledger up to a position."""

from __future__ import annotations

import perdure
from perdure import Store, testing
from perdure.ledger import snapshot
from perdure.model.checkpoint import Checkpoint, encode_checkpoint
from perdure.model.digest import Digest
from perdure.switching.checkpoint import derive
from tests.switching.checkpoint.works import Work, space_of


def derived(work: Work, commit: Digest | None = None) -> Checkpoint:
    """The checkpoint of the thread as it stands, or at a commit."""
    thread = work.store.thread(work.id)
    space = space_of(thread)
    head = thread.head.commit if commit is None else commit
    return derive.derive(space, head, to_backend="other:model", ledger=snapshot.now(space))


def test_the_state_of_the_task_wins_over_what_was_said(work: Work) -> None:
    """Whoever writes /task/… says what is so; the claim names the path."""
    thread = work.turn("Find me a flight to Oslo.", testing.say("Which day?"))
    thread.put("/task/goal.json", "Get to Oslo")
    thread.put("/task/decisions.json", ["Fly on Monday"])

    found = derived(work)

    assert found.summary.user_goal == "Get to Oslo"
    assert found.summary.decisions == ("Fly on Monday",)
    goal = next(claim for claim in found.claims if claim.part == "user_goal")
    assert (goal.path, goal.rule, goal.event) == ("/task/goal.json", "state", None)


def test_without_it_the_rules_speak_and_cite_the_message(work: Work) -> None:
    """The control: the same conversation without the paths is read from its messages."""
    thread = work.turn("Find me a flight to Oslo.", testing.say("Which day?"))

    found = derived(work)

    assert found.summary.user_goal == "Find me a flight to Oslo."
    assert found.summary.open_questions == ("Which day?",)
    assert {claim.event for claim in found.claims} <= {entry.id for entry in thread.transcript()}


def test_a_list_that_is_empty_says_that_there_is_nothing(work: Work) -> None:
    """An empty list of questions is an answer, not a gap to be filled by rules."""
    thread = work.turn("Find me a flight to Oslo.", testing.say("Which day?"))
    thread.put("/task/questions.json", [])

    assert derived(work).summary.open_questions == ()


def test_a_value_of_another_shape_says_nothing_and_is_noted(work: Work) -> None:
    """A path that holds something else does not stop a checkpoint; the note says which."""
    thread = work.turn("Find me a flight to Oslo.", testing.say("Sure."))
    thread.put("/task/goal.json", {"not": "a text"})

    found = derived(work)

    assert found.summary.user_goal == "Find me a flight to Oslo."
    assert found.validation.notes == ("/task/goal.json is no text",)


def test_an_external_write_is_told_as_done(work: Work) -> None:
    """The digest of calls names tool, arguments, result and effect, and marks what must not be repeated."""
    work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))

    (done,) = derived(work).calls

    assert (done.tool, done.effect, done.state, done.is_written) == (
        "book",
        "external_write",
        "succeeded",
        True,
    )
    assert "SK1" in done.args
    assert (done.result_ref or "").startswith("artifact://sha256/")


def test_a_call_that_only_reads_is_not_marked(work: Work) -> None:
    """The control: what changed nothing may be asked for again."""
    work.turn("Weather?", testing.use("look", city="Oslo"), testing.say("Rain."))

    (done,) = derived(work).calls

    assert not done.is_written


def test_a_pending_approval_is_in_until_it_is_decided(work: Work) -> None:
    """What waits is listed at the position where it waits, and no more once somebody decided."""
    thread = work.turn("Pay 90.", testing.use("pay", amount=90))
    space, commit = space_of(thread), thread.head.commit
    before = snapshot.now(space)
    thread.decide(thread.approvals()[0].call, "deny", by="ann")

    then = derive.derive(space, commit, ledger=before)
    now = derive.derive(space, commit, ledger=snapshot.now(space))

    assert [pending.tool for pending in then.pending_approvals] == ["pay"]
    assert now.pending_approvals == ()


def test_what_was_undone_is_still_done_in_the_world(work: Work) -> None:
    """A booking that was undone is told as done elsewhere; a look-up that was undone is not told at all."""
    work.turn("Hello there, what can you do?", testing.say("Book."))
    thread = work.turn(
        "Book SK1.",
        testing.use("look", city="Oslo"),
        testing.use("book", flight="SK1"),
        testing.say("Booked."),
    )
    thread.undo()

    (done,) = derived(work).calls

    assert (done.tool, done.elsewhere, done.is_written) == ("book", True, True)


def test_before_the_first_commit_there_is_nothing_to_tell(store: Store) -> None:
    """A thread without a commit has an empty checkpoint, not an error."""
    thread = store.thread("new", agent="desk")

    found = derive.derive(space_of(thread), None, to_backend="other:model")

    assert (found.commit, found.summary.user_goal, found.calls) == (None, "", ())


def test_what_comes_later_changes_nothing(work: Work) -> None:
    """Deriving again from the same commit and position gives the same bytes, whatever was written since."""
    thread = work.turn("Pay 90.", testing.use("pay", amount=90), testing.say("Paid."))
    space, commit = space_of(thread), thread.head.commit
    first = derive.derive(space, commit, to_backend="b:m")
    thread.decide(thread.approvals()[0].call, "approve", by="ann")
    thread.resume()
    work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))

    again = derive.derive_again(space, first)

    assert encode_checkpoint(again) == encode_checkpoint(first)
    assert encode_checkpoint(derive.derive(space, thread.head.commit)) != encode_checkpoint(first)


def test_a_call_that_a_person_settled_is_told_as_they_said(store: Store) -> None:
    """What raised may have happened, until somebody says that it did not."""
    work = Work(store)

    @perdure.tool(effect="external_write")
    def send(to: str) -> str:
        raise ConnectionError("reset")

    work.tools.append(send)
    thread = work.turn("Send it.", testing.use("send", to="ann"), testing.say("I do not know."))
    (unknown,) = thread.checkpoint().calls
    thread.resolve(unknown.call, "not_done", by="ann")

    (settled,) = thread.checkpoint().calls

    assert (unknown.state, unknown.is_written) == ("unknown", True)
    assert (settled.state, settled.outcome, settled.is_written) == ("resolved", "not_done", False)


def test_what_was_decided_on_another_timeline_waits_here_still(work: Work) -> None:
    """A fork that holds the call sees its question until it is decided there too; deriving again knows which line."""
    thread = work.turn("Pay 90.", testing.use("pay", amount=90), testing.say("Paid."))
    fork = thread.fork("what-if")
    (ticket,) = thread.approvals()
    thread.decide(ticket.call, "deny", by="ann")

    here, there = thread.checkpoint(), fork.checkpoint()
    fork.decide(ticket.call, "deny", by="ben")
    decided = fork.checkpoint()

    assert here.pending_approvals == ()
    assert [pending.call for pending in there.pending_approvals] == [ticket.call]
    assert decided.pending_approvals == ()
    assert (there.timeline, derive.derive_again(space_of(fork), there)) == ("what-if", there)

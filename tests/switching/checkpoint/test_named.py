"""What a commit says of calls counts at that commit, also where it had not read the ledger so far."""

from __future__ import annotations

from perdure import Store, Thread, testing
from perdure.model.checkpoint import encode_checkpoint
from perdure.switching.checkpoint import derive
from tests.switching.checkpoint.works import Work, space_of

SENT = [
    {"role": "user", "content": "Write to Ann."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "mail", "arguments": '{"to": "ann"}'}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "sent"},
]  # fmt: skip


def told(thread: Thread) -> list[tuple[str, list[tuple[str, str]]]]:
    """What the checkpoint of each commit says of calls, oldest first, with the commit's reason."""
    return [
        (entry.reason, [(done.tool, done.state) for done in thread.at(entry.digest).checkpoint().calls])
        for entry in reversed(thread.log())
    ]


def test_a_commit_that_asks_for_a_call_or_settles_it_says_so(work: Work) -> None:
    """The entries that are written with a commit belong to it."""
    thread = work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))

    assert told(thread) == [
        ("user_message", []),
        ("assistant_turn_committed", [("book", "started")]),
        ("tool_results_committed", [("book", "succeeded")]),
        ("assistant_turn_committed", [("book", "succeeded")]),
        ("run_finished", [("book", "succeeded")]),
    ]


def test_a_call_by_hand_and_one_from_elsewhere_are_in_the_checkpoint_of_their_commit(work: Work) -> None:
    """Neither was read by a run, and both were done."""
    thread = work.turn("Hello, who are you?", testing.say("A desk."))
    thread.call(work.tools[0], {"flight": "SK1"}, id="by-hand")
    by_hand = thread.at().checkpoint()
    thread.add(SENT, api="openai-chat")
    added = thread.at().checkpoint()

    assert [(done.call, done.is_written) for done in by_hand.calls] == [("by-hand", True)]
    assert [(done.tool, done.state) for done in added.calls] == [("book", "succeeded"), ("mail", "succeeded")]


def test_a_question_is_in_the_checkpoint_of_the_commit_that_asks_it(work: Work) -> None:
    """By hand or by a run, at the moment and not one commit later; once it is decided in the history, no more."""
    thread = work.turn("Hello, who are you?", testing.say("A desk."))
    thread.call(work.tools[1], {"amount": 3}, id="by-hand")
    asked = thread.at()
    thread.decide("by-hand", "deny", by="ann")
    thread.call(work.tools[1], {"amount": 3}, id="by-hand")

    assert [each.call for each in asked.checkpoint().pending_approvals] == ["by-hand"]
    assert thread.checkpoint().pending_approvals == ()


def test_what_becomes_of_it_later_does_not_count_there(store: Store) -> None:
    """The control: the commit of the request stays what it was when the call has long been settled."""
    work = Work(store)
    thread = work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))
    asked = thread.log()[3].digest
    first = encode_checkpoint(derive.derive(space_of(thread), asked))
    for at in range(5):
        work.turn(f"Book SK{at}.", testing.use("book", flight=f"SK{at}"), testing.say("Booked."))

    assert encode_checkpoint(derive.derive(space_of(thread), asked)) == first

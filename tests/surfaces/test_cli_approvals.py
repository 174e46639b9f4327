"""Approvals on the command line: what waits, who asks, and deciding once."""

from __future__ import annotations

import os
import pwd
import re
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

import perdure
from perdure.testing import Script, say, step, use
from tests.surfaces import paying
from tests.surfaces.paying import CODE, asker, payer
from tests.surfaces.pty_session import PtySession
from tests.surfaces.shell import BEGAN, Shell

LESS = '{"to": "roofer", "amount": 500}'


def waiting(shell: Shell) -> str:
    """The id of the only call that waits."""
    (asked,) = shell.ok("approvals", "--json").json["approvals"]
    return asked["call"]


@pytest.fixture
def painter(empty: Shell) -> Shell:
    """A shell at a store with a thread whose tool asked which colour it should be."""
    with perdure.open(empty.store) as store:
        store.thread("wall", agent=asker).run("Paint it.")
    return empty


def test_what_waits_is_listed_over_all_threads(house: Shell) -> None:
    """`perdure approvals` names the thread, the tool and the call, and says how to look at one."""
    shown = house.ok("approvals").out
    told = house.ok("approval", "ls", "house", "--json").json

    assert f"perdure approvals show house {waiting(house)}" in shown
    assert [(each["thread"], each["tool"]) for each in told["approvals"]] == [("house", "pay")]
    assert house.ok("approvals", "ls", "--timeline", "other", "--json").json["approvals"] == []


def test_what_is_listed_is_enough_to_decide(house: Shell) -> None:
    """Tool, arguments, effect, age and expiry, for people and for programs."""
    shown = house.ok("approvals").out
    (asked,) = house.ok("approvals", "--json").json["approvals"]

    assert all(each in shown for each in ("pay", "financial", '{"to":"roofer","amount":5000}', "2026"))
    assert (asked["tool"], asked["effect"], asked["idempotent"]) == ("pay", "financial", False)
    assert asked["arguments"] == {"to": "roofer", "amount": 5000}
    assert asked["age_seconds"] >= 0
    assert asked["expires_at"] is None


def me() -> str:
    """The user who runs the tests, as a decision names them."""
    return f"os:{pwd.getpwuid(os.getuid()).pw_name}"


@pytest.mark.parametrize(
    "words",
    [["approve"], ["deny"], ["edit", "--value", LESS], ["answer", "--value", "1"]],
    ids=lambda x: x[0],
)
def test_who_decides_is_the_user_of_the_system(
    house: Shell, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the system's accounts name them, whatever the environment says."""
    monkeypatch.setenv("USER", "somebody-else")
    monkeypatch.setenv("LOGNAME", "somebody-else")
    verdict, *value = words

    told = house.ok("approvals", verdict, "house", waiting(house), *value, "--json").json

    assert told["decision"]["by"] == me()


def test_a_name_that_is_given_counts_unless_it_claims_to_be_the_system_s(house: Shell) -> None:
    """What the system vouches for cannot be typed."""
    call = waiting(house)

    refused = house("approvals", "approve", "house", call, "--by", "os:somebody-else")
    told = house.ok("approvals", "approve", "house", call, "--by", "ann", "--json").json

    assert refused.code == 2
    assert told["decision"]["by"] == "ann"


def test_resolving_and_cancelling_name_the_user_too(house: Shell) -> None:
    """The way of a call, and the record of a run, say who."""
    house.ok("calls", "resolve", "house", "id-0007", "done")
    cancelled = house.ok("runs", "cancel", "house", "--json").json["run"]

    assert house.ok("calls", "show", "house", "id-0007", "--json").json["passed"][-1]["by"] == me()
    assert cancelled["cancelled_by"] == me()


def test_who_asks_a_tool_what_became_of_a_call_is_the_user(
    house: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool's answer settles it, and the way of the call says who asked."""
    monkeypatch.setattr(paying, "ANSWERS", ["done"])

    house.ok("calls", "reconcile", "house", "id-0007", "--code", CODE)

    assert house.ok("calls", "show", "house", "id-0007", "--json").json["passed"][-1]["by"] == me()


def test_nothing_waiting_is_a_sentence(shell: Shell) -> None:
    """Not an empty screen."""
    assert "Nothing waits for a decision." in shell.ok("approvals").out
    assert "Nothing waits for a decision." in shell.ok("approvals", "ls", "shopping").out


def test_what_was_undone_or_removed_waits_no_longer(house: Shell) -> None:
    """Nobody could decide it; a redo brings it back."""
    call = waiting(house)

    house.ok("threads", "undo", "house")
    undone = house.ok("approvals", "--json").json["approvals"]
    refused = house("approvals", "approve", "house", call)
    house.ok("threads", "redo", "house")
    redone = waiting(house)
    house.ok("threads", "rm", "house", "--yes", "--force")

    assert undone == []
    assert refused.code == 4
    assert redone == call
    assert house.ok("approvals", "--json").json["approvals"] == []


def test_an_approval_says_who_asks_for_what(house: Shell) -> None:
    """Message, tool, effect, arguments, run, backend, until when, and the four decisions."""
    call = waiting(house)

    shown = house.ok("approvals", "show", "house", call).out
    told = house.ok("approvals", "show", "house", call, "--json").json

    for words in ("asks for approval", '"amount": 5000', "financial", "script:test", "a person decides"):
        assert words in shown
    for verb in ("approve", "deny", "edit", "answer"):
        assert f"perdure approvals {verb} house {call}" in shown
    assert told["ticket"]["run"] in shown
    assert told["decision"] is None
    assert told["repeats"] is None


def test_the_only_approval_of_a_thread_needs_no_id(house: Shell) -> None:
    """Where two wait, or none, the error says so; a decision always names its call."""
    call = waiting(house)

    only = house.ok("approvals", "show", "house", "--json").json
    decided = house("approvals", "approve", "house", "--json")
    with perdure.open(house.store) as store:
        twice = asker.on(Script(step(use("colour", id="a"), use("colour", id="b"))))
        store.thread("wall", agent=twice).run("Paint both walls.")
    several = house("approvals", "show", "wall", "--json")
    house.ok("approvals", "deny", "house", call)
    none = house("approvals", "show", "house", "--json")

    assert only["call"]["id"] == call
    assert decided.code == 2
    assert [(each.code, each.error["code"]) for each in (several, none)] == [
        (2, "approval_not_named"),
        (3, "approval_missing"),
    ]


def test_what_to_type_fits_a_real_terminal_and_names_who_decides(empty: Shell) -> None:
    """At 80 columns a command is on one line, by the short id, which can be typed; the line before says as whom."""
    with perdure.open(empty.store) as store:  # with ids as Perdure makes them
        (asked,) = store.thread("house", agent=payer).run("Pay.").approvals

    with PtySession(empty.directory, "approvals", "show", "house", asked.call) as terminal:
        assert terminal.ended() == 0
    told = [line for line in terminal.shown.splitlines() if "perdure approvals deny" in line]
    (words,) = (line.split() for line in told)

    assert len(told[0]) <= 80
    assert words[:4] == ["perdure", "approvals", "deny", "house"]
    assert asked.call.endswith(words[4])
    assert f"recorded under {me()}" in terminal.shown
    assert empty.ok(*words[1:5], "--json").json["call"]["id"] == asked.call


def test_an_approval_of_a_call_that_never_asked_is_a_conflict(house: Shell) -> None:
    """It points at the call."""
    call = house.ok("calls", "--json").json["calls"][0]["id"]

    ended = house("approvals", "show", "house", call)

    assert ended.code == 4
    assert f"perdure calls show house {call}" in ended.err


def test_an_approved_call_goes_on_when_its_run_is_resumed(house: Shell) -> None:
    """Deciding alone runs nothing; it says how to go on."""
    call = waiting(house)

    ended = house.ok("approvals", "approve", "house", call, "--by", "ann")
    nothing_yet = list(paying.sent)
    house("runs", "resume", "house", "--code", CODE)

    assert "Approved: pay, " in ended.out
    assert "A worker goes on, or: perdure runs resume house" in ended.out
    assert nothing_yet == ["cat 13"]
    assert paying.sent == ["cat 13", "roofer 5000"]


def test_an_edit_is_shown_as_a_diff_and_is_what_runs(house: Shell) -> None:
    """The arguments before and after; the tool gets the new ones."""
    call = waiting(house)

    ended = house.ok("approvals", "edit", "house", call, "--value", LESS, "--by", "ann", "--why", "too much")
    house("runs", "resume", "house", "--code", CODE)

    assert '-   "amount": 5000' in ended.out
    assert '+   "amount": 500' in ended.out
    assert paying.sent == ["cat 13", "roofer 500"]
    shown = house.ok("approvals", "show", "house", call).out
    assert "Decided edit by ann: too much" in shown
    assert '+   "amount": 500' in shown
    found = house.ok("calls", "show", "house", call, "--json").json
    assert (found["is_edited"], found["edited_by"], found["proposed"]["amount"]) == (True, "ann", 5000)
    assert found["call"]["arguments"]["amount"] == 500
    told = house.ok("calls", "show", "house", call).out
    assert "edited by ann" in told
    assert told.index('"amount": 5000') < told.index("edited by ann") < told.index('"amount": 500\n')
    assert not re.search(r"^  \d{4}-\S+ \S+ +by ", told, re.MULTILINE), "a row without a state"
    (untouched,) = [
        each["id"] for each in house.ok("calls", "ls", "house", "--json").json["calls"] if each["id"] != call
    ][:1]
    other = house.ok("calls", "show", "house", untouched, "--json").json
    assert (other["is_edited"], other["edited_by"]) == (False, None)


def test_an_edit_by_nobody_named_invents_no_person(empty: Shell) -> None:
    """A program may decide without a name what is below financial."""

    @perdure.tool(effect="external_write", ask=True)
    def send(to: int) -> str:
        """Send something."""
        return f"sent {to}"

    with perdure.open(empty.store) as store:
        thread = store.thread("t", agent=perdure.Agent("a", backend=Script(use("send", to=1)), tools=[send]))
        (approval,) = thread.run("Send it.").approvals
        thread.decide(approval.call, "edit", value={"to": 2})

    found = empty.ok("calls", "show", "t", approval.call, "--json").json
    told = empty.ok("calls", "show", "t", approval.call).out

    assert (found["is_edited"], found["edited_by"], found["proposed"]) == (True, None, {"to": 1})
    assert re.search(r"^arguments, edited$", told, re.MULTILINE)


def test_an_edit_that_changes_nothing_is_an_approval(house: Shell) -> None:
    """Neither the ledger nor the model is told of a change; the same again is the same decision."""
    call, same = waiting(house), '{"amount": 5000, "to": "roofer"}'

    told = house.ok("approvals", "edit", "house", call, "--value", same)
    again = house.ok("approvals", "approve", "house", call, "--json").json
    house("runs", "resume", "house", "--code", CODE)

    assert "Approved, with no difference: pay" in told.out
    assert (again["again"], again["decision"]["verdict"]) == (True, "approve")
    assert paying.sent == ["cat 13", "roofer 5000"]
    assert "a person changed" not in house.ok("threads", "log", "house", "--full").out


def test_a_value_may_come_from_a_file_or_the_input(house: Shell) -> None:
    """@FILE and @-."""
    Path("less.json").write_text(LESS)
    call = waiting(house)

    told = house.ok("approvals", "edit", "house", call, "--value", "@less.json", "--json").json
    again = house.ok("approvals", "edit", "house", call, "--value", "@-", "--json", stdin=LESS.encode()).json

    assert told["decision"]["value"] == {"to": "roofer", "amount": 500}
    assert told["before"] == {"to": "roofer", "amount": 5000}
    assert (told["again"], again["again"]) == (False, True)


@pytest.mark.parametrize(("given", "to", "amount"), [("amount=500", "roofer", 500), ("to=a=b", "a=b", 5000)])
def test_one_argument_may_be_edited_by_name(house: Shell, given: str, to: str, amount: int) -> None:
    """As in `chat`: the others stay as they were; the test below is the control, with a name that is none."""
    told = house.ok("approvals", "edit", "house", waiting(house), "--value", given, "--json").json

    assert told["decision"]["value"] == {"to": to, "amount": amount}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("plain words", "not JSON"),
        ("amuont=500", "not JSON"),
        ('{"a": 1, "a": 2}', "not JSON"),
        ("[1]", "must be a JSON object"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(house: Shell, value: str, told: str) -> None:
    """Nothing was decided, and it still waits."""
    ended = house("approvals", "edit", "house", waiting(house), "--value", value)

    assert ended.code == 2
    assert told in ended.err
    assert "nothing was decided" in ended.err
    assert waiting(house)


def test_with_code_the_tool_checks_the_new_arguments(house: Shell) -> None:
    """What it would refuse is refused before the decision is written."""
    call = waiting(house)

    ended = house("approvals", "edit", "house", call, "--value", '{"to": 1}', "--code", CODE)

    assert ended.code == 2
    assert waiting(house) == call


def test_without_code_the_recorded_schema_checks_the_new_arguments(house: Shell) -> None:
    """What does not fit is refused, and it is said who has looked at what does."""
    call = waiting(house)

    refused = house("approvals", "edit", "house", call, "--value", '{"to": 1, "amount": 2}')
    told = house.ok("approvals", "edit", "house", call, "--value", LESS, "--json").json

    assert refused.code == 2
    assert "does not allow these arguments: arguments['to'] is not string; nothing was decided" in refused.err
    assert (told["checked"], told["call"]["state"]) == ("schema", "approved")


def test_an_edit_says_who_has_checked_it(house: Shell) -> None:
    """The tool where its code was given, else the recorded schema."""
    call = waiting(house)

    ended = house.ok("approvals", "edit", "house", call, "--value", LESS, "--code", CODE)

    assert "The tool has checked them." in ended.out


@pytest.fixture
def bell(empty: Shell) -> Shell:
    """A shell at a store with two calls by hand that wait."""

    @perdure.tool(effect="external_write", ask=True)
    def ring(number: Annotated[str, msgspec.Meta(pattern="^[0-9]+$")]) -> str:
        return number

    with perdure.open(empty.store) as store:
        for number, id in enumerate(("call-ann", "call-bob")):
            store.thread("bell", agent="ringer").call(ring, {"number": str(number)}, id=id)
    return empty


def test_where_no_schema_was_recorded_an_edit_says_that_nobody_checked_it(bell: Shell) -> None:
    """The tool's schema says more than can be checked without the tool."""
    ended = bell.ok("approvals", "edit", "bell", "call-ann", "--value", '{"number": "two"}')

    assert "They were not checked: no schema was recorded." in ended.out


def test_a_part_of_an_id_is_enough(bell: Shell) -> None:
    """Of a call or of its ticket, to look and to decide, if no other has it: the beginning of an id that was made."""
    ticket = bell.ok("approvals", "show", "bell", "call-a…", "--json").json["ticket"]["id"]

    shown = bell.ok("calls", "show", "bell", "call-b…", "--json").json
    ended = bell.ok("approvals", "approve", "bell", ticket[:-1], "--json").json

    assert shown["call"]["id"] == "call-bob"
    assert (ended["ticket"], ended["call"]["id"]) == (ticket, "call-ann")


def test_the_beginning_of_an_id_that_a_person_chose_means_no_other(bell: Shell) -> None:
    """A call `order-1` that is not there is not `order-17`: nothing is approved."""
    refused = bell("approvals", "approve", "bell", "call-an")

    assert refused.code == 3
    assert len(bell.ok("approvals", "ls", "bell", "--json").json["approvals"]) == 2


def test_a_part_of_several_ids_is_refused(bell: Shell) -> None:
    """It names them; a part that is too short counts as an id that is not there."""
    several = bell("calls", "show", "bell", "call-…")
    short = bell("calls", "show", "bell", "ca…")

    assert (several.code, short.code) == (2, 3)
    assert "'call-…' fits more than one call: call-ann, call-bob; nothing was done" in several.err


def test_an_approval_of_what_was_undone_says_how_to_go_on(house: Shell) -> None:
    """The undo can be taken back, or the run be ended."""
    call = waiting(house)
    run = house.ok("approvals", "show", "house", call, "--json").json["ticket"]["run"]
    house.ok("threads", "undo", "house")

    refused = house("approvals", "approve", "house", call)

    assert refused.code == 4
    assert (
        "it was undone; nothing was decided. Take the undo back with `perdure threads redo house`, "
        f"or end its run with `perdure runs cancel house {run}`."
    ) in refused.err


def test_a_file_that_is_not_there_decides_nothing(house: Shell) -> None:
    """The error names it."""
    ended = house("approvals", "edit", "house", waiting(house), "--value", "@none.json")

    assert ended.code == 3
    assert "none.json" in ended.err
    assert waiting(house)


def test_the_first_decision_stands(house: Shell) -> None:
    """The same again is nothing new; another one is a conflict that names who decided."""
    call = waiting(house)
    house.ok("approvals", "deny", "house", call, "--by", "ann", "--why", "no money")

    again = house.ok("approvals", "deny", "house", call)
    other = house("approvals", "approve", "house", call, "--json")

    assert "Denied before; nothing new was written" in again.out
    assert other.code == 4
    assert other.error["error"] == "Decided"
    assert "by ann" in other.error["message"]


def test_a_denied_call_is_not_made(house: Shell) -> None:
    """The run goes on without it."""
    house.ok("approvals", "deny", "house", waiting(house), "--why", "no money")

    ended = house("runs", "resume", "house", "--code", CODE, "--json")

    assert ended.json["status"] == "succeeded"
    assert paying.sent == ["cat 13"]


def test_a_question_of_a_tool_is_answered(painter: Shell) -> None:
    """An answer of another shape is refused; the tool goes on with one that fits."""
    call = waiting(painter)

    wrong = painter("approvals", "answer", "wall", call, "--value", '"green"')
    painter.ok("approvals", "answer", "wall", call, "--value", '"blue"', "--by", "ann")
    painter("runs", "resume", "wall", "--code", "tests.surfaces.paying:asker")

    assert "Which colour?" in painter.ok("approvals", "show", "wall", call).out
    assert wrong.code == 2
    assert "blue it is" in painter.ok("calls", "show", "wall", call).out


def test_a_ticket_is_decided_on_the_timeline_that_is_named(house: Shell) -> None:
    """On a fork that is a call of its own; the first one still waits."""
    call = waiting(house)
    house.ok("threads", "fork", "house", "other")

    told = house.ok("approvals", "deny", "house", call, "--timeline", "other", "--json").json
    again = house.ok("approvals", "deny", "house", call, "--timeline", "other", "--json").json

    assert told["call"]["copied_from"] == call
    assert told["call"]["timeline"] == "other"
    assert (told["again"], again["again"]) == (False, True)
    assert waiting(house) == call


def test_a_repetition_says_what_it_would_repeat(house: Shell) -> None:
    """The earlier call, its state and its run."""
    with perdure.open(house.store) as store:
        script = Script(use("pay", to="cat", amount=13), say("Again."))
        store.thread("house", agent=payer.on(script)).run("Pay the cat again.")
    earlier = house.ok("calls", "--json").json["calls"][0]["id"]
    call = house.ok("approvals", "ls", "house", "--json").json["approvals"][-1]["call"]

    shown = house.ok("approvals", "show", "house", call).out
    told = house.ok("approvals", "show", "house", call, "--json").json

    assert "It repeats, or may repeat, an earlier call:" in shown
    assert earlier in shown
    assert told["ticket"]["action"] == "repeat"
    assert (told["repeats"]["id"], told["repeats"]["state"]) == (earlier, "needs_human")


@pytest.mark.parametrize(
    ("outcome", "told"), [("done", "was done"), ("not_done", "was not done"), (None, "possible repeat")]
)
def test_the_list_says_of_a_repeat_what_its_card_says(house: Shell, outcome: str | None, told: str) -> None:
    """As soon as the earlier call is settled; control: while it is not, it may have happened."""
    with perdure.open(house.store) as store:
        script = Script(use("pay", to="cat", amount=13), say("Again."))
        store.thread("house", agent=payer.on(script)).run("Pay the cat again.")
    first, again = [each["call"] for each in house.ok("approvals", "--json").json["approvals"]]
    earlier = house.ok("calls", "--json").json["calls"][0]["id"]
    if outcome is not None:
        house.ok("calls", "resolve", "house", earlier, outcome, "--why", "the bank says so")

    listed = house.ok("approvals", "--json").json["approvals"]
    rows = house.ok("approvals").out.splitlines()[:-1]  # the last suggests a command
    card = house.ok("approvals", "show", "house", again, "--json").json["ticket"]

    assert [each["repeat"] for each in listed] == [None, outcome or "possible"]
    assert card["repeat"] == (outcome or "possible")
    assert [told in row for row in rows if again in row or first in row] == [False, True]


@pytest.mark.parametrize("amount", [5000, 6000])
def test_a_repetition_that_the_tool_asks_about_says_so_too(empty: Shell, amount: int) -> None:
    """Another process has paid, perhaps, and the tool always asks; control: another payment is no repeat."""
    for each, id in ((5000, "m1"), (amount, "m2")):
        with perdure.open(empty.store) as store:
            script = Script(use("pay", to="cat", amount=each), say("Hm."))
            thread = store.thread("house", agent=payer.on(script))
            (ticket,) = thread.run("Pay.", id=id).approvals
            if id == "m1":
                thread.decide(ticket.call, "approve", by="ann")
                thread.resume()

    shown = empty.ok("approvals", "show", "house", ticket.call)
    told = empty.ok("approvals", "show", "house", ticket.call, "--json").json

    is_repeat = amount == 5000
    assert ("It repeats, or may repeat, an earlier call:" in shown.out) == is_repeat
    assert told["ticket"]["repeat"] == ("possible" if is_repeat else None)
    assert ("it may have happened" in " ".join(shown.out.split())) == is_repeat


@pytest.mark.parametrize(("outcome", "told"), [("done", "was done"), ("not_done", "was not done")])
def test_a_repetition_of_a_call_that_was_settled_since_says_so(house: Shell, outcome: str, told: str) -> None:
    """Its headline is about the state of the earlier call now; before, it may have happened."""
    with perdure.open(house.store) as store:
        script = Script(use("pay", to="cat", amount=13), say("Again."))
        store.thread("house", agent=payer.on(script)).run("Pay the cat again.")
    earlier = house.ok("calls", "--json").json["calls"][0]["id"]
    call = house.ok("approvals", "ls", "house", "--json").json["approvals"][-1]["call"]

    before = house.ok("approvals", "show", "house", call).out
    house.ok("calls", "resolve", "house", earlier, outcome, "--why", "the bank says so")
    after = " ".join(house.ok("approvals", "show", "house", call).out.split())

    assert "it may have happened" in " ".join(before.split())
    assert "it may have happened" not in after
    assert f"{told}, as a person said since: the bank says so" in after


def test_a_repeat_is_marked_in_the_list_and_warned_of_when_it_is_approved(house: Shell) -> None:
    """Control: a call that only asks before it runs is neither."""
    with perdure.open(house.store) as store:
        script = Script(use("pay", to="cat", amount=13), say("Again."))
        store.thread("house", agent=payer.on(script)).run("Pay the cat again.")
    first, again = [each["call"] for each in house.ok("approvals", "--json").json["approvals"]]

    rows = house.ok("approvals").out.splitlines()[:-1]  # the last suggests a command
    approved = " ".join(house.ok("approvals", "approve", "house", again).out.split())
    plain = house.ok("approvals", "approve", "house", first).out

    assert ["possible repeat" in line for line in rows if first in line or again in line] == [False, True]
    assert "It is a repeat: the same call to pay" in approved
    assert "repeat" not in plain


@pytest.mark.parametrize(("outcome", "sent"), [("done", 1), ("not_done", 2)])
def test_an_approved_repeat_of_a_call_that_was_done_after_all_asks_again(
    house: Shell, outcome: str, sent: int
) -> None:
    """The person who approved it did not know; control: if it was not done, the approval is good."""
    script = Script(use("pay", to="cat", amount=13), say("Again."))
    with perdure.open(house.store) as store:
        again = store.thread("house", agent=payer.on(script)).run("Pay the cat again.")
    earlier = house.ok("calls", "--json").json["calls"][0]["id"]
    house.ok("approvals", "approve", "house", again.approvals[0].call)
    house.ok("calls", "resolve", "house", earlier, outcome, "--why", "the bank says so")

    with perdure.open(house.store) as store:
        thread = store.thread("house", agent=payer.on(script))
        resumed = thread.resume(again.run)
        asked = [each.message for each in resumed.approvals]

    assert paying.sent.count("cat 13") == sent
    assert ["was done" in each for each in asked] == [True] * (outcome == "done")


@pytest.mark.parametrize("outcome", [None, "done", "not_done"])
def test_every_surface_says_the_same_of_an_earlier_call(house: Shell, outcome: str | None) -> None:
    """The list, one approval, Python over one thread and over the store, and SQL: what is known now."""
    with perdure.open(house.store) as store:
        script = Script(use("pay", to="cat", amount=13), say("Again."))
        store.thread("house", agent=payer.on(script)).run("Pay the cat again.")
    earlier = house.ok("calls", "--json").json["calls"][0]["id"]
    if outcome is not None:
        house.ok("calls", "resolve", "house", earlier, outcome, "--why", "the bank says so")

    listed = house.ok("approvals", "ls", "house", "--json").json["approvals"][-1]
    shown = house.ok("approvals", "show", "house", listed["call"], "--json").json["ticket"]["message"]
    asked = f"SELECT message FROM approvals WHERE call_id = '{listed['call']}'"
    (row,) = house.ok("sql", asked, "--json").json["rows"]
    with perdure.open(house.store) as store:
        tickets = [*store.thread("house").approvals(), *(each.ticket for each in store.approvals())]
    python = {each.message for each in tickets if each.call == listed["call"]}

    assert {listed["message"], shown, row[0], *python} == {
        f"the same call to pay, '{earlier}', "
        + {
            None: "is needs_human: it may have happened",
            "done": "was done, as a person said since: the bank says so",
            "not_done": "was not done, as a person said since: the bank says so",
        }[outcome]
    }


def test_what_expires_says_when_and_what_happens_then(empty: Shell) -> None:
    """Also that its time is over, before anybody has looked."""

    @perdure.tool(effect="read_only")
    def ask(call: perdure.Call) -> str:
        call.suspend("Now?", expires_in=60, on_timeout="deny")

    agent = perdure.Agent("a", backend=Script(use("ask"), say("x")), tools=[ask])
    with perdure.open(empty.store, clock=lambda: BEGAN) as store:
        store.thread("t", agent=agent).run("x")
    call = waiting(empty)

    shown = empty.ok("approvals", "show", "t", call).out

    assert "2026-01-31 12:01:00, which is over; then it is denied" in shown
    assert empty.ok("approvals").out.count(call) == 2


def test_a_thread_and_a_call_in_the_wrong_order_are_named(house: Shell) -> None:
    """The advice has them in order; a word that is neither is the control.  One word alone is not enough."""
    call = waiting(house)

    swapped, unknown = (house("approvals", "approve", call, word) for word in ("house", "nothing"))
    alone = house("approvals", "edit", call)

    assert (swapped.code, unknown.code, alone.code) == (3, 3, 2)
    assert "wrong order" in swapped.err
    assert f"house {call}" in swapped.err
    assert "wrong order" not in unknown.err
    assert "needs THREAD and CALL" in alone.err
    assert waiting(house) == call

"""Tool calls on the command line: the ledger, and settling what nobody knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import perdure
from perdure.testing import Script, say, use
from tests.surfaces import paying
from tests.surfaces.paying import CODE, payer
from tests.surfaces.shell import Shell


def unclear(shell: Shell) -> str:
    """The id of the only call that nobody knows the outcome of."""
    (call,) = shell.ok("calls", "--json").json["calls"]
    return call["id"]


def test_calls_that_nobody_knows_the_outcome_of_are_listed_over_all_threads(house: Shell) -> None:
    """`perdure calls` is what somebody has to look at."""
    shown = house.ok("calls").out

    assert "house" in shown
    assert "needs_human" in shown
    assert '{"to":"cat","amount":13}' in shown
    assert unclear(house) in shown
    assert "awaiting_approval" not in shown


def test_a_call_of_unknown_outcome_comes_with_its_next_step(house: Shell) -> None:
    """The list names the commands that show it and settle it; none is said of calls that were interrupted."""
    call, shown = unclear(house), house.ok("calls").out

    assert f"perdure calls show house {call}\n" in shown
    assert f"perdure calls resolve house {call} done" in shown
    assert "runs resume" not in shown


def test_a_call_that_was_cut_off_is_listed_over_all_threads(bread: Shell) -> None:
    """The process was killed after it had paid: the list has the call, and names what settles it."""
    (call,) = bread.ok("calls", "--json").json["calls"]
    shown = bread.ok("calls").out

    assert (call["thread"], call["state"], call["tool"]) == ("bread", "started", "pay")
    assert f"perdure runs resume bread {call['run']} --code MODULE:NAME" in shown
    assert "perdure work --code MODULE:NAME" in shown
    assert "calls resolve" not in shown

    bread("runs", "resume", "bread", "--code", CODE)

    assert bread.ok("calls", "--json").json["calls"] == []


def test_the_doctor_counts_writes_that_were_cut_off(bread: Shell) -> None:
    """Until the run is resumed; then there is nothing to change."""
    before = bread.ok("doctor").out
    bread("runs", "resume", "bread", "--code", CODE)

    assert "1 run ended with 1 external write under way" in before
    assert "perdure calls ls" in before
    assert "resume with perdure runs resume bread --code MODULE:NAME" in " ".join(before.split())
    assert "external write" not in bread.ok("doctor").out


def test_calls_of_a_thread_are_listed_and_filtered(house: Shell) -> None:
    """Oldest first; by run, state and timeline; a short list says so."""
    told = house.ok("call", "ls", "house", "--json").json["calls"]
    run = told[0]["run"]

    assert [each["state"] for each in told] == ["awaiting_approval", "needs_human"]
    assert house.ok("calls", "ls", "house", "--run", run, "--json").json["calls"] == told
    assert "has no run 'other'" in house("calls", "ls", "house", "--run", "other").err
    assert len(house.ok("calls", "ls", "house", "--state", "needs_human", "--json").json["calls"]) == 1
    assert "has no timeline 'other'" in house("calls", "ls", "house", "--timeline", "other").err
    assert "The last call; --limit 0 lists all." in house.ok("calls", "ls", "house", "--limit", "1").out


def test_calls_in_a_state_or_of_a_tool_are_listed_over_all_threads(house: Shell) -> None:
    """What was asked for, and not the calls whose outcome is unknown, which the control lists."""
    told = house.ok("calls", "ls", "house", "--json").json["calls"]
    states = {each["state"] for each in told}

    found = {
        state: house.ok("calls", "ls", "--state", state, "--json").json["calls"]
        for state in (*states, "cancelled")
    }
    of_tool = house.ok("calls", "ls", "--tool", told[0]["tool"], "--json").json["calls"]
    one = house.ok("calls", "ls", "--tool", told[0]["tool"], "--limit", "1", "--json").json

    assert len(states) > 1
    assert found == {state: [each for each in told if each["state"] == state] for state in found}
    assert of_tool == [each for each in told if each["tool"] == told[0]["tool"]]
    assert (one["calls"], one["more"]) == (of_tool[-1:], len(of_tool) > 1)
    assert "No thread has such a call." in house.ok("calls", "ls", "--state", "cancelled").out
    assert [each["state"] for each in house.ok("calls", "--json").json["calls"]] == ["needs_human"]  # control


def test_a_part_of_an_id_that_is_too_short_says_how_long_it_has_to_be(made: Shell) -> None:
    """The end that fits is not guessed from two characters; control: the same with four is taken."""
    (call, *_) = made.ok("calls", "ls", "house", "--json").json["calls"]

    refused = made("calls", "show", "house", call["id"][-2:])
    other = made("calls", "show", "house", "zz")

    assert refused.code == other.code == 3
    assert "A part of an id has 4 characters or more." in refused.err
    assert "A part of an id" not in other.err
    assert made.ok("calls", "show", "house", call["id"][-8:], "--json").json["call"]["id"] == call["id"]


def test_without_calls_there_is_a_sentence(shell: Shell) -> None:
    """Not an empty screen."""
    assert "No call has an unknown outcome, and none was interrupted." in shell.ok("calls").out
    assert "There is no tool call here." in shell.ok("calls", "ls", "shopping").out


def test_calls_of_a_removed_thread_trouble_nobody(house: Shell) -> None:
    """Also when its id was begun again."""
    house.ok("threads", "rm", "house", "--yes", "--force")
    removed = house.ok("calls", "--json").json["calls"]
    house.ok("threads", "begin", "house", "--agent", "payer")

    assert removed == house.ok("calls", "--json").json["calls"] == []


def test_a_call_is_shown_with_the_way_that_it_took(house: Shell) -> None:
    """Arguments, what the model is shown, every state that it passed, and how to settle it."""
    call = unclear(house)

    shown = house.ok("calls", "show", "house", call).out
    told = house.ok("calls", "show", "house", call, "--json").json

    assert "proposed → requested → started" in shown
    assert "unknown → needs_human" in shown
    assert "the bank is closed" in shown
    assert f"perdure calls reconcile house {call} --code MODULE:NAME" in shown
    assert [each["states"] for each in told["passed"]] == [
        ["proposed", "requested", "started"],
        ["unknown", "needs_human"],
    ]
    assert told["call"]["effect"] == "financial"


def test_a_call_that_its_hook_settled_says_so(house: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked the hook, what it said, and since when the model is shown that."""
    call = unclear(house)
    monkeypatch.setattr(paying, "ANSWERS", ["done"])
    house.ok("calls", "reconcile", "house", call, "--code", CODE, "--by", "ann")

    shown = house.ok("calls", "show", "house", call).out

    assert "by ann  its hook says that it was done" in shown
    assert "what the model is shown since it was settled" in shown


@pytest.mark.parametrize(
    "raw",
    [
        "not json",
        '{"a": NaN}',
        '{"a": 1' + "0" * 5_000 + "}",
        "[" * 5_000 + "]" * 5_000,
        '{"a": "\ud800"}',
        "",
    ],
)
def test_arguments_that_are_no_json_are_shown_as_text(empty: Shell, raw: str) -> None:
    """A model may ask for anything; the call failed, and can be looked at."""
    script = Script(use("pay", raw=raw), say("Oh."))
    with perdure.open(empty.store) as store:
        store.thread("t", agent=payer.on(script)).run("Pay.")
    call = empty.ok("calls", "ls", "t", "--json").json["calls"][0]

    empty.ok("calls", "show", "t", call["id"])
    told = empty.ok("calls", "show", "t", call["id"], "--json").json["call"]

    assert told["state"] == "failed"
    assert isinstance(told["arguments"], str | dict)


def test_a_call_that_is_not_there_is_not_found(house: Shell) -> None:
    """With advice in the words of the shell; a timeline that it was not made on is said too."""
    assert "`perdure calls ls house`" in house("calls", "show", "house", "???").err
    assert house("calls", "show", "house", "???").code == 3

    elsewhere = house("calls", "show", "house", unclear(house), "--timeline", "other")

    assert elsewhere.code == 3
    assert "was made on timeline 'main'" in elsewhere.err


def test_a_tool_is_asked_what_became_of_its_call(house: Shell) -> None:
    """As long as it does not know the call stays; once it knows, it is settled."""
    call = unclear(house)

    still = house("calls", "reconcile", "house", call, "--code", CODE)
    paying.ANSWERS[0] = "done"
    settled = house("calls", "reconcile", "house", call, "--code", CODE, "--json")

    assert "still needs_human," in still.out
    assert (settled.json["before"], settled.json["call"]["state"]) == ("needs_human", "succeeded")
    assert house.ok("calls", "--json").json["calls"] == []
    assert '{"receipt":7}' in house.ok("calls", "show", "house", call).out


def test_not_done_is_believed_of_a_process_that_is_gone(bread: Shell) -> None:
    """The call starts again when its run goes on, and that is said."""
    paying.ANSWERS[0] = "not_done"
    call = bread.ok("calls", "ls", "bread", "--json").json["calls"][0]["id"]

    asked = bread("calls", "reconcile", "bread", call, "--code", CODE)

    assert asked.code == 0
    assert "from started to requested," in asked.out
    assert re.search(r"perdure runs resume bread \S+ --code MODULE:NAME", asked.out)


def test_what_is_known_is_a_conflict(house: Shell) -> None:
    """Neither a tool nor a person is asked about it."""
    paying.ANSWERS[0] = "done"
    call = unclear(house)
    house("calls", "reconcile", "house", call, "--code", CODE)

    for words in (["reconcile", "house", call, "--code", CODE], ["resolve", "house", call, "not_done"]):
        assert house("calls", *words).code == 4


def test_a_person_says_what_became_of_a_call(house: Shell) -> None:
    """Who and why are kept; the same again is nothing new, the opposite is a conflict."""
    call = unclear(house)
    words = ["calls", "resolve", "house", call]

    done = house.ok(*words, "done", "--result", '{"receipt": 8}', "--by", "ann", "--why", "they called")
    again = house.ok(*words, "done")
    opposite = house(*words, "not_done")

    shown = house.ok("calls", "show", "house", call).out
    assert "Resolved as done: pay, from needs_human to resolved," in done.out
    assert "still resolved," in again.out
    assert opposite.code == 4
    assert "resolved  by ann  they called" in shown
    assert '{"receipt":8}' in shown


def test_a_result_may_come_from_a_file(house: Shell) -> None:
    """@FILE, or @- for the input; what is no JSON is refused before anything is written."""
    Path("receipt.json").write_text('{"receipt": 9}')
    call = unclear(house)

    refused = house("calls", "resolve", "house", call, "done", "--result", "plain words")
    house.ok("calls", "resolve", "house", call, "done", "--result", "@receipt.json")

    assert refused.code == 2
    assert "Text is written with quotes" in refused.err
    assert '{"receipt":9}' in house.ok("calls", "show", "house", call).out


def test_what_was_not_done_has_no_result(house: Shell) -> None:
    """Giving one is a mistake, and nothing is resolved."""
    call = unclear(house)

    ended = house("calls", "resolve", "house", call, "not_done", "--result", "1")

    assert ended.code == 2
    assert unclear(house) == call


def test_a_started_call_is_left_to_its_run(bread: Shell) -> None:
    """A person resolves only what its run has given up on."""
    call = bread.ok("calls", "ls", "bread", "--json").json["calls"][0]["id"]

    ended = bread("calls", "resolve", "bread", call, "done")

    assert ended.code == 4
    assert "`perdure runs resume bread --code MODULE:NAME` or `perdure runs cancel bread`" in ended.err


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("no_such_module:agent", "there is no module 'no_such_module' here"),
        ("tests.surfaces.paying:payr", "there is no 'payr' in it; nothing was done. Did you mean 'payer'?"),
        ("quits.py", "Write --code quits."),
        ("tests.surfaces.paying:CODE", "holds no Agent"),
        ("tests.surfaces.paying:asker", "belongs to agent 'payer'"),
        ("not a module", "is not module:name"),
        ("quits:agent", "SystemExit: 3"),
    ],
)
def test_code_that_cannot_be_used_is_a_usage_error(house: Shell, code: str, told: str) -> None:
    """With the cause, and nothing was done."""
    Path("quits.py").write_text("raise SystemExit(3)\n")

    ended = house("calls", "reconcile", "house", unclear(house), "--code", code)

    assert ended.code == 2
    assert told in ended.err
    assert "nothing was done" in ended.err


def test_a_list_or_a_module_of_agents_will_do(house: Shell) -> None:
    """The agent of the thread is found in it."""
    for code in ("tests.surfaces.paying:both", "tests.surfaces.paying"):
        assert house("calls", "reconcile", "house", unclear(house), "--code", code).code == 0


def test_code_is_never_loaded_unasked(house: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking, deciding and cancelling work without the user's code."""
    monkeypatch.setattr("perdure.cli.input.user_code.import_module", lambda _name: 1 / 0)
    call = house.ok("approvals", "--json").json["approvals"][0]["call"]

    house.ok("calls", "show", "house", call)
    house.ok("approvals", "deny", "house", call)
    house.ok("calls", "resolve", "house", unclear(house), "not_done")
    house.ok("runs", "cancel", "house")


def test_a_thread_that_is_not_there_is_not_begun(house: Shell) -> None:
    """Naming an agent's code creates nothing."""
    ended = house("runs", "resume", "hause", "--code", CODE)

    assert ended.code == 3
    assert [each["id"] for each in house.ok("threads", "--json").json["threads"]] == ["house"]


def test_what_tools_print_stays_out_of_the_answer(house: Shell) -> None:
    """It goes to the error stream."""
    call = house.ok("approvals", "--json").json["approvals"][0]["call"]
    house.ok("approvals", "approve", "house", call)

    ended = house("runs", "resume", "house", "--code", CODE, "--json")

    assert ended.json["status"] == "succeeded"
    assert ended.err == "paying\n"


def test_a_call_that_waits_says_where_it_is_decided(house: Shell) -> None:
    """The command that shows the question leads to the decision."""
    (asked,) = house.ok("approvals", "--json").json["approvals"]

    shown = house.ok("calls", "show", "house", asked["call"]).out

    assert f"perdure approvals show house {asked['call']}" in shown

"""Runs on the command line: what is there, going on, stopping, and following."""

from __future__ import annotations

import json
import os
import re
import signal
from itertools import count, islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Stop
from perdure.errors import RunFailed
from perdure.model.effect import Effect
from perdure.model.run import Usage
from perdure.runtime.session import records
from perdure.store.evaluation import Trial
from perdure.testing import Script, fail, say, step, use
from tests.forked import PIPE, ForkedProcess, commands
from tests.surfaces import paying
from tests.surfaces.paying import CODE, cut_off, payer
from tests.surfaces.shell import Ended, Shell


def run_of(shell: Shell) -> str:
    """The id of the only run."""
    return shell.ok("runs", "--json").json["runs"][0]["id"]


def test_open_runs_of_all_threads_are_listed(house: Shell) -> None:
    """`perdure runs` shows what is under way, cut off or waiting, and names the thread."""
    shown = house.ok("runs").out
    told = house.ok("runs", "--json").json

    assert "house" in shown
    assert "waiting" in shown
    assert [(each["thread"], each["state"]) for each in told["runs"]] == [("house", "waiting")]
    assert told["runs"][0]["id"] in shown


def test_a_run_whose_approval_is_decided_says_so(house: Shell) -> None:
    """It still waits, but for nobody: it can be resumed."""
    (before,) = house.ok("runs", "--json").json["runs"]
    (asked,) = house.ok("approvals", "--json").json["approvals"]
    house.ok("approvals", "deny", "house", asked["call"])

    (after,) = house.ok("runs", "ls", "house", "--json").json["runs"]

    assert (before["state"], before["decided"]) == ("waiting", False)
    assert (after["state"], after["decided"]) == ("waiting", True)
    assert "waiting, decided" in house.ok("runs").out


def test_a_listing_of_runs_says_what_goes_on_with_them(house: Shell) -> None:
    """For a call that waits it is the approval; once that is decided, the command that resumes the run, or a worker."""
    (asked,) = house.ok("approvals", "--json").json["approvals"]
    before = house.ok("runs").out
    house.ok("approvals", "deny", "house", asked["call"])

    after = house.ok("runs").out

    assert f"Decide: perdure approvals show {asked['call']}" in before
    assert "runs resume" not in before
    assert f"perdure runs resume {run_of(house)} --code MODULE:NAME" in after
    assert "perdure work --code MODULE:NAME" in after
    assert "Decide: " not in after


@pytest.mark.parametrize(
    "words",
    [
        "runs show {run}",
        "run show --json {run}",
        "runs wait {run}",
        "runs cancel {run}",
        "runs resume {run} --code tests.surfaces.paying:payer",
        "runs release --run {run}",
        "calls ls --run {run}",
        "calls show {call}",
        "calls resolve {unclear} done",
        "calls reconcile {unclear} --code tests.surfaces.paying:payer",
        "approvals show {call}",
        "approval approve {call}",
        "approvals deny {call} --why no",
        "approvals answer {call} --value 1",
    ],
)
def test_an_id_as_listings_show_it_names_its_thread(made: Shell, words: str) -> None:
    """No thread has to be named before the end of an id, in any noun."""
    (run,) = made.ok("runs", "--json").json["runs"]
    (asked,) = made.ok("approvals", "--json").json["approvals"]
    (unclear,) = made.ok("calls", "--json").json["calls"]
    ids = {"run": run["id"][-8:], "call": asked["call"][-8:], "unclear": unclear["id"][-8:]}

    ended = made(*words.format(**ids).split())

    assert ended.code == 0, ended


@pytest.mark.parametrize(
    "words", ["runs show {run}", "runs cancel {run}", "calls show {call}", "approvals approve {call}"]
)
def test_a_thread_that_is_named_is_not_replaced_by_the_one_of_the_id(made: Shell, words: str) -> None:
    """A person who mistypes a thread may mean another one than the id does: nothing is done."""
    (run,) = made.ok("runs", "--json").json["runs"]
    (asked,) = made.ok("approvals", "--json").json["approvals"]
    noun, verb, id = words.format(run=run["id"], call=asked["call"]).split()

    ended = made(noun, verb, "nowhere", id)

    assert ended.code == 3
    assert [each["call"] for each in made.ok("approvals", "--json").json["approvals"]] == [asked["call"]]


def test_an_id_in_two_threads_is_refused_with_both(empty: Shell) -> None:
    """A part that fits runs of two threads decides nothing: the error names each with its thread."""
    alike = (f"{number:08x}-0000-7000-8000-00000000beef" for number in count())
    talker = Agent("talker", backend=Script(say("Hello.")))
    with perdure.open(empty.store, ids=lambda: next(alike)) as store:
        runs = [store.thread(name, agent=talker).run("Hello.", id=name).run for name in ("one", "two")]

    ended = empty("runs", "show", "0000beef", "--json")

    assert (ended.code, ended.error["code"]) == (2, "id_ambiguous")
    assert ended.error["facts"]["found"] == [f"one {runs[0]}", f"two {runs[1]}"]


@pytest.mark.parametrize(
    "words", ["runs show abcd1234", "runs start abcd1234 Hello", "runs release --run abcd1234"]
)
def test_a_word_that_is_no_id_is_refused_as_before(made: Shell, words: str) -> None:
    """What is the id of no thread and of no run is not found, and nothing is begun."""
    assert made(*words.split()).code == 3
    assert made("calls", "show", "house").code == 2


def test_calls_that_failed_are_counted(empty: Shell) -> None:
    """The model goes on after an error of a tool, so the run, its turn and its result say how many there were."""

    @perdure.tool(effect="read_only")
    def look(place: str) -> str:
        """Look somewhere."""
        return {"sky": "blue"}[place]

    @perdure.tool(effect="local_write")
    def save() -> str:
        """Save it."""
        raise TypeError("save() takes no arguments")

    script = Script(step(use("look", place="sky"), use("look", place="sea"), use("save")), say("Done."))
    agent = Agent("clerk", backend=script, tools=[look, save])
    with perdure.open(empty.store) as store:
        result = store.thread("t", agent=agent).run("Look.", id="m1")
        again = store.thread("t", agent=agent).run("Look.", id="m1")

    (turn,) = empty.ok("threads", "log", "t", "--json").json["turns"]
    assert (result.status, result.calls, len(result.failed_calls), len(result.unclear_calls)) == (
        "succeeded",
        3,
        1,
        1,
    )
    assert again == result
    assert (turn["calls"], turn["failed"], turn["unclear"]) == (
        3,
        [*result.failed_calls],
        [*result.unclear_calls],
    )
    assert "calls   3, 1 failed, 1 of unknown outcome" in empty.ok("runs", "show", "t").out
    assert "calls      3, 1 failed, 1 of unknown outcome" in empty.ok("threads", "log", "t").out


def test_runs_of_a_thread_are_filtered(house: Shell) -> None:
    """By state and by timeline; the singular is accepted."""
    assert len(house.ok("run", "ls", "house", "--json").json["runs"]) == 1
    assert house.ok("runs", "ls", "house", "--state", "failed", "--json").json["runs"] == []
    assert "has no timeline 'other'" in house("runs", "ls", "house", "--timeline", "other").err
    assert "There is no run here" in house.ok("runs", "ls", "house", "--state", "failed").out


def test_runs_in_a_state_are_listed_over_all_threads(house: Shell) -> None:
    """Newest first, as many as the limit, also where they have ended; the control is a thread that succeeded."""
    with perdure.open(house.store) as store:
        for name in ("a", "b", "c"):
            with pytest.raises(RunFailed):
                store.thread(name, agent=Agent(name, backend=Script(fail(ValueError("no"))))).run("Hello")
        store.thread("d", agent=Agent("d", backend=Script(say("Hi.")))).run("Hello")

    def threads(*words: str) -> list[str]:
        return [each["thread"] for each in house.ok("runs", "ls", "--json", *words).json["runs"]]

    limited = house.ok("runs", "ls", "--state", "failed", "--limit", "2").out

    assert threads("--state", "failed") == ["c", "b", "a"]
    assert threads("--state", "failed", "--limit", "2") == ["c", "b"]
    assert "The last 2 runs; --limit 0 lists all." in limited
    assert threads("--state", "succeeded") == ["d"]
    assert threads("--state", "waiting") == threads() == ["house"]
    assert "No run of any thread is cancelled." in house.ok("runs", "ls", "--state", "cancelled").out


def test_without_runs_there_is_a_sentence(shell: Shell) -> None:
    """Not an empty screen."""
    assert "No run is under way" in shell.ok("runs").out
    assert "perdure runs ls --state failed" in shell.ok("runs").out
    assert "There is no run here" in shell.ok("runs", "ls", "shopping").out
    assert shell("runs", "show", "shopping").code == 3


def test_a_run_is_shown_with_its_words_and_calls(house: Shell) -> None:
    """The last one, if none is named; it says how to decide."""
    shown = house.ok("runs", "show", "house").out
    told = house.ok("runs", "show", "house", run_of(house), "--json").json

    assert "Pay the roofer and the cat." in shown
    assert f"perdure approvals show house {told['calls'][0]['id']}" in shown
    assert [call["state"] for call in told["calls"]] == ["awaiting_approval", "needs_human"]
    assert told["calls"][0]["arguments"] == {"to": "roofer", "amount": 5000}
    assert [message["role"] for message in told["messages"]] == ["user", "assistant", "tool"]


def test_a_run_that_is_not_there_is_not_found(house: Shell) -> None:
    """With the ids that are close."""
    near = run_of(house)[:-1] + "x"

    for verb in (
        ["show", "house", near],
        ["cancel", "house", near],
        ["resume", "house", near, "--code", CODE],
    ):
        ended = house("runs", *verb)

        assert ended.code == 3
        assert f"Did you mean '{run_of(house)}'?" in ended.err


def test_a_run_that_was_cut_off_says_so_and_goes_on(bread: Shell) -> None:
    """What its tool had done is found by asking, and not done again."""
    listed = bread.ok("runs", "--json").json["runs"][0]
    shown = bread.ok("runs", "show", "bread").out

    ended = bread("runs", "resume", "bread", "--code", CODE, "--json")

    assert (listed["state"], listed["interrupted"]) == ("running", True)
    assert "interrupted" in shown
    assert f"perdure runs resume bread {listed['id']} --code MODULE:NAME" in shown
    assert ended.json["status"] == "succeeded"
    assert ended.json["run"] == listed["id"]
    assert paying.sent == []
    assert bread.ok("calls", "ls", "bread", "--json").json["calls"][0]["attempt"] == 1


def test_suggested_commands_name_the_store_that_was_named(bread: Shell) -> None:
    """So that they can be copied as they are."""
    after = bread.ok("runs", "show", "bread", "--store", "perdure.db").out
    before = bread.ok("--store=perdure.db", "runs", "show", "bread").out

    assert "--code MODULE:NAME --store perdure.db" in after
    assert before == after


def test_a_run_that_still_waits_is_left_as_it_is(house: Shell) -> None:
    """Resuming it says what it waits for."""
    ended = house.ok("runs", "resume", "house", "--code", CODE)

    assert "waiting" in ended.out
    assert "1 approval open: perdure approvals show house" in ended.out
    assert paying.sent == ["cat 13"]


def test_a_run_that_fails_on_resuming_ends_with_1(house: Shell) -> None:
    """The error stream says what happened; scripts see the code."""
    call = house.ok("approvals", "--json").json["approvals"][0]["call"]
    house.ok("approvals", "approve", "house", call)
    broken = Path("broken.py")
    broken.write_text(
        "from tests.surfaces.paying import payer\nfrom perdure.testing import Script, fail\n"
        "agent = payer.on(Script(fail(), fail(), fail()))\n"
    )

    ended = house("runs", "resume", "house", "--code", "broken:agent")

    assert ended.code == 1
    assert "receipt for roofer" in ended.out  # what was shown before it failed
    assert "RunFailed" in ended.err
    assert house.ok("runs", "ls", "house", "--json").json["runs"][0]["state"] == "failed"


def test_a_failed_run_is_retried_by_the_command_that_its_failure_names(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on from its last step, so what was paid before the failure is not paid again; without its id nothing runs."""
    monkeypatch.setattr(paying, "sent", [])
    paid = "from tests.surfaces.paying import payer\nfrom perdure.testing import Script, fail, say, use\n"
    for name, end in (("down", "fail()"), ("mended", "say('Paid.')")):
        script = f"agent = payer.on(Script(use('pay', to='baker', amount=3), {end}))\n"
        Path(f"{name}.py").write_text(paid + script)
    start = ("runs", "start", "bread", "Pay the baker.", "--id", "m1", "--agent", "payer")
    run = shell.ok(*start, "--json").json["run"]["id"]
    assert f"Queued before; nothing new was queued: run {run}" in shell.ok(*start).out

    worked = shell("work", "--until-idle", "--code", "down:agent").out
    shown = shell.ok("runs", "show", "bread").out
    unnamed = shell("runs", "resume", "bread", "--code", "mended:agent")
    ended = shell.ok("runs", "resume", "bread", run, "--code", "mended:agent", "--json").json

    command = f"Try again: perdure runs resume bread {run} --code MODULE:NAME"
    assert [command in " ".join(each.split()) for each in (worked, shown)] == [True] * 2
    assert unnamed.code == 3
    assert (ended["run"], ended["status"], ended["text"]) == (run, "succeeded", "Paid.")
    assert paying.sent == ["baker 3"]


def test_the_same_id_queues_a_failed_run_again(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next worker retries it, from its last step."""
    monkeypatch.setattr(paying, "sent", [])
    paid = "from tests.surfaces.paying import payer\nfrom perdure.testing import Script, fail, say, use\n"
    for name, end in (("down", "fail()"), ("mended", "say('Paid.')")):
        script = f"agent = payer.on(Script(use('pay', to='baker', amount=3), {end}))\n"
        Path(f"{name}.py").write_text(paid + script)
    start = ("runs", "start", "bread", "Pay the baker.", "--id", "m1", "--agent", "payer")
    run = shell.ok(*start, "--json").json["run"]["id"]
    shell("work", "--until-idle", "--code", "down:agent")

    again = shell.ok(*start).out
    shown = shell.ok("runs", "show", "bread").out
    worked = shell.ok("work", "--until-idle", "--code", "mended:agent").out

    assert f"Queued again: run {run}" in again
    assert "A worker retries it: perdure work --code MODULE:NAME" in " ".join(again.split())
    assert "queued" in shown
    assert "succeeded" in worked
    assert paying.sent == ["baker 3"]


def test_an_acknowledged_input_that_no_model_can_take_is_shown_and_retried(shell: Shell) -> None:
    """The log, the run and the listing have it, whatever keeps its run from beginning."""
    Path("talk.py").write_text(
        "from perdure import Agent\nfrom perdure.testing import Script, say\n"
        "bare, able = Agent('talker'), Agent('talker', backend=Script(say('Heard.')))\n"
    )
    start = ("runs", "start", "trip", "Unheard words.", "--id", "m7", "--agent", "talker")
    run = shell.ok(*start, "--json").json["run"]["id"]

    shell.ok("work", "--until-idle", "--code", "talk:bare")
    views = [
        shell.ok(*each.split()).out
        for each in ("threads log trip", "runs show trip", "export trip --format openai-chat")
    ]
    listed = shell.ok("runs", "ls", "trip", "--json").json["runs"]
    ended = shell.ok("runs", "resume", run, "--code", "talk:able", "--json").json

    assert ["Unheard words." in each for each in views] == [True] * 3
    assert [(each["id"], each["state"]) for each in listed] == [(run, "failed")]
    assert ended["text"] == "Heard."


def test_nothing_to_resume_is_not_found(shell: Shell) -> None:
    """A thread without an open run has nothing to go on with."""
    helper = Path("helper_app.py")
    helper.write_text("import perdure\nhelper = perdure.Agent('helper')\n")

    ended = shell("runs", "resume", "shopping", "--code", "helper_app:helper")

    assert ended.code == 3


def test_a_waiting_run_is_cancelled_at_once(house: Shell) -> None:
    """Its approval is not open any more; the same again changes nothing."""
    ended = house.ok("runs", "cancel", "house", "--why", "moved out")
    told = house.ok("runs", "show", "house", "--json").json["run"]

    assert "Cancelled: run" in ended.out
    assert (told["state"], told["cancel"]) == ("cancelled", "moved out")
    assert house.ok("approvals", "ls", "house", "--json").json["approvals"] == []
    assert house.ok("runs", "cancel", "house", told["id"]).out == ended.out


def test_a_run_that_has_ended_is_not_cancelled(bread: Shell) -> None:
    """It stays what it is, and that is said."""
    bread("runs", "resume", "bread", "--code", CODE)
    run = bread.ok("runs", "ls", "bread", "--json").json["runs"][0]["id"]

    ended = bread.ok("runs", "cancel", "bread", run)

    assert "has ended before: succeeded" in ended.out


def test_a_cancelled_run_leaves_what_it_had_started_unknown(bread: Shell) -> None:
    """Cancelling after the start is not failing."""
    bread.ok("runs", "cancel", "bread")

    told = bread.ok("calls", "--json").json["calls"]

    assert [(each["thread"], each["state"]) for each in told] == [("bread", "unknown")]


def test_a_line_with_a_cut_off_run_is_busy(bread: Shell) -> None:
    """A conflict, in the words of the shell."""
    ended = bread("threads", "undo", "bread")

    assert ended.code == 4
    assert (
        "`perdure runs resume bread --code MODULE:NAME` finishes it, `perdure runs cancel bread` ends it."
        in ended.err
    )


def events(ended: Ended) -> list[Any]:
    """The events of a command, without how long an approval has waited, which grows between two of them."""
    found = [json.loads(line) for line in ended.out.splitlines()]
    return [
        each | {"approval": {**each["approval"], "age_seconds": 0}} if each["approval"] else each
        for each in found
    ]


def test_what_was_committed_is_followed_from_a_cursor(house: Shell) -> None:
    """Each event once and in order, as JSON one a line."""
    with perdure.open(house.store) as store:
        thread = store.thread("house", agent=payer)
        started = next(iter(thread.log()[::-1])).digest
        cursor = f"0.0.{started}"

    lines = events(house.ok("threads", "follow", "house", "--after", cursor, "--json"))
    rest = events(house.ok("threads", "follow", "house", "--after", lines[2]["cursor"], "--json"))

    assert rest == lines[3:]
    assert {"message.appended", "tool.call.suspended", "committed"} <= {line["type"] for line in lines}
    assert lines[-1]["type"] == "committed"


def test_people_follow_words_and_commits(house: Shell) -> None:
    """A line for each; without a cursor only what happens from now on, which is nothing here."""
    with perdure.open(house.store, read_only=True) as store:
        first = store.thread("house").log()[-1].digest

    shown = house.ok("threads", "follow", "house", "--after", f"0.0.{first}").out

    assert "Pay the roofer and the cat." in shown
    assert "tool.call.suspended" in shown
    assert house.ok("threads", "follow", "house").out == ""


def test_an_undo_is_followed_after_the_commit_that_was_read(house: Shell) -> None:
    """For people and for programs; after its own cursor nothing is left."""
    read = house.ok("threads", "show", "house", "--json").json
    house.ok("threads", "undo", "house")

    shown = house.ok("threads", "follow", "house", "--after", read["commit"]).out
    (line,) = events(house.ok("threads", "follow", "house", "--after", read["cursor"], "--json"))

    assert shown.split()[:5] == ["undo", "the", "timeline", "is", "now"]
    assert (line["type"], line["event"]["act"]) == ("head.moved", "undo")
    assert house.ok("threads", "follow", "house", "--after", line["cursor"]).out == ""


def test_a_cursor_of_another_thread_is_not_found(house: Shell) -> None:
    """Nothing is followed."""
    ended = house("threads", "follow", "house", "--after", "0.0." + "0" * 64)

    assert ended.code == 3
    assert "nothing was followed" in ended.err


def test_the_next_run_is_waited_for(house: Shell) -> None:
    """`--wait` prints what another process makes durable, until it is interrupted."""
    with perdure.open(house.store) as store:
        thread = store.thread("house", agent=payer.on(Script(say("Hello."))))
        cursor = list(thread.follow(after=f"0.0.{thread.log()[-1].digest}"))[-1].cursor
        assert cursor is not None
        words = ["threads", "follow", "house", "--wait", "--json", "--after", cursor]
        with ForkedProcess(commands(), ["-m", "perdure", *words], stdout=PIPE, stderr=PIPE) as follower:
            assert follower.stdout is not None
            thread.run("Hello?")
            seen = [json.loads(line)["type"] for line in islice(follower.stdout, 6)]
            follower.send_signal(signal.SIGINT)
            rest = follower.communicate()

    assert seen.count("message.appended") == 2
    assert "run.finished" in seen + [json.loads(line)["type"] for line in rest[0].splitlines()]
    assert follower.returncode == 130
    assert json.loads(rest[1])["error"] == "Interrupted"


def test_costs_adds_up_by_what_is_asked_for(shell: Shell) -> None:
    """Threads, owners, agents, runs, turns and models have the same sum, and unknown prices are said."""
    with perdure.open(shell.directory / "perdure.db") as store:
        used = Usage(input_tokens=1000, output_tokens=100)
        priced = Agent("a", backend=Script(say("Hi.", usage=used)), stop=Stop(price=lambda _: 0.25))
        store.thread("t1", agent=priced, owner="ann").run("hello")
        store.thread("t2", agent=Agent("b", backend=Script(say("Hi.", usage=used)))).run("hello")

    for kind in ("thread", "owner", "agent", "run", "turn", "model", "day"):
        told = shell.ok("costs", "--by", kind, "--json").json
        assert told["total"]["cost"] == {"usd": 0.25, "steps": 2, "unpriced": 1}
        assert all(each["cost"].keys() == {"usd", "steps", "unpriced"} for each in told["costs"])
        assert kind != "day" or [len(each["of"]) for each in told["costs"]] == [len("2026-01-31")]
    of_thread = shell.ok("threads", "show", "t1", "--json").json["cost"]
    of_run = shell.ok("runs", "show", "t1", "--json").json["cost"]
    with perdure.open(shell.directory / "perdure.db", read_only=True) as store:
        in_python = msgspec.to_builtins(store.thread("t1").cost())
    assert of_thread == of_run == in_python
    shown = shell.ok("costs").out
    assert "$0.2500" in shown
    assert re.search(r"^t2 +1 +1,000 +0 +100 +unknown +1$", shown, re.MULTILINE)
    assert re.search(r"^together +2 +2,000 +0 +200 +\$0\.2500 +1$", shown, re.MULTILINE)
    assert "$PERDURE_MODELS" in shown
    assert "$PERDURE_MODELS" not in shell.ok("costs", "t1").out
    assert "1,000 in, 100 out" in shell.ok("runs", "show", "t1").out
    assert "$0.2500" in shell.ok("threads", "show", "t1").out


def short_answer(trial: Trial) -> float:
    """Score an answer by its length."""
    return float(len(trial.text) < 20)


def test_eval_runs_a_recorded_turn_again_and_pays_nothing(shell: Shell) -> None:
    """The table has the score, the fork stays, and what was not made is listed."""
    with perdure.open(shell.store) as store:
        store.thread("bills", agent=payer.on(Script(say("Nothing was due.")))).run("Pay the bills")
    paying.sent.clear()

    words = ("eval", "bills", "--code", CODE, "--score", f"{__name__}:short_answer", "--name", "again")
    told = shell.ok(*words, "--json").json
    shown = shell.ok(*words).out

    (trial,) = told["trials"]
    assert (trial["text"], trial["before"]) == ("All is paid.", "Nothing was due.")
    assert (told["score"], trial["denied"], paying.sent) == (1.0, ["pay", "pay"], [])
    assert "mean score 1.00" in shown
    assert "perdure threads log bills --timeline eval/again/1" in shown
    assert shell("eval", "bills", "--code", CODE, "--turn", "9").code == 3


# ---- workers


def test_a_thread_is_begun_with_its_first_input(empty: Shell) -> None:
    """With --agent no thread has to be there before; without it, it has to."""
    ended = empty("runs", "start", "fresh", "Hello.", "--json")
    empty.ok("init")
    without = empty("runs", "start", "fresh", "Hello.", "--json")
    queued = empty.ok("runs", "start", "fresh", "Hello.", "--agent", "baker", "--owner", "ann", "--json").json

    assert (ended.error["code"], without.error["code"]) == ("store_not_found", "thread_not_found")
    assert queued["run"]["state"] == "created"
    assert empty.ok("threads", "show", "fresh", "--json").json["owner"] == "ann"


def test_an_input_is_queued_and_a_worker_runs_it(bread: Shell) -> None:
    """`runs start` names its run, `runs` shows it, and `work` carries it on with the interrupted one."""
    queued = bread.ok("runs", "start", "bread", "Thanks.", "--id", "m9", "--json").json
    again = bread.ok("runs", "start", "bread", "Thanks.", "--id", "m9", "--json").json
    shown = bread.ok("runs").out
    later = bread.ok("runs", "start", "bread", "Later.", "--at", "2999-01-01T09:00").out
    scheduled = bread.ok("runs").out

    assert queued["run"]["id"] == again["run"]["id"]
    assert "queued" in shown
    assert "Queued for 2999-01-01 09:00:00" in later
    assert "at 2999-01-01 09:00:00" in scheduled


def test_a_worker_prints_what_it_carries_on(shell: Shell) -> None:
    """One line for each run, and a sentence at its end."""
    with perdure.open(shell.store) as store:
        run = store.thread("asked", agent=payer).start("Pay.")

    ended = shell("work", "--code", CODE, "--until-idle", "--json")
    lines = [json.loads(line) for line in ended.out.splitlines()]

    assert [line.get("run") for line in lines[:-1]] == [run]
    assert (lines[-1], ended.code) == ({"runs": 1}, 0)
    assert ended.err == "paying\n"  # what the code prints


def test_a_worker_says_what_a_run_waits_for(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ids as short as every command takes them, with the command that lists them, until it is decided."""
    monkeypatch.setenv("COLUMNS", "80")
    with perdure.open(shell.store) as store:
        thread = store.thread("asked", agent=payer)
        run = thread.start("Pay.")

        out = shell("work", "--code", CODE, "--until-idle").out
        call = thread.approvals()[0].call

    assert f"waiting  asked  {run[-8:]}\n" in out
    assert f"Waits for a decision on {call[-8:]}\n" in out
    assert "perdure approvals ls asked" in out

    shell.ok("approvals", "deny", "asked", call[-8:-4])

    assert "approvals ls" not in shell("work", "--code", CODE, "--until-idle").out


def test_a_worker_needs_code(shell: Shell) -> None:
    """Without it nothing is begun."""
    assert shell("work").code == 2
    assert "--code" in shell("work").err


def test_a_worker_drains_on_sigterm(shell: Shell) -> None:
    """It ends with what it has begun, and says so; it does not need a second signal."""
    words = ["-m", "perdure", "work", "--code", CODE, "--store", str(shell.store)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with ForkedProcess(commands(), words, stdout=PIPE, stderr=PIPE, env=env) as worker:
        assert worker.stdout is not None
        began = worker.stdout.readline()
        worker.send_signal(signal.SIGTERM)
        out, err = worker.communicate(timeout=60)

    assert began.startswith("Working for ")
    assert (worker.returncode, "Stopping" in err, "Stopped." in out) == (0, True, True)


def test_a_run_that_a_worker_carries_on_is_waited_for(shell: Shell) -> None:
    """The command ends with the run and prints what it said; by its id alone, and by its thread."""
    run = shell.ok("runs", "start", "talk", "Hello", "--agent", "echo", "--json").json["run"]["id"]
    wanted = ["-m", "perdure", "runs", "wait", run[-8:], "--timeout", "1m", "--store", str(shell.store)]
    with ForkedProcess(commands(), wanted, stdout=PIPE, stderr=PIPE, env={**os.environ}) as waiting:
        with perdure.open(shell.store) as store:
            store.work([Agent("echo", backend=Script(say("Good morning.")))], until_idle=True)
        out, err = waiting.communicate(timeout=60)
    again = shell.ok("runs", "wait", "talk", "--json").json

    assert (waiting.returncode, err) == (0, "")
    assert "Good morning." in out
    assert "succeeded" in out
    assert (again["run"], again["status"], again["text"]) == (run, "succeeded", "Good morning.")


def test_a_wait_ends_with_its_time_and_changes_nothing(shell: Shell) -> None:
    """Exit code 7, and the command that waits again; the run is still queued."""
    run = shell.ok("runs", "start", "talk", "Hello", "--agent", "echo", "--json").json["run"]["id"]

    ended = shell("runs", "wait", "talk", run, "--timeout", "0s", "--json")

    assert (ended.code, ended.error["code"], ended.error["facts"]["state"]) == (7, "run_goes_on", "created")
    assert f"`perdure runs wait talk {run}`" in ended.error["hint"]
    assert shell.ok("runs", "show", run, "--json").json["run"]["state"] == "created"
    assert shell("runs", "wait", "talk", "--timeout", "5").code == 2


def test_a_run_that_waits_for_a_decision_or_failed_is_waited_for_no_longer(house: Shell) -> None:
    """The first names the question and exits with 0, the second exits with 1."""
    with perdure.open(house.store) as store, pytest.raises(RunFailed):
        store.thread("broken", agent=Agent("a", backend=Script(fail()))).run("go")

    waiting, failed = house.ok("runs", "wait", "house"), house("runs", "wait", "broken", "--json")

    assert "waiting" in waiting.out
    assert "perdure approvals show house" in waiting.out
    assert (failed.code, failed.error["code"]) == (1, "run_failed")


def test_a_run_that_was_set_aside_is_shown_and_released(shell: Shell) -> None:
    """`runs ls` and `doctor` name it, and `runs release` lets workers take it again."""
    with perdure.open(shell.store) as store:
        thread = store.thread("stuck", agent=payer)
        run = thread.start("Pay.")
        space = thread._space  # pyright: ignore[reportPrivateUsage]
        kept = records.read(space, run)
        cells, kept = records.moved(kept, "running", at=1)
        records.apply(space, "begin", *cells)
        records.apply(space, "set aside", records.changed(kept, aside_at=1)[0])

    listed, told = shell.ok("runs").out, shell.ok("doctor").out
    released = shell.ok("runs", "release", "stuck", "--run", run, "--json").json

    assert "set aside" in listed
    assert "1 run ended a worker three times" in told
    assert released["runs"] == [run]
    assert "set aside" not in shell.ok("runs").out


def test_a_run_that_was_cut_off_names_the_call(bread: Shell) -> None:
    """What was under way is seen in the list, without a look at each run."""
    told = bread.ok("runs", "--json").json

    (call,) = told["calls"]
    assert (call["thread"], call["tool"], call["state"]) == ("bread", "pay", "started")
    assert call["run"] == told["runs"][0]["id"]
    assert "pay: was under way" in bread.ok("runs").out


def test_a_suggested_command_names_the_code_that_is_here(bread: Shell) -> None:
    """If this directory declares the agent of the thread once; controls: not at all, another agent, and twice."""
    clerk = 'clerk = Agent("payer")'
    told = [bread.ok("runs").out]
    for name, text in (("bank", 'banker = Agent("banker")'), ("app", clerk), ("other", clerk)):
        (bread.directory / f"{name}.py").write_text(text)
        told.append(bread.ok("runs").out)

    assert ["--code app:clerk" in each for each in told] == [False, False, True, False]
    assert ["--code MODULE:NAME" in each for each in told] == [True, True, False, True]


def test_a_queued_run_names_the_code_of_its_own_agent(shell: Shell) -> None:
    """A program that declares another one alone is not what begins it."""
    (shell.directory / "bank.py").write_text('banker = Agent("banker")')
    (shell.directory / "shop.py").write_text('agents = [make("shopper")]')

    other = shell.ok("runs", "start", "t", "Hello", "--agent", "shopper")
    own = shell.ok("runs", "start", "u", "Hello", "--agent", "banker")
    absent = shell("serve", "--code", "nope:agents")

    assert "A worker begins it: perdure work --code MODULE:NAME" in other.out
    assert "A worker begins it: perdure work --code bank:banker" in own.out
    assert "Write --code MODULE:NAME, such as bank:banker." in absent.err


@pytest.mark.parametrize("effect", ["read_only", "external_write"])
def test_a_call_that_runs_is_under_way(shell: Shell, effect: Effect) -> None:
    """Also one that only reads, whose start is not recorded."""
    told: list[str] = []

    @perdure.tool(effect=effect)
    def look() -> str:
        told.extend(each["words"] for each in shell.ok("runs", "--json").json["calls"])
        return "seen"

    with perdure.open(shell.store) as store:
        agent = Agent("looker", backend=Script(use("look"), say("Seen.")), tools=[look])
        store.thread("looking", agent=agent).run("Look.")

    assert told == ["look: under way"]


def test_a_run_that_was_undone_while_it_waited_says_how_to_end_it(house: Shell) -> None:
    """A person cannot decide its call any more; before the undo, which is the control, it waits."""
    assert "Undone" not in house.ok("runs").out
    run = run_of(house)
    house.ok("threads", "undo", "house")

    shown, told = house.ok("runs").out, house.ok("runs", "--json").json

    assert f"perdure runs cancel house {run}" in " ".join(shown.split())
    assert [each["undone"] for each in told["calls"] if each["state"] == "awaiting_approval"] == [True]
    assert "waits for a decision" not in shown
    house.ok("runs", "cancel", "house", run)
    assert "Undone" not in house.ok("runs").out


@pytest.mark.parametrize(("answer", "named"), [("dont_know", True), ("done", False)])
def test_a_resumed_run_names_its_call_of_unknown_outcome(
    bread: Shell, monkeypatch: pytest.MonkeyPatch, answer: str, named: bool
) -> None:
    """The run succeeds all the same, so a person learns of it here; a call that was done is not named."""
    monkeypatch.setattr(paying, "ANSWERS", [answer])

    shown = bread.ok("runs", "resume", "bread", "--code", CODE).out

    assert ("1 call of this run has an unknown outcome: perdure calls show bread" in shown) is named


def test_the_log_says_that_an_unknown_outcome_was_settled_later(
    bread: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the words that the model was shown then; before that, nothing is said."""
    monkeypatch.setattr(paying, "ANSWERS", ["dont_know"])
    bread.ok("runs", "resume", "bread", "--code", CODE)
    before = bread.ok("threads", "log", "bread").out
    (call,) = bread.ok("calls", "--json").json["calls"]
    bread.ok("calls", "resolve", "bread", call["id"], "not_done", "--why", "no trace")

    assert "settled later" not in before
    assert "← error (settled later: not_done) Error: the outcome" in bread.ok("threads", "log", "bread").out


def test_an_unknown_outcome_is_told_wherever_one_looks_for_trouble(house: Shell) -> None:
    """The list of runs, of one thread and of all, and the doctor; once it is settled, none of them."""
    (unknown,) = house.ok("calls", "--json").json["calls"]
    places = (("runs",), ("runs", "ls", "house"), ("doctor",))

    before = [house.ok(*words).out for words in places]
    house.ok("calls", "resolve", "house", unknown["id"], "done")
    after = [house.ok(*words).out for words in places]

    assert ["outcome of 1 call is unknown" in " ".join(each.split()) for each in before] == [True] * 3
    assert ["outcome of" in each for each in after] == [False] * 3


@pytest.mark.parametrize("duration", ["45s", "10m", "1h", "+1h", "2d", "1w"])
def test_an_input_is_queued_for_a_time_from_now(shell: Shell, duration: str) -> None:
    """On the store's clock; the answer says for when."""
    run = shell.ok("runs", "start", "shopping", "Flour", "--at", duration, "--json").json["run"]

    assert (run["state"], run["scheduled"]) == ("created", True)
    assert run["due"] > run["begun_at"]


@pytest.mark.parametrize("words", ["1", "h", "1q", "tomorrow", "1h 30m"])
def test_what_is_no_time_queues_nothing(shell: Shell, words: str) -> None:
    """The error shows both ways to write one."""
    ended = shell("runs", "start", "shopping", "Flour", "--at", words, "--json")

    assert (ended.code, ended.error.get("code")) == (2, "time_invalid")
    assert shell.ok("runs", "ls", "shopping", "--json").json["runs"] == []


@pytest.mark.parametrize(
    "words",
    [
        ("runs", "start", "new", "Flour", "--agent", "a", "--at", "yesterday"),
        ("runs", "start", "new", "Flour", "--agent", "a", "--id", "x" * 500),
        ("runs", "start", "new", "Flour", "--agent", "a", "--timeline", "other"),
        ("import", "new", "said.json", "--agent", "a", "--timeline", "other"),
        ("import", "new", "said.json", "--agent", "a", "--op-id", "x" * 500),
        ("import", "new", "said.json", "--agent", "a", "--model", "x" * 500),
        ("chat", "payer", "--code", CODE, "--thread", "new", "--timeline", "other"),
    ],
)
def test_a_refused_command_begins_no_thread(shell: Shell, words: tuple[str, ...]) -> None:
    """What it is given is checked before its thread is begun."""
    (shell.directory / "said.json").write_text('[{"role": "user", "content": "Flour"}]')

    ended = shell(*words)

    assert ended.code in (2, 3)
    assert [each["id"] for each in shell.ok("threads", "ls", "--json").json["threads"]] == ["shopping"]


def test_a_worker_that_ends_by_itself_does_not_say_how_to_stop_it(shell: Shell) -> None:
    """And one that waits does: its first line is for who started it."""
    idle = shell("work", "--code", CODE, "--until-idle").out

    assert "ends when nothing is due" in idle
    assert "Ctrl-C" not in idle


def test_a_worker_says_what_is_queued_for_an_agent_that_it_does_not_have(shell: Shell) -> None:
    """A mistyped agent would wait for ever without a word; what it has itself is not listed."""
    assert "queued" not in shell("work", "--code", CODE, "--until-idle").out
    shell.ok("runs", "start", "fresh", "Hello.", "--agent", "payr")

    told = shell("work", "--code", CODE, "--until-idle").out

    assert "1 queued run is for agent 'payr', which --code" in " ".join(told.split())


def test_a_worker_says_that_an_outcome_is_unknown(empty: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that went on and succeeded may have left a payment that no bank confirmed."""
    monkeypatch.setattr("tests.surfaces.paying.ANSWERS", ["dont_know"])
    cut_off(empty.store)

    ended = empty("work", "--code", CODE, "--until-idle", "--json")

    carried = [line for line in map(json.loads, ended.out.splitlines()) if "unclear" in line]
    (unknown,) = empty.ok("calls", "--json").json["calls"]
    assert [each["unclear"] for each in carried] == [[unknown["id"]]]


def test_the_error_for_nothing_to_cancel_names_a_run_that_has_not_begun(shell: Shell) -> None:
    """A scheduled run is cancelled only by its id, which the advice has."""
    run = shell.ok("runs", "start", "shopping", "Flour", "--at", "1h", "--json").json["run"]["id"]

    ended = shell("runs", "cancel", "shopping", "--json")

    assert (ended.code, ended.error["code"]) == (3, "open_run_missing")
    assert f"`perdure runs cancel shopping {run}`" in ended.error["hint"]
    assert shell.ok("runs", "cancel", "shopping", run, "--json").json["run"]["state"] == "cancelled"

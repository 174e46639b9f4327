"""What a Python prompt and a notebook show of turns, commits and messages is one line each."""

from __future__ import annotations

import perdure
from perdure import Agent, Call
from perdure.testing import Script, say, use


@perdure.tool(effect="local_write", idempotent=True)
def note(text: str, call: Call) -> str:
    """Write a note."""
    call.put("/note.json", text)
    return "noted"


def test_a_turn_a_commit_and_a_message_are_one_line() -> None:
    """Digests of 64 digits and times in microseconds are for programs."""
    with perdure.open("memory:") as store:
        script = Script(use("note", text="x" * 200), say("Done."))
        thread = store.thread("t", agent=Agent("a", backend=script, tools=[note]))
        thread.run("Note it.")
        thread.put("/by-hand.json", 1)

        ran, put = thread.turns()
        user, asked, answered, last = thread.transcript()
        commit = thread.log()[0]

    assert repr(ran) == "<turn 1, succeeded: 'Note it.' → 'Done.'>"
    assert repr(put) == "<edit after turn 1, by hand: put>"
    assert repr(user) == "<user: 'Note it.'>"
    assert repr(asked).startswith('<assistant: → note({"text": "xxx')
    assert len(repr(asked)) < 80
    assert (repr(answered), repr(last)) == ("<tool: ← success>", "<assistant: 'Done.'>")
    assert repr(commit) == f"<commit {commit.digest[:12]}, turn 1: put>"


def test_an_agent_and_a_result_are_one_line() -> None:
    """An agent is its name, backend and tools; a result how the run ended, what it took, and what was said last."""
    with perdure.open("memory:") as store:
        agent = Agent("a", backend=Script(use("note", text="x"), say("Done. " * 40)), tools=[note])
        result = store.thread("t", agent=agent).run("Note it.")

    assert repr(agent) == "<agent a on script:test, tools: note>"
    assert repr(Agent("b")) == "<agent b>"
    assert repr(result).startswith(f"<run {result.run[-8:]} succeeded, 2 steps, 1 call: 'Done. Done.")
    assert len(repr(result)) < 120


def test_an_iterator_is_named_by_the_method_that_gave_it() -> None:
    """And not by a class that no program knows."""
    with perdure.open("memory:") as store:
        assert repr(store.threads()) == "<iterator of Store.threads>"

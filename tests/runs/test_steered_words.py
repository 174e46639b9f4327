"""What is said to a run in mid-flight is heard once, and keeps the run going only if it was not heard yet."""

from __future__ import annotations

import holdfast
from holdfast import Agent
from holdfast.testing import Script, say, use


def test_words_that_were_heard_do_not_ask_for_another_step() -> None:
    """The last words of the model answer them; the run is over then."""
    with holdfast.open("memory:") as store:

        @holdfast.tool(effect="read_only")
        def look() -> str:
            store.thread("t").steer("A blue one", id="msg-2")
            return "three lamps"

        script = Script(use("look"), say("Three blue lamps."))
        thread = store.thread("t", agent=Agent("clerk", backend=script, tools=[look]))

        result = thread.run("Find a lamp", id="msg-1")

        assert (result.status, result.steps) == ("succeeded", 2)
        assert [entry.id for entry in thread.transcript() if entry.role == "user"] == ["msg-1", "msg-2"]


def test_words_that_come_while_the_model_speaks_its_last_are_answered() -> None:
    """Control: what was not heard yet does ask for another step."""
    with holdfast.open("memory:") as store:

        def last(context: object) -> object:
            store.thread("t").steer("And a red one", id="msg-2")
            return say("One lamp.")

        script = Script(last, say("Two lamps."))  # pyright: ignore[reportArgumentType]
        thread = store.thread("t", agent=Agent("clerk", backend=script))

        result = thread.run("Find a lamp", id="msg-1")

        assert (result.text, result.steps) == ("Two lamps.", 2)

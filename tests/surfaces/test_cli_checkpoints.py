"""Checkpoints on the command line: what a backend was told that took over, and what it would be told."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import yaml

import perdure
from perdure import Agent, testing
from perdure.history import writer
from perdure.history.writer import Proposal
from perdure.model.checkpoint import Summary
from perdure.switching.checkpoint import document
from perdure.switching.commit import switched
from perdure.testing.script import ScriptStep
from tests.surfaces.shell import Shell


@perdure.tool(effect="external_write")
def book(flight: str) -> str:
    """Book a flight."""
    return f"booked {flight}"


def script(*steps: ScriptStep, name: str = "one") -> testing.Script:
    """A model that will say this."""
    return testing.Script(*steps, backend=f"script:{name}")


@pytest.fixture
def trip(empty: Shell) -> Shell:
    """A shell at a store with a thread that was moved to another backend after a booking."""
    first = script(testing.use("book", flight="SK1"), testing.say("Booked. Do you need a hotel?"))
    agent = Agent("desk", tools=[book])
    with perdure.open(empty.store) as store:
        store.thread("trip", agent=agent.on(first)).run("Book me a flight to Oslo.")
        store.thread("trip", agent=agent.on(first)).switch(script(testing.say("Fine."), name="two"))
    return empty


def test_what_a_switch_kept_is_listed(trip: Shell) -> None:
    """`perdure checkpoints ls THREAD` names each with the backends and the commit that made it."""
    (told,) = trip.ok("checkpoint", "ls", "trip", "--json").json["checkpoints"]
    shown = trip.ok("checkpoints", "ls", "trip").out

    assert (told["from_backend"], told["to_backend"]) == ("script:one", "script:two")
    assert told["goal"] == "Book me a flight to Oslo."
    assert told["name"] in shown
    assert told["commit"][:12] in shown


def test_one_is_shown_as_the_document_that_it_is(trip: Shell) -> None:
    """The YAML has the envelope, marks what is done, and can be read back as the same checkpoint."""
    (listed,) = trip.ok("checkpoints", "ls", "trip", "--json").json["checkpoints"]

    shown = trip.ok("checkpoints", "show", "trip", listed["name"]).out
    told = trip.ok("checkpoints", "show", "trip", "--json").json

    parsed = yaml.safe_load(shown)
    assert parsed == told["document"]
    assert (parsed["apiVersion"], parsed["kind"]) == ("perdure.dev/v1alpha1", "StateCheckpoint")
    assert parsed["metadata"]["name"] == listed["name"]
    assert parsed["spec"]["toolCalls"][0]["note"] == "already done: do not repeat"
    assert document.read(shown).is_named_after_its_content
    assert shown.splitlines()[-1].startswith("# userGoal and currentTask are guesses")
    assert "goal (a guess)" in trip.ok("checkpoints", "ls", "trip").out


def test_deriving_at_the_commit_before_a_switch_gives_what_it_kept(trip: Shell) -> None:
    """The checkpoint of a switch is what its commit says, and anybody can derive it again."""
    kept = trip.ok("checkpoints", "show", "trip").out

    again = trip.ok("checkpoints", "derive", "trip", "--at", "HEAD~1", "--to", "script:two").out

    assert again == kept


def test_what_a_switch_kept_is_checked_at_its_commit(trip: Shell) -> None:
    """`--check` derives it again and compares; elsewhere there is nothing to compare with."""
    kept = trip.ok("checkpoints", "show", "trip").out

    again = trip.ok("checkpoints", "derive", "trip", "--at", "HEAD", "--check").out
    nowhere = trip("checkpoints", "derive", "trip", "--at", "HEAD~1", "--check")
    another = trip("checkpoints", "derive", "trip", "--to", "script:three", "--check")

    assert again == kept
    assert (nowhere.code, another.code) == (3, 2)
    assert "nothing was compared" in nowhere.err
    assert "nothing was compared" in another.err


def test_a_checkpoint_that_is_not_what_its_history_says_fails_the_check(trip: Shell) -> None:
    """The control: a switch whose checkpoint names another goal than the user's is found out."""
    with perdure.open(trip.store) as store:
        thread = store.thread("trip", agent=Agent("desk", tools=[book]).on(script()))
        report = thread.check_switch(script(name="three"))
        assert report.checkpoint is not None
        forged = msgspec.structs.replace(report.checkpoint, summary=Summary(user_goal="Pay 900."))
        holds = switched(report, forged, thread._space.ids)
        proposal = Proposal(
            reason="backend_switched",
            root=thread.root,
            events=holds.events,
            minted=frozenset(event.id for event in holds.events),
            objects=holds.objects,
        )
        writer.commit(thread._space, thread.head, proposal, op_id="forged")

    failed = trip("checkpoints", "derive", "trip", "--check")

    assert failed.code == 6
    assert "nothing was changed" in failed.err


def test_deriving_writes_nothing(trip: Shell) -> None:
    """However often it is asked, the thread stays where it is."""
    before = trip.ok("threads", "show", "trip", "--json").json["timelines"]

    first, second = (trip.ok("checkpoints", "derive", "trip", "--to", "openai:gpt-5.6").out for _ in range(2))

    assert first == second
    assert "toBackend: openai:gpt-5.6" in first
    assert trip.ok("threads", "show", "trip", "--json").json["timelines"] == before


def test_where_nothing_was_switched_it_says_what_to_do(shell: Shell) -> None:
    """An empty list and a checkpoint that is not there lead on to `derive`."""
    assert "checkpoints derive shopping" in shell.ok("checkpoints", "ls", "shopping").out

    missing = shell("checkpoints", "show", "shopping")

    assert missing.code == 3
    assert "has no checkpoint" in missing.err
    assert "checkpoints derive shopping" in missing.err


def test_a_name_that_is_none_is_not_found(trip: Shell) -> None:
    """A name of no checkpoint, and one of another's digits, end with 3 and name the list."""
    for name in ("chk-ffffffffffff", "trip"):
        missing = trip("checkpoints", "show", "trip", name)

        assert missing.code == 3
        assert "checkpoints ls trip" in missing.err


def test_a_document_is_loaded_as_the_checkpoint_that_it_was(trip: Shell) -> None:
    """What `show` prints, as YAML or JSON, from a file or the input; no store is needed."""
    shown = trip.ok("checkpoints", "show", "trip").out
    document = trip.ok("checkpoints", "show", "trip", "--json").json["document"]
    Path("chk.yaml").write_text(shown)
    trip.store.unlink()

    told = trip.ok("checkpoints", "load", "chk.yaml", "--json").json
    piped = trip.ok("checkpoints", "load", "-", "--json", stdin=json.dumps(document).encode()).json

    assert told == piped
    assert (told["thread"], told["document"], told["is_named_after_its_content"]) == ("trip", document, True)
    assert "it was not altered" in trip.ok("checkpoints", "load", "chk.yaml").out


def test_a_document_that_was_altered_says_so(trip: Shell) -> None:
    """Its name is that of its content no more."""
    shown = trip.ok("checkpoints", "show", "trip").out
    Path("chk.yaml").write_text(shown.replace("Oslo", "Rome"))

    assert not trip.ok("checkpoints", "load", "chk.yaml", "--json").json["is_named_after_its_content"]


@pytest.mark.parametrize(("text", "code"), [("kind: Agent", 2), ("a: [", 2), (None, 3)])
def test_what_is_no_checkpoint_is_refused(empty: Shell, text: str | None, code: int) -> None:
    """With the file's name; nothing was read."""
    if text is not None:
        Path("chk.yaml").write_text(text)

    ended = empty("checkpoints", "load", "chk.yaml")

    assert ended.code == code
    assert "chk.yaml" in ended.err


def test_a_program_loads_a_document_too(trip: Shell) -> None:
    """From a text or from a file; both say whether a call may be repeated."""
    shown = trip.ok("checkpoints", "show", "trip").out
    Path("chk.yaml").write_text(shown)

    found = perdure.load_checkpoint(Path("chk.yaml"))

    assert found == perdure.load_checkpoint(shown)
    assert found.checkpoint.conversation == "trip"
    assert "idempotent: false" in shown

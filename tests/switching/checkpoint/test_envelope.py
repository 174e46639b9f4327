"""A checkpoint as a document: what is written can be read, and nothing is lost or guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure import testing
from perdure.errors import Invalid, NotFound
from perdure.model.checkpoint import Checkpoint, Done, Many, Summary, Validation, encode_checkpoint
from perdure.switching.checkpoint import derive, document
from tests.coded import raises
from tests.switching.checkpoint.works import Work, space_of

SEED = """\
apiVersion: joch.dev/v1alpha1
kind: StateCheckpoint
metadata:
  name: chk-456
spec:
  conversationRef: { name: conv-123 }
  fromBackend: openai:gpt-5-thinking
  toBackend: anthropic:claude-sonnet
  summary:
    userGoal: "Design state persistence for Joch"
    currentTask: "Explain migration strategy"
    decisions:
      - "Use vendor-neutral state as the source of truth"
      - "Persist tool calls as event log"
      - "Avoid replaying side-effectful tools"
    openQuestions:
      - "How much vendor metadata to retain"
  activeArtifacts:
    - artifact://design/state-persistence-draft
  relevantMemoryRefs:
    - mem://project/joch/state-model
"""


def test_the_example_of_the_format_is_read_and_written_back_as_it_was() -> None:
    """Every field, the name and the API group of the document that drew up the format come back, in its order."""
    read = document.read(SEED)

    written = read.yaml()

    assert read.checkpoint.summary.decisions[1] == "Persist tool calls as event log"
    assert yaml.safe_load(written) == yaml.safe_load(SEED)
    assert list(yaml.safe_load(written)["spec"]) == list(yaml.safe_load(SEED)["spec"])
    assert document.read(written) == read
    assert "    - Persist tool calls as event log\n" in written


def test_a_derived_checkpoint_comes_back_byte_for_byte(work: Work) -> None:
    """What is written out and read again is the same object, under the name that its content has."""
    work.turn("Pay 90.", testing.use("pay", amount=90))
    thread = work.turn(
        "Book SK1 to “Þórshöfn”: now!", testing.use("book", flight="SK1"), testing.say("Done?")
    )
    thread.put("/task/goals.json", ["one: two", "- three", "yes", "\u202esdrawkcab"])
    derived = derive.derive(space_of(thread), thread.head.commit, to_backend="b:m")

    enclosed = document.enclose(derived)
    again = document.read(enclosed.yaml())

    assert encode_checkpoint(again.checkpoint) == encode_checkpoint(derived)
    assert again.is_named_after_its_content
    assert enclosed.shape()["apiVersion"] == "perdure.dev/v1alpha1"


def test_effects_that_are_only_counted_come_back_too() -> None:
    """By tool, with those that are named, each marked as done."""
    paid = Done(call="c", tool="pay", args="{}", effect="financial", state="succeeded")
    counted = Checkpoint(
        conversation="t", earlier=(Many(tool="pay", count=9_000, calls=(paid,)),), earlier_others=3
    )

    text = document.enclose(counted).yaml()

    assert document.read(text).checkpoint == counted
    assert "already done: do not repeat" in text


def test_summary_and_validation_are_always_written() -> None:
    """Whoever reads a document finds both, in their places, and reading it gives the same checkpoint."""
    empty = Checkpoint(conversation="t", to_backend="b:m", extractor="e")
    failed = Checkpoint(conversation="t", validation=Validation(ok=False, notes=("left out",)))

    spec = yaml.safe_load(document.enclose(empty).yaml())["spec"]
    noted = yaml.safe_load(document.enclose(failed).yaml())["spec"]

    assert spec["summary"] == {"userGoal": "", "currentTask": "", "decisions": [], "openQuestions": []}
    assert (spec["validation"], noted["validation"]) == ({"ok": True}, {"ok": False, "notes": ["left out"]})
    assert list(spec) == ["conversationRef", "toBackend", "summary", "extractor", "validation"]
    for each in (empty, failed):
        assert encode_checkpoint(
            document.read(document.enclose(each).yaml()).checkpoint
        ) == encode_checkpoint(each)


def test_what_was_altered_no_longer_has_the_name_of_its_content() -> None:
    """The control: a document with another word in it is not named after what it says."""
    text = document.enclose(Checkpoint(conversation="t", summary=Summary(user_goal="Pay 90"))).yaml()

    assert document.read(text).is_named_after_its_content
    assert not document.read(text.replace("90", "900")).is_named_after_its_content


def test_an_external_write_says_that_it_is_done(work: Work) -> None:
    """The document marks it in words, for whoever reads it."""
    thread = work.turn("Book SK1.", testing.use("book", flight="SK1"), testing.say("Booked."))

    text = document.enclose(derive.derive(space_of(thread), thread.head.commit)).yaml()

    (call,) = yaml.safe_load(text)["spec"]["toolCalls"]
    assert call["sideEffects"] == {"level": "external_write", "idempotent": False}
    assert call["note"] == "already done: do not repeat"


@pytest.mark.parametrize(
    ("wrong", "right", "line", "place"),
    [
        ("kind: StateSnapshot", "kind: StateCheckpoint", 2, ("kind",)),
        ("apiVersion: evil.example/v1", "apiVersion: joch.dev/v1alpha1", 1, ("apiVersion",)),
        ("  tooBackend: a:b", "  toBackend: anthropic:claude-sonnet", 8, ("spec", "tooBackend")),
        (
            "    userGoal: [1]",
            '    userGoal: "Design state persistence for Joch"',
            10,
            ("spec", "summary", "userGoal"),
        ),
        ("  conversationRef: {}", "  conversationRef: { name: conv-123 }", 6, ("spec", "conversationRef")),
        ("  toBackend: &a anthropic:x", "  toBackend: anthropic:claude-sonnet", 8, None),
        ("  name: x\n  name: y", "  name: chk-456", 5, None),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_its_line(
    wrong: str, right: str, line: int, place: tuple[str, ...] | None
) -> None:
    """A field that is misspelt, missing, doubled or of another kind is named, with the line where it stands."""
    assert right in SEED

    with raises(Invalid, "document_invalid", line=line, place=place):
        document.read(SEED.replace(right, wrong))


@pytest.mark.parametrize("wrong", [0, b"{}", None, [], Path("missing.yaml"), Path("/")])
def test_what_cannot_be_read_from_is_refused(wrong: Any) -> None:
    """Neither text nor a file: an error of ours, whatever was given."""
    with pytest.raises((Invalid, NotFound)):
        document.load_checkpoint(wrong)

"""The page on checkpoints says what the code does: limits, rules, and how good they were measured to be."""

from __future__ import annotations

import re

import pytest

from perdure.ledger import snapshot
from perdure.projections import working_memory
from perdure.switching.checkpoint import derive, sources, summary
from perdure.switching.checkpoint.heuristics import (
    DECISIONS_MAX,
    LOOKED_AT_MAX,
    QUESTIONS_MAX,
    decisions,
    goal,
    questions,
    task,
)
from tests.docs.blocks import ROOT
from tests.recorded.wire import FOLDER
from tests.switching.checkpoint.measuring import Score, key, measured
from tests.switching.checkpoint.recorded import conversations

PAGE = (ROOT / "docs" / "explanation" / "checkpoints.md").read_text("utf-8")

LIMITS = (
    sources.MESSAGES_MAX,
    sources.STEPS_MAX,
    sources.FIRST_STEPS_MAX,
    sources.BODY_BYTES_MAX,
    LOOKED_AT_MAX,
    sources.VALUE_BYTES_MAX,
    snapshot.ENTRIES_MAX,
    snapshot.GROUPS_MAX,
    snapshot.FIRST_MAX,
    snapshot.OPEN_MAX,
    derive.CALLS_MAX,
    derive.ARGS_MAX,
    derive.ARTIFACTS_MAX,
    derive.MEMORY_MAX,
    DECISIONS_MAX,
    QUESTIONS_MAX,
)


def rows(first: str) -> list[list[str]]:
    """The rows of the table whose heading begins so."""
    lines = PAGE.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith(f"| {first} |")) + 2
    found: list[list[str]] = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def told(part: str) -> dict[str, tuple[str, str]]:
    """What the page says of the conversations of one part, by field."""
    return {row[1]: (row[2], row[3]) for row in rows("conversations") if row[0] == part}


def shown(score: Score) -> tuple[str, str]:
    """A score as the page writes it."""
    return f"{score.right}/{score.found}", f"{score.right}/{score.wanted}"


def test_the_limits_are_those_of_the_code() -> None:
    """In the order of the table."""
    assert tuple(int(row[1].replace(",", "")) for row in rows("what")) == LIMITS


def test_the_limits_of_a_summary_are_those_of_the_code() -> None:
    """In the list of what it has to show."""
    for number in (f"{summary.ANSWER_MAX:,} characters", f"{summary.SENTENCES_MAX} sentences"):
        assert number in PAGE
    assert f"{summary.SENTENCE_MAX} characters each" in PAGE


def test_the_paths_are_those_of_the_code() -> None:
    """Every path that wins over rules is on the page."""
    named = {row[0].strip("`") for row in rows("path")}

    assert named == {
        working_memory.GOAL,
        working_memory.CURRENT,
        working_memory.GOALS,
        working_memory.DECISIONS,
        working_memory.QUESTIONS,
    }


def test_every_rule_of_the_code_is_on_the_page() -> None:
    """By the name that a claim gives it."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src/perdure/migration/rules").glob("*.py"))
    named = set(re.findall(r'"((?:goal|task|decision|question)\.\w+)"', source)) | {
        "question.user",
        "question.assistant",
    }

    assert {name for name in named if f"`{name}`" not in PAGE} == set()


@pytest.mark.skipif(not FOLDER.exists(), reason="the recorded traffic is not there")
@pytest.mark.parametrize("part", ["looked_at", "unseen"])
def test_the_rules_are_as_good_on_recordings_as_the_page_says(part: str) -> None:
    """The figures are what the key and the code give today."""
    assert {field: shown(score) for field, score in measured(part).items()} == told(part.replace("_", " "))


@pytest.mark.parametrize("part", ["composed_seen", "composed_unseen"])
def test_the_rules_are_as_good_on_made_up_conversations_as_the_page_says(part: str) -> None:
    """The figures are what the key and the code give today."""
    assert {field: shown(score) for field, score in measured(part).items()} == told(part.replace("_", " "))


@pytest.mark.skipif(not FOLDER.exists(), reason="the recorded traffic is not there")
def test_taking_the_last_words_for_the_task_would_be_worse() -> None:
    """The control: on the unseen recordings the user's last message as it stands is mostly not the task."""
    known = conversations()
    naive = [
        (wanted["task"], [words.text for words in known[id] if words.role == "user"][-1])
        for id, wanted in key("unseen").items()
    ]
    right = sum(1 for phrase, text in naive if phrase and phrase in text)

    assert right < measured("unseen")["task"].right


def test_the_rules_say_nothing_of_an_empty_conversation() -> None:
    """Nothing is made up where nothing was said."""
    assert goal(None, [], whole=True) is None
    assert task([]) is None
    assert decisions([]) == []
    assert questions([]) == []

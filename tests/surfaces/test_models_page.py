"""The reference page of models says what the catalog says."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.cli.commands.models.page import page
from perdure.providers import catalog

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "models.md"


def test_the_page_is_what_the_catalog_says() -> None:
    """`python -m perdure.cli.commands.models.page > docs/reference/models.md` makes it anew."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_example_of_a_file_works(tmp_path: Path) -> None:
    """Letter for letter."""
    example = page().split("```json\n")[1].split("```")[0]
    (tmp_path / "models.json").write_text(example)

    mine = catalog.read(tmp_path / "models.json")

    assert json.loads(example)["models"]["openai"]
    assert mine.card("openai", "ft:gpt-5.6:acme").known
    assert mine.card("vllm", "anything").context_window == 65_536

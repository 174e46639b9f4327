"""Examples, documents and tests name models that will still be served next year.

The catalog decides: a model is ending if its vendor calls it deprecated or has announced the day of its end.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from perdure.errors import Invalid
from perdure.providers import catalog
from tests.architecture.source import ROOT

READ = {".md", ".py", ".toml", ".txt", ".yaml"}
WORD = re.compile(r"\b[A-Za-z][a-zA-Z_]*[\d.:/@-][\w.:/@-]*\b")  # a model's name is more than letters
# Where an ending model is meant, and why.
ALLOWED = {
    "docs/reference/models.md": "is the catalog as a page",
    "src/perdure/providers/token_measures.py": "measures tokens by models' names",
    "src/perdure/providers/openai_chat/servers.py": "says what models refuse, by their names",
    "src/perdure/providers/openai_responses/options.py": "says what models refuse, by their names",
    "tests/architecture/test_model_names.py": "shows that one is found",
    "tests/providers/test_runs.py": "a run on an ending model warns",
    "tests/recorded/pairs.py": "renders recorded requests for models with older rules too",
    "tests/surfaces/test_cli_models.py": "shows the day on which a model ends",
    "tests/switching/test_graded.py": "needs a Claude without strict JSON, as the published lines have it",
    "tests/providers/test_capabilities.py": "compares models with older rules",
    "tests/providers/test_catalog.py": "is about the catalog's own entries",
    "tests/providers/test_tokens.py": "tells families of models by their names",
}


@cache
def beginnings() -> re.Pattern[str]:
    """How a word begins that may name an ending model: with its first letters, maybe behind a region and folders."""
    cards = [card for card in catalog.shipped().cards() if card.deprecated or card.ends is not None]
    names = {name for card in cards for name in (card.name, *card.also)}
    return re.compile(
        "|".join(sorted({re.escape(name[:5]).replace("\\-", "[.-]") for name in names})), re.IGNORECASE
    )


@cache
def is_ending(word: str) -> bool:
    """Whether `word` is a model, with or without its provider, that the catalog says will end."""
    if not beginnings().search(word):
        return False
    try:
        card = catalog.shipped().of(word)
    except Invalid:  # several providers have one of that name
        return False
    return card.known and (card.deprecated or card.ends is not None)


def ending_models(text: str) -> set[str]:
    """The ending models that `text` names."""
    return {word for word in WORD.findall(text) if is_ending(word)}


def readable_files() -> list[Path]:
    """The files of the project in which a reader could find a model's name."""
    below = [path for part in ("bench", "docs", "src", "tests") for path in (ROOT / part).rglob("*")]
    own = [path for path in below if "node_modules" not in path.parts]
    return sorted(path for path in [*ROOT.glob("*.md"), *own] if path.suffix in READ)


def test_no_file_names_a_model_that_ends() -> None:
    """Except where such a model is meant."""
    named = {str(path.relative_to(ROOT)): ending_models(path.read_text()) for path in readable_files()}

    assert {path: found for path, found in named.items() if found and path not in ALLOWED} == {}
    assert [path for path in ALLOWED if not named.get(path)] == []


def test_the_name_of_an_ending_model_would_be_found() -> None:
    """Control: also with its provider, with a date and without a digit; a current one is none."""
    text = 'a "openai:gpt-5", or claude-sonnet-4-5-20250929; `deepseek-chat`, (o3) but gpt-5.6'

    assert ending_models(text) == {"openai:gpt-5", "claude-sonnet-4-5-20250929", "deepseek-chat", "o3"}

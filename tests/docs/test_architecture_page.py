"""ARCHITECTURE.md names modules that exist, and its vocabulary is not the one of the glossary."""

from __future__ import annotations

import re
from itertools import chain

from tests.docs.blocks import ROOT, documents
from tests.docs.tables import codes

PACKAGE = ROOT / "src" / "perdure"
PAGE = ROOT / "ARCHITECTURE.md"
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
WORDS_MAX = 56


def paths(text: str) -> list[str]:
    """What the page names as a path below the package: with a slash, or alone in the table of the tree."""
    return [code for code in codes(text) if re.fullmatch(r"[a-z_]+(/[a-z_]+)*/|[a-z_]+(/[a-z_]+)+", code)]


def is_missing(path: str) -> bool:
    """True if the package has neither a folder nor a module of that name."""
    found = PACKAGE / path.removeprefix("src/").removeprefix("perdure/")
    return not (found.is_dir() if path.endswith("/") else found.with_suffix(".py").is_file())


def words(text: str) -> list[str]:
    """The words that the tables of a text define."""
    return [word.lower() for word in re.findall(r"^\| \*\*(.+?)\*\* \|", text, re.MULTILINE)]


def test_every_module_that_the_page_names_exists() -> None:
    """A reader who follows a path finds it."""
    named = paths(PAGE.read_text(encoding="utf-8"))

    assert len(named) > 40
    assert [path for path in named if is_missing(path)] == []


def test_every_package_is_in_the_tree() -> None:
    """No package of the first level is left out."""
    folders = {f"{path.parent.name}/" for path in PACKAGE.glob("*/__init__.py")}

    assert folders - set(paths(PAGE.read_text(encoding="utf-8"))) == set()


def test_a_path_that_is_gone_is_found() -> None:
    """Control: a module from before a move, and a folder that is a module, are not taken for existing ones."""
    assert [is_missing(path) for path in ("runtime/live", "engines/contract/", "engines/contract")] == [
        True,
        True,
        False,
    ]


def test_a_word_is_for_users_or_internal() -> None:
    """No word is defined on both pages, and none twice on one."""
    both = [
        *words(PAGE.read_text(encoding="utf-8")),
        *words(GLOSSARY.read_text(encoding="utf-8")),
    ]

    assert sorted(set(both)) == sorted(both)


def test_the_glossary_has_the_words_that_users_meet() -> None:
    """It stays short and in order, and another page uses each of its words."""
    defined = words(GLOSSARY.read_text(encoding="utf-8"))
    pages = [path for path in documents() if path not in (GLOSSARY, PAGE)]
    met = " ".join(chain.from_iterable(path.read_text(encoding="utf-8").lower().split() for path in pages))

    assert defined == sorted(defined)
    assert len(defined) <= WORDS_MAX
    assert [word for word in defined if word not in met] == []

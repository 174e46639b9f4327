"""Every link between documents leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, documents

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^(\s*)(`{3,}).*?^\s*\2\s*$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$", re.MULTILINE)


def links(markdown: str) -> list[str]:
    """The targets of links, outside of code, that lead to other documents or into this one."""
    text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", markdown))
    return [target for target in _LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def anchors(markdown: str) -> set[str]:
    """The names by which the headings of a document can be linked to."""
    titles = _HEADING.findall(_FENCED.sub("", markdown))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def leads_nowhere(document: Path, target: str) -> bool:
    """Whether there is no such file, or no such heading in it."""
    name, _, anchor = target.partition("#")
    found = (document.parent / name).resolve() if name else document
    if not found.exists() or not found.is_relative_to(ROOT):
        return True
    return bool(anchor) and anchor not in anchors(found.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    """To a file of the project, and to a heading in it where one is named."""
    targets = links(document.read_text(encoding="utf-8"))

    assert [target for target in targets if leads_nowhere(document, target)] == []


def test_every_document_can_be_reached() -> None:
    """From the README, by following links; what only a search finds is not documentation."""
    left, seen = [ROOT / "README.md"], set[Path]()
    while left:
        document = left.pop()
        if document in seen or document.suffix != ".md" or not document.exists():
            continue
        seen.add(document)
        found = [target.partition("#")[0] for target in links(document.read_text(encoding="utf-8"))]
        left += [(document.parent / name).resolve() for name in found if name]

    assert [str(path) for path in documents() if path not in seen and path.parent.name != "decisions"] == []


def test_every_decision_has_a_number_of_its_own() -> None:
    """In the name of its file and in its title, without a gap: two that are written at once may take the same one."""
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    titles = [re.match(r"# ([0-9]+)\. ", record.read_text(encoding="utf-8")) for record in records]

    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    assert [int(title[1]) for title in titles if title] == list(range(1, len(records) + 1))


@pytest.mark.parametrize("target", ["nothing.md", "limits.md#no-such-heading", "#nowhere", "../../../etc"])
def test_a_link_to_nowhere_is_found(target: str) -> None:
    """Control: a missing file, a missing heading, and a place outside the project."""
    assert links(f"see [this]({target}) and `[that](code.md)`") == [target]
    assert leads_nowhere(ROOT / "docs" / "reference" / "errors.md", target)

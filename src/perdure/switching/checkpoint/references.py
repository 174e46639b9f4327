"""Finds references in texts, to artifacts, memory and addresses, and checks whether they resolve."""

from __future__ import annotations

import re

from perdure.errors import Invalid
from perdure.history.space import Space
from perdure.model.digest import check_digest
from perdure.model.memory import parse_memory_reference

__all__ = ["is_there", "references_in"]

ARTIFACT = "artifact://sha256/"

_REFERENCE = re.compile(
    r"\b(?:artifact|mem|https?|ftp|file|data)://?[^\s<>\"'`]+|\bwww\.[^\s<>\"'`]+", re.IGNORECASE
)


def references_in(text: str) -> list[str]:
    """Return every reference in a text."""
    return [found.rstrip(".,;:!?)]}") for found in _REFERENCE.findall(text)]


def is_there(space: Space, reference: str) -> bool:
    """True if the artifact of a reference is in the space; an address elsewhere is not looked up and counts as there.

    Memory is another space, so a memory reference is checked for its form alone.
    """
    if reference.lower().startswith("artifact:"):
        return reference.startswith(ARTIFACT) and _has(space, reference.removeprefix(ARTIFACT))
    if reference.lower().startswith("mem:"):
        return _is_memory(reference)
    return True


def _has(space: Space, name: str) -> bool:
    try:
        return not space.engine.missing(space.name, (check_digest(name),))
    except Invalid:
        return False


def _is_memory(reference: str) -> bool:
    try:
        parse_memory_reference(reference)
    except Invalid:
        return False
    return True

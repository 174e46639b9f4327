"""References to memory: from `mem://<scope>/<owner>/<id>@<commit>` to the one version that it names."""

from __future__ import annotations

from perdure.errors import NotFound
from perdure.history.tree import Entry
from perdure.memory.judging import Judge, Judged
from perdure.memory.recollection import Recollection
from perdure.model.memory import Reference, Remembered, item_prefix, parse_memory_reference

__all__ = ["resolve"]


def resolve(memory: Recollection, text: str) -> Remembered:
    """What a reference names: as of its commit, or now, if it has none.

    With a commit it names one version for ever, whatever was undone since.  Raises `NotFound` if there is
    no such thing, and for everything that is another owner's: that is not looked up.
    """
    reference = parse_memory_reference(text)
    if reference.owner != memory.owner:
        raise _nothing(reference)
    judge = Judge(memory, None, None, commit=reference.commit)
    found = judge.item(reference.id) if reference.commit is None else _last(judge, reference.id)
    if found is None or (reference.commit is None and not found.counts):
        raise _nothing(reference)
    remembered = judge.remembered(found)
    if remembered.scope != reference.scope:
        raise _nothing(reference)
    return remembered


def _last(judge: Judge, id: str) -> Judged | None:
    """The last version of an item in the map; None if there is none, or it was forgotten there."""
    entries: list[Entry] = list(judge.memory.tree(judge.sight).entries(item_prefix(id)))
    if not entries:
        return None
    version = judge.memory.version(entries[-1])
    return None if version.item is None else Judged(id, entries[-1], version, counts=True)


def _nothing(reference: Reference) -> NotFound:
    return NotFound(f"there is nothing at {reference} in this memory; nothing was read.")

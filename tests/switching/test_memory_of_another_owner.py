"""Memory: what another owner has is never retrieved, never rendered."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perdure
from perdure import memory
from perdure.errors import NotFound, PerdureError
from tests.memory.remembering import by_letters

OWNERS = ["ann", "ann ", "Ann", "ann/x", "ann@x", "memory:ann", "bob", "%61nn", "ann%2Fx"]


def test_every_owner_finds_its_own_alone() -> None:
    """Names that look alike are other owners: by words, by vectors, by id, by listing and by reference."""
    with perdure.open("memory:", embed=by_letters) as store:
        made = {owner: store.memory(owner).add(f"secret of {owner}", id="secret") for owner in OWNERS}

        for owner in OWNERS:
            held = store.memory(owner)
            found = {each.text for each in held.search("secret of everybody", limit=100)}
            assert found == {item.text for item in held.items()} == {f"secret of {owner}"}
            for other, item in made.items():
                if other != owner:
                    with pytest.raises(NotFound):
                        held.resolve(item.reference)


def test_one_index_for_all_would_find_the_others(tmp_path: Path) -> None:
    """The control: with the same file for two owners, one finds out that the index is not its own, and makes it anew."""
    path = tmp_path / "agents.db"
    with perdure.open(path) as store:
        store.memory("ann").add("secret of ann", id="a")
        store.memory("ann").search("secret")
    (file,) = (tmp_path / "agents.db-memory").iterdir()
    with perdure.open(path) as store:
        store.memory("bob").add("secret of bob", id="b")
        store.memory("bob").search("secret")
        (other,) = [each for each in file.parent.glob("*.db") if each != file]
    other.write_bytes(file.read_bytes())

    with perdure.open(path) as store:
        held = store._resources.memories.of("bob")
        stolen = held.indexing._own.standing().root

        assert stolen == store._resources.memories.of("ann").sight().root
        assert [each.text for each in store.memory("bob").search("secret")] == ["secret of bob"]


@given(query=st.text(max_size=60), sight=st.booleans())
def test_no_question_leads_across(query: str, sight: bool) -> None:
    """Whatever is asked, also with the sight of somebody else's answer, nothing of another's comes back."""
    with perdure.open("memory:", embed=by_letters) as store:
        store.memory("ann").add("apples and pears", id="mine")
        store.memory("bob").add(f"secret {query or 'x'}", id="theirs")
        theirs = memory.relevant(store._resources.memories.of("bob"), query)

        try:
            found = memory.relevant(
                store._resources.memories.of("ann"), query, sight=theirs.sight if sight else None
            )
        except PerdureError:
            return  # a moment of another's history is not found in this one

        assert all(each.item.owner == "ann" and each.id == "mine" for each in found)

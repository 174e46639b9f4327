"""LangGraph's store for memory: items, search, time limits, and namespaces that cannot be confused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import GetOp, PutOp
from langgraph.store.memory import InMemoryStore

import perdure
from perdure.errors import Invalid
from perdure.integrations.langgraph import Memory, memory_store
from tests.coded import raises


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory."""
    with perdure.open(tmp_path / "agents.db") as store:
        yield Memory(store)
        assert store.verify().ok


def test_items_are_put_read_replaced_and_deleted(memory: Memory) -> None:
    """The time of creation stays."""
    memory.put(("users", "1"), "name", {"text": "Ann"})
    first = memory.get(("users", "1"), "name")
    memory.put(("users", "1"), "name", {"text": "Bea"})
    second = memory.get(("users", "1"), "name")
    memory.delete(("users", "1"), "name")

    assert first is not None
    assert second is not None
    assert (first.value, second.value) == ({"text": "Ann"}, {"text": "Bea"})
    assert second.created_at == first.created_at <= second.updated_at
    assert memory.get(("users", "1"), "name") is None


def test_a_batch_is_one_commit(tmp_path: Path) -> None:
    """Its reads see the moment before, and the last put of a key counts."""
    with perdure.open(tmp_path / "agents.db") as store:
        memory = Memory(store)
        found = memory.batch([PutOp(("a",), "k", {"n": 1}), GetOp(("a",), "k"), PutOp(("a",), "k", {"n": 2})])

        assert found == [None, None, None]
        assert memory.get(("a",), "k").value == {"n": 2}  # pyright: ignore[reportOptionalMemberAccess]
        assert len(store.thread("langgraph-memory").log()) == 1


def test_the_awaited_half_is_the_same(memory: Memory) -> None:
    """Both use one thread."""

    async def main() -> object:
        await memory.aput(("a",), "k", {"n": 1})
        memory.put(("a",), "j", {"n": 2})
        return [each.key for each in await memory.asearch(("a",))]

    assert asyncio.run(main()) == ["k", "j"]


NAMES = st.sampled_from(["a", "b", "ab", "*", "a/b", "%", "_", "~", "é", "x" * 400])


Items = list[tuple[list[str], str]]


def difference(kind: type[Memory], items: Items, prefix: list[str]) -> list[tuple[object, object]]:
    """Return what a memory and LangGraph's own store find below a prefix, where they do not find the same."""
    with perdure.open("memory:") as store:
        ours, theirs = kind(store), InMemoryStore()
        for number, (namespace, key) in enumerate(items):
            for each in (ours, theirs):
                each.put(tuple(namespace), key, {"n": number})

        def found(each: Memory | InMemoryStore) -> list[object]:
            hits = each.search(tuple(prefix), limit=100)
            listed = [
                each.list_namespaces(prefix=tuple(prefix) or None, max_depth=depth) for depth in (None, 1)
            ]
            tails = each.list_namespaces(suffix=tuple(prefix) or None)
            read = [each.get(tuple(namespace), key) for namespace, key in items]
            values = [item and item.value for item in read]
            return [sorted((hit.namespace, hit.key, hit.value["n"]) for hit in hits), listed, tails, values]

        return [pair for pair in zip(found(ours), found(theirs), strict=True) if pair[0] != pair[1]]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.lists(NAMES, min_size=1, max_size=3), NAMES), max_size=6),
    st.lists(NAMES, max_size=2),
)
def test_searches_and_listings_agree_with_langgraphs_own_store(items: Items, prefix: list[str]) -> None:
    """Whatever the namespaces begin with or contain."""
    assert difference(Memory, items, prefix) == []


class ByText(Memory):
    """A control: namespaces are joined with a separator, and a search goes by the beginning of the text."""

    def _search(self, view: Any, op: Any, now: float) -> Any:
        wanted = "/".join(op.namespace_prefix)
        stored = view.values(memory_store._ITEMS).values()
        return [(None, each) for each in stored if "/".join(each["namespace"]).startswith(wanted)]


class ByPattern(Memory):
    """A control: a search takes the parts of its namespace for patterns, as a database does with LIKE."""

    def _search(self, view: Any, op: Any, now: float) -> Any:
        wanted = [each.replace("%", "*").replace("_", "?") for each in op.namespace_prefix]
        return [
            (None, each)
            for each in view.values(memory_store._ITEMS).values()
            if len(each["namespace"]) >= len(wanted) and all(map(fnmatchcase, each["namespace"], wanted))
        ]


class ByEscape(Memory):
    """A control: the items of namespaces that look alike without their separators are in one folder."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._folder = memory_store._folder

    def batch(self, ops: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory_store, "_folder", lambda parts: self._folder("/".join(parts).split("/")))
            return super().batch(ops)


@pytest.mark.parametrize(
    ("kind", "items", "prefix"),
    [
        (ByText, [(["a"], "k"), (["ab"], "k")], ["a"]),
        (ByText, [(["a/b"], "k"), (["a", "b"], "k")], ["a", "b"]),
        (ByPattern, [(["%"], "k"), (["a"], "k")], ["%"]),
        (ByPattern, [(["*"], "k"), (["a"], "k")], ["*"]),
        (ByEscape, [(["a/b"], "k"), (["a", "b"], "k")], ["a"]),
    ],
)
def test_a_memory_whose_namespaces_leak_is_found_out(
    kind: type[Memory], items: Items, prefix: list[str]
) -> None:
    """Control: by the beginning of a text, by a separator, by a wildcard; our memory does the same right."""
    assert difference(kind, items, prefix) != []
    assert difference(Memory, items, prefix) == []


def test_filters_compare_values(memory: Memory) -> None:
    """An operator that is none is refused."""
    for number in range(4):
        memory.put(("n",), str(number), {"n": number, "even": number % 2 == 0})

    assert [each.key for each in memory.search(("n",), filter={"n": {"$gte": 1, "$lt": 3}})] == ["1", "2"]
    assert [each.key for each in memory.search(("n",), filter={"even": True})] == ["0", "2"]
    assert [each.key for each in memory.search(("n",), filter={"n": {"$ne": 1}}, limit=1, offset=1)] == ["2"]
    with raises(Invalid, "operator_unknown", operator="$where"):
        memory.search(("n",), filter={"n": {"$where": "1"}})


def test_an_item_is_gone_when_its_time_is_over(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it refreshes it unless the reader says no; a sweep deletes what is over."""
    now = 1_000_000.0
    monkeypatch.setattr(memory_store, "_now", lambda: now)
    memory.put(("a",), "short", {"n": 1}, ttl=1)
    memory.put(("a",), "long", {"n": 2})
    now += 50
    assert memory.get(("a",), "short", refresh_ttl=True) is not None
    now += 50
    assert memory.get(("a",), "short", refresh_ttl=False) is not None
    now += 50

    assert memory.get(("a",), "short") is None
    assert [each.key for each in memory.search(("a",))] == ["long"]
    assert memory.sweep_ttl() == 1


def test_a_sweep_goes_on_beside_a_writer(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers of other items do not stop it, and an item that was put again meanwhile stays."""
    for key in ("a", "b", "c"):
        memory.put(("old",), key, {"x": 1}, ttl=-1)
    alive, is_writing = memory_store._alive, False
    writes = [("new", "n0"), ("old", "b"), *(("new", f"n{number}") for number in range(1, 5))]

    def disturbed(stored: Any, now: float) -> Any:
        nonlocal is_writing
        if writes and not is_writing:
            is_writing = True
            namespace, key = writes.pop()
            memory.put((namespace,), key, {"x": 2})
            is_writing = False
        return alive(stored, now)

    monkeypatch.setattr(memory_store, "_alive", disturbed)

    assert memory.sweep_ttl() == 2
    assert writes == []
    assert sorted(each.key for each in memory.search((), limit=9)) == ["b", "n0", "n1", "n2", "n3", "n4"]
    assert memory.sweep_ttl() == 0


def test_a_search_by_meaning_orders_by_likeness(tmp_path: Path) -> None:
    """With an index that embeds the texts, as LangGraph's own stores take it."""

    def embed(texts: list[str]) -> list[list[float]]:
        return [[float(text.count(letter)) for letter in "abc"] for text in texts]

    with perdure.open(tmp_path / "agents.db") as store:
        index: Any = {"dims": 3, "embed": embed, "fields": ["text"]}
        memory = Memory(store, index=index)
        for key, text in (("one", "aaab"), ("two", "bbba"), ("three", "ccc")):
            memory.put(("x",), key, {"text": text})

        found = memory.search(("x",), query="bb", limit=2)
        assert [each.key for each in found] == ["two", "one"]
        assert found[0].score is not None


def test_without_fields_the_whole_value_is_embedded(tmp_path: Path) -> None:
    """And `index_config` says how."""
    with perdure.open(tmp_path / "agents.db") as store:
        index: Any = {"dims": 2, "embed": lambda texts: [[float("cat" in each), 1.0] for each in texts]}
        memory = Memory(store, index=index)
        memory.put(("a",), "dog", {"text": "a dog"})
        memory.put(("a",), "cat", {"text": "a cat"})
        found = memory.search(("a",), query="cat")

        assert [(each.key, each.score is not None) for each in found] == [("cat", True), ("dog", True)]
        assert memory.index_config == index

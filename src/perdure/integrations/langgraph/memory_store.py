"""LangGraph's store for long-term memory: items by namespace and key, as paths of one thread.

A namespace is named by a digest over its parts, and an item is in the folder of exactly one namespace.  So neither a common
beginning nor a wildcard nor a separator in a name leads from one namespace to another: a prefix is compared part by part.
A batch is one commit, or nothing.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar, cast

from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
)

from perdure import aio
from perdure.errors import Busy, Invalid, StaleHead
from perdure.integrations import foreign_ids
from perdure.integrations.door import Door
from perdure.integrations.langgraph.codec import Codec, Serializer
from perdure.model.canonical import Json
from perdure.store.change import Change
from perdure.store.store import Store
from perdure.store.thread import Thread
from perdure.store.view import View

__all__ = ["Memory"]

_ITEMS, _NAMESPACES = "/items", "/namespaces"
_ATTEMPTS_MAX = 256
_T = TypeVar("_T")
_Stored = Mapping[str, Any]


class Memory(BaseStore):
    """Stores the items of LangGraph's `BaseStore` in one thread, `langgraph-memory` unless another is named.

    `index` embeds texts for a search by meaning, as with LangGraph's own stores; without it a search filters.  An item with
    a `ttl` is gone that many minutes after it was written, or read if reading refreshes it.
    """

    supports_ttl = True
    __slots__ = (
        "_codec",
        "_door",
        "_embeddings",
        "_fields",
        "_thread",
        "_thread_id",
        "index_config",
        "ttl_config",
    )

    def __init__(
        self,
        store: Store | aio.Store,
        *,
        thread: str = "langgraph-memory",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
        serializer: Serializer | None = None,
    ) -> None:
        """Use an open store."""
        self._door = Door(store)
        self._thread_id, self.ttl_config = foreign_ids.thread_id(thread), ttl
        self._thread: Thread | None = None
        self._codec = Codec(serializer=serializer)
        self._embeddings = None if index is None else ensure_embeddings(index.get("embed"))
        fields = (index or {}).get("fields") or ["$"]
        self.index_config = index
        self._fields = [_field(each) for each in fields]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do the operations, all of them or none, and return a result for each; reads see the moment before."""
        given = list(ops)
        return self._door.call(partial(self._batch, given))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Await `batch`."""
        given = list(ops)
        return await self._door.acall(partial(self._batch, given))

    def sweep_ttl(self) -> int:
        """Delete the items whose time is over; return how many."""
        return self._door.call(self._sweep)

    def _batch(self, ops: Sequence[Op]) -> list[Result]:
        thread = self._open()
        view, now = thread.at(), _now()
        results: list[Result] = []
        puts: dict[tuple[tuple[str, ...], str], PutOp] = {}
        read: list[tuple[str, _Stored]] = []
        for op in ops:
            match op:
                case GetOp():
                    found = _alive(view.get(_item_path(op.namespace, op.key), default=None), now)
                    if found is not None and op.refresh_ttl:
                        read.append((_item_path(op.namespace, op.key), found))
                    results.append(None if found is None else self._item(found))
                case SearchOp():
                    items = self._search(view, op, now)
                    if op.refresh_ttl:
                        read += [
                            (_item_path(tuple(each["namespace"]), each["key"]), each) for _, each in items
                        ]
                    results.append([self._search_item(each, score) for score, each in items])
                case ListNamespacesOp():
                    results.append(_list_namespaces(view, op, now))
                case PutOp():
                    puts[op.namespace, op.key] = op
                    results.append(None)
                case _:  # pyright: ignore[reportUnnecessaryComparison]
                    raise Invalid(
                        f"{op!r} is no operation of a store; nothing was done.", code="operation_unknown"
                    )
        refreshed = [(path, each) for path, each in read if each.get("ttl") is not None]
        if puts or refreshed:
            self._write(thread, list(puts.values()), refreshed, now)
        return results

    def _open(self) -> Thread:
        if self._thread is None:
            self._thread = self._door.store.thread(self._thread_id, agent="langgraph")
        return self._thread

    def _write(
        self, thread: Thread, puts: Sequence[PutOp], refreshed: Sequence[tuple[str, _Stored]], now: float
    ) -> None:
        vectors = self._embedded(puts)

        def write(change: Change) -> None:
            for path, each in refreshed:
                if change.get(path, default=None) == each:
                    change.put(path, cast("Json", {**each, "expires_at": now + each["ttl"] * 60}))
            for op in puts:
                self._put(change, op, vectors, now)

        _commit(thread, "memory", write)

    def _put(self, change: Change, op: PutOp, vectors: Mapping[str, Sequence[float]], now: float) -> None:
        path = _item_path(op.namespace, op.key)
        before = change.get(path, default=None)
        if op.value is None:
            if before is not None:
                change.delete(path)
            return
        ttl = op.ttl if op.ttl is not None else (self.ttl_config or {}).get("default_ttl")
        at = datetime.datetime.fromtimestamp(now, datetime.UTC).isoformat()
        alive = _alive(before, now)
        texts = self._texts(op)
        stored: dict[str, Any] = {
            "namespace": list(op.namespace),
            "key": op.key,
            "value": self._codec.encode(dict(op.value)),
            "created_at": alive["created_at"] if alive else at,
            "updated_at": at,
            "ttl": ttl,
            "expires_at": None if ttl is None else now + ttl * 60,
            "vectors": [[float(x) for x in vectors[text]] for text in texts if text in vectors],
        }
        change.put(path, cast("Json", stored))
        folder = _namespace_path(op.namespace)
        if change.get(folder, default=None) is None:
            change.put(folder, list(op.namespace))

    def _texts(self, op: PutOp) -> list[str]:
        if self._embeddings is None or op.value is None or op.index is False:
            return []
        fields = self._fields if op.index is None else [_field(each) for each in op.index]
        return [text for field in fields for text in get_text_at_path(dict(op.value), field)]

    def _embedded(self, puts: Sequence[PutOp]) -> dict[str, Sequence[float]]:
        texts = list(dict.fromkeys(text for op in puts for text in self._texts(op)))
        if not texts or self._embeddings is None:
            return {}
        return dict(zip(texts, self._embeddings.embed_documents(texts), strict=True))

    def _search(self, view: View, op: SearchOp, now: float) -> list[tuple[float | None, _Stored]]:
        found: list[_Stored] = []
        for namespace in _namespaces(view):
            if namespace[: len(op.namespace_prefix)] != tuple(op.namespace_prefix):
                continue
            alive = (_alive(stored, now) for stored in view.values(_folder(namespace)).values())
            found += [each for each in alive if each is not None and self._fits(each, op.filter)]
        found.sort(key=lambda each: str(each["created_at"]))
        if op.query and self._embeddings is not None:
            wanted = self._embeddings.embed_query(op.query)
            scored: list[tuple[float | None, _Stored]] = [
                (_score(wanted, each["vectors"]), each) for each in found
            ]
            scored.sort(key=lambda pair: -math.inf if pair[0] is None else pair[0], reverse=True)
        else:
            scored = [(None, each) for each in found]
        return scored[op.offset : op.offset + op.limit]

    def _fits(self, stored: _Stored, filter: Mapping[str, Any] | None) -> bool:
        if not filter:
            return True
        value = cast("Mapping[str, Any]", self._codec.decode(stored["value"]))
        return all(_compares(value.get(key), wanted) for key, wanted in filter.items())

    def _sweep(self) -> int:
        thread, now = self._open(), _now()
        found = [path for path, each in thread.at().values(_ITEMS).items() if _alive(each, now) is None]

        def write(change: Change) -> int:
            # Only these items are read here, so that writers of other items do not stand in the way.
            gone = [path for path in found if _is_over(change.get(path, default=None), now)]
            for path in gone:
                change.delete(path)
            return len(gone)

        return _commit(thread, "sweep", write) if found else 0

    def _item(self, stored: _Stored) -> Item:
        return Item(**self._fields_of(stored))

    def _search_item(self, stored: _Stored, score: float | None) -> SearchItem:
        return SearchItem(**self._fields_of(stored), score=score)

    def _fields_of(self, stored: _Stored) -> dict[str, Any]:
        return {
            "value": self._codec.decode(stored["value"]),
            "key": stored["key"],
            "namespace": tuple(stored["namespace"]),
            "created_at": datetime.datetime.fromisoformat(stored["created_at"]),
            "updated_at": datetime.datetime.fromisoformat(stored["updated_at"]),
        }


def _commit(thread: Thread, kind: str, write: Callable[[Change], _T]) -> _T:
    """Return what `write` returns, which makes the changes of one commit; it is called again if another writer was first."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            with thread.change(kind, on_conflict="rebase") as change:
                result = write(change)
        except StaleHead:
            continue
        return result
    raise Busy(f"the head of thread '{thread.id}'", "other writers are done")


def _field(path: str) -> str | list[str]:
    """Return a path of a value as LangGraph's `get_text_at_path` takes it: `$`, the whole value, is no path of steps."""
    return path if path == "$" else tokenize_path(path)


def _now() -> float:
    return datetime.datetime.now(datetime.UTC).timestamp()


def _name(namespace: Sequence[str]) -> str:
    return sha256(json.dumps(list(namespace)).encode("utf-8", "surrogatepass")).hexdigest()[:48]


def _folder(namespace: Sequence[str]) -> str:
    return f"{_ITEMS}/{_name(namespace)}"


def _namespace_path(namespace: Sequence[str]) -> str:
    return f"{_NAMESPACES}/{_name(namespace)}.json"


def _item_path(namespace: Sequence[str], key: str) -> str:
    return f"{_folder(namespace)}/{foreign_ids.path_segment(str(key))}"


def _alive(stored: Any, now: float) -> _Stored | None:
    """Return an item; None if there is none, or its time is over."""
    if stored is None:
        return None
    found = cast("_Stored", stored)
    return found if found["expires_at"] is None or found["expires_at"] > now else None


def _is_over(stored: Any, now: float) -> bool:
    """True if there is an item, and its time is over."""
    return stored is not None and _alive(stored, now) is None


def _namespaces(view: View) -> list[tuple[str, ...]]:
    return [tuple(each) for each in view.values(_NAMESPACES).values()]


def _list_namespaces(view: View, op: ListNamespacesOp, now: float) -> list[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for namespace in _namespaces(view):
        if not all(_matches(each, namespace) for each in op.match_conditions or ()):
            continue
        if any(_alive(each, now) is not None for each in view.values(_folder(namespace)).values()):
            found.add(namespace if op.max_depth is None else namespace[: op.max_depth])
    return sorted(found)[op.offset : op.offset + op.limit]


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in ("*", here) for wanted, here in zip(path, part, strict=True))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: float(value) > float(wanted),
    "$gte": lambda value, wanted: float(value) >= float(wanted),
    "$lt": lambda value, wanted: float(value) < float(wanted),
    "$lte": lambda value, wanted: float(value) <= float(wanted),
}


def _compares(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        given = cast("Mapping[str, Any]", wanted)
        if any(key.startswith("$") for key in given):
            return all(_compared(key, value, each) for key, each in given.items())
        if not isinstance(value, Mapping):
            return False
        inner = cast("Mapping[str, Any]", value)
        return all(_compares(inner.get(key), each) for key, each in given.items())
    return bool(value == wanted)


def _compared(operator: str, value: Any, wanted: Any) -> bool:
    compare = _COMPARISONS.get(operator)
    if compare is None:
        raise Invalid(
            f"a filter compares with {', '.join(_COMPARISONS)}, not {operator!r}; nothing was read.",
            code="operator_unknown",
            operator=operator,
        )
    try:
        return compare(value, wanted)
    except (TypeError, ValueError):
        return False


def _score(wanted: Sequence[float], vectors: Sequence[Sequence[float]]) -> float | None:
    """Return the best cosine similarity of an item's texts; None if none of them is embedded."""

    def cosine(one: Sequence[float], other: Sequence[float]) -> float:
        norm = math.hypot(*one) * math.hypot(*other)
        return sum(map(float.__mul__, map(float, one), map(float, other))) / norm if norm else 0.0

    return max((cosine(wanted, each) for each in vectors), default=None)

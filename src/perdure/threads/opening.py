"""Opening a store: where clock, randomness, the user's models and the address of the database come in."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from perdure.engines import registry
from perdure.errors import Corrupt, Invalid
from perdure.memory.embedding import Embed, Embedder
from perdure.model.limits import Limits
from perdure.providers.catalog import Catalog, chosen
from perdure.threads import outbox
from perdure.threads.ids import Ids
from perdure.threads.loops import check_loop
from perdure.threads.shelf import Shelf
from perdure.threads.store import Store

__all__ = ["open"]


def open(
    url: str | PathLike[str],
    *,
    read_only: bool = False,
    durability: Literal["power_loss", "process_crash"] = "power_loss",
    clock: Callable[[], int] | None = None,
    ids: Callable[[], str] | None = None,
    limits: Limits | None = None,
    create: bool = True,
    embed: Embed | Literal["minilm"] | None = None,
) -> Store:
    """Open a store: a path such as "agents.db", "sqlite:///…" or "memory:".

    A store that does not exist is made, unless `create` is false or `read_only` is true: then
    it is `NotFound`.  `durability` says what an acknowledged write survives.  `clock` gives µs
    since 1970 and `ids` the ids of actions; None takes the system's.  `embed` makes vectors of
    texts, by which memory is searched besides its words: a function, or "minilm" for a small
    model that runs here; None: by words alone.  What a process that died has left half done is
    finished here.
    """
    check_loop("open")
    allowed = Limits() if limits is None else _lowered(limits)
    address = _address(url)
    embedder = None if embed is None else _embedder(embed)
    engine = registry.open_engine(address, read_only=read_only, create=create, durability=durability)
    now = _now if clock is None else clock
    shelf = Shelf(
        engine=engine,
        clock=now,
        ids=Ids(now) if ids is None else ids,
        limits=allowed,
        models=cache(_models),
        indexes=partial(registry.open_search, address, read_only=read_only),
        embedder=embedder,
        read_only=read_only,
    )
    if not read_only:
        # A damaged store must open for `verify` to name the damage; every use of what is damaged raises.
        with suppress(Corrupt):
            outbox.finish_all(shelf.named, shelf.store)
    return Store(shelf, address, read_only=read_only)


def _address(url: object) -> str:
    """`url` as text; raises `Invalid` if it is none, nor a path that is."""
    given: object = fspath(cast("PathLike[Any]", url)) if isinstance(url, str | PathLike) else None
    if isinstance(given, str):
        return given
    raise Invalid(
        f"a store is opened by its path or url, as text or a path, not {url!r}; nothing was opened."
    )


def _lowered(limits: Limits) -> Limits:
    """`limits`; raises `Invalid` where one is above what every store can hold."""
    for name, most in msgspec.structs.asdict(Limits()).items():
        asked: int = getattr(limits, name)
        if not 0 < asked <= most:
            raise Invalid(f"{name} can be set to 1 up to {most}, not {asked}; nothing was opened.")
    return limits


def _embedder(embed: Embed | Literal["minilm"]) -> Embedder:
    """The embedding function, where its vectors can be searched; raises `Unsupported` where they cannot."""
    registry.check_vectors()
    if embed == "minilm":
        from perdure.memory.minilm import minilm

        return Embedder(minilm())
    if isinstance(embed, str):
        raise Invalid(f"embed is a function, or 'minilm', not {embed!r}; nothing was opened.")
    return Embedder(embed)


def _models() -> Catalog:
    """What this user knows of models."""
    return chosen(os.environ, Path.home())


def _now() -> int:
    return time.time_ns() // 1_000

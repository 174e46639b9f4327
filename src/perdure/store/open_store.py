"""Opens a store: reads the address of the database, the limits and the user's models."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from perdure.engines import registry
from perdure.errors import Corrupt, Invalid
from perdure.model.limits import Limits
from perdure.store.plumbing import outbox
from perdure.store.plumbing.handles import Ids, StoreResources, check_loop, deferred, system_clock
from perdure.store.store import Store

if TYPE_CHECKING:
    from perdure.memory import embedding
    from perdure.memory.embedding import Embed, Embedder
    from perdure.providers import catalog
    from perdure.providers.catalog import Catalog
else:
    embedding = deferred("perdure.memory.embedding")
    catalog = deferred("perdure.providers.catalog")

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

    A store that does not exist is created, unless `create` is false or `read_only` is true: then it is `NotFound`.
    `durability` says what an acknowledged write survives.  `clock` returns µs since 1970 and `ids` the ids of actions;
    None takes the system's.  `embed` computes the vectors by which memory is searched besides its words: a function,
    or "minilm" for a small model that runs in this process; None: by words alone.  Opening also finishes what a
    crashed process has left half done.
    """
    check_loop("open")
    allowed = Limits() if limits is None else _lowered(limits)
    address = _address(url)
    embedder = None if embed is None else _embedder(embed)
    engine = registry.open_engine(address, read_only=read_only, create=create, durability=durability)
    now = system_clock if clock is None else clock
    resources = StoreResources(
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
            outbox.finish_all(resources.named, resources.store)
    return Store(resources, address, read_only=read_only)


def _address(url: object) -> str:
    """Return `url` as text; raises `Invalid` if it is neither text nor a path."""
    address: object = fspath(cast("PathLike[Any]", url)) if isinstance(url, str | PathLike) else None
    if isinstance(address, str):
        return address
    raise Invalid(
        f"a store is opened by its path or url, as text or a path, not {url!r}; nothing was opened.",
        code="url_not_text",
    )


def _lowered(limits: Limits) -> Limits:
    """Return `limits`; raises `Invalid` if one is higher than the limit of every store."""
    for name, most in msgspec.structs.asdict(Limits()).items():
        asked: int = getattr(limits, name)
        if not 0 < asked <= most:
            raise Invalid(
                f"{name} can be set to 1 up to {most}, not {asked}; nothing was opened.",
                code="limit_invalid",
                field=name,
                limit=asked,
            )
    return limits


def _embedder(embed: Embed | Literal["minilm"]) -> Embedder:
    """Return the embedding function; raises `Unsupported` if vectors cannot be searched here."""
    registry.check_vectors()
    if embed == "minilm":
        from perdure.memory.minilm import minilm

        return embedding.Embedder(minilm())
    if isinstance(embed, str):
        raise Invalid(
            f"embed is a function, or 'minilm', not {embed!r}; nothing was opened.", code="embed_unknown"
        )
    return embedding.Embedder(embed)


def _models() -> Catalog:
    """Read the catalog of models, with the user's own."""
    return catalog.chosen(os.environ, Path.home())

"""Opens a store: reads the clock, randomness, the user's models and the address of the database.

Ids of actions are UUIDv7, made of the clock and of randomness; within a process each is greater than the one before.
Ids define no order: order comes from parents and versions.  Growing ids only keep what is stored by id close together.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast

import msgspec

from perdure.engines import registry
from perdure.errors import Corrupt, Invalid
from perdure.memory.embedding import Embed, Embedder
from perdure.model.limits import Limits
from perdure.providers.catalog import Catalog, chosen
from perdure.store.plumbing import outbox
from perdure.store.plumbing.handles import check_loop
from perdure.store.plumbing.resources import StoreResources
from perdure.store.store import Store

__all__ = ["open", "Ids"]


_RANDOM_BITS = 74
_RANDOM = (1 << _RANDOM_BITS) - 1
_STEP_BITS = 40
_STEP = (1 << _STEP_BITS) - 1
_LOW_BITS = 62
_LOW = (1 << _LOW_BITS) - 1
_VARIANT = 0b10 << _LOW_BITS
_VERSION = 7 << 12

_lock = Lock()


class Ids:
    """A source of ids: call it for the next one."""

    __slots__ = ("_clock", "_last")

    def __init__(self, clock: Callable[[], int]) -> None:
        """Take the time from `clock`, in µs since 1970."""
        self._clock = clock
        self._last = 0

    def __call__(self) -> str:
        """The next id."""
        noise = int.from_bytes(os.urandom(16), "big")
        fresh = (self._clock() // 1_000 << _RANDOM_BITS) | (noise >> _STEP_BITS) & _RANDOM
        with _lock:
            # Within one ms, and when the clock goes back, the step is random, so a forked process takes another one.
            number = self._last = max(fresh, self._last + 1 + (noise & _STEP))
        high = number >> _RANDOM_BITS << 16 | _VERSION | number >> _LOW_BITS & 0xFFF
        digits = f"{high << 64 | _VARIANT | number & _LOW:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _renew() -> None:
    global _lock  # noqa: PLW0603  # the parent may have held it at the moment of the fork
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


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
    now = _now if clock is None else clock
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

        return Embedder(minilm())
    if isinstance(embed, str):
        raise Invalid(
            f"embed is a function, or 'minilm', not {embed!r}; nothing was opened.", code="embed_unknown"
        )
    return Embedder(embed)


def _models() -> Catalog:
    """Read the catalog of models, with the user's own."""
    return chosen(os.environ, Path.home())


def _now() -> int:
    return time.time_ns() // 1_000

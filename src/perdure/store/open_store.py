"""Opens a store: reads the address of the database, the limits and the user's models."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from perdure.engines import registry
from perdure.errors import Corrupt, Invalid, Unsupported
from perdure.model.limits import Limits
from perdure.model.names import shown_address
from perdure.store.plumbing import outbox
from perdure.store.plumbing.handles import Ids, StoreResources, beside_loop, deferred, system_clock
from perdure.store.store import Store

if TYPE_CHECKING:
    from perdure.ledger import held
    from perdure.memory import embedding
    from perdure.memory.embedding import Embed, Embedder
    from perdure.providers import catalog
    from perdure.providers.catalog import Catalog
    from perdure.store.upkeep import restore as restores
    from perdure.store.upkeep.restore import RestoreReport
else:
    restores = deferred("perdure.store.upkeep.restore")
    held = deferred("perdure.ledger.held")
    embedding = deferred("perdure.memory.embedding")
    catalog = deferred("perdure.providers.catalog")

__all__ = ["open", "restore"]


def open(
    url: str | PathLike[str],
    *,
    read_only: bool = False,
    durability: Literal["power_loss", "process_crash"] = "power_loss",
    clock: Callable[[], int] | None = None,
    ids: Callable[[], str] | None = None,
    limits: Limits | None = None,
    create: bool = True,
    embed: Embed | Literal["minilm", "auto"] | None = None,
    blocking: bool = False,
) -> Store:
    """Open a store: a path such as "agents.db", "sqlite:///…", "postgresql://…" or "memory:".

    A store that does not exist is created, unless `create` is false or `read_only` is true: then it is `NotFound`.
    `durability` says what an acknowledged write survives.  `clock` returns µs since 1970 and `ids` the ids of actions;
    None takes the system's.  `embed` computes the vectors by which memory is searched besides its words: a function,
    "minilm" for a small model that runs in this process, or "auto" for that model if it is installed; None: by words
    alone.  Opening also finishes what a crashed process has left half done.

    Where an event loop runs on this thread, blocking calls are refused (`perdure.aio` has their twins), but in a
    notebook they work, and with `blocking=True` anywhere: each is made on a thread of its own, and the loop waits.
    """
    opening = partial(
        _open,
        url,
        read_only=read_only,
        durability=durability,
        clock=clock,
        ids=ids,
        limits=limits,
        create=create,
        embed=embed,
    )
    return beside_loop("open", opening, lets_wait=blocking)


def _open(
    url: str | PathLike[str],
    *,
    read_only: bool,
    durability: Literal["power_loss", "process_crash"],
    clock: Callable[[], int] | None,
    ids: Callable[[], str] | None,
    limits: Limits | None,
    create: bool,
    embed: Embed | Literal["minilm", "auto"] | None,
) -> Store:
    allowed = Limits() if limits is None else _lowered(limits)
    address = _address(url)
    embedder = None if embed is None else _embedder(embed, address)
    engine = registry.open_engine(address, read_only=read_only, create=create, durability=durability)
    if not read_only:
        try:
            held.check_complete(engine, shown_address(address))
        except Corrupt:
            pass  # as below
        except BaseException:
            engine.close()
            raise
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
        spool=_spool(address),
        channel=registry.live_channel(engine),
    )
    if not read_only:
        # A damaged store must open for `verify` to name the damage; every use of what is damaged raises.
        with suppress(Corrupt):
            outbox.finish_all(resources.named, resources.store)
    logging = sys.modules.get(
        "logging"
    )  # a program that has not loaded it has no handler, and loading it takes long
    if logging is not None:
        logging.getLogger("perdure.store").info("opened %s", shown_address(address))
    return Store(resources, address, read_only=read_only)


def restore(
    backup: str | PathLike[str],
    target: str | PathLike[str],
    *,
    replace: bool = False,
    set_aside_newer: bool = False,
    blocking: bool = False,
) -> RestoreReport:
    """Check a backup and make the store at `target` from it, with its runs and approvals held until `release`.

    Calls that were under way when the backup was made are unknown in the restored store, and the restore is recorded
    in it.  Nothing is ever written over: raises `Conflict` if `target` is a store; with `replace`, one that is damaged
    or has nothing that the backup lacks is set aside under another name first, and with `set_aside_newer` any store: the
    report says how many writes it has that the backup lacks.  Raises `Corrupt`, having changed nothing, if the backup is
    damaged.  Call it again after a crash: it goes on.
    """
    restoring = partial(
        restores.restore,
        _address(backup),
        _address(target),
        replace=replace,
        set_aside_newer=set_aside_newer,
        clock=system_clock,
    )
    return beside_loop("restore", restoring, lets_wait=blocking)


def _address(url: object) -> str:
    """Return `url` as text; raises `Invalid` if it is neither text nor a path."""
    address: object = fspath(cast("PathLike[Any]", url)) if isinstance(url, str | PathLike) else None
    if isinstance(address, str):
        return address
    raise Invalid(
        f"a store is opened by its path or url, as text or a path, not {url!r}; nothing was opened.",
        code="url_not_text",
    )


def _spool(address: str) -> Path | None:
    """Return the directory of live text: beside the file of a store, else one of this user; None: for one in memory."""
    if address.startswith("memory:"):
        return None
    file = registry.file_of(address)
    if file is not None:
        return Path(os.path.realpath(file) + "-live")
    import tempfile  # only here: a store in a file does not need it
    from hashlib import sha256

    name = sha256(registry.place_of(address).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"perdure-live-{os.getuid()}-{name}"


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


def _embedder(embed: Embed | Literal["minilm", "auto"], address: str) -> Embedder | None:
    """Return the embedding function; None: "auto", and there is none.

    Raises `Unsupported` if vectors cannot be searched in that store, or the model that was named is not installed.
    """
    if embed == "auto":
        with suppress(Unsupported):
            return _small_model(address, gives_way=True)
        return None
    if embed == "minilm":
        return _small_model(address, gives_way=False)
    if isinstance(embed, str):
        raise Invalid(
            f"embed is a function, 'minilm' or 'auto', not {embed!r}; nothing was opened.",
            code="embed_unknown",
        )
    registry.check_vectors(address)
    return embedding.Embedder(embed)


def _small_model(address: str, *, gives_way: bool) -> Embedder:
    registry.check_vectors(address)
    from perdure.memory.minilm import SIMILARITY_MIN, minilm

    return embedding.Embedder(minilm(), gives_way=gives_way, similarity_min=SIMILARITY_MIN)


def _models() -> Catalog:
    """Read the catalog of models, with the user's own."""
    return catalog.chosen(os.environ, Path.home())

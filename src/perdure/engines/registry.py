"""The registry: from a store's address to its engine, and the only place that knows which engines exist.

    agents.db  sqlite:///relative.db  sqlite:////absolute.db     the embedded store
    memory:                                                      a new one each time
    memory:name                                                  one per name and process

Any other scheme is an entry point of that name in the group `perdure.engines`: a callable
with the signature of `Opener`.  An engine is imported when a store is opened, not before.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from perdure.engines.contract import Engine
from perdure.errors import Invalid, NotFound, Unsupported
from perdure.model.fork_safety import ThreadLock

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from perdure.engines.memory import MemoryStore
    from perdure.engines.search_contract import SearchIndex
    from perdure.engines.sqlite.sql import Entries, Sql

__all__ = [
    "GROUP",
    "Opener",
    "check_vectors",
    "export_tables",
    "open_engine",
    "open_search",
    "open_sql",
    "own_name",
    "place_of",
    "seen_from",
]

DURABILITIES = ("power_loss", "process_crash")
GROUP = "perdure.engines"

# At least two letters, so that the drive in `C:\agents.db` is no scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LATER = {"postgresql": "PostgreSQL", "postgres": "PostgreSQL"}

_named: dict[str, MemoryStore] = {}
_lock = ThreadLock()


class Opener(Protocol):
    """The function by which an engine's package opens a store."""

    def __call__(self, url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
        """Open the store at `url`.

        Raises `NotFound` if it does not exist and `create` is false; `read_only` never creates.
        """
        ...


def open_engine(url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
    """Open the store at `url`, which is a path or has a scheme.

    Raises `Unsupported` for a scheme that no installed package serves, `Invalid` for an
    address that cannot be read, `NotFound` for a store that does not exist and may not be created.
    """
    if durability not in DURABILITIES:
        raise Invalid(
            f"durability '{durability}' is none of {', '.join(DURABILITIES)}; nothing was opened.",
            code="durability_unknown",
            durability=durability,
        )
    return _opener(_scheme(url))(url, read_only=read_only, create=create, durability=durability)


def open_sql(url: str, *, entries: Entries) -> Sql:
    """Open a store that is a SQLite file for queries in SQL, read-only.

    `entries` reads a map from its nodes, which an engine cannot do.  Raises `Unsupported`
    for other stores, `NotFound` if there is none.
    """
    path = _file(url)
    if path is None:
        raise Unsupported(
            f"'{url}' is not a SQLite file; nothing was opened.",
            code="not_sqlite",
            advice="Use the database's own client.",
            url=url,
        )
    from perdure.engines.sqlite.sql import Sql

    if not path.exists():
        raise NotFound(
            f"there is no store at {path}; nothing was opened.", code="store_not_found", path=str(path)
        )
    return Sql(path.resolve(), entries=entries)


def export_tables(sql: Sql, target: Path, *, thread: str | None) -> dict[str, int]:
    """Write the views of a store as plain tables to a new SQLite file, of one thread or of all; return rows by table.

    Raises `Conflict` if the file exists, `NotFound` if its directory does not.
    """
    from perdure.engines.sqlite.maintenance.copy import export_tables

    return export_tables(sql, target, thread=thread)


def open_search(url: str, owner: str | None, *, read_only: bool) -> SearchIndex:
    """Return the search index of one owner's memory in the store at `url`; owner None: one in memory, without an owner.

    The index is a file beside a store that is a SQLite file, and in memory for any other; nothing is opened yet.
    """
    from perdure.engines.sqlite.search import SqliteSearch

    path = _file(url)
    if owner is None or path is None:
        return SqliteSearch(None)
    store = path.resolve()  # one index, whichever link is used
    file = f"{sha256(owner.encode()).hexdigest()}.db"  # a name found in data never becomes a path
    return SqliteSearch(store.with_name(f"{store.name}-memory") / file, read_only=read_only)


def place_of(url: str) -> str:
    """Return the store that `url` names, in a form that two addresses of one store share."""
    path = _file(url)
    return url if path is None else os.path.realpath(path)  # it also accepts links that lead in a circle


def own_name(url: str) -> str:
    """Return how a store is named from its own directory: a file without its directory, any other store by its address."""
    path = _file(url)
    return url if path is None else path.resolve().name


def seen_from(store: str, url: str) -> str:
    """Return the address `url` as seen from the store `store`: a relative path starts at that store's directory."""
    place, path = _file(store), _file(url)
    return url if place is None or path is None else str(place.resolve().parent / path)


def _file(url: str) -> Path | None:
    """Return the file of a store that is a file; None for other stores."""
    scheme = _scheme(url)
    return Path(url.partition(":///")[2] if scheme else url) if scheme in ("", "sqlite") else None


def check_vectors() -> None:
    """Raise `Unsupported` if memory cannot be searched by vectors here."""
    from perdure.engines.sqlite.search import check_vectors

    check_vectors()


def _scheme(url: str) -> str:
    """Return the scheme of `url` in lower case, '' for a path."""
    found = _SCHEME.match(url)
    return found[1].lower() if found else ""


def _opener(scheme: str) -> Opener:
    match scheme:
        case "":
            return _open_path
        case "sqlite":
            return _open_sqlite
        case "memory":
            return _open_memory
        case _:
            return _installed(scheme)


def _open_path(url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
    if not url or "\0" in url or url == ":memory:":
        raise Invalid(
            f"{url!r} names no file; nothing was opened.",
            code="url_names_no_file",
            advice="Give a path such as agents.db, or memory:",
            url=url,
        )
    from perdure.engines.sqlite import open_sqlite

    return open_sqlite(Path(url), read_only=read_only, create=create, durability=durability)


def _open_sqlite(url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
    rest = url.partition(":")[2]
    if not rest.startswith("///") or rest == "///":
        raise Invalid(
            f"'{url}' names no file; nothing was opened.",
            code="url_names_no_file",
            advice="Write sqlite:///agents.db for a file in this directory, sqlite:////srv/agents.db for one by its full path.",
            url=url,
        )
    return _open_path(rest.removeprefix("///"), read_only=read_only, create=create, durability=durability)


def _open_memory(url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
    """Open a memory store; it accepts `durability`, and has none."""
    from perdure.engines.memory import MemoryEngine, MemoryStore

    name = url.partition(":")[2].strip("/")
    with _lock:
        store = _named.get(name)
        if store is None:
            if read_only or not create:
                raise NotFound(
                    f"there is no memory store '{url}' in this process; nothing was opened.",
                    code="store_not_found",
                    path=url,
                )
            store = MemoryStore(url)
            if name:
                _named[name] = store
    return MemoryEngine(store, read_only=read_only)


def _installed(scheme: str) -> Opener:
    """Return the opener that an installed package registers for `scheme`."""
    found = sorted(_entry_points().select(name=scheme), key=lambda point: point.value)
    if not found:
        raise _unknown(scheme)
    if len({point.value for point in found}) > 1:
        packages = ", ".join(point.value for point in found)
        raise Invalid(
            f"several packages serve '{scheme}:' ({packages}); nothing was opened.",
            code="engine_ambiguous",
            advice="Uninstall all but one.",
            scheme=scheme,
        )
    return _loaded(found[0])


def _loaded(point: EntryPoint) -> Opener:
    try:
        return cast("Opener", point.load())
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"the engine for '{point.name}:' ({point.value}) cannot be loaded: {error}; nothing was opened.",
            code="engine_not_loaded",
            scheme=point.name,
        ) from error


def _unknown(scheme: str) -> Unsupported:
    others = {point.name for point in _entry_points()}
    known = sorted({"memory", "sqlite"} | others)
    later = _LATER.get(scheme)
    advice = (
        f"{later} comes with a later release of Perdure."
        if later
        else f"Install the package that registers '{scheme}' in the entry point group '{GROUP}'."
    )
    return Unsupported(
        f"no engine for '{scheme}:' is installed; nothing was opened. There are: {', '.join(known)}.",
        code="engine_not_installed",
        advice=f"{advice} For a file with a colon in its name, write ./ before it.",
        scheme=scheme,
        known=known,
    )


def _entry_points() -> EntryPoints:
    # Reading what is installed costs more than opening a store, and few stores need it.
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)

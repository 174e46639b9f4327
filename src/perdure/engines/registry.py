"""The registry: from a store's address to its engine, and the only place that knows which engines exist.

    agents.db  sqlite:///relative.db  sqlite:////absolute.db     the embedded store
    memory:                                                      a new one each time
    memory:name                                                  one per name and process
    postgresql://user@host/database                              on a server (extra `perdure[postgres]`)

Any other scheme is an entry point of that name in the group `perdure.engines`: a callable
with the signature of `Opener`.  An engine is imported when a store is opened, not before.

What belongs to a store is found by the same scheme: its search indexes in the group `perdure.search` (a
`SearchOpener`), its views in SQL in `perdure.sql` (a `SqlOpener`), and whether it can search by vectors in
`perdure.vectors` (a function of the address that raises `Unsupported`).  A store of another scheme that has no search
of its own is searched in the memory of the process.

No address is shown with its password: `shown_address` is what errors and names have.
"""

from __future__ import annotations

import os
import re
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from perdure.engines.contract import Engine
from perdure.errors import Invalid, NotFound, Unsupported
from perdure.model.fork_safety import ThreadLock
from perdure.model.names import is_mistyped_address, shown_address

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from importlib.metadata import EntryPoint, EntryPoints

    from perdure.engines.memory import MemoryStore
    from perdure.engines.news import LiveChannel
    from perdure.engines.postgres.engine import PostgresEngine
    from perdure.engines.search_contract import SearchIndex
    from perdure.engines.sqlite.sql import Entries, Sql

__all__ = [
    "GROUP",
    "Opener",
    "SearchOpener",
    "SqlOpener",
    "check_vectors",
    "export_tables",
    "file_of",
    "live_channel",
    "open_engine",
    "open_search",
    "open_sql",
    "own_name",
    "place_of",
    "seen_from",
    "write_lock",
]

DURABILITIES = ("power_loss", "process_crash")
GROUP = "perdure.engines"
_SEARCH, _SQL, _VECTORS = "perdure.search", "perdure.sql", "perdure.vectors"
_POSTGRES = ("postgres", "postgresql")
_BUILT_IN = ("", "memory", *_POSTGRES, "sqlite")

# At least two letters, so that the drive in `C:\agents.db` is no scheme.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")

_named: dict[str, MemoryStore] = {}
_lock = ThreadLock()


class Opener(Protocol):
    """The function by which an engine's package opens a store."""

    def __call__(self, url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
        """Open the store at `url`.

        Raises `NotFound` if it does not exist and `create` is false; `read_only` never creates.
        """
        ...


class SearchOpener(Protocol):
    """The function by which an engine's package opens the search indexes of its stores."""

    def __call__(self, url: str, owner: str, *, read_only: bool) -> SearchIndex:
        """Return the search index of one owner's memory in the store at `url`; nothing is opened yet."""
        ...


class SqlOpener(Protocol):
    """The function by which an engine's package opens its stores for queries in SQL."""

    def __call__(self, url: str, *, entries: Entries) -> Sql:
        """Open the store at `url`, read-only; `entries` reads a map from its nodes."""
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
    """Open a store for queries in SQL, read-only.

    `entries` reads a map from its nodes, which an engine cannot do.  A store that is no file is copied to one, and
    the copy is removed at the end.  Raises `Unsupported` for a store without such views, `NotFound` if there is none.
    """
    path = file_of(url)
    if _scheme(url) in ("memory", *_POSTGRES):
        from perdure.engines.sqlite.sql import Sql

        with closing(open_engine(url, read_only=True, create=False, durability=DURABILITIES[0])) as engine:
            return Sql.of_engine(engine, shown_address(url), entries=entries)
    if path is None:
        opener = cast("SqlOpener | None", _found(_SQL, _scheme(url)))
        if opener is not None:
            return opener(url, entries=entries)
        raise Unsupported(
            f"'{shown_address(url)}' has no views in SQL; nothing was opened.",
            code="not_sqlite",
            advice="Use the database's own client.",
            url=shown_address(url),
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

    The index is a file beside a store that is a SQLite file, and in the database of a PostgreSQL store.  For another store it is what the package of its engine
    has registered, and in memory if that has nothing.  Nothing is opened yet.
    """
    path = file_of(url)
    if owner is not None and _scheme(url) in _POSTGRES:
        from perdure.engines.postgres.search import PostgresSearch
        from perdure.engines.sqlite.search import split_words

        return PostgresSearch(url, owner, split_words, read_only=read_only)
    opener = None if owner is None or path is not None else _found(_SEARCH, _scheme(url))
    if owner is not None and opener is not None:
        return cast("SearchOpener", opener)(url, owner, read_only=read_only)
    from perdure.engines.sqlite.search import SqliteSearch

    if owner is None or path is None:
        return SqliteSearch(None)
    store = path.resolve()  # one index, whichever link is used
    file = f"{sha256(owner.encode()).hexdigest()}.db"  # a name found in data never becomes a path
    return SqliteSearch(store.with_name(f"{store.name}-memory") / file, read_only=read_only)


def live_channel(engine: Engine) -> LiveChannel | None:
    """Return what carries the words of live runs to processes of other machines; None: the engine has nothing for it."""
    if type(engine).__module__ != "perdure.engines.postgres.engine":
        return None
    return cast("PostgresEngine", engine).live


def place_of(url: str) -> str:
    """Return the store that `url` names: a file by its real path, any other store by its address without the password."""
    path = file_of(url)
    # realpath also accepts links that lead in a circle.
    return shown_address(url) if path is None else os.path.realpath(path)


def own_name(url: str) -> str:
    """Return how a store is named from its own directory: a file without its directory, any other store by its address."""
    path = file_of(url)
    return shown_address(url) if path is None else path.resolve().name


def seen_from(store: str, url: str) -> str:
    """Return the address `url` as seen from the store `store`: a relative path starts at that store's directory."""
    place, path = file_of(store), file_of(url)
    return url if place is None or path is None else str(place.resolve().parent / path)


def file_of(url: str) -> Path | None:
    """Return the file of a store that is a file; None for other stores."""
    scheme = _scheme(url)
    return Path(url.partition(":///")[2] if scheme else url) if scheme in ("", "sqlite") else None


@contextmanager
def write_lock(path: Path) -> Generator[Callable[[], bool]]:
    """Hold the write lock of the file of a store: nothing writes to it, or opens it for writing, meanwhile.

    Gives a function that is True if a process has the store open.  Raises `Unavailable` if the lock is not free.
    """
    from perdure.engines.sqlite.maintenance.copy import is_open, sync_names
    from perdure.engines.sqlite.maintenance.copy import write_lock as lock

    with lock(path):
        yield lambda: is_open(path)
        sync_names(path.parent)


def check_vectors(url: str) -> None:
    """Raise `Unsupported` if the memory of the store at `url` cannot be searched by vectors here."""
    if _scheme(url) in _POSTGRES:
        with _driver():
            from perdure.engines.postgres.search import check_vectors as check_extension
        check_extension(url)
        # as below: a search of an earlier moment uses an index in memory
    check = cast("Callable[[str], None] | None", _found(_VECTORS, _scheme(url)))
    if check is not None:
        check(url)
        return
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
        case "postgresql" | "postgres":
            return _open_postgres
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
    if is_mistyped_address(url):
        shown = shown_address(url)
        raise Invalid(
            f"'{shown}' is neither a file nor a well-formed address; nothing was opened.",
            code="url_invalid",
            advice="Write postgresql://user@host:5432/database, without a space before it, or ./name for a file.",
            url=shown,
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


def _open_postgres(url: str, *, read_only: bool, create: bool, durability: str) -> Engine:
    with _driver():
        from perdure.engines.postgres import open_postgres
    return open_postgres(url, read_only=read_only, create=create, durability=durability)


@contextmanager
def _driver() -> Generator[None]:
    """Raise `Unsupported` if what is imported inside needs a driver that is not installed."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"the driver for PostgreSQL is not installed ({error}); nothing was opened.",
            code="driver_not_installed",
            advice="Install perdure[postgres].",
            scheme="postgresql",
        ) from error


def _installed(scheme: str) -> Opener:
    """Return the opener that an installed package registers for `scheme`."""
    found = _found(GROUP, scheme)
    if found is None:
        raise _unknown(scheme)
    return cast("Opener", found)


def _found(group: str, scheme: str) -> object | None:
    """Return what an installed package registers in a group for `scheme`; None if there is none, or it is our own."""
    if scheme in _BUILT_IN:
        return None
    found = sorted(_entry_points(group).select(name=scheme), key=lambda point: point.value)
    if not found:
        return None
    if len({point.value for point in found}) > 1:
        packages = ", ".join(point.value for point in found)
        raise Invalid(
            f"several packages serve '{scheme}:' ({packages}); nothing was opened.",
            code="engine_ambiguous",
            advice="Uninstall all but one.",
            scheme=scheme,
        )
    return _loaded(found[0])


def _loaded(point: EntryPoint) -> object:
    try:
        return cast("object", point.load())
    except (ImportError, AttributeError) as error:
        raise Unsupported(
            f"the engine for '{point.name}:' ({point.value}) cannot be loaded: {error}; nothing was opened.",
            code="engine_not_loaded",
            scheme=point.name,
        ) from error


def _unknown(scheme: str) -> Unsupported:
    others = {point.name for point in _entry_points(GROUP)}
    known = sorted({"memory", "postgresql", "sqlite"} | others)
    advice = f"Install the package that registers '{scheme}' in the entry point group '{GROUP}'."
    return Unsupported(
        f"no engine for '{scheme}:' is installed; nothing was opened. There are: {', '.join(known)}.",
        code="engine_not_installed",
        advice=f"{advice} For a file with a colon in its name, write ./ before it.",
        scheme=scheme,
        known=known,
    )


def _entry_points(group: str) -> EntryPoints:
    # Reading what is installed costs more than opening a store, and few stores need it.
    from importlib.metadata import entry_points

    return entry_points(group=group)

"""Opening the store that a command works on.

Only `init`, `import`, `chat` and `demo` make one, and `serve` one that is no file: a mistyped path never creates
anything.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from perdure.cli.options import Everywhere, SearchedBy
from perdure.engines.contract import Engine
from perdure.engines.registry import open_engine
from perdure.errors import NotFound, Unsupported
from perdure.history.tree import Nodes, Tree
from perdure.model.digest import Digest
from perdure.model.names import near
from perdure.store.open_store import open as open_store
from perdure.store.store import Store

if TYPE_CHECKING:
    from perdure.telemetry.metrics import StoreMetrics

__all__ = ["reading", "writing", "engine", "map_entries", "server_installed", "stores_near", "telemetry"]

_MAGIC = b"SQLite format 3\0"
_ENDINGS = (".db", ".sqlite", ".sqlite3")
_FILES_MAX = 500
_SHOWN_MAX = 3

_T = TypeVar("_T")


@contextmanager
def reading(everywhere: Everywhere, *, embed: SearchedBy = "none") -> Generator[Store]:
    """Open the store for reading, its memories searched by `embed`; raises `NotFound` if there is none."""
    by = None if embed == "none" else embed
    with _known(everywhere, lambda: open_store(everywhere.store, read_only=True, embed=by)) as store:
        yield store


@contextmanager
def writing(everywhere: Everywhere, *, create: bool = False, embed: SearchedBy = "none") -> Generator[Store]:
    """Open the store for writing, its memories searched by `embed`.

    Raises `NotFound` if there is none, unless it may `create` one.
    """
    by = None if embed == "none" else embed
    with _known(everywhere, lambda: open_store(everywhere.store, create=create, embed=by)) as store:
        yield store


@contextmanager
def engine(everywhere: Everywhere) -> Generator[Engine]:
    """Open the engine of the store to read, for work on the store as a whole."""
    place = everywhere.store
    opened = _known(
        everywhere,
        lambda: open_engine(place, read_only=True, create=False, durability="power_loss"),
    )
    try:
        yield opened
    finally:
        opened.close()


def map_entries(nodes: Nodes, root: Digest) -> Iterator[tuple[str, Digest]]:
    """Return the paths of a state and the digests of their values, for an engine, which cannot read maps."""
    return ((entry.path, entry.value) for entry in Tree(nodes, root).entries())


def _known(everywhere: Everywhere, opened: Callable[[], _T]) -> _T:
    """Open a store; if there is none, the error names stores in that directory, those with a close name first."""
    try:
        return opened()
    except NotFound as error:
        close = stores_near(everywhere.store)
        if not close:
            raise
        meant = f"Did you mean --store {' or --store '.join(map(shlex.quote, close))}?"
        facts = error.facts | {"near": tuple(close)}
        raise NotFound(f"{error.message} {meant}", code=error.code, advice=error.advice, **facts) from error


def stores_near(place: str) -> list[str]:
    """Return stores in the directory of `place`: those with a close name, or else some."""
    here = _stores_beside(Path(place))
    return near(place, here) or here[:_SHOWN_MAX]


def _stores_beside(path: Path) -> list[str]:
    """Return the files in the directory of `path` that may be stores."""
    try:
        beside = sorted(path.parent.iterdir())[:_FILES_MAX]
        return [str(each) for each in beside if each.suffix in _ENDINGS and _is_sqlite(each)]
    except OSError:
        return []


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


@contextmanager
def server_installed(extra: str = "server") -> Generator[None]:
    """Raise `Unsupported` if a package of the server is missing; `extra` is what installs it."""
    try:
        yield
    except ImportError as error:
        raise Unsupported(
            f"the server needs a package that is missing ({error.name}); nothing was done.",
            code="package_missing",
            advice=f"Install it with `pip install 'perdure[{extra}]'`.",
            package=str(error.name),
        ) from error


@contextmanager
def telemetry(store: Store) -> Generator[StoreMetrics | None]:
    """Send telemetry as the OTEL_* environment asks, and give the numbers that are sent; None: it asks for none.

    Without the packages for it the store is used all the same, and one line of the error stream says so.
    """
    environment = os.environ
    if not any(name.startswith("OTEL_") for name in environment):
        yield None
        return
    from perdure.telemetry.enable import content_asked, enable, is_asked

    with ExitStack() as stack:
        metrics: StoreMetrics | None = None
        if is_asked(environment):
            try:
                metrics = stack.enter_context(enable(store, content=content_asked(environment))).metrics
            except (Unsupported, NotFound) as error:
                print(f"Telemetry is off: {error.message} {error.advice}", file=sys.stderr)
        yield metrics

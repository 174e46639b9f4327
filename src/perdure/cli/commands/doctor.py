"""`perdure doctor`."""

from __future__ import annotations

import platform
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.errors import code_of
from perdure.cli.hints import Subject, explain, with_store
from perdure.cli.input.stores import engine, reading, writing
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count
from perdure.cli.output.progress import working
from perdure.cli.output.screen import Column, Screen
from perdure.cli.usage import to_be_named
from perdure.engines.contract import Engine
from perdure.engines.loops import cells, spaces
from perdure.errors import Corrupt, PerdureError
from perdure.history.space import ALIVE, STORE, THREAD, THREADS, label_of
from perdure.history.writer import OUTBOX
from perdure.ledger import held
from perdure.model.call import CallRecord
from perdure.model.effect import within
from perdure.model.limits import Limits
from perdure.model.names import shown_address
from perdure.runtime.session import records
from perdure.runtime.session.records import DamagedRun
from perdure.shapes.lookup import interrupted_calls
from perdure.shapes.text import size
from perdure.store.upkeep.retention import with_open_work
from perdure.version import __version__

__all__ = ["AdviceShape", "Examined", "SizeShape", "doctor"]

_SQLITE_MIN = (3, 51, 3)  # before it, resetting the write-ahead log could corrupt a store
_WAL_LARGE = 64 * 1024 * 1024
_SLACK_LARGE = 16 * 1024 * 1024
_FREE_SMALL = 1024 * 1024 * 1024
_COUNTED_MAX = 1_000
_TRANSACTION_LONG_SECONDS = 3_600
_DEAD_MANY = 100_000
_SCANNED = 1_000
_SIZES_SHOWN, _KINDS_SHOWN = 20, 3


class AdviceShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could be better, and what to do about it."""

    what: str
    do: str


class SizeShape(msgspec.Struct, frozen=True, kw_only=True):
    """What one thread, agent or memory holds, before it is compressed."""

    name: str  # of the thread; `agent:` and `memory:` before that of an agent or an owner
    objects: int
    bytes: int
    kinds: dict[str, int]  # bytes by kind of object, the largest first


class Examined(Answer, frozen=True, kw_only=True):
    """The store and its surroundings."""

    store: str
    versions: dict[str, str]
    facts: dict[str, str | int]  # what the engine says of itself
    files: dict[str, int]  # the store's files and their bytes
    disk_free: int | None  # bytes; null: unknown
    limits: dict[str, int]
    advice: list[AdviceShape]
    error: str | None  # why the store cannot be opened; null: it can
    exit: int  # 0, or the code of that error
    repaired: dict[str, list[str]]  # the names of cells that were rebuilt, by thread
    sizes: list[SizeShape] | None  # the largest first; null: they were not asked for

    @property
    def exit_code(self) -> int:
        """Return 0 if the store can be opened."""
        return self.exit

    def show(self, screen: Screen) -> None:
        """Print facts by group, then what could be better."""
        files = [(Path(name).name, size(number)) for name, number in self.files.items()]
        free = [("disk free", size(self.disk_free))] if self.disk_free is not None else []
        facts = [(name, _amount(name, fact)) for name, fact in self.facts.items()]
        limits = [(name, _limit(name, number)) for name, number in self.limits.items()]
        groups = {"Store": [*facts, *files], "Around it": [*free, *self.versions.items()], "Limits": limits}
        for title, group in groups.items():
            if group:
                screen.say((title, "title"))
                screen.facts([(f"  {name.replace('_', ' '):<18}", fact) for name, fact in group])
                screen.gap()
        if self.sizes is not None:
            _show_sizes(screen, self.sizes)
        for thread, rebuilt in self.repaired.items():
            told = f"Repaired thread {thread}: {count(len(rebuilt), 'cell')} rebuilt from its ledger."
            screen.wrap(told, indent=2, label=("✓ ", "good"), whole_words=True)
        if self.error is not None:
            told = f"The store cannot be opened: {self.error}"
            screen.wrap(told, indent=2, label=("✗ ", "bad"), whole_words=True)
        for each in self.advice:
            screen.wrap(each.what, " ", (each.do, "quiet"), indent=2, label=("! ", "warn"), whole_words=True)
        if self.error is None:
            verify = with_store("perdure verify", screen.store)
            unread = f"What is stored was not read; to check it: {verify}"
            if self.advice:
                screen.wrap((unread, "quiet"), indent=2, whole_words=True)
            else:
                screen.wrap(f"Nothing to change. {unread}", indent=2, label=("✓ ", "good"), whole_words=True)


def doctor(
    *,
    repair: Annotated[
        bool,
        Parameter(
            negative=(), show_default=False, help="Rebuild cells of damaged threads from their ledgers first"
        ),
    ] = False,
    sizes: Annotated[
        bool,
        Parameter(
            name="--size",
            negative=(),
            show_default=False,
            help="Show what each thread, agent and memory holds, by kind; reads the whole store",
        ),
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Examined:
    """Diagnose the store and its environment

    Nothing is changed, unless `--repair` is given: then records of calls, tickets, the repeat guard and keys that
    are damaged or missing are rebuilt in threads whose ledgers are whole. Back up the file before.
    """
    repaired: dict[str, list[str]] = {}
    if repair:
        with writing(everywhere) as store:
            repaired = {thread: list(cells) for thread, cells in store.repair().items()}
    facts: dict[str, str | int] = {}
    advice: list[AdviceShape] = []
    error: PerdureError | None = None
    measured: list[SizeShape] | None = None
    try:
        with engine(everywhere) as opened:
            facts = opened.facts()
            advice += _inside(opened, to_be_named(everywhere.store))
            if sizes:
                with working("Adding up", quiet=everywhere.json):
                    measured = _sizes(opened)
        advice += _interrupted(everywhere)
    except PerdureError as problem:
        error = problem
    place = Path(str(facts.get("path", shown_address(everywhere.store).removeprefix("sqlite:///"))))
    files = _files(place)
    free = shutil.disk_usage(place.parent).free if place.parent.exists() else None
    return Examined(
        store=shown_address(everywhere.store),
        versions={"perdure": __version__, "python": platform.python_version(), "system": platform.platform()},
        facts=facts,
        files=files,
        disk_free=free,
        limits=msgspec.structs.asdict(Limits()),
        advice=[*_software(facts), *_server(facts), *advice, *_outside(place, facts, files, free)],
        error=None
        if error is None
        else " ".join(explain(error, Subject(store=to_be_named(everywhere.store)))).rstrip(),
        exit=0 if error is None else code_of(error),
        repaired=repaired,
        sizes=measured,
    )


def _sizes(opened: Engine) -> list[SizeShape]:
    """Add up the objects of every space, the largest space first."""
    found: list[SizeShape] = []
    for space in spaces(opened):
        bytes_by_kind: Counter[str] = Counter()
        objects = 0
        after: int | None = 0
        while after is not None:
            facts, after = opened.scan(space, after=after, limit=_SCANNED)
            for fact in facts:
                if fact.object is not None:
                    objects += 1
                    bytes_by_kind[fact.kind] += len(fact.object.body)
        if not objects and opened.cell(space, ALIVE) is not None:
            continue  # a thread that was removed and collected holds nothing
        kinds = dict(bytes_by_kind.most_common())
        found.append(
            SizeShape(name=_named(opened, space), objects=objects, bytes=sum(kinds.values()), kinds=kinds)
        )
    return sorted(found, key=lambda each: (-each.bytes, each.name))


def _named(opened: Engine, space: str) -> str:
    try:
        label = label_of(opened, space)
    except PerdureError:
        return space
    if label == space and space.startswith(THREADS):  # without commits: the directory alone names it
        for cell in cells(opened, STORE, prefix=THREAD):
            if cell.value is not None and msgspec.json.decode(cell.value).get("space") == space:
                return cell.name.removeprefix(THREAD)
    return label


def _show_sizes(screen: Screen, sizes: list[SizeShape]) -> None:
    screen.say(("Sizes, before compression", "title"))
    columns = (
        Column("what", "name"),
        Column("objects", right=True),
        Column("bytes", right=True),
        Column("most of it", gives_way=True),
    )
    rows = [
        (
            each.name,
            f"{each.objects:,}",
            size(each.bytes),
            ", ".join(f"{kind} {size(number)}" for kind, number in list(each.kinds.items())[:_KINDS_SHOWN]),
        )
        for each in sizes[:_SIZES_SHOWN]
    ]
    screen.table(columns, rows, indent=2)
    if len(sizes) > _SIZES_SHOWN:
        screen.say((f"  The largest {_SIZES_SHOWN} of {len(sizes)}; --json lists all.", "quiet"))
    screen.gap()


def _inside(opened: Engine, store: str | None) -> Iterator[AdviceShape]:
    """Yield advice about the content of the store."""
    waiting = len(opened.listed(prefix=OUTBOX, limit=_COUNTED_MAX))
    if waiting:
        yield AdviceShape(
            what=f"{count(waiting, 'change')} of threads to their agents' maps were interrupted.",
            do="They are finished when the store is next opened for writing.",
        )
    for arrival in held.arrivals(opened):
        if arrival.state != "complete":
            yield AdviceShape(
                what=f"A copy of {arrival.source} into this store is not complete.",
                do="Run the same `perdure copy` again; it goes on where it stopped.",
            )
    arrived = {each.space: each.source for each in islice(held.held_threads(opened), _COUNTED_MAX)}
    waiting_for_release = with_open_work(opened, list(arrived)) if arrived else []
    if waiting_for_release:
        sources = ", ".join(sorted({arrived[each] for each in waiting_for_release}))
        what = f"Runs and approvals of {count(len(waiting_for_release), 'thread')}"
        yield AdviceShape(
            what=f"{what} copied from {sources} are held.",
            do=f"See what was carried out there since: {with_store('perdure compare ORIGINAL', store)}. If nothing runs "
            f"there any more: {with_store('perdure runs release --all', store)}",
        )
    running = [record for _, record in records.running(opened)]
    damaged = [record.id for record in running if isinstance(record, DamagedRun)]
    if damaged:
        yield AdviceShape(
            what=f"{count(len(damaged), 'run')} cannot be read, and workers leave {'it' if len(damaged) == 1 else 'them'} alone: {', '.join(damaged)}.",
            do=f"See {with_store('perdure verify', store)}.",
        )
    aside = [
        record.id for record in running if not isinstance(record, DamagedRun) and record.aside_at is not None
    ]
    if aside:
        yield AdviceShape(
            what=f"{count(len(aside), 'run')} ended a worker three times and {'is' if len(aside) == 1 else 'are'} set aside.",
            do=f"See {with_store('perdure runs ls', store)}, and release with `perdure runs release THREAD --run RUN`.",
        )
    removed = sum(1 for name in spaces(opened) if _is_removed(opened, name))
    if removed:
        yield AdviceShape(
            what=f"{count(removed, 'removed thread')} still take up space.",
            do=f"{with_store('perdure gc --removed', store)} shows how much.",
        )


def _interrupted(everywhere: Everywhere) -> Iterator[AdviceShape]:
    """Yield advice about external writes that were under way when the process of their run ended, or are unknown."""
    found: list[tuple[str, CallRecord]] = []
    unclear: list[tuple[str, CallRecord]] = []
    with suppress(Corrupt), reading(everywhere) as store:  # `verify` names what is damaged
        found = interrupted_calls(store)
        unclear = store.unclear_calls()
    if unclear:
        listed = with_store("perdure calls ls", to_be_named(everywhere.store))
        yield AdviceShape(
            what=f"The outcome of {count(len(unclear), 'call')} is unknown, and a person has to settle it.",
            do=f"See {listed}.",
        )
    writes = [(thread, call) for thread, call in found if within("external_write", call.effect)]
    runs = {(thread, call.run) for thread, call in writes}
    if writes:
        place = to_be_named(everywhere.store)
        listed = with_store("perdure calls ls", place)
        resumed = with_store(f"perdure runs resume {shlex.quote(writes[0][0])} --code MODULE:NAME", place)
        yield AdviceShape(
            what=f"{count(len(runs), 'run')} ended with {count(len(writes), 'external write')} under way, whose outcome is unknown.",
            do=f"See {listed}, and resume with {resumed}",
        )


def _is_removed(opened: Engine, space: str) -> bool:
    alive = opened.cell(space, ALIVE)
    return alive is not None and alive.value is not None


def _software(facts: dict[str, str | int]) -> Iterator[AdviceShape]:
    found = str(facts.get("sqlite", ""))
    if found and tuple(int(part) for part in found.split(".")[:3]) < _SQLITE_MIN:
        wanted = ".".join(map(str, _SQLITE_MIN))
        yield AdviceShape(
            what=f"SQLite {found} can corrupt a store when its log is reset.",
            do=f"Upgrade: pip install 'apsw>={wanted}'",
        )


def _server(facts: dict[str, str | int]) -> Iterator[AdviceShape]:
    """Yield advice about the server of a store that is on one."""
    if facts.get("engine") != "postgresql":
        return
    for setting in ("fsync", "full_page_writes"):
        if facts[setting] == "off":
            yield AdviceShape(
                what=f"The server runs with {setting} = off: a power loss can damage the store.",
                do="Set it to on.",
            )
    if facts["row_security"] == "off":
        yield AdviceShape(
            what="The server applies no row security to this role: it is a superuser, or has BYPASSRLS.",
            do="Use a role without either, so that SQL of your own sees one tenant only.",
        )
    awaited, durability = facts["synchronous_standby_names"], facts["synchronous_commit"]
    if awaited and durability in ("off", "local"):
        yield AdviceShape(
            what=f"Writes do not wait for the standbys: synchronous_commit is {durability}.",
            do="Set it to on for this role, or a failover loses what was acknowledged.",
        )
    elif facts["standbys"] and not awaited:
        yield AdviceShape(
            what="The server has standbys and waits for none of them.",
            do="Name them in synchronous_standby_names, or a failover loses what was acknowledged.",
        )
    if facts["is_standby"]:
        yield AdviceShape(
            what="This is a standby: it can be read, and not written to.", do="Name the primary to write."
        )
    if facts["pooler"] != "none":
        yield AdviceShape(
            what="A pooler in transaction mode stands between: statements are not prepared, followers hear nothing and look by themselves, and options in the address are refused.",
            do="Connect to the server itself where that costs too much; nothing else is lost.",
        )
    oldest, dead = int(facts["oldest_transaction_seconds"]), int(facts["dead_rows"])
    if oldest > _TRANSACTION_LONG_SECONDS:
        yield AdviceShape(
            what=f"A transaction has been open for {oldest:,} s: dead rows cannot be removed.",
            do="Find it in pg_stat_activity, and end it.",
        )
    if dead > _DEAD_MANY and dead > int(facts["live_rows"]):
        yield AdviceShape(
            what=f"The tables have {dead:,} dead rows, more than live ones.",
            do="Run VACUUM, and let autovacuum run more often.",
        )
    if 10 * int(facts["connections"]) > 9 * int(facts["max_connections"]):
        yield AdviceShape(
            what=f"{facts['connections']} of {facts['max_connections']} connections are in use.",
            do="Give the addresses a smaller pool_max, or put a pooler in between.",
        )


def _outside(
    place: Path, facts: dict[str, str | int], files: dict[str, int], free: int | None
) -> Iterator[AdviceShape]:
    """Yield advice about the files and the disk of the store."""
    wal = files.get(f"{place}-wal", 0)
    if wal > _WAL_LARGE:
        yield AdviceShape(
            what=f"The write-ahead log is {size(wal)}.",
            do="The next write shortens it; a reader that never ends keeps it long.",
        )
    slack = int(facts.get("bytes_free", 0))
    if slack > _SLACK_LARGE and 4 * slack > int(facts.get("bytes", 0)):
        yield AdviceShape(
            what=f"{size(slack)} of the file are unused.", do="They are used again; a backup leaves them out."
        )
    needed = max(_FREE_SMALL, sum(files.values()))
    if free is not None and free < needed:
        yield AdviceShape(
            what=f"Only {size(free)} are free on the disk.",
            do=f"Keep {size(needed)} free, enough for a backup.",
        )
    partial = sorted(place.parent.glob("*.partial")) if place.parent.exists() else []
    if partial:
        names = ", ".join(path.name for path in partial[:3])
        yield AdviceShape(
            what=f"A backup was interrupted and left {names}.", do="Remove it if no backup is running."
        )


def _files(place: Path) -> dict[str, int]:
    found = [place, *(Path(f"{place}{suffix}") for suffix in ("-wal", "-shm", "-lock"))]
    return {str(path): path.stat().st_size for path in found if path.exists()}


def _amount(name: str, fact: str | int) -> str:
    if isinstance(fact, str):
        return fact
    return size(fact) if "bytes" in name else f"{fact:,}"


def _limit(name: str, number: int) -> str:
    return f"{number // 2**20} MiB" if "bytes" in name and number % 2**20 == 0 else _amount(name, number)

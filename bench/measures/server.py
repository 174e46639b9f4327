"""A store on a PostgreSQL server, beside two baselines that write the same bytes by hand.

Each turn is four durable transactions.  *Plain* sends BEGIN, the statements and COMMIT; *terse* sends one statement
that commits by itself.  Both keep no history of the state, have no digests and do not look for other writers.
The server is a real one, started here with its usual durability; `PERDURE_BENCH_POSTGRES` names another.

Under `--sync` its files are on memory, and `commit_delay` lets the process that flushes the log wait first, with the lock
of the log held: for Perdure and the baselines alike.  A commit that arrives during that wait is in that flush, where on a disk
it would wait for the next one, so writers share flushes at least as well as they would there.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

import perdure
from bench.agents import Running
from bench.ground import Ground, Times, median, take_turns
from bench.ours import AGENT, EngineAlone, Face
from bench.sync import MEMORY, told_microseconds
from bench.table import Result, Skipped
from bench.workload import Turn, make_turns
from perdure import Thread
from perdure.engines.registry import open_engine

_TABLES = """
CREATE TABLE IF NOT EXISTS messages (thread text, seq bigint, body text, PRIMARY KEY (thread, seq));
CREATE TABLE IF NOT EXISTS state (thread text, key text, value text, PRIMARY KEY (thread, key));
"""
_SAY = "INSERT INTO messages VALUES (%s, %s, %s)"
_PUT = "INSERT INTO state VALUES (%s, %s, %s) ON CONFLICT (thread, key) DO UPDATE SET value = excluded.value"
_BOTH = f"WITH said AS ({_SAY}) {_PUT}"
_FLUSHES = "SELECT coalesce(sum(fsyncs), 0)::bigint FROM pg_stat_io WHERE object = 'wal'"
_SIZE = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND n.nspname = %s"
_numbers = count()


class Table:
    """The same bytes in two tables, over one connection of its own."""

    def __init__(self, url: str, *, is_terse: bool, thread: str = "t") -> None:
        import psycopg

        self._db = psycopg.connect(url.partition("&tenant")[0], autocommit=True)
        self._is_terse, self._thread, self._seq = is_terse, thread, 0

    def turn(self, turn: Turn) -> None:
        for step in turn.steps:
            self._seq += 1
            said = (self._thread, self._seq, step.body)
            put = None if step.key is None else (self._thread, step.key, step.document)
            if self._is_terse:
                self._db.execute(_SAY if put is None else _BOTH, said if put is None else (*said, *put))
                continue
            with self._db.transaction():
                self._db.execute(_SAY, said)
                if put is not None:
                    self._db.execute(_PUT, put)

    def close(self) -> None:
        self._db.close()


class OnServer(Face):
    """One thread of a store on the server."""

    def __init__(self, url: str, *, thread: str = "t", store: Any = None) -> None:
        self._opened = perdure.open(url) if store is None else None
        super().__init__(Path(), thread=thread, store=store or self._opened)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()


def measure(ground: Ground) -> Iterable[Result | Skipped]:
    try:
        with _served() as url:
            ground.tell(_flushes(url, ground.sizes.writers))
            yield from _one_writer(ground, url)
            yield from _writers(ground, url)
            yield _bytes(ground, url)
            yield _many_keys(ground, url)
            yield _following(ground, url)
            yield _beginning(ground, url)
            yield _far_away(ground, url)
            yield _beside_langgraph(ground, url)
    except _NoServer as reason:
        yield Skipped(measure="a store on a server", why=str(reason))


class _NoServer(Exception):
    """There is no server to measure on."""


@contextmanager
def _served() -> Generator[str]:
    """The address of a database on a server."""
    delay_us = told_microseconds()
    if url := os.environ.get("PERDURE_BENCH_POSTGRES"):
        if delay_us:
            raise _NoServer(
                "the server that PERDURE_BENCH_POSTGRES names flushes as it does; leave out --sync"
            )
        yield url
        return
    try:
        from tests.engines.postgres.server import MISSING, Server
    except ImportError as error:
        raise _NoServer(str(error)) from error
    if MISSING:
        raise _NoServer(MISSING)
    settings = {"max_connections": "100"}
    if delay_us:
        settings |= {"commit_delay": str(delay_us), "commit_siblings": "0"}
    place = tempfile.mkdtemp(prefix="perdure-bench-", dir=MEMORY if delay_us else "/var/tmp")
    server = Server(Path(place), settings)
    server.create()
    server.start()
    try:
        server.sql(_TABLES)
        yield server.url()
    finally:
        server.remove()


def _flushes(url: str, many: int) -> str:
    """What a flush takes of a commit, and how many commits of several writers share one."""
    alone = _committing(url, 100, "on"), _committing(url, 100, "off")
    before, began = _asked(url, _FLUSHES), time.perf_counter()
    writers = [threading.Thread(target=_committing, args=(url, 100, "on")) for _ in range(many)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    seconds = time.perf_counter() - began
    time.sleep(1.2)  # what a session has done is counted some time after it
    flushes = max(1, _asked(url, _FLUSHES) - before)
    return (
        f"a flush takes {1e3 * (alone[0] - alone[1]):.3f} ms for one writer (median); {many} writers flush once for "
        f"{100 * many / flushes:.1f} commits, every {1e3 * seconds / flushes:.3f} ms"
    )


def _committing(url: str, count: int, durability: str) -> float:
    """The median of the seconds that a small commit takes."""
    import psycopg

    times: list[float] = []
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET synchronous_commit = {durability}")
        for _ in range(count):
            began = time.perf_counter()
            connection.execute("SELECT pg_logical_emit_message(true, 'bench', '')")
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def _store(url: str) -> str:
    """The address of an empty store."""
    return f"{url}&tenant=b{os.getpid()}x{next(_numbers)}"


def _one_writer(ground: Ground, url: str) -> Iterable[Result]:
    found: list[list[Times]] = []
    for seed in range(ground.sizes.repetitions):
        turns = make_turns(ground.sizes.turns, keys=ground.sizes.keys, seed=seed)
        thread = f"one-{seed}"
        writers = (
            OnServer(_store(url)),
            EngineAlone(ground.fresh(), turns, url=_store(url)),
            Table(url, is_terse=False, thread=f"{thread}-plain"),
            Table(url, is_terse=True, thread=f"{thread}-terse"),
        )
        found.append(take_turns([each.turn for each in writers], turns))
        for each in writers:
            each.close()
    face, engine, plain, terse = (tuple(each) for each in zip(*found, strict=True))
    yield _speed("turns on a server, one writer", face, plain, "plain", bar=0.85)
    yield _speed("the same, the engine alone", engine, plain, "plain", bar=1.0)
    yield _speed("the same, the engine alone", engine, terse, "terse", bar=0.8)


def _writers(ground: Ground, url: str) -> Iterable[Result]:
    rates: dict[str, list[float]] = {"face": [], "engine": [], "plain": [], "terse": []}
    flushes: list[float] = []
    makers: dict[str, Callable[[Sequence[Turn]], Any]] = {
        "plain": lambda turns: Table(url, is_terse=False, thread=f"p{next(_numbers)}"),
        "terse": lambda turns: Table(url, is_terse=True, thread=f"p{next(_numbers)}"),
        "engine": lambda turns: EngineAlone(ground.fresh(), turns, url=_store(url)),
    }
    size, many = ground.sizes.writer_turns, ground.sizes.writers
    for repetition in range(ground.sizes.repetitions):
        kinds = list(rates) if repetition % 2 else list(rates)[::-1]
        for kind in kinds:
            turns = [make_turns(size, keys=ground.sizes.keys, seed=at) for at in range(many)]
            address = _store(url)
            if kind == "face":
                shared = perdure.open(address)
                writers: list[Any] = [OnServer(address, thread=f"t{at}", store=shared) for at in range(many)]
            else:
                shared = None
                writers = [makers[kind](mine) for mine in turns]
            before = _asked(url, _FLUSHES)
            seconds = _together(writers, turns)
            rates[kind].append(many * size / seconds)
            for each in writers:
                each.close()
            if shared is not None:
                shared.close()
            if kind == "engine":
                time.sleep(1.2)  # what a session has done is counted some time after it
                flushes.append((_asked(url, _FLUSHES) - before) / (many * size * 4))
    yield _rate(f"turns on a server, {many} threads", rates["face"], rates["plain"], "plain", bar=0.6)
    yield _rate("the same, the engines alone", rates["engine"], rates["plain"], "plain", bar=0.85)
    yield _rate("the same, the engines alone", rates["engine"], rates["terse"], "terse", bar=0.5)
    yield Result(
        measure="flushes of the log for a commit, 8 threads",
        ours=median(flushes),
        baseline=1.0,
        unit="flushes",
        baseline_is="one each",
        bound="at most",
        bar=0.6,
    )


def _together(writers: Sequence[Any], turns: Sequence[Sequence[Turn]]) -> float:
    """Seconds from the starting shot until the last has finished."""
    shot = threading.Barrier(len(writers) + 1)

    def write(writer: Any, mine: Sequence[Turn]) -> None:
        shot.wait()
        for turn in mine:
            writer.turn(turn)

    threads = [
        threading.Thread(target=write, args=(writer, mine))
        for writer, mine in zip(writers, turns, strict=True)
    ]
    for each in threads:
        each.start()
    shot.wait()
    began = time.perf_counter()
    for each in threads:
        each.join()
    return time.perf_counter() - began


def _bytes(ground: Ground, url: str) -> Result:
    """What the tables of a store hold for each turn, beside our SQLite file for the same turns."""
    turns = make_turns(ground.sizes.stored, keys=ground.sizes.keys)
    before = _asked(url, _SIZE, "perdure")
    directory = ground.fresh()
    on_server, in_file = OnServer(_store(url)), Face(directory)
    for turn in turns:
        on_server.turn(turn)
        in_file.turn(turn)
    on_server.close()
    in_file.close()
    size = _asked(url, _SIZE, "perdure") - before
    file = in_file.path.stat().st_size
    ground.drop(directory)
    return Result(
        measure=f"bytes of a turn after {len(turns):,} turns on a server",
        baseline_is="our SQLite file",
        ours=size / len(turns),
        baseline=file / len(turns),
        unit="bytes",
        bound="at most",
        bar=1.2,
    )


def _many_keys(ground: Ground, url: str) -> Result:
    """One put into a state of many keys, beside one into few."""
    with perdure.open(_store(url)) as store:
        threads: list[Thread] = []
        for keys in (ground.sizes.huge_keys, ground.sizes.keys):
            thread = store.thread(f"keys-{keys}", agent=AGENT)
            for begin in range(0, keys, 900):
                with thread.change("fill") as change:
                    for key in range(begin, min(begin + 900, keys)):
                        change.put(f"/k/{key}.json", key)
            threads.append(thread)

        def put(thread: Thread, number: int) -> None:
            thread.put(f"/k/{number % ground.sizes.keys}.json", {"n": number})

        works = [partial(put, thread) for thread in threads]
        take_turns(works, range(10))
        many, few = (each.wall for each in take_turns(works, range(ground.sizes.puts)))
    return Result(
        measure=f"put into {ground.sizes.huge_keys:,} keys on a server",
        baseline_is=f"into {ground.sizes.keys}",
        ours=1e3 * median(many),
        baseline=1e3 * median(few),
        unit="ms",
        bound="at most",
        bar=1.5,
    )


def _following(ground: Ground, url: str) -> Result:
    """What passes until another opening of the store has the news of a commit, beyond the commit itself."""
    address, delays = _store(url), list[float]()
    writer, reader = (
        open_engine(address, read_only=False, create=True, durability="power_loss") for _ in "ab"
    )
    with perdure.open(address) as store:
        thread = store.thread("t", agent=AGENT)
        thread.put("/n.json", -1)
        space = thread._space.name  # pyright: ignore[reportPrivateUsage]
        seen = reader.wait({space: -1}, 10.0)[space]
        for number in range(max(9, ground.sizes.loads)):
            arrived: list[float] = []

            def follow(seen: int = seen, arrived: list[float] = arrived) -> None:
                reader.wait({space: seen}, 10.0)
                arrived.append(time.perf_counter())

            waits = threading.Thread(target=follow)
            waits.start()
            time.sleep(0.1)
            thread.put("/n.json", number)
            began = time.perf_counter()
            waits.join()
            seen = reader.standing(space)
            delays.append(1e3 * (arrived[0] - began))
    writer.close()
    reader.close()
    return Result(
        measure="news of a commit in another opening",
        baseline_is="20 ms",
        ours=statistics.median(delays),
        baseline=20.0,
        unit="ms",
        bound="at most",
        bar=1.0,
    )


def _beginning(ground: Ground, url: str) -> Result:
    """Threads that many processes begin in one store, beside puts of the same processes to threads of their own."""
    context = multiprocessing.get_context("spawn")
    many, address = ground.sizes.writers, _store(url)
    perdure.open(address).close()
    gate, times = context.Barrier(many), context.Queue()
    rounds, size = 2 * ground.sizes.repetitions, 2 * ground.sizes.writer_turns
    children = [
        context.Process(target=_begin_and_put, args=(address, at, gate, times, rounds, size))
        for at in range(many)
    ]
    for child in children:
        child.start()
    spans: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for _ in range(2 * rounds * many):
        kind, number, began, ended = times.get(timeout=300)
        spans.setdefault((kind, number), []).append((began, ended))
    for child in children:
        child.join()
    rates: dict[str, list[float]] = {"begin": [], "put": []}
    for (kind, _), found in sorted(spans.items()):
        seconds = max(ended for _, ended in found) - min(began for began, _ in found)
        rates[kind].append(many * size / seconds)
    result = _rate(f"threads begun by {many} processes", rates["begin"], rates["put"], "puts", bar=0.8)
    return msgspec.structs.replace(result, unit="a second")


def _begin_and_put(address: str, at: int, gate: Any, times: Any, rounds: int, size: int) -> None:
    """What one process does, in turns: begin threads, and put to its own."""
    numbers = count()
    with perdure.open(address) as store:
        thread = store.thread(f"own-{at}", agent=AGENT)
        for number in range(5):
            thread.put("/n.json", number)
        for number in range(rounds):
            for kind in ("put", "begin") if number % 2 else ("begin", "put"):
                gate.wait()
                began = time.perf_counter()
                for each in range(size):
                    if kind == "put":
                        thread.put("/n.json", each)
                    else:
                        store.thread(f"{at}-{next(numbers)}", agent=AGENT)
                times.put((kind, number, began, time.perf_counter()))


_ADDED_SECONDS = 0.002


def _far_away(ground: Ground, url: str) -> Result:
    """A run with one tool over a connection that is 2 ms longer, beside what its counted round trips take at least."""
    from tests.engines.postgres.proxy import proxy_to

    runs = ground.sizes.one_tool_runs
    turns = make_turns(2 * runs + 10, keys=ground.sizes.keys)
    with proxy_to(_store(url), 0) as (proxy, address):
        running = Running(ground.fresh(), with_state=False, url=address)
        near, far, trips = list[float](), list[float](), list[int]()
        for number, turn in enumerate(turns):
            proxy.delay_seconds = _ADDED_SECONDS if number % 2 else 0.0
            before, began = running.round_trips(), time.perf_counter()
            running.turn(turn)
            seconds = time.perf_counter() - began
            if number >= 10:
                (far if number % 2 else near).append(seconds)
                trips.append(running.round_trips() - before)
        running.close()
    allowed = median(near) + _ADDED_SECONDS * median(trips)
    return Result(
        measure=f"one run with one tool, 2 ms added to each of {median(trips):.0f} round trips",
        baseline_is="what the trips allow",
        ours=1 / median(far),
        baseline=1 / allowed,
        unit="runs/s",
        bound="at least",
        bar=0.8,
    )


def _beside_langgraph(ground: Ground, url: str) -> Result | Skipped:
    try:
        from bench.peers.langgraph import open_on_server

        peer = open_on_server(url)
    except ImportError as error:
        why = f"{error}; install it with `pip install --group bench`"
        return Skipped(measure="beside LangGraph PostgresSaver", why=why)
    turns = make_turns(ground.sizes.peer_turns, keys=ground.sizes.keys)
    ours = OnServer(_store(url))
    our_times, peer_times = take_turns([ours.turn, peer.turn], turns)
    ours.close()
    peer.close()
    return Result(
        measure=f"beside {peer.name}, {len(turns)} turns on a server",
        ours=len(our_times.wall) / our_times.total,
        baseline=len(peer_times.wall) / peer_times.total,
        baseline_is=peer.name,
        unit="turns/s",
    )


def _asked(url: str, sql: str, *values: str) -> int:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(sql.encode(), values).fetchone()
        return 0 if row is None else int(row[0])


def _speed(name: str, ours: tuple[Times, ...], base: tuple[Times, ...], what: str, *, bar: float) -> Result:
    return _rate(
        name,
        [len(each.wall) / each.total for each in ours],
        [len(each.wall) / each.total for each in base],
        what,
        bar=bar,
    )


def _rate(name: str, ours: Sequence[float], base: Sequence[float], what: str, *, bar: float) -> Result:
    ratios = [mine / theirs for mine, theirs in zip(ours, base, strict=True)]
    return Result(
        measure=name,
        ours=median(ours),
        baseline=median(base),
        unit="turns/s",
        baseline_is=what,
        given_ratio=median(ratios),
        spread=(min(ratios), max(ratios)),
        bound="at least",
        bar=bar,
    )

"""A store is copied into another one: the same commits, moves, receipts, ledgers and cells, and everything is held."""

from __future__ import annotations

import sqlite3
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

import perdure
from perdure import Agent, Store
from perdure.engines import loops
from perdure.engines.contract import Write
from perdure.engines.registry import open_engine
from perdure.engines.replays import PASSES_MAX
from perdure.errors import Conflict, Corrupt, Held, Invalid, NotFound, OpReused, PerdureWarning, RunFailed
from perdure.history.space import STORE
from perdure.ledger import held
from perdure.ledger.call_identity import KEY
from perdure.model.digest import Kind, digest_of
from perdure.runtime.session import lease
from perdure.store import copy as copies
from perdure.store.upkeep.selection import Selection
from perdure.testing import Script, say, use
from tests.coded import raises
from tests.crash import day
from tests.crash.campaign import sized
from tests.engines.postgres.stores import new_store
from tests.store.copies import content, engine_of, equal
from tests.surfaces import paying

PUTS = sized(120, 300)

_names = count()


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Callable[[], int], Callable[[], str]]:
    """The file of a store with some days of every kind of durable work, its clock and its ids."""
    path, clock, ids = tmp_path_factory.mktemp("days") / "a.db", day.clock(), day.ids()
    with perdure.open(path, clock=clock, ids=ids, durability="process_crash") as opened:
        for _, step in day.day(turns=6):
            step(opened)
        opened.memory("ann").add("likes tea")
    return path.read_bytes(), clock, ids


@pytest.fixture
def store(tmp_path: Path, days: tuple[bytes, Callable[[], int], Callable[[], str]]) -> Iterator[Store]:
    """That store, in which time goes on."""
    file, clock, ids = days
    (tmp_path / "a.db").write_bytes(file)
    with perdure.open(tmp_path / "a.db", clock=clock, ids=ids, durability="process_crash") as opened:
        yield opened


@pytest.fixture(params=["memory", "postgres"])
def middle(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of another engine."""
    url = new_store(request) if request.param == "postgres" else f"memory:copied-{next(_names)}"
    with perdure.open(url) as opened:
        yield opened


def space_of(store: Store, thread: str) -> str:
    """The space of a thread."""
    return store.thread(thread)._record.space


def test_a_copy_of_a_copy_equals_the_original(store: Store, middle: Store, tmp_path: Path) -> None:
    """SQLite to memory or PostgreSQL, and back: every digest, move, receipt, ledger entry and cell is the same."""
    report = store.copy_to(middle)
    middle.copy_to(tmp_path / "b.db")

    assert report.verified is not None
    assert report.verified.ok
    with perdure.open(tmp_path / "b.db") as back:
        assert equal(engine_of(store), engine_of(middle))
        assert equal(engine_of(store), engine_of(back))
        assert back.verify().ok
        assert day.portrait(back) == day.portrait(store)
        assert [item.text for item in back.memory("ann").items()] == ["likes tea"]


def test_both_go_on_from_the_same_point(store: Store, middle: Store) -> None:
    """A write with a known op_id returns its receipt in the copy, and a new one is numbered as in the original."""
    thread = next(iter(store.threads()))
    first = thread.put("/again.json", 1, op_id="once")
    store.copy_to(middle)

    copied = middle.thread(thread.id)

    assert copied.put("/again.json", 1, op_id="once") == first
    with raises(OpReused, "op_reused", op_id="once"):
        copied.put("/again.json", 2, op_id="once")
    assert copied.put("/more.json", 2).version == thread.put("/more.json", 2).version


def test_a_copy_is_as_small_as_its_original(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What was stored as a difference is stored as one again, in a server and in a file."""
    server = new_store(request)
    with perdure.open(tmp_path / "a.db", durability="process_crash") as store:
        thread = store.thread("t", agent="planner")
        for number in range(PUTS):
            thread.put(f"/{number % 40}.json", {"notes": "carrots, " * 50, "number": number})
        space = space_of(store, "t")
        store.copy_to(server)
    with perdure.open(server) as moved:
        moved.copy_to(tmp_path / "b.db")
        against = [
            sum(fact.object is not None and fact.object.base is not None for fact in each.facts)
            for each in engine_of(moved).writes(space, limit=10_000)[0]
        ]

    sizes = [(tmp_path / name).stat().st_size for name in ("a.db", "b.db")]
    assert sizes[1] < 1.05 * sizes[0]
    assert sum(against) > PUTS


def test_forgotten_content_stays_forgotten(tmp_path: Path, middle: Store) -> None:
    """Tombstones and the op_ids of a removed thread are carried; their bytes are nowhere."""
    with perdure.open(tmp_path / "a.db") as store:
        thread = store.thread("t", agent="planner")
        thread.put("/secret.json", "x" * 200)
        engine, space = engine_of(store), space_of(store, "t")
        value = thread.entry("/secret.json").value
        engine.forget(space, [value], why="asked", standing=engine.standing(space))
        gone = store.thread("gone", agent="planner")
        gone.put("/a.json", 1, op_id="first")
        dropped = space_of(store, "gone")
        gone.rm()
        engine.drop(dropped, why="the thread was removed")

        report = store.copy_to(middle)

        assert report.forgotten == 1
        assert equal(engine, engine_of(middle))
        with pytest.raises(perdure.errors.Forgotten):
            engine_of(middle).recorded(dropped, "first")
        with pytest.raises(perdure.errors.Forgotten):
            engine_of(middle).objects(space, [value])


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("threads", [None, ["t"]])
def test_what_is_forgotten_before_a_copy_goes_on_is_forgotten_in_it(
    tmp_path: Path, middle: Store, threads: list[str] | None, is_written: bool
) -> None:
    """The part that was copied before has its bytes until then."""
    with perdure.open(tmp_path / "a.db") as store:
        thread = store.thread("t", agent="planner")
        thread.put("/secret.json", "x" * 200)
        engine, space = engine_of(store), space_of(store, "t")
        value = thread.entry("/secret.json").value

        def kill(name: str, done: int, total: int) -> None:
            if name == space:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            copies.copy(
                engine, engine_of(middle), address="a", threads=threads, clock=lambda: 1, progress=kill
            )
        assert engine_of(middle).objects(space, [value])
        engine.forget(space, [value], why="asked", standing=engine.standing(space))
        if is_written:
            thread.put("/other.json", 1)

        store.copy_to(middle, threads=threads)

        with pytest.raises(perdure.errors.Forgotten):
            engine_of(middle).objects(space, [value])
        assert threads is not None or equal(engine, engine_of(middle))


# ---- the hold


def test_an_approval_waits_for_the_release(tmp_path: Path, middle: Store) -> None:
    """In the copy nothing is decided or resumed before, and everything after; the original is not touched."""
    paying.house(tmp_path / "a.db")
    with perdure.open(tmp_path / "a.db") as store:
        report = store.copy_to(middle)
        (asked,) = middle.approvals()
        thread = middle.thread("house", agent=paying.payer)

        assert report.threads == ("house",)
        assert middle.held() == ["house"]
        for verdict in ("approve", "deny"):
            with raises(Held, "held", thread="house", source=str(tmp_path / "a.db")):
                thread.decide(asked.call, verdict, by="ann")

        assert middle.release("house", by="ann") == ["house"]
        assert middle.release() == []
        thread.decide(asked.call, "deny", by="ann")
        assert thread.resume().status == "succeeded"
        assert store.held() == []
        assert len(store.approvals()) == 1


def test_open_is_what_could_go_on_and_nothing_goes_on_by_itself(tmp_path: Path, middle: Store) -> None:
    """Queued, scheduled and suspended runs and approvals; a thread where all has ended is not among them, but held.

    The control is the release: after it the same worker does all of it.
    """

    @perdure.tool(effect="external_write", ask=True)
    def pay() -> str:
        return "paid"

    def agent() -> Agent:
        return Agent("clerk", backend=Script(use("pay"), say("Paid.")), tools=[pay])

    silent = Agent("silent", backend=Script(say("Hello.")))
    with perdure.open(tmp_path / "a.db") as store:
        store.thread("ended", agent=silent).run("Hi.")
        store.thread("written", agent=silent).put("/a.json", 1)
        store.thread("queued", agent=silent).start("Hi.")
        store.thread("scheduled", agent=silent).schedule("Hi.", 0.0)
        (asked,) = store.thread("approved", agent=agent()).run("Pay.").approvals
        store.thread("approved", agent=agent()).decide(asked.call, "approve", by="ann")
        store.thread("asked", agent=agent()).run("Pay.")
        with pytest.raises(RunFailed):
            store.thread("failed", agent=Agent("silent", backend=Script())).run("Hi.", id="m1")
        report = store.copy_to(middle)

    everything = ("approved", "asked", "ended", "failed", "queued", "scheduled", "written")
    assert report.open == ("approved", "asked", "queued", "scheduled")
    assert (report.threads, tuple(middle.held())) == (everything, everything)
    assert tuple(middle.held(open_only=True)) == report.open
    assert middle.work([agent(), silent], until_idle=True) == 0
    with raises(Held, "held", thread="failed"):
        middle.thread("failed", agent=silent).run("Hi.", id="m1")
    middle.release(by="ann")
    assert middle.held(open_only=True) == []
    assert middle.work([agent(), silent], until_idle=True) == 3


def test_a_thread_that_has_only_a_queued_input_is_held_by_its_id(tmp_path: Path, middle: Store) -> None:
    """It has no commit yet that would name it; a person releases it by the id that is shown."""
    agent = Agent("planner", backend=Script(say("Hello.")))
    with perdure.open(tmp_path / "a.db") as store:
        store.thread("queued", agent=agent).start("Hi.", id="input-1")
        report = store.copy_to(middle)

    assert report.threads == ("queued",)
    assert middle.held() == ["queued"]
    with raises(Held, "held", thread="queued"):
        middle.thread("queued", agent=agent).run("Hi.", id="input-1")
    assert middle.release("queued", by="ann") == ["queued"]
    assert middle.work([agent], until_idle=True) == 1


def test_a_call_under_way_is_unknown_and_its_lease_is_over(tmp_path: Path, middle: Store) -> None:
    """Its run is interrupted in the copy, resuming it is refused, and after the release its tool is asked."""
    paying.cut_off(tmp_path / "a.db")
    with perdure.open(tmp_path / "a.db") as store:
        (before,) = store.thread("bread").calls()
        report = store.copy_to(middle)
        thread = middle.thread("bread", agent=paying.payer)
        space = thread._space

        assert (before.state, report.unknown, report.leases) == ("started", 1, 1)
        (call,) = thread.calls()
        assert (call.state, call.key) == ("unknown", before.key)
        found = lease.current(space, "main")
        assert found is not None
        assert (found.holder, lease.state(space, found)) == ("", "expired")
        with raises(Held, "held", thread="bread"):
            thread.resume()
        with raises(Held, "held", thread="bread"):
            thread.run("Pay again.")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert middle.resume(paying.payer) == []
        assert [each.message.code for each in told if isinstance(each.message, PerdureWarning)] == [
            "runs_held"
        ]

        middle.release()
        paying.ANSWERS[0], paying.sent[:] = "done", []
        assert thread.resume().status == "succeeded"
        assert paying.sent == []
        assert middle.verify().ok


def test_what_is_under_way_in_a_copy_is_settled_in_its_own_copy(tmp_path: Path, middle: Store) -> None:
    """Both settle the same thread of one origin; the second does not take its writes for those of the first."""
    paying.cut_off(tmp_path / "a.db")
    with perdure.open(tmp_path / "a.db") as first:
        first.copy_to(tmp_path / "b.db")
    with perdure.open(tmp_path / "b.db") as second:
        second.release()
        paying.ANSWERS[0] = "done"
        assert second.thread("bread", agent=paying.payer).resume().status == "succeeded"
    paying.cut_off(tmp_path / "b.db")

    with perdure.open(tmp_path / "b.db") as second:
        report = second.copy_to(middle)

    thread = middle.thread("bread")
    found = lease.current(thread._space, "main")
    assert found is not None
    assert (found.holder, lease.state(thread._space, found)) == ("", "expired")
    assert [call.state for call in thread.calls()] == ["succeeded", "unknown"]
    assert (report.unknown, report.leases, middle.verify().ok) == (1, 1, True)


def test_a_run_can_be_cancelled_before_the_release(tmp_path: Path, middle: Store) -> None:
    """Ending it does nothing outside."""
    paying.cut_off(tmp_path / "a.db")
    with perdure.open(tmp_path / "a.db") as store:
        store.copy_to(middle)

    assert middle.thread("bread", agent=paying.payer).cancel().state == "cancelled"


def test_new_work_is_not_held(store: Store, middle: Store) -> None:
    """A copied thread takes writes and new runs, and other threads are not concerned."""
    store.copy_to(middle)
    agent = Agent("planner", backend=Script(say("Hello.")))

    middle.thread("fresh", agent=agent).run("Hi.")
    held_thread = middle.thread("trip-42")

    assert held_thread.id in middle.held()
    assert held_thread.put("/new.json", 1)


def test_a_call_by_hand_that_is_not_settled_is_held(tmp_path: Path, middle: Store) -> None:
    """The same id again would make it a second time."""

    @perdure.tool(effect="financial", ask=lambda call: True)
    def pay(to: str) -> str:
        """Pay."""
        return to

    with perdure.open(tmp_path / "a.db") as store:
        store.thread("t", agent="planner").call(pay, {"to": "ann"}, id="c1")
        store.copy_to(middle)

    with raises(Held, "held", thread="t"):
        middle.thread("t").call(pay, {"to": "ann"}, id="c1")
    assert middle.thread("t").call(pay, {"to": "ben"}, id="c2").state == "awaiting_approval"


def test_the_copy_is_a_recorded_event(store: Store, middle: Store) -> None:
    """Its begin, its end and each release are entries of a ledger in the target."""
    store.copy_to(middle)
    middle.release(by="ann")

    entries = [entry.body for entry in loops.entries(engine_of(middle), held.COPIES)]
    (arrival,) = held.arrivals(engine_of(middle))

    assert [b"copy begun" in entries[0], b"copy completed" in entries[1]] == [True, True]
    assert b'"by":"ann"' in entries[2]
    assert (arrival.state, arrival.source, arrival.kind) == ("complete", store.url, "copy")


# ---- threads


def test_one_thread_is_copied_into_a_store_that_has_others(store: Store, middle: Store) -> None:
    """With its agent's map and its entry in the directory, and nothing else."""
    thread = next(iter(store.threads(agent="planner")))
    middle.thread("mine", agent="another").put("/x.json", 1)

    report = store.copy_to(middle, threads=[thread.id])

    copied, space = middle.thread(thread.id), space_of(store, thread.id)
    assert report.threads == (thread.id,)
    assert content(engine_of(middle), space) == content(engine_of(store), space)
    assert copied.head == thread.head
    assert {each.id for each in middle.threads()} == {"mine", thread.id}
    assert dict(middle.agent("planner").values()) == dict(store.agent("planner").values())
    assert list(middle.owners()) == []
    assert middle.verify().ok
    with raises(Conflict, "thread_exists", thread=thread.id):
        store.copy_to(middle, threads=[thread.id, "absent"][:1] + [each.id for each in store.threads()])


def test_a_key_of_the_store_goes_with_the_thread_that_claimed_it(tmp_path: Path, middle: Store) -> None:
    """Another thread of the target that wants the key finds the result instead of paying again."""
    paid: list[str] = []

    @perdure.tool(effect="external_write", key="invoice-{number}", key_scope="store")
    def pay(number: int) -> str:
        """Pay an invoice."""
        paid.append(str(number))
        return "paid"

    def agent() -> Agent:
        return Agent("payer", backend=Script(use("pay", number=7), say("Done.")), tools=[pay])

    with perdure.open(tmp_path / "a.db") as store:
        store.thread("t", agent=agent()).run("go")
        store.copy_to(middle, threads=["t"])

    assert middle.thread("other", agent=agent()).run("go").status == "succeeded"
    assert paid == ["7"]


def invoices() -> Agent:
    """An agent that pays one invoice, whose key belongs to the store."""

    @perdure.tool(effect="external_write", key="invoice-{number}", key_scope="store")
    def pay(number: int) -> str:
        """Pay an invoice."""
        return "paid"

    return Agent("payer", backend=Script(use("pay", number=7), say("Done.")), tools=[pay])


def test_a_key_that_the_target_has_claimed_is_met_before_anything_is_copied(
    tmp_path: Path, middle: Store
) -> None:
    """Both stores have paid the same invoice, so the thread cannot be copied; the target stays as it is."""
    middle.thread("mine", agent=invoices()).run("go")
    before = list(loops.spaces(engine_of(middle)))

    with perdure.open(tmp_path / "a.db") as store:
        store.thread("t", agent=invoices()).run("go")
        with raises(Conflict, "key_claimed"):
            store.copy_to(middle, threads=["t"])

    assert list(loops.spaces(engine_of(middle))) == before
    assert [arrival.id for arrival in held.arrivals(engine_of(middle))] == []


def test_the_target_cannot_claim_a_key_while_its_thread_is_copied(tmp_path: Path, middle: Store) -> None:
    """The keys are there before the thread is, so a call that wants one in the meantime does not pay again."""
    seen: list[bool] = []

    def looked(_space: str, _done: int, _total: int) -> None:
        seen.append(any(True for _ in loops.cells(engine_of(middle), STORE, prefix=KEY)))

    with perdure.open(tmp_path / "a.db") as store:
        store.thread("t", agent=invoices()).run("go")
        source, target = engine_of(store), engine_of(middle)
        copies.copy(source, target, address="a.db", threads=["t"], clock=lambda: 1, progress=looked)

    assert seen
    assert all(seen)


# ---- refusals


def test_a_target_with_something_in_it_is_refused(store: Store, middle: Store) -> None:
    """Nothing is written there."""
    middle.thread("mine", agent="planner").put("/x.json", 1)
    before = list(loops.spaces(engine_of(middle)))

    with raises(Conflict, "target_not_empty"):
        store.copy_to(middle)

    assert list(loops.spaces(engine_of(middle))) == before


def test_a_store_is_not_copied_onto_itself(store: Store, tmp_path: Path) -> None:
    """However its place is spelled."""
    with raises(Invalid, "copy_onto_itself"):
        store.copy_to(tmp_path / "." / "a.db")
    with raises(Invalid, "copy_onto_itself"):
        store.copy_to(store)


def test_a_thread_that_is_not_there_makes_no_target(store: Store, tmp_path: Path) -> None:
    """A mistyped id creates nothing."""
    with raises(NotFound, "thread_not_found", thread="absent"):
        store.copy_to(tmp_path / "b.db", threads=["absent"])

    assert not (tmp_path / "b.db").exists()


def test_a_copy_of_another_source_does_not_go_on(store: Store, middle: Store, tmp_path: Path) -> None:
    """The target is a copy of one store, and stays that."""
    store.copy_to(middle)
    with perdure.open(tmp_path / "other.db") as other:
        other.thread("t", agent="planner").put("/x.json", 1)

        with raises(Conflict, "target_not_empty"):
            other.copy_to(middle)

    again = store.copy_to(middle)
    assert (again.resumed, again.writes, again.verified) == (True, 0, None)


@pytest.mark.parametrize("threads", [None, ["trip"]])
def test_a_copy_that_is_older_than_its_source_is_not_called_a_copy(
    tmp_path: Path, middle: Store, threads: list[str] | None
) -> None:
    """A person who asks for the copy again may be about to delete the source; the copy stays as it is."""
    with perdure.open(tmp_path / "source.db") as source:
        thread = source.thread("trip", agent="planner")
        thread.put("/a.json", 1)
        source.copy_to(middle, threads=threads)
        thread.put("/b.json", 2)

        with raises(Conflict, "copy_outdated", spaces=("trip",)):
            source.copy_to(middle, threads=threads)
    assert middle.thread("trip").paths("/") == ["/a.json"]


def test_a_thread_that_the_target_removed_does_not_come_back(tmp_path: Path, middle: Store) -> None:
    """Its space is gone for good; the error does not advise to remove it once more."""
    with perdure.open(tmp_path / "source.db") as source:
        source.thread("trip", agent="planner").put("/a.json", 1)
        source.copy_to(middle, threads=["trip"])
        middle.thread("trip").rm()
        source.thread("other", agent="planner").put("/a.json", 1)

        with raises(Conflict, "thread_removed_there", thread="trip"):
            source.copy_to(middle, threads=["other", "trip"])


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """The file of a store with three threads and a memory, in which a value of thread `bad` was edited."""
    with perdure.open(tmp_path / "a.db") as store:
        for name in ("also", "bad", "well"):
            store.thread(name, agent="planner" if name != "well" else "other").put("/x.json", name * 100)
        store.memory("ann").add("likes tea")
        space = space_of(store, "bad")
    with sqlite3.connect(tmp_path / "a.db") as db:
        (id,) = db.execute("SELECT id FROM spaces WHERE name=?", (space,)).fetchone()
        db.execute("UPDATE log SET at=at+1 WHERE digest IS NOT NULL AND space=?", (id,))
    return tmp_path / "a.db"


def test_a_damaged_source_makes_no_target_and_is_named_by_its_thread(damaged: Path, middle: Store) -> None:
    """Neither a file, nor anything in a store that there is; the sound threads can then be copied into either."""
    with perdure.open(damaged, read_only=True) as store:
        for target in (damaged.with_name("b.db"), middle):
            with raises(Corrupt, "source_damaged", threads=("bad",)):
                store.copy_to(target)
            with raises(Corrupt, "source_damaged", threads=("bad",)):
                store.copy_to(target, threads=["also", "bad"])

        assert not damaged.with_name("b.db").exists()
        assert list(loops.spaces(engine_of(middle))) == []
        assert store.copy_to(middle, threads=["also"]).threads == ("also",)


def test_what_is_sound_of_a_damaged_source_is_copied(damaged: Path) -> None:
    """Threads, their maps and memories; what is damaged is named, and the same call again finds the copy."""
    with perdure.open(damaged, read_only=True) as store:
        report = store.copy_to(damaged.with_name("b.db"), sound=True)
        again = store.copy_to(damaged.with_name("b.db"), sound=True)

    assert report.left_out == again.left_out == ("thread 'bad'",)
    assert (report.threads, again.writes, again.verified) == (("also", "well"), 0, None)
    with perdure.open(damaged.with_name("b.db")) as copy:
        assert [thread.id for thread in copy.threads()] == ["also", "well"]
        assert [item.text for item in copy.memory("ann").items()] == ["likes tea"]


def test_nothing_is_left_out_of_a_sound_source(store: Store, middle: Store) -> None:
    """It is copied whole, as without `sound`."""
    report = store.copy_to(middle, sound=True)

    assert report.left_out == ()
    assert equal(engine_of(store), engine_of(middle))


def test_damage_that_appears_during_a_copy_stops_it_and_says_where(damaged: Path, middle: Store) -> None:
    """The target is not complete, and a copy of other threads says so: they were not removed there."""
    with perdure.open(damaged, read_only=True) as store:
        source, target = engine_of(store), engine_of(middle)
        checked = Selection(threads=("also", "bad"))
        with raises(Corrupt, "source_damaged", threads=("bad",)):
            copies.copy(source, target, address="a.db", selection=checked, clock=lambda: 1)

        (arrival,) = held.arrivals(target)
        assert arrival.state == "copying"
        with raises(Conflict, "thread_copy_incomplete", thread="also"):
            store.copy_to(middle, threads=["also"])


def test_an_unfinished_copy_is_not_opened_for_writing(tmp_path: Path, store: Store) -> None:
    """What a program wrote there would be in the way of the rest; it can be read."""
    store.copy_to(tmp_path / "b.db")
    engine = open_engine(str(tmp_path / "b.db"), read_only=False, create=False, durability="process_crash")
    cell = engine.cell(held.COPIES, held.COPYING)
    held.record(engine, "as if it was killed", held.cell_write(held.COPYING, cell, b"{}"))
    engine.close()

    with raises(Conflict, "copy_incomplete"):
        perdure.open(tmp_path / "b.db")
    perdure.open(tmp_path / "b.db", read_only=True).close()


def test_a_target_that_others_wrote_to_is_refused(tmp_path: Path, store: Store, middle: Store) -> None:
    """A replay never goes on top of another history."""
    engine, space = engine_of(middle), space_of(store, next(iter(store.threads())).id)
    real = engine.apply

    def intrude(write: Write) -> object:
        if write.space == space and not engine.standing(space):
            mine = digest_of(Kind.BODY, b"mine")
            real(Write(space=space, op_id="mine", intent=mine, entries=(b"{}",)))
        return real(write)

    engine.apply = intrude  # pyright: ignore[reportAttributeAccessIssue]

    with pytest.raises((Conflict, Corrupt)) as refused:
        store.copy_to(middle)

    assert refused.value.code in ("copy_diverged", "copy_differs")


def test_a_source_that_is_written_meanwhile_is_copied_as_of_one_moment(store: Store, middle: Store) -> None:
    """Writes during the copy are copied too, or the copy says that it cannot end."""
    thread = next(iter(store.threads()))
    engine = engine_of(store)
    real, left = engine.stored_cells, [3]

    def written_meanwhile(space: str, *, after: str = "", limit: int) -> object:
        if left[0]:
            left[0] -= 1
            thread.put("/late.json", left[0])
        return real(space, after=after, limit=limit)

    engine.stored_cells = written_meanwhile  # pyright: ignore[reportAttributeAccessIssue]
    store.copy_to(middle)
    assert middle.thread(thread.id).get("/late.json") == 0
    assert equal(engine, engine_of(middle))


def test_a_source_that_never_rests_is_refused(
    store: Store, middle: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of the test above: the copy does not pretend to be of one moment."""
    monkeypatch.setattr(copies, "PASSES_MAX", sized(3, PASSES_MAX))
    thread, engine = next(iter(store.threads())), engine_of(store)
    real = engine.stored_cells

    def written_always(space: str, *, after: str = "", limit: int) -> object:
        thread.put("/late.json", "again")
        return real(space, after=after, limit=limit)

    engine.stored_cells = written_always  # pyright: ignore[reportAttributeAccessIssue]
    with raises(Conflict, "source_written"):
        store.copy_to(middle)

"""Effects before the last entries of a long ledger: none is left out, and what is told does not depend on the way."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

import perdure
from perdure import Agent, Policy, Store, Thread, Tool, testing
from perdure.engines import loops
from perdure.engines.contract import CellWrite, LedgerEntry, Step
from perdure.history.space import CommitCache, Space
from perdure.ledger import snapshot
from perdure.ledger.verify import repair
from perdure.model.checkpoint import Checkpoint, encode_checkpoint
from perdure.model.commit import LedgerRead
from perdure.model.digest import Digest
from perdure.model.head import MAIN
from perdure.runtime.session import records
from perdure.switching.checkpoint import derive, effects, sources, stored
from perdure.switching.checkpoint.effects import Looked
from tests.crash.campaign import SEED, sized
from tests.switching.checkpoint.works import space_of

WINDOW = 12


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A window of a few entries, and nothing remembered."""
    for module in (snapshot, effects):
        monkeypatch.setattr(module, "ENTRIES_MAX", WINDOW)
    effects._known.clear()
    yield
    effects._known.clear()


@perdure.tool(effect="financial")
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@perdure.tool(effect="external_write", ask=True)
def sign(paper: int) -> str:
    """Sign a paper, once somebody agrees."""
    return f"signed {paper}"


@perdure.tool(effect="external_write")
def send(letter: int) -> str:
    """Send a letter, of which nobody hears again."""
    raise TimeoutError


@perdure.tool(effect="external_write")
def call_off(number: int) -> str:
    """Refuse, having done nothing."""
    raise perdure.NotDone("closed")


@perdure.tool(effect="read_only")
def look(city: int) -> str:
    """Look."""
    return "rain"


TOOLS: dict[Tool, str] = {pay: "amount", sign: "paper", send: "letter", call_off: "number", look: "city"}


def desk(store: Store) -> Thread:
    """A thread whose agent has all of these."""
    script, lenient = testing.Script(backend="script:one"), Policy(unfinished="approve")
    return store.thread("trip", agent=Agent("desk", backend=script, tools=list(TOOLS), policy=lenient))


def made(thread: Thread, tool: Tool, number: int) -> None:
    """One call by hand."""
    thread.call(tool, {TOOLS[tool]: number}, id=f"c{number:04}")


def busy(thread: Thread, count: int, chance: random.Random, *, first: int = 0) -> None:
    """So many calls of all kinds; some of those that wait or are unknown are settled long after."""
    for number in range(first, first + count):
        made(thread, chance.choice(list(TOOLS)), number)
        if chance.random() < 0.2 and (waiting := thread.approvals()):
            asked = chance.choice(waiting)
            thread.decide(asked.call, chance.choice(["approve", "deny"]), by="ann")
            made(thread, sign, int(asked.call[1:]))
        unclear = [call for call in thread.calls() if call.state in ("unknown", "needs_human")]
        if chance.random() < 0.2 and unclear:
            thread.resolve(chance.choice(unclear).id, chance.choice(["done", "not_done"]), by="ann")


def positions(space: Space) -> list[LedgerRead]:
    """Every position of the ledger that is beyond the window."""
    entries = space.engine.entries(space.name, limit=100_000)
    return [LedgerRead(entry.position, entry.chain) for entry in entries if entry.position > WINDOW]


def looked(space: Space, read: LedgerRead, *, before: LedgerRead | None = None) -> Looked:
    """What is found at a position, starting from what was found at another, or from nothing."""
    effects._known.clear()
    if before is not None:
        effects.look(space, None, before, MAIN)
    return effects.look(space, None, read, MAIN)


def told_effects(found: Checkpoint) -> int:
    """How many external writes a checkpoint tells of."""
    listed = sum(1 for each in found.calls if each.is_written)
    return listed + sum(many.count for many in found.earlier if many.is_written)


@pytest.mark.parametrize("round", range(sized(2, 4)))
def test_from_wherever_it_starts_it_finds_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch, round: int
) -> None:
    """From what was found at any earlier position, as from the whole log: the same calls, counts and names."""
    for name, small in (("FIRST_MAX", 1), ("OPEN_MAX", 2), ("GROUPS_MAX", 3 if round % 2 else 64)):
        monkeypatch.setattr(snapshot, name, small)
    chance = random.Random(SEED + round)
    thread = desk(store)
    busy(thread, 40, chance)
    space = space_of(thread)
    known = positions(space)

    for at, read in enumerate(known):
        whole = looked(space, read)
        for before in chance.sample(known[:at], min(at, sized(3, 6))):
            found = looked(space, read, before=before)
            assert found == _as(whole, found)


def _as(whole: Looked, other: Looked) -> Looked:
    """The same, but for what says how it was read."""
    stand = msgspec.structs.replace(whole.stand, later=other.stand.later, calls=other.stand.calls)
    plain = [(known.record, known.position) for known in whole.stand.calls]
    assert plain == [(known.record, known.position) for known in other.stand.calls]
    return msgspec.structs.replace(whole, stand=stand)


def test_a_line_with_checkpoints_gives_the_same_as_one_that_is_read_whole(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each switch starts from the checkpoint before it, in a process that remembers nothing."""
    chance = random.Random(SEED)
    thread = desk(store)
    for switch in range(4):
        for number in range(switch * 12, switch * 12 + 12):
            made(thread, chance.choice(list(TOOLS)), number)
        effects._known.clear()
        thread.switch(testing.Script(backend=f"script:{switch % 2 + 2}"), approved_by="ann")

    again = [_again(thread, kept.checkpoint) for kept in thread.checkpoints()]
    monkeypatch.setattr(stored, "last", lambda *_, **__: None)
    whole = [_again(thread, kept.checkpoint) for kept in thread.checkpoints()]

    assert again == [encode_checkpoint(kept.checkpoint) for kept in thread.checkpoints()]
    assert again == whole


def _again(thread: Thread, checkpoint: Checkpoint) -> bytes:
    effects._known.clear()
    return encode_checkpoint(derive.derive_again(space_of(thread), checkpoint))


def test_every_effect_is_told_however_old(store: Store) -> None:
    """Those that were made, those that may have been and those that wait, a hundred entries back."""
    thread = desk(store)
    for number, tool in enumerate([send, sign, *[pay] * 40, *[look] * 20]):
        made(thread, tool, number)

    found = thread.checkpoint()

    assert {many.tool: many.count for many in found.earlier}.keys() == {"pay", "send", "sign"}
    assert told_effects(found) == 41
    assert [each.call for each in found.pending_approvals] == ["c0001"]
    (paid,) = [many for many in found.earlier if many.tool == "pay"]
    assert [each.args for each in paid.calls] == [
        '{"amount": 2}',
        '{"amount": 3}',
        '{"amount": 4}',
        f'{{"amount": {paid.count + 1}}}',
    ]


def test_by_the_older_rules_they_were_not(store: Store) -> None:
    """The control, and what an old checkpoint says: derived again by its own rules it has the same bytes."""
    thread = desk(store)
    for number, tool in enumerate([send, *[pay] * 40]):
        made(thread, tool, number)
    space = space_of(thread)

    old = derive.derive(space, thread.head.commit, ledger=snapshot.now(space), extractor="perdure-rules/1")

    assert old.entries_before > 0
    assert told_effects(old) < 10
    assert derive.derive_again(space, old) == old


def test_a_call_that_is_only_counted_and_changes_is_counted_as_what_it_became(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three letters one is named; another is found to have arrived, long after."""
    monkeypatch.setattr(snapshot, "OPEN_MAX", 1)
    thread = desk(store)
    for number, tool in enumerate([send, send, send, *[look] * 20]):
        made(thread, tool, number)
    before = {(many.calls[0].state, many.count) for many in thread.checkpoint().earlier}

    thread.resolve("c0002", "done", by="ann")
    for number in range(23, 43):
        made(thread, look, number)
    after = {(many.calls[0].outcome, many.count) for many in thread.checkpoint().earlier}

    assert len(before) == 1
    assert {count for _, count in before} == {3}
    assert after == {(None, 2), ("done", 1)}


@pytest.mark.parametrize("window", [None, 4_000, 2_000])
def test_the_next_model_is_told_of_the_first_payment(store: Store, window: int | None) -> None:
    """In one line for all that lie far back, with how many there were, however small its window is."""
    thread = desk(store)
    for number in range(60):
        made(thread, pay, number)
    new = testing.Script(testing.say("Hello."), backend="script:new", window=window)
    thread.switch(new)

    thread.run("Go on.")

    note = new.contexts[0].messages[0].text
    counted = next(line for line in note.splitlines() if "times" in line)
    assert counted.startswith("`pay` was called 5")
    assert "with amount=0, 1, 2, … 5" in counted
    assert counted.endswith("all done (financial): do not repeat them.")
    assert "lie further back" not in note


def commits_read(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many commits a process that knows nothing reads to derive a checkpoint at the head."""
    effects._known.clear()
    space = msgspec.structs.replace(space_of(thread), steps=CommitCache())
    read: list[int] = []
    back = Space.back

    def counted(self: Space, at: Digest, **options: Any) -> Sequence[Step]:
        found = back(self, at, **options)
        read.append(len(found))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Space, "back", counted)
        head = thread.head
        derive.derive(space, head.commit, ledger=snapshot.now(space))
    return sum(read)


def test_a_longer_line_makes_no_more_commits_to_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a checkpoint is derived from is bounded; looking through the whole line for a stored one is not."""
    for name in ("STEPS_MAX", "MESSAGES_MAX"):
        monkeypatch.setattr(sources, name, 20)
    bounded: dict[int, int] = {}
    unbounded: dict[int, int] = {}
    for number in range(1, 61):
        script = testing.Script(testing.use("pay", amount=number), testing.say("Paid."), backend="script:one")
        thread = store.thread("trip", agent=Agent("desk", backend=script, tools=[pay]))
        thread.run(f"Pay {number}.")
        if number % 30 == 0:
            monkeypatch.setattr(effects, "COMMITS_MAX", 10)
            bounded[number] = commits_read(thread, monkeypatch)
            with monkeypatch.context() as patch:
                patch.setattr(effects, "COMMITS_MAX", 10_000)
                patch.setattr(snapshot, "stored_count", lambda _: None)
                unbounded[number] = commits_read(thread, patch)

    assert bounded[60] == bounded[30]
    assert unbounded[60] >= unbounded[30] + 100


def paying(store: Store, count: int) -> Thread:
    """A thread on which so many runs each paid once."""
    for number in range(count):
        script = testing.Script(testing.use("pay", amount=number), testing.say("Paid."), backend="script:one")
        thread = store.thread("trip", agent=Agent("desk", backend=script, tools=[pay]))
        thread.run(f"Pay {number}.")
    return store.thread("trip")


def entries_read(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many ledger entries a process that knows nothing reads to derive a checkpoint at the head."""
    effects._known.clear()
    space, read = space_of(thread), list[int]()
    entries = loops.entries

    def counted(*given: Any, **options: Any) -> Iterator[LedgerEntry]:
        for entry in entries(*given, **options):
            read.append(entry.position)
            yield entry

    with monkeypatch.context() as patch:
        patch.setattr(loops, "entries", counted)
        derive.derive(space, thread.head.commit, ledger=snapshot.now(space))
    return len(read)


def test_runs_store_a_count_so_that_a_longer_ledger_is_not_read_from_its_beginning(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control reads as many entries as there are."""
    thread = paying(store, 40)

    bounded = entries_read(thread, monkeypatch)
    monkeypatch.setattr(snapshot, "stored_count", lambda _: None)
    monkeypatch.setattr(stored, "last", lambda *_, **__: None)
    whole = entries_read(thread, monkeypatch)

    assert bounded <= 3 * WINDOW
    assert whole >= 80


def test_a_stored_count_is_that_of_the_whole_ledger(store: Store) -> None:
    """Whatever happened to the calls before and after it was stored; `verify` finds nothing."""
    chance = random.Random(SEED)
    thread = desk(store)
    for first in range(0, 40, 8):
        busy(thread, 8, chance, first=first)
        snapshot.store_count(space_of(thread), snapshot.now(space_of(thread)))
        effects._known.clear()
    space = space_of(thread)

    found = snapshot.stored_count(space)

    assert found is not None
    assert found == snapshot.count_calls(space, snapshot.NO_COUNT, found.upto)[1]
    assert store.verify().faults == ()


def test_verify_finds_a_count_that_is_not_the_ledgers_and_repair_empties_it(store: Store) -> None:
    """A count that a faulty program wrote; once it is emptied the calls are counted from the ledger."""
    thread = paying(store, 10)
    space = space_of(thread)
    cell = space.engine.cell(space.name, snapshot.COUNT)
    assert cell is not None
    assert cell.value is not None
    wrong = cell.value.replace(b'"position":', b'"others":7,"position":')
    records.apply(space, "edit", CellWrite(name=cell.name, expected=cell.revision, value=wrong))

    faults = store.verify().faults
    repaired = repair(space)

    assert [each.name for each in faults] == [snapshot.COUNT]
    assert repaired == (snapshot.COUNT,)
    assert snapshot.stored_count(space) is None
    assert store.verify().faults == ()

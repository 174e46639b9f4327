"""Controls: engines that break one law each, which the conformance suite must catch at the right test.

A check that cannot fail is no evidence.  Each control breaks one rule of the memory engine;
the law that guards the rule must then fail, and it must hold for the engine as it is.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Any, ClassVar

import msgspec
import pytest

from perdure.engines import memory, shared_rules
from perdure.engines.contract import (
    GC,
    Cell,
    CellWrite,
    Engine,
    Fence,
    Hold,
    Instant,
    Move,
    Place,
    Receipt,
    Step,
    Write,
)
from perdure.engines.memory import Filed, MemoryEngine, SpaceState
from perdure.errors import PerdureError
from perdure.model.commit import Act, MoveRecord
from perdure.model.digest import Digest, Kind, Object
from perdure.model.event import MessageAppended
from perdure.model.head import Head
from perdure.testing import EngineSuite
from perdure.testing.engines.laws import news
from perdure.testing.engines.subject import StoredEdit
from tests.conformance.test_memory import tampered

FAILURE = (
    AssertionError,
    PerdureError,
    pytest.fail.Exception,
)  # anything else would be a bug of the control
check_move, record_of, labels = shared_rules.check_move, shared_rules.record_of, shared_rules.labels
apply, drop, forget = MemoryEngine.apply, MemoryEngine.drop, MemoryEngine.forget
cells, entries = MemoryEngine.cells, MemoryEngine.entries
bodies_of, cells_of = SpaceState.bodies_of, MemoryEngine.cells_of


class Memory(EngineSuite):
    """The suite on the memory engine, for laws that are called by hand."""

    persistent = False
    shared_between_processes = False
    file = None

    def open(self, path: Path) -> Engine:
        return MemoryEngine()

    def tamper(self, engine: Engine, edit: StoredEdit) -> Engine:
        return tampered(engine, edit)


class LogEngine(MemoryEngine):
    """A memory engine whose writes are also lines of a file, which is read when it is opened."""

    def __init__(self, path: Path, *, flushes: bool) -> None:
        super().__init__()
        self._path, self._flushes, self._order = path, flushes, Lock()
        self._waiting: list[bytes] = []
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if line.endswith(b"\n"):
                super().apply(msgspec.json.decode(line, type=Write))

    def apply(self, write: Write) -> Receipt:
        with self._order:
            receipt = super().apply(write)
            self._waiting.append(msgspec.json.encode(write) + b"\n")
            if self._flushes:
                self._flush()
            return receipt

    def close(self) -> None:
        super().close()
        self._flush()

    def _flush(self) -> None:
        with self._path.open("ab") as log:
            log.writelines(self._waiting)
        self._waiting.clear()


class LogSuite(EngineSuite):
    """The suite on an engine whose acknowledged writes survive a kill."""

    file = None
    kills = 3
    flushes: ClassVar[bool] = True

    def open(self, path: Path) -> Engine:
        return LogEngine(path / "log", flushes=self.flushes)


class LazySuite(LogSuite):
    """The suite on an engine that acknowledges what is still in a buffer of its own."""

    flushes = False


class BoastfulSuite(Memory):
    """The suite on an engine that says of itself what is not so."""

    persistent = True
    shared_between_processes = True
    file = "store.db"
    kills = 1


# ---- what is broken


def compares_the_version_only(move: Move, hold: Hold | None) -> None:
    """Take any head of the right version."""
    if move.expected and hold and move.expected.version == hold.head.version:
        move = msgspec.structs.replace(move, expected=hold.head)
    check_move(move, hold)


def moves_sealed_timelines(move: Move, hold: Hold | None) -> None:
    """Look past the seal."""
    check_move(move, hold and msgspec.structs.replace(hold, sealed=False))


def never_finds_a_head_stale(move: Move, hold: Hold | None) -> None:
    """Take any head at all."""
    if move.expected and hold:
        move = msgspec.structs.replace(move, expected=hold.head)
    check_move(move, hold)


def takes_any_move_before(move: Move, hold: Hold | None) -> None:
    """Do not look at the move that the writer names."""
    check_move(msgspec.structs.replace(move, previous=None), hold)


def begins_timelines_twice(move: Move, hold: Hold | None) -> None:
    """Begin a timeline whether or not it exists."""
    if move.expected is not None:
        check_move(move, hold)


def counts_down_on_undo(move: Move, hold: Hold | None, op_id: str) -> tuple[Hold, Object, MoveRecord]:
    """Give an undone version its old number back."""
    if move.act is Act.UNDO and hold is not None:
        version = max(hold.head.version - 2, 0)
        hold = msgspec.structs.replace(hold, head=Head(move.timeline, version, hold.head.commit))
    return record_of(move, hold, op_id)


def does_not_chain_moves(move: Move, hold: Hold | None, op_id: str) -> tuple[Hold, Object, MoveRecord]:
    """Leave out the move before."""
    return record_of(move, hold and msgspec.structs.replace(hold, move=None), op_id)


def forgets_op_ids(self: MemoryEngine, space: SpaceState, write: Write) -> Receipt | None:
    """Look up nothing."""
    return None


def takes_any_intent(self: MemoryEngine, space: SpaceState, write: Write) -> Receipt | None:
    """Return the first receipt to any caller that knows the op_id."""
    found = space.ops.get(write.op_id)
    return getattr(found, "receipt", None)


def compares_before_it_looks_up(self: MemoryEngine, write: Write) -> Receipt:
    """Compare heads first and look up the op_id then."""
    for move in write.moves:
        check_move(move, self.hold(write.space, move.timeline))
    return apply(self, write)


def applies_half_of_a_refused_write(self: MemoryEngine, write: Write) -> Receipt:
    """Refuse, and leave something behind."""
    try:
        return apply(self, write)
    except PerdureError:
        apply(
            self,
            Write(space=write.space, op_id=f"half {write.op_id}", intent=write.intent, entries=(b"half",)),
        )
        raise


def makes_the_first_of_two_moves(self: MemoryEngine, write: Write) -> Receipt:
    """Make moves one at a time."""
    if len(write.moves) < 2:
        return apply(self, write)
    apply(self, msgspec.structs.replace(write, op_id=f"half {write.op_id}", moves=write.moves[:1]))
    return apply(self, msgspec.structs.replace(write, moves=write.moves[1:]))


def checks_and_then_writes(self: MemoryEngine, write: Write) -> Receipt:
    """Lets others in between the comparison and the write."""
    for move in write.moves:
        check_move(move, self.hold(write.space, move.timeline))
    time.sleep(0.005)
    now = [self.hold(write.space, move.timeline) for move in write.moves]
    moves = [
        msgspec.structs.replace(move, expected=hold and hold.head)
        for move, hold in zip(write.moves, now, strict=True)
    ]
    return apply(self, msgspec.structs.replace(write, moves=tuple(moves)))


def takes_any_revision(fence: Fence, revision: int) -> None:
    """Compare no revision."""
    return


def restarts_emptied_cells(draft: SpaceState, space: str, wanted: CellWrite, position: int) -> int:
    """Begin to count again at 0."""
    revision = 0 if wanted.value is None else wanted.expected + 1
    cell = Cell(space, wanted.name, revision, wanted.value, position)
    draft.cells[wanted.name] = Filed.of(cell, listed=wanted.listed)
    return revision


def believes_any_cell(cell: Cell, digest: object, *, listed: bool) -> Cell:
    """Compare no digest."""
    return cell


def misses_nothing(space: str, found: int, seal: int | None) -> None:
    """Compare no seal."""
    return


def lists_cells_by_pattern(
    self: MemoryEngine, space: str, *, prefix: str = "", limit: int, **bounds: Any
) -> Any:
    """Take % for a wildcard."""
    with self._reading(space) as found:
        cells = sorted(found.cells.values(), key=lambda filed: filed.cell.name)
    return [filed.cell for filed in cells if filed.cell.name.startswith(prefix.rstrip("%"))][:limit]


def reverses_each_page_of_cells(
    self: MemoryEngine, space: str, *, descending: bool = False, **how: Any
) -> Any:
    """Read upwards and turn the page round."""
    found = cells(self, space, **how)
    return found[::-1] if descending else found


def starts_at_the_end_of_the_cells(
    self: MemoryEngine, space: str, *, before: str | None = None, **how: Any
) -> Any:
    """Look at no upper bound."""
    return cells(self, space, **how)


def reverses_each_page_of_entries(
    self: MemoryEngine, space: str, *, descending: bool = False, **how: Any
) -> Any:
    """Read upwards and turn the page round."""
    found = entries(self, space, **how)
    return found[::-1] if descending else found


def believes_entries_backwards(
    self: MemoryEngine, space: str, *, descending: bool = False, **how: Any
) -> Any:
    """Check the chain upwards only."""
    if not descending:
        return entries(self, space, **how)
    low, high = how.get("after", 0), how.get("before") or sys.maxsize
    with self._reading(space) as found:
        positions = sorted((each for each in found.entries if low < each < high), reverse=True)
        return [found.entries[each] for each in positions][: how["limit"]]


def does_not_chain_entries(chain: Digest | None, body: bytes) -> Digest:
    """Hash each entry alone."""
    return Object.of(Kind.ENTRY, body).digest


def begins_a_turn_with_each_commit(commit: Any, parent: Any, before: int) -> Place:
    """Look at no run."""
    place = parent[0] if parent else shared_rules.ROOT
    return Place(commit.depth, place.turn + 1, place.sequence + before)


def counts_no_events(commit: Any, parent: Any, before: int) -> Place:
    """Leave the sequence where it was, and believe any depth."""
    place = parent[0] if parent else shared_rules.ROOT
    return Place(commit.depth, place.turn + 1, place.sequence)


def jumps_too_far(self: SpaceState, at: Digest, enough: Callable[[Place], bool]) -> Digest | None:
    """Jump without looking where to."""
    here: Digest | None = at
    while here is not None and not enough(self.mark(here).place):
        mark = self.mark(here)
        here = mark.parent if mark.jump == here else mark.jump
    return here


def names_every_commit_of_a_run(commit: Any, changeset: Any, parent_run: str | None) -> set[str]:
    """Name all of a run's commits by its id."""
    return {event.id for event in changeset.events} | ({commit.run} if commit.run else set())


def forgets_names(commit: Any, changeset: Any, parent_run: str | None) -> set[str]:
    """Find a commit by its messages and its run alone."""
    return {label for label in labels(commit, changeset, parent_run) if "\n" not in label}


def takes_names_for_ids(commit: Any, changeset: Any, parent_run: str | None) -> set[str]:
    """File a name as if it was the id of a message."""
    return {label.removeprefix("name\n") for label in labels(commit, changeset, parent_run)}


def gives_other_bodies(self: SpaceState, step: Step) -> dict[Digest, bytes]:
    """Bodies that are not those of their digests."""
    return {digest: body[::-1] for digest, body in bodies_of(self, step).items()}


def gives_forgotten_bodies(self: SpaceState, step: Step) -> dict[Digest, bytes]:
    """Nothing, under the digests of what was forgotten."""
    events = [event for event in step.changeset.events if isinstance(event, MessageAppended)]
    return {event.body: b"" for event in events}


def misses_emptied_cells(self: MemoryEngine, spaces: Sequence[str], name: str) -> Sequence[Cell]:
    """An emptied cell counts as never written."""
    return [cell for cell in cells_of(self, spaces, name) if cell.value is not None]


def reads_across_spaces(self: MemoryEngine, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
    """Look everywhere, and leave out what is not there."""
    spaces = self._store.spaces.values()
    found = {digest: each for space in spaces for digest, each in space.objects.items()}
    return [each for digest in digests if isinstance(each := found.get(digest), Object)]


def reads_in_its_own_order(self: MemoryEngine, space: str, digests: Sequence[Digest]) -> Sequence[Object]:
    """Answer in the order of the digests."""
    with self._reading(space) as found:
        return [found.object(digest) for digest in sorted(digests)]


def drops_op_ids_too(self: MemoryEngine, space: str, *, why: str) -> int:
    """Leave no tombstones."""
    freed = drop(self, space, why=why)
    self._store.spaces[space] = SpaceState()
    return freed


def forgets_whatever_was_written_since(space: str, read: int, now: int) -> None:
    """Do not ask whether the space still stands as it did."""


def forgets_unnoticed(
    self: MemoryEngine, space: str, digests: Sequence[Digest], *, why: str, standing: int
) -> int:
    """Leave the generation as it is."""
    cell = self.cell(space, GC)
    freed = forget(self, space, digests, why=why, standing=standing)
    if cell is not None:
        self._store.spaces[space].cells[GC] = Filed.of(cell, listed=False)
    else:
        self._store.spaces[space].cells.pop(GC, None)
    return freed


def stands_still_for_what_is_there(self: MemoryEngine, write: Write) -> Receipt:
    """Count only writes that bring something new."""
    before = self._store.spaces.get(write.space)
    known = (
        before is not None
        and bool(write.objects)
        and all(each.digest in before.objects for each in write.objects)
    )
    receipt = apply(self, write)
    self._store.spaces[write.space].standing -= known
    return receipt


def lists_moves_oldest_first(
    self: MemoryEngine, space: str, timeline: str, *, before: int | None = None, limit: int
) -> Sequence[MoveRecord]:
    """List as they were made."""
    with self._reading(space) as found:
        return sorted(found.records.values(), key=lambda record: record.version)[:limit]


def records_no_author(move: Move, hold: Hold | None, op_id: str) -> tuple[Hold, Object, MoveRecord]:
    """Record a move as before moves had an author."""
    return record_of(msgspec.structs.replace(move, author=None), hold, op_id)


def has_a_new_name_each_time(self: MemoryEngine) -> str:
    """Count every asking as an opening."""
    return self._store.openings.enter()


def takes_any_text_for_a_name(self: MemoryEngine, holder: str) -> bool:
    """Look for whatever is given."""
    return holder not in self._names.values()


def takes_what_is_unknown_for_gone(self: MemoryEngine, holder: str) -> bool:
    """Count every use that is not known to be open as over."""
    return len(holder) == 32 and holder not in self._names.values()


def waits_for_writes_from_now_on(
    self: MemoryEngine, seen: Mapping[str, int], seconds: float, *, woken: Event | None = None
) -> Mapping[str, int]:
    """Begin with the standing of now, whatever the caller has seen."""
    now = {space: max(at, self.standing(space)) for space, at in seen.items()}
    return self._waiters.wait(now, min(seconds, 1.0), woken)


def wakes_for_any_space(
    self: MemoryEngine, seen: Mapping[str, int], seconds: float, *, woken: Event | None = None
) -> Mapping[str, int]:
    """Take a write anywhere for news."""
    before = sum(self.standing(space) for space in self._store.spaces)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if sum(self.standing(space) for space in self._store.spaces) > before:
            return {space: self.standing(space) + 1 for space in seen}
        time.sleep(0.001)
    return {}


def goes_on_waiting_when_closed(self: MemoryEngine) -> None:
    """Close without a word to those who wait."""
    self._closed = True


def goes_back(self: MemoryEngine) -> Instant:
    """Count down."""
    return Instant("back", -time.monotonic_ns() // 1_000)


def has_a_new_clock_each_time(self: MemoryEngine) -> Instant:
    """Date nothing so that it can be compared."""
    return Instant(str(time.monotonic_ns()), time.monotonic_ns() // 1_000)


def counts_milliseconds(self: MemoryEngine) -> Instant:
    """Mistake the unit."""
    return Instant("slow", time.monotonic_ns() // 1_000_000)


RULES: list[tuple[object, str, Callable[..., object], str]] = [
    (shared_rules, "check_move", compares_the_version_only, "test_the_version_alone_is_not_enough"),
    (
        shared_rules,
        "check_move",
        compares_the_version_only,
        "test_the_same_version_of_a_space_begun_again_is_stale",
    ),
    (shared_rules, "check_move", moves_sealed_timelines, "test_a_sealed_timeline_takes_no_more_moves"),
    (shared_rules, "check_move", never_finds_a_head_stale, "test_a_stale_head_is_told_both_heads"),
    (
        shared_rules,
        "check_move",
        never_finds_a_head_stale,
        "test_of_many_writers_with_one_head_exactly_one_wins",
    ),
    (shared_rules, "check_move", begins_timelines_twice, "test_a_timeline_cannot_begin_twice"),
    (shared_rules, "record_of", counts_down_on_undo, "test_undo_does_not_make_an_old_head_good_again"),
    (shared_rules, "record_of", does_not_chain_moves, "test_each_move_names_the_move_before_it"),
    (MemoryEngine, "_earlier", forgets_op_ids, "test_a_repeated_write_gives_the_first_receipt"),
    (MemoryEngine, "_earlier", forgets_op_ids, "test_one_write_from_many_threads_is_made_once"),
    (MemoryEngine, "_earlier", takes_any_intent, "test_an_op_id_cannot_be_used_for_something_else"),
    (MemoryEngine, "apply", compares_before_it_looks_up, "test_a_repeated_write_gives_the_first_receipt"),
    (MemoryEngine, "apply", applies_half_of_a_refused_write, "test_a_refused_write_leaves_nothing_behind"),
    (MemoryEngine, "apply", applies_half_of_a_refused_write, "test_a_refused_write_takes_no_position"),
    (
        MemoryEngine,
        "apply",
        makes_the_first_of_two_moves,
        "test_if_one_of_several_moves_is_refused_none_is_made",
    ),
    (MemoryEngine, "apply", checks_and_then_writes, "test_of_many_writers_with_one_head_exactly_one_wins"),
    (shared_rules, "check_fence", takes_any_revision, "test_a_cell_at_another_revision_is_not_written"),
    (shared_rules, "check_fence", takes_any_revision, "test_a_fence_lets_only_the_right_revision_through"),
    (shared_rules, "check_fence", takes_any_revision, "test_a_counter_in_a_cell_loses_no_increment"),
    (memory, "_add_cell", restarts_emptied_cells, "test_an_emptied_cell_goes_on_counting"),
    (shared_rules, "check_cell", believes_any_cell, "test_a_cell_that_was_edited_is_not_used"),
    (shared_rules, "check_cell", believes_any_cell, "test_a_damaged_cell_is_named"),
    (shared_rules, "check_seal", misses_nothing, "test_what_is_gone_is_missed"),
    (MemoryEngine, "cells", lists_cells_by_pattern, "test_cells_are_listed_by_prefix_letter_by_letter"),
    (MemoryEngine, "cells", reverses_each_page_of_cells, "test_cells_are_read_backwards"),
    (MemoryEngine, "cells", reverses_each_page_of_cells, "test_both_directions_read_the_same_cells"),
    (MemoryEngine, "cells", starts_at_the_end_of_the_cells, "test_cells_are_read_backwards"),
    (MemoryEngine, "cells", starts_at_the_end_of_the_cells, "test_both_directions_read_the_same_cells"),
    (MemoryEngine, "entries", reverses_each_page_of_entries, "test_a_ledger_is_read_backwards"),
    (MemoryEngine, "entries", reverses_each_page_of_entries, "test_both_directions_read_the_same_entries"),
    (MemoryEngine, "entries", believes_entries_backwards, "test_an_edited_entry_is_not_read"),
    (MemoryEngine, "entries", believes_entries_backwards, "test_a_missing_entry_is_noticed"),
    (shared_rules, "chained", does_not_chain_entries, "test_each_entry_is_chained_to_all_before_it"),
    (
        shared_rules,
        "placed",
        begins_a_turn_with_each_commit,
        "test_a_run_is_one_turn_and_a_change_by_hand_another",
    ),
    (shared_rules, "placed", counts_no_events, "test_events_are_counted_along_the_line"),
    (shared_rules, "placed", counts_no_events, "test_a_commit_must_say_how_deep_it_stands"),
    (SpaceState, "back", jumps_too_far, "test_any_distance_back_is_found_at_any_length"),
    (SpaceState, "back", jumps_too_far, "test_lines_do_not_mix_however_they_are_tangled"),
    (shared_rules, "labels", names_every_commit_of_a_run, "test_a_run_id_names_the_first_commit_of_the_run"),
    (
        shared_rules,
        "labels",
        forgets_names,
        "test_a_name_of_another_framework_leads_to_every_commit_that_has_it",
    ),
    (shared_rules, "labels", takes_names_for_ids, "test_a_name_is_no_message_id_and_no_run_id"),
    (SpaceState, "bodies_of", gives_other_bodies, "test_steps_come_with_their_bodies_where_asked"),
    (
        SpaceState,
        "bodies_of",
        gives_forgotten_bodies,
        "test_a_forgotten_body_does_not_come_with_its_commit",
    ),
    (MemoryEngine, "cells_of", misses_emptied_cells, "test_one_cell_of_many_spaces_is_read_at_once"),
    (MemoryEngine, "objects", reads_across_spaces, "test_an_object_of_another_space_is_not_found"),
    (MemoryEngine, "objects", reads_across_spaces, "test_the_first_object_that_is_not_there_is_named"),
    (MemoryEngine, "objects", reads_in_its_own_order, "test_a_batch_is_read_in_the_order_asked"),
    (MemoryEngine, "drop", drops_op_ids_too, "test_a_write_of_a_dropped_space_is_never_made_again"),
    (MemoryEngine, "moves", lists_moves_oldest_first, "test_moves_are_recorded_newest_first"),
    (
        shared_rules,
        "record_of",
        records_no_author,
        "test_a_move_has_the_time_and_the_author_that_it_was_asked_with",
    ),
    (
        shared_rules,
        "check_standing",
        forgets_whatever_was_written_since,
        "test_nothing_is_forgotten_once_anything_was_written",
    ),
    (
        MemoryEngine,
        "apply",
        stands_still_for_what_is_there,
        "test_nothing_is_forgotten_once_anything_was_written",
    ),
    (MemoryEngine, "forget", forgets_unnoticed, "test_a_fence_tells_that_something_was_forgotten"),
    (MemoryEngine, "holder", has_a_new_name_each_time, "test_a_holder_has_one_name"),
    (MemoryEngine, "gone", takes_any_text_for_a_name, "test_what_cannot_be_a_name_is_not_proven_gone"),
    (
        shared_rules,
        "check_move",
        takes_any_move_before,
        "test_a_move_that_names_another_move_before_it_is_stale",
    ),
    (MemoryEngine, "wait", waits_for_writes_from_now_on, "test_a_write_before_the_wait_ends_it_at_once"),
    (MemoryEngine, "wait", wakes_for_any_space, "test_a_wait_without_news_ends_after_its_time"),
    (MemoryEngine, "wait", wakes_for_any_space, "test_of_several_spaces_those_with_news_are_named"),
    (MemoryEngine, "instant", goes_back, "test_the_clock_never_goes_back"),
    (MemoryEngine, "instant", has_a_new_clock_each_time, "test_the_clock_never_goes_back"),
    (MemoryEngine, "instant", counts_milliseconds, "test_the_clock_counts_microseconds"),
]


# ---- how it is caught


def judge(law: str) -> None:
    """Hold the memory engine, as it now is, against one law: with the first of its parameters that fails, if any."""
    for given in parameters_of(getattr(Memory, law)):
        getattr(Memory(), law)(MemoryEngine(), **given)


def parameters_of(law: Callable[..., object]) -> list[dict[str, object]]:
    """The values that pytest would give to a law besides its engine."""
    combined: list[dict[str, object]] = [{}]
    for mark in getattr(law, "pytestmark", []):
        names, values = mark.args
        keys = [names] if isinstance(names, str) else list(names)
        rows = [dict(zip(keys, [each] if isinstance(names, str) else each, strict=True)) for each in values]
        combined = [one | other for one in combined for other in rows]
    assert {name for given in combined for name in given} | {"self", "engine"} == set(
        inspect.signature(law).parameters
    )
    return combined


def directories(path: Path) -> tuple[Path, Path]:
    """Two new directories."""
    one, other = path / "one", path / "other"
    one.mkdir()
    other.mkdir()
    return one, other


@pytest.mark.parametrize(
    ("owner", "name", "broken", "law"), RULES, ids=[f"{rule[2].__name__}-{rule[3]}" for rule in RULES]
)
def test_the_suite_catches_an_engine_that(
    owner: object, name: str, broken: object, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The law holds for the memory engine and fails once its rule is broken."""
    judge(law)

    monkeypatch.setattr(owner, name, broken)

    with pytest.raises(FAILURE):
        judge(law)


def test_the_suite_catches_an_engine_that_takes_what_is_unknown_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does for which a missing file is a proof."""
    one, other = directories(tmp_path)
    law = Memory().test_a_use_of_which_nothing_is_known_is_not_gone
    law(MemoryEngine(), one)
    monkeypatch.setattr(MemoryEngine, "gone", takes_what_is_unknown_for_gone)

    with pytest.raises(FAILURE):
        law(MemoryEngine(), other)


def test_the_suite_catches_an_engine_that_lets_others_wait_when_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They would wait until their time is over."""
    monkeypatch.setattr(news, "LONG", 1.0)
    monkeypatch.setattr(news, "SOON", 0.5)
    judge("test_closing_ends_every_wait")
    monkeypatch.setattr(MemoryEngine, "close", goes_on_waiting_when_closed)

    with pytest.raises(FAILURE):
        judge("test_closing_ends_every_wait")


def test_the_suite_catches_an_engine_that_acknowledges_too_early(tmp_path: Path) -> None:
    """A buffer that dies with its process loses acknowledged writes; one that is flushed does not."""
    flushed, lazy = directories(tmp_path)
    LogSuite().test_a_killed_process_loses_nothing_that_it_acknowledged(flushed)

    with pytest.raises(FAILURE):
        LazySuite().test_a_killed_process_loses_nothing_that_it_acknowledged(lazy)


@pytest.mark.parametrize(
    "law",
    [
        "test_of_two_processes_with_one_head_exactly_one_wins",
        "test_a_repeated_write_from_another_process_gives_the_first_receipt",
        "test_another_process_sees_what_was_written",
        "test_opening_again_shows_what_was_written",
        "test_what_was_forgotten_stays_forgotten",
        "test_a_killed_process_loses_nothing_that_it_acknowledged",
    ],
)
def test_the_suite_catches_an_engine_that_boasts(law: str, tmp_path: Path) -> None:
    """An engine that keeps and shares nothing must say so, and passes when it does."""
    modest, boastful = directories(tmp_path)
    getattr(Memory(), law)(modest)

    with pytest.raises(FAILURE):
        getattr(BoastfulSuite(), law)(boastful)


@pytest.mark.parametrize(
    "law",
    [
        "test_a_backup_is_a_store_of_its_own",
        "test_two_openings_are_one_store_if_it_is_shared",
        "test_all_who_share_a_store_read_one_clock",
        "test_an_opening_that_was_closed_is_gone",
        "test_a_killed_holder_is_gone_at_once",
        "test_a_forked_child_does_not_keep_its_parent_alive",
    ],
)
def test_the_suite_catches_an_engine_that_boasts_of_one_store(law: str, tmp_path: Path) -> None:
    """The same, for laws that are given an engine too."""
    with pytest.raises(FAILURE):
        getattr(BoastfulSuite(), law)(MemoryEngine(), tmp_path)

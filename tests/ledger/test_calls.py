"""Calls: moved along the state machine only, durable by themselves, and told in full by the log."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.engines.contract import CellWrite, Fence, Receipt, Write
from perdure.engines.memory import MemoryEngine
from perdure.errors import Conflict, InDoubt, Invalid, Moved, NotFound, StaleHead
from perdure.history import writer
from perdure.history.space import ALIVE
from perdure.history.verify import verify
from perdure.history.writer import Proposal
from perdure.ledger import calls
from perdure.ledger.calls import VersionedCall
from perdure.ledger.verify import faults
from perdure.model.call import SETTLED, STATES, TRANSITIONS, CallRecord, CallState
from perdure.model.effect import check_effect
from perdure.projections.calls import Book, decode_transition
from tests.coded import raises
from tests.ledger.books import Keeper


def at(state: CallState) -> VersionedCall:
    """A call in that state, wherever it came from."""
    record = msgspec.structs.replace(Keeper().record("c"), state=state)
    return VersionedCall(record, 7)


def folded(keeper: Keeper) -> dict[str, CallRecord]:
    """Every call by its id, from the entries of the ledger alone."""
    book = Book()
    for body in keeper.bodies():
        book.take(decode_transition(body))
    return book.calls


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("to", STATES)
def test_a_call_moves_only_along_the_state_machine(state: CallState, to: CallState) -> None:
    """What is not in the table is refused, naming the call, its state, and that nothing was written."""
    if to in TRANSITIONS[state]:
        assert calls.advance(at(state), to, at=9).record.state == to
    else:
        with raises(Conflict, "call_transition_invalid", call="c", tool="pay", state=state, to=to):
            calls.advance(at(state), to, at=9)


def test_a_posting_over_several_states_passes_each_of_them() -> None:
    """A way that skips one is refused like any other."""
    transition = calls.propose(Keeper().record("c"), "requested", "started")

    assert decode_transition(transition.entry).via == ("proposed", "requested")
    with raises(Conflict, "call_transition_invalid", state="proposed", to="started"):
        calls.propose(Keeper().record("c"), "started")


def test_a_turn_of_the_table_is_durable_and_told_by_the_log(keeper: Keeper) -> None:
    """Cell, log and what `post` gives back say the same."""
    held = keeper.post(calls.propose(keeper.record("c"), "requested", "started"))
    held = keeper.succeed(held)

    assert calls.read(keeper.space, "c") == held
    assert folded(keeper) == {"c": held.record}
    assert (held.record.state, held.record.attempt, held.revision) == ("succeeded", 1, 2)
    assert verify(keeper.engine).ok
    assert faults(keeper.space) == []


def test_the_result_travels_in_the_same_write(keeper: Keeper) -> None:
    """Once a call has succeeded its result can be read, by the reference that the record holds."""
    held = keeper.post(calls.propose(keeper.record("c"), "requested", "started"))
    staged = keeper.staged(b"[1,2]")

    transition = calls.settle(
        held, "succeeded", at=5, staged=staged, preview=b"{}", patch=b"[]", status="success"
    )
    done = keeper.post(transition).record

    assert done.result == f"artifact://sha256/{staged.digest}"
    assert done.preview is not None
    assert done.patch is not None
    assert keeper.space.nodes((staged.digest, done.preview, done.patch))[1:] == [b"{}", b"[]"]


def test_a_call_read_before_another_move_cannot_be_moved(keeper: Keeper) -> None:
    """Of two who read the same call, one moves it; the other has written nothing."""
    held = keeper.post(calls.propose(keeper.record("c"), "requested", "started"))
    keeper.move(held, "unknown")

    with pytest.raises(Moved):
        keeper.move(held, "succeeded")

    assert calls.read(keeper.space, "c").record.state == "unknown"
    assert len(keeper.bodies()) == 2


def test_calls_do_not_get_into_each_others_way(keeper: Keeper) -> None:
    """Calls of one round settle in any order, alone or together, without moving a head."""
    begun = calls.post(
        keeper.space,
        [calls.propose(keeper.record(id, arguments={"id": id}), "requested", "started") for id in "abc"],
    )
    keeper.succeed(begun[2])
    keeper.move(begun[0], "failed")
    keeper.write({"/x": 1})

    assert keeper.succeed(begun[1]).record.state == "succeeded"
    assert [held.record.state for held in calls.listing(keeper.space, limit=9)] == [
        "failed",
        "succeeded",
        "succeeded",
    ]


def test_a_commit_carries_postings(keeper: Keeper) -> None:
    """The cells and objects of a posting go into a proposal as they are."""
    transition = calls.propose(keeper.record("c"))
    proposal = Proposal(
        reason="r", root=keeper.space.root_at(None), cells=transition.cells, objects=transition.objects
    )

    writer.commit(keeper.space, keeper.head(), proposal, op_id="op", entries=(transition.entry,))

    assert calls.read(keeper.space, "c") == transition.held


@pytest.mark.parametrize("id", ["a.b.c", "toolu/01~", "ünïcode-呼び出し", "call/x", "x" * 200])
def test_any_text_can_be_a_call_id(keeper: Keeper, id: str) -> None:
    """Dots, slashes and letters of any script name one call each."""
    keeper.post(calls.propose(keeper.record(id)))
    keeper.post(calls.propose(keeper.record(id[:-1] + "!")))

    assert calls.read(keeper.space, id).record.id == id
    assert len(calls.listing(keeper.space, limit=9)) == 2
    assert faults(keeper.space) == []


def test_a_vendor_that_repeats_its_ids_confuses_nobody(keeper: Keeper) -> None:
    """Two equal calls under one vendor id are two calls with keys of their own."""
    for id in ("one", "two"):
        record = msgspec.structs.replace(keeper.record(id), vendor_id="call_0")
        keeper.succeed(keeper.post(calls.propose(record, "requested", "started")))

    found = [held.record for held in calls.listing(keeper.space, limit=9)]

    assert [each.vendor_id for each in found] == ["call_0", "call_0"]
    assert len({each.key for each in found}) == 2


def test_a_second_call_of_the_same_id_is_refused(keeper: Keeper) -> None:
    """Entering a call needs an id that was never used."""
    keeper.post(calls.propose(keeper.record("c")))

    with pytest.raises(Moved):
        keeper.post(calls.propose(keeper.record("c")))


def test_an_unknown_id_names_what_is_close(keeper: Keeper) -> None:
    """A slip of the finger finds its call."""
    keeper.post(calls.propose(keeper.record("order-17")))

    with raises(NotFound, "call_not_found", near=("order-17",)):
        calls.read(keeper.space, "order-71")


def test_words_that_are_no_text_do_not_stop_a_record(keeper: Keeper) -> None:
    """What a tool says is mended and cut, never a reason to lose its outcome."""
    held = keeper.post(calls.propose(keeper.record("c"), "requested", "started"))

    lost = keeper.post(calls.advance(held, "unknown", at=5, why="\ud800" + "x" * 9_999))

    assert (lost.record.why or "").startswith("�x")
    assert len(lost.record.why or "") == calls.WHY_MAX
    assert folded(keeper) == {"c": lost.record}


def test_a_call_enters_as_proposed_and_under_a_name() -> None:
    """What could not be found again is refused."""
    record = Keeper().record("c")

    for wrong in ({"state": "started"}, {"id": ""}, {"tool": ""}, {"tool": "x" * 201}):
        with pytest.raises(Invalid):
            calls.propose(msgspec.structs.replace(record, **wrong))


def test_the_same_write_again_changes_nothing(keeper: Keeper) -> None:
    """An op_id makes a posting repeatable; the second time the call is read, not moved."""
    transition = calls.propose(keeper.record("c"))

    first = calls.post(keeper.space, [transition], op_id="mine")
    keeper.move(first[0], "requested")
    again = calls.post(keeper.space, [transition], op_id="mine")

    assert first == again
    assert len(keeper.bodies()) == 2


class _Doubtful(MemoryEngine):
    """An engine whose writes become true but whose answer gets lost."""

    def apply(self, write: Write) -> Receipt:
        super().apply(write)
        raise InDoubt(write.op_id)


def test_a_posting_in_doubt_is_settled_by_asking() -> None:
    """The write became true, so the caller hears of success."""
    keeper = Keeper(_Doubtful())

    held = keeper.post(calls.propose(keeper.record("c")))

    assert calls.read(keeper.space, "c") == held


def test_a_removed_thread_takes_no_posting() -> None:
    """The refusal says that the thread is gone, not that a cell is."""
    keeper = Keeper()
    space = msgspec.structs.replace(keeper.space, fences=(writer_fence(),))
    keeper.engine.apply(Write(space=space.name, op_id="rm", intent=keeper.record("c").args, cells=(alive(),)))

    with pytest.raises(StaleHead) as stale:
        calls.post(space, [calls.propose(keeper.record("c"))])
    assert stale.value.because


def writer_fence() -> Fence:
    """The fence that every thread has."""
    return Fence(ALIVE, 0)


def alive() -> CellWrite:
    """What removing a thread writes."""
    return CellWrite(name=ALIVE, expected=0, value=b'{"removed_at":1}')


def test_what_nobody_knows_is_found_over_all_threads() -> None:
    """Unclear calls are listed, and no longer once they are settled."""
    engine = MemoryEngine()
    keepers = [Keeper(engine, f"thread:{number}") for number in (1, 2)]
    lost = [
        keeper.move(keeper.post(calls.propose(keeper.record("c"), "requested", "started")), "unknown")
        for keeper in keepers
    ]

    assert len(engine.listed(prefix=calls.CALL, limit=9)) == 2
    keepers[0].succeed(lost[0])
    assert [cell.space for cell in engine.listed(prefix=calls.CALL, limit=9)] == ["thread:2"]


STEPS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(STATES)), max_size=40)


@given(STEPS)
@settings(max_examples=150)
def test_folding_the_log_gives_the_cells(steps: list[tuple[str, CallState]]) -> None:
    """Whatever is tried, in whatever order: what is legal is written, the rest is refused, and log and cells agree."""
    keeper = Keeper()
    states: dict[str, CallState] = {}
    for id, state in steps:
        before = states.get(id)
        legal = state in TRANSITIONS[before]
        try:
            tried = _tried(keeper, id, state, before)
        except (Conflict, Invalid):
            assert not legal
        else:
            assert legal
            states[id] = tried.record.state

    assert folded(keeper) == {held.record.id: held.record for held in calls.listing(keeper.space, limit=9)}
    assert {id: calls.read(keeper.space, id).record.state for id in states} == states
    assert faults(keeper.space) == []


def _tried(keeper: Keeper, id: str, state: CallState, before: CallState | None) -> VersionedCall:
    if before is None:
        record = msgspec.structs.replace(keeper.record(id), state=state)
        return keeper.post(calls.propose(record))
    held = calls.read(keeper.space, id)
    changes: calls.Changes = {"why": f"it became {state}"} if state in SETTLED else {"epoch": 3, "why": None}
    return keeper.post(calls.advance(held, state, at=keeper.space.clock(), **changes))


def test_a_field_that_spells_out_its_default_is_no_fault(keeper: Keeper) -> None:
    """Whether a default is left out depends on the very object that the record held; it means the same."""
    spelled = check_effect("".join(["external", "_write"]))

    keeper.succeed(keeper.start(msgspec.structs.replace(keeper.record("c"), effect=spelled)))

    assert faults(keeper.space) == []

"""Gives the later inputs of one timeline to another timeline again: a replay onto a fork.

Each input becomes a run of its own, under the id that the input has on the first timeline.  So a replay that was
interrupted goes on if the caller asks for it again: inputs that were given already are not given twice, and the report
says which these are.  Inputs keep the order of the first timeline: a replay that would give one after a later one is
refused before anything runs.

Effects are bounded.  The record of each run of a replay has the strongest effect that its calls may have, so every
process that resumes the run keeps the bound.  A call beyond it is denied, and the model is shown why.  Nobody is there
to answer questions: if a tool, or the repeat guard, asks for approval, the replay denies the call.  All such calls are
in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from perdure.engines.contract import LabelOf
from perdure.errors import Conflict, Decided, Forgotten, Invalid, RunFailed
from perdure.history import ancestry, reader
from perdure.history.space import Space
from perdure.ledger import decisions
from perdure.model.call import CallRecord
from perdure.model.digest import Digest
from perdure.model.effect import Effect, check_effect, lower, within
from perdure.model.message import Message
from perdure.model.run import RunState
from perdure.projections.transcript import Turn
from perdure.runtime.calls.plan import rework_with
from perdure.runtime.run import control
from perdure.runtime.run.calls_of_run import calls_of
from perdure.runtime.run.child import children_of
from perdure.runtime.session.environment import RunEnvironment
from perdure.runtime.session.result import Result

__all__ = ["ReplayReport", "ReplayedInput", "StoppedCall", "later_inputs", "replay", "would_replay"]

_DENIED_BY = "replay"
_WHY = "a replay makes no call that needs a decision"
_GIVEN_UP: tuple[RunState, ...] = ("failed", "waiting", "cancelled")


class ReplayedInput(msgspec.Struct, frozen=True, kw_only=True):
    """One input of the first timeline, and the run that it led to on the other."""

    turn: int  # the number of the turn that it began there
    id: str  # of its first message
    text: str
    was_there: bool = False  # the other timeline had it before this replay
    run: str | None = None  # None: it was not given there, now or before
    status: RunState | None = None
    answer: str = ""
    why: str | None = None  # in words, if the run did not simply succeed


class StoppedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the model asked for in a replay, and that was not made."""

    turn: int
    call: str
    tool: str
    effect: Effect
    arguments: str | None  # JSON text; None: forgotten
    why: str
    made_before: str | None = None  # the call of the first timeline with the same tool and arguments


class ReplayReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay did, or with `dry_run` what it would do."""

    source: str
    onto: str
    effect_max: Effect
    dry_run: bool
    inputs: tuple[ReplayedInput, ...] = ()
    stopped: tuple[StoppedCall, ...] = ()  # with `dry_run`: what the first runs had called beyond the bound

    @property
    def is_complete(self) -> bool:
        """True if every input is there, and every run ended by itself."""
        return all(
            each.was_there if each.run is None else each.status not in _GIVEN_UP for each in self.inputs
        )


def later_inputs(
    space: Space, source: Digest | None, onto: Digest | None, since: Digest | None, *, is_since_given: bool
) -> list[Turn]:
    """Return the turns with an input on the line of `source` that come after it parted from the line of `onto`.

    With `is_since_given` they are those after the commit `since`, None: all.  Raises `Invalid` if that commit is not
    on the line.
    """
    if source is None:
        return []
    first = since
    if not is_since_given:
        other = None if onto is None else ancestry.point(space, onto)
        parted = ancestry.meet(space, ancestry.point(space, source), other)
        first = None if parted is None else parted.digest
    if first is not None and not reader.is_ancestor(space, first, source):
        raise Invalid(
            f"{first[:12]} is not on the timeline whose inputs are replayed; nothing was run.",
            code="not_an_ancestor",
            advice="Name a commit that log() shows there.",
            commit=first,
        )
    passed = 0 if first is None else space.step(first).place.turn
    turns = reader.turns(space, source, limit=space.step(source).place.turn - passed)
    return [turn for turn in turns if any(_inputs(turn))]


async def replay(
    env: RunEnvironment, turns: Sequence[Turn], *, source: str, effect_max: Effect
) -> ReplayReport:
    """Run the agent on the timeline of `env` with the input of each turn, one after another.

    It ends with the first run that fails, or waits for more than a decision; later inputs are not given.  Raises
    `Conflict`, having run nothing, if the timeline has a later input already, or has undone one of them.
    """
    bound = lower(check_effect(effect_max), env.effect_max)
    env = msgspec.structs.replace(env, effect_max=bound)
    listed = await env.run_blocking(partial(_listed, env, turns))
    inputs: list[ReplayedInput] = []
    stopped: list[StoppedCall] = []
    is_over = False
    for turn, each in zip(turns, listed, strict=True):
        if (each.was_there and each.run is None) or (is_over and not each.was_there):
            inputs.append(each)
            continue
        result = await _given(env, turn)  # of a run that was there: its result, once it has ended
        is_over = result.status in _GIVEN_UP
        inputs.append(
            msgspec.structs.replace(
                each, run=result.run, status=result.status, answer=result.text, why=result.why
            )
        )
        denied = await env.run_blocking(partial(_denied, env.space, turn, result.run))
        stopped += denied
    return ReplayReport(
        source=source,
        onto=env.timeline,
        effect_max=bound,
        dry_run=False,
        inputs=tuple(inputs),
        stopped=tuple(stopped),
    )


def would_replay(
    env: RunEnvironment, turns: Sequence[Turn], *, source: str, effect_max: Effect
) -> ReplayReport:
    """Return the inputs that a replay would give, and the calls beyond the bound that they led to the first time.

    Raises `Conflict` as `replay` does.
    """
    bound = lower(check_effect(effect_max), env.effect_max)
    listed = _listed(env, turns)
    stopped = [
        _stopped(env.space, turn, record, f"beyond {bound}", record.id)
        for turn, each in zip(turns, listed, strict=True)
        for record in (calls_of(env.space, turn.run) if turn.run and not each.was_there else ())
        if not within(record.effect, bound)
    ]
    return ReplayReport(
        source=source,
        onto=env.timeline,
        effect_max=bound,
        dry_run=True,
        inputs=tuple(listed),
        stopped=tuple(stopped),
    )


def _listed(env: RunEnvironment, turns: Sequence[Turn]) -> list[ReplayedInput]:
    """Return the inputs of these turns, each with whether the timeline of `env` has it, and the run that took it there.

    Raises `Conflict` if it has a later one and not an earlier one, or if one was given there and undone.
    """
    space, head = env.space, reader.head_of(env.space, env.timeline).commit
    firsts = [next(_inputs(turn)) for turn in turns]
    labels = space.ask(*(LabelOf(space.name, id) for id, _ in firsts))
    found: list[ReplayedInput] = []
    for turn, (id, _), commits in zip(turns, firsts, labels, strict=True):
        taken = control.given(env, tuple(message for _, message in _inputs(turn)), id)
        place = next((each for each in commits if reader.is_ancestor(space, each, head)), None)
        was_there = place is not None
        if taken is not None and taken.state != "created" and not was_there:
            raise _undone(turn, env.timeline, taken.id)
        if was_there and found and not found[-1].was_there:
            raise _out_of_order(next(each for each in found if not each.was_there), turn, env.timeline)
        found.append(
            ReplayedInput(
                turn=turn.number,
                id=id,
                text=turn.input,
                was_there=was_there,
                run=taken.id if taken is not None and was_there else None,
                answer=_answer_there(space, head, place) if place is not None and taken is None else "",
            )
        )
    return found


def _answer_there(space: Space, head: Digest | None, place: Digest) -> str:
    """Return what was answered on the line of `head` to an input that it has from the line that it was forked from."""
    assert head is not None, "the input is on its line"
    last = space.turn(head, space.step(place).place.turn)
    return "".join(turn.text for turn in reader.turns(space, last.digest if last else None, limit=1))


def _undone(turn: Turn, timeline: str, run: str) -> Conflict:
    return Conflict(
        f"the input of turn {turn.number} was given to '{timeline}' before, and undone there; nothing was run.",
        code="replayed_input_undone",
        advice="Take the undo back with redo(), or fork again and replay onto that.",
        turn=turn.number,
        timeline=timeline,
        run=run,
    )


def _out_of_order(missing: ReplayedInput, later: Turn, timeline: str) -> Conflict:
    return Conflict(
        f"'{timeline}' has the input of turn {later.number} already, so that of turn {missing.turn} would come after it; "
        "nothing was run.",
        code="replay_out_of_order",
        advice=f"Replay with since='turn:{later.number - 1}', or fork again and replay onto that.",
        turn=missing.turn,
        later=later.number,
        since=later.number - 1,
        timeline=timeline,
    )


async def _given(env: RunEnvironment, turn: Turn) -> Result:
    """Run the agent with the input of a turn; deny what it asks for, until it ends."""
    messages = tuple(message for _, message in _inputs(turn))
    id = next(id for id, _ in _inputs(turn))
    try:
        result = await control.run(env, messages, id=id, retry=False)
        while result.status == "waiting" and result.approvals:
            for ticket in result.approvals:
                await env.run_blocking(partial(_deny, env, ticket.id))
            result = await control.resume(env, result.run)
    except RunFailed as failed:
        if not isinstance(failed.run, Result):
            raise
        return failed.run
    return result


def _deny(env: RunEnvironment, question: str) -> None:
    space, line = decisions.place_of(env.space, question, env.timeline)  # a child run's is on its own thread
    try:
        decisions.decide(
            space,
            question,
            "deny",
            line=line,
            head=reader.head_of(space, line).commit,
            value=None,
            by=_DENIED_BY,
            why=_WHY,
            rework=rework_with(env) if space is env.space else None,
        )
    except Decided:
        return  # a person was faster


def _inputs(turn: Turn) -> Iterator[tuple[str, Message]]:
    """Yield what the user said in a turn, with its ids, as far as it was not forgotten."""
    return ((entry.id, entry.words) for entry in turn.entries if entry.role == "user" and entry.words)


def _denied(space: Space, turn: Turn, run: str) -> Iterable[StoppedCall]:
    before = {
        (record.tool, record.args): record.id
        for inside, each in (_with_children(space, turn.run) if turn.run else ())
        for record in calls_of(inside, each)
    }
    return [
        _stopped(inside, turn, record, record.why or "denied", before.get((record.tool, record.args)))
        for inside, each in _with_children(space, run)
        for record in calls_of(inside, each)
        if record.state == "denied"
    ]


def _with_children(space: Space, run: str) -> Iterator[tuple[Space, str]]:
    """Yield a run and those below it, each with the space of its thread."""
    yield space, run
    for inside, record in children_of(space, run):
        yield from _with_children(inside, record.id)


def _stopped(space: Space, turn: Turn, record: CallRecord, why: str, before: str | None) -> StoppedCall:
    try:
        arguments = space.body(record.args).decode("utf-8", "replace")
    except Forgotten:
        arguments = None
    return StoppedCall(
        turn=turn.number,
        call=record.id,
        tool=record.tool,
        effect=record.effect,
        arguments=arguments,
        why=why,
        made_before=before,
    )

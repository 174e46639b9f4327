"""Runs recorded turns again, on another backend or with another version of an agent, and scores what comes out.

Each turn is run on a fork of its own, which begins where the turn began; the forks stay.  Calls on a fork are bounded
by an effect, so an evaluation sends nothing to the outside unless the caller allows it.  The name of an evaluation
names its forks and inputs: the same evaluation again goes on where it was interrupted, and runs no turn twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from perdure.errors import Invalid, PerdureError, RunFailed
from perdure.model import names
from perdure.model.run import Cost
from perdure.projections.transcript import Turn
from perdure.providers.profile import name_of
from perdure.runtime.session import records
from perdure.runtime.session.result import Result

if TYPE_CHECKING:
    from perdure.model.effect import Effect
    from perdure.model.message import Message
    from perdure.runtime.agent.agent import Agent
    from perdure.store.thread import Thread

__all__ = ["Evaluation", "Trial", "evaluate"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded turn, and what came out when it was run again."""

    thread: str
    turn: Turn  # as it was recorded
    timeline: str  # the fork on which it was run again
    result: Result | None = None  # None: it could not be run
    denied: tuple[str, ...] = ()  # the tools whose calls went beyond the allowed effect, or were refused
    score: float | None = None  # None: no function scores it, or it did not end
    error: PerdureError | None = None  # why it could not be run, or failed

    @property
    def text(self) -> str:
        """The last answer of the new run; empty if there is none."""
        return "" if self.result is None else self.result.text


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The trials of an evaluation, in the order of threads and turns."""

    name: str
    agent: str
    backend: str | None
    trials: tuple[Trial, ...]

    @property
    def score(self) -> float | None:
        """The mean of the scores; None if no trial has one."""
        scores = [trial.score for trial in self.trials if trial.score is not None]
        return sum(scores) / len(scores) if scores else None

    @property
    def cost(self) -> Cost:
        """What the trials cost."""
        return sum((trial.result.cost for trial in self.trials if trial.result is not None), Cost())


def evaluate(
    threads: Iterable[Thread],
    agent: Agent,
    *,
    name: str,
    score: Callable[[Trial], float] | None,
    turns: Sequence[int] | None,
    effect_max: Effect,
) -> Evaluation:
    """Run turns of these threads again with `agent`, each on a fork of its own, and score them.

    `turns` are the numbers of the turns, None: every turn that a run made from an input.  A trial that cannot be run,
    or fails, has an `error`; the others go on.  Raises `Invalid` for a name that cannot be a timeline's.
    """
    names.check_name("evaluation", name)
    found = [
        _trial(thread, turn, agent, name=name, effect_max=effect_max, score=score)
        for thread in threads
        for turn in thread.turns()
        if turn.kind == "message"
        and turn.run is not None
        and turn.input
        and (turns is None or turn.number in turns)
    ]
    backend = None if agent.backend is None else name_of(agent.backend)
    return Evaluation(name=name, agent=agent.name, backend=backend, trials=tuple(found))


def _trial(
    thread: Thread,
    turn: Turn,
    agent: Agent,
    *,
    name: str,
    effect_max: Effect,
    score: Callable[[Trial], float] | None,
) -> Trial:
    line, id = f"eval/{name}/{turn.number}", f"eval:{name}:{turn.number}"
    trial = Trial(thread=thread.id, turn=turn, timeline=line)
    try:
        fork = thread.fork(line, at=turn.before, effect_max=effect_max, op_id=f"{id}:fork")
        recorded, wanted = fork.backend, agent.backend
        if wanted is not None and recorded is not None and recorded != name_of(wanted):
            fork.switch(wanted, reason=f"evaluation {name}", op_id=f"{id}:switch")
        try:
            result = fork.run(_messages(thread, turn), id=id, retry=False)
        except RunFailed as failed:
            result = failed.run if isinstance(failed.run, Result) else None
            trial = msgspec.structs.replace(trial, error=failed)
    except PerdureError as error:
        return msgspec.structs.replace(trial, error=error)
    denied = (
        ()
        if result is None
        else tuple(call.tool for call in fork.calls(run=result.run) if call.state == "denied")
    )
    trial = msgspec.structs.replace(trial, result=result, denied=denied)
    if score is None or result is None or result.status not in ("succeeded", "stopped"):
        return trial
    return msgspec.structs.replace(trial, score=_scored(score, trial))


def _messages(thread: Thread, turn: Turn) -> list[Message]:
    """Return the messages that the turn's run came with, without those that were said while it ran."""
    found = records.find(thread._space, turn.run or "")  # pyright: ignore[reportPrivateUsage]
    ids = found.record.input if found is not None else ()
    return [entry.message for entry in turn.entries if entry.id in ids]


def _scored(score: Callable[[Trial], float], trial: Trial) -> float:
    found = score(trial)
    if not isinstance(found, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"a score is a number, not {found!r}; turn {trial.turn.number} of '{trial.thread}' was run, and has no score.",
            code="score_invalid",
            thread=trial.thread,
            turn=trial.turn.number,
        )
    return float(found)

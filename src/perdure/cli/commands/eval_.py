"""`perdure eval`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.input.stores import writing
from perdure.cli.input.user_code import Code, found_in, function_in, with_code
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.ledger_words import on_one_line, state
from perdure.cli.output.screen import Column, Screen
from perdure.errors import NotFound
from perdure.model.effect import Effect
from perdure.model.head import MAIN
from perdure.model.run import Cost
from perdure.shapes.ledger import CostShape
from perdure.store.evaluation import Evaluation, Trial

__all__ = ["EvalAnswer", "TrialShape", "eval_"]

_COLUMNS = (
    Column("thread", "name", gives_way=True),
    Column("turn", right=True),
    Column("state"),
    Column("score", right=True),
    Column("cost", right=True),
    Column("answer", gives_way=True),
)


class TrialShape(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded turn that was run again."""

    thread: str
    turn: int
    timeline: str  # the fork, which stays
    run: str | None  # null: it could not be run
    state: str
    score: float | None
    input: str
    before: str  # the recorded answer
    text: str  # the new answer
    steps: int
    cost: CostShape
    denied: list[str]  # tools whose calls went beyond the allowed effect, or were refused
    error: str | None

    @classmethod
    def of(cls, trial: Trial) -> TrialShape:
        """Return the trial in the shape of --json."""
        result = trial.result
        return cls(
            thread=trial.thread,
            turn=trial.turn.number,
            timeline=trial.timeline,
            run=result.run if result else None,
            state=result.status if result else "not run",
            score=trial.score,
            input=trial.turn.input,
            before=trial.turn.text,
            text=trial.text,
            steps=result.steps if result else 0,
            cost=CostShape.of(result.cost if result else Cost()),
            denied=list(trial.denied),
            error=None if trial.error is None else str(trial.error),
        )


class EvalAnswer(Answer, frozen=True, kw_only=True):
    """What came out of recorded turns that were run again."""

    name: str
    agent: str
    backend: str | None
    score: float | None  # the mean
    cost: CostShape
    trials: list[TrialShape]

    def show(self, screen: Screen) -> None:
        """Print a table, and where to look."""
        if not self.trials:
            screen.say("No turn was run again: none of these turns has an input.")
            return
        screen.table(
            _COLUMNS,
            [
                (
                    each.thread,
                    f"{each.turn}",
                    state(each.state),
                    "" if each.score is None else f"{each.score:.2f}",
                    str(each.cost.cost) if each.cost.steps else "",
                    on_one_line(each.error or each.text),
                )
                for each in self.trials
            ],
        )
        screen.gap()
        mean = "no score" if self.score is None else f"mean score {self.score:.2f}"
        on = f" on {self.backend}" if self.backend else ""
        screen.say(f"{self.agent}{on}: {mean}, cost {self.cost.cost}")
        for each in self.trials:
            if each.denied:
                screen.cut(f"  turn {each.turn} of {each.thread}: not made: {', '.join(each.denied)}")
        first = self.trials[0]
        screen.suggest("The forks stay: ", "threads", "log", first.thread, "--timeline", first.timeline)


def eval_(
    threads: Annotated[
        list[str], Parameter(name="THREAD", completer=in_store, help="The threads whose turns are run again")
    ],
    /,
    *,
    code: Code = None,
    to: Annotated[
        str | None, Parameter(name="--to", metavar="BACKEND", help="The backend; the agent's own if left out")
    ] = None,
    turns: Annotated[
        list[int] | None,
        Parameter(name="--turn", metavar="N", negative=(), help="Only this turn; may be repeated"),
    ] = None,
    score: Annotated[
        str | None,
        Parameter(name="--score", metavar="MODULE:NAME", help="A function of a trial that returns a number"),
    ] = None,
    effect_max: Annotated[
        Effect, Parameter(name="--effect-max", help="The strongest effect of calls")
    ] = "read_only",
    name: Annotated[
        str | None,
        Parameter(name="--name", metavar="NAME", help="Names the forks; the same name again goes on"),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> EvalAnswer:
    """Run recorded turns again, and score them

    The agent may be on another backend, or another version of itself. Each turn is run on a fork of its own, which
    stays. Calls beyond --effect-max are not made.
    """
    with writing(everywhere) as store:
        with with_code(store, threads[0], code, MAIN, needed=True) as first:
            agent = found_in(code or "").agents[first.agent]
            if to is not None:
                agent = agent.on(to)
            scoring = None if score is None else function_in(score)
            found = store.evaluate(
                agent, threads, score=scoring, turns=turns, effect_max=effect_max, name=name
            )
        if turns and not found.trials:
            raise NotFound(
                f"none of the turns {', '.join(map(str, turns))} is there, or has an input; nothing was run.",
                code="turns_not_found",
                advice="See `perdure threads log`.",
            )
        return _answer(found)


def _answer(found: Evaluation) -> EvalAnswer:
    return EvalAnswer(
        name=found.name,
        agent=found.agent,
        backend=found.backend,
        score=found.score,
        cost=CostShape.of(found.cost),
        trials=[TrialShape.of(trial) for trial in found.trials],
    )

"""`perdure costs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, AnyThread, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.screen import Column, Screen
from perdure.model.run import Cost, Usage
from perdure.shapes.conversation import turns_of
from perdure.shapes.store import CostPage
from perdure.shapes.text import stamp
from perdure.store.store import Store

__all__ = ["Costs", "costs"]

_COLUMNS = (
    Column("of", "name", gives_way=True),
    Column("steps", right=True),
    Column("tokens in", right=True),
    Column("cached", right=True, leaves=1),
    Column("tokens out", right=True),
    Column("cost", right=True),
    Column("unpriced", "quiet", right=True),
)
_RUN_COLUMNS = (Column("of", "name", is_id=True), *_COLUMNS[1:])
_UNPRICED = (
    "Steps of unknown price add nothing. Prices come from the catalog of models and from your models file: "
    "$PERDURE_MODELS, else ~/.config/perdure/models.json."
)


class Costs(CostPage, Answer, frozen=True, kw_only=True):
    """What was spent on models."""

    def show(self, screen: Screen) -> None:
        """Print a table, and the sum."""
        rows = [(each, each.of if each.of is not None else "no owner") for each in self.costs]
        rows = [*rows, (self.total, "together")] if len(rows) > 1 else rows
        if not rows:
            screen.say("No model has taken a step here.")
            return
        screen.table(
            _RUN_COLUMNS if self.by == "run" else _COLUMNS,
            [
                (
                    name,
                    f"{each.cost.steps:,}",
                    f"{each.usage.input_tokens:,}",
                    f"{each.usage.cached_tokens:,}",
                    f"{each.usage.output_tokens:,}",
                    _known(each.cost.cost),
                    f"{each.cost.unpriced:,}" if each.cost.unpriced else "",
                )
                for each, name in rows
            ],
        )
        if self.total.cost.unpriced:
            screen.wrap((_UNPRICED, "quiet"))


def costs(
    thread: AnyThread = None,
    /,
    *,
    by: Annotated[
        Literal["run", "turn", "thread", "owner", "agent", "model", "day"] | None,
        Parameter(
            help="What to add up; with a thread it is its runs, else threads; a day is UTC, and the run's first"
        ),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Costs:
    """Show what models cost

    Each step is counted by the prices of the day on which it was taken, also if it was undone. A step whose price was
    not known is counted apart.
    """
    kind = by or ("thread" if thread is None else "run")
    with reading(everywhere) as store:
        spent = _spent(store, thread, kind)
        return Costs.of(kind, sorted(spent, key=lambda each: str(each[0])) if kind == "day" else spent)


def _known(cost: Cost) -> str:
    """Return the sum of the steps whose price is known; the number of the others has a column of its own."""
    return str(cost if cost.unpriced == cost.steps else msgspec.structs.replace(cost, unpriced=0))


def _spent(store: Store, thread: str | None, kind: str) -> Iterator[tuple[str | None, Cost, Usage]]:
    """Yield what each run, or each turn of the main timelines, cost, with the name that it is counted under."""
    for each in store.threads() if thread is None else (store.thread(thread),):
        if kind == "turn":
            for turn in turns_of(each, limit=None):
                of = f"turn {turn.number}" if thread is not None else f"{each.id}, turn {turn.number}"
                yield of, turn.cost, turn.usage
            continue
        names: dict[str, str | None] = {"thread": each.id, "owner": each.owner, "agent": each.agent}
        days = {run.id: stamp(run.begun_at)[:10] for run in each.runs()} if kind == "day" else {}
        for name, cost, usage in each.costs("model" if kind == "model" else "run"):
            yield days.get(name) or names.get(kind, name), cost, usage

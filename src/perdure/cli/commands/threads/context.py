"""`perdure threads context`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.models.shapes import previewed_backend
from perdure.cli.input.lookup import resolve
from perdure.cli.input.stores import reading
from perdure.cli.input.user_code import with_code
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.screen import Column, Part, Screen
from perdure.context.plan import TIERS
from perdure.model.head import MAIN
from perdure.shapes.text import shortened
from perdure.shapes.threads import ContextItem, ContextShape

__all__ = ["Planned", "context"]

_COLUMNS = (
    Column("tier"),
    Column("what", "name", gives_way=True),
    Column("tokens", right=True),
    Column(""),
    Column("why", "quiet", gives_way=True),
)
_STYLES = {1: "blue", 2: "magenta", 3: "cyan", 4: "green", 5: "yellow", 6: "bright_black", 7: "red"}
_SHORT = {1: "system", 2: "checkpoint", 3: "task", 4: "turns", 5: "memory", 6: "artifacts", 7: "older"}
_BAR_MAX = 60
_MEMORY = 5  # the tier
_TEXT_SHOWN = 100


class Planned(ContextShape, Answer, frozen=True, kw_only=True):
    """What a backend is shown, item by item; with `--at`, what it was shown."""

    def show(self, screen: Screen) -> None:
        """Print the table, the bar and the sum."""
        screen.say((self.backend, "title"), (f"  {self.thread} on {self.timeline}", "quiet"))
        if self.commit is not None:
            screen.say(("the context of the message at ", "quiet"), digest(self.commit))
        screen.gap()
        screen.table(_COLUMNS, _rows(self.items))
        screen.gap()
        for parts in _bar(self, min(_BAR_MAX, max(20, screen.width - 4))):
            screen.say(*parts)


def context(
    thread: ThreadId,
    /,
    *,
    to: Annotated[
        str | None,
        Parameter(metavar="BACKEND", help="The backend; the one that the timeline is on if left out"),
    ] = None,
    timeline: Timeline = MAIN,
    at: At = None,
    code: Annotated[
        str | None,
        Parameter(
            name="--code",
            metavar="MODULE:NAME",
            help="Where the agent is declared; without it, its instructions and tools are those of its last step",
        ),
    ] = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Planned:
    """Show the context that a backend gets: each item, its tokens, and why it is in or out

    With --at it is rebuilt as the model got it for its message at that commit, or the last one before it.
    With --to it is what another backend would get after a switch. Nothing is sent.
    """
    with reading(everywhere) as store, with_code(store, thread, code, timeline) as found:
        if at is not None and to is None:
            shown = found.shown(resolve(found, at))
            return Planned.of(found, shown.plan, shown)
        to = None if to is None else previewed_backend(to)
        plan = found.plan(to) if at is None else found.plan(to, at=resolve(found, at))
        return Planned.of(found, plan, None)


def _rows(items: Sequence[ContextItem]) -> Iterator[tuple[Part, ...]]:
    """Yield a row for each item; only the first of a tier names the tier."""
    before = 0
    for item in items:
        tier = f"{item.tier} {_SHORT[item.tier]}" if item.tier != before else ""
        tokens = f"{item.tokens:,}" if item.included or item.tokens else ""
        mark = ("in", "good") if item.included else ("out", "quiet")
        yield (tier, _STYLES[item.tier]), _what(item), tokens, mark, item.why
        before = item.tier


def _what(item: ContextItem) -> str:
    """Return what an item is: its words first if it is one of memory, whose id finds it again."""
    if not item.text:
        return item.what
    text = shortened(item.text, _TEXT_SHOWN)
    return f"{item.what}: {text}" if item.tier != _MEMORY else f"{text} ({item.what.rpartition('/')[2]})"


def _bar(plan: Planned, width: int) -> Iterator[tuple[Part, ...]]:
    """Yield the window as a bar: a part for each tier, the free part, and the part reserved for the answer."""
    if plan.window is None:
        yield ((f"{plan.tokens:,} tokens", ""), (", of a window of unknown size", "quiet"))
        return
    tiers = {
        tier: sum(item.tokens for item in plan.items if item.included and item.tier == tier) for tier in TIERS
    }
    parts: list[Part] = []
    used = 0
    for tier, tokens in tiers.items():
        cells = min(width - used, max(1, round(width * tokens / plan.window))) if tokens else 0
        parts.append(("█" * cells, _STYLES[tier]))
        used += cells
    kept = min(width - used, max(1, round(width * plan.reserved / plan.window)))
    parts.append(("·" * (width - used - kept), "quiet"))
    parts.append(("░" * kept, "quiet"))
    yield tuple(parts)
    shares = [(f"█ {_SHORT[tier]} {tokens:,}", _STYLES[tier]) for tier, tokens in tiers.items() if tokens]
    yield tuple(part for share in shares for part in ("   ", share))[1:]
    state = ("fits", "good") if plan.fits else ("may be too much", "bad")
    budget = plan.window - plan.reserved
    yield state, f": {plan.tokens:,} of {budget:,} tokens", (f", give or take {plan.margin:,}", "quiet")
    yield ((f"the window has {plan.window:,}, of which {plan.reserved:,} are kept for the answer", "quiet"),)

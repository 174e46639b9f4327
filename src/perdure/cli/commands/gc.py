"""`perdure gc`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.input.stores import reading, writing
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.formatting import count, duration
from perdure.cli.output.progress import working
from perdure.cli.output.screen import Column, Screen
from perdure.errors import Invalid
from perdure.history.retention import RetentionPlan, RetentionPolicy, SpacePlan, SpaceRemoval
from perdure.history.retention.planner import space_of
from perdure.model.memory import MEMORY
from perdure.shapes.text import size

__all__ = ["Collected", "SpaceShape", "gc"]

_COLUMNS = (
    Column("what", "name", is_id=True),
    Column("why", gives_way=True, wraps=True),
    Column("objects", right=True),
    Column("bytes", right=True),
)


_TIMELINES_SHOWN = 8
_TIMELINES_KEPT = (
    "A fork without a commit of its own is kept, and an old main until main has a commit after the promotion."
)


_WORDS_IN_THREADS = (
    "Threads that wrote an item of a memory, or whose models were shown it, keep its words: "
    "`perdure memory forget ITEM --owner WHO --erase` names them."
)


class SpaceShape(msgspec.Struct, frozen=True, kw_only=True):
    """What goes of one space."""

    space: str
    name: str  # of its thread; `agent:` and `memory:` before that of an agent or an owner
    why: str
    objects: int  # that go
    whole: bool  # they are all that the space has
    bytes: int  # that these objects hold, before compression
    freed: int | None  # bytes that were set free at rest; null: nothing was changed
    timelines: list[str]  # whose content goes, or what of it only they need
    thread: str | None  # the id of a thread that goes, or would go, because of its age
    left_alone: str | None  # why nothing goes, or less than planned


class Collected(Answer, frozen=True, kw_only=True):
    """What a policy forgets, or would forget."""

    applied: bool
    policy: dict[str, float | bool]
    agents: list[str]  # in whose threads alone; empty: in all
    owners: list[str]
    spaces: list[SpaceShape]
    objects: int
    bytes: int
    freed: int | None

    def show(self, screen: Screen) -> None:
        """Print a table and the sum."""
        if not self.policy:
            _show_policies(screen)
            return
        shown = [
            (
                each.name,
                _shown_why(each),
                f"all {each.objects:,}" if each.whole else f"{each.objects:,}",
                size(each.bytes),
            )
            for each in self.spaces
        ]
        if not shown:
            screen.say("Nothing to forget under this policy.")
            if "undone_after_days" in self.policy:
                screen.say(("What redo leads back to is kept; a new turn after an undo lets it go.", "quiet"))
            if "timelines_after_days" in self.policy:
                screen.wrap((_TIMELINES_KEPT, "quiet"))
            return
        screen.table(_COLUMNS, shown)
        total = f"{count(self.objects, 'object')}, {size(self.bytes)}"
        if self.freed is not None:
            told = f"Forgot {total}. Digests and the chain of commits still verify."
            screen.wrap(told, indent=2, label=("✓ ", "good"))
            at_rest = f"As stored, compressed, that was {size(self.freed)}, which new writes will use."
            screen.wrap((at_rest, "quiet"))
        else:
            screen.wrap(f"Would forget {total}. Nothing was changed; --apply does it.")
        if any(each.name.startswith(MEMORY) for each in self.spaces):
            screen.wrap((_WORDS_IN_THREADS, "quiet"))


_Undone: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="TIME",
        help="Delete the content of commits that were undone longer ago than this, such as 12h or 30d, and that no redo can reach",
    ),
]
_Unfinished: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="TIME",
        help="Delete the content of uploads that began longer ago than this and never finished",
    ),
]
_Removed: TypeAlias = Annotated[
    bool,
    Parameter(
        negative=(),
        show_default=False,
        help="Delete threads that were removed, and content that only dropped timelines use",
    ),
]
_Timelines: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="TIME",
        help="Delete content that only timelines use that nothing was committed to for this long; never main, and none with open work",
    ),
]
_Superseded: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="TIME",
        help="Delete values of threads and memories that no state since then has had; messages, calls and commits stay",
    ),
]
_Threads: TypeAlias = Annotated[
    str | None,
    Parameter(
        metavar="TIME",
        help="Delete whole threads that nothing was written to for this long and on which nothing is open",
    ),
]
_OnlyAgents: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--agent",
        metavar="NAME",
        completer=in_store,
        negative=(),
        show_default=False,
        help="Only in threads of this agent; may be repeated",
    ),
]
_OnlyOwners: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--owner",
        metavar="WHO",
        completer=in_store,
        negative=(),
        show_default=False,
        help="Only in threads and the memory of this owner; may be repeated",
    ),
]


def gc(
    *,
    undone_older_than: _Undone = None,
    unfinished_older_than: _Unfinished = None,
    removed: _Removed = False,
    timelines_older_than: _Timelines = None,
    superseded_older_than: _Superseded = None,
    threads_older_than: _Threads = None,
    agent: _OnlyAgents = None,
    owner: _OnlyOwners = None,
    apply: Annotated[
        bool, Parameter(negative=(), show_default=False, help="Do it; without this nothing is changed")
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> Collected:
    """Delete what your retention policy no longer keeps

    Everything ever committed is kept until you give a policy, and nothing is deleted on which work is open. What a
    timeline that stays can still reach is deleted only by --superseded-older-than. Without --apply this only prints
    what would be deleted.
    """
    policy = RetentionPolicy(
        undone_after_days=_days(undone_older_than),
        staged_after_days=_days(unfinished_older_than),
        removed_threads=removed,
        timelines_after_days=_days(timelines_older_than),
        superseded_after_days=_days(superseded_older_than),
        threads_after_days=_days(threads_older_than),
        agents=tuple(agent or ()),
        owners=tuple(owner or ()),
    )
    if apply and msgspec.structs.replace(policy, agents=(), owners=()) == RetentionPolicy():
        raise Invalid(
            "no policy was given, so nothing was forgotten.",
            code="policy_missing",
            advice="See `perdure gc`.",
        )
    opened = writing(everywhere) if apply else reading(everywhere)
    with opened as store, working("Looking", quiet=everywhere.json):
        planned = store.gc_plan(policy)
        engine = store._resources.engine  # pyright: ignore[reportPrivateUsage]
        names = {each.space: each.thread or space_of(engine, each.space).label for each in planned.spaces}
        done = tuple(store.gc(planned)) if apply else None
    return _planned(planned, names) if done is None else _done(planned, done, names)


def _days(age: str | None) -> float | None:
    """Return an age in days, whole ones as an integer; None: none was given."""
    if age is None:
        return None
    days = duration(age) / timedelta(days=1)
    return int(days) if days.is_integer() else days


def _planned(plan: RetentionPlan, names: Mapping[str, str]) -> Collected:
    return Collected(
        applied=False,
        policy=_said(plan.policy),
        agents=list(plan.policy.agents),
        owners=list(plan.policy.owners),
        spaces=[_space(each, names[each.space]) for each in plan.spaces],
        objects=plan.count,
        bytes=plan.bytes,
        freed=None,
    )


def _done(plan: RetentionPlan, done: tuple[SpaceRemoval, ...], names: Mapping[str, str]) -> Collected:
    planned = {each.space: each for each in plan.spaces}
    spaces = [
        SpaceShape(
            space=each.space,
            name=names[each.space],
            why=_why(planned[each.space]),
            objects=each.count,
            whole=each.dropped,
            bytes=each.bytes,
            freed=each.freed,
            timelines=list(planned[each.space].timelines),
            thread=planned[each.space].thread,
            left_alone=each.left_alone,
        )
        for each in done
    ]
    return Collected(
        applied=True,
        policy=_said(plan.policy),
        agents=list(plan.policy.agents),
        owners=list(plan.policy.owners),
        spaces=spaces,
        objects=sum(each.count for each in done),
        bytes=sum(each.bytes for each in done),
        freed=sum(each.freed for each in done),
    )


def _space(plan: SpacePlan, name: str) -> SpaceShape:
    return SpaceShape(
        space=plan.space,
        name=name,
        why=_why(plan),
        objects=plan.count,
        whole=plan.dropped,
        bytes=plan.bytes,
        freed=None,
        timelines=list(plan.timelines),
        thread=plan.thread,
        left_alone=plan.left_alone,
    )


def _shown_why(each: SpaceShape) -> str:
    if each.left_alone is None:
        return each.why.replace(_WORDS["timeline"], _named(each.timelines)) if each.timelines else each.why
    return each.left_alone if each.thread is None else f"it stays: {each.left_alone}"


def _named(timelines: list[str]) -> str:
    shown = ", ".join(timelines[:_TIMELINES_SHOWN])
    more = len(timelines) - _TIMELINES_SHOWN
    return f"timeline{'s' if timelines[1:] else ''} {shown}" + (f" and {more} more" if more > 0 else "")


def _why(plan: SpacePlan) -> str:
    if plan.dropped:
        return "removed" if plan.thread is None else "nothing was written to it"
    return ", ".join(sorted({_WORDS.get(lot.why, lot.why) for lot in plan.lots}))


_WORDS = {"staged": "unfinished", "timeline": "old timelines", "superseded": "superseded values"}


def _said(policy: RetentionPolicy) -> dict[str, float | bool]:
    """Return the options of a policy that were set."""
    given: dict[str, object] = msgspec.structs.asdict(policy)
    return {
        name: value for name, value in given.items() if isinstance(value, int | float) and value is not False
    }


def _show_policies(screen: Screen) -> None:
    screen.say("Everything is kept until you say what may go. Choose a policy:")
    screen.facts(
        [
            (
                "  --undone-older-than 30d",
                "the content of commits that were undone, and that no redo leads back to",
            ),
            ("  --unfinished-older-than 7d", "what uploads left that were never finished"),
            ("  --removed", "threads that were removed, and timelines that were dropped"),
            (
                "  --timelines-older-than 90d",
                "content that only timelines use that nothing was committed to since; never main",
            ),
            (
                "  --superseded-older-than 1y",
                "values that no state since then has had; messages, calls and commits stay",
            ),
            ("  --threads-older-than 1y", "whole threads that nothing was written to since"),
            ("  --agent NAME, --owner WHO", "beside one of these: only in threads of theirs"),
        ]
    )
    screen.say(("Nothing is changed before you add --apply.", "quiet"))

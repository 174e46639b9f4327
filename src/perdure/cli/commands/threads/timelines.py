"""`perdure threads fork`.

`perdure threads promote`.

`perdure threads seal`.

`perdure threads merge`.

`perdure threads cherry-pick`.

`perdure threads replay`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
from cyclopts import Parameter
from msgspec import UNSET

from perdure.cli.commands.threads.moves import MoveAnswer
from perdure.cli.completion import in_store
from perdure.cli.errors import CODES
from perdure.cli.input.lookup import given, resolve
from perdure.cli.input.stores import reading, writing
from perdure.cli.input.user_code import Code, with_code
from perdure.cli.input.users import os_user
from perdure.cli.options import EVERYWHERE, At, DryRun, Everywhere, OpId, Reason, ThreadId, Timeline
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest, show_changed, show_conflicts
from perdure.cli.output.formatting import count
from perdure.cli.output.ledger_words import on_one_line, state
from perdure.cli.output.screen import Column, Part, Screen, console
from perdure.errors import Conflict, Invalid, MergeConflict, PerdureError
from perdure.history.merge import Taken
from perdure.model.effect import Effect
from perdure.model.head import MAIN
from perdure.model.merge_rules import Side
from perdure.runtime.run.replay import ReplayReport
from perdure.shapes.comparison import ConflictShape, MergeShape, PickShape
from perdure.shapes.text import in_json, shortened
from perdure.shapes.threads import ForkShape, PromoteShape
from perdure.store.thread import Thread

__all__ = [
    "ForkAnswer",
    "MergedLine",
    "PickedTurn",
    "Promoted",
    "ReplayAnswer",
    "SealedLine",
    "cherry_pick",
    "fork",
    "merge",
    "promote",
    "replay",
    "seal",
]


class ForkAnswer(ForkShape, Answer, frozen=True, kw_only=True):
    """A timeline that began."""

    def show(self, screen: Screen) -> None:
        """Print one sentence."""
        screen.sentence(
            "Forked ",
            (self.head.timeline, "line"),
            f" from {self.timeline} of ",
            (self.thread, "name"),
            " at ",
            digest(self.head.commit),
        )


def fork(
    thread: ThreadId,
    name: Annotated[str, Parameter(name="NAME", help="The name of the new timeline")],
    /,
    *,
    timeline: Timeline = MAIN,
    at: At = None,
    effect_max: Annotated[
        Effect | None,
        Parameter(
            metavar="EFFECT",
            help="The strongest effect of tool calls there, such as read_only; as before if left out",
        ),
    ] = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> ForkAnswer:
    """Fork a timeline at any of its commits; nothing is copied"""
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        moment = UNSET if at is None else given(found, at)
        begun = found.fork(name, at=moment, effect_max=effect_max, op_id=op_id, author=os_user())
        return ForkAnswer.of(found, begun)


class Promoted(PromoteShape, MoveAnswer, frozen=True, kw_only=True):
    """The head of main, and the name of the old main."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return f"Promoted {self.source}, keeping the old main as {self.kept_as}"

    def show(self, screen: Screen) -> None:
        """Print one sentence, and how to take it back: `undo` alone goes over a turn of the new main."""
        MoveAnswer.show(self, screen)
        screen.suggest("Take it back: ", "threads", "undo", self.thread, "--to", _version_of(self.kept_as))


def promote(
    thread: ThreadId,
    name: Annotated[str, Parameter(name="NAME", completer=in_store, help="The timeline that becomes main")],
    /,
    *,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Promoted:
    """Make another timeline main; the old main is kept, sealed"""
    with writing(everywhere) as store:
        found = store.thread(thread)
        head = found.promote(name, op_id=op_id, author=os_user())
        return Promoted.of(found, head, name)


def _version_of(kept_as: str) -> str:
    """Return the moment of main at which a timeline was promoted; the name of the old main ends with it."""
    return f"version:{kept_as.rpartition('.v')[2]}"


class SealedLine(MoveAnswer, frozen=True, kw_only=True):
    """The last head of the timeline."""

    @property
    def summary(self) -> str:
        """Return what happened."""
        return "Sealed"


def seal(
    thread: ThreadId,
    name: Annotated[
        str | None,
        Parameter(name="NAME", completer=in_store, help="The timeline to seal", show_default=False),
    ] = None,
    /,
    *,
    timeline: Annotated[
        str | None, Parameter(metavar="NAME", completer=in_store, help="The timeline to seal, as an option")
    ] = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> SealedLine:
    """Seal a timeline: it takes no more writes

    It can still be read, forked and promoted.
    """
    wanted = {given for given in (name, timeline) if given is not None}
    if len(wanted) != 1:
        raise Invalid(
            "a seal is permanent, so name exactly one timeline, also for main; nothing was sealed.",
            code="one_timeline",
        )
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=wanted.pop())
        return SealedLine.by(found, found.seal(op_id=op_id, author=os_user()))


Ours: TypeAlias = Annotated[
    bool,
    Parameter(negative=(), show_default=False, help="Keep the value that is there where there is a conflict"),
]
Theirs: TypeAlias = Annotated[
    bool, Parameter(negative=(), show_default=False, help="Take the other value where there is a conflict")
]
OnlyPaths: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name="--path",
        metavar="PATH[=SIDE]",
        completer=in_store,
        negative=(),
        show_default=False,
        help="The side at this path and below it: =ours or =theirs. Without one, the side of --ours or --theirs, which "
        "then counts at such paths only. May be repeated",
    ),
]


def _preferred(paths: list[str] | None, *, ours: bool, theirs: bool) -> dict[str, Side] | None:
    """Return the side that wins conflicts, by path prefix; None: neither."""
    if ours and theirs:
        raise Invalid(
            "--ours and --theirs were both given; nothing was written.",
            code="options_conflict",
            advice="Give one of them.",
        )
    prefer: dict[str, Side] = {}
    bare: list[str] = []
    for each in paths or ():
        path, _, named = each.rpartition("=")
        match named:
            case "ours" | "theirs" if path:
                prefer[path] = named
            case _ if path and "/" not in named:
                raise Invalid(
                    f"--path {each}: {named or 'nothing'} is neither ours nor theirs; nothing was written.",
                    code="side_invalid",
                    advice=f"Write --path {path}=ours or --path {path}=theirs; for a path of this name, {each}=ours.",
                )
            case _:
                bare.append(each)
    if ours or theirs:
        side: Side = "ours" if ours else "theirs"
        everywhere: dict[str, Side] = dict.fromkeys(bare or ["/"], side)
        return everywhere | prefer
    if bare:
        raise Invalid(
            f"--path {bare[0]} was given without a side; nothing was written.",
            code="option_missing",
            advice=f"Write --path {bare[0]}=ours or --path {bare[0]}=theirs, or add --ours or --theirs.",
        )
    return prefer or None


def _show_planned(screen: Screen, act: str, planned: MergeShape | PickShape) -> None:
    """Print what a dry run found: the paths that would change, and those in conflict."""
    many = count(len(planned.changed), "path") if planned.changed else "nothing"
    screen.sentence(act, (planned.head.timeline, "line"), f" would change {many}")
    show_changed(screen, planned.changed, whole=True)
    if planned.conflicts:
        paths = count(len(planned.conflicts), "path")
        screen.say(("✗ ", "bad"), f"{paths} in conflict, so nothing would be written:")
        show_conflicts(screen, planned.conflicts)
        also = {_BY_KEY if each.keys else _AS_A_WHOLE for each in planned.conflicts}
        screen.wrap((" ".join((_SETTLED, *sorted(also))), "quiet"))


@contextmanager
def _showing_conflicts(everywhere: Everywhere, thread: Thread, plan: Callable[[], Taken]) -> Generator[None]:
    """Print the values of the conflict that the block raises before its error, unless programs read it; `plan` has them."""
    try:
        yield
    except MergeConflict as conflict:
        if not everywhere.json:
            paths = {each.path for each in conflict.conflicts}
            with suppress(PerdureError):  # the values may be gone, and the error is about the conflict
                planned = plan()
                first = next(
                    (each for each in planned.picks if each.conflicts), planned
                )  # the one that is named
                found = [each for each in ConflictShape.every(thread, first) if each.path in paths]
                show_conflicts(Screen(console(stderr=True)), found[:_CONFLICTS_SHOWN])
        raise


_CONFLICTS_SHOWN = 5  # before an error; a dry run shows every one


_SETTLED = "--ours or --theirs settles them, with --path one of them."
_BY_KEY = "In a document that is joined key by key the side wins these keys alone; what else either changed is taken."
_AS_A_WHOLE = (
    "A document conflicts as a whole: keep what changes apart at paths of its own, or declare a rule for it, such as "
    'perdure.state("/trip.json", merge="keys").'
)


class MergedLine(MergeShape, Answer, frozen=True, kw_only=True):
    """The result of a merge."""

    @property
    def exit_code(self) -> int:
        """Return that of a conflict, if a dry run found one."""
        return CODES[Conflict] if self.conflicts else 0

    def show(self, screen: Screen) -> None:
        """Print one sentence, or what a dry run found."""
        target = self.head.timeline
        if self.dry_run and (self.changed or self.conflicts):
            _show_planned(screen, f"Merging {self.source} into ", self)
            return
        if self.commit is None:
            screen.say((self.source, "line"), f" has no change that {target} lacks; nothing was written.")
            return
        screen.sentence(
            "Merged ",
            (self.source, "line"),
            " into ",
            (target, "line"),
            f", {count(self.paths, 'path')} changed, ",
            digest(self.commit),
        )


def merge(
    thread: ThreadId,
    name: Annotated[str, Parameter(name="NAME", completer=in_store, help="The timeline to merge from")],
    /,
    *,
    ours: Ours = False,
    theirs: Theirs = False,
    path: OnlyPaths = None,
    dry_run: DryRun = False,
    timeline: Timeline = MAIN,
    reason: Reason = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> MergedLine:
    """Merge the changes of another timeline

    Paths that only one timeline changed merge, and so do paths that both changed to the same value.
    Others are merged by the rule that the agent declares for them, or they are a conflict: the error
    names each, and nothing is written. --ours keeps the value of this timeline where there is a conflict,
    --theirs takes that of the other, and --path says it for one path: --ours --path /notes=theirs.
    --dry-run shows the paths that would change and those in conflict.
    """
    prefer = _preferred(path, ours=ours, theirs=theirs)
    with (reading if dry_run else writing)(everywhere) as store:
        found = store.thread(thread, timeline=timeline)
        with _showing_conflicts(everywhere, found, lambda: found.merge(name, prefer=prefer, dry_run=True)):
            outcome = found.merge(name, reason=reason or None, prefer=prefer, dry_run=dry_run, op_id=op_id)
        return MergedLine.of(found, name, outcome, dry_run=dry_run)


class PickedTurn(PickShape, Answer, frozen=True, kw_only=True):
    """One turn, or commit, whose change of state was applied to another timeline."""

    @property
    def exit_code(self) -> int:
        """Return that of a conflict, if a dry run found one."""
        return CODES[Conflict] if self.conflicts else 0

    def show(self, screen: Screen) -> None:
        """Print one sentence, or what a dry run found."""
        if self.dry_run and (self.changed or self.conflicts):
            _show_planned(screen, f"Picking {self.picked} onto ", self)
            return
        if self.commit is None:
            screen.say(f"{self.picked} changed nothing that ", (self.head.timeline, "line"), " lacks.")
            return
        screen.sentence(
            f"Picked {self.picked} onto ",
            (self.head.timeline, "line"),
            f", {count(self.paths, 'path')} changed, ",
            digest(self.commit),
        )


_TURNS = re.compile(r"(?:turn:)?[0-9]{1,9}(?:\.\.(?:turn:)?[0-9]{1,9})?\Z")


def cherry_pick(
    thread: ThreadId,
    turns: Annotated[
        list[str],
        Parameter(
            name="TURNS",
            completer=in_store,
            help="Turns such as 4 7 or 4,7, the name of any commit of the timeline, or a range such as 4..6 of either",
        ),
    ],
    /,
    *,
    onto: Annotated[
        str,
        Parameter(metavar="NAME", completer=in_store, help="The timeline that the changes are applied to"),
    ],
    ours: Ours = False,
    theirs: Theirs = False,
    path: OnlyPaths = None,
    dry_run: DryRun = False,
    timeline: Annotated[
        str, Parameter(metavar="NAME", completer=in_store, help="The timeline that has the turns")
    ] = MAIN,
    reason: Reason = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Iterator[PickedTurn]:
    """Apply the changes of state of turns, or a range of them, to another timeline

    Messages stay where they were said. Each turn becomes a commit of its own. A turn that touched a path
    which is different there is a conflict: the error names it, and nothing of any turn is written.
    --ours and --theirs settle conflicts as in merge. --dry-run shows what each turn would change on top of those
    before it that fit, and every conflict.
    """
    prefer = _preferred(path, ours=ours, theirs=theirs)
    with (reading if dry_run else writing)(everywhere) as store:
        source, target = (store.thread(thread, timeline=name) for name in (timeline, onto))
        wanted = [_as_moment(source, each) for words in turns for each in _apart(words)]
        plan = partial(target.cherry_pick, wanted, source=timeline, prefer=prefer, dry_run=True)
        with _showing_conflicts(everywhere, target, plan):
            taken = (
                plan()
                if dry_run
                else target.cherry_pick(wanted, source=timeline, reason=reason, prefer=prefer, op_id=op_id)
            )
        for each in taken.picks:
            yield PickedTurn.of(target, each, dry_run=dry_run)


def _apart(words: str) -> list[str]:
    """Return the turns of a list such as 4,7, or the words themselves if they are none."""
    listed = words.split(",")
    return listed if all(map(_TURNS.match, listed)) else [words]


def _as_moment(source: Thread, words: str) -> str:
    """Return the name of a turn that was given by its number alone, and any other name; one that is not there is refused."""
    if _TURNS.match(words):
        return f"turn:{words}" if words.isdigit() else words
    if ".." not in words:
        resolve(source, words)  # on its own timeline, and its error has names that are close
    return words


class ReplayedInputShape(msgspec.Struct, frozen=True, kw_only=True):
    """One input that was given again, and how its run ended."""

    turn: int
    id: str
    input: str
    was_there: bool  # the timeline had it before this replay
    run: str | None  # null: it was not given there, now or before
    status: str | None
    answer: str
    why: str | None


class StoppedCallShape(msgspec.Struct, frozen=True, kw_only=True):
    """One call that was not made."""

    turn: int
    call: str
    tool: str
    effect: str
    arguments: Any  # JSON, or text that is none; null: forgotten
    why: str
    made_before: str | None  # the call with the same tool and arguments that was made on the first timeline


_REPLAY_COLUMNS = (
    Column("turn", right=True),
    Column("input", gives_way=True),
    Column("answer", gives_way=True),
    Column("ended"),
    Column("run", is_id=True),
)
_STOPPED_COLUMNS = (
    Column("turn", right=True),
    Column("tool", "tool"),
    Column("arguments", gives_way=True),
    Column("effect", leaves=1),
    Column("made before", is_id=True),
)


class ReplayAnswer(Answer, frozen=True, kw_only=True):
    """What a replay did, or would do."""

    thread: str
    source: str
    onto: str
    effect_max: str
    dry_run: bool
    complete: bool  # every input was given, and every run ended by itself
    inputs: list[ReplayedInputShape]
    stopped: list[StoppedCallShape]

    @classmethod
    def of(cls, thread: str, done: ReplayReport) -> ReplayAnswer:
        """Return the replay in the shape of --json."""
        return cls(
            thread=thread,
            source=done.source,
            onto=done.onto,
            effect_max=done.effect_max,
            dry_run=done.dry_run,
            complete=done.is_complete,
            inputs=[
                ReplayedInputShape(
                    turn=each.turn,
                    id=each.id,
                    input=each.text,
                    was_there=each.was_there,
                    run=each.run,
                    status=each.status,
                    answer=each.answer,
                    why=each.why,
                )
                for each in done.inputs
            ],
            stopped=[
                StoppedCallShape(
                    turn=each.turn,
                    call=each.call,
                    tool=each.tool,
                    effect=each.effect,
                    arguments=in_json(each.arguments),
                    why=each.why,
                    made_before=each.made_before,
                )
                for each in done.stopped
            ],
        )

    @property
    def exit_code(self) -> int:
        """Return 1 if a run failed or waits, so that later inputs were not given."""
        return 0 if self.dry_run or self.complete else 1

    def show(self, screen: Screen) -> None:
        """Print the inputs with their runs, and what was stopped."""
        if not self.inputs:
            screen.say((self.source, "line"), " has no input after ", (self.onto, "line"), " left it.")
            return
        screen.sentence(*self._what_was_given())
        screen.table(_REPLAY_COLUMNS, [self._row(each) for each in self.inputs])
        screen.gap()
        calls = count(len(self.stopped), "call")
        if not self.stopped:
            screen.say(("✓ ", "good"), "No call was beyond the bound.")
        elif self.dry_run:
            screen.say(f"These inputs led to {calls} beyond the bound, denied if asked for again:")
        else:
            screen.say(("! ", "warn"), f"{calls} not made:")
        if self.stopped:
            screen.table(_STOPPED_COLUMNS, map(_stopped_row, self.stopped), indent=2)
            reasons = dict.fromkeys(each.why for each in self.stopped)
            for why in reasons:
                tools = dict.fromkeys(each.tool for each in self.stopped if each.why == why)
                of = f" of {', '.join(tools)}" if len(reasons) > 1 else ""
                screen.wrap((f"Why{of}: {why}.", "quiet"), indent=2, whole_words=True)
        if not self.dry_run:
            screen.suggest("Compare: ", "threads", "diff", self.thread, self.source, self.onto)

    def _what_was_given(self) -> Iterator[Part]:
        """Yield one sentence: how many inputs were given now, and how many were there before."""
        there = sum(each.was_there for each in self.inputs)
        now = [each for each in self.inputs if not each.was_there]
        if not now:
            yield from ((self.onto, "line"), f" has {_the_inputs(there)} of ", (self.source, "line"))
            yield f" already; nothing {'would be' if self.dry_run else 'was'} given"
            return
        given_now = len(now) if self.dry_run else sum(each.run is not None for each in now)
        part = "" if given_now == len(self.inputs) else f"{given_now} of "
        yield f"{'Would give' if self.dry_run else 'Gave'} {part}{count(len(self.inputs), 'input')} of "
        yield from ((self.source, "line"), " to ", (self.onto, "line"))
        if there:
            yield f", which has {count(there, 'other')} already"
        yield f", calls up to {self.effect_max}"

    def _row(self, each: ReplayedInputShape) -> tuple[str | tuple[str, str], ...]:
        ended = state(each.status) if each.status else ("" if self.dry_run else ("not given", "quiet"))
        if each.was_there and each.status in (None, "succeeded"):
            ended = ("was there", "quiet")
        said = each.answer if each.status not in ("failed", "cancelled") else each.why or ""
        return str(each.turn), shortened(each.input, 200), shortened(said, 200), ended, each.run or ""


def _the_inputs(inputs: int) -> str:
    return "the input" if inputs == 1 else f"the {count(inputs, 'input')}"


def _stopped_row(each: StoppedCallShape) -> tuple[str, ...]:
    return (
        str(each.turn),
        each.tool,
        on_one_line(each.arguments),
        each.effect,
        each.made_before or "",
    )


def replay(
    thread: ThreadId,
    /,
    *,
    onto: Annotated[
        str, Parameter(metavar="NAME", completer=in_store, help="The timeline that gets the inputs")
    ],
    since: Annotated[
        str | None,
        Parameter(
            metavar="REF",
            completer=in_store,
            help="Only inputs after this commit; after the timelines parted if left out",
        ),
    ] = None,
    effect_max: Annotated[
        Effect, Parameter(metavar="EFFECT", help="The strongest effect that calls may have in these runs")
    ] = "local_write",
    dry_run: DryRun = False,
    timeline: Annotated[
        str, Parameter(metavar="NAME", completer=in_store, help="The timeline whose inputs are given")
    ] = MAIN,
    code: Code = None,
    everywhere: Everywhere = EVERYWHERE,
) -> ReplayAnswer:
    """Give the later inputs of a timeline to a fork again, with bounded effects

    Each input is a run of its own on the fork. A call beyond --effect-max, or one that would need an
    approval, is denied and listed, so nothing is paid or sent twice. A replay that was interrupted goes on
    where it was if the command is repeated: inputs that the fork has are not given again. It ends with the first
    run that fails, and it is refused if the inputs could not keep their order.
    """
    with writing(everywhere) as store, with_code(store, thread, code, timeline, needed=not dry_run) as found:
        moment = UNSET if since is None else given(found, since)
        done = found.replay(onto=onto, since=moment, effect_max=effect_max, dry_run=dry_run)
        return ReplayAnswer.of(found.id, done)

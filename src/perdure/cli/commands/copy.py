"""`perdure copy`, and `perdure compare`: whether two stores hold the same."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.completion import in_store
from perdure.cli.errors import FAILED
from perdure.cli.input.stores import engine, reading
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.progress import checking
from perdure.cli.output.screen import Column, Screen
from perdure.cli.usage import to_be_named
from perdure.history.verify import Progress
from perdure.model.names import shown_address
from perdure.store.copy import CopyReport, copy_to
from perdure.store.plumbing.handles import system_clock
from perdure.store.upkeep.compare import Differing

__all__ = ["CopiedStore", "StoresCompared", "compare", "copy"]


class CopiedStore(Answer, frozen=True, kw_only=True):
    """What was copied, and what waits in the copy."""

    source: str
    target: str
    copy: str  # its id
    spaces: int
    writes: int  # replayed now; the rest was there already
    resumed: bool
    complete_before: bool  # true: there was nothing to do
    threads: list[str]  # whose open runs and approvals are held in the target
    unknown: int  # calls that were under way in the source
    leases: int  # that were ended in the target
    forgotten: int  # tombstones among what was replayed
    checked: dict[str, int]  # in the target, by kind
    left_out: list[str]  # what is damaged in the source and was not copied, in words

    def show(self, screen: Screen) -> None:
        """Print one sentence, the check, and what is held."""
        if self.complete_before:
            screen.say((self.target, "name"), f" is a copy of {self.source} already; nothing was changed.")
        else:
            again = "Went on copying" if self.resumed else "Copied"
            writes, spaces = count(self.writes, "write"), count(self.spaces, "space")
            screen.wrap(f"{again} {self.source} to ", (self.target, "name"), f": {writes} of {spaces}.")
            looked = count(sum(self.checked.values()), "thing")
            equal = "Both are equal" if not self.left_out else "What was copied is equal"
            screen.say(("✓ ", "good"), f"{equal}, and the copy is intact: {looked} checked.")
        for each in self.left_out:
            screen.wrap(
                f"Left out, because it or its agent's map is damaged: {each}", label=("✗ ", "bad"), indent=2
            )
        if self.forgotten:
            screen.say((f"{count(self.forgotten, 'object')} forgotten in the source: only digests.", "quiet"))
        if self.unknown:
            screen.say(
                ("! ", "warn"), f"{count(self.unknown, 'call')} under way: the outcome is unknown here."
            )
        if self.threads:
            held = count(len(self.threads), "thread")
            screen.wrap(
                ("! ", "warn"),
                f"Runs and approvals of {held} are held in the copy: the original may carry them out.",
            )
            store = to_be_named(self.target)
            screen.suggest("See what it has more: ", "compare", self.source, store=store)
            screen.suggest("If nothing runs the original: ", "runs", "release", "--all", store=store)


def copy(
    source: Annotated[str, Parameter(name="SOURCE", help="The store to copy: a file or an address")],
    target: Annotated[
        str, Parameter(name="TARGET", help="The store to copy to; it is made if it is not there")
    ],
    /,
    *,
    threads: Annotated[
        list[str] | None,
        Parameter(
            name="--thread",
            metavar="ID",
            completer=in_store,
            negative=(),
            show_default=False,
            help="Only this thread, into any store; may be given several times",
        ),
    ] = None,
    sound: Annotated[
        bool,
        Parameter(
            negative=(),
            show_default=False,
            help="Leave out threads, maps and memories that are damaged, and name them",
        ),
    ] = False,
    everywhere: Everywhere = EVERYWHERE,
) -> CopiedStore:
    """Copy a store, or some of its threads, into another store

    Commits, moves, calls and receipts have the same digests and ids in the copy. If it is interrupted, give the
    same command again: it goes on. The source is checked first as `perdure verify` does, and nothing is copied if it is
    damaged, unless --sound leaves that out. The copy is compared with the source and checked, too.

    In the copy, runs and approvals are held until `perdure runs release`, calls that were under way are unknown,
    and leases are ended: the original may still run.
    """
    with (
        engine(Everywhere(store=source)) as opened,
        checking("Copying", quiet=everywhere.json) as bar,
    ):
        report = copy_to(
            opened,
            target,
            address=source,
            threads=threads,
            sound=sound,
            clock=system_clock,
            verifying=None if bar is None else _third(bar, 0),
            progress=None if bar is None else _third(bar, 1),
            checked=None if bar is None else _third(bar, 2),
        )
    return _shape(report, target)


def _third(bar: Progress, third: int) -> Progress:
    """Return the progress of one third of the work: checking the source, copying, checking the copy."""
    return lambda space, done, total: bar(space, done + third * total, 3 * total)


def _shape(report: CopyReport, target: str) -> CopiedStore:
    return CopiedStore(
        source=report.source,
        target=shown_address(target),
        copy=report.id,
        spaces=report.spaces,
        writes=report.writes,
        resumed=report.resumed,
        complete_before=report.verified is None,
        threads=list(report.open),
        unknown=report.unknown,
        leases=report.leases,
        forgotten=report.forgotten,
        checked=report.verified.checked if report.verified else {},
        left_out=list(report.left_out),
    )


_SHOWN = 100
_DIFFERENCES = (
    Column("", leaves=3),
    Column("name", "name", is_id=True),
    Column("timeline", "line", leaves=2),
    Column("difference", gives_way=True),
    Column("head in A", "digest"),
    Column("head in B", "digest"),
)
_RELATIONS = {
    "only_a": "only in A",
    "only_b": "only in B",
    "a_ahead": "A has more",
    "b_ahead": "B has more",
    "moved": "same commits, other head",
    "diverged": "each has more",
}


class StoresCompared(Answer, frozen=True, kw_only=True):
    """How far two stores hold the same."""

    a: str
    b: str
    same: bool
    counts: dict[str, int]  # of threads, agents and memories in either store
    timelines: int
    differing: list[Differing]

    @property
    def exit_code(self) -> int:
        """Return 1 if the stores differ."""
        return 0 if self.same else FAILED

    def show(self, screen: Screen) -> None:
        """Print a line for each timeline that differs, and the sum."""
        if self.differing:
            screen.say("A is ", (self.a, "name"), ", B is ", (self.b, "name"), ".")
            screen.table(
                _DIFFERENCES,
                [
                    (
                        each.kind,
                        each.name,
                        each.timeline,
                        _RELATIONS[each.relation],
                        digest(each.a),
                        digest(each.b),
                    )
                    for each in self.differing[:_SHOWN]
                ],
            )
        if len(self.differing) > _SHOWN:
            left = count(len(self.differing) - _SHOWN, "timeline")
            screen.say((f"… and {left} more; --json names all.", "quiet"))
        of = ", ".join(
            f"{number} {kind if number == 1 else _PLURAL[kind]}" for kind, number in self.counts.items()
        )
        if self.same:
            screen.wrap(
                ("✓ ", "good"),
                f"Both hold the same {count(self.timelines, 'timeline')}, commit by commit: {of}.",
            )
        else:
            screen.wrap(
                ("✗ ", "bad"), f"{len(self.differing)} of {count(self.timelines, 'timeline')} differ: {of}."
            )


_PLURAL = {"thread": "threads", "agent": "agents", "memory": "memories"}


def compare(
    a: Annotated[str, Parameter(name="A", help="The first store: a file or an address")],
    b: Annotated[
        str | None,
        Parameter(name="B", help="The second store; the one of --store if left out", show_default=False),
    ] = None,
    /,
    *,
    everywhere: Everywhere = EVERYWHERE,
) -> StoresCompared:
    """Compare two stores: what differs, and which has more

    Threads, agents' maps and memories are compared by their heads. A head names its whole history by digest, so two equal heads mean the same commits. What is beside the history,
    such as leases and held runs, is not compared; that each store is intact is for `perdure verify`. Both are only
    read. Exits with 1 if they differ.
    """
    other = everywhere.store if b is None else b
    with reading(Everywhere(store=a)) as first, reading(Everywhere(store=other)) as second:
        found = first.compare(second)
    return StoresCompared(
        a=shown_address(a),
        b=shown_address(other),
        same=found.same,
        counts=dict(found.counts),
        timelines=found.timelines,
        differing=list(found.differing),
    )

"""`perdure compare`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.errors import FAILED
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, Everywhere
from perdure.cli.output.answer import Answer
from perdure.cli.output.display import digest
from perdure.cli.output.formatting import count
from perdure.cli.output.screen import Column, Screen
from perdure.model.names import shown_address
from perdure.store.upkeep.compare import Differing
from perdure.store.upkeep.compare import compare as compare_stores

__all__ = ["StoresCompared", "compare"]

_SHOWN = 100
_COLUMNS = (
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
                _COLUMNS,
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
        found = compare_stores(first, second)
    return StoresCompared(
        a=shown_address(a),
        b=shown_address(other),
        same=found.same,
        counts=dict(found.counts),
        timelines=found.timelines,
        differing=list(found.differing),
    )

"""`perdure checkpoints derive`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.commands.checkpoints.show import Enclosed
from perdure.cli.commands.models.shapes import known_backend
from perdure.cli.input.lookup import view_at
from perdure.cli.input.stores import reading
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.errors import Corrupt, Invalid, NotFound
from perdure.model.checkpoint import Checkpoint
from perdure.model.head import MAIN
from perdure.store.thread import Thread
from perdure.store.view import View
from perdure.switching.checkpoint.stored import name_of, object_of

__all__ = ["derive"]


def derive(
    thread: ThreadId,
    /,
    *,
    to: Annotated[
        str | None,
        Parameter(
            metavar="BACKEND", help="The backend that is to take over, such as anthropic:claude-sonnet-5-5"
        ),
    ] = None,
    check: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Compare it with the one that the switch at --at kept, and fail unless they are the same bytes",
        ),
    ] = False,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Enclosed:
    """Show the checkpoint that a switch would make, as YAML; nothing is written

    Without --at the ledger counts as it is now; with it, as far as that commit had read it. The same
    commit gives the same checkpoint, in any process and on any copy of the store. At the commit of a
    switch it is the one that the switch made, derived again; --check says whether it is what was kept.
    """
    with reading(everywhere) as store:
        line = store.thread(thread, timeline=timeline)
        backend = to if check else _known(line, to)
        seen = view_at(line, at) if at is not None or check else line
        found = seen.checkpoint(to=backend)
        if check:
            _check(seen, found)
    return Enclosed.of(thread, found)


def _known(line: Thread, to: str | None) -> str | None:
    """The backend that is named; one that takes steps itself is known where the line was switched to it."""
    if to is None or any(to == report.to_backend for report in line.switches()):
        return to
    return known_backend(to)


def _check(seen: View, derived: Checkpoint) -> None:
    """Raise `Corrupt` unless what was derived is what the switch at this commit kept."""
    kept = next(iter(seen.checkpoints(limit=1)), None)
    if kept is None or kept.commit != seen.digest:
        raise NotFound(
            "no switch was made at this commit, so there is no checkpoint to compare with; nothing was compared. "
            "Name the commit of a switch with --at; `perdure checkpoints ls` lists them."
        )
    if derived.to_backend != kept.checkpoint.to_backend:
        raise Invalid(
            f"the switch at {kept.commit[:12]} was to {kept.checkpoint.to_backend}, not to {derived.to_backend}; nothing "
            "was compared. Leave --to out."
        )
    again = object_of(derived).digest
    if again != kept.digest:
        raise Corrupt(
            f"the checkpoint of the switch at {kept.commit[:12]} is {name_of(kept.digest)}, but what its commit and the "
            f"ledger say makes {name_of(again)}; nothing was changed. Run `perdure verify`."
        )

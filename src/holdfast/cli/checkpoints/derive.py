"""`holdfast checkpoints derive`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from holdfast.cli.checkpoints.enclosed import Enclosed
from holdfast.cli.models.listed import known_models
from holdfast.cli.moments import view_at
from holdfast.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from holdfast.cli.stores import reading
from holdfast.model.head import MAIN
from holdfast.providers import registry

__all__ = ["derive"]


def derive(
    thread: ThreadId,
    /,
    *,
    to: Annotated[
        str | None,
        Parameter(
            metavar="BACKEND", help="The backend that is to take over, such as anthropic:claude-sonnet-4-5"
        ),
    ] = None,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Enclosed:
    """Show the checkpoint that a switch would make, as YAML; nothing is written

    Without --at the ledger counts as it is now; with it, as far as that commit had read it. The same
    commit gives the same checkpoint, in any process and on any copy of the store.
    """
    backend = None if to is None else registry.in_full(to, known_models)
    with reading(everywhere) as store:
        line = store.thread(thread, timeline=timeline)
        found = (line if at is None else view_at(line, at)).checkpoint(to=backend)
    return Enclosed.of(thread, found)

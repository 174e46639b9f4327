"""`perdure threads seal`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.options import EVERYWHERE, Everywhere, OpId, ThreadId
from perdure.cli.stores import writing
from perdure.cli.threads.moved import Moved
from perdure.errors import Invalid

__all__ = ["SealedLine", "seal"]


class SealedLine(Moved, frozen=True, kw_only=True):
    """Where the timeline stands for good."""

    @property
    def told(self) -> str:
        """What happened."""
        return "Sealed"


def seal(
    thread: ThreadId,
    name: Annotated[
        str | None, Parameter(name="NAME", help="The timeline to seal", show_default=False)
    ] = None,
    /,
    *,
    timeline: Annotated[str | None, Parameter(metavar="NAME", help="The same, said as an option")] = None,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> SealedLine:
    """End writing on a timeline, for everybody and for good

    It can still be read, forked and promoted.
    """
    wanted = {given for given in (name, timeline) if given is not None}
    if len(wanted) != 1:
        raise Invalid("sealing is for good, so name one timeline, main too; nothing was sealed.")
    with writing(everywhere) as store:
        found = store.thread(thread, timeline=wanted.pop())
        return SealedLine.by(found, found.seal(op_id=op_id))

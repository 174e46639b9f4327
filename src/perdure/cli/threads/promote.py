"""`perdure threads promote`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from perdure.cli.options import EVERYWHERE, Everywhere, OpId, ThreadId
from perdure.cli.stores import writing
from perdure.cli.threads.moved import Moved

__all__ = ["Promoted", "promote"]


class Promoted(Moved, frozen=True, kw_only=True):
    """Where main stands now, and by which name the old one is kept."""

    source: str
    kept_as: str

    @property
    def told(self) -> str:
        """What happened."""
        return f"Promoted {self.source}, keeping the old main as {self.kept_as}"


def promote(
    thread: ThreadId,
    name: Annotated[str, Parameter(name="NAME", help="The timeline that is to be main")],
    /,
    *,
    op_id: OpId = None,
    everywhere: Everywhere = EVERYWHERE,
) -> Promoted:
    """Make another timeline main; the old main is kept, sealed"""
    with writing(everywhere) as store:
        found = store.thread(thread)
        head = found.promote(name, op_id=op_id)
        moved = Moved.by(found, head)
        kept_as = f"{head.timeline}.v{head.version - 1}"  # the old main, by the version that it had
        return Promoted(thread=moved.thread, head=moved.head, turn=moved.turn, source=name, kept_as=kept_as)

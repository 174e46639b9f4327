"""`perdure checkpoints show`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from perdure.cli.checkpoints.enclosed import Enclosed
from perdure.cli.moments import view_at
from perdure.cli.options import EVERYWHERE, At, Everywhere, ThreadId, Timeline
from perdure.cli.stores import reading
from perdure.errors import Invalid, NotFound
from perdure.migration.checkpoints import Kept
from perdure.model.head import MAIN
from perdure.model.nearness import did_you_mean

__all__ = ["show"]

_PREFIX = "chk-"


def show(
    thread: ThreadId,
    checkpoint: Annotated[
        str | None,
        Parameter(
            name="CHECKPOINT",
            help="Its name, its digest or the first digits of it; the newest if left out",
            show_default=False,
        ),
    ] = None,
    /,
    *,
    at: At = None,
    timeline: Timeline = MAIN,
    everywhere: Everywhere = EVERYWHERE,
) -> Enclosed:
    """Show one checkpoint as YAML, in the envelope in which it can be kept and exchanged"""
    with reading(everywhere) as store:
        seen = view_at(store.thread(thread, timeline=timeline), at)
        if checkpoint is None:
            newest = next(iter(seen.checkpoints(limit=1)), None)
            if newest is None:
                raise NotFound(_none(thread, timeline))
            return Enclosed.of(thread, newest.checkpoint)
        return Enclosed.of(thread, _named(seen.checkpoints(), checkpoint, thread, timeline).checkpoint)


def _named(kept: list[Kept], name: str, thread: str, timeline: str) -> Kept:
    digits = name.removeprefix(_PREFIX)
    found = {each.digest: each for each in kept if digits and each.digest.startswith(digits)}
    if len(found) > 1:
        raise Invalid(f"{name!r} begins {len(found)} checkpoints; nothing is shown. Give more digits.")
    if not found:
        if not kept:
            raise NotFound(_none(thread, timeline))
        raise NotFound(
            f"timeline '{timeline}' of '{thread}' has no checkpoint {name!r}; nothing is shown. "
            f"{did_you_mean(name, _names(kept))}See `perdure checkpoints ls {thread}`."
        )
    return next(iter(found.values()))


def _names(kept: list[Kept]) -> Iterator[str]:
    for each in kept:
        yield from (_PREFIX + each.digest[:12], each.digest)


def _none(thread: str, timeline: str) -> str:
    return (
        f"timeline '{timeline}' of '{thread}' has no checkpoint: no backend was switched there; nothing is shown. "
        f"`perdure checkpoints derive {thread}` shows what one would say."
    )

"""How a change is written: what a program says about its block, checked before anything is read."""

from __future__ import annotations

import msgspec

from perdure.errors import Invalid
from perdure.history.writer import OnConflict
from perdure.model import names
from perdure.model.head import Head
from perdure.model.run import REASONS

__all__ = ["How", "check"]


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How a change is written."""

    reason: str
    on_conflict: OnConflict = "raise"
    op_id: str | None = None  # None: the caller does not repeat it
    author: str | None = None
    run: str | None = None  # the run that it is a step of; None: no run makes it
    head: Head | None = None  # the head that must still be the head; None: the head on entering
    chain: bool = False  # each write is a commit of its own
    at_once: bool = False  # the block is left as soon as it is entered, so everything is read on entering


def check(how: How, timeline: str) -> None:
    """Raise `Invalid` unless a change of that timeline can be written like this."""
    if how.op_id is not None:
        names.check_op_id(how.op_id)
    names.check_id("reason", how.reason)
    if how.run is not None:
        names.check_id("run", how.run)
    elif how.reason in REASONS:
        raise Invalid(
            f"the reason '{how.reason}' is reserved for runs; nothing was written.",
            code="reason_reserved",
            advice="Give one of your own.",
            reason=how.reason,
        )
    if how.on_conflict not in ("raise", "rebase"):
        raise Invalid(
            f"on_conflict is 'raise' or 'rebase', not {how.on_conflict!r}; nothing was written.",
            code="on_conflict_unknown",
        )
    if how.chain is not False:
        names.check_flag("chain", how.chain)
    if how.author is not None:
        names.check_label("author", how.author)
    if how.chain and how.on_conflict != "raise":
        raise Invalid(
            "the commits of a chain are named while the block runs, so it cannot be rebased; nothing was written.",
            code="chain_not_rebased",
            advice="Leave on_conflict out, and make the change again after StaleHead.",
        )
    if how.head is not None:
        _check_head(how.head, timeline)


def _check_head(head: Head, timeline: str) -> None:
    if not isinstance(head, Head):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise Invalid(
            f"head is a Head that was read earlier, not {head!r}; nothing was written.", code="not_a_head"
        )
    if head.timeline != timeline:
        raise Invalid(
            f"a head of timeline '{head.timeline}' cannot be written on '{timeline}'; nothing was written.",
            code="head_of_another_timeline",
            advice=f"Use on({head.timeline!r}), or the head of this one.",
            timeline=timeline,
            head_timeline=head.timeline,
        )
